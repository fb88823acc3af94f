# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Arrow files and streams: a document a row.

A piece is record batches that follow each other: of a file their numbers, of a
stream the bytes that hold them, so that one in the middle is read alone.
Directories that `save_to_disk` of Hugging Face's datasets wrote hold streams.

Heads of batches are found through a memory map; rows are read without one,
since a file that is cut meanwhile would end the process.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import re
import sys
from typing import Any
from typing import BinaryIO

from chomp_data.prepare import records
from chomp_data.prepare.reading import base
from chomp_data.prepare.reading import tables

_FILE = b"ARROW1"
_STREAM = b"\xff\xff\xff\xff"
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"


class Arrow(base.InputKind):
  """Arrow's own files, of both formats."""

  names: re.Pattern[str] = re.compile(r"\.(arrow|feather)\Z")
  marks: tuple[bytes, ...] = (_FILE, _STREAM)

  def split(
    self,
    file: base.InputFile,
    opened: Any,
    part_bytes: int,
    options: records.ReadOptions,
  ) -> list[base.InputPiece]:
    """Checks the end of a file and its columns, and splits record batches.

    In an object store a file is one piece: the heads of its batches are all
    over it, a request each.
    """
    arrow = tables.pyarrow(file.path)
    with _errors_named(file):
      opened.seek(max(0, file.size - len(_STREAM_END)))
      end = opened.read()
      opened.seek(0)
      # Without its end a stream reads as a shorter one.
      if opened.read(len(_FILE)) != _FILE and end != _STREAM_END:
        raise EOFError("a stream without its end")
      opened.seek(0)
      schema = _open(file, arrow.PythonFile(opened, "r")).schema
      tables.check_columns(file.path, schema, options)
    if file.is_remote:
      return [base.InputPiece(file, 0, file.size, 0, file.size)]
    rows, sizes, ends = [], [], []
    with _errors_named(file), arrow.memory_map(file.path) as mapped:
      reader = _open(file, mapped)
      begin = mapped.tell()
      for batch in _batches(reader):
        rows.append(batch.num_rows)
        sizes.append(batch.nbytes)
        ends.append(mapped.tell())
      is_stream = not hasattr(reader, "get_batch")
      # Dictionaries that values refer to may be in any batch before.
      if is_stream and "dictionary<" in str(reader.schema):
        part_bytes = sys.maxsize
    pieces = base.pieces_of_units(file, rows, sizes, part_bytes)
    if not is_stream:
      return pieces
    edges = [begin, *ends]
    return [
      dataclasses.replace(piece, begin=edges[piece.begin], end=edges[piece.end])
      for piece in pieces
    ]

  def read(
    self, piece: base.InputPiece, options: records.ReadOptions
  ) -> Iterator[base.Numbered]:
    """Yields the rows of record batches."""
    file, number = piece.file, piece.first or 0
    arrow = tables.pyarrow(file.path)
    with _errors_named(file):
      with base.opened(file, until=0) as raw:
        is_file = raw.read(len(_FILE)) == _FILE
      if is_file:
        with (
          arrow.PythonFile(base.opened(file), "r")
          if file.is_remote
          else arrow.OSFile(file.path)
        ) as source:
          batches = _batches(_open(file, source), piece.begin, piece.end)
          yield from _rows(batches, number, options, file)
        return
    with _errors_named(file), base.opened(file) as raw:
      source = arrow.PythonFile(_Range(raw, piece.begin, piece.end), "r")
      batches = _batches(arrow.ipc.open_stream(source))
      yield from _rows(batches, number, options, file)


@contextlib.contextmanager
def _errors_named(file: base.InputFile) -> Iterator[None]:
  """Raises what cannot be read as an error that names the file."""
  arrow = tables.pyarrow(file.path)
  try:
    yield
  except (arrow.ArrowException, OSError, EOFError, UnicodeError) as error:
    raise tables.unreadable(file.path, "Arrow", error) from None


def _open(file: base.InputFile, source: Any) -> Any:
  """Returns pyarrow's reader of a file or of a stream."""
  ipc = tables.pyarrow(file.path).ipc
  if source.read(len(_FILE)) == _FILE:
    return ipc.open_file(source)
  source.seek(0)
  return ipc.open_stream(source)


def _batches(opened: Any, begin: int = 0, end: int | None = None) -> Any:
  """Yields record batches; of a file those of a range."""
  if hasattr(opened, "get_batch"):
    last = opened.num_record_batches
    last = last if end is None else min(end, last)
    yield from map(opened.get_batch, range(begin, last))
  else:
    yield from opened


def _rows(
  batches: Iterator[Any],
  number: int,
  options: records.ReadOptions,
  file: base.InputFile,
) -> Iterator[base.Numbered]:
  for batch in batches:
    yield from tables.numbered(batch, number, options, file.path)
    number += batch.num_rows


class _Range:
  """A stream of the head of another one, and some of its batches."""

  closed = False  # pyarrow asks.

  def __init__(self, raw: BinaryIO, begin: int, end: int):
    raw.seek(len(_STREAM))
    head = len(_STREAM) + 4 + int.from_bytes(raw.read(4), "little")
    self._raw = raw
    self._ranges = [(0, head), (max(begin, head), end)]

  def read(self, size: int = -1) -> bytes:
    """Returns bytes of the head, then of the range."""
    while self._ranges:
      begin, end = self._ranges[0]
      if begin < end:
        left = end - begin
        self._raw.seek(begin)
        data = self._raw.read(left if size < 0 else min(size, left))
        if not data:
          raise EOFError(f"{left} bytes less")
        self._ranges[0] = begin + len(data), end
        return data
      self._ranges.pop(0)
    return b""
