"""From a config to a run's input: the only reader of `config.data`.

    pipe = build(config.data)          # everything is checked here
    pipe.plan(91_400)                  # spans; no token is read
    batches = make_iterator(pipe, sharding)

`build` collects every bad field before it reads data, so that one error lists
them all by dotted path.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any
from typing import TYPE_CHECKING

import grain
import numpy as np

from chomp_data import schema
from chomp_data import sources as sources_lib
from chomp_data import stores
from chomp_data.loading import batches
from chomp_data.loading import state
from chomp_data.ops import spans as spans_lib
from chomp_data.sources import row_source
from chomp_data.sources import shuffled
from chomp_data.transforms import formats

if TYPE_CHECKING:
  from chomp_data.loading import feed
  from chomp_data.loading import placement

ROW_KINDS: dict[str, type] = {
  "splice": sources_lib.SpliceOptions,
  "multi_splice": sources_lib.MultiSpliceOptions,
  "windows": sources_lib.WindowOptions,
}

FINGERPRINT_SCHEMA = 1

_PATH = "config.data"
# A row or a batch beyond this is a slip of the finger.
_MAX_SIDE = 2**24
_MAX_POSITIONS = 2**34
# document_id travels as int32 unless JAX has 64-bit types enabled.
_MAX_INT32 = 2**31 - 1


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
    document_id: Whether batches carry `document_id`.
    prefetch: Batches kept ready on devices.
    timeout_s: Longest wait for one batch, in seconds.
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
  document_id: bool = schema.option(False, schema.boolean())
  prefetch: int = schema.option(2, schema.integer(1, 1024))
  timeout_s: float = schema.option(600.0, schema.number(1))


@dataclasses.dataclass(frozen=True)
class SourceOptions:
  """One entry of `config.data.sources`, checked.

  Attributes:
    store: Path of the store.
    rows: The options of its row kind.
    shuffle: The order of its rows.
  """

  store: str
  rows: Any
  shuffle: shuffled.ShuffleOptions


class Pipeline:
  """A run's whole input: a pure function of the step."""

  def __init__(
    self, options: DataOptions, sources: Mapping[str, SourceOptions]
  ):
    """Opens stores and selects documents; reads no token.

    Args:
      options: The run.
      sources: Its sources by name.

    Raises:
      ConfigError: If options do not fit the stores.
      StoreError: If a store cannot be opened.
    """
    self.options = options
    problems: list[str] = []
    self.sources: dict[str, sources_lib.SpliceSource] = {}
    self._ordered: dict[str, row_source.RowSource] = {}
    for name, source in sources.items():
      try:
        rows = _row_source(name, source, options)
        self.sources[name] = rows
        self._ordered[name] = sources_lib.ShuffledSource(
          rows, source.shuffle, options.seed
        )
      except schema.ConfigError as error:
        problems += error.problems
    if problems:
      raise schema.ConfigError(problems)
    if options.document_id and any(
      source.store.num_documents > _MAX_INT32
      for source in self.sources.values()
    ):
      raise schema.ConfigError(
        [
          f"`{_PATH}.document_id` must be False for stores of more than"
          f" {_MAX_INT32} documents, got True. Unset it."
        ]
      )
    (rows,) = self._ordered.values()
    self._plan = batches.BatchPlan(
      rows=rows,
      global_batch_size=options.global_batch_size,
      epochs=options.epochs,
      remainder=options.remainder,
      document_id=options.document_id,
    )
    if self.num_steps == 0:
      raise schema.ConfigError(
        [
          f"`{_PATH}.global_batch_size` must be at most the run's rows, got"
          f" {options.global_batch_size} with {self._plan.num_rows} rows."
          " Lower it, raise epochs, or set remainder to 'pad'."
        ]
      )

  @property
  def seq_len(self) -> int:
    """Positions of a row."""
    return self.options.seq_len

  @property
  def global_batch_size(self) -> int:
    """Rows of a step over all processes."""
    return self.options.global_batch_size

  @property
  def num_steps(self) -> int | None:
    """Steps of the run, or None where it goes on for ever."""
    return self._plan.num_steps

  @property
  def vocab_size(self) -> int:
    """Token ids of the sources are below this."""
    return max(source.store.vocab_size for source in self.sources.values())

  @property
  def source_names(self) -> list[str]:
    """Names by `source_id`."""
    return list(self.sources)

  @functools.cached_property
  def fingerprint(self) -> dict[str, Any]:
    """What decides every batch, as JSON values.

    Left out: paths, workers, processes, prefetch, and the order of keys.
    """
    return {
      "schema": FINGERPRINT_SCHEMA,
      "seed": self.options.seed,
      "seq_len": self.options.seq_len,
      "global_batch_size": self.options.global_batch_size,
      "epochs": self.options.epochs,
      "remainder": self.options.remainder,
      "batch_format": self.options.batch_format,
      "document_id": self.options.document_id,
      "sources": {
        name: {
          # These two are the run's own, above.
          field: value
          for field, value in source.fingerprint().items()
          if field not in ("seed", "seq_len")
        }
        for name, source in self._ordered.items()
      },
    }

  def validation(self) -> dict[str, row_source.RowSource]:
    """Returns a fixed small (t, s) grid of each source's own documents."""
    return {name: source.validation() for name, source in self.sources.items()}

  def fingerprint_with(
    self, operations: Sequence[grain.transforms.Map]
  ) -> dict[str, Any]:
    """Returns the fingerprint of the run with more transforms.

    Args:
      operations: Transforms over batches. They go by class and `repr`, so one
        with options needs a `repr` that shows them (a dataclass has one).
    """
    if not operations:
      return self.fingerprint
    names = []
    for operation in operations:
      own = type(operation)
      shown = repr(operation)
      # Python's default repr is an address, which no other process shares.
      options = "" if shown.startswith("<") else f" {shown}"
      names.append(f"{own.__module__}.{own.__qualname__}{options}")
    return {**self.fingerprint, "operations": names}

  def plan(self, step: int, count: int = 1) -> spans_lib.Spans:
    """Returns the spans of `count` steps from `step` on; reads no token.

    Args:
      step: The first step.
      count: How many steps; their rows follow each other.

    Raises:
      IndexError: If a step is not of the run.
    """
    steps = self.num_steps
    if step < 0 or (steps is not None and step + count > steps):
      raise IndexError(
        f"step must be in 0 .. {'' if steps is None else steps - 1}, got"
        f" {step} (count {count})."
      )
    return self._plan.plan(step, count)

  def batch(
    self, step: int, rows: np.ndarray | None = None
  ) -> dict[str, np.ndarray]:
    """Returns a step's batch on the host, in the batch format.

    Args:
      step: The step.
      rows: int64[R], ascending rows of the global batch, or None for all.

    Returns:
      Fields [R, ...].
    """
    self.plan(step)
    batch = self._plan.read(self._plan.plan(step, 1, rows))
    return _transformed(batch, self.operations())

  def read(self, spans: spans_lib.Spans) -> dict[str, np.ndarray]:
    """Returns the canonical fields of planned rows."""
    return self._plan.read(spans)

  def operations(self) -> list[grain.transforms.Map]:
    """Returns the transforms over batches that the config asks for."""
    operation = formats.FORMATS[self.options.batch_format]
    return [] if operation is None else [operation()]

  def batch_source(
    self,
    rows: np.ndarray | None = None,
    fingerprint: Mapping[str, Any] | None = None,
  ) -> batches.BatchSource:
    """Returns the Grain source of process-local batches.

    Args:
      rows: int64[R], ascending rows of the global batch that this process
        holds, or None for all.
      fingerprint: Shown in its `repr`, or None for the pipeline's own.
    """
    return batches.BatchSource(
      self._plan, rows, state.digest(fingerprint or self.fingerprint)[:16]
    )

  def data_loader(
    self,
    rows: np.ndarray | None = None,
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

    return feed.data_loader(
      self.batch_source(rows, self.fingerprint_with(operations)),
      seed=self.options.seed,
      operations=[*self.operations(), *operations],
      worker_count=(
        self.options.worker_count if worker_count is None else worker_count
      ),
    )

  def describe(self) -> str:
    """Returns the run's summary for the log."""
    steps = "endless" if self.num_steps is None else f"{self.num_steps} steps"
    head = (
      f"input: {steps} of [{self.global_batch_size}, {self.seq_len}], seed"
      f" {self.options.seed}, epochs {self.options.epochs or 'for ever'}"
    )
    return "\n".join(
      [head, *(source.describe() for source in self._ordered.values())]
    )


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
  return Pipeline(*_checked(_plain(data)))


def make_iterator(
  data: Any,
  sharding: "placement.ShardingTree | None" = None,
  *,
  operations: Sequence[grain.transforms.Map] = (),
) -> "feed.InputIterator":
  """Returns an iterator of global batches as sharded `jax.Array`s.

  Args:
    data: `config.data`, or a `Pipeline`.
    sharding: Of a batch [global_batch_size, seq_len]; fields of lower rank
      take its first axes. Also a mapping by rank or by field name. None puts
      batches on the default device.
    operations: More transforms over process-local batches.

  Returns:
    The iterator, at step 0.

  Raises:
    ConfigError: If a field is wrong, or the batch does not divide.
  """
  import jax

  from chomp_data.loading import feed
  from chomp_data.loading import placement

  pipe = data if isinstance(data, Pipeline) else build(data)
  if sharding is None:
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  transforms = [*pipe.operations(), *operations]
  fingerprint = pipe.fingerprint_with(operations)
  shapes = {
    name: (pipe.global_batch_size, *shape[1:])
    for name, shape in _field_shapes(pipe, transforms).items()
  }
  rows = placement.process_rows(shapes, sharding)
  return feed.InputIterator(
    pipe.batch_source(rows, fingerprint),
    placement.Placer(sharding, rows, pipe.global_batch_size),
    fingerprint=fingerprint,
    seed=pipe.options.seed,
    operations=transforms,
    worker_count=pipe.options.worker_count,
    prefetch=pipe.options.prefetch,
    timeout_s=pipe.options.timeout_s,
  )


def _field_shapes(
  pipe: Pipeline, transforms: Sequence[grain.transforms.Map]
) -> dict[str, tuple[int, ...]]:
  """Returns the shapes of a one-row batch after the transforms."""
  batch = pipe._plan.read(pipe._plan.plan(0, 1, np.zeros(1, np.int64)))
  batch = _transformed(batch, transforms)
  return {name: np.shape(value) for name, value in batch.items()}


def _transformed(batch: Any, transforms: Sequence[Any]) -> Any:
  """Applies transforms as Grain does."""
  for operation in transforms:
    if not isinstance(
      operation, grain.transforms.Map | grain.transforms.RandomMap
    ):
      raise schema.ConfigError(
        [
          "`operations` must be Grain Map or RandomMap transforms, got"
          f" {operation!r}. Others change how many batches there are."
        ]
      )
    if isinstance(operation, grain.transforms.RandomMap):
      batch = operation.random_map(batch, np.random.default_rng(0))
    else:
      batch = operation.map(batch)
  return batch


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
        f"`{_PATH}` must have every required placeholder set, got one that is"
        f" not ({error}). Set it on the command line or in the file."
      ]
    ) from error


