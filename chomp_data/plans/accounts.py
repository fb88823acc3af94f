# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a run has consumed before a step: samples, tokens, epochs, by source.

The numbers (`totals.Totals`) come from one of three places, and agree: from a
checkpoint, from counting what a reader reads after a step at which they are
known, or from the plan.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any
from typing import NamedTuple

import numpy as np

from chomp_data.plans import answers
from chomp_data.plans import background_counter
from chomp_data.plans import consumption
from chomp_data.plans import ledger as ledger_lib
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import questions as questions_lib
from chomp_data.plans import totals as totals_lib


@dataclasses.dataclass(frozen=True)
class Account:
  """What one source has delivered.

  Attributes:
    rows: Rows that were in batches: all that the source has consumed, without
      those that `config.data.skip` leaves out.
    tokens: Positions of these rows that hold a token, without those that
      tombstones remove.
    loss_tokens: Positions of these rows whose next token is of the same
      document and row, and is trained on by the store's labels. `train_on_eos`
      and the column that `lookahead` adds are not taken into account.
      `tokens` and `loss_tokens` are None for arrays; if the run resumed from a
      state without them and they must be summed from plans; and in a state if
      to compute them takes minutes.
    epochs: Passes over the source, the current one as a fraction. Skipped rows
      count as passed.
  """

  rows: int
  tokens: int | None
  loss_tokens: int | None
  epochs: float


class _Start(NamedTuple):
  """What the thread of a `BackgroundCounter` computes before it counts.

  Attributes:
    plan_totals: Computes totals from the thread's copy of the plan.
    totals: The totals before the first step that the thread counts.
    problems: A line for each difference between the state that the run resumed
      from and the plan.
  """

  plan_totals: totals_lib.PlanTotals
  totals: totals_lib.Totals
  problems: list[str]


class _Reading(NamedTuple):
  """Counts of the steps that a reader reads.

  Attributes:
    ledger: The counts.
    counter: The thread that computes totals and counts steps; None if the
      totals at the reader's first step are known, and the reader counts.
  """

  ledger: ledger_lib.Ledger
  counter: background_counter.BackgroundCounter[_Start] | None


