"""Opening the sources of a run: one error says what is wrong with all."""

from collections.abc import Iterator
import contextlib

from chomp_data import schema
from chomp_data import stores


class Opening:
  """Collects what is wrong with sources while they are opened."""

  def __init__(self):
    """Starts without problems."""
    self._problems: list[str] = []
    self._unopened: list[str] = []
    self._first: stores.StoreError | None = None

  @contextlib.contextmanager
  def source(self, path: str) -> Iterator[None]:
    """Keeps the ConfigError or StoreError of its block.

    Args:
      path: Dotted path of the source, `config.data.sources.<name>`.
    """
    try:
      yield
    except schema.ConfigError as error:
      self._problems += error.problems
    except stores.StoreError as error:
      self._first = self._first or error
      self._unopened.append(f"{path}.store: {error}")

  def check(self) -> None:
    """Raises one error with all that was kept; none where all is well.

    Raises:
      ConfigError: If options are wrong; stores that are wrong too are listed.
      StoreError: If only stores are: one line for each, `<path>.store: ...`.
    """
    if self._problems:
      raise schema.ConfigError(self._problems + self._unopened) from self._first
    if self._unopened:
      raise stores.StoreError("\n".join(self._unopened)) from self._first
