"""A row source in another order: each epoch its own permutation."""

import dataclasses
from typing import Any

import numpy as np

from chomp_data import schema
from chomp_data.index import hashing
from chomp_data.index import permutation
from chomp_data.ops import spans as spans_lib
from chomp_data.sources import row_source

SHUFFLE_KINDS = ("none", "full")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShuffleOptions:
  """How a source's rows are ordered.

  Attributes:
    kind: 'none', or 'full' for a permutation of the whole epoch.
    seed: Seed of the order; None derives it from the run's.
  """

  kind: str = schema.option("none", schema.choice(SHUFFLE_KINDS))
  seed: int | None = schema.option(
    None, schema.optional(schema.integer(0, 2**63 - 1))
  )


class ShuffledSource(row_source.RowSource):
  """The rows of another source, permuted anew in every epoch."""

  def __init__(
    self, rows: row_source.RowSource, options: ShuffleOptions, seed: int
  ):
    """Wraps a source.

    Args:
      rows: The source to reorder.
      options: The order.
      seed: The run's seed, used where the options have none.
    """
    self.rows = rows
    self.options = options
    self.name = rows.name
    self.store = rows.store
    self.layout = rows.layout
    self.document_slots = rows.document_slots
    if options.seed is None:
      self._key = hashing.fold_key(seed, rows.name, "shuffle")
    else:
      self._key = hashing.fold_key("own", options.seed, rows.name, "shuffle")

  def __len__(self) -> int:
    return len(self.rows)

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows; see `RowSource.plan`."""
    if self.options.kind == "none":
      return self.rows.plan(rows)
    size = len(self.rows)
    epoch, index = np.divmod(rows, size)
    keys = hashing.fold(self._key, epoch)
    return self.rows.plan(epoch * size + permutation.permute(index, size, keys))

  def fingerprint(self) -> dict[str, Any]:
    """Returns what decides this source's rows, as JSON values."""
    return {
      **self.rows.fingerprint(),
      "shuffle": dataclasses.asdict(self.options),
    }

  def describe(self) -> str:
    """Returns the summary of the rows and how they are shuffled."""
    return f"{self.rows.describe()}\n  shuffle={self.options.kind}"
