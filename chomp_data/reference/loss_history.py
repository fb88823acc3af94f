# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which documents of some steps cost more than they used to.

Joins what a run wrote by span (`span_losses`) with its plan: each document of a
range of steps, its loss there, and what it lost when the run read it before.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
from typing import Any

import numpy as np

from chomp_data import pipeline
from chomp_data.reference import span_losses
from chomp_data.storage import storage

# Steps that are planned at once.
_BLOCK_STEPS = 2_048
# Steps over which a source's mean is taken: losses fall as a run goes on, so
# each is compared with what its source lost at that time.
_MEAN_STEPS = 64


@dataclasses.dataclass(frozen=True)
class _Trained:
  """Spans with trained tokens, and what their sources lost at that time.

  Attributes:
    source: int64[N], numbers of their sources.
    document: int64[N].
    step: int64[N], ascending.
    loss: float64[N], nats a token; 0 where none weighs.
    tokens: int64[N], trained ones.
    usual: float64[N], the mean loss of the source in the 64 steps around.
  """

  source: np.ndarray
  document: np.ndarray
  step: np.ndarray
  loss: np.ndarray
  tokens: np.ndarray
  usual: np.ndarray


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

  def add(self, trained: _Trained, number: int) -> None:
    """Adds the spans of source `number` that are of these documents."""
    of_source = np.flatnonzero(trained.source == number)
    if not len(of_source) or not len(self.document):
      return
    at = np.searchsorted(self.document, trained.document[of_source])
    at = np.minimum(at, len(self.document) - 1)
    held = self.document[at] == trained.document[of_source]
    of_source, at = of_source[held], at[held]
    count = len(self.document)
    tokens, loss = trained.tokens[of_source], trained.loss[of_source]
    self.nll += np.bincount(at, loss * tokens, count)
    relative = (loss - trained.usual[of_source]) * tokens
    self.relative_nll += np.bincount(at, relative, count)
    self.tokens += np.bincount(at, tokens, count).astype(np.int64)
    self.spans += np.bincount(at, minlength=count)
    step = trained.step[of_source]
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


def documents(
  pipe: pipeline.Pipeline, workdir: storage.Storage, first: int, last: int
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
  before = {name: _Sums(sums.document) for name, sums in within.items()}
  _add(pipe, workdir, begun, first, before)
  records: list[dict[str, Any]] = []
  for name, sums in within.items():
    earlier = before[name]
    ids = pipe.sources[name].store.document_ids(sums.document)
    loss, loss_before = sums.loss, earlier.loss
    for i, (document, identity) in enumerate(
      zip(sums.document.tolist(), ids, strict=True)
    ):
      known = bool(earlier.tokens[i])
      records.append(
        {
          "source": name,
          "document": document,
          "id": identity,
          "loss": float(loss[i]),
          "tokens": int(sums.tokens[i]),
          "spans": int(sums.spans[i]),
          "first_step": int(sums.first[i]),
          "last_step": int(sums.last[i]),
          "loss_before": float(loss_before[i]) if known else None,
          "spans_before": int(earlier.spans[i]),
          "last_before": int(earlier.last[i]) if known else None,
          "relative": float(sums.relative[i]),
          "relative_before": float(earlier.relative[i]) if known else None,
          "excess": float(sums.relative[i] - earlier.relative[i]),
        }
      )
  return sorted(records, key=lambda record: -record["excess"])


def _within(
  pipe: pipeline.Pipeline, workdir: storage.Storage, first: int, last: int
) -> Mapping[str, _Sums]:
  """Returns sums over a range of steps, of the documents trained on in it."""
  seen: dict[str, list[np.ndarray]] = {name: [] for name in pipe.source_names}
  for trained in _read(pipe, workdir, first, last):
    for number, name in enumerate(pipe.source_names):
      of_source = trained.source == number
      seen[name].append(np.unique(trained.document[of_source]))
  sums = {
    name: _Sums(np.unique(np.concatenate([np.empty(0, np.int64), *parts])))
    for name, parts in seen.items()
  }
  _add(pipe, workdir, first, last, sums)
  return {name: totals for name, totals in sums.items() if len(totals.document)}


def _add(
  pipe: pipeline.Pipeline,
  workdir: storage.Storage,
  first: int,
  last: int,
  sums: Mapping[str, _Sums],
) -> None:
  """Adds a range of steps to the sums of sources."""
  for trained in _read(pipe, workdir, first, last):
    for number, name in enumerate(pipe.source_names):
      if name in sums:
        sums[name].add(trained, number)


def _read(
  pipe: pipeline.Pipeline, workdir: storage.Storage, first: int, last: int
) -> Iterator[_Trained]:
  """Yields the spans of steps first .. last - 1 that were trained on."""
  if first >= last:
    return
  # Means are of whole stretches of 64 steps, as far as they were written: of
  # one step alone, a source's only document would be its own mean.
  begun, ended = span_losses.steps_written(workdir)
  low = min(first, max(first // _MEAN_STEPS * _MEAN_STEPS, begun))
  high = max(last, min(-(-last // _MEAN_STEPS) * _MEAN_STEPS, ended))
  inner = range((low // _BLOCK_STEPS + 1) * _BLOCK_STEPS, high, _BLOCK_STEPS)
  for begin, end in itertools.pairwise([low, *inner, high]):
    parts = list(span_losses.read(pipe, workdir, begin, end))
    for part, usual in zip(parts, _usual(parts), strict=True):
      pick = (part.tokens > 0) & (part.step >= first) & (part.step < last)
      yield _Trained(
        source=part.spans.source[pick],
        document=part.spans.document[pick],
        step=part.step[pick],
        loss=np.nan_to_num(part.loss[pick].astype(np.float64)),
        tokens=part.tokens[pick],
        usual=usual[pick],
      )


def _usual(parts: Sequence[span_losses.Logged]) -> list[np.ndarray]:
  """Returns the mean loss of its source around each span, by part."""
  first = parts[0].first_step // _MEAN_STEPS
  stretches = int(parts[-1].step.max(initial=0)) // _MEAN_STEPS - first + 1
  stretches = max(stretches, 1)
  keys = [
    part.spans.source.astype(np.int64) * stretches
    + part.step // _MEAN_STEPS
    - first
    for part in parts
  ]
  count = 1 + max(int(key.max(initial=0)) for key in keys)
  nll, tokens = np.zeros(count), np.zeros(count)
  for part, key in zip(parts, keys, strict=True):
    loss = np.nan_to_num(part.loss.astype(np.float64))
    nll += np.bincount(key, loss * part.tokens, count)
    tokens += np.bincount(key, part.tokens, count)
  mean = nll / np.maximum(tokens, 1)
  return [mean[key] for key in keys]
