# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Splice sources: seed 000's worked examples, placed in real rows."""

import collections
import itertools

import numpy as np
import pytest

import chomp_data
from chomp_data import schema
from chomp_data.testing import stores as testing_stores

NULL = 99
A, B, C, D, E, F, G, H, I, J, K, L, X, Y, Z = range(10, 25)  # noqa: E741
LETTERS = [[A, B, C, D, E, F, G], [H, I, J, K, L], [X, Y, Z]]


@pytest.fixture
def make(tmp_path):
  """Builds a source over documents of a real store."""
  number = itertools.count()

  def build(documents, options, seq_len, **changes):
    store = testing_stores.make_store(
      tmp_path / f"store{next(number)}",
      [np.asarray(d) for d in documents],
      vocab_size=100,
      pad_id=NULL,
      eos_id=98,
    )
    return chomp_data.SpliceSource(store, options, seq_len=seq_len, **changes)

  return build


def rows_of(source, count=None):
  return source.batch(np.arange(len(source) if count is None else count))


def single(**changes):
  return chomp_data.SpliceOptions(
    **{"content_start_mode": "slide_within", **changes}
  )


def multi(**changes):
  return chomp_data.MultiSpliceOptions(
    **{"num_docs": 3, "doc_select_mode": "first", **changes}
  )


def triples(source, epoch=0):
  """Returns (document, t, s) of every row of an epoch."""
  spans = source.plan(np.arange(len(source)) + epoch * len(source))
  return list(
    zip(
      spans.document.tolist(),
      spans.start.tolist(),
      spans.column.tolist(),
      strict=True,
    )
  )


# --- worked examples -------------------------------------------------------


def test_seed_000_whole_document_splice(make):
  source = make([range(5)], single(content_start_mode="anchor_start"), 5)
  assert rows_of(source)["tokens"][:3].tolist() == [
    [0, 1, 2, 3, 4],
    [NULL, 0, 1, 2, 3],
    [NULL, NULL, 0, 1, 2],
  ]


def test_seed_000_example_a_lists_thirteen_rows(make):
  source = make([range(5)], single(content_length=3), 5)
  n = NULL
  assert rows_of(source)["tokens"].tolist() == [
      [0, 1, 2, n, n], [n, 0, 1, 2, n], [n, n, 0, 1, 2],
      [1, 2, 3, n, n], [n, 1, 2, 3, n], [n, n, 1, 2, 3],
      [2, 3, 4, n, n], [n, 2, 3, 4, n], [n, n, 2, 3, 4],
      [3, 4, n, n, n], [n, 3, 4, n, n], [n, n, 3, 4, n], [n, n, n, 3, 4],
  ]  # fmt: skip


def test_seed_000_example_b_k_2_gives_1_2_left_anchored_and_its_loss(make):
  source = make([range(5)], single(content_length=2), 5)
  row = triples(source).index((0, 1, 0))
  got = source[row]
  assert got["tokens"].tolist() == [1, 2, NULL, NULL, NULL]
  assert got["loss_mask"].tolist() == [True, False, False, False, False]
  assert got["segment_ids"].tolist() == [1, 1, 1, 1, 1]


def test_seed_000_suffix_splice_k_3_t_2_s_1(make):
  source = make([range(5)], single(content_length=3), 5)
  row = triples(source).index((0, 2, 1))
  assert source[row]["tokens"].tolist() == [NULL, 2, 3, 4, NULL]


def test_seed_000_tiny_document_of_three_tokens(make):
  """The seed's quick unit test: offsets 0..2 of [1, 2, 3] at S = 5."""
  source = make(
    [[1, 2, 3]],
    single(content_start_mode="anchor_start", content_length=3),
    5,
  )
  got = rows_of(source)
  assert got["tokens"].tolist() == [
    [1, 2, 3, NULL, NULL],
    [NULL, 1, 2, 3, NULL],
    [NULL, NULL, 1, 2, 3],
  ]
  assert got["loss_mask"].astype(int).tolist() == [
    [1, 1, 0, 0, 0],
    [0, 1, 1, 0, 0],
    [0, 0, 1, 1, 0],
  ]
  assert got["segment_ids"].tolist() == [
    [1, 1, 1, 1, 1],
    [0, 1, 1, 1, 1],
    [0, 0, 1, 1, 1],
  ]


