# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""From splice options and selected documents to the schedule of their rows."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

import numpy as np

from chomp_data import schema
from chomp_data.index import columns
from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.sources import row_sums
from chomp_data.splice import axis_order
from chomp_data.splice import document_pairs
from chomp_data.splice import document_shares
from chomp_data.splice import epoch_shares as shares_lib
from chomp_data.splice import phases as phases_lib
from chomp_data.splice import schedule as schedule_lib
from chomp_data.splice import share_options
from chomp_data.splice.options import MultiSpliceOptions
from chomp_data.splice.options import SpliceOptions

Options = SpliceOptions | MultiSpliceOptions

# The temperature that balances as these modes do; enumerate has no shares.
_TAU = {"by_coverage": 1.0, "by_document": 0.0, "enumerate": 0.0}

# Rows between the edges at which a sum is known, and most edges.
_EDGE_ROWS = 4_096
_MOST_EDGES = 2**20
# Rows whose tokens are counted at once.
_TOTAL_ROWS = 65_536
_SHOWN = 5


# Keeps arrays of all documents; see `selecting.kept`.
Keep = Callable[
  [Callable[[], Mapping[str, np.ndarray]]], Mapping[str, columns.Column]
]


@dataclasses.dataclass(frozen=True)
class Usable:
  """Which of the selected documents can be copied.

  Attributes:
    count: How many.
    longest: Tokens of the longest document.
    longest_unused: Of the longest one that cannot be copied, or 0.
  """

  count: int
  longest: int
  longest_unused: int


def make_schedule(
  options: Options,
  lengths: columns.Column,
  shares: document_shares.DocumentShares,
  *,
  seq_len: int,
  seed: int,
  name: str,
  path: str,
  keep: Keep,
  check: Callable[[Usable], None],
) -> tuple[schedule_lib.SpliceSchedule, Usable]:
  """Returns the schedule of a source's rows, and what can be copied.

  Args:
    options: Balance, starts, offsets and what changes with rows.
    lengths: Tokens of the selected documents.
    shares: What the options say of single documents.
    seq_len: Positions of a row.
    seed: The run's seed.
    name: The source's name.
    path: Dotted path of the options, for messages.
    keep: Keeps what a look at all documents finds.
    check: Refuses what cannot be copied.

  Raises:
    ConfigError: If some rows would have no document, or too many numbers.
  """

  def axis_key(axis: str, own: int | None) -> int:
    if own is None:
      return hashing.fold_key(seed, name, axis)
    return hashing.fold_key("own", own, name, axis)

  mode = options.balance()["balance_mode"]
  schedule = options.content_lengths()
  spaces = [options.pair_space(seq_len, length) for _, length in schedule]
  pairs = [
    document_pairs.DocumentPairs(
      lengths,
      axis_order.AxisOrder(
        space=space,
        shuffle_content=options.shuffle_content,
        shuffle_offsets=options.shuffle_offsets,
        content_key=axis_key("content", options.content_seed),
        offset_key=axis_key("offsets", options.offset_seed),
      ),
      options.alpha,
      mode,
      shares.steps,
    )
    for space in spaces
  ]

  try:
    table = _phase_table(options, len(lengths), [row for row, _ in schedule])
  except ValueError as error:
    raise schema.ConfigError([f"`{path}` {error}"]) from error
  all_shares = _Shares(options, lengths, shares, mode)

  def count() -> dict[str, np.ndarray]:
    whole = lengths.read().astype(np.int64, copy=False)
    usable = spaces[-1].num_pairs(whole) > 0
    found = Usable(
      int(np.count_nonzero(usable)),
      int(whole.max(initial=0)),
      int(np.max(whole, where=~usable, initial=0)),
    )
    check(found)
    document_shares.check(shares, options, usable, path)
    try:
      counts = schedule_lib.count(
        pairs, all_shares.made(), table, mode, options.epoch_length
      )
    except ValueError as error:
      raise schema.ConfigError([f"`{path}` {error}"]) from error
    return {
      "usable": np.asarray(dataclasses.astuple(found), np.int64),
      "pass_rows": counts.pass_rows,
      "ends": counts.last_ends.read(),
    }

  found = keep(count)
  return schedule_lib.SpliceSchedule(
    pairs,
    all_shares,
    table,
    schedule_lib.Counts(found["pass_rows"].read(), found["ends"]),
    balance_mode=mode,
    jitter_mode=options.jitter_mode,
    jitter_key=hashing.fold_key(seed, name, "jitter"),
  ), Usable(*found["usable"].read().tolist())


