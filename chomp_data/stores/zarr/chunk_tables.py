# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What is known of an array's chunks, in files that are read when needed.

`tables/<array>.<n>` is of the chunks n * 65536 .. (n + 1) * 65536 - 1: the
crc32c of each as it is decoded, padding included, as uint32; then, where the
array is compressed, the bytes of each as it is stored, without its own crc32c,
as uint64. All is little-endian. The manifest has the SHA-256 of every table.
"""

from collections.abc import Callable

import numpy as np

from chomp_data.stores.zarr import array_layout

FOLDER = "tables"
CHUNKS = 2**16


class ChunkTable:
  """An array's chunks; holds the tables that were asked for."""

  def __init__(
    self,
    name: str,
    layout: array_layout.ArrayLayout,
    read: Callable[[str], bytes],
    crc32c: np.ndarray | None = None,
  ):
    """Reads nothing yet.

    Args:
      name: Of the array.
      layout: Its layout.
      read: Returns the checked bytes of a file of the store, by its path.
      crc32c: uint32[num_chunks] of schema 1, whose manifest has them; None
        where they are in tables.
    """
    self._crc32c = crc32c
    self._name = name
    self._layout = layout
    self._read = read
    self._crcs: dict[int, np.ndarray] = {}
    self._sizes: dict[int, np.ndarray] = {}

  def crc32c(self, chunk: int) -> int:
    """Returns that of a decoded chunk."""
    if self._crc32c is not None:
      return int(self._crc32c[chunk])
    table = chunk // CHUNKS
    if table not in self._crcs:
      self._load(table)
    return int(self._crcs[table][chunk % CHUNKS])

  def stored_bytes(self, chunks: range) -> list[int] | None:
    """Returns the bytes of chunks as stored, without their own crc32c.

    Args:
      chunks: Chunks of one shard.

    Returns:
      None where they were not recorded.
    """
    if self._layout.compression == "none":
      return [self._layout.chunk_bytes] * len(chunks)
    if self._crc32c is not None:
      return None
    sizes: list[int] = []
    for chunk in chunks:
      table = chunk // CHUNKS
      if table not in self._sizes:
        self._load(table)
      sizes.append(int(self._sizes[table][chunk % CHUNKS]))
    return sizes

  def _load(self, table: int) -> None:
    data = self._read(file(self._name, table))
    count = min(CHUNKS, self._layout.num_chunks - table * CHUNKS)
    self._sizes[table] = np.frombuffer(data, "<u8", offset=4 * count)
    self._crcs[table] = np.frombuffer(data, "<u4", count)


def file(name: str, table: int) -> str:
  """Returns a table's file, relative to the store."""
  return f"{FOLDER}/{name}.{table}"


def files(name: str, layout: array_layout.ArrayLayout) -> list[str]:
  """Returns an array's tables."""
  return [file(name, table) for table in range(-(-layout.num_chunks // CHUNKS))]


def encode(
  name: str,
  layout: array_layout.ArrayLayout,
  crc32c: np.ndarray | None,
  stored_bytes: np.ndarray | None,
) -> dict[str, bytes]:
  """Returns an array's tables by their files.

  Args:
    name: Of the array.
    layout: Its layout.
    crc32c: uint32[num_chunks], of decoded chunks.
    stored_bytes: int64[num_chunks], left out where nothing is compressed.
  """
  assert crc32c is not None
  assert stored_bytes is not None
  tables: dict[str, bytes] = {}
  for table, path in enumerate(files(name, layout)):
    part = slice(table * CHUNKS, (table + 1) * CHUNKS)
    tables[path] = crc32c[part].astype("<u4").tobytes()
    if layout.compression != "none":
      tables[path] += stored_bytes[part].astype("<u8").tobytes()
  return tables
