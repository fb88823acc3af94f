# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A run's whole input as a pure function of the step.

    pipe = build(config.data)          # everything is checked here
    pipe.plan(91_400)                  # spans; no token is read
    batches = make_iterator(pipe, sharding)

`build` collects every bad field before it reads data, so that one error lists
them all by dotted path.
"""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import pickle
import shlex
from typing import Any
from typing import TYPE_CHECKING

from absl import logging
import grain
import numpy as np

from chomp_data import joining
from chomp_data import planning
from chomp_data import schema
from chomp_data.config import options as options_lib
from chomp_data.config import unset
from chomp_data.index import steps as steps_lib
from chomp_data.loading import batches
from chomp_data.loading import reads as reads_lib
from chomp_data.loading import state
from chomp_data.loading import watching
from chomp_data.plans import accounts as accounts_lib
from chomp_data.plans import balance as balance_lib
from chomp_data.plans import certifying
from chomp_data.plans import mix as mix_lib
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import tombstones
from chomp_data.plans import trails
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import transfer_format
from chomp_data.sources import row_source
from chomp_data.splice import grid
from chomp_data.transforms import applying

if TYPE_CHECKING:
  from chomp_data.loading import feed
  from chomp_data.loading import placement

# Paths that a line of the summary names.
_SHOWN = 3

# Steps planned at once.
_STEPS = 256

# Rows of a global batch that are meant: of each bucket by its name, or of the
# one bucket that there is; None is all.
Rows = np.ndarray | Mapping[str, np.ndarray] | None


def _rows(value: Any) -> Rows:
  """Returns rows of one bucket, or of each by its name."""
  if isinstance(value, Mapping):
    return {name: _rising(own) for name, own in value.items()}
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
    options: The fields of `config.data` beside its sections.
    buckets: The static shapes of batches; runs without `config.data.buckets`
      have one.
    source_names: The sources' names, by number.
    sources: The rows of each source of text, by name, in the order of
      `source_id`; none where samples are arrays.
    mix: How sources share the run, or None for one alone.
    steps: Which data step each step is, and which rows it has; in buckets
      each step counts as one.
  """

  options: Any
  buckets: tuple[buckets_lib.Bucket, ...]
  source_names: list[str]
  sources: dict[str, row_source.RowSource]
  mix: mix_lib.Mix | None
  steps: steps_lib.Steps

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
    self._run = run
    self.options = run.data
    self._plan = plan = planning.make_plan(run)
    self.buckets = plan.buckets
    self.source_names = plan.source_names
    self.sources = plan.sources
    self.mix = plan.mix
    self.steps = plan.steps
    self._reads = reads_lib.Reads(plan.sources)
    self._operations = run.data.operations(plan.sources)
    self._shards = self._pinned_shards()
    if self.balances:
      for name, own in run.sources.items():
        if getattr(own.shuffle, "lanes", None) is not None:
          logging.warning(
            "config.data.balance deals rows of every lane to all shards, so"
            " that processes read each other's blocks of %r. Unset balance, or"
            " sources.%s.shuffle.lanes.",
            name,
            name,
          )
    for line in plan.warnings():
      logging.warning("%s", line)
    if self.mix is not None and self.num_steps is not None:
      for line in self.mix.unserved(self.num_steps):
        logging.warning("%s", line)
    if self.num_steps is not None:
      for line in self.repeats(self.num_steps):
        logging.warning("%s", line)

  @property
  def num_steps(self) -> int | None:
    """Steps of the run, or None where it goes on for ever."""
    return self._plan.num_steps

  @property
  def gone(self) -> tombstones.Tombstones:
    """Documents and spans that are gone from some data steps on."""
    return self._plan.gone

  @property
  def holds_text(self) -> bool:
    """Whether samples are rows of tokens, which have spans; else arrays."""
    return bool(self.sources)

  @property
  def in_buckets(self) -> bool:
    """Whether each batch is of one source and bucket."""
    return self._plan.by_bucket

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
    return longest if self.in_buckets else self.steps.last_size

  @property
  def vocab_size(self) -> int:
    """Token ids of the sources are below this."""
    self._text_bucket()
    return max(source.store.vocab_size for source in self.sources.values())

  def _text_bucket(self) -> buckets_lib.Bucket:
    """Returns the bucket of the longest rows."""
    if not self.holds_text:
      raise TypeError(
        "`config.data` must be of text to have rows of tokens, got buckets of"
        " kind 'resolution'. Ask for `buckets`."
      )
    return self.buckets[-1]

  @functools.cached_property
  def accounts(self) -> accounts_lib.Accounts:
    """What the run consumes before any step, by source."""
    entries = [dataclasses.asdict(own) for own in self.options.mix_entries]
    return accounts_lib.Accounts(self._plan, entries)

  @schema.arguments(step=_STEP)
  def resume_state(self, step: int) -> dict[str, Any]:
    """Returns row and token offsets before a step.

    `config.data.mix.resume_state` of another run starts there. Source: seed
    001.

    Args:
      step: At most the steps of the run.

    Returns:
      {"datasets": [{"spec", "row_offset", "token_offset"}]}.

    Raises:
      TypeError: If the run is in buckets.
    """
    return self.accounts.resume_state(step)

  @functools.cached_property
  def fingerprint(self) -> dict[str, Any]:
    """What decides every batch, as JSON values.

    Left out: paths, workers, processes, prefetch, and the order of keys.
    """
    section = self._run.buckets
    return {
      "schema": row_source.FINGERPRINT_SCHEMA,
      **self.options.fingerprint(),
      **({} if section is None else section.fingerprint()),
      **self._plan.fingerprint,
      **self._plan.gone.fingerprint_field,
    }

  @schema.arguments(operations=applying.TRANSFORMS)
  def fingerprint_with(
    self, operations: Sequence[grain.transforms.Map]
  ) -> dict[str, Any]:
    """Returns the fingerprint with more transforms; see `state`."""
    return state.with_operations(self.fingerprint, operations)

  def validation(self) -> dict[str, row_source.RowSource]:
    """Returns a fixed small (t, s) grid of each source's own documents."""
    return {name: grid.validation_of(own) for name, own in self.sources.items()}

  @schema.arguments(step=_STEP)
  def bucket_of(self, step: int) -> tuple[str | None, str]:
    """Returns the source (None in a run of rows) and bucket of a step.

    Raises:
      IndexError: If the step is not of the run.
    """
    source, bucket = self._plan.at(step)
    name = None if source is None else self.source_names[source]
    return name, self.buckets[bucket].name

  @schema.arguments(step=_STEP)
  def row_length(self, step: int) -> int:
    """Returns the positions of the rows of a step of text."""
    self._text_bucket()
    return self.buckets[self._plan.at(step)[1]].shape[0]

  def stages(self) -> list[tuple[int, str]]:
    """Returns where stages of `buckets.stages` begin, and what they weigh."""
    return self._plan.stages()

  @schema.arguments(step=_STEP)
  def passes(self, step: int) -> dict[str, dict[str, float]]:
    """Returns how often each bucket of each source was given before a step."""
    return self._plan.bucket_passes(self._of_run("step", step))

  @schema.arguments(num_steps=_STEP)
  def repeats(self, num_steps: int) -> list[str]:
    """Returns a sentence for each source that comes more often than asked.

    Args:
      num_steps: At most the steps of the run.
    """
    asked = {
      name: own.max_epochs or self.options.epochs
      for name, own in self._run.sources.items()
    }
    return self._plan.repeats(num_steps, asked)

  def num_documents(self, source: str) -> int:
    """Returns the documents of a source, or its samples where it has arrays.

    Args:
      source: Its name.
    """
    return self._plan.num_documents(self._known_source(source))

  def _known_source(self, source: str) -> str:
    return schema.name_among("source", source, self.source_names)

  def _known_bucket(self, bucket: int) -> int:
    if not 0 <= bucket < len(self.buckets):
      raise IndexError(
        f"`bucket` must be in 0 .. {len(self.buckets) - 1}, a number of"
        f" `buckets`, got {bucket}. Correct it."
      )
    return bucket

  @schema.arguments(document=_STEP)
  def trail(self, source: str, document: int) -> trails.Trail:
    """Returns where a document comes in the run; see `audit.visits`.

    Args:
      source: The source's name.
      document: Its number, below `num_documents`.
    """
    count = self.num_documents(source)
    if not 0 <= document < count:
      raise IndexError(
        f"`document` must be in 0 .. {count - 1} of source {source!r}, got"
        f" {document}. Correct it."
      )
    return self._plan.trail(source, document)

  @schema.arguments(first=_STEP, last=_STEP)
  def exposures(self, source: str, first: int, last: int) -> np.ndarray:
    """Returns the spans of each document that steps hand out.

    Of arrays, how often each sample comes. What every epoch holds alike is
    counted once; from where something is gone on, steps are planned.

    Args:
      source: The source's name.
      first: The first step.
      last: The step after the last, at most those of the run.

    Returns:
      int64[num_documents].
    """
    steps, plan = self.steps, self._plan
    self._known_source(source)
    self._of_run("first", first)
    if last < first:
      raise IndexError(
        f"`last` must be at least `first`, got {last} and {first}. Swap them."
      )
    self._of_run("last", last)
    if plan.is_gone_before(last):
      edge = max(first, steps.before(plan.gone.first_step or 0))
      out = np.zeros(self.num_documents(source), np.int64)
      if first < edge:
        out += self.exposures(source, first, edge)
      number = self.source_names.index(source)
      for step in range(edge, last, _STEPS):
        spans = plan.spans(step, min(_STEPS, last - step)).live()
        own = spans.document[spans.source == number]
        out += np.bincount(own, minlength=len(out))
      return out
    ends = [steps.data_step(first), steps.data_step(last)]
    out = plan.exposures(source, *ends)
    for low, high in steps.skipped(last):
      if low >= ends[0]:
        out -= plan.exposures(source, low, high)
    return out

  @schema.arguments(step=_STEP, rows=_ROWS)
  def planned(
    self, step: int, rows: np.ndarray | None = None
  ) -> plan_lib.Planned:
    """Returns what rows of a step hold, spans or samples; reads nothing.

    Args:
      step: The step.
      rows: int64[R], ascending rows of its global batch, or None for all.

    Raises:
      IndexError: If the step is not of the run.
    """
    return self._plan.planned(step, 1, self._of_step(step, rows))

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
    return self._plan.spans(step, count)

  @schema.arguments(step=_STEP, shards=_MAPPING)
  def row_order(
    self, step: int, shards: balance_lib.Shards | None = None
  ) -> np.ndarray:
    """Returns where the rows of a step stand on devices; reads no token.

    A placement: `plan`, `canonical` and `batch` know nothing of it.

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
    shards = self._dealt(shards)
    count = balance_lib.shards_of(self._plan, step, shards)
    if count == 1:
      return np.arange(self.buckets[self._plan.at(step)[1]].batch_size)
    return balance_lib.order(self._plan, self._plan.planned(step), count)[0]

  @property
  def balances(self) -> bool:
    """Whether rows are dealt to shards by their cost."""
    return getattr(self.options, "balance", None) is not None

  def _dealt(
    self, shards: balance_lib.Shards | None
  ) -> balance_lib.Shards | None:
    """Returns over how many shards rows are dealt; see `row_order`."""
    return (shards or self._shards) if self.balances else None

  def _pinned_shards(self) -> balance_lib.Shards | None:
    """Returns `config.data.balance_shards` by bucket, or None."""
    count = self.options.balance_shards if self.balances else None
    if count is None:
      return None
    problems = [
      f"`config.data.balance_shards` must divide the rows of every step, got"
      f" {count} for {own.batch_size} rows of {own}. Use a divisor, or unset it"
      " for the shards that there are."
      for own in self.buckets
      if own.batch_size % count
    ]
    if problems:
      raise schema.ConfigError(problems)
    return {own.name: count for own in self.buckets}

  @schema.arguments(step=_STEP)
  def samples(self, step: int) -> np.ndarray:
    """Returns the samples of a step in buckets.

    Args:
      step: The step.

    Returns:
      int64[batch_size], samples of its source and bucket; -1 is filler.

    Raises:
      IndexError: If the step is not of the run.
      TypeError: If the run is not in buckets.
    """
    found = self._plan.planned(step).samples
    if found is None:
      raise TypeError(
        "`samples` must be asked of a run with `config.data.buckets`, got one"
        " of rows. Ask for `plan(step)`."
      )
    return found

  @schema.arguments(step=_STEP)
  def sample_numbers(self, step: int) -> np.ndarray:
    """Returns the numbers in their store of the samples of a step of arrays.

    Args:
      step: The step.

    Returns:
      int64[batch_size]; -1 is filler.

    Raises:
      IndexError: If the step is not of the run.
      TypeError: If samples are no arrays.
    """
    return self._plan.sample_numbers(step)

  @schema.arguments(step=_STEP, rows=_ROWS)
  def batch(self, step: int, rows: Rows = None) -> dict[str, np.ndarray]:
    """Returns a step's batch on the host, in the batch format.

    Args:
      step: The step.
      rows: int64[R], ascending rows of its global batch, or None for all.

    Returns:
      Fields [R, ...].
    """
    return applying.applied(self.canonical(step, rows), self._operations)

  @schema.arguments(step=_STEP, rows=_ROWS)
  def canonical(self, step: int, rows: Rows = None) -> dict[str, np.ndarray]:
    """Returns a step's canonical fields, whatever the batch format.

    Args:
      step: The step.
      rows: As in `batch`.
    """
    planned = self._plan.planned(step, 1, self._of_step(step, rows))
    self._reads.add_group(planned.spans)
    self._plan.prefetch(planned)
    self._reads.add_batch(planned.spans)
    return self._plan.read(planned)

  def _of_step(self, step: int, rows: Rows) -> Mapping[str, np.ndarray] | None:
    """Returns rows of a step by its bucket.

    Raises:
      ConfigError: If there are none of its bucket.
      IndexError: If one is not of the step, or the step not of the run.
    """
    if rows is None:
      return None
    bucket = self.buckets[self._plan.at(step)[1]]
    if isinstance(rows, Mapping) and bucket.name not in rows:
      raise schema.ConfigError(
        [
          f"`rows` must hold rows of bucket {bucket.name!r}, that of step"
          f" {step}, got {', '.join(rows) or 'none'}. Add them."
        ]
      )
    own = rows[bucket.name] if isinstance(rows, Mapping) else rows
    if len(own) and not own[-1] < bucket.batch_size:
      raise IndexError(
        f"`rows` must be in 0 .. {bucket.batch_size - 1}, the rows of step"
        f" {step}, got {own[-1]}. Ask for its rows."
      )
    return {bucket.name: own}

  def _of_run(self, name: str, step: int) -> int:
    """Returns a step of the run, or its end.

    Raises:
      IndexError: If it is none.
    """
    most = self.num_steps
    if step < 0 or step > (schema.MAX_COUNT if most is None else most):
      bound = "at least 0" if most is None else f"in 0 .. {most}"
      raise IndexError(
        f"`{name}` must be {bound}, a step of the run, got {step}. Correct it."
      )
    return step

  def _by_bucket(self, rows: Rows) -> Mapping[str, np.ndarray] | None:
    if rows is None or isinstance(rows, Mapping):
      return rows
    return {bucket.name: rows for bucket in self.buckets}

  @property
  def reads(self) -> dict[str, reads_lib.SourceReads]:
    """What `batch` and `canonical` have read so far, by source of text."""
    return self._reads.by_source()

  def operations(self) -> list[grain.transforms.Map]:
    """Returns the transforms over batches that the config asks for."""
    return list(self._operations)

  @schema.arguments(bucket=_STEP)
  def examples(self, bucket: int) -> dict[str, dict[str, np.ndarray]]:
    """Returns one sample of each source that may have fields of its own.

    Args:
      bucket: The number of a bucket.

    Returns:
      Fields [1, ...] by source, in the batch format; none where a bucket is
      empty.
    """
    return {
      name: applying.applied(self._plan.read(planned), self._operations)
      for name, planned in self._plan.examples(self._known_bucket(bucket))
    }

  def _filler(
    self, operations: Sequence[grain.transforms.Map]
  ) -> dict[str, dict[str, np.ndarray]]:
    """Returns a row of filler of each bucket, fields [1, ...]."""
    found = {}
    for number, bucket in enumerate(self.buckets):
      for _, planned in self._plan.examples(number):
        spans, samples = planned.spans, planned.samples
        own = dataclasses.replace(
          planned,
          spans=None if spans is None else spans.rows(1, 2),
          samples=None if samples is None else np.full(1, -1, np.int64),
        )
        found[bucket.name] = applying.applied(
          self._plan.read(own), [*self._operations, *operations]
        )
        break
    return found

  @schema.arguments(
    rows=_ROWS,
    fingerprint=_MAPPING,
    group_steps=schema.optional(schema.integer(1)),
    shards=_MAPPING,
    columns=_MAPPING,
    counted=_MAPPING,
    on_wire=schema.boolean(),
  )
  def batch_source(
    self,
    rows: Rows = None,
    fingerprint: Mapping[str, Any] | None = None,
    group_steps: int | None = None,
    shards: balance_lib.Shards | None = None,
    columns: plan_lib.Columns | None = None,
    counted: Mapping[str, np.ndarray] | None = None,
    on_wire: bool = False,
  ) -> batches.BatchSource:
    """Returns the Grain source of process-local batches.

    Args:
      rows: int64[R], ascending rows of the global batch that this process
        holds, of each bucket by its name or of all; None is all.
      fingerprint: Shown in its `repr`, or None for the pipeline's own.
      group_steps: Most steps that are planned and fetched together, or None
        for about 4,096 rows; decides no batch.
      shards: With `config.data.balance`, into how many shards the rows of each
        bucket are cut; None is `config.data.balance_shards`, and where that is
        None too, rows stand as they are planned.
      columns: By bucket, (first, last + 1) of the columns of text whose tokens
        are read, or None for all; tokens of others are filler.
      counted: By bucket, bool[R], which of the rows a certificate counts here;
        None is all.
      on_wire: Whether records are rows as they travel to devices that make
        their fields.
    """
    # Its own caches: a thread or a worker reads through it.
    plan = pickle.loads(pickle.dumps(self._plan))
    plan.expect_reading()
    return batches.BatchSource(
      plan,
      self._by_bucket(rows),
      state.digest(fingerprint or self.fingerprint)[:16],
      group_steps,
      shards=self._dealt(shards),
      columns=columns,
      counted=counted,
      certificate=self.options.certificate,
      on_wire=on_wire,
    )

  @schema.arguments(bucket=_STEP)
  def wire(self, bucket: int) -> transfer_format.Wire | None:
    """Returns how rows of a bucket travel to devices that make their fields.

    Args:
      bucket: The number of the bucket.

    Returns:
      None where samples are arrays.
    """
    return self._plan.wire(self._known_bucket(bucket))

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
      rows: As in `batch_source`.
      operations: More transforms over batches, after the config's.
      worker_count: Child processes, or None for the config's.
    """
    from chomp_data.loading import feed  # jax only where devices are fed

    source = self.batch_source(rows, self.fingerprint_with(operations))
    count = self.options.worker_count if worker_count is None else worker_count
    if count and not _workers_help(source, operations):
      # Its state is of as many workers as were asked for.
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
      seed=self.options.seed,
      operations=[*self._operations, *operations],
      worker_count=count,
    )

  def describe(self) -> str:
    """Returns the run's summary for the log: the shapes that will come."""
    steps = "endless" if self.num_steps is None else f"{self.num_steps} steps"
    shapes, *lines = self._plan.describe()
    epochs = self.options.epochs or "for ever"
    of = "" if self.in_buckets else " of"
    head = (
      f"input: {steps}{of} {shapes}, seed {self.options.seed}, epochs {epochs},"
      f" remainder {self.options.remainder}"
    )
    entries = [f"  dataset_mix: {own}" for own in self.options.mix_entries]
    if self.steps.skip:
      skipped = ", ".join(f"{low} .. {high}" for low, high in self.steps.skip)
      entries.append(f"  skip: data steps {skipped}")
    entries += self._plan.gone.describe()
    entries += self._trusted()
    return "\n".join([head, *entries, *lines])

  def _trusted(self) -> list[str]:
    """Returns a line for each source of files that nothing vouches for."""
    # Most runs are of stores of ours: other kinds are not imported for them.
    from chomp_data.stores import adopting

    lines = []
    for name, own in self._run.sources.items():
      paths = adopting.trusted(own.paths)
      if paths:
        more = f" and {len(paths) - _SHOWN} more" * (len(paths) > _SHOWN)
        shown = " ".join(map(shlex.quote, paths[:_SHOWN]))
        lines.append(
          f"  {name}: trusted as found, its files have no checksums:"
          f" `chomp-stores adopt {shown}`{more} keeps some beside them"
        )
    return lines

  @schema.arguments(
    fingerprint=schema.mapping(),
    step=schema.integer(0, 2**63 - 1),
    resize=schema.boolean(),
  )
  def continued(
    self, fingerprint: Mapping[str, Any], step: int, resize: bool = False
  ) -> "Pipeline":
    """Returns the run as a state continues it.

    Args:
      fingerprint: Of the state.
      step: The next step of the state; the run that it continues may have
        more steps than this one.
      resize: Whether steps may get another number of rows from there on.

    Returns:
      The run with the batch sizes, and with stores that join when, as the state
      tells; this one where it tells no more than the config.
    """
    run = joining.continued(self._run, fingerprint, step, resize)
    return self if run is self._run else Pipeline(run)

  def __repr__(self) -> str:
    steps = "endless" if self.num_steps is None else f"{self.num_steps} steps"
    shapes = "; ".join(map(str, self.buckets))
    return (
      f"Pipeline({steps}, {shapes}, sources {', '.join(self.source_names)},"
      f" fingerprint {state.digest(self.fingerprint)[:16]})"
    )


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
    getattr(run.data, "lookahead", False), pipe.sources
  ):
    logging.warning("%s", line)
  return pipe


