# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A run's whole input as a pure function of the step.

    pipe = build(config.data)          # everything is checked here
    pipe.plan(91_400)                  # spans; no token is read
    pipe.batch(91_400)                 # fields on the host

`build` collects every bad field before it reads data, so that one error lists
them all by dotted path. `iterators.make_iterator` puts batches on devices.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import pickle
import shlex
from typing import Any

from absl import logging
import grain
import numpy as np

from chomp_data import joining
from chomp_data import planning
from chomp_data import schema
from chomp_data.config import edits
from chomp_data.config import options as options_lib
from chomp_data.config import unset
from chomp_data.loading import batches
from chomp_data.loading import state
from chomp_data.loading import watching
from chomp_data.loading import workers
from chomp_data.plans import accounts as accounts_lib
from chomp_data.plans import answers
from chomp_data.plans import balance as balance_lib
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import summary
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source
from chomp_data.stores.zarr import zarr_opening
from chomp_data.transforms import applying
from chomp_data.transforms import sequence_layout

# Paths that a line of the summary names.
_SHOWN = 3

# Selected rows of a global batch: of each bucket by its name, or of the only
# bucket; None is all.
Rows = np.ndarray | Mapping[str, np.ndarray] | None


def _rows(value: Any) -> Rows:
  """Returns rows of one bucket, or of each by its name."""
  if isinstance(value, Mapping):
    return {name: _rising(rows) for name, rows in value.items()}
  return _rising(value)


def _rising(value: Any) -> np.ndarray:
  rows = schema.whole_numbers(1).convert(value)
  if (np.diff(rows) <= 0).any():
    raise ValueError
  return rows


_ROWS = schema.optional(
  schema.Rule(
    "ascending whole numbers of at least 0, a list or int64[R], or a mapping of"
    " buckets to such",
    _rows,
  )
)
_MAPPING = schema.optional(schema.mapping())
_STEP = schema.WHOLE


