# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which documents are exact duplicates, found before any is tokenized.

Two rounds of pure functions, on any engine: `scan` hashes the documents of a
group of pieces, `compare` takes all hashes that begin alike and says which
documents to leave out: all but the first, in the order of inputs, of those of
the same text of which the same is trained on. A group's documents are counted
from 0 as they are read.

    GROUP.hashes   int64[256] how many begin with each byte, 16 bytes of each in
                   that order, uint32 of each its document, crc32c of all before
    drops-B.npz    of the groups that lose documents their keys, sorted, where
                   each begins, and the documents

All of it lies in a directory that is named by what decides it.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import io
import json
from typing import Any
import zipfile

import numpy as np

from chomp_data import errors
from chomp_data.prepare import records
from chomp_data.prepare import work_files
from chomp_data.prepare.reading import base
from chomp_data.stores import checksums
from chomp_data.stores import places

DUPLICATES = ("keep", "drop")
REASON = "duplicate"

_DROPS = "drops-"
_DROPS_ARRAYS = ("keys", "begins", "ends", "numbers")
_HASH_BYTES = 16
_BUCKETS = 256
# Hashes that are compared at once: some 300 MB of memory.
_BUCKET_HASHES = 1 << 22
_HEAD_BYTES = 8 * _BUCKETS

_Group = tuple[base.InputPiece, ...]
_Documents = Callable[[], Iterable[records.Document]]


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
  return places.join(parent, f"duplicates-{digest.hexdigest()[:32]}")


def write_hashes(directory: str, group: _Group, documents: _Documents) -> int:
  """Writes the hashes of a group's documents, unless they are there.

  Args:
    directory: Where.
    group: Its pieces.
    documents: Reads them.

  Returns:
    How many have text.
  """
  name = f"{group_key(group)}.hashes"
  count = _complete(directory, name)
  if count is not None:
    return count
  hashes, numbers = bytearray(), []
  for number, document in enumerate(documents()):
    if document.text:  # Others are left out for that.
      hashes += _hash(document)
      numbers.append(number)
  rows = np.frombuffer(bytes(hashes), np.uint8).reshape(-1, _HASH_BYTES)
  order = np.argsort(rows[:, 0], kind="stable")
  counts = np.bincount(rows[:, 0], minlength=_BUCKETS).astype("<i8")
  data = b"".join(
    (
      counts.tobytes(),
      rows[order].tobytes(),
      np.asarray(numbers, "<u4")[order].tobytes(),
    )
  )
  crc = np.asarray([checksums.crc32c(data)], "<u4")
  work_files.write(directory, name, data + crc.tobytes())
  return len(numbers)


def _hash(document: records.Document) -> bytes:
  """Returns the hash of a text, and of where it is trained on."""
  text = document.text
  digest = hashlib.blake2b(
    text.encode() if isinstance(text, str) else text,
    digest_size=_HASH_BYTES,
    person=b"pieces" if document.pieces else b"",
  )
  if document.pieces:
    own = [(len(piece), weight) for piece, weight in document.pieces]
    digest.update(repr(own).encode())
  return digest.digest()


def _complete(directory: str, name: str) -> int | None:
  """Returns how many hashes a file has, None if it is damaged or not there."""
  try:
    data = work_files.read(directory, name)
  except OSError:
    return None
  crc = np.frombuffer(data[-4:], "<u4")
  if len(data) < _HEAD_BYTES + 4 or checksums.crc32c(data[:-4]) != crc[0]:
    return None
  return int(np.frombuffer(data[:_HEAD_BYTES], "<i8").sum())


@dataclasses.dataclass(frozen=True)
class CompareTask:
  """Hashes to compare.

  Attributes:
    directory: Where hashes are, and what is found goes.
    keys: Of all groups, in order.
    bucket: Which of `buckets` ranges of first bytes.
    buckets: How many there are.
    size: Bytes of inputs that are read for it.
  """

  directory: str
  keys: tuple[str, ...]
  bucket: int
  buckets: int
  size: int = 0