def _sharding(value: Any) -> Any:
  """Returns a sharding, or shardings by rank or by field."""
  import jax

  each = list(value.values()) if isinstance(value, Mapping) else [value]
  if not each or not all(isinstance(x, jax.sharding.Sharding) for x in each):
    raise TypeError
  return value


_SHARDING = schema.Rule(
  "a `jax.sharding.Sharding`, or a mapping of ranks or fields to such",
  _sharding,
)


_ALIVE = schema.either(_SHARDING, schema.sequence(schema.WHOLE))


@schema.arguments(
  operations=applying.TRANSFORMS,
  step=_STEP,
  allow_input_change=state.CHANGES,
)
def make_iterator(
  data: Any,
  sharding: "placement.ShardingTree | None" = None,
  *,
  operations: Sequence[grain.transforms.Map] = (),
  step: int = 0,
  allow_input_change: bool | Collection[str] = (),
) -> "feed.InputIterator":
  """Returns an iterator of global batches as sharded `jax.Array`s.

  Args:
    data: `config.data`, or a `Pipeline`.
    sharding: Of a batch [global_batch_size, seq_len]; fields of lower rank
      take its first axes. Also a mapping by rank or by field name. None puts
      batches on the default device.
    operations: More transforms over process-local batches.
    step: The step of its first batch.
    allow_input_change: Fields of config.data, by dotted path, that may be
      others in a state that it is set to; see `InputIterator.set_state`.

  Returns:
    The iterator, at that step. Where the sharding spans processes, all of
    them must make it, and one that fails later ends the others.

  Raises:
    ConfigError: If a field is wrong, the batch does not divide, or processes
      differ.
    IndexError: If the step is not of the run, nor its end.
    InputError: If it fails on another process.
  """
  return padded_iterator(
    data, sharding, operations, step, allow_input_change=allow_input_change
  )


