# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of workers arrive as they are, in memory that is used again."""

import contextlib
import gc
import mmap
import os
import pickle
import shlex
import subprocess
import sys
import textwrap

import hypothesis
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
import numpy as np
import pytest

from chomp_data.loading import handover
from chomp_data.loading import workers
from chomp_data.testing import stores as testing_stores
from tests import laws


def pair(count=1):
  """Returns a board and what its workers have of it."""
  board = handover.WorkerMemory(count)
  return board, [pickle.loads(pickle.dumps(board)) for _ in range(count)]


def sent(worker, batch):
  """Hands over as through a queue."""
  return pickle.loads(pickle.dumps(worker.hand_over(batch)))


ARRAYS = st_numpy.arrays(
  st.sampled_from([np.int32, np.uint16, np.bool_, np.float64, "S3"]),
  st_numpy.array_shapes(min_dims=0, min_side=0, max_side=9),
)


@laws.examples(40)
@hypothesis.given(
  batch=st.dictionaries(st.text(max_size=3), ARRAYS, max_size=5),
  cut=st.booleans(),
)
def test_a_batch_arrives_as_it_was(batch, cut):
  if cut:
    batch = {name: value.T[..., ::2] for name, value in batch.items()
             if value.ndim}  # fmt: skip
  board, (worker,) = pair()
  found = board.take(sent(worker, {"fields": batch, "word": "a", "none": None}))
  assert (found["word"], found["none"]) == ("a", None)
  assert found["fields"].keys() == batch.keys()
  for name, value in batch.items():
    own = found["fields"][name]
    assert (own.dtype, own.shape) == (value.dtype, value.shape)
    np.testing.assert_array_equal(own, value)
    # Whoever has it may write to it, as without workers.
    assert own.flags.writeable


def test_arrays_are_where_jax_takes_them_for_its_own():
  board, (worker,) = pair()
  batch = {"a": np.arange(5, dtype=np.uint8), "b": np.arange(7), "c": np.eye(3)}
  found = board.take(sent(worker, batch))
  assert {value.ctypes.data % 64 for value in found.values()} == {0}


def test_a_buffer_is_used_again_when_nobody_holds_its_batch():
  board, (worker,) = pair()
  buffers = set()
  for step in range(50):
    handed = sent(worker, {"a": np.full(10_000, step)})
    buffers.add(handed.buffer)
    found = board.take(handed)
    part = found["a"][3:5]
    del found
    # A part of an array is enough to hold it.
    other = sent(worker, {"a": np.full(10_000, -1)})
    assert other.buffer != handed.buffer
    board.take(other)
    assert part.tolist() == [step] * 2
    del part
  assert buffers == {0}


def test_a_fork_that_drops_a_batch_does_not_free_its_parents(monkeypatch):
  board, (worker,) = pair()
  found = board.take(sent(worker, {"a": np.arange(9)}))
  monkeypatch.setattr(os, "getpid", lambda: -1)
  del found
  monkeypatch.undo()
  assert sent(worker, {"a": np.arange(9)}).buffer == 1


def test_whoever_collects_batches_finds_none_overwritten():
  board, workers_ = pair(2)
  kept = []
  for step in range(40):
    worker = workers_[step % 2]
    # Sizes grow: so do buffers.
    handed = sent(worker, {"a": np.full(100 * (step + 1), step)})
    kept.append(board.take(handed)["a"])
  for step, own in enumerate(kept):
    assert own.tolist() == [step] * (100 * (step + 1))


def test_without_a_free_buffer_or_memory_a_batch_comes_in_the_queue(
  monkeypatch,
):
  board, (worker,) = pair()
  on_the_way = [sent(worker, {"a": np.arange(9) + i}) for i in range(18)]
  assert [own.buffer for own in on_the_way] == [*range(16), None, None]
  for i, own in enumerate(on_the_way):
    assert board.take(own)["a"].tolist() == [*range(i, 9 + i)]
  on_the_way.clear()
  gc.collect()

  def full(*_):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(os, "posix_fallocate", full)
  big = {"a": np.arange(10**6)}
  assert sent(worker, big).buffer is None
  np.testing.assert_array_equal(board.take(sent(worker, big))["a"], big["a"])


