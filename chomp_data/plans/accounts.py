# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a run has consumed before a step: samples, tokens, epochs, by source.

Three ways lead to the same numbers (`totals.Totals`): a checkpoint holds them,
a reader counts what it reads from a step on at which they are known, and they
are computed from the plan.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

import numpy as np

from chomp_data.plans import answers
from chomp_data.plans import background_counter
from chomp_data.plans import consumption
from chomp_data.plans import ledger as ledger_lib
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import totals as totals_lib


@dataclasses.dataclass(frozen=True)
class Account:
  """What one source has delivered.

  Attributes:
    rows: Rows in batches: those consumed in its own order from its first, less
      those that `config.data.skip` leaves out.
    tokens: Positions of them that hold a token which no tombstone removes.
    loss_tokens: Positions of them whose next token is of the same document
      and row, and is trained on by the store's labels; before `train_on_eos`,
      and without the last column that `lookahead` adds. Both are None of
      arrays, where they must be summed from plans and a run goes on from a
      state that does not hold them, and in a state where that takes minutes.
    epochs: Passes over the source, the one under way as a fraction; skipped
      rows are passed too.
  """

  rows: int
  tokens: int | None
  loss_tokens: int | None
  epochs: float


@dataclasses.dataclass(frozen=True)
class _Start:
  """What the thread of a `BackgroundCounter` knows of the step it began at.

  Attributes:
    accounts: Those of its copy of the plan.
    totals: The totals before that step.
    problems: Where the state that the run goes on from differs from the plan.
  """

  accounts: "Accounts"
  totals: totals_lib.Totals
  problems: list[str]


