# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""tools/trace.py: steps, documents, and what two sides share."""

import json
import re

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.audit import document_lists
from chomp_data.audit import visits
from chomp_data.config import files
from chomp_data.stores import samples_array_record
from chomp_data.testing import stores as testing_stores
from tests import in_process

CONFIG = """
import ml_collections
def get_config(arg=None):
  config = ml_collections.ConfigDict()
  config.data = ml_collections.ConfigDict({
    "seq_len": 16, "global_batch_size": 3, "epochs": 4, "sources": SOURCES,
  })
  return config
"""


def trace(*arguments, status=0):
  done = in_process.run_tool("trace", *map(str, arguments))
  assert done.returncode == status, done.stderr
  return done


def records(*arguments, status=0):
  done = trace(*arguments, "--format=json", status=status)
  return [json.loads(line) for line in done.stdout.splitlines()]


def write_config(path, sources):
  path.write_text(CONFIG.replace("SOURCES", repr(sources)))
  return str(path)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  root = tmp_path_factory.mktemp("traced")
  rng = np.random.default_rng(0)
  texts = [rng.integers(2, 250, n) for n in (20, 7, 33, 5, 0, 12, 40)]
  testing_stores.make_store(
    root / "web", texts, ids=[f"w/{i}" for i in range(7)]
  )
  testing_stores.make_store(
    root / "books", texts[::-1][2:], ids=[f"b/{i}" for i in range(5)]
  )
  others = [rng.integers(2, 250, n) for n in (9, 0, 8)]
  testing_stores.make_store(root / "apart", others, ids=["x", "y", "z"])
  testing_stores.make_store(
    root / "reused", [others[0], others[0]], ids=["w/3", "q"]
  )
  rows = {"kind": "sequential"}
  for name, own in (("web", ("web", "apart")), ("other", ("books",))):
    sources = {n: {"store": str(root / n), "rows": rows} for n in own}
    write_config(root / f"{name}.py", sources)
  return root


def test_steps_are_told_span_by_span(root):
  config = root / "web.py"
  pipe = pipeline.build(files.load_config(str(config)).data)
  found = records(f"--config={config}", "--step=2:5")
  expected = []
  for step in (2, 3, 4):
    spans = pipe.plan(step)
    for i in range(len(spans)):
      name = pipe.source_names[spans.source[i]]
      document = int(spans.document[i])
      expected.append(
        {
          "step": step, "data_step": step, "row": int(spans.row[i]),
          "source": name, "document": document,
          "id": pipe.sources[name].store.document_ids([document])[0],
          "start": int(spans.start[i]), "length": int(spans.length[i]),
          "column": int(spans.column[i]),
        }
      )  # fmt: skip
  assert found == expected
  assert records(f"--config={config}", "--step=4") == [
    own for own in expected if own["step"] == 4
  ]
  assert "w/2" in trace(f"--config={config}", "--step=0:5").stdout


@pytest.mark.parametrize("name", ["web/w/2", "web/#2"])
def test_a_document_is_told_visit_by_visit(root, name):
  config = f"--config={root / 'web.py'}"
  pipe = pipeline.build(files.load_config(str(root / "web.py")).data)
  whole = [
    own
    for own in records(config, f"--step=0:{pipe.num_steps}")
    if (own["source"], own["document"]) == ("web", 2)
  ]
  numbered = [{**own, "exposure": i} for i, own in enumerate(whole, 1)]
  found = records(config, f"--document={name}", "--count=1000")
  assert found == numbered
  later = [own for own in numbered if own["step"] >= 5]
  found = records(config, f"--document={name}", "--from_step=5", "--count=2")
  assert found == later[:2]
  done = trace(config, f"--document={name}", "--from_step=5")
  before = [own for own in numbered if own["step"] < 5]
  last = before[-1]["step"]
  assert f"{len(before)} spans before step 5, the last in step {last}" in (
    done.stdout
  )


