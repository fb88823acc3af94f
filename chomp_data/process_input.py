# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What one process reads of a pipeline, and where its batches are placed.

A `ProcessInput` is never changed: restoring a state, and `reassign`, make
another one.
"""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from absl import logging
import grain
import jax
import numpy as np

from chomp_data import pipeline as pipeline_lib
from chomp_data import schema
from chomp_data.loading import agreement
from chomp_data.loading import batches
from chomp_data.loading import device_fields
from chomp_data.loading import placement as placement_lib
from chomp_data.loading import state
from chomp_data.loading import workers
from chomp_data.plans import answers
from chomp_data.plans import balance
from chomp_data.plans import certifying
from chomp_data.plans import consumption
from chomp_data.rows import buckets as buckets_lib
from chomp_data.transforms import applying


def _sharding(value: Any) -> Any:
  """Returns a sharding, or shardings by rank or by field."""
  each = list(value.values()) if isinstance(value, Mapping) else [value]
  if not each or not all(isinstance(x, jax.sharding.Sharding) for x in each):
    raise TypeError
  return value


SHARDING = schema.Rule(
  "a `jax.sharding.Sharding`, or a mapping of ranks or fields to such",
  _sharding,
)
_ALIVE = schema.either(SHARDING, schema.sequence(schema.WHOLE))


@dataclasses.dataclass(frozen=True)
class DeviceLayout:
  """Where the batches of an iterator are on devices.

  Attributes:
    first_sharding: The sharding that the iterator was made with.
    first_rows: The rows of a batch on devices that it was made with, or None
      for the run's.
    sharding: The current sharding.
    device_rows: The current rows of a batch on devices, or by bucket name.
  """

  first_sharding: placement_lib.ShardingTree
  first_rows: int | None
  sharding: placement_lib.ShardingTree
  device_rows: placement_lib.DeviceRows

  @classmethod
  def of(
    cls, sharding: placement_lib.ShardingTree, device_rows: int | None = None
  ) -> "DeviceLayout":
    """Returns the layout of an iterator that is made with a sharding."""
    return cls(sharding, device_rows, sharding, device_rows)

  @property
  def is_padded(self) -> bool:
    """Whether rows beyond the run's are rows of padding, not zeros."""
    return self.device_rows != self.first_rows

  def moved(
    self, pipe: pipeline_lib.Pipeline, sharding: placement_lib.ShardingTree
  ) -> "DeviceLayout":
    """Returns the layout with another sharding.

    Args:
      pipe: The run. Batches of all its sizes must divide over the sharding,
        with padding, because a restore may return to an earlier size.
      sharding: The other sharding.
    """
    rows = placement_lib.even_rows(pipe.buckets, sharding, self.first_rows)
    return dataclasses.replace(self, sharding=sharding, device_rows=rows)


