# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""tools/inspect_batches.py: what it prints is what the pipeline reads."""

import json
import re
import socket

import numpy as np
from PIL import Image
import pytest

from chomp_data import pipeline
from chomp_data import stores
from chomp_data.audit import job
from chomp_data.commands import pictures
from chomp_data.loading import state
from chomp_data.stores import samples_array_record
from chomp_data.testing import stores as stores_lib
from configs import resolution_buckets
from configs import splice_multi
from examples import drawings
from tests import in_process

TITLE_HEIGHT = len(pictures.title("step")) + 4  # and the gap below it
FIELDS = ["tokens", "segment_ids", "positions", "loss_mask"]


def inspect(*args, check=True):
  return in_process.run_tool(
    "inspect_batches",
    "--config=configs/splice_multi.py:runlocal",
    *args,
    check=check,
    env={"COLUMNS": "100"},
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
    assert span["id"] == store.document_ids([span["document"]])[0]
    document = stores.read_document(store, span["document"])
    text = document[span["start"] : span["start"] + span["length"]]
    low = span["column"]
    assert record["tokens"][low : low + span["length"]] == text.tolist()


def test_the_terminal_view_shows_text_documents_and_padding(data, stdlib_store):
  out = inspect(f"--config.data.sources.stdlib.store={stdlib_store}").stdout
  pipe = pipeline.build(data)
  spans = pipe.plan(0)
  document = int(spans.document[0])
  name = stores.open_store(stdlib_store).document_ids([document])[0]
  assert f"document {document}" in out
  assert name in out
  assert "padding" in out
  assert "multi_splice: num_docs=3" in out
  assert "step 0 row 0 of 8" in out


def inspect_pictures(tmp_path, *args, check=True, **env):
  stores = {name: tmp_path / name for name in drawings.DATASETS}
  for name, path in stores.items():
    if not path.exists():
      samples_array_record.write_samples(path, drawings.samples(name, 40))
  return in_process.run_tool(
    "inspect_batches",
    "--config=configs/resolution_buckets.py:runlocal",
    *(f"--config.data.sources.{n}.store={p}" for n, p in stores.items()),
    *args,
    check=check,
    env={"COLUMNS": "100", **env},
  )


def test_batches_of_arrays_are_drawn_to_a_png_as_they_are(tmp_path):
  output = tmp_path / "step.png"
  inspect_pictures(tmp_path, "--step=1", f"--output={output}")
  config = resolution_buckets.get_config("runlocal")
  for name, source in config.data.sources.items():
    source.store = str(tmp_path / name)
  pixels = pipeline.build(config.data).batch(1)["pixels"]
  found = np.asarray(Image.open(output))
  height, width = pixels.shape[1:3]
  columns, title = 2, TITLE_HEIGHT
  assert (found[:title] < 100).any()
  for i, own in enumerate(pixels):
    top, left = (i // columns) * (height + 2), (i % columns) * (width + 2)
    top += title
    np.testing.assert_array_equal(
      found[top : top + height, left : left + width], own
    )


def test_batches_of_arrays_are_drawn_in_the_terminal_and_told(tmp_path):
  out = inspect_pictures(tmp_path, "--rows=2", FORCE_COLOR="1").stdout
  assert "\N{UPPER HALF BLOCK}" in out
  assert "static shapes (resolution)" in out
  # Without colours blocks say nothing: a line for each picture does.
  out = inspect_pictures(tmp_path, "--rows=2").stdout
  assert "\N{UPPER HALF BLOCK}" not in out
  told = [line for line in out.splitlines() if line.startswith("step=0 row=")]
  assert len(told) == 2
  for line in told:
    assert re.search(r" pixels=uint8\[\d\d, \d\d, 3\] \d+\.0\.\.\d+\.0", line)
    assert re.search(r" label=\d+", line)
    assert "sample_id=" in line
    assert "number=" not in line
  (plan,) = inspect_pictures(
    tmp_path, "--format=json", "--plan_only", "--rows=1"
  ).stdout.splitlines()
  assert "number" in json.loads(plan)
  source = json.loads(plan)["source"]
  found = inspect_pictures(
    tmp_path, "--format=json", "--plan_only", f"--document={source}/#7",
    "--count=12",
  ).stdout.splitlines()  # fmt: skip
  assert json.loads(found[-1])["document"] == 7
  lines = inspect_pictures(tmp_path, "--format=json", "--count=3").stdout
  records = [json.loads(line) for line in lines.splitlines()]
  assert {record["step"] for record in records} == {0, 1, 2}
  for record in records:
    assert record["bucket"] == f"{record['height']}x{record['width']}"
    assert record["pixels"]["shape"] == [record["height"], record["width"], 3]


def test_rows_of_text_in_buckets_are_shown_with_their_length(
  stdlib_store, tmp_path
):
  output = tmp_path / "rows.png"
  args = [
    "inspect_batches",
    "--config=configs/length_buckets.py:runlocal",
    f"--config.data.sources.stdlib.store={stdlib_store}",
    f"--config.data.sources.notes.store={stdlib_store}",
  ]
  shown = in_process.run_tool(*args, check=True)
  assert re.search(r"step 0: \d+ rows of (32|64), ", shown.stdout)
  in_process.run_tool(*args, f"--output={output}", check=True)
  found = np.asarray(Image.open(output))
  # A legend, a title, and rows of 8 pixels and one of paper.
  legend = pictures.legend()
  np.testing.assert_array_equal(found[: len(legend), : legend.shape[1]], legend)
  length = int(re.search(r"step 0: \d+ rows of (\d+), ", shown.stdout)[1])
  row = found[len(legend) + 4 + TITLE_HEIGHT :][:9, :length]
  assert (row[:8] == row[0]).all()
  assert (row[8] == 255).all()
  assert (row[0] != 255).any(axis=-1).all()
  for more in ((), ("--plan_only",)):
    rows = in_process.run_tool(
      *args, "--format=json", "--count=9", *more, check=True
    )
    buckets = set()
    for line in rows.stdout.splitlines():
      record = json.loads(line)
      buckets.add(record["bucket"])
      if not more:
        assert len(record["tokens"]) == int(record["bucket"])
    assert len(buckets) > 1
    assert buckets <= {"32", "64", "128", "256"}


def test_flags_of_what_is_printed_do_not_go_with_a_picture(tmp_path):
  printed = ["--plan_only", "--format=json"]
  ran = inspect_pictures(
    tmp_path, f"--output={tmp_path / 'x.png'}", *printed, check=False
  )
  assert ran.returncode == 1
  last = ran.stderr.strip().splitlines()[-1]
  assert last.startswith("error: `--output` must come without")
  for flag in printed:
    assert flag.partition("=")[0] in last
  assert not (tmp_path / "x.png").exists()


def test_samples_of_numbers_alone_are_told_and_not_drawn(tmp_path):
  path = tmp_path / "numbers"
  samples_array_record.write_samples(
    path,
    (
      (
        {"energy": np.asarray(i / 4 if i else np.nan)},
        {"height": 32, "width": 32, "label": i},
      )
      for i in range(9)
    ),
  )
  args = [
    "inspect_batches",
    "--config=configs/resolution_buckets.py:runlocal",
    *(
      f"--config.data.sources.{name}.store={path}" for name in drawings.DATASETS
    ),
    "--config.data.buckets.sizes=((32, 32),)",
    "--config.data.buckets.batch_sizes=()",
    "--config.data.buckets.fields=('energy',)",
  ]
  shown = in_process.run_tool(*args)
  assert shown.returncode == 0, shown.stderr[-2000:]
  assert "energy=" in shown.stdout
  assert "\N{UPPER HALF BLOCK}" not in shown.stdout
  rows = in_process.run_tool(*args, "--format=json", "--count=2")
  found = {}
  for line in rows.stdout.splitlines():
    record = json.loads(line, parse_constant=pytest.fail)
    found[record["sample_id"]] = record["energy"]
  assert all(v == (k / 4 if k else None) for k, v in found.items())
  drawn = in_process.run_tool(*args, f"--output={tmp_path / 'x.png'}")
  assert drawn.returncode == 1
  last = drawn.stderr.strip().splitlines()[-1]
  assert last.startswith("error: `config.data.buckets.fields` must name an arr")


def test_a_picture_of_a_run_without_buckets_is_an_error(stdlib_store):
  ran = inspect(
    f"--config.data.sources.stdlib.store={stdlib_store}",
    "--output=x.png",
    check=False,
  )
  assert ran.returncode == 1
  assert ran.stderr.strip().splitlines()[-1].startswith("error: `--output`")


def test_stores_without_a_tokenizer_are_shown_as_token_ids(tmp_path):
  path = stores_lib.make_array_records(
    tmp_path / "records", [[7, 8, 9] * 5, [40, 41] * 9], files=1
  )
  config = tmp_path / "config.py"
  config.write_text(
    "import ml_collections\n"
    "def get_config():\n"
    "  told = {'token_dtype': 'uint16', 'vocab_size': 50, 'pad_id': 0}\n"
    f"  source = {{'store': {path!r}, 'array_record': told,"
    " 'rows': {'kind': 'sequential'}}\n"
    "  return ml_collections.ConfigDict({'data': {'seq_len': 16,"
    " 'global_batch_size': 2, 'sources': {'records': source}}})\n"
  )
  args = ["inspect_batches", f"--config={config}"]
  out = in_process.run_tool(*args, check=True).stdout
  assert "7 8 9 7 8 9" in out
  (row, _) = in_process.run_tool(*args, "--format=json").stdout.splitlines()
  (span, other) = json.loads(row)["spans"]
  assert span["id"].endswith(":0")
  assert other["id"].endswith(":1")


def test_a_document_is_looked_up_by_id_and_by_number(data, stdlib_store):
  pipe = pipeline.build(data)
  steps = [pipe.plan(step) for step in range(40)]
  document = int(steps[4].document[3])
  holds = [np.flatnonzero(own.document == document) for own in steps]
  name = stores.open_store(stdlib_store).document_ids([document])[0]
  shown = [
    (step, row) for step in (3, 4, 5) for row in steps[step].row[holds[step]]
  ]
  for named in (name, f"#{document}"):
    args = [
      f"--config.data.sources.stdlib.store={stdlib_store}",
      f"--document=stdlib/{named}",
      "--step=3",
      "--count=3",
    ]
    out = inspect(*args, "--format=json", "--plan_only").stdout
    *rows, last = [json.loads(line) for line in out.splitlines()]
    assert set(rows[0]) == {"step", "row", "source", "spans"}
    assert [(own["step"], own["row"]) for own in rows] == shown
    assert last == {
      "source": "stdlib",
      "document": document,
      "id": name,
      "before": sum(map(len, holds[:3])),
      "next_step": next(i for i in range(6, 40) if len(holds[i])),
    }
  told = inspect(*args, "--rows=99").stdout
  assert told.count("step 4 row") == len(holds[4])
  assert f"stdlib/#{document} ({name}): in {len(shown)} rows of th" in told
  assert f"next at step {last['next_step']}" in told
  ran = inspect(*args[:1], "--document=stdlib/none.py", check=False)
  assert "error: `document` must be the id of a document" in ran.stderr


def follow(workdir, stdlib_store, *args):
  return inspect(
    f"--config.data.sources.stdlib.store={stdlib_store}",
    "--format=json",
    "--plan_only",
    f"--follow={workdir}",
    *args,
    check=False,
  )


def test_a_job_is_followed_to_its_end(tmp_path, stdlib_store, monkeypatch):
  looks = []

  def next_look(_):
    looks.append(reports[0].at(5 + len(looks)))
    if len(looks) == 3:
      reports[0].__exit__(None)

  monkeypatch.setattr("time.sleep", next_look)
  monkeypatch.setattr("time.monotonic", lambda: 10.0 * len(looks))
  (tmp_path / "job").mkdir()
  reports = [job.Report(str(tmp_path / "job"))]
  ran = follow(tmp_path / "job", stdlib_store)
  assert ran.returncode == 0, ran.stderr
  steps = [json.loads(line)["step"] for line in ran.stdout.splitlines()]
  assert steps == [5] * 8 + [6] * 8
  assert ran.stderr.splitlines()[-1] == "job finished at step 7"
  # A process that is gone ends it too, and so does Ctrl-C.
  (tmp_path / "job" / "job.json").write_text(
    json.dumps({
      "step": 3, "status": "running", "pid": 2**22 + 1,
      "host": socket.gethostname(),
    })
  )  # fmt: skip
  ran = follow(tmp_path / "job", stdlib_store)
  assert ran.stderr.splitlines()[-1] == "job gone at step 3"

  def interrupt(_):
    raise KeyboardInterrupt

  monkeypatch.setattr("time.sleep", interrupt)
  (tmp_path / "job" / "job.json").unlink()
  assert follow(tmp_path / "job", stdlib_store).returncode == 0


def test_a_job_is_followed_with_the_batch_sizes_that_its_state_tells(
  data, stdlib_store, tmp_path, monkeypatch
):
  data.global_batch_size = None
  data.batch_size_schedule = ((0, 8), (20, 4))
  pipe = pipeline.build(data)
  item = tmp_path / "job" / "checkpoints" / "25" / "input"
  item.mkdir(parents=True)
  (item / "input.json").write_bytes(state.encode(25, pipe.fingerprint, {}))

  def interrupt(_):
    raise KeyboardInterrupt

  monkeypatch.setattr("time.sleep", interrupt)
  ran = follow(
    tmp_path / "job", stdlib_store, "--config.data.global_batch_size=4"
  )
  assert "warning" not in ran.stderr
  rows = [json.loads(line) for line in ran.stdout.splitlines()]
  assert [own["step"] for own in rows] == [25] * 4
  assert [own["spans"][0]["start"] for own in rows] == [
    int(pipe.plan(25).start[pipe.plan(25).row == row][0]) for row in range(4)
  ]


def test_what_cannot_be_followed_is_an_error(tmp_path, stdlib_store):
  ran = follow(tmp_path / "none", stdlib_store)
  assert ran.returncode == 1
  last = ran.stderr.splitlines()[-1]
  assert last.startswith("error: the work directory of a job must exist, got")
  ran = follow(tmp_path, stdlib_store, "--step=3")
  assert "`--follow` must come without" in ran.stderr
  (tmp_path / "job.json").write_text("{")
  assert "must be what a trainer wrote" in follow(tmp_path, stdlib_store).stderr