def test_parts_and_sentinels_of_a_rearranged_document_are_told(root, tmp_path):
  ids = {"prefix_id": 253, "suffix_id": 254, "middle_id": 255}
  rows = {"kind": "bin", "add_eos": True, "fim": {**ids, "rate": 1.0}}
  sources = {"web": {"store": str(root / "web"), "rows": rows}}
  path = write_config(tmp_path / "fim.py", sources)
  config = f"--config={path}"
  pipe = pipeline.build(files.load_config(path).data)
  steps = f"--step=0:{pipe.num_steps}"
  found = [own for own in records(config, steps) if own["document"] == 1]
  # 7 tokens and the EOS: one piece, in each of four epochs.
  assert [own["part"] for own in found] == ["prefix", "suffix", "middle"] * 4
  for number, own in enumerate(found):
    assert own["sentinels"] == 1
    middle = number % 3 == 2
    assert own["start"] + own["length"] - own["sentinels"] - middle <= 7
  for at in range(0, len(found), 3):
    assert (
      sum(own["length"] - own["sentinels"] for own in found[at : at + 3]) == 8
    )
  numbered = [{**own, "exposure": i} for i, own in enumerate(found, 1)]
  assert records(config, "--document=web/#1", "--count=1000") == numbered
  for asked in ("--document=web/#1", steps):
    shown = trace(config, asked).stdout
    assert "sentinels" in shown
    assert "part" in shown
    assert "suffix" in shown
  plain = {"kind": "bin", "add_eos": True}
  write_config(tmp_path / "fim.py", {"web": {**sources["web"], "rows": plain}})
  assert not any("sentinels" in own for own in records(config, "--step=0:5"))
  assert "sentinels" not in trace(config, "--step=0:5").stdout


def test_a_list_of_documents_is_answered_at_once(root, tmp_path, monkeypatch):
  """As one by one; tombstones are what the config takes."""
  config = f"--config={root / 'web.py'}"
  file = tmp_path / "list.jsonl"
  lines = [
    {"source": "web", "document": 2, "note": "leaked"},
    {"source": "apart", "id": "y"},
    {"source": "apart", "document": "x"},
  ]
  file.write_text("".join(json.dumps(line) + "\n" for line in lines))
  out = tmp_path / "removed.jsonl"
  asked = config, f"--documents={file}", "--from_step=5"
  *found, last = records(*asked, f"--tombstones={out}")
  assert [(o["source"], o["id"]) for o in found] == [
    ("web", "w/2"), ("apart", "y"), ("apart", "x"),
  ]  # fmt: skip
  for record in found:
    name = f"{record['source']}/#{record['document']}"
    visits_of_one = records(config, f"--document={name}", "--count=1000")
    assert record["exposures"] == len(visits_of_one)
    steps = [visit["step"] for visit in visits_of_one]
    assert record["first_step"] == min(steps, default=None)
    assert record["last_step"] == max(steps, default=None)
    assert record["exposures_before"] == sum(step < 5 for step in steps)
  assert found[0]["report"] == {"note": "leaked"}
  summary = last["summary"]
  assert summary["documents"] == 3
  assert summary["never_seen"] == 1
  assert summary["tombstones"] == [[5, str(out)]]
  done = trace(*asked, f"--tombstones={out}")
  assert "3 documents in steps" in done.stdout
  assert f"config.data.tombstones = ((5, '{out}'),)" in done.stdout
  data = files.load_config(str(root / "web.py")).data
  data.tombstones = ((5, str(out)),)
  pipe = pipeline.build(data)
  for record in found:
    counts = visits.exposures(pipe, record["source"], 5, pipe.num_steps)
    assert not counts[record["document"]]
  # Before anything is counted, which may take long.
  with monkeypatch.context() as patch:
    patch.setattr(document_lists, "answer", None)
    done = trace(*asked, f"--tombstones={file}", status=1)
  assert "which is the list of `--documents`" in done.stderr
  assert list(map(json.loads, file.read_text().splitlines())) == lines
  short = records(*asked, "--steps=6")[-1]["summary"]
  assert short["edges"] == list(range(7))


