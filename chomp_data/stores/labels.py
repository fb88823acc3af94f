# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which tokens of a store are trained on: runs of levels, sums before each.

    tokens         a  b  c  d  e  f     label_starts  [0, 2, 5]
    level          0  0  1  1  1  0     label_levels  [0, 1, 0]
    trained before 0  0  0  1  2  3  3  label_sums    [0, 0, 3, 3]

A level is a number of the table `levels`, of weights: level 0 weighs 0 and is
not trained on, level 1 weighs 1, others what the store says. Positions are
those of the store's tokens.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import functools
from typing import Any
from typing import Protocol

import numpy as np

from chomp_data.index import columns
from chomp_data.index import integers
from chomp_data.index import ragged
from chomp_data.stores import documents as documents_lib
from chomp_data.stores import span_reads

# Of a store that has no table.
LEVELS: np.ndarray = np.asarray([0.0, 1.0], np.float32)
LEVELS.flags.writeable = False

# Up to so many runs are kept in memory, in 17 bytes each; of more as many
# starts, evenly spaced.
CACHED_RUNS = 1 << 20
# Of even more none: picking them reads all starts once, 1 GiB of so many.
MAX_SAMPLED_RUNS = 1 << 27


def weight(value: float) -> float:
  """Returns a weight as stores keep it: of float32, never -0.0, perhaps inf."""
  try:
    with np.errstate(over="ignore"):
      return float(np.float32(value)) + 0.0
  except OverflowError:  # Of an integer.
    return float("inf")


class Values(Protocol):
  """An array on disk or in memory."""

  def gather(self, positions: np.ndarray, /) -> np.ndarray:
    """Returns fresh values at positions int64[N], all in range."""
    ...

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray, /) -> Any:
    """Requests what will be gathered of ranges, int64[N] each."""
    ...


# The runs within spans: span int64[M], begin int64[M], stop int64[M], level
# uint8[M]; see `Labels.runs`.
SpanRuns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

# Documents whose weights are looked at together.
_BATCH = 1 << 20


class Labels:
  """What a store trains on: levels of tokens, times weights of documents.

  Attributes:
    has_runs: Whether some tokens may not be trained on; else all are.
    has_document_weights: Whether documents may weigh other than 1.
    has_weights: Whether trained tokens may weigh other than 1, by level or
      document.
    levels: float32[L], the weights of levels; 0 is not trained on, 1 weighs 1.
  """

  def __init__(
    self,
    runs: "LabelRuns",
    weights: Values | None,
    num_documents: int,
    path: str,
    is_remote: bool = False,
  ):
    """Reads nothing.

    Args:
      runs: The levels of tokens.
      weights: float32 of each document, or None: all weigh 1.
      num_documents: Documents of the store.
      path: The store, for messages.
      is_remote: Whether runs and weights are worth a prefetch.
    """
    self._runs = runs
    self._weights = weights
    self._num_documents = num_documents
    self._path = path
    self._is_remote = is_remote
    self.has_runs: bool = not isinstance(runs, AllTrained)
    self.has_document_weights: bool = weights is not None
    self.levels: np.ndarray = runs.level_weights
    self.has_weights: bool = self.has_document_weights or (
      self.has_runs and len(self.levels) > len(LEVELS)
    )

  @functools.cached_property
  def trains_on_all(self) -> bool:
    """Whether every token is trained on, so that none need be counted.

    Where only documents have weights, all of them are looked at once.
    """
    return not self.has_runs and all(
      weights.all() for weights in self._weight_batches()
    )

  @property
  def any_document_trained(self) -> bool:
    """Whether some document weighs more than 0."""
    return not self.has_document_weights or any(
      weights.any() for weights in self._weight_batches()
    )

  def runs(self, starts: np.ndarray, lengths: np.ndarray) -> SpanRuns:
    """Returns the levels of tokens in spans, as runs of one level.

    A token is trained on as a target, where its level weighs more than 0.

        tokens of levels 0 0 1 1 1 0, spans (0, 4) and (4, 2):
        span [0, 0, 1, 1], begin [0, 2, 0, 1], stop [2, 4, 1, 2],
        level [0, 1, 1, 0]

    Args:
      starts: int64[N], absolute token positions.
      lengths: int64[N], in tokens, 0 or more.

    Returns:
      By run, in the order of the spans: the span int64[M], the first token and
      the one after the last, counted from the span's start, int64[M] each, and
      the level uint8[M]. Runs of a span follow each other and cover it.

    Raises:
      IndexError: If a span is not within the store.
      StoreError: If the labels were altered.
    """
    return self._runs.within(
      integers.array("starts", starts), integers.array("lengths", lengths)
    )

  def trained_before(self, positions: np.ndarray) -> np.ndarray:
    """Returns how many tokens below positions have levels that weigh.

    Args:
      positions: int64[N], absolute, 0 .. `num_tokens`.

    Returns:
      int64[N]; no token is read.

    Raises:
      IndexError: If a position is not within the store.
      StoreError: If the labels were altered.
    """
    return self._runs.before(integers.array("positions", positions))

  def document_weights(
    self, documents: Sequence[int] | np.ndarray
  ) -> np.ndarray:
    """Returns what multiplies the levels of documents' tokens.

    A document of weight 0 is not trained on.

    Args:
      documents: int64[N], in any order.

    Returns:
      float32[N], 1 where the store says nothing.

    Raises:
      IndexError: If there is no such document.
      StoreError: If the weights were altered.
    """
    documents = documents_lib.existing(
      documents, self._num_documents, self._path
    )
    if self._weights is None:
      return np.ones(len(documents), np.float32)
    return self._weights.gather(documents)

  def prefetch(
    self, starts: np.ndarray, lengths: np.ndarray, documents: np.ndarray
  ) -> None:
    """Requests labels and weights of an object store; does not wait.

    Args:
      starts: int64[N], absolute token positions.
      lengths: int64[N], in tokens, 0 or more.
      documents: int64[M], whose weights will be read.
    """
    starts = integers.array("starts", starts)
    lengths = integers.array("lengths", lengths)
    documents = integers.array("documents", documents)
    if not self._is_remote:
      return
    self._runs.prefetch(starts, lengths)
    if self._weights is not None:
      self._weights.prefetch(documents, np.ones_like(documents))

  def _weight_batches(self) -> Iterator[np.ndarray]:
    """Yields the weights of all documents, a bounded part at a time."""
    if self.has_document_weights:
      for first in range(0, self._num_documents, _BATCH):
        stop = min(first + _BATCH, self._num_documents)
        yield self.document_weights(np.arange(first, stop))


