# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The pairs (t, s) of one document: their number and their numbering.

`t` is the first token copied, `s` the column it goes to, `c` how many tokens
are copied: c = min(K, L - t, S - s), at least `min_copy_len`. A document of
length L has its pairs numbered 0 .. num_pairs - 1, t outer, s inner, both
ascending. Everything is in tokens.

    S = 5, K = 3, L = 5, 'slide_within', domain 'tight':  13 pairs
    t = 0   [0 1 2 . .]  [. 0 1 2 .]  [. . 0 1 2]                pairs 0 to 2
    t = 1   [1 2 3 . .]  [. 1 2 3 .]  [. . 1 2 3]                pairs 3 to 5
    t = 2   [2 3 4 . .]  [. 2 3 4 .]  [. . 2 3 4]                pairs 6 to 8
    t = 3   [3 4 . . .]  [. 3 4 . .]  [. . 3 4 .]  [. . . 3 4]   pairs 9 to 12

All functions are vectorised over (L, pair). docs/splice.md lists the domains
of t and s. NumPy only.
"""

import dataclasses

import numpy as np

from chomp_data.index import memo

CONTENT_START_MODES = (
  "coverage_balanced",
  "slide_within",
  "anchor_start",
  "cyclic_roll",
)
OFFSET_DOMAINS = ("tight", "grid", "frame")


@dataclasses.dataclass(frozen=True)
class PairSpace:
  """The (t, s) pairs of documents under one splice schedule.

  Attributes:
    seq_len: S.
    content_length: K, or None for as many tokens as fit.
    content_start_mode: One of CONTENT_START_MODES, or 'slide' for windows of
      S tokens at column 0.
    content_stride: Tokens between starts t.
    offset_stride: Columns between offsets s (not in coverage_balanced).
    offset_domain: One of OFFSET_DOMAINS (not in coverage_balanced).
    min_copy_len: Fewest tokens worth copying.
    adaptive_k: Whether K shrinks to a document shorter than K.
    offset_jitter: J; a start may be placed J columns to the left.
  """

  seq_len: int
  content_length: int | None
  content_start_mode: str
  content_stride: int
  offset_stride: int
  offset_domain: str
  min_copy_len: int
  adaptive_k: bool
  offset_jitter: int

  @property
  def max_copy_len(self) -> int:
    """K, reduced to the columns that every placement has."""
    room = self.seq_len - self.offset_jitter
    return (
      room if self.content_length is None else min(self.content_length, room)
    )

  @property
  def is_balanced(self) -> bool:
    """Whether copies are right-aligned, so that only starts are numbered."""
    return self.content_start_mode == "coverage_balanced"

  @property
  def has_one_place(self) -> bool:
    """Whether a start has one place: at the row's end, or at column 0.

    All copies of a document are then equally long.
    """
    return self.is_balanced or self.content_start_mode == "slide"

  @property
  def is_ragged(self) -> bool:
    """Whether later starts, with fewer tokens left, have more offsets."""
    return (
      self.content_start_mode == "slide_within"
      and self.offset_domain == "tight"
    )

  @property
  def may_pass_ends(self) -> bool:
    """Whether the start after the head may lie past the document's end."""
    return self.is_ragged and self.content_stride > self.max_copy_len

  def copy_len(self, lengths: np.ndarray) -> np.ndarray:
    """Returns int64[D], K of each document; `adaptive_k` limits it to L."""
    limit = np.full(len(lengths), self.max_copy_len, np.int64)
    return np.minimum(limit, lengths) if self.adaptive_k else limit

  def num_starts(self, lengths: np.ndarray) -> np.ndarray:
    """Returns int64[D], how many starts t each document has."""
    stride = self.content_stride
    usable = lengths >= self.min_copy_len
    match self.content_start_mode:
      case "anchor_start":
        count = np.ones(len(lengths), np.int64)
      case "slide_within":
        count = (lengths - self.min_copy_len) // stride + 1
      case "cyclic_roll":
        count = (lengths + stride - 1) // stride
      case "slide":
        extra = lengths - self.seq_len
        count = np.where(extra > 0, -(-extra // stride) + 1, 1)
      case _:
        copied = self.copy_len(lengths)
        usable = usable & (copied <= lengths) & (copied >= self.min_copy_len)
        count = (lengths - copied) // stride + 1
    return np.where(usable, count, 0)

  def num_offsets(self, available: np.ndarray) -> np.ndarray:
    """Returns how many offsets s a start has, at least 1.

    Args:
      available: int64[N], tokens from the start to the document's end; of the
        whole document where `is_ragged` is False.

    Returns:
      int64[N].
    """
    if self.has_one_place:
      return np.ones(len(available), np.int64)
    match self.offset_domain:
      case "frame":
        copied = np.full(len(available), self.min_copy_len)
      case "grid":
        copied = self.copy_len(available)
      case _:
        copied = np.minimum(available, self.max_copy_len)
    return (self.seq_len - copied) // self.offset_stride + 1

  def num_pairs(self, lengths: np.ndarray) -> np.ndarray:
    """Returns int64[D], how many pairs each document has.

    A document too short to be copied has none.
    """
    starts = self.num_starts(lengths)
    if not self.is_ragged:
      return starts * self.num_offsets(lengths)
    head = self.head_starts(lengths)
    # Below 0 where `may_pass_ends`: no start follows the head.
    remaining = np.maximum(lengths - head * self.content_stride, 0)
    tail_pairs = self._tail_table()[remaining]
    return np.where(starts > 0, head * self.head_offsets + tail_pairs, 0)

  def decode(
    self, lengths: np.ndarray, pair: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the start and the offset number of each pair.

    Args:
      lengths: int64[N], the length of each pair's document.
      pair: int64[N], 0 <= pair < num_pairs(lengths).

    Returns:
      (t_index, s_index), int64[N] each: which start and which of its offsets.
    """
    if self.has_one_place:
      return pair, np.zeros(len(pair), np.int64)
    if not self.is_ragged:
      return np.divmod(pair, self.num_offsets(lengths))
    head = self.head_starts(lengths)
    t_index, s_index = np.divmod(pair, self.head_offsets)
    tail = np.flatnonzero(pair >= head * self.head_offsets)
    t_in_tail, s_index[tail] = self._decode_tail(
      lengths[tail] - head[tail] * self.content_stride,
      pair[tail] - head[tail] * self.head_offsets,
    )
    t_index[tail] = head[tail] + t_in_tail
    return t_index, s_index

  def place(
    self, lengths: np.ndarray, t_index: np.ndarray, s_index: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (t, s, c) of numbered starts and offsets, int64[N] each.

    In coverage_balanced mode `s_index` is the jitter j, 0 .. offset_jitter.
    """
    start = t_index * self.content_stride
    match self.content_start_mode:
      case "coverage_balanced":
        copied = self.copy_len(lengths)
        return start, self.seq_len - copied - s_index, copied
      case "slide":
        # The last window ends with the document.
        start = np.minimum(start, np.maximum(lengths - self.seq_len, 0))
        available = lengths - start
      case "cyclic_roll":
        available = lengths
      case _:
        available = lengths - start
    offset = s_index * self.offset_stride
    copied = np.minimum(
      np.minimum(available, self.max_copy_len), self.seq_len - offset
    )
    return start, offset, copied

  # --- documents whose starts have different numbers of offsets -------------
  #
  # Starts with more than K tokens left, the head, all have `head_offsets`. The
  # others, the tail, have at most K tokens left, whatever the document.

  def head_starts(self, lengths: np.ndarray) -> np.ndarray:
    """Returns int64[N], how many starts have more than K tokens left."""
    extra = lengths - self.max_copy_len
    return np.where(extra > 0, -(-extra // self.content_stride), 0)

  @property
  def head_offsets(self) -> int:
    """How many offsets a start has that copies the whole K."""
    return (self.seq_len - self.max_copy_len) // self.offset_stride + 1

  @memo.remembered(1)
  def _tail_table(self) -> np.ndarray:
    """Returns int64[K + 1]: pairs of a tail start and of all after it.

    Entry u counts the pairs of starts with u, u - stride, ... tokens left.
    """
    table = np.zeros(self.max_copy_len + 1, np.int64)
    stride = self.content_stride
    remaining = np.arange(self.max_copy_len + 1)
    offsets = np.where(
      remaining >= self.min_copy_len, self.num_offsets(remaining), 0
    )
    for residue in range(min(stride, len(table))):
      table[residue::stride] = np.cumsum(offsets[residue::stride])
    return table

  def _decode_tail(
    self, remaining: np.ndarray, pair: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Finds pairs among starts with at most K tokens left, by bisection.

    Args:
      remaining: int64[N], tokens left at the first start of the tail.
      pair: int64[N], numbers of pairs, counted from that start.

    Returns:
      (start, offset number), int64[N] each, starts counted from there too.
    """
    table, stride = self._tail_table(), self.content_stride
    tail_pairs = table[remaining]
    low = np.zeros(len(pair), np.int64)
    high = remaining // stride
    # Invariant: the pairs before start `low` are at most `pair`.
    while np.any(low < high):
      middle = (low + high + 1) // 2
      before = tail_pairs - table[remaining - middle * stride]
      reached = before <= pair
      low = np.where(reached, middle, low)
      high = np.where(reached, high, middle - 1)
    return low, pair - (tail_pairs - table[remaining - low * stride])