def padded_iterator(
  data: Any,
  sharding: "placement.ShardingTree | None" = None,
  operations: Sequence[grain.transforms.Map] = (),
  step: int = 0,
  device_rows: int | None = None,
  allow_input_change: bool | Collection[str] = (),
) -> "feed.InputIterator":
  """Returns an iterator of batches that have more rows on devices.

  For formats in which a row of 0 is filler.

  Args:
    data: As in `make_iterator`.
    sharding: As in `make_iterator`, but of a batch [device_rows, seq_len].
    operations: As in `make_iterator`.
    step: As in `make_iterator`.
    device_rows: At least `global_batch_size`, which None is; those beyond are
      of 0.
    allow_input_change: As in `make_iterator`.
  """
  import jax

  from chomp_data.loading import agreement

  if sharding is None:
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  own = sharding

  def make() -> "feed.InputIterator":
    return _iterator(
      data, own, operations, step, device_rows, allow_input_change
    )

  peers = agreement.peers_of(sharding)
  if peers is None:
    return make()
  told = agreement.told(sharding)
  iterator = peers.start(
    make, lambda made: {**made._described(), "sharding": told}
  )
  iterator._join(peers)
  return iterator


def _iterator(
  data: Any,
  sharding: "placement.ShardingTree",
  operations: Sequence[grain.transforms.Map],
  step: int,
  device_rows: int | None,
  allow_input_change: bool | Collection[str],
) -> "feed.InputIterator":
  """Returns this process's iterator, whatever the others do."""
  from chomp_data.loading import feed

  pipe = data if isinstance(data, Pipeline) else build(data)
  fingerprint = pipe.fingerprint_with(operations)
  place = _Place(sharding, device_rows)
  return feed.InputIterator(
    _local(pipe, place, operations),
    fingerprint=fingerprint,
    seed=pipe.options.seed,
    operations=[*pipe.operations(), *operations],
    worker_count=pipe.options.worker_count,
    prefetch=pipe.options.prefetch,
    timeout_s=pipe.options.timeout_s,
    accounts=pipe.accounts,
    pipeline=pipe,
    on_peer_failure=pipe.options.on_peer_failure,
    peer_failure_grace_s=pipe.options.peer_failure_grace_s,
    certificate=pipe.options.certificate,
    step=step,
    allow_input_change=allow_input_change,
    resumed=functools.partial(_resumed, place, operations),
    reassigned=functools.partial(_reassigned, place, operations),
  )


