"""What a run has consumed before a step: samples, tokens, epochs, by source.

Samples follow from the step, and so do tokens where a source knows its sums;
see `token_sums` for the others.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pickle
import threading
from typing import Any

from absl import logging
import numpy as np

from chomp_data.plans import plan as plan_lib
from chomp_data.plans import token_sums

# Below this a pass over all lengths takes a tenth of a second.
_MANY_DOCUMENTS = 1 << 18


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
      arrays, and where they must be summed from plans and a run goes on from a
      state that does not tell them.
    epochs: Passes over the source, the one under way as a fraction; skipped
      rows are passed too.
  """

  rows: int
  tokens: int | None
  loss_tokens: int | None
  epochs: float


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
    self._prepared = False

  def prepare(self) -> threading.Thread | None:
    """Begins what the first account of large stores needs; see `record`.

    A thread with a copy of the sources passes over lengths and keeps what it
    finds beside the stores, where the first account then finds it.

    Returns:
      The thread, or None where nothing takes long, or it was begun before.
    """
    large = [
      name
      for name, own in self._plan.sources.items()
      if own.store.num_documents >= _MANY_DOCUMENTS
    ]
    if self._prepared or not large or self._sums is None:
      return None
    self._prepared = True
    sources = pickle.dumps([self._plan.sources[name] for name in large])

    def work() -> None:
      try:
        for own in pickle.loads(sources):
          for unit in token_sums.UNITS:
            own.sums.known(unit)
      except Exception:  # Whoever asks for the account meets it, and says it.
        logging.debug("accounts are not prepared", exc_info=True)

    thread = threading.Thread(target=work, name="accounts", daemon=True)
    thread.start()
    return thread

  def at(self, step: int) -> dict[str, Account]:
    """Returns every source's account before a step.

    Args:
      step: At most the steps of the run.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    return {
      name: Account(
        rows=place.given,
        tokens=self._sum(step, name, place, "tokens"),
        loss_tokens=self._sum(step, name, place, "loss_tokens"),
        epochs=self._plan.passes(name, place.samples),
      )
      for name, place in self._plan.places(step).items()
    }

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
    return {
      name: {bucket: count for bucket, count in own.items() if count}
      for name, own in self._plan.given(step).items()
    }

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
    if self._plan.by_bucket:
      found["histogram"] = self.histogram(step)
    if self._sums is not None:
      accounts = self.at(step)
      found["accounts"] = {
        name: dataclasses.asdict(own) for name, own in accounts.items()
      }
      gone = self._sums.gone(step)
      if gone:
        found["gone"] = gone
    if self._plan.foreign_offsets() is not None:
      found["resume_state"] = self.resume_state(step)
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
    foreign = self._plan.foreign_offsets()
    if foreign is None:
      raise TypeError(
        "`resume_state` must be asked of a run without `config.data.buckets`:"
        " offsets cannot say which samples of an epoch were given. Use the"
        " step."
      )
    entries = []
    for name, place in self._plan.places(step).items():
      tokens = None if self._sums is None else self._sums.taken(name, place)
      known = {} if tokens is None else {"token_offset": tokens}
      entries.append({"spec": name, "row_offset": place.samples, **known})
    return {"datasets": entries + foreign}

  def restore(self, record: Mapping[str, Any], step: int) -> list[str]:
    """Compares a checkpoint's accounts with the plan, and goes on from them.

    Args:
      record: Of `record`, at that step; older states have none.
      step: The step.

    Returns:
      One line for each thing that does not agree.
    """
    problems = []
    if self._plan.by_bucket:
      problems = self._uneven(record.get("histogram") or {}, step)
    if self._sums is None or problems:
      return problems
    saved = record.get("accounts") or {}
    places, told = self._plan.places(step), {}
    compared: list[tuple[str, token_sums.Place, int | None]] = []
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
        compared.append((name, place, own["tokens"]))
        told[name] = own
    # What is gone is taken from the state: counting it again would take long.
    self._sums.go_on(step, places, told, record.get("gone") or {})
    for name, place, tokens in compared:
      if not self._sums.known(name):
        continue
      planned = self._sum(step, name, place, "tokens")
      if tokens != planned:
        problems.append(
          f"accounts.{name}.tokens: state has {tokens}, plan {planned}"
        )
    return problems

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

  def _sum(
    self, step: int, name: str, place: token_sums.Place, unit: str
  ) -> int | None:
    if self._sums is None:
      return None
    return self._sums.before(step, name, place, unit)
