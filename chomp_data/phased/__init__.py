# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sources made of several parts in turn: stores that join, rows that remain."""
