# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a run has consumed before a step, computed from its plan.

Tokens before a step come from prefix sums (`token_sums`), or from a step at
which they are known, plus what the steps since then deliver: whichever plans
fewer rows. What tombstones remove is counted from the first of them on.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools

from absl import logging
import numpy as np

from chomp_data.plans import answers
from chomp_data.plans import consumption
from chomp_data.plans import ledger
from chomp_data.plans import plan as plan_lib

# By source, then by unit; None is unknown.
Units = Mapping[str, Mapping[str, int | None]]

NOTHING: dict[str, int] = dict.fromkeys(ledger.UNITS, 0)

# To plan more rows takes minutes, and no state waits for it.
_MAX_STATE_ROWS = 2**26


@dataclasses.dataclass(frozen=True)
class Totals:
  """What a run has consumed before a step, by source.

  Attributes:
    step: The step.
    positions: Where each source is.
    histogram: Samples that were delivered, by source and bucket; empty where
      states do not hold them.
    units: Tokens and trained tokens that were delivered; empty for arrays.
    removed: Those that tombstones removed; empty where there are none yet.
    has_accounts: Whether `units` were counted: older states hold none.
  """

  step: int
  positions: Mapping[str, consumption.Position]
  histogram: Mapping[str, Mapping[str, int]]
  units: Units
  removed: Mapping[str, Mapping[str, int]]
  has_accounts: bool = True

  @property
  def is_complete(self) -> bool:
    """Whether no number of units is unknown."""
    return not any(
      count is None
      for counts in self.units.values()
      for count in counts.values()
    )