@dataclasses.dataclass(frozen=True)
class ProcessInput:
  """The batches that one process reads, and their placement on devices.

  Attributes:
    source: The batches of this process.
    placement: Puts them on devices.
    specs: The fields of the batches of each bucket.
    workers_help: Whether processes that read can be faster than this one.
    part: Which one of how many processes that share batches this is; None if
      it is alone.
    fingerprint: What determines the run's rows, stored in every state.
    pipeline: The run.
    layout: Where batches are on devices.
    operations: Transforms over batches, after the pipeline's.
  """

  source: batches.BatchSource
  placement: placement_lib.Placement | device_fields.NarrowPlacement
  specs: Sequence[placement_lib.BatchSpec]
  workers_help: bool
  part: tuple[int, int] | None
  fingerprint: Mapping[str, Any]
  pipeline: pipeline_lib.Pipeline
  layout: DeviceLayout
  operations: Sequence[grain.transforms.Map] = ()

  @property
  def transforms(self) -> Sequence[grain.transforms.Map]:
    """All transforms over batches; a layout of columns is the last."""
    pipe = self.pipeline
    return (*pipe.operations, *self.operations, *pipe.layout)

  def put(
    self, step: int, batch: Mapping[str, np.ndarray]
  ) -> dict[str, jax.Array]:
    """Puts this process's batch of a step on devices; see `Placement.put`."""
    return self.placement.put(self.source.bucket_of(step), batch)

  def continued(
    self, fingerprint: Mapping[str, Any], step: int, resize: bool
  ) -> "ProcessInput":
    """Returns the input of the run that continues a state.

    Args:
      fingerprint: The fingerprint of the state.
      step: The next step of the state.
      resize: Whether the number of rows of a step may change at that step.
    """
    pipe = pipeline_lib.continued(self.pipeline, fingerprint, step, resize)
    if pipe is self.pipeline:
      return self
    # Batches of earlier sizes need not divide over the current devices.
    layout = self.layout
    needed = consumption.buckets_from(pipe.run_plan, step)
    if layout.sharding is not layout.first_sharding:
      layout, needed = layout.moved(pipe, layout.sharding), None
    return of_pipeline(pipe, layout, self.operations, needed=needed)

  def reassigned(
    self, alive: Any
  ) -> "tuple[ProcessInput, agreement.Peers | None]":
    """Returns the input with other devices, and the processes that share it.

    Args:
      alive: As in `InputIterator.reassign`.

    Raises:
      ConfigError: If this process has no device there, or fields do not divide.
    """
    sharding: Any = schema.argument("alive", _ALIVE, alive)
    if not isinstance(alive, jax.sharding.Sharding | Mapping):
      sharding = placement_lib.surviving(
        self.layout.first_sharding, list(alive)
      )
    if jax.process_index() not in placement_lib.processes_of(sharding):
      raise schema.ConfigError(
        [
          "`alive` must be of devices of this process too, got processes"
          f" {placement_lib.processes_of(sharding)} on process"
          f" {jax.process_index()}. Close the iterator of a process that is not"
          " to continue."
        ]
      )
    layout = self.layout.moved(self.pipeline, sharding)
    if layout.is_padded and _deals_over_devices(self.pipeline):
      logging.warning(
        "config.data.balance: rows do not divide over the devices that are"
        " alive: they keep their planned order."
      )
    reassigned = of_pipeline(
      self.pipeline, layout, self.operations, before=self
    )
    return reassigned, agreement.peers_of(sharding)


def _deals_over_devices(pipe: pipeline_lib.Pipeline) -> bool:
  """Returns whether rows are balanced over the shards of the sharding."""
  options = pipe.run_options.data
  return balance.is_asked(options) and options.balance_shards is None


def of_pipeline(
  pipe: pipeline_lib.Pipeline,
  layout: DeviceLayout,
  operations: Sequence[grain.transforms.Map] = (),
  *,
  needed: Collection[str] | None = None,
  before: ProcessInput | None = None,
) -> ProcessInput:
  """Returns the input of this process: the rows that it reads of each batch.

  Args:
    pipe: The run.
    layout: Where batches are on devices.
    operations: More transforms over process-local batches.
    needed: Names of the buckets that must divide over the sharding; others that
      do not are left out. None is all.
    before: The input of the same run and transforms that the process has read
      so far, whose plan and stores are used again; None opens stores.

  Raises:
    ConfigError: If batches do not divide over the sharding.
  """
  options, sharding = pipe.run_options.data, layout.sharding
  specs = batch_specs(pipe, operations) if before is None else before.specs
  placement = placement_lib.Placement(
    specs,
    sharding,
    layout.device_rows,
    needed,
    padding_rows(pipe, operations) if layout.is_padded else None,
  )
  local = placement.local_rows()
  shards = balance.dealt_shards(options, pipe.buckets)
  if _deals_over_devices(pipe) and not layout.is_padded:
    shards = placement.num_shards()
  local = dataclasses.replace(local, shards=shards)
  if not operations and options.certificate != certifying.TOKENS:
    # The config's transforms read at most the next column, others any column.
    columns = pipe.run_options.sequence_layout
    local = dataclasses.replace(
      local,
      columns=placement.columns(
        getattr(options, "num_targets", 0),
        np.arange if columns is None else columns.order,
      ),
    )
  fingerprint = state.with_operations(pipe.fingerprint, operations)
  if before is None:
    source = pipeline_lib.batch_source(pipe, local, fingerprint)
  else:
    source = before.source.for_rows(local)
  processes, part = placement_lib.processes_of(sharding), None
  if len(processes) > 1 and jax.process_index() in processes:
    part = processes.index(jax.process_index()), len(processes)
  if not layout.is_padded:
    placement = device_fields.narrowed(
      placement,
      pipe.run_plan,
      getattr(options, "device_fields", "never"),
      sharding,
      pipe.operations,
      operations,
    )
  return ProcessInput(
    source,
    placement,
    specs,
    workers_help=workers.may_help(source.is_mapped, operations),
    part=part,
    fingerprint=fingerprint,
    pipeline=pipe,
    layout=layout,
    operations=operations,
  )


