# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of splices over documents: row number -> (document, t, s, c).

Rows fall into periods and epochs (`periods.py`). In an epoch each document has
a quota of rows (`shares.py`); the quotas are laid end to end, so a row finds
its document by binary search in prefix sums and its pair in closed form
(`pairs.py`).

    quotas 4, 2, 1   ends 4, 6, 7
    row       0  1  2  3  4  5  6
    document  0  0  0  0  1  1  2
    sample k  0  1  2  3  0  1  0

No row is enumerated, so an epoch of 10**12 rows costs as much as one of 10.
docs/splice.md defines the options. NumPy only.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data import stores
from chomp_data.index import columns
from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.order import orders
from chomp_data.sources import document_columns
from chomp_data.splice import pairs as pairs_lib
from chomp_data.splice import periods as periods_lib
from chomp_data.splice import selecting
from chomp_data.splice import shares as shares_lib
from chomp_data.splice.options import MultiSpliceOptions

# Row numbers of several epochs must fit in int64.
_MAX_ROWS = 2**56

# The temperature that balances as these modes do; enumerate has no shares.
_TAU = {"by_coverage": 1.0, "by_document": 0.0, "enumerate": 0.0}

# Most groups, or entries of a schedule, in a line of the summary.
_MAX_LISTED = 5