class LabelRuns:
  """The runs of a store; several threads may ask.

  At first use runs are read where they are few, else some of their starts.

  Attributes:
    level_weights: float32[L], by level; 0 is not trained on, 1 weighs 1.
    starts: int64[R], where runs begin, rising from 0.
    levels: uint8[R], their levels.
    sums: int64[R + 1], trained tokens before each, and all of them.
    num_runs: R, 0 only where there is no token.
  """

  def __init__(
    self,
    level_weights: np.ndarray,
    starts: Values,
    levels: Values,
    sums: Values,
    num_runs: int,
    num_tokens: int,
  ):
    """Reads nothing yet; `num_tokens` are those of the store."""
    self.level_weights: np.ndarray = level_weights
    self.starts: Values = starts
    self.levels: Values = levels
    self.sums: Values = sums
    self.num_runs: int = num_runs
    self._num_tokens = num_tokens
    self._is_trained = level_weights > 0
    self._stride = max(
      1, -(-num_runs // (CACHED_RUNS if num_runs <= MAX_SAMPLED_RUNS else 1))
    )

  @functools.cached_property
  def _fence(self) -> np.ndarray:
    """Where every `_stride`-th run begins; short arrays move to memory."""
    every = np.arange(0, self.num_runs, self._stride)
    fence = self.starts.gather(every)
    if self._stride == 1:
      self.levels = columns.ArrayColumn(self.levels.gather(every))
      self.sums = columns.ArrayColumn(
        self.sums.gather(np.arange(self.num_runs + 1))
      )
      self.starts = columns.ArrayColumn(fence)
    return fence

  def within(self, starts: np.ndarray, lengths: np.ndarray) -> SpanRuns:
    """Returns the runs within spans; see `Labels.runs`."""
    span_reads.check_spans(starts, lengths, self._num_tokens)
    some = np.flatnonzero(lengths)
    first = self._find(starts[some])
    last = self._find(starts[some] + lengths[some] - 1)
    count = last - first + 1
    ends = np.cumsum(count)
    span = np.repeat(some, count)
    opens = ends - count
    run = ragged.ranges(first, count)
    begin = self.starts.gather(run) - starts[span]
    begin[opens] = 0
    stop = np.empty_like(begin)
    stop[:-1] = begin[1:]
    stop[ends - 1] = lengths[some]
    return span, begin, stop, self.levels.gather(run)

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Requests the runs of spans, and of the token after each."""
    if self._stride == 1 or len(self._fence) == 1:
      return  # They are in memory, or where they are is not known.
    full = np.flatnonzero(lengths)
    first = np.searchsorted(self._fence, starts[full], "right") - 1
    after = np.minimum(starts[full] + lengths[full], self._num_tokens - 1)
    last = np.searchsorted(self._fence, after, "right")
    low = first * self._stride
    high = np.minimum(last * self._stride, self.num_runs)
    self.starts.prefetch(low, high - low)
    self.levels.prefetch(low, high - low)

  def before(self, positions: np.ndarray) -> np.ndarray:
    """Returns the trained tokens below positions, int64[N]."""
    span_reads.check_spans(positions, positions * 0, self._num_tokens)
    if not self.num_runs:
      return np.zeros(len(positions), np.int64)
    run = self._find(positions)
    trained = self._is_trained[self.levels.gather(run)]
    inside = positions - self.starts.gather(run)
    return self.sums.gather(run) + trained * inside

  def _find(self, positions: np.ndarray) -> np.ndarray:
    """Returns the run that each position is in, int64[N]."""
    low = np.searchsorted(self._fence, positions, side="right") - 1
    if self._stride == 1:
      return low
    low *= self._stride
    high = np.minimum(low + self._stride, self.num_runs)
    return columns.last_at_most(self.starts.gather, positions, low, high)


class AllTrained(LabelRuns):
  """The one run of a store without labels: every token is trained on."""

  def __init__(self, num_tokens: int):
    """Takes the number of tokens of the store."""
    num_runs = min(1, num_tokens)
    super().__init__(
      LEVELS,
      starts=columns.ArrayColumn(np.zeros(num_runs, np.int64)),
      levels=columns.ArrayColumn(np.ones(num_runs, np.uint8)),
      sums=columns.ArrayColumn(np.asarray([0, num_tokens], np.int64)),
      num_runs=num_runs,
      num_tokens=num_tokens,
    )
