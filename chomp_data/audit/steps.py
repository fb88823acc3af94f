# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps that are asked about, the spans that they hold, and the first change.

Samples of arrays are spans of one position here: their `document` is the
number of the sample in its store, and padding has no span.
"""

from collections.abc import Iterator

import numpy as np

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.plans import answers
from chomp_data.rows import spans as spans_lib

# Rows that are planned at once, and steps of buckets.
BLOCK_ROWS = 65_536
_BLOCK_STEPS = 1_024

# What is compared of spans, beside their documents. A missing array is 0: no
# token was added, and no span masked.
_COMPARED = (
  "row",
  "start",
  "length",
  "column",
  "segment",
  "added_before",
  "added_after",
  "masked",
)


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
    return steps
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
  if pipe.num_steps is not None and step >= pipe.num_steps:
    raise schema.ConfigError(
      [
        f"`{flag}` must be below the run's {pipe.num_steps} steps, got step"
        f" {step}. Lower it, or raise the run's epochs."
      ]
    )


def spans_of(
  pipe: pipeline.Pipeline, first: int, count: int = 1
) -> spans_lib.Spans:
  """Returns the planned spans of some steps, whose rows follow each other."""
  if pipe.sources:
    return pipe.plan(first, count)
  questions, parts = answers.of(pipe.run_plan), []
  for step in range(first, first + count):
    numbers = questions.sample_numbers(step)
    row = np.flatnonzero(numbers >= 0)
    source, _ = pipe.run_plan.at(step)
    assert source is not None
    parts.append(spans_lib.of_samples(numbers[row], source, row, len(numbers)))
  return spans_lib.concatenated(parts)


def walk(
  pipe: pipeline.Pipeline, first: int, last: int
) -> Iterator[tuple[range, spans_lib.Spans]]:
  """Yields steps first to last - 1 in blocks, and the spans of each block."""
  size = _block_steps(pipe)
  for begin in range(first, last, size):
    steps = range(begin, min(begin + size, last))
    yield steps, spans_of(pipe, begin, len(steps))


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
  names = list(dict.fromkeys([*a.source_names, *b.source_names]))
  same_stores = {name for name in names if _is_same_store(a, b, name)}
  first, size, most = steps.start, 1, min(_block_steps(a), _block_steps(b))
  while first < steps.stop:
    count = min(size, steps.stop - first)
    sizes = [_rows_of_steps(run, first, count) for run in (a, b)]
    same = sizes[0] == sizes[1]
    count = count if same.all() else int(np.argmin(same))
    if count:
      both = [spans_of(run, first, count) for run in (a, b)]
      row = _first_row((a, b), both, names, same_stores)
      if row is not None:
        ends = np.cumsum(sizes[0][:count])
        return first + int(np.searchsorted(ends, row, "right"))
    first += count
    if not same.all():
      return first
    # Most runs that differ do so at once.
    size = min(4 * size, most)
  return None


def _block_steps(pipe: pipeline.Pipeline) -> int:
  """Returns how many steps are planned at once."""
  rows = max(bucket.batch_size for bucket in pipe.buckets)
  most = max(1, BLOCK_ROWS // rows)
  return most if pipe.run_options.kind == "rows" else min(most, _BLOCK_STEPS)


def _rows_of_steps(
  pipe: pipeline.Pipeline, first: int, count: int
) -> np.ndarray:
  """Returns int64[count], the rows of steps."""
  steps = np.arange(first, first + count)
  if pipe.run_options.kind == "rows":
    return pipe.run_plan.steps.sizes_of(pipe.run_plan.steps.data_steps(steps))
  sizes = {bucket.name: bucket.batch_size for bucket in pipe.buckets}
  return np.asarray([sizes[pipe.bucket_of(s)[1]] for s in steps.tolist()])


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


def _first_row(
  runs: tuple[pipeline.Pipeline, pipeline.Pipeline],
  both: list[spans_lib.Spans],
  names: list[str],
  same_stores: set[str],
) -> int | None:
  """Returns the first row that holds other spans."""
  count = min(map(len, both))
  same = np.ones(count, np.bool_)
  for field in _COMPARED:
    one, other = (
      np.zeros(count, np.int64) if value is None else value[:count]
      for value in (getattr(spans, field) for spans in both)
    )
    same &= one == other
  sources = [
    np.asarray([names.index(name) for name in run.source_names])[
      spans.source[:count]
    ]
    for run, spans in zip(runs, both, strict=True)
  ]
  documents = [spans.document[:count] for spans in both]
  same &= sources[0] == sources[1]
  for number, name in enumerate(names):
    pick = np.flatnonzero(same & (sources[0] == number))
    ids = [part[pick] for part in documents]
    if name not in same_stores:
      if not all(name in run.sources for run in runs):
        same[pick] = False
        continue
      ids = [
        np.asarray(run.sources[name].store.document_ids(part))
        for run, part in zip(runs, ids, strict=True)
      ]
    same[pick] = ids[0] == ids[1]
  at = count if same.all() else int(np.argmin(same))
  rows = [int(spans.row[at]) for spans in both if at < len(spans)]
  return min(rows, default=None)
