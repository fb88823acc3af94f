# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Document selection: seed 000's policies and their fallbacks."""

import logging as py_logging
import pickle

from absl import logging
import numpy as np
import pytest

import chomp_data
from chomp_data import schema
from chomp_data import stores
from chomp_data.sources import document_columns
from chomp_data.splice import selecting
from chomp_data.stores import document_fields
from chomp_data.stores.zarr import store_writer
from chomp_data.testing import stores as testing_stores

LENGTHS = [30, 50, 20, 50, 10, 40]


@pytest.fixture
def store(tmp_path):
  return testing_stores.make_store(
    tmp_path / "store",
    [np.arange(n) % 9 for n in LENGTHS],
    ids=["a", "b", "c", "d", "e", "e"],
    vocab_size=10,
    pad_id=9,
  )


@pytest.fixture
def warnings():
  records = []

  class Keep(py_logging.Handler):
    def emit(self, record):
      records.append(record.getMessage())

  handler = Keep()
  logging.get_absl_logger().addHandler(handler)
  yield records
  logging.get_absl_logger().removeHandler(handler)


def several(store, **changes):
  options = chomp_data.MultiSpliceOptions(**{"num_docs": 3, **changes})
  return chomp_data.SpliceSource(store, options, seq_len=8).documents.tolist()


def one(store, **changes):
  options = chomp_data.SpliceOptions(**changes)
  return chomp_data.SpliceSource(store, options, seq_len=8).documents.tolist()


def test_seed_000_policies_select_the_right_documents(store):
  assert several(store, doc_select_mode="first") == [0, 1, 2]
  assert several(store, doc_select_mode="longest") == [1, 3, 5]
  assert several(store, doc_select_mode="shortest") == [4, 2, 0]
  drawn = several(store, doc_select_mode="random")
  assert drawn == several(store, doc_select_mode="random")
  assert len(set(drawn)) == 3


def test_limits_hold_for_every_policy(store):
  for mode in ("first", "longest", "shortest", "random"):
    got = several(
      store, doc_select_mode=mode, min_doc_length=20, max_doc_length=40
    )
    assert sorted(got) == [0, 2, 5]


def test_random_depends_on_the_selection_and_not_on_the_runs_seed(store):
  options = chomp_data.MultiSpliceOptions(num_docs=2, doc_select_mode="random")
  drawn = {
    tuple(
      chomp_data.SpliceSource(
        store, options, seq_len=8, seed=seed
      ).documents.tolist()
    )
    for seed in range(5)
  }
  assert len(drawn) == 1
  by_count = {
    tuple(several(store, doc_select_mode="random", num_docs=n)[:1])
    for n in range(1, 7)
  }
  assert len(by_count) > 1


def test_all_candidates_are_selected_where_num_docs_is_none(store):
  assert several(
    store, num_docs=None, doc_select_mode="first", min_doc_length=30
  ) == [0, 1, 3, 5]


def test_too_few_candidates_fill_up_with_the_longest_on_request(
  store, warnings
):
  wanted = {"min_doc_length": 20, "max_doc_length": 30}
  with pytest.raises(schema.ConfigError, match=r"got 3 with 2 of 6"):
    several(store, **wanted)
  got = several(store, strict_num_docs=False, doc_select_mode="first", **wanted)
  assert got == [0, 2, 1]
  assert any(
    "2 of num_docs=3" in w and "shortest of them: 50 tokens" in w
    for w in warnings
  )


def test_documents_that_fill_up_are_those_not_selected_yet(store):
  got = several(
    store,
    num_docs=4,
    strict_num_docs=False,
    doc_select_mode="shortest",
    min_doc_length=50,
  )
  assert got == [1, 3, 5, 0]


def test_doc_index_is_honoured_within_the_limits(store, warnings):
  assert one(store, doc_index=4) == [4]
  assert not warnings


def test_doc_index_outside_the_limits_falls_back_with_a_warning(
  store, warnings
):
  got = one(store, doc_index=4, min_doc_length=40, doc_select_mode="longest")
  assert got == [1]
  assert any("doc_index=4" in w and "document 1" in w for w in warnings)


def test_a_policy_without_candidates_falls_back_to_the_longest(store, warnings):
  assert one(store, min_doc_length=60, doc_select_mode="first") == [1]
  assert any("min_doc_length=60" in w for w in warnings)


