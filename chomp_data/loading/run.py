"""What every kind of run offers to Grain, written once."""

import abc
from collections.abc import Mapping
from collections.abc import Sequence
import functools
from typing import Any

import grain

from chomp_data.loading import state


class Run(abc.ABC):
  """A run's input: a Grain source of batches, and a loader over it.

  Attributes:
    options: With `seed` and `worker_count`.
  """

  options: Any

  @functools.cached_property
  @abc.abstractmethod
  def fingerprint(self) -> dict[str, Any]:
    """What decides every batch, as JSON values."""

  @abc.abstractmethod
  def operations(self) -> list[grain.transforms.Map]:
    """Returns the transforms over batches that the config asks for."""

  @abc.abstractmethod
  def batch_source(
    self, rows: Any = None, fingerprint: Mapping[str, Any] | None = None
  ) -> Any:
    """Returns the Grain source of process-local batches.

    Args:
      rows: Which rows of a global batch this process holds; None is all.
      fingerprint: Shown in its `repr`, or None for the run's own.
    """

  def fingerprint_with(
    self, operations: Sequence[grain.transforms.Map]
  ) -> dict[str, Any]:
    """Returns the fingerprint with more transforms; see `state`."""
    return state.with_operations(self.fingerprint, operations)

  def data_loader(
    self,
    rows: Any = None,
    *,
    operations: Sequence[grain.transforms.Map] = (),
    worker_count: int | None = None,
  ) -> grain.DataLoader:
    """Returns a plain `grain.DataLoader` of process-local host batches.

    Args:
      rows: As in `batch_source`.
      operations: More transforms over batches, after the config's.
      worker_count: Child processes, or None for the config's.
    """
    from chomp_data.loading import feed  # jax only where devices are fed

    return feed.data_loader(
      self.batch_source(rows, self.fingerprint_with(operations)),
      seed=self.options.seed,
      operations=[*self.operations(), *operations],
      worker_count=(
        self.options.worker_count if worker_count is None else worker_count
      ),
    )
