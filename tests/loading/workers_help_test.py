# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Workers that cannot help are accepted and not started, and said so once."""

import json
import multiprocessing
import os
import subprocess
import sys
import textwrap

from absl import logging
import grain
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.loading import workers
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores

# Before a fixture lets all tests have workers.
RULE = workers.may_help


class Same(grain.transforms.Map):
  def map(self, element):
    return element


def test_workers_of_mapped_stores_are_not_started(data, monkeypatch):
  monkeypatch.setattr(workers, "may_help", RULE)
  told = []
  monkeypatch.setattr(
    logging, "log_first_n", lambda *args: told.append(args[1] % args[3:])
  )
  pipe = pipeline.build({**data, "worker_count": 2})
  with iterators.make_iterator(pipe) as it:
    before = set(multiprocessing.active_children())
    found = [batch_hashes.batch_sha256(next(it)) for _ in range(5)]
    assert set(multiprocessing.active_children()) == before
    assert it.reads["text"].examples >= 40
    # A plain loader starts them, and says what they cost.
    assert not told[1:]
    pipe.data_loader()
    assert "0 is faster" in told.pop()
  assert found == [batch_hashes.batch_sha256(pipe.batch(i)) for i in range(5)]
  assert len(told) == 1
  assert "`config.data.worker_count` is 2, but this process reads" in told[0]


def test_workers_are_started_where_they_may_help(data, tmp_path):
  mapped = pipeline.batch_source(pipeline.build(data))
  assert not RULE(mapped.is_mapped, [])
  assert RULE(mapped.is_mapped, [Same()])
  documents = [range(3, 99)] * 9
  testing_stores.make_store(tmp_path / "z", documents, compression="zstd")
  sources = {"text": {**data["sources"]["text"], "store": str(tmp_path / "z")}}
  packed = pipeline.batch_source(pipeline.build({**data, "sources": sources}))
  assert RULE(packed.is_mapped, [])


PROGRAM = textwrap.dedent("""
  import itertools
  import json
  import pathlib
  import sys

  from chomp_data import iterators
  from chomp_data import pipeline
  from chomp_data.loading import workers

  workers.may_help = lambda *_: True

  def resident(pids):
    # Of all processes; shared pages are counted once, those of files not: they
    # are shared with processes that come and go.
    total = 0
    for pid in pids:
      for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").open():
        if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
          total += int(line.split()[1])
    return total

  def main(data, first, last):
    import multiprocessing
    it = iterators.make_iterator(data)
    sizes = []
    for step, batch in enumerate(it):
      del batch
      if step >= first and step % ((last - first) // 20) == 0:
        pids = [p.pid for p in multiprocessing.active_children()]
        sizes.append(resident(["self", *pids]))
      if step == last:
        break
    print(max(sizes[:5]), max(sizes[-5:]))
    # Left open.

  if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
""")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_memory_does_not_grow_over_10_000_batches_and_nothing_is_told_at_exit(
  data, tmp_path, workers
):
  program = tmp_path / "program.py"
  program.write_text(PROGRAM)
  config = {**data, "epochs": None, "worker_count": workers}
  ran = subprocess.run(
    [sys.executable, str(program), json.dumps(config), "2000", "12000"],
    capture_output=True,
    text=True,
    env={**os.environ, "CHOMP_DATA_KERNELS": "off"},
  )
  assert ran.returncode == 0, ran.stderr
  early, late = map(int, ran.stdout.split())
  assert late <= 1.01 * early
  # Of an iterator that was left open, too.
  assert "leaked" not in ran.stderr
