# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What indexes of records and samples, of any format, are built with."""

from collections.abc import Callable
from collections.abc import Mapping
import os
import pathlib
from typing import Any

from chomp_data import errors
from chomp_data.stores import adopted
from chomp_data.stores import object_corpus
from chomp_data.stores import places
from chomp_data.stores import side_index
from chomp_data.stores.array_record import record_files

# On a disk, or in a bucket.
Files = record_files.Corpus | object_corpus.ObjectCorpus

# Below this a pass takes a second or less.
_QUIET_BYTES = 256 << 20


def load_or_build(
  corpus: Files,
  name: str,
  key: Mapping[str, Any],
  index_dir: str | os.PathLike[str] | None,
  may_build: bool,
  build: Callable[[], side_index.Parts],
) -> dict[str, side_index.SideArray]:
  """Returns the index of a corpus's files, built if there is none that fits.

  Args:
    corpus: The files.
    name: What the index is, as in `side_index.load_or_build`.
    key: All besides the files that its arrays depend on.
    index_dir: Where to keep it; None is beside the corpus.
    may_build: Whether it may be built.
    build: Makes the arrays, in parts.

  Raises:
    StoreError: If there is no index that fits and files are not those of
      another corpus but damaged or exchanged, or `may_build` is False.
  """
  kept = adopted_of(corpus)
  home, files = corpus.home, corpus.key()
  if index_dir is not None:
    home = pathlib.Path(index_dir) / pathlib.Path(home).absolute().name

  def parts() -> side_index.Parts:
    if kept is not None:
      total = sum(size for _, size in kept.files.values())
      with progress(corpus.home, total) as bar:
        kept.check_content(corpus.root, bar.update)
    for directory, own in side_index.known(home):
      corpus.check_unharmed(files, own.get("files"), directory)
    if not may_build:
      raise errors.StoreError(
        f"{corpus.home} must have the files that this run began with, got files"
        " that no index fits. Put them back, or start again."
      )
    return build()

  return side_index.load_or_build(home, name, {**key, "files": files}, parts)


def adopted_of(corpus: Files) -> adopted.Adopted | None:
  """Returns what files were when they were adopted, if they were.

  Raises:
    StoreError: If files were added, removed, cut or grown since.
  """
  kept = adopted.load(corpus.home)
  if kept is not None:
    kept.check_names(corpus.root, corpus.names)
  return kept


def progress(path: str | os.PathLike[str], num_bytes: int) -> side_index.Bar:
  """Returns a bar of bytes that are indexed, silent where that is quick."""
  shown = num_bytes >= _QUIET_BYTES
  return side_index.progress(
    num_bytes, f"indexing {places.name_of(path)}", "B", shown
  )