class Accounts:
  """The accounts of a run at any step. To be used by one thread.

  Attributes:
    questions: Answers to other questions about the run.
  """

  def __init__(
    self, plan: plan_lib.Plan, entries: Sequence[Mapping[str, str]] = ()
  ):
    """Stores the arguments; computes nothing.

    Args:
      plan: The run.
      entries: The sources as `dataset_mix` names them, for checkpoints.
    """
    self._plan = plan
    self._entries = list(entries)
    self.questions: questions_lib.Questions = answers.of(plan)
    self._totals = totals_lib.PlanTotals(self.questions)
    # The totals of the last step at which they are known.
    self._known: totals_lib.Totals | None = None
    self._reading: _Reading | None = None

  def follow(
    self, step: int, count_into: Callable[[ledger_lib.Ledger], bool]
  ) -> background_counter.BackgroundCounter[_Start] | None:
    """Counts what is read from a step on, so that saving a state plans no rows.

    Args:
      step: The first step that is read.
      count_into: Called with a ledger; returns whether the reader counts all
        rows of all steps there.

    Returns:
      A thread to which the reader reports its steps; None if none is needed.
    """
    ledger, counter = ledger_lib.Ledger(self._plan), None
    counts, known = count_into(ledger), self._known
    if known is not None and known.step != step:
      known = None
    if known is None and self._is_run_start(step):
      known = self._totals.at(step)
    self._known = None
    if known is not None and known.is_final:
      self._known = dataclasses.replace(known, is_unchecked=False)
    if known is None or known.is_unchecked or not counts:
      begin = functools.partial(_start, step, known)
      counter = background_counter.BackgroundCounter(
        self._plan, ledger, step, begin, not counts
      )
    self._reading = _Reading(ledger, counter)
    return counter

  def forget(self) -> None:
    """Discards all totals, because the run moves to a step without a state."""
    self._known = self._reading = None

  def problems(self) -> list[str]:
    """Returns a line for each difference between restored state and plan.

    They are known after the first batch, as comparing tokens may plan rows.
    """
    start = self._begun()
    return start.problems if start else []

  def _begun(self) -> _Start | None:
    """Returns what the thread has computed, or None until it has."""
    counter = self._reading and self._reading.counter
    return counter.begun if counter else None

  def _is_run_start(self, step: int) -> bool:
    """Returns whether the run has consumed nothing before a step."""
    return step == 0 and not any(
      position.consumed
      for position in consumption.positions(self._plan, 0).values()
    )

  def _at(
    self,
    step: int,
    units: Sequence[str] = ledger_lib.UNITS,
    for_state: bool = False,
  ) -> totals_lib.Totals:
    """Returns the totals before a step, from the cheapest place that has them.

    Args:
      step: At most the number of steps of the run.
      units: The units that are needed.
      for_state: Whether units that take minutes are left out, as None.
    """
    if self._known is None and self._reading and self._reading.counter:
      # The thread computes the same; to do it twice at once takes longer.
      self._reading.counter.wait_begun()
    counted = self._counted_at(step)
    if counted is not None:
      return counted
    known = self._known
    totals = self._totals.at(step, known, units, for_state)
    is_later = known is None or (known.step < step and not known.is_unchecked)
    # A reader's counts can only be added to totals at a step that they cover.
    is_later &= (
      known is None
      or self._reading is None
      or self._reading.ledger.covers(step)
    )
    # After a state without units they stay unknown.
    is_final = totals.is_complete or not (known is None or known.is_complete)
    if units == ledger_lib.UNITS and is_later and is_final:
      self._known = totals
    return totals

  def _counted_at(self, step: int) -> totals_lib.Totals | None:
    """Returns the totals before a step, if they were counted."""
    if self._known is None and (start := self._begun()):
      self._known = start.totals
    known, reading = self._known, self._reading
    if known is None or not known.is_final:
      return None
    if known.step == step:
      return known
    # Sources have passed skipped rows too, which the ledger does not count.
    skips = [
      self._plan.steps.data_step(at_step) - at_step
      for at_step in (known.step, step)
    ]
    if reading is None or skips[0] != skips[1]:
      return None
    delivered = reading.ledger.between(known.step, step)
    if delivered is None:
      return None
    # The ledger drops old steps: add from the latest step that was asked for.
    self._known = self._totals.after(known, step, delivered)
    return self._known

  def at(self, step: int) -> dict[str, Account]:
    """Returns every source's account before a step.

    Args:
      step: At most the steps of the run.

    Raises:
      IndexError: If the step is beyond the run.
    """
    return _accounts(self.questions, self._at(step))

  def rows(self, step: int) -> dict[str, int]:
    """Returns the rows (or samples) that sources have delivered before a step.

    Args:
      step: At most the steps of the run.

    Raises:
      IndexError: If the step is beyond the run.
    """
    counts = consumption.delivered(self._plan, step).sum(axis=1).tolist()
    return dict(zip(self._plan.source_names, counts, strict=True))

  def histogram(self, step: int) -> dict[str, dict[str, int]]:
    """Returns samples by source and bucket before a step, without padding.

    Args:
      step: At most the steps of the run.
    """
    return _histogram(self._plan, consumption.delivered(self._plan, step))

  def recording(self, step: int) -> Callable[[], dict[str, Any]]:
    """Returns a function that returns `record` of a step.

    Args:
      step: At most the steps of the run.

    Returns:
      A function for any thread. It waits if a background thread is still
      computing the totals.

    Raises:
      IndexError: If the step is beyond the run.
    """
    counter = self._reading and self._reading.counter
    is_counted = counter is None or self._counted_at(step) is not None
    if counter is not None and not is_counted and counter.awaited() is not None:
      return lambda: counter.call(
        lambda start: _record(
          start.plan_totals,
          self._entries,
          start.totals
          if start.totals.step == step
          else start.plan_totals.at(step, start.totals, for_state=True),
        )
      )
    record = self.record(step)
    return lambda: record

  def record(self, step: int) -> dict[str, Any]:
    """Returns what a checkpoint stores, as JSON values.

    Args:
      step: At most the steps of the run.

    Returns:
      `histogram` by source and bucket if the run has buckets, `accounts` by
      source if samples are text, `gone` with the removed units by source if
      tombstones removed any, `resume_state` if the run can start from offsets,
      and `dataset_mix` if the config has one.

    Raises:
      IndexError: If the step is beyond the run.
    """
    return _record(self._totals, self._entries, self._at(step, for_state=True))

  def resume_state(self, step: int) -> dict[str, Any]:
    """Returns row and token offsets before a step, skipped rows included.

    Args:
      step: At most the steps of the run.

    Returns:
      {"datasets": [{"spec", "row_offset", "token_offset"}]}; an entry has no
      "token_offset" if it is unknown.

    Raises:
      IndexError: If the step is beyond the run.
      TypeError: If a run of this kind cannot start from offsets.
    """
    if self.questions.foreign_offsets() is None:
      raise TypeError(
        "`resume_state` must be asked of a run without `config.data.buckets`:"
        " offsets cannot say which samples of an epoch were given. Use the"
        " step."
      )
    return _resume_state(self._totals, self._at(step, ("tokens",)))

  def restore(
    self,
    record: Mapping[str, Any],
    step: int,
    positions: Mapping[str, consumption.Position] | None = None,
  ) -> list[str]:
    """Compares a checkpoint's accounts with the plan, and continues from them.

    Rows are compared at once. Tokens are compared after the first batch, as
    that may pack windows; `problems` then returns their differences.

    Args:
      record: What `record` returned at that step; older states have none.
      step: The step.
      positions: The position of each source at that step, if it is known.

    Returns:
      One line for each thing that differs.
    """
    problems = []
    if self._plan.by_bucket:
      problems = self._histogram_problems(record.get("histogram") or {}, step)
    if not self._totals.has_tokens or problems:
      return problems
    saved = record.get("accounts") or {}
    positions = positions or consumption.positions(self._plan, step)
    units = np.zeros((len(positions), len(ledger_lib.UNITS)), np.int64)
    for number, (name, position) in enumerate(positions.items()):
      count, account = position.delivered, saved.get(name)
      # A source that joined the config later has delivered nothing.
      if not saved and count:
        # An older state without accounts: to sum all rows would take long.
        units[number] = totals_lib.UNKNOWN
      elif saved and account is None and count:
        problems.append(f"accounts.{name}: state has none, plan {count} rows")
      elif account is not None and account["rows"] != count:
        problems.append(
          f"accounts.{name}.rows: state has {account['rows']}, plan {count}"
        )
      elif account is not None:
        units[number] = [
          totals_lib.UNKNOWN if account[unit] is None else account[unit]
          for unit in ledger_lib.UNITS
        ]
    if problems:
      return problems
    self.forget()
    # Removed tokens are taken from the state: to count them again takes long.
    removed, removed_units = None, record.get("gone")
    if removed_units:
      removed = np.asarray(
        [
          [
            removed_units.get(name, {}).get(unit, 0)
            for unit in ledger_lib.UNITS
          ]
          for name in positions
        ],
        np.int64,
      )
    histogram = self._totals.histogram(step)
    totals = totals_lib.Totals(step, positions, histogram, units, removed)
    self._known = dataclasses.replace(
      totals, is_unchecked=bool(saved) or not totals.is_complete
    )
    return []

  def _histogram_problems(
    self, saved: Mapping[str, Mapping[str, int]], step: int
  ) -> list[str]:
    """Returns a line for each saved count that differs from the plan."""
    problems = []
    planned = self.histogram(step)
    for name in dict.fromkeys([*planned, *saved]):
      by_plan, by_state = planned.get(name, {}), saved.get(name, {})
      for bucket in dict.fromkeys([*by_plan, *by_state]):
        count, state = by_plan.get(bucket, 0), by_state.get(bucket, 0)
        if count != state:
          problems.append(
            f"histogram.{name}.{bucket}: state has {state} samples, plan"
            f" {count}"
          )
    return problems


