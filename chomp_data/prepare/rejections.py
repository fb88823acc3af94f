# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What was left out: counted by reason, and the first that is wrong named.

Files and records that are no documents are left out by --on_error=skip, others
by --filter and --duplicates=drop. Counts of parts are joined in the order of
the inputs, so they are the same for any number of workers.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from chomp_data import errors

_MOST_NAMED = 10


@dataclasses.dataclass
class Rejections:
  """Files and lines that were left out.

  Attributes:
    files: How many files.
    lines: How many lines, rows and records of other files.
    first: Name, line and problem of the first ones.
    reasons: How many of both, and of documents that --filter and
      --duplicates=drop left out, by reason.
    unnamed: Documents without an id, which are kept.
    chats: Of the chats that are kept, how turns end; see `chats`.
    raises: Whether a file or record that is no document is an error.
  """

  files: int = 0
  lines: int = 0
  first: list[str] = dataclasses.field(default_factory=list)
  reasons: dict[str, int] = dataclasses.field(default_factory=dict)
  unnamed: int = 0
  chats: dict[str, int] = dataclasses.field(default_factory=dict)
  raises: bool = False

  def add(self, name: str, line: int | None, error: errors.BadInput) -> None:
    """Counts a line of a file, or with None the whole file.

    Raises:
      BadInput: The error, if it is not to be counted.
    """
    if self.raises:
      raise error
    if line is None:
      self.files += 1
    else:
      self.lines += 1
      name = f"{name}:{line}"
    self.count(error.reason)
    self._name([f"{name} {error.problem}"])

  def count(self, reason: str, count: int = 1) -> None:
    """Counts documents that are left out for a reason."""
    self.reasons[reason] = self.reasons.get(reason, 0) + count

  def count_chat(self, counts: Mapping[str, int]) -> None:
    """Adds what is counted of a document that is kept."""
    for name, count in counts.items():
      self.chats[name] = self.chats.get(name, 0) + count

  def left_out(self) -> dict[str, Any]:
    """Returns what a manifest says of it, JSON values."""
    values = dataclasses.asdict(self)
    del values["unnamed"], values["chats"], values["raises"]
    return values

  def join(self, other: "Rejections") -> None:
    """Counts what was left out after it."""
    self.files += other.files
    self.lines += other.lines
    self.unnamed += other.unnamed
    self.count_chat(other.chats)
    for reason, count in other.reasons.items():
      self.count(reason, count)
    self.reasons = dict(sorted(self.reasons.items()))
    self._name(other.first)

  def _name(self, more: list[str]) -> None:
    self.first = [*self.first, *more][:_MOST_NAMED]
