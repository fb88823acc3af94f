# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Selects the documents that a source reads, from their lengths.

    lengths    30 50 20 50 10 40
    'first'    0, 1, 2, ...
    'longest'  1, 3, 5, ...          ties go to the lower document
    'shortest' 4, 2, 0, ...

Lengths arrive in batches of consecutive documents and only the best
candidates so far are retained, so a store of 10**9 documents is scanned in the
memory of one batch. NumPy only.
"""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses

import numpy as np

from chomp_data.index import hashing

# The fewest candidates to sort at once.
_MIN_SORTED = 2**15

SELECT_MODES = ("first", "longest", "shortest", "random")

# Returns which of documents int64[N] match, bool[N].
Matches = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Limits:
  """Which documents are candidates.

  Attributes:
    min_length: Fewest tokens, or None.
    max_length: Most tokens, or None.
    last_token: A document's last token must come before this token of the
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
  batches: Iterable[tuple[int, np.ndarray]],
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
    batches: Yields (first document, int64[n] lengths).
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
  for first_document, lengths in batches:
    lengths = np.asarray(lengths, np.int64)
    fits = limits.admit(lengths, first_token)
    first_token += int(lengths.sum())
    if exclude is not None:
      low, high = np.searchsorted(
        exclude, (first_document, first_document + len(lengths))
      )
      fits[exclude[low:high] - first_document] = False
    index = np.flatnonzero(fits)
    if matches is not None:
      index = index[matches(first_document + index)]
    documents, lengths = first_document + index, lengths[index]
    rank = _rank(mode, documents, lengths, key)
    best.add(np.stack([documents, lengths, rank]))
    if mode == "first" and best.is_full:
      break
  documents, lengths, _ = best.sorted()
  return documents, lengths


def _rank(
  mode: str, documents: np.ndarray, lengths: np.ndarray, key: int
) -> np.ndarray:
  """Returns int64[n]; lower is better."""
  match mode:
    case "first":
      return documents
    case "longest":
      return -lengths
    case "shortest":
      return lengths
    case _:
      hashes = hashing.fold(key, documents) >> np.uint64(1)
      return hashes.astype(np.int64)


class _Best:
  """The best `count` candidates so far.

  Candidates are sorted when there are twice as many as needed, and at the end,
  so each is sorted only a few times.
  """

  def __init__(self, count: int | None):
    self._count = count
    # int64[3, n] each: documents, lengths, ranks; ties in order of documents.
    self._parts = [np.empty((3, 0), np.int64)]
    self._pending = 0
    # Later documents lose ties, so they must have a rank below this one.
    self._worst_rank: int | None = None

  @property
  def is_full(self) -> bool:
    return self._count is not None and self._pending >= self._count

  def add(self, candidates: np.ndarray) -> None:
    """Adds int64[3, n]: documents, lengths and ranks."""
    if self._worst_rank is not None:
      candidates = candidates[:, candidates[2] < self._worst_rank]
    self._parts.append(candidates)
    self._pending += candidates.shape[1]
    limit = self._count
    if limit is not None and self._pending > 2 * max(limit, _MIN_SORTED):
      self._worst_rank = int(self.sorted()[2, -1])

  def sorted(self) -> np.ndarray:
    """Returns int64[3, n], best first, and drops all others."""
    merged = np.concatenate(self._parts, axis=1)
    best = np.argsort(merged[2], kind="stable")[: self._count]
    self._parts = [merged[:, best]]
    self._pending = len(best)
    return self._parts[0]
