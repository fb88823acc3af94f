# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Processes that differ do not start; one that fails ends the others."""

import hashlib
import inspect
import json
import os
import pathlib
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from absl import logging
import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.config import options
from chomp_data.loading import agreement
from chomp_data.loading import reader
from chomp_data.loading import watching
from chomp_data.testing import stores as testing_stores

WORKER = pathlib.Path(__file__).with_name("agreement_worker.py")


BEAT_S = 0.5
EXIT = {"on_peer_failure": "exit"}


@pytest.fixture
def data(data):
  """Batches that divide over two, three and four processes."""
  return {**data, "global_batch_size": 12}


def run(args):
  """Runs processes to their ends; returns exit codes and logs."""
  with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
  shared = {"num_processes": len(args), "port": port, "beat_s": BEAT_S}
  processes = [
    subprocess.Popen(
      [
        sys.executable,
        str(WORKER),
        json.dumps({**shared, "process_id": i, **own}),
      ],
      env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
    for i, own in enumerate(args)
  ]
  try:
    # Nothing here waits for what JAX or a user would wait for: 100 s or more.
    stopped = [own.get("then") == "stop" for own in args]
    order = sorted(range(len(args)), key=stopped.__getitem__)
    found = {}
    for i in order:
      if stopped[i]:
        # Others have ended without it; it does once it can.
        processes[i].send_signal(signal.SIGCONT)
      found[i] = processes[i].communicate(timeout=80)[0]
    logs = [found[i] for i in range(len(args))]
  finally:
    for process in processes:
      process.kill()
  return [p.returncode for p in processes], logs


def with_store(data, path, **more):
  source = {**data["sources"]["text"], "store": str(path)}
  return {**data, "sources": {"text": source}, **more}


def test_processes_start_with_the_same_input_and_end_with_the_same_error(
  data, store_path, tmp_path
):
  rng = np.random.default_rng(1)
  for name, count in (("other", 12), ("short", 6)):
    documents = [rng.integers(3, 250, size=200) for _ in range(count)]
    testing_stores.make_store(
      tmp_path / name, documents, vocab_size=256, pad_id=0
    )
  damaged = tmp_path / "damaged"
  shutil.copytree(store_path, damaged)
  for path in damaged.glob("tokens/**/*"):
    if path.is_file() and path.name != "zarr.json":
      content = bytearray(path.read_bytes())
      content[len(content) // 2] ^= 1
      path.write_bytes(content)
  tries = [
    [data, {**data, "seed": 4}, data, data],
    [
      data,
      data,
      with_store(data, tmp_path / "other"),
      with_store(data, tmp_path / "short", epochs=1),
    ],
    [data, data, with_store(data, tmp_path / "missing"), data],
    [{**data, "by": 1 + (i == 2)} for i in range(4)],
    [{**data, "spec": ["data"] * (i != 3)} for i in range(4)],
  ]
  codes, logs = run(
    [
      {
        "tries": [own[i] for own in tries],
        "data": {**(with_store(data, damaged) if i == 1 else data), **EXIT},
        "then": "read" if i == 1 else "block",
      }
      for i in range(4)
    ]
  )
  assert all(codes), logs
  for i, log in enumerate(logs):
    assert "`config.data` must give every process the same input" in log
    assert "- seed: process 1 has 4, processes 0, 2, 3 have 3\n" in log
    for process in (2, 3):
      assert f"- sources.text.store: process {process} has '" in log
    assert "- num_steps: process 3 has 5, processes 0, 1 have 17\n" in log
    assert "config.data.sources.text.store: " in log
    assert "/missing must be a directory" in log
    if i != 2:
      assert "cannot start: process 2 failed: StoreError: config.data" in log
    assert "- operations: process 2 has ['Scale(by=2)'], processes 0" in log
    assert 'sharding: process 3 has "all fields: NamedSharding(' in log
    assert "must have crc32c" in log
    if i != 1:
      assert f"ending process {i}: process 1 failed at step " in log


@pytest.mark.slow
def test_a_killed_process_ends_the_others(data):
  data = {**data, "epochs": None}
  ends = {**data, **EXIT}
  codes, logs = run(
    [
      {"data": ends},
      {"data": data, "then": "read"},
      {"data": ends, "then": "kill"},
      # Its error comes first, of a collective, and says less.
      {"data": ends, "then": "raise"},
    ]
  )
  assert all(codes), logs
  assert "ending process 0: process 2 died, or lost its network" in logs[0]
  assert "ValueError: as of a collective" in logs[3]
  assert "ending process 3: process 2 died, or lost its network" in logs[3]
  error = "InputError: process 2 died, or lost its network"
  assert error in logs[1].partition("ending process")[0]


@pytest.mark.slow
@pytest.mark.parametrize(
  ("thens", "causes"),
  [
    (
      ("read", "stop"),
      ("process 1 died, or lost its network", ""),
    ),
    (
      ("stop", "block"),
      ("", "process 0, which keeps JAX's coordination service, has not"),
    ),
    (
      ("block", "kill"),
      ("ending process 0: process 1 died, or lost its network", ""),
    ),
    (
      ("wait", "kill"),
      ("ending process 0: process 1 died, or lost its network", ""),
    ),
    (
      ("seek", "seek"),
      ("processes must go to the same step of the same run, got step",) * 2,
    ),
    (
      ("saves", "save"),
      ("- process 1 is at step 3, process 0 at step 2",) * 2,
    ),
  ],
  ids=["stopped", "first", "killed", "in a save", "other steps", "one more"],
)
def test_of_two_processes_none_hangs_and_all_tell_the_cause(
  data, thens, causes
):
  data = {**data, **EXIT, "epochs": None}
  codes, logs = run([{"data": data, "then": then} for then in thens])
  assert all(codes), logs
  for cause, log in zip(causes, logs, strict=True):
    assert cause in log


@pytest.mark.slow
def test_the_first_process_ends_the_others_too_but_one_may_end_before(data):
  """JAX aborts the others of the process that keeps its service."""
  codes, logs = run(
    [{"data": data, "then": then} for then in ("linger", "block", "end")]
  )
  assert all(codes), logs
  assert "lingered" in logs[0]
  assert "ending process" not in "".join(logs)
  assert "leader task was preempted/died" in logs[1]


@pytest.mark.slow
def test_a_pipeline_that_cannot_be_built_ends_the_others(data, tmp_path):
  missing = with_store(data, tmp_path / "missing")
  codes, logs = run(
    [{"data": data, "built": True}, {"data": missing, "built": True}]
  )
  assert all(codes), logs
  for log in logs:
    assert "/missing must be a directory" in log
  assert "ending process 0: process 1 ended: StoreError: config.data" in logs[0]


# With the default, 'raise'.
RAISE = {"epochs": None, "peer_failure_grace_s": 2.0}


def test_another_processs_failure_is_raised_by_default(data):
  assert options.read(data).data.on_peer_failure == "raise"
  (named,) = {
    inspect.signature(cls).parameters["on_peer_failure"].default
    for cls in (options.RunFields, options.RowFields)
  }
  assert named == "raise"


@pytest.mark.slow
@pytest.mark.parametrize(
  ("blocks", "fails"),
  [("barrier", "kill"), ("reduce", "stop"), ("reduce", "kill")],
)
def test_a_process_that_would_raise_ends_in_a_collective(data, blocks, fails):
  """Where another one is killed or stopped, and nothing ever returns.

  A library tells of the connection to a killed process, and its error comes
  first; JAX would wait for the other at exit.
  """
  data = {**data, **RAISE}
  codes, logs = run(
    [
      {"data": data, "reduces": True, "then": blocks},
      {"data": data, "reduces": True, "then": fails},
    ]
  )
  assert codes[0] == 1, logs
  cause = "process 1 died, or lost its network"
  assert f"ending process 0: {cause}" in logs[0]
  if (blocks, fails) == ("reduce", "kill"):
    return
  cause += ": nothing was heard of it for 5 s"
  # At once, and where the time is over.
  known = f"{cause}. It is raised where process 0 next calls its iterator"
  ended = f"ending process 0: {cause}"
  assert -1 < logs[0].find(known) < logs[0].find(ended), logs


@pytest.mark.slow
def test_a_process_that_has_met_the_error_lives_on(data):
  data = {**data, **RAISE}
  codes, logs = run(
    [{"data": data, "then": "catch"}, {"data": data, "then": "kill"}]
  )
  assert codes[0] == 0, logs
  assert "InputError: process 1 died, or lost its network" in logs[0]
  assert "went on" in logs[0]
  assert "ending process" not in logs[0]


@pytest.mark.parametrize(
  ("records", "wanted"),
  [
    ([([0, 1, 2], {"seed": 3})], []),
    (
      [([0], {"seed": 3}), ([1], {"seed": 4})],
      ["seed: process 1 has 4, process 0 has 3"],
    ),
    (
      # The kind of most processes is what the others are held against.
      [([0], {"a": {"b": 1}}), ([1, 2, 3], {"a": {"b": 2}, "c": 0})],
      [
        "a.b: process 0 has 1, processes 1, 2, 3 have 2",
        "c: process 0 has '(absent)', processes 1, 2, 3 have 0",
      ],
    ),
    (
      [([0], {"n": 1}), ([1], {"n": 2}), (list(range(2, 12)), {"n": 3})],
      [
        f"n: process {i} has {i + 1}, processes 2, 3, 4, 5, 6, 7, 8, 9 and 2"
        " more have 3"
        for i in (0, 1)
      ],
    ),
  ],
)
def test_differences_name_processes_field_and_values(records, wanted):
  assert agreement.disagreements(records) == wanted


class Service:
  """What processes tell, without JAX."""

  def __init__(self):
    self.told = {}
    self.answers = True

  def key_value_set(self, key, value, allow_overwrite=False):
    assert allow_overwrite or key not in self.told
    self.told[key] = value

  def key_value_dir_get(self, directory):
    found = list(self.told.items())
    return [(key, told) for key, told in found if key.startswith(directory)]

  def blocking_key_value_get(self, key, timeout_ms):
    if not self.answers:
      raise TimeoutError(key)
    return self.told[key]

  def key_value_delete(self, key):
    for own in [own for own in self.told if own.startswith(key)]:
      del self.told[own]


@pytest.fixture
def service(monkeypatch):
  found = Service()
  monkeypatch.setattr(watching, "client", lambda: found)
  monkeypatch.setattr(watching, "BEAT_S", 0.05)
  monkeypatch.setattr(watching.atexit, "register", lambda _: None)
  yield found
  # A watch ends when it finds another.
  monkeypatch.setattr(watching, "client", lambda: None)
  for thread in threading.enumerate():
    if thread.name == "chomp_data-watch":
      thread.join(20)


def test_who_closed_its_iterators_is_not_waited_for(
  service, caplog, monkeypatch
):
  monkeypatch.setattr(watching, "DEAD_BEATS", 1_000)
  watch = watching.Watch(service, 0)
  peers = agreement.Peers(watch, [0, 1, 2])
  beats = iter(range(10**9))

  def tells(state):
    record = {"state": state, "beat": next(beats)}
    service.key_value_set("chomp_data/alive/1", json.dumps(record), True)

  peers.share("saved", 0, {"step": 3})
  (key,) = [key for key in service.told if "saved" in key]
  service.key_value_set(f"{key.removesuffix('0')}2", "{}")
  tells("running")
  began = time.monotonic()
  assert set(peers.all_shared("saved", 0, wait_s=0.4)) == {0, 2}
  assert time.monotonic() - began > 0.4
  assert "processes (1) that save no checkpoint" in caplog.text
  tells("closed")
  began = time.monotonic()
  assert set(peers.all_shared("saved", 0)) == {0, 2}
  assert time.monotonic() - began < 10


def test_a_service_that_does_not_answer_is_told_of_process_0(service):
  watch = watching.Watch(service, 1)
  # Its beats go on for the watch's own thread.
  beats = iter(range(10**9))

  def tells():
    record = {"state": "running", "beat": next(beats)}
    service.key_value_set("chomp_data/alive/0", json.dumps(record), True)

  tells()

  def cause(known):
    until = time.monotonic() + 20
    while (watch.cause_of(0) is not None) != known:
      assert time.monotonic() < until
      tells()
      time.sleep(0.01)
    return watch.cause_of(0)

  service.answers = False
  assert "has not answered" in cause(known=True)
  service.answers = True
  assert cause(known=False) is None


@pytest.mark.parametrize(
  "calls",
  [
    "check",
    pytest.param("recover", marks=pytest.mark.slow),
    pytest.param("close", marks=pytest.mark.slow),
    None,
  ],
)
def test_who_calls_within_the_grace_period_is_not_ended(
  service, monkeypatch, calls, caplog
):
  ends = queue.SimpleQueue()
  monkeypatch.setattr("os._exit", lambda _: ends.put(time.monotonic()))
  watch = watching.Watch(service, 0)
  peers = agreement.Peers(watch, [0, 1])
  # One that nobody calls, as of an evaluation, does not matter beside it.
  idle = agreement.Peers(watch, [0, 1])
  idle.open(ends=False, grace_s=0.6)
  peers.open(ends=False, grace_s=0.6)
  service.key_value_set("chomp_data/alive/1", json.dumps({"state": "running"}))
  until = time.monotonic() + 20
  while "It is raised where process 0" not in caplog.text:
    assert time.monotonic() < until
    time.sleep(0.01)
  began = time.monotonic()
  if calls is None:
    assert ends.get(timeout=20) - began > 0.4
    assert "process 1 died, or lost its network" in caplog.text
  else:
    if calls == "check":
      with pytest.raises(reader.InputError, match="process 1 died"):
        peers.check()
    else:
      getattr(peers, calls)()
    with pytest.raises(queue.Empty):
      ends.get(timeout=1.5)
  assert "It is raised where process 0 next calls its iterator" in caplog.text


def test_who_closes_while_the_failure_is_logged_is_not_ended(
  service, monkeypatch
):
  ends, logged = queue.SimpleQueue(), threading.Event()
  monkeypatch.setattr("os._exit", lambda _: ends.put(time.monotonic()))
  watch = watching.Watch(service, 0)
  open_iterators = [agreement.Peers(watch, [0, 1]) for _ in range(2)]
  for peers in open_iterators:
    peers.open(ends=False, grace_s=0.2)

  def close_one(*_):
    if not logged.is_set():
      open_iterators[0].close()
      logged.set()

  monkeypatch.setattr(logging, "error", close_one)
  service.key_value_set("chomp_data/alive/1", json.dumps({"state": "running"}))
  assert logged.wait(20)
  with pytest.raises(queue.Empty):
    ends.get(timeout=0.8)


def test_one_process_has_no_watch(data):
  it = iterators.make_iterator(data)
  next(it)
  assert watching.this_process() is None
  assert "chomp_data-watch" not in [t.name for t in threading.enumerate()]


@pytest.mark.slow
def test_processes_read_on_without_one_that_was_killed(data):
  data = {**data, "epochs": None}
  others = {"data": data, "then": "survive"}
  codes, logs = run([others, others, {"data": data, "then": "kill"}])
  assert codes[:2] == [0, 0], logs
  pipe, held = pipeline.build(data), {1_000: [], 1_001: []}
  for log in logs[:2]:
    assert "InputError: process 2 died, or lost its network" in log
    (line,) = [own for own in log.splitlines() if own.startswith("survived ")]
    for step, (low, high), digest in json.loads(line.split(" ", 1)[1]):
      tokens = pipe.batch(step)["tokens"][low:high]
      assert hashlib.sha256(tokens.tobytes()).hexdigest() == digest
      held[step] += range(low, high)
  assert all(sorted(rows) == list(range(12)) for rows in held.values())