def _checked(
  data: Any,
) -> tuple[DataOptions, dict[str, SourceOptions]]:
  """Checks all that can be checked without reading data."""
  if not isinstance(data, Mapping):
    raise schema.ConfigError(
      [schema.bad_value(_PATH, "a section with fields", data, "Give it one.")]
    )
  own = {k: v for k, v in data.items() if k not in ("sources", "mix")}
  options, problems = schema.read(DataOptions, own, _PATH)
  known = [f.name for f in dataclasses.fields(DataOptions)]
  problems = [
    problem.replace(
      "Known fields: " + ", ".join(sorted(known)),
      "Known fields: " + ", ".join(sorted([*known, "mix", "sources"])),
    )
    for problem in problems
  ]
  seq_len = data.get("seq_len")
  if not isinstance(seq_len, int) or seq_len < 2:
    seq_len = None
  sources, found = _checked_sources(data.get("sources"), seq_len)
  problems += found
  if options and options.seq_len * options.global_batch_size > _MAX_POSITIONS:
    problems.append(
      f"`{_PATH}.global_batch_size` times seq_len must be at most"
      f" {_MAX_POSITIONS} positions, got {options.global_batch_size} *"
      f" {options.seq_len}. Lower one of them."
    )
  if data.get("mix"):
    problems.append(
      f"`{_PATH}.mix` must be unset for one source, got"
      f" {data['mix']!r}. Unset it."
    )
  if problems or options is None:
    raise schema.ConfigError(problems)
  return options, sources


