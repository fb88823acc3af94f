# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Shows what is in a step's rows: chomp-inspect, from a checkout."""

from chomp_data.commands import scripts

if __name__ == "__main__":
  scripts.inspect_batches()