class _Place:
  """Where the batches of an iterator are.

  Attributes:
    made: The sharding that it was made with.
    made_rows: The rows on devices that it was made with.
    sharding: The one of now.
    device_rows: Those of now.
  """

  def __init__(
    self, sharding: "placement.ShardingTree", device_rows: int | None = None
  ):
    self.made: placement.ShardingTree = sharding
    self.made_rows: int | None = device_rows
    self.go_to(sharding, device_rows)

  def go_to(
    self,
    sharding: "placement.ShardingTree",
    device_rows: "placement.DeviceRows",
  ) -> None:
    """Sets the current sharding and rows; what it was made with stays."""
    self.sharding: placement.ShardingTree = sharding
    self.device_rows: placement.DeviceRows = device_rows

  @property
  def filled(self) -> bool:
    """Whether rows beyond the run's are its filler, and not of 0."""
    return self.device_rows != self.made_rows


def _local(
  pipe: Pipeline,
  place: _Place,
  operations: Sequence[grain.transforms.Map],
  needed: Collection[str] | None = None,
  source: batches.BatchSource | None = None,
) -> "feed.Local":
  """Returns what this process reads of a run.

  Args:
    pipe: The run.
    place: Where batches are.
    operations: As in `make_iterator`.
    needed: As in `placement.process_batches`.
    source: What it has read, over whose plan it reads on; None opens stores.
  """
  import jax

  from chomp_data.loading import device_fields
  from chomp_data.loading import feed
  from chomp_data.loading import placement

  sharding, device_rows = place.sharding, place.device_rows
  held = placement.process_batches(
    pipe, sharding, operations, device_rows, needed
  )
  rows = {
    bucket.name: placement.of_run(held[bucket.name], bucket)
    for bucket in pipe.buckets
    if bucket.name in held
  }
  columns = None
  if not operations and pipe.options.certificate != certifying.TOKENS:
    # The config's own look at most at the next column, others anywhere.
    columns = placement.process_columns(pipe, sharding, device_rows, list(rows))
  shards = pipe._shards
  if pipe.balances and shards is None and not place.filled:
    shards = placement.num_shards(
      pipe, sharding, operations, device_rows, list(rows)
    )
  processes, part, counted = placement.processes_of(sharding), None, None
  if len(processes) > 1 and jax.process_index() in processes:
    part = processes.index(jax.process_index()), len(processes)
    counted = placement.counted_rows(
      pipe, sharding, rows, operations, device_rows
    )
  filler, maker = None, None
  if place.filled:
    # Rows of filler are made with the others, on the host.
    filler = pipe._filler(operations)
  else:
    own = place.made_rows
    maker = device_fields.placer(pipe, sharding, held, operations, own)
  on_wire = maker is not None
  if source is not None:
    own = pipe._dealt(shards)
    source = source.for_rows(rows, own, columns, counted, on_wire)
  else:
    source = pipe.batch_source(
      rows,
      pipe.fingerprint_with(operations),
      shards=shards,
      columns=columns,
      counted=counted,
      on_wire=on_wire,
    )
  placer = placement.Placer(sharding, held, pipe.buckets, device_rows, filler)
  return feed.Local(
    source,
    maker or placer,
    _workers_help(source, operations),
    shards,
    part,
    on_devices=maker is not None,
  )


