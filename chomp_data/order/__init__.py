# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Orders of rows: none, full, block and era shuffles, and lanes."""
