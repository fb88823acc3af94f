# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The errors of the package; messages say what to do."""

from collections.abc import Iterable
from collections.abc import Sequence
import errno
import resource
from typing import Self

_MOST = 10


def listed(texts: Sequence[str], most: int, separator: str = ", ") -> str:
  """Returns the first of some texts, and how many more there are.

      listed(["a", "b", "c", "d"], 2)  "a, b and 2 more"

  Args:
    texts: All.
    most: How many are shown.
    separator: Between two.
  """
  more = f" and {len(texts) - most} more" if len(texts) > most else ""
  return f"{separator.join(texts[:most])}{more}"


def bullets(lines: Iterable[str]) -> str:
  """Returns a list for the end of a sentence, a line each."""
  return "".join(f"\n  - {line}" for line in lines)


class ConfigError(ValueError):
  """One or several bad fields of a config."""

  def __init__(self, problems: Sequence[str]):
    """Formats the problems, one a line.

    Args:
      problems: Sentences that name field, rule, value and fix; at least one.
    """
    self.problems: list[str] = list(problems)
    if len(problems) == 1:
      text = problems[0]
    else:
      text = f"{len(problems)} fields of the config are wrong:"
      text += bullets(problems)
    super().__init__(text)

  def __reduce__(self) -> tuple[type[Self], tuple[list[str]]]:
    # A worker's error reaches the main process pickled.
    return type(self), (self.problems,)


class StoreError(ValueError):
  """A store cannot be opened, read or written; the message names the file."""


class AccessError(StoreError):
  """A bucket does not answer or refuses access, so its content is unknown."""


def check_open_files(error: BaseException) -> None:
  """Raises a clear error if a file did not open because too many are open.

  Raises:
    StoreError: If so; another error passes.
  """
  if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise StoreError(
      f"`ulimit -n` must leave files to open {error.filename}, got {most}"
      f" ({error.strerror}). Raise it, or close files."
    ) from error


class StateError(ValueError):
  """A state that is damaged, or belongs to another run.

  Attributes:
    in_command: The message as a command prints it, which names flags where
      the message names Python arguments.
  """

  def __init__(self, message: str, in_command: str | None = None):
    """Binds the message.

    Args:
      message: What is wrong and what to do, in Python.
      in_command: The same on the command line, or None where it is the same.
    """
    super().__init__(message)
    self.in_command: str = message if in_command is None else in_command


class InputError(RuntimeError):
  """The input failed.

  The iterator stays failed, unless another process failed and `reassign`
  continues without it.
  """


class PrepareError(ValueError):
  """Inputs, options or output do not allow a store to be made."""

  @classmethod
  def raise_if(cls, problems: Sequence[str]) -> None:
    """Raises one error that lists all problems, if there are any."""
    if problems:
      more = len(problems) - _MOST
      rest = [f"... and {more} more."] if more > 0 else []
      raise cls("\n".join([*problems[:_MOST], *rest]))


class BadInput(PrepareError):
  """A file or a line that is not a document.

  Attributes:
    problem: The rule and the value, without the location.
    reason: A short name by which such errors are counted.
  """

  def __init__(
    self, where: str, problem: str, advice: str, reason: str = "no document"
  ):
    """Names what is wrong.

    Args:
      where: The file's path, or that and the line.
      problem: What it must be, and what it is.
      advice: What to do.
      reason: What it is counted by where it is left out.
    """
    # Pass all arguments: an exception is pickled as its arguments.
    super().__init__(where, problem, advice, reason)
    self.problem: str = problem
    self.reason: str = reason

  def __str__(self) -> str:
    return " ".join(self.args[:3])


class DivergedError(RuntimeError):
  """The loss is no longer a finite number."""
