# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How zarr v3 arrays of one dimension are stored that others wrote.

TensorStore decodes chunks, whatever their codecs: each is put in memory as the
only chunk of an array without shards.
"""

import dataclasses
import json
import os
import threading
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.stores.zarr import array_layout

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
    fill_value: Of the elements of chunks that are left out.
    index: Where the index of an object is: 'end' or 'start', or 'none' where an
      object is a chunk.
    inner: Its metadata, as that of an array whose objects are the chunks.
  """

  dtype: np.dtype
  chunk: int
  file: int
  fill_value: int
  index: str
  inner: dict[str, Any]

  @property
  def index_range(self) -> tuple[int, int | None]:
    """Where the index of an object begins and ends, as in `Storage.get`."""
    size = 16 * (self.file // self.chunk) + array_layout.CRC_BYTES
    return (-size, None) if self.index == "end" else (0, size)


def format_of(path: str, data: bytes) -> Format:
  """Reads the `zarr.json` of an array.

  Args:
    path: Of it, for messages.
    data: Its bytes.

  Raises:
    StoreError: If it is no array that can be read.
  """
  try:
    metadata = json.loads(data)
    (file,) = metadata["chunk_grid"]["configuration"]["chunk_shape"]
    chunk, index, codecs = file, "none", metadata["codecs"]
    if codecs[0]["name"] == "sharding_indexed":
      (sharding,) = codecs
      sharding = sharding["configuration"]
      (chunk,) = sharding["chunk_shape"]
      index, codecs = sharding.get("index_location", "end"), sharding["codecs"]
      if sharding.get("index_codecs", _INDEX_CODECS) != _INDEX_CODECS:
        raise ValueError(f"`index_codecs` {sharding['index_codecs']}")
    keys = metadata.get("chunk_key_encoding", {})
    dtype = np.dtype(metadata["data_type"]).newbyteorder("<")
    fill_value = metadata["fill_value"]
    fits = (
      metadata["zarr_format"] == 3
      and index in ("end", "start", "none")
      and keys.get("name") == "default"
      and keys.get("configuration", {}).get("separator", "/") == "/"
      and dtype.kind in "iu"
      and type(fill_value) is int
      and np.iinfo(dtype).min <= fill_value <= np.iinfo(dtype).max
      and type(file) is type(chunk) is int
      and 0 < chunk <= file < 2**63
      and file % chunk == 0
    )
    grid = {"name": "regular", "configuration": {"chunk_shape": [chunk]}}
    inner = {**metadata, "chunk_grid": grid, "codecs": codecs}
  except (ValueError, LookupError, TypeError, AttributeError) as error:
    raise _wrong(path, repr(error)) from error
  if not fits:
    raise _wrong(path, data.decode(errors="replace")[:200])
  return Format(dtype, chunk, file, fill_value, index, inner)


def _wrong(path: str, got: str) -> errors.StoreError:
  return errors.StoreError(
    f"{path} must be of a zarr v3 array of integers of one dimension, got"
    f" {got}. Name another field, or write the array again."
  )


class Decoder:
  """Decodes the chunks of a format; threads may use it at once."""

  def __init__(self, array_format: Format):
    """Opens nothing yet."""
    self._format = array_format
    self._opened: tuple[int, Any, Any] | None = None
    self._lock = threading.Lock()

  def decode(self, chunk: int, stored: bytes) -> np.ndarray:
    """Returns a chunk's values, read-only.

    Args:
      chunk: A number that no other thread decodes at once.
      stored: Its bytes; none of a chunk that was left out.

    Raises:
      ValueError: If it cannot be decoded.
    """
    size = self._format.chunk
    if stored:
      values = self._decoded(chunk % (2**54 // size), stored)
    else:
      values = np.full(size, self._format.fill_value, self._format.dtype)
    values.flags.writeable = False
    return values

  def _decoded(self, number: int, stored: bytes) -> np.ndarray:
    memory, array = self._open()
    size = self._format.chunk
    try:
      memory.write(f"c/{number}", stored).result()
      values = array[number * size : (number + 1) * size].read().result()
      return np.ascontiguousarray(values)
    except (ValueError, OSError) as error:
      raise ValueError(str(error).splitlines()[0][:200]) from error
    finally:
      memory.write(f"c/{number}", None).result()

  def _open(self) -> tuple[Any, Any]:
    """Returns a key-value store in memory, and an array in it."""
    import tensorstore as ts  # Processes that read no such data do without.

    with self._lock:
      # A fork has none of TensorStore's threads.
      if self._opened is None or self._opened[0] != os.getpid():
        context = ts.Context()
        memory = ts.KvStore.open("memory://", context=context).result()
        metadata = json.dumps(self._format.inner).encode()
        memory.write("zarr.json", metadata).result()
        spec = {"driver": "zarr3", "kvstore": "memory://"}
        array = ts.open(spec, open=True, read=True, context=context).result()
        self._opened = os.getpid(), memory, array
      return self._opened[1:]
