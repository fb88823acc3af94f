# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Selects the documents that a source reads, from their lengths.

Lengths arrive in batches of consecutive documents and only the best
candidates so far are retained, so a store of 10**9 documents is scanned in the
memory of one batch.

NumPy only.
"""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses

import numpy as np

from chomp_data.index import hashing

# The fewest candidates to sort at once.
_FEW = 2**15

SELECT_MODES = ("first", "longest", "shortest", "random")

LengthBatches = Callable[[], Iterable[tuple[int, np.ndarray]]]

# Returns which of documents int64[N] match, bool[N].
Matches = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Limits:
  """Which documents are candidates.

  Attributes:
    min_length: Fewest tokens, or None.
    max_length: Most tokens, or None.
    last_token: A document's last token must lie before this token of the
      store, or None for no limit.
  """

  min_length: int | None = None
  max_length: int | None = None
  last_token: int | None = None

  def admit(self, lengths: np.ndarray, first_token: int) -> np.ndarray:
    """Returns bool[n] for consecutive documents from `first_token` on."""
    fits = lengths > 0
    if self.min_length is not None:
      fits &= lengths >= self.min_length
    if self.max_length is not None:
      fits &= lengths <= self.max_length
    if self.last_token is not None:
      fits &= first_token + np.cumsum(lengths) <= self.last_token
    return fits


def select(
  batches: LengthBatches,
  mode: str,
  limits: Limits,
  count: int | None,
  key: int,
  exclude: np.ndarray | None = None,
  matches: Matches | None = None,
) -> tuple[np.ndarray, np.ndarray]:
  """Chooses up to `count` documents.

      lengths [3, 9, 4, 9], 'longest', count 3 -> documents [1, 3, 2]

  Args:
    batches: Returns an iterable of (first document, int64[n] lengths).
    mode: One of SELECT_MODES. Ties go to the lower document.
    limits: Which documents are candidates.
    count: How many to choose, or None for every candidate.
    key: Key of 'random'.
    exclude: int64[M], documents never chosen, or None.
    matches: Which of the documents within the limits are candidates, or None
      for all.

  Returns:
    (documents, lengths), int64 each, best first: in store order for 'first',
    by length for 'longest' and 'shortest', in a seeded order for 'random'.
  """
  best = _Best(count)
  first_token = 0
  exclude = None if exclude is None else np.sort(exclude)
  for first, lengths in batches():
    lengths = np.asarray(lengths, np.int64)
    fits = limits.admit(lengths, first_token)
    first_token += int(lengths.sum())
    if exclude is not None:
      low, high = np.searchsorted(exclude, (first, first + len(lengths)))
      fits[exclude[low:high] - first] = False
    index = np.flatnonzero(fits)
    if matches is not None:
      index = index[matches(first + index)]
    documents, lengths = first + index, lengths[index]
    best.add(documents, lengths, _rank(mode, documents, lengths, key))
    if mode == "first" and best.is_full:
      break
  return best.sorted()


def _rank(mode, documents, lengths, key) -> np.ndarray:
  """Returns int64[n]; lower is better."""
  match mode:
    case "first":
      return documents
    case "longest":
      return -lengths
    case "shortest":
      return lengths
    case _:
      drawn = hashing.fold(key, documents) >> np.uint64(1)
      return drawn.astype(np.int64)


class _Best:
  """The best `count` candidates so far.

  Candidates are sorted when there are twice as many as needed, and at the end,
  so each is sorted only a few times.
  """

  def __init__(self, count: int | None):
    self._count = count
    # Parts of (documents, lengths, ranks); ties are in order of documents.
    self._parts: list[tuple[np.ndarray, ...]] = []
    self._pending = 0
    # Later documents must have a rank below this one.
    self._worst: int | None = None

  @property
  def is_full(self) -> bool:
    return self._count is not None and self._pending >= self._count

  def add(self, documents, lengths, rank) -> None:
    if self._worst is not None:
      # Later documents lose ties, so only a better rank gets in.
      better = np.flatnonzero(rank < self._worst)
      documents, lengths, rank = (
        documents[better],
        lengths[better],
        rank[better],
      )
    self._parts.append((documents, lengths, rank))
    self._pending += len(documents)
    if self._count is not None and self._pending > 2 * max(self._count, _FEW):
      self._sort()

  def sorted(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns (documents, lengths), best first."""
    self._sort()
    if not self._parts:
      return np.empty(0, np.int64), np.empty(0, np.int64)
    documents, lengths, _ = self._parts[0]
    return documents, lengths

  def _sort(self) -> None:
    if not self._parts:
      return
    merged = [np.concatenate(part) for part in zip(*self._parts, strict=True)]
    self._parts = []
    rank = merged[2]
    best: slice | np.ndarray = slice(self._count)
    if np.any(rank[1:] < rank[:-1]):
      best = _stable_order(rank)[: self._count]
    documents, lengths, rank = (part[best] for part in merged)
    self._parts, self._pending = [(documents, lengths, rank)], len(rank)
    if self.is_full and self._count:
      self._worst = int(rank[-1])


def _stable_order(rank: np.ndarray) -> np.ndarray:
  """Returns int64[N], the stable order of ascending ranks.

  Sorts by 16 bits at a time: NumPy uses a radix sort for these.
  """
  rank = (rank - rank.min()).view(np.uint64)
  order = np.argsort(rank.astype(np.uint16), kind="stable")
  for shift in range(16, int(rank.max()).bit_length(), 16):
    digit = (rank >> np.uint64(shift)).astype(np.uint16)
    order = order[np.argsort(digit[order], kind="stable")]
  return order
