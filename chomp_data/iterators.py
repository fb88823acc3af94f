# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The iterator that a training loop holds: sharded batches, read ahead.

    batches = make_iterator(config.data, sharding)

An `InputIterator` owns a `ProcessInput`: the pipeline, the placement of its
batches on devices, and the rows that this process reads. A thread reads and
places batches ahead; a state holds the step of the last batch that `next`
returned, never of one that was read ahead.
"""

import asyncio
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import os
import time
from typing import Any
from typing import Protocol
from typing import Self
import weakref

from absl import logging
import grain
import jax

from chomp_data import errors
from chomp_data import joining
from chomp_data import pipeline as pipeline_lib
from chomp_data import process_input
from chomp_data import schema
from chomp_data.config import options
from chomp_data.errors import InputError
from chomp_data.index import integers
from chomp_data.loading import agreement
from chomp_data.loading import certificate as certificate_lib
from chomp_data.loading import feed
from chomp_data.loading import placement
from chomp_data.loading import reader as reader_lib
from chomp_data.loading import reads as reads_lib
from chomp_data.loading import saved_states
from chomp_data.loading import state as state_lib
from chomp_data.loading import workers
from chomp_data.plans import background_counter
from chomp_data.plans import certifying
from chomp_data.transforms import applying

# What processes send each other while they run, and how many of these messages
# are stored for processes that are late.
_SAVED, _MOVED = "saved", "moved"
_STORED_MESSAGES = 8

# A batch that comes later than this was not ready: devices may have waited.
_STALL_S = 0.05


_checks_arguments = schema.arguments(
  sharding=schema.optional(process_input.SHARDING),
  operations=applying.TRANSFORMS,
  step=schema.WHOLE,
  allow_input_change=state_lib.CHANGES,
)


@_checks_arguments
def make_iterator(
  data: Any,
  sharding: placement.ShardingTree | None = None,
  *,
  operations: Sequence[grain.transforms.Map] = (),
  step: int = 0,
  allow_input_change: bool | Collection[str] = (),
) -> "InputIterator":
  """Returns an iterator of global batches as sharded `jax.Array`s.

  Args:
    data: `config.data`, or a `Pipeline`.
    sharding: Of a batch [global_batch_size, seq_len]; fields of lower rank
      take its first axes. Also a mapping by rank or by field name. None puts
      batches on the default device.
    operations: More transforms over process-local batches. A `RandomMap` is
      called for each row, [1, ...], with a generator of seed, step and row.
    step: The step of its first batch.
    allow_input_change: Fields of config.data, by dotted path, that may be
      others in a state that it is set to.

  Returns:
    The iterator, at that step. Where the sharding spans processes, all of
    them must make it, and one that fails later ends the others.

  Raises:
    ConfigError: If a field is wrong, the batch does not divide, or processes
      differ.
    IndexError: If the step is not of the run, nor its end.
    InputError: If it fails on another process.
  """
  return padded_iterator(
    data, sharding, operations, step, allow_input_change=allow_input_change
  )


@_checks_arguments
def padded_iterator(
  data: Any,
  sharding: placement.ShardingTree | None = None,
  operations: Sequence[grain.transforms.Map] = (),
  step: int = 0,
  device_rows: int | None = None,
  allow_input_change: bool | Collection[str] = (),
) -> "InputIterator":
  """Returns an iterator of batches that have more rows on devices.

  For formats in which a row of 0 is padding. Else it is `make_iterator`.

  Args:
    data: `config.data`, or a `Pipeline`.
    sharding: Of a batch [device_rows, seq_len].
    operations: More transforms over process-local batches.
    step: The step of its first batch.
    device_rows: Rows of a batch on devices, at least `global_batch_size`, which
      is the value of None; those beyond it are 0.
    allow_input_change: Fields of config.data that may differ in a state.
  """
  if sharding is None:
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  layout = process_input.DeviceLayout.of(sharding, device_rows)

  def make() -> "InputIterator":
    pipe = data
    if not isinstance(pipe, pipeline_lib.Pipeline):
      pipe = pipeline_lib.build(pipe)
    return InputIterator(
      process_input.of_pipeline(pipe, layout, operations),
      pipe.run_options.data,
      step=step,
      allow_input_change=allow_input_change,
    )

  peers = agreement.peers_of(sharding)
  if peers is None:
    return make()
  devices = agreement.describe(sharding)
  iterator = peers.start(
    make, lambda iterator: {**iterator._described(), "sharding": devices}
  )
  iterator._join(peers)
  return iterator


@dataclasses.dataclass(frozen=True)
class Waits:
  """How long an iterator's consumer has waited, since it was constructed.

  Attributes:
    batches: Batches that `next` returned.
    seconds: Time that `next` took for them, of wall.
    stalls: How often a batch took more than 50 ms; the first one after a start,
      a `seek` or a resume is none.
    failures: How often `next` failed: what could not be read, a worker or
      another process that ended.
  """

  batches: int = 0
  seconds: float = 0.0
  stalls: int = 0
  failures: int = 0


def _names(changes: bool | Collection[str]) -> list[str]:
  """Returns the fields that may differ, by name; none of a truth value."""
  if isinstance(changes, bool):
    return []
  return [changes] if isinstance(changes, str) else list(changes)


class AwaitedPath(Protocol):
  """A directory that Orbax is about to make."""

  async def await_creation(self) -> os.PathLike[str]:
    """Returns it once it is there."""
    ...


_AWAITED = schema.having(
  "a directory as Orbax's `v1` passes it", "await_creation"
)


class InputIterator(Iterator[dict[str, jax.Array]]):
  """Yields global batches as dictionaries of sharded `jax.Array`s.

  Use it as a context manager, or call `close`, to stop its thread and worker
  processes early. It is for one consumer thread.
  """

  @schema.arguments(
    process_input=schema.instance(
      "a `ProcessInput`, as `make_iterator` makes it",
      process_input.ProcessInput,
    ),
    run=schema.options_rule(options.RunFields),
    allow_input_change=state_lib.CHANGES,
  )
  def __init__(
    self,
    process_input: process_input.ProcessInput,
    run: options.RunFields,
    *,
    step: int = 0,
    allow_input_change: bool | Collection[str] = (),
  ):
    """Prepares to read; the first `next` or `start_prefetch` begins.

    Args:
      process_input: What this process reads.
      run: The options of the run.
      step: The step of the first batch.
      allow_input_change: What may differ in a state, in addition to the
        `allow_changes` of `set_state`.

    Raises:
      IndexError: If the step is not of the run, nor its end.
    """
    self._allowed = allow_input_change
    self._run = run
    self._peers: agreement.Peers | None = None
    self._input = process_input
    step = self._checked(step)
    self._fingerprint = state_lib.Fingerprint(process_input.fingerprint)
    self._step = step
    self._reader: reader_lib.Reader | None = None
    self._follower: background_counter.BackgroundCounter[Any] | None = None
    self._failure: BaseException | None = None
    self._closed = False
    self._waits = Waits()
    self._first = True
    self._certificate = certificate_lib.Certificate(
      step, process_input.part, run.certificate == certifying.TOKENS
    )
    # How many checkpoints were saved, and how often the step was set.
    self._saves = self._moves = 0
    # What workers have read that have ended; see `reads.counts`.
    self._ended_counts: list[int] = []

  @property
  def step(self) -> int:
    """The step of the next batch."""
    return self._step

  @property
  def pipeline(self) -> pipeline_lib.Pipeline:
    """The `Pipeline` that it reads.

    After `set_state` it may be another one: a state says when appended stores
    joined and how many rows steps had.
    """
    return self._input.pipeline

  @property
  def reads(self) -> dict[str, reads_lib.SourceReads]:
    """What this process and its workers have read so far, by source."""
    reads = self._input.source.reads.by_source()
    counts = [reads_lib.counts(reads), self._ended_counts]
    if self._reader is not None:
      counts.append(self._reader.worker_counts())
    return reads_lib.from_counts(reads, _summed(counts))

  @property
  def waits(self) -> Waits:
    """How often and how long `next` has waited for batches."""
    return self._waits

  @property
  def shards(self) -> Mapping[str, int] | None:
    """Over how many shards the rows of each bucket are balanced, or None."""
    return self._input.source.local.shards

  def __repr__(self) -> str:
    # A run without an end has more steps than can be counted.
    steps = len(self._input.source)
    of = f"of {steps}" if steps <= schema.MAX_COUNT else "of an endless run"
    return (
      f"InputIterator(step {self._step} {of}, {self._input.placement},"
      f" {self._run.worker_count} workers,"
      f" fingerprint {self._fingerprint.digest[:16]})"
    )

  def _described(self) -> dict[str, Any]:
    """Returns what must be equal on all processes, as JSON values."""
    return {
      **self._fingerprint.fields,
      "num_steps": len(self._input.source),
      "step": self._step,
      # No part of a state, but processes that differ would lose rows.
      "balance_shards": self.shards and dict(self.shards),
      "sequence_layout": repr(self.pipeline.layout),
    }

  def _join(self, peers: agreement.Peers) -> None:
    """Watches the processes that share its batches, as they do this one."""
    self._peers = peers
    run = self._run
    peers.open(run.on_peer_failure == "exit", run.peer_failure_grace_s)

  def __next__(self) -> dict[str, jax.Array]:
    if self._peers is not None:
      self._peers.check()
    if self._failure is not None:
      raise InputError(
        f"the input failed at step {self._step} and stays failed; restore"
        " from a checkpoint in a new process."
      ) from self._failure
    if self._reader is None:
      self._check_open()
    began = time.perf_counter()
    try:
      self._check_state()
      self.start_prefetch()
      assert self._reader is not None
      check = None if self._peers is None else self._peers.check
      batch, sums = self._reader.get(self._step, self._run.timeout_s, check)
    except StopIteration:
      self._waited(began)
      raise
    except agreement.PeerInputError:
      # The reader continues, for `reassign`.
      self._waited(began, failures=1)
      raise
    except BaseException as error:
      self._waited(began, failures=1)
      self._failure = error
      if self._peers is not None:
        self._peers.report(error, self._step)
      self._stop(at_once=True)
      raise
    self._waited(began, batches=1)
    self._certificate.add(sums)
    self._step += 1
    if self._follower is not None:
      self._follower.reached(self._step)
    return batch

  def _waited(self, began: float, batches: int = 0, failures: int = 0) -> None:
    seconds = time.perf_counter() - began
    before = self._waits
    # Replaced as a whole: another thread may look at it.
    self._waits = Waits(
      before.batches + batches,
      before.seconds + seconds,
      before.stalls + (seconds > _STALL_S and not self._first),
      before.failures + failures,
    )
    self._first = False

  def start_prefetch(self) -> None:
    """Begins to read ahead, if it has not begun.

    Raises:
      InputError: If the iterator is closed.
    """
    self._check_open()
    if self._reader is None and self._failure is None:
      self._first = True
      if self._peers is not None:
        self._join(self._peers)
      count = self._processes()
      loader = feed.data_loader(
        self._input.source,
        first_step=self._step,
        seed=self._run.seed,
        operations=self._input.transforms,
        worker_count=count,
      )
      # Processes of workers know nothing of this one's accounts.
      count_into = _counts_nothing if count else self._input.source.count_into
      self._follower = self.pipeline.accounts.follow(self._step, count_into)
      self._reader = reader_lib.Reader(
        loader,
        self._input.put,
        self._run.prefetch,
        sums=self._input.source.certificate_sums,
        first_step=self._step,
      )
      # An iterator that is dropped takes its threads and workers with it.
      self._dropped = weakref.finalize(
        self, _stop, self._reader, self._follower
      )
      self._dropped.atexit = False

  def _check_open(self) -> None:
    """Raises InputError if the iterator is closed."""
    if self._closed:
      raise InputError(
        f"the iterator must be open, got one that was closed at step"
        f" {self._step}. Make another with `make_iterator`; its `set_state`"
        " takes the state of this one."
      )

  def _processes(self) -> int:
    """Returns how many processes read beside this one."""
    count, more = self._run.worker_count, ""
    if not count:
      return 0
    if not self._input.workers_help:
      more = (
        "all stores are files that are mapped into memory, and handing a batch"
        " over costs more than reading it. Unset it."
      )
    elif not workers.have_room(count):
      more = f"{workers.SHARED} has no room for their locks. Enlarge it."
    if more:
      logging.log_first_n(
        logging.WARNING,
        "`config.data.worker_count` is %d, but this process reads: %s",
        1,
        count,
        more,
      )
      return 0
    return count

  def get_state(self) -> bytes:
    """Returns the state: the next step, and what it is a step of.

    Raises:
      StateError: If the state that it continues has other counts of what was
        consumed than the plan.
    """
    self._check_state()
    return self._state()()

  def _state(self) -> Callable[[], bytes]:
    """Returns a function that encodes the state of this step, in any thread."""
    # All of one step, although another thread may change it.
    step, certified = self._certificate.now(self._input_digest())
    fingerprint = self._fingerprint
    recorded = self.pipeline.accounts.recording(step)
    topology = {
      "process_count": jax.process_count(),
      "worker_count": self._run.worker_count,
    }
    return lambda: state_lib.encode(
      step,
      fingerprint,
      topology,
      {
        **recorded(),
        certificate_lib.FIELD: certificate_lib.records(certified),
      },
    )

  def begin_save(self) -> Callable[[], bytes]:
    """Tells the processes that share its batches of a checkpoint of now.

    All of them must save it. Nothing is waited for here.

    Returns:
      A function that encodes its state: on process 0 with the certificate of
      all processes, which are then compared.

    Raises:
      InputError: If one of them has failed.
    """
    if self._peers is not None:
      self._peers.check()
    self._check_state()
    step, state = self._step, self._state()
    segments = self._certificate.segments(self._input_digest())
    compared = None
    if self._follower is not None:
      # What it is asked for it does even where the iterator is closed.
      compared = self._follower.awaited()

    def checked() -> bytes:
      # After the state that it continues was compared.
      if compared is not None:
        futures.wait([compared])
      self._check_state()
      return state()

    if self._peers is None or self._input.part is None:
      certificate_lib.log(step, segments)
      return checked
    number, self._saves = self._saves, self._saves + 1
    entry = {"step": step, "segments": certificate_lib.records(segments)}
    self._peers.share(_SAVED, number, entry)
    if jax.process_index() != 0:
      return checked
    rows = {
      (part.first, part.last): self._rows_held(part.first, part.last)
      for part in segments
      if part.part is not None
    }
    return lambda: self._joined(checked(), step, number, rows)

  def _check_state(self) -> None:
    """Raises StateError if a state has other counts than the plan."""
    _refuse(self.pipeline.accounts.problems())

  def _rows_held(self, first: int, last: int) -> int:
    """Returns the rows of some steps over all processes, padding included."""
    questions = self.pipeline.accounts.questions
    before, after = (questions.rows_held(at) for at in (first, last))
    return sum(after.values()) - sum(before.values())

  def _joined(
    self,
    state: bytes,
    step: int,
    number: int,
    rows: Mapping[tuple[int, int], int],
  ) -> bytes:
    """Returns a state with the certificate of all processes.

    Raises:
      InputError: If they have not returned the same steps of the same run,
        each row once.
    """
    peers = self._peers
    assert peers is not None
    entries = peers.all_shared(_SAVED, number)
    for old in range(max(0, number - _STORED_MESSAGES), number + 1):
      peers.forget(_SAVED, old)
    missing = sorted(set(peers.processes) - set(entries))
    if missing:
      logging.warning(
        "the certificate of step %d is not that of all processes: %s saved no"
        " checkpoint",
        step,
        ", ".join(map(str, missing)),
      )
      return state
    joined, problems = certificate_lib.joined(
      {
        process: [certificate_lib.Segment.of(one) for one in entry["segments"]]
        for process, entry in entries.items()
      },
      rows,
    )
    problems = [
      f"process {process} is at step {entry['step']}, process 0 at step {step}"
      for process, entry in sorted(entries.items())
      if entry["step"] != step
    ] + problems
    if problems:
      listed = errors.bullets(problems)
      error = InputError(
        "processes must have returned the same steps where they save a"
        f" checkpoint, got:{listed}\nResume from an earlier checkpoint."
      )
      peers.report(error, step)
      raise error
    certificate_lib.log(step, joined)
    return state_lib.with_fields(
      state, {certificate_lib.FIELD: certificate_lib.records(joined)}
    )

  def _agree(self) -> None:
    """Sends the other processes the step that was set; waits for none.

    Raises:
      InputError: If one of them is at another step, or of another run.
    """
    peers = self._peers
    if peers is None or self._input.part is None:
      return
    number, self._moves = self._moves, self._moves + 1
    entry = {"step": self._step, "input": self._input_digest()}
    peers.share(_MOVED, number, entry)
    if number >= _STORED_MESSAGES and self._input.part[0] == 0:
      peers.forget(_MOVED, number - _STORED_MESSAGES)
    differ = {
      process: other
      for process, other in peers.shared(_MOVED, number).items()
      if other != entry
    }
    if differ:
      process, other = min(differ.items())
      self._failure = InputError(
        "processes must go to the same step of the same run, got step"
        f" {entry['step']} of {entry['input']} here and step {other['step']} of"
        f" {other['input']} on process {process}. Restore one checkpoint on all"
        " of them."
      )
      peers.report(self._failure, self._step)
      raise self._failure

  def _input_digest(self) -> str:
    """Returns the digest of what decides the run's rows."""
    return self._fingerprint.digest[: certificate_lib.DIGITS]

  @schema.arguments(state=state_lib.STATE, allow_changes=state_lib.CHANGES)
  def set_state(
    self, state: bytes, allow_changes: bool | Collection[str] = False
  ) -> None:
    """Goes to the step of a state.

    Args:
      state: From `get_state`, of any number of processes and workers.
      allow_changes: Accept the state of a run that differs, in any field or in
        those of these dotted paths, in addition to the
        `allow_input_change` of `make_iterator`. Every difference is logged with
        its consequence. With another `global_batch_size` a run of rows
        continues at the same row.

    Raises:
      TypeError: If it is not bytes.
      StateError: If the state is damaged, or of another run: then every
        difference is named, with both values. Where it counts other tokens
        than the plan, the `next` after the first batch may be what raises it.
      InputError: If the iterator is closed.
    """
    self._check_open()
    record = state_lib.decode(state)
    step, saved = record["step"], record["fingerprint"]
    segments = certificate_lib.of_state(record)
    allowed = self._allowed, allow_changes
    names = [name for changes in allowed for name in _names(changes)]

    def allows(path: str) -> bool:
      return True in allowed or any(
        path == name or path.startswith(f"{name}.") for name in names
      )

    resize = allows("global_batch_size")
    again = self._input.continued(saved, step, resize)
    plan = again.pipeline.run_plan
    old, new = (
      joining.until(plan, fingerprint, step)
      for fingerprint in (saved, again.fingerprint)
    )
    differences = state_lib.located(old, new, step)
    refused = [(path, line) for path, line in differences if not allows(path)]
    if refused:
      raise state_lib.refusal(refused, names, old, step)
    if differences:
      listed = errors.bullets(line for _, line in differences)
      logging.warning(
        "input state of another run accepted at step %d:%s\n%s",
        step,
        listed,
        state_lib.consequence([path for path, _ in differences], step),
      )
    if step > len(again.source):
      raise state_lib.StateError(
        f"input state's step must be at most {len(again.source)}, the run's"
        f" steps, got {step}. Use the config it was saved with."
      )
    accounts = again.pipeline.accounts
    if state_lib.of_rows(path for path, _ in differences):
      accounts.forget()
    else:
      positions = again.source.positions(step)
      _refuse(accounts.restore(record, step, positions))
    self._input = again
    if again.fingerprint != self._fingerprint.fields:
      self._fingerprint = state_lib.Fingerprint(again.fingerprint)
    self._go_to(step)
    self._certificate.resume(segments, step)
    self._agree()

  def seek(self, step: int) -> None:
    """Goes to a step.

    Where processes share batches, all of them must. The certificate begins
    from there, unless it is at that step.

    Args:
      step: The step of the next batch.

    Raises:
      IndexError: If it is not of the run, nor its end.
      InputError: If the iterator is closed.
    """
    self._check_open()
    step = self._checked(step)
    if step != self._step:
      self._certificate.begin(step)
    self._go_to(step)
    self.pipeline.accounts.forget()
    self._agree()

  def reassign(self, alive: Any) -> None:
    """Shares batches with other devices from the next step on.

    After a part of the mesh died, or came back: those that live read the same
    global batches between them. All of them must call it, before the same
    step; none waits for another. The plan and open stores are kept, batches
    that were read ahead are dropped, and workers are restarted.

    If rows do not divide over the new sharding, batches have rows of padding
    at their end on devices.

    Args:
      alive: The sharding of batches from now on, as `make_iterator` takes it;
        or which indices are alive of the mesh axis that cuts rows first, of the
        sharding that the iterator was made with. All of them brings it back.

    Raises:
      ConfigError: If this process has no device there, or fields do not
        divide; nothing has changed then.
    """
    self._check_open()
    again, peers = self._input.reassigned(alive)
    before, self._peers = self._peers, peers
    self._stop()
    self._failure = None
    self._certificate.regroup(self._step, again.part, self._input_digest())
    self._saves = self._moves = 0
    self._input = again
    if peers is not None:
      self._join(peers)
    if before is not None:
      before.recover()
      before.close()

  @schema.arguments(directory=_AWAITED)
  async def save(self, directory: AwaitedPath) -> Awaitable[None]:
    """Saves its state as it is now: a checkpointable of Orbax's `v1`.

    Args:
      directory: Of the checkpoint's item; made by Orbax.

    Returns:
      What writes the file, in the background.
    """
    state = self.begin_save()

    async def write() -> None:
      path = await directory.await_creation()
      await asyncio.to_thread(lambda: saved_states.write(path, state()))

    return write()

  @schema.arguments(directory=schema.path())
  async def load(self, directory: os.PathLike[str]) -> Awaitable[None]:
    """Restores a state that `save` wrote, and begins to read ahead.

    Args:
      directory: Of the checkpoint's item.

    Returns:
      What has nothing left to do: the file is small, and of an error in the
      background Orbax says that the item is of another kind.

    Raises:
      StateError: As `set_state` raises it, and where the state was saved in
        another checkpoint.
    """
    self.set_state(saved_states.read(directory))
    self.start_prefetch()

    async def done() -> None:
      pass

    return done()

  def _checked(self, step: int) -> int:
    # One of NumPy could not be saved.
    step = integers.whole("step", step)
    steps = len(self._input.source)
    if not 0 <= step <= steps:
      # A run without an end has more steps than can be counted.
      bound = "at least 0" if steps > schema.MAX_COUNT else f"in 0 .. {steps}"
      raise IndexError(
        f"`step` must be {bound}, a step of the run, got {step}. Go to one of"
        " its steps."
      )
    return step

  def _go_to(self, step: int) -> None:
    self._stop()
    self._failure = None
    if self._peers is not None:
      self._peers.recover()
    self._step = step

  def close(self) -> None:
    """Stops its threads and workers, and waits for them.

    The step stays as it is, and `get_state` returns it; what would read raises
    `InputError`. What has not ended after 5 s, since a file system or a
    device does not answer, is waited for at the process's end.
    """
    self._closed = True
    if self._peers is not None:
      self._peers.close()
    self._stop()

  def __enter__(self) -> Self:
    return self

  def __exit__(
    self, kind: object, error: BaseException | None, trace: object
  ) -> None:
    del kind, trace
    if self._peers is not None and isinstance(error, Exception):
      # All processes may be leaving alike, to handle it further up.
      self._peers.report(error, self._step, late=True)
    self.close()

  def _stop(self, at_once: bool = False) -> None:
    if self._reader is not None:
      self._dropped.detach()
      _stop(self._reader, self._follower, at_once)
      counts = [self._ended_counts, self._reader.worker_counts()]
      self._ended_counts = _summed(counts)
      self._reader = self._follower = None


def _refuse(wrong: Sequence[str]) -> None:
  """Raises StateError if a state has other counts than the plan."""
  if not wrong:
    return
  listed = errors.bullets(wrong)
  raise state_lib.StateError(
    "input state must have consumed before its step what the plan says, got"
    f" another count:{listed}\nUse the version of chomp_data and the store that"
    " it was saved with."
  )


def _summed(counts: Iterable[Sequence[int]]) -> list[int]:
  """Returns sums of counts; an empty list counts nothing."""
  return [sum(each) for each in zip(*filter(None, counts), strict=True)]


def _counts_nothing(ledger: Any) -> bool:
  del ledger
  return False


def _stop(
  reader: reader_lib.Reader,
  follower: background_counter.BackgroundCounter[Any] | None,
  at_once: bool = False,
) -> None:
  reader.stop(at_once)
  if follower is not None:
    follower.close(wait=not at_once)
