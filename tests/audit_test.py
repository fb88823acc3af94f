# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Coverage: what a run read of each document, against a slow count."""

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.audit import coverage as coverage_lib
from chomp_data.audit import steps as steps_lib
from chomp_data.plans import ledger
from chomp_data.testing import stores as testing_stores

LENGTHS = [60, 35, 90, 8]


@pytest.fixture
def pipe(tmp_path):
  testing_stores.make_store(
    tmp_path / "store",
    [np.arange(n) for n in LENGTHS],
    ids=["a.txt", "b.txt", "c.txt", "d.txt"],
    vocab_size=256,
    pad_id=0,
  )

  def build(**rows):
    return pipeline.build(
      {
        "seq_len": 16,
        "global_batch_size": 4,
        "epochs": 2,
        "sources": {
          "text": {
            "store": str(tmp_path / "store"),
            "rows": {
              "kind": "multi_splice",
              "num_docs": 3,
              "content_length": 12,
              **rows,
            },
            "shuffle": {"kind": "full"},
          }
        },
      }
    )

  return build


@pytest.mark.parametrize(
  ("mode", "block_rows"), [("coverage_balanced", 1), ("cyclic_roll", 24)]
)
def test_coverage_equals_a_slow_count(pipe, monkeypatch, mode, block_rows):
  monkeypatch.setattr(steps_lib, "BLOCK_ROWS", block_rows)
  monkeypatch.setattr(coverage_lib, "LEAST_WAITING", 2)
  run = pipe(content_start_mode=mode, content_stride=5)
  steps = 9
  (found,) = coverage_lib.coverage(run, steps)
  seen = {d: np.zeros(n, int) for d, n in enumerate(LENGTHS)}
  rows = dict.fromkeys(seen, 0)
  columns = {d: set() for d in seen}
  for step in range(steps):
    spans = run.plan(step)
    for row in range(4):
      pick = np.flatnonzero(spans.row == row)
      document = int(spans.document[pick[0]])
      rows[document] += 1
      columns[document].add(int(spans.column[pick[0]]))
      for i in pick:
        low = int(spans.start[i])
        seen[document][low : low + int(spans.length[i])] += 1
  documents = sorted(d for d in rows if rows[d])
  assert found.document.tolist() == documents
  assert found.rows.tolist() == [rows[d] for d in documents]
  assert found.tokens.tolist() == [int(seen[d].sum()) for d in documents]
  assert found.distinct.tolist() == [
    int((seen[d] > 0).sum()) for d in documents
  ]
  assert found.columns.tolist() == [len(columns[d]) for d in documents]
  assert found.length.tolist() == [LENGTHS[d] for d in documents]


def test_blocks_of_steps_grow_also_after_a_short_group(pipe, monkeypatch):
  groups, asked = ledger.groups, []

  def cut(plan, first, last, rows):
    """Groups that end before every seventh step."""
    asked.append(rows)
    return groups(plan, first, min(last, first - first % 7 + 7), rows)

  monkeypatch.setattr(ledger, "groups", cut)
  monkeypatch.setattr(steps_lib, "BLOCK_ROWS", 100)
  run = pipe()
  blocks = [steps for steps, _ in steps_lib.walk(run, 0, run.num_steps)]
  assert [i for steps in blocks for i in steps] == list(range(run.num_steps))
  assert len(blocks) > 3
  # Steps of 4 rows.
  assert asked == [1, 16, 64, *[100] * (len(blocks) - 3)]


def test_the_report_names_documents_by_id(pipe):
  run = pipe()
  text = coverage_lib.report(run, coverage_lib.coverage(run, 5), most=2)
  assert "coverage of text: 3 documents" in text
  assert "c.txt: rows=" in text
  assert "1 more documents" in text


@pytest.mark.parametrize(
  ("rows", "nats", "text"),
  [
    ([6], 0.0, "0.000 of at most 0.000 nats"),
    ([2, 2, 2, 2], np.log(4), "1.386 of at most 1.386 nats"),
    # -(3/4 log 3/4 + 1/4 log 1/4), and a document without a row.
    ([3, 1, 0], 0.5623351446, "0.562 of at most 1.099 nats"),
    ([], 0.0, "0.000 of at most 0.000 nats"),
  ],
)
def test_the_report_tells_the_entropy_of_the_documents_shares(
  pipe, rows, nats, text
):
  rows, zeros = np.asarray(rows, np.int64), np.zeros(len(rows), np.int64)
  found = coverage_lib.Coverage(
    "text", np.arange(len(rows)), zeros + 1, rows, rows, zeros, zeros
  )
  assert found.entropy == pytest.approx(nats, abs=1e-9)
  assert f"entropy of shares {text}" in coverage_lib.report(pipe(), [found])


def test_documents_with_equal_rows_have_the_largest_entropy(pipe):
  run = pipe(balance_mode="by_document")
  (found,) = coverage_lib.coverage(run, run.num_steps)
  assert found.entropy == pytest.approx(np.log(3), rel=1e-4)
  longest_most = pipe(balance_mode="by_coverage")
  (other,) = coverage_lib.coverage(longest_most, longest_most.num_steps)
  assert 0.5 < other.entropy < np.log(3) - 0.01


@pytest.mark.parametrize(
  ("kind", "added"), [("sequential", (True, True)), ("bin", (False, True))]
)
def test_added_tokens_are_none_of_a_document(tmp_path, kind, added):
  """Only what the store has is covered: at most all of it, and all of it."""
  lengths = [*LENGTHS, 1, 16, 15, 14]
  documents = [np.arange(3, 3 + n) for n in lengths]
  testing_stores.make_store(tmp_path / "store", documents)
  bos, eos = added
  rows = {"kind": kind, "add_bos": bos, "add_eos": eos, "bos_token_id": 2}
  if kind == "sequential":
    rows["tail"] = "pad"
  run = pipeline.build(
    {
      "seq_len": 16,
      "global_batch_size": 1,
      "epochs": 1,
      "sources": {"text": {"store": str(tmp_path / "store"), "rows": rows}},
    }
  )
  (found,) = coverage_lib.coverage(run, run.num_steps)
  assert found.document.tolist() == list(range(len(lengths)))
  assert found.distinct.tolist() == lengths
  assert found.tokens.tolist() == lengths
  whole = sum(lengths)
  text = coverage_lib.report(run, [found])
  assert f"{whole} tokens read, {whole} of {whole} distinct" in text
  # Rows and columns by what batches hold, in which added ids are below 3.
  rows, columns = np.zeros(len(lengths), int), [set() for _ in lengths]
  for step in range(run.num_steps):
    tokens = run.batch(step)["tokens"][0]
    spans = run.plan(step)
    for number in np.unique(spans.document).tolist():
      own = spans.document == number
      held = np.zeros(16, bool)
      for low, high in zip(spans.column[own], spans.ends()[own], strict=True):
        held[low:high] = tokens[low:high] >= 3
      if held.any():
        rows[number] += 1
        columns[number].add(int(held.argmax()))
  assert found.rows.tolist() == rows.tolist()
  assert found.columns.tolist() == [len(own) for own in columns]
