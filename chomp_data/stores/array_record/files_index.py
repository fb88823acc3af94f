# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What indexes of records and samples, of any format, are built with."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import os
import pathlib
from typing import Any

from chomp_data import errors
from chomp_data.storage import paths
from chomp_data.stores import checksum_sidecar
from chomp_data.stores import object_corpus
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
  *,
  files: record_files.Key | None = None,
  verifies_reads: bool = False,
) -> dict[str, side_index.SideArray]:
  """Returns the index of a corpus's files, built if there is none that fits.

  Args:
    corpus: The files.
    name: What the index is, as in `side_index.load_or_build`.
    key: All besides the files that its arrays depend on.
    index_dir: Where to keep it; None is beside the corpus.
    may_build: Whether it may be built for other files than those of an index;
      for files of which only the modification times differ it always may.
    build: Makes the arrays, in parts.
    files: What `unchanged` returned, if it did.
    verifies_reads: Whether whatever is read of the files is compared with
      checksums in the index. Files whose names, sizes and times are those of
      an index are then not read to open it.

  Raises:
    StoreError: If there is no index that fits and files are not those of
      another corpus but damaged or exchanged, or `may_build` is False.
  """
  sidecar = sidecar_of(corpus)
  home = home_of(corpus, index_dir)
  if files is None and verifies_reads:
    files = unchanged(corpus, name, key, index_dir)
  identity: Sequence[Any] = corpus.key() if files is None else files

  def parts() -> side_index.Parts:
    if sidecar is not None:
      total = sidecar.num_bytes
      with progress(corpus.home, total) as bar:
        sidecar.check_content(corpus.root, bar.update)
    is_copy = False
    for directory, indexed in side_index.known(home):
      corpus.check_unharmed(identity, indexed.get("files"), directory)
      is_copy |= corpus.is_copy_of(identity, indexed.get("files"), directory)
    # Beyond its ends a copy may differ. Then the hash that its index gives
    # does, which is compared where a store is opened again.
    if not may_build and not is_copy:
      raise errors.StoreError(
        f"{corpus.home} must have the files that this run began with, got files"
        " that no index fits. Put them back, or start again."
      )
    return build()

  return side_index.load_or_build(home, name, {**key, "files": identity}, parts)


def home_of(
  corpus: Files, index_dir: str | os.PathLike[str] | None
) -> str | os.PathLike[str]:
  """Returns the path beside which indexes of a corpus are kept."""
  if index_dir is None:
    return corpus.home
  return pathlib.Path(index_dir) / pathlib.Path(corpus.home).absolute().name


def unchanged(
  corpus: Files,
  name: str,
  key: Mapping[str, Any],
  index_dir: str | os.PathLike[str] | None,
) -> record_files.Key | None:
  """Returns what an index says of files that did not change since it was built.

  Of more than 1,024 files some are looked at, evenly apart.

  Args:
    corpus: The files.
    name: As in `load_or_build`, like the following ones.
    key: Likewise.
    index_dir: Likewise.

  Returns:
    `corpus.key()` as it was; None if a file changed, or of objects in a bucket.

  Raises:
    StoreError: If a file cannot be found.
  """
  if not isinstance(corpus, record_files.Corpus):
    return None
  home = home_of(corpus, index_dir)
  stamps = corpus.stamps()
  for directory, indexed in side_index.known(home, name):
    try:
      files = record_files.decoded_key(indexed.get("files"), directory)
    except errors.StoreError:
      continue  # Where none fits, this is the error.
    if (
      tuple(file[0] for file in files) == corpus.names
      and all(files[i][:3] == stamp for i, stamp in stamps.items())
      and all(indexed.get(field) == value for field, value in key.items())
    ):
      return files
  return None


def sidecar_of(corpus: Files) -> checksum_sidecar.ChecksumSidecar | None:
  """Returns what files were when they were adopted, if they were.

  Raises:
    StoreError: If files were added, removed, cut or grown since.
  """
  sidecar = checksum_sidecar.load(corpus.home)
  if sidecar is not None:
    sidecar.check_names(corpus.root, corpus.names)
  return sidecar


def progress(path: str | os.PathLike[str], num_bytes: int) -> side_index.Bar:
  """Returns a bar of bytes that are indexed, silent where that is quick."""
  shown = num_bytes >= _QUIET_BYTES
  return side_index.progress(
    num_bytes, f"indexing {paths.name_of(path)}", "B", shown
  )
