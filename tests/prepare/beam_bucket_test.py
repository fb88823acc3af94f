# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The engine `beam` with all it works on in a bucket: no disk is shared.

S3's server wants packages of its own; the emulator of GCS is in the environment
of Beam, too: `make test-beam`.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import engines
from chomp_data.prepare import part_files
from chomp_data.prepare import run
from chomp_data.prepare import tokenizers
from chomp_data.storage import opening
from chomp_data.stores import base as store_base
from tests.prepare import beam_test
from tests.remote import conftest

gcs_server = conftest.gcs_server
gs_bucket = conftest.gs_bucket
ROOT = pathlib.Path(__file__).parents[2]


class Far:
  """An engine as Beam is, in this process."""

  def run(self, function, tasks, tell=lambda _: None):
    """Calls a function for each task."""
    for number, task in enumerate(tasks):
      yield number, function(task)

  def close(self):
    """Nothing was started."""


@pytest.fixture(autouse=True)
def staging(tmp_path, monkeypatch):
  monkeypatch.setenv("CHOMP_DATA_STAGING", str(tmp_path / "staging"))
  return tmp_path / "staging"


@pytest.fixture(
  params=["far", pytest.param("beam", marks=beam_test.needs_beam)]
)
def engine(request, monkeypatch):
  monkeypatch.setitem(engines.ENGINES, "far", lambda *unused: Far())
  return request.param


def corpus(url, tmp_path):
  """Lines in a bucket and on a disk; and a tokenizer on a disk."""
  lines = [{"text": f"text {i % 300} " * (i % 40)} for i in range(900)]
  data = "".join(json.dumps(line) + "\n" for line in lines).encode()
  opening.open_storage(url).put("x.jsonl", data)
  (tmp_path / "local").mkdir(exist_ok=True)
  (tmp_path / "local" / "x.jsonl").write_bytes(data)
  return f"{url}/*.jsonl", tmp_path / "local" / "x.jsonl"


def make(pattern, output, **changes):
  options = {"shard_bytes": 2**14, "chunk": 2**10, **changes}
  return run.prepare(run.Options((str(pattern),), str(output), **options))


def contents(path):
  place = opening.open_storage(str(path))
  found = {name: place.get(name) for name in place.names()}
  manifest = json.loads(found["manifest.json"])
  del manifest["prepared"]["inputs"], manifest["digest"]
  return {**found, "manifest.json": manifest}


@pytest.mark.parametrize(
  ("engine", "duplicates"),
  [
    ("far", "drop"),
    pytest.param("beam", "keep", marks=beam_test.needs_beam),
    pytest.param("beam", "drop", marks=beam_test.needs_beam),
  ],
  indirect=["engine"],
)
def test_without_a_shared_disk_the_store_is_the_same(
  gs_bucket, engine, tmp_path, staging, duplicates, monkeypatch
):
  monkeypatch.setattr(part_files, "BLOCK", 2**9)  # Parts of several objects.
  there, here = corpus(f"{gs_bucket.root}/in", tmp_path)
  url = f"{gs_bucket.root}/out"
  changes = {"duplicates": duplicates}
  if duplicates == "drop":
    changes["train"] = run.run_tokenizer.TrainOptions("bpe", 300)
  workers = 2 if duplicates == "keep" else 0
  make(there, url, engine=engine, workers=workers, **changes)
  make(here, tmp_path / "pool", **changes)
  assert contents(url) == contents(tmp_path / "pool")
  stores.verify_store(url)
  # Nothing is left behind.
  names = opening.open_storage(gs_bucket.root).names()
  assert {name.partition("/")[0] for name in names} == {"in", "out"}
  assert not list(staging.rglob("*"))
  assert not make(there, url, engine=engine, **changes)[1]


def test_an_error_in_a_worker_names_the_line(gs_bucket, tmp_path, engine):
  url = f"{gs_bucket.root}/in"
  there, here = corpus(url, tmp_path)
  opening.open_storage(url).put(
    "x.jsonl", here.read_bytes() + b'{"txt": "none"}\n'
  )
  with pytest.raises(errors.PrepareError, match=f"{url}/x.jsonl:901 must have"):
    make(there, f"{gs_bucket.root}/out", engine=engine)
  # It goes on where it was, on whatever machine.
  before = set(
    opening.open_storage(f"{gs_bucket.root}/out.partial/parts").names()
  )
  assert before
  store, _ = make(
    there, f"{gs_bucket.root}/out", engine=engine, on_error="skip"
  )
  plain, _ = make(here, tmp_path / "pool")
  assert store.hash == plain.hash


@pytest.mark.slow
def test_a_tokenizer_goes_where_the_workers_are(gs_bucket, tmp_path, engine):
  there, here = corpus(f"{gs_bucket.root}/in", tmp_path)
  trained, _ = make(
    here, tmp_path / "bpe", train=run.run_tokenizer.TrainOptions("bpe", 300)
  )
  file = tmp_path / "tokenizer.json"
  file.write_bytes(store_base.tokenizer_file(trained))
  opening.open_storage(f"{gs_bucket.root}/in").put("bpe", file.read_bytes())
  for source in (str(file), f"{gs_bucket.root}/in/bpe"):
    store, _ = make(
      there,
      f"{gs_bucket.root}/out",
      engine=engine,
      overwrite=True,
      tokenizer=tokenizers.TokenizerSpec(source),
    )
    assert store.hash == trained.hash


_RUN = """
import sys
from chomp_data.prepare import engines, run
from tests.prepare import beam_bucket_test
engines.ENGINES["far"] = lambda *unused: beam_bucket_test.Far()
print("begin", flush=True)
run.prepare(run.Options(
  (sys.argv[1],), sys.argv[2], engine=sys.argv[3], shard_bytes=2**14,
  chunk=2**10, overwrite=sys.argv[4] == "True", duplicates="drop",
))
"""


def killed(bucket, tmp_path, engine, overwrite, kills):
  """Kills runs at requests further and further on; then lets one end."""
  there, here = corpus(f"{bucket.root}/in", tmp_path)
  url = f"{bucket.root}/{engine}-{overwrite}"
  make(here, tmp_path / "clean", duplicates="drop")
  if overwrite:
    make(here, url, chunk=2**9)
  env = {**os.environ, "PYTHONPATH": str(ROOT)}
  command = [sys.executable, "-c", _RUN, there, url, engine, str(overwrite)]
  done = 0
  for kill in range(kills):
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"begin\n"
    bucket.clear()
    changes = 1 + 5 * kill
    while process.poll() is None:
      sent = [own for own in bucket.requests if own.method != "GET"]
      if len(sent) >= changes:
        process.send_signal(signal.SIGKILL)
        break
      time.sleep(0.002)
    process.communicate()
    done += process.returncode == -signal.SIGKILL
    if "manifest.json" in opening.open_storage(url).names():
      stores.verify_store(url)
    if not process.returncode:
      break
  subprocess.run(command, env=env, check=True)
  assert contents(url) == contents(tmp_path / "clean")
  names = opening.open_storage(bucket.root).names()
  assert not [name for name in names if ".partial" in name]
  assert done > 3
  return done


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["pool", "far"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_runs_killed_in_a_bucket_lose_and_double_nothing(
  gs_bucket, tmp_path, staging, engine, overwrite
):
  killed(gs_bucket, tmp_path, engine, overwrite, 12)
  assert not list(staging.rglob("*"))