class SpliceSums(row_sums.Sums):
  """What copies consume, from the quotas of documents."""

  def __init__(
    self,
    schedule: schedule_lib.SpliceSchedule,
    ramp_epochs: int,
    all_pairs: bool,
    labelled: bool,
  ):
    """Binds a schedule.

    Args:
      schedule: Of the rows.
      ramp_epochs: Epochs of its ramp.
      all_pairs: Whether epochs hold the same pairs.
      labelled: Whether copies of one document may differ in what is trained
        on.
    """
    self._labelled = labelled
    self._schedule = schedule
    self._ramp_epochs = ramp_epochs
    self._all_pairs = all_pairs

  def epochs_repeat(self, unit: str) -> bool:
    """Returns whether epochs consume the same; see `Sums`.

    Jitter moves copies and never shortens them. Axes in another order each
    epoch may leave other pairs out, which matters where copies of one
    document differ.
    """
    pairs = self._schedule.pairs_at(self._ramp_epochs)
    alike = pairs.copy_len() is not None and not self._differ(unit)
    return alike or self._all_pairs

  def uniform(self, epoch: int, unit: str) -> row_sums.Uniform | None:
    """Returns the copy that all rows hold, if they do; see `Sums`."""
    copied = self._schedule.pairs_at(epoch).copy_len()
    if copied is None or self._differ(unit):
      return None
    known = copied[self._schedule.quotas(epoch) > 0]
    if known.min() != known.max():
      return None
    return row_sums.Uniform(int(known[0]) - (unit == "loss_tokens"))

  def edges(self, epoch: int, unit: str) -> row_sums.Edges | None:
    """Returns sums that follow from the quotas; see `Sums`."""
    copied = self._schedule.pairs_at(epoch).copy_len()
    if copied is None or self._differ(unit):
      return None
    each = copied - (unit == "loss_tokens")
    return _edges(self._schedule.quotas(epoch), each)

  def at(
    self, epoch: int, unit: str, positions: np.ndarray
  ) -> np.ndarray | None:
    """Returns the tokens that rows copy, of one span each; see `Sums`."""
    mode = self._schedule.pairs_at(epoch).space.content_start_mode
    if mode == "cyclic_roll" or self._differ(unit):
      return None
    # Documents of ascending rows are found in a quarter of the time.
    order = np.argsort(positions)
    index = positions[order]
    copied = self._schedule.splices(np.full(len(index), epoch), index).length
    units = np.empty(len(index), np.int64)
    units[order] = copied - (unit == "loss_tokens")
    return units

  def epoch_total(self, epoch: int, unit: str) -> int | None:
    """Returns what an epoch's rows copy, in any order; see `Sums`."""
    total, (rows,) = 0, self._schedule.phases.sizes(np.asarray([epoch]))
    for first in range(0, int(rows), _TOTAL_ROWS):
      positions = np.arange(first, min(first + _TOTAL_ROWS, int(rows)))
      units = self.at(epoch, unit, positions)
      if units is None:
        return None
      total += int(units.sum())
    return total

  def _differ(self, unit: str) -> bool:
    """Returns whether copies of as many tokens may consume other units."""
    return self._labelled and unit == "loss_tokens"