def examples(
  pipe: pipeline_lib.Pipeline,
  bucket: int,
  operations: Sequence[grain.transforms.Map] = (),
  padding: bool = False,
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
  """Yields one row of each source that may have its own fields.

  Args:
    pipe: The run.
    bucket: The number of a bucket.
    operations: More transforms over batches, after the pipeline's.
    padding: Whether the row is of padding; else it is the first sample.

  Yields:
    The source, and fields [1, ...] as batches have them; nothing for a bucket
    that is empty.
  """
  transforms = [*pipe.operations, *operations, *pipe.layout]
  for name, planned in answers.of(pipe.run_plan).examples(bucket):
    if padding:
      spans, samples = planned.spans, planned.samples
      planned = dataclasses.replace(
        planned,
        # The row after the one that is planned has no spans: it is padding.
        spans=None if spans is None else spans.rows(1, 2),
        samples=None if samples is None else np.full(1, -1, np.int64),
      )
    yield name, applying.applied(pipe.run_plan.read(planned), transforms)


def batch_specs(
  pipe: pipeline_lib.Pipeline, operations: Sequence[grain.transforms.Map] = ()
) -> list[placement_lib.BatchSpec]:
  """Returns the fields of the batches of each bucket.

  Args:
    pipe: The run.
    operations: More transforms over batches, after the pipeline's.

  Raises:
    StoreError: If the first sample of a bucket does not fit its size.
  """
  specs = []
  for number, bucket in enumerate(pipe.buckets):
    fields_by_source = {
      name: {
        field: (np.shape(value)[1:], np.asarray(value).dtype)
        for field, value in example.items()
      }
      for name, example in examples(pipe, number, operations)
    }
    first = next(iter(fields_by_source), "")
    fields = fields_by_source.get(first, {})
    problems = []
    for name, others in fields_by_source.items():
      if others != fields:
        differ = min(
          field
          for field in fields | others
          if fields.get(field) != others.get(field)
        )
        problems.append(
          f"bucket {bucket.name} must have the same fields in every dataset,"
          f" got `{differ}` {_text(fields.get(differ))} in {first!r} and"
          f" {_text(others.get(differ))} in {name!r}. Prepare them alike, or"
          " give `config.data.buckets.fields` a shape and a dtype."
        )
    shapes = {name: shape for name, (shape, _) in fields.items()}
    rows_option = _rows_option(pipe, bucket)
    specs.append(
      placement_lib.BatchSpec(bucket, shapes, rows_option, tuple(problems))
    )
  return specs


def _text(field: tuple[tuple[int, ...], np.dtype] | None) -> str:
  return "absent" if field is None else f"{field[1]}{list(field[0])}"


def _rows_option(
  pipe: pipeline_lib.Pipeline, bucket: buckets_lib.Bucket
) -> str:
  """Returns the option of the config that sets the rows of a bucket."""
  options = pipe.run_options.data
  if getattr(options, "batch_size_schedule", None) is not None:
    return "config.data.batch_size_schedule"
  if bucket.batch_size == getattr(options, "global_batch_size", None):
    return "config.data.global_batch_size"
  if len(bucket.shape) == 1:
    return "config.data.buckets.tokens_per_batch"
  return "config.data.buckets.batch_sizes"


def padding_rows(
  pipe: pipeline_lib.Pipeline, operations: Sequence[grain.transforms.Map]
) -> dict[str, dict[str, np.ndarray]]:
  """Returns one row of padding of each bucket, as batches have them.

  Args:
    pipe: The run.
    operations: Transforms over batches, after the pipeline's.

  Returns:
    Fields [1, ...] by the name of the bucket; none where a bucket is empty.
  """
  padding_by_bucket = {}
  for number, bucket in enumerate(pipe.buckets):
    for _, padding in examples(pipe, number, operations, padding=True):
      padding_by_bucket[bucket.name] = padding
      break
  return padding_by_bucket