def _workers_help(
  source: batches.BatchSource, operations: Sequence[grain.transforms.Map]
) -> bool:
  """Returns whether processes that read may be faster than this one.

  Files that are mapped are read ahead by the system, and then a batch costs
  less than handing it over. Transforms of a user may take any time.
  """
  return bool(operations) or not source.is_mapped


def _resumed(
  place: _Place,
  operations: Sequence[grain.transforms.Map],
  pipe: Pipeline,
  saved: Mapping[str, Any],
  step: int,
  resize: bool,
) -> "feed.Resumed":
  """Returns a run as a state continues it; see `joining`."""
  from chomp_data.loading import feed

  again = pipe.continued(saved, step, resize)
  fingerprint = again.fingerprint_with(operations)
  local, own = None, place
  if again is not pipe:
    # Batches of a size that is past need not divide over what there is now.
    needed = again._plan.buckets_from(step)
    if place.sharding is not place.made:
      own, needed = _evened(again, place, place.sharding), None
    local = _local(again, own, operations, needed)

  return feed.Resumed(
    local,
    fingerprint,
    again.accounts,
    joining.begun(again._plan, saved, step),
    joining.begun(again._plan, fingerprint, step),
    again,
    functools.partial(place.go_to, own.sharding, own.device_rows),
  )


