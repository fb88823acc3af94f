"""From checked options of a bucketed run to its plan: stores and schedule."""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib

from chomp_data import schema
from chomp_data import stores
from chomp_data.bucketed import arrays
from chomp_data.bucketed import dataset as dataset_lib
from chomp_data.bucketed import documents as documents_lib
from chomp_data.bucketed import lanes as lanes_lib
from chomp_data.bucketed import options as options_lib
from chomp_data.bucketed import plan as plan_lib
from chomp_data.bucketed import sections
from chomp_data.sources import mix_options
from chomp_data.sources import opening
from chomp_data.stores import samples as samples_lib
from chomp_data.transforms import formats

PATH = "config.data"

Datasets = dict[str, dataset_lib.Dataset]


def bucket_plan(run: options_lib.BucketRun) -> plan_lib.BucketPlan:
  """Opens stores and schedules their batches.

  Reads no token, and one sample of each (dataset, size).

  Args:
    run: The whole of `config.data`, checked.

  Raises:
    ConfigError: If options do not fit the stores.
    StoreError: If stores cannot be opened, or do not fit the fields; one line
      names each.
  """
  problems = mix_options.stage_problems(
    f"{PATH}.buckets.stages", run.buckets.stages or ()
  )
  if problems:
    raise schema.ConfigError(problems)
  stages = run.mix.all_stages({n: o.weight for n, o in run.sources.items()})
  names = mix_options.in_order_of_joining(run.sources, stages)
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
        {name: own.tokens for name, own in documents(datasets)}
        if by_tokens
        else None
      ),
    )
  except ValueError as error:
    raise schema.ConfigError(
      [_located(line) for line in str(error).splitlines()]
    ) from error
  return make(datasets, buckets, lanes)


def _located(problem: str) -> str:
  """Returns what is wrong with a schedule, by the field of the config."""
  if problem.startswith("`bucket_stages"):
    return f"`{PATH}.buckets.{problem.removeprefix('`bucket_')}"
  section = "mix" if problem.startswith("`stages") else "buckets"
  return f"`{PATH}.{section}`: {problem}"


def documents(
  datasets: Mapping[str, dataset_lib.Dataset],
) -> Iterator[tuple[str, documents_lib.DocumentDataset]]:
  """Yields the datasets of a run of text, by name."""
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
  opened = opening.Opening()
  for name in names:
    source, path = run.sources[name], f"{PATH}.sources.{name}"
    with opened.source(path):
      if source.array_record is None:
        store = stores.open_store(source.store)
      else:
        store = stores.open_array_records(source.store, source.array_record)
      datasets[name] = documents_lib.DocumentDataset(
        store,
        source.rows,
        buckets,
        run.buckets.assign,
        extra=tuple(sorted(extra)),
        document_id=run.data.document_id,
        name=name,
        path=f"{path}.rows",
      )
  opened.check()
  opening.check_tokenizers(
    {name: own.longest.store for name, own in documents(datasets)},
    PATH,
    run.mix.allow_tokenizer_differences,
  )
  return datasets, buckets


def _arrays(
  run: options_lib.BucketRun, names: list[str]
) -> tuple[Datasets, tuple[sections.Bucket, ...]]:
  found: dict[str, samples_lib.SampleStore] = {}
  opened = opening.Opening()
  for name in names:
    source, own = run.sources[name], f"{PATH}.sources.{name}"
    with opened.source(own), _fields_of(own):
      found[name] = samples_lib.open_samples(
        source.store,
        fields=run.buckets.array_fields(),
        height_field=source.rows.height_field,
        width_field=source.rows.width_field,
      )
  opened.check()
  path = f"{PATH}.buckets"
  sizes = run.buckets.sizes
  if sizes is None:
    sizes = arrays.sizes_of(list(found.values()))
    known = [sections.size_name(*size) for size in sizes]
    problems = sections.unknown_buckets_of(run.buckets, path, known)
    if problems:
      raise schema.ConfigError(problems)
  buckets = run.buckets.buckets(sizes, run.data.global_batch_size)
  types = arrays.metadata_types(found, run.buckets.metadata, path)
  datasets: Datasets = {}
  for name, store in found.items():
    with opened.source(f"{PATH}.sources.{name}"):
      datasets[name] = arrays.ArrayDataset(
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
  """Names the source where the fields of its samples are wrong."""
  try:
    yield
  except (schema.ConfigError, stores.StoreError):
    raise
  except ValueError as error:
    raise schema.ConfigError([f"`{path}`: {error}"]) from error


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
