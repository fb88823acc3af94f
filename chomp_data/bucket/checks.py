# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the arguments of a bucket schedule; one error lists all problems."""

from collections.abc import Mapping

REMAINDERS = ("drop", "pad")


def check_policies(remainder: str, epochs: int | None) -> None:
  """Raises ValueError if a policy is unknown or `epochs` is below 1."""
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
  groups: Mapping[str, object], **by_dataset: Mapping[str, int]
) -> None:
  """Raises ValueError for unknown datasets and for `max_epochs` below 1."""
  for field, numbers in by_dataset.items():
    unknown = [name for name in numbers if name not in groups]
    if unknown:
      raise ValueError(
        f"`{field}` must name known datasets, got {unknown}. Known:"
        f" {', '.join(groups)}."
      )
  for name, count in by_dataset.get("max_epochs", {}).items():
    if count < 1:
      raise ValueError(
        f"`max_epochs[{name!r}]` must be at least 1, got {count}. Leave the"
        " dataset out of the stages."
      )


def check_groups(
  groups: Mapping[str, Mapping[str, int]],
  batch_sizes: Mapping[str, int],
  units: Mapping[str, int],
  remainder: str,
) -> None:
  """Raises one ValueError that lists every problem of groups, one per line."""
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
    raise ValueError("\n".join(problems))


def _group_problems(
  name: str,
  counts: Mapping[str, int],
  batch_sizes: Mapping[str, int],
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
        " come. Make its batches smaller, or pad them (`remainder='pad'`)."
      )
  if not any(counts.values()):
    problems.append(
      f"dataset {name!r} must have samples in some bucket, got none. Leave it"
      " out, or correct the buckets."
    )
  return problems
