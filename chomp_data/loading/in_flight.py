"""Whether shared memory holds the batches that workers have in flight.

A worker hands its batches over in `/dev/shm`. Where that is full, writing to
it kills the worker without a word (SIGBUS), so it is looked at beforehand.
"""

from collections.abc import Mapping
import mmap
import os
from typing import Any

from absl import logging
import numpy as np

from chomp_data.loading import workers

# Where Linux keeps shared memory.
PATH = "/dev/shm"


def batch_bytes(example: Mapping[str, Any], num_rows: int) -> int:
  """Returns the shared memory of a batch; each field has pages of its own.

  Args:
    example: A host batch of one row or more.
    num_rows: Rows of the batch.
  """
  size = 0
  for value in example.values():
    row = value[0].nbytes if isinstance(value, np.ndarray) and value.ndim else 0
    # What does not lie in one piece, Grain pickles.
    if row and value.strides[0] == row:
      size += -(-num_rows * row // mmap.PAGESIZE) * mmap.PAGESIZE
  return size


def least_batches(worker_count: int) -> int:
  """Returns the batches below which runs are known to crash.

  Measured with Grain 0.2.18, with batches of 0.2 and 27 MB and 1, 2 and 4
  workers: where the consumer never pauses, between 3 and 4 batches a worker
  are in flight at some time, and one is with the consumer.
  """
  return 3 * worker_count + 1


def most_batches(worker_count: int, held: int) -> int:
  """Returns the batches in flight where the consumer pauses.

  A worker has one in its queue and one more made; a thread for each worker
  has one ready and one more taken; and one is being placed.

  Args:
    worker_count: Processes that read.
    held: Placed batches that are still the memory they came in.
  """
  return 4 * worker_count + 1 + held


def check(size: int, worker_count: int, held: int) -> None:
  """Looks whether shared memory is large enough for a run's workers.

  Args:
    size: Bytes of a batch, of `batch_bytes`.
    worker_count: Processes that read.
    held: As in `most_batches`.

  Raises:
    InputError: If workers would crash.
  """
  try:
    found = os.statvfs(PATH)
  except OSError:
    return  # A system that keeps it elsewhere.
  free = found.f_bavail * found.f_frsize
  least = size * least_batches(worker_count)
  most = size * most_batches(worker_count, held)
  advice = (
    f"Enlarge it (`mount -o remount,size={-(-most // 2**20)}m {PATH}`, or"
    f" `--shm-size={-(-most // 2**20)}m` of a container), or lower"
    " `config.data.worker_count` (0 needs none) or the batch size."
  )
  if free < least:
    raise workers.InputError(
      f"{PATH} must have at least {least} bytes free for the batches that"
      f" loader workers have in flight ({worker_count} of them, {size} bytes a"
      f" batch), got {free}: below that they are known to crash. {advice}"
    )
  if free < most:
    logging.warning(
      "%s has %d bytes free; the batches that loader workers have in flight"
      " (%d of them, %d bytes a batch) take up to %d, and where they do not fit"
      " the workers crash. %s",
      PATH,
      free,
      worker_count,
      size,
      most,
      advice,
    )
