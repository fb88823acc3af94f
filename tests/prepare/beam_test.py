"""The engine `beam`: the same bytes as from processes of this machine.

apache-beam wants other versions than the rest of the tests, so it has an
environment of its own: `make test-beam`.
"""

import importlib.util
import json
import os
import sys

import pytest

from chomp_data import errors
from chomp_data.prepare import run
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


def make(output, *inputs, **changes):
  options = {"shard_bytes": 2**14, "chunk": 2**10, **changes}
  return run.prepare(
    run.Options(tuple(map(str, inputs)), str(output), **options)
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
def test_beam_leaves_out_the_duplicates_that_processes_do(lines, tmp_path):
  plain, _ = make(tmp_path / "all", lines)
  wanted, _ = make(tmp_path / "pool", lines, duplicates="drop", workers=2)
  with open(lines, "a") as file:
    file.writelines(lines.read_text().splitlines(keepends=True)[10:500])
  store, _ = make(tmp_path / "beam", lines, engine="beam", duplicates="drop")
  assert store.hash == wanted.hash
  assert 0 < store.num_documents <= plain.num_documents
  counted = [
    own.manifest.prepared["skipped"]["reasons"]["duplicate"]
    if own.manifest.prepared["skipped"]["reasons"]
    else 0
    for own in (wanted, store)
  ]
  # Texts of nothing are no duplicates.
  assert counted[1] - counted[0] == sum(i % 40 > 0 for i in range(10, 500))


@needs_beam
def test_an_error_in_a_worker_of_beam_names_the_line(lines, tmp_path):
  with open(lines, "a") as file:
    file.write('{"txt": "no text"}\n')
  with pytest.raises(errors.PrepareError, match=r"lines\.jsonl:901 must have"):
    make(tmp_path / "out", lines, engine="beam")
  assert not (tmp_path / "out").exists()
  store, _ = make(tmp_path / "out", lines, engine="beam", on_error="skip")
  plain, _ = make(tmp_path / "pool", lines, on_error="skip")
  assert run_test.digest(store.path) == run_test.digest(plain.path)


@needs_beam
def test_a_run_of_one_engine_goes_on_with_another(lines, tmp_path, monkeypatch):
  def stop(*unused):
    raise RuntimeError("stopped before the parts are joined")

  with monkeypatch.context() as patch:
    patch.setattr(run, "_assemble", stop)
    with pytest.raises(RuntimeError, match="stopped"):
      make(tmp_path / "out", lines, engine="beam")
  parts = tmp_path / "out.partial" / "parts"
  before = {file: file.stat().st_mtime_ns for file in parts.iterdir()}
  with monkeypatch.context() as patch:
    patch.setattr(run, "_assemble", stop)
    with pytest.raises(RuntimeError, match="stopped"):
      make(tmp_path / "out", lines)
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


def test_an_engine_that_there_is_not_is_an_error(lines, tmp_path):
  with pytest.raises(errors.PrepareError, match=r"pool, beam, got 'spark'"):
    make(tmp_path / "out", lines, engine="spark")
