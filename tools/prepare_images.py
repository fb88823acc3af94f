# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Draws pictures of several sizes: chomp-prepare-images, from a checkout."""

from chomp_data.commands import scripts

if __name__ == "__main__":
  scripts.prepare_images()
