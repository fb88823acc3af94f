# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a run will consume: rows, tokens, padding and epochs by source.

Counts are `pipe.accounts`, which the trainer logs and checkpoints keep; what
is here says when a source begins again or ends, and which positions of batches
hold no token.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

import numpy as np

from chomp_data import pipeline
from chomp_data.config import edits
from chomp_data.plans import answers
from chomp_data.plans import questions as questions_lib
from chomp_data.plans import summary

# Begins of epochs that are looked up; further ones are counted.
_MOST_BEGINS = 8


@dataclasses.dataclass(frozen=True)
class Source:
  """What a run takes of one source up to a step.

  Attributes:
    rows: Rows (samples of arrays) taken, as the trainer logs them: since the
      start of the source, which an earlier run may have begun.
    tokens: Positions of them that hold a token; None of arrays.
    loss_tokens: Positions of them that are trained on, or None.
    epochs: Passes, the last one as a fraction.
    begins: The first steps of its passes from the second on, at most eight.
    ends: The first step before which it has given all it will, where that is
      within the steps, or None.
  """

  rows: int
  tokens: int | None
  loss_tokens: int | None
  epochs: float
  begins: tuple[int, ...]
  ends: int | None


@dataclasses.dataclass(frozen=True)
class Mark:
  """Something that changes at a step.

  Attributes:
    step: The step.
    kind: 'stage' of weights, 'buckets' of a curriculum, 'batch_size', 'skip',
      or 'tombstones'.
    text: What holds from there on.
  """

  step: int
  kind: str
  text: str


@dataclasses.dataclass(frozen=True)
class Forecast:
  """What the steps of a run hold.

  Attributes:
    steps: How many, from the first on.
    rows: Rows of sources, filler rows left out.
    filler_rows: Rows without any source.
    positions: Positions of all rows; None of arrays.
    tokens: Positions that hold a token, or None.
    loss_tokens: Positions that are trained on, or None.
    padding: Positions that hold none, or None.
    sources: By name.
    marks: By step.
  """

  steps: int
  rows: int
  filler_rows: int
  positions: int | None
  tokens: int | None
  loss_tokens: int | None
  padding: int | None
  sources: dict[str, Source]
  marks: list[Mark]

  def record(self) -> dict[str, Any]:
    """Returns it as JSON values."""
    return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class History:
  """Rows of sources along the steps.

  Attributes:
    names: Of the sources.
    steps: int64[P + 1], rising from 0.
    rows: int64[P + 1, len(names)], taken before each.
  """

  names: list[str]
  steps: np.ndarray
  rows: np.ndarray

  def shares(self) -> np.ndarray:
    """Returns float64[P, len(names)], shares of rows from point to point."""
    taken = np.diff(self.rows, axis=0)
    return taken / np.maximum(taken.sum(axis=1, keepdims=True), 1)


def history(pipe: pipeline.Pipeline, steps: int, points: int = 60) -> History:
  """Returns how many rows sources have given along the steps.

  Args:
    pipe: The run.
    steps: How many, at most its own.
    points: Most stretches of steps that are told apart.
  """
  at = np.unique(np.linspace(0, steps, points + 1).astype(np.int64))
  rows = [list(pipe.accounts.rows(step).values()) for step in at.tolist()]
  return History(pipe.source_names, at, np.asarray(rows, np.int64))


def forecast(pipe: pipeline.Pipeline, steps: int) -> Forecast:
  """Returns what the first steps of a run hold; reads no token.

  Args:
    pipe: The run.
    steps: How many, at most its own.

  Raises:
    IndexError: If the run has fewer.
  """
  accounts, questions = pipe.accounts, answers.of(pipe.run_plan)
  first, last = accounts.at(0), accounts.at(steps)
  held = questions.rows_held(steps)
  rows = sum(last[n].rows - counts.rows for n, counts in first.items())
  positions = tokens = loss_tokens = None
  if pipe.sources:
    shapes = {bucket.name: bucket.shape[0] for bucket in pipe.buckets}
    positions = sum(
      shapes[name] * rows_held for name, rows_held in held.items()
    )
    tokens = _taken(first, last, "tokens")
    loss_tokens = _taken(first, last, "loss_tokens")
  return Forecast(
    steps=steps,
    rows=rows,
    filler_rows=sum(held.values()) - rows,
    positions=positions,
    tokens=tokens,
    loss_tokens=loss_tokens,
    padding=(
      None if positions is None or tokens is None else positions - tokens
    ),
    sources={
      name: Source(
        **dataclasses.asdict(counts),
        begins=_begins(questions, name, counts.epochs, steps),
        ends=_within(questions.ends(name), steps),
      )
      for name, counts in last.items()
    },
    marks=_marks(pipe, steps),
  )


def _taken(first: Mapping, last: Mapping, unit: str) -> int | None:
  """Returns a unit's sum over sources; None where one does not tell it."""
  total = 0
  for name, before_counts in first.items():
    before, after = getattr(before_counts, unit), getattr(last[name], unit)
    if before is None or after is None:
      return None
    total += after - before
  return total


def _begins(
  questions: questions_lib.Questions, name: str, epochs: float, steps: int
) -> tuple[int, ...]:
  """Returns the first steps of a source's passes but the first."""
  begins = []
  epoch = 1
  while epoch < epochs and len(begins) < _MOST_BEGINS:
    step = questions.epoch_begins(name, epoch)
    # Those before the run have none. In a curriculum a source was passed when
    # all of its buckets were: samples may be many epochs ahead of that.
    if step is not None:
      if step >= steps:
        break
      begins.append(step)
    epoch += 1
  return tuple(begins)


def _within(step: int | None, steps: int) -> int | None:
  return None if step is None or step > steps else step


def _marks(pipe: pipeline.Pipeline, steps: int) -> list[Mark]:
  """Returns where weights, batch sizes and data steps change."""
  changes: list[tuple[int, str, str]] = []
  questions, run_steps = answers.of(pipe.run_plan), pipe.run_plan.steps
  for step, weights in questions.stages:
    whole = sum(weights.values())
    shares = [
      f"{n} {float(weight / whole):.4g}" for n, weight in weights.items()
    ]
    changes.append((step, "stage", ", ".join(shares)))
  for step, text in summary.bucket_stages(pipe.run_plan):
    _, _, shares = text.partition(": ")
    changes.append((step, "buckets", shares))
  if len(run_steps.sizes) > 1:
    changes += [(s, "batch_size", f"{n} rows") for s, n in run_steps.sizes]
  changes += [
    (first, "skip", f"data steps {first} .. {last} are left out")
    for first, last in edits.skip_of(run_steps)
  ]
  changes += [
    (int(step), "tombstones", "documents are gone")
    for step in pipe.fingerprint.get("tombstones", {})
  ]
  # These count data steps.
  marks = [Mark(run_steps.before(step), *change) for step, *change in changes]
  return sorted((m for m in marks if m.step < steps), key=lambda m: m.step)