class Pipeline:
  """A run's whole input: a pure function of the step.

  Attributes:
    run_options: The whole of `config.data`, checked: `.data` holds the options
      outside of sections, `.sources`, `.mix` and others the sections.
    run_plan: Which samples every step holds.
    buckets: The static shapes of batches; runs without `config.data.buckets`
      have one.
    source_names: The sources' names, by number.
    sources: The rows of each source of text, by name, in the order of
      `source_id`; none where samples are arrays.
    operations: The transforms over batches that the config asks for.
  """

  run_options: options_lib.RunOptions
  run_plan: plan_lib.Plan
  buckets: tuple[buckets_lib.Bucket, ...]
  source_names: list[str]
  sources: dict[str, row_source.RowSource]
  operations: list[grain.transforms.Map]

  @schema.arguments(
    run=schema.instance(
      "options of a run, as `build(config.data)` reads them",
      options_lib.RunOptions,
    )
  )
  def __init__(self, run: options_lib.RunOptions):
    """Opens stores and selects documents; reads no token, and of arrays the
    first of each size.

    Args:
      run: The whole of `config.data`, checked.

    Raises:
      ConfigError: If options do not fit the stores.
      StoreError: If a store cannot be opened.
    """
    self.run_options = run
    self.run_plan = plan = planning.make_plan(run)
    self.buckets = plan.buckets
    self.source_names = plan.source_names
    self.sources = plan.sources
    self.operations = run.data.operations(plan.sources)
    for line in self._warnings():
      logging.warning("%s", line)

  @property
  def layout(self) -> list[grain.transforms.Map]:
    """The transforms of `config.data.sequence_layout`, after all others."""
    layout = self.run_options.sequence_layout
    if layout is None or layout.is_contiguous:
      return []
    if (columns := self.run_plan.columns) is not None:
      layout = dataclasses.replace(
        layout,
        fields=(*layout.fields, *columns.per_token),
        row_fields=(*layout.row_fields, *columns.per_document),
      )
    return [sequence_layout.ReorderColumns(layout)]

  def _warnings(self) -> Iterator[str]:
    """Yields warnings about options that were probably not intended.

    Raises:
      ConfigError: If `balance_shards` does not divide the rows of a step.
    """
    # Checks that `balance_shards` divides the rows of all steps.
    balance_lib.dealt_shards(self.run_options.data, self.buckets)
    if balance_lib.is_asked(self.run_options.data):
      for name, source in self.run_options.sources.items():
        if getattr(source.shuffle, "lanes", None) is not None:
          yield (
            "config.data.balance deals rows of every lane to all shards, so"
            f" that processes read each other's blocks of {name!r}. Unset"
            f" balance, or sources.{name}.shuffle.lanes."
          )
    questions, num_steps = answers.of(self.run_plan), self.num_steps
    yield from summary.repeat_warnings(self.run_plan)
    if num_steps is not None:
      yield from questions.unserved(num_steps)
      yield from questions.repeat_warnings(
        num_steps, self.run_options.max_epochs
      )

  @property
  def num_steps(self) -> int | None:
    """Steps of the run, or None if it has no end."""
    return self.run_plan.num_steps

  @property
  def seq_len(self) -> int:
    """Positions of the longest rows."""
    return self._text_bucket().shape[0]

  @property
  def global_batch_size(self) -> int:
    """Rows of a step of the longest rows, over all processes.

    With a schedule those of its last steps.
    """
    longest = self._text_bucket().batch_size
    return (
      self.run_plan.steps.last_size
      if self.run_options.kind == "rows"
      else longest
    )

  @property
  def vocab_size(self) -> int:
    """Token ids of the sources are below this."""
    self._text_bucket()
    return max(
      source.store.opened.tokenizer.vocab_size
      for source in self.sources.values()
    )

  def _text_bucket(self) -> buckets_lib.Bucket:
    """Returns the bucket of the longest rows."""
    if not self.sources:
      raise TypeError(
        "`config.data` must be of text to have rows of tokens, got buckets of"
        " kind 'resolution'. Ask for `buckets`."
      )
    return self.buckets[-1]

  @functools.cached_property
  def accounts(self) -> accounts_lib.Accounts:
    """What the run consumes before any step, by source."""
    entries = [
      dataclasses.asdict(line) for line in self.run_options.data.mix_entries
    ]
    return accounts_lib.Accounts(self.run_plan, entries)

  @functools.cached_property
  def fingerprint(self) -> dict[str, Any]:
    """Options and data that determine every batch, as JSON values.

    Left out: paths, workers, processes, prefetch, and the order of keys.
    """
    section = self.run_options.buckets
    return {
      "schema": row_source.FINGERPRINT_SCHEMA,
      **self.run_options.data.fingerprint(),
      **({} if section is None else section.fingerprint()),
      **self.run_plan.fingerprint,
      **self.run_plan.tombstones.fingerprint_field,
    }

  @schema.arguments(step=_STEP)
  def bucket_of(self, step: int) -> tuple[str | None, str]:
    """Returns the source (None in a run of rows) and bucket of a step.

    Raises:
      IndexError: If the step is not of the run.
    """
    source, bucket = self.run_plan.at(step)
    name = None if source is None else self.source_names[source]
    return name, self.buckets[bucket].name

  @schema.arguments(step=_STEP, count=schema.integer(0))
  def plan(self, step: int, count: int = 1) -> spans_lib.Spans:
    """Returns the spans of `count` steps from `step` on; reads no token.

    Args:
      step: The first step.
      count: How many steps; their rows follow each other.

    Raises:
      IndexError: If a step is not of the run.
      TypeError: If samples are arrays.
    """
    return plan_lib.spans_of(self.run_plan, step, count)

  @schema.arguments(step=_STEP, shards=_MAPPING)
  def row_order(
    self, step: int, shards: balance_lib.Shards | None = None
  ) -> np.ndarray:
    """Returns the planned row at each place of a step's batch on devices.

    Reads no token. It affects placement only: `plan`, `canonical` and `batch`
    return rows in their planned order.

    Args:
      step: The step.
      shards: The `shards` of the iterator that places them, or None for
        `config.data.balance_shards`.

    Returns:
      int64[batch_size], the row of `plan(step)` that each row of the global
      batch is: 0, 1, 2, ... unless `config.data.balance` deals them by cost.

    Raises:
      IndexError: If the step is not of the run.
    """
    plan, options = self.run_plan, self.run_options.data
    shards = balance_lib.dealt_shards(options, self.buckets, shards)
    count = balance_lib.shards_of(plan, step, shards)
    if count == 1:
      return np.arange(self.buckets[plan.at(step)[1]].batch_size)
    return balance_lib.order(plan, plan.planned(step), count)[0]

  @schema.arguments(step=_STEP, rows=_ROWS)
  def batch(self, step: int, rows: Rows = None) -> dict[str, np.ndarray]:
    """Returns a step's batch on the host, in the batch format.

    Columns are in the order of `config.data.sequence_layout`.

    Args:
      step: The step.
      rows: int64[R], ascending rows of its global batch, or None for all.

    Returns:
      Fields [R, ...].
    """
    return applying.applied(
      self.canonical(step, rows), [*self.operations, *self.layout]
    )

  @schema.arguments(step=_STEP, rows=_ROWS)
  def canonical(self, step: int, rows: Rows = None) -> dict[str, np.ndarray]:
    """Returns a step's canonical fields, whatever the format and layout.

    Args:
      step: The step.
      rows: int64[R], ascending rows of the global batch, or of each bucket by
        its name; None is all.
    """
    plan = self.run_plan
    planned = plan.planned(step, 1, self._of_step(step, rows))
    plan.prefetch(planned)
    return plan.read(planned)

  def _of_step(self, step: int, rows: Rows) -> Mapping[str, np.ndarray] | None:
    """Returns rows of a step by its bucket.

    Raises:
      ConfigError: If there are none of its bucket.
      IndexError: If one is not of the step, or the step not of the run.
    """
    if rows is None:
      return None
    bucket = self.buckets[self.run_plan.at(step)[1]]
    if isinstance(rows, Mapping) and bucket.name not in rows:
      raise schema.ConfigError(
        [
          f"`rows` must hold rows of bucket {bucket.name!r}, that of step"
          f" {step}, got {', '.join(rows) or 'none'}. Add them."
        ]
      )
    numbers = rows[bucket.name] if isinstance(rows, Mapping) else rows
    if len(numbers) and not numbers[-1] < bucket.batch_size:
      raise IndexError(
        f"`rows` must be in 0 .. {bucket.batch_size - 1}, the rows of step"
        f" {step}, got {numbers[-1]}. Ask for its rows."
      )
    return {bucket.name: numbers}

  @schema.arguments(
    rows=_ROWS,
    operations=applying.TRANSFORMS,
    worker_count=schema.optional(options_lib.RULES["worker_count"]),
  )
  def data_loader(
    self,
    rows: Rows = None,
    *,
    operations: Sequence[grain.transforms.Map] = (),
    worker_count: int | None = None,
  ) -> grain.DataLoader:
    """Returns a plain `grain.DataLoader` of process-local host batches.

    Args:
      rows: int64[R], ascending rows of the global batch that this process
        holds, of each bucket by its name or of all; None is all.
      operations: More transforms over batches, after the config's.
      worker_count: Child processes, or None for the config's.
    """
    from chomp_data.loading import feed  # jax only where devices are fed

    fingerprint = state.with_operations(self.fingerprint, operations)
    if rows is not None and not isinstance(rows, Mapping):
      rows = {bucket.name: rows for bucket in self.buckets}
    local = plan_lib.LocalRows(rows and dict(rows))
    source = batch_source(self, local, fingerprint)
    count = (
      self.run_options.data.worker_count
      if worker_count is None
      else worker_count
    )
    if count and not workers.may_help(source.is_mapped, operations):
      # Not set to 0 here: the loader's state depends on the number of workers.
      logging.log_first_n(
        logging.WARNING,
        "`worker_count` is %d, but all stores are files that are mapped into"
        " memory, and handing a batch over costs more than reading it. 0 is"
        " faster.",
        1,
        count,
      )
    return feed.data_loader(
      source,
      seed=self.run_options.data.seed,
      operations=[*self.operations, *operations, *self.layout],
      worker_count=count,
    )

  def describe(self) -> str:
    """Returns the run's summary for the log: the shapes of batches first."""
    steps = "endless" if self.num_steps is None else f"{self.num_steps} steps"
    shapes, *lines = summary.describe(self.run_plan)
    options = self.run_options.data
    of = " of" if self.run_options.kind == "rows" else ""
    head = (
      f"input: {steps}{of} {shapes}, seed {options.seed}, epochs"
      f" {options.epochs or 'for ever'}, remainder {options.remainder}"
    )
    entries = [f"  dataset_mix: {entry}" for entry in options.mix_entries]
    if self.run_plan.steps.skip:
      skipped = ", ".join(
        f"{low} .. {high}" for low, high in edits.skip_of(self.run_plan.steps)
      )
      entries.append(f"  skip: data steps {skipped}")
    entries += self.run_plan.tombstones.describe()
    entries += self._trusted()
    return "\n".join([head, *entries, *lines])

  def _trusted(self) -> list[str]:
    """Returns a log line for each source whose files have no checksums."""
    # Imported here: most runs read only stores of this package's format.
    from chomp_data.stores import adopting

    lines = []
    for name, source in self.run_options.sources.items():
      paths = adopting.trusted(source.paths)
      if paths:
        more = f" and {len(paths) - _SHOWN} more" * (len(paths) > _SHOWN)
        shown = " ".join(map(shlex.quote, paths[:_SHOWN]))
        lines.append(
          f"  {name}: trusted as found, its files have no checksums:"
          f" `chomp-stores adopt {shown}`{more} keeps some beside them"
        )
    return lines

  def __repr__(self) -> str:
    steps = "endless" if self.num_steps is None else f"{self.num_steps} steps"
    shapes = "; ".join(map(str, self.buckets))
    return (
      f"Pipeline({steps}, {shapes}, sources {', '.join(self.source_names)},"
      f" fingerprint {state.digest(self.fingerprint)[:16]})"
    )


