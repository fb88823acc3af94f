# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which pair (t, s) each row of a document holds.

A document has a quota of rows in an epoch; its rows are samples k of that
quota. A sample is mapped to the number of a pair, by the balance mode, and
that number to a start and a column, in an order that may be another in each
epoch.

    17 starts, quota 17   k = 0, 1, 2, ... -> starts 0, 1, 2, ...
    17 starts, quota 5    k = 0 .. 4       -> starts 1, 5, 8, 11, 15
    by_document, quota 20                  -> starts 0, ..., 16, 0, 1, 2

Documents of the same stride and edge weight share one `PairOrder`. NumPy only.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import NamedTuple

import numpy as np

from chomp_data.index import columns
from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.index import permutation
from chomp_data.index import ragged
from chomp_data.sources import document_columns
from chomp_data.splice import edge_weights
from chomp_data.splice import pair_space

# Each of 16 consecutive epochs of a ramp reads other starts, between those of
# the epochs before it. In bit-reversed order, so that any few are far apart.
_TURNS = np.asarray(
  [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15], np.int64
)
# Above all indices of documents.
_END = 2**62


class Samples(NamedTuple):
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


@dataclasses.dataclass(frozen=True)
class PairOrder:
  """The pairs of documents of one stride, and the order of their axes.

  Unshuffled, starts ascend and offsets ascend inside them. Each axis can be
  permuted in every epoch: as a whole, or within eras of a given length. A
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
    """Returns the start at each place of a document's axis of starts.

    Args:
      index: int64[N], places.
      size: int64[N], lengths of the axes.
      document: int64[N], the document, whose order is used.
      epoch: int64[N], the epoch, whose order is used.

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
      document: int64[N], the document, whose order is used.
      epoch: int64[N], the epoch, whose order is used.

    Returns:
      (t_index, s_index), int64[N] each.
    """
    if self.shuffle_content and self.space.is_ragged:
      t_index, s_index = self._decode_ragged(lengths, pair, document, epoch)
    else:
      t_index, s_index = self.space.decode(lengths, pair)
      num_starts = self.space.num_starts(lengths)
      t_index = self.permute_starts(t_index, num_starts, document, epoch)
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
    """Returns starts and columns where permuted starts differ in offsets."""
    decoded = np.empty((2, len(pair)), np.int64)
    groups, member = np.unique(
      np.stack([document, epoch, lengths]), axis=1, return_inverse=True
    )
    for number, index in ragged.by_value(member.reshape(-1)):
      decoded[:, index] = self._decode_one(
        pair[index], *groups[:, number].tolist()
      )
    return decoded[0], decoded[1]

  def _decode_one(
    self, pair: np.ndarray, document: int, epoch: int, length: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Decodes pairs of one document, by where its tail starts are visited."""
    head_offsets = self.space.head_offsets
    places, pairs_before, offsets = self._tail_places(document, epoch, length)
    # How many of the tail starts begin at or before each pair. Pairs of the
    # last of them, and those that all of them have beyond `head_offsets`.
    visited = np.searchsorted(pairs_before, pair, side="right")
    extra = np.concatenate([[0], np.cumsum(offsets - head_offsets)])[visited]
    place, s_index = np.divmod(pair - extra, head_offsets)
    if len(places):
      last = np.maximum(visited - 1, 0)
      inside = pair - pairs_before[last]
      in_tail = (visited > 0) & (inside < offsets[last])
      place = np.where(in_tail, places[last], place)
      s_index = np.where(in_tail, inside, s_index)
    t_index = self.permute_starts(
      place,
      self.space.num_starts(np.asarray([length])),
      np.asarray([document]),
      np.asarray([epoch]),
    )
    return t_index, s_index

  @memo.remembered(64)
  def _tail_places(
    self, document: int, epoch: int, length: int
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds where the starts with more offsets fall in the epoch's order.

    Remembered, because it takes about 0.4 ms a document.

    Returns:
      Their places in ascending order, the number of pairs before each, and
      their numbers of offsets; at most K entries each.
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
    extra = np.cumsum(offsets - self.space.head_offsets)
    before = np.concatenate([[0], extra[:-1]])[: len(places)]
    return places, places * self.space.head_offsets + before, offsets


def _in_eras(
  function: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
  index: np.ndarray,
  size: np.ndarray,
  key: np.ndarray,
  era: bool | int,
) -> np.ndarray:
  """Permutes 0 .. size - 1 as a whole, or within eras of neighbours."""
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
    slots = sorted(overrides)
    variants = [numbers.setdefault(overrides[i], len(numbers)) for i in slots]
    # Documents that differ and their variants, with an end for searches.
    self._overridden = np.asarray([*slots, _END], np.int64)
    self._variant_numbers = np.asarray([*variants, 0], np.int64)
    self._variants = [
      (
        dataclasses.replace(
          order, space=dataclasses.replace(self.space, content_stride=stride)
        ),
        edge_weights.EdgeWeights(self.space.max_copy_len, stride, weight)
        if weight
        else None,
      )
      for stride, weight in numbers
    ]

  @property
  def may_pass_ends(self) -> bool:
    """As `PairSpace.may_pass_ends`, of the documents of any stride."""
    return any(order.space.may_pass_ends for order, _ in self._variants)

  def num_pairs(self) -> np.ndarray:
    """Returns int64[D], how many pairs each document has."""
    lengths = document_columns.int64(self._lengths)
    num_pairs = self.space.num_pairs(lengths)
    for number, (order, _) in enumerate(self._variants[1:], 1):
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

  def place(self, samples: Samples, in_ramp: bool) -> np.ndarray:
    """Returns int64[3, N], (t, s, c) of samples.

    Args:
      samples: The samples to place.
      in_ramp: Whether their epochs come before the last period.
    """
    at = np.searchsorted(self._overridden, samples.slot)
    differs = self._overridden[at] == samples.slot
    variants = np.where(differs, self._variant_numbers[at], 0)
    places = np.empty((3, len(variants)), np.int64)
    for number, index in ragged.by_value(variants):
      picked = Samples(*(values[index] for values in samples))
      places[:, index] = self._place(number, picked, in_ramp)
    return places

  def _place(
    self, variant: int, samples: Samples, in_ramp: bool
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (t, s, c) of samples of documents of one stride and weight."""
    order, weights = self._variants[variant]
    slot, k, quota, epoch, jitter = samples
    lengths = self._lengths.take(slot)
    num_pairs = order.space.num_pairs(lengths)
    if self.space.is_balanced:
      k = order.permute_starts(k, quota, slot, epoch)
    match self._balance_mode:
      case "enumerate":
        pair = k
      case "by_document":
        # In a ramp starts continue where the previous epoch ended.
        pair = (k + in_ramp * (epoch * quota % num_pairs)) % num_pairs
      case _:
        if in_ramp:
          # Sample k of Q becomes sample n k + turn of n Q: between the same
          # neighbours, at another place in each of n epochs.
          k = k * len(_TURNS) + _TURNS[epoch % len(_TURNS)]
          quota = quota * len(_TURNS)
        if weights is None:
          pair = edge_weights.uniform_start(k, quota, num_pairs)
        else:
          span = lengths - order.space.copy_len(lengths)
          pair = weights.select(k, quota, span)
    if self.space.is_balanced:
      return order.space.place(lengths, pair, jitter)
    return order.space.place(lengths, *order.decode(lengths, pair, slot, epoch))
