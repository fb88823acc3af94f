# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What every kind of inputs is, and the pieces that its files are read in.

A kind splits a file into pieces that any process reads by themselves; together
they hold each record of the file once. The units of a piece depend on the kind:
bytes of lines, row groups of tables.
"""

import abc
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import re
from typing import Any

from chomp_data import errors
from chomp_data.prepare import records
from chomp_data.storage import opening

# (number in the file, the record or what is wrong with it); without a number
# the record is all of its file.
Numbered = tuple[int | None, Mapping[str, Any] | errors.BadInput]


@dataclasses.dataclass(frozen=True, slots=True)
class InputFile:
  """A file to read.

  Attributes:
    name: What documents are called by; sorted by.
    path: Absolute, or a URL.
    size: In bytes, when it was listed.
    version: When it was last changed, in ns; of an object its ETag or its
      generation. Until `input_plan` has looked at the object, the ETag that
      the listing has.
    kind: A key of `readers.INPUT_KINDS`.
    compression: 'none', 'gz' or 'zst'.
  """

  name: str
  path: str
  size: int
  version: int | str | None
  kind: str
  compression: str

  @property
  def is_remote(self) -> bool:
    """Whether it is an object in a bucket."""
    return opening.open_object(self.path)[0].is_remote


@dataclasses.dataclass(frozen=True, slots=True)
class InputPiece:
  """A range of a file.

  Attributes:
    file: Which file.
    begin: The first unit, as the file's kind counts them.
    end: The last unit + 1.
    first: The number of its first record, or None where `input_plan.number` has
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
  """A kind of inputs.

  Attributes:
    names: Matches how names of its files end, in lower case; a group
      `compression` is 'gz' or 'zst', or None.
    marks: What its files begin with, of any name, if they are no text.
  """

  names: re.Pattern[str] = re.compile("$")
  marks: tuple[bytes, ...] = ()

  def compression(self, name: str) -> str | None:
    """Returns the compression that a name in lower case says.

    None is the name of another kind.
    """
    match = self.names.search(name)
    if match is None:
      return None
    return match.groupdict().get("compression") or "none"

  @abc.abstractmethod
  def split(
    self,
    file: InputFile,
    opened: Any,
    part_bytes: int,
    options: records.ReadOptions,
  ) -> list[InputPiece]:
    """Checks a file before anything else of it is read, and splits it.

    Args:
      file: Which.
      opened: It, open to read bytes and to seek. Of an object each read
        elsewhere than in its first and last 64 KiB is a request.
      part_bytes: About how many bytes of it a piece is.
      options: How documents are read.

    Returns:
      Its pieces in order, at least one; the same wherever it is split.

    Raises:
      BadInput: If it is not of this kind after all, or rows lack a column.
      PrepareError: If it cannot be read, or a library is missing.
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


def opened(
  file: InputFile, *, until: int | None = None, buffered: bool = True
) -> Any:
  """Returns an open file, as `Storage.open_file` does."""
  storage, name = opening.open_object(file.path)
  return storage.open_file(name, file.size, until=until, buffered=buffered)


@contextlib.contextmanager
def ends_of(file: InputFile) -> Iterator[Any]:
  """Opens a file to read its begin and its end, as `Storage.open_ends` does.

  Raises:
    PrepareError: If it cannot be opened.
  """
  check_readable(file)
  storage, name = opening.open_object(file.path)
  with storage.open_ends(name, file.size) as opened:
    yield opened


def with_version(file: InputFile, ends: Any) -> InputFile:
  """Returns a file with the version of what was read of it.

  Raises:
    PrepareError: If it has another size than when it was listed.
  """
  storage, name = opening.open_object(file.path)
  if not storage.is_remote:
    return file
  info = ends.raw.info or storage.head(name)  # None if nothing was read.
  if info is None or info.size != file.size:
    raise errors.PrepareError(
      f"{file.path} must not change while it is read, got"
      f" {'no object' if info is None else f'{info.size} bytes'} after"
      f" {file.size} bytes. Run again when it is complete."
    )
  return dataclasses.replace(file, version=info.version)


def check_unchanged(file: InputFile) -> None:
  """Checks that a file has not changed since it was listed.

  Raises:
    PrepareError: If it is not.
  """
  storage, name = opening.open_object(file.path)
  info = storage.head(name)
  if info is None:
    got = "nothing there"
  elif info.size != file.size:
    got = f"size in bytes {info.size} after {file.size}"
  elif info.version != file.version:
    what = "modification time in ns, at the same size,"
    what = "version" if storage.is_remote else what
    got = f"{what} {info.version} after {file.version}"
  else:
    return
  raise errors.PrepareError(
    f"{file.path} must not change while it is read, got {got}. Run again when"
    " it is complete."
  )


def check_readable(file: InputFile) -> None:
  """Raises why a file cannot be opened; messages of libraries may not say it.

  Raises:
    PrepareError: If it cannot.
  """
  try:
    with opened(file):  # Of an object nothing is requested.
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
  begin = num_rows = num_bytes = before = 0
  first = 0
  for i, (count, size) in enumerate(zip(rows, sizes, strict=True)):
    num_rows, num_bytes = num_rows + count, num_bytes + size
    at = file.size * num_bytes // total
    if at - before >= part_bytes or i == len(rows) - 1:
      pieces.append(InputPiece(file, begin, i + 1, first, at - before))
      begin, first, before = i + 1, num_rows, at
  return pieces or [InputPiece(file, 0, 0, 0, file.size)]
