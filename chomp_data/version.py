# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The package's version: the one place that states it."""

__version__ = "0.2.0"