def batch_source(
  pipe: Pipeline,
  local: plan_lib.LocalRows = plan_lib.ALL_ROWS,
  fingerprint: Mapping[str, Any] | None = None,
  group_steps: int | None = None,
) -> batches.BatchSource:
  """Returns the Grain source of process-local batches.

  Args:
    pipe: The run.
    local: What this process reads of each batch. With `config.data.balance` no
      `shards` are `config.data.balance_shards`; without it there are none.
    fingerprint: Shown in its `repr`, or None for the pipeline's.
    group_steps: The most steps that are planned and fetched together, or None
      for about 4,096 rows; has no effect on batches.
  """
  # A copy, because the caches of a plan serve one reader.
  plan = pickle.loads(pickle.dumps(pipe.run_plan))
  with zarr_opening.once(copies=True):
    for source in plan.sources.values():
      _ = source.store.opened
  planning.expect_reading(plan, pipe.run_options)
  options = pipe.run_options.data
  shards = balance_lib.dealt_shards(options, pipe.buckets, local.shards)
  if shards != local.shards:
    local = dataclasses.replace(local, shards=shards)
  return batches.BatchSource(
    plan,
    local,
    state.digest(fingerprint or pipe.fingerprint)[:16],
    group_steps,
    certificate=options.certificate,
  )


