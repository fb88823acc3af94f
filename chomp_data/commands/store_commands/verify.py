# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Verifies every byte of stores against their checksums."""

import argparse
import sys

from chomp_data import errors
from chomp_data.commands.store_commands import shared
from chomp_data.storage import opening
from chomp_data.stores import adopting
from chomp_data.stores import checksum_sidecar
from chomp_data.stores import copying
from chomp_data.stores import verify as verify_lib
from chomp_data.stores.zarr import manifest
from chomp_data.stores.zarr import zarr_store


def add(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments."""
  parser.add_argument(
    "paths",
    nargs="+",
    metavar="PATH",
    help="path of a store, or of adopted data",
  )
  shared.add_kinds(parser)


def run(args: argparse.Namespace) -> int:
  """Prints a line for each path; returns 1 where one is not right."""
  shared.kind_options(args)  # Wrong ones are errors, whatever the paths are.
  status = 0
  for path in args.paths:
    try:
      with shared.path_in_errors(path):
        print(f"{path}: {_verified(path, args)}")
    except errors.StoreError as error:
      print(f"error: {error}", file=sys.stderr)
      status = 1
  return status


def _verified(path: str, args: argparse.Namespace) -> str:
  """Returns what was verified."""
  if opening.open_storage(path).head(manifest.FILE) is not None:
    store_manifest = zarr_store.open_zarr(path).manifest
    layouts = [entry.layout for entry in store_manifest.arrays.values()]
    total = sum(one.size * one.numpy_dtype.itemsize for one in layouts)
    with shared.bar(total, "B") as progress:
      totals = verify_lib.verify_store(path, progress.update)
    return (
      f"right: {totals.num_documents:,} documents, {totals.num_tokens:,} tokens"
    )
  # Of objects, what was adopted is compared where they are opened first.
  corpus = (
    None if opening.open_storage(path).is_remote else adopting.files_at(path)
  )
  sidecar = corpus and checksum_sidecar.load(corpus.home)
  if corpus is not None and sidecar is not None:
    sidecar.check_names(corpus.root, corpus.names)
    total = sidecar.num_bytes
    with shared.bar(total, "B") as progress:
      sidecar.check_content(corpus.root, progress.update)
    return f"right: {len(sidecar.files)} files, {total:,} bytes, as adopted"
  (store,) = shared.opened([path], args)
  with shared.bar(store.num_tokens, "tokens") as progress:
    copying.read_all(store, progress.update)
  return (
    f"readable: {store.num_documents:,} documents, {store.num_tokens:,} tokens;"
    " what was changed before it was opened first cannot be known, adopt it"
    " to catch what comes"
  )
