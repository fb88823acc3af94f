# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The sequential packer: one stream of documents, cut every seq_len."""

import dataclasses
import pickle

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

import chomp_data
from chomp_data import schema
from chomp_data.sources import document_columns
from chomp_data.sources import row_source
from tests.pack import packed

PAD, EOS, BOS = 0, 1, 2


def make(store, seq_len, seed=0, **options):
  return chomp_data.SequentialSource(
    store, chomp_data.SequentialOptions(**options), seq_len=seq_len, seed=seed
  )


# --- worked examples -------------------------------------------------------

# Three documents in rows of four; c is cut.
ABC = [[10, 11, 12], [20], [30, 31, 32, 33, 34]]


def test_seed_003_documents_become_one_stream_cut_every_seq_len(make_store):
  batch = packed.read(make(make_store(ABC), 4), range(3))
  packed.check_fields(
    batch,
    {
      "tokens": np.asarray(
        [[10, 11, 12, 20], [30, 31, 32, 33], [34, PAD, PAD, PAD]], np.int32
      ),
      "segment_ids": np.asarray(
        [[1, 1, 1, 2], [1, 1, 1, 1], [1, 0, 0, 0]], np.int32
      ),
      "positions": np.asarray(
        [[0, 1, 2, 0], [0, 1, 2, 3], [0, 1, 2, 3]], np.int32
      ),
      # With lookahead the last column of row 1 knows its label.
      "loss_mask": np.asarray(
        [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]], np.bool_
      ),
      "attention_mask": np.asarray(
        [[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]], np.bool_
      ),
      "next_token": np.asarray([PAD, 34, PAD], np.int32),
    },
  )


def test_eos_after_the_cut_stands_alone_in_its_document_s_segment(make_store):
  source = make(make_store([[10, 11, 12], [20]]), 3, add_eos=True)
  batch = packed.read(source, range(2))
  assert batch["tokens"].tolist() == [[10, 11, 12], [EOS, 20, EOS]]
  assert batch["segment_ids"].tolist() == [[1, 1, 1], [1, 2, 2]]
  assert batch["positions"].tolist() == [[0, 1, 2], [0, 0, 1]]
  assert batch["loss_mask"].tolist() == [[1, 1, 1], [0, 1, 0]]
  assert batch["next_token"].tolist() == [EOS, PAD]


def test_bos_before_the_cut_stands_alone_in_its_document_s_segment(make_store):
  source = make(make_store([[10, 11], [20, 21]]), 4, add_bos=True)
  batch = packed.read(source, range(2))
  assert batch["tokens"].tolist() == [[BOS, 10, 11, BOS], [20, 21, PAD, PAD]]
  assert batch["segment_ids"].tolist() == [[1, 1, 1, 2], [1, 1, 0, 0]]
  assert batch["loss_mask"].tolist() == [[1, 1, 0, 1], [1, 0, 0, 0]]
  assert batch["next_token"].tolist() == [20, PAD]


def test_added_tokens_make_no_document_of_an_empty_one(make_store):
  source = make(make_store([[], [10], [], []]), 3, add_bos=True, add_eos=True)
  assert packed.read(source, [0])["tokens"].tolist() == [[BOS, 10, EOS]]
  assert len(source) == 1
  assert "3 empty, skipped" in source.describe()


def test_the_tail_is_padded_or_dropped(make_store):
  store = make_store(ABC)
  assert len(make(store, 4, tail="pad")) == 3
  assert len(make(store, 4, tail="drop")) == 2
  for tail in ("pad", "drop"):
    assert len(make(store, 3, tail=tail)) == 3
  # The next epoch begins anew, not with what was left.
  batch = packed.read(make(store, 4, tail="drop"), [1, 2])
  assert batch["tokens"].tolist() == [[30, 31, 32, 33], [10, 11, 12, 20]]


def test_filler_may_be_eos_and_positions_may_go_on(make_store):
  source = make(make_store(ABC), 4, filler="eos")
  batch = packed.read(source, [2])
  assert batch["tokens"].tolist() == [[34, EOS, EOS, EOS]]
  # Filler, not an EOS of the document: in no segment, and no label.
  assert batch["segment_ids"].tolist() == [[1, 0, 0, 0]]
  assert not batch["loss_mask"].any()
  source = make(make_store(ABC), 4, reset_positions=False)
  assert packed.read(source, [0])["positions"].tolist() == [[0, 1, 2, 3]]


