# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What phases and rows of pieces forward to the sources that they wrap."""

import numpy as np
import pytest

import chomp_data
from chomp_data.index import columns
from chomp_data.phased import phased_source
from chomp_data.stores import remainder

SEQ_LEN = 8


@pytest.fixture
def store(make_store):
  return make_store([np.arange(n) % 50 for n in (30, 7, 0, 21, 12)])


@pytest.fixture
def pieces(store):
  """Rows over tokens 10 to 24 and 40 to 69 of the store."""
  table = remainder.pieces(store, np.asarray([10, 40]), np.asarray([25, 70]))
  table = {name: columns.ArrayColumn(value) for name, value in table.items()}
  return rows_over(remainder.RemainderStore(store, table))


def rows_over(store):
  return chomp_data.BinSource(store, chomp_data.BinOptions(), seq_len=SEQ_LEN)


def shuffled(rows, kind="none"):
  return chomp_data.ShuffledSource(
    rows, chomp_data.ShuffleOptions(kind=kind), seed=1
  )


@pytest.mark.parametrize(
  ("max_epochs", "of_phases"), [(None, (1, 3, None)), (2, (1, 2, 2))]
)
def test_a_phase_is_prepared_for_its_epochs_alone(
  store, pieces, monkeypatch, max_epochs, of_phases
):
  calls = []
  sources = pieces, rows_over(store), rows_over(store)
  for source in sources:
    monkeypatch.setattr(source, "prepare", lambda *args: calls.append(args))
  joining = phased_source.of_joining_stores(
    {0: shuffled(sources[1]), 3: shuffled(sources[2], "full")}, "web"
  )
  rest = shuffled(phased_source.RemainderSource(pieces))
  run = phased_source.continued(joining, rest, {"rows": 2})
  run.prepare(max_epochs)
  assert calls == list(zip(of_phases, (False, False, True), strict=True))


def test_rows_of_pieces_are_those_of_their_documents(pieces):
  source = phased_source.RemainderSource(pieces)
  spans = source.plan(np.arange(len(source)))
  for documents in (0, 1, 2, 4, [0, 3], [], [99]):
    expected = np.unique(spans.row[np.isin(spans.document, documents)])
    begin, end = source.rows_of(documents, 0)
    rows = [np.arange(*edges) for edges in zip(begin, end, strict=True)]
    assert np.concatenate([expected[:0], *rows]).tolist() == expected.tolist()
  with pytest.raises(TypeError, match="`documents` must be whole numbers"):
    source.rows_of([0.5], 0)
  assert source.documents_used().tolist() == np.unique(spans.document).tolist()
