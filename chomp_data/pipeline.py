"""From checked options to a run's input.

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
import pickle
from typing import Any
from typing import TYPE_CHECKING

from absl import logging
import grain
import numpy as np

from chomp_data import composing
from chomp_data import options as options_lib
from chomp_data import schema
from chomp_data import sources as sources_lib
from chomp_data.bucketed import pipeline as bucket_pipeline
from chomp_data.loading import accounts as accounts_lib
from chomp_data.loading import batches
from chomp_data.loading import reads as reads_lib
from chomp_data.loading import run as run_lib
from chomp_data.loading import state
from chomp_data.loading import watching
from chomp_data.ops import spans as spans_lib
from chomp_data.sources import fillers
from chomp_data.sources import row_source
from chomp_data.transforms import applying
from chomp_data.transforms import formats
from chomp_data.transforms import masks

if TYPE_CHECKING:
  from chomp_data.loading import feed
  from chomp_data.loading import placement

FINGERPRINT_SCHEMA = 1

# document_id travels as int32 unless JAX has 64-bit types enabled.
_MAX_INT32 = 2**31 - 1


class Pipeline(run_lib.Run):
  """A run's whole input: a pure function of the step."""

  def __init__(self, run: options_lib.RunOptions):
    """Opens stores and selects documents; reads no token.

    Args:
      run: The whole of `config.data`, checked.

    Raises:
      ConfigError: If options do not fit the stores.
      StoreError: If a store cannot be opened.
    """
    self.options = options = run.data
    rows, self.sources = composing.run_rows(run)
    if options.document_id and any(
      source.store.num_documents > _MAX_INT32
      for source in self.sources.values()
    ):
      raise schema.ConfigError(
        [
          "`config.data.document_id` must be False for stores of more than"
          f" {_MAX_INT32} documents, got True. Unset it."
        ]
      )
    self._plan = batches.BatchPlan(
      rows=rows,
      global_batch_size=options.global_batch_size,
      epochs=options.epochs,
      remainder=options.remainder,
      document_id=options.document_id,
      extra=self._extra_fields(),
    )
    self._reads = reads_lib.Reads(self.sources)
    self._eos_ids = fillers.eos_ids(
      self.sources, options.train_on_eos, options_lib.PATH
    )
    if self.num_steps == 0:
      raise schema.ConfigError(
        [
          "`config.data.global_batch_size` must be at most the run's rows, got"
          f" {options.global_batch_size} with {self._plan.num_rows} rows."
          " Lower it, raise epochs, or set remainder to 'pad'."
        ]
      )

    if self.mix is not None and self.num_steps is not None:
      for line in self.mix.unserved(self.num_steps):
        logging.warning("%s", line)

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
  def mix(self) -> sources_lib.MixtureSource | None:
    """The mix of the sources, or None for one source alone."""
    rows = self._plan.rows
    return rows if isinstance(rows, sources_lib.MixtureSource) else None

  @property
  def source_names(self) -> list[str]:
    """Names by `source_id`."""
    return list(self.sources)

  @functools.cached_property
  def accounts(self) -> accounts_lib.Accounts:
    """What the run consumes before any step, by source."""
    entries = [dataclasses.asdict(own) for own in self.options.mix_entries]
    return accounts_lib.Accounts(self._plan, entries)

  def resume_state(self, step: int) -> dict[str, Any]:
    """Returns row and token offsets before a step, as seed 001 keeps them.

    `config.data.mix.resume_state` of another run starts there.

    Args:
      step: At most the steps of the run.

    Returns:
      {"datasets": [{"spec", "row_offset", "token_offset"}]}.
    """
    return self.accounts.resume_state(step)

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
      "mask_boundary_loss": self.options.mask_boundary_loss,
      "train_on_eos": self.options.train_on_eos,
      "lookahead": self.options.lookahead,
      "document_id": self.options.document_id,
      **self._source_fingerprints(),
    }

  def _source_fingerprints(self) -> dict[str, Any]:
    if self.mix is not None:
      found = self.mix.fingerprint()
    else:
      (name,) = self.sources
      found = {"sources": {name: self._plan.rows.fingerprint()}}
    # These two are the run's own.
    found["sources"] = {
      name: {k: v for k, v in own.items() if k not in ("seed", "seq_len")}
      for name, own in found["sources"].items()
    }
    return found

  def validation(self) -> dict[str, row_source.RowSource]:
    """Returns a fixed small (t, s) grid of each source's own documents."""
    return {name: source.validation() for name, source in self.sources.items()}

  def plan(self, step: int, count: int = 1) -> spans_lib.Spans:
    """Returns the spans of `count` steps from `step` on; reads no token.

    Args:
      step: The first step.
      count: How many steps; their rows follow each other.

    Raises:
      IndexError: If a step is not of the run.
    """
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
    batch = self.read(self._plan.plan(step, 1, rows))
    return applying.applied(batch, self.operations())

  def read(self, spans: spans_lib.Spans) -> dict[str, np.ndarray]:
    """Returns the canonical fields of planned rows."""
    self._reads.add_group(spans)
    self._plan.rows.prefetch(spans)
    self._reads.add_batch(spans)
    return self._plan.read(spans)

  def reads(self) -> dict[str, reads_lib.SourceReads]:
    """Returns what `batch` and `read` have read so far, by source."""
    return self._reads.by_source()

  def operations(self) -> list[grain.transforms.Map]:
    """Returns the transforms over batches that the config asks for."""
    own: list[grain.transforms.Map] = []
    if not self.options.mask_boundary_loss:
      own.append(masks.MaskBoundaryLoss(enabled=False))
    if not self.options.train_on_eos:
      own.append(masks.TrainOnEos(enabled=False, eos_ids=self._eos_ids))
    operation = formats.FORMATS[self.options.batch_format].transform
    return own if operation is None else [*own, operation()]

  def _extra_fields(self) -> tuple[str, ...]:
    """Returns the optional fields that the config's transforms need."""
    needed = set(formats.FORMATS[self.options.batch_format].needs)
    if not self.options.mask_boundary_loss:
      needed.add("attention_mask")
    if self.options.lookahead:
      needed.add("next_token")
    return tuple(sorted(needed))

  def batch_source(
    self,
    rows: np.ndarray | None = None,
    fingerprint: Mapping[str, Any] | None = None,
    group_steps: int | None = None,
  ) -> batches.BatchSource:
    """Returns the Grain source of process-local batches.

    Args:
      rows: int64[R], ascending rows of the global batch that this process
        holds, or None for all.
      fingerprint: Shown in its `repr`, or None for the pipeline's own.
      group_steps: Most steps that are planned and fetched together, or None
        for about 4,096 rows; decides no batch.
    """
    # Its own caches: a thread or a worker reads through it.
    plan = pickle.loads(pickle.dumps(self._plan))
    return batches.BatchSource(
      plan,
      rows,
      state.digest(fingerprint or self.fingerprint)[:16],
      group_steps,
    )

  def describe(self) -> str:
    """Returns the run's summary for the log."""
    steps = "endless" if self.num_steps is None else f"{self.num_steps} steps"
    head = (
      f"input: {steps} of [{self.global_batch_size}, {self.seq_len}], seed"
      f" {self.options.seed}, epochs {self.options.epochs or 'for ever'}"
    )
    entries = [f"  dataset_mix: {own}" for own in self.options.mix_entries]
    return "\n".join([head, *entries, self._plan.rows.describe()])


