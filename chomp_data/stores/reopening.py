# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Data at a path that each process opens at first use, and that stay the same.

Pickled, they are a path, their options, and a hash: another process opens them
at first use, and refuses data that were replaced in between.
"""

import abc
import os
from typing import Any
from typing import ClassVar
from typing import Generic
from typing import Protocol
from typing import TypeVar

from chomp_data import errors


class Identified(Protocol):
  """What one process has open of the data."""

  @property
  def hash(self) -> str:
    """The identity of the data, SHA-256 as hex, whatever their path."""
    ...


_Opened = TypeVar("_Opened", bound=Identified)


class Reopened(abc.ABC, Generic[_Opened]):
  """Data at a path, which are opened at first use in each process."""

  # What they are, and what to do where they were replaced, for messages.
  _noun: ClassVar[str]
  _remedy: ClassVar[str]

  def __init__(self, path: str | os.PathLike[str]):
    """Opens nothing yet."""
    self._path = os.fspath(path)
    self._expected_hash: str | None = None
    self._opened: _Opened | None = None

  @abc.abstractmethod
  def _open(self) -> _Opened:
    """Opens the data.

    `_expected_hash` is None where they are opened for the first time.

    Raises:
      StoreError: If they are damaged, or no such data.
    """

  @property
  def opened(self) -> _Opened:
    """What this process has open; opened at first use.

    Raises:
      StoreError: If they are damaged, or were replaced since they were first
        opened.
    """
    # No `cached_property`, which in Python 3.11 opens one at a time.
    if self._opened is None:
      self._opened = self._checked()
    return self._opened

  def _checked(self) -> _Opened:
    """Opens the data; raises StoreError if they are not those expected."""
    opened = self._open()
    if self._expected_hash not in (None, opened.hash):
      raise errors.StoreError(
        f"{self._path} must be the {self._noun} of hash {self._expected_hash}"
        f" that this run began with, got {opened.hash}. {self._remedy}, or"
        " start again."
      )
    self._expected_hash = opened.hash
    return opened

  def __getstate__(self) -> dict[str, Any]:
    return {**vars(self), "_expected_hash": self.hash, "_opened": None}

  def __repr__(self) -> str:
    return f"{type(self).__name__}({self._path!r}, hash={self.hash[:16]!r})"

  @property
  def path(self) -> str:
    """Where the data are."""
    return self._path

  @property
  def hash(self) -> str:
    """The identity of the data, SHA-256 as hex, whatever their path."""
    return self._expected_hash or self.opened.hash
