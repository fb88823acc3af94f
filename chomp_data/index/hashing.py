# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Seeded keys and hashes: every random choice is a pure function of a key.

Keys are derived by folding in names and numbers, never by adding seeds, so
seed 0 epoch 1 is not seed 1 epoch 0. A key is a Python int of 64 bits.
NumPy only.
"""

import hashlib

import numpy as np

# Of SplitMix64; they may never change.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def fold_key(*parts: int | str) -> int:
  """Returns the 64-bit key of a path of names and numbers.

  Args:
    *parts: For instance (seed, "wiki", "shuffle"). 1 and "1" differ.

  Returns:
    The key, 0 .. 2**64 - 1, the same on every machine.
  """
  text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
  digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
  return int.from_bytes(digest, "little")


def mix(values: np.ndarray) -> np.ndarray:
  """Returns the SplitMix64 output function of uint64[...] values.

  Source: Steele, Lea and Flood, "Fast splittable pseudorandom number
  generators", OOPSLA 2014.
  """
  values = (values ^ (values >> _SHIFTS[0])) * _MULTIPLIERS[0]
  values = (values ^ (values >> _SHIFTS[1])) * _MULTIPLIERS[1]
  return values ^ (values >> _SHIFTS[2])


def fold(key: int | np.ndarray, values: np.ndarray) -> np.ndarray:
  """Folds integers into a key.

  Args:
    key: A key, or uint64[...] of keys that broadcasts with `values`.
    values: Integers [...], non-negative.

  Returns:
    uint64[...], one key for each (key, value).
  """
  # NumPy warns of overflow in scalars, never in arrays.
  keys = np.asarray(key, np.uint64)
  steps = np.atleast_1d(np.asarray(values).astype(np.uint64)) + np.uint64(1)
  return mix(keys + mix(steps * GOLDEN))
