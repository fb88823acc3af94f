"""What stops `prepare`, in sentences for whoever started it."""

from collections.abc import Sequence


class PrepareError(ValueError):
  """Inputs, options or output do not allow a store to be made."""


def raise_if(problems: Sequence[str]) -> None:
  """Raises one PrepareError of all problems, if there are any."""
  if problems:
    raise PrepareError("\n".join(problems))
