# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the shard files of a store from parts, one of one array at a time.

The sizes of an array in all parts decide where the values of each part are in
the store's array, and so which parts a shard file is made of. `write_shard` is
a pure function of these parts, for any process; it also hashes the blocks of
`tree_hash` that begin in its shard, so that only checksums remain to be joined.

    parts     [  a  ][   b   ][ c ][    d    ]
    shards    [    0    ][    1    ][   2    ]
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.prepare import lazy
from chomp_data.prepare import part_files
from chomp_data.prepare import scratch
from chomp_data.stores import columns as columns_lib
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
    parts: The directory or URL of parts.
    store: The directory or URL that shard files are written to.
    rows: The directory or URL of rows of finished shards.
  """

  array: str
  layout: array_layout.ArrayLayout
  shard: int
  segments: tuple[Segment, ...]
  levels: tuple[float, ...]
  parts: str
  store: str
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
    """The name of its row, a digest of all that decides the file."""
    content = dataclasses.replace(self, parts="", store="", rows="")
    return f"{scratch.digest([content])}.json"


# By array its layout, and its shard files in order.
Arrays = dict[str, tuple[array_layout.ArrayLayout, Sequence[ShardTask]]]


@dataclasses.dataclass(frozen=True)
class ShardRow:
  """What is in a shard file.

  Attributes:
    num_bytes: Of the file.
    crc32c: Of each decoded chunk.
    stored_bytes: Of each chunk as it is stored.
    digests: Of each block that begins in it, as hex.
    stamp: Size and version of the file, which differ for another of its name.
  """

  num_bytes: int
  crc32c: list[int]
  stored_bytes: list[int]
  digests: list[str]
  stamp: list[int | str | None]


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
  first = manifest_lib.FIRST_LEVELS
  weights = {weight for row in rows for weight in row.levels}
  levels = (*first, *sorted(weights - set(first)))
  part_files.check_level_count(len(levels))
  return levels


def tasks(
  keys: Sequence[str],
  rows: Sequence[part_files.PartRow],
  *,
  token_dtype: str,
  chunk: int,
  compression: str,
  parts: str,
  store: str,
  shard_rows: str,
  columns: Mapping[str, columns_lib.Column] | None = None,
) -> Arrays:
  """Returns the shard files of a store.

  Args:
    keys: The names of all parts, in order.
    rows: What is in each.
    token_dtype: The dtype of the tokens.
    chunk: Elements of a chunk.
    compression: 'none' or 'zstd'.
    parts: The directory or URL of parts.
    store: The directory or URL that shard files are written to.
    shard_rows: The directory or URL of rows of finished shards.
    columns: What is stored beside tokens and documents.
  """
  shard = chunk * array_layout.DEFAULT_CHUNKS_PER_SHARD
  levels = levels_of(rows)
  arrays = {}
  for name, joined in _joined(
    keys, rows, manifest_lib.dtypes(token_dtype, columns or {})
  ).items():
    layout = array_layout.ArrayLayout(
      joined.dtype, joined.size, chunk, shard, compression
    )

    def task(
      number: int, name: str = name, layout: Any = layout, joined: Any = joined
    ) -> ShardTask:
      low, _, end = _bounds(layout, number)
      return ShardTask(
        name, layout, number, joined.within(low, end), levels, parts, store,
        shard_rows,
      )  # fmt: skip

    arrays[name] = layout, lazy.LazySequence(task, layout.num_shards)
  return arrays


def _bounds(
  layout: array_layout.ArrayLayout, shard: int
) -> tuple[int, int, int]:
  """Returns the first value of a shard, its end, and that of its blocks.

  Blocks that begin in a shard may end behind it.
  """
  low = shard * layout.shard
  high = min(low + layout.shard, layout.size)
  end = min(-(-high // tree_hash.BLOCK) * tree_hash.BLOCK, layout.size)
  return low, high, max(high, end)


def _joined(
  keys: Sequence[str],
  rows: Sequence[part_files.PartRow],
  dtypes: Mapping[str, str],
) -> dict[str, _Joined]:
  """Returns how arrays are made of parts."""
  documents = np.asarray([row.num_documents for row in rows])
  tokens = np.asarray([row.num_tokens for row in rows])
  sizes = {
    name: np.asarray([row.size(name) for row in rows])
    for name in rows[0].sections
  }
  zeros = np.zeros(len(rows), np.int64)

  def joined(name, counts, adds=zeros, skips=zeros, before=None, after=None):
    parts = list(keys)
    columns = np.stack([counts, skips, adds])
    # A value that is in no part is a segment by itself.
    for value, place in ((before, 0), (after, len(keys))):
      if value is not None:
        parts.insert(place, _NO_PART)
        columns = np.insert(columns, place, [1, 0, value], axis=1)
    counts, skips, adds = columns
    begins = np.cumsum(counts) - counts
    size = int(counts.sum())
    return _Joined(dtypes[name], size, parts, begins, counts, skips, adds)

  arrays = {"tokens": joined("tokens", tokens)}
  for name, of in manifest_lib.OFFSETS.items():
    if name in sizes:
      ends = np.cumsum(sizes[of]) - sizes[of]
      arrays[name] = joined(name, documents, ends, before=0)
      arrays[of] = joined(of, sizes[of])
  if "document_weights" in sizes:
    arrays["document_weights"] = joined("document_weights", documents)
  for name, counts in sizes.items():
    if name.startswith(columns_lib.ARRAY_PREFIX):
      arrays[name] = joined(name, counts)
  if "label_starts" in sizes:
    # A run that continues in the next part is one.
    skips, last = [], None
    for row in rows:
      skips.append(int(bool(row.ends) and row.ends[0] == last))
      last = row.ends[1] if row.ends else last
    skips = np.asarray(skips)
    counts = sizes["label_starts"] - skips
    trained = np.asarray([row.num_trained for row in rows])
    before = np.cumsum(trained) - trained
    arrays["label_starts"] = joined(
      "label_starts", counts, np.cumsum(tokens) - tokens, skips
    )
    arrays["label_levels"] = joined("label_levels", counts, zeros, skips)
    arrays["label_sums"] = joined(
      "label_sums", counts, before, skips, after=int(trained.sum())
    )
  return arrays


def find_shard(task: ShardTask) -> ShardRow | None:
  """Returns the row of a shard that is complete, else None."""
  try:
    row = scratch.read_row(ShardRow, task.rows, task.row_name)
  except (OSError, ValueError):
    return None
  # A run with other options may have written a file of the same name.
  return row if row.stamp == _stamp(task) else None


def _stamp(task: ShardTask) -> list[int | str | None]:
  """Returns the size and version of a shard file that is there."""
  info = scratch.storage_at(task.store).head(task.file)
  return [] if info is None else [info.size, info.version]


def write_shard(task: ShardTask) -> ShardRow:
  """Returns the row of a shard file; writes the file unless it is complete.

  Raises:
    PrepareError: If a part is not as it was written.
  """
  if row := find_shard(task):
    return row
  with array_writer.new_shard(task.store, task.file, task.rows) as file:
    writer = array_writer.ShardWriter(file, task.layout)
    digests = _read(task, writer.append)
    num_bytes = writer.finish()
  row = ShardRow(
    num_bytes, writer.crc32c, writer.stored_bytes, digests, _stamp(task)
  )
  scratch.write_row(task.rows, task.row_name, row)
  return row


def hash_shard(task: ShardTask) -> list[str]:
  """Returns the digests of the blocks that begin in a shard; writes nothing."""
  return _read(task, lambda values: None)


def _read(task: ShardTask, append: Callable[[np.ndarray], object]) -> list[str]:
  """Calls `append` with the values of a shard, in order.

  Returns:
    The digests of the blocks that begin in it, as hex.
  """
  position, high, end = _bounds(task.layout, task.shard)
  first_block = -(-position // tree_hash.BLOCK) * tree_hash.BLOCK
  content = tree_hash.TreeHash()
  for segment in task.segments:
    last = min(end, segment.begin + segment.count)
    for values in _segment_values(task, segment, position, last):
      append(values[: max(high - position, 0)])
      content.update(values[max(first_block - position, 0) :].data)
      position += len(values)
  digests = content.digests if first_block < high else []
  return [digest.hex() for digest in digests]


def _segment_values(
  task: ShardTask, segment: Segment, begin: int, end: int
) -> Iterator[np.ndarray]:
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
        levels = [task.levels.index(weight) for weight in part.row.levels]
        yield np.asarray(levels, dtype)[values]
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
) -> manifest_lib.ArrayEntry:
  """Returns an array of which all shard files are written."""
  return manifest_lib.ArrayEntry(
    layout,
    joined_digests(row.digests for row in rows),
    sum(row.num_bytes for row in rows),
    _flat((row.crc32c for row in rows), np.uint32),
    _flat((row.stored_bytes for row in rows), np.uint64),
  )


def joined_digests(digests: Iterable[list[str]]) -> str:
  """Returns the hash of an array from the digests of its shards, in order."""
  blocks = [bytes.fromhex(digest) for shard in digests for digest in shard]
  return tree_hash.joined(blocks or tree_hash.TreeHash().digests)


def _flat(values: Iterable[list[int]], dtype: Any) -> np.ndarray:
  return np.fromiter(itertools.chain.from_iterable(values), dtype)
