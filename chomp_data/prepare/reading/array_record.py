"""ArrayRecord files: a document a record; records are numbered from 0.

Records are UTF-8, or messages of `tf.train.Example`, whose features are keys;
the first record of a file tells which of them all are.
"""

from collections.abc import Iterator
import math
import pathlib
import re
from typing import TYPE_CHECKING

from chomp_data import errors
from chomp_data.prepare import records
from chomp_data.prepare.reading import base
from chomp_data.prepare.reading import tf_example

if TYPE_CHECKING:
  from chomp_data.stores.array_record import record_files

_NAME = re.compile(r"\.(array_?record|arecord)([-.]\d+-of-\d+)?$")
_BEGIN = bytes.fromhex("83af70d10d884a3f")
_READ_BYTES = 4 * 2**20


class ArrayRecord(base.InputKind):
  """ArrayRecord files of text."""

  def compression(self, name: str) -> str | None:
    """Compression is the format's own affair."""
    return "none" if _NAME.search(name) else None

  def begins(self, head: bytes) -> bool:
    """Returns whether a file begins with the format's mark."""
    return head.startswith(_BEGIN)

  def check(self, file: base.InputFile, options: records.ReadOptions) -> None:
    """Checks that the file is whole."""
    _open(file)

  def split(
    self, file: base.InputFile, part_bytes: int
  ) -> list[base.InputPiece]:
    """Splits records, as if all had the same bytes."""
    reader = _open(file)
    count = reader.num_records
    # Records of a group are read together.
    groups = -(-part_bytes * count // max(1, file.size)) // reader.group_size
    step = max(1, groups) * reader.group_size
    return [
      base.InputPiece(
        file,
        begin,
        min(begin + step, count),
        begin,
        file.size * min(begin + step, count) // count
        - file.size * begin // count,
      )
      for begin in range(0, count, step)
    ] or [base.InputPiece(file, 0, 0, 0, file.size)]

  def read(
    self, piece: base.InputPiece, options: records.ReadOptions
  ) -> Iterator[base.Numbered]:
    """Yields records of text under the text's key, or features."""
    file, reader = piece.file, _open(piece.file)
    if piece.begin >= piece.end:
      return
    are_examples = tf_example.is_example(_read(file, reader, 0, 1)[0])
    size = max(1, file.size // max(1, reader.num_records))
    step = max(reader.group_size, min(1_024, math.ceil(_READ_BYTES / size)))
    for first in range(piece.begin, piece.end, step):
      last = min(first + step, piece.end)
      for number, data in enumerate(_read(file, reader, first, last), first):
        if not are_examples:
          yield number, {options.text_key: data}
          continue
        try:
          yield number, tf_example.parse(data)
        except ValueError as error:
          yield (
            number,
            errors.BadInput(
              f"{file.path}:{number}",
              f"must be a tf.train.Example as record 0 is, got {error}.",
              "Correct it, or leave it out with --on_error=skip.",
              "damaged",
            ),
          )


def _open(file: base.InputFile) -> "record_files.Reader":
  # Here, and not in workers that read something else.
  from chomp_data.stores.array_record import record_files

  base.check_readable(file)
  try:
    return record_files.Reader(pathlib.Path(file.path))
  except errors.StoreError as error:
    raise _bad(file, error) from None


def _read(
  file: base.InputFile, reader: "record_files.Reader", first: int, last: int
) -> list[bytes]:
  try:
    return reader.read(first, last)
  except errors.StoreError as error:
    raise _bad(file, error) from None


def _bad(file: base.InputFile, error: Exception) -> errors.BadInput:
  """Returns the error of a file; its message names the file already."""
  problem = str(error).removeprefix(file.path).lstrip(": ")
  return errors.BadInput(
    file.path,
    problem,
    "Or leave it out: --exclude, --on_error=skip.",
    "damaged",
  )
