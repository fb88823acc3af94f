# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which documents are exact duplicates, found before any is tokenized.

`scan` hashes the documents of a group of pieces, on any engine. `compare`, in
the process that coordinates the run, reads the hashes of all groups and records
for each which documents to leave out: all but the first, in the order of
inputs, of those of the same text of which the same is trained on. A preference
pair counts as one document.

    GROUP.hashes   16 bytes per document, in order; zeros if it has no text
    GROUP.drops    uint32 numbers of documents that are left out, from 0

Both are in a directory that is named by what decides them. A group costs five
requests. `compare` sorts hashes in buckets that are spilled to temporary
files: it takes a byte of memory and 24 bytes of disk per document, and some
300 MB.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import hashlib
import tempfile
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.prepare import lazy
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare import rejections
from chomp_data.prepare import scratch
from chomp_data.prepare.reading import base
from chomp_data.storage import paths

DUPLICATES = ("keep", "drop")
REASON = "duplicate"

# Raise it when a document's hash is made of something else: a run that was
# interrupted reads the hashes that it wrote.
_VERSION = 1

_HASH_BYTES = 16
# Hashes that are sorted at once, and the most buckets: each is an open file.
BUCKET_HASHES = 1 << 22
_MOST_BUCKETS = 256
# Bytes of all buckets together that are kept in memory.
_SPILL_BYTES = 1 << 27

_ROW = np.dtype([("hash", "<u8", 2), ("document", "<i8")])
_Group = tuple[base.InputPiece, ...]


@dataclasses.dataclass(frozen=True)
class ScanTask:
  """Documents to hash.

  Attributes:
    group: Their pieces.
    read: How documents are read, without `duplicates`.
    on_error: 'fail', or 'skip' what no document can be made of.
    directory: The directory or URL of hashes.
  """

  group: _Group
  read: records.ReadOptions
  on_error: str
  directory: str

  @property
  def size(self) -> int:
    """About the bytes of the inputs."""
    return sum(piece.size for piece in self.group)


def scan(task: ScanTask) -> int:
  """Writes the hashes of documents unless they are there: a pure function.

  Returns:
    The number of documents.

  Raises:
    PrepareError: If an input cannot be read.
  """
  name = f"{scratch.digest(task.group)}.hashes"
  try:
    hashes = scratch.read_summed(task.directory, name)
  except (OSError, ValueError):
    rejected = rejections.Rejections(raises=task.on_error != "skip")
    documents = documents_of(task.group, task.read, rejected)
    units = _units(documents, task.read)
    hashes = b"".join(map(_hash, units))
    scratch.write_summed(task.directory, name, hashes)
  return len(hashes) // _HASH_BYTES


def without_duplicates(
  groups: Sequence[_Group],
  read: records.ReadOptions,
  on_error: str,
  work: str,
  call: Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]],
) -> records.ReadOptions:
  """Returns options that leave duplicates out, having looked for them.

  Args:
    groups: The pieces of each part, in order.
    read: How documents are read.
    on_error: 'fail', or 'skip' what no document can be made of.
    work: The directory or URL of what is done so far.
    call: Calls a function for each task, and returns results in order.

  Raises:
    PrepareError: If an input cannot be read, or hashes are removed meanwhile.
  """
  keys = [scratch.digest(group) for group in groups]
  name = scratch.digest([_VERSION, read, *keys])
  directory = paths.join(work, f"duplicates-{name}")
  tasks = lazy.LazySequence(
    lambda i: ScanTask(groups[i], read, on_error, directory), len(groups)
  )
  compare(directory, keys, list(call(scan, tasks)))
  return dataclasses.replace(read, duplicates=directory)


def documents_of(
  pieces: Sequence[base.InputPiece],
  options: records.ReadOptions,
  rejected: rejections.Rejections,
) -> Iterator[records.Document]:
  """Yields the documents of pieces that are read together, without duplicates.

  Args:
    pieces: What to read, in order.
    options: How.
    rejected: Counts what is left out, as `readers.documents`, and duplicates.

  Raises:
    BadInput: See `readers.documents`.
    PrepareError: See `readers.documents`.
  """
  left_out = frozenset()
  if options.duplicates is not None:
    left_out = _dropped(options.duplicates, pieces)
  number = 0
  for piece in pieces:
    for unit in _units(readers.documents(piece, options, rejected), options):
      if number in left_out:
        rejected.count(REASON)
      else:
        for document in unit:
          rejected.count_chat(document.counts)
          yield document
      number += 1