def _evened(
  pipe: Pipeline, place: _Place, sharding: "placement.ShardingTree"
) -> _Place:
  """Returns a place where rows of all sizes divide, filler included."""
  from chomp_data.loading import placement

  out = _Place(place.made, place.made_rows)
  # A restore may go back to sizes that are past.
  rows = placement.even_rows(pipe.buckets, sharding, place.made_rows)
  out.go_to(sharding, rows)
  return out


def _reassigned(
  place: _Place,
  operations: Sequence[grain.transforms.Map],
  pipe: Pipeline,
  source: "feed.Batches",
  alive: Any,
) -> "feed.Reassigned":
  """Returns what a process reads where others are alive than before.

  Args:
    place: Where batches are, and were when the iterator was made.
    operations: As in `make_iterator`.
    pipe: The run.
    source: What it has read.
    alive: As in `InputIterator.reassign`.

  Raises:
    ConfigError: As `InputIterator.reassign` raises it.
  """
  import jax

  from chomp_data.loading import agreement
  from chomp_data.loading import feed
  from chomp_data.loading import placement

  sharding: Any = schema.argument("alive", _ALIVE, alive)
  if not isinstance(alive, jax.sharding.Sharding | Mapping):
    sharding = placement.surviving(place.made, list(alive))
  if jax.process_index() not in placement.processes_of(sharding):
    raise schema.ConfigError(
      [
        "`alive` must be of devices of this process too, got processes"
        f" {placement.processes_of(sharding)} on process"
        f" {jax.process_index()}. Close the iterator of one that is not to go"
        " on."
      ]
    )
  own = _evened(pipe, place, sharding)
  if own.filled and pipe.balances and pipe._shards is None:
    logging.warning(
      "config.data.balance: rows do not divide over the devices that are alive:"
      " they stand as they are planned."
    )
  assert isinstance(source, batches.BatchSource)
  return feed.Reassigned(
    _local(pipe, own, operations, source=source),
    agreement.peers_of(sharding),
    lambda: place.go_to(own.sharding, own.device_rows),
  )
