"""tools/inspect_batches.py: what it prints is what the pipeline reads."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from chomp_data import pipeline
from chomp_data import stores
from configs import splice_multi

ROOT = pathlib.Path(__file__).parents[2]
FIELDS = ["tokens", "segment_ids", "positions", "loss_mask"]


def inspect(*args, check=True):
  return subprocess.run(
    [
      sys.executable,
      str(ROOT / "tools" / "inspect_batches.py"),
      f"--config={ROOT}/configs/splice_multi.py:runlocal",
      *args,
    ],
    check=check,
    capture_output=True,
    text=True,
    env={**os.environ, "COLUMNS": "100"},
  )


@pytest.fixture
def data(stdlib_store):
  config = splice_multi.get_config("runlocal")
  config.data.sources.stdlib.store = stdlib_store
  return config.data


def test_json_rows_are_the_pipelines_own(data, stdlib_store):
  out = inspect(
    f"--config.data.sources.stdlib.store={stdlib_store}",
    "--format=json",
    "--step=3",
    "--count=2",
  ).stdout
  records = [json.loads(line) for line in out.splitlines()]
  assert [(r["step"], r["row"]) for r in records] == [
    (step, row) for step in (3, 4) for row in range(8)
  ]
  pipe = pipeline.build(data)
  store = stores.open_store(stdlib_store)
  for record in records:
    batch = pipe.batch(record["step"])
    for name in FIELDS:
      assert record[name] == batch[name][record["row"]].tolist()
    assert record["source"] == "stdlib"
    (span,) = record["spans"]
    document = store.read_document(span["document"])
    text = document[span["start"] : span["start"] + span["length"]]
    low = span["column"]
    assert record["tokens"][low : low + span["length"]] == text.tolist()


def test_plan_only_leaves_the_arrays_out(stdlib_store):
  out = inspect(
    f"--config.data.sources.stdlib.store={stdlib_store}",
    "--format=json",
    "--plan_only",
    "--rows=1",
  ).stdout
  (record,) = [json.loads(line) for line in out.splitlines()]
  assert set(record) == {"step", "row", "source", "spans"}


def test_the_terminal_view_shows_text_documents_and_padding(data, stdlib_store):
  out = inspect(f"--config.data.sources.stdlib.store={stdlib_store}").stdout
  pipe = pipeline.build(data)
  spans = pipe.plan(0)
  document = int(spans.document[0])
  name = stores.open_store(stdlib_store).document_id(document)
  assert f"document {document}" in out
  assert name in out
  assert "padding" in out
  assert "multi_splice: num_docs=3" in out
  assert "step 0 row 0 of 8" in out


def test_errors_are_one_line_and_exit_1(stdlib_store):
  ran = inspect(
    f"--config.data.sources.stdlib.store={stdlib_store}",
    "--config.data.sources.stdlib.rows.content_stride=0",
    check=False,
  )
  assert ran.returncode == 1
  last = ran.stderr.strip().splitlines()[-1]
  assert last.startswith("error: `config.data.sources.stdlib.rows.content_str")
  assert "got 0" in last