def _checked_sources(
  section: Any, seq_len: int | None
) -> tuple[dict[str, SourceOptions], list[str]]:
  path = f"{_PATH}.sources"
  if not isinstance(section, Mapping) or not section:
    return {}, [
      schema.bad_value(
        path,
        "a section with one entry for each source",
        section,
        f"Set `{path}.<name>.store` to a directory made by tools/prepare.py.",
      )
    ]
  out, problems = {}, []
  if len(section) > 1:
    problems.append(
      f"`{path}` must hold one source, got {len(section)}"
      f" ({', '.join(map(str, section))}). Mixing several is not part of"
      " this version; keep one."
    )
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
  known = ("store", "rows", "shuffle")
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
  rows, found = _checked_rows(f"{path}.rows", entry.get("rows"), seq_len)
  problems += found
  shuffle, found = schema.read(
    shuffled.ShuffleOptions, entry.get("shuffle") or {}, f"{path}.shuffle"
  )
  problems += found
  restricted = getattr(rows, "restrict_to_training_subset", False)
  if restricted and shuffle is not None and shuffle.kind != "none":
    problems.append(
      f"`{path}.rows.restrict_to_training_subset` must be False where"
      f" `{path}.shuffle.kind` is not 'none', got True with"
      f" {shuffle.kind!r}: the subset is the first tokens of an unshuffled"
      " run. Set shuffle.kind to 'none' (shuffle_content and"
      " shuffle_offsets stay allowed)."
    )
  if problems or shuffle is None:
    return None, problems
  return SourceOptions(str(store), rows, shuffle), []


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


def _row_source(
  name: str, source: SourceOptions, options: DataOptions
) -> sources_lib.SpliceSource:
  path = f"{_PATH}.sources.{name}"
  store = stores.open_store(source.store)
  if not store.num_documents:
    raise schema.ConfigError(
      [
        f"`{path}.store` must hold a document, got an empty store at"
        f" {source.store}. Prepare it from text."
      ]
    )
  rows = source.rows
  if isinstance(rows, sources_lib.WindowOptions):
    rows = rows.as_splices(options.seq_len)
  return sources_lib.SpliceSource(
    store,
    rows,
    seq_len=options.seq_len,
    seed=options.seed,
    name=name,
    path=f"{path}.rows",
  )
