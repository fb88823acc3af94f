# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The pieces that inputs are read in, determined on the workers of an engine.

Two rounds of pure functions: `look` detects the kinds of some files and splits
them, `count_records` counts the records of a piece where the numbers of those
after it depend on it. Each result is saved below the directory of the run's
work, so that a run that was killed does not look again:

    plan/KEY    a file of a CRC-32C and JSON, named by all that decides it

A `Plan` holds 40 bytes per piece, and files as bytes; pieces are made of them
when they are read.
"""

import array
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.prepare import detect
from chomp_data.prepare import file_list
from chomp_data.prepare import lazy
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare import scratch
from chomp_data.prepare.reading import base
from chomp_data.storage import paths
from chomp_data.threads import together

# Files of a task.
_FILES = 256
# Objects that a task looks at concurrently: most of the time is latency.
_AT_ONCE = 32

# Changes whenever other pieces are made of the same files.
_VERSION = 2

_UNKNOWN = -1

# Calls a pure function for each task, and returns results in order.
Call = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


@dataclasses.dataclass(frozen=True)
class LookTask:
  """Files to look at.

  Attributes:
    files: As they were listed.
    part_bytes: About how many bytes of a file a piece is.
    read: How documents are read.
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


def look(task: LookTask) -> list[detect.PlannedFile]:
  """Returns the pieces of files, or why they are refused: a pure function.

  Raises:
    PrepareError: If a file cannot be opened.
  """

  def plan_file(file: base.InputFile) -> detect.PlannedFile:
    try:
      return detect.look(file, task.part_bytes, task.read)
    except errors.StoreError as error:
      raise errors.PrepareError(str(error)) from error

  def plan() -> list[detect.PlannedFile]:
    num_objects = sum(file.is_remote for file in task.files)
    at_once = min(_AT_ONCE, max(1, num_objects))
    return list(together.mapped(plan_file, task.files, at_once))

  return _saved(task, list[detect.PlannedFile], plan)


def count_records(task: CountTask) -> int:
  """Returns how many numbers the records of a piece take: a pure function."""
  return _saved(task, int, lambda: readers.count(task.piece))


def plan_files(
  files: Sequence[base.InputFile],
  part_bytes: int,
  read: records.ReadOptions,
  work: str,
  call: Call,
) -> Iterator[detect.PlannedFile]:
  """Yields the pieces of each file, or why it is refused.

  Args:
    files: From `inputs.discover`.
    part_bytes: About how many bytes of a file a piece is.
    read: How documents are read.
    work: Where results are saved; '' saves none.
    call: The engine.

  Raises:
    PrepareError: If a file cannot be opened.
  """
  directory = paths.join(work, "plan") if work else ""
  tasks = lazy.LazySequence(
    lambda i: LookTask(
      tuple(files[i * _FILES : (i + 1) * _FILES]), part_bytes, read, directory
    ),
    -(-len(files) // _FILES),
  )
  for planned in call(look, tasks):
    yield from planned


class Plan:
  """All files of a run, and the pieces of those that are read.

  Attributes:
    files: All, with their kinds and versions, in order.
    refused: Of those that are refused, by their number, why.
    pieces: Of the others, in order.
  """

  def __init__(
    self, files: file_list.FileList, planned: Iterable[detect.PlannedFile]
  ):
    """Reads the results of `plan_files`, and writes them into `files`."""
    self.files = files
    self.refused: dict[int, errors.BadInput] = {}
    edges = array.array("q")
    for number, planned_file in enumerate(planned):
      files[number] = planned_file.file
      if planned_file.error is not None:
        self.refused[number] = planned_file.error
      for begin, end, first, size in planned_file.ranges:
        first = _UNKNOWN if first is None else first
        edges.extend((number, begin, end, first, size))
    self._rows = np.asarray(edges, np.int64).reshape(-1, 5)
    self.pieces: Sequence[base.InputPiece] = lazy.LazySequence(
      self._piece, len(self._rows)
    )

  def read_files(self) -> Iterator[base.InputFile]:
    """Yields the files that are not refused, in order."""
    for number, file in enumerate(self.files):
      if number not in self.refused:
        yield file

  def refused_files(self) -> Iterator[tuple[base.InputFile, errors.BadInput]]:
    """Yields the files that are refused, and why, in order."""
    for number, error in self.refused.items():
      yield self.files[number], error

  def _piece(self, number: int) -> base.InputPiece:
    file, begin, end, first, size = self._rows[number].tolist()
    return base.InputPiece(
      self.files[file], begin, end, None if first == _UNKNOWN else first, size
    )


def number(
  pieces: Sequence[base.InputPiece], work: str, call: Call
) -> Sequence[base.InputPiece]:
  """Returns pieces that all have the number of their first record."""
  directory = paths.join(work, "plan") if work else ""
  firsts = np.fromiter(
    (_UNKNOWN if piece.first is None else piece.first for piece in pieces),
    np.int64,
    len(pieces),
  )
  # The first piece of a file has a number; others follow the piece before.
  unknown = np.flatnonzero(firsts == _UNKNOWN)
  tasks = lazy.LazySequence(
    lambda i: CountTask(pieces[int(unknown[i]) - 1], directory), len(unknown)
  )
  for i, count in zip(unknown, call(count_records, tasks), strict=True):
    firsts[i] = firsts[i - 1] + count
  return lazy.LazySequence(
    lambda i: dataclasses.replace(pieces[i], first=int(firsts[i])), len(pieces)
  )


def _saved(task: Any, kind: Any, make: Callable[[], Any]) -> Any:
  if not task.directory:
    return make()
  content = dataclasses.replace(task, directory="")
  name = scratch.digest([_VERSION, type(task).__name__, content])
  return scratch.saved(kind, task.directory, name, make)
