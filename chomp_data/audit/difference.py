# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where two runs first hand out something else, why, and how much by then.

Runs are compared by their fingerprints first: up to the step at which a field
matters they are the same, and nothing is planned. From there on the spans of
steps are compared, many at once; no token is read.

Documents of stores that differ are compared by their ids.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fractions
import re
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data import joining
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.config import edits
from chomp_data.config import options as options_lib
from chomp_data.loading import state as state_lib
from chomp_data.plans import accounts as accounts_lib
from chomp_data.plans import answers
from chomp_data.rows import spans as spans_lib

# Rows compared at once, and steps of buckets.
BLOCK_ROWS = 65_536
_BLOCK_STEPS = 1_024

# Ids that are listed of documents that only one run gives.
_MOST_IDS = 10

# Fields that decide what is made of spans, and not which there are.
_NOT_OF_SPANS = re.compile(
  r"schema|seq_len|batch_format|train_on_eos|lookahead|document_id|operations"
  r"|mask_boundary_loss|buckets\.(?!stages).*"
  r"|sources\..+\.(store|filler_id|bos_id|eos_id|token_before_document)"
  r"|sources\..+\.rows\.(filler|trailing_filler_in_segment|reset_positions"
  r"|.*_token_id|document_slots|eos_before_document)"
)

_VALUES = (
  "row",
  "start",
  "length",
  "column",
  "segment",
  "added_before",
  "added_after",
  "masked",
)


@dataclasses.dataclass(frozen=True)
class SourceSummary:
  """What one run takes of a source.

  Attributes:
    rows: Rows, or samples.
    tokens: Of them; None of arrays.
    loss_tokens: Of them trained on, or None.
    documents: Documents (samples of arrays) of which it takes something.
    only_here: How many of these the other run takes nothing of.
    ids: The first of them, by id; samples by number.
  """

  rows: int
  tokens: int | None
  loss_tokens: int | None
  documents: int
  only_here: int
  ids: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Difference:
  """How two runs differ in their first steps.

  Attributes:
    steps: How many were compared.
    first_step: The first that is other, or None.
    fields: Why, a line each; fields that matter later, or not to batches, are
      left out.
    sources: By name, what A and B take of sources that they do not take alike;
      None where a run has no such source.
  """

  steps: int
  first_step: int | None
  fields: list[str]
  sources: dict[str, dict[str, SourceSummary | None]]

  @property
  def is_empty(self) -> bool:
    """Whether batches are the same."""
    return self.first_step is None and not self.fields

  def record(self) -> dict[str, Any]:
    """Returns it as JSON values."""
    return dataclasses.asdict(self)


def num_steps(
  a: pipeline.Pipeline, b: pipeline.Pipeline, steps: int | None
) -> int:
  """Returns the steps to compare: all of the longer run by default.

  Raises:
    ConfigError: If both runs have fewer, or one has no end and none are given.
  """
  ends = a.num_steps, b.num_steps
  if steps is None and None in ends:
    raise schema.ConfigError(
      [
        "`--steps` must be given where a run has no end, got none. Say how many"
        " steps are compared."
      ]
    )
  most = None if None in ends else max(end or 0 for end in ends)
  if steps is not None and most is not None and steps > most:
    raise schema.ConfigError(
      [
        f"`--steps` must be at most the {most} steps of the longer run, got"
        f" {steps}. Lower it."
      ]
    )
  return (most if steps is None else steps) or 0