def describe(
  options: Options,
  schedule: schedule_lib.SpliceSchedule,
  shares: document_shares.DocumentShares,
  share: np.ndarray | None,
) -> list[str]:
  """Returns lines for the log on what changes with rows, and on groups.

  Args:
    options: The source's.
    schedule: Its schedule.
    shares: What the options say of single documents.
    share: float64[D], each document's share of an epoch after the ramp; None
      where there are no groups.
  """
  lines = []
  ramp = schedule.phases.ramp
  if ramp:
    last = int(schedule.phases.first_rows[-1])
    lines.append(
      f"  ramp={last} rows in {ramp} passes, then epochs of"
      f" {schedule.phases.last_pass_rows} rows"
    )
  if isinstance(options, share_options.ShareOptions):
    if options.curriculum_every is not None:
      lines.append(
        f"  curriculum={options.first_documents} documents, one more every"
        f" {options.curriculum_every} rows"
      )
    if options.content_length_schedule:
      steps = [f"{k} from row {row}" for row, k in options.content_lengths()]
      lines.append(f"  content_length={_some(steps)}")
    if shares.steps:
      lines.append(f"  documents with own stride or alpha: {len(shares.steps)}")
  if shares.groups is not None:
    count = np.bincount(shares.groups)
    part = np.bincount(shares.groups, share)
    groups = [
      f"{name} {own:.4f} ({number} documents)"
      for name, own, number in zip(
        shares.group_names, part.tolist(), count.tolist(), strict=True
      )
    ]
    lines.append(f"  groups={_some(groups)}")
  return lines


class _Shares:
  """Makes the shares of all documents where a pass of a ramp asks."""

  def __init__(
    self,
    options: Options,
    lengths: columns.Column,
    shares: document_shares.DocumentShares,
    mode: str,
  ):
    self._options, self._lengths = options, lengths
    self._shares, self._mode = shares, mode

  @memo.remembered(1)
  def __call__(self) -> shares_lib.Shares:
    return self.made()

  def made(self) -> shares_lib.Shares:
    options, shares, mode = self._options, self._shares, self._mode
    lengths = self._lengths.read().astype(np.int64, copy=False)
    strides = np.full(len(lengths), options.content_stride, np.int64)
    for slot, (stride, _) in shares.steps.items():
      strides[slot] = stride
    return shares_lib.Shares(
      lengths,
      strides,
      _TAU[mode] if mode in _TAU else options.balance()["balance_tau"],
      shares.weights,
      shares.groups,
      shares.group_weights,
    )


def _phase_table(
  options: Options, count: int, length_rows: Sequence[int]
) -> schedule_lib.PhaseTable:
  start, every = count, None
  if isinstance(options, share_options.ShareOptions):
    every = options.curriculum_every
    start = count if every is None else options.first_documents
  if start > count:
    raise ValueError(
      "must have curriculum_start at most the number of selected documents,"
      f" got {start} > {count}. Lower it."
    )
  return schedule_lib.PhaseTable(
    *phases_lib.cut(count, start, every, length_rows)
  )


def _some(texts: Sequence[str]) -> str:
  more = len(texts) - _SHOWN
  text = ", ".join(texts[:_SHOWN])
  return text if more <= 0 else f"{text} ... {more} more"


def _edges(rows: np.ndarray, each: np.ndarray) -> row_sums.Edges | None:
  """Returns sums over documents' rows, one document after the other.

  Args:
    rows: int64[D], rows of each document.
    each: int64[D], what each row of a document adds.

  Returns:
    Positions no more than some thousand rows apart; None where they would be
    too many.
  """
  blocks = -(-rows // _EDGE_ROWS)
  count = int(blocks.sum())
  if count > _MOST_EDGES:
    return None
  sizes = np.full(count, _EDGE_ROWS, np.int64)
  own = np.flatnonzero(rows)
  # The last block of a document is what is left of its rows.
  sizes[np.cumsum(blocks[own]) - 1] -= blocks[own] * _EDGE_ROWS - rows[own]
  edges = np.zeros((2, count + 1), np.int64)
  np.cumsum(sizes, out=edges[0, 1:])
  np.cumsum(sizes * np.repeat(each, blocks), out=edges[1, 1:])
  return row_sums.Edges(edges[0], edges[1])