class SpliceSchedule:
  """Maps rows of epochs to the splices they hold.

  Attributes:
    epochs: Which rows belong to which epoch.
    num_usable: How many documents can be copied.
    longest_unused: Tokens of the longest that cannot be copied, or 0.
  """

  def __init__(
    self,
    store: stores.Store,
    selected: selecting.Selected,
    options: MultiSpliceOptions,
    key: Mapping[str, Any],
    *,
    seq_len: int,
    seed: int,
    name: str,
    path: str,
  ):
    """Counts the rows of all periods, or loads their counts.

    Args:
      store: Where the documents are.
      selected: The documents that are read.
      options: Balance, starts, offsets and what changes with rows.
      key: What determines the counts, as JSON values.
      seq_len: Positions of a row.
      seed: The run's seed.
      name: The source's name.
      path: Dotted path of the options, for messages.

    Raises:
      ConfigError: If some rows would have no document, or too many numbers.
    """
    self._options, self._lengths = options, selected.lengths
    self._shares = shares_lib.resolve(store, selected.documents, options, path)
    self._jitter_key = hashing.fold_key(seed, name, "jitter")

    content_lengths = options.content_lengths()
    self._pairs = [
      pairs_lib.DocumentPairs(
        self._lengths,
        pairs_lib.PairOrder(
          space=options.pair_space(seq_len, length),
          shuffle_content=options.shuffle_content,
          shuffle_offsets=options.shuffle_offsets,
          content_key=orders.order_key(
            seed, name, options.content_seed, "content"
          ),
          offset_key=orders.order_key(
            seed, name, options.offset_seed, "offsets"
          ),
        ),
        options.alpha,
        options.balance_mode,
        self._shares.overrides,
      )
      for _, length in content_lengths
    ]
    with _errors_at(path):
      self._periods = periods_lib.make_periods(
        len(self._lengths),
        options.curriculum_start or 1,
        options.curriculum_every,
        [row for row, _ in content_lengths],
      )
    if any(pairs.may_pass_ends for pairs in self._pairs):
      # Older indexes count starts past the end of documents.
      key = {**key, "pairs": 2}
    counts = document_columns.load_or_build(
      store, "quotas", key, lambda: self._count(path), len(self._lengths)
    )
    self.num_usable: int
    self.longest_unused: int
    self.num_usable, _, self.longest_unused = counts["usable"].read().tolist()
    self.epochs: periods_lib.PeriodEpochs = periods_lib.PeriodEpochs(
      self._periods.first_row, counts["pass_rows"].read()
    )
    # Prefix sums of the quotas of an epoch after the ramp.
    self._last_ends = counts["ends"]

  def pairs_at(self, epoch: int) -> pairs_lib.DocumentPairs:
    """Returns the documents' pairs at the content length of an epoch."""
    return self._pairs[int(self._periods.length_index[self._period(epoch)])]

  def ends(self, epoch: int) -> columns.Column:
    """Returns the prefix sums of the documents' quotas in an epoch."""
    if epoch >= self.epochs.ramp:
      return self._last_ends
    return self._ramp_ends(self._period(epoch), self.epochs.size(epoch))

  def quotas(self, epoch: int) -> np.ndarray:
    """Returns int64[D], the rows of an epoch by document."""
    ends = self.ends(epoch)
    quotas = np.zeros(len(self._lengths), np.int64)
    quotas[: len(ends)] = np.diff(ends.read(), prepend=0)
    return quotas

  def rows_of_slots(
    self, slots: np.ndarray, epoch: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first, last + 1), int64[N] each: the rows of an epoch.

    Args:
      slots: int64[N], indices of documents that the epoch reads.
      epoch: The epoch.
    """
    ends = self.ends(epoch)
    first_row = np.where(slots > 0, ends.take(np.maximum(slots - 1, 0)), 0)
    return first_row, ends.take(slots)

  def splices(self, rows: np.ndarray) -> np.ndarray:
    """Returns the splice of each row.

    Args:
      rows: int64[N], row numbers over all epochs.

    Returns:
      int64[4, N]: the index of the document, the first token copied t, its
      column s, and the tokens copied c.
    """
    epoch, index = self.epochs.locate(rows)
    splices = np.empty((4, len(rows)), np.int64)
    # All epochs after the ramp share their quotas.
    ramp = self.epochs.ramp
    for group, pick in ragged.by_value(np.minimum(epoch, ramp)):
      slot = self.ends(group).search(index[pick])
      first_row, end_row = self.rows_of_slots(slot, group)
      samples = pairs_lib.Samples(
        slot=slot,
        k=index[pick] - first_row,
        quota=end_row - first_row,
        epoch=epoch[pick],
        jitter=self._jitter(epoch[pick], index[pick]),
      )
      splices[0, pick] = slot
      splices[1:, pick] = self.pairs_at(group).place(samples, group < ramp)
    return splices

  def _jitter(self, epoch: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Returns int64[N], columns that each copy is placed to the left."""
    choices = self._options.offset_jitter + 1
    if choices == 1:
      return np.zeros(len(index), np.int64)
    if self._options.jitter_mode == "low_discrepancy":
      return (index + epoch) % choices
    hashes = hashing.fold(hashing.fold(self._jitter_key, epoch), index)
    return (hashes % np.uint64(choices)).astype(np.int64)

  # --- quotas of documents --------------------------------------------------

  def _period(self, epoch: int) -> int:
    return int(self.epochs.period_of(np.asarray([epoch]))[0])

  @memo.remembered(64)
  def _ramp_ends(self, period: int, rows: int) -> columns.Column:
    """Returns the prefix sums of quotas that share some rows of a period."""
    pairs = self._pairs[int(self._periods.length_index[period])]
    num_pairs = pairs.num_pairs()[: int(self._periods.num_documents[period])]
    quotas = self._ramp_shares().quotas(num_pairs > 0, rows)
    return columns.ArrayColumn(np.cumsum(quotas))

  @memo.remembered(1)
  def _ramp_shares(self) -> shares_lib.Shares:
    return self._make_shares()

  def _make_shares(self) -> shares_lib.Shares:
    """Returns how documents share the rows of an epoch."""
    options = self._options
    return shares_lib.Shares(
      document_columns.int64(self._lengths),
      options.content_stride,
      _TAU.get(options.balance_mode, options.balance_tau),
      self._shares,
    )

  def _count(self, path: str) -> dict[str, np.ndarray]:
    """Counts what can be copied, and the rows of each period's epochs.

    Returns:
      `usable`, how many documents can be copied, and the tokens of the longest
      and of the longest that cannot; `pass_rows` int64[P], rows of a whole
      epoch of each period; `ends`, prefix sums of the quotas of an epoch of the
      last period.

    Raises:
      ConfigError: If no document can be copied, a weight or group is unused, or
        an epoch has no row, or too many to number.
    """
    options, periods = self._options, self._periods
    lengths = document_columns.int64(self._lengths)
    is_usable = self._pairs[-1].num_pairs() > 0
    longest = int(lengths.max(initial=0))
    if not is_usable.any():
      raise schema.ConfigError(
        [
          f"`{path}.min_copy_len` and `content_length` must admit a document,"
          f" got {options.min_copy_len} and {options.content_length}"
          f" (adaptive_k={options.adaptive_k}) where the longest of"
          f" {len(lengths)} selected documents has {longest} tokens."
          " Lower them, or select longer documents."
        ]
      )
    shares_lib.check(self._shares, options, is_usable, path)
    enumerated = options.balance_mode == "enumerate"
    epoch_rows = np.empty(len(periods.first_row), np.int64)
    quotas = np.empty(0, np.int64)
    with _errors_at(path):
      shares = self._make_shares()
      # The last period has the last content length.
      for number, documents in enumerate(self._pairs):
        quotas = documents.num_pairs()
        index = np.flatnonzero(periods.length_index == number)
        epoch_rows[index] = _epoch_rows(
          quotas,
          periods.num_documents[index],
          options.balance_mode,
          options.epoch_length,
        )
        # Later periods of this content length only read more documents.
        first = index[0]
        copied = quotas[: int(periods.num_documents[first])] > 0
        served = copied if enumerated else shares.served(copied)
        if not epoch_rows[first] or not served.any():
          raise ValueError(
            f"must read a document that can be copied and weighs more than 0"
            f" from row {int(periods.first_row[first])} on, got none among"
            f" the first {len(copied)} at content_length"
            f" {documents.space.content_length}. Raise curriculum_start, lower"
            " content_length, or raise a weight."
          )
      if not enumerated:
        quotas = shares.quotas(is_usable, int(epoch_rows[-1]))
    return {
      "usable": np.asarray(
        [
          np.count_nonzero(is_usable),
          longest,
          np.max(lengths, where=~is_usable, initial=0),
        ]
      ),
      "pass_rows": epoch_rows,
      "ends": np.cumsum(quotas),
    }

  # --- summary --------------------------------------------------------------

  def describe(self) -> list[str]:
    """Returns lines for the log on what changes with rows, and on groups."""
    options, shares = self._options, self._shares
    lines = []
    epochs = self.epochs
    if epochs.ramp:
      lines.append(
        f"  ramp={int(epochs.first_rows[-1])} rows in {epochs.ramp} passes,"
        f" then epochs of {int(epochs.epoch_rows[-1])} rows"
      )
    if options.curriculum_every is not None:
      lines.append(
        f"  curriculum={options.curriculum_start or 1} documents, one more"
        f" every {options.curriculum_every} rows"
      )
    if options.content_length_schedule:
      entries = [f"{k} from row {row}" for row, k in options.content_lengths()]
      lines.append(f"  content_length={errors.listed(entries, _MAX_LISTED)}")
    if shares.overrides:
      lines.append(
        f"  documents with own stride or alpha: {len(shares.overrides)}"
      )
    if shares.groups is not None:
      share = self.quotas(epochs.ramp) / epochs.epoch_rows[-1]
      groups = [
        f"{name} {group_share:.4f} ({count} documents)"
        for name, group_share, count in zip(
          shares.group_names,
          np.bincount(shares.groups, share).tolist(),
          np.bincount(shares.groups).tolist(),
          strict=True,
        )
      ]
      lines.append(f"  groups={errors.listed(groups, _MAX_LISTED)}")
    return lines


