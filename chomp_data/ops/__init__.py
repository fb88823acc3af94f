# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays in, arrays out: spans, and placing them in a batch, in NumPy."""
