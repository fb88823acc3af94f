"""Which documents a source reads, chosen from their lengths alone.

Lengths arrive in batches of consecutive documents and only the best
candidates so far are kept, so a store of 10**9 documents is scanned in the
memory of one batch. Source: seed 000, "Document Selection Policies".

NumPy only.
"""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses

import numpy as np

from chomp_data.index import hashing

SELECT_MODES = ("first", "longest", "shortest", "random")

LengthBatches = Callable[[], Iterable[tuple[int, np.ndarray]]]


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

  Returns:
    (documents, lengths), int64 each, best first: in store order for 'first',
    by length for 'longest' and 'shortest', in a seeded order for 'random'.
  """
  kept = _Best(count)
  first_token = 0
  for first, lengths in batches():
    lengths = np.asarray(lengths, np.int64)
    fits = limits.admit(lengths, first_token)
    first_token += int(lengths.sum())
    documents = first + np.flatnonzero(fits)
    if exclude is not None:
      documents = documents[~np.isin(documents, exclude)]
    found = lengths[documents - first]
    kept.add(documents, found, _rank(mode, documents, found, key))
    if mode == "first" and kept.is_full:
      break
  return kept.documents, kept.lengths


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
  """The best `count` candidates so far, best first."""

  def __init__(self, count: int | None):
    self._count = count
    self.documents = np.empty(0, np.int64)
    self.lengths = np.empty(0, np.int64)
    self._rank = np.empty(0, np.int64)

  @property
  def is_full(self) -> bool:
    return self._count is not None and len(self.documents) >= self._count

  def add(self, documents, lengths, rank) -> None:
    full = self._count is not None and len(self.documents) >= self._count
    if full and len(self._rank):
      # Later documents lose ties, so only a better rank gets in.
      better = rank < self._rank[-1]
      documents, lengths, rank = (
        documents[better],
        lengths[better],
        rank[better],
      )
    documents = np.concatenate([self.documents, documents])
    lengths = np.concatenate([self.lengths, lengths])
    rank = np.concatenate([self._rank, rank])
    order = np.lexsort((documents, rank))[: self._count]
    self.documents, self.lengths = documents[order], lengths[order]
    self._rank = rank[order]
