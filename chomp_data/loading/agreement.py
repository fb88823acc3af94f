# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Processes that share batches compare what they read before the first one.

Each tells fingerprint and number of steps under the number that the iterator
has among those of its processes, so all must make the same iterators in the
same order. What differs is one error on all of them.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import itertools
import json
import time
from typing import Any
from typing import TypeVar

from absl import logging
import jax

from chomp_data import errors
from chomp_data import schema
from chomp_data.loading import placement
from chomp_data.loading import reader
from chomp_data.loading import state
from chomp_data.loading import watching

# A process that has not begun is waited for so long after the own arrival.
ARRIVE_S = 60.0
# Of one that lives it is known after so many beats that it has closed.
_KNOWN_BEATS = 3
# One that lives and prepares, so long.
PREPARE_S = 600.0

_DIRECTORY = "chomp_data/start"
# Most kinds of input that an error compares.
_MAX_KINDS = 8

_T = TypeVar("_T")
# Iterators made so far, by their processes.
_numbers: dict[tuple[int, ...], "itertools.count[int]"] = {}


def peers_of(sharding: placement.ShardingTree) -> "Peers | None":
  """Returns the processes of a sharding, or None where no other is concerned.

  Args:
    sharding: A `jax.sharding.Sharding`, or a mapping to some.
  """
  processes = placement.processes_of(sharding)
  if len(processes) < 2 or jax.process_index() not in processes:
    return None
  watch = watching.this_process()
  if watch is None:
    logging.warning(
      "processes are not compared or watched: JAX's coordination service is"
      " not there. Call jax.distributed.initialize() first."
    )
    return None
  return Peers(watch, processes)


def describe(sharding: Any) -> str:
  """Returns a sharding, or a mapping to some, as text that can be compared."""
  shardings = (
    sharding if isinstance(sharding, Mapping) else {"all fields": sharding}
  )
  named = sorted(shardings.items(), key=lambda item: str(item[0]))
  devices = [_device_ids(each) for _, each in named]
  digest = hashlib.sha256(repr(devices).encode()).hexdigest()[:8]
  shown = "; ".join(f"{name}: {each}" for name, each in named)
  return f"{shown}; devices {digest}"


def _device_ids(sharding: Any) -> list[int]:
  """Returns devices, of a mesh in its order."""
  if isinstance(sharding, jax.sharding.NamedSharding):
    mesh: Any = sharding.mesh
    return [device.id for device in mesh.devices.flat]
  return sorted(device.id for device in sharding.device_set)


class PeerInputError(reader.InputError):
  """Another process failed; this one has not."""


