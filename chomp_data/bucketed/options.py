"""Options of bucketed runs: `config.data` where it has a section `buckets`.

Every batch has the one static shape of its bucket, so there is no `seq_len`:
text comes in rows of a few lengths, arrays in a few sizes.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import fractions
from typing import Any

from chomp_data import schema
from chomp_data import stores
from chomp_data.bucketed import sections
from chomp_data.sources import mix_options
from chomp_data.sources import options as options_lib
from chomp_data.transforms import formats

# Units of a mix, by kind of bucket; the first is the default.
UNITS = {
  "length": ("tokens", "samples"),
  "resolution": ("samples", "pixels", "tokens"),
}

_TOKEN_ID = schema.optional(schema.integer(0, 2**32 - 1))
_SEED = schema.optional(schema.integer(0, 2**63 - 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFields:
  """The fields of `config.data` that both kinds share.

  Attributes:
    seed: Seed of every random choice; sources fold their names into it.
    epochs: Passes over each source, or None for ever.
    remainder: 'drop' the samples that fill no batch of their source and
      bucket, or 'pad' them with filler.
    worker_count: Child processes that read; 0 reads in the main process.
    dataset_mix: Sources and weights in one line, "pathA:0.9 pathB:0.1".
    prefetch: Batches kept ready on devices.
    timeout_s: Longest wait for one batch, in seconds.
    on_peer_failure: Where another process fails or dies, 'exit', or let the
      next `next` of the iterator 'raise'.
  """

  seed: int = schema.option(0, schema.integer(0, 2**63 - 1))
  epochs: int | None = schema.option(None, schema.optional(schema.integer(1)))
  remainder: str = schema.option("drop", schema.choice(("drop", "pad")))
  worker_count: int = schema.option(0, schema.integer(0, 1024))
  dataset_mix: str | None = schema.option(None, schema.optional(schema.text()))
  prefetch: int = schema.option(2, schema.integer(1, 1024))
  timeout_s: float = schema.option(600.0, schema.number(1))
  on_peer_failure: str = schema.option("exit", schema.choice(("exit", "raise")))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthFields(RunFields):
  """The fields of `config.data` with buckets of lengths.

  Attributes:
    batch_format: Names and meanings of a batch's fields.
    train_on_eos: Whether EOS is a label.
    lookahead: Whether batches know the token after their last column where a
      document that was cut continues.
    document_id: Whether batches carry `document_id`.
  """

  batch_format: str = schema.option(
    "canonical", schema.choice(tuple(formats.FORMATS))
  )
  train_on_eos: bool = schema.option(True, schema.boolean())
  lookahead: bool = schema.option(False, schema.boolean())
  document_id: bool = schema.option(False, schema.boolean())

  def problems(self, path: str) -> list[str]:
    """Returns what is wrong between these fields."""
    if not self.lookahead or formats.FORMATS[self.batch_format].lookahead:
      return []
    able = [name for name, form in formats.FORMATS.items() if form.lookahead]
    return [
      f"`{path}.lookahead` must be False for batch_format"
      f" {self.batch_format!r}, which has no label after the last column, got"
      f" True. Unset it, or use one of {', '.join(able)}."
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResolutionFields(RunFields):
  """The fields of `config.data` with buckets of sizes.

  Attributes:
    global_batch_size: Samples of a step over all processes, in buckets that
      `buckets.batch_sizes` does not name.
  """

  global_batch_size: int = schema.required(schema.integer(1, sections.MAX_SIDE))

  def problems(self, path: str) -> list[str]:
    """Returns what is wrong between these fields."""
    del path
    return []


@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentOptions(options_lib.FillerOptions):
  """`rows` of a source in buckets of lengths: one document (or piece) a row.

  Attributes:
    add_bos: Whether each document gets a BOS first; refused where the store
      has them.
    add_eos: Whether each document gets an EOS last; refused likewise.
    bos_token_id: Overrides the tokenizer's.
    trailing_filler_in_segment: Filler is in no segment.
  """

  add_bos: bool = schema.option(False, schema.boolean())
  add_eos: bool = schema.option(False, schema.boolean())
  bos_token_id: int | None = schema.option(None, _TOKEN_ID)
  trailing_filler_in_segment: bool = schema.option(False, schema.boolean())


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleOptions:
  """`rows` of a source in buckets of sizes: one sample a row.

  Attributes:
    height_field: Which of its numbers is the height.
    width_field: Which of its numbers is the width.
  """

  height_field: str = schema.option("height", schema.text())
  width_field: str = schema.option("width", schema.text())


@dataclasses.dataclass(frozen=True, kw_only=True)
class OrderOptions:
  """`shuffle` of a source: its samples are permuted in every epoch.

  Attributes:
    seed: Seed of the order; None derives it from the run's.
  """

  seed: int | None = schema.option(None, _SEED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketMixOptions(mix_options.MixFields):
  """How several sources share a bucketed run.

  Attributes:
    unit: 'samples', 'pixels' (height times width) or 'tokens': of text what a
      row holds without padding, of arrays patches of `patch_size`. None is
      tokens for lengths, and samples for resolutions and kind 'weighted'.
  """

  unit: str | None = schema.option(
    None, schema.optional(schema.choice(("samples", "pixels", "tokens")))
  )


@dataclasses.dataclass(frozen=True)
class BucketSource:
  """One entry of `config.data.sources`, checked.

  Attributes:
    store: Path of its store.
    rows: `DocumentOptions` or `SampleOptions`.
    seed: Seed of its order, or None.
    array_record: As in other runs; only of text.
    weight: Its weight in a mix that has no weights of its own.
    max_epochs: Passes over it; None is the run's `epochs`.
  """

  store: str
  rows: Any
  seed: int | None = None
  array_record: stores.ArrayRecordOptions | None = None
  weight: float | None = None
  max_epochs: int | None = None


@dataclasses.dataclass(frozen=True)
class BucketRun:
  """The whole of a bucketed `config.data`, checked.

  Attributes:
    kind: 'length' or 'resolution'.
    data: The fields beside the sections.
    buckets: The section of that name.
    sources: By name.
    mix: How they share the run.
  """

  kind: str
  data: Any
  buckets: Any
  sources: dict[str, BucketSource]
  mix: BucketMixOptions

  @property
  def unit(self) -> str:
    """What is balanced."""
    if self.mix.unit is None and self.mix.kind == "weighted":
      return "samples"
    return self.mix.unit or UNITS[self.kind][0]

  def bucket_stages(
    self,
  ) -> list[tuple[int, dict[str, fractions.Fraction]]] | None:
    """Returns the curriculum, weights exact, or None."""
    if self.buckets.stages is None:
      return None
    return [
      (step, {name: mix_options.exact(weight) for name, weight in weights})
      for step, weights in self.buckets.stages
    ]


@dataclasses.dataclass(frozen=True)
class _Kind:
  """The options of one kind of bucket."""

  data: type
  buckets: type
  rows: type
  source_keys: tuple[str, ...]


_SOURCE_KEYS = ("store", "rows", "shuffle", "weight", "max_epochs")
KINDS = {
  "length": _Kind(
    LengthFields,
    sections.LengthBuckets,
    DocumentOptions,
    (*_SOURCE_KEYS, "array_record"),
  ),
  "resolution": _Kind(
    ResolutionFields, sections.ResolutionBuckets, SampleOptions, _SOURCE_KEYS
  ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _MixedOptions:
  """The fields of a source that only a mix looks at."""

  weight: float | None = schema.option(None, mix_options.WEIGHT)
  max_epochs: int | None = schema.option(
    None, schema.optional(schema.integer(1))
  )


def read(
  data: Mapping[str, Any],
  path: str,
  mixed_in_line: Callable[[str, Any, Any], tuple[Any, Any, list[str]]],
) -> BucketRun:
  """Checks all of a bucketed run that can be checked without reading data.

  Args:
    data: `config.data`, with a section `buckets`.
    path: Its dotted path, for messages.
    mixed_in_line: Returns sources, mix and problems of a `dataset_mix`.

  Returns:
    The run's options.

  Raises:
    ConfigError: If fields are wrong; all of them are listed.
  """
  section = data["buckets"]
  kind = section.get("kind") if isinstance(section, Mapping) else None
  if not isinstance(kind, str) or kind not in KINDS:
    kinds = " or ".join(map(repr, KINDS))
    raise schema.ConfigError(
      [schema.bad_value(f"{path}.buckets.kind", kinds, kind, "Choose one.")]
    )
  own = KINDS[kind]
  options, problems = schema.read(
    own.data, data, path, elsewhere=("buckets", "mix", "sources")
  )
  problems += options.problems(path) if options else []
  buckets, found = schema.read(
    own.buckets,
    {name: value for name, value in section.items() if name != "kind"},
    f"{path}.buckets",
  )
  problems += found
  problems += buckets.problems(f"{path}.buckets") if buckets else []
  sources, mix_section = data.get("sources"), data.get("mix")
  if options and options.dataset_mix and isinstance(sources, Mapping):
    sources, mix_section, found = mixed_in_line(
      options.dataset_mix, sources, mix_section
    )
    problems += found
  checked, found = _sources(sources, f"{path}.sources", own)
  problems += found
  mix, found_mix = _mix(mix_section, checked, kind, path, bool(found))
  problems += found_mix
  if problems or options is None or mix is None:
    raise schema.ConfigError(problems)
  options = dataclasses.replace(options, epochs=mix.passes(options.epochs))
  return BucketRun(kind, options, buckets, checked, mix)


def _sources(
  section: Any, path: str, own: _Kind
) -> tuple[dict[str, BucketSource], list[str]]:
  if not isinstance(section, Mapping) or not section:
    return {}, [
      schema.bad_value(
        path,
        "a section with one entry for each source",
        section,
        f"Set `{path}.<name>.store`.",
      )
    ]
  out, problems = {}, schema.name_problems(path, section)
  for name, entry in section.items():
    source, found = _source(entry, f"{path}.{name}", own)
    problems += found
    if source is not None:
      out[str(name)] = source
  return out, problems


def _or_empty(section: Any) -> Any:
  """Returns a section, one without fields where it is not there."""
  return {} if section is None else section


def _source(
  entry: Any, path: str, own: _Kind
) -> tuple[BucketSource | None, list[str]]:
  if not isinstance(entry, Mapping):
    return None, [
      schema.bad_value(path, "a section with `store`", entry, "Give it one.")
    ]
  problems = [
    schema.unknown_key(path, str(name), own.source_keys, own.source_keys)
    for name in entry
    if name not in own.source_keys
  ]
  store = entry.get("store")
  if not isinstance(store, str) or not store:
    problems.append(
      schema.bad_value(
        f"{path}.store", "the path of a store", store, "Name one."
      )
    )
  mixed = {k: v for k, v in entry.items() if k in ("weight", "max_epochs")}
  in_mix, found = schema.read(_MixedOptions, mixed, path)
  problems += found
  rows, found = schema.read(
    own.rows, _or_empty(entry.get("rows")), f"{path}.rows"
  )
  problems += found
  order, found = schema.read(
    OrderOptions, _or_empty(entry.get("shuffle")), f"{path}.shuffle"
  )
  problems += found
  records = None
  if entry.get("array_record") is not None:
    where = f"{path}.array_record"
    records, found = schema.read(
      stores.ArrayRecordOptions, entry["array_record"], where
    )
    problems += found + (records.problems(where) if records else [])
  if problems or order is None or in_mix is None:
    return None, problems
  return BucketSource(
    str(store), rows, order.seed, records, in_mix.weight, in_mix.max_epochs
  ), []


def _mix(
  section: Any,
  sources: Mapping[str, BucketSource],
  kind: str,
  path: str,
  failed: bool,
) -> tuple[BucketMixOptions | None, list[str]]:
  path = f"{path}.mix"
  mix, problems = schema.read(BucketMixOptions, _or_empty(section), path)
  if mix is None:
    return None, problems
  if not failed:
    weights = {name: source.weight for name, source in sources.items()}
    problems += mix.problems(path, weights)
  if mix.unit is not None and mix.unit not in UNITS[kind]:
    problems.append(
      f"`{path}.unit` must be one of {', '.join(map(repr, UNITS[kind]))} with"
      f" buckets of kind {kind!r}, got {mix.unit!r}. Choose one."
    )
  return mix, problems