def test_seed_000_worked_example_by_document(make):
  source = make(
    LETTERS,
    multi(content_length=4, balance_mode="by_document", adaptive_k=False),
    8,
  )
  assert triples(source) == [
      (0, 0, 4), (0, 1, 4), (0, 2, 4), (0, 3, 4),
      (1, 0, 4), (1, 1, 4), (1, 0, 4), (1, 1, 4),
  ]  # fmt: skip
  got = source.batch(np.array([4, 5]))
  assert got["tokens"].tolist() == [
    [NULL] * 4 + [H, I, J, K],
    [NULL] * 4 + [I, J, K, L],
  ]
  assert got["loss_mask"].astype(int).tolist() == [[0, 0, 0, 0, 1, 1, 1, 0]] * 2
  assert got["segment_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]] * 2
  assert got["document_id"].tolist() == [[1], [1]]


def test_seed_000_worked_example_base_pairs_by_enumerate(make):
  source = make(
    LETTERS,
    multi(content_length=4, balance_mode="enumerate", adaptive_k=False),
    8,
  )
  assert triples(source) == [
      (0, 0, 4), (0, 1, 4), (0, 2, 4), (0, 3, 4), (1, 0, 4), (1, 1, 4)
  ]  # fmt: skip


def test_seed_000_by_coverage_gives_59_29_12_percent(make):
  documents = [np.arange(n) % 90 for n in (10_000, 5_000, 2_000)]
  options = multi(content_length=64, balance_mode="by_coverage")
  source = make(documents, options, 64)
  share = source.quotas() / len(source)
  assert np.round(share, 2).tolist() == [0.59, 0.29, 0.12]
  assert len(source) == sum(n - 64 + 1 for n in (10_000, 5_000, 2_000))


def test_seed_000_by_document_gives_a_third_each(make):
  documents = [np.arange(n) % 90 for n in (1_000, 500, 200)]
  options = multi(content_length=64, balance_mode="by_document")
  source = make(documents, options, 64)
  assert source.quotas().tolist() == [937, 937, 937]
  unique = collections.Counter(d for d, _, _ in set(triples(source)))
  assert unique == {0: 937, 1: 437, 2: 137}


# --- modes and layout ------------------------------------------------------


def test_cyclic_roll_wraps_with_two_spans_and_no_loss_at_the_seam(make):
  source = make(
    [[1, 2, 3]],
    single(content_start_mode="cyclic_roll", content_length=3),
    4,
  )
  assert triples(source)[:3] == [(0, 0, 0), (0, 0, 1), (0, 1, 0)]
  row = 2  # t = 1, s = 0
  assert source[row]["tokens"].tolist() == [2, 3, 1, NULL]
  assert source[row]["loss_mask"].tolist() == [True, False, False, False]
  assert source[row]["segment_ids"].tolist() == [1, 1, 1, 1]
  assert len(source) == 3 * 2
  assert source[row]["document_id"].tolist() == [0]


def test_slide_mode_trains_on_whole_windows(make):
  source = make([range(7)], single(mode="slide"), 5)
  got = rows_of(source)
  assert got["tokens"].tolist() == [
      [0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [2, 3, 4, 5, 6]
  ]  # fmt: skip
  assert got["loss_mask"].sum(axis=1).tolist() == [4, 4, 4]


@pytest.mark.parametrize("shuffled", [True, 4])
def test_windows_of_slide_mode_have_one_place_to_shuffle(make, shuffled):
  options = single(mode="slide", shuffle_offsets=shuffled)
  source = make([range(40)], options, 8)
  assert set(source.plan(np.arange(3 * len(source))).column.tolist()) == {0}


def test_filler_variants_and_a_pad_id_of_zero(tmp_path):
  store = testing_stores.make_store(
    tmp_path / "store",
    [np.asarray([5, 6, 7])],
    vocab_size=10,
    pad_id=0,
    eos_id=1,
  )

  def row(**changes):
    options = single(
      content_start_mode="anchor_start", content_length=3, **changes
    )
    return chomp_data.SpliceSource(store, options, seq_len=6)[2]

  assert row()["tokens"].tolist() == [0, 0, 5, 6, 7, 0]
  assert row(filler="eos")["tokens"].tolist() == [1, 1, 5, 6, 7, 1]
  assert row(eos_before_document=True)["tokens"].tolist() == [0, 1, 5, 6, 7, 0]
  assert row(pad_token_id=4)["tokens"].tolist() == [4, 4, 5, 6, 7, 4]
  assert row()["segment_ids"].tolist() == [0, 0, 1, 1, 1, 1]
  outside = row(trailing_filler_in_segment=False)
  assert outside["segment_ids"].tolist() == [0, 0, 1, 1, 1, 0]
  assert outside["loss_mask"].tolist() == row()["loss_mask"].tolist()
  assert row()["loss_mask"].astype(int).tolist() == [0, 0, 1, 1, 0, 0]


@pytest.mark.parametrize("jitter_mode", ["uniform", "low_discrepancy"])
def test_jitter_moves_listed_starts_between_epochs(make, jitter_mode):
  source = make(
    [np.arange(40)],
    single(
      content_start_mode="coverage_balanced",
      content_length=8,
      offset_jitter=2,
      jitter_mode=jitter_mode,
    ),
    8,
  )
  epochs = [triples(source, e) for e in range(6)]
  # K is cut to 6 so that columns 2, 1 and 0 all hold it.
  assert {s for e in epochs for _, _, s in e} == {0, 1, 2}
  for epoch in epochs:
    assert [t for _, t, _ in epoch] == list(range(35))
  moved = [{e[i][2] for e in epochs} for i in range(35)]
  if jitter_mode == "low_discrepancy":
    assert moved == [{0, 1, 2}] * 35
    counts = collections.Counter(s for _, _, s in epochs[0])
    assert max(counts.values()) - min(counts.values()) <= 1
  else:
    assert sum(len(m) == 3 for m in moved) > 20


# --- weights, epochs, orders -----------------------------------------------


def test_validation_is_a_fixed_grid_of_the_same_documents(make):
  source = make(
    [np.arange(60), np.arange(50)],
    multi(num_docs=2, content_length=16),
    16,
  )
  grid = source.validation(num_starts=3, num_offsets=4)
  assert triples(grid)[:5] == [
      (0, 0, 0), (0, 0, 3), (0, 0, 7), (0, 0, 11), (0, 22, 0)
  ]  # fmt: skip
  assert len(grid) == 2 * 3 * 4
  assert {d for d, _, _ in triples(grid)} == {0, 1}


# --- errors ----------------------------------------------------------------


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"content_length": 1}, r"content_length.*at least 2.*got 1"),
    ({"content_stride": 0}, r"content_stride.*at least 1.*got 0"),
    ({"offset_stride": -1}, r"offset_stride.*got -1"),
    ({"min_copy_len": 1}, r"min_copy_len.*at least 2.*got 1"),
    ({"balance_tau": 1.5}, r"balance_tau.*\[0, 1\].*got 1.5"),
    ({"alpha": -0.1}, r"alpha.*got -0.1"),
    ({"alpha": float("nan")}, r"alpha.*got nan"),
    ({"doc_weights": (("a", -1.0),)}, r"doc_weights"),
    ({"doc_weights": (("no", 1.0),)}, r"doc_weights.*'no'.*not exist"),
    ({"doc_weights": (("0", 0.0), ("1", 0), ("2", 0))}, r"positive"),
    ({"num_docs": 4}, r"num_docs.*at most.*got 4 with 3"),
    ({"num_docs": 0}, r"num_docs.*got 0"),
    ({"min_doc_length": 8}, r"got 0 of 3 within min_doc_length=8"),
    ({"min_doc_length": 9, "max_doc_length": 3}, r"9 > 3"),
    ({"min_copy_len": 9}, r"min_copy_len.*at most seq_len.*9 > 8"),
    ({"content_length": 3, "min_copy_len": 4}, r"3 < 4"),
    ({"offset_jitter": 7}, r"offset_jitter.*got 7 of 8"),
    (
      {"content_start_mode": "slide_within", "alpha": 0.5},
      r"alpha.*coverage_balanced.*got 0.5",
    ),
    ({"balance_mode": "enumerate", "epoch_length": 3}, r"epoch_length"),
    ({"restrict_to_training_subset": True}, r"initial_batch_size"),
    ({"pad_token_id": 100}, r"pad_token_id.*below.*100.*got 100"),
  ],
)
def test_bad_options_are_refused_by_name_and_value(make, changes, message):
  with pytest.raises(schema.ConfigError, match=message):
    make(LETTERS, multi(**changes), 8)


