# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Prepares a store of text: chomp-prepare, from a checkout."""

from chomp_data.commands import scripts

if __name__ == "__main__":
  scripts.prepare()
