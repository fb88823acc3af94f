# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what a run handed out against its plan: chomp-verify-run.

From a checkout.
"""

from chomp_data.commands import scripts

if __name__ == "__main__":
  scripts.verify_run()