AnyPipeline = Pipeline | bucket_pipeline.BucketPipeline
# Those whose batches are text, and so have spans.
TextPipeline = Pipeline | bucket_pipeline.LengthPipeline


@watching.starting()
def build(data: Any) -> Any:
  """Checks a config and composes its pipeline.

  Args:
    data: `config.data`, a ConfigDict or a mapping.

  Returns:
    A `Pipeline`, or a `BucketPipeline` where there is a section `buckets`.

  Raises:
    ConfigError: If fields are wrong; all of them are listed.
    StoreError: If a store cannot be opened.
  """
  bucketed = options_lib.read_bucketed(data)
  if bucketed is not None:
    return bucket_pipeline.build(bucketed)
  return Pipeline(options_lib.read(data))


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
    The iterator, at step 0. Where the sharding spans processes, all of them
    must make it, and one that fails later ends the others.

  Raises:
    ConfigError: If a field is wrong, the batch does not divide, or processes
      differ.
    InputError: If it fails on another process.
  """
  import jax

  from chomp_data.loading import agreement

  if sharding is None:
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  peers = agreement.peers_of(sharding)
  if peers is None:
    return _iterator(data, sharding, operations)
  iterator = peers.start(
    lambda: _iterator(data, sharding, operations),
    lambda own: own.described(),
  )
  iterator.join(peers)
  return iterator


def _iterator(
  data: Any,
  sharding: "placement.ShardingTree",
  operations: Sequence[grain.transforms.Map],
) -> "feed.InputIterator":
  """Returns this process's iterator, whatever the others do."""
  from chomp_data.bucketed import placing as bucket_placing
  from chomp_data.loading import feed
  from chomp_data.loading import placement

  pipe = data if isinstance(data, AnyPipeline) else build(data)
  transforms = [*pipe.operations(), *operations]
  fingerprint = pipe.fingerprint_with(operations)
  if isinstance(pipe, Pipeline):
    shapes = {
      name: (pipe.global_batch_size, *shape[1:])
      for name, shape in _field_shapes(pipe, transforms).items()
    }
    rows = placement.process_rows(shapes, sharding)
    source = pipe.batch_source(rows, fingerprint)
    placer = placement.Placer(sharding, rows, pipe.global_batch_size)
  else:
    own = bucket_placing.process_rows(pipe, sharding, operations)
    source = pipe.batch_source(own, fingerprint)
    placer = bucket_placing.BucketPlacer(sharding, own, pipe.buckets)
  return feed.InputIterator(
    source,
    placer,
    fingerprint=fingerprint,
    seed=pipe.options.seed,
    operations=transforms,
    worker_count=pipe.options.worker_count,
    prefetch=pipe.options.prefetch,
    timeout_s=pipe.options.timeout_s,
    accounts=pipe.accounts,
    on_peer_failure=pipe.options.on_peer_failure,
  )


def _field_shapes(
  pipe: Pipeline, transforms: Sequence[grain.transforms.Map]
) -> dict[str, tuple[int, ...]]:
  """Returns the shapes of a one-row batch after the transforms."""
  batch = pipe._plan.read(pipe._plan.plan(0, 1, np.zeros(1, np.int64)))
  batch = applying.applied(batch, transforms)
  return {name: np.shape(value) for name, value in batch.items()}