def _start(
  step: int, known: totals_lib.Totals | None, plan: plan_lib.Plan
) -> _Start:
  """Returns the totals at the first step of a reader, in its thread.

  Args:
    step: The step.
    known: The totals at that step, as far as they are known.
    plan: The thread's copy of the plan.
  """
  plan_totals = totals_lib.PlanTotals(answers.of(plan))
  problems, totals = [], known
  if known is not None and known.is_unchecked:
    problems = plan_totals.differences(known)
  if totals is None or not totals.is_final:
    totals = plan_totals.at(step, known, for_state=True)
  return _Start(
    plan_totals, dataclasses.replace(totals, is_unchecked=False), problems
  )


def _accounts(
  questions: questions_lib.Questions, totals: totals_lib.Totals
) -> dict[str, Account]:
  """Returns totals as an account of each source."""
  accounts = {}
  for number, (name, position) in enumerate(totals.positions.items()):
    counts = [totals_lib.UNKNOWN] * len(ledger_lib.UNITS)
    if totals.units is not None:
      counts = totals.units[number].tolist()
    tokens, loss_tokens = (
      None if count == totals_lib.UNKNOWN else count for count in counts
    )
    epochs = questions.epochs_consumed(name, position.consumed)
    accounts[name] = Account(position.delivered, tokens, loss_tokens, epochs)
  return accounts


