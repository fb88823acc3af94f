# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Makes an iterator of batches on devices from a config or a pipeline.

    batches = make_iterator(config.data, sharding)

An `InputIterator` holds a `ProcessInput`: the pipeline, the placement of its
batches on devices, and the rows that this process reads. These are immutable:
restoring a state, and `reassign`, make another `ProcessInput`.
"""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from absl import logging
import grain
import jax
import numpy as np

from chomp_data import joining
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.loading import agreement
from chomp_data.loading import batches
from chomp_data.loading import device_fields
from chomp_data.loading import feed
from chomp_data.loading import placement
from chomp_data.loading import state
from chomp_data.loading import workers
from chomp_data.plans import answers
from chomp_data.plans import balance
from chomp_data.plans import certifying
from chomp_data.plans import consumption
from chomp_data.transforms import applying


def _sharding(value: Any) -> Any:
  """Returns a sharding, or shardings by rank or by field."""
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
  step=schema.WHOLE,
  allow_input_change=state.CHANGES,
)
def make_iterator(
  data: Any,
  sharding: placement.ShardingTree | None = None,
  *,
  operations: Sequence[grain.transforms.Map] = (),
  step: int = 0,
  allow_input_change: bool | Collection[str] = (),
) -> feed.InputIterator:
  """Returns an iterator of global batches as sharded `jax.Array`s.

  Args:
    data: `config.data`, or a `Pipeline`.
    sharding: Of a batch [global_batch_size, seq_len]; fields of lower rank
      take its first axes. Also a mapping by rank or by field name. None puts
      batches on the default device.
    operations: More transforms over process-local batches.
    step: The step of its first batch.
    allow_input_change: Fields of config.data, by dotted path, that may be
      others in a state that it is set to.

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
  sharding: placement.ShardingTree | None = None,
  operations: Sequence[grain.transforms.Map] = (),
  step: int = 0,
  device_rows: int | None = None,
  allow_input_change: bool | Collection[str] = (),
) -> feed.InputIterator:
  """Returns an iterator of batches that have more rows on devices.

  For formats in which a row of 0 is padding.

  Args:
    data: `config.data`, or a `Pipeline`.
    sharding: The sharding of a batch [device_rows, seq_len]; fields of lower
      rank take its first axes. Also a mapping by rank or by field name. None
      puts batches on the default device.
    operations: More transforms over process-local batches.
    step: The step of its first batch.
    device_rows: Rows of a batch on devices, at least `global_batch_size`, which
      is the value of None; those beyond it are 0.
    allow_input_change: Fields of config.data, by dotted path, that may differ
      in a state that it restores.
  """
  if sharding is None:
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  place = Place.of(sharding, device_rows)

  def make() -> feed.InputIterator:
    pipe = data if isinstance(data, pipeline.Pipeline) else pipeline.build(data)
    options = pipe.run_options.data
    return feed.InputIterator(
      process_input(pipe, place, operations),
      seed=options.seed,
      operations=[*pipe.operations, *operations],
      worker_count=options.worker_count,
      prefetch=options.prefetch,
      timeout_s=options.timeout_s,
      on_peer_failure=options.on_peer_failure,
      peer_failure_grace_s=options.peer_failure_grace_s,
      certificate=options.certificate,
      step=step,
      allow_input_change=allow_input_change,
    )

  return feed.start_together(make, sharding)


