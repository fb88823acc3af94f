"""What --on_error=skip left out: counted, and the first of it named.

Counts of parts are joined in the order of the inputs, so they are the same
for any number of workers.
"""

import dataclasses

from chomp_data import errors

_MOST_NAMED = 10


@dataclasses.dataclass
class Skips:
  """Files and lines that were left out.

  Attributes:
    files: How many files.
    lines: How many lines of other files.
    first: Name, line and problem of the first ones.
  """

  files: int = 0
  lines: int = 0
  first: list[str] = dataclasses.field(default_factory=list)

  def add(self, name: str, line: int | None, error: errors.BadInput) -> None:
    """Counts a line of a file, or with None the whole file."""
    if line is None:
      self.files += 1
    else:
      self.lines += 1
      name = f"{name}:{line}"
    self._name([f"{name} {error.problem}"])

  def join(self, other: "Skips") -> None:
    """Counts what was left out after it."""
    self.files += other.files
    self.lines += other.lines
    self._name(other.first)

  def _name(self, more: list[str]) -> None:
    self.first = [*self.first, *more][:_MOST_NAMED]
