# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What rows train on is what their store says, in every kind of rows."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

import chomp_data
from chomp_data.sources import row_source
from chomp_data.splice import grid
from tests import laws
from tests.sources import labelled

SEQ_LEN = 12
LENGTHS = (
  [9, 0, 30, 1, 12, 25, 3, 0, 18, 2],
  [1, 1, 1, 40, 11, 12, 13, 1],
)


@pytest.fixture(scope="module")
def corpora(make_store):
  """Labels and weights, labels alone, weights alone; neither."""
  return [
    labelled.make(make_store, lengths, seed, table=table, weights=weights)
    for seed, lengths in enumerate(LENGTHS)
    for table, weights in (
      (labelled.LEVELS, True),
      ((0.0, 1.0), False),
      (None, True),
      (None, False),
    )
  ]


def sequential(store, **options):
  options = chomp_data.SequentialOptions(**options)
  return chomp_data.SequentialSource(store, options, seq_len=SEQ_LEN)


def bins(store, **options):
  return chomp_data.BinSource(
    store, chomp_data.BinOptions(**options), seq_len=SEQ_LEN
  )


def splices(store, **options):
  options = chomp_data.MultiSpliceOptions(num_docs=4, **options)
  return chomp_data.SpliceSource(store, options, seq_len=SEQ_LEN)


ADDED = {"add_bos": st.booleans(), "add_eos": st.booleans()}
ROWS = st.one_of(
  st.tuples(
    st.just(sequential),
    st.fixed_dictionaries(
      {
        **ADDED,
        "shuffle_documents": st.sampled_from(["none", "block"]),
        "tail": st.sampled_from(["pad", "drop"]),
      }
    ),
  ),
  st.tuples(
    st.just(bins),
    st.fixed_dictionaries(
      {
        **ADDED,
        "packing_algorithm": st.sampled_from(["ffd", "exact"]),
        "packing_buffer_docs": st.sampled_from([2, 5]),
        "long_documents": st.sampled_from(["cut", "truncate"]),
      }
    ),
  ),
  st.tuples(
    st.just(splices),
    st.fixed_dictionaries(
      {
        "content_length": st.sampled_from([None, 5, 9]),
        "content_start_mode": st.sampled_from(
          ["slide_within", "anchor_start", "cyclic_roll", "coverage_balanced"]
        ),
      }
    ),
  ),
)


def check(source, corpus, rows):
  """Compares what a source reads of rows with single positions."""
  spans = source.plan(rows)
  slow = labelled.expected({0: corpus}, spans, SEQ_LEN)
  plain = source.read(spans)
  np.testing.assert_array_equal(plain["loss_mask"], slow["loss_mask"])
  assert ("loss_weight" in plain) == corpus.store.labels.has_weights
  assert "label_weight" not in plain
  asked = source.read(spans, ("loss_weight",))
  np.testing.assert_array_equal(asked["loss_weight"], slow["loss_weight"])
  assert asked["loss_weight"].dtype == np.float32
  ahead = source.read(
    spans, (*row_source.OPTIONAL_FIELDS, *row_source.LABEL_FIELDS)
  )
  for name in ("loss_mask", "loss_weight"):
    np.testing.assert_array_equal(ahead[name], slow[f"{name}_ahead"])
  # What `next_token` is does not depend on whether it is trained on.
  bare = source.read(spans, row_source.OPTIONAL_FIELDS)
  np.testing.assert_array_equal(ahead["next_token"], bare["next_token"])
  np.testing.assert_array_equal(ahead["label_weight"], slow["label_weight"])
  return slow["loss_mask"]


@laws.examples(100)
@hypothesis.given(number=st.integers(0, 7), rows=ROWS, data=st.data())
def test_rows_train_on_what_the_store_says(corpora, number, rows, data):
  make, options = rows
  corpus = corpora[number]
  source = make(corpus.store, **options)
  end = source.epochs.start(2)
  picked = data.draw(st.lists(st.integers(0, end - 1), max_size=12))
  check(source, corpus, np.asarray(picked, np.int64))


def test_grids_and_single_rows_train_on_what_the_store_says(corpora):
  corpus = corpora[0]
  source = grid.of_documents(sequential(corpus.store))
  trained = check(source, corpus, np.arange(len(source)))
  assert 0 < trained.sum() < trained.size
  row = source[1]
  np.testing.assert_array_equal(row["loss_mask"], trained[1])
  assert row["loss_weight"].dtype == np.float32


def test_the_worked_example(make_store):
  """A prompt of two tokens and an answer of three, with BOS and EOS."""
  store = make_store(
    documents=[[10, 11, 20, 21, 22], [30, 40]],
    levels=(0.0, 1.0, 0.5),
    label_levels=[[0, 0, 1, 1, 2], [1, 0]],
    weights=[2.0, 1.0],
  )
  source = chomp_data.SequentialSource(
    store, chomp_data.SequentialOptions(add_bos=True, add_eos=True), seq_len=11
  )
  batch = source.read(source.plan(np.zeros(1, np.int64)))
  found = {name: value[0].tolist() for name, value in batch.items()}
  assert found["tokens"] == [2, 10, 11, 20, 21, 22, 1, 2, 30, 40, 1]
  # A token is trained on by the position before it; EOS is as the last token.
  assert found["loss_mask"] == [0, 0, 1, 1, 1, 1, 0, 1, 0, 0, 0]
  assert found["loss_weight"] == [0, 0, 2, 2, 1, 1, 0, 1, 0, 0, 0]


def test_a_store_without_labels_is_asked_for_none(corpora, monkeypatch):
  corpus = corpora[3]
  source = bins(corpus.store, packing_buffer_docs=5)
  spans = source.plan(np.arange(3))
  for name in ("runs", "trained_before", "document_weights"):
    monkeypatch.setattr(type(corpus.store.labels), name, None)
  batch = source.read(spans, row_source.OPTIONAL_FIELDS)
  assert "loss_weight" not in batch


@pytest.mark.parametrize("packing_algorithm", ["ffd", "exact"])
def test_an_eos_in_a_row_of_its_own_is_as_the_last_token(
  make_store, packing_algorithm
):
  """Also at the end of the store, where no token follows."""
  levels = [[1] * 12, [0] * 12, [0] * 11 + [1]]
  documents = [[9] * 12] * 3
  store = make_store(
    documents=documents, levels=(0.0, 1.0), label_levels=levels
  )
  corpus = labelled.Corpus(store, levels, None, (0.0, 1.0))
  source = bins(store, add_eos=True, packing_algorithm=packing_algorithm)
  check(source, corpus, np.arange(len(source)))
  spans = source.plan(np.arange(len(source)))
  assert ((spans.added_after > 0) & (spans.length == 1)).any()