def test_doc_key_selects_by_document_id(store):
  assert one(store, doc_key="d") == [3]
  with pytest.raises(schema.ConfigError, match=r"'x', which no document"):
    one(store, doc_key="x")
  with pytest.raises(schema.ConfigError, match=r"'e', which 2 documents"):
    one(store, doc_key="e")
  with pytest.raises(schema.ConfigError, match=r"must not both be set"):
    one(store, doc_key="d", doc_index=1)


@pytest.mark.parametrize("index", [6, 10**9])
def test_doc_index_out_of_range_names_the_range(store, index):
  with pytest.raises(schema.ConfigError, match=rf"got {index} with 6.*0 .. 5"):
    one(store, doc_index=index)


def test_training_subset_admits_documents_that_end_inside_it(store):
  # 8 * 2 * 6 = 96 tokens: documents 0 and 1 end at 80, document 2 at 100.
  subset = {
    "restrict_to_training_subset": True,
    "initial_batch_size": 2,
    "max_train_batches": 6,
  }
  got = several(store, num_docs=None, doc_select_mode="first", **subset)
  assert got == [0, 1]
  assert several(
    store,
    num_docs=None,
    doc_select_mode="first",
    **{**subset, "max_train_batches": 7},
  ) == [0, 1, 2]


def test_nothing_outside_the_training_subset_is_ever_selected(store):
  subset = {
    "restrict_to_training_subset": True,
    "initial_batch_size": 2,
    "max_train_batches": 6,
  }
  got = several(store, num_docs=5, strict_num_docs=False, **subset)
  assert sorted(got) == [0, 1]
  with pytest.raises(schema.ConfigError, match="training subset"):
    one(store, doc_key="d", **subset)
  with pytest.raises(schema.ConfigError, match="must select a document"):
    one(store, **{**subset, "initial_batch_size": 1, "max_train_batches": 1})


def test_tokens_of_unselected_documents_are_never_read(store):
  source = chomp_data.SpliceSource(
    store,
    chomp_data.MultiSpliceOptions(num_docs=1, doc_select_mode="shortest"),
    seq_len=8,
  )
  asked = []
  copy = store.copy_tokens
  source.store.copy_tokens = lambda starts, *rest: (
      asked.append(starts), copy(starts, *rest)
  )  # fmt: skip
  source.batch(np.arange(len(source)))
  first = sum(LENGTHS[:4])
  assert asked
  assert min(a.min() for a in asked) >= first
  assert max(a.max() for a in asked) < first + LENGTHS[4]


# --- large stores ----------------------------------------------------------

RULES = [
  {"doc_select_mode": "first", "num_docs": None},
  {"doc_select_mode": "longest", "num_docs": 4, "min_doc_length": 15},
  {"doc_select_mode": "shortest", "num_docs": None, "balance_tau": 0.5},
  {"doc_select_mode": "random", "num_docs": 3, "balance_mode": "enumerate"},
  {
    "doc_select_mode": "first",
    "num_docs": 5,
    "max_doc_length": 30,
    "strict_num_docs": False,
    "balance_mode": "by_document",
    "doc_overrides": (("b", (("content_stride", 3),)),),
  },
  {"num_docs": None, "curriculum_start": 2, "curriculum_every": 7},
  {"num_docs": None, "mode": "slide", "balance_mode": "enumerate"},
]


@pytest.mark.parametrize(
  "rule", RULES, ids=lambda rule: str(list(rule.items()))
)
def test_a_large_store_s_selection_lies_beside_it_and_is_the_same(
  store, monkeypatch, warnings, rule
):
  options = chomp_data.MultiSpliceOptions(**rule)

  def make():
    return chomp_data.SpliceSource(store, options, seq_len=8)

  def known(source):
    rows = np.arange(3 * len(source))
    spans = source.plan(rows)
    planned = [
      getattr(spans, field).tolist()
      for field in ("row", "document", "start", "offset", "length", "column")
    ]
    return [
      len(source), planned, source.documents.tolist(), source.lengths.tolist(),
      source.quotas().tolist(), source.describe(), source.fingerprint,
      str(source.block_units(0, "tokens", 0)),
    ]  # fmt: skip

  want = known(make())
  told = list(warnings)
  monkeypatch.setattr(document_columns, "MIN_ON_DISK", 1)
  warnings.clear()
  assert known(make()) == want
  assert warnings == told
  # Another process looks at no length but those of documents it reads.
  monkeypatch.setattr(store, "iter_lengths", None)
  warnings.clear()
  again = make()
  assert warnings == told
  assert known(again) == want
  assert known(pickle.loads(pickle.dumps(again))) == want


