# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Precomputed arrays in buckets of sizes: latents, images, embeddings."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import hashlib
import itertools
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.bucket import dataset
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import spans as spans_lib
from chomp_data.stores import samples as samples_lib

_MAX_INT32 = 2**31 - 1
# Most sizes that a message names.
_NAMED_SIZES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleOptions(schema.Options):
  """`rows` of a source in buckets of sizes: one sample per row.

  Attributes:
    height_field: Which number of a sample is its height.
    width_field: Which number of a sample is its width.
  """

  height_field: str = schema.option("height", schema.text())
  width_field: str = schema.option("width", schema.text())


class ArrayDataset(dataset.Dataset):
  """The samples of a store, by bucket."""

  def __init__(
    self,
    store: samples_lib.SampleStore,
    buckets: Sequence[buckets_lib.Bucket],
    *,
    metadata: Sequence[str] = (),
    types: Mapping[str, np.dtype] | None = None,
    unbucketed: str = "error",
    name: str = "arrays",
    path: str = "config.data.buckets",
  ):
    """Puts samples into buckets by height and width.

    Reads one sample of each size, which shows whether the fields fit.

    Args:
      store: The samples.
      buckets: The buckets.
      metadata: Numbers of each sample that batches carry.
      types: What they are in batches, by `metadata_types` of all datasets of
        the run; None is of this one alone.
      unbucketed: What to do with samples of no bucket: 'error' or 'drop'.
      name: The dataset's name.
      path: Dotted path of the buckets, for messages.

    Raises:
      ConfigError: If a sample is of no bucket, or metadata is unknown or no
        number.
      StoreError: If the first sample of a size does not fit the fields, or
        metadata of the first sample is out of range.
    """
    self.name = name
    self.store = store
    self._metadata = tuple(metadata)
    self._shapes = tuple(bucket.shape for bucket in buckets)
    heights, widths = store.sizes()
    number = np.full(len(heights), len(buckets), np.int32)
    for i, (height, width) in enumerate(self._shapes):
      number[(heights == height) & (widths == width)] = i
    self._check(number, unbucketed, path)
    # Samples sorted by bucket, and where each bucket begins.
    self._order = np.argsort(number, kind="stable").astype(np.uint32)
    self._starts = np.searchsorted(
      number[self._order], np.arange(len(buckets) + 1)
    )
    sizes = np.diff(self._starts).tolist()
    self.counts: dict[str, int] = dict(
      zip([bucket.name for bucket in buckets], sizes, strict=True)
    )
    self._dropped = int(np.sum(number == len(buckets)))
    if types is None:
      types = metadata_types({name: store}, self._metadata, path)
    self._types = {field: types[field] for field in self._metadata}
    self._check_arrays()
    if self._types:
      # Values that are out of range are mostly so in all samples: fail early.
      first = np.zeros(1, np.int64)
      for field, value in store.metadata(first, self._metadata).items():
        self._cast(field, np.asarray(value), first)

  @property
  def num_documents(self) -> int:
    """Samples of the store."""
    return self.store.num_samples

  def samples_of(self, documents: np.ndarray) -> list[np.ndarray]:
    """Returns the places of samples in their buckets, int64[N] by bucket."""
    return [
      np.flatnonzero(np.isin(self._order[first:last], documents))
      for first, last in itertools.pairwise(self._starts.tolist())
    ]

  def numbers_of(self, bucket: int, samples: np.ndarray) -> np.ndarray:
    """Returns the numbers in the store of samples int64[N] of a bucket."""
    return self._order[self._starts[bucket] + samples].astype(np.int64)

  def read(
    self,
    bucket: int,
    samples: np.ndarray,
    number: int,
    spans: spans_lib.Spans | None = None,
    columns: spans_lib.ColumnRanges | None = None,
  ) -> dict[str, np.ndarray]:
    """Returns arrays, metadata, sizes and identities of samples of a bucket.

    Returns:
      The arrays [R, ...] and metadata [R] (int32 or float32), `height` and
      `width` int32[R], `dataset_id` int32[R] and `sample_id` int32[R], both -1
      where a row is padding; its arrays are 0.

    Raises:
      StoreError: If a sample does not fit its size, or metadata is out of
        range.
    """
    del spans, columns
    height, width = self._shapes[bucket]
    real = np.flatnonzero(samples >= 0)
    numbers = self.numbers_of(bucket, samples[real])
    if len(real):
      values = self.store.read(numbers, self._metadata)
    else:
      values = {
        name: np.empty((0, *spec.shape), spec.dtype)
        for name, spec in self.store.specs(height, width).items()
      }
    fields = {
      name: value for name, value in values.items() if name not in self._types
    }
    for name, dtype in self._types.items():
      value = values.get(name, np.empty(0, dtype))
      fields[name] = self._cast(name, value, numbers)
    count = len(samples)
    of_dataset = np.full(len(real), number, np.int32)
    return {
      **{name: _spread(value, real, count) for name, value in fields.items()},
      "height": np.full(count, height, np.int32),
      "width": np.full(count, width, np.int32),
      "dataset_id": _spread(of_dataset, real, count, -1),
      "sample_id": _spread(numbers.astype(np.int32), real, count, -1),
    }

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines the samples, as JSON values."""
    height_field, width_field = self.store.size_fields
    sizes = hashlib.sha256()
    for side in self.store.sizes():
      sizes.update(np.ascontiguousarray(side, "<i4").data)
    return {
      "store": self.store.hash,
      "kind": "arrays",
      "height_field": height_field,
      "width_field": width_field,
      "sizes": sizes.hexdigest(),
      "fields": {name: repr(spec) for name, spec in self.store.fields.items()},
    }

  def describe(self) -> str:
    """Returns a summary for the log."""
    dropped = f", {self._dropped} in no bucket, dropped" * bool(self._dropped)
    return f"[{self.name}] {self.store.num_samples} samples{dropped}"

  def _check(self, number: np.ndarray, unbucketed: str, path: str) -> None:
    heights, widths = self.store.sizes()
    outside = np.flatnonzero(number == len(self._shapes))
    if len(number) > _MAX_INT32:
      raise schema.ConfigError(
        [
          f"dataset {self.name!r} must hold at most {_MAX_INT32} samples, got"
          f" {len(number)}. Split it into several sources."
        ]
      )
    if len(outside) and unbucketed == "error":
      sizes = sorted(
        {
          buckets_lib.size_name(h, w)
          for h, w in zip(
            heights[outside].tolist(), widths[outside].tolist(), strict=True
          )
        }
      )
      more = ", ..." * (len(sizes) > _NAMED_SIZES)
      raise schema.ConfigError(
        [
          f"`{path}.sizes` must hold the size of every sample, got none for"
          f" {len(outside)} samples of dataset {self.name!r}"
          f" ({self.store.path}), the first is sample {outside[0]};"
          f" sizes {', '.join(sizes[:_NAMED_SIZES])}{more}. Add buckets, or"
          f" set {path}.unbucketed to 'drop'."
        ]
      )

  def _check_arrays(self) -> None:
    """Raises StoreError if the first sample of a size does not fit."""
    wrong = []
    for first, last in itertools.pairwise(self._starts):
      if first == last:
        continue
      try:
        self.store.read(self._order[first : first + 1].astype(np.int64))
      except errors.StoreError as error:
        wrong.append(f"dataset {self.name!r}, {error}")
    if wrong:
      others = f" {len(wrong) - 1} other sizes have such errors too."
      raise errors.StoreError(wrong[0] + others * (len(wrong) > 1))

  def _cast(
    self, name: str, value: np.ndarray, samples: np.ndarray
  ) -> np.ndarray:
    """Returns values in one dtype for all batches, so that one program fits."""
    dtype = self._types[name]
    with np.errstate(invalid="ignore", over="ignore"):
      cast = value.astype(dtype)
    if dtype.kind == "i":
      wrong, limits = cast != value, np.iinfo(np.int32)
      rule = f"{limits.min} .. {limits.max}, as int32 holds"
    else:
      wrong = np.isfinite(value) & ~np.isfinite(cast)
      rule = "what float32 holds"
    if wrong.any():
      k = int(np.argmax(wrong))
      raise errors.StoreError(
        f"{self.store.path}: sample {samples[k]} of dataset {self.name!r} must"
        f" have a `{name}` of {rule}, got {value[k]}. Correct the data, or"
        " leave this metadata out."
      )
    return cast


def metadata_types(
  stores: Mapping[str, samples_lib.SampleStore],
  names: Sequence[str],
  path: str = "config.data.buckets",
) -> dict[str, np.dtype]:
  """Returns the dtypes of metadata in the batches of all datasets of a run.

  Args:
    stores: The samples, by dataset.
    names: Of metadata.
    path: Dotted path of the buckets, for messages.

  Returns:
    By name int32 where every dataset has whole numbers or truth values, else
    float32.

  Raises:
    ConfigError: If a dataset does not have a name, or has texts of it.
  """
  problems, types = [], {}
  by_dataset = {name: store.value_dtypes for name, store in stores.items()}
  for name, dtypes in by_dataset.items():
    unknown = [field for field in names if field not in dtypes]
    if unknown:
      problems.append(
        f"`{path}.metadata` must name numbers of every sample, got"
        f" {', '.join(map(repr, unknown))}; dataset {name!r} has"
        f" {', '.join(dtypes)}. Correct it."
      )
    texts = [
      field for field in names if field in dtypes and dtypes[field] is None
    ]
    if texts:
      problems.append(
        f"`{path}.metadata` must name numbers, got"
        f" {', '.join(map(repr, texts))} of dataset {name!r}, which are none."
        " Leave it out."
      )
  if problems:
    raise schema.ConfigError(problems)
  for field in names:
    field_dtypes = [dtypes[field] for dtypes in by_dataset.values()]
    is_whole = all(
      dtype is not None and dtype.kind in "iub" for dtype in field_dtypes
    )
    types[field] = np.dtype(np.int32 if is_whole else np.float32)
  return types


def sizes_of(
  stores: Sequence[samples_lib.SampleStore],
) -> list[tuple[int, int]]:
  """Returns the (height, width) pairs that occur, in order."""
  sizes: set[tuple[int, int]] = set()
  for store in stores:
    heights, widths = store.sizes()
    pairs = np.unique(np.stack([heights, widths]), axis=1)
    sizes |= set(zip(*pairs.tolist(), strict=True))
  return sorted(sizes)


def _spread(
  value: np.ndarray, real: np.ndarray, count: int, padding: int = 0
) -> np.ndarray:
  """Returns values at the rows that are real, and padding at the others."""
  if len(real) == count:
    return value
  values = np.full((count, *value.shape[1:]), padding, value.dtype)
  values[real] = value
  return values