@contextlib.contextmanager
def _errors_at(path: str) -> Iterator[None]:
  """Raises a ValueError as a ConfigError about the options at a path."""
  try:
    yield
  except ValueError as error:
    raise schema.ConfigError([f"`{path}` {error}"]) from error


def _epoch_rows(
  num_pairs: np.ndarray,
  num_documents: np.ndarray,
  balance_mode: str,
  epoch_length: int | None,
) -> np.ndarray:
  """Returns int64[P], the rows of epochs over the first `num_documents`[P]."""
  if epoch_length is not None:
    return np.full(len(num_documents), epoch_length, np.int64)
  usable = num_pairs > 0
  # In floats, which cannot wrap; 2**53 is far below the limit of int64.
  row_estimate = float(np.sum(num_pairs, dtype=np.float64))
  if balance_mode == "by_document":
    row_estimate = float(np.sum(usable)) * float(num_pairs.max(initial=0))
  if row_estimate >= _MAX_ROWS:
    raise ValueError(
      f"must have fewer than {_MAX_ROWS} rows per epoch, got about"
      f" {row_estimate:.3g}. Use larger strides, or set epoch_length."
    )
  if balance_mode == "by_document":
    rows = np.cumsum(usable) * np.maximum.accumulate(num_pairs)
  else:
    rows = np.cumsum(num_pairs)
  return rows[num_documents - 1]
