# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Merges stores of one tokenizer into a new store, in the given order.

To read them as one without a copy, write store=('a', 'b') in a config.
"""

import argparse

from chomp_data import stores
from chomp_data.commands.store_commands import shared
from chomp_data.stores import copying


def add(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments."""
  parser.add_argument(
    "paths", nargs="+", metavar="PATH", help="path of a store"
  )
  parser.add_argument("--output", required=True, help="the store to create")
  shared.add_writing(parser)
  shared.add_kinds(parser)


def run(args: argparse.Namespace) -> int:
  """Writes the store; returns the exit status."""
  members = shared.opened(args.paths, args)
  copying.check_alike(members)
  merged = stores.as_one(members)
  shared.copied(
    merged,
    args.output,
    args,
    prepared={
      "merged": [member.hash for member in members],
      **shared.chats_of(merged),
    },
    **shared.layout_of(members[0], args.compression),
  )
  print(shared.line(stores.open_store(args.output)))
  return 0
