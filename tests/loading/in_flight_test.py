"""A shared memory that is too small is an error before the first batch."""

import os
import re
import shlex
import subprocess
import sys
import textwrap
import types

from absl import logging
import numpy as np
import pytest

from chomp_data.loading import feed
from chomp_data.loading import in_flight
from chomp_data.testing import stores as testing_stores

MIB = 2**20


def test_each_field_has_pages_of_its_own():
  example = {
    "tokens": np.zeros((1, 2_048), np.int32),
    "source_id": np.zeros(1, np.int32),
  }
  assert in_flight.batch_bytes(example, 8) == 8 * 2_048 * 4 + 4_096
  example = {"loss_mask": np.zeros((1, 2_048), np.bool_)}
  assert in_flight.batch_bytes(example, 3) == 8_192
  # What is no array, or does not lie in one piece, is pickled.
  example = {"name": "a", "cut": np.zeros((1, 4_096))[:, 1:]}
  assert in_flight.batch_bytes(example, 3) == 0


def test_what_is_known_to_crash_is_below_what_a_pause_fills():
  assert [in_flight.least_batches(count) for count in (1, 2, 4)] == [4, 7, 13]
  # Measured: 8 and 12 batches, with two kept ready and one with the consumer.
  assert [in_flight.most_batches(count, 3) for count in (1, 2)] == [8, 12]


@pytest.mark.parametrize(
  ("free", "found"),
  [(7 * MIB - 4_096, "error"), (7 * MIB, "warning"), (12 * MIB, "nothing")],
)
def test_too_little_is_an_error_and_a_tight_one_a_warning(
  monkeypatch, free, found
):
  told = []
  monkeypatch.setattr(
    os,
    "statvfs",
    lambda _: types.SimpleNamespace(f_bavail=free // 4_096, f_frsize=4_096),
  )
  monkeypatch.setattr(logging, "warning", lambda *args: told.append(args))
  if found == "error":
    with pytest.raises(feed.InputError, match=rf"{7 * MIB} bytes.*got {free}:"):
      in_flight.check(MIB, worker_count=2, held=3)
  else:
    in_flight.check(MIB, worker_count=2, held=3)
  assert bool(told) == (found == "warning")


def test_a_system_without_the_directory_is_left_alone(monkeypatch, tmp_path):
  monkeypatch.setattr(in_flight, "PATH", str(tmp_path / "none"))
  in_flight.check(2**60, worker_count=2, held=3)


PROGRAM = textwrap.dedent("""
  import dataclasses
  import sys
  import time

  from chomp_data import pipeline

  def main(store, rows, checked):
    data = {
      "seq_len": 4_096,
      "global_batch_size": int(rows),
      "epochs": None,
      "worker_count": 1,
      "sources": {"text": {"store": store, "rows": {"kind": "sequential"}}},
    }
    with pipeline.make_iterator(data) as it:
      if checked == "unchecked":
        it._local = dataclasses.replace(it._local, batch_bytes=0)
      try:
        for _ in range(5):
          next(it)
          time.sleep(1)
      except Exception as error:
        print(it.step, type(error).__name__, error)
      else:
        print("went well")

  if __name__ == "__main__":
    main(*sys.argv[1:])
""")


def in_small_memory(size, command):
  """Runs a command where `/dev/shm` is a private one of some bytes."""
  return subprocess.run(
    [
      *("unshare", "--mount", "sh", "-c"),
      f"mount -t tmpfs -o size={size} tmpfs /dev/shm && exec"
      f" {shlex.join(command)}",
    ],
    capture_output=True,
    text=True,
  )


@pytest.fixture
def run(tmp_path):
  """Runs the program above with some bytes of shared memory."""
  try:
    allowed = in_small_memory(MIB, ["true"]).returncode == 0
  except FileNotFoundError:
    allowed = False
  if not allowed:
    pytest.skip("needs `unshare --mount` and the right to mount")
  rng = np.random.default_rng(0)
  documents = [rng.integers(3, 250, size=100_000) for _ in range(12)]
  testing_stores.make_store(
    tmp_path / "store", documents, vocab_size=256, pad_id=0
  )
  program = tmp_path / "program.py"
  program.write_text(PROGRAM)

  def start(size, rows, checked="checked"):
    arguments = [str(tmp_path / "store"), str(rows), checked]
    ran = in_small_memory(size, [sys.executable, str(program), *arguments])
    assert ran.returncode == 0, ran.stderr
    return ran.stdout

  return start


# A batch of 32 rows, 13 bytes a token, and a page of `source_id`.
BATCH = 32 * 4_096 * 13 + 4_096


def test_a_small_shared_memory_is_an_error_before_the_first_batch(run):
  told = run(4 * BATCH - 4_096, rows=32)
  assert told.startswith("0 InputError /dev/shm must have")
  assert f"at least {4 * BATCH} bytes" in told
  # A lock or two of this process lie there, too.
  free = int(re.search(r"got (\d+): below", told)[1])
  assert 4 * BATCH - 64_000 < free <= 4 * BATCH - 4_096


@pytest.mark.slow
def test_what_is_refused_would_crash_and_a_crash_says_why(run):
  told = run(4 * BATCH - 4_096, rows=32, checked="unchecked")
  assert "InputError a loader worker died of SIGBUS" in told


@pytest.mark.slow
def test_the_least_that_is_said_to_hold_a_run_that_pauses_holds_it(run):
  # Semaphores of the queues lie there, too.
  size = in_flight.most_batches(1, held=3) * BATCH + MIB
  assert run(size, rows=32) == "went well\n"
