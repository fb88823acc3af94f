# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The pieces that inputs are read in, determined on the workers of an engine.

Two rounds of pure functions: `look` detects the kinds of some files and splits
them, `count_records` counts the records of a piece where the numbers of those
after it depend on it. Each result is saved below the directory of the run's
work, so that a run that was killed does not look again:

    plan/KEY    a file of a CRC-32C and JSON, named by all that decides it
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import contextlib
import dataclasses
import hashlib
import json
from typing import Any
from typing import TypeVar
import zlib

from chomp_data import errors
from chomp_data.prepare import detect
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare import scratch
from chomp_data.prepare.reading import base
from chomp_data.storage import paths

_T = TypeVar("_T")

# Files of a task: about this many, and at most twice as many.
_FILES = 256
# Objects that a task looks at concurrently: most of the time is latency.
_AT_ONCE = 32

# Changes whenever other pieces are made of the same files.
_VERSION = 1

# Calls a pure function for each task, and returns results in order.
Call = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


@dataclasses.dataclass(frozen=True)
class PlannedFile:
  """A file that was looked at.

  Attributes:
    file: With its kind and its version.
    ranges: Of each piece the begin, end, first record and size, as
      `base.InputPiece` has them; none if the file is refused.
    problem: Why it is refused, the arguments of `errors.BadInput`.
  """

  file: base.InputFile
  ranges: tuple[tuple[int, int, int | None, int], ...] = ()
  problem: tuple[str, ...] = ()

  @property
  def pieces(self) -> list[base.InputPiece]:
    """Its pieces, in order."""
    return [base.InputPiece(self.file, *edges) for edges in self.ranges]

  @property
  def error(self) -> errors.BadInput | None:
    """Why it is refused, or None."""
    return errors.BadInput(*self.problem) if self.problem else None


@dataclasses.dataclass(frozen=True)
class LookTask:
  """Files to look at.

  Attributes:
    files: As they were listed.
    part_bytes: About how many bytes of a file a piece is.
    read: How documents are found.
    directory: Where results are saved; '' saves none.
  """

  files: tuple[base.InputFile, ...]
  part_bytes: int
  read: records.ReadOptions
  directory: str

  @property
  def size(self) -> int:
    """Bytes of the files."""
    return sum(file.size for file in self.files)


@dataclasses.dataclass(frozen=True)
class CountTask:
  """A piece whose records are counted.

  Attributes:
    piece: Which.
    directory: Where the result is saved.
  """

  piece: base.InputPiece
  directory: str

  @property
  def size(self) -> int:
    """Bytes of the piece."""
    return self.piece.size


def look(task: LookTask) -> list[PlannedFile]:
  """Returns the pieces of files, or why they are refused: a pure function.

  Raises:
    PrepareError: If a file cannot be opened.
  """

  def plan() -> list[PlannedFile]:
    num_objects = sum(map(base.is_url, task.files))
    workers = min(_AT_ONCE, max(1, num_objects))
    with futures.ThreadPoolExecutor(workers) as pool:
      return list(pool.map(lambda file: _planned(file, task), task.files))

  return _saved(task, list[PlannedFile], plan)


def count_records(task: CountTask) -> int:
  """Returns how many numbers the records of a piece take: a pure function."""
  return _saved(task, int, lambda: readers.count(task.piece))


def plan_files(
  files: Sequence[base.InputFile],
  part_bytes: int,
  read: records.ReadOptions,
  work: str,
  call: Call,
) -> list[PlannedFile]:
  """Returns the pieces of all files, or why they are refused.

  Args:
    files: From `inputs.discover`.
    part_bytes: About how many bytes of a file a piece is.
    read: How documents are found.
    work: Where the run keeps what is done; '' saves nothing.
    call: The engine.

  Raises:
    PrepareError: If a file cannot be opened.
  """
  directory = paths.join(work, "plan") if work else ""
  tasks = [
    LookTask(group, part_bytes, read, directory) for group in _grouped(files)
  ]
  return [planned for some in call(look, tasks) for planned in some]


def number(
  pieces: Sequence[base.InputPiece], work: str, call: Call
) -> list[base.InputPiece]:
  """Returns pieces that all have the number of their first record.

  Args:
    pieces: Those of files, in order.
    work: Where the run keeps what is done; '' saves nothing.
    call: The engine.
  """
  directory = paths.join(work, "plan") if work else ""
  # Pieces before one whose number is not known.
  counted = [i for i in range(len(pieces) - 1) if pieces[i + 1].first is None]
  tasks = [CountTask(pieces[i], directory) for i in counted]
  counts = dict(zip(counted, call(count_records, tasks), strict=True))
  numbered: list[base.InputPiece] = []
  for i, piece in enumerate(pieces):
    if piece.first is None:
      before = numbered[-1].first
      assert before is not None  # The first piece of a file has a number.
      piece = dataclasses.replace(piece, first=before + counts[i - 1])
    numbered.append(piece)
  return numbered


def _grouped(
  files: Sequence[base.InputFile],
) -> Iterator[tuple[base.InputFile, ...]]:
  """Yields groups of consecutive files.

  Names decide where a group begins, so that a file that is added or removed
  changes its own group only, and the results of the others are used again.
  """
  group: list[base.InputFile] = []
  for file in files:
    begins = zlib.crc32(file.name.encode()) % _FILES == 0
    if group and (begins or len(group) == 2 * _FILES):
      yield tuple(group)
      group = []
    group.append(file)
  if group:
    yield tuple(group)


def _planned(file: base.InputFile, task: LookTask) -> PlannedFile:
  try:
    looked = detect.look(file, task.part_bytes, task.read)
  except errors.StoreError as error:
    raise errors.PrepareError(str(error)) from error
  return PlannedFile(
    looked.file,
    tuple(
      (piece.begin, piece.end, piece.first, piece.size)
      for piece in looked.pieces
    ),
    () if looked.error is None else looked.error.args,
  )


def _saved(task: Any, kind: Any, make: Callable[[], _T]) -> _T:
  """Returns the result of a task, from a run before this one if it is saved."""
  if not task.directory:
    return make()
  fields = {**dataclasses.asdict(task), "version": _VERSION}
  del fields["directory"]
  text = json.dumps([type(task).__name__, fields], sort_keys=True)
  name = hashlib.sha256(text.encode()).hexdigest()[:32]
  with contextlib.suppress(OSError, ValueError):
    return scratch.read_row(kind, task.directory, name)
  result = make()
  # Whoever may not write can still learn that a store is there already; a run
  # that needs to write fails at its first part.
  with contextlib.suppress(errors.AccessError):
    scratch.write_row(task.directory, name, result)
  return result
