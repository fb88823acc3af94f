# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers about lists of documents, against every step of a run counted."""

import json
import os

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.audit import document_lists
from chomp_data.audit import steps as steps_lib
from chomp_data.plans import answers
from chomp_data.rows import spans as spans_lib
from chomp_data.testing import stores as testing_stores
from tests import laws
from tests.audit import visits_test

STEPS = visits_test.STEPS
SENTINEL = spans_lib.SENTINEL
paths = visits_test.paths

# Accounts are of the plan: of targets within a row, before `train_on_eos`.
AS_COUNTED = {"lookahead": False, "train_on_eos": True}


def write(path, lines):
  path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
  return str(path)


def lengths_of(pipe, name):
  """Returns the tokens of each document; 0 of each sample of arrays."""
  count = answers.of(pipe.run_plan).num_documents(name)
  if not pipe.sources:
    return [0] * count
  return pipe.sources[name].store.bounds(np.arange(count))[1].tolist()


def lines_of(pipe):
  """Returns lines: documents, parts of them, several of one, in no order."""
  lines = []
  for name in pipe.source_names:
    for document, length in enumerate(lengths_of(pipe, name)):
      about = {"source": name, "document": document}
      if document % 3 != 2:
        lines.append(about)
      if length > 3 and document % 4 < 2:
        lines.append({**about, "start": 1, "length": length // 2})
      if length > 3 and document % 4 == 2:
        half = length // 2
        lines.append({**about, "start": half, "length": length - half})
      if length > 6 and document % 4 == 1:
        lines.append({**about, "start": length // 3, "length": length // 3})
  return sorted(lines, key=lambda line: line["document"])


def counted(pipe, parts, steps):
  """Counts spans and trained tokens of parts by step, from single batches.

  Args:
    pipe: The run.
    parts: (source, document, first token, token after the last) each; None for
      the end of a whole document.
    steps: How many steps.

  Returns:
    int64[steps, len(parts)] of spans and of trained tokens, and of all trained
    tokens, int64[steps].
  """
  exposures, trained = np.zeros((2, steps, len(parts)), int)
  every, named = np.zeros(steps, int), {}
  for number, (source, document, begin, end) in enumerate(parts):
    named.setdefault((source, document), []).append((number, begin, end))
  lengths = {name: lengths_of(pipe, name) for name in pipe.source_names}
  for step in range(steps):
    spans = steps_lib.spans_of(pipe, step).live()
    mask = None
    if pipe.sources:
      mask = pipe.canonical(step)["loss_mask"] > 0
      every[step] = mask.sum()
    joined, sentinels = spans.joined(), spans.sentinels()
    if joined is not None:
      every[step] = 0
    for at in range(len(spans)):
      source = pipe.source_names[spans.source[at]]
      document = int(spans.document[at])
      bos, eos = (
        0 if added is None else int(added[at] > 0)
        for added in (spans.added_before, spans.added_after)
      )
      column, first = int(spans.column[at]), int(spans.start[at])
      tokens = first + np.arange(-bos, int(spans.length[at]) - bos)
      stored = np.arange(len(tokens))
      stored = (stored >= bos) & (stored < len(tokens) - eos)
      if eos:  # It is removed with the last token of the document.
        tokens[-1] = max(lengths[source][document] - 1, 0)
        # In a rearranged piece, no token of the document may be beside it.
        stored[-1] |= joined is not None and joined[at]
      is_target = np.zeros(len(tokens), bool)
      if mask is not None:
        # A position is trained on the token after it.
        is_target[1:] = mask[spans.row[at], column : column + len(tokens) - 1]
      unmatched = 0
      if joined is not None and (joined[at] or sentinels[at]):
        # Of a rearranged piece all tokens are targets but one: the first of the
        # span that opens it, if it has any. Sentinels are not counted.
        is_target[:] = True
        is_target[:1] &= not (bos and spans.added_before[at] >= SENTINEL)
        is_target[-1:] &= not (eos and spans.added_after[at] >= SENTINEL)
        if not joined[at]:
          unmatched = int(not is_target.any())
          is_target[np.flatnonzero(is_target)[:1]] = False
      if joined is not None:
        every[step] += is_target.sum() - unmatched
      for number, begin, end in named.get((source, document), ()):
        inside = np.ones(len(tokens), bool)
        if end is not None:
          inside = (tokens >= begin) & (tokens < end)
          if not (inside & stored).any():
            continue
        exposures[step, number] += 1
        trained[step, number] += (is_target & inside).sum()
        trained[step, number] -= unmatched if end is None else 0
  return exposures, trained, every


def parts_of(lines, pipe):
  """Returns what `counted` takes, of lines."""
  lengths = {name: lengths_of(pipe, name) for name in pipe.source_names}
  parts = []
  for line in lines:
    source, document, start = (
      line["source"],
      line["document"],
      line.get("start"),
    )
    end = None if start is None else start + line["length"]
    if (start, end) == (0, lengths[source][document]):
      end = None
    parts.append((source, document, start or 0, end))
  return parts


def check(data, directory, steps, middle, bins=20):
  """Compares an answer with a count, and the run without these documents."""
  pipe = pipeline.build(data)
  steps = steps if pipe.num_steps is None else min(steps, pipe.num_steps)
  middle = min(middle, steps - 1)
  lines = lines_of(pipe)
  file = write(directory / "list.jsonl", lines)
  listed = document_lists.answer(pipe, file, steps, middle, bins)
  edges = listed.summary["edges"]
  assert [edges[0], edges[-1]] == [0, steps]
  parts, summed = parts_of(lines, pipe), summed_parts(pipe, listed)
  exposures, trained, every = counted(pipe, [*parts, *summed], steps)
  for number, (line, record) in enumerate(
    zip(lines, listed.records, strict=True)
  ):
    spans, tokens = exposures[:, number], trained[:, number]
    read = np.flatnonzero(spans)
    wanted = {
      "line": number + 1,
      "exposures": spans.sum(),
      "exposures_before": spans[:middle].sum(),
      "trained_tokens": tokens.sum(),
      "trained_tokens_before": tokens[:middle].sum(),
      "first_step": read[0] if len(read) else None,
      "last_step": read[-1] if len(read) else None,
      "histogram": np.add.reduceat(spans, edges[:-1]).tolist(),
    }
    assert {name: record[name] for name in wanted} == wanted, line
  counts = exposures[:, len(parts) :], trained[:, len(parts) :]
  check_sums(listed, lines, *counts, every if pipe.sources else None, middle)
  check_tombstones(data, pipe, listed, directory, steps, middle)


def summed_parts(pipe, listed):
  """Returns the parts of an answer, each token of the list in one of them."""
  parts = [
    {"source": name, "document": document, "start": start, "length": length}
    for name, rows in listed.parts.items()
    for document, start, length in rows.tolist()
  ]
  if pipe.sources:
    return parts_of(parts, pipe)
  return [(part["source"], part["document"], 0, None) for part in parts]


def check_sums(listed, lines, exposures, trained, every, middle):
  wanted = {
    "documents": len({(line["source"], line["document"]) for line in lines}),
    "exposures": exposures.sum(),
    "exposures_before": exposures[:middle].sum(),
    "trained_tokens": trained.sum(),
    "trained_tokens_before": trained[:middle].sum(),
  }
  assert {name: listed.summary[name] for name in wanted} == wanted
  if every is not None:
    for field, end in (
      ("trained_share", len(every)),
      ("trained_share_before", middle),
    ):
      share = trained[:end].sum() / max(every[:end].sum(), 1)
      assert listed.summary[field] == share


def check_tombstones(data, pipe, listed, directory, steps, middle):
  """They leave what is before their step, and nothing after it."""
  path = str(directory / "removed.jsonl")
  if not pipe.sources:
    with pytest.raises(schema.ConfigError, match="unset for samples"):
      document_lists.write_tombstones(pipe, listed, path, middle)
    return
  files = document_lists.write_tombstones(pipe, listed, path, middle)
  without = pipeline.build({**data, "tombstones": files})
  file = str(directory / "list.jsonl")
  after = document_lists.answer(without, file, steps, middle)
  for before, record in zip(listed.records, after.records, strict=True):
    for field in ("exposures", "trained_tokens"):
      assert record[field] == before[f"{field}_before"], record
    assert record["last_step"] is None or record["last_step"] < middle
  parts = parts_of(lines_of(pipe), pipe)
  exposures, _, _ = counted(without, parts, steps)
  assert not exposures[middle:].any()


def test_an_answer_is_that_of_every_step_counted(paths, tmp_path_factory):
  directory = tmp_path_factory.mktemp("lists")

  @laws.examples(24)
  @hypothesis.given(
    visits_test.of_any(paths),
    st.integers(0, STEPS),
    st.sampled_from((1, 3, 20)),
    st.sampled_from((None, 40)),
  )
  def law(data, middle, bins, batch_size):
    if batch_size is not None and "global_batch_size" in data:
      # Several epochs a step.
      data = {**data, "global_batch_size": batch_size}
    data = {**data, **({"lookahead": False} if "seq_len" in data else {})}
    try:
      pipeline.build(data)
    except ValueError:
      hypothesis.reject()
    check(data, directory, STEPS, middle, bins)

  law()


def test_epochs_that_leave_out_other_samples_are_counted(tmp_path):
  """Buckets that do not divide into batches: each epoch drops other samples."""
  rng = np.random.default_rng(0)
  documents = [rng.integers(3, 250, n) for n in rng.integers(1, 30, 41)]
  testing_stores.make_store(tmp_path / "a", documents)
  data = {
    "seed": 3,
    "epochs": 20,
    "remainder": "drop",
    "sources": {"a": {"store": str(tmp_path / "a")}},
    "mix": {"weights": {"a": 1}},
    "buckets": {
      "kind": "length",
      "lengths": (8, 16, 32),
      "tokens_per_batch": 64,
    },
  }
  steps = pipeline.build(data).num_steps
  check(data, tmp_path, steps, steps // 3, bins=7)


@pytest.fixture
def small(tmp_path):
  """Returns a config of two sources, and writes their stores."""
  texts = [np.arange(2, 2 + n) for n in (20, 7, 33, 5, 0, 12, 40)]
  testing_stores.make_store(
    tmp_path / "web", texts, ids=[f"w/{i}" for i in range(7)]
  )
  testing_stores.make_store(tmp_path / "books", texts[:3], ids=["x", "y", "y"])
  rows = {"kind": "sequential"}
  return {
    "seq_len": 16,
    "global_batch_size": 3,
    "epochs": 4,
    "sources": {
      name: {"store": str(tmp_path / name), "rows": rows}
      for name in ("web", "books")
    },
  }


def test_a_report_is_joined_with_exposures(small, tmp_path):
  """Lines of any fields, by number and id, by id, several of one document."""
  lines = [
    {"by": "content", "source": "web", "document": 2, "id": "w/2",
     "other_source": "held", "other_document": 3, "other_id": "q"},
    {"source": "web", "id": "w/4", "score": 0.5},
    {"source": "books", "document": "x"},
    {"source": "web", "document": "w/2", "id": None, "score": 1},
  ]  # fmt: skip
  pipe = pipeline.build(small)
  file = write(tmp_path / "report.jsonl", lines)
  listed = document_lists.answer(pipe, file, pipe.num_steps, 0)
  assert [
    (record["source"], record["document"], record["id"])
    for record in listed.records
  ] == [("web", 2, "w/2"), ("web", 4, "w/4"), ("books", 0, "x"),
        ("web", 2, "w/2")]  # fmt: skip
  assert [record["report"] for record in listed.records] == [
    {"by": "content", "other_source": "held", "other_document": 3,
     "other_id": "q"},
    {"score": 0.5}, {}, {"score": 1},
  ]  # fmt: skip
  first, empty, other, again = listed.records
  assert first["exposures"] == again["exposures"] > 0
  assert empty["exposures"] == 0
  assert empty["first_step"] is None
  # What two lines name counts once.
  total = first["exposures"] + other["exposures"]
  assert listed.summary["exposures"] == total
  assert listed.summary["documents"] == 3
  assert listed.summary["never_seen"] == 1


@pytest.mark.parametrize(
  ("line", "message"),
  [
    ("nonsense", r"list.jsonl:2: .* got 'nonsense'"),
    ('{"source": "wet", "document": 1}', r"list.jsonl:2: .* got 'wet'.*web"),
    ('{"source": "web"}', r"list.jsonl:2: `document` .* got None"),
    ('{"source": "web", "document": 7}', r"list.jsonl:2: .* 7 documents"),
    ('{"source": "web", "document": -1}', r"list.jsonl:2: .* got -1"),
    ('{"source": "web", "id": "w/9"}', r"list.jsonl:2: .* got 'w/9'"),
    ('{"source": "books", "id": "y"}', r"list.jsonl:2: .*'y', the id of 2"),
    (
      '{"source": "web", "document": 2, "id": "w/3"}',
      r"list.jsonl:2: `id` .* which is 'w/2', got 'w/3'",
    ),
    (
      '{"source": "web", "document": 1, "start": 3, "length": 9}',
      r"list.jsonl:2: `start` and `length` .* 7 tokens .* got 3 and 9",
    ),
  ],
)
def test_a_wrong_line_is_told_by_file_line_and_value(
  small, tmp_path, line, message
):
  (tmp_path / "list.jsonl").write_text(
    f'{{"source": "web", "document": 1}}\n{line}\n'
  )
  pipe = pipeline.build(small)
  with pytest.raises(schema.ConfigError, match=message):
    document_lists.answer(pipe, str(tmp_path / "list.jsonl"), 3, 0)


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85"])
def test_only_a_line_feed_ends_a_line(small, tmp_path, character):
  """Whatever else may end a line stays in the strings of a report."""
  text = f"one{character}two"
  lines = [
    {"source": "web", "document": 1, "text": text},
    {"source": "web", "document": 7},
  ]
  file = tmp_path / "list.jsonl"
  written = [json.dumps(line, ensure_ascii=False) for line in lines]
  file.write_bytes("\r\n".join(written).encode())
  pipe = pipeline.build(small)
  with pytest.raises(schema.ConfigError, match=r"list.jsonl:2: .* got 7"):
    document_lists.answer(pipe, str(file), 3, 0)
  file.write_bytes(f"{written[0]}\r\n\r\n".encode())
  listed = document_lists.answer(pipe, str(file), 3, 0)
  assert [record["report"] for record in listed.records] == [{"text": text}]


def test_a_list_without_lines_is_an_error(small, tmp_path):
  file = write(tmp_path / "list.jsonl", [])
  with pytest.raises(schema.ConfigError, match=r"got none in .*list.jsonl"):
    document_lists.answer(pipeline.build(small), file, 3, 0)


def test_tombstones_of_the_same_step_are_joined(small, tmp_path):
  """The run has one file for each step, and none is replaced by accident."""
  first = write(
    tmp_path / "first.jsonl",
    [
      {"source": "web", "document": 1},
      {"source": "web", "document": 2, "start": 5, "length": 9},
    ],
  )
  data = {**small, "tombstones": ((2, first), (9, first))}
  pipe = pipeline.build(data)
  lines = [
    {"source": "web", "document": 2, "start": 0, "length": 6},
    {"source": "books", "document": 0},
  ]
  file = write(tmp_path / "list.jsonl", lines)
  listed = document_lists.answer(pipe, file, pipe.num_steps, 2)
  out = str(tmp_path / "out.jsonl")
  files = document_lists.write_tombstones(pipe, listed, out, 2)
  assert files == ((2, out), (9, first))
  written = (tmp_path / "out.jsonl").read_text().splitlines()
  assert list(map(json.loads, written)) == [
    {"source": "books", "document": 0},
    {"source": "web", "document": 1},
    {"source": "web", "document": 2, "start": 0, "length": 14},
  ]
  pipeline.build({**data, "tombstones": files})
  with pytest.raises(schema.ConfigError, match="for data step 9"):
    document_lists.write_tombstones(
      pipeline.build({**data, "tombstones": ((9, out),)}), listed, out, 2
    )


def test_tombstones_replace_no_list_and_no_device(small, tmp_path):
  """A file has its name once it is complete."""
  lines = [{"source": "web", "document": 2, "score": 0.5}]
  file = write(tmp_path / "list.jsonl", lines)
  (tmp_path / "link.jsonl").symlink_to(file)
  pipe = pipeline.build(small)
  listed = document_lists.answer(pipe, file, pipe.num_steps, 2)
  for path, message in (
    (file, "which is the list of `--documents`"),
    (str(tmp_path / "link.jsonl"), "which is the list of `--documents`"),
    (os.devnull, "a new or a regular file"),
  ):
    with pytest.raises(schema.ConfigError, match=message):
      document_lists.write_tombstones(pipe, listed, path, 2)
  assert (tmp_path / "list.jsonl").read_text() == f"{json.dumps(lines[0])}\n"
  # A reader of the old file does not see a part of the new one.
  out = tmp_path / "out.jsonl"
  out.write_text("before")
  with out.open() as reader:
    document_lists.write_tombstones(pipe, listed, str(out), 2)
    assert reader.read() == "before"
  assert json.loads(out.read_text()) == {"source": "web", "document": 2}
  assert {path.name for path in tmp_path.glob("*out*")} == {"out.jsonl"}


def test_a_list_of_a_run_without_an_end_is_counted_at_once(small, tmp_path):
  """Epochs that hold the same spans are counted together."""
  data = {**small, "epochs": None, "global_batch_size": 64}
  data["mix"] = {"kind": "weighted", "weights": {"web": 2, "books": 1}}
  pipe = pipeline.build(data)
  file = write(tmp_path / "list.jsonl", [{"source": "web", "document": 2}])
  short = document_lists.answer(pipe, file, 300, 0).records[0]
  far = document_lists.answer(pipe, file, 3 * 10**9, 0).records[0]
  assert short["exposures"] > 1_000
  ratio = far["exposures"] / short["exposures"]
  assert ratio == pytest.approx(10**7, rel=1e-2)
  assert far["first_step"] == short["first_step"] == 0
  assert far["last_step"] == 3 * 10**9 - 1
