"""Which documents of some steps cost more than they used to.

Joins what a run wrote by span (`span_losses`) with its plan: each document of a
range of steps, its loss there, and what it lost when the run read it before.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np

from chomp_data import pipeline
from chomp_data.reference import span_losses
from chomp_data.stores import places

# Steps that are planned at once.
_BLOCK_STEPS = 2_048
# Steps over which a source's mean is taken: losses fall as a run goes on, so
# each is compared with what its source lost at that time.
_MEAN_STEPS = 64


class _Sums:
  """Sums of losses by document of one source."""

  def __init__(self, document: np.ndarray):
    count = len(document)
    self.document = document
    self.nll, self.tokens = np.zeros(count), np.zeros(count, np.int64)
    self.relative_nll = np.zeros(count)
    self.spans = np.zeros(count, np.int64)
    self.first = np.full(count, -1, np.int64)
    self.last = np.full(count, -1, np.int64)

  def add(self, found: span_losses.Logged, number: int) -> None:
    """Adds the spans of source `number` that are of these documents."""
    own = np.flatnonzero((found.spans.source == number) & (found.tokens > 0))
    if not len(own) or not len(self.document):
      return
    at = np.searchsorted(self.document, found.spans.document[own])
    at = np.minimum(at, len(self.document) - 1)
    held = self.document[at] == found.spans.document[own]
    usual = _usual(found, own)
    own, at, usual = own[held], at[held], usual[held]
    count = len(self.document)
    tokens = found.tokens[own]
    loss = np.nan_to_num(found.loss[own].astype(np.float64))
    self.nll += np.bincount(at, loss * tokens, count)
    self.relative_nll += np.bincount(at, (loss - usual) * tokens, count)
    self.tokens += np.bincount(at, tokens, count).astype(np.int64)
    self.spans += np.bincount(at, minlength=count)
    step = found.step[own]
    new = self.first[at] < 0
    # Steps ascend: of several the first assignment is the last in reverse.
    self.first[at[new][::-1]] = step[new][::-1]
    self.last[at] = step

  @property
  def loss(self) -> np.ndarray:
    """float64[D], nats a token; NaN where there was none."""
    with np.errstate(invalid="ignore"):
      return self.nll / self.tokens

  @property
  def relative(self) -> np.ndarray:
    """float64[D], nats a token above its source's mean; 0 for no token."""
    return self.relative_nll / np.maximum(self.tokens, 1)


def _usual(found: span_losses.Logged, own: np.ndarray) -> np.ndarray:
  """Returns the mean loss of a source around the step of each of its spans."""
  block = found.step[own] // _MEAN_STEPS
  block -= block[0]
  tokens = found.tokens[own]
  loss = np.nan_to_num(found.loss[own].astype(np.float64))
  mean = np.bincount(block, loss * tokens) / np.maximum(
    np.bincount(block, tokens), 1
  )
  return mean[block]


def documents(
  pipe: pipeline.Pipeline, workdir: places.Place, first: int, last: int
) -> list[dict[str, Any]]:
  """Returns the documents of steps first .. last - 1, the worst first.

  Args:
    pipe: The run.
    workdir: Its directory, with losses by span.
    first: The first step.
    last: The step after the last.

  Returns:
    {"source", "document", "id", "loss", "tokens", "spans", "first_step",
    "last_step", "loss_before", "spans_before", "last_before", "relative",
    "relative_before", "excess"} each. `loss_before` is the mean over all
    earlier steps that were written, None where the document was not trained on
    in them. `relative` is its loss above the mean of its source in 64 steps
    around, `excess` how much more that is than it was before (0 where there is
    no before). Sorted by excess.

  Raises:
    StateError: If a step was not written.
  """
  begun, _ = span_losses.steps_written(workdir)
  within = _within(pipe, workdir, first, last)
  before = {name: _Sums(own.document) for name, own in within.items()}
  _add(pipe, workdir, begun, first, before)
  records: list[dict[str, Any]] = []
  for name, own in within.items():
    earlier = before[name]
    ids = pipe.sources[name].store.document_ids(own.document)
    loss, loss_before = own.loss, earlier.loss
    for i, (document, identity) in enumerate(
      zip(own.document.tolist(), ids, strict=True)
    ):
      known = bool(earlier.tokens[i])
      records.append(
        {
          "source": name,
          "document": document,
          "id": identity,
          "loss": float(loss[i]),
          "tokens": int(own.tokens[i]),
          "spans": int(own.spans[i]),
          "first_step": int(own.first[i]),
          "last_step": int(own.last[i]),
          "loss_before": float(loss_before[i]) if known else None,
          "spans_before": int(earlier.spans[i]),
          "last_before": int(earlier.last[i]) if known else None,
          "relative": float(own.relative[i]),
          "relative_before": float(earlier.relative[i]) if known else None,
          "excess": float(own.relative[i] - earlier.relative[i]),
        }
      )
  return sorted(records, key=lambda own: -own["excess"])


def _within(
  pipe: pipeline.Pipeline, workdir: places.Place, first: int, last: int
) -> Mapping[str, _Sums]:
  """Returns sums over a range of steps, of the documents trained on in it."""
  seen: dict[str, list[np.ndarray]] = {name: [] for name in pipe.source_names}
  for found in _read(pipe, workdir, first, last):
    for number, name in enumerate(pipe.source_names):
      own = (found.spans.source == number) & (found.tokens > 0)
      seen[name].append(np.unique(found.spans.document[own]))
  sums = {
    name: _Sums(np.unique(np.concatenate([np.empty(0, np.int64), *own])))
    for name, own in seen.items()
  }
  _add(pipe, workdir, first, last, sums)
  return {name: own for name, own in sums.items() if len(own.document)}


def _add(
  pipe: pipeline.Pipeline,
  workdir: places.Place,
  first: int,
  last: int,
  sums: Mapping[str, _Sums],
) -> None:
  """Adds a range of steps to the sums of sources."""
  for found in _read(pipe, workdir, first, last):
    for number, name in enumerate(pipe.source_names):
      if name in sums:
        sums[name].add(found, number)


def _read(
  pipe: pipeline.Pipeline, workdir: places.Place, first: int, last: int
) -> Iterator[span_losses.Logged]:
  for begin in range(first, last, _BLOCK_STEPS):
    end = min(begin + _BLOCK_STEPS, last)
    yield from span_losses.read(pipe, workdir, begin, end)
