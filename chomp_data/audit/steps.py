# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps that are asked about, the spans that they hold, and the first change.

Samples of arrays are spans of one position here: their `document` is the
number of the sample in its store, and padding has no span.
"""

from collections.abc import Iterator
import dataclasses

import numpy as np

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.plans import batches_plan
from chomp_data.plans import digests
from chomp_data.plans import ledger
from chomp_data.plans import plan as plan_lib
from chomp_data.rows import spans as spans_lib

# The most rows that are planned at once, and how much blocks grow until then.
BLOCK_ROWS = 65_536
_GROWTH = 4


def num_steps(*pipes: pipeline.Pipeline, steps: int | None) -> int:
  """Returns the steps that are asked about: all of the longest run by default.

  Args:
    *pipes: The runs.
    steps: What --steps says, or None.

  Raises:
    ConfigError: If no run has as many, or one has no end and none are asked
      for.
  """
  ends = [pipe.num_steps for pipe in pipes]
  most = max((end or 0 for end in ends), default=0)
  if None not in ends and (steps is None or steps <= most):
    return most if steps is None else steps
  if steps is None:
    when = "for a run without an end"
    if len(pipes) > 1:
      when = "where a run has no end"
    raise schema.ConfigError(
      [
        f"`--steps` must be given {when}, got none. Say how many steps are"
        " meant, or set `config.data.epochs`."
      ]
    )
  if None in ends:
    limit = max(plan_lib.step_limit(pipe.run_plan) for pipe in pipes)
    if steps <= limit:
      return steps
    raise schema.ConfigError(
      [f"`--steps` must be at most {limit}, got {steps}. Lower it."]
    )
  whose = f"the run's {most} steps"
  if len(pipes) > 1:
    whose = f"the {most} steps of the longer run"
  raise schema.ConfigError(
    [
      f"`--steps` must be at most {whose}, got {steps}. Lower it, or raise"
      " `config.data.epochs`."
    ]
  )


def check(pipe: pipeline.Pipeline, step: int, flag: str) -> None:
  """Raises ConfigError unless a step is of the run.

  Args:
    pipe: The run.
    step: The step.
    flag: The flag that names it.
  """
  limit = plan_lib.step_limit(pipe.run_plan)
  if step >= limit:
    whose = f"the run's {limit} steps"
    fix = "Lower it, or raise the run's epochs."
    if pipe.num_steps is None:
      whose, fix = f"{limit}, the most steps of a run", "Lower it."
    raise schema.ConfigError(
      [f"`{flag}` must be below {whose}, got step {step}. {fix}"]
    )


def spans_of(
  pipe: pipeline.Pipeline, first: int, count: int = 1
) -> spans_lib.Spans:
  """Returns the planned spans of some steps, whose rows follow each other."""
  if pipe.sources:
    return pipe.plan(first, count)
  parts = []
  for step in range(first, first + count):
    numbers = sample_numbers(pipe, step)
    row = np.flatnonzero(numbers >= 0)
    source, _ = pipe.run_plan.at(step)
    assert source is not None
    parts.append(spans_lib.of_samples(numbers[row], source, row, len(numbers)))
  return spans_lib.concatenated(parts)


def sample_numbers(pipe: pipeline.Pipeline, step: int) -> np.ndarray:
  """Returns the store's numbers of a step's arrays, int64[R]; -1 is padding."""
  plan = pipe.run_plan
  assert isinstance(plan, batches_plan.BatchesPlan)
  planned = plan.planned(step)
  assert planned.samples is not None
  numbers = np.full(len(planned.samples), -1, np.int64)
  real = planned.samples >= 0
  dataset = plan.datasets[plan.source_names[planned.dataset]]
  numbers[real] = dataset.numbers_of(planned.bucket, planned.samples[real])
  return numbers


def walk(
  pipe: pipeline.Pipeline, first: int, last: int
) -> Iterator[tuple[range, spans_lib.Spans]]:
  """Yields steps first to last - 1 in blocks, and the spans of each block.

  The first block is one step and later ones grow, so that whoever looks for a
  step near the first one does not wait for many.
  """
  block_rows = 1
  while first < last:
    steps = next(ledger.groups(pipe.run_plan, first, last, block_rows))
    spans = spans_of(pipe, first, len(steps))
    yield steps, spans
    first = steps.stop
    block_rows = min(_GROWTH * max(block_rows, spans.num_rows), BLOCK_ROWS)


def first_difference(
  a: pipeline.Pipeline, b: pipeline.Pipeline, steps: range
) -> int | None:
  """Returns the first of some steps that holds other spans in two runs.

  Documents of stores that differ are the same if their ids are; samples of
  such stores, which have no ids, are others.

  Args:
    a: One run.
    b: The other.
    steps: Steps of both.
  """
  names = {*a.source_names, *b.source_names}
  differing = {name for name in names if not _is_same_store(a, b, name)}
  numbers: dict[str, int] = {}
  both = [_contents(run, steps, differing, numbers) for run in (a, b)]
  for step, content, other in zip(steps, *both, strict=True):
    if content != other:
      return step
  return None


def _contents(
  pipe: pipeline.Pipeline,
  steps: range,
  differing: set[str],
  numbers: dict[str, int],
) -> Iterator[tuple[int, int]]:
  """Yields the number of rows and a digest of the spans of each step.

  Args:
    pipe: The run.
    steps: The steps.
    differing: The sources whose documents have other numbers in another run.
    numbers: A number of each id of their documents, to which ids are added.
  """
  keys: list[np.ndarray] = []
  for name in pipe.source_names:
    # Samples have no ids: those of another store are other samples.
    is_other = name in differing and name not in pipe.sources
    keys.append(digests.name_keys(name, *([id(pipe)] if is_other else [])))
  for group, spans in walk(pipe, steps.start, steps.stop):
    document = spans.document.copy()
    for source, name in enumerate(pipe.source_names):
      if name in differing and name in pipe.sources:
        pick = np.flatnonzero(spans.source == source)
        ids = pipe.sources[name].store.document_ids(document[pick])
        document[pick] = [numbers.setdefault(i, len(numbers)) for i in ids]
    spans = dataclasses.replace(spans, document=document)
    size = spans.num_rows // len(group)
    rows = np.tile(np.arange(size), len(group))
    for digest in digests.of_spans(
      spans, np.asarray(group), rows, np.stack(keys, 1)
    ):
      yield size, digest


def _is_same_store(
  a: pipeline.Pipeline, b: pipeline.Pipeline, name: str
) -> bool:
  """Returns whether documents of a source have the same numbers in two runs."""
  if name not in a.source_names or name not in b.source_names:
    return False
  stores = [
    run.sources[name].store.hash
    if name in run.sources
    else run.fingerprint["sources"][name].get("store")
    for run in (a, b)
  ]
  return bool(a.sources) == bool(b.sources) and stores[0] == stores[1]
