"""The contract of a dataset in buckets."""

import abc
from typing import Any

import numpy as np


class Dataset(abc.ABC):
  """Samples in buckets, any of them by random access.

  Attributes:
    name: Its name in a pipeline; seeds and logs go by it.
    counts: Samples by bucket, in the order of the buckets.
  """

  name: str
  counts: dict[str, int]

  @abc.abstractmethod
  def read(
    self, bucket: int, samples: np.ndarray, number: int
  ) -> dict[str, np.ndarray]:
    """Returns the fields of samples, [R, ...] each.

    Args:
      bucket: The bucket's number.
      samples: int64[R], samples of it; -1 at the end is filler.
      number: The dataset's number in the run; filler has -1.
    """

  def tokens_by_bucket(self) -> dict[str, int] | None:
    """Returns tokens by bucket, padding apart, or None for arrays."""
    return None

  @abc.abstractmethod
  def fingerprint(self) -> dict[str, Any]:
    """Returns what decides the samples, as JSON values."""

  @abc.abstractmethod
  def describe(self) -> str:
    """Returns a summary for the log."""
