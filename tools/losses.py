# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Says which documents cost more: chomp-losses, from a checkout."""

from chomp_data.commands import scripts

if __name__ == "__main__":
  scripts.losses()
