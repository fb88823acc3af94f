# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Semaphores of a killed run are removed by the next one, and no others."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from chomp_data.testing import stores as testing_stores
from chomp_data.threads import semaphores

SHARED = pathlib.Path("/dev/shm")

pytestmark = pytest.mark.skipif(
  sys.platform != "linux", reason="semaphores are files on Linux only"
)

READS = """
  import sys, time
  from chomp_data import iterators
  from chomp_data import pipeline

  def main():
    iterator = iterators.make_iterator({
      "sources": {
        "a": {"store": sys.argv[1], "rows": {"kind": "sequential"}},
      },
      "seq_len": 8,
      "seed": 1,
      "global_batch_size": 2,
      "epochs": None,
      "worker_count": 2,
    })
    next(iterator)
    print("ready", flush=True)
    if sys.argv[2] == "stay":
      time.sleep(600)
    iterator.close()

  if __name__ == "__main__":
    main()
"""


@pytest.fixture
def start(tmp_path):
  """Starts a run with two workers, which has read a batch."""
  documents = [np.arange(4_000) % 250]
  # Of a store that is mapped as it is workers are no help.
  testing_stores.make_store(tmp_path / "store", documents, compression="zstd")
  script = tmp_path / "reads.py"
  script.write_text(textwrap.dedent(READS))
  started = []

  def begin(how):
    run = subprocess.Popen(
      [sys.executable, str(script), str(tmp_path / "store"), how],
      stdout=subprocess.PIPE,
      text=True,
      start_new_session=True,
    )
    started.append(run)
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    return run

  yield begin
  for run in started:
    if run.poll() is None:
      os.killpg(run.pid, signal.SIGKILL)
      run.wait()
    run.stdout.close()


def of(run):
  return sorted(
    name
    for name in os.listdir(SHARED)
    if name.startswith("sem.chomp-") and f"-{run.pid}-" in name
  )


@pytest.mark.slow
def test_the_next_run_removes_what_a_killed_group_left(start):
  alive, killed = start("stay"), start("stay")
  assert len(of(alive)) >= 2 * 20
  os.killpg(killed.pid, signal.SIGKILL)
  killed.wait()
  time.sleep(0.5)
  left = of(killed)
  assert len(left) >= 2 * 20
  before = of(alive)
  ended = start("end")
  assert of(killed) == []
  assert of(alive) == before
  assert ended.wait(60) == 0
  assert of(ended) == []


def test_only_semaphores_of_ended_processes_of_this_user_are_removed(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(semaphores, "DIRECTORY", tmp_path)
  space, own = semaphores.pid_namespace(), os.getpid()
  began = semaphores.start_time(own)
  dead = subprocess.Popen(["true"])
  dead.wait()
  kept = [
    f"sem.chomp-{space}-{own}-{began}-abc",
    # Of containers that share memory and not numbers of processes.
    f"sem.chomp-{space + 1}-{dead.pid}-1-abc",
    f"sem.mp-{dead.pid}",
    "sem.chomp-x-1-1-abc",
    "psm_01234567",
    f"chomp-{space}-{dead.pid}-1-abc",
  ]
  gone = [
    f"sem.chomp-{space}-{dead.pid}-1-abc",
    # Its number is a later process's.
    f"sem.chomp-{space}-{own}-{began - 1}-abc",
  ]
  of_another = f"sem.chomp-{space}-{dead.pid}-2-abc"
  for name in [*kept, *gone, of_another]:
    (tmp_path / name).write_bytes(b"")
  if os.geteuid() == 0:
    os.chown(tmp_path / of_another, 12_345, -1)
    kept.append(of_another)
  else:
    gone.append(of_another)
  assert semaphores.sweep() == len(gone)
  assert sorted(os.listdir(tmp_path)) == sorted(kept)


def test_a_process_that_has_not_been_waited_for_has_ended():
  child = subprocess.Popen(["true"])
  until = time.monotonic() + 20
  while semaphores.start_time(child.pid) is not None:
    assert time.monotonic() < until
  child.wait()


def test_prepare_with_processes_names_its_semaphores(tmp_path):
  program = """
    import multiprocessing
    from chomp_data.prepare import engines

    if __name__ == "__main__":
      pool = engines.Pool(2)
      list(pool.run(abs, [-1, -2, -3]))
      print(multiprocessing.get_context("spawn").Lock()._semlock.name)
      pool.close()
  """
  script = tmp_path / "run.py"
  script.write_text(textwrap.dedent(program))
  done = subprocess.run(
    [sys.executable, str(script)], capture_output=True, text=True, check=True
  )
  assert done.stdout.startswith(f"/chomp-{semaphores.pid_namespace()}-")
