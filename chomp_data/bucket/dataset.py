# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The contract of a dataset in buckets."""

import abc
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_source


class Dataset(abc.ABC):
  """Samples in buckets, any of them by random access.

  Attributes:
    name: Its name in a pipeline, from which seeds are derived; also in logs.
    counts: Samples by bucket, in the order of the buckets.
    rows: Of text the rows of each bucket, shortest first; empty for arrays.
    extra: Of text, optional fields of batches, of `row_source.OPTIONAL_FIELDS`
      and `LABEL_FIELDS`.
    document_slots: Documents of a row that batches name; 0 is none.
  """

  name: str
  counts: dict[str, int]
  rows: Sequence[row_source.RowSource] = ()
  extra: tuple[str, ...] = ()
  document_slots: int = 0

  @property
  def text(self) -> row_source.RowSource | None:
    """The rows of the longest bucket, or None for arrays."""
    return self.rows[-1] if self.rows else None

  def spans(self, bucket: int, samples: np.ndarray) -> spans_lib.Spans | None:
    """Returns samples as spans of rows, without reading; None for arrays.

    Args:
      bucket: The bucket's number.
      samples: int64[R], samples of it; -1 at the end is padding.
    """
    if not self.rows:
      return None
    planned = self.rows[bucket].plan(samples[samples >= 0])
    return dataclasses.replace(planned, num_rows=len(samples))

  def tokens(self, bucket: int, samples: np.ndarray) -> np.ndarray:
    """Returns int64[N], the tokens of samples of text; reads none of them.

    Args:
      bucket: The bucket's number.
      samples: int64[N], samples of it.
    """
    return self.rows[bucket].units(0, samples, "tokens")

  def tokens_by_bucket(self) -> dict[str, int] | None:
    """Returns tokens by bucket without padding, or None for arrays."""
    return None

  @property
  @abc.abstractmethod
  def num_documents(self) -> int:
    """Documents (samples for arrays) of its store, in a bucket or not."""

  @abc.abstractmethod
  def samples_of(self, documents: np.ndarray) -> list[np.ndarray]:
    """Returns the samples of documents, or those that have some numbers.

    Args:
      documents: int64[D], their numbers, below `num_documents`, ascending.

    Returns:
      int64[N] for each bucket, ascending.
    """

  @abc.abstractmethod
  def numbers_of(self, bucket: int, samples: np.ndarray) -> np.ndarray:
    """Returns the documents, or the numbers in the store, of samples.

    Args:
      bucket: The bucket's number.
      samples: int64[N], samples of it.
    """

  @abc.abstractmethod
  def read(
    self,
    bucket: int,
    samples: np.ndarray,
    number: int,
    spans: spans_lib.Spans | None,
    columns: spans_lib.ColumnRanges | None = None,
  ) -> dict[str, np.ndarray]:
    """Returns the fields of samples, [R, ...] each.

    Args:
      bucket: The bucket's number.
      samples: int64[R], samples of it; -1 at the end is padding.
      number: The dataset's number in the run; padding has -1.
      spans: Of `spans`, with that number as their source.
      columns: Of text, (first, last + 1) of those whose tokens are read, or
        None for all.
    """

  @property
  @abc.abstractmethod
  def fingerprint(self) -> dict[str, Any]:
    """What determines the samples, as JSON values."""

  @abc.abstractmethod
  def describe(self) -> str:
    """Returns a summary for the log."""