def continued(
  pipe: Pipeline,
  fingerprint: Mapping[str, Any],
  step: int,
  resize: bool = False,
) -> Pipeline:
  """Returns the run that continues a state.

  Args:
    pipe: The run of the config.
    fingerprint: The fingerprint of the state.
    step: The next step of the state; its run may have more steps than this one.
    resize: Whether the number of rows of a step may change at that step.

  Returns:
    The run with the batch sizes of the state, and with the epochs in which
    stores join; the same pipeline if neither changes anything.
  """
  run = joining.continued(pipe.run_options, fingerprint, step, resize)
  return pipe if run is pipe.run_options else Pipeline(run)


@watching.starting()
def build(data: Any) -> Pipeline:
  """Checks a config and composes its pipeline.

  Args:
    data: `config.data`, a ConfigDict or a mapping.

  Returns:
    The pipeline.

  Raises:
    ConfigError: If fields are wrong; all of them are listed.
    StoreError: If a store cannot be opened.
  """
  run = options_lib.read(data)
  pipe = Pipeline(run)
  for line in unset.lines(run.sources, pipe.sources):
    logging.warning("%s", line)
  for line in unset.lookahead_lines(
    getattr(run.data, "lookahead", False), run.sources
  ):
    logging.warning("%s", line)
  return pipe
