# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Trains the reference decoder: chomp-train, from a checkout."""

from chomp_data.commands import scripts

if __name__ == "__main__":
  scripts.train()
