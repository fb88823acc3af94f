# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the plan of a run from checked options: stores, rows, order, mix.

There is one function for each kind of run in `config.options.KINDS`.
"""

import bisect
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import contextlib
import contextvars
import dataclasses
import functools
from typing import Any

from absl import logging

from chomp_data import errors
from chomp_data import row_kinds
from chomp_data import schema
from chomp_data import stores
from chomp_data.bucket import array_dataset
from chomp_data.bucket import dataset as dataset_lib
from chomp_data.bucket import document_dataset
from chomp_data.bucket import options as bucket_options
from chomp_data.bucket import schedule as schedule_lib
from chomp_data.config import options as options_lib
from chomp_data.index import hashing
from chomp_data.loading import saved_states
from chomp_data.mix import interleave
from chomp_data.mix import mix_options
from chomp_data.mix import mixture
from chomp_data.order import shuffled as shuffled_lib
from chomp_data.phased import phased_source
from chomp_data.phased import previous_run
from chomp_data.phased import simulated_epochs
from chomp_data.plans import batches_plan
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import rows_plan
from chomp_data.plans import tombstones
from chomp_data.rows import buckets as buckets_lib
from chomp_data.sources import column_fields
from chomp_data.sources import mix_units
from chomp_data.sources import prefix_sums
from chomp_data.sources import row_source
from chomp_data.sources import source_opening
from chomp_data.storage import opening
from chomp_data.stores import remainder
from chomp_data.stores import samples as samples_lib
from chomp_data.stores.zarr import zarr_opening

PATH = options_lib.PATH

# document_id travels as int32 unless JAX has 64-bit types enabled.
_MAX_INT32 = 2**31 - 1

# Sources in buckets that are opened at once.
_OPENED_TOGETHER = 64

Datasets = dict[str, dataset_lib.Dataset]


def make_plan(run: options_lib.RunOptions) -> plan_lib.Plan:
  """Opens the stores of a run and plans its steps.

  Reads no token, and of arrays one sample of each (dataset, size).

  Args:
    run: The whole of `config.data`, checked.

  Raises:
    ConfigError: If options do not fit the stores.
    StoreError: If stores cannot be opened, or do not fit the fields; one line
      names each.
  """
  with zarr_opening.once():
    plan = _PLANS[run.kind](run)
  if plan.num_steps == 0:
    raise schema.ConfigError(
      [
        f"`{PATH}.skip` must leave a step of the run, got {run.data.skip}."
        " Skip fewer."
      ]
    )
  return plan


def _open(source: options_lib.SourceOptions) -> list[stores.Store]:
  """Opens the stores of a source, with its chunk cache on disk."""
  opened = stores.open_stores(source.store, **source.store_options)
  if source.cache_dir is not None:
    for store in opened:
      store.set_cache(
        directory=source.cache_dir, most_bytes=source.cache_dir_bytes
      )
  return opened


def row_sources(
  run: options_lib.RunOptions, joining: Sequence[str]
) -> dict[str, phased_source.Ordered]:
  """Opens stores and orders their rows; reads no token.

  Args:
    run: A run of rows.
    joining: Names of its sources in the order in which they join.

  Returns:
    By name, each source in its order; `rows` is the source itself.

  Raises:
    ConfigError: If options do not fit the stores.
    StoreError: If stores cannot be opened; one line names each.
  """
  options = run.data
  previous = _previous_run(run)
  opened = source_opening.Opening()
  ordered_sources: dict[str, phased_source.Ordered] = {}
  # Each source reserves one window, in the order in which they join, so that a
  # source added later never narrows the windows of earlier ones.
  room = options.shuffle_cache_bytes
  unit = None if run.mix is None else run.mix.balanced_unit
  with _together(run, joining) as call:
    rows = {name: call(_rows_of, name, run, previous, unit) for name in joining}
  for name in joining:
    with opened.source(f"{PATH}.sources.{name}"):
      ordered = ordered_sources[name] = _ordered(
        name,
        run.sources[name],
        options,
        rows[name](),
        max(room, 0),
        run.mix is not None,
      )
      if ordered.windows is not None:
        room -= ordered.windows.window_bytes
  opened.check()
  # The remaining bytes cache more windows, which does not change the order.
  windowed = [
    source for source in ordered_sources.values() if source.windows is not None
  ]
  for source in windowed:
    assert source.windows is not None
    share = max(room, 0) // len(windowed)
    source.keep_windows(source.windows.window_bytes + share)
  _warn_of_narrowed_windows(ordered_sources)
  return ordered_sources


def _warn_of_narrowed_windows(
  sources: Mapping[str, phased_source.Ordered],
) -> None:
  """Logs in one line which shuffle windows the budget narrowed."""
  messages = {
    name: source.windows.narrowed
    for name, source in sources.items()
    if source.windows is not None and source.windows.narrowed is not None
  }
  if not messages:
    return
  name, message = next(iter(messages.items()))
  others = len(messages) - 1
  logging.warning(
    "%s.sources.%s.shuffle: %s.%s",
    PATH,
    name,
    message,
    f" So were those of {others} more source{'s' * (others > 1)}."
    if others
    else "",
  )


def _previous_run(
  run: options_lib.RunOptions,
) -> previous_run.PreviousRun | None:
  """Returns the run that `start_after` names, or None.

  Raises:
    ConfigError: If there is no such run, or this run cannot continue it.
  """
  run_dir, path = run.data.start_after, f"{PATH}.start_after"
  if run_dir is None:
    return None
  if run.mix is not None and run.mix.resume_state is not None:
    raise schema.ConfigError(
      [
        f"`{path}` must be None beside mix.resume_state, got {run_dir!r}. Leave"
        " one out: both say where sources begin."
      ]
    )
  try:
    record = saved_states.find(run_dir)
  except errors.StateError as error:
    raise errors.StateError(f"`{path}`: {error}") from error
  if record is None or "resume_state" not in record:
    got = "no checkpoint" if record is None else "a run in buckets"
    raise schema.ConfigError(
      [
        f"`{path}` must be the work directory of a run in rows of one length,"
        f" or one of its checkpoints, got {got} at {run_dir!r}. Correct the"
        " path."
      ]
    )
  previous = previous_run.PreviousRun(record, list(run.sources), path)
  logging.info(
    "%s: after step %d of the run at %s.", path, record["step"], run_dir
  )
  return previous


def _is_remote(path: str) -> bool:
  try:
    return opening.open_storage(path).directory is None
  except stores.StoreError:
    return False  # Opening it raises a clear error.


@contextlib.contextmanager
def _together(
  run: options_lib.RunOptions, names: Sequence[str]
) -> Iterator[Callable[..., Callable[[], Any]]]:
  """Calls functions, concurrently if they wait for object stores.

  Args:
    run: Its stores are read.
    names: Of its sources.

  Yields:
    A function that takes a function and its arguments, and returns a function
    that returns the result.
  """
  urls = [
    path
    for name in names
    for path in run.sources[name].paths
    if _is_remote(path)
  ]
  if len(urls) < 2:
    yield functools.partial
    return
  with futures.ThreadPoolExecutor(min(_OPENED_TOGETHER, len(urls))) as pool:

    def call(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
      context = contextvars.copy_context()
      return pool.submit(context.run, function, *args).result

    yield call


@dataclasses.dataclass(frozen=True)
class _Rows:
  """The rows of a source before they are ordered.

  Attributes:
    by_epoch: The rows, by the first epoch that reads them.
    remaining: What `start_after` leaves of an epoch, or None.
    after: What determines the remaining rows, as JSON values.
  """

  by_epoch: dict[int, row_source.RowSource]
  remaining: row_source.RowSource | None = None
  after: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _rows_of(
  name: str,
  run: options_lib.RunOptions,
  previous: previous_run.PreviousRun | None,
  unit: str | None,
) -> _Rows:
  """Opens the stores of a source and makes its rows.

  Args:
    name: The source's name.
    run: The options of the run.
    previous: The run that `start_after` names, if any.
    unit: What a mix balances, or None without one.
  """
  source, options = run.sources[name], run.data
  opened = _open(source)
  joined = source.joined or (0,) * len(opened)
  present = {
    epoch: opened[: bisect.bisect_right(joined, epoch)]
    for epoch in sorted(set(joined))
  }
  previous_rows = previous and previous.of(
    name, source.rows, present[min(present)], f"{PATH}.sources.{name}.rows"
  )
  by_epoch = {
    epoch: _row_source(
      name, source, _selected(name, run, stores.as_one(members)), options
    )
    for epoch, members in present.items()
  }
  if unit is not None and any(_is_remote(path) for path in source.paths):
    # A mix needs the units of each source: fetched here, together with others.
    prefix_sums.epoch_units(by_epoch[min(by_epoch)], 0, unit)
  if previous_rows is None or previous_rows.remaining is None:
    return _Rows(by_epoch)
  remaining = _row_source(name, source, previous_rows.remaining, options)
  if not len(remaining):
    logging.warning(
      "%s.start_after: the %d tokens of %r that remain of the epoch make no"
      " row: the source starts from its beginning.",
      PATH,
      previous_rows.remaining.num_tokens,
      name,
    )
    return _Rows(by_epoch)
  return _Rows(by_epoch, remaining, previous_rows.after)


def _ordered(
  name: str,
  source: options_lib.SourceOptions,
  options: Any,
  rows: _Rows,
  cache_bytes: int,
  mixed: bool,
) -> phased_source.Ordered:
  """Returns the rows of a source in their order, in one or more phases.

  Args:
    name: The source's name.
    source: Its options.
    options: The options of `config.data`.
    rows: The rows.
    cache_bytes: Most bytes of its shuffle windows.
    mixed: Whether the run mixes sources.
  """
  path = f"{PATH}.sources.{name}"

  def shuffled(rows: row_source.RowSource) -> shuffled_lib.ShuffledSource:
    return shuffled_lib.ShuffledSource(
      rows,
      source.shuffle,
      options.seed,
      cache_bytes=cache_bytes,
      path=f"{path}.shuffle",
      # The first size: a later change of it must not change the order.
      batch_size=options.sizes[0][1],
      mixed=mixed,
    )

  all_epochs = phased_source.of_joining_stores(
    {epoch: shuffled(rows) for epoch, rows in rows.by_epoch.items()}, path
  )
  if rows.remaining is None:
    return all_epochs
  first_epoch = shuffled(phased_source.RemainderSource(rows.remaining))
  return phased_source.continued(all_epochs, first_epoch, rows.after)


def _row_source(
  name: str,
  source: options_lib.SourceOptions,
  store: stores.Store,
  options: Any,
) -> row_source.RowSource:
  path = f"{PATH}.sources.{name}"
  if not store.num_documents:
    raise schema.ConfigError(
      [
        f"`{path}.store` must hold a document, got an empty store at"
        f" {source.store}. Prepare it from text."
      ]
    )
  rows = row_kinds.make(
    source.rows,
    store,
    seq_len=options.seq_len,
    seed=options.seed,
    name=name,
    path=f"{path}.rows",
  )
  if isinstance(store, remainder.SelectedStore):
    return simulated_epochs.SelectedSource(rows)
  return rows


def _selected(
  name: str, run: options_lib.RunOptions, store: stores.Store
) -> stores.Store:
  """Returns the documents of a store that a run reads of a source."""
  if run.simulated_epochs is None:
    return store
  seq_len = run.data.seq_len if run.kind == "rows" else 1
  return simulated_epochs.select(
    store,
    run.simulated_epochs,
    run.sources[name].rows,
    seq_len=seq_len,
    name=name,
    path=f"{PATH}.simulated_epochs",
  )


def _rows_plan(run: options_lib.RunOptions) -> plan_lib.Plan:
  """Returns the plan of a run of rows."""
  options, mix = run.data, None
  steps = options.steps
  if run.mix is None:
    ordered = row_sources(run, list(run.sources))
  else:
    names = mix_options.in_order_of_joining(
      run.sources, run.mix.all_stages(run.weights)
    )
    ordered = row_sources(run, names)
    source_opening.check_tokenizers(
      {name: source.store for name, source in ordered.items()},
      PATH,
      run.mix.allow_tokenizer_differences,
    )
    mix = mixture.MixtureSource(
      ordered,
      run.mix,
      seed=options.seed,
      steps=steps,
      epochs=options.epochs,
      source_weights=run.weights,
      max_epochs={n: source.max_epochs for n, source in run.sources.items()},
      path=f"{PATH}.mix",
    )
  if not options.mask_boundary_loss and any(
    source.layout.pair_slots for source in ordered.values()
  ):
    raise schema.ConfigError(
      [
        f"`{PATH}.mask_boundary_loss` must be True for preference pairs, got"
        " False: the loss of one answer would reach the next. Unset it."
      ]
    )
  plan = rows_plan.RowsPlan(
    ordered,
    steps=steps,
    epochs=options.epochs,
    remainder=options.remainder,
    document_id=options.document_id,
    extra=options.extra_fields([source.store for source in ordered.values()]),
    mix=mix,
    tombstones=_tombstones(
      run, {name: source.store for name, source in ordered.items()}
    ),
    columns=_column_fields(run, ordered),
  )
  if options.document_id and any(
    source.store.num_documents > _MAX_INT32 for source in plan.sources.values()
  ):
    raise schema.ConfigError(
      [
        "`config.data.document_id` must be False for stores of more than"
        f" {_MAX_INT32} documents, got True. Unset it."
      ]
    )
  if plan.num_rows is not None and not plan.data_steps_of(plan.num_rows):
    raise schema.ConfigError(
      [
        f"`{options.sizes_field(PATH)}` must be at most the run's rows, got"
        f" {plan.steps.size(0)} with {plan.num_rows} rows."
        " Lower it, raise epochs, or set remainder to 'pad'."
      ]
    )
  return plan


def expect_reading(plan: plan_lib.Plan, run: options_lib.RunOptions) -> None:
  """Tells sources how many epochs will be read, so that they prepare them."""
  if not isinstance(plan, rows_plan.RowsPlan):
    return
  repeats = run.mix is not None and run.mix.policy.repeats
  for name, source in run.sources.items():
    most = source.max_epochs or (None if repeats else run.data.epochs)
    plan.ordered[name].prepare(most)


def _batches_plan(run: options_lib.RunOptions) -> plan_lib.Plan:
  """Returns the plan of a run in buckets."""
  problems = mix_options.stage_problems(
    f"{PATH}.buckets.stages", run.buckets.stages or ()
  )
  if problems:
    raise schema.ConfigError(problems)
  stages = run.mix.all_stages(run.weights)
  names = mix_options.in_order_of_joining(run.sources, stages)
  datasets, buckets = _DATASETS[run.kind](run, names)
  bucket_stages = run.bucket_stages()
  by_tokens = run.kind == "length" and run.unit == "tokens"
  unit = mix_units.UNITS[run.unit].of_bucket[run.kind]
  seeds = {name: source.shuffle.seed for name, source in run.sources.items()}
  max_epochs = {name: source.max_epochs for name, source in run.sources.items()}
  texts = {
    name: dataset.text
    for name, dataset in datasets.items()
    if dataset.text is not None
  }
  try:
    schedule = schedule_lib.BucketSchedule(
      {name: {**dataset.counts} for name, dataset in datasets.items()},
      batch_sizes={bucket.name: bucket.batch_size for bucket in buckets},
      units={bucket.name: unit(bucket, run.buckets) for bucket in buckets},
      stages=[interleave.Stage(step, weights) for step, weights in stages],
      key=hashing.fold_key(run.data.seed, "buckets"),
      remainder=run.data.remainder,
      exhaustion=run.mix.exhaustion,
      epochs=run.data.epochs,
      max_epochs={
        n: most for n, most in max_epochs.items() if most is not None
      },
      seeds={n: seed for n, seed in seeds.items() if seed is not None},
      bucket_stages=bucket_stages,
      sample_units=(
        {name: datasets[name].tokens for name in texts} if by_tokens else None
      ),
    )
  except ValueError as error:
    hint = ""
    if run.simulated_epochs is not None:
      hint = " Or raise simulated_epochs.run_tokens."
    raise schema.ConfigError(
      [_located(line) + hint for line in str(error).splitlines()]
    ) from error
  return batches_plan.BatchesPlan(
    datasets,
    buckets,
    schedule,
    steps=run.data.steps,
    stages=stages,
    bucket_stages=bucket_stages,
    fingerprints={
      "buckets": {"kind": run.kind},
      "mix": {"unit": run.unit, "exhaustion": run.mix.canonical_exhaustion},
      "sources": {
        name: {"shuffle_seed": seeds[name], "max_epochs": max_epochs[name]}
        for name in datasets
      },
    },
    by_tokens=by_tokens,
    tombstones=_tombstones(
      run, {name: text.store for name, text in texts.items()}
    ),
    columns=_column_fields(run, texts),
    path=PATH,
  )


def _tombstones(
  run: options_lib.RunOptions, by_name: Mapping[str, stores.Store]
) -> tombstones.Tombstones:
  """Reads the documents that are removed from stores.

  Args:
    run: The options of the run.
    by_name: The stores by source, in the order of source numbers.
  """
  files = getattr(run.data, "tombstones", ())
  return tombstones.Tombstones(files, by_name, f"{PATH}.tombstones")


def _column_fields(
  run: options_lib.RunOptions, sources: Mapping[str, row_source.RowSource]
) -> column_fields.ColumnFields | None:
  """Returns the columns that batches hold; None where there are none."""
  requests = getattr(run.data, "columns", ())
  if not requests:
    return None
  fields = column_fields.ColumnFields(requests, sources, f"{PATH}.columns")
  short = [
    f"`{PATH}.sources.{name}.rows.document_slots` must be at least"
    f" {2 * source.layout.pair_slots}, two for each of rows.pair_slots, with"
    f" the columns {', '.join(fields.per_document)} of documents, got"
    f" {source.document_slots} in rows of {source.seq_len}. Raise it, or lower"
    " rows.pair_slots."
    for name, source in sources.items()
    if source.document_slots
    < min(2 * source.layout.pair_slots, source.layout.seq_len)
  ]
  if fields.per_document and short:
    raise schema.ConfigError(short)
  return fields


def _located(problem: str) -> str:
  """Returns an error of a schedule, prefixed with the field of the config."""
  if problem.startswith("`bucket_stages"):
    return f"`{PATH}.buckets.{problem.removeprefix('`bucket_')}"
  section = "mix" if problem.startswith("`stages") else "buckets"
  return f"`{PATH}.{section}`: {problem}"


def _document_datasets(
  run: options_lib.RunOptions, names: list[str]
) -> tuple[Datasets, tuple[buckets_lib.Bucket, ...]]:
  """Returns the datasets of text in buckets by length, and the buckets."""
  buckets = run.buckets.buckets()
  datasets: dict[str, document_dataset.DocumentDataset] = {}
  opened = source_opening.Opening()
  for name in names:
    source, path = run.sources[name], f"{PATH}.sources.{name}"
    with opened.source(path):
      datasets[name] = document_dataset.DocumentDataset(
        _selected(name, run, stores.as_one(_open(source))),
        source.rows,
        buckets,
        run.buckets.assign,
        document_id=run.data.document_id,
        name=name,
        path=f"{path}.rows",
      )
  opened.check()
  by_name = {
    name: dataset.text.store
    for name, dataset in datasets.items()
    if dataset.text is not None
  }
  source_opening.check_tokenizers(
    by_name, PATH, run.mix.allow_tokenizer_differences
  )
  # Of all sources: the fields of batches are the same for a run.
  extra = run.data.extra_fields(by_name.values())
  for dataset in datasets.values():
    dataset.extra = extra
  return {**datasets}, buckets


def _array_datasets(
  run: options_lib.RunOptions, names: list[str]
) -> tuple[Datasets, tuple[buckets_lib.Bucket, ...]]:
  """Returns the datasets of arrays in buckets by size, and the buckets."""
  opened_stores: dict[str, samples_lib.SampleStore] = {}
  opened = source_opening.Opening()
  for name in names:
    source, path = run.sources[name], f"{PATH}.sources.{name}"
    with opened.source(path), _fields_of(path):
      opened_stores[name] = samples_lib.open_samples(
        source.paths[0],
        fields=run.buckets.array_fields(),
        height_field=source.rows.height_field,
        width_field=source.rows.width_field,
      )
  opened.check()
  path = f"{PATH}.buckets"
  sizes = run.buckets.sizes
  if sizes is None:
    sizes = array_dataset.sizes_of(list(opened_stores.values()))
    names_of_sizes = [buckets_lib.size_name(*size) for size in sizes]
    problems = bucket_options.unknown_buckets_of(
      run.buckets, path, names_of_sizes
    )
    if problems:
      raise schema.ConfigError(problems)
  buckets = run.buckets.buckets(sizes, run.data.global_batch_size)
  types = array_dataset.metadata_types(
    opened_stores, run.buckets.metadata, path
  )
  datasets: Datasets = {}
  for name, store in opened_stores.items():
    with opened.source(f"{PATH}.sources.{name}"):
      datasets[name] = array_dataset.ArrayDataset(
        store,
        buckets,
        metadata=run.buckets.metadata,
        types=types,
        unbucketed=run.buckets.unbucketed,
        name=name,
        path=path,
      )
  opened.check()
  return datasets, buckets


@contextlib.contextmanager
def _fields_of(path: str) -> Iterator[None]:
  """Adds the path of a source to errors about the fields of its samples."""
  try:
    yield
  except (schema.ConfigError, stores.StoreError):
    raise
  except ValueError as error:
    raise schema.ConfigError([f"`{path}`: {error}"]) from error


_PLANS: Mapping[str, Callable[[options_lib.RunOptions], plan_lib.Plan]] = {
  "rows": _rows_plan,
  "length": _batches_plan,
  "resolution": _batches_plan,
}
_DATASETS: Mapping[
  str,
  Callable[
    [options_lib.RunOptions, list[str]],
    tuple[Datasets, tuple[buckets_lib.Bucket, ...]],
  ],
] = {"length": _document_datasets, "resolution": _array_datasets}