@dataclasses.dataclass(frozen=True)
class Place:
  """Where the batches of an iterator are on devices.

  Attributes:
    first_sharding: The sharding that the iterator was made with.
    first_rows: The rows of a batch on devices that it was made with, or None
      for the run's.
    sharding: The current sharding.
    device_rows: The current rows of a batch on devices, or by bucket name.
  """

  first_sharding: placement.ShardingTree
  first_rows: int | None
  sharding: placement.ShardingTree
  device_rows: placement.DeviceRows

  @classmethod
  def of(
    cls, sharding: placement.ShardingTree, device_rows: int | None = None
  ) -> "Place":
    """Returns the place of an iterator that is made with a sharding."""
    return cls(sharding, device_rows, sharding, device_rows)

  @property
  def is_reassigned(self) -> bool:
    """Whether batches have another sharding than at first."""
    return self.sharding is not self.first_sharding

  @property
  def is_padded(self) -> bool:
    """Whether rows beyond the run's are rows of padding, not zeros."""
    return self.device_rows != self.first_rows

  def moved(
    self, pipe: pipeline.Pipeline, sharding: placement.ShardingTree
  ) -> "Place":
    """Returns the place with another sharding.

    Args:
      pipe: The run. Batches of all its sizes must divide over the sharding,
        with padding, because a restore may return to an earlier size.
      sharding: The other sharding.
    """
    rows = placement.even_rows(pipe.buckets, sharding, self.first_rows)
    return dataclasses.replace(self, sharding=sharding, device_rows=rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessInput(feed.ProcessInput):
  """The batches that this process reads, and their placement on devices.

  Attributes:
    place: Where batches are on devices.
    operations: Transforms over batches, after the pipeline's.
  """

  place: Place
  operations: Sequence[grain.transforms.Map] = ()

  def continued(
    self, fingerprint: Mapping[str, Any], step: int, resize: bool
  ) -> feed.ProcessInput:
    pipe: pipeline.Pipeline = self.pipeline
    continued = pipeline.continued(pipe, fingerprint, step, resize)
    if continued is pipe:
      return self
    # Batches of earlier sizes need not divide over the current devices.
    place, needed = (
      self.place,
      consumption.buckets_from(continued.run_plan, step),
    )
    if place.is_reassigned:
      place, needed = place.moved(continued, place.sharding), None
    return process_input(continued, place, self.operations, needed=needed)

  def until(
    self, fingerprint: Mapping[str, Any], step: int
  ) -> Mapping[str, Any]:
    return joining.until(self.pipeline.run_plan, fingerprint, step)

  def reassigned(
    self, alive: Any
  ) -> tuple[feed.ProcessInput, agreement.Peers | None]:
    pipe: pipeline.Pipeline = self.pipeline
    sharding: Any = schema.argument("alive", _ALIVE, alive)
    if not isinstance(alive, jax.sharding.Sharding | Mapping):
      sharding = placement.surviving(self.place.first_sharding, list(alive))
    if jax.process_index() not in placement.processes_of(sharding):
      raise schema.ConfigError(
        [
          "`alive` must be of devices of this process too, got processes"
          f" {placement.processes_of(sharding)} on process"
          f" {jax.process_index()}. Close the iterator of one that is not to go"
          " on."
        ]
      )
    place = self.place.moved(pipe, sharding)
    if place.is_padded and _deals_over_devices(pipe):
      logging.warning(
        "config.data.balance: rows do not divide over the devices that are"
        " alive: they stand as they are planned."
      )
    again = process_input(pipe, place, self.operations, source=self.source)
    return again, agreement.peers_of(sharding)


def _deals_over_devices(pipe: pipeline.Pipeline) -> bool:
  """Returns whether rows are balanced over the shards of the sharding."""
  return (
    balance.is_asked(pipe.run_options.data)
    and pipe.run_options.data.balance_shards is None
  )


def process_input(
  pipe: pipeline.Pipeline,
  place: Place,
  operations: Sequence[grain.transforms.Map] = (),
  *,
  needed: Collection[str] | None = None,
  source: batches.BatchSource | None = None,
) -> ProcessInput:
  """Returns the input of this process: the rows that it reads of each batch.

  Args:
    pipe: The run.
    place: Where batches are on devices.
    operations: More transforms over process-local batches.
    needed: Names of the buckets that must divide over the sharding; others that
      do not are left out. None is all.
    source: The source that the process has read from so far, whose plan is used
      again; None opens stores.

  Raises:
    ConfigError: If batches do not divide over the sharding.
  """
  sharding, device_rows = place.sharding, place.device_rows
  rows_on_devices = placement.process_batches(
    pipe, sharding, operations, device_rows, needed
  )
  rows = {
    bucket.name: placement.of_run(rows_on_devices[bucket.name], bucket)
    for bucket in pipe.buckets
    if bucket.name in rows_on_devices
  }
  columns = None
  if not operations and pipe.run_options.data.certificate != certifying.TOKENS:
    # The config's transforms read at most the next column, others any column.
    columns = placement.process_columns(pipe, sharding, device_rows, list(rows))
  shards = balance.dealt_shards(pipe.run_options.data, pipe.buckets)
  if _deals_over_devices(pipe) and not place.is_padded:
    shards = placement.num_shards(
      pipe, sharding, operations, device_rows, list(rows)
    )
  processes, part, counted = placement.processes_of(sharding), None, None
  if len(processes) > 1 and jax.process_index() in processes:
    part = processes.index(jax.process_index()), len(processes)
    counted = placement.counted_rows(
      pipe, sharding, rows, operations, device_rows
    )
  padding, field_maker = None, None
  if place.is_padded:
    # Rows of padding are made on the host, with the others.
    padding = padding_rows(pipe, operations)
  else:
    field_maker = device_fields.placer(
      pipe, sharding, rows_on_devices, operations, place.first_rows
    )
  fingerprint = state.with_operations(pipe.fingerprint, operations)
  if source is None:
    source = pipeline.batch_source(
      pipe,
      rows,
      fingerprint,
      shards=shards,
      columns=columns,
      counted=counted,
      encoded=field_maker is not None,
    )
  else:
    source = source.for_rows(
      rows,
      shards,
      columns,
      counted,
      field_maker is not None,
    )
  placer = placement.Placer(
    sharding, rows_on_devices, pipe.buckets, device_rows, padding
  )
  return ProcessInput(
    source,
    field_maker or placer,
    workers_help=workers.may_help(source.is_mapped, operations),
    shards=shards,
    part=part,
    on_devices=field_maker is not None,
    fingerprint=fingerprint,
    accounts=pipe.accounts,
    pipeline=pipe,
    place=place,
    operations=operations,
  )


def padding_rows(
  pipe: pipeline.Pipeline, operations: Sequence[grain.transforms.Map]
) -> dict[str, dict[str, np.ndarray]]:
  """Returns one row of padding of each bucket, as batches have them.

  Args:
    pipe: The run.
    operations: Transforms over batches, after the pipeline's.

  Returns:
    Fields [1, ...] by the name of the bucket; none where a bucket is empty.
  """
  plan, transforms = pipe.run_plan, [*pipe.operations, *operations]
  padding_by_bucket = {}
  for number, bucket in enumerate(pipe.buckets):
    example = next(answers.of(plan).examples(number), None)
    if example is None:
      continue
    planned = example[1]
    padding = dataclasses.replace(
      planned,
      # The row after the one that is planned has no spans: it is padding.
      spans=None if planned.spans is None else planned.spans.rows(1, 2),
      samples=(None if planned.samples is None else np.full(1, -1, np.int64)),
    )
    padding_by_bucket[bucket.name] = applying.applied(
      plan.read(padding), transforms
    )
  return padding_by_bucket
