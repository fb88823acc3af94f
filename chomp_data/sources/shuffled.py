"""A row source in another order, each epoch its own (`index/order/`)."""

import dataclasses
from typing import Any

from absl import logging
import numpy as np

from chomp_data import schema
from chomp_data.index.order import orders
from chomp_data.index.order import row_finding
from chomp_data.index.order import unequal_blocks
from chomp_data.ops import spans as spans_lib
from chomp_data.sources import row_source
from chomp_data.sources import shuffle_options
from chomp_data.sources import source_opening
from chomp_data.sources.shuffle_options import ShuffleOptions

DEFAULT_BUDGET = 2 * 2**30

# Sums of eras lie about as many rows apart.
_ERA_ROWS = 4_096

# A length at or beyond this stands for a source without an end.
_ENDLESS = 2**62


class ShuffledSource(row_source.RowSource):
  """The rows of another source, reordered anew in every epoch."""

  def __init__(
    self,
    rows: row_source.RowSource,
    options: ShuffleOptions,
    seed: int,
    *,
    cache_bytes: int = DEFAULT_BUDGET,
    path: str = "shuffle",
  ):
    """Wraps a source.

    Args:
      rows: The source to reorder.
      options: The order.
      seed: The run's seed, used where the options have none.
      cache_bytes: Most bytes of the windows of a block shuffle.
      path: Dotted path of the options, for messages.

    Raises:
      ConfigError: If the options contradict each other or the source.
    """
    own_blocks = rows.block_starts(0) is not None
    problems = options.problems(path, own_blocks)
    if len(rows) >= _ENDLESS:
      problems.append(
        f"`{path}.kind` must be 'none' for a source without an end, got"
        f" {options.kind!r}. A shuffle needs epochs: give the source a length."
      )
    if problems:
      raise schema.ConfigError(problems)
    self.rows = rows
    self.options = options
    self.name = rows.name
    self.store = rows.store
    self.layout = rows.layout
    self.document_slots = rows.document_slots
    self.documents_follow = rows.documents_follow
    self.ramp_epochs = rows.ramp_epochs
    self.windows: shuffle_options.Windows | None = None
    key = orders.order_key(seed, rows.name, options.seed)
    self._order = self._make_order(key, own_blocks, cache_bytes, path)

  def __len__(self) -> int:
    return len(self.rows)

  def first_row(self, epoch: np.ndarray) -> np.ndarray:
    """Returns the number of each epoch's first row; see `RowSource`."""
    return self.rows.first_row(epoch)

  def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (epoch, position in that epoch); see `RowSource`."""
    return self.rows.locate(rows)

  def order(self, rows: np.ndarray) -> np.ndarray:
    """Returns which rows of the wrapped source stand at positions.

    Args:
      rows: int64[N], positions through all epochs.
    """
    rows = np.asarray(rows, np.int64)
    if len(rows) and int(rows.min()) < 0:
      raise IndexError(f"rows must be at least 0, got {int(rows.min())}.")
    if self.options.kind == "none" or not len(rows):
      return rows
    epoch, index = self.rows.locate(rows)
    if (epoch == epoch[0]).all():
      # One epoch, the common case, is passed on as a number.
      number = epoch[:1]
      first = int(self.rows.first_row(number)[0])
      size = int(self.rows.first_row(number + 1)[0]) - first
      return first + self._order.permute(index, int(number[0]), size)
    first = self.rows.first_row(epoch)
    size = self.rows.first_row(epoch + 1) - first
    return first + self._order.permute(index, epoch, size)

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows; see `RowSource.plan`."""
    return self.rows.plan(self.order(rows))

  def keep_windows(self, cache_bytes: int) -> None:
    """Keeps as many windows of a block shuffle in memory as bytes allow.

    At least one, at most `cache_windows`; decides no order.

    Args:
      cache_bytes: Bytes for this source.
    """
    if self.windows is not None:
      self.windows = self.windows.kept_within(cache_bytes)
      self.store.set_cache_bytes(self.windows.total_bytes)

  def parts(self) -> dict[str, row_source.RowSource]:
    """Returns the wrapped source; see `RowSource`."""
    return self.rows.parts()

  def epochs_alike(self, unit: str) -> bool:
    """Returns whether epochs consume the same; see `RowSource`."""
    return self.rows.epochs_alike(unit)

  def prefetch(self, spans: spans_lib.Spans) -> None:
    """Fetches what a plan will need; see `RowSource`."""
    self.rows.prefetch(spans)

  def read_group(self, row: int) -> tuple[int, int]:
    """Returns the rows of the shuffle window that a row lies in."""
    if self.options.kind not in ("block", "era"):
      return super().read_group(row)
    number = np.asarray([row], np.int64)
    epoch, index = self.rows.locate(number)
    start = self.rows.first_row(epoch)
    size = self.rows.first_row(epoch + 1) - start
    first, last = self._order.window_bounds(index, epoch, size)
    return int((start + first)[0]), int((start + last)[0])

  def alike(
    self, epoch: int, unit: str
  ) -> tuple[int, list[int], list[int]] | None:
    """Returns what rows consume, in the order; see `RowSource`."""
    alike = self.rows.alike(epoch, unit)
    if alike is None:
      return None
    each, odd, own = alike
    size = self._size(epoch)
    placed = sorted(
      (row_finding.find(self._order, row, epoch, size), units)
      for row, units in zip(odd, own, strict=True)
    )
    return each, [p for p, _ in placed], [units for _, units in placed]

  def unit_edges(
    self, epoch: int, unit: str
  ) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns where units are known, in the order; see `RowSource`."""
    order = self._order
    match order:
      case orders.NoneOrder():
        return self.rows.unit_edges(epoch, unit)
      case unequal_blocks.UnequalBlockOrder():
        units = self.rows.block_units(epoch, unit)
        return None if units is None else order.sums(epoch, np.diff(units))
      case orders.BlockOrder():
        units = self.rows.units_every(epoch, unit, order.io_block_size)
        if units is None:
          return None
        return self._as_unequal(order).sums(epoch, np.diff(units))
      case orders.EraOrder():
        # Eras stand in the order of rows.
        rows = order.era_length * max(1, _ERA_ROWS // order.era_length)
        units = self.rows.units_every(epoch, unit, rows)
        if units is None:
          return None
        size = self._size(epoch)
        return np.append(np.arange(0, size, rows), size), units
    return None

  def fingerprint(self) -> dict[str, Any]:
    """Returns what decides this source's rows, as JSON values."""
    shuffle = dataclasses.asdict(self.options)
    # What is kept in memory decides nothing; how wide windows are does.
    del shuffle["cache_windows"]
    if self.windows is not None:
      shuffle["window_blocks"] = self.windows.window_blocks
      if isinstance(self._order, orders.BlockOrder):
        shuffle["io_block_size"] = self._order.io_block_size
    return {**self.rows.fingerprint(), "shuffle": shuffle}

  def describe(self) -> str:
    """Returns the summary of the rows and how they are shuffled."""
    how = [f"shuffle={self.options.kind}"]
    if self.windows is not None:
      if isinstance(self._order, orders.BlockOrder):
        how.append(f"io_block_size={self._order.io_block_size}")
      else:
        how.append("blocks=packing windows")
      how += [
        f"window_blocks={self.windows.window_blocks}",
        f"cache_windows={self.windows.cache_windows}",
        f"cache_bytes={self.windows.total_bytes}",
      ]
    if self.options.kind == "era":
      how.append(f"era_length={self.options.era_length}")
    return (
      f"{self.rows.describe()}\n  {' '.join(how)}"
      f"\n  tokenizer {source_opening.tokenizer_text(self.store)}"
    )

  def _as_unequal(
    self, order: orders.BlockOrder
  ) -> unequal_blocks.UnequalBlockOrder:
    """Returns the same order as one of blocks that happen to be equal."""

    def boundaries(epoch: int) -> np.ndarray:
      size = self._size(epoch)
      return np.append(np.arange(0, size, order.io_block_size), size)

    return unequal_blocks.UnequalBlockOrder(
      boundaries=boundaries,
      window_blocks=order.window_blocks,
      key=order.key,
      perm_type=order.perm_type,
      last_is_tail=len(self) % order.io_block_size > 0,
    )

  def _size(self, epoch: int) -> int:
    return self.first_row_of(epoch + 1) - self.first_row_of(epoch)

  def _block_starts(self, epoch: int) -> np.ndarray:
    starts = self.rows.block_starts(epoch)
    if starts is None:
      raise TypeError(f"{self.rows!r} has no blocks in epoch {epoch}.")
    return starts

  def _make_order(
    self, key: int, own_blocks: bool, cache_bytes: int, path: str
  ) -> orders.Order:
    options = self.options
    match options.kind:
      case "full":
        return orders.FullOrder(key, options.perm_type)
      case "era":
        return orders.EraOrder(
          options.era_length or 1, key, perm_type=options.perm_type
        )
      case "block":
        block = options.io_block_size or self.rows.chunk_rows()
        if own_blocks:
          # Of the longest that may meet: a cache too small for one window
          # fetches its chunks again and again.
          most = options.window_blocks or shuffle_options.DEFAULT_WINDOW_BLOCKS
          block_rows = float(
            np.sort(np.diff(self._block_starts(0)))[-most:].mean()
          )
        else:
          block_rows = block
        self.windows = shuffle_options.windows_within(
          options,
          self.rows.block_chunks(block_rows)
          * self.store.chunk_tokens
          * self.store.token_dtype.itemsize,
          cache_bytes,
        )
        self.keep_windows(cache_bytes)
        if self.windows.narrowed is not None:
          logging.warning("%s: %s.", path, self.windows.narrowed)
        if own_blocks:
          return unequal_blocks.UnequalBlockOrder(
            boundaries=self._block_starts,
            window_blocks=self.windows.window_blocks,
            key=key,
            perm_type=options.perm_type,
          )
        return orders.BlockOrder(
          io_block_size=block,
          window_blocks=self.windows.window_blocks,
          key=key,
          perm_type=options.perm_type,
        )
    return orders.NoneOrder()