def test_samples_of_arrays_are_told_by_number(tmp_path):
  samples = [
    ({"pixels": np.zeros((4, 4), np.uint8)}, {"height": 4, "width": 4})
  ] * 9
  samples_array_record.write_samples(tmp_path / "photos", samples)
  path = tmp_path / "photos.py"
  path.write_text(
    CONFIG.replace('"seq_len": 16, ', "").replace(
      '"sources"',
      '"buckets": {"kind": "resolution", "fields": ("pixels",)}, "sources"',
    )
  )
  sources = {"photos": {"store": str(tmp_path / "photos")}}
  path.write_text(path.read_text().replace("SOURCES", repr(sources)))
  whole = records(f"--config={path}", "--step=0:12")
  assert sorted(own["document"] for own in whole[:9]) == list(range(9))
  found = records(f"--config={path}", "--document=photos/#4", "--from_step=3")
  later = [o for o in whole if o["document"] == 4 and o["step"] >= 3]
  assert found == [{**o, "exposure": i} for i, o in enumerate(later, 2)]


def test_overlap_is_empty_or_says_where(root):
  """By id, by tokens whatever the ids, and of selected documents only."""
  config, other = root / "web.py", root / "other.py"
  found = records("--overlap", config, other, status=1)
  assert [
    (own["by"], own["source"], own["id"], own["other_source"], own["other_id"])
    for own in found
  ] == [
    # The empty document of both is none.
    ("content", "web", f"w/{i}", "books", f"b/{j}")
    for i, j in ((3, 1), (2, 2), (1, 3), (0, 4))
  ]
  assert not records("--overlap", config, other, "--by=id")
  assert not records("--overlap", root / "reused", other)
  found = records("--overlap", config, root / "reused", status=1)
  assert [(own["by"], own["id"], own["other_id"]) for own in found] == [
    ("id", "w/3", "w/3"),
    ("content", "x", "w/3"),
    ("content", "x", "q"),
  ]
  done = trace("--overlap", other, root / "apart")
  assert "share no document" in done.stdout
  splices = {"kind": "multi_splice", "num_docs": 1, "content_length": 8}
  path = write_config(
    root / "few.py", {"web": {"store": str(root / "web"), "rows": splices}}
  )
  found = records("--overlap", path, root / "web", status=1)
  assert [own["id"] for own in found] == ["w/6"]
  done = trace("--overlap", path, root / "web", status=1)
  assert "1 documents are in" in done.stdout


def test_tokens_of_two_tokenizers_are_not_compared(root, tmp_path):
  testing_stores.make_store(tmp_path / "large", [[5, 6]], vocab_size=300)
  with_ids = "--overlap", str(root / "web"), str(tmp_path / "large")
  assert "share no document" in trace(*with_ids).stdout
  done = trace(*with_ids, "--by=content", status=1)
  assert "`--by` must be 'id'" in done.stderr


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    (("--step=5:99999",), r"below the run's .* got step 99998"),
    (("--step=3:3",), "A below B"),
    (("--step=x",), "must be a step or A:B, got 'x'"),
    (("--document=web/none",), "none of its 7 documents"),
    (("--document=web/#1", "--from_step=99999"), "`--from_step` must be below"),
    (("--document=web/#1", "--step=1"), "got --step and --document"),
    (("--exposures", "--document=web/#1"), "must come with --step, got --doc"),
    (("--documents=nowhere",), "`--documents` must be a file .*'nowhere'"),
    (("--steps=3", "--step=1"), "--steps must come with --documents, got --st"),
    (("--tombstones=a", "--step=1"), "--tombstones must come with --documents"),
    (
      (f"--documents={__file__}", "--from_step=7", "--steps=5"),
      "at most the 5 steps .* got 7",
    ),
    ((), "must be given, got none"),
    (("--overlap",), "two configs, or a config and a store, got none"),
    (("--overlap", "a", "nowhere"), "got a, which is none"),
  ],
)
def test_what_cannot_be_answered_is_one_line(root, flags, message):
  done = in_process.run_tool("trace", f"--config={root / 'web.py'}", *flags)
  assert done.returncode == 1
  assert re.search(message, done.stderr), done.stderr