class Accounts:
  """Accounts of a run at any step. For one thread."""

  def __init__(
    self, plan: plan_lib.Plan, entries: Sequence[Mapping[str, str]] = ()
  ):
    """Computes nothing yet.

    Args:
      plan: The run.
      entries: The sources as `dataset_mix` names them, kept in checkpoints.
    """
    self._plan = plan
    self._entries = list(entries)
    self._questions = answers.of(plan)
    self._totals = totals_lib.PlanTotals(plan)
    # The totals of the last step at which they are known.
    self._base: totals_lib.Totals | None = None
    # Those that a state holds, until a reader has compared them.
    self._restored: totals_lib.Totals | None = None
    # Of what is read, where something is.
    self._ledger: ledger_lib.Ledger | None = None
    self._counter: background_counter.BackgroundCounter[_Start] | None = None

  def follow(
    self, step: int, count_into: Callable[[ledger_lib.Ledger], bool]
  ) -> background_counter.BackgroundCounter[_Start] | None:
    """Counts what is read from a step on, so that no state needs planning.

    Args:
      step: The first step that is read.
      count_into: Called with a ledger; returns whether the reader counts all
        rows of all steps there.

    Returns:
      A thread to which the step of the run is reported; None: none is needed.
    """
    self._ledger = ledger = ledger_lib.Ledger(self._plan)
    self._counter = None
    counts = count_into(ledger)
    base, restored = (
      totals if totals and totals.step == step else None
      for totals in (self._base, self._restored)
    )
    if base is None and restored is None and self._is_begin(step):
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
    """Forgets all totals: a run goes to a step of which no state is known."""
    self._ledger = self._base = self._restored = self._counter = None

  def problems(self) -> list[str]:
    """Returns where the state that a run reads on from differs from the plan.

    One line for each thing that differs; see `restore`.
    """
    start = self._counter and self._counter.begun
    return start.problems if start else []

  def _is_begin(self, step: int) -> bool:
    """Returns whether nothing was consumed before a step."""
    return step == 0 and not any(
      own.consumed for own in consumption.positions(self._plan, 0).values()
    )

  def _at(
    self,
    step: int,
    units: Sequence[str] = ledger_lib.UNITS,
    for_state: bool = False,
  ) -> totals_lib.Totals:
    """Returns the totals before a step; the arguments are `PlanTotals.at`'s."""
    if self._base is None and self._counter is not None:
      # It is nearly there, and two at once take longer.
      self._counter.wait_begun()
    counted = self._counted_at(step)
    if counted is not None:
      return counted
    base, ledger = self._base, self._ledger
    totals = self._totals.at(step, base or self._restored, units, for_state)
    is_later = base is None or base.step < step
    # Where a run is read, what is counted goes on from its own steps.
    is_later &= base is None or ledger is None or ledger.covers(step)
    # A state that holds no units leaves them unknown.
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
    # Nobody counts skipped rows, which sources have passed too.
    skips = [self._plan.steps.data_step(own) - own for own in (base.step, step)]
    if ledger is None or skips[0] != skips[1]:
      return None
    delivered = ledger.between(base.step, step)
    if delivered is None:
      return None
    # What is counted goes on from the last step that was asked for.
    self._base = self._totals.after(base, step, delivered)
    return self._base

  def at(self, step: int) -> dict[str, Account]:
    """Returns every source's account before a step.

    Args:
      step: At most the steps of the run.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    return self._accounts(self._at(step))

  def _accounts(self, totals: totals_lib.Totals) -> dict[str, Account]:
    accounts = {}
    for name, position in totals.positions.items():
      units = totals.units.get(name, {})
      accounts[name] = Account(
        rows=position.delivered,
        tokens=units.get("tokens"),
        loss_tokens=units.get("loss_tokens"),
        epochs=self._questions.passes(name, position.consumed),
      )
    return accounts

  def rows(self, step: int) -> dict[str, int]:
    """Returns the rows (or samples) that sources have delivered before a step.

    Args:
      step: At most the steps of the run.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    positions = consumption.positions(self._plan, step)
    return {name: position.delivered for name, position in positions.items()}

  def histogram(self, step: int) -> dict[str, dict[str, int]]:
    """Returns samples by source and bucket before a step, without padding.

    Args:
      step: At most the steps of the run.
    """
    return _without_zeros(consumption.delivered(self._plan, step))

  def rows_held(self, step: int) -> dict[str, int]:
    """Returns rows of batches by bucket before a step, filler included.

    Args:
      step: At most the steps of the run.
    """
    return self._questions.rows_held(step)

  def epoch_begins(self, source: str, epoch: int) -> int | None:
    """Returns the first step of an epoch, as `Account.epochs` counts them.

    Args:
      source: Its name.
      epoch: From 0.

    Returns:
      None where the run never comes there.
    """
    return self._questions.epoch_begins(source, epoch)

  def ends(self, source: str) -> int | None:
    """Returns the first step before which a source has given all it will.

    None: it never ends, or not in this run.
    """
    return self._questions.ends(source)

  def documents(self, source: str, step: int) -> np.ndarray:
    """Returns which documents a source has given before a step.

    Rows are planned until all documents were seen, or the step comes.

    Args:
      source: Its name.
      step: At most the steps of the run.

    Returns:
      bool[num_documents], of which a token was in a batch; of arrays samples,
      by bucket.
    """
    return self._questions.documents(source, step)

  def recording(self, step: int) -> Callable[[], dict[str, Any]]:
    """Returns a function that returns `record` of a step.

    Args:
      step: At most the steps of the run.

    Returns:
      A function for any thread. It waits where what came before a step that
      was gone to is still summed.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    if self._counter is not None and self._counted_at(step) is None:
      future = self._counter.ask(lambda start: start.accounts.record(step))
      if future is not None:
        return future.result
    record = self.record(step)
    return lambda: record

  def record(self, step: int) -> dict[str, Any]:
    """Returns what a checkpoint keeps, as JSON values.

    Args:
      step: At most the steps of the run.

    Returns:
      What there is of `histogram` by source and bucket, `accounts` by source,
      what is `gone` of them, `resume_state` as `resume_state` returns it, and
      `dataset_mix` where the run was given one.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    record: dict[str, Any] = {}
    totals = self._at(step, for_state=True)
    if self._plan.by_bucket:
      record["histogram"] = _without_zeros(totals.histogram)
    if self._totals.has_tokens:
      record["accounts"] = {
        name: vars(account).copy()
        for name, account in self._accounts(totals).items()
      }
      if totals.removed:
        record["gone"] = {n: dict(own) for n, own in totals.removed.items()}
    if self._questions.foreign_offsets() is not None:
      record["resume_state"] = self._resume_state(totals)
    if self._entries:
      record["dataset_mix"] = self._entries
    return record

  def resume_state(self, step: int) -> dict[str, Any]:
    """Returns row and token offsets before a step, skipped rows counted.

    Args:
      step: At most the steps of the run.

    Returns:
      {"datasets": [{"spec", "row_offset", "token_offset"}]}, without token
      offsets that are not known.

    Raises:
      IndexError: If the step lies beyond the run.
      TypeError: If a run of this kind cannot start from offsets.
    """
    if self._questions.foreign_offsets() is None:
      raise TypeError(
        "`resume_state` must be asked of a run without `config.data.buckets`:"
        " offsets cannot say which samples of an epoch were given. Use the"
        " step."
      )
    return self._resume_state(self._at(step, ("tokens",)))

  def _resume_state(self, totals: totals_lib.Totals) -> dict[str, Any]:
    entries = []
    for name, position in totals.positions.items():
      tokens = self._totals.consumed_tokens(totals, name)
      offset = {} if tokens is None else {"token_offset": tokens}
      entries.append({"spec": name, "row_offset": position.consumed, **offset})
    return {"datasets": entries + (self._questions.foreign_offsets() or [])}

  def restore(
    self,
    record: Mapping[str, Any],
    step: int,
    positions: Mapping[str, consumption.Position] | None = None,
  ) -> list[str]:
    """Compares a checkpoint's accounts with the plan, and goes on from them.

    Rows are compared at once; tokens, for which a plan may pack windows, after
    the first batch that is read: see `problems`.

    Args:
      record: Of `record`, at that step; older states have none.
      step: The step.
      positions: Where the plan says that sources are there, if that is known.

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
    units: dict[str, dict[str, int | None]] = {}
    for name, position in positions.items():
      count, own = position.delivered, saved.get(name)
      # A source that joined the config later has delivered nothing.
      units[name] = dict(totals_lib.NOTHING)
      if not saved and count:
        # An older state: summing everything again would take long.
        units[name] = dict.fromkeys(ledger_lib.UNITS)
      elif saved and own is None and count:
        problems.append(f"accounts.{name}: state has none, plan {count} rows")
      elif own is not None and own["rows"] != count:
        problems.append(
          f"accounts.{name}.rows: state has {own['rows']}, plan {count}"
        )
      elif own is not None:
        units[name] = {unit: own[unit] for unit in ledger_lib.UNITS}
    if problems:
      return problems
    self.forget()
    histogram = {}
    if self._plan.by_bucket:
      histogram = consumption.delivered(self._plan, step)
    # What is removed is taken from the state: to count it again takes long.
    removed = record.get("gone") or {}
    totals = totals_lib.Totals(
      step, positions, histogram, units, removed, bool(saved)
    )
    self._base = totals if totals.is_complete else None
    self._restored = totals if saved or not totals.is_complete else None
    return []

  def _histogram_problems(
    self, saved: Mapping[str, Mapping[str, int]], step: int
  ) -> list[str]:
    """Returns a line for each count of a histogram that the plan has not."""
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
    base: The totals there, or None.
    restored: Those that a state holds, which are compared with the plan.
    plan: The copy of the thread.
  """
  accounts = Accounts(plan, entries)
  problems = []
  if restored is not None:
    problems = accounts._totals.differences(restored)
  if base is None:
    base = accounts._totals.at(step, restored, for_state=True)
  accounts._base = base
  return _Start(accounts, base, problems)


def _without_zeros(
  counts: Mapping[str, Mapping[str, int]],
) -> dict[str, dict[str, int]]:
  """Returns counts by source and bucket, none of which is 0."""
  return {
    name: {bucket: count for bucket, count in own.items() if count}
    for name, own in counts.items()
  }
