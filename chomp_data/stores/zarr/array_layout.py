# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How an array of a store lies on disk: zarr v3, sharded, one dimension.

A shard file holds up to `shard // chunk` inner chunks, each followed by the
crc32c of its stored bytes, then an index of (offset, size) pairs of uint64 and
the index's crc32c. Everything is little-endian. Absent chunks, which only the
last shard has, are 2**64 - 1 twice. Source: the Zarr v3 core specification
and its `sharding_indexed`, `bytes`, `zstd` and `crc32c` codecs.
"""

from collections.abc import Sequence
import dataclasses
import json

import numpy as np

from chomp_data.index import memo
from chomp_data.storage import checksums
from chomp_data.stores import columns
from chomp_data.stores import span_reads

DTYPES = tuple(dict.fromkeys((*columns.DTYPES, "int64")))
COMPRESSIONS = ("none", "zstd")
DEFAULT_CHUNK = span_reads.DEFAULT_CHUNK_TOKENS
DEFAULT_CHUNKS_PER_SHARD = 256
ZSTD_LEVEL = 1
CRC_BYTES = 4

_ABSENT = np.iinfo(np.uint64).max
# No shard is larger; sums of so many chunks stay inside int64.
_MOST_BYTES = 2**42


@dataclasses.dataclass(frozen=True)
class ArrayLayout:
  """What decides an array's files, besides its values.

  Attributes:
    dtype: One of `DTYPES`.
    size: Number of elements.
    chunk: Elements of an inner chunk; the last one is padded with zeros.
    shard: Elements of a shard file, a multiple of `chunk`.
    compression: One of `COMPRESSIONS`.
  """

  dtype: str
  size: int
  chunk: int
  shard: int
  compression: str

  @property
  def numpy_dtype(self) -> np.dtype:
    """The dtype of the values as they are stored."""
    # bfloat16 is read and written by its bits: NumPy has no such buffers.
    name = "uint16" if self.dtype == "bfloat16" else self.dtype
    return np.dtype(name).newbyteorder("<")

  @property
  def chunk_bytes(self) -> int:
    """Bytes of a decoded chunk, without its crc32c."""
    return self.chunk * self.numpy_dtype.itemsize

  @property
  def chunks_per_shard(self) -> int:
    """Slots of a shard's index."""
    return self.shard // self.chunk

  @property
  def num_chunks(self) -> int:
    """Chunks that hold at least one element."""
    return -(-self.size // self.chunk)

  @property
  def num_shards(self) -> int:
    """Shard files."""
    return -(-self.size // self.shard)

  @property
  def index_bytes(self) -> int:
    """Bytes of a shard's index, its crc32c included."""
    return 16 * self.chunks_per_shard + CRC_BYTES

  def shard_bytes(self, shard: int) -> int:
    """Returns the bytes of a shard file whose chunks are stored as they are."""
    each = self.chunk_bytes + CRC_BYTES
    return len(self.chunks_of_shard(shard)) * each + self.index_bytes

  def chunks_of_shard(self, shard: int) -> range:
    """Returns the chunks that a shard file holds."""
    first = shard * self.chunks_per_shard
    return range(first, min(first + self.chunks_per_shard, self.num_chunks))

  def elements_of_chunk(self, chunk: int) -> int:
    """Returns how many elements of a chunk are not padding."""
    return min(self.chunk, self.size - chunk * self.chunk)

  def files(self) -> list[str]:
    """Returns the array's files, relative to its directory."""
    return ["zarr.json", *(shard_file(i) for i in range(self.num_shards))]

  @memo.remembered(1)
  def zarr_json(self) -> bytes:
    """Returns the array's zarr v3 metadata, always the same bytes."""
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    if self.numpy_dtype.itemsize == 1:
      little = {"name": "bytes"}
    inner = [little]
    if self.compression == "zstd":
      options = {"level": ZSTD_LEVEL, "checksum": False}
      inner.append({"name": "zstd", "configuration": options})
    metadata = {
      "zarr_format": 3,
      "node_type": "array",
      "shape": [self.size],
      "data_type": self.dtype,
      "fill_value": _zero(self.dtype),
      "chunk_grid": {
        "name": "regular",
        "configuration": {"chunk_shape": [self.shard]},
      },
      "chunk_key_encoding": {"name": "default"},
      "codecs": [
        {
          "name": "sharding_indexed",
          "configuration": {
            "chunk_shape": [self.chunk],
            "codecs": [*inner, {"name": "crc32c"}],
            "index_codecs": [
              {"name": "bytes", "configuration": {"endian": "little"}},
              {"name": "crc32c"},
            ],
            "index_location": "end",
          },
        }
      ],
    }
    return (json.dumps(metadata, indent=1, sort_keys=True) + "\n").encode()


def _zero(dtype: str) -> bool | int | float:
  """Returns 0 as JSON has it of a dtype."""
  if dtype == "bool":
    return False
  return 0.0 if "float" in dtype else 0


def shard_file(shard: int) -> str:
  """Returns a shard's file, relative to its array's directory."""
  return f"c/{shard}"


def crc_bytes(value: int) -> bytes:
  """Returns a crc32c as it is stored."""
  return value.to_bytes(CRC_BYTES, "little")


def index_of(stored_bytes: Sequence[int], num_slots: int) -> bytes:
  """Encodes the index of chunks that follow each other.

  Args:
    stored_bytes: Bytes of each chunk present, without its crc32c.
    num_slots: Slots of the index.

  Returns:
    The bytes that end the shard file.
  """
  sizes = np.asarray(stored_bytes, np.uint64) + np.uint64(CRC_BYTES)
  table = np.full((num_slots, 2), _ABSENT, "<u8")
  table[: len(sizes), 0] = np.cumsum(sizes) - sizes
  table[: len(sizes), 1] = sizes
  data = table.tobytes()
  return data + crc_bytes(checksums.crc32c(data))


def decode_entries(data: bytes) -> np.ndarray:
  """Decodes a shard's index, of any writer.

  Args:
    data: Its bytes, with its crc32c at the end.

  Returns:
    int64[slots, 2], (offset, size in bytes); zeros where a chunk is absent.

  Raises:
    ValueError: If the crc differs, or an entry is beyond any file.
  """
  stored = data[-CRC_BYTES:]
  crc = crc_bytes(checksums.crc32c(data[:-CRC_BYTES]))
  if stored != crc:
    raise ValueError(f"index crc32c {crc.hex()}, expected {stored.hex()}")
  table = np.frombuffer(data[:-CRC_BYTES], "<u8").reshape(-1, 2)
  absent = (table == _ABSENT).all(axis=1)
  if np.any(table[~absent] > _MOST_BYTES):
    raise ValueError("an index of chunks beyond the end of the file")
  return np.where(absent[:, None], 0, table).astype(np.int64)


def decode_index(
  data: bytes, num_present: int, num_bytes: int | None = None
) -> np.ndarray:
  """Decodes and checks a shard's index.

  Args:
    data: The bytes that end the shard file.
    num_present: How many chunks the shard must hold.
    num_bytes: Size of the file less the index; None where it is not known.

  Returns:
    int64[num_present, 2], (offset, size in bytes), crc32c included.

  Raises:
    ValueError: If the chunks do not fill the file once, or the crc differs.
  """
  table = decode_entries(data)
  entries, absent = table[:num_present], table[num_present:]
  if np.any(entries[:, 1] == 0) or np.any(absent):
    raise ValueError(f"an index of other than {num_present} chunks")
  in_order = entries[np.argsort(entries[:, 0], kind="stable")]
  ends = np.concatenate([[0], np.cumsum(in_order[:, 1])])
  if np.any(in_order[:, 0] != ends[:-1]) or num_bytes not in (None, ends[-1]):
    raise ValueError("chunks that overlap or leave gaps")
  return entries
