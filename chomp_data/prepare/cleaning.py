# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Looks for exact duplicates, before parts are made, on any engine."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
from typing import Any

from chomp_data.prepare import duplicates
from chomp_data.prepare import progress
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare import rejections
from chomp_data.prepare.reading import base

_PROGRESS_DOCUMENTS = 1_024

# Calls a pure function for each task, and returns results in order.
Call = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


@dataclasses.dataclass(frozen=True)
class ScanTask:
  """Documents to hash.

  Attributes:
    group: Their pieces.
    read: How documents are read, without `duplicates`.
    on_error: 'fail', or 'skip' what no document can be made of.
    directory: Where hashes go.
  """

  group: tuple[base.InputPiece, ...]
  read: records.ReadOptions
  on_error: str
  directory: str

  @property
  def size(self) -> int:
    """About the bytes of the inputs."""
    return sum(piece.size for piece in self.group)


def scan(task: ScanTask) -> int:
  """Hashes documents: a pure function.

  Returns:
    The number of documents.

  Raises:
    PrepareError: If an input cannot be read.
  """
  counted = rejections.Rejections() if task.on_error == "skip" else None
  return duplicates.write_hashes(
    task.directory,
    task.group,
    lambda: _with_progress(
      readers.documents_of(task.group, task.read, counted), task.size
    ),
  )


def _with_progress(
  documents: Iterable[records.Document], size: int
) -> Iterator[records.Document]:
  """Yields documents, and reports the bytes that are done now and then."""
  done = 0
  for number, document in enumerate(documents):
    yield document
    done += len(document.text)
    if number % _PROGRESS_DOCUMENTS == 0:
      progress.report(min(done, size), number + 1)


def without_duplicates(
  groups: Sequence[tuple[base.InputPiece, ...]],
  read: records.ReadOptions,
  on_error: str,
  work: str,
  call: Call,
) -> records.ReadOptions:
  """Returns options that leave duplicates out, having looked for them.

  Args:
    groups: The pieces of each part, in order.
    read: How documents are read.
    on_error: 'fail', or 'skip' what no document can be made of.
    work: Where the run keeps what it has done.
    call: The engine.
  """
  directory = duplicates.directory_of(groups, read, work)
  tasks = [
    ScanTask(tuple(group), read, on_error, directory) for group in groups
  ]
  duplicates.compare(directory, groups, list(call(scan, tasks)))
  return dataclasses.replace(read, duplicates=directory)
