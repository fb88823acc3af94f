# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Parquet: a document a row. A piece is row groups that follow each other."""

from collections.abc import Iterator
import re
from typing import Any

from chomp_data.prepare import records
from chomp_data.prepare.reading import base
from chomp_data.prepare.reading import tables

# Rows are decoded a few MiB at a time, however large their row group is.
_BATCH_BYTES = 4 * 2**20
_BATCH_ROWS = 1_024
_BUFFER_BYTES = 1 << 20
_RANGE_BYTES = 4 << 20  # Of an object, a request.


class Parquet(base.InputKind):
  """Parquet files."""

  names: re.Pattern[str] = re.compile(r"\.parquet\Z")
  marks: tuple[bytes, ...] = (b"PAR1",)

  def split(
    self,
    file: base.InputFile,
    opened: Any,
    part_bytes: int,
    options: records.ReadOptions,
  ) -> list[base.InputPiece]:
    """Checks the footer, and splits row groups by their bytes in the file."""
    with _open(file, opened) as table:
      try:
        tables.check_columns(file.path, table.schema_arrow, options)
      except UnicodeError as error:
        raise tables.unreadable(file.path, "Parquet", error) from None
      metadata = table.metadata
      groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
      rows = [group.num_rows for group in groups]
      sizes = [
        sum(
          group.column(i).total_compressed_size
          for i in range(group.num_columns)
        )
        for group in groups
      ]
    return base.pieces_of_units(file, rows, sizes, part_bytes)

  def read(
    self, piece: base.InputPiece, options: records.ReadOptions
  ) -> Iterator[base.Numbered]:
    """Yields the rows of row groups, a few at a time."""
    file, number = piece.file, piece.first or 0
    with _open(file) as opened:
      names = tables.columns(opened.schema_arrow, options.keys)
      for group in range(piece.begin, piece.end):
        metadata = opened.metadata.row_group(group)
        row_bytes = metadata.total_byte_size // max(1, metadata.num_rows)
        batches = opened.iter_batches(
          batch_size=max(
            1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, row_bytes))
          ),
          row_groups=[group],
          columns=names,
          use_threads=False,
        )
        for batch in _errors_named(file, batches):
          yield from tables.numbered(batch, number, options, file.path)
          number += batch.num_rows


def _errors_named(
  file: base.InputFile, batches: Iterator[Any]
) -> Iterator[Any]:
  """Yields batches; errors name the file."""
  arrow = tables.pyarrow(file.path)
  try:
    yield from batches
  except (arrow.ArrowException, OSError) as error:
    raise tables.unreadable(file.path, "Parquet", error) from None


def _open(file: base.InputFile, source: Any = None) -> Any:
  """Returns pyarrow.parquet.ParquetFile, of an open file if there is one."""
  arrow = tables.pyarrow(file.path)
  import pyarrow.parquet as parquet  # pyright: ignore

  base.check_readable(file)
  is_remote = file.is_remote
  if source is None:
    source = base.opened(file, buffered=False) if is_remote else file.path
  try:
    opened = parquet.ParquetFile(
      source,
      buffer_size=_RANGE_BYTES if is_remote else _BUFFER_BYTES,
      pre_buffer=False,
      page_checksum_verification=True,
    )
  except (arrow.ArrowException, OSError) as error:
    raise tables.unreadable(file.path, "Parquet", error) from None
  metadata = opened.metadata
  group = metadata.row_group(0) if metadata.num_row_groups else None
  if group and group.num_columns and group.column(0).file_path:
    opened.close()
    raise tables.unreadable(
      file.path, "Parquet", ValueError("a summary of other files")
    )
  return opened
