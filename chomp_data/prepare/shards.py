# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""From parts to the files of a store: one shard file of one array at a time.

How many values each part has of an array says where its values lie in the
store's, and so which parts a shard file is made of. `write_shard` is a pure
function of these parts, whatever process calls it; it also hashes the blocks
of `tree_hash` that begin in its shard. What grows with the tokens is in there,
and what is left is to join checksums.

    parts     [  a  ][   b   ][ c ][    d    ]
    shards    [    0    ][    1    ][   2    ]
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import secrets
import tempfile
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.prepare import part_files
from chomp_data.prepare import work_files
from chomp_data.stores import json_values
from chomp_data.stores import places
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import array_writer
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import tree_hash

# Of arrays that begin or end with a value that is in no part.
_NO_PART = ""


@dataclasses.dataclass(frozen=True)
class Segment:
  """Values of an array that are together in a part.

  Attributes:
    part: The part's key; '' is one value, which is `add`.
    begin: Where they begin in the store's array.
    count: How many.
    skip: Values of the part before them.
    add: What is added to each.
  """

  part: str
  begin: int
  count: int
  skip: int
  add: int


@dataclasses.dataclass(frozen=True)
class ShardTask:
  """A shard file to write.

  Attributes:
    array: Of which array.
    layout: The array's.
    shard: Which one.
    segments: What its values are, and those of blocks that begin in it.
    levels: Weights of the store's levels, where it has labels.
    parts: Where parts are.
    staging: Where the store is made; the store's own URL, where rows are at
      one.
    rows: Where rows of finished shards go.
  """

  array: str
  layout: array_layout.ArrayLayout
  shard: int
  segments: tuple[Segment, ...]
  levels: tuple[float, ...]
  parts: str
  staging: str
  rows: str

  @property
  def file(self) -> str:
    """The file in the store."""
    return f"{self.array}/{array_layout.shard_file(self.shard)}"

  @property
  def size(self) -> int:
    """Bytes of its values."""
    low = self.shard * self.layout.shard
    count = min(self.layout.shard, self.layout.size - low)
    return count * self.layout.numpy_dtype.itemsize

  @property
  def row_name(self) -> str:
    """What its row is called: by all that decides the file."""
    values = dataclasses.asdict(self)
    for name in ("parts", "staging", "rows"):
      del values[name]
    text = json.dumps(values, sort_keys=True)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


@dataclasses.dataclass(frozen=True)
class ShardRow:
  """What is in a shard file.

  Attributes:
    num_bytes: Of the file.
    crc32c: Of each decoded chunk.
    stored_bytes: Of each chunk as it is stored.
    digests: Of each block that begins in it, as hex.
  """

  num_bytes: int
  crc32c: list[int]
  stored_bytes: list[int]
  digests: list[str]


@dataclasses.dataclass(frozen=True)
class _RowFile:
  """What is kept of a shard file that is complete.

  Attributes:
    file: What tells the file from others of its name.
    row: What is in it.
  """

  file: list[int | str | None]
  row: ShardRow


@dataclasses.dataclass(frozen=True)
class _Joined:
  """An array as the values of parts, one part after the other."""

  dtype: str
  size: int
  parts: Sequence[str]
  begins: np.ndarray
  counts: np.ndarray
  skips: np.ndarray
  adds: np.ndarray

  def within(self, low: int, high: int) -> tuple[Segment, ...]:
    """Returns the segments that hold values low .. high - 1."""
    first = int(np.searchsorted(self.begins + self.counts, low, side="right"))
    last = int(np.searchsorted(self.begins, high, side="left"))
    return tuple(
      Segment(
        self.parts[i],
        int(self.begins[i]),
        int(self.counts[i]),
        int(self.skips[i]),
        int(self.adds[i]),
      )
      for i in range(first, last)
      if self.counts[i]
    )


def levels_of(rows: Sequence[part_files.PartRow]) -> tuple[float, ...]:
  """Returns the levels of all parts: 0, 1, then others by weight.

  Raises:
    PrepareError: If they are too many.
  """
  if not rows or "label_starts" not in rows[0].sections:
    return ()
  found = {weight for row in rows for weight in row.levels}
  first, most = manifest_lib.FIRST_LEVELS, manifest_lib.MAX_LEVELS
  levels = (*first, *sorted(found - set(first)))
  if len(levels) > most:
    raise errors.PrepareError(
      f"weights of tokens must be at most {most} different ones, got"
      f" {len(levels)}. Round them."
    )
  return levels


