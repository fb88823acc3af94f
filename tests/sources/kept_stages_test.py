# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Begins of stages lie beside a store: once for all processes, and checked."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from chomp_data import errors
from chomp_data import pipeline
from chomp_data.index.mix import merge_stages
from chomp_data.stores import publish
from chomp_data.stores import side_index
from tests.index.mix import walked

STAGES = 150
LAST = 3 * (STAGES - 1)


@pytest.fixture(autouse=True)
def worked_out(monkeypatch):
  return walked.stages(monkeypatch)


@pytest.fixture
def paths(make_store):
  rng = np.random.default_rng(0)
  return [
    str(make_store([rng.integers(3, 250, n) for n in lengths]).path)
    for lengths in rng.integers(1, 40, (2, 60)).tolist()
  ]


def config(paths, stages=STAGES, **fields):
  return {
    "seq_len": 16,
    "global_batch_size": 4,
    "epochs": None,
    "sources": {
      name: {"store": path, "rows": {"kind": "bin"}, **fields}
      for name, path in zip("ab", paths, strict=True)
    },
    "mix": {
      "kind": "token_balanced",
      "stages": [
        (3 * i, {"a": 1 + i * 7 % 11, "b": 1 + i * 5 % 13})
        for i in range(stages)
      ],
    },
  }


def kept(paths):
  return sorted(pathlib.Path(f"{paths[0]}.index").glob("stages-*"))


def spans(pipe, step):
  own = pipe.plan(step)
  return [own.source.tolist(), own.document.tolist(), own.start.tolist()]


@pytest.fixture
def unkept(paths):
  """What the last step holds where nothing is ever kept."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(merge_stages, "KEPT_AFTER", 10**9)
    found = spans(pipeline.build(config(paths)), LAST)
  assert not kept(paths)
  return found


def test_a_second_run_works_out_no_stage_again(paths, unkept, worked_out):
  assert spans(pipeline.build(config(paths)), LAST) == unkept
  assert len(kept(paths)) == 1
  worked_out.clear()
  pipe = pipeline.build(config(paths))
  assert spans(pipe, LAST) == unkept
  # Neither does the plan of its loader.
  source = pipe.batch_source()
  source[LAST]
  assert not worked_out


def test_a_run_of_more_stages_goes_on_and_leaves_one_index(paths, worked_out):
  pipeline.build(config(paths)).plan(LAST)
  worked_out.clear()
  more = STAGES + 70
  pipe = pipeline.build(config(paths, more))
  found = spans(pipe, 3 * (more - 1))
  assert worked_out == list(range(STAGES - 1, more - 1))
  (one,) = kept(paths)
  # Fewer stages need no index of their own.
  worked_out.clear()
  pipeline.build(config(paths)).plan(LAST)
  assert kept(paths) == [one]
  assert spans(pipeline.build(config(paths, more)), 3 * (more - 1)) == found
  assert not worked_out


def test_runs_that_only_begin_alike_leave_a_few_indexes(paths, worked_out):
  sweep = [config(paths) for _ in range(10)]
  for number, own in enumerate(sweep):
    # Alike but for one stage.
    own["mix"]["stages"][5] = (15, {"a": 1, "b": 20 + number})
    pipeline.build(own).plan(LAST)
  assert 2 <= len(kept(paths)) <= 8
  worked_out.clear()
  found = spans(pipeline.build(sweep[-1]), LAST)
  assert not worked_out
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(merge_stages, "KEPT_AFTER", 10**9)
    assert spans(pipeline.build(sweep[-1]), LAST) == found


def test_rows_of_other_sources_take_nothing_that_was_kept(paths, worked_out):
  pipeline.build(config(paths)).plan(LAST)
  for other in (
    config(paths, shuffle={"kind": "block"}),
    {**config(paths), "seed": 1},
    {**config(paths), "seq_len": 32},
    {**config(paths), "mix": {**config(paths)["mix"], "unit": "rows"}},
    config(paths[::-1]),
  ):
    worked_out.clear()
    pipeline.build(other).plan(LAST)
    assert len(worked_out) == STAGES - 1


@pytest.mark.parametrize("name", ["header.json", "rows.bin", "numbers.bin"])
@pytest.mark.parametrize("how", ["altered", "cut", "gone"])
def test_damaged_begins_are_worked_out_again(
  paths, unkept, worked_out, name, how
):
  pipeline.build(config(paths)).plan(LAST)
  (directory,) = kept(paths)
  data = (directory / name).read_bytes()
  (directory / name).unlink()
  if how != "gone":
    middle = len(data) // 2
    altered = bytes([data[middle] ^ 1]) + data[middle + 1 :]
    (directory / name).write_bytes(
      data[:middle] + (altered if how == "altered" else b"")
    )
  worked_out.clear()
  assert spans(pipeline.build(config(paths)), LAST) == unkept
  assert len(worked_out) == STAGES - 1
  assert kept(paths) == [directory]
  worked_out.clear()
  assert spans(pipeline.build(config(paths)), LAST) == unkept
  assert not worked_out


def test_begins_that_another_process_keeps_just_now_are_left_to_it(
  paths, unkept, monkeypatch
):
  locked = []
  build = side_index.load_or_build

  def locking(store_path, name, key, *arguments, **options):
    if name != "stages":
      return build(store_path, name, key, *arguments, **options)
    directory = side_index._directory(name, side_index._whole_key(name, key))
    parent = pathlib.Path(f"{store_path}.index")
    parent.mkdir(exist_ok=True)
    with publish.lock(parent / directory):
      locked.append(key)
      return build(store_path, name, key, *arguments, **options)

  monkeypatch.setattr(side_index, "load_or_build", locking)
  assert spans(pipeline.build(config(paths)), LAST) == unkept
  assert locked
  assert not kept(paths)


def test_a_place_that_takes_nothing_is_asked_once(paths, unkept, monkeypatch):
  asked = []
  build = side_index.load_or_build

  def refused(store_path, name, *arguments, **options):
    if name != "stages":
      return build(store_path, name, *arguments, **options)
    asked.append(name)
    raise errors.StoreError("the disk is read-only")

  monkeypatch.setattr(side_index, "load_or_build", refused)
  pipe = pipeline.build(config(paths))
  for step in range(0, LAST + 1, 3):
    pipe.plan(step)
  assert spans(pipe, LAST) == unkept
  assert asked == ["stages"]


_PROCESS = """
import json, sys
from chomp_data import pipeline
data, step = json.loads(sys.argv[1]), int(sys.argv[2])
own = pipeline.build(data).plan(step)
own = own.source, own.document, own.start
print(json.dumps([values.tolist() for values in own]))
"""


@pytest.mark.slow
def test_processes_that_keep_at_once_leave_one_index(paths, unkept, worked_out):
  processes = [
    subprocess.Popen(
      [sys.executable, "-c", _PROCESS, json.dumps(config(paths)), str(LAST)],
      stdout=subprocess.PIPE,
      text=True,
    )
    for _ in range(3)
  ]
  for process in processes:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert json.loads(out) == unkept
  assert len(kept(paths)) == 1
  worked_out.clear()
  assert spans(pipeline.build(config(paths)), LAST) == unkept
  assert not worked_out