def test_nothing_of_a_board_has_a_name_and_all_of_it_goes():
  before = set(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd"))
  maps, others = num_maps(), descriptors()
  board, (worker,) = pair()
  held = board.take(sent(worker, {"a": np.arange(9)}))
  board.take(sent(worker, {"a": np.arange(9)}))
  assert set(os.listdir("/dev/shm")) == before[0]
  board.close()
  for number in descriptors() - others:  # The worker's.
    os.close(number)
  del worker
  gc.collect()
  # What was told is still asked for, and what is held there.
  assert num_maps() == maps + 2
  del board
  gc.collect()
  assert held["a"].tolist() == [*range(9)]
  del held
  gc.collect()
  assert len(os.listdir("/proc/self/fd")) == before[1]
  assert num_maps() == maps


def descriptors():
  """Returns those of boards."""
  found = set()
  for number in os.listdir("/proc/self/fd"):
    with contextlib.suppress(FileNotFoundError):
      if "memfd:chomp_data" in os.readlink(f"/proc/self/fd/{number}"):
        found.add(int(number))
  return found


def num_maps():
  with open("/proc/self/maps") as lines:
    return sum("memfd:chomp_data" in line for line in lines)


def test_a_worker_that_begins_late_writes_to_no_other_file(tmp_path):
  before = descriptors()
  board = handover.WorkerMemory(1)
  state = pickle.dumps(board)
  (number,) = descriptors() - before
  board.close()
  file = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
  if file != number:  # What a system does first.
    os.dup2(file, number)
    os.close(file)
  try:
    with pytest.raises(handover.InputError, match="reader had ended"):
      pickle.loads(state)
  finally:
    os.close(number)
  assert os.path.getsize(tmp_path / "other") == 0


def test_what_workers_tell_is_summed():
  board = handover.WorkerMemory(2, 3)
  assert board.processes() == []
  one, two = (pickle.loads(pickle.dumps(board)) for _ in range(2))
  assert board.processes() == [os.getpid()] * 2
  one.tell_beats(4)
  two.tell_beats(5)
  one.tell_counts([1, 2, 3])
  two.tell_counts([10, 20, 30])
  assert (board.beats(), board.ended()) == (9, 0)
  assert board.counts() == [11, 22, 33]
  two.tell_counts([10, 20, 30], ended=True)
  assert board.ended() == 1
  board.close()
  # What was told last is kept.
  assert board.counts() == [11, 22, 33]


def test_room_for_locks_is_looked_for(monkeypatch):
  found = os.statvfs("/dev/shm")
  assert workers.have_room(2)
  monkeypatch.setattr(workers, "SHARED", "/dev/none")
  assert workers.have_room(10**9)
  monkeypatch.undo()
  assert not workers.have_room(found.f_bavail * found.f_frsize)


PROGRAM = textwrap.dedent("""
  import multiprocessing
  import os
  import sys
  import time

  from chomp_data import iterators
  from chomp_data import pipeline
  from chomp_data.loading import workers

  workers.may_help = lambda *_: True

  def main(store):
    data = {
      "seq_len": 4_096,
      "global_batch_size": 32,
      "epochs": None,
      "worker_count": 1,
      "sources": {"text": {"store": store, "rows": {"kind": "sequential"}}},
    }
    with iterators.make_iterator(data) as it:
      for _ in range(8):
        next(it)
        time.sleep(0.2)
      print("workers:", len(multiprocessing.active_children()))

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


@pytest.mark.slow
@pytest.mark.parametrize(("size", "count"), [(2**20, 1), (2**17, 0)])
def test_a_small_shared_memory_is_no_obstacle(tmp_path, size, count):
  """A batch is 1.7 MB. With no room for locks the program reads itself."""
  try:
    allowed = in_small_memory(mmap.PAGESIZE, ["true"]).returncode == 0
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
  ran = in_small_memory(
    size, [sys.executable, str(program), str(tmp_path / "store")]
  )
  assert ran.stdout == f"workers: {count}\n", ran.stderr
  assert ("has no room for their locks" in ran.stderr) == (not count)
