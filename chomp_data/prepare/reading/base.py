# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What every kind of inputs is, and the pieces that its files are read in.

A kind splits a file into pieces that are read apart, by any process; together
they hold each record of the file once. Units of a piece are its kind's own:
bytes of lines, rows of tables.
"""

import abc
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import os
from typing import Any

from chomp_data import errors
from chomp_data.prepare import records
from chomp_data.stores import object_files
from chomp_data.stores import places

# (number in the file, the record or what is wrong with it); without a number
# the record is all of its file.
Numbered = tuple[int | None, Mapping[str, Any] | errors.BadInput]


@dataclasses.dataclass(frozen=True)
class InputFile:
  """A file to read.

  Attributes:
    name: What documents are called by; sorted by.
    path: Absolute, or a URL.
    size: In bytes, when it was found.
    version: When it was last changed, in ns; of an object its ETag or its
      generation.
    kind: A key of `readers.INPUT_KINDS`.
    compression: 'none', 'gz' or 'zst'.
  """

  name: str
  path: str
  size: int
  version: int | str
  kind: str
  compression: str


@dataclasses.dataclass(frozen=True)
class InputPiece:
  """A range of a file.

  Attributes:
    file: Which file.
    begin: The first unit, as the file's kind counts them.
    end: The last unit + 1.
    first: The number of its first record, or None where `readers.number` has
      to count those before it.
    size: About how many bytes of the file it is; of all pieces together, its
      size.
  """

  file: InputFile
  begin: int
  end: int
  first: int | None
  size: int


class InputKind(abc.ABC):
  """A kind of inputs."""

  @abc.abstractmethod
  def compression(self, name: str) -> str | None:
    """Returns what the name of a file of this kind says, else None.

    Args:
      name: In lower case.
    """

  def begins(self, head: bytes) -> bool:
    """Returns whether a file of any name is of this kind by its first bytes.

    Args:
      head: Of a file that is no text.
    """
    return False

  def check(  # noqa: B027
    self, file: InputFile, options: records.ReadOptions
  ) -> None:
    """Looks at a file before anything of it is read.

    Raises:
      BadInput: If it is not of this kind after all, or rows lack a column.
      PrepareError: If it cannot be opened, or a library is missing.
    """

  @abc.abstractmethod
  def split(self, file: InputFile, part_bytes: int) -> list[InputPiece]:
    """Splits a file; the same for the same size.

    Args:
      file: Which.
      part_bytes: About how many bytes of it a piece is.

    Raises:
      BadInput: If it is not of this kind after all.
      PrepareError: If it cannot be read.
    """

  @abc.abstractmethod
  def read(
    self, piece: InputPiece, options: records.ReadOptions
  ) -> Iterator[Numbered]:
    """Yields the records of a piece, in order.

    Args:
      piece: Which.
      options: `options.keys` are those that records need have.

    Yields:
      (number of the record in its file, the record); a record that cannot be
      read is the error of it, and those after it follow.

    Raises:
      BadInput: If nothing more of the file can be read.
      PrepareError: If it cannot be read.
    """

  def count(self, piece: InputPiece) -> int:
    """Returns how many numbers the records of a piece take.

    Asked only where `split` left `first` open.
    """
    raise NotImplementedError(piece)


def is_url(file: InputFile) -> bool:
  """Returns whether a file is an object of an object store."""
  return places.is_url(file.path)


def opened(
  file: InputFile, *, until: int | None = None, buffered: bool = True
) -> Any:
  """Returns a file that is open to read bytes, and to seek.

  Args:
    file: Which.
    until: Of an object little is read ahead beyond it; None is its end.
    buffered: Of an object, whether more than what is asked for is read.

  Raises:
    OSError: If it cannot be opened.
  """
  if is_url(file):
    return object_files.open(
      file.path, file.size, until=until, buffered=buffered
    )
  return open(file.path, "rb")


def check_unchanged(file: InputFile) -> None:
  """Checks that a file is what it was when it was found.

  Raises:
    PrepareError: If it is not.
  """
  if is_url(file):
    place, name = object_files.place_of(file.path)
    what, now, before = "version", place.version(name), file.version
  else:
    stat = os.stat(file.path)
    what, now, before = "size in bytes", stat.st_size, file.size
    if now == before:
      what, now, before = (
        "modification time in ns, at the same size,",
        stat.st_mtime_ns,
        file.version,
      )
  if now != before:
    raise errors.PrepareError(
      f"{file.path} must not change while it is read, got {what} {now} after"
      f" {before}. Run again when it is complete."
    )


def check_readable(file: InputFile) -> None:
  """Says why a file cannot be opened, which other libraries may not.

  Raises:
    PrepareError: If it cannot.
  """
  if is_url(file):
    return  # It was found, and TensorStore says why it cannot be read.
  try:
    with open(file.path, "rb"):
      pass
  except OSError as error:
    raise unreadable(file, error) from None


def unreadable(file: InputFile, error: OSError) -> errors.PrepareError:
  """Returns the error of a file that cannot be opened or read."""
  return errors.PrepareError(
    f"{file.path} must be readable, got {error}. Correct it, or leave it out"
    " with --exclude."
  )


def pieces_of_units(
  file: InputFile,
  rows: Sequence[int],
  sizes: Sequence[int],
  part_bytes: int,
) -> list[InputPiece]:
  """Groups units that follow each other into pieces of about `part_bytes`.

  Args:
    file: The file.
    rows: Records of each unit.
    sizes: Bytes that each takes, in proportion: they need not add up to the
      file's size.
    part_bytes: The least bytes of a piece, but of the last one.

  Returns:
    The pieces, at least one.
  """
  pieces: list[InputPiece] = []
  total = max(1, sum(sizes))
  begin = row = done = before = 0
  first = 0
  for i, (count, size) in enumerate(zip(rows, sizes, strict=True)):
    row, done = row + count, done + size
    at = file.size * done // total
    if at - before >= part_bytes or i == len(rows) - 1:
      pieces.append(InputPiece(file, begin, i + 1, first, at - before))
      begin, first, before = i + 1, row, at
  return pieces or [InputPiece(file, 0, 0, 0, file.size)]
