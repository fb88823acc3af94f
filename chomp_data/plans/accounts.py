# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a run has consumed before a step: samples, tokens, epochs, by source.

Samples follow from the step, and so do tokens where a source knows its sums;
see `token_sums` for the others.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from absl import logging
import numpy as np

from chomp_data.plans import following
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import token_sums


@dataclasses.dataclass(frozen=True)
class Account:
  """One source's consumption.

  Attributes:
    rows: Rows handed out: those taken in its own order from its first, less
      what `config.data.skip` leaves out.
    tokens: Positions of them that hold a token, which none does that is gone.
    loss_tokens: Positions of them whose next token is of the same document
      and row, and is trained on by the store's labels; before `train_on_eos`,
      and without the last column that `lookahead` adds. Both are None of
      arrays, where they must be summed from plans and a run goes on from a
      state that does not tell them, and in a state where that takes minutes.
    epochs: Passes over the source, the one under way as a fraction; skipped
      rows are passed too.
  """

  rows: int
  tokens: int | None
  loss_tokens: int | None
  epochs: float


_NOTHING: dict[str, int] = dict.fromkeys(token_sums.UNITS, 0)


@dataclasses.dataclass(frozen=True)
class _Standing:
  """What a run has consumed before a step, by source.

  Attributes:
    step: The step.
    places: Where each source is.
    given: Samples that were handed out, by source and bucket, where states tell
      them.
    sums: Units that were handed out, by source and unit; none of arrays.
    gone: What of them is gone, by source and unit; none where nothing is yet.
  """

  step: int
  places: Mapping[str, token_sums.Place]
  given: Mapping[str, Mapping[str, int]]
  sums: Mapping[str, Mapping[str, int | None]]
  gone: Mapping[str, Mapping[str, int]]


@dataclasses.dataclass(frozen=True)
class _Told:
  """What a state tells of a step, which the plan has yet to say.

  Attributes:
    step: The step.
    places: Where each source is.
    sums: By source and unit.
    gone: As in `_Standing`.
  """

  step: int
  places: Mapping[str, token_sums.Place]
  sums: Mapping[str, Mapping[str, int | None]]
  gone: Mapping[str, Mapping[str, int]]

  def problems(self, sums: token_sums.TokenSums) -> list[str]:
    """Returns a line for each count of tokens that a plan does not have."""
    sums.go_on(self.step, self.places, self.sums, self.gone)
    found = []
    for name, own in self.sums.items():
      place, tokens = self.places[name], own["tokens"]
      if not sums.known(name):
        continue
      planned = sums.before(self.step, name, place, "tokens")
      if tokens != planned:
        found.append(
          f"accounts.{name}.tokens: state has {tokens}, plan {planned}"
        )
    return found