def compare_tasks(
  directory: str, groups: Sequence[_Group], num_hashes: int
) -> list[CompareTask]:
  """Returns what has to be compared, of about as many hashes each.

  Args:
    directory: Where hashes are.
    groups: All, in order.
    num_hashes: Of all of them together.
  """
  buckets = min(_BUCKETS, max(1, -(-num_hashes // _BUCKET_HASHES)))
  keys = tuple(map(group_key, groups))
  return [
    CompareTask(directory, keys, bucket, buckets) for bucket in range(buckets)
  ]


def compare(task: CompareTask) -> int:
  """Notes the duplicates among hashes that begin alike: a pure function.

  Returns:
    How many documents are left out.

  Raises:
    PrepareError: If hashes are not there any more.
  """
  low = _BUCKETS * task.bucket // task.buckets
  high = _BUCKETS * (task.bucket + 1) // task.buckets
  parts = []
  for group, key in enumerate(task.keys):
    hashes, numbers = _range(task.directory, key, low, high)
    own = np.empty(len(hashes), _ROW)
    own["hash"] = hashes
    own["group"] = group
    own["number"] = numbers
    parts.append(own)
  rows = np.concatenate(parts) if parts else np.empty(0, _ROW)
  # Rows are in the order of inputs, which a stable sort keeps among equals.
  order = np.lexsort((rows["hash"][:, 1], rows["hash"][:, 0]))
  hashes = rows["hash"][order]
  again = np.zeros(len(rows), np.bool_)
  again[order[1:]] = (hashes[1:] == hashes[:-1]).all(axis=1)
  dropped = rows[again]
  # Within a group, first bytes come before documents.
  dropped = dropped[np.lexsort((dropped["number"], dropped["group"]))]
  groups, starts = np.unique(dropped["group"], return_index=True)
  keys = np.asarray([task.keys[group] for group in groups], "S32")
  by_key = np.argsort(keys)
  ends = np.append(starts[1:], len(dropped))
  file = io.BytesIO()
  np.savez(
    file,
    keys=keys[by_key],
    begins=starts[by_key],
    ends=ends[by_key] if len(starts) else starts,
    numbers=dropped["number"],
  )
  name = f"{_DROPS}{task.bucket:03d}.npz"
  work_files.write(task.directory, name, file.getvalue())
  return len(dropped)


_ROW = np.dtype([("hash", "<u8", 2), ("group", "<i4"), ("number", "<u4")])


def _range(
  directory: str, key: str, low: int, high: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns hashes that begin with low .. high - 1, and their documents."""
  try:
    name = f"{key}.hashes"
    counts = np.frombuffer(
      work_files.read(directory, name, 0, _HEAD_BYTES), "<i8"
    )
    first, last = int(counts[:low].sum()), int(counts[:high].sum())
    hashes, numbers = (
      work_files.read(
        directory, name, begin + first * size, begin + last * size
      )
      for begin, size in (
        (_HEAD_BYTES, _HASH_BYTES),
        (_HEAD_BYTES + int(counts.sum()) * _HASH_BYTES, 4),
      )
    )
  except OSError as error:
    raise errors.PrepareError(
      f"{directory} must stay as it is while duplicates are looked for, got"
      f" {error}. Run again."
    ) from None
  return (
    np.frombuffer(hashes, "<u8").reshape(-1, 2),
    np.frombuffer(numbers, "<u4"),
  )


def dropped(directory: str, group: Sequence[base.InputPiece]) -> frozenset[int]:
  """Returns which documents of a group are left out.

  Raises:
    PrepareError: If what was found is not there any more.
  """
  key = np.bytes_(group_key(group))
  found: list[int] = []
  for drops in _all_drops(directory):
    at = int(np.searchsorted(drops["keys"], key))
    if at < len(drops["keys"]) and drops["keys"][at] == key:
      begin, end = int(drops["begins"][at]), int(drops["ends"][at])
      found += drops["numbers"][begin:end].tolist()
  return frozenset(found)


@functools.lru_cache(maxsize=2)
def _all_drops(directory: str) -> list[dict[str, Any]]:
  names = [
    name
    for name in work_files.names(directory)
    if name.startswith(_DROPS) and name.endswith(".npz")
  ]
  if not names:
    raise errors.PrepareError(
      f"{directory} must hold the duplicates that were found, got none. Run"
      " again."
    )
  return [_drops_in(directory, name) for name in names]


def _drops_in(directory: str, name: str) -> dict[str, Any]:
  data = io.BytesIO(work_files.read(directory, name))
  try:
    with np.load(data, allow_pickle=False) as file:
      return {key: file[key] for key in _DROPS_ARRAYS}
  # What NumPy raises where a file is no archive, or one of another form.
  except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
    raise errors.PrepareError(
      f"{places.join(directory, name)} must hold duplicates that were found,"
      f" got {error!r}. Remove {directory}, and run again."
    ) from None
