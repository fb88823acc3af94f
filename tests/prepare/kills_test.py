# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Killed at any moment: nothing lost, nothing doubled, nothing left behind."""

import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from chomp_data import stores
from chomp_data.prepare import run
from tests import forks
from tests.prepare import run_test

# What puts something on disk, or takes it away.
CALLS = ("replace", "rename", "fsync", "unlink", "mkdir", "rmdir")


def options_of(tmp_path, output, **changes):
  own = {"shard_bytes": 64, "chunk": 8, **changes}
  return run.Options((str(tmp_path / "corpus"),), str(tmp_path / output), **own)


def prepare_until(options, nth):
  """Prepares, and kills its process at a call."""
  count = itertools.count()

  def dying(call):
    def called(*args, **kwargs):
      if next(count) == nth:
        os.kill(os.getpid(), signal.SIGKILL)
      return call(*args, **kwargs)

    return called

  for name in CALLS:
    setattr(os, name, dying(getattr(os, name)))
  run.prepare(options)


def run_killed(options, nth):
  """Prepares where a call kills; False if the end came first."""
  status = forks.call(prepare_until, options, nth)
  assert status in (0, -signal.SIGKILL)
  return status != 0


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize(
  "overwrite", [False, pytest.param(True, marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_a_run_killed_at_any_change_of_the_disk_goes_on(
  corpus, tmp_path, overwrite
):
  clean, _ = run.prepare(options_of(tmp_path, "clean"))
  wanted = run_test.digest(clean.path)
  other = {"exclude": ("a*",)} if overwrite else {}
  published = 0
  # Each third change where a store is replaced: the others differ in nothing.
  for nth in itertools.count(0, 3 if overwrite else 1):
    if overwrite:
      before, _ = run.prepare(
        options_of(tmp_path, "out", **other, overwrite=True)
      )
      before = run_test.digest(before.path)
    options = options_of(tmp_path, "out", overwrite=overwrite)
    if not run_killed(options, nth):
      break
    out = tmp_path / "out"
    if out.exists():
      # A complete store: the one before, or the new one.
      stores.verify_store(out)
      found = run_test.digest(out)
      assert found == wanted or (overwrite and found == before)
      published += found == wanted
    else:
      assert not overwrite
    run.prepare(options)
    assert run_test.digest(out) == wanted
    assert sorted(os.listdir(tmp_path)) == ["clean", "corpus", "out"], nth
    if not overwrite:
      for folder, _, names in os.walk(out, topdown=False):
        for name in names:
          pathlib.Path(folder, name).unlink()
        pathlib.Path(folder).rmdir()
  assert nth > 40
  assert published > 1, "no kill came after the store was published"


_RUN = """
import sys
from chomp_data.prepare import run
options = run.Options(
  (sys.argv[1],), sys.argv[2], workers=int(sys.argv[3]), shard_bytes=2**15,
  chunk=2**12,
)
run.prepare(options)
"""


def soak(tmp_path, kills, seed=0):
  """Kills runs at random moments until so many were killed.

  Returns:
    (kills, runs that came to their end, stores that were complete when a run
    was killed).
  """
  rng = random.Random(seed)
  source = tmp_path / "corpus"
  source.mkdir()
  for i in range(3):
    lines = (f'{{"text": "{rng.randbytes(40).hex()}"}}\n' for _ in range(9000))
    (source / f"{i}.jsonl").write_text("".join(lines))

  def start(output, workers):
    command = [sys.executable, "-c", _RUN, str(source), str(tmp_path / output)]
    return subprocess.Popen([*command, str(workers)])

  begin = time.monotonic()
  assert start("clean", 0).wait() == 0
  seconds = time.monotonic() - begin
  wanted = run_test.digest(tmp_path / "clean")
  out = tmp_path / "out"
  killed = ended = complete = 0
  while killed < kills:
    process = start("out", rng.choice([0, 1, 2, 4]))
    children = []
    try:
      # Never less than it takes to begin: those find nothing to spoil.
      process.wait(seconds * rng.uniform(0.2, 1.0))
    except subprocess.TimeoutExpired:
      children = run_test.child_processes(process.pid)
      process.kill()
      process.wait()
    assert process.returncode in (0, -signal.SIGKILL)
    assert run_test.wait_for(lambda c=children: run_test.all_ended(c), 10)
    if out.exists():
      assert run_test.digest(out) == wanted
    if process.returncode:
      killed += 1
      complete += out.exists()
      continue
    ended += 1
    assert sorted(os.listdir(tmp_path)) == ["clean", "corpus", "out"]
    for folder, _, names in os.walk(out, topdown=False):
      for name in names:
        pathlib.Path(folder, name).unlink()
      pathlib.Path(folder).rmdir()
  assert start("out", 2).wait() == 0
  assert run_test.digest(out) == wanted
  assert sorted(os.listdir(tmp_path)) == ["clean", "corpus", "out"]
  stores.verify_store(out)
  return killed, ended + 1, complete


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_kills_at_random_moments(tmp_path, capsys):
  killed, ended, complete = soak(tmp_path, 25)
  with capsys.disabled():
    print(f"\n{killed} kills, {complete} behind a store, {ended} runs ended")
