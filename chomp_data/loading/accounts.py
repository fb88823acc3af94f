"""What a run has consumed before a step, by source: rows, tokens, epochs.

Rows follow from the step; so do tokens where a source knows its sums. What it
does not know is summed from plans as far as the run has come, and goes on from
what a checkpoint says, so that a resume replays nothing.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from chomp_data.loading import batches
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
    loss_tokens: Positions of them whose next token is of the same document;
      before `train_on_eos` and with `mask_boundary_loss`. Both are None where
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
    self._known = {
      name: units.SourceUnits(own, "tokens", None)
      for name, own in self._sources.items()
      if own.knows_units("tokens")
    }
    # Sums up to some rows, by (source, unit), ascending: the latest few.
    self._sums: dict[tuple[str, str], list[tuple[int, int | None]]] = {}

  def at(self, step: int) -> dict[str, Account]:
    """Returns every source's account before a step.

    Args:
      step: At most the steps of the run.
    """
    out = {}
    for name, rows in self.rows(step).items():
      source = self._sources[name]
      out[name] = Account(
        rows=rows,
        tokens=self._units(name, "tokens", rows),
        loss_tokens=self._units(name, "loss_tokens", rows),
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
    """
    accounts = self.at(step)
    entries = [
      {
        "spec": name,
        "row_offset": own.rows,
        **({} if own.tokens is None else {"token_offset": own.tokens}),
      }
      for name, own in accounts.items()
    ]
    return {
      "accounts": {
        name: dataclasses.asdict(own) for name, own in accounts.items()
      },
      "resume_state": {"datasets": entries + self._plan.rows.foreign_specs()},
      **({"dataset_mix": self._entries} if self._entries else {}),
    }

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
          self._sums[name, unit] = [(rows, None)]
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
      if name in self._known:
        tokens = self._units(name, "tokens", rows)
        if own["tokens"] != tokens:
          problems.append(
            f"accounts.{name}.tokens: state has {own['tokens']}, plan {tokens}"
          )
      for unit in ("tokens", "loss_tokens"):
        self._sums[name, unit] = [(rows, own[unit])]
    return problems

  def rows(self, step: int) -> dict[str, int]:
    """Returns the rows that sources have given before a step.

    Args:
      step: At most the steps of the run.
    """
    first = step * self._plan.global_batch_size
    if self._plan.num_rows is not None:
      first = min(first, self._plan.num_rows)
    return self._plan.rows.taken(first)

  def _units(self, name: str, unit: str, rows: int) -> int | None:
    if unit == "tokens" and name in self._known:
      return int(self._known[name].before(np.asarray([rows]))[0])
    known = self._sums.setdefault((name, unit), [(0, 0)])
    before = [own for own in known if own[0] <= rows]
    # Before what a checkpoint told, only a sum from the start on will do.
    done, total = before[-1] if before else (0, 0)
    if total is None:
      return None
    source = self._sources[name]
    for first in range(done, rows, _BLOCK):
      spans = source.plan(np.arange(first, min(first + _BLOCK, rows)))
      total += int(units.row_units(spans, unit).sum())
    if rows > known[-1][0]:
      known.append((rows, total))
      del known[:-_SUMS_KEPT]
    return total
