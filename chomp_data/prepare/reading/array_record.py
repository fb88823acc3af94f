# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""ArrayRecord files: a document a record; records are numbered from 0.

Records are UTF-8, or messages of `tf.train.Example`, whose features are keys;
the first record of a file decides for all.

The library reads local files only. An object in a bucket is one piece, and read
from a temporary file without a name, which is deleted when it is closed.
"""

from collections.abc import Iterator
import math
import pathlib
import re
import shutil
import sys
import tempfile
from typing import Any
from typing import TYPE_CHECKING

from chomp_data import errors
from chomp_data.prepare import records
from chomp_data.prepare.reading import base
from chomp_data.prepare.reading import tf_example

if TYPE_CHECKING:
  from chomp_data.stores.array_record import record_files

_BEGIN = bytes.fromhex("83af70d10d884a3f")
_READ_BYTES = 4 * 2**20


class ArrayRecord(base.InputKind):
  """ArrayRecord files of text."""

  names: re.Pattern[str] = re.compile(
    r"\.(array_?record|arecord)([-.]\d+-of-\d+)?$"
  )
  marks: tuple[bytes, ...] = (_BEGIN,)

  def split(
    self,
    file: base.InputFile,
    opened: Any,
    part_bytes: int,
    options: records.ReadOptions,
  ) -> list[base.InputPiece]:
    """Checks that the file is whole, and splits records of about equal bytes.

    Objects are one piece, and only how they begin is checked.
    """
    if file.is_remote:
      if opened.read(len(_BEGIN)) != _BEGIN:
        error = ValueError("must be an ArrayRecord file, got other bytes.")
        raise _bad(file, file.path, error)
      return [base.InputPiece(file, 0, sys.maxsize, 0, file.size)]
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
    file = piece.file
    try:
      reader = _open(file)
    except errors.BadInput as error:
      if not file.is_remote:
        raise
      yield None, error  # The end of an object is first read here.
      return
    end = min(piece.end, reader.num_records)
    if piece.begin >= end:
      return
    are_examples = tf_example.is_example(_read(file, reader, 0, 1)[0])
    size = max(1, file.size // max(1, reader.num_records))
    step = max(reader.group_size, min(1_024, math.ceil(_READ_BYTES / size)))
    for first in range(piece.begin, end, step):
      last = min(first + step, end)
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
  base.check_readable(file)
  if not file.is_remote:
    return _reader(file, file.path)
  # It is deleted when its last reader is closed.
  with base.opened(file) as source, tempfile.TemporaryFile() as copy:
    try:
      shutil.copyfileobj(source, copy, _READ_BYTES)
      copy.flush()
    except OSError as error:
      raise errors.PrepareError(
        f"{tempfile.gettempdir()} must have room for the {file.size:,} bytes of"
        f" {file.path}, got {error}. Name another directory in TMPDIR."
      ) from None
    return _reader(file, f"/dev/fd/{copy.fileno()}")


def _reader(file: base.InputFile, path: str) -> "record_files.Reader":
  # Here, and not in workers that read something else.
  from chomp_data.stores.array_record import record_files

  try:
    return record_files.Reader(pathlib.Path(path))
  except errors.StoreError as error:
    raise _bad(file, path, error) from None


def _read(
  file: base.InputFile, reader: "record_files.Reader", first: int, last: int
) -> list[bytes]:
  try:
    return reader.read(first, last)
  except errors.StoreError as error:
    raise _bad(file, str(reader.path), error) from None


def _bad(file: base.InputFile, path: str, error: Exception) -> errors.BadInput:
  """Returns the error of a file; its message names where it was read."""
  problem = str(error).removeprefix(path).lstrip(": ")
  return errors.BadInput(
    file.path,
    problem,
    "Or leave it out: --exclude, --on_error=skip.",
    "damaged",
  )