def _histogram(
  plan: plan_lib.Plan, counts: np.ndarray
) -> dict[str, dict[str, int]]:
  """Returns int64[num_sources, num_buckets] by name, without zeros."""
  buckets = [bucket.name for bucket in plan.buckets]
  return {
    name: {bucket: n for bucket, n in zip(buckets, row, strict=True) if n}
    for name, row in zip(plan.source_names, counts.tolist(), strict=True)
  }


def _record(
  plan_totals: totals_lib.PlanTotals,
  entries: Sequence[Mapping[str, str]],
  totals: totals_lib.Totals,
) -> dict[str, Any]:
  """Returns what a checkpoint stores of totals, as `Accounts.record` does."""
  questions, record = plan_totals.questions, dict[str, Any]()
  plan, names = questions.plan, questions.plan.source_names
  if plan.by_bucket:
    record["histogram"] = _histogram(plan, totals.histogram)
  if plan_totals.has_tokens:
    record["accounts"] = {
      name: vars(account).copy()
      for name, account in _accounts(questions, totals).items()
    }
  if totals.removed is not None:
    record["gone"] = {
      name: dict(zip(ledger_lib.UNITS, counts, strict=True))
      for name, counts in zip(names, totals.removed.tolist(), strict=True)
    }
  if questions.foreign_offsets() is not None:
    record["resume_state"] = _resume_state(plan_totals, totals)
  if entries:
    record["dataset_mix"] = list(entries)
  return record


def _resume_state(
  plan_totals: totals_lib.PlanTotals, totals: totals_lib.Totals
) -> dict[str, Any]:
  """Returns the row and token offsets of totals."""
  datasets = []
  for (name, position), tokens in zip(
    totals.positions.items(), plan_totals.consumed_tokens(totals), strict=True
  ):
    offset = {} if tokens is None else {"token_offset": tokens}
    datasets.append({"spec": name, "row_offset": position.consumed, **offset})
  foreign = plan_totals.questions.foreign_offsets() or []
  return {"datasets": datasets + foreign}