def as_saved(
  pipe: pipeline.Pipeline, saved: Mapping[str, Any], step: int
) -> pipeline.Pipeline:
  """Returns the run that a checkpoint is of, with the stores of another.

  A checkpoint says what was read and not where: stores come from a run that
  differs at most in stages, in edits (of tombstones only files that the other
  run has), and in stores that joined.

  Args:
    pipe: The run with the stores.
    saved: The fingerprint of the checkpoint.
    step: Its step.

  Raises:
    StateError: If they differ in more.
  """
  run = _edited(joining.continued(pipe.run_options, saved, step), pipe, saved)
  mix, buckets = saved.get("mix", {}), saved.get("buckets", {})
  # Beside a mix, one source alone is a mix of it.
  stages = mix.get("stages") or {"0": dict.fromkeys(saved["sources"], "1")}
  if run.mix is not None:
    names = {name for weights in stages.values() for name in weights}
    run = dataclasses.replace(
      run,
      sources={n: source for n, source in run.sources.items() if n in names},
      mix=dataclasses.replace(run.mix, weights=None, stages=_stages(stages)),
    )
  if run.buckets is not None:
    bucket_stages = buckets.get("stages")
    run = dataclasses.replace(
      run,
      buckets=dataclasses.replace(
        run.buckets,
        stages=None if bucket_stages is None else _stages(bucket_stages),
      ),
    )
  built, lines = None, []
  try:
    built = pipeline.Pipeline(run)
    lines = _lines(state_lib.changes(saved, built.fingerprint))
  except schema.ConfigError as error:
    lines = error.problems
  if built is not None and not lines:
    return built
  raise errors.StateError(
    "a checkpoint must be of a run that differs from the other one in stages"
    " and edits only, got others:\n  "
    + "\n  ".join(
      line.replace("A has", "checkpoint has").replace("B has", "config has")
      for line in lines
    )
    + "\nGive the config that it was trained with in its place."
  )


def _edited(
  run: options_lib.RunOptions,
  pipe: pipeline.Pipeline,
  saved: Mapping[str, Any],
) -> options_lib.RunOptions:
  """Returns a run with the skips, sizes and tombstones of a checkpoint."""
  steps = edits.steps_of(saved)
  data = dataclasses.replace(run.data, skip=steps.skip)
  if "global_batch_size" in saved:
    data = dataclasses.replace(
      data, global_batch_size=None, batch_size_schedule=steps.sizes
    )
  files = getattr(run.data, "tombstones", ())
  if files:
    tombstones = pipe.fingerprint.get("tombstones", {})
    gone = saved.get("tombstones", {})
    data = dataclasses.replace(
      data,
      tombstones=tuple(
        (at, path)
        for at, path in files
        if str(at) in gone and gone[str(at)] == tombstones.get(str(at))
      ),
    )
  return dataclasses.replace(run, data=data)


def _stages(stages: Mapping[str, Mapping[str, str]]) -> tuple[Any, ...]:
  """Returns stages as options have them, from a fingerprint."""
  return tuple(
    (int(step), tuple((n, fractions.Fraction(w)) for n, w in weights.items()))
    for step, weights in sorted(stages.items(), key=lambda item: int(item[0]))
  )


def difference(
  a: pipeline.Pipeline, b: pipeline.Pipeline, steps: int
) -> Difference:
  """Compares the first steps of two runs; reads no token.

  Args:
    a: One run.
    b: The other.
    steps: How many; a run that ends before the other differs there.
  """
  first = _first_step(a, b, steps)
  if first is None:
    fields = [
      change
      for change in changes(a, b, steps)
      if _NOT_OF_SPANS.fullmatch(change[0])
    ]
    return Difference(steps, None, _lines(fields), {})
  # What matters at a step is of the steps before the next one.
  fields = changes(a, b, first + 1) or changes(a, b, None)
  return Difference(steps, first, _lines(fields), _by_source(a, b, steps))


def changes(
  a: pipeline.Pipeline, b: pipeline.Pipeline, step: int | None
) -> list[tuple[str, str, str]]:
  """Returns path and values of fields that matter before a step; None: all."""
  old, new = a.fingerprint, b.fingerprint
  if step is not None:
    old = joining.until(a.run_plan, old, step)
    new = joining.until(b.run_plan, new, step)
  return state_lib.changes(old, new, step)


def _lines(fields: list[tuple[str, str, str]]) -> list[str]:
  return [f"{path}: A has {was}, B has {now}" for path, was, now in fields]


def _first_step(
  a: pipeline.Pipeline, b: pipeline.Pipeline, steps: int
) -> int | None:
  """Returns the first step that holds other spans."""
  if not changes(a, b, steps):
    return None
  # The last step before which no field that differs has mattered.
  low, high = 0, steps
  while low < high:
    middle = (low + high + 1) // 2
    low, high = (low, middle - 1) if changes(a, b, middle) else (middle, high)
  ends = [
    steps if pipe.num_steps is None else pipe.num_steps for pipe in (a, b)
  ]
  end = min(*ends, steps)
  compared = _Spans(a, b) if a.sources and b.sources else _Samples(a, b)
  first, count = low, 1
  while first < end:
    count = min(count, end - first)
    step = compared.first_step(first, count)
    if step is not None:
      return step
    first += count
    # Most runs that differ do so at once.
    count = min(4 * count, compared.most_steps)
  return end if end < steps and ends[0] != ends[1] else None


