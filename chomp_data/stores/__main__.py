# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m chomp_data.stores`: see chomp_data/commands/stores.py."""

import importlib
import sys

if __name__ == "__main__":
  sys.argv[0] = "python -m chomp_data.stores"
  # By name: stores import nothing of what is made of them.
  importlib.import_module("chomp_data.commands.stores").main()
