"""What stops `prepare`, in sentences for whoever started it."""

from collections.abc import Sequence

_MOST = 10


class PrepareError(ValueError):
  """Inputs, options or output do not allow a store to be made."""


class BadInput(PrepareError):
  """A file or a line that no document can be made of.

  Attributes:
    problem: What it must be, and what it is, without its place.
  """

  def __init__(self, where: str, problem: str, advice: str):
    """Names what is wrong.

    Args:
      where: The file's path, or that and the line.
      problem: What it must be, and what it is.
      advice: What to do.
    """
    # All of them: an exception is pickled as its arguments.
    super().__init__(where, problem, advice)
    self.problem = problem

  def __str__(self) -> str:
    return " ".join(self.args)


def raise_if(problems: Sequence[str]) -> None:
  """Raises one PrepareError of all problems, if there are any."""
  if problems:
    more = len(problems) - _MOST
    rest = [f"... and {more} more."] if more > 0 else []
    raise PrepareError("\n".join([*problems[:_MOST], *rest]))
