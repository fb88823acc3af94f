# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Detects files that are replaced while a store is open.

A checksum that is not right does not say that a store was replaced, and what
was read before is not checked again; some files have no checksums. So the
status of the few files that identify a store is asked for after each read: what
was copied before they changed is of the store that was opened.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import os
import pathlib

from chomp_data import errors

Stamp = tuple[int, ...]

# Files of a corpus whose status is asked for to open it where all that is read
# of them is checked. A change of another one is found when it is read.
MAX_STAMPS = 1_024


class ModificationGuard:
  """Files that must stay as they were while a store is read."""

  def __init__(
    self,
    stamps: Mapping[str, Stamp | None],
    is_same: Callable[[pathlib.Path], bool] = lambda path: False,
  ):
    """Looks at nothing yet.

    Args:
      stamps: Of the files, by path, from before they were read.
      is_same: Whether a file that was written again holds what it did.
    """
    self._stamps = dict(stamps)
    self._is_same = is_same

  def check(self) -> None:
    """Raises StoreError where a file was written since it was looked at.

    A file that was removed, or moved away with its store, is not an error.
    """
    for path, before in self._stamps.items():
      now = stamp(path)
      if now == before or now is None:
        continue
      if self._is_same(pathlib.Path(path)):
        self._stamps[path] = now
        continue
      raise errors.StoreError(
        f"{path} must stay as it is while it is read, but it was written anew:"
        " another store takes the place of the one that this run began with."
        " Put that one back, or give the new one another path."
      )


def stamp(path: str | os.PathLike[str]) -> Stamp | None:
  """Returns what changes where a file is written again; None: no such file.

  Args:
    path: The file.
  """
  try:
    status = os.stat(path)
  except OSError:
    return None
  return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def sample(names: Sequence[str]) -> range:
  """Returns the places of all names where they are few, else of some.

  These are at most `MAX_STAMPS`, evenly apart.
  """
  return range(0, len(names), max(1, -(-len(names) // MAX_STAMPS)))
