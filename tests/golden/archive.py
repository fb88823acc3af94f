# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Stores and side indexes as they were written.

stores.tar.xz    of schema 1, which is no longer written: never made again
schema_2.json    SHA-256 of what schema 2 has beside the arrays, which are the
                 same; `python -m tests.golden.make stores` writes it
stores_2.tar.xz  of schema 2, with what others wrote and its indexes; `python -m
                 tests.golden.make stores_2` wrote it, once
"""

from collections.abc import Sequence
import hashlib
import pathlib
import tarfile

import chomp_data
from tests.golden import cases
from tests.golden import corpora
from tests.golden import measuring

PATH = measuring.HERE / "stores.tar.xz"
PATH_2 = measuring.HERE / "stores_2.tar.xz"
SCHEMA_2 = measuring.HERE / "schema_2.json"


def corpora_of(names: Sequence[str]) -> list[str]:
  """Returns the corpora of cases."""
  found = [cases.stores_of(cases.CASES[name].data) for name in names]
  return sorted(set().union(*found))


def write(root: pathlib.Path, names: Sequence[str] = cases.KEPT) -> None:
  """Writes the corpora of cases, and the side indexes that reading leaves."""
  corpora.write_beside(root)
  for name in corpora_of(names):
    corpora.write(root, name)
  for name in names:
    case = cases.CASES[name]
    pipe = chomp_data.build(case.at(root))
    measuring.batches(pipe, case.far)
    measuring.accounts(pipe)


def files(root: pathlib.Path) -> dict[str, pathlib.Path]:
  """Returns the files under a directory by their path from it."""
  found = sorted(path for path in root.rglob("*") if path.is_file())
  return {path.relative_to(root).as_posix(): path for path in found}


def beside_arrays(root: pathlib.Path) -> dict[str, str]:
  """Returns SHA-256 of manifests and tables of stores under a directory."""
  return {
    name: hashlib.sha256(path.read_bytes()).hexdigest()
    for name, path in files(root).items()
    if corpora.has_own_bytes(name.split("/")[0]) and is_beside(name)
  }


def is_beside(name: str) -> bool:
  """Whether a file is of a store, and of none of its arrays."""
  return name.split("/")[1] in ("manifest.json", "tables")


def pack(root: pathlib.Path, path: pathlib.Path) -> None:
  """Makes an archive of the files under a directory."""
  with tarfile.open(path, "x:xz") as packed:
    for name, file in files(root).items():
      packed.add(file, name)


def unpack(root: pathlib.Path, path: pathlib.Path = PATH) -> None:
  """Lays an archive's files under a directory."""
  with tarfile.open(path) as packed:
    # Python has filters from 3.11.4 on.
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    packed.extractall(root, **safely)
