# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of the hash and of the permutation, in NumPy's form and compiled.

Where each is from is told where it is used: `index/hashing.py` (SplitMix64)
and `index/permutation.py` (a Feistel network). None of them may ever change.
"""

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))

ROUNDS = 8
ROUND_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
ROUND_SHIFT = np.uint64(32)
