# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options of row orders, the rules between them, and their memory use."""

import dataclasses
import math
import numbers
from typing import Any
from typing import ClassVar

from chomp_data import schema
from chomp_data.order import orders
from chomp_data.sources import shared_options as options_lib

SHUFFLE_KINDS = ("none", "full", "era", "block")
DEFAULT_WINDOW_BLOCKS = 8
DEFAULT_CACHE_WINDOWS = 8
_COUNT = schema.optional(schema.integer(1, 2**40))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShuffleOptions(schema.Options):
  """How a source's rows are ordered.

  Attributes:
    kind: The order of rows: 'none' keeps the order of the source, 'full'
      permutes the whole epoch, 'era' permutes each `era_length` rows, 'block'
      permutes blocks, and then the rows of each window of a few blocks.
    io_block_size: Rows per block; None is the rows of one chunk of the store.
      Blocks of rows of kind 'bin' are packing windows, which require None.
    window_blocks: Blocks per window, whose rows are permuted together; None is
      8, or with lanes as many per lane as make about 8 per batch.
    cache_windows: Windows cached in memory if the store is not memory-mapped;
      None is 8, or fewer if `shuffle_cache_bytes` requires it.
    perm_type: The permutation: 'feistel', or 'linear', which shuffles poorly
      and exists for comparison.
    era_length: Rows per era, which are permuted together.
    lanes: Divides the blocks among this many lanes, so that processes and
      workers whose numbers divide `lanes` do not read each other's blocks. None
      is one order without lanes. The order depends on this option, not on the
      number of processes and workers.
    lane_rows: Consecutive rows per lane, with exactly `lanes` lanes. None makes
      one lane for each of `lanes` parts of a batch in each of `lanes` steps (in
      a mix, one for each part).
    seed: Seed of this order; None derives one from the run's seed.
  """

  kind: str = schema.option("none", schema.choice(SHUFFLE_KINDS))
  io_block_size: int | None = schema.option(None, _COUNT, ("block",))
  window_blocks: int | None = schema.option(None, _COUNT, ("block",))
  cache_windows: int | None = schema.option(None, _COUNT, ("block",))
  perm_type: str = schema.option("feistel", schema.choice(orders.PERM_TYPES))
  era_length: int | None = schema.option(
    None, _COUNT, ("era",), "Correct it: it is the number of rows of an era."
  )
  lanes: int | None = schema.option(
    None, schema.optional(schema.integer(1, 2**16)), ("block",)
  )
  lane_rows: int | None = schema.option(None, _COUNT, ("block",))
  seed: int | None = schema.option(None, schema.optional(options_lib.SEED))

  # What is said of a value that is neither a section nor a short form.
  rule: ClassVar[str] = (
    "a section with fields, True (kind 'full'), False (kind 'none') or a whole"
    " number (kind 'era', the rows of an era)"
  )
  fix: ClassVar[str] = (
    f"Give it fields, such as 'kind' ({', '.join(map(repr, SHUFFLE_KINDS))}),"
    " or one of these values."
  )

  @staticmethod
  def expanded(value: Any) -> dict[str, Any] | None:
    """Returns the section that a short form means, or None if it is none.

        True  -> {'kind': 'full'}          False -> {'kind': 'none'}
        1_000 -> {'kind': 'era', 'era_length': 1_000}

    Args:
      value: The value of `sources.<name>.shuffle`.
    """
    if isinstance(value, bool):
      return {"kind": "full" if value else "none"}
    if isinstance(value, numbers.Integral):
      return {"kind": "era", "era_length": int(value)}
    return None

  def problems(self, path: str, has_blocks: bool = False) -> list[str]:
    """Returns what is wrong between these fields.

    Args:
      path: Dotted path of the section.
      has_blocks: Whether the source has blocks (packing windows).
    """
    problems = schema.kind_problems(path, self)
    if self.kind == "era" and self.era_length is None:
      problems.append(
        f"`{path}.era_length` must be set where kind is 'era', got None. Give"
        " the rows of an era."
      )
    if self.kind == "block" and has_blocks and self.io_block_size:
      problems.append(
        f"`{path}.io_block_size` must be None for bin-packed rows, whose"
        f" blocks are packing windows, got {self.io_block_size}. Set"
        " rows.packing_buffer_docs for other blocks."
      )
    if self.lane_rows is not None and self.lanes is None:
      problems.append(
        f"`{path}.lane_rows` must be None where there are no lanes, got"
        f" {self.lane_rows}. Set {path}.lanes, or unset it."
      )
    return problems

  def lane_layout(
    self, batch_size: int | None, mixed: bool = False
  ) -> "LaneLayout":
    """Returns the lanes that these options make.

    Args:
      batch_size: Rows of a batch, or None if unknown.
      mixed: Whether a mix determines which rows a step has, so that there are
        lanes for parts of a batch only.
    """
    lanes = self.lanes or 1
    if self.lane_rows is not None or batch_size is None:
      rows = self.lane_rows or 1
      return LaneLayout(lanes, rows, min(lanes, -(-(batch_size or 1) // rows)))
    parts = math.gcd(lanes, batch_size)
    if mixed:
      return LaneLayout(parts, 1, parts)
    return LaneLayout(parts * lanes, batch_size // parts, parts)


@dataclasses.dataclass(frozen=True)
class LaneLayout:
  """Lanes of a block shuffle.

  Attributes:
    lanes: The number of lanes.
    lane_rows: Consecutive rows of a lane.
    parts: The number of lanes that a batch has rows of, as far as it is known.
  """

  lanes: int
  lane_rows: int
  parts: int = 1

  @property
  def window_blocks(self) -> int:
    """Blocks of a window of a lane, where the options do not set it."""
    return max(1, DEFAULT_WINDOW_BLOCKS // self.parts)


@dataclasses.dataclass(frozen=True)
class Windows:
  """The windows of a block shuffle within a budget of bytes.

  Attributes:
    window_blocks: Blocks of a window.
    cache_windows: Windows kept in memory.
    block_bytes: Bytes of the chunks that a block touches.
    narrowed: A message that windows were narrowed, or None.
    most_windows: Most windows to keep in memory.
  """

  window_blocks: int
  cache_windows: int
  block_bytes: int
  narrowed: str | None
  most_windows: int = DEFAULT_CACHE_WINDOWS

  @property
  def window_bytes(self) -> int:
    """Bytes of the chunks of one window."""
    return self.window_blocks * self.block_bytes

  def cached_within(self, budget: int) -> "Windows":
    """Returns the same windows, with as many cached as fit, at least one."""
    fitting = budget // max(self.window_bytes, 1)
    return dataclasses.replace(
      self, cache_windows=max(1, min(self.most_windows, fitting))
    )

  @property
  def total_bytes(self) -> int:
    """Bytes of the chunks of all cached windows."""
    return self.cache_windows * self.window_bytes


def windows_within(
  options: ShuffleOptions,
  block_bytes: int,
  budget: int,
  default_blocks: int = DEFAULT_WINDOW_BLOCKS,
) -> Windows:
  """Fits windows into a budget: caches fewer, and if need be narrows them.

  The order of rows depends on `window_blocks`, so it depends on the budget
  and on the store, never on the machine.

  Args:
    options: Of kind 'block'.
    block_bytes: Bytes of the chunks that a block touches.
    budget: Bytes for this source.
    default_blocks: Blocks of a window where the options do not set it.
  """
  blocks = options.window_blocks or default_blocks
  fitting = budget // max(block_bytes, 1)
  width = max(1, min(blocks, fitting))
  narrowed = None
  if width < blocks:
    beyond = (
      f", which is still more than that: set it to {block_bytes} or more"
      if fitting < 1
      else ""
    )
    narrowed = (
      f"windows of {blocks} blocks of {block_bytes} bytes exceed the {budget}"
      " bytes that config.data.shuffle_cache_bytes leaves this source: narrowed"
      f" to {width} block{'s' * (width > 1)}{beyond}"
    )
  most = options.cache_windows or DEFAULT_CACHE_WINDOWS
  windows = Windows(width, most, block_bytes, narrowed, most)
  return windows.cached_within(budget)
