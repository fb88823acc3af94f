# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""`config.data` as checked options; nothing else reads a ConfigDict.

All checks that need no data are made here, so that one error lists every wrong
field by its dotted path, with value and fix. There are three kinds of runs:
rows of one length, or, with a section `buckets`, text in rows of a few lengths
or arrays of a few sizes. Each kind is one entry of `KINDS`; fields that several
kinds have are declared once.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fractions
from typing import Any

from absl import logging
import grain

from chomp_data import row_kinds
from chomp_data import schema
from chomp_data import stores
from chomp_data.bucket import array_dataset
from chomp_data.bucket import document_dataset
from chomp_data.bucket import options as bucket_options
from chomp_data.config import dataset_mix as mix_lines
from chomp_data.config import edits
from chomp_data.index import steps as steps_lib
from chomp_data.mix import mix_options
from chomp_data.order import shuffle_options
from chomp_data.phased import simulated_epochs as selecting
from chomp_data.rows import targets
from chomp_data.sources import column_fields
from chomp_data.sources import mix_units
from chomp_data.sources import row_source
from chomp_data.sources import shared_options
from chomp_data.sources import special_tokens
from chomp_data.storage import disk_cache
from chomp_data.stores import kinds as store_kinds
from chomp_data.transforms import formats
from chomp_data.transforms import masks
from chomp_data.transforms import sequence_layout as layouts

PATH = "config.data"

