# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Samples in a directory of Hugging Face's `save_to_disk`, read in place.

`state.json` names the Arrow files, which are streams of record batches. They
are mapped into memory and read through pyarrow (the extra `arrow`); a sample's
array is a view of the map until it is copied into a batch. The library
`datasets` is not needed: its Array2D to Array5D columns are lists in the file.

An index beside the directory holds the crc32c of every MiB of the files; each
is verified once, when it is first read: Arrow has no checksums.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import hashlib
import os
import pathlib
from typing import Any

from absl import logging
import numpy as np

from chomp_data import errors
from chomp_data.storage import checked_file
from chomp_data.storage import checksums
from chomp_data.storage import relative_names
from chomp_data.stores import side_index
from chomp_data.stores.array_record import files_index
from chomp_data.stores.array_record import record_files
from chomp_data.stores.samples import arrow_columns
from chomp_data.stores.samples import sample_fields
from chomp_data.stores.samples import saved_datasets

_NAME = "samples_arrow"
# Where batches are and how large samples are, so that opening maps one file.
_SIZES_NAME = "samples_arrow_sizes"
_SCHEMA = 1

# The end of a stream. Without it a file that was cut between two batches would
# be read as a whole one.
_END = b"\xff\xff\xff\xff\0\0\0\0"


def is_saved(path: pathlib.Path) -> bool:
  """Whether a directory was written by `save_to_disk`.

  Raises:
    StoreError: If it holds several splits.
  """
  names = [name for name in saved_datasets.NAMES if (path / name).is_file()]
  return saved_datasets.is_saved(str(path), names)


@dataclasses.dataclass(frozen=True)
class _File:
  """A mapped file and its record batches that are not empty."""

  file: arrow_columns.MappedFile
  batches: list[Any]


