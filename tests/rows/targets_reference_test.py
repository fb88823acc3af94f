# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Targets and layouts are those of a slow reference.

The reference was written from the definition by somebody who had not seen the
package (`targets_reference`). Here the spans of plans are put into its words.
"""

import numpy as np
import pytest

import chomp_data
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import targets
from chomp_data.testing import stores as testing_stores
from chomp_data.transforms import sequence_layout
from tests.rows import targets_reference
from tests.sources import labelled

SEQ_LEN, DEPTH = 16, 4
LENGTHS = (5, 40, 1, 17, 3, 2, 31, 0, 9, 16, 25, 4)
ROWS = {
  "sequential": {"kind": "sequential", "add_bos": True, "add_eos": True},
  "sequential_bare": {"kind": "sequential"},
  "ffd": {"kind": "bin", "packing_buffer_docs": 7, "add_eos": True},
  "windows": {"kind": "windows", "num_docs": 5},
  "splice": {"kind": "multi_splice", "num_docs": 5, "content_length": 9},
}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
  """Stores with weights and without, by whether they have them."""
  root = tmp_path_factory.mktemp("reference")

  def make(weights):
    return labelled.make(
      lambda **options: testing_stores.make_store(
        root / str(weights), **options
      ),
      LENGTHS,
      table=labelled.LEVELS if weights else None,
      weights=weights,
      bos_id=2,
    )

  return {weights: make(weights) for weights in (True, False)}


def described(pipe, corpus, step):
  """Yields, for each row of a step, its spans in the reference's words."""
  spans, (rows,) = pipe.plan(step), pipe.sources.values()
  bos, eos = rows.layout.bos_id is not None, rows.layout.eos_id is not None
  for row in range(spans.num_rows):
    out = []
    for i in np.flatnonzero(spans.row == row).tolist():
      document = int(spans.document[i])
      (first,), (length,) = corpus.store.bounds(np.asarray([document]))
      stored = corpus.store.read_tokens(
        np.asarray([first]), np.asarray([length])
      )
      labels = [corpus.label(document, k) for k in range(length)]
      tokens = stored.tolist()
      if bos:
        tokens, labels = [rows.layout.bos_id, *tokens], [labels[0], *labels]
      if eos:
        tokens, labels = [*tokens, rows.layout.eos_id], [*labels, labels[-1]]
      before = spans.added_before
      is_first = before is not None and before[i] == spans_lib.BOS
      start = int(spans.start[i]) + bos * (not is_first)
      out.append(
        targets_reference.Span(
          # Each occurrence has a name of its own.
          document=(document, i),
          start=start,
          length=int(spans.length[i]),
          column=int(spans.column[i]),
          segment=int(spans.segment[i]),
          trained=[bool(trained) for trained, _ in labels],
          weight=[float(weight) for _, weight in labels],
          removed=set(),
          tokens=tokens,
        )
      )
    yield out


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("name", ROWS)
def test_targets_are_those_of_the_reference(corpora, name, weights):
  corpus = corpora[weights]
  data = {
    "seed": 5,
    "seq_len": SEQ_LEN,
    "global_batch_size": 4,
    "epochs": 2,
    "num_targets": DEPTH,
    "sources": {"text": {"store": corpus.store.path, "rows": ROWS[name]}},
  }
  pipe = chomp_data.build(data)
  compared = 0
  for step in range(min(pipe.num_steps, 20)):
    batch = pipe.batch(step)
    for row, spans in enumerate(described(pipe, corpus, step)):
      wanted = targets_reference.targets(spans, SEQ_LEN, DEPTH, 0)
      for depth in range(1, DEPTH + 1):
        value, mask, weight = targets.names(depth)
        assert batch[value][row].tolist() == wanted[value], (step, row, value)
        assert batch[mask][row].tolist() == wanted[mask], (step, row, mask)
        if weights and spans:
          assert batch[weight][row].tolist() == wanted[weight]
        compared += sum(wanted[mask])
  assert compared > (50 if weights else 300)


@pytest.mark.parametrize("kind", ["contiguous", "dual_chunk_swap", "striped"])
def test_layouts_are_those_of_the_reference(kind):
  for shards in (1, 2, 4, 8):
    for seq_len in (16, 48, 64):
      layout = sequence_layout.SequenceLayout(kind=kind, shards=shards)
      wanted = targets_reference.layout_permutation(kind, shards, seq_len)
      assert layout.order(seq_len).tolist() == wanted
