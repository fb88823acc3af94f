# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Adds checksums to data of other tools, so that later changes are errors.

For ArrayRecord files, `save_to_disk` directories, Megatron corpora and Levanter
caches. The checksums are stored beside the data, in PATH.adopted.
"""

import argparse
import hashlib

from chomp_data.commands.store_commands import shared
from chomp_data.storage import opening
from chomp_data.stores import adopting
from chomp_data.stores import checksum_sidecar


def add(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments."""
  parser.add_argument(
    "paths", nargs="+", metavar="PATH", help="path of the data"
  )


def run(args: argparse.Namespace) -> int:
  """Writes the checksums; returns the exit status."""
  for path in args.paths:
    with shared.path_in_errors(path):
      corpus = adopting.files_at(path, opens_records=True)
      sizes = [corpus.path(i).stat().st_size for i in range(len(corpus.names))]
      with shared.bar(sum(sizes), "B") as progress:
        sidecar = checksum_sidecar.adopt(
          corpus.home, corpus.root, corpus.names, progress.update
        )
      header = opening.open_storage(sidecar.directory).get(
        checksum_sidecar.FILE
      )
    print(
      f"{path}: {len(sizes)} files, {sum(sizes):,} bytes, checksums in"
      f" {sidecar.directory}, SHA-256 {hashlib.sha256(header).hexdigest()}"
    )
  return 0
