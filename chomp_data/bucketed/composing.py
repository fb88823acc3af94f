"""From checked options of a bucketed run to its plan: stores and schedule."""

from collections.abc import Iterator
from collections.abc import Mapping

from chomp_data import schema
from chomp_data import stores
from chomp_data.bucketed import arrays
from chomp_data.bucketed import dataset as dataset_lib
from chomp_data.bucketed import documents as documents_lib
from chomp_data.bucketed import lanes as lanes_lib
from chomp_data.bucketed import options as options_lib
from chomp_data.bucketed import plan as plan_lib
from chomp_data.bucketed import sections
from chomp_data.sources import mixture
from chomp_data.stores import samples as samples_lib
from chomp_data.transforms import formats

PATH = "config.data"

Datasets = dict[str, dataset_lib.Dataset]


def bucket_plan(run: options_lib.BucketRun) -> plan_lib.BucketPlan:
  """Opens stores and schedules their batches; reads no array, no token.

  Args:
    run: The whole of `config.data`, checked.

  Raises:
    ConfigError: If options do not fit the stores.
    StoreError: If a store cannot be opened.
  """
  stages = run.mix.all_stages({n: o.weight for n, o in run.sources.items()})
  names = mixture.in_order_of_joining(run.sources, stages)
  if run.kind == "length":
    datasets, buckets = _documents(run, names)
    make = plan_lib.LengthPlan
  else:
    datasets, buckets = _arrays(run, names)
    make = plan_lib.BucketPlan
  by_tokens = run.kind == "length" and run.unit == "tokens"
  try:
    lanes = lanes_lib.Lanes(
      {name: own.counts for name, own in datasets.items()},
      batch_sizes={own.name: own.batch_size for own in buckets},
      units={own.name: _units(own, run) for own in buckets},
      stages=stages,
      bucket_stages=run.bucket_stages(),
      seed=run.data.seed,
      remainder=run.data.remainder,
      exhaustion=run.mix.exhaustion,
      epochs=run.data.epochs,
      max_epochs={
        name: own.max_epochs
        for name, own in run.sources.items()
        if own.max_epochs is not None
      },
      seeds={
        name: own.seed
        for name, own in run.sources.items()
        if own.seed is not None
      },
      sample_units=(
        {name: own.tokens for name, own in _texts(datasets)}
        if by_tokens
        else None
      ),
    )
  except ValueError as error:
    raise schema.ConfigError([f"`{PATH}.buckets`: {error}"]) from error
  return make(datasets, buckets, lanes)


def documents(
  plan: plan_lib.LengthPlan,
) -> Iterator[tuple[str, documents_lib.DocumentDataset]]:
  """Yields the datasets of a run of text, by name."""
  yield from _texts(plan.datasets)


def _texts(
  datasets: Mapping[str, dataset_lib.Dataset],
) -> Iterator[tuple[str, documents_lib.DocumentDataset]]:
  for name, own in datasets.items():
    assert isinstance(own, documents_lib.DocumentDataset)
    yield name, own


def _documents(
  run: options_lib.BucketRun, names: list[str]
) -> tuple[Datasets, tuple[sections.Bucket, ...]]:
  buckets = run.buckets.buckets()
  extra = set(formats.FORMATS[run.data.batch_format].needs)
  if run.data.lookahead:
    extra.add("next_token")
  datasets: Datasets = {}
  problems: list[str] = []
  for name in names:
    source = run.sources[name]
    if source.array_record is None:
      store = stores.open_store(source.store)
    else:
      store = stores.open_array_records(source.store, source.array_record)
    try:
      datasets[name] = documents_lib.DocumentDataset(
        store,
        source.rows,
        buckets,
        run.buckets.assign,
        extra=tuple(sorted(extra)),
        document_id=run.data.document_id,
        name=name,
        path=f"{PATH}.sources.{name}.rows",
      )
    except schema.ConfigError as error:
      problems += error.problems
  if problems:
    raise schema.ConfigError(problems)
  return datasets, buckets


def _arrays(
  run: options_lib.BucketRun, names: list[str]
) -> tuple[Datasets, tuple[sections.Bucket, ...]]:
  opened, problems = {}, []
  for name in names:
    source = run.sources[name]
    try:
      opened[name] = samples_lib.open_samples(
        source.store,
        fields=run.buckets.array_fields(),
        height_field=source.rows.height_field,
        width_field=source.rows.width_field,
      )
    except stores.StoreError:
      raise
    except ValueError as error:
      problems.append(f"`{PATH}.sources.{name}`: {error}")
  if problems:
    raise schema.ConfigError(problems)
  path = f"{PATH}.buckets"
  sizes = run.buckets.sizes
  if sizes is None:
    sizes = arrays.sizes_of(list(opened.values()))
    known = [sections.size_name(*size) for size in sizes]
    problems = sections.unknown_buckets_of(run.buckets, path, known)
    if problems:
      raise schema.ConfigError(problems)
  buckets = run.buckets.buckets(sizes, run.data.global_batch_size)
  types = arrays.metadata_types(opened, run.buckets.metadata, path)
  datasets: Datasets = {
    name: arrays.ArrayDataset(
      store,
      buckets,
      metadata=run.buckets.metadata,
      types=types,
      unbucketed=run.buckets.unbucketed,
      name=name,
      path=path,
    )
    for name, store in opened.items()
  }
  return datasets, buckets


def _units(bucket: sections.Bucket, run: options_lib.BucketRun) -> int:
  """Returns what one sample of a bucket consumes."""
  if run.unit == "samples":
    return 1
  if run.kind == "length":
    return bucket.shape[0]
  height, width = bucket.shape
  if run.unit == "pixels":
    return height * width
  patch = run.buckets.patch_size
  return -(-height // patch) * -(-width // patch)
