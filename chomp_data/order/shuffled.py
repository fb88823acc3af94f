# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reorders the rows of a source, differently in every epoch."""

import dataclasses
import math
from typing import Any

import numpy as np

from chomp_data import schema
from chomp_data.index import integers
from chomp_data.index import intervals
from chomp_data.order import lanes as lanes_lib
from chomp_data.order import orders
from chomp_data.order import shuffle_options
from chomp_data.order import unequal_blocks
from chomp_data.order.shuffle_options import ShuffleOptions
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import mix_units
from chomp_data.sources import row_source
from chomp_data.sources import shared_options as options_lib
from chomp_data.sources import source_opening
from chomp_data.sources import wrapped_source
from chomp_data.stores import base as stores_base

DEFAULT_BUDGET = 2 * 2**30

# A length from this one on means a source without an end.
_ENDLESS = 2**62


class ShuffledSource(wrapped_source.WrappedSource):
  """The rows of another source, in another order in every epoch."""

  @schema.arguments(
    rows=row_source.SOURCE,
    options=schema.options_rule(ShuffleOptions),
    seed=options_lib.SEED,
    cache_bytes=stores_base.CACHE_BYTES,
    path=schema.text(),
    batch_size=schema.optional(schema.integer(1)),
    mixed=schema.boolean(),
  )
  def __init__(
    self,
    rows: row_source.RowSource,
    options: ShuffleOptions,
    seed: int,
    *,
    cache_bytes: int = DEFAULT_BUDGET,
    path: str = "shuffle",
    batch_size: int | None = None,
    mixed: bool = False,
  ):
    """Wraps a source.

    Args:
      rows: The source to reorder.
      options: The order.
      seed: The run's seed, used where the options have none.
      cache_bytes: Most bytes of the windows of a block shuffle.
      path: Dotted path of the options, for messages.
      batch_size: Rows of a batch over all processes, for lanes.
      mixed: Whether a mix places the rows of lanes in batches.

    Raises:
      TypeError: If an argument is of a wrong type.
      ConfigError: If the options contradict each other or the source.
    """
    has_blocks = rows.blocks(0) is not None
    problems = options.problems(path, has_blocks)
    if len(rows) >= _ENDLESS:
      problems.append(
        f"`{path}.kind` must be 'none' for a source without an end, got"
        f" {options.kind!r}. A shuffle needs epochs: give the source a length."
      )
    if mixed and options.lane_rows is not None:
      problems.append(
        f"`{path}.lane_rows` must be None in a mix, which places the rows of"
        f" lanes, got {options.lane_rows}. Unset it."
      )
    if problems:
      raise schema.ConfigError(problems)
    super().__init__(rows)
    self.options: ShuffleOptions = options
    self.windows: shuffle_options.Windows | None = None
    self._block_size: int | None = None
    self._lanes = options.lane_layout(batch_size, mixed)
    key = orders.order_key(seed, rows.name, options.seed)
    self._order = self._make_order(key, has_blocks, cache_bytes)

  @property
  def phases(self) -> tuple[tuple[int, "ShuffledSource"], ...]:
    """(First epoch, source from there on): itself from epoch 0."""
    return ((0, self),)

  def order(self, rows: np.ndarray) -> np.ndarray:
    """Returns the rows of the wrapped source at positions of this one.

    Args:
      rows: int64[N], positions through all epochs.
    """
    rows = row_source.checked_rows(rows)
    if self.options.kind == "none":
      return rows
    epoch, index = self.rows.epochs.locate(rows)
    first_row = self.rows.epochs.first_row(epoch)
    size = self.rows.epochs.first_row(epoch + 1) - first_row
    return first_row + self._order.permute(index, epoch, size)

  def positions(self, rows: np.ndarray, epoch: int) -> np.ndarray:
    """Returns the positions of rows of an epoch; inverts `order`.

    Args:
      rows: int64[N], of the epoch, counted from its first.
      epoch: The epoch.

    Returns:
      int64[N], counted from the epoch's first.
    """
    return self._order.positions(rows, epoch, self.rows.epochs.size(epoch))

  def near(self, rows: intervals.Intervals, epoch: int) -> np.ndarray:
    """Returns ranges of positions that include some ranges of rows.

    Args:
      rows: The first row of each range and the row after its last, counted from
        the epoch's first row, ascending and disjoint.
      epoch: The epoch.

    Returns:
      int64[N, 2], the first and last + 1 of each range, ascending.
    """
    size = self.rows.epochs.size(epoch)
    if self.options.kind == "block":
      return np.asarray([[0, size]])
    # Rows stay in their window, and ranges of rows in the same window become
    # one range of positions.
    window_begin, _ = self._order.window_bounds(rows[0], epoch, size)
    _, window_end = self._order.window_bounds(rows[1] - 1, epoch, size)
    opens = np.ones(len(window_begin), np.bool_)
    opens[1:] = window_begin[1:] >= np.maximum.accumulate(window_end)[:-1]
    begins = np.flatnonzero(opens)
    ends = np.append(begins[1:], len(window_begin)) - 1
    return np.stack([window_begin[begins], window_end[ends]], axis=1)

  @property
  def lanes(self) -> int:
    """Lanes of the order; 1 is none."""
    return self._lanes.lanes

  def lane_of(self, rows: np.ndarray) -> np.ndarray:
    """Returns the lanes of rows, int64[N].

    Args:
      rows: int64[N], positions through all epochs.
    """
    return rows // self._lanes.lane_rows % self._lanes.lanes

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows of the wrapped source."""
    return self.rows.plan(self.order(rows))

  def keep_windows(self, cache_bytes: int) -> None:
    """Sets how many windows of a block shuffle stay in memory.

    As many as fit, at least one and at most `cache_windows`. The order does not
    depend on it.

    Args:
      cache_bytes: Bytes for this source.
    """
    if self.windows is not None:
      self.windows = self.windows.cached_within(cache_bytes)
      self.store.set_cache(self.windows.total_bytes)

  def prepare(self, max_epochs: int | None, full_order: bool = False) -> None:
    """Announces a reader to the wrapped source."""
    full_order |= self.options.kind == "full"
    self.rows.prepare(max_epochs, full_order)

  def read_group(self, row: int) -> tuple[int, int]:
    """Returns the rows around a row that are best read together.

    They are its shuffle window for kinds 'block' and 'era', else an aligned
    group of rows.

    Args:
      row: A row number through all epochs.

    Returns:
      (first row, the row after the last).
    """
    if self.options.kind not in ("block", "era"):
      return row_source.group_of(row)
    epochs = self.rows.epochs
    epoch, index = (
      int(number[0]) for number in epochs.locate(np.asarray([row], np.int64))
    )
    begin, end = self._order.window_bounds(
      np.asarray([index]), epoch, epochs.size(epoch)
    )
    start = epochs.start(epoch)
    return start + int(begin[0]), start + int(end[0])

  def blocks(self, epoch: int) -> None:
    """Returns None: the wrapped rows of a block are not consecutive."""
    integers.whole("epoch", epoch)

  def block_units(
    self, epoch: int, unit: str, rows: int | None
  ) -> mix_units.BlockUnits | None:
    """Returns the units of blocks of rows that the order keeps together.

    For a block shuffle these are its windows; for eras, as many eras as have
    about `rows` rows.
    """
    order, size = self._order, self.rows.epochs.size(epoch)
    if rows is None or isinstance(order, orders.NoneOrder):
      return self.rows.block_units(epoch, unit, rows)
    rows = order.block_rows(rows)
    blocks = self.rows.block_units(epoch, unit, rows)
    if blocks is None:
      return None
    if blocks.equal:
      return blocks.reordered(lambda moved: self.positions(moved, epoch))
    if isinstance(order, orders.EraOrder):
      # Rows move within their era only.
      edges = mix_units.every(rows, size)
      return blocks if np.array_equal(blocks.starts, edges) else None
    assert isinstance(order, orders.BlockShuffle)
    if not np.array_equal(blocks.starts, order.edges(epoch, size)):
      return None
    return mix_units.BlockUnits(*order.window_sums(blocks.units, epoch, size))

  def units(self, epoch: int, positions: np.ndarray, unit: str) -> np.ndarray:
    """Returns the units that rows of an epoch consume, int64[N]."""
    size = self.rows.epochs.size(epoch)
    rows = self._order.permute(positions, epoch, size)
    return self.rows.units(epoch, rows, unit)

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines this source's rows, as JSON values."""
    shuffle = dataclasses.asdict(self.options)
    # The order depends on the width of windows, not on how many are cached.
    del shuffle["cache_windows"]
    del shuffle["lanes"], shuffle["lane_rows"]
    if self.options.lanes is not None:
      shuffle["lanes"] = self._lanes.lanes
      shuffle["lane_rows"] = self._lanes.lane_rows
    if self.windows is not None:
      shuffle["window_blocks"] = self.windows.window_blocks
      if self._block_size is not None:
        shuffle["io_block_size"] = self._block_size
    return {**self.rows.fingerprint, "shuffle": shuffle}

  def describe(self) -> str:
    """Returns the summary of the rows and how they are shuffled."""
    settings = [f"shuffle={self.options.kind}"]
    if self.windows is not None:
      if self._block_size is not None:
        settings.append(f"io_block_size={self._block_size}")
      else:
        settings.append("blocks=packing windows")
      if self.options.lanes is not None:
        settings.append(
          f"lanes={self._lanes.lanes} lane_rows={self._lanes.lane_rows}"
        )
      settings += [
        f"window_blocks={self.windows.window_blocks}",
        f"cache_windows={self.windows.cache_windows}",
        f"cache_bytes={self.windows.total_bytes}",
      ]
    if self.options.kind == "era":
      settings.append(f"era_length={self.options.era_length}")
    return (
      f"{self.rows.describe()}\n  {' '.join(settings)}"
      f"\n  tokenizer {source_opening.tokenizer_text(self.store)}"
    )

  def _blocks(self, epoch: int) -> np.ndarray:
    """Returns the first row of each block of the wrapped source."""
    blocks = self.rows.blocks(epoch)
    if blocks is None:
      raise TypeError(f"{self.rows!r} has no blocks in epoch {epoch}.")
    return blocks

  def _block_chunks(self, block_rows: float) -> int:
    """Returns the most chunks of the store that a block of rows touches."""
    tokens = block_rows * self.seq_len
    chunks = math.ceil(tokens / self.store.opened.chunk_tokens)
    aligned = (
      self.documents_follow and not tokens % self.store.opened.chunk_tokens
    )
    return chunks if aligned else chunks + 1

  def _make_order(
    self, key: int, has_blocks: bool, cache_bytes: int
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
        return self._block_order(key, has_blocks, cache_bytes)
    return orders.NoneOrder()

  def _block_order(
    self, key: int, has_blocks: bool, cache_bytes: int
  ) -> orders.Order:
    options, lanes = self.options, self._lanes
    default = lanes.window_blocks
    if has_blocks:
      sizes = np.sort(np.diff(self._blocks(0)))
      # The mean of the longest blocks: a cache that is too small for one
      # window fetches its chunks many times.
      max_window_blocks = (options.window_blocks or default) * lanes.lanes
      block, block_rows = (
        max(1, round(sizes.mean())),
        sizes[-max_window_blocks:].mean(),
      )
    else:
      block = block_rows = options.io_block_size or max(
        1, self.store.opened.chunk_tokens // self.seq_len
      )
    self.windows = shuffle_options.windows_within(
      options,
      lanes.lanes
      * self._block_chunks(float(block_rows))
      * self.store.opened.chunk_tokens
      * self.store.opened.token_dtype.itemsize,
      cache_bytes,
      default,
    )
    self.keep_windows(cache_bytes)
    width = self.windows.window_blocks
    if has_blocks:
      blocks = unequal_blocks.UnequalBlockOrder(
        boundaries=self._blocks,
        window_blocks=width,
        key=key,
        perm_type=options.perm_type,
      )
    else:
      self._block_size = block
      blocks = orders.BlockOrder(
        io_block_size=block,
        window_blocks=width,
        key=key,
        perm_type=options.perm_type,
      )
    if options.lanes is None:
      return blocks
    return lanes_lib.LaneOrder(
      blocks=blocks,
      lanes=lanes.lanes,
      lane_rows=lanes.lane_rows,
      window_rows=block * width,
      first_row=self.rows.epochs.first_row,
    )


def unordered(source: row_source.RowSource) -> row_source.RowSource:
  """Returns the source that a shuffle wraps, or the source itself."""
  return getattr(source, "rows", source)
