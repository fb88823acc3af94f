# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a run has consumed before a step, computed from its plan.

Tokens before a step come from prefix sums, or from a step at
which they are known, plus what the steps since then deliver: whichever plans
fewer rows. What tombstones remove is counted from the first of them on.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools

from absl import logging
import numpy as np

from chomp_data.plans import consumption
from chomp_data.plans import ledger
from chomp_data.plans import questions as questions_lib

# A number of units that is not known.
UNKNOWN = -1

# To plan more rows takes minutes, and no state waits for it.
MAX_STATE_ROWS = 2**26


@dataclasses.dataclass(frozen=True)
class Totals:
  """What a run has consumed before a step, by source.

  Attributes:
    step: The step.
    positions: Where each source is.
    histogram: int64[num_sources, num_buckets], samples that were delivered;
      counted only in runs whose states hold them.
    units: int64[num_sources, 2], tokens and trained tokens that were delivered,
      or `UNKNOWN`; None for arrays.
    removed: int64[num_sources, 2], those that tombstones removed; None if there
      are none yet.
    is_unchecked: Whether they are of a state that was not compared with the
      plan.
  """

  step: int
  positions: Mapping[str, consumption.Position]
  histogram: np.ndarray
  units: np.ndarray | None = None
  removed: np.ndarray | None = None
  is_unchecked: bool = False

  @property
  def is_final(self) -> bool:
    """Whether the plan can add nothing to them without planning many rows."""
    return self.is_complete or not self.is_unchecked

  @property
  def is_complete(self) -> bool:
    """Whether all numbers of units are known."""
    return self.units is None or bool((self.units != UNKNOWN).all())


class PlanTotals:
  """Computes the totals of a run. For one thread.

  Attributes:
    questions: The questions about the run.
  """

  def __init__(self, questions: questions_lib.Questions):
    """Stores the arguments; computes nothing.

    Args:
      questions: The questions about the run.
    """
    self._plan = questions.plan
    self.questions: questions_lib.Questions = questions
    self._counter = ledger.Counter(questions.plan)

  @property
  def has_tokens(self) -> bool:
    """Whether samples hold tokens, and are no arrays."""
    return bool(self._plan.sources)

  def histogram(self, step: int) -> np.ndarray:
    """Returns `Totals.histogram` before a step."""
    plan = self._plan
    if not plan.by_bucket:
      return np.zeros((len(plan.source_names), len(plan.buckets)), np.int64)
    return consumption.delivered(plan, step)

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
      for_state: Whether units that take minutes are left out, as `UNKNOWN`.

    Raises:
      IndexError: If the step is beyond the run.
    """
    positions = consumption.positions(self._plan, step)
    histogram = self.histogram(step)
    if not self.has_tokens:
      return Totals(step, positions, histogram)
    counts = np.full((len(positions), len(ledger.UNITS)), UNKNOWN, np.int64)
    known, rows_since, begin = counts.copy(), 0, 0
    if base is not None and base.step > step:
      base = None
    if base is not None and base.units is not None:
      known, begin = base.units, base.step
      rows_since = sum(
        position.delivered - base.positions[name].delivered
        for name, position in positions.items()
      )
    since = functools.cache(lambda: self._counter.between(begin, step))
    removed = self._removed(step, base, since)
    data_step = self._plan.steps.data_step(step)
    for number, (name, position) in enumerate(positions.items()):
      for column, unit in enumerate(ledger.UNITS):
        if unit not in units:
          continue
        cell = number, column
        is_known = known[cell] != UNKNOWN
        rows = self.questions.rows_to_plan(name, data_step, unit)
        if base is not None and rows and not is_known:
          continue
        is_nearer = is_known and rows_since < rows
        if for_state and (rows_since if is_nearer else rows) > MAX_STATE_ROWS:
          _log_unknown(name, unit, position.consumed)
        elif is_nearer:
          counts[cell] = known[cell] + since().units[cell]
        else:
          counts[cell] = self._delivered(name, step, unit)
          counts[cell] -= 0 if removed is None else removed[cell]
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
    samples = delivered.samples.sum(axis=1).tolist()
    units, removed = base.units, base.removed
    if units is not None:
      units = np.where(units == UNKNOWN, UNKNOWN, units + delivered.units)
      if consumption.is_removed_before(self._plan, step):
        removed = delivered.removed + (0 if removed is None else removed)
    return Totals(
      step,
      {
        name: dataclasses.replace(position, consumed=position.consumed + count)
        for (name, position), count in zip(
          base.positions.items(), samples, strict=True
        )
      },
      base.histogram + delivered.samples,
      units,
      removed,
    )

  def consumed_tokens(self, totals: Totals) -> list[int | None]:
    """Returns the tokens of all samples that each source has consumed.

    Those of skipped steps and of removed documents are among them. None where
    they are unknown, or samples are arrays.
    """
    if not self.has_tokens or totals.units is None:
      return [None] * len(totals.positions)
    tokens = totals.units[:, 0]
    removed = 0 if totals.removed is None else totals.removed[:, 0]
    return [
      None
      if count == UNKNOWN
      else total + self._skipped(name, totals.step, "tokens")
      for name, count, total in zip(
        totals.positions,
        tokens.tolist(),
        (tokens + removed).tolist(),
        strict=True,
      )
    ]

  def differences(self, totals: Totals) -> list[str]:
    """Returns a line for each count of tokens that the plan does not have.

    Only tokens that are known without planning rows are compared.

    Args:
      totals: Those that a state holds.
    """
    lines: list[str] = []
    data_step = self._plan.steps.data_step(totals.step)
    if not self.has_tokens or totals.units is None:
      return lines
    tokens, removed = totals.units[:, 0], totals.removed
    for number, name in enumerate(totals.positions):
      if tokens[number] == UNKNOWN or self.questions.rows_to_plan(
        name, data_step, "tokens"
      ):
        continue
      planned = self._delivered(name, totals.step, "tokens")
      planned -= 0 if removed is None else int(removed[number, 0])
      if tokens[number] != planned:
        lines.append(
          f"accounts.{name}.tokens: state has {tokens[number]}, plan {planned}"
        )
    return lines

  def _delivered(self, name: str, step: int, unit: str) -> int:
    """Returns the units that were delivered, with those that are removed."""
    data_step = self._plan.steps.data_step(step)
    before = self.questions.units_before(name, data_step, unit)
    return before - self._skipped(name, step, unit)

  def _skipped(self, name: str, step: int, unit: str) -> int:
    """Returns the units of a source in skipped steps before a step."""
    return sum(
      self.questions.units_between(name, first, last, unit)
      for first, last in self._plan.steps.skipped(step)
    )

  def _removed(
    self,
    step: int,
    base: Totals | None,
    since: Callable[[], ledger.Delivered],
  ) -> np.ndarray | None:
    """Returns what is removed before a step; None where nothing may be."""
    if not consumption.is_removed_before(self._plan, step):
      return None
    first = self._plan.steps.before(self._plan.tombstones.first_step or 0)
    if base is not None and base.step >= first:
      return since().removed + (0 if base.removed is None else base.removed)
    return self._counter.between(first, step).removed


def _log_unknown(name: str, unit: str, row: int) -> None:
  logging.log_first_n(
    logging.WARNING,
    "%s: states have no `%s`: to count them before row %d takes minutes,"
    " because epochs differ. A run that continues from a state has them.",
    1,
    name,
    unit,
    row,
  )