class Accounts:
  """Accounts of a run at any step. For one thread."""

  def __init__(
    self, plan: plan_lib.Plan, entries: Sequence[Mapping[str, str]] = ()
  ):
    """Sums nothing yet.

    Args:
      plan: The run.
      entries: The sources as `dataset_mix` names them, kept in checkpoints.
    """
    self._plan = plan
    self._entries = list(entries)
    self._sums = plan.token_sums()
    # Of what reads: what it reads is counted in `_ledger`, from `_base` on.
    self._ledger: following.Ledger | None = None
    self._base: _Standing | None = None
    self._follower: following.Follower | None = None
    # What a state tells until the plan was asked, and where it says otherwise.
    self._told: _Told | None = None
    self._problems: list[str] = []

  def follow(
    self, step: int, count_into: Callable[[following.Ledger], bool]
  ) -> following.Follower | None:
    """Begins to count what a run reads, so that no state needs planning.

    Args:
      step: Where it begins to read.
      count_into: Lets who reads count all rows of steps; returns whether it
        will.

    Returns:
      A thread that hears where the run is; None: none is needed.
    """
    plan = self._plan
    self._ledger = ledger = following.Ledger(plan)
    self._follower = None
    self._problems = []
    counts = count_into(ledger)
    base, told = self._base, self._told
    if (base is None or base.step != step) and self._is_begin(step):
      base = self._standing_at(step)
    self._base = base if base is not None and base.step == step else None
    self._told = told = told if told is not None and told.step == step else None
    if self._base is not None and told is None and counts:
      return None

    base = self._base

    def begin(plan: plan_lib.Plan) -> Accounts:
      own = Accounts(plan, self._entries)
      sums = plan.token_sums()
      problems = [] if told is None or sums is None else told.problems(sums)
      found = None
      if base is None:
        found = own._standing_at(step, whole=False)
      elif own._sums is not None:
        own._sums.go_on(step, base.places, base.sums, base.gone)
      # Another reader may have begun.
      if self._ledger is not ledger:
        return own
      self._told, self._problems = None, problems
      if problems:
        self._base = None
      elif self._base is None:
        self._base = found
      return own

    self._follower = following.Follower(plan, ledger, step, begin, not counts)
    return self._follower

  def forget(self) -> None:
    """Hears that a run goes to a step of which no state tells."""
    self._ledger = self._base = self._follower = self._told = None
    self._problems = []

  def problems(self) -> list[str]:
    """Returns where the state that a run reads on from says otherwise.

    One line for each thing that does not agree; see `restore`.
    """
    return self._problems

  def _is_begin(self, step: int) -> bool:
    """Returns whether nothing was taken before a step."""
    return step == 0 and not any(
      own.samples for own in self._plan.places(0).values()
    )

  def _standing(
    self,
    step: int,
    units: Sequence[str] = token_sums.UNITS,
    whole: bool = True,
  ) -> _Standing:
    """Returns what was consumed before a step, by what was counted if it was.

    Args:
      step: The step.
      units: Those that are asked for, at least.
      whole: As in `_standing_at`.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    if self._base is None and self._follower is not None:
      # It is nearly there, and two at once take longer.
      self._follower.wait_begun()
    found = self._known_at(step)
    if found is not None:
      return found
    base, ledger = self._base, self._ledger
    if ledger is None and units != token_sums.UNITS:
      return self._standing_at(step, units, whole)
    if base is not None and base.step <= step and self._sums is not None:
      self._sums.go_on(base.step, base.places, base.sums, base.gone)
    found = self._standing_at(step, whole=whole)
    if base is None or ledger is None or ledger.covers(step):
      self._base = found
    return found

  def _known_at(self, step: int) -> _Standing | None:
    """Returns what was consumed before a step, if it was counted."""
    base, ledger = self._base, self._ledger
    if base is None or base.step == step:
      return base
    # Skipped rows, which sources have passed too, nobody counts.
    if ledger is None or self._skipped(step) != self._skipped(base.step):
      return None
    sums = ledger.between(base.step, step)
    if sums is None:
      return None
    # What is counted goes on from the last step that was asked for.
    self._base = self._after(base, step, *ledger.split(sums))
    return self._base

  def _skipped(self, step: int) -> int:
    """Returns how many data steps before a step are skipped."""
    return self._plan.steps.data_step(step) - step

  def _after(
    self,
    base: _Standing,
    step: int,
    samples: np.ndarray,
    live: np.ndarray,
    gone: np.ndarray,
  ) -> _Standing:
    """Returns what was consumed where that much came since."""
    names = self._plan.source_names
    buckets = [own.name for own in self._plan.buckets]
    more, lost = (_by_unit(names, units) for units in (live, gone))
    return _Standing(
      step,
      {
        name: dataclasses.replace(
          base.places[name], samples=base.places[name].samples + own
        )
        for name, own in zip(names, samples.sum(axis=1).tolist(), strict=True)
      },
      {
        name: {
          bucket: base.given[name][bucket] + count
          for bucket, count in zip(buckets, own, strict=True)
        }
        for name, own in zip(names, samples.tolist(), strict=True)
        if name in base.given
      },
      {
        name: {
          unit: None if sum_ is None else sum_ + more[name][unit]
          for unit, sum_ in own.items()
        }
        for name, own in base.sums.items()
      },
      {
        name: {
          unit: count + base.gone.get(name, _NOTHING)[unit]
          for unit, count in own.items()
        }
        for name, own in lost.items()
        if base.sums and self._plan.is_gone_before(step)
      },
    )

  def _standing_at(
    self,
    step: int,
    units: Sequence[str] = token_sums.UNITS,
    whole: bool = True,
  ) -> _Standing:
    """Returns what was consumed before a step, from the plan.

    Args:
      step: The step.
      units: Those that are asked for.
      whole: Whether sums that take minutes are made too, or left None.
    """
    places = self._plan.places(step)
    sums: dict[str, dict[str, int | None]] = {}
    gone: dict[str, dict[str, int]] = {}
    if self._sums is not None:
      sums = {
        name: {
          unit: None
          if not whole and self._is_long(name, place, unit)
          else self._sums.before(step, name, place, unit)
          for unit in units
        }
        for name, place in places.items()
      }
      gone = self._sums.gone(step)
    return _Standing(step, places, self._given(step), sums, gone)

  def _is_long(self, name: str, place: token_sums.Place, unit: str) -> bool:
    """Returns whether a sum takes minutes, and says so."""
    assert self._sums is not None
    found = self._sums.is_long(name, place, unit)
    if found:
      logging.log_first_n(
        logging.WARNING,
        "%s: states tell no `%s`: to count them before row %d takes minutes,"
        " since epochs differ. A run that goes on from a state knows them.",
        1,
        name,
        unit,
        place.samples,
      )
    return found

  def _given(self, step: int) -> plan_lib.Counts:
    """Returns samples by source and bucket; none where nobody asks for them."""
    return self._plan.given(step) if self._plan.by_bucket else {}

  def at(self, step: int) -> dict[str, Account]:
    """Returns every source's account before a step.

    Args:
      step: At most the steps of the run.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    return self._accounts(self._standing(step))

  def _accounts(self, standing: _Standing) -> dict[str, Account]:
    out = {}
    for name, place in standing.places.items():
      sums = standing.sums.get(name, {})
      out[name] = Account(
        rows=place.given,
        tokens=sums.get("tokens"),
        loss_tokens=sums.get("loss_tokens"),
        epochs=self._plan.passes(name, place.samples),
      )
    return out

  def rows(self, step: int) -> dict[str, int]:
    """Returns the rows (or samples) that sources have given before a step.

    Args:
      step: At most the steps of the run.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    return {n: own.given for n, own in self._plan.places(step).items()}

  def histogram(self, step: int) -> dict[str, dict[str, int]]:
    """Returns samples by source and bucket before a step, filler left out.

    Args:
      step: At most the steps of the run.
    """
    return _some(self._plan.given(step))

  def rows_held(self, step: int) -> dict[str, int]:
    """Returns rows of batches by bucket before a step, filler included.

    Args:
      step: At most the steps of the run.
    """
    return self._plan.rows_held(step)

  def epoch_begins(self, source: str, epoch: int) -> int | None:
    """Returns the first step of an epoch, as `Account.epochs` counts them.

    Args:
      source: Its name.
      epoch: From 0.

    Returns:
      None where the run never comes there.
    """
    return self._plan.epoch_begins(source, epoch)

  def ends(self, source: str) -> int | None:
    """Returns the first step before which a source has given all it will.

    None: it never ends, or not in this run.
    """
    return self._plan.ends(source)

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
    return self._plan.documents(source, step)

  def recording(self, step: int) -> Callable[[], dict[str, Any]]:
    """Returns what gives `record` of a step, which is not waited for here.

    Args:
      step: At most the steps of the run.

    Returns:
      A function for any thread. It waits where the sums of all that came before
      a step that was gone to are still made.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    if self._follower is not None and self._known_at(step) is None:
      asked = self._follower.ask(lambda own: own.record(step))
      if asked is not None:
        return asked.result
    found = self.record(step)
    return lambda: found

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
    found: dict[str, Any] = {}
    standing = self._standing(step, whole=False)
    if self._plan.by_bucket:
      found["histogram"] = _some(standing.given)
    if self._sums is not None:
      found["accounts"] = {
        name: vars(own).copy() for name, own in self._accounts(standing).items()
      }
      if standing.gone:
        found["gone"] = {n: dict(own) for n, own in standing.gone.items()}
    if self._plan.foreign_offsets() is not None:
      found["resume_state"] = self._resume_state(standing)
    if self._entries:
      found["dataset_mix"] = self._entries
    return found

  def resume_state(self, step: int) -> dict[str, Any]:
    """Returns row and token offsets before a step, skipped rows counted.

    Args:
      step: At most the steps of the run.

    Returns:
      {"datasets": [{"spec", "row_offset", "token_offset"}]}, without token
      offsets that are not known. Source: seed 001.

    Raises:
      IndexError: If the step lies beyond the run.
      TypeError: If a run of this kind cannot start from offsets.
    """
    if self._plan.foreign_offsets() is None:
      raise TypeError(
        "`resume_state` must be asked of a run without `config.data.buckets`:"
        " offsets cannot say which samples of an epoch were given. Use the"
        " step."
      )
    return self._resume_state(self._standing(step, ("tokens",)))

  def _resume_state(self, standing: _Standing) -> dict[str, Any]:
    entries = []
    for name, place in standing.places.items():
      tokens = self._taken(standing, name)
      known = {} if tokens is None else {"token_offset": tokens}
      entries.append({"spec": name, "row_offset": place.samples, **known})
    return {"datasets": entries + (self._plan.foreign_offsets() or [])}

  def restore(
    self,
    record: Mapping[str, Any],
    step: int,
    places: Mapping[str, token_sums.Place] | None = None,
  ) -> list[str]:
    """Compares a checkpoint's accounts with the plan, and goes on from them.

    Rows at once; tokens, of which a plan may pack windows, behind the first
    batch of what reads: `problems` tells.

    Args:
      record: Of `record`, at that step; older states have none.
      step: The step.
      places: Where the plan says that sources are there, if that is known.

    Returns:
      One line for each thing that does not agree.
    """
    problems = []
    if self._plan.by_bucket:
      problems = self._uneven(record.get("histogram") or {}, step)
    if self._sums is None or problems:
      return problems
    saved = record.get("accounts") or {}
    places = places or self._plan.places(step)
    told: dict[str, dict[str, int | None]] = {}
    for name, place in places.items():
      count, own = place.given, saved.get(name)
      if not saved:
        # An older state: summing everything again would take long.
        if count:
          told[name] = dict.fromkeys(token_sums.UNITS)
      elif own is None:
        # A source that joined the config later has given nothing.
        if count:
          problems.append(f"accounts.{name}: state has none, plan {count} rows")
      elif own["rows"] != count:
        problems.append(
          f"accounts.{name}.rows: state has {own['rows']}, plan {count}"
        )
      else:
        told[name] = {unit: own[unit] for unit in token_sums.UNITS}
    if problems:
      return problems
    # What is gone is taken from the state: counting it again would take long.
    gone = record.get("gone") or {}
    self._sums.go_on(step, places, told, gone)
    self._base = self._told = None
    self._problems = []
    if not saved:
      return []
    self._told = _Told(step, places, told, gone)
    sums = {name: told.get(name, _NOTHING) for name in places}
    if not any(
      own is None for units in sums.values() for own in units.values()
    ):
      self._base = _Standing(step, places, self._given(step), sums, gone)
    return []

  def _taken(self, standing: _Standing, name: str) -> int | None:
    """Returns the tokens of all rows that were taken, skipped ones too."""
    if self._sums is None:
      return None
    place, tokens = standing.places[name], standing.sums[name]["tokens"]
    if tokens is None:
      return None
    tokens += standing.gone.get(name, _NOTHING)["tokens"]
    if not place.skipped:
      return tokens
    skipped = self._sums.skipped(name, place)
    return None if skipped is None else tokens + skipped

  def _uneven(
    self, saved: Mapping[str, Mapping[str, int]], step: int
  ) -> list[str]:
    problems = []
    planned = self.histogram(step)
    for name in dict.fromkeys([*planned, *saved]):
      own, other = planned.get(name, {}), saved.get(name, {})
      for bucket in dict.fromkeys([*own, *other]):
        plan, state = own.get(bucket, 0), other.get(bucket, 0)
        if plan != state:
          problems.append(
            f"histogram.{name}.{bucket}: state has {state} samples, plan {plan}"
          )
    return problems


def _by_unit(
  names: Sequence[str], units: np.ndarray
) -> dict[str, dict[str, int]]:
  """Returns int64[sources, units] by name and unit."""
  return {
    name: dict(zip(token_sums.UNITS, own, strict=True))
    for name, own in zip(names, units.tolist(), strict=True)
  }


def _some(
  given: Mapping[str, Mapping[str, int]],
) -> dict[str, dict[str, int]]:
  """Returns counts by source and bucket, none of which is 0."""
  return {
    name: {bucket: count for bucket, count in own.items() if count}
    for name, own in given.items()
  }
