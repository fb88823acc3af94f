"""What a run has consumed before a step, by source: rows, tokens, epochs.

Rows follow from the step; so do tokens where a source knows its sums. What it
does not know is summed from plans, from what a checkpoint says or what was
asked last. Where that lies more than an epoch back and epochs consume the
same, one epoch is planned instead of all between.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

import numpy as np

from chomp_data.loading import batches
from chomp_data.sources import row_source
from chomp_data.sources import units

# Rows planned at once.
_BLOCK = 4_096
_SUMS_KEPT = 8


@dataclasses.dataclass(frozen=True)
class Account:
  """One source's consumption.

  Attributes:
    rows: Rows taken, in its own order from its first.
    tokens: Positions of them that hold a token.
    loss_tokens: Positions of them whose next token is of the same document
      and row; before `train_on_eos`, and without the last column that
      `lookahead` adds. Both are None where they must be summed from plans and
      a run goes on from a state that does not tell them.
    epochs: Passes over the source, the one under way as a fraction.
  """

  rows: int
  tokens: int | None
  loss_tokens: int | None
  epochs: float


class Accounts:
  """Accounts of a run at any step. For one thread."""

  def __init__(
    self,
    plan: batches.BatchPlan,
    entries: Sequence[Mapping[str, str]] = (),
  ):
    """Sums nothing yet.

    Args:
      plan: The run.
      entries: The sources as `dataset_mix` names them, kept in checkpoints.
    """
    self._plan = plan
    self._entries = list(entries)
    self._sources = plan.rows.ordered()
    # By (source, unit), as they are asked for: what is not asked for costs
    # nothing.
    self._by_unit: dict[tuple[str, str], _SourceSums] = {}

  def at(self, step: int) -> dict[str, Account]:
    """Returns every source's account before a step.

    Args:
      step: At most the steps of the run.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    out = {}
    for name, rows in self.rows(step).items():
      source = self._sources[name]
      out[name] = Account(
        rows=rows,
        tokens=self._sums(name, "tokens").before(rows),
        loss_tokens=self._sums(name, "loss_tokens").before(rows),
        epochs=source.passes(rows),
      )
    return out

  def record(self, step: int) -> dict[str, Any]:
    """Returns what a checkpoint keeps, as JSON values.

    Args:
      step: At most the steps of the run.

    Returns:
      `accounts` by source, `resume_state` as seed 001 writes it, and
      `dataset_mix` where the run was given one.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    return {
      "accounts": {
        name: dataclasses.asdict(own) for name, own in self.at(step).items()
      },
      "resume_state": self.resume_state(step),
      **({"dataset_mix": self._entries} if self._entries else {}),
    }

  def resume_state(self, step: int) -> dict[str, Any]:
    """Returns row and token offsets before a step, as seed 001 keeps them.

    Args:
      step: At most the steps of the run.

    Returns:
      {"datasets": [{"spec", "row_offset", "token_offset"}]}, without token
      offsets that are not known.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    entries = []
    for name, rows in self.rows(step).items():
      tokens = self._sums(name, "tokens").before(rows)
      known = {} if tokens is None else {"token_offset": tokens}
      entries.append({"spec": name, "row_offset": rows, **known})
    return {"datasets": entries + self._plan.rows.foreign_specs()}

  def restore(self, record: Mapping[str, Any], step: int) -> list[str]:
    """Compares a checkpoint's accounts with the plan, and goes on from them.

    Args:
      record: Of `record`, at that step; older states have none.
      step: The step.

    Returns:
      One line for each source that does not agree.
    """
    saved = record.get("accounts") or {}
    problems = []
    for name, rows in self.rows(step).items():
      own = saved.get(name)
      if not saved and rows:
        # An older state: summing everything again would take long.
        for unit in ("tokens", "loss_tokens"):
          self._sums(name, unit).restart(rows, None)
        continue
      if own is None:
        # A source that joined the config later has given nothing.
        if rows:
          problems.append(f"accounts.{name}: state has none, plan {rows} rows")
        continue
      if own["rows"] != rows:
        problems.append(
          f"accounts.{name}.rows: state has {own['rows']}, plan {rows}"
        )
        continue
      sums = self._sums(name, "tokens")
      if sums.known and own["tokens"] != sums.before(rows):
        problems.append(
          f"accounts.{name}.tokens: state has {own['tokens']}, plan"
          f" {sums.before(rows)}"
        )
      for unit in ("tokens", "loss_tokens"):
        self._sums(name, unit).restart(rows, own[unit])
    return problems

  def rows(self, step: int) -> dict[str, int]:
    """Returns the rows that sources have given before a step.

    Args:
      step: At most the steps of the run.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    if not 0 <= step <= self._plan.step_limit:
      raise IndexError(
        f"step must be in 0 .. {self._plan.step_limit}, got {step}. Ask before"
        " a step of the run, or at its end."
      )
    first = step * self._plan.global_batch_size
    if self._plan.num_rows is not None:
      first = min(first, self._plan.num_rows)
    return self._plan.rows.taken(first)

  def _sums(self, name: str, unit: str) -> "_SourceSums":
    found = self._by_unit.get((name, unit))
    if found is None:
      found = self._by_unit[name, unit] = _SourceSums(self._sources[name], unit)
    return found


class _SourceSums:
  """What the rows of one source consume before a row."""

  def __init__(self, source: row_source.RowSource, unit: str):
    self._source = source
    self._unit = unit
    # Sums before some rows, ascending: the latest few.
    self._told: list[tuple[int, int | None]] = [(0, 0)]

  @functools.cached_property
  def known(self) -> bool:
    """Whether sums need no planning of whole epochs."""
    return self._source.knows_units(self._unit)

  @functools.cached_property
  def _prefix(self) -> units.SourceUnits:
    return units.SourceUnits(self._source, self._unit, None)

  def restart(self, rows: int, total: int | None) -> None:
    """Takes a checkpoint's word for a sum; None is not told."""
    self._told = [(rows, total)]

  def before(self, rows: int) -> int | None:
    """Returns the units before a row, None where they are not told."""
    if self.known:
      return self._by_prefix(rows)
    # Before what a checkpoint told, only a sum from the start on will do.
    earlier = [own for own in self._told if own[0] <= rows]
    done, total = earlier[-1] if earlier else (0, 0)
    if total is None:
      return None
    source = self._source
    ramp = source.ramp_epochs
    epoch = source.first_row_of(ramp + 1) - source.first_row_of(ramp)
    if rows - done > epoch and source.epochs_alike(self._unit):
      total = self._by_prefix(rows)
    else:
      total += self._planned(done, rows)
    if rows > self._told[-1][0]:
      self._told.append((rows, total))
      del self._told[:-_SUMS_KEPT]
    return total

  def _by_prefix(self, rows: int) -> int:
    return int(self._prefix.before(np.asarray([rows]))[0])

  def _planned(self, first: int, last: int) -> int:
    total = 0
    for low in range(first, last, _BLOCK):
      spans = self._source.plan(np.arange(low, min(low + _BLOCK, last)))
      total += int(units.row_units(spans, self._unit).sum())
    return total
