# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The Grain loader of one process's batches."""

from collections.abc import Sequence
from typing import Any

from absl import flags
import grain

from chomp_data.loading import batches
from chomp_data.loading import reader as reader_lib
from chomp_data.loading import step_records
from chomp_data.loading import workers

InputError = reader_lib.InputError


def data_loader(
  source: batches.BatchSource,
  *,
  first_step: int = 0,
  seed: int = 0,
  operations: Sequence[step_records.Transform] = (),
  worker_count: int = 0,
) -> grain.DataLoader:
  """Returns a Grain loader of one process's batches.

  Args:
    source: The batches.
    first_step: The step of its first record.
    seed: Seeds random transforms.
    operations: Transforms over batches; a random one is called row by row.
    worker_count: Child processes that read; 0 reads in this one.

  Returns:
    The loader. Its order does not depend on worker_count.
  """
  random = any(
    isinstance(operation, grain.transforms.RandomMap)
    for operation in operations
  )
  if worker_count and not flags.FLAGS.is_parsed():
    # Grain's workers copy absl flags and fail outside absl.app.
    flags.FLAGS.mark_as_parsed()
  # A worker plans and fetches its own steps only.
  source = source.for_workers(worker_count)
  sampler = batches.StepSampler(
    first_step, len(source), seed if random else None, source.steps
  )
  options: dict[str, Any] = {
    "shard_options": grain.sharding.NoSharding(),
    # Reads of a local store do not block: a thread only adds hand-overs.
    "read_options": grain.ReadOptions(num_threads=0, prefetch_buffer_size=0),
  }
  if not worker_count:
    return step_records.StepLoader(source, sampler, operations, **options)
  source, operations = step_records.of_workers(source, sampler, operations)
  return workers.WorkerLoader(
    data_source=source,
    sampler=sampler,
    operations=operations,
    worker_count=worker_count,
    **options,
  )
