# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The pairs (t, s) of several documents, some with an individual stride.

Documents of the same stride and edge weight share one `PairSpace`. Maps a
sample of a document's quota to a pair, and a pair to its place in a row.
NumPy only.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np

from chomp_data.index import columns
from chomp_data.splice import axis_order
from chomp_data.splice import edge_weights
from chomp_data.splice import pair_space

# Each of 16 consecutive passes of a ramp reads other starts, between those of
# the passes before it. In bit-reversed order, so that any few are far apart.
TURNS = np.asarray(
  [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15], np.int64
)


@dataclasses.dataclass(frozen=True)
class _Variant:
  """Documents of one stride and one edge weight.

  Attributes:
    order: Their pairs and the order of their pair_space.
    edges: Their edge weights; None is uniform.
  """

  order: axis_order.AxisOrder
  edges: edge_weights.EdgeWeights | None


@dataclasses.dataclass(frozen=True)
class Samples:
  """Samples of documents' quotas, int64[N] each.

  Attributes:
    slot: Index into the documents.
    k: 0 <= k < quota.
    quota: Rows of the document in the pass.
    number: The pass.
  """

  slot: np.ndarray
  k: np.ndarray
  quota: np.ndarray
  number: np.ndarray

  def take(self, pick: np.ndarray) -> "Samples":
    """Returns some of them."""
    return Samples(
      self.slot[pick], self.k[pick], self.quota[pick], self.number[pick]
    )


class DocumentPairs:
  """The pairs of documents at one content length."""

  def __init__(
    self,
    lengths: columns.Column,
    order: axis_order.AxisOrder,
    alpha: float,
    balance_mode: str,
    special: Mapping[int, tuple[int, float]],
  ):
    """Sorts documents by stride and edge weight.

    Args:
      lengths: Tokens of each document.
      order: The pairs and the order of their axes, with the common stride.
      alpha: Edge weight; above 0 only in coverage_balanced mode.
      balance_mode: As in `SpliceSchedule`.
      special: (content_stride, alpha) by index, of documents that differ.
    """
    self._lengths = lengths
    self._balance_mode = balance_mode
    self.space: pair_space.PairSpace = order.space
    defaults = (order.space.content_stride, alpha)
    numbers = {defaults: 0}
    self._special = np.asarray(sorted(special), np.int64)
    self._special_variants = np.asarray(
      [numbers.setdefault(special[i], len(numbers)) for i in sorted(special)],
      np.int64,
    )
    self._variants = [
      _variant(order, stride, weight) for stride, weight in numbers
    ]

  def __len__(self) -> int:
    return len(self._lengths)

  def num_pairs(self) -> np.ndarray:
    """Returns int64[D], how many pairs each document has."""
    lengths = self._whole()
    out = self.space.num_pairs(lengths)
    for number in range(1, len(self._variants)):
      pick = self._special[self._special_variants == number]
      space = self._variants[number].order.space
      out[pick] = space.num_pairs(lengths[pick])
    return out

  def _whole(self) -> np.ndarray:
    return self._lengths.read().astype(np.int64, copy=False)

  def _variants_of(self, slots: np.ndarray) -> np.ndarray:
    """Returns the number of each document's variant, int64[N]."""
    at = np.minimum(
      np.searchsorted(self._special, slots), len(self._special) - 1
    )
    return np.where(self._special[at] == slots, self._special_variants[at], 0)

  def copy_len(self) -> np.ndarray | None:
    """Returns int64[D], tokens of every copy of a document; None: they vary."""
    match self.space.content_start_mode:
      case "coverage_balanced":
        return self.space.copy_len(self._whole())
      case "slide":
        return np.minimum(self._whole(), self.space.seq_len)
      case _:
        return None

  def place(
    self, samples: Samples, jitter: np.ndarray, ramp: np.ndarray | bool
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (t, s, c) of samples, int64[N] each.

    Args:
      samples: The samples to place.
      jitter: int64[N], columns to the left in coverage_balanced mode.
      ramp: bool[N], whether the pass lies before the last phase; False: none.
    """
    if len(self._variants) == 1:
      return self._place(self._variants[0], samples, jitter, ramp)
    out = np.empty((3, len(samples.slot)), np.int64)
    variant = self._variants_of(samples.slot)
    for number in np.unique(variant).tolist():
      pick = np.flatnonzero(variant == number)
      out[:, pick] = self._place(
        self._variants[number],
        samples.take(pick),
        jitter[pick],
        ramp if isinstance(ramp, bool) else ramp[pick],
      )
    return out[0], out[1], out[2]

  def _place(self, variant: _Variant, samples: Samples, jitter, ramp):
    order = variant.order
    lengths = self._lengths.take(samples.slot)
    balanced = self.space.content_start_mode == "coverage_balanced"
    k = samples.k
    if balanced:
      k = order.sample(k, samples.quota, samples.slot, samples.number)
    pair = self._pair(variant, k, samples, lengths, ramp)
    if balanced:
      t_index, s_index = pair, jitter
    else:
      t_index, s_index = order.decode(
        lengths, pair, samples.slot, samples.number
      )
    return order.space.place(lengths, t_index, s_index)

  def _pair(self, variant, k, samples: Samples, lengths, ramp) -> np.ndarray:
    if self._balance_mode == "enumerate":
      return k
    num_pairs = variant.order.space.num_pairs(lengths)
    quota = samples.quota
    if self._balance_mode == "by_document":
      if ramp is not False:
        # Starts continue where the previous pass ended.
        k = k + np.where(ramp, samples.number * quota % num_pairs, 0)
      return k % num_pairs
    if ramp is not False:
      # Sample k of Q becomes sample n k + turn of n Q: between the same
      # neighbours, at another place in each of n passes.
      turn = TURNS[samples.number % len(TURNS)]
      k = np.where(ramp, k * len(TURNS) + turn, k)
      quota = np.where(ramp, quota * len(TURNS), quota)
    if variant.edges is not None:
      span = lengths - variant.order.space.copy_len(lengths)
      return variant.edges.select(k, quota, span)
    return edge_weights.uniform_start(k, quota, num_pairs)


def _variant(
  order: axis_order.AxisOrder, stride: int, alpha: float
) -> _Variant:
  space: pair_space.PairSpace = dataclasses.replace(
    order.space, content_stride=stride
  )
  weights = (
    edge_weights.EdgeWeights(space.max_copy_len, stride, alpha)
    if alpha
    else None
  )
  return _Variant(dataclasses.replace(order, space=space), weights)
