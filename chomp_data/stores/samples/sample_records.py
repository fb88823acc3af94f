# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Samples in ArrayRecord files: one record is one sample.

    4 bytes   N, little-endian
    N bytes   JSON: {"arrays": [{"name": "pixels", "dtype": "uint8",
              "shape": [32, 48, 3]}], "values": {"height": 32, "width": 48,
              "label": 3}}
    the rest  the arrays' bytes in that order, little-endian, rows first

An index beside the files holds heights, widths and the crc32c of every
record, 12 bytes per sample, and the dtype of each value.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import hashlib
import itertools
import json
import math
import os
import pathlib
import struct
from typing import Any

from absl import logging
from array_record.python import array_record_module  # pyright: ignore
import numpy as np

from chomp_data import errors
from chomp_data.storage import checksums
from chomp_data.storage import opening
from chomp_data.storage import publish
from chomp_data.stores import side_index
from chomp_data.stores.array_record import files_index
from chomp_data.stores.array_record import record_files
from chomp_data.stores.samples import sample_fields

_NAME = "samples_array_record"
_SCHEMA = 2
_PREFIX = struct.Struct("<I")

# Records of a part of the indexing pass.
_PART = 256

# The dtypes of JSON's values; each holds the values of those before it.
_KINDS = {bool: "bool", int: "int64", float: "float64"}

_Record = tuple[dict[str, np.ndarray], dict[str, Any]]


class Reader:
  """Reads such files; see `samples.open_samples`.

  Attributes:
    kind: What identifies the format in a hash.
    heights: int32[num_samples].
    widths: int32[num_samples].
    value_dtypes: By name of the first sample's values, the dtype that holds
      all samples' numbers of it, None where the first is no number: every
      sample must have them.
    raw: Fields that hold bytes without a shape: none.
    content: Hex, SHA-256 of all records.
  """

  kind = "array_record"

  def __init__(
    self,
    path: pathlib.Path,
    fields: Sequence[str],
    height_field: str,
    width_field: str,
    index_dir: str | None,
    build: bool,
  ):
    """Opens files and their index; see `samples.open_samples`."""
    self._path = path
    self._corpus = record_files.find(path)
    self._readers = record_files.Readers(self._corpus)
    arrays = files_index.load_or_build(
      self._corpus,
      _NAME,
      {"schema": _SCHEMA, "sides": [height_field, width_field]},
      index_dir,
      build,
      lambda: _built(self._corpus, path, height_field, width_field),
      verifies_reads=True,
    )
    self.heights: np.ndarray = arrays["heights"].read()
    self.widths: np.ndarray = arrays["widths"].read()
    self._crc32c = arrays["crc32c"].read()
    self._index = arrays["crc32c"].path.parent
    records = arrays["records"].read()
    self._first = np.concatenate([[0], np.cumsum(records)])
    self.content: str = arrays["content"].read().tobytes().hex()
    first = int(np.flatnonzero(records)[0])
    self._record(first, 0, fields)
    kinds = json.loads(arrays["kinds"].read().tobytes())
    self.value_dtypes: dict[str, np.dtype | None] = {
      name: None if kind is None else np.dtype(kind)
      for name, kind in kinds.items()
    }
    self.raw: tuple[str, ...] = ()

  def records(
    self, indices: np.ndarray, fields: Sequence[str], names: Sequence[str]
  ) -> Iterator[_Record]:
    """Yields the arrays and the values of samples; see `samples`."""
    files = np.searchsorted(self._first, indices, "right") - 1
    for index, file in zip(indices.tolist(), files.tolist(), strict=True):
      arrays, values = self._record(file, index, fields)
      missing = [name for name in names if name not in values]
      if missing:
        raise errors.StoreError(
          f"{self._path}: sample {index} must hold `{missing[0]}`, got"
          f" {', '.join(values)}. Write it, or leave it out."
        )
      yield arrays, values

  def _record(self, file: int, index: int, fields: Sequence[str]) -> _Record:
    number = index - int(self._first[file])
    data = self._readers.get(file).read(number, number + 1)[0]
    crc32c = checksums.crc32c(data)
    if crc32c != self._crc32c[index]:
      raise errors.StoreError(
        f"{self._corpus.path(file)}: record {number} must have crc32c"
        f" {self._crc32c[index]:08x}, as when it was indexed, got"
        f" {crc32c:08x}. {record_files.RESTORE} If it is right as it is, remove"
        f" {self._index}."
      )
    arrays, values = _sample(data, self._corpus, file, number)
    missing = [name for name in fields if name not in arrays]
    if missing:
      raise errors.StoreError(
        f"{self._path}: sample {index} must hold `{missing[0]}`, got"
        f" {', '.join(arrays)}. Write it, or correct `fields`."
      )
    return {name: arrays[name] for name in fields}, values


