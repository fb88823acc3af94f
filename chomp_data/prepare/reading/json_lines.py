"""JSON lines: a document a line; lines are numbered from 1.

A piece holds the lines that begin in its range of bytes. Files that are
compressed are one piece. A line of white space is no record.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import itertools
import json
from typing import Any

from chomp_data import errors
from chomp_data.prepare import records
from chomp_data.prepare.reading import base
from chomp_data.prepare.reading import byte_blocks

_COMPRESSIONS = {
  f"{name}{packed}": compression
  for name in (".jsonl", ".ndjson", ".json")
  for packed, compression in (("", "none"), (".gz", "gz"), (".zst", "zst"))
}


class JsonLines(base.InputKind):
  """Files of an object a line."""

  def compression(self, name: str) -> str | None:
    """Returns the compression that a name says."""
    for suffix, compression in _COMPRESSIONS.items():
      if name.endswith(suffix):
        return compression
    return None

  def split(
    self, file: base.InputFile, part_bytes: int
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
    for block in byte_blocks.blocks(piece.file, begin=before):
      count += block.count(b"\n", 0, left)
      left -= len(block)
      if left <= 0:
        break
    return count

  def read(
    self, piece: base.InputPiece, options: records.ReadOptions
  ) -> Iterator[base.Numbered]:
    """Yields the objects of lines."""
    file = piece.file
    assert piece.first is not None  # `readers.number` comes first.
    if file.compression != "none":
      lines = _lines(byte_blocks.blocks(file))
    else:
      lines = _piece_lines(piece)
    for number, line in enumerate(lines, piece.first):
      if line.strip():
        try:
          yield number, _record(line, number, f"{file.path}:{number}", options)
        except errors.BadInput as error:
          yield number, error


def _piece_lines(piece: base.InputPiece) -> Iterator[bytes]:
  """Yields the lines that begin in a piece, without their ends.

  begin 3, end 7   a b \\n c d \\n e f \\n    "cd", "ef"
                   0 1  2 3 4  5 6 7  8
  """
  # A line begins at `begin` if the byte before it ends another.
  position = max(piece.begin - 1, 0)
  blocks = byte_blocks.blocks(piece.file, begin=position)
  if piece.begin:
    for block in blocks:
      end = block.find(b"\n") + 1
      position += end or len(block)
      if end or position >= piece.end:
        blocks = itertools.chain([block[end:]], blocks)
        break
    if position >= piece.end:
      return  # The line of a piece before goes on beyond this one.
  for line in _lines(blocks):
    if position >= piece.end:
      return
    yield line
    position += len(line) + 1


def _lines(data: Iterable[bytes]) -> Iterator[bytes]:
  """Yields the lines of a file, without their ends."""
  rest: list[bytes] = []
  for block in data:
    first, *others = block.split(b"\n")
    rest.append(first)
    if others:
      yield b"".join(rest)
      yield from others[:-1]
      rest = [others[-1]]
  if last := b"".join(rest):
    yield last


def _record(
  line: bytes, number: int, where: str, options: records.ReadOptions
) -> Mapping[str, Any]:
  text = records.decoded(line, options, where)
  if number == 1:
    text = text.removeprefix("\ufeff")
  try:
    record = json.loads(text)
  except (ValueError, RecursionError) as error:
    raise errors.BadInput(
      where, f"must be a JSON object, got {error}.", "Correct the line."
    ) from None
  if not isinstance(record, dict):
    raise errors.BadInput(
      where,
      f"must be a JSON object, got a {type(record).__name__}.",
      "Correct the line.",
    )
  return record
