# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""JSON lines: a document a line; lines are numbered from 1.

A piece holds the lines that begin in its range of bytes. Files that are
compressed are one piece. A line of white space is no record.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import io
import json
import re
import sys
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.prepare import records
from chomp_data.prepare.reading import base
from chomp_data.prepare.reading import byte_blocks

_DECODER = json.JSONDecoder()
_NEWLINE = ord("\n")


class JsonLines(base.InputKind):
  """Files of an object a line."""

  names: re.Pattern[str] = re.compile(
    r"\.(jsonl|ndjson|json)(\.(?P<compression>gz|zst))?\Z"
  )

  def split(
    self,
    file: base.InputFile,
    opened: Any,
    part_bytes: int,
    options: records.ReadOptions,
  ) -> list[base.InputPiece]:
    """Splits bytes; nothing is read."""
    if file.compression != "none" or not file.size:
      return [base.InputPiece(file, 0, file.size, 1, file.size)]
    return [
      base.InputPiece(
        file,
        begin,
        min(begin + part_bytes, file.size),
        None if begin else 1,
        min(part_bytes, file.size - begin),
      )
      for begin in range(0, file.size, part_bytes)
    ]

  def count(self, piece: base.InputPiece) -> int:
    """Returns how many lines begin in a piece."""
    before = max(piece.begin - 1, 0)
    left = piece.end - 1 - before
    count = int(not piece.begin)
    for block in byte_blocks.blocks(piece.file, begin=before, until=piece.end):
      # Four times as fast as `bytes.count`.
      of_piece = np.frombuffer(block, np.uint8)[: max(left, 0)]
      count += int(np.count_nonzero(of_piece == _NEWLINE))
      left -= len(block)
      if left <= 0:
        break
    return count

  def read(
    self, piece: base.InputPiece, options: records.ReadOptions
  ) -> Iterator[base.Numbered]:
    """Yields the objects of lines."""
    file = piece.file
    assert piece.first is not None  # `input_plan.number` sets it.
    lines = _lines(piece, options.max_document_bytes)
    for number, line in enumerate(lines, piece.first):
      if line is None:
        yield number, records.too_long(f"{file.path}:{number}", options)
      elif line.strip():
        record = None if number == 1 else fast_record(line)
        if record is None:
          try:
            where = f"{file.path}:{number}"
            line = line.removesuffix(b"\n")
            record = parsed_record(line, number, where, options)
          except errors.BadInput as error:
            record = error
        yield number, record


class _Blocks(io.RawIOBase):
  """Blocks of bytes as a file."""

  def __init__(self, blocks: Iterator[bytes]):
    self._blocks = blocks
    self._left = memoryview(b"")

  def readable(self) -> bool:
    return True

  def readinto(self, buffer: Any) -> int:
    if not self._left:
      self._left = memoryview(next(self._blocks, b""))
    count = min(len(buffer), len(self._left))
    buffer[:count] = self._left[:count]
    self._left = self._left[count:]
    return count


def _lines(piece: base.InputPiece, most: int) -> Iterator[bytes | None]:
  """Yields the lines that begin in a piece, with their ends.

  begin 3, end 7   a b | c d | e f |    "cd|", "ef|"
                   0 1 2 3 4 5 6 7 8

  Of a line of more than `most` bytes nothing is kept, and None yielded.
  """
  # A line begins at `begin` if the byte before it ends another.
  position, end = max(piece.begin - 1, 0), piece.end
  if piece.file.compression != "none":
    position, end = 0, sys.maxsize
    blocks = byte_blocks.blocks(piece.file)
  else:
    blocks = byte_blocks.blocks(piece.file, begin=position, until=end)
  file = io.BufferedReader(_Blocks(blocks), byte_blocks.BLOCK)

  def skip_line() -> None:
    nonlocal position
    while position < end:
      data = file.readline(min(byte_blocks.BLOCK, end - position))
      position += len(data)
      if not data or data[-1] == _NEWLINE:
        return

  if piece.begin:
    skip_line()
  while position < end and (line := file.readline(byte_blocks.BLOCK)):
    parts, size = [line], len(line)
    while line and line[-1] != _NEWLINE and size <= most:
      line = file.readline(byte_blocks.BLOCK)
      parts.append(line)
      size += len(line)
    position += size
    is_ended = not line or line[-1] == _NEWLINE
    if size - is_ended * bool(line) <= most:
      line = line if len(parts) == 1 else b"".join(parts)
      del parts
      yield line
      continue
    del parts
    yield None
    if not is_ended:
      skip_line()


def fast_record(line: bytes) -> dict[str, Any] | None:
  """Returns the object of most lines, in less time; None of all others."""
  try:
    text = line.decode()
    record, end = _DECODER.raw_decode(text)
  except (ValueError, RecursionError):
    return None
  is_whole = text[end:] in ("", "\n", "\r\n", "\r")
  return record if is_whole and isinstance(record, dict) else None


def parsed_record(
  line: bytes, number: int, where: str, options: records.ReadOptions
) -> Mapping[str, Any]:
  text = records.decoded(line, options, where)
  if number == 1:
    text = text.removeprefix("\ufeff")
  try:
    record = json.loads(text)
  except (ValueError, RecursionError) as error:
    raise errors.BadInput(
      where,
      f"must be a JSON object, got {error}.",
      "Correct the line, or skip it with --on_error=skip.",
      "not JSON",
    ) from None
  if not isinstance(record, dict):
    raise errors.BadInput(
      where,
      f"must be a JSON object, got a {type(record).__name__}.",
      "Correct the line, or skip it with --on_error=skip.",
      "not JSON",
    )
  return record
