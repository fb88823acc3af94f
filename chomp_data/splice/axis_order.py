# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The order in which a document's pairs are visited, axis by axis.

Unshuffled, starts ascend and offsets ascend inside them. Each axis can be
permuted anew every epoch: as a whole, or within eras of a given length. A pair
is computed from its number alone. NumPy only.
"""

import dataclasses

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import memo
from chomp_data.index import permutation
from chomp_data.splice import pair_space


def permute_in_eras(
  index: np.ndarray,
  size: np.ndarray,
  key: np.ndarray,
  era: int | None,
) -> np.ndarray:
  """Permutes 0 .. size - 1 within eras of consecutive indices.

  Args:
    index: int64[N].
    size: int64[N], sizes of the domains.
    key: uint64[N], keys of the permutations.
    era: Length of an era, or None for one era of the whole domain.

  Returns:
    int64[N].
  """
  return _in_eras(permutation.permute, index, size, key, era)


def _in_eras(function, index, size, key, era):
  if era is None:
    return function(index, size, key)
  number = index // era
  base = number * era
  return base + function(
    index - base,
    np.minimum(size - base, era),
    hashing.fold(key, number),
  )


@dataclasses.dataclass(frozen=True)
class AxisOrder:
  """How one schedule orders starts and offsets.

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

  def sample(
    self,
    k: np.ndarray,
    quota: np.ndarray,
    document: np.ndarray,
    epoch: np.ndarray,
  ) -> np.ndarray:
    """Permutes the samples 0 .. quota - 1 of a document as one axis."""
    if not self.shuffle_content:
      return k
    return permute_in_eras(
      k, quota, self._content_keys(document, epoch), self._content_era
    )

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
    if not self.shuffle_content:
      t_index, s_index = self.space.decode(lengths, pair)
    elif self.space.is_ragged:
      t_index, s_index = self._decode_ragged(lengths, pair, document, epoch)
    else:
      t_index, s_index = self.space.decode(lengths, pair)
      t_index = permute_in_eras(
        t_index,
        self.space.num_starts(lengths),
        self._content_keys(document, epoch),
        self._content_era,
      )
    if self.shuffle_offsets:
      key = hashing.fold(self.offset_key, epoch)
      key = hashing.fold(hashing.fold(key, document), t_index)
      era = None if self.shuffle_offsets is True else self.shuffle_offsets
      s_index = permute_in_eras(
        s_index, self.space.num_offsets(lengths, t_index), key, era
      )
    return t_index, s_index

  @property
  def _content_era(self) -> int | None:
    return None if self.shuffle_content is True else int(self.shuffle_content)

  def _content_keys(self, document, epoch) -> np.ndarray:
    return hashing.fold(hashing.fold(self.content_key, epoch), document)

  def _decode_ragged(self, lengths, pair, document, epoch):
    """Starts near a document's end have more offsets, so positions shift."""
    t_index = np.empty(len(pair), np.int64)
    s_index = np.empty(len(pair), np.int64)
    groups, member = np.unique(
      np.stack([document, epoch, lengths]), axis=1, return_inverse=True
    )
    for g in range(groups.shape[1]):
      pick = np.flatnonzero(member.reshape(-1) == g)
      t_index[pick], s_index[pick] = self._decode_group(
        pair[pick], *(int(v) for v in groups[:, g])
      )
    return t_index, s_index

  def _decode_group(self, pair, document: int, epoch: int, length: int):
    position, start_of_tail, offsets_of_tail, extra = self._tail_positions(
      document, epoch, length
    )
    head_offsets = self.space.head_offsets
    i = np.searchsorted(start_of_tail, pair, side="right") - 1
    safe = np.maximum(i, 0)
    in_tail = (i >= 0) & (len(position) > 0)
    if len(position):
      in_tail &= pair < start_of_tail[safe] + offsets_of_tail[safe]
    slot, offset = np.divmod(pair - extra[i + 1], head_offsets)
    if len(position):
      slot = np.where(in_tail, position[safe], slot)
      offset = np.where(in_tail, pair - start_of_tail[safe], offset)
    size, key = self._content_domain(document, epoch, length)
    return permute_in_eras(slot, size, key, self._content_era), offset

  def _content_domain(self, document: int, epoch: int, length: int):
    """Returns the number of starts, int64[1], and their key, uint64[1]."""
    size = self.space.num_starts(np.asarray([length]))
    return size, self._content_keys(np.asarray([document]), np.asarray([epoch]))

  @memo.remembered(64)
  def _tail_positions(self, document: int, epoch: int, length: int):
    """Finds where the starts with more offsets fall in the epoch's order.

    Returns:
      Their positions in ascending order; the number of pairs before each;
      their numbers of offsets; and, with a leading 0, the running sum of
      offsets beyond `head_offsets`. At most K entries each.
    """
    size, key = self._content_domain(document, epoch, length)
    head = int(self.space.head_starts(np.asarray([length]))[0])
    tail = np.arange(head, int(size[0]), dtype=np.int64)
    remaining = length - tail * self.space.content_stride
    offsets = self.space.tail_offsets(remaining)
    position = _in_eras(permutation.inverse, tail, size, key, self._content_era)
    order = np.argsort(position)
    position, offsets = position[order], offsets[order]
    more = offsets - self.space.head_offsets
    extra = np.concatenate([[0], np.cumsum(more)])
    start = position * self.space.head_offsets + extra[:-1]
    return position, start, offsets, extra
