# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which pair (t, s) each row of a document holds.

A document has a quota of rows in an epoch; its rows are samples k of that
quota. A sample is mapped to the number of a pair, by the balance mode, and
that number to a start and a column, in an order that may be permuted anew each
epoch.

    17 starts, quota 17   k = 0, 1, 2, ... -> starts 0, 1, 2, ...
    17 starts, quota 5    k = 0 .. 4       -> starts 1, 5, 8, 11, 15
    by_document, quota 20                  -> starts 0, ..., 16, 0, 1, 2

Documents of the same stride and edge weight share one `PairOrder`. NumPy only.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses

import numpy as np

from chomp_data.index import columns
from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.index import permutation
from chomp_data.sources import document_columns
from chomp_data.splice import edge_weights
from chomp_data.splice import pair_space

# Each of 16 consecutive epochs of a ramp reads other starts, between those of
# the epochs before it. In bit-reversed order, so that any few are far apart.
_TURNS = np.asarray(
  [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15], np.int64
)


@dataclasses.dataclass(frozen=True)
class Samples:
  """Rows as samples of their documents' quotas, int64[N] each.

  Attributes:
    slot: Index into the documents.
    k: 0 <= k < quota.
    quota: Rows of the document in the epoch.
    epoch: The epoch.
    jitter: Columns to the left, in coverage_balanced mode.
  """

  slot: np.ndarray
  k: np.ndarray
  quota: np.ndarray
  epoch: np.ndarray
  jitter: np.ndarray

  def take(self, index: np.ndarray) -> "Samples":
    """Returns the samples at an index, int64[M]."""
    return Samples(
      self.slot[index],
      self.k[index],
      self.quota[index],
      self.epoch[index],
      self.jitter[index],
    )