def tasks(
  keys: Sequence[str],
  rows: Sequence[part_files.PartRow],
  *,
  token_dtype: str,
  chunk: int,
  compression: str,
  parts: str,
  staging: str,
  shard_rows: str,
) -> dict[str, tuple[array_layout.ArrayLayout, list[ShardTask]]]:
  """Returns the shard files of a store.

  Args:
    keys: Of all parts, in order.
    rows: What is in each.
    token_dtype: Of the tokens.
    chunk: Elements of a chunk.
    compression: 'none' or 'zstd'.
    parts: Where parts are.
    staging: Where the store is made.
    shard_rows: Where rows of finished shards go.

  Returns:
    By array its layout, and its shard files in order.
  """
  shard = chunk * array_layout.DEFAULT_CHUNKS_PER_SHARD
  levels = levels_of(rows)
  out = {}
  for name, joined in _joined(keys, rows, token_dtype).items():
    layout = array_layout.ArrayLayout(
      joined.dtype, joined.size, chunk, shard, compression
    )
    own = []
    for number in range(layout.num_shards):
      low, high = number * shard, min((number + 1) * shard, layout.size)
      # Blocks that begin in the shard may end behind it.
      end = max(high, min(-(-high // tree_hash.BLOCK) * tree_hash.BLOCK,
                          layout.size))  # fmt: skip
      own.append(
        ShardTask(
          name, layout, number, joined.within(low, end), levels, parts,
          staging, shard_rows,
        )
      )  # fmt: skip
    out[name] = layout, own
  return out


def _joined(
  keys: Sequence[str], rows: Sequence[part_files.PartRow], token_dtype: str
) -> dict[str, _Joined]:
  """Returns how arrays are made of parts."""
  documents = np.asarray([row.num_documents for row in rows])
  tokens = np.asarray([row.num_tokens for row in rows])
  sizes = {
    name: np.asarray([row.size(name) for row in rows])
    for name in rows[0].sections
  }
  dtypes = {**manifest_lib.DTYPES, "tokens": token_dtype}
  none = np.zeros(len(rows), np.int64)

  def joined(name, counts, adds=none, skips=none, before=None, after=None):
    own, begins = list(keys), np.cumsum(counts) - counts
    columns = [begins, counts, skips, adds]
    size = int(counts.sum())
    if before is not None:
      own = [_NO_PART, *own]
      columns = [columns[0] + 1, *columns[1:]]
      columns = [
        np.append(value, column)
        for value, column in zip((0, 1, 0, before), columns, strict=True)
      ]
      size += 1
    if after is not None:
      own = [*own, _NO_PART]
      columns = [
        np.append(column, value)
        for value, column in zip((size, 1, 0, after), columns, strict=True)
      ]
      size += 1
    return _Joined(dtypes[name], size, own, *columns)

  out = {"tokens": joined("tokens", tokens)}
  for name, of in manifest_lib.OFFSETS.items():
    if name in sizes:
      ends = np.cumsum(sizes[of]) - sizes[of]
      out[name] = joined(name, documents, ends, before=0)
      out[of] = joined(of, sizes[of])
  if "document_weights" in sizes:
    out["document_weights"] = joined("document_weights", documents)
  if "label_starts" in sizes:
    # A run that goes on from part to part is one.
    skips, last = [], None
    for row in rows:
      skips.append(int(bool(row.ends) and row.ends[0] == last))
      last = row.ends[1] if row.ends else last
    skips = np.asarray(skips)
    counts = sizes["label_starts"] - skips
    trained = np.asarray([row.num_trained for row in rows])
    before = np.cumsum(trained) - trained
    out["label_starts"] = joined(
      "label_starts", counts, np.cumsum(tokens) - tokens, skips
    )
    out["label_levels"] = joined("label_levels", counts, none, skips)
    out["label_sums"] = joined(
      "label_sums", counts, before, skips, after=int(trained.sum())
    )
  return out


def find_shard(task: ShardTask) -> ShardRow | None:
  """Returns the row of a shard that is complete, else None."""
  try:
    data = work_files.read_summed(task.rows, task.row_name)
    found = json_values.parse(_RowFile, data, task.row_name)
    # A run with other options may have put its own in the same place.
    return found.row if found.file == _stamp(task) else None
  except (OSError, ValueError):
    return None


def _stamp(task: ShardTask) -> list[int | str | None]:
  """Tells a file from others of its name."""
  if places.is_url(task.staging):
    return [work_files.place(task.staging).version(task.file)]
  found = os.stat(pathlib.Path(task.staging, task.file))
  return [found.st_size, found.st_mtime_ns, found.st_ino]


def write_shard(task: ShardTask) -> ShardRow:
  """Writes a shard file, whatever was there.

  Args:
    task: Which.

  Returns:
    Its row.

  Raises:
    PrepareError: If a part is not as it was written.
  """
  layout, block = task.layout, tree_hash.BLOCK
  low = task.shard * layout.shard
  high = min(low + layout.shard, layout.size)
  first_block = -(-low // block)
  has_blocks = first_block * block < high
  begin_blocks = first_block * block if has_blocks else high
  end = max(high, min(-(-high // block) * block, layout.size))
  content = tree_hash.TreeHash()
  shard = _Shard(task)
  position = low
  try:
    for segment in task.segments:
      last = min(end, segment.begin + segment.count)
      for values in _values(task, segment, position, last):
        shard.writer.append(values[: max(high - position, 0)])
        content.update(values[max(begin_blocks - position, 0) :].data)
        position += len(values)
    num_bytes = shard.finish()
  finally:
    shard.close()
  row = ShardRow(
    num_bytes,
    shard.writer.crc32c,
    shard.writer.stored_bytes,
    [own.hex() for own in content.digests] if has_blocks else [],
  )
  data = json_values.encode(_RowFile(_stamp(task), row))
  work_files.write_summed(task.rows, task.row_name, data)
  return row


class _Shard:
  """A shard file that gets its name when it is complete."""

  def __init__(self, task: ShardTask):
    self._task = task
    if places.is_url(task.staging):
      # Without a name: it is gone with its process.
      self._file: Any = tempfile.TemporaryFile()  # noqa: SIM115
    else:
      # Not in the store: a worker that is killed leaves it, another goes on.
      self._file = pathlib.Path(task.rows, f"{secrets.token_hex(8)}.shard")
    self.writer = array_writer.ShardWriter(self._file, task.layout)

  def finish(self) -> int:
    """Puts the file where it belongs; returns its bytes."""
    num_bytes = self.writer.finish()
    if isinstance(self._file, pathlib.Path):
      path = pathlib.Path(self._task.staging, self._task.file)
      path.parent.mkdir(parents=True, exist_ok=True)
      os.replace(self._file, path)
    else:
      # Not in workers that write to a disk.
      from chomp_data.stores.zarr import destination

      self._file.seek(0)
      data = self._file.read()
      destination.Destination(self._task.staging).send(self._task.file, data)
    return num_bytes

  def close(self) -> None:
    """Removes what is not finished."""
    self.writer.close()
    if isinstance(self._file, pathlib.Path):
      self._file.unlink(missing_ok=True)
    else:
      self._file.close()


def _values(task: ShardTask, segment: Segment, begin: int, end: int) -> Any:
  """Yields values begin .. end - 1 of an array, which are in a segment."""
  dtype = task.layout.numpy_dtype
  if segment.part == _NO_PART:
    yield np.asarray([segment.add], dtype)
    return
  try:
    part = part_files.Part(task.parts, segment.part)
    shift = segment.skip - segment.begin
    for values in part.read(task.array, dtype, begin + shift, end + shift):
      if task.array == "label_levels":
        own = [task.levels.index(weight) for weight in part.row.levels]
        yield np.asarray(own, dtype)[values]
      else:
        yield values + dtype.type(segment.add) if segment.add else values
  except errors.StoreError:
    raise
  except (FileNotFoundError, ValueError) as error:
    raise errors.PrepareError(
      f"parts must be as they were written, got: {error}. Remove"
      f" {task.parts.rpartition('/')[0]} and run again."
    ) from error


def finished(
  layout: array_layout.ArrayLayout, rows: Sequence[ShardRow]
) -> array_writer.Finished:
  """Returns an array of which all shard files are written."""
  digests = [bytes.fromhex(one) for row in rows for one in row.digests]
  return array_writer.Finished(
    layout,
    tree_hash.joined(digests or tree_hash.TreeHash().digests),
    sum(row.num_bytes for row in rows),
    _flat((row.crc32c for row in rows), np.uint32),
    _flat((row.stored_bytes for row in rows), np.uint64),
  )


def _flat(values: Iterable[list[int]], dtype: Any) -> np.ndarray:
  return np.fromiter(itertools.chain.from_iterable(values), dtype)