# A larger row or batch is taken to be a typing error.
_MAX_SIDE = bucket_options.MAX_SIDE
_MAX_POSITIONS = 2**34
_ROWS = schema.integer(1, _MAX_SIDE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFields(schema.Options):
  """The fields of `config.data` that all kinds of runs share.

  Attributes:
    seed: Seed of every random choice. Each source derives its own from it and
      from the source's name.
    epochs: Passes over each source; None never ends.
    remainder: What happens to the last rows of an epoch if they do not fill a
      batch (in buckets: to those of each source and bucket): 'drop' leaves them
      out, 'pad' adds padding rows.
    worker_count: How many child processes read batches; with 0 a thread of the
      main process reads them. Workers are not started where they cannot help:
      when all stores are memory-mapped files and the run has no transforms of
      the user.
    dataset_mix: Sources and weights in one line, "pathA:0.9 pathB:0.1", instead
      of `mix.weights`, `mix.stages` and `sources.<name>.weight`. An entry whose
      alias is a declared source replaces the path of that source. Any other
      entry takes `rows` and `shuffle`, except its seed, from the source named
      `default`, which is a template and not part of the run unless an entry
      names it; without a source `default`, it takes them from the declared
      sources, which must then agree.
    skip: Ranges of data steps to skip, pairs (first, last), both included: the
      run continues with the step after them. Their rows count as consumed.
    prefetch: How many batches are prefetched to the devices.
    timeout_s: Longest wait for one batch, in seconds, before the run raises an
      error. Time spent on planning, such as packing an epoch, does not count.
    on_peer_failure: What a process does when another process of the run fails
      or dies: 'raise' an error at the next call of its iterator, or 'exit' at
      once. Python cannot leave a collective operation that waits for the failed
      process; therefore, with 'raise', a process that makes no such call within
      `peer_failure_grace_s` also exits.
    peer_failure_grace_s: With `on_peer_failure='raise'`, how many seconds a
      process may take until its next call. Increase it if steps, evaluations or
      compilations take longer.
    certificate: What the certificate in checkpoints covers: the 'plan' of the
      batches that were read, at no cost, or their 'tokens' too (3 us per 1,000
      tokens).
  """

  seed: int = schema.option(0, shared_options.SEED)
  epochs: int | None = schema.option(None, schema.optional(schema.integer(1)))
  remainder: str = schema.option("drop", schema.choice(("drop", "pad")))
  worker_count: int = schema.option(0, schema.integer(0, 1024))
  dataset_mix: str | None = schema.option(None, schema.optional(schema.text()))
  skip: tuple[tuple[int, int], ...] = schema.option((), edits.SKIP)
  prefetch: int = schema.option(2, schema.integer(1, 1024))
  timeout_s: float = schema.option(600.0, schema.number(1))
  on_peer_failure: str = schema.option(
    "raise", schema.choice(("raise", "exit"))
  )
  peer_failure_grace_s: float = schema.option(30.0, schema.number())
  certificate: str = schema.option("plan", schema.choice(("plan", "tokens")))

  @property
  def mix_entries(self) -> list[mix_lines.Entry]:
    """The sources of `dataset_mix`; none where it is not set."""
    return mix_lines.parse(self.dataset_mix) if self.dataset_mix else []

  @property
  def sizes(self) -> steps_lib.Sizes:
    """(from data step, rows of a step); in buckets each step counts as one."""
    return ((0, 1),)

  @property
  def steps(self) -> steps_lib.Steps:
    """The steps of the run."""
    return edits.steps(self.sizes, self.skip)

  def problems(self, path: str) -> list[str]:
    """Returns what is wrong between these fields."""
    return edits.skip_problems(f"{path}.skip", self.skip)

  def extra_fields(self, opened: Collection[stores.Store]) -> tuple[str, ...]:
    """Returns the optional batch fields that these options need.

    Args:
      opened: The stores of all sources of text.
    """
    del opened
    return ()

  def operations(
    self, sources: Mapping[str, row_source.RowSource]
  ) -> list[grain.transforms.Map]:
    """Returns the transforms over batches that these options ask for.

    Args:
      sources: Of text, by name, in the order of their numbers.

    Raises:
      ConfigError: If they need a token that a source does not know.
    """
    del sources
    return []

  def fingerprint(self) -> dict[str, Any]:
    """Returns the fields that determine batches, as JSON values."""
    return {
      "seed": self.seed,
      "epochs": self.epochs,
      "remainder": self.remainder,
      **edits.fingerprint(self.steps),
    }


# Of the fields that all kinds share, by name.
RULES = {
  name: option.rule for name, option in schema.options_of(RunFields).items()
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFields(RunFields):
  """The fields of `config.data` of a run of text.

  Attributes:
    batch_format: Names and meanings of the fields of a batch, listed in
      docs/formats.md.
    keep_fields: Canonical fields that batches hold in addition to those of
      their format, such as `source_id`, `document_id` and `attention_mask`;
      docs/formats.md lists them.
    train_on_eos: Whether the end-of-document token (EOS) is trained on as a
      label.
    lookahead: Whether batches hold the token after their last column if the
      document continues there, so that the last column has a label too. It has
      no effect on splices and windows.
    num_targets: How many targets each column has. With D, batches hold
      `targets`, `targets_2`, ... (the tokens 1 to D places later in the same
      document) and a `target_mask` for each.
    document_id: Whether batches hold `document_id`, the numbers of the
      documents in each row.
    columns: Columns of the stores that batches hold, names or pairs (name, fill
      value); without a fill value, all sources must have the column, and 0
      stands where it has no value; docs/targets.md#columns.
    tombstones: Documents and spans to remove from given data steps on, pairs
      (from_step, file of JSON lines); docs/edits.md describes the lines.
    balance: How the rows of a batch are assigned to its shards: None in planned
      order, 'attention' so that the sums of squared segment lengths are
      similar. The assignment is not part of a checkpoint's state, so it may
      change at any resume.
    balance_shards: How many shards `balance` assigns rows to; None is the
      number of shards of the batch dimension of the sharding.
    device_fields: Whether fields of text are sent to devices in 16 bits, and
      masks in one bit per position, and widened there: 'never', 'always', or
      'auto' (if all devices are accelerators). It has not been run on an
      accelerator yet, so the default is 'never'. Batches are the same, so it
      may change at any resume. With a user's transform of batches on the host,
      fields are sent in full width.
  """

  batch_format: str = schema.option("canonical", schema.choice(formats.FORMATS))
  keep_fields: tuple[str, ...] = schema.option(
    (), schema.sequence(schema.text())
  )
  train_on_eos: bool = schema.option(True, schema.boolean())
  lookahead: bool = schema.option(False, schema.boolean())
  num_targets: int = schema.option(0, schema.integer(0, targets.MAX_TARGETS))
  document_id: bool = schema.option(False, schema.boolean())
  columns: tuple[column_fields.Request, ...] = schema.option(
    (), column_fields.REQUESTS
  )
  tombstones: tuple[tuple[int, str], ...] = schema.option((), edits.TOMBSTONES)
  balance: str | None = schema.option(
    None, schema.optional(schema.choice(("attention",)))
  )
  balance_shards: int | None = schema.option(None, schema.optional(_ROWS))
  device_fields: str = schema.option(
    "never", schema.choice(("auto", "always", "never"))
  )

  def problems(self, path: str) -> list[str]:
    """Returns what is wrong between these fields."""
    problems = super().problems(path)
    problems += edits.rising_problems(f"{path}.tombstones", self.tombstones)
    if self.balance_shards is not None and self.balance is None:
      problems.append(
        f"`{path}.balance_shards` must be None where nothing is balanced, got"
        f" {self.balance_shards}. Set {path}.balance, or unset it."
      )
    problems += self._keep_problems(f"{path}.keep_fields")
    if not self.lookahead or formats.FORMATS[self.batch_format].lookahead:
      return problems
    able = [name for name, form in formats.FORMATS.items() if form.lookahead]
    return [
      *problems,
      f"`{path}.lookahead` must be False for batch_format"
      f" {self.batch_format!r}, which has no label after the last column, got"
      f" True. Unset it, or use one of {', '.join(able)}.",
    ]

  def _keep_problems(self, path: str) -> list[str]:
    """Returns what is wrong with `keep_fields`."""
    known = ["tokens", "segment_ids", "positions", "loss_mask", "loss_weight"]
    known += ["attention_mask", "source_id", "pair_mask"]
    known += [name for name, _ in self.columns]
    known += ["next_token"] * self.lookahead
    known += ["document_id"] * self.document_id
    for depth in range(1, self.num_targets + 1):
      known += targets.names(depth)
    problems = [
      f"`{path}` must hold canonical fields of the run"
      f" ({', '.join(known)}), got {name!r}.{schema.did_you_mean(name, known)}"
      " Leave it out, or set the option that adds it: document_id, lookahead"
      " or num_targets."
      for name in self.keep_fields
      if name not in known
    ]
    form = formats.FORMATS[self.batch_format]
    return problems + [
      f"`{path}` must hold no field that batch_format {self.batch_format!r}"
      f" makes itself, got {name!r}. Leave it out."
      for name in form.replaced(self.keep_fields, known)
    ]

  def extra_fields(self, opened: Collection[stores.Store]) -> tuple[str, ...]:
    """Returns the optional batch fields; see `RunFields`.

    Raises:
      ConfigError: If `keep_fields` has weights or pairs, and no store has.
    """
    needed = set(formats.FORMATS[self.batch_format].needs)
    if self.lookahead:
      needed.add("next_token")
    needed.update(targets.FIELDS[: self.num_targets])
    needed.update({"attention_mask"}.intersection(self.keep_fields))
    absent = set()
    if any(store.labels.has_weights for store in opened):
      needed.add("loss_weight")
    else:
      absent.add("loss_weight")
      absent.update(targets.names(d + 1)[2] for d in range(self.num_targets))
    if not any(store.opened.pairs for store in opened):
      absent.add("pair_mask")
    absent.intersection_update(self.keep_fields)
    if absent:
      raise schema.ConfigError(
        [
          f"`{PATH}.keep_fields` must hold no weights and no pair_mask where no"
          f" store has weights or pairs, got {', '.join(sorted(absent))}. Leave"
          " them out."
        ]
      )
    return tuple(sorted(needed))

  def operations(
    self, sources: Mapping[str, row_source.RowSource]
  ) -> list[grain.transforms.Map]:
    """Returns the transforms over batches that these options ask for."""
    transforms: list[grain.transforms.Map] = []
    if not self.train_on_eos:
      eos_ids = special_tokens.eos_ids(sources, self.train_on_eos, PATH)
      transforms.append(masks.TrainOnEos(enabled=False, eos_ids=eos_ids))
    if not (
      formats.FORMATS[self.batch_format].weights
      or "loss_weight" in self.keep_fields
    ):
      for name, source in sources.items():
        if source.store.labels.has_weights:
          logging.warning(
            "%s.batch_format: %r has no place for weights: every token of %r"
            " that is trained on counts the same.",
            PATH,
            self.batch_format,
            name,
          )
    operation = formats.FORMATS[self.batch_format].transform
    if operation is None:
      return transforms
    names = [*self.keep_fields, *(name for name, _ in self.columns)]
    if names:
      return [*transforms, formats.KeepFields(operation(), tuple(names))]
    return [*transforms, operation()]

  def fingerprint(self) -> dict[str, Any]:
    """Returns the fields that determine batches, as JSON values."""
    return {
      **super().fingerprint(),
      "batch_format": (
        formats.FORMATS[self.batch_format].name or self.batch_format
      ),
      "train_on_eos": self.train_on_eos,
      "lookahead": self.lookahead,
      "document_id": self.document_id,
      # Left out where they are unset, as in states of earlier versions.
      **({"num_targets": self.num_targets} if self.num_targets else {}),
      **(
        {"columns": {name: fill or 0 for name, fill in self.columns}}
        if self.columns
        else {}
      ),
      **(
        {"keep_fields": sorted(set(self.keep_fields))}
        if self.keep_fields
        else {}
      ),
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowFields(TextFields):
  """The fields of `config.data` of a run in rows of one length.

  Attributes:
    seq_len: Length of a row in tokens.
    global_batch_size: Rows per step over all processes; None if
      `batch_size_schedule` is set.
    batch_size_schedule: Rows per step by data step, pairs (from_step, rows)
      that begin at data step 0, instead of `global_batch_size`. Each size is a
      separate static shape.
    mask_boundary_loss: Whether the loss mask excludes a document's last token,
      whose next token in the row is the first of another document.
    shuffle_cache_bytes: Most bytes that block shuffles cache in memory, over
      all sources; windows that need more get fewer blocks.
    start_after: Work directory of an earlier run, or one of its checkpoints.
      The first epoch of each source is the part of its epoch that the earlier
      run had not read, possibly in other rows or another order; docs/edits.md.
  """

  seq_len: int = schema.required(schema.integer(2, _MAX_SIDE))
  global_batch_size: int | None = schema.option(
    None,
    schema.optional(_ROWS),
    fix="Correct it, or leave it out and set batch_size_schedule.",
    unless="batch_size_schedule",
  )
  batch_size_schedule: tuple[tuple[int, int], ...] | None = schema.option(
    None, schema.optional(edits.SCHEDULE)
  )
  mask_boundary_loss: bool = schema.option(True, schema.boolean())
  shuffle_cache_bytes: int = schema.option(
    2 * 2**30, schema.integer(1, 2**62 - 1)
  )
  start_after: str | None = schema.option(None, schema.optional(schema.text()))

  def problems(self, path: str) -> list[str]:
    """Returns what is wrong between these fields."""
    problems = super().problems(path)
    if self.num_targets and not self.mask_boundary_loss:
      problems.append(
        f"`{path}.num_targets` must be 0 with mask_boundary_loss=False, got"
        f" {self.num_targets}: a target is of its column's document. Unset one"
        " of them."
      )
    if None not in (self.global_batch_size, self.batch_size_schedule):
      problems.append(
        f"`{path}.global_batch_size` must be None beside batch_size_schedule,"
        f" got {self.global_batch_size} and {self.batch_size_schedule}. Set"
        f" it so (--{path}.global_batch_size=None), or leave the schedule out."
      )
    else:
      problems += edits.schedule_problems(
        f"{path}.batch_size_schedule", self.sizes
      )
      most = max(size for _, size in self.sizes)
      if self.seq_len * most > _MAX_POSITIONS:
        problems.append(
          f"`{self.sizes_field(path)}` times seq_len must be at most"
          f" {_MAX_POSITIONS} positions, got {most} * {self.seq_len}. Lower one"
          " of them."
        )
    return problems

  @property
  def sizes(self) -> steps_lib.Sizes:
    """(from data step, rows of a step)."""
    if self.batch_size_schedule is not None:
      return self.batch_size_schedule
    assert self.global_batch_size is not None
    return ((0, self.global_batch_size),)

  def sizes_field(self, path: str) -> str:
    """Returns the dotted path of the field that sets the rows of steps."""
    if self.batch_size_schedule is not None:
      return f"{path}.batch_size_schedule"
    return f"{path}.global_batch_size"

  def extra_fields(self, opened: Collection[stores.Store]) -> tuple[str, ...]:
    """Returns the optional batch fields that these options need."""
    needed = set(super().extra_fields(opened))
    if not self.mask_boundary_loss:
      needed.add("attention_mask")
      if any(
        store.labels.has_runs or store.labels.has_weights for store in opened
      ):
        needed.add("label_weight")
    return tuple(sorted(needed))

  def operations(
    self, sources: Mapping[str, row_source.RowSource]
  ) -> list[grain.transforms.Map]:
    """Returns the transforms over batches that these options ask for."""
    transforms = super().operations(sources)
    if not self.mask_boundary_loss:
      fim = [name for name, source in sources.items() if _has_fim(source)]
      if fim:
        raise schema.ConfigError(
          [
            f"`{PATH}.mask_boundary_loss` must be True with"
            f" sources.{fim[0]}.rows.fim, got False: unused positions separate"
            " some of its documents. Unset one of them."
          ]
        )
      transforms.insert(0, masks.MaskBoundaryLoss(enabled=False))
    return transforms

  def fingerprint(self) -> dict[str, Any]:
    """Returns the fields that determine batches, as JSON values."""
    return {
      **super().fingerprint(),
      "seq_len": self.seq_len,
      "global_batch_size": self.sizes[0][1],
      "mask_boundary_loss": self.mask_boundary_loss,
    }


def _has_fim(source: row_source.RowSource) -> bool:
  return bool(source.layout.sentinel_ids)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayFields(RunFields):
  """The fields of `config.data` with buckets of sizes.

  Attributes:
    global_batch_size: Samples of a step over all processes, of buckets that
      `buckets.batch_sizes` does not name.
  """

  global_batch_size: int = schema.required(_ROWS)


# The stores of a source: paths, or open stores.
_Stores = str | stores.Store | tuple[str | stores.Store, ...]


def _path(value: Any) -> str:
  """Returns a path; opening it raises if it is wrong."""
  if not isinstance(value, str):
    raise TypeError
  if not value:
    raise ValueError
  return value


def _path_or_store(value: Any) -> str | stores.Store:
  """Returns a path, or a store that is open."""
  return value if isinstance(value, stores.Store) else _path(value)


def _paths(value: Any) -> _Stores:
  """Returns a store, or several as a tuple; a list of one is one store."""
  if isinstance(value, str | stores.Store):
    return _path_or_store(value)
  if not isinstance(value, list | tuple):
    raise TypeError
  paths = tuple(_path_or_store(item) for item in value)
  if not paths or len(set(paths)) < len(paths):
    raise ValueError
  return paths[0] if len(paths) == 1 else paths


def _rising_epochs(value: Any) -> tuple[int, ...]:
  if not isinstance(value, list | tuple):
    raise TypeError
  epochs = tuple(schema.integer().convert(epoch) for epoch in value)
  if not epochs or epochs[0] or list(epochs) != sorted(epochs):
    raise ValueError
  return epochs


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceOptions(schema.Options):
  """One entry of `config.data.sources`.

  Attributes:
    store: Path of the store, or a list of paths that are read as one, one after
      the other; in a config file also what `stores.from_source` returns. A
      store that is appended when a run resumes joins at the source's next
      epoch, and the log shows the value of `joined` that records this.
    joined: The epoch of the source at which each store joined; None is the
      first epoch for all, unless the state that the run resumes from says
      otherwise.
    weight: Share of the source in a mix without `mix.weights`; None is 1, and
      0 none before a stage of `mix.stages` that names the source.
    max_epochs: Passes over the source in a mix; None uses the run's `epochs`.
    cache_dir: A local directory that caches chunks of a store at a URL, shared
      by all processes and runs that name it; None caches none on disk.
    cache_dir_bytes: Most bytes of `cache_dir`.
    rows: The options of its rows (or samples), a section.
    shuffle: Their order, a section.
    store_options: What data of its kind does not say of itself, by the name of
      the kind and of its section, `stores.STORE_KINDS`; empty where the path
      tells all.
    unset: Which of 'shuffle' and 'add_eos' the config leaves out.
  """

  store: _Stores = schema.required(  # noqa: RUF009 (a rule)
    schema.Rule(
      "the path of a store, as chomp-prepare makes one, or a list of"
      " distinct ones",
      _paths,
    )
  )
  joined: tuple[int, ...] | None = schema.option(
    None,
    schema.optional(
      schema.Rule("whole numbers, rising from 0", _rising_epochs)
    ),
  )
  weight: float | None = schema.option(None, mix_options.WEIGHT)
  max_epochs: int | None = schema.option(
    None, schema.optional(schema.integer(1))
  )
  cache_dir: str | None = schema.option(None, schema.optional(schema.text()))
  cache_dir_bytes: int = schema.option(
    disk_cache.DEFAULT_BYTES, schema.integer(1, 2**62 - 1)
  )
  rows: Any = None
  shuffle: Any = None
  store_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  unset: frozenset[str] = frozenset()

  @property
  def members(self) -> tuple[str | stores.Store, ...]:
    """Its stores, by their paths or open."""
    return self.store if isinstance(self.store, tuple) else (self.store,)

  @property
  def paths(self) -> tuple[str, ...]:
    """The paths of its stores, less those that are open."""
    return tuple(path for path in self.members if isinstance(path, str))


@dataclasses.dataclass(frozen=True)
class RunOptions:
  """The whole of `config.data`, checked.

  Attributes:
    kind: 'rows', 'length' or 'resolution'.
    data: The fields beside the sections.
    buckets: The section of that name; None for rows of one length.
    sources: By name.
    mix: How they share the run; None for one source of rows alone.
    sequence_layout: The order of columns on devices; None is their own.
    simulated_epochs: Which part of each source's documents the run reads; None
      is all of them.
  """

  kind: str
  data: Any
  buckets: Any
  sources: dict[str, SourceOptions]
  mix: Any
  sequence_layout: layouts.SequenceLayout | None = None
  simulated_epochs: selecting.SimulatedEpochs | None = None

  @property
  def weights(self) -> dict[str, float | None]:
    """`sources.<name>.weight` of every source."""
    return {name: source.weight for name, source in self.sources.items()}

  @property
  def max_epochs(self) -> dict[str, int | None]:
    """Requested passes over each source; None never ends."""
    return {
      name: source.max_epochs or self.data.epochs
      for name, source in self.sources.items()
    }

  @property
  def unit(self) -> str:
    """The unit that a mix of buckets balances."""
    if self.mix.unit is None and self.mix.kind == "weighted":
      return "samples"
    return self.mix.unit or KINDS[self.kind].unit

  def bucket_stages(
    self,
  ) -> list[tuple[int, dict[str, fractions.Fraction]]] | None:
    """Returns the curriculum over buckets, weights exact, or None."""
    if self.buckets is None or self.buckets.stages is None:
      return None
    return mix_options.exact_stages(self.buckets.stages)


@dataclasses.dataclass(frozen=True)
class Kind:
  """The options of one kind of run.

  Attributes:
    fields: Of `config.data` itself.
    section: Of `config.data.buckets`; None where there is none.
    rows: Of the section `rows` of a source; None where its `kind` is one of
      `row_kinds`.
    shuffle: Of the section `shuffle` of a source.
    mix: Of `config.data.mix`.
    unit: What a mix of buckets balances, unless said; '' for rows.
    of_documents: Whether sources are stores of documents, of any kind.
  """

  fields: type[RunFields]
  section: type | None
  rows: type | None
  shuffle: type
  mix: type[mix_options.MixFields]
  unit: str
  of_documents: bool = True


KINDS: dict[str, Kind] = {
  "rows": Kind(
    RowFields,
    None,
    None,
    shuffle_options.ShuffleOptions,
    mix_options.MixOptions,
    "",
  ),
  "length": Kind(
    TextFields,
    bucket_options.LengthBuckets,
    document_dataset.DocumentOptions,
    bucket_options.OrderOptions,
    bucket_options.BucketMixOptions,
    "tokens",
  ),
  "resolution": Kind(
    ArrayFields,
    bucket_options.ResolutionBuckets,
    array_dataset.SampleOptions,
    bucket_options.OrderOptions,
    bucket_options.BucketMixOptions,
    "samples",
    of_documents=False,
  ),
}


# Fields that runs with buckets or of arrays cannot have: rule and advice.
_REFUSED = {
  "batch_size_schedule": (
    f"None with `{PATH}.buckets`, which say the samples of a step",
    "Leave it out.",
  ),
  "tombstones": (
    "None for samples that are arrays",
    "Leave it out: skip steps, or begin anew.",
  ),
  "simulated_epochs": (
    "None for samples that are arrays",
    "Leave it out: it selects documents of text.",
  ),
  "start_after": (
    f"None with `{PATH}.buckets`",
    "Leave it out: only runs in rows of one length go on after others.",
  ),
}


def read(data: Any) -> RunOptions:
  """Checks all that can be checked without reading data.

  Args:
    data: `config.data`, a ConfigDict or a mapping.

  Returns:
    The run's options.

  Raises:
    ConfigError: If fields are wrong; all of them are listed.
  """
  data = plain(data)
  if not isinstance(data, Mapping):
    raise schema.ConfigError(
      [schema.bad_value(PATH, "a section with fields", data, "Give it one.")]
    )
  if isinstance(data.get("data"), Mapping) and "sources" not in data:
    raise schema.ConfigError(
      [
        f"`{PATH}` must be the section of the input, got a whole config"
        f" ({', '.join(map(str, data))}). Pass its field `data`."
      ]
    )
  if isinstance(data.get("sources"), Mapping):
    entries = data["sources"]
    data = {**data, "sources": {str(name): entries[name] for name in entries}}
  data = known(data).stated(data)
  tombstones = data.get("tombstones")
  if isinstance(tombstones, list | tuple) and not tombstones:
    del data["tombstones"]  # None at all, which runs of arrays may say too.
  mix_line, declared = data.get("dataset_mix"), data.get("sources")
  problems: list[str] = []
  if isinstance(mix_line, str) and mix_line and isinstance(declared, Mapping):
    sources, mix, problems = mix_lines.replaced(
      mix_line, declared, data.get("mix"), PATH
    )
    data = {**data, "sources": sources, "mix": mix}
  run, wrong = known(data).read(data, PATH)
  if problems or wrong:
    raise schema.ConfigError(problems + wrong)
  return run


def known(data: Any) -> schema.Section:
  """Returns every option that `config.data` may have.

  They depend on the kinds that it names; if one is missing or wrong, `kind` is
  the only option of its section.

  Args:
    data: A mapping that may be wrong or incomplete.
  """
  data = data if isinstance(data, Mapping) else {}
  name = "rows"
  if not _is_unset(data.get("buckets")):
    name = schema.kind_of(data["buckets"])
  buckets = dataclasses.replace(
    schema.section_by_kind(
      {name: run.section for name, run in KINDS.items() if run.section},
      data.get("buckets"),
      "Whether batches are of text in rows of a few lengths or of arrays of a"
      " few sizes; without the section `buckets` all rows have one length.",
    ),
    check=schema.problems_of,
    is_optional=True,
  )
  if name not in KINDS:
    return schema.Section(None, {"buckets": buckets})
  run = KINDS[name]
  entries = data.get("sources")
  entries = entries if isinstance(entries, Mapping) else {}
  seq_len = data.get("seq_len")
  if not isinstance(seq_len, int) or seq_len < 2:
    seq_len = None
  sources = schema.Section(
    schema.Options,
    {name: _source(entries[name], run, seq_len) for name in entries},
    check=lambda _, path: schema.name_problems(path, entries),
    join=lambda _, sources, values: sources,
    is_required=True,
    rule="a section with one entry for each source",
    fix=(
      f"Set `{PATH}.sources.<name>.store` to a directory made by chomp-prepare."
    ),
  )
  mix = schema.Section(
    run.mix,
    others=_others(run.mix, [run.mix for run in KINDS.values()]),
    check=lambda mix, path: _mix_problems(mix, path, name, entries),
    is_optional=name == "rows" and len(entries) < 2 and not _waits(entries),
  )
  others = _others(run.fields, [run.fields for run in KINDS.values()])
  sections = {"buckets": buckets, "mix": mix, "sources": sources}
  if run.of_documents:
    sections["sequence_layout"] = schema.Section(
      layouts.SequenceLayout,
      check=lambda layout, path: _layout_problems(layout, path, data),
      is_optional=True,
    )
    sections["simulated_epochs"] = schema.Section(
      selecting.SimulatedEpochs,
      check=lambda simulated, path: [
        *simulated.problems(path),
        *_selection_problems(path, data, name == "rows"),
      ],
      is_optional=True,
    )
  else:
    others["simulated_epochs"] = None
  return schema.Section(
    run.fields,
    sections,
    others={field: _REFUSED.get(field) for field in others},
    check=schema.problems_of,
    join=lambda fields, sections, values: _joined(name, fields, sections),
  )


def _layout_problems(
  layout: layouts.SequenceLayout, path: str, data: Mapping[str, Any]
) -> list[str]:
  """Returns what is wrong between a layout and other fields of a run."""
  lengths = {f"{PATH}.seq_len": data.get("seq_len")}
  if isinstance(data.get("buckets"), Mapping):
    of_buckets = data["buckets"].get("lengths")
    if isinstance(of_buckets, list | tuple):
      name = f"{PATH}.buckets.lengths"
      lengths = {f"{name}[{i}]": n for i, n in enumerate(of_buckets)}
  problems = layout.problems(
    path, {name: n for name, n in lengths.items() if isinstance(n, int)}
  )
  if layout.is_contiguous:
    return problems
  if data.get("lookahead"):
    problems.append(
      f"`{PATH}.lookahead` must be False with `{path}.kind` {layout.kind!r},"
      " got True: the last column is no longer the one before the next token."
      f" Set {PATH}.num_targets=1, which includes it, and lookahead=False."
    )
  form = formats.FORMATS.get(data.get("batch_format") or "canonical")
  if form is not None and not form.targets and not data.get("num_targets"):
    able = [name for name, each in formats.FORMATS.items() if each.targets]
    problems.append(
      f"`{PATH}.num_targets` must be at least 1 with `{path}.kind`"
      f" {layout.kind!r}, got {data.get('num_targets') or 0}: columns on"
      " devices are not before their targets. Set it, or use batch_format"
      f" {' or '.join(able)}."
    )
  return problems


def _selection_problems(
  path: str, data: Mapping[str, Any], of_rows: bool
) -> list[str]:
  """Returns what a run cannot have beside selected documents."""
  problems = []
  if data.get("start_after") is not None:
    problems.append(
      f"`{path}` must be None with start_after, got a section and"
      f" {data['start_after']!r}. Leave one out: what an earlier run left was"
      " not selected."
    )
  entries = data.get("sources")
  entries = entries if isinstance(entries, Mapping) else {}
  for name, entry in entries.items():
    entry = entry if isinstance(entry, Mapping) else {}
    rows, joined = entry.get("rows"), entry.get("joined")
    kind = rows.get("kind") if isinstance(rows, Mapping) else None
    source = f"{PATH}.sources.{name}"
    packed = row_kinds.passes_over_tokens()
    if of_rows and kind in row_kinds.ROW_KINDS.keys() - {*packed}:
      problems.append(
        f"`{source}.rows.kind` must be"
        f" {' or '.join(map(repr, packed))} with `{path}`, got"
        f" {kind!r}, whose epochs are not passes over tokens. Pack the source,"
        " or leave the section out."
      )
    if isinstance(joined, list | tuple) and any(joined):
      problems.append(
        f"`{source}.joined` must be 0 for every store with `{path}`, got"
        f" {joined}. Begin a new run with all stores."
      )
  return problems


def _source(entry: Any, run: Kind, seq_len: int | None) -> schema.Section:
  """Returns the declaration of a source."""
  entry = entry if isinstance(entry, Mapping) else {}
  of_all_kinds = [kind.rows for kind in KINDS.values() if kind.rows]
  of_all_kinds += [kind.options for kind in row_kinds.ROW_KINDS.values()]
  if run.rows is None:
    rows = row_kinds.section(entry.get("rows"), seq_len)
  else:
    rows = schema.Section(run.rows)
  others = {**_others(rows.cls, of_all_kinds), **rows.others}
  rows = dataclasses.replace(rows, others=others)
  subset = isinstance(entry.get("rows"), Mapping) and (
    entry["rows"].get("restrict_to_training_subset") is True
  )
  row_kind = row_kinds.of(rows.cls)
  has_blocks = row_kind is not None and row_kind.has_blocks
  shuffle = schema.Section(
    run.shuffle,
    others=_others(run.shuffle, [kind.shuffle for kind in KINDS.values()]),
    expanded=run.shuffle.expanded,
    rule=run.shuffle.rule,
    fix=run.shuffle.fix,
    check=lambda shuffle, path: [
      *shuffle.problems(path, has_blocks),
      *(_subset_problems(path, shuffle) if subset else ()),
    ],
  )
  kinds = store_kinds.sections() if run.of_documents else {}
  return schema.Section(
    SourceOptions,
    {
      "rows": rows,
      "shuffle": shuffle,
      **{
        name: schema.Section(cls, check=schema.problems_of, is_optional=True)
        for name, cls in kinds.items()
      },
    },
    check=lambda source, path: (
      _store_problems(path, source, run)
      + _kind_problems(
        path, [n for n in kinds if entry.get(n) is not None], source.paths
      )
    ),
    join=lambda source, sections, values: dataclasses.replace(
      source,
      rows=sections["rows"],
      shuffle=sections["shuffle"],
      store_options={n: sections[n] for n in kinds if sections[n] is not None},
      unset=_unset(values, run),
    ),
    is_required=True,
    rule="a section with `store` and `rows`",
    fix="Give it both.",
  )


def _others(
  cls: type | None, classes: Iterable[type]
) -> dict[str, tuple[str, str] | None]:
  """Returns the fields that only other classes have."""
  names = {
    name
    for other in classes
    for name in (*schema.options_of(other), *schema.nested_of(other))
  }
  if cls is not None:
    names -= schema.options_of(cls).keys() | schema.nested_of(cls).keys()
  return dict.fromkeys(sorted(names))


def _joined(kind: str, fields: Any, sections: dict[str, Any]) -> RunOptions:
  """Returns the options of a run; its mix may set the number of epochs."""
  mix = sections["mix"]
  if mix is not None:
    fields = dataclasses.replace(fields, epochs=mix.passes(fields.epochs))
  return RunOptions(kind, fields, **sections)


def _is_unset(section: Any) -> bool:
  """Returns whether a section is None, or all of its fields are."""
  return section is None or (
    isinstance(section, Mapping)
    and bool(section)
    and all(value is None for value in section.values())
  )


def plain(data: Any) -> Any:
  """Returns a config as plain dictionaries, references resolved."""
  to_dict = getattr(data, "to_dict", None)
  if to_dict is None:
    if isinstance(data, Mapping):
      return {name: plain(value) for name, value in data.items()}
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


def _waits(sources: Mapping[str, Any]) -> bool:
  """Whether some source has weight 0: it waits for a stage of the mix."""
  return any(
    isinstance(source, Mapping) and mix_options.is_zero(source.get("weight"))
    for source in sources.values()
  )


def _mix_problems(
  mix: Any, path: str, kind: str, sources: Mapping[str, Any]
) -> list[str]:
  """Returns what is wrong between a mix, its sources and the kind of run."""
  problems = []
  if sources and all(isinstance(entry, Mapping) for entry in sources.values()):
    weights = {name: sources[name].get("weight") for name in sources}
    problems += mix.problems(path, weights)
  units = mix_units.of_kind(kind)
  if mix.unit is not None and mix.unit not in units:
    problems.append(
      f"`{path}.unit` must be one of {', '.join(map(repr, units))} with"
      f" buckets of kind {kind!r}, got {mix.unit!r}. Choose one."
    )
  return problems


def _unset(entry: Mapping[str, Any], kind: Kind) -> frozenset[str]:
  """Returns which of the logged options a source does not set."""
  names = []
  order = entry.get("shuffle")
  if isinstance(order, Mapping):
    order = order.get("kind")
  if kind.shuffle is shuffle_options.ShuffleOptions and order is None:
    names.append("shuffle")
  if "add_eos" not in (entry.get("rows") or {}):
    names.append("add_eos")
  return frozenset(names)


def _store_problems(path: str, fields: SourceOptions, kind: Kind) -> list[str]:
  """Returns what is wrong between the stores of a source and its run."""
  count = len(fields.members)
  problems = []
  if len(fields.paths) < count and not kind.of_documents:
    problems.append(
      f"`{path}.store` must be a path for samples that are arrays, got"
      f" {fields.store}. Stores of `from_source` are of tokens."
    )
  if count > 1 and not kind.of_documents:
    problems.append(
      f"`{path}.store` must be one path for samples that are arrays, got"
      f" {fields.store}. Make them sources of a mix."
    )
  if fields.cache_dir is not None and not kind.of_documents:
    problems.append(
      f"`{path}.cache_dir` must be None for samples that are arrays, which are"
      f" local, got {fields.cache_dir!r}. Leave it out."
    )
  if fields.joined is None:
    return problems
  if len(fields.joined) != count:
    problems.append(
      f"`{path}.joined` must be {count} epochs, one for each store, got"
      f" {fields.joined}. Correct it, or leave it out."
    )
  elif any(fields.joined) and kind.rows is not None:
    problems.append(
      f"`{path}.joined` must be 0 for every store in a run with buckets, got"
      f" {fields.joined}. Begin a new run with all stores."
    )
  return problems


def _kind_problems(
  path: str, names: Sequence[str], paths: Sequence[str]
) -> list[str]:
  """Returns what is wrong with the kinds of stores that a source has."""
  if names and not paths:
    return [
      f"`{path}.{names[0]}` must be None beside a store that is open, got a"
      " section. Leave it out."
    ]
  if len(names) < 2:
    return []
  return [
    f"`{path}` must be of one kind of stores, got {' and '.join(names)}."
    " Remove all but one."
  ]


def _subset_problems(path: str, shuffle: Any) -> list[str]:
  """Returns what is wrong with the order of a training subset."""
  if shuffle.kind == "none":
    return []
  source = path.removesuffix(".shuffle")
  return [
    f"`{source}.rows.restrict_to_training_subset` must be False where"
    f" `{path}.kind` is not 'none', got True with"
    f" {shuffle.kind!r}: the subset is the first tokens of an unshuffled"
    " run. Set shuffle.kind to 'none' (shuffle_content and"
    " shuffle_offsets stay allowed)."
  ]