@dataclasses.dataclass(frozen=True)
class PairOrder:
  """The pairs of documents of one stride, and the order of their axes.

  Unshuffled, starts ascend and offsets ascend inside them. Each axis can be
  permuted anew every epoch: as a whole, or within eras of a given length. A
  pair is computed from its number alone.

  Attributes:
    space: The pairs of a document.
    shuffle_content: Whether starts are permuted each epoch; a number permutes
      within eras of that many starts.
    shuffle_offsets: The same for the offsets of a start.
    content_key: Key of the starts' permutations.
    offset_key: Key of the offsets' permutations.
  """

  space: pair_space.PairSpace
  shuffle_content: bool | int
  shuffle_offsets: bool | int
  content_key: int
  offset_key: int

  def permute_starts(
    self,
    index: np.ndarray,
    size: np.ndarray,
    document: np.ndarray,
    epoch: np.ndarray,
  ) -> np.ndarray:
    """Returns what comes at each place of a document's axis of starts.

    Args:
      index: int64[N], places.
      size: int64[N], lengths of the axes.
      document: int64[N], the document, for its own order.
      epoch: int64[N], the epoch, for its own order.

    Returns:
      int64[N], the places themselves where starts are not shuffled.
    """
    if not self.shuffle_content:
      return index
    key = self._content_key(document, epoch)
    return _in_eras(permutation.permute, index, size, key, self.shuffle_content)

  def decode(
    self,
    lengths: np.ndarray,
    pair: np.ndarray,
    document: np.ndarray,
    epoch: np.ndarray,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the start and the offset number of the pair-th visited pair.

    Args:
      lengths: int64[N], the length of each pair's document.
      pair: int64[N], 0 <= pair < space.num_pairs(lengths).
      document: int64[N], the document, for its own order.
      epoch: int64[N], the epoch, for its own order.

    Returns:
      (t_index, s_index), int64[N] each.
    """
    if self.shuffle_content and self.space.is_ragged:
      t_index, s_index = self._decode_ragged(lengths, pair, document, epoch)
    else:
      t_index, s_index = self.space.decode(lengths, pair)
      if self.shuffle_content:
        t_index = self.permute_starts(
          t_index, self.space.num_starts(lengths), document, epoch
        )
    if self.shuffle_offsets:
      key = hashing.fold(self.offset_key, epoch)
      key = hashing.fold(hashing.fold(key, document), t_index)
      available = lengths
      if self.space.is_ragged:
        available = lengths - t_index * self.space.content_stride
      s_index = _in_eras(
        permutation.permute,
        s_index,
        self.space.num_offsets(available),
        key,
        self.shuffle_offsets,
      )
    return t_index, s_index

  def _content_key(self, document: np.ndarray, epoch: np.ndarray) -> np.ndarray:
    return hashing.fold(hashing.fold(self.content_key, epoch), document)

  def _decode_ragged(
    self,
    lengths: np.ndarray,
    pair: np.ndarray,
    document: np.ndarray,
    epoch: np.ndarray,
  ) -> tuple[np.ndarray, np.ndarray]:
    """As `decode`, where permuted starts have different numbers of offsets."""
    t_index = np.empty(len(pair), np.int64)
    s_index = np.empty(len(pair), np.int64)
    groups, member = np.unique(
      np.stack([document, epoch, lengths]), axis=1, return_inverse=True
    )
    for i, (one_document, one_epoch, length) in enumerate(groups.T.tolist()):
      index = np.flatnonzero(member.reshape(-1) == i)
      place, s_index[index] = self._decode_one(
        pair[index], self._tail_places(one_document, one_epoch, length)
      )
      t_index[index] = self.permute_starts(
        place,
        self.space.num_starts(np.asarray([length])),
        np.asarray([one_document]),
        np.asarray([one_epoch]),
      )
    return t_index, s_index

  def _decode_one(
    self, pair: np.ndarray, tail: tuple[np.ndarray, ...]
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns (place among the visited starts, offset number), int64[N]."""
    places, pairs_before, offsets, extra = tail
    place, s_index = np.divmod(pair, self.space.head_offsets)
    if len(places):
      i = np.searchsorted(pairs_before, pair, side="right") - 1
      place, s_index = np.divmod(pair - extra[i + 1], self.space.head_offsets)
      tail_index = np.maximum(i, 0)
      in_tail = (i >= 0) & (
        pair < pairs_before[tail_index] + offsets[tail_index]
      )
      place = np.where(in_tail, places[tail_index], place)
      s_index = np.where(in_tail, pair - pairs_before[tail_index], s_index)
    return place, s_index

  @memo.remembered(64)
  def _tail_places(
    self, document: int, epoch: int, length: int
  ) -> tuple[np.ndarray, ...]:
    """Finds where the starts with more offsets fall in the epoch's order.

    Remembered, because it takes about 0.4 ms a document.

    Returns:
      Their places in ascending order; the number of pairs before each; their
      numbers of offsets; and, with a leading 0, the running sum of offsets
      beyond `head_offsets`. At most K entries each.
    """
    lengths = np.asarray([length])
    size = self.space.num_starts(lengths)
    key = self._content_key(np.asarray([document]), np.asarray([epoch]))
    head = int(self.space.head_starts(lengths)[0])
    starts = np.arange(head, int(size[0]), dtype=np.int64)
    offsets = self.space.num_offsets(
      length - starts * self.space.content_stride
    )
    places = _in_eras(
      permutation.inverse, starts, size, key, self.shuffle_content
    )
    order = np.argsort(places)
    places, offsets = places[order], offsets[order]
    extra = np.concatenate([[0], np.cumsum(offsets - self.space.head_offsets)])
    return places, places * self.space.head_offsets + extra[:-1], offsets, extra


def _in_eras(
  function: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
  index: np.ndarray,
  size: np.ndarray,
  key: np.ndarray,
  era: bool | int,
) -> np.ndarray:
  """Permutes 0 .. size - 1 within eras of consecutive indices.

  Args:
    function: `permutation.permute` or its inverse.
    index: int64[N].
    size: int64[N], sizes of the domains.
    key: uint64[N], keys of the permutations.
    era: Length of an era, or True for one era of the whole domain.

  Returns:
    int64[N].
  """
  if era is True:
    return function(index, size, key)
  number = index // era
  era_begin = number * era
  return era_begin + function(
    index - era_begin,
    np.minimum(size - era_begin, era),
    hashing.fold(key, number),
  )


class DocumentPairs:
  """The pairs of documents at one content length.

  Attributes:
    space: The pairs of a document with the common stride.
  """

  def __init__(
    self,
    lengths: columns.Column,
    order: PairOrder,
    alpha: float,
    balance_mode: str,
    overrides: Mapping[int, tuple[int, float]],
  ):
    """Sorts documents by stride and edge weight.

    Args:
      lengths: Tokens of each document.
      order: The pairs and the order of their axes, with the common stride.
      alpha: Edge weight; above 0 only in coverage_balanced mode.
      balance_mode: `MultiSpliceOptions.balance_mode`.
      overrides: (content_stride, alpha) by index, of documents that differ.
    """
    self._lengths = lengths
    self._balance_mode = balance_mode
    self.space: pair_space.PairSpace = order.space
    numbers = {(order.space.content_stride, alpha): 0}
    self._overridden = np.asarray(sorted(overrides), np.int64)
    self._variant_numbers = np.asarray(
      [
        numbers.setdefault(overrides[i], len(numbers))
        for i in sorted(overrides)
      ],
      np.int64,
    )
    self._variants = [
      self._variant(order, stride, weight) for stride, weight in numbers
    ]

  @staticmethod
  def _variant(
    order: PairOrder, stride: int, alpha: float
  ) -> tuple[PairOrder, edge_weights.EdgeWeights | None]:
    """Returns the pairs of documents of one stride, and their edge weights."""
    space = dataclasses.replace(order.space, content_stride=stride)
    weights = None
    if alpha:
      weights = edge_weights.EdgeWeights(space.max_copy_len, stride, alpha)
    return dataclasses.replace(order, space=space), weights

  def num_pairs(self) -> np.ndarray:
    """Returns int64[D], how many pairs each document has."""
    lengths = document_columns.int64(self._lengths)
    num_pairs = self.space.num_pairs(lengths)
    for number, (order, _) in enumerate(self._variants):
      slots = self._overridden[self._variant_numbers == number]
      num_pairs[slots] = order.space.num_pairs(lengths[slots])
    return num_pairs

  def copy_len(self) -> np.ndarray:
    """Returns int64[D], tokens of a document's copies.

    Only where `space.has_one_place`: otherwise copies of a document vary.
    """
    lengths = document_columns.int64(self._lengths)
    if self.space.is_balanced:
      return self.space.copy_len(lengths)
    return np.minimum(lengths, self.space.seq_len)

  def place(
    self, samples: Samples, in_ramp: bool
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (t, s, c) of samples, int64[N] each.

    Args:
      samples: The samples to place.
      in_ramp: Whether their epochs come before the last period.
    """
    if not len(self._overridden):
      return self._place(0, samples, in_ramp)
    at = np.searchsorted(self._overridden, samples.slot)
    at = np.minimum(at, len(self._overridden) - 1)
    differs = self._overridden[at] == samples.slot
    variant = np.where(differs, self._variant_numbers[at], 0)
    places = np.empty((3, len(samples.slot)), np.int64)
    for number in np.unique(variant).tolist():
      index = np.flatnonzero(variant == number)
      places[:, index] = self._place(number, samples.take(index), in_ramp)
    return places[0], places[1], places[2]

  def _place(
    self, variant: int, samples: Samples, in_ramp: bool
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order, weights = self._variants[variant]
    slot, epoch = samples.slot, samples.epoch
    lengths = self._lengths.take(slot)
    if not self.space.is_balanced:
      pair = self._pair(order, weights, samples.k, samples, lengths, in_ramp)
      indices = order.decode(lengths, pair, slot, epoch)
      return order.space.place(lengths, *indices)
    k = order.permute_starts(samples.k, samples.quota, slot, epoch)
    start = self._pair(order, weights, k, samples, lengths, in_ramp)
    return order.space.place(lengths, start, samples.jitter)

  def _pair(
    self,
    order: PairOrder,
    weights: edge_weights.EdgeWeights | None,
    k: np.ndarray,
    samples: Samples,
    lengths: np.ndarray,
    in_ramp: bool,
  ) -> np.ndarray:
    """Returns int64[N], the number of the pair that each sample takes."""
    if self._balance_mode == "enumerate":
      return k
    num_pairs = order.space.num_pairs(lengths)
    quota = samples.quota
    if self._balance_mode == "by_document":
      if in_ramp:
        # Starts continue where the previous epoch ended.
        k = k + samples.epoch * quota % num_pairs
      return k % num_pairs
    if in_ramp:
      # Sample k of Q becomes sample n k + turn of n Q: between the same
      # neighbours, at another place in each of n epochs.
      k = k * len(_TURNS) + _TURNS[samples.epoch % len(_TURNS)]
      quota = quota * len(_TURNS)
    if weights is None:
      return edge_weights.uniform_start(k, quota, num_pairs)
    span = lengths - order.space.copy_len(lengths)
    return weights.select(k, quota, span)