def test_what_goes_to_a_reader_does_not_grow_with_documents(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(document_columns, "MIN_ON_DISK", 1)
  sizes = []
  for count in (20, 4_000):
    made = testing_stores.make_store(
      tmp_path / str(count), [np.arange(9)] * count
    )
    options = chomp_data.MultiSpliceOptions(num_docs=None)
    source = chomp_data.SpliceSource(made, options, seq_len=8)
    source.plan(np.arange(100))
    # Checksums of pages, one for 2**18 documents, and numbers in digits.
    sizes.append(len(pickle.dumps(source)))
  assert sizes[1] - sizes[0] < 64


@pytest.mark.parametrize(
  ("mode", "count"),
  [
    ("first", 10), ("longest", None), ("longest", 140_000),
    ("shortest", 3_000),
  ],
)  # fmt: skip
def test_documents_of_many_batches_are_those_of_one_sort(mode, count):
  total, batch = 300_000, 7_000
  lengths = np.random.default_rng(0).integers(0, 300, total)
  documents, selected_lengths = selecting.best_documents(
    ((i, lengths[i : i + batch]) for i in range(0, total, batch)),
    mode,
    selecting.Limits(max_length=280),
    count,
    7,
  )
  fits = (lengths > 0) & (lengths <= 280)
  some = np.flatnonzero(fits)
  rank = {"first": some, "longest": -lengths[some], "shortest": lengths[some]}
  want = some[np.lexsort((some, rank[mode]))][:count]
  assert documents.tolist() == want.tolist()
  assert selected_lengths.tolist() == lengths[want].tolist()


def test_a_random_choice_is_the_same_in_batches_of_any_size():
  batch = 7_000
  lengths = np.random.default_rng(0).integers(1, 300, 300_000)

  def chosen(size, count):
    batches = ((i, lengths[i : i + size]) for i in range(0, len(lengths), size))
    return selecting.best_documents(
      batches, "random", selecting.Limits(), count, 7
    )[0]

  whole = chosen(len(lengths), None)
  assert sorted(whole.tolist()) == list(range(len(lengths)))
  assert chosen(batch, None).tolist() == whole.tolist()
  assert chosen(batch, 40_000).tolist() == whole[:40_000].tolist()


@pytest.fixture
def corpus(tmp_path):
  """Documents of several folders, languages and lengths."""
  return store_writer.write_store(
    tmp_path / "corpus",
    [np.arange(n) % 9 for n in (30, 50, 20, 40, 60)],
    tokenizer_info=stores.TokenizerInfo(
      kind="custom", sha256="0" * 64, vocab_size=10, pad_id=9
    ),
    ids=["law/a", "law/b", "web/a", "law/[b]", "web/b"],
    meta=[
      document_fields.encoded({"lang": lang, "year": year})
      for lang, year in (
        ("en", "1"),
        ("de", "2"),
        ("en", "2"),
        ("fr", "3"),
        ("en", "3"),
      )
    ],
  )


def test_a_pattern_of_ids_leaves_the_policy_the_documents_that_match(
  corpus, warnings
):
  assert one(corpus, doc_key="law/*") == [0]
  assert one(corpus, doc_key="law/*", doc_select_mode="longest") == [1]
  assert one(corpus, doc_key="*/a", doc_select_mode="shortest") == [2]
  assert one(corpus, doc_key="law/?", min_doc_length=40) == [1]
  assert one(corpus, doc_key="web/[bc]") == [4]
  everything = {"num_docs": None, "doc_select_mode": "first"}
  assert several(corpus, doc_key="law/*", **everything) == [0, 1, 3]
  assert several(corpus, doc_key="web/a", **everything) == [2]
  assert not warnings


def test_an_id_that_is_spelled_like_a_pattern_is_that_document(corpus):
  assert one(corpus, doc_key="law/[b]") == [3]
  assert several(corpus, num_docs=1, doc_key="law/[b]") == [3]


def test_a_pattern_without_a_candidate_falls_back_to_a_document_that_matches(
  corpus, warnings
):
  assert one(corpus, doc_key="law/*", min_doc_length=55) == [1]
  assert any("doc_key='law/*'" in w and "document 1" in w for w in warnings)
  with pytest.raises(schema.ConfigError, match=r"doc_key='gov/\*'"):
    one(corpus, doc_key="gov/*")
  with pytest.raises(schema.ConfigError, match=r"got 0 of 5 .*doc_key='gov"):
    several(corpus, doc_key="gov/*")
  with pytest.raises(schema.ConfigError, match=r"got 4 with 3 of 5 .*law/\*"):
    several(corpus, num_docs=4, doc_key="law/*")


def test_metadata_select_documents(corpus):
  everything = {"num_docs": None, "doc_select_mode": "first"}
  assert several(corpus, doc_meta={"lang": "en"}, **everything) == [0, 2, 4]
  assert several(
    corpus, doc_meta={"lang": ["en", "de"], "year": "2"}, **everything
  ) == [1, 2]
  assert several(
    corpus, doc_meta={"lang": "en"}, doc_key="web/*", **everything
  ) == [2, 4]
  assert one(corpus, doc_meta={"lang": "en"}, doc_select_mode="longest") == [4]
  windows = chomp_data.WindowOptions(doc_meta=(("year", ("3",)),)).as_splices(8)
  found = chomp_data.SpliceSource(corpus, windows, seq_len=8)
  assert found.documents.tolist() == [3, 4]


def test_documents_that_are_named_must_have_the_metadata(corpus, warnings):
  assert one(corpus, doc_key="web/a", doc_meta={"lang": "en"}) == [2]
  with pytest.raises(schema.ConfigError, match=r"doc_meta`, got 'web/a' with"):
    one(corpus, doc_key="web/a", doc_meta={"lang": "de"})
  assert one(corpus, doc_index=1, doc_meta={"lang": "en"}) == [0]
  assert any("doc_index=1" in w and "doc_meta=" in w for w in warnings)


def test_fields_that_a_store_does_not_keep_are_named(corpus, store):
  with pytest.raises(
    stores.StoreError, match=r"the field 'land'.*got the fields lang, year\."
  ):
    several(corpus, doc_meta={"land": "en"})
  with pytest.raises(stores.StoreError, match=r"got no fields.*--meta_keys"):
    several(store, doc_meta={"lang": "en"})


@pytest.mark.parametrize("value", ["lang", {}, {"lang": []}, {"lang": 3}, 5])
def test_metadata_that_are_no_fields_are_refused(corpus, value):
  with pytest.raises(
    schema.ConfigError, match=r"\.doc_meta` must be a mapping"
  ):
    several(corpus, doc_meta=value)


def test_options_that_are_not_set_are_in_no_fingerprint(corpus):
  def rows(options):
    source = chomp_data.SpliceSource(corpus, options, seq_len=8)
    return source.fingerprint["rows"]

  single, multi = (
    chomp_data.SpliceOptions(),
    chomp_data.MultiSpliceOptions(num_docs=2),
  )
  assert rows(single)["doc_key"] is None
  assert "doc_meta" not in rows(single)
  assert not {"doc_key", "doc_meta"} & set(rows(multi))
  chosen = chomp_data.MultiSpliceOptions(
    num_docs=2, doc_key="*", doc_meta=(("lang", ("en",)),)
  )
  assert rows(chosen)["doc_key"] == "*"
  assert rows(chosen)["doc_meta"] == (("lang", ("en",)),)


def test_a_large_store_keeps_each_selection_apart(corpus, monkeypatch):
  monkeypatch.setattr(document_columns, "MIN_ON_DISK", 1)
  everything = {"num_docs": None, "doc_select_mode": "first"}
  for _ in range(2):
    assert several(corpus, **everything) == [0, 1, 2, 3, 4]
    assert several(corpus, doc_key="law/*", **everything) == [0, 1, 3]
    assert several(corpus, doc_meta={"lang": "de"}, **everything) == [1]
