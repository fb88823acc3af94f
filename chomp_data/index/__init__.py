# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Integer maps: which row holds what. Pure functions of keys, in NumPy."""
