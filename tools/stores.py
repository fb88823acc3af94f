# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Looks at stores and makes new ones of them: chomp-stores, from a checkout."""

from chomp_data.commands import scripts

if __name__ == "__main__":
  scripts.stores()