class Reader:
  """Reads such a directory; see `samples.open_samples`.

  Attributes:
    kind: What identifies the format in a hash.
    heights: int32[num_samples].
    widths: int32[num_samples].
    value_dtypes: Of columns of one number or truth value a sample, and None of
      columns of texts.
    raw: Fields that hold bytes without a shape.
    content: Hex, SHA-256 of what the files' pages hold, in their order.
  """

  kind = "arrow"

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
    self._side_names = height_field, width_field
    self._corpus = record_files.Corpus(path, file_names(path), path)
    arrays = files_index.load_or_build(
      self._corpus,
      _NAME,
      {"schema": _SCHEMA},
      index_dir,
      build,
      lambda: _built(self._corpus),
      verifies_reads=True,
    )
    self.content: str = arrays["content"].read().tobytes().hex()
    index = arrays["crc32c"].path.parent
    self._remedy = (
      f"{record_files.RESTORE} If it is right as it is, remove {index}."
    )
    self._crc32c = arrays["crc32c"]
    self._layouts: list[int] = arrays["layout"].read().tolist()
    # Open files, by number, and columns of them that were read.
    self._files: dict[int, _File] = {}
    self._columns: dict[tuple[int, str], arrow_columns.Column] = {}
    self._schema: Any = None
    sizes = side_index.load_or_build(
      files_index.home_of(self._corpus, index_dir),
      _SIZES_NAME,
      {
        "schema": _SCHEMA,
        "content": self.content,
        "fields": [height_field, width_field],
        "samples": list(fields),
      },
      lambda: [self._sizes(fields)],
    )
    self._first_page = sizes["first_page"].read()
    self._first = sizes["first"].read()
    self._batch_file = sizes["file"].read()
    self._file_batch = sizes["batch"].read()
    self.heights: np.ndarray = sizes["heights"].read()
    self.widths: np.ndarray = sizes["widths"].read()
    schema = self._batch(0)[1].schema
    self._check_fields(schema, fields, height_field, width_field)
    self.value_dtypes: dict[str, np.dtype | None] = {
      column.name: arrow_columns.value_dtype(column.type)
      for column in schema
      if arrow_columns.is_value(column.type)
    }
    self.raw: tuple[str, ...] = tuple(
      name for name in fields if self._column(0, name).is_raw
    )

  def records(
    self, indices: np.ndarray, fields: Sequence[str], names: Sequence[str]
  ) -> Iterator[tuple[dict[str, np.ndarray], dict[str, Any]]]:
    """Yields the arrays and the values of samples; see `samples`."""
    batches = np.searchsorted(self._first, indices, "right") - 1
    rows = indices - self._first[batches]
    for index, batch, row in zip(
      indices.tolist(), batches.tolist(), rows.tolist(), strict=True
    ):
      arrays, values = {}, {}
      try:
        for name in fields:
          arrays[name] = self._column(batch, name).array(row)
        for name in names:
          values[name] = self._column(batch, name).value(row)
      except arrow_columns.BadValueError as error:
        raise errors.StoreError(
          f"{self._path}: sample {index} {error}. Correct the data."
        ) from error
      yield arrays, values

  def _sizes(self, fields: Sequence[str]) -> dict[str, np.ndarray]:
    """Opens all files; returns where batches are, and sizes of samples."""
    names = self._corpus.names
    pages = [
      -(-self._corpus.path(i).stat().st_size // arrow_columns.PAGE_BYTES)
      for i in range(len(names))
    ]
    self._first_page = np.concatenate([[0], np.cumsum(pages)])
    files = [self._file(i) for i in range(len(names))]
    counts = [len(file.batches) for file in files]
    if not sum(counts):
      raise errors.StoreError(f"{self._path} must hold samples, got none.")
    self._check_fields(self._schema, fields, *self._side_names)
    rows = [batch.num_rows for file in files for batch in file.batches]
    self._first = np.concatenate([[0], np.cumsum(rows)])
    self._batch_file = np.repeat(np.arange(len(names)), counts)
    self._file_batch = np.concatenate([np.arange(count) for count in counts])
    heights, widths = (
      np.concatenate([self._sides(i, name) for i in range(len(rows))])
      for name in self._side_names
    )
    return {
      "first_page": self._first_page,
      "first": self._first,
      "file": self._batch_file,
      "batch": self._file_batch,
      "heights": heights.astype(np.int32),
      "widths": widths.astype(np.int32),
    }

  def _file(self, number: int) -> "_File":
    """Returns an open file; maps and checks it when it is first needed."""
    opened = self._files.get(number)
    if opened is None:
      first, last = self._first_page[number : number + 2].tolist()
      file = arrow_columns.MappedFile(
        self._corpus.path(number), self._crc32c.read(first, last), self._remedy
      )
      batches = _batches(file)
      # The descriptions of batches are in pages that are not verified here.
      if _layout(file, batches) != self._layouts[number]:
        raise errors.StoreError(
          f"{file.path} must have the batches that were indexed, got others."
          f" {record_files.RESTORE}"
        )
      batches = [batch for batch in batches if batch.num_rows]
      for batch in batches:
        self._schema = self._schema or batch.schema
        if not batch.schema.equals(self._schema):
          raise errors.StoreError(
            f"{file.path} must have the columns of the files before it, got"
            f" {', '.join(batch.schema.names)}, or other types. Save the"
            " dataset again."
          )
      opened = self._files[number] = _File(file, batches)
    return opened

  def _batch(self, batch: int) -> tuple[arrow_columns.MappedFile, Any]:
    """Returns a record batch, and the file that it is in."""
    file = self._file(int(self._batch_file[batch]))
    return file.file, file.batches[self._file_batch[batch]]

  def _column(self, batch: int, name: str) -> arrow_columns.Column:
    column = self._columns.get((batch, name))
    if column is None:
      file, record_batch = self._batch(batch)
      if name not in self._side_names:
        # The index has the sizes of what the file still holds.
        for side in self._side_names:
          self._column(batch, side).numbers()
      column = arrow_columns.Column(file, record_batch.column(name), name)
      self._columns[batch, name] = column
    return column

  def _sides(self, batch: int, name: str) -> np.ndarray:
    """Returns the heights or widths of a batch's samples."""
    values = self._column(batch, name).numbers()
    if (
      values is None
      or values.dtype.kind not in "iu"
      or values.max() >= 2**31
      or values.min() < 1
    ):
      first, last = self._first[batch : batch + 2].tolist()
      for row in range(last - first):
        value = self._column(batch, name).item(row)
        sample_fields.side_of(self._path, first + row, name, value)
      raise AssertionError(f"{self._path}: a column of sizes of other types")
    return values

  def _check_fields(
    self, schema: Any, fields: Sequence[str], *sides: str
  ) -> None:
    for name in (*sides, *fields):
      if name not in schema.names:
        raise errors.StoreError(
          f"{self._path} must have a column `{name}`, got"
          f" {', '.join(schema.names)}. Add it, or say which column it is."
        )
    for name in fields:
      if not arrow_columns.is_array(schema.field(name).type):
        raise errors.StoreError(
          f"{self._path}: column `{name}` must hold lists of numbers or truth"
          f" values, or bytes, got {schema.field(name).type}. Save decoded"
          " arrays."
        )


def file_names(path: pathlib.Path) -> tuple[str, ...]:
  """Returns the names of the Arrow files of a directory, in order.

  Raises:
    StoreError: If `state.json` is damaged, or names others than files beside
      it.
  """
  # From the listing: their status is not asked for, but of links.
  with os.scandir(path) as entries:
    is_link = {
      entry.name: entry.is_symlink() for entry in entries if entry.is_file()
    }
  names = saved_datasets.data_files(str(path), is_link)
  for name in names:
    if is_link[name]:
      relative_names.path_below(path, name, path / saved_datasets.STATE)
  return tuple(names)


def _batches(file: arrow_columns.MappedFile) -> list[Any]:
  """Returns the record batches of a file, as views of its map."""
  arrow = arrow_columns.pyarrow()
  if file.values[-len(_END) :].tobytes() != _END:
    raise errors.StoreError(
      f"{file.path} must be a complete Arrow stream, got one without its end:"
      f" it was cut, or never closed. {record_files.RESTORE}"
    )
  try:
    with arrow.ipc.open_stream(file.buffer) as stream:
      # Names that are no text raise a ValueError.
      _ = stream.schema.names
      batches = list(stream)
  except (arrow.ArrowException, OSError, ValueError) as error:
    raise errors.StoreError(
      f"{file.path} must be a readable Arrow stream, got"
      f" {record_files.first_line(error)}."
      f" {record_files.RESTORE}"
    ) from error
  return batches


def _layout(file: arrow_columns.MappedFile, batches: Sequence[Any]) -> int:
  """Returns a checksum of where the parts of batches are in a file.

  Raises:
    StoreError: If they are not in the file: they were compressed.
  """
  parts = []
  for batch in batches:
    parts += [batch.num_rows, batch.num_columns]
    for column in batch.columns:
      for buffer in column.buffers():
        size = 0 if buffer is None else buffer.size
        parts += [size, file.offset(buffer) if size else 0]
      parts += arrow_columns.lengths(column)
  return checksums.crc32c(np.asarray(parts, "<i8").tobytes())


def _check_whole(
  file: arrow_columns.MappedFile, batches: Sequence[Any]
) -> None:
  """Raises StoreError unless columns have room for what they claim to hold.

  Text is checked whole: Arrow ends the process where it is not what it claims.
  """
  try:
    for batch in batches:
      batch.validate()
      for column in batch.columns:
        if arrow_columns.is_value(column.type):
          column.validate(full=True)
  except arrow_columns.pyarrow().ArrowException as error:
    raise errors.StoreError(
      f"{file.path} must hold whole record batches, got"
      f" {record_files.first_line(error)}."
      f" {record_files.RESTORE}"
    ) from error


def _built(corpus: record_files.Corpus) -> side_index.Parts:
  """Reads all bytes once; yields the arrays of the index."""
  sizes = [corpus.path(i).stat().st_size for i in range(len(corpus.names))]
  logging.info("%s: indexing %d file(s)", corpus.home, len(sizes))
  content = hashlib.sha256()
  with files_index.progress(corpus.home, sum(sizes)) as bar:

    def passed(page: bytes) -> None:
      content.update(page)
      bar.update(len(page))

    for i, size in enumerate(sizes):
      path = corpus.path(i)
      sums = checked_file.sums_of(path, arrow_columns.PAGE_BYTES, passed)
      content.update(str(size).encode())
      crc32c = np.asarray(sums.crc32c(), np.uint32)
      file = arrow_columns.MappedFile(path, crc32c)
      batches = _batches(file)
      _check_whole(file, batches)
      layout = np.asarray([_layout(file, batches)], np.uint32)
      yield {"crc32c": crc32c, "layout": layout}
  yield {"content": np.frombuffer(content.digest(), np.uint8)}