# --- laws ------------------------------------------------------------------


@st.composite
def corpora(draw):
  """Draws (lengths of documents, seq_len) with tokens for one row at least."""
  longest = draw(st.sampled_from((1, 3, 9, 30)))
  lengths = draw(st.lists(st.integers(0, longest), min_size=1, max_size=24))
  hypothesis.assume(sum(lengths) >= 2)
  return lengths, draw(st.integers(2, min(sum(lengths), 16)))


OPTIONS = st.fixed_dictionaries(
  {
    "add_bos": st.booleans(),
    "add_eos": st.booleans(),
    "shuffle_documents": st.sampled_from(("none", "block", "full")),
    "reshuffle_documents": st.booleans(),
    "document_block": st.none() | st.integers(1, 4),
    "tail": st.sampled_from(("pad", "drop")),
    "reset_positions": st.booleans(),
    "filler": st.sampled_from(("pad", "eos")),
  }
)


@hypothesis.given(
  corpus=corpora(), options=OPTIONS, seed=st.integers(0, 3), data=st.data()
)
def test_every_epoch_is_the_stream_of_its_documents(
  make_store, corpus, options, seed, data
):
  lengths, seq_len = corpus
  documents = packed.documents_of(lengths)
  source = make(make_store(documents), seq_len, seed, **options)
  full = packed.with_added(documents, source.layout)
  total = sum(map(len, full))
  whole, rest = divmod(total, seq_len)
  assert len(source) == whole + (rest > 0 and options["tail"] == "pad")
  seen = []
  for epoch in range(3):
    rows = packed.rows_of(source, epoch)
    spans = source.plan(rows)
    batch = source.read(spans, row_source.OPTIONAL_FIELDS)
    found = packed.cells_of(spans)
    # Which documents come in which order is the order's business; that each
    # comes once, whole, and cut only where a row ends is the packer's.
    stream = [cell for row in found for cell in row]
    order = list(dict.fromkeys(document for document, _ in stream))
    expected = [(d, i) for d in order for i in range(len(full[d]))]
    lost = rest if options["tail"] == "drop" else 0
    assert stream == expected[: len(stream)]
    assert len(stream) == total - lost
    assert all(len(row) == seq_len for row in found[:-1])
    if options["shuffle_documents"] == "none":
      assert order == sorted(order)
    packed.check_fields(batch, packed.fields_of(found, full, source.layout))
    seen.append(batch)
  if not source.options.orders_differ:
    packed.check_fields(seen[1], seen[0])
  # Any rows, from any epochs, in any order and more than once.
  every = {name: np.concatenate([b[name] for b in seen]) for name in seen[0]}
  number = st.integers(0, len(every["tokens"]) - 1)
  rows = np.asarray(data.draw(st.lists(number, max_size=8)), np.int64)
  fresh = make(source.store, seq_len, seed, **options)
  packed.check_fields(
    packed.read(fresh, rows), {k: v[rows] for k, v in every.items()}
  )


@pytest.mark.parametrize("kind", ["block", "full"])
def test_epochs_have_orders_of_their_own_unless_told_not_to(make_store, kind):
  store = make_store(packed.documents_of([5] * 60))
  for reshuffle, different in ((True, 4), (False, 1)):
    source = make(
      store,
      5,
      shuffle_documents=kind,
      reshuffle_documents=reshuffle,
      document_block=4,
    )
    orders = {
      tuple(source.plan(packed.rows_of(source, epoch)).document)
      for epoch in range(4)
    }
    assert len(orders) == different


def test_seeds_and_names_have_orders_of_their_own(make_store):
  store = make_store(packed.documents_of([5] * 60))
  options = chomp_data.SequentialOptions(shuffle_documents="full")
  orders = {
    tuple(
      chomp_data.SequentialSource(
        store, options, seq_len=5, seed=seed, name=name
      )
      .plan(np.arange(60))
      .document
    )
    for seed in (0, 1)
    for name in ("wiki", "web")
  }
  assert len(orders) == 4


# --- errors ----------------------------------------------------------------


def test_rows_longer_than_the_corpus_are_refused(make_store):
  store = make_store(ABC)
  assert len(make(store, 9)) == 1
  with pytest.raises(
    schema.ConfigError, match=r"seq_len` must be at most.*got 10 with 9 tokens"
  ):
    make(store, 10)
  # Added tokens count.
  assert len(make(store, 12, add_eos=True)) == 1


