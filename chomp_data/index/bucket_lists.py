"""The batches of one dataset in their order, epoch after epoch.

An epoch's batches are numbered bucket by bucket, buckets by name, and the list
is a permutation of these numbers:

    buckets  0 0 0 1 2 2        3 batches of bucket 0, 1 of 1, 2 of 2
    numbers  0 1 2 3 4 5
    list     4 0 3 2 5 1        of some epoch

What a batch consumes is its real samples times the units of its bucket, so
every epoch consumes the same, and prefix sums are needed only within the
epochs that are looked at: 8 bytes a batch. NumPy only.
"""

from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from chomp_data.index import hashing
from chomp_data.index import permutation
from chomp_data.index import window_tables

REMAINDERS = ("drop", "pad")

Bucket = str | int

# Tables of a dataset together hold about so many batches, at 10 bytes each,
# and those of four epochs however long they are: a merge looks at two.
_KEPT_BATCHES = 2**20
_KEPT_EPOCHS = 4


class BatchList:
  """A dataset's batches, as rows of a merge (`units.UnitSequence`)."""

  def __init__(
    self,
    buckets: Sequence[Bucket],
    counts: Sequence[int],
    batch_sizes: Sequence[int],
    units: Sequence[int],
    key: int,
    *,
    keeps_partial: bool,
    epochs: int | None,
  ):
    """Numbers the batches; everything is by bucket.

    Args:
      buckets: What keys are derived from.
      counts: Samples of the dataset, at least one batch in all.
      batch_sizes: Samples of a global batch.
      units: Of one sample.
      key: 64 bits.
      keeps_partial: Whether a last batch of fewer samples is kept.
      epochs: How often the list is offered; None is without end.
    """
    self._counts = np.asarray(counts, np.int64)
    self._sizes = np.asarray(batch_sizes, np.int64)
    self._units = np.asarray(units, np.int64)
    whole, rest = np.divmod(self._counts, self._sizes)
    partial = (rest > 0) & keeps_partial
    self._batches = whole + partial
    # The order of the mapping numbers buckets and must decide nothing else.
    names = [str(bucket) for bucket in buckets]
    self._by_name = np.asarray(
      sorted(range(len(names)), key=names.__getitem__), np.int32
    )
    self._ends = np.cumsum(self._batches[self._by_name])
    self.num_batches = int(self._ends[-1])
    first = np.empty_like(self._batches)
    first[self._by_name] = self._ends - self._batches[self._by_name]
    self._first = first
    self.num_rows = None if epochs is None else epochs * self.num_batches
    # By number, the batches of fewer samples and what they lack.
    self._partial = np.flatnonzero(partial)
    self._partial_batch = (first + whole)[partial]
    self._lack = (self._sizes - rest)[partial]
    real = self._batches * self._sizes
    real[self._partial] -= self._lack
    self._real = real
    self._total = int((real * self._units).sum())
    used = (self._sizes * self._units)[self._batches > 0]
    alike = not len(self._partial) and len(np.unique(used)) == 1
    self._each = int(used[0]) if alike else None
    self._list_key = hashing.fold_key(key, "list")
    self._group_keys = [
      hashing.fold_key(key, "samples", name) for name in names
    ]
    most = max(_KEPT_BATCHES, _KEPT_EPOCHS * self.num_batches)
    self._bucket_tables = window_tables.Kept(most)
    self._sum_tables = window_tables.Kept(most)

  @property
  def batches_by_bucket(self) -> np.ndarray:
    """Batches of an epoch, int64[num_buckets]."""
    return self._batches.copy()

  def locate(
    self, places: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the batches at places of the endless list.

    Args:
      places: int64[N], from 0.

    Returns:
      Buckets int32[N], epochs int64[N], and numbers of batches int64[N] within
      the epoch of their bucket.
    """
    epoch, place = np.divmod(places, self.num_batches)
    number = self._numbers(place, epoch)
    bucket = self._by_name[np.searchsorted(self._ends, number, "right")]
    return bucket, epoch, number - self._first[bucket]

  def samples(
    self, bucket: int, epoch: int, batch: int, rows: np.ndarray
  ) -> np.ndarray:
    """Returns int64[R], the samples at rows of a batch; -1 is filler."""
    count = int(self._counts[bucket])
    place = batch * int(self._sizes[bucket]) + rows
    real = place < count
    key = hashing.fold(self._group_keys[bucket], np.asarray([epoch]))
    samples = np.full(len(rows), -1, np.int64)
    samples[real] = permutation.permute(place[real], count, key)
    return samples

  def before(self, rows: np.ndarray) -> np.ndarray:
    """Returns int64[N], the units of the batches before places int64[N]."""
    if self._each is not None:
      return rows * self._each
    epoch, place = np.divmod(rows, self.num_batches)
    units = epoch * self._total
    # The place after the last one of an epoch asks for no table.
    inside = np.flatnonzero(place)
    if not len(inside):
      return units
    low, high = int(epoch[inside].min()), int(epoch[inside].max())
    if low == high:
      units[inside] += self._sums(low)[place[inside]]
      return units
    for each in np.unique(epoch[inside]).tolist():
      own = inside[epoch[inside] == each]
      units[own] += self._sums(each)[place[own]]
    return units

  def rows_below(self, units: int) -> int:
    """Returns how many places have fewer than `units` before them."""
    if units <= 0:
      return 0
    if self._each is not None:
      rows = -(-units // self._each)
    else:
      epoch, left = divmod(units - 1, self._total)
      rows = epoch * self.num_batches
      if self.num_rows is None or rows < self.num_rows:
        rows += int(np.searchsorted(self._sums(epoch)[:-1], left, "right"))
    return rows if self.num_rows is None else min(rows, self.num_rows)

  def batches_before(self, place: int) -> np.ndarray:
    """Returns int64[num_buckets], the batches before a place of the list."""
    epoch, place = divmod(place, self.num_batches)
    batches = epoch * self._batches
    if place:
      batches += np.bincount(
        self._bucket_order(epoch)[:place], minlength=len(batches)
      )
    return batches

  def samples_before(self, place: int) -> np.ndarray:
    """Returns int64[num_buckets], the real samples before a place."""
    samples = self.batches_before(place) * self._sizes
    epoch, place = divmod(place, self.num_batches)
    samples[self._partial] -= epoch * self._lack
    if place and len(self._partial):
      key = hashing.fold(self._list_key, np.asarray([epoch]))
      at = permutation.inverse(self._partial_batch, self.num_batches, key)
      samples[self._partial] -= np.where(at < place, self._lack, 0)
    return samples

  def _numbers(self, place: np.ndarray, epoch: np.ndarray) -> np.ndarray:
    """Returns int64[N], the batches at places of epochs, by number."""
    keys = hashing.fold(self._list_key, epoch)
    return permutation.permute(place, self.num_batches, keys)

  def _bucket_order(self, epoch: int) -> np.ndarray:
    """Returns the bucket of each batch in an epoch's list."""
    found = self._bucket_tables.get(epoch)
    if found is None:
      number = self._numbers(np.arange(self.num_batches), np.asarray([epoch]))
      dtype = np.min_scalar_type(len(self._ends) - 1)
      order = self._by_name.astype(dtype)
      found = np.repeat(order, self._batches[self._by_name])[number]
      self._bucket_tables.put(epoch, found, self.num_batches)
    return found

  def _sums(self, epoch: int) -> np.ndarray:
    """Returns int64[num_batches + 1], the units before places of an epoch."""
    found = self._sum_tables.get(epoch)
    if found is None:
      used = (self._sizes * self._units)[self._bucket_order(epoch)]
      if len(self._partial):
        key = hashing.fold(self._list_key, np.asarray([epoch]))
        at = permutation.inverse(self._partial_batch, self.num_batches, key)
        used[at] -= self._lack * self._units[self._partial]
      found = np.concatenate([[0], np.cumsum(used)])
      self._sum_tables.put(epoch, found, self.num_batches)
    return found


def check_policies(remainder: str, epochs: int | None) -> None:
  """Raises ValueError if a policy is unknown or there is no epoch."""
  if remainder not in REMAINDERS:
    raise ValueError(
      f"`remainder` must be one of {', '.join(REMAINDERS)}, got"
      f" {remainder!r}. Choose one."
    )
  if epochs is not None and epochs < 1:
    raise ValueError(
      f"`epochs` must be at least 1, got {epochs}. Give None for no end."
    )


def check_names(
  groups: Mapping[str, object], **given: Mapping[str, int]
) -> None:
  """Raises ValueError if mappings name unknown datasets or no epoch."""
  for field, values in given.items():
    unknown = [name for name in values if name not in groups]
    if unknown:
      raise ValueError(
        f"`{field}` must name known datasets, got {unknown}. Known:"
        f" {', '.join(groups)}."
      )
  for name, passes in given.get("max_epochs", {}).items():
    if passes < 1:
      raise ValueError(
        f"`max_epochs[{name!r}]` must be at least 1, got {passes}. Leave the"
        " dataset out of the stages."
      )


def check_groups(
  groups: Mapping[str, Mapping[Bucket, int]],
  batch_sizes: Mapping[Bucket, int],
  units: Mapping[Bucket, int],
  remainder: str,
) -> None:
  """Raises one ValueError with all that is wrong with groups."""
  problems = []
  if not groups or not batch_sizes:
    raise ValueError(
      "`groups` and `batch_sizes` must hold a dataset and a bucket, got"
      f" {list(groups)} and {list(batch_sizes)}. Name at least one of each."
    )
  wrong = [b for b in batch_sizes if not isinstance(b, str | int)]
  if wrong:
    problems.append(
      f"`batch_sizes` must name buckets by str or int, got {wrong}. Write"
      " '64x48' for a size."
    )
  for field, values in (("batch_sizes", batch_sizes), ("units", units)):
    problems += [
      f"`{field}[{bucket!r}]` must be at least 1, got {value}. Correct it."
      for bucket, value in values.items()
      if value < 1
    ]
  problems += [
    f"`units` must name every bucket, got none for {bucket!r}. Say what one"
    " of its samples consumes."
    for bucket in batch_sizes
    if bucket not in units
  ]
  for name, counts in groups.items():
    problems += _group_problems(name, counts, batch_sizes, remainder)
  for bucket in batch_sizes:
    if not any(counts.get(bucket, 0) for counts in groups.values()):
      problems.append(
        f"bucket {bucket!r} must have a sample in some dataset, got none."
        " Leave it out."
      )
  if problems:
    raise ValueError(" ".join(problems))


def _group_problems(
  name: str,
  counts: Mapping[Bucket, int],
  batch_sizes: Mapping[Bucket, int],
  remainder: str,
) -> list[str]:
  problems = []
  for bucket, count in counts.items():
    if bucket not in batch_sizes:
      problems.append(
        f"`groups[{name!r}]` must have buckets of `batch_sizes`, got"
        f" {bucket!r}. Known: {', '.join(map(repr, batch_sizes))}."
      )
    elif count < 0:
      problems.append(
        f"`groups[{name!r}][{bucket!r}]` must be at least 0, got {count}."
        " Count its samples."
      )
    elif 0 < count < batch_sizes[bucket] and remainder == "drop":
      problems.append(
        f"bucket {bucket!r} of dataset {name!r} must fill a global batch of"
        f" {batch_sizes[bucket]} samples, got {count}: none of them would ever"
        " come. Make its batches smaller, pad them (`remainder='pad'`), or"
        " leave the bucket out of this dataset."
      )
  if not any(counts.values()):
    problems.append(
      f"dataset {name!r} must have samples in some bucket, got none. Leave it"
      " out, or correct the buckets."
    )
  return problems