def encoded(
  arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]
) -> bytes:
  """Returns the record of a sample.

  Args:
    arrays: Numbers, by field.
    values: Height, width and whatever else JSON can say; NumPy's scalars are
      numbers.

  Raises:
    ValueError: If an array does not hold numbers, or JSON cannot say a value.
  """
  entries, parts = [], []
  for name, array in arrays.items():
    if array.dtype.kind not in sample_fields.KINDS:
      raise ValueError(
        f"`{name}` must hold numbers, got {array.dtype}. Convert it."
      )
    array = array.astype(array.dtype.newbyteorder("<"), order="C")
    entries.append(
      {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
    )
    parts.append(array.tobytes())
  for name, value in values.items():
    try:
      json.dumps({name: value}, default=_plain)
    except (TypeError, ValueError) as error:
      raise ValueError(
        f"`{name}` must be what JSON can say, got {value!r}"
        f" ({record_files.first_line(error)}). Convert it."
      ) from error
  header = json.dumps(
    {"arrays": entries, "values": dict(values)}, default=_plain
  ).encode()
  return b"".join([_PREFIX.pack(len(header)), header, *parts])


def _plain(value: Any) -> Any:
  """Returns what JSON can say of one number of NumPy."""
  if isinstance(value, np.generic):
    plain = value.item()
    if isinstance(plain, bool | int | float | str):
      return plain
  raise TypeError(f"{type(value).__name__} is no value of JSON")


def write_samples(
  path: str | os.PathLike[str],
  samples: Iterable[tuple[Mapping[str, np.ndarray], Mapping[str, Any]]],
  *,
  samples_per_file: int = 4_096,
) -> int:
  """Writes samples to a directory of ArrayRecord files, complete or not at all.

  Args:
    path: The directory to create; it must be empty or not exist.
    samples: Arrays by field, and values by name: height, width, and whatever
      else JSON can say.
    samples_per_file: The most in one file.

  Returns:
    How many were written.

  Raises:
    StoreError: If there is something at the path, or no sample, or one that
      cannot be written; the message names it.
  """
  directory = pathlib.Path(path)
  opening.open_local(path)
  with publish.new_directory(directory) as staged:
    staged.mkdir()
    files, total = [], 0
    source = iter(samples)
    while batch := list(itertools.islice(source, samples_per_file)):
      file = staged / f"part-{len(files):05d}"
      writer = array_record_module.ArrayRecordWriter(
        str(file), "group_size:1,uncompressed"
      )
      for number, (arrays, values) in enumerate(batch, total):
        try:
          writer.write(encoded(arrays, values))
        except ValueError as error:
          writer.close()
          raise errors.StoreError(
            f"{directory}: sample {number}: {error}"
          ) from error
      writer.close()
      files.append(file)
      total += len(batch)
    if not total:
      raise errors.StoreError(
        f"{directory} must hold samples, got none to write."
      )
    for i, file in enumerate(files):
      name = f"samples-{i:05d}-of-{len(files):05d}.array_record"
      file.rename(staged / name)
  return total


def decoded_image(data: bytes) -> _Record:
  """Returns a record's arrays, views of its bytes, and its values.

  Raises:
    ValueError: If it is no sample.
  """
  try:
    begin = _PREFIX.size + _PREFIX.unpack_from(data)[0]
    values, entries = _header(data[_PREFIX.size : begin])
    arrays = {}
    for name, dtype, shape, count in entries:
      numbers = np.frombuffer(data, dtype, count, begin)
      arrays[name] = numbers.reshape(shape)
      begin += numbers.nbytes
  except struct.error as error:
    raise ValueError(str(error)) from error
  if begin != len(data):
    raise ValueError(f"{len(data)} bytes, where it names {begin}")
  return arrays, dict(values)


# Samples of one size often differ in few values: parsing is half of a read.
@functools.lru_cache(maxsize=4_096)
def _header(
  text: bytes,
) -> tuple[dict[str, Any], list[tuple[str, np.dtype, tuple[int, ...], int]]]:
  """Returns a header's values, and name, dtype, shape and size of arrays."""
  try:
    header = json.loads(text)
    entries = []
    for entry in header["arrays"]:
      dtype = np.dtype(entry["dtype"]).newbyteorder("<")
      shape = tuple(map(int, entry["shape"]))
      if dtype.kind not in sample_fields.KINDS or min(shape, default=0) < 0:
        raise ValueError(f"an array of {dtype} and shape {shape}")
      entries.append((str(entry["name"]), dtype, shape, math.prod(shape)))
    return dict(header["values"]), entries
  except (KeyError, TypeError) as error:
    raise ValueError(str(error)) from error


def _sample(
  data: bytes, corpus: record_files.Corpus, file: int, number: int
) -> _Record:
  try:
    return decoded_image(data)
  except ValueError as error:
    raise errors.StoreError(
      f"{corpus.path(file)}: record {number} must be a sample as"
      " `samples_array_record.encoded` writes it, got"
      f" {record_files.first_line(error)}. Write it again."
    ) from error


def _built(
  corpus: record_files.Corpus,
  path: pathlib.Path,
  height_field: str,
  width_field: str,
) -> side_index.Parts:
  """Reads all records; yields the arrays of the index, in parts."""
  sizes = [corpus.path(i).stat().st_size for i in range(len(corpus.names))]
  logging.info("%s: indexing %d file(s)", path, len(sizes))
  content, records, index = hashlib.sha256(), [], 0
  kinds: dict[str, set[type]] = {}
  with files_index.progress(path, sum(sizes)) as bar:
    for file, size in enumerate(sizes):
      reader = record_files.Reader(corpus.path(file))
      records.append(reader.num_records)
      for first in range(0, reader.num_records, _PART):
        last = min(first + _PART, reader.num_records)
        sides, crcs = [], []
        for number, data in enumerate(reader.read(first, last), first):
          crcs.append(checksums.crc32c(data))
          content.update(_PREFIX.pack(len(data)))
          content.update(data)
          _, values = _sample(data, corpus, file, number)
          if not index:
            kinds = {name: {type(value)} for name, value in values.items()}
          for name, types in kinds.items():
            if type(values.get(name)) in _KINDS:
              types.add(type(values[name]))
          sides.append(
            [
              sample_fields.side_of(path, index, name, values.get(name), values)
              for name in (height_field, width_field)
            ]
          )
          index += 1
        heights, widths = np.asarray(sides, np.int32).T
        yield {
          "heights": heights,
          "widths": widths,
          "crc32c": np.asarray(crcs, np.uint32),
        }
        bar.update(
          size * last // reader.num_records - size * first // reader.num_records
        )
  if not index:
    raise errors.StoreError(f"{path} must hold samples, got none. Write some.")
  dtypes = json.dumps({name: _dtype(types) for name, types in kinds.items()})
  yield {
    "records": np.asarray(records, np.int64),
    "content": np.frombuffer(content.digest(), np.uint8),
    "kinds": np.frombuffer(dtypes.encode(), np.uint8),
  }


def _dtype(types: set[type]) -> str | None:
  """Returns the dtype that holds numbers of these types, None for texts."""
  if not types <= set(_KINDS):
    return None
  return next(_KINDS[kind] for kind in reversed(_KINDS) if kind in types)
