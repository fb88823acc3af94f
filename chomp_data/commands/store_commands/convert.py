# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Converts a store: compressed, uncompressed, or ArrayRecord.

Also converts data of other tools. Documents and tokens are unchanged; so is the
hash, if both are stores of this package.
"""

import argparse

from chomp_data import errors
from chomp_data import stores
from chomp_data.commands.store_commands import shared
from chomp_data.stores.array_record import record_writer
from chomp_data.stores.zarr import array_layout

_RECORDS = "array_record"


def add(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments."""
  parser.add_argument("path", metavar="PATH", help="path of the store")
  parser.add_argument("--output", required=True, help="the store to create")
  parser.add_argument(
    "--to",
    required=True,
    choices=(*array_layout.COMPRESSIONS, _RECORDS),
    help="zarr with this compression, or ArrayRecord",
  )
  parser.add_argument(
    "--overwrite", action="store_true", help="replace an existing store"
  )
  parser.add_argument(
    "--drop_columns",
    action="store_true",
    help="leave out columns, which ArrayRecord cannot hold",
  )
  shared.add_kinds(parser)


def run(args: argparse.Namespace) -> int:
  """Writes the store; returns the exit status."""
  if args.drop_columns and args.to != _RECORDS:
    raise errors.StoreError(
      f"`--drop_columns` is for --to={_RECORDS} only, got --to={args.to}, which"
      " keeps columns. Leave it out."
    )
  (store,) = shared.opened([args.path], args)
  if args.to == _RECORDS:
    with shared.bar(store.num_tokens, "tokens") as progress:
      record_writer.write(
        store,
        args.output,
        overwrite=args.overwrite,
        drop_columns=args.drop_columns,
        progress=progress.update,
      )
  else:
    shared.copied(
      store,
      args.output,
      args,
      prepared=shared.prepared_of(store),
      **shared.layout_of(store, args.to),
    )
  print(shared.line(stores.open_store(args.output)))
  return 0