class _Samples:
  """Compares steps of arrays."""

  most_steps = _BLOCK_STEPS

  def __init__(self, a: pipeline.Pipeline, b: pipeline.Pipeline):
    self._runs = a, b
    # Samples have numbers only: of other stores they are others.
    self._same_stores = {
      name
      for name in a.source_names
      if name in b.source_names
      and a.fingerprint["sources"][name].get("store")
      == b.fingerprint["sources"][name].get("store")
    }

  def first_step(self, first: int, count: int) -> int | None:
    """Returns the first of some steps that is other."""
    a, b = self._runs
    for step in range(first, first + count):
      if bool(a.sources) != bool(b.sources):
        return step
      if a.bucket_of(step) != b.bucket_of(step):
        return step
      if a.bucket_of(step)[0] not in self._same_stores:
        return step
      of_a, of_b = (pipe.run_plan.planned(step).samples for pipe in (a, b))
      assert of_a is not None
      assert of_b is not None
      if not np.array_equal(of_a, of_b):
        return step
    return None


class _Spans:
  """Compares spans of text."""

  def __init__(self, a: pipeline.Pipeline, b: pipeline.Pipeline):
    self._runs = a, b
    self._names = list(dict.fromkeys([*a.source_names, *b.source_names]))
    # Sources whose documents have the same numbers in both.
    self._same = {
      name
      for name in self._names
      if name in a.sources
      and name in b.sources
      and a.sources[name].store.hash == b.sources[name].store.hash
    }
    rows = max(bucket.batch_size for pipe in (a, b) for bucket in pipe.buckets)
    self.most_steps: int = max(1, BLOCK_ROWS // rows)
    if {a.run_options.kind, b.run_options.kind} != {"rows"}:
      self.most_steps = min(self.most_steps, _BLOCK_STEPS)

  def first_step(self, first: int, count: int) -> int | None:
    """Returns the first of some steps that is other."""
    sizes = [_sizes(run, first, count) for run in self._runs]
    same = sizes[0] == sizes[1]
    known = count if same.all() else int(np.argmin(same))
    if known:
      ends = np.cumsum(sizes[0][:known])
      row = self._first_row(*(run.plan(first, known) for run in self._runs))
      if row is not None:
        return first + int(np.searchsorted(ends, row, "right"))
    return None if known == count else first + known

  def _first_row(self, a: spans_lib.Spans, b: spans_lib.Spans) -> int | None:
    """Returns the first row that holds other spans."""
    count = min(len(a), len(b))
    same = np.ones(count, np.bool_)
    for name in _VALUES:
      values = []
      for spans in (a, b):
        value = getattr(spans, name, None)
        # A missing array is 0: no token was added, and no span masked.
        values.append(
          np.zeros(count, np.int64) if value is None else value[:count]
        )
      same &= values[0] == values[1]
    same &= self._same_documents(a, b, count)
    at = count if same.all() else int(np.argmin(same))
    rows = [int(spans.row[at]) for spans in (a, b) if at < len(spans)]
    return min(rows, default=None)

  def _same_documents(
    self, a: spans_lib.Spans, b: spans_lib.Spans, count: int
  ) -> np.ndarray:
    """Returns which of the first spans are of the same document, bool[N]."""
    numbers = [
      np.asarray([self._names.index(name) for name in run.source_names])[
        spans.source[:count]
      ]
      for run, spans in zip(self._runs, (a, b), strict=True)
    ]
    same = numbers[0] == numbers[1]
    same_number = a.document[:count] == b.document[:count]
    for number, name in enumerate(self._names):
      pick = np.flatnonzero(same & (numbers[0] == number))
      if name in self._same:
        same[pick] = same_number[pick]
      elif pick.size:
        ids = [
          np.asarray(run.sources[name].store.document_ids(spans.document[pick]))
          for run, spans in zip(self._runs, (a, b), strict=True)
        ]
        same[pick] = ids[0] == ids[1]
    return same


def _sizes(pipe: pipeline.Pipeline, first: int, count: int) -> np.ndarray:
  """Returns int64[count], the rows of steps."""
  steps = np.arange(first, first + count)
  if pipe.run_options.kind == "rows":
    return pipe.run_plan.steps.sizes_of(pipe.run_plan.steps.data_steps(steps))
  sizes = {bucket.name: bucket.batch_size for bucket in pipe.buckets}
  return np.asarray([sizes[pipe.bucket_of(s)[1]] for s in steps.tolist()])


def _by_source(
  a: pipeline.Pipeline, b: pipeline.Pipeline, steps: int
) -> dict[str, dict[str, SourceSummary | None]]:
  """Returns what runs take of sources that they do not take alike."""
  taken: list[_Taken] = []
  for run in (a, b):
    step = min(steps, run.num_steps or steps)
    taken.append(_Taken(run, step, run.accounts.at(step)))
  out: dict[str, dict[str, SourceSummary | None]] = {}
  for name in dict.fromkeys([*a.source_names, *b.source_names]):
    accounts = [side.accounts.get(name) for side in taken]
    if accounts[0] == accounts[1] and _alike(a, b, name):
      continue
    seen = [side.documents(name) for side in taken]
    others = _others(a, b, name, seen)
    summaries = [
      side.summary(name, documents, other)
      for side, documents, other in zip(taken, seen, others, strict=True)
    ]
    # The same in all may come in another order.
    if summaries[0] != summaries[1]:
      out[name] = dict(zip("ab", summaries, strict=True))
  return out


@dataclasses.dataclass(frozen=True)
class _Taken:
  """What a run takes before a step."""

  pipe: pipeline.Pipeline
  step: int
  accounts: Mapping[str, accounts_lib.Account]

  def documents(self, name: str) -> np.ndarray:
    """Returns int64[N], the documents taken of a source, if there is one."""
    account = self.accounts.get(name)
    if account is None or not account.rows:
      return np.empty(0, np.int64)
    questions = answers.of(self.pipe.run_plan)
    return np.flatnonzero(questions.documents(name, self.step))

  def summary(
    self, name: str, documents: np.ndarray, others: np.ndarray
  ) -> SourceSummary | None:
    account = self.accounts.get(name)
    if account is None:
      return None
    return SourceSummary(
      rows=account.rows,
      tokens=account.tokens,
      loss_tokens=account.loss_tokens,
      documents=len(documents),
      only_here=len(others),
      ids=tuple(_ids(self.pipe, name, others[:_MOST_IDS])),
    )


def _alike(a: pipeline.Pipeline, b: pipeline.Pipeline, name: str) -> bool:
  """Returns whether as many rows of a source are the same rows."""
  if name not in a.source_names or name not in b.source_names:
    return False
  old, new = a.fingerprint, b.fingerprint
  ours = ["seed", "seq_len", "skip", "tombstones"]
  if {a.run_options.kind, b.run_options.kind} != {"rows"}:
    ours += ["buckets", "remainder"]
  return old["sources"][name] == new["sources"][name] and all(
    old.get(key) == new.get(key) for key in ours
  )


def _others(
  a: pipeline.Pipeline,
  b: pipeline.Pipeline,
  name: str,
  seen: Sequence[np.ndarray],
) -> list[np.ndarray]:
  """Returns documents that only one run takes, int64[N] by run."""
  if name not in a.source_names or name not in b.source_names:
    return list(seen)
  hashes = [run.fingerprint["sources"][name]["store"] for run in (a, b)]
  if hashes[0] == hashes[1]:
    return [
      np.setdiff1d(seen[i], seen[1 - i], assume_unique=True) for i in (0, 1)
    ]
  if name not in a.sources or name not in b.sources:
    return list(seen)
  ids = [
    np.asarray(run.sources[name].store.document_ids(documents), np.str_)
    for run, documents in zip((a, b), seen, strict=True)
  ]
  return [seen[i][~np.isin(ids[i], ids[1 - i])] for i in (0, 1)]


def _ids(
  pipe: pipeline.Pipeline, name: str, documents: np.ndarray
) -> list[str]:
  if name not in pipe.sources:
    return [f"#{number}" for number in documents.tolist()]
  return pipe.sources[name].store.document_ids(documents)