def test_several_bad_fields_come_in_one_error(make):
  with pytest.raises(schema.ConfigError) as caught:
    make(LETTERS, multi(content_stride=0, balance_tau=3, alpha=-1), 8)
  assert len(caught.value.problems) == 3
  for name in ("content_stride", "balance_tau", "alpha"):
    assert name in str(caught.value)


def test_options_given_in_code_are_converted_like_a_configs(make):
  options = multi(
    doc_weights={"0": 2.0, "1": 1.0},
    content_length=np.int64(4),
    balance_tau=0,
  )
  source = make(LETTERS, options, np.int64(8))
  assert "SpliceSource" in repr(source)
  assert source.quotas().tolist() == [4, 2, 1] or source.quotas().sum() == 7
  swapped = multi(
    doc_weights={"1": 1.0, "0": 2.0}, content_length=4, balance_tau=0
  )
  assert repr(make(LETTERS, swapped, 8)) == repr(source)


def test_weights_that_leave_no_usable_document_are_refused(make):
  with pytest.raises(schema.ConfigError, match="positive weight"):
    make(
      LETTERS,
      multi(
        content_length=6,
        adaptive_k=False,
        doc_weights=(("0", 0.0), ("1", 1.0)),
      ),
      8,
    )


def test_a_long_document_has_more_pairs_than_an_int64_product_holds(make):
  source = make([np.zeros(500_000, int)], single(content_length=None), 8192)
  assert len(source) > 2**31
  last = source.plan(np.array([len(source) - 1]))
  assert last.start.tolist() == [499_998]


def test_negative_rows_are_refused(make):
  source = make(LETTERS, multi(content_length=4), 8)
  with pytest.raises(IndexError, match="got -1"):
    source.plan(np.array([0, -1]))


@pytest.mark.parametrize("adaptive_k", [True, False])
def test_the_summary_says_strides_and_what_no_content_length_means(
  make_store, adaptive_k
):
  store = make_store([[5] * 40, [6] * 30])
  options = chomp_data.MultiSpliceOptions(
    num_docs=2, content_stride=3, adaptive_k=adaptive_k, offset_jitter=2
  )
  text = chomp_data.SpliceSource(
    store, options, seq_len=16, name="text"
  ).describe()
  assert (
    "K=14 (content_length None: seq_len - offset_jitter)"
    f" adaptive_k={adaptive_k} content_stride=3 offset_stride=1" in text
  )


def test_debug_summary_names_documents_lengths_shares_and_pairs(make):
  text = make(LETTERS, multi(content_length=4), 8).describe()
  for part in (
      "num_docs=3", "doc_lengths=[7, 5, 3]", "pairs_per_doc=[",
      "total_pairs=7", "expected_doc_fraction=[0.4", "document 1 ('1')",
  ):  # fmt: skip
    assert part in text, text