class Peers(watching.WatchedIterator):
  """The processes that one iterator shares batches with."""

  ends: bool
  grace_s: float
  cause: str | None

  def __init__(self, watch: watching.Watch, processes: Sequence[int]):
    """Takes the next number of these processes.

    Args:
      watch: Of this process.
      processes: Ascending, this one included.
    """
    super().__init__(processes)
    self._watch = watch
    self._client: Any = watching.client()
    key = tuple(processes)
    self._number = next(_numbers.setdefault(key, itertools.count()))
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    self._directory = f"{_DIRECTORY}/{name}"
    self._reported = False

  def start(
    self, make: Callable[[], _T], described: Callable[[_T], Mapping[str, Any]]
  ) -> _T:
    """Makes something that all processes must make alike.

    Args:
      make: Makes it.
      described: Returns what must be equal, as JSON values.

    Returns:
      What `make` returned.

    Raises:
      ConfigError: If processes differ; the error names every difference.
      InputError: If another process fails, or does not come.
    """
    # What all processes have left behind alike.
    self._watch.recover(late=True)
    self._tell({"state": "preparing"})
    try:
      value = make()
      record = described(value)
    except BaseException as error:
      self._tell({"state": "failed", "error": watching.format_error(error)})
      raise
    self._compare(record)
    return value

  def open(self, ends: bool, grace_s: float) -> None:
    """Watches the processes from now on.

    Args:
      ends: Whether this one ends when another fails; else `check` raises.
      grace_s: How long after it this process may not call `check` before it
        ends.
    """
    self.ends, self.grace_s = ends, grace_s
    self._watch.open(self)

  def close(self) -> None:
    """Watches them no more."""
    self._watch.close(self)

  def check(self) -> None:
    """Raises InputError if another process has failed."""
    if self.cause is not None:
      self._watch.met()
      raise PeerInputError(self.cause)

  def report(self, error: BaseException, step: int, late: bool = False) -> None:
    """Tells the others of an error; see `watching.Watch.report`."""
    self._reported = True
    self._watch.report(
      f"process {self._watch.process} failed at step {step}:"
      f" {watching.format_error(error)}.",
      late=late,
      ends=self.ends,
    )

  def recover(self) -> None:
    """Goes on after an error, here or elsewhere."""
    self._watch.met()
    self.cause = None
    if self._reported:
      self._reported = False
      self._watch.recover()

  def share(self, kind: str, number: int, record: Any) -> None:
    """Tells something that one of the processes, or all, may ask for.

    Args:
      kind: What it is.
      number: How often something of the kind was told before.
      record: JSON values.
    """
    key = self._shared_key(kind, self._watch.process, number)
    self._client.key_value_set(key, json.dumps(record), True)

  def shared(self, kind: str, number: int) -> dict[int, Any]:
    """Returns what processes have told so far; see `share`."""
    return watching.listing(self._client, self._shared_key(kind, "", number))

  def forget(self, kind: str, number: int) -> None:
    """Removes what all of them have told; see `share`."""
    self._client.key_value_delete(self._shared_key(kind, "", number))

  def all_shared(
    self, kind: str, number: int, wait_s: float = ARRIVE_S
  ) -> dict[int, Any]:
    """Returns what processes have told; see `share`.

    Of all, or of those that have in `wait_s`; sooner where the others have
    closed their iterators, so that they tell nothing more.

    Raises:
      InputError: If one fails or dies.
    """
    began, pause, logged = time.monotonic(), 0.002, False
    while True:
      waited = time.monotonic() - began
      # In this order: who has closed by now has told before.
      closed = {p for p in self.processes if self._watch.has_closed(p)}
      records = self.shared(kind, number)
      missing = [
        process for process in self.processes if process not in records
      ]
      if not missing or waited > wait_s:
        return records
      for process in missing:
        cause = self._watch.cause_of(process)
        if cause is not None:
          raise reader.InputError(cause)
      if waited > _KNOWN_BEATS * watching.BEAT_S:
        if closed.issuperset(missing):
          return records
        if not logged:
          logged = True
          logging.warning(
            "waiting up to %g s for processes (%s) that save no checkpoint"
            " where others do",
            wait_s,
            ", ".join(map(str, missing)),
          )
      time.sleep(pause)
      pause = min(2 * pause, 1.0)

  def _shared_key(self, kind: str, process: int | str, number: int) -> str:
    return self._key(f"{kind}-{number}", process, self._number)

  def _key(self, kind: str, process: int | str, number: int) -> str:
    return f"{self._directory}/{number}/{kind}/{process}"

  def _tell(self, entry: Mapping[str, Any]) -> None:
    key = self._key("entry", self._watch.process, self._number)
    self._client.key_value_set(key, json.dumps(entry), True)

  def _compare(self, record: Mapping[str, Any]) -> None:
    this, number = self._watch.process, self._number
    self._client.key_value_set(
      self._key("record", this, number), json.dumps(record)
    )
    self._tell(
      {
        "state": "ready",
        "digest": state.digest(record),
        "failures": self._watch.failures,
      }
    )
    kinds: dict[str, list[int]] = {}
    for process, entry in sorted(self._arrived().items()):
      kinds.setdefault(entry["digest"], []).append(process)
      self.known[process] = entry["failures"]
    # All have come here, so all have read what was told before.
    if number:
      for kind in ("entry", "record"):
        self._client.key_value_delete(self._key(kind, this, number - 1))
    if len(kinds) == 1:
      return
    # The records are large: one of each kind is read.
    kinds_read = [
      (processes, self._read(processes[0]))
      for processes in sorted(kinds.values())[:_MAX_KINDS]
    ]
    problems = disagreements(kinds_read)
    if problems:
      listed = errors.bullets(problems)
      raise schema.ConfigError(
        [
          "`config.data` must give every process the same input, got"
          f" {len(problems)} difference{'s' * (len(problems) > 1)}:{listed}\n"
          "Start all processes with one config, over the same stores."
        ]
      )

  def _read(self, process: int) -> Mapping[str, Any]:
    key = self._key("record", process, self._number)
    return json.loads(
      self._client.blocking_key_value_get(key, int(ARRIVE_S * 1_000))
    )

  def _arrived(self) -> dict[int, dict[str, Any]]:
    """Returns what all processes have told once all are ready.

    Raises:
      InputError: If one fails, dies or does not come.
    """
    began, pause = time.monotonic(), 0.02
    while True:
      entries = watching.listing(
        self._client, self._key("entry", "", self._number)
      )
      waited = time.monotonic() - began
      problems, ready, alone = [], True, False
      for process in self.processes:
        entry = entries.get(process, {"state": "absent"})
        if entry["state"] == "ready":
          continue
        ready = False
        problem = self._problem(process, entry, waited)
        if problem is not None:
          problems.append(problem)
          alone |= entry["state"] != "failed"
      if problems:
        text = f"the input cannot start: {' '.join(problems)}"
        if alone:
          # Who comes later must not wait for this one.
          self._watch.report(text)
        raise reader.InputError(text)
      if ready:
        return entries
      time.sleep(pause)
      pause = min(2 * pause, 1.0)

  def _problem(
    self, process: int, entry: Mapping[str, Any], waited: float
  ) -> str | None:
    """Returns why a process that is not ready is not waited for, or None."""
    if entry["state"] == "failed":
      return f"process {process} failed: {entry['error']}."
    cause = self._watch.cause_of(process)
    if cause is not None:
      return cause
    begun = entry["state"] == "preparing" or self._watch.is_starting(process)
    limit = PREPARE_S if begun else ARRIVE_S
    if waited < limit:
      return None
    return (
      f"process {process} has made no iterator for {limit:g} s. Let all"
      " processes of a sharding make the same iterators in the same order."
    )


def disagreements(
  records: Sequence[tuple[Sequence[int], Mapping[str, Any]]],
) -> list[str]:
  """Lists where processes differ.

      seed: process 2 has 4, processes 0, 1, 3 have 3

  Args:
    records: What each kind of processes reads, with their numbers. The kind
      of most processes, then the one of the first, is compared with others.

  Returns:
    One line a field and kind, by dotted path; empty where they agree.
  """
  most, usual = min(records, key=lambda kind: (-len(kind[0]), kind[0]))
  return [
    f"{path}: {_have(processes)} {now}, {_have(most)} {was}"
    for processes, record in records
    for path, was, now in state.changes(usual, record)
  ]


def _have(processes: Sequence[int]) -> str:
  if len(processes) == 1:
    return f"process {processes[0]} has"
  shown = errors.listed([*map(str, processes)], _MAX_KINDS)
  return f"processes {shown} have"