def _units(
  documents: Iterable[records.Document], read: records.ReadOptions
) -> Iterator[tuple[records.Document, ...]]:
  """Yields what is compared as one: a document, or both halves of a pair."""
  halves = 2 if read.has_pairs else 1
  return zip(*[iter(documents)] * halves, strict=True)


def _hash(unit: Sequence[records.Document]) -> bytes:
  """Returns the hash of texts, and of where they are trained on."""
  if len(unit) > 1:
    of_halves = b"".join(_hash([document]) for document in unit)
    return hashlib.blake2b(
      of_halves, digest_size=_HASH_BYTES, person=b"pair"
    ).digest()
  (document,) = unit
  text = document.text
  if not text:
    return bytes(_HASH_BYTES)  # It is left out in any case.
  digest = hashlib.blake2b(
    text.encode() if isinstance(text, str) else text,
    digest_size=_HASH_BYTES,
    person=b"pieces" if document.pieces else b"",
  )
  if document.pieces:
    weights = [(len(piece), weight) for piece, weight in document.pieces]
    digest.update(repr(weights).encode())
  return digest.digest()


def compare(directory: str, keys: Sequence[str], counts: Sequence[int]) -> None:
  """Records the duplicates of groups of these numbers of documents."""
  is_dropped = np.zeros(sum(counts), np.bool_)
  num_buckets = -(-len(is_dropped) // BUCKET_HASHES)
  num_buckets = min(max(1, num_buckets), _MOST_BUCKETS)
  with contextlib.ExitStack() as stack:
    buckets: list[Any] = [
      stack.enter_context(
        tempfile.SpooledTemporaryFile(_SPILL_BYTES // num_buckets)
      )
      for _ in range(num_buckets)
    ]
    _spill(directory, keys, buckets)
    for bucket in buckets:
      bucket.seek(0)
      rows = np.frombuffer(bucket.read(), _ROW)
      # Rows are in the order of inputs, which the sort keeps among equals.
      rows = rows[np.lexsort((rows["hash"][:, 1], rows["hash"][:, 0]))]
      is_again = (rows["hash"][1:] == rows["hash"][:-1]).all(axis=1)
      is_dropped[rows["document"][1:][is_again]] = True
  ends = np.cumsum(counts)

  def write(number: int) -> None:
    dropped = is_dropped[ends[number] - counts[number] : ends[number]]
    data = np.flatnonzero(dropped).astype("<u4").tobytes()
    scratch.write_summed(directory, f"{keys[number]}.drops", data)

  for _ in scratch.mapped(write, range(len(keys))):
    pass


def _spill(directory: str, keys: Sequence[str], buckets: Sequence[Any]) -> None:
  """Writes the rows of all hashes to buckets, by hash."""

  def read(key: str) -> np.ndarray:
    try:
      data = scratch.read_summed(directory, f"{key}.hashes")
    except (OSError, ValueError) as error:
      raise errors.PrepareError(
        f"{directory} must stay as it is while duplicates are looked for, got"
        f" {error}. Run again."
      ) from None
    return np.frombuffer(data, "<u8").reshape(-1, 2)

  first = 0
  for hashes in scratch.mapped(read, keys):
    rows = np.empty(len(hashes), _ROW)
    rows["hash"] = hashes
    rows["document"] = np.arange(first, first + len(hashes))
    first += len(hashes)
    rows = rows[hashes.any(axis=1)]
    bucket_of = rows["hash"][:, 0] % np.uint64(len(buckets))
    rows = rows[np.argsort(bucket_of, kind="stable")]
    ends = np.cumsum(np.bincount(bucket_of.astype(int), minlength=len(buckets)))
    for bucket, part in zip(buckets, np.split(rows, ends[:-1]), strict=True):
      bucket.write(part.tobytes())


def _dropped(
  directory: str, group: Sequence[base.InputPiece]
) -> frozenset[int]:
  """Returns which documents of a group are left out."""
  name = f"{scratch.digest(group)}.drops"
  try:
    data = scratch.read_summed(directory, name)
    return frozenset(np.frombuffer(data, "<u4").tolist())
  except (OSError, ValueError) as error:
    raise errors.PrepareError(
      f"{paths.join(directory, name)} must hold the duplicates that were"
      f" noted, got {error}. Remove {directory}, and run again."
    ) from None
