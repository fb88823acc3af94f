# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How often documents are read, against every step planned.

Parts of documents are located alike in dense and in sparse lists.
"""

import dataclasses

import numpy as np
import pytest

import chomp_data
from chomp_data.audit import visits
from chomp_data.plans import occurrences
from chomp_data.splice import source as splice_source
from chomp_data.testing import stores as testing_stores


@pytest.mark.parametrize(
  "document", [[], [0, 1, 2], [0, 0, 2, 5], [3, 3], [7, 1_000], [10**12]]
)
def test_parts_of_documents_are_found_in_dense_and_sparse_lists(document):
  parts = occurrences.whole(np.asarray(document, np.int64))
  asked = np.asarray([5, 0, 2, 3, 1, 7, 2, 1_000, 9, 10**12, 8], np.int64)
  first, end = parts.of(asked)
  for number, low, high in zip(asked, first, end, strict=True):
    assert document[low:high] == [number] * document.count(number)
    assert high - low == document.count(number)


RUNS = {
  "sequential": {"kind": "sequential"},
  "reshuffled": {"kind": "sequential", "shuffle_documents": "full"},
  "ffd": {"kind": "bin", "packing_buffer_docs": 4},
  "fim": {
    "kind": "bin", "add_eos": True,
    "fim": {"rate": 0.5, "prefix_id": 60, "suffix_id": 61, "middle_id": 62},
  },
  "windows": {"kind": "windows", "stride": 4},
  "rolled": {
    "kind": "multi_splice", "num_docs": 3, "content_length": 6,
    "content_start_mode": "cyclic_roll", "offset_stride": 4,
  },
  "slid": {
    "kind": "multi_splice", "num_docs": 3, "content_length": 6,
    "content_start_mode": "slide_within", "epoch_length": 9,
  },
  "balanced": {
    "kind": "multi_splice", "num_docs": 3, "content_length": 6,
    "epoch_length": 9, "shuffle_content": True,
  },
}  # fmt: skip


def run(tmp_path, rows, shuffle="full", **fields):
  lengths = 300, 7, 0, 40, 22
  store = testing_stores.make_store(
    tmp_path / "text", [np.arange(n) % 50 for n in lengths]
  )
  source = {
    "store": str(store.path), "rows": RUNS[rows], "shuffle": {"kind": shuffle}
  }  # fmt: skip
  return chomp_data.build(
    {
      "seq_len": 16,
      "global_batch_size": 3,
      "epochs": None,
      "sources": {"text": source},
      **fields,
    }
  )


def planned_exposures(pipe, first, last):
  """Returns the live spans of each document, from every step planned."""
  counts = np.zeros(5, np.int64)
  for step in range(first, last):
    spans = pipe.run_plan.planned(step).spans.live()
    np.add.at(counts, spans.document, 1)
  return counts.tolist()


@pytest.mark.parametrize("shuffle", ["none", "full"])
@pytest.mark.parametrize("rows", RUNS)
def test_one_document_is_counted_as_all_are(
  tmp_path, monkeypatch, rows, shuffle
):
  monkeypatch.setattr(occurrences, "BLOCK", 5)
  pipe = run(tmp_path, rows, shuffle, skip=((4, 9), (30, 31)))
  for first, last in ((0, 0), (0, 1), (2, 7), (0, 70), (25, 61)):
    expected = planned_exposures(pipe, first, last)
    assert visits.exposures(pipe, "text", first, last).tolist() == expected
    for document in range(5):
      one = occurrences.whole(np.asarray([document]))
      counted = occurrences.Occurrences(pipe.run_plan, "text", one)
      (count,) = counted.exposures(first, last)
      assert count == expected[document]


@pytest.mark.parametrize("rows", RUNS)
def test_spans_of_removed_parts_are_counted_by_epoch(tmp_path, rows):
  """Epochs with as many spans of a document may hold other tokens of it."""
  lines = tmp_path / "removed.jsonl"
  lines.write_text(
    '{"source": "text", "document": 0, "start": 20, "length": 120}\n'
    '{"source": "text", "document": 4}\n'
  )
  pipe = run(tmp_path, rows, tombstones=((5, str(lines)),))
  expected = planned_exposures(pipe, 0, 90)
  assert visits.exposures(pipe, "text", 0, 90).tolist() == expected
  for document in range(5):
    trail = visits.Visits(pipe, "text", document)
    assert trail.count_before(90) == expected[document]


@pytest.mark.parametrize("removed", [6, 12, 20])
def test_spans_that_move_from_epoch_to_epoch_are_counted_by_epoch(
  tmp_path, monkeypatch, removed
):
  """A source may repeat its numbers of spans, but not what they hold."""
  plan = splice_source.SpliceSource.plan

  def moved(self, rows):
    spans = plan(self, rows)
    epoch = self.epochs.locate(rows)[0][spans.row]
    by = np.minimum(2 * (epoch % 4), spans.remaining)
    return dataclasses.replace(
      spans,
      start=spans.start + by,
      offset=spans.offset + by,
      remaining=spans.remaining - by,
    )

  monkeypatch.setattr(splice_source.SpliceSource, "plan", moved)
  store = testing_stores.make_store(
    tmp_path / "text", [np.arange(n) % 50 for n in (30, 17, 25)]
  )
  rows = {"kind": "splice", "content_length": 6, "epoch_length": 9}
  lines = tmp_path / "removed.jsonl"
  lines.write_text(
    f'{{"source": "text", "document": 0, "start": {removed}, "length": 1}}\n'
  )
  pipe = chomp_data.build(
    {
      "seq_len": 16,
      "global_batch_size": 3,
      "epochs": None,
      "tombstones": ((5, str(lines)),),
      "sources": {
        "text": {
          "store": str(store.path), "rows": rows, "shuffle": {"kind": "full"}
        }
      },
    }
  )  # fmt: skip
  expected = planned_exposures(pipe, 0, 90)
  for document in range(3):
    trail = visits.Visits(pipe, "text", document)
    assert trail.count_before(90) == expected[document]
