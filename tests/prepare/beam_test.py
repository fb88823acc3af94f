# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The engine `beam`: the same bytes as from processes of this machine.

apache-beam wants other versions than the rest of the tests, so it has an
environment of its own: `make test-beam`.
"""

import importlib.util
import json
import os
import pathlib
import pickle
import sys

import pytest

from chomp_data import errors
from chomp_data.prepare import beam_engine
from chomp_data.prepare import detect
from chomp_data.prepare import input_plan
from chomp_data.prepare import part_files
from chomp_data.prepare import parts
from chomp_data.prepare import records
from chomp_data.prepare import run
from chomp_data.prepare import scratch
from chomp_data.prepare import shards
from chomp_data.prepare import tokenizers
from chomp_data.prepare.reading import base
from chomp_data.stores import json_values
from chomp_data.stores.zarr import array_layout
from tests.prepare import run_test

HAS_BEAM = importlib.util.find_spec("apache_beam") is not None
needs_beam = pytest.mark.skipif(not HAS_BEAM, reason="make test-beam runs it")


@pytest.fixture
def lines(tmp_path):
  """One file of several parts, and a directory."""
  path = tmp_path / "lines.jsonl"
  texts = [f"text {i} " * (i % 40) for i in range(900)]
  path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
  return path


def make(output, *inputs, report=lambda _: None, **changes):
  options = {"shard_bytes": 2**14, "chunk": 2**10, **changes}
  return run.prepare(
    run.Options(tuple(map(str, inputs)), str(output), **options), report
  )


@needs_beam
@pytest.mark.parametrize(
  "workers", [1, pytest.param(2, marks=pytest.mark.slow)]
)
def test_beam_gives_the_bytes_of_processes(corpus, lines, tmp_path, workers):
  plain, _ = make(tmp_path / "pool", corpus, lines, workers=2)
  seen = []
  options = run.Options(
    (str(corpus), str(lines)),
    str(tmp_path / "beam"),
    engine="beam",
    workers=workers,
    shard_bytes=2**14,
    chunk=2**10,
  )
  store, written = run.prepare(options, seen.append)
  assert written
  assert store.hash == plain.hash
  assert run_test.digest(store.path) == run_test.digest(plain.path)
  assert {p.stage for p in seen} >= {"encode", "write"}
  assert seen[-1].done_bytes == seen[-1].total_bytes
  left = {"corpus", "lines.jsonl", "pool", "beam"}
  assert set(os.listdir(tmp_path)) == left
  assert not make(tmp_path / "beam", corpus, lines)[1]


@needs_beam
def test_a_run_of_one_engine_goes_on_with_another(lines, tmp_path):
  def stop(progress):
    if progress.stage == "write":
      raise RuntimeError("stopped before the parts are joined")

  with pytest.raises(RuntimeError, match="stopped"):
    make(tmp_path / "out", lines, report=stop, engine="beam")
  parts = tmp_path / "out.partial" / "parts"
  before = {file: file.stat().st_mtime_ns for file in parts.iterdir()}
  with pytest.raises(RuntimeError, match="stopped"):
    make(tmp_path / "out", lines, report=stop)
  assert {file: file.stat().st_mtime_ns for file in parts.iterdir()} == before


@needs_beam
def test_a_flag_that_beam_does_not_know_is_an_error(lines, tmp_path):
  with pytest.raises(errors.PrepareError, match="got --runer"):
    make(
      tmp_path / "out", lines, engine="beam", engine_flags=("--runer=Direct",)
    )


def test_without_beam_the_error_names_the_extra(lines, tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "apache_beam.options", None)
  with pytest.raises(errors.PrepareError, match="extra `beam`"):
    make(tmp_path / "out", lines, engine="beam")


class Canary:
  """Makes a file when it is unpickled."""

  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return pathlib.Path.touch, (self.path,)


def test_a_pickle_in_the_work_folder_is_never_run(tmp_path):
  canary, root = tmp_path / "canary", str(tmp_path / "work")
  scratch.storage_at(root).put("00000.tasks", pickle.dumps([Canary(canary)]))
  beam_engine.call(0, input_plan.count_records, root)
  assert not canary.exists()
  with pytest.raises(errors.PrepareError, match=r"00000\.tasks must be as"):
    raise beam_engine.read_error(root)
  scratch.storage_at(root).put("failed", pickle.dumps(Canary(canary)))
  with pytest.raises(errors.PrepareError, match="failed must be as"):
    raise beam_engine.read_error(root)
  assert not canary.exists()


def puts_pickles_in_its_folder(task: str) -> int:
  (folder,) = pathlib.Path(task, "engine").iterdir()
  for name in ("failed", "00000.results", "00001.tasks", "00001.results"):
    (folder / name).write_bytes(pickle.dumps(Canary(pathlib.Path(task, "it"))))
  return 1


@needs_beam
def test_the_process_that_waits_runs_no_pickle(tmp_path):
  engine = beam_engine.Beam((), 1, str(tmp_path / "engine"))
  with pytest.raises(errors.PrepareError, match="failed must be as"):
    list(engine.run(puts_pickles_in_its_folder, [str(tmp_path)]))
  assert not (tmp_path / "it").exists()


@pytest.mark.parametrize(
  "error",
  [
    errors.BadInput("a:1", "must be text", "Correct it.", "no text"),
    errors.PrepareError("wrong"),
    errors.StoreError("wrong"),
    FileNotFoundError(2, "No such file", "/a"),
    OSError("no number"),
    PermissionError(13, "Permission denied"),
  ],
)
def test_errors_of_workers_reach_the_process_that_waits(tmp_path, error):
  beam_engine.write_error(str(tmp_path), error)
  back = beam_engine.read_error(str(tmp_path))
  assert type(back) is type(error)
  assert vars(back) == vars(error)
  if error.args[0] != "no number":
    assert str(back) == str(error)


FILE = base.InputFile("a.jsonl", "/d/a.jsonl", 70, "etag", "json_lines", "gz")
PIECE = base.InputPiece(FILE, 3, 70, None, 67)


@pytest.mark.parametrize(
  ("function", "task", "result"),
  [
    (input_plan.count_records, input_plan.CountTask(PIECE, "/d/plan"), 5),
    (
      input_plan.look,
      input_plan.LookTask(
        (FILE, FILE), 2**20, records.ReadOptions(raw=False), "/d/plan"
      ),
      [
        detect.PlannedFile(FILE, ((0, 70, 1, 70), (70, 90, None, 20))),
        detect.PlannedFile(FILE, problem=("/d/a", "must", "Do.", "bad")),
      ],
    ),
    (
      parts.part_of,
      parts.PartTask(
        (PIECE, PIECE),
        parts.PartOptions(
          tokenizers.TokenizerSpec("/t", special_tokens=("a=1", "b")),
          "0f",
          records.ReadOptions(
            raw=False,
            meta_key="m",
            chat=run.chats.ChatOptions("{{ x }}", tokens=(("bos_token", "s"),)),
          ),
        ),
        "/d/parts",
      ),
      part_files.PartRow(
        1, 2, "<u2", 0, 1, [0.0, 1.0], [1.0], {"tokens": [0, 2]}, [7], {"a": []}
      ),
    ),
    (
      shards.write_shard,
      shards.ShardTask(
        "tokens",
        array_layout.ArrayLayout("uint16", 10, 4, 8, "none"),
        1,
        (shards.Segment("k", 0, 4, 0, 0), shards.Segment("", 4, 6, 0, 9)),
        (0.0, 1.0, 0.1),
        "/p",
        "/s",
        "/r",
      ),
      shards.ShardRow(20, [1, 2], [3, 4], ["ab"], [20, 7]),
    ),
  ],
)
def test_tasks_and_results_are_the_same_after_their_file(
  function, task, result
):
  task_type, result_type = beam_engine.types_of(function)
  for kind, value in ((task_type, task), (result_type, result)):
    back = json_values.parse(kind, json_values.encode(value), "it")
    assert back == value
    assert repr(back) == repr(value)
