# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which documents are exact duplicates, found before any is tokenized.

`write_hashes` hashes the documents of a group of pieces, on any engine.
`compare`, in the process that coordinates the run, reads the hashes of all
groups and notes for each which documents to leave out: all but the first, in
the order of inputs, of those of the same text of which the same is trained on.

    GROUP.hashes   16 bytes per document, in order; zeros if it has no text
    GROUP.drops    uint32 numbers of documents that are left out, from 0

Both are in a directory that is named by what decides them. A group costs five
requests. `compare` sorts hashes in buckets that are spilled to temporary files:
it takes a byte of memory and 24 bytes of disk per document, and some 300 MB.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import contextlib
import dataclasses
import hashlib
import json
import tempfile
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.prepare import records
from chomp_data.prepare import scratch
from chomp_data.prepare.reading import base
from chomp_data.storage import paths

DUPLICATES = ("keep", "drop")
REASON = "duplicate"

_HASH_BYTES = 16
# Hashes that are sorted at once, and the most buckets: each is an open file.
_BUCKET_HASHES = 1 << 22
_MOST_BUCKETS = 256
# Bytes of all buckets together that are kept in memory.
_SPILL_BYTES = 1 << 27
# Requests at once.
_TOGETHER = 32

_ROW = np.dtype([("hash", "<u8", 2), ("document", "<i8")])
_Group = tuple[base.InputPiece, ...]


def group_key(group: Sequence[base.InputPiece]) -> str:
  """Names a group of pieces by all that they are."""
  text = json.dumps([dataclasses.astuple(piece) for piece in group])
  return hashlib.sha256(text.encode()).hexdigest()[:32]


def directory_of(
  groups: Sequence[_Group], options: records.ReadOptions, parent: str
) -> str:
  """Returns where the duplicates of some groups are noted.

  Args:
    groups: All of a store, in order.
    options: How documents are read.
    parent: The directory or URL that it is below.
  """
  digest = hashlib.sha256(
    json.dumps(dataclasses.asdict(options), sort_keys=True).encode()
  )
  for group in groups:
    digest.update(group_key(group).encode())
  return paths.join(parent, f"duplicates-{digest.hexdigest()[:32]}")


def write_hashes(
  directory: str,
  group: _Group,
  documents: Callable[[], Iterable[records.Document]],
) -> int:
  """Writes the hashes of a group's documents, unless they are there.

  Args:
    directory: The directory or URL of hashes.
    group: The pieces.
    documents: Reads them.

  Returns:
    The number of documents.
  """
  name = f"{group_key(group)}.hashes"
  try:
    hashes = scratch.read_summed(directory, name)
  except (OSError, ValueError):
    hashes = b"".join(map(_hash, documents()))
    scratch.write_summed(directory, name, hashes)
  return len(hashes) // _HASH_BYTES


def _hash(document: records.Document) -> bytes:
  """Returns the hash of a text, and of where it is trained on."""
  text = document.text
  if not text:
    return bytes(_HASH_BYTES)  # Left out for that.
  digest = hashlib.blake2b(
    text.encode() if isinstance(text, str) else text,
    digest_size=_HASH_BYTES,
    person=b"pieces" if document.pieces else b"",
  )
  if document.pieces:
    weights = [(len(piece), weight) for piece, weight in document.pieces]
    digest.update(repr(weights).encode())
  return digest.digest()


def compare(
  directory: str, groups: Sequence[_Group], counts: Sequence[int]
) -> None:
  """Notes the duplicates of all groups.

  Args:
    directory: The directory or URL of hashes.
    groups: All of a store, in order.
    counts: The number of documents of each.

  Raises:
    PrepareError: If hashes are not there any more.
  """
  keys = [group_key(group) for group in groups]
  is_dropped = np.zeros(sum(counts), np.bool_)
  num_buckets = -(-len(is_dropped) // _BUCKET_HASHES)
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

  for _ in _mapped(write, range(len(keys))):
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
  for hashes in _mapped(read, keys):
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


def _mapped(
  function: Callable[[Any], Any], values: Sequence[Any]
) -> Iterator[Any]:
  """Yields what a function returns for each value, some called at once."""
  with futures.ThreadPoolExecutor(_TOGETHER) as pool:
    # Not all at once: results wait in memory.
    for first in range(0, len(values), 4 * _TOGETHER):
      yield from pool.map(function, values[first : first + 4 * _TOGETHER])


def dropped(directory: str, group: Sequence[base.InputPiece]) -> frozenset[int]:
  """Returns which documents of a group are left out.

  Raises:
    PrepareError: If what was noted is not there any more.
  """
  name = f"{group_key(group)}.drops"
  try:
    data = scratch.read_summed(directory, name)
    return frozenset(np.frombuffer(data, "<u4").tolist())
  except (OSError, ValueError) as error:
    raise errors.PrepareError(
      f"{paths.join(directory, name)} must hold the duplicates that were"
      f" noted, got {error}. Remove {directory}, and run again."
    ) from None
