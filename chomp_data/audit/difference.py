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
from chomp_data.audit import steps as steps_lib
from chomp_data.config import edits
from chomp_data.config import options as options_lib
from chomp_data.loading import state as state_lib
from chomp_data.plans import answers
from chomp_data.plans import occurrences

# Ids that are listed of documents that only one run gives.
_MOST_IDS = 10

# Fields that decide what is made of spans, and not which there are.
_NOT_OF_SPANS = re.compile(
  r"schema|seq_len|batch_format|train_on_eos|lookahead|document_id|operations"
  r"|keep_fields|num_targets|columns(\..+)?|mask_boundary_loss"
  r"|buckets\.(?!stages).*"
  r"|sources\..+\.(store|filler_id|bos_id|eos_id|token_before_document)"
  r"|sources\..+\.rows\.(filler|trailing_filler_in_segment|reset_positions"
  r"|.*_token_id|document_slots|eos_before_document)"
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
    "a checkpoint must be of a run that differs from the other one in stages,"
    " skips and batch sizes only, got others:\n  "
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
  data = dataclasses.replace(run.data, skip=edits.skip_of(steps))
  if "global_batch_size" in saved:
    data = dataclasses.replace(
      data, global_batch_size=None, batch_size_schedule=steps.sizes
    )
  files = getattr(run.data, "tombstones", ())
  if files:
    tombstones = pipe.fingerprint.get("tombstones", {})
    in_state = saved.get("tombstones", {})
    data = dataclasses.replace(
      data,
      tombstones=tuple(
        (at, path)
        for at, path in files
        if str(at) in in_state and in_state[str(at)] == tombstones.get(str(at))
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
  step = steps_lib.first_difference(a, b, range(low, end))
  if step is not None:
    return step
  return end if end < steps and ends[0] != ends[1] else None


def _by_source(
  a: pipeline.Pipeline, b: pipeline.Pipeline, steps: int
) -> dict[str, dict[str, SourceSummary | None]]:
  """Returns what runs take of sources that they do not take alike."""
  runs = a, b
  ends = [min(steps, run.num_steps or steps) for run in runs]
  accounts = [run.accounts.at(end) for run, end in zip(runs, ends, strict=True)]
  out: dict[str, dict[str, SourceSummary | None]] = {}
  for name in dict.fromkeys([*a.source_names, *b.source_names]):
    counts = [by_name.get(name) for by_name in accounts]
    if counts[0] == counts[1] and _alike(a, b, name):
      continue
    seen = [
      _documents(run, name, end) if count and count.rows else np.arange(0)
      for run, end, count in zip(runs, ends, counts, strict=True)
    ]
    others = _others(a, b, name, seen)
    summaries = [
      count
      and SourceSummary(
        count.rows,
        count.tokens,
        count.loss_tokens,
        documents=len(documents),
        only_here=len(only_here),
        ids=tuple(_ids(run, name, only_here[:_MOST_IDS])),
      )
      for run, count, documents, only_here in zip(
        runs, counts, seen, others, strict=True
      )
    ]
    # The same in all may come in another order.
    if summaries[0] != summaries[1]:
      out[name] = dict(zip("ab", summaries, strict=True))
  return out


def _documents(pipe: pipeline.Pipeline, name: str, step: int) -> np.ndarray:
  """Returns int64[N], the documents that a run takes of a source."""
  plan = pipe.run_plan
  count = answers.of(plan).num_documents(name)
  return occurrences.documents_read(plan, name, count, step)


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
