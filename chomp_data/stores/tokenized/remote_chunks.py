# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Sharded zarr v3 arrays that others wrote, in buckets, as one array.

Chunks are decoded by TensorStore, whatever their codecs: each is put in memory
as the only chunk of an array without shards.
"""

from collections.abc import Sequence
import dataclasses
import json
import os
import threading
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.stores import checksums
from chomp_data.stores import disk_cache
from chomp_data.stores import object_corpus
from chomp_data.stores import span_reads
from chomp_data.stores.tokenized import remote_pages
from chomp_data.stores.zarr import array_layout

_RESTORE = "Restore it from a copy, or write it again."
_ABSENT = 2**64 - 1
_INDEX_CODECS = [
  {"name": "bytes", "configuration": {"endian": "little"}},
  {"name": "crc32c"},
]


@dataclasses.dataclass(frozen=True)
class Format:
  """How an array is stored.

  Attributes:
    dtype: Of its values.
    chunk: Elements that are stored as one.
    file: Elements of an object.
    inner: Its metadata, as that of an array whose objects are the chunks.
  """

  dtype: np.dtype
  chunk: int
  file: int
  inner: dict[str, Any]


def format_of(path: str, data: bytes) -> Format:
  """Reads the `zarr.json` of an array.

  Args:
    path: Of it, for messages.
    data: Its bytes.

  Raises:
    StoreError: If it is no array that can be read.
  """
  try:
    found = json.loads(data)
    (codec,) = found["codecs"]
    how = codec["configuration"]
    (file,) = found["chunk_grid"]["configuration"]["chunk_shape"]
    (chunk,) = how["chunk_shape"]
    dtype = np.dtype(found["data_type"]).newbyteorder("<")
    fits = (
      found["zarr_format"] == 3
      and codec["name"] == "sharding_indexed"
      and how.get("index_location", "end") == "end"
      and how.get("index_codecs", _INDEX_CODECS) == _INDEX_CODECS
      and found.get("chunk_key_encoding", {}).get("name") == "default"
      and found["fill_value"] == 0
      and dtype.kind in "iu"
      and type(file) is type(chunk) is int
      and 0 < chunk <= file < 2**63
      and file % chunk == 0
    )
    inner = {
      **found,
      "chunk_grid": {
        "name": "regular",
        "configuration": {"chunk_shape": [chunk]},
      },
      "codecs": how["codecs"],
    }
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise _wrong(path, repr(error)) from error
  if not fits:
    raise _wrong(path, data.decode(errors="replace")[:200])
  return Format(dtype, int(chunk), int(file), inner)


def _wrong(path: str, got: str) -> errors.StoreError:
  return errors.StoreError(
    f"{path} must be of a sharded zarr v3 array of integers, got {got}. Copy"
    " the data to a local disk, where all are read."
  )


class RemoteChunks(remote_pages.ForeignArray):
  """Arrays one after the other, of one format; see `base.Tokens`."""

  def __init__(
    self,
    corpus: object_corpus.ObjectCorpus,
    files: Sequence[Sequence[int]],
    sizes: Sequence[int],
    how: Format,
    vocab_size: int | None,
    cache_bytes: int,
    disk: disk_cache.DiskCache | None = None,
  ):
    """Reads nothing yet.

    Args:
      corpus: As in `ForeignArray`.
      files: The numbers of the objects of each array.
      sizes: Elements of each array that are in use.
      how: How they are stored.
      vocab_size: As in `ForeignArray`.
      cache_bytes: As in `ForeignArray`.
      disk: As in `ForeignArray`.
    """
    every = [file for own in files for file in own]
    layout = array_layout.ArrayLayout(
      how.dtype.str, len(every) * how.file, how.chunk, how.file, "none"
    )
    super().__init__(corpus, every, layout, vocab_size, cache_bytes, disk)
    self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    # Positions have gaps, so that an array begins with an object of its own.
    counts = [len(own) for own in files]
    self._begins = (np.cumsum(counts) - counts).astype(np.int64) * how.file
    self._how = how
    self._decoder: tuple[int, Any, Any] | None = None
    self._opening = threading.Lock()

  @property
  def path(self) -> str:
    """The first object."""
    return self.shard_path(0)

  def copy_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    starts, lengths = np.asarray(starts), np.asarray(lengths)
    positions = np.asarray(positions)
    size = int(self._starts[-1])
    span_reads.check_spans(starts, lengths, size, positions, len(out))
    super().copy_spans(*self._pieces(starts, lengths, positions, out))

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> bool:
    span_reads.check_spans(starts, lengths, int(self._starts[-1]))
    begins, sizes, *_ = self._pieces(starts, lengths, starts, starts)
    return super().prefetch(begins, sizes)

  def _pieces(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    positions: np.ndarray,
    out: np.ndarray,
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns what `copy_spans` of the base takes, with positions that gap."""
    array, first, length, position = span_reads.split_at(
      self._starts, starts, lengths, positions
    )
    return self._begins[array] + first, length, out, position

  def _looked_up(self, shard: int) -> np.ndarray:
    slots = self._layout.chunks_per_shard

    def check(data: bytes) -> None:
      body, crc = data[: 16 * slots], data[16 * slots :]
      if array_layout.crc_bytes(checksums.crc32c(body)) != crc:
        raise self.damaged(shard, "must end with an index and its crc32c")

    size = 16 * slots + array_layout.CRC_BYTES
    body = self._read(shard, -size, None, check)[: 16 * slots]
    table = np.frombuffer(body, "<u8").reshape(-1, 2)
    # A chunk of zeros only is left out.
    return np.where(table == _ABSENT, 0, table).astype(np.int64)

  def _decoded(self, chunk: int, stored: bytes) -> np.ndarray:
    size, shard = self._layout.chunk, chunk // self._layout.chunks_per_shard
    data = self._checked(chunk, stored)
    if not data:
      found = np.zeros(size, self._layout.numpy_dtype)
    else:
      memory, array = self._opened()
      number = chunk % (2**54 // size)
      try:
        memory.write(f"c/{number}", data).result()
        found = array[number * size : (number + 1) * size].read().result()
      except (ValueError, OSError) as error:
        raise self.damaged(
          shard,
          f"chunk {chunk} must be readable, got"
          f" {str(error).splitlines()[0][:200]}",
        ) from error
      finally:
        memory.write(f"c/{number}", None).result()
    found = np.ascontiguousarray(found)
    found.flags.writeable = False
    return found

  def _opened(self) -> tuple[Any, Any]:
    """Returns a key-value store in memory, and an array in it."""
    import tensorstore as ts

    with self._opening:
      # A fork has none of TensorStore's threads.
      if self._decoder is None or self._decoder[0] != os.getpid():
        context = ts.Context()
        memory = ts.KvStore.open("memory://", context=context).result()
        metadata = json.dumps(self._how.inner).encode()
        memory.write("zarr.json", metadata).result()
        spec = {"driver": "zarr3", "kvstore": "memory://"}
        array = ts.open(spec, open=True, read=True, context=context).result()
        self._decoder = os.getpid(), memory, array
      return self._decoder[1:]