class PlanTotals:
  """Computes the totals of a run. For one thread."""

  def __init__(self, plan: plan_lib.Plan):
    """Computes nothing yet.

    Args:
      plan: The run.
    """
    self._plan = plan
    self._sums = answers.of(plan).token_sums()
    self._counter = ledger.Counter(plan)

  @property
  def has_tokens(self) -> bool:
    """Whether samples hold tokens, and are no arrays."""
    return self._sums is not None

  def at(
    self,
    step: int,
    base: Totals | None = None,
    units: Sequence[str] = ledger.UNITS,
    for_state: bool = False,
  ) -> Totals:
    """Returns the totals before a step.

    Args:
      step: At most the number of steps of the run.
      base: Totals at a step that is not after it, or None.
      units: The units that are computed.
      for_state: Whether units that take minutes are left out, as None.

    Raises:
      IndexError: If the step is beyond the run.
    """
    positions = consumption.positions(self._plan, step)
    histogram = {}
    if self._plan.by_bucket:
      histogram = consumption.delivered(self._plan, step)
    if self._sums is None:
      return Totals(step, positions, histogram, {}, {})
    if base is not None and base.step > step:
      base = None
    since = functools.cache(
      lambda: self._counter.between(self._plan, base.step if base else 0, step)
    )
    removed = self._removed(step, base, since)
    rows_since = 0
    if base is not None:
      rows_since = sum(
        position.delivered - base.positions[name].delivered
        for name, position in positions.items()
      )
    data_step = self._plan.steps.data_step(step)
    counts: dict[str, dict[str, int | None]] = {name: {} for name in positions}
    for number, (name, position) in enumerate(positions.items()):
      for column, unit in enumerate(ledger.UNITS):
        if unit not in units:
          continue
        rows = self._sums.rows_to_plan(name, data_step, unit)
        base_count = None if base is None else base.units[name][unit]
        if base is not None and rows and base_count is None:
          counts[name][unit] = None
          continue
        is_nearer = base_count is not None and rows_since < rows
        if for_state and (rows_since if is_nearer else rows) > _MAX_STATE_ROWS:
          _log_unknown(name, unit, position.consumed)
          counts[name][unit] = None
        elif base_count is not None and is_nearer:
          counts[name][unit] = base_count + int(since().units[number, column])
        else:
          total = self._delivered(name, step, unit)
          counts[name][unit] = total - removed.get(name, NOTHING)[unit]
    return Totals(step, positions, histogram, counts, removed)

  def after(
    self, base: Totals, step: int, delivered: ledger.Delivered
  ) -> Totals:
    """Returns the totals after steps between which none is skipped.

    Args:
      base: The totals before them.
      step: The step after them.
      delivered: What they deliver.
    """
    names = self._plan.source_names
    buckets = [bucket.name for bucket in self._plan.buckets]
    added = dict(zip(names, delivered.samples.tolist(), strict=True))
    units, removed = (
      _by_unit(names, counts) for counts in (delivered.units, delivered.removed)
    )
    if not base.units or not consumption.is_removed_before(self._plan, step):
      removed = {}
    return Totals(
      step,
      {
        name: dataclasses.replace(
          position, consumed=position.consumed + sum(added[name])
        )
        for name, position in base.positions.items()
      },
      {
        name: {
          bucket: by_bucket[bucket] + count
          for bucket, count in zip(buckets, added[name], strict=True)
        }
        for name, by_bucket in base.histogram.items()
      },
      {
        name: {
          unit: None if count is None else count + units[name][unit]
          for unit, count in by_unit.items()
        }
        for name, by_unit in base.units.items()
      },
      _sum(base.removed, removed),
    )

  def consumed_tokens(self, totals: Totals, name: str) -> int | None:
    """Returns the tokens of all samples that a source has consumed.

    Those of skipped steps and of removed documents are among them.

    Args:
      totals: Of a step.
      name: The name of the source.
    """
    if self._sums is None:
      return None
    tokens = totals.units[name]["tokens"]
    if tokens is None:
      return None
    tokens += totals.removed.get(name, NOTHING)["tokens"]
    for first, last in self._plan.steps.skipped(totals.step):
      tokens += self._sums.between(name, first, last, "tokens")
    return tokens

  def differences(self, totals: Totals) -> list[str]:
    """Returns a line for each count of tokens that the plan does not have.

    Only tokens that are known without planning rows are compared, and none of
    a state that holds no accounts.

    Args:
      totals: Those that a state holds.
    """
    lines: list[str] = []
    if not totals.has_accounts:
      return lines
    data_step = self._plan.steps.data_step(totals.step)
    for name, counts in totals.units.items():
      if self._sums is None or self._sums.rows_to_plan(
        name, data_step, "tokens"
      ):
        continue
      planned = self._delivered(name, totals.step, "tokens")
      planned -= totals.removed.get(name, NOTHING)["tokens"]
      if counts["tokens"] != planned:
        lines.append(
          f"accounts.{name}.tokens: state has {counts['tokens']}, plan"
          f" {planned}"
        )
    return lines

  def _delivered(self, name: str, step: int, unit: str) -> int:
    """Returns the units that were delivered, with those that are removed."""
    assert self._sums is not None
    steps = self._plan.steps
    return self._sums.before(name, steps.data_step(step), unit) - sum(
      self._sums.between(name, first, last, unit)
      for first, last in steps.skipped(step)
    )

  def _removed(
    self, step: int, base: Totals | None, since
  ) -> Mapping[str, Mapping[str, int]]:
    """Returns what is removed before a step; empty where nothing may be."""
    if not consumption.is_removed_before(self._plan, step):
      return {}
    names = self._plan.source_names
    first = self._plan.steps.before(self._plan.gone.first_step or 0)
    if base is not None and base.step >= first:
      return _sum(base.removed, _by_unit(names, since().removed))
    delivered = self._counter.between(self._plan, first, step)
    return _by_unit(names, delivered.removed)


def _log_unknown(name: str, unit: str, row: int) -> None:
  logging.log_first_n(
    logging.WARNING,
    "%s: states tell no `%s`: to count them before row %d takes minutes,"
    " since epochs differ. A run that goes on from a state knows them.",
    1,
    name,
    unit,
    row,
  )


def _by_unit(
  names: Sequence[str], units: np.ndarray
) -> dict[str, dict[str, int]]:
  """Returns int64[num_sources, num_units] by name and unit."""
  return {
    name: dict(zip(ledger.UNITS, counts, strict=True))
    for name, counts in zip(names, units.tolist(), strict=True)
  }


def _sum(
  one: Mapping[str, Mapping[str, int]], other: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
  """Returns sums by source and unit."""
  return {
    name: {
      unit: one.get(name, NOTHING)[unit] + other.get(name, NOTHING)[unit]
      for unit in ledger.UNITS
    }
    for name in {**other, **one}
  }