def test_a_corpus_of_empty_documents_is_refused(make_store):
  store = make_store([[], []])
  with pytest.raises(schema.ConfigError, match="got 4 with 0 tokens"):
    make(store, 4, add_bos=True, add_eos=True)


@pytest.mark.parametrize("kind", ["bos", "eos"])
def test_tokens_that_documents_have_already_are_not_added(make_store, kind):
  store = make_store(ABC, **{f"adds_{kind}": True})
  make(store, 4)
  with pytest.raises(
    schema.ConfigError, match=f"add_{kind}` must be False.*{kind.upper()} alre"
  ):
    make(store, 4, **{f"add_{kind}": True})


@pytest.mark.parametrize("kind", ["bos", "eos"])
def test_tokens_that_the_tokenizer_lacks_are_not_added(make_store, kind):
  store = make_store(ABC, **{f"{kind}_id": None})
  with pytest.raises(schema.ConfigError, match=f"{kind}_token_id` must be set"):
    make(store, 4, **{f"add_{kind}": True})
  source = make(store, 4, **{f"add_{kind}": True, f"{kind}_token_id": 0})
  assert (source.plan(np.arange(2)).length.sum()) == 8
  with pytest.raises(schema.ConfigError, match="vocabulary size 256, got 256"):
    make(store, 4, **{f"add_{kind}": True, f"{kind}_token_id": 256})


@pytest.mark.parametrize(
  ("field", "value"),
  [
    ("shuffle_documents", "blocks"),
    ("document_block", 0),
    ("document_slots", 0),
    ("tail", "keep"),
    ("add_bos", 1),
  ],
)
def test_options_out_of_range_are_named(make_store, field, value):
  with pytest.raises(schema.ConfigError) as caught:
    make(make_store(ABC), 4, **{field: value})
  assert f"`SequentialOptions.{field}` must be" in str(caught.value)
  assert repr(value) in str(caught.value)


def test_fingerprints_tell_whatever_changes_rows(make_store):
  base = make(make_store(ABC), 4)
  changed = [
    make(make_store(ABC), 4, **{field.name: value})
    for field in dataclasses.fields(chomp_data.SequentialOptions)
    for value in (OTHER[field.name],)
  ]
  prints = {repr(source) for source in [base, *changed]}
  assert len(prints) == len(changed) + 1
  assert repr(make(make_store(ABC), 4)) == repr(base)
  assert repr(make(make_store(ABC), 3)) != repr(base)
  assert repr(make(make_store(ABC), 4, seed=1)) != repr(base)


OTHER = {
  "filler": "eos",
  "trailing_filler_in_segment": True,
  "pad_token_id": 5,
  "eos_token_id": 6,
  "bos_token_id": 7,
  "add_bos": True,
  "add_eos": True,
  "reset_positions": False,
  "shuffle_documents": "full",
  "reshuffle_documents": False,
  "document_block": 7,
  "document_slots": 3,
  "tail": "drop",
}


@pytest.mark.parametrize("order", ["none", "block"])
def test_a_large_store_s_rows_are_the_same_and_hold_nothing_of_a_document(
  make_store, monkeypatch, order
):
  sizes = []
  for count in (200, 4_000):
    store = make_store([[i % 7 + 3] * (i % 11) for i in range(count)])
    options = chomp_data.SequentialOptions(
      shuffle_documents=order,
      document_block=None if order == "none" else 64,
      add_eos=True,
    )
    small = chomp_data.SequentialSource(store, options, seq_len=16)
    with monkeypatch.context() as patch:
      patch.setattr(document_columns, "MIN_ON_DISK", 1)
      large = chomp_data.SequentialSource(store, options, seq_len=16)
      rows = np.random.default_rng(0).permutation(2 * len(small))
      want, got = small.plan(rows), large.plan(rows)
      for field in ("row", "document", "start", "offset", "length", "column"):
        assert np.array_equal(getattr(want, field), getattr(got, field))
      sent = pickle.dumps(large)
      again = pickle.loads(sent).plan(rows)
      assert np.array_equal(again.offset, want.offset)
      sizes.append(len(sent))
  # Numbers in digits, and the name of the store.
  assert sizes[1] - sizes[0] < 64
