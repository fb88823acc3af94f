"""`config.data` as checked options; nothing else reads a ConfigDict.

Everything that can be wrong without reading data is collected here, so that
one error lists every bad field by its dotted path, with value and fix.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from chomp_data import schema
from chomp_data import sources as sources_lib
from chomp_data import stores
from chomp_data.bucketed import options as bucket_options
from chomp_data.sources import dataset_mix as mix_lines
from chomp_data.sources import mix_options
from chomp_data.transforms import formats

PATH = "config.data"

ROW_KINDS: dict[str, type] = {
  "splice": sources_lib.SpliceOptions,
  "multi_splice": sources_lib.MultiSpliceOptions,
  "windows": sources_lib.WindowOptions,
  "sequential": sources_lib.SequentialOptions,
  "bin": sources_lib.BinOptions,
}

# A row or a batch beyond this is a slip of the finger.
_MAX_SIDE = 2**24
_MAX_POSITIONS = 2**34


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataOptions:
  """The fields of `config.data` beside sources and mix.

  Attributes:
    seq_len: Positions of a row, S.
    global_batch_size: Rows of a step over all processes, B.
    seed: Seed of every random choice; sources fold their names into it.
    epochs: Passes over the source, or None for ever.
    remainder: 'drop' the rows that fill no step, or 'pad' them with filler.
    worker_count: Child processes that read; 0 reads in the main process.
    batch_format: Names and meanings of a batch's fields.
    mask_boundary_loss: Whether the first token of a document is no label of
      the document before it in the row.
    train_on_eos: Whether EOS is a label.
    lookahead: Whether batches know the token after their last column where a
      packed document continues, so that no label is lost there.
    document_id: Whether batches carry `document_id`.
    shuffle_cache_bytes: Most bytes of the windows of block shuffles, over all
      sources; wider windows are narrowed.
    dataset_mix: Sources and weights in one line, "pathA:0.9 pathB:0.1", in
      place of `mix.weights`, `mix.stages` and `sources.<name>.weight`. An
      entry whose alias is a declared source is that source at another path.
      Any other takes rows and shuffle, without its seed, of the source
      `default`, which is a template and no part of the run unless an entry
      names it; where none is called so, of the declared sources, which must
      then have the same.
    prefetch: Batches kept ready on devices.
    timeout_s: Longest wait for one batch, in seconds.
    on_peer_failure: Where another process fails or dies, 'exit', or let the
      next `next` of the iterator 'raise'.
  """

  seq_len: int = schema.required(schema.integer(2, _MAX_SIDE))
  global_batch_size: int = schema.required(schema.integer(1, _MAX_SIDE))
  seed: int = schema.option(0, schema.integer(0, 2**63 - 1))
  epochs: int | None = schema.option(None, schema.optional(schema.integer(1)))
  remainder: str = schema.option("drop", schema.choice(("drop", "pad")))
  worker_count: int = schema.option(0, schema.integer(0, 1024))
  batch_format: str = schema.option(
    "canonical", schema.choice(tuple(formats.FORMATS))
  )
  mask_boundary_loss: bool = schema.option(True, schema.boolean())
  train_on_eos: bool = schema.option(True, schema.boolean())
  lookahead: bool = schema.option(False, schema.boolean())
  document_id: bool = schema.option(False, schema.boolean())
  shuffle_cache_bytes: int = schema.option(2 * 2**30, schema.integer(1, 2**62))
  dataset_mix: str | None = schema.option(None, schema.optional(schema.text()))
  prefetch: int = schema.option(2, schema.integer(1, 1024))
  timeout_s: float = schema.option(600.0, schema.number(1))
  on_peer_failure: str = schema.option("exit", schema.choice(("exit", "raise")))

  @property
  def mix_entries(self) -> list[mix_lines.Entry]:
    """The sources of `dataset_mix`; none where it is not set."""
    return mix_lines.parse(self.dataset_mix) if self.dataset_mix else []


@dataclasses.dataclass(frozen=True)
class SourceOptions:
  """One entry of `config.data.sources`, checked.

  Attributes:
    store: Path of the store.
    rows: The options of its row kind.
    shuffle: The order of its rows.
    array_record: What ArrayRecord files do not say of themselves, where the
      path is of such files; else None.
    weight: Its weight in a mix that has no weights of its own.
    max_epochs: Passes over it in a mix; None is the run's `epochs`.
  """

  store: str
  rows: Any
  shuffle: sources_lib.ShuffleOptions
  array_record: stores.ArrayRecordOptions | None = None
  weight: float | None = None
  max_epochs: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _MixedOptions:
  """The fields of a source that only a mix looks at."""

  weight: float | None = schema.option(None, mix_options.WEIGHT)
  max_epochs: int | None = schema.option(
    None, schema.optional(schema.integer(1))
  )


@dataclasses.dataclass(frozen=True)
class RunOptions:
  """The whole of `config.data`, checked.

  Attributes:
    data: The fields beside sources and mix.
    sources: By name.
    mix: How they share the run; None for one source alone.
  """

  data: DataOptions
  sources: dict[str, SourceOptions]
  mix: sources_lib.MixOptions | None


def _plain(data: Any) -> Any:
  """Returns a config as plain dictionaries, references resolved."""
  to_dict = getattr(data, "to_dict", None)
  if to_dict is None:
    if isinstance(data, Mapping):
      return {name: _plain(value) for name, value in data.items()}
    return data
  try:
    return to_dict()
  except Exception as error:
    raise schema.ConfigError(
      [
        f"`{PATH}` must have every required placeholder set, got one that is"
        f" not ({error}). Set it on the command line or in the file."
      ]
    ) from error


def read_bucketed(data: Any) -> bucket_options.BucketRun | None:
  """Checks a config with a section `buckets`, as `read` does others.

  Args:
    data: `config.data`, a ConfigDict or a mapping.

  Returns:
    The run's options, or None where there is no such section.

  Raises:
    ConfigError: If fields are wrong; all of them are listed.
  """
  data = _plain(data)
  if not isinstance(data, Mapping) or data.get("buckets") is None:
    return None
  return bucket_options.read(data, PATH, _mixed_in_line)


def read(data: Any) -> RunOptions:
  """Checks all that can be checked without reading data.

  Args:
    data: `config.data`, a ConfigDict or a mapping.

  Returns:
    The run's options.

  Raises:
    ConfigError: If fields are wrong; all of them are listed.
  """
  data = _plain(data)
  if not isinstance(data, Mapping):
    raise schema.ConfigError(
      [schema.bad_value(PATH, "a section with fields", data, "Give it one.")]
    )
  options, problems = schema.read(
    DataOptions, data, PATH, elsewhere=("buckets", "mix", "sources")
  )
  seq_len = data.get("seq_len")
  if not isinstance(seq_len, int) or seq_len < 2:
    seq_len = None
  section, mix_section = data.get("sources"), data.get("mix")
  if options and options.dataset_mix and isinstance(section, Mapping):
    section, mix_section, found = _mixed_in_line(
      options.dataset_mix, section, mix_section
    )
    problems += found
  sources, found = _checked_sources(section, seq_len)
  problems += found
  mix, found = _checked_mix(mix_section, sources, bool(found))
  problems += found
  if options and options.seq_len * options.global_batch_size > _MAX_POSITIONS:
    problems.append(
      f"`{PATH}.global_batch_size` times seq_len must be at most"
      f" {_MAX_POSITIONS} positions, got {options.global_batch_size} *"
      f" {options.seq_len}. Lower one of them."
    )
  if (
    options
    and options.lookahead
    and not formats.FORMATS[options.batch_format].lookahead
  ):
    able = [name for name, form in formats.FORMATS.items() if form.lookahead]
    problems.append(
      f"`{PATH}.lookahead` must be False for batch_format"
      f" {options.batch_format!r}, which has no label after the last column,"
      f" got True. Unset it, or use one of {', '.join(able)}."
    )
  if problems or options is None:
    raise schema.ConfigError(problems)
  if mix is not None:
    options = dataclasses.replace(options, epochs=mix.passes(options.epochs))
  return RunOptions(options, sources, mix)


def _mixed_in_line(
  text: str, section: Mapping, mix: Any
) -> tuple[Mapping, Any, list[str]]:
  """Returns sources, mix and problems of a `dataset_mix`."""
  return mix_lines.replaced(text, section, mix, PATH)


def _checked_mix(
  section: Any, sources: Mapping[str, SourceOptions], failed: bool
) -> tuple[sources_lib.MixOptions | None, list[str]]:
  path = f"{PATH}.mix"
  if section is None and len(sources) < 2:
    return None, []
  mix, problems = schema.read(
    sources_lib.MixOptions, {} if section is None else section, path
  )
  if mix is not None and not failed:
    weights = {name: source.weight for name, source in sources.items()}
    problems += mix.problems(path, weights)
  return mix, problems


def _checked_sources(
  section: Any, seq_len: int | None
) -> tuple[dict[str, SourceOptions], list[str]]:
  path = f"{PATH}.sources"
  if not isinstance(section, Mapping) or not section:
    return {}, [
      schema.bad_value(
        path,
        "a section with one entry for each source",
        section,
        f"Set `{path}.<name>.store` to a directory made by tools/prepare.py.",
      )
    ]
  out, problems = {}, schema.name_problems(path, section)
  for name, entry in section.items():
    source, found = _checked_source(f"{path}.{name}", entry, seq_len)
    problems += found
    if source is not None:
      out[str(name)] = source
  return out, problems


def _checked_source(
  path: str, entry: Any, seq_len: int | None
) -> tuple[SourceOptions | None, list[str]]:
  if not isinstance(entry, Mapping):
    return None, [
      schema.bad_value(
        path, "a section with `store` and `rows`", entry, "Give it both."
      )
    ]
  mixed = {k: v for k, v in entry.items() if k in ("weight", "max_epochs")}
  known = ("store", "rows", "shuffle", "array_record", "weight", "max_epochs")
  problems = [
    schema.unknown_key(path, str(name), known, known)
    for name in entry
    if name not in known
  ]
  store = entry.get("store")
  if not isinstance(store, str) or not store:
    problems.append(
      schema.bad_value(
        f"{path}.store",
        "the path of a store",
        store,
        "Make one with tools/prepare.py and name it here.",
      )
    )
  in_mix, found = schema.read(_MixedOptions, mixed, path)
  problems += found
  records = None
  if entry.get("array_record") is not None:
    own = f"{path}.array_record"
    records, found = schema.read(
      stores.ArrayRecordOptions, entry["array_record"], own
    )
    problems += found + (records.problems(own) if records else [])
  rows, found = _checked_rows(f"{path}.rows", entry.get("rows"), seq_len)
  problems += found
  given = entry.get("shuffle")
  shuffle, found = schema.read(
    sources_lib.ShuffleOptions,
    {} if given is None else given,
    f"{path}.shuffle",
  )
  problems += found
  if shuffle is not None:
    problems += shuffle.problems(
      f"{path}.shuffle", isinstance(rows, sources_lib.BinOptions)
    )
  restricted = getattr(rows, "restrict_to_training_subset", False)
  if restricted and shuffle is not None and shuffle.kind != "none":
    problems.append(
      f"`{path}.rows.restrict_to_training_subset` must be False where"
      f" `{path}.shuffle.kind` is not 'none', got True with"
      f" {shuffle.kind!r}: the subset is the first tokens of an unshuffled"
      " run. Set shuffle.kind to 'none' (shuffle_content and"
      " shuffle_offsets stay allowed)."
    )
  if problems or shuffle is None or in_mix is None:
    return None, problems
  return SourceOptions(
    str(store), rows, shuffle, records, in_mix.weight, in_mix.max_epochs
  ), []


def _checked_rows(
  path: str, section: Any, seq_len: int | None
) -> tuple[Any, list[str]]:
  kind = section.get("kind") if isinstance(section, Mapping) else None
  if not isinstance(kind, str) or kind not in ROW_KINDS:
    kinds = ", ".join(repr(k) for k in ROW_KINDS)
    return None, [
      schema.bad_value(f"{path}.kind", f"one of {kinds}", kind, "Choose one.")
    ]
  own = {k: v for k, v in section.items() if k != "kind"}
  rows, problems = schema.read(ROW_KINDS[kind], own, path)
  if rows is not None and seq_len is not None:
    problems = rows.problems(path, seq_len)
  return rows, problems
