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
    accounts: The accounts of the thread's copy of the plan.
    totals: The totals before the first step that the thread counts.
    problems: A line for each difference between the state that the run resumed
      from and the plan.
  """

  accounts: "Accounts"
  totals: totals_lib.Totals
  problems: list[str]


class Accounts:
  """The accounts of a run at any step. To be used by one thread.

  Attributes:
    questions: Answers to other questions about the run.
  """

  def __init__(
    self, plan: plan_lib.Plan, entries: Sequence[Mapping[str, str]] = ()
  ):
    """Computes nothing yet.

    Args:
      plan: The run.
      entries: The sources as `dataset_mix` names them, for checkpoints.
    """
    self._plan = plan
    self._entries = list(entries)
    self.questions: questions_lib.Questions = answers.of(plan)
    self._totals = totals_lib.PlanTotals(self.questions)
    # The totals of the last step at which they are known.
    self._base: totals_lib.Totals | None = None
    # The totals of a state, until a reader has compared them with the plan.
    self._restored: totals_lib.Totals | None = None
    # Counts what a reader reads; None without a reader.
    self._ledger: ledger_lib.Ledger | None = None
    self._counter: background_counter.BackgroundCounter[_Start] | None = None

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
    self._ledger = ledger = ledger_lib.Ledger(self._plan)
    self._counter = None
    counts = count_into(ledger)
    base, restored = (
      totals if totals and totals.step == step else None
      for totals in (self._base, self._restored)
    )
    if base is None and restored is None and self._is_run_start(step):
      base = self._totals.at(step)
    self._base, self._restored = base, None
    if base is not None and restored is None and counts:
      return None
    begin = functools.partial(_start, self._entries, step, base, restored)
    self._counter = background_counter.BackgroundCounter(
      self._plan, ledger, step, begin, not counts
    )
    return self._counter

  def forget(self) -> None:
    """Discards all totals, because the run moves to a step without a state."""
    self._ledger = self._base = self._restored = self._counter = None

  def problems(self) -> list[str]:
    """Returns a line for each difference between restored state and plan.

    They are known after the first batch, as comparing tokens may plan rows.
    """
    start = self._counter and self._counter.begun
    return start.problems if start else []

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
    if self._base is None and self._counter is not None:
      # The thread computes the same; to do it twice at once takes longer.
      self._counter.wait_begun()
    counted = self._counted_at(step)
    if counted is not None:
      return counted
    base, ledger = self._base, self._ledger
    totals = self._totals.at(step, base or self._restored, units, for_state)
    is_later = base is None or base.step < step
    # A reader's counts can only be added to totals at a step that they cover.
    is_later &= base is None or ledger is None or ledger.covers(step)
    # After a state without units they stay unknown.
    is_final = totals.is_complete or self._restored is not None
    if units == ledger_lib.UNITS and is_later and is_final:
      self._base = totals
    return totals

  def _counted_at(self, step: int) -> totals_lib.Totals | None:
    """Returns the totals before a step, if they were counted."""
    if self._base is None and self._counter and self._counter.begun:
      self._base = self._counter.begun.totals
    base, ledger = self._base, self._ledger
    if base is None or base.step == step:
      return base
    # Sources have passed skipped rows too, which the ledger does not count.
    skips = [
      self._plan.steps.data_step(at_step) - at_step
      for at_step in (base.step, step)
    ]
    if ledger is None or skips[0] != skips[1]:
      return None
    delivered = ledger.between(base.step, step)
    if delivered is None:
      return None
    # The ledger drops old steps: add from the latest step that was asked for.
    self._base = self._totals.after(base, step, delivered)
    return self._base

  def at(self, step: int) -> dict[str, Account]:
    """Returns every source's account before a step.

    Args:
      step: At most the steps of the run.

    Raises:
      IndexError: If the step is beyond the run.
    """
    return self._accounts(self._at(step))

  def _accounts(self, totals: totals_lib.Totals) -> dict[str, Account]:
    accounts = {}
    for number, (name, position) in enumerate(totals.positions.items()):
      counts = [totals_lib.UNKNOWN] * len(ledger_lib.UNITS)
      if totals.units is not None:
        counts = totals.units[number].tolist()
      tokens, loss_tokens = (
        None if count == totals_lib.UNKNOWN else count for count in counts
      )
      epochs = self.questions.passes(name, position.consumed)
      accounts[name] = Account(position.delivered, tokens, loss_tokens, epochs)
    return accounts

  def rows(self, step: int) -> dict[str, int]:
    """Returns the rows (or samples) that sources have delivered before a step.

    Args:
      step: At most the steps of the run.

    Raises:
      IndexError: If the step is beyond the run.
    """
    return consumption.by_source(consumption.delivered(self._plan, step))

  def histogram(self, step: int) -> dict[str, dict[str, int]]:
    """Returns samples by source and bucket before a step, without padding.

    Args:
      step: At most the steps of the run.
    """
    return {
      name: {bucket: count for bucket, count in by_bucket.items() if count}
      for name, by_bucket in consumption.delivered(self._plan, step).items()
    }

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
    counter = self._counter
    is_counted = counter is None or self._counted_at(step) is not None
    if counter is not None and not is_counted and counter.awaited() is not None:
      return lambda: counter.call(lambda start: start.accounts.record(step))
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
    record: dict[str, Any] = {}
    totals, names = self._at(step, for_state=True), self._plan.source_names
    if self._plan.by_bucket:
      buckets = [bucket.name for bucket in self._plan.buckets]
      record["histogram"] = {
        name: {
          bucket: n for bucket, n in zip(buckets, counts, strict=True) if n
        }
        for name, counts in zip(names, totals.histogram.tolist(), strict=True)
      }
    if self._totals.has_tokens:
      record["accounts"] = {
        name: vars(account).copy()
        for name, account in self._accounts(totals).items()
      }
    if totals.removed is not None:
      record["gone"] = {
        name: dict(zip(ledger_lib.UNITS, counts, strict=True))
        for name, counts in zip(names, totals.removed.tolist(), strict=True)
      }
    if self.questions.foreign_offsets() is not None:
      record["resume_state"] = self._resume_state(totals)
    if self._entries:
      record["dataset_mix"] = self._entries
    return record

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
    return self._resume_state(self._at(step, ("tokens",)))

  def _resume_state(self, totals: totals_lib.Totals) -> dict[str, Any]:
    entries = []
    for (name, position), tokens in zip(
      totals.positions.items(),
      self._totals.consumed_tokens(totals),
      strict=True,
    ):
      offset = {} if tokens is None else {"token_offset": tokens}
      entries.append({"spec": name, "row_offset": position.consumed, **offset})
    return {"datasets": entries + (self.questions.foreign_offsets() or [])}

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
    removed, gone = None, record.get("gone")
    if gone:
      removed = np.asarray(
        [
          [gone.get(name, {}).get(unit, 0) for unit in ledger_lib.UNITS]
          for name in positions
        ],
        np.int64,
      )
    totals = totals_lib.Totals(
      step, positions, self._totals.histogram(step), units, removed
    )
    self._base = totals if totals.is_complete else None
    self._restored = totals if saved or not totals.is_complete else None
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
  entries: Sequence[Mapping[str, str]],
  step: int,
  base: totals_lib.Totals | None,
  restored: totals_lib.Totals | None,
  plan: plan_lib.Plan,
) -> _Start:
  """Returns the totals at the first step of a reader, in its thread.

  Args:
    entries: As in `Accounts`.
    step: The step.
    base: The totals at that step, or None.
    restored: The totals of a state, which are compared with the plan.
    plan: The thread's copy of the plan.
  """
  accounts = Accounts(plan, entries)
  problems = []
  if restored is not None:
    problems = accounts._totals.differences(restored)
  if base is None:
    base = accounts._totals.at(step, restored, for_state=True)
  accounts._base = base
  return _Start(accounts, base, problems)
