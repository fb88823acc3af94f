# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What stock Grain 0.2.18 loses where a worker fails: why we have parts for it.

Each test is of `grain.DataLoader` alone and shows a hang, an orphan or a batch
that is missing. One that fails after an upgrade of Grain names the part of ours
that may go. That ours loses nothing in these cases, `feed_test` and
`worker_faults_test` show.
"""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

pytestmark = pytest.mark.slow

# A worker that works needs about two seconds to answer; ours reports each of
# these faults within 10.
HANG_S = 20

PROGRAM = textwrap.dedent("""
  import multiprocessing, os, signal, sys, threading, time
  from multiprocessing import synchronize
  from absl import flags
  import grain

  flags.FLAGS.mark_as_parsed()
  case = sys.argv[1]


  class HoldsALockError(Exception):
    def __init__(self):
      self.lock = threading.Lock()


  class Faulty(grain.transforms.Map):
    def map(self, element):
      if element == 3 and case == "exits":
        os._exit(0)
      if element == 3 and case == "raises":
        raise HoldsALockError
      if element == 3 and case == "returns":
        return threading.Lock()
      return int(element)


  if __name__ == "__main__":
    records = 100_000
    iterator = iter(
      grain.DataLoader(
        data_source=grain.MapDataset.range(records),
        sampler=grain.samplers.SequentialSampler(
          records, grain.sharding.NoSharding(), seed=0
        ),
        operations=[Faulty()],
        worker_count=1,
        shard_options=grain.sharding.NoSharding(),
      )
    )
    print(next(iterator), flush=True)
    (worker,) = multiprocessing.active_children()
    print(worker.pid, flush=True)
    if case == "killed parent":
      os.kill(os.getpid(), signal.SIGKILL)
    if case == "stopped":
      os.kill(worker.pid, signal.SIGSTOP)
    if case == "killed with a lock":
      # Grain sets an event, under its lock, where it stops a worker.
      synchronize.Event.set = lambda event: threading.Event().wait()
      os.kill(worker.pid, signal.SIGKILL)
    try:
      for element in iterator:
        if element < 8 or case not in ("returns", "stopped"):
          print(element, flush=True)
        if element == 8 and case == "returns":
          os._exit(0)
    except BaseException as error:
      print(type(error).__name__, flush=True)
""")


def run(case, directory):
  """Runs the program; returns its lines, and whether it hangs."""
  path = directory / "main.py"
  path.write_text(PROGRAM)
  # A file: workers that are left would keep a pipe open.
  with (directory / "out").open("w") as out:
    main = subprocess.Popen(
      [sys.executable, str(path), case], stdout=out, stderr=subprocess.DEVNULL
    )
    try:
      main.wait(timeout=HANG_S)
      hangs = False
    except subprocess.TimeoutExpired:
      hangs = True
    finally:
      main.kill()
      main.wait()
  lines = (directory / "out").read_text().split("\n")[:-1]
  assert lines[0] == "0"
  return lines[0:1] + lines[2:], int(lines[1]), hangs


def end(worker):
  """Ends a worker that its parent has left behind, if it is there."""
  try:
    os.kill(worker, signal.SIGKILL)
  except ProcessLookupError:
    return


def test_a_worker_that_exits_0_hangs(tmp_path):
  """Ours: the watch of workers in `reader`."""
  lines, worker, hangs = run("exits", tmp_path)
  end(worker)
  assert hangs
  # What was on its way is lost, too.
  assert lines == ["0", "1", "2"][: len(lines)]


def test_a_stopped_worker_hangs(tmp_path):
  """Ours: `timeout_s` in `reader`, and beats in `handover`."""
  lines, worker, hangs = run("stopped", tmp_path)
  end(worker)
  assert hangs
  assert "RuntimeError" not in lines


def test_workers_outlive_a_parent_that_is_killed(tmp_path):
  """Ours: `workers.end_with_parent`."""
  _, worker, hangs = run("killed parent", tmp_path)
  time.sleep(5)
  stat = pathlib.Path(f"/proc/{worker}/stat").read_text()
  end(worker)
  assert not hangs
  assert stat.split()[2] != "Z"


def test_an_exception_that_does_not_pickle_never_arrives(tmp_path):
  """Ours: `workers.errors_arrive`."""
  lines, worker, hangs = run("raises", tmp_path)
  end(worker)
  assert hangs
  assert lines == ["0", "1", "2"]


def test_a_batch_that_does_not_pickle_is_left_out(tmp_path):
  """Ours: `workers._LastOperation` pickles it where an error is one."""
  lines, worker, hangs = run("returns", tmp_path)
  end(worker)
  assert not hangs
  assert lines == ["0", "1", "2", "4", "5", "6", "7"]


def test_who_stops_a_worker_that_was_killed_with_a_lock_hangs(tmp_path):
  """Ours: `reader` leaves that thread behind, and `workers.leave_at_exit`."""
  _, worker, hangs = run("killed with a lock", tmp_path)
  assert hangs
  with pytest.raises(ProcessLookupError):
    os.kill(worker, 0)
