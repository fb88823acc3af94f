"""One epoch of splices over documents: row number -> (document, t, s, c).

Each document gets a quota of rows; the quotas are laid end to end, so a row
finds its document by binary search in prefix sums and its pair in closed
form. Nothing is listed, so an epoch of 10**12 rows costs what one of 10 does.
Sources: seed 000 ("Refined Design", "Internal Structure") and docs/splice.md.

NumPy only.
"""

from collections.abc import Mapping
import dataclasses
import fractions

import numpy as np

from chomp_data.index import axis_order
from chomp_data.index import edges
from chomp_data.index import hashing
from chomp_data.index import quotas

BALANCE_MODES = ("by_temperature", "by_coverage", "by_document", "enumerate")
JITTER_MODES = ("uniform", "low_discrepancy")

# Row numbers of several epochs stay inside int64.
_MAX_ROWS = 2**56


@dataclasses.dataclass(frozen=True)
class Splices:
  """Rows of an epoch, one entry each.

  Attributes:
    slot: int64[N], index into the schedule's documents.
    start: int64[N], t, first token copied.
    column: int64[N], s, where it goes.
    length: int64[N], c, tokens copied.
  """

  slot: np.ndarray
  start: np.ndarray
  column: np.ndarray
  length: np.ndarray


class SpliceSchedule:
  """Maps (row of an epoch, epoch) to the splice it holds."""

  def __init__(
    self,
    lengths: np.ndarray,
    order: axis_order.AxisOrder,
    *,
    alpha: float,
    balance_mode: str,
    balance_tau: float,
    weights: Mapping[int, fractions.Fraction] | None,
    epoch_length: int | None,
    jitter_mode: str,
    jitter_key: int,
  ):
    """Computes every document's quota.

    Args:
      lengths: int64[D], tokens of each document.
      order: The documents' pairs and the order of their axes.
      alpha: Edge weight; above 0 only in coverage_balanced mode.
      balance_mode: One of BALANCE_MODES.
      balance_tau: Temperature in [0, 1] of by_temperature.
      weights: Extra weights by index into `lengths`; the others are 1.
      epoch_length: Rows of an epoch, or None for the mode's own.
      jitter_mode: One of JITTER_MODES.
      jitter_key: Key of the uniform jitter.

    Raises:
      ValueError: If an epoch has too many rows to number.
    """
    self._lengths = lengths
    self._order = order
    self._space = order.space
    self._balance_mode = balance_mode
    self._jitter_mode = jitter_mode
    self._jitter_key = jitter_key
    num_pairs = self._space.num_pairs(lengths)
    self._edges = (
      edges.EdgeWeights(
        self._space.max_copy_len, self._space.content_stride, alpha
      )
      if alpha
      else None
    )
    self._quotas_end = np.cumsum(
      _quotas(
        lengths, num_pairs, balance_mode, balance_tau, weights, epoch_length
      )
    )

  @property
  def num_rows(self) -> int:
    """Rows of one epoch."""
    return int(self._quotas_end[-1]) if len(self._quotas_end) else 0

  def quotas(self) -> np.ndarray:
    """Returns int64[D], rows of an epoch by document."""
    return np.diff(self._quotas_end, prepend=0)

  def splices(self, index: np.ndarray, epoch: np.ndarray) -> Splices:
    """Returns what the given rows hold.

    Args:
      index: int64[N], 0 <= index < num_rows.
      epoch: int64[N], the epoch of each.

    Returns:
      One splice for each.
    """
    slot = np.searchsorted(self._quotas_end, index, side="right")
    first = np.where(slot > 0, self._quotas_end[slot - 1], 0)
    quota = self._quotas_end[slot] - first
    lengths = self._lengths[slot]
    pair = self._pair(index - first, quota, lengths, slot, epoch)
    if self._space.content_start_mode == "coverage_balanced":
      t_index, s_index = pair, self._jitter(index, epoch)
    else:
      t_index, s_index = self._order.decode(lengths, pair, slot, epoch)
    start, column, length = self._space.place(lengths, t_index, s_index)
    return Splices(slot=slot, start=start, column=column, length=length)

  def _pair(self, k, quota, lengths, slot, epoch) -> np.ndarray:
    if self._space.content_start_mode == "coverage_balanced":
      k = self._order.sample(k, quota, slot, epoch)
    if self._balance_mode == "enumerate":
      return k
    num_pairs = self._space.num_pairs(lengths)
    if self._balance_mode == "by_document":
      return k % num_pairs
    if self._edges is not None:
      return self._edges.select(
        k, quota, lengths - self._space.copy_len(lengths)
      )
    return edges.uniform_start(k, quota, num_pairs)

  def _jitter(self, index, epoch) -> np.ndarray:
    choices = self._space.offset_jitter + 1
    if choices == 1:
      return np.zeros(len(index), np.int64)
    if self._jitter_mode == "low_discrepancy":
      return (index + epoch) % choices
    drawn = hashing.fold(hashing.fold(self._jitter_key, epoch), index)
    return (drawn % np.uint64(choices)).astype(np.int64)


def _quotas(
  lengths, num_pairs, balance_mode, balance_tau, weights, epoch_length
) -> np.ndarray:
  """Returns int64[D], the rows of each document in an epoch."""
  usable = num_pairs > 0
  if epoch_length is None:
    # In floats, which cannot wrap; 2**53 is far below the limit of int64.
    expected = float(np.sum(num_pairs, dtype=np.float64))
    if balance_mode == "by_document":
      expected = float(np.sum(usable)) * float(num_pairs.max(initial=0))
    if expected >= _MAX_ROWS:
      raise ValueError(
        f"must have fewer than {_MAX_ROWS} rows an epoch, got about"
        f" {expected:.3g}. Use larger strides, or set epoch_length."
      )
  if balance_mode == "enumerate":
    return num_pairs
  out = np.zeros(len(lengths), np.int64)
  if not np.any(usable):
    return out
  if balance_mode == "by_document":
    total = int(np.sum(usable)) * int(num_pairs.max())
    shares, member = [1], np.zeros(int(np.sum(usable)), np.int64)
  else:
    total = int(num_pairs.sum())
    tau = 1.0 if balance_mode == "by_coverage" else balance_tau
    # Slots among the usable documents.
    slot = np.cumsum(usable) - 1
    shares, member = quotas.temperature_weights(
      lengths[usable],
      tau,
      {int(slot[i]): w for i, w in (weights or {}).items() if usable[i]},
    )
  out[usable] = quotas.largest_remainder(
    shares, total if epoch_length is None else epoch_length, member
  )
  return out
