# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Preference pairs in packed rows: what a row holds, and what is refused."""

import json

import numpy as np
import pytest

import chomp_data
from chomp_data import schema
from chomp_data import stores
from chomp_data.pack import bins
from chomp_data.pack import packing_options
from chomp_data.reference import train_options
from chomp_data.testing import stores as testing_stores
from examples import drawings

SEQ_LEN = 16


def write(path, pairs, **options):
  """Writes pairs, each (prompt tokens, chosen, rejected) as lengths."""
  documents, levels, token = [], [], 3
  for prompt, *answers in pairs:
    shared = np.arange(token, token + prompt)
    token += prompt
    for size in answers:
      documents.append(np.append(shared, np.arange(token, token + size)))
      levels.append(np.arange(prompt + size) >= prompt)
      token += size
  return testing_stores.make_store(
    path,
    documents,
    vocab_size=2**16,
    levels=(0.0, 1.0),
    label_levels=levels,
    pairs=True,
    bos_id=2,
    **options,
  )


# A pair as long as a row: a store has at least the tokens of one.
WHOLE = (0, 8, 8)


def build(store, run=None, **rows):
  """Builds a run of one row a step over pairs."""
  return chomp_data.build(
    {
      "seq_len": SEQ_LEN,
      "global_batch_size": 1,
      "epochs": 1,
      "document_id": True,
      **(run or {}),
      "sources": {
        "text": {
          "store": store if isinstance(store, tuple) else store.path,
          "rows": {"kind": "bin", "shuffle_rows": False, **rows},
        }
      },
    }
  )


def test_the_halves_of_a_pair_are_segments_2p_plus_1_and_2p_plus_2(tmp_path):
  store = write(tmp_path / "s", [(2, 3, 2), (1, 2, 1), WHOLE])
  pipe = build(store, pair_slots=3)
  batch = pipe.batch(1)
  assert pipe.num_steps == 2
  assert {
    name: batch[name][0].tolist() for name in ("tokens", "segment_ids")
  } == {
    "tokens": [3, 4, 5, 6, 7, 3, 4, 8, 9, 10, 11, 12, 10, 13, 0, 0],
    "segment_ids": [1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 0, 0],
  }
  assert batch["positions"][0, :14].tolist() == [
    0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1, 2, 0, 1,
  ]  # fmt: skip
  assert batch["loss_mask"][0].astype(int).tolist() == [
    0, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0,
  ]  # fmt: skip
  assert batch["pair_mask"].tolist() == [[True, True, False]]
  assert batch["document_id"][0, :5].tolist() == [0, 1, 2, 3, -1]


def test_the_reference_trainer_has_no_loss_of_pairs(tmp_path):
  store = write(tmp_path / "s", [(2, 3, 2), WHOLE])
  source = {"store": store.path, "rows": {"kind": "bin", "pair_slots": 3}}
  data = {"seq_len": SEQ_LEN, "global_batch_size": 1}
  with pytest.raises(schema.ConfigError, match=r"sources\.text` must be doc"):
    train_options.read({"data": {**data, "sources": {"text": source}}})


def test_rows_have_no_more_pairs_than_slots(tmp_path):
  store = write(tmp_path / "s", [(0, 1, 1)] * 20)
  pipe = build(store, pair_slots=3)
  counts = [int(pipe.batch(i)["pair_mask"].sum()) for i in range(7)]
  assert pipe.num_steps == 7
  assert counts == [3, 3, 3, 3, 3, 3, 2]
  slots = {"pair_slots": 3, "document_slots": 6}
  pipe = build(store, packing_max_docs_per_bin=2, **slots)
  assert pipe.num_steps == 10
  assert pipe.batch(0)["pair_mask"].tolist() == [[True, True, False]]
  assert pipe.batch(0)["document_id"].shape == (1, 6)


LONG = [(4, 6, 7), (0, 1, 1), (5, 6, 6), (3, 9, 5), (2, 5, 3), (0, 8, 9), WHOLE]


def test_a_pair_with_an_empty_half_is_skipped(tmp_path):
  store = write(tmp_path / "s", [(0, 0, 3), (1, 7, 7), (0, 2, 0)])
  pipe = build(store)
  assert pipe.sources["text"].report().empty == 2
  assert np.unique(pipe.plan(0, pipe.num_steps).document).tolist() == [2, 3]


def test_a_tombstone_of_either_half_removes_both(tmp_path):
  store = write(tmp_path / "s", [(1, 2, 1), (0, 1, 2), (1, 3, 3)])
  for number, line in enumerate(
    (
      {"source": "text", "document": 3},
      {"source": "text", "document": 2, "start": 0, "length": 1},
      {"source": "text", "document": "3", "start": 1},
    )
  ):
    file = tmp_path / f"{number}.jsonl"
    file.write_text(json.dumps(line))
    pipe = build(store, {"tombstones": ((0, str(file)),)})
    plan = pipe.plan(0)
    assert plan.document[plan.masked].tolist() == [2, 3]
    batch = pipe.batch(0)
    p = int(plan.segment[plan.document == 2][0] - 1) // 2
    assert batch["pair_mask"][0, :4].tolist() == [i != p for i in range(3)] + [
      False
    ]
    assert not batch["loss_mask"][np.isin(batch["segment_ids"], 0)].any()
    assert np.count_nonzero(batch["segment_ids"]) == 13


def refused(store, match, run=None, **rows):
  with pytest.raises((schema.ConfigError, stores.StoreError), match=match):
    build(store, run, **rows)


def test_what_separates_pairs_is_refused(tmp_path):
  store = write(tmp_path / "s", [(1, 2, 3)] * 12)
  plain = testing_stores.make_store(tmp_path / "plain", [[5] * 9] * 12)
  refused(store, "packing_algorithm` must be 'ffd'", packing_algorithm="exact")
  refused(store, "long_documents` must be 'cut'", long_documents="drop")
  refused(
    store, "mask_boundary_loss` must be True", {"mask_boundary_loss": False}
  )
  for kind in ("sequential", "splice", "multi_splice", "windows"):
    with pytest.raises(schema.ConfigError, match="must be 'bin'"):
      chomp_data.build(
        {
          "seq_len": SEQ_LEN,
          "global_batch_size": 1,
          "sources": {"text": {"store": store.path, "rows": {"kind": kind}}},
        }
      )
  unlabelled = testing_stores.make_store(
    tmp_path / "unlabelled", [[5] * 9] * 12, pairs=True
  )
  refused(
    unlabelled,
    "long_pairs` must be 'drop' for .* no labels",
    long_pairs="truncate_prompt",
  )
  refused(plain, "pair_slots` must be left out", pair_slots=8)
  refused(plain, "long_pairs` must be left out", long_pairs="truncate_prompt")
  bare = testing_stores.make_store(
    tmp_path / "bare", [[3, 4], [3, 5]] * 9, pairs=True
  )
  refused(bare, "long_pairs` must be 'drop'", long_pairs="truncate_prompt")
  refused((store.path, plain.path), "must hold preference pairs")
  with pytest.raises(schema.ConfigError, match="buckets"):
    chomp_data.build(
      {
        "buckets": {"lengths": (8, 16), "tokens_per_batch": 32},
        "sources": {"text": {"store": store.path}},
      }
    )


@pytest.mark.parametrize(
  ("other", "match"),
  [
    ("plain", "preference pairs only or of none"),
    ("s", "same rows.pair_slots"),
  ],
)
def test_sources_of_a_run_are_all_pairs_with_as_many_slots(
  tmp_path, other, match
):
  write(tmp_path / "s", [(1, 2, 3)] * 12)
  testing_stores.make_store(
    tmp_path / "plain", [[5] * 9] * 12, vocab_size=2**16, bos_id=2
  )
  sources = {
    "a": {
      "store": str(tmp_path / "s"),
      "rows": {"kind": "bin", "pair_slots": 8},
    },
    "b": {"store": str(tmp_path / other), "rows": {"kind": "bin"}},
  }
  with pytest.raises(schema.ConfigError, match=match):
    chomp_data.build(
      {"seq_len": SEQ_LEN, "global_batch_size": 1, "sources": sources}
    )


def test_a_phase_after_pairs_is_refused(tmp_path):
  store = write(tmp_path / "s", [(1, 2, 3)] * 12)
  pipe = build(store)
  state = tmp_path / "run" / "input.json"
  state.parent.mkdir()
  with chomp_data.make_iterator(pipe) as iterator:
    next(iterator)
    state.write_bytes(iterator.get_state())
  refused(
    store, "start_after` must be None", {"start_after": str(state.parent)}
  )


def test_a_store_of_pairs_has_two_halves_of_each_and_an_identity(tmp_path):
  pairs = write(tmp_path / "s", [(1, 2, 3)] * 3)
  documents = [stores.read_document(pairs, i) for i in range(6)]
  with pytest.raises(stores.StoreError, match="even number"):
    testing_stores.make_store(tmp_path / "odd", documents[:5], pairs=True)
  single = testing_stores.make_store(tmp_path / "one", documents)
  same = testing_stores.make_store(tmp_path / "two", documents, pairs=True)
  assert single.hash != same.hash
  assert not single.opened.pairs
  manifest = json.loads((tmp_path / "one" / "manifest.json").read_text())
  assert "pairs" not in manifest
  manifest = json.loads((tmp_path / "two" / "manifest.json").read_text())
  assert manifest["pairs"] is True


def test_stock_rows_have_the_mask_too(tmp_path):
  store = write(tmp_path / "s", [(1, 2, 3)] * 12)
  source = bins.BinSource(store, packing_options.BinOptions(), seq_len=SEQ_LEN)
  assert source[0]["pair_mask"].shape == (64,)
  assert source.batch(np.arange(2))["pair_mask"].sum() == 4


def test_fingerprints_tell_the_options_of_pairs_of_pairs_alone(tmp_path):
  store = write(tmp_path / "s", [(1, 2, 3)] * 12)
  plain = testing_stores.make_store(tmp_path / "plain", [[5] * 9] * 12)

  def fingerprint(store, **options):
    options = packing_options.BinOptions(**options)
    return bins.BinSource(store, options, seq_len=SEQ_LEN).fingerprint

  prints = [
    json.dumps(fingerprint(store, **options))
    for options in (
      {}, {"pair_slots": 2}, {"long_pairs": "truncate_prompt"},
    )
  ]  # fmt: skip
  assert len(set(prints)) == 3
  assert not {"pair_slots", "long_pairs"} & fingerprint(plain)["rows"].keys()


def test_columns_of_documents_are_chosen_and_rejected(tmp_path):
  number = 24
  store = write(
    tmp_path / "s",
    [(1, 2, 3), (1, 3, 3)] * 6,
    columns={"margin": stores.Column(dtype="float32", per="document")},
    column_values={"margin": [float(i + 1) for i in range(number)]},
  )
  run = {"columns": ("margin",), "global_batch_size": 3}
  pipe = build(store, run, pair_slots=3, document_slots=6)
  seen = []
  for step in range(pipe.num_steps):
    batch = pipe.batch(step)
    mask = batch["pair_mask"]
    by_pair = batch["margin"].reshape(*mask.shape, 2)
    ids = batch["document_id"].reshape(*mask.shape, 2)
    np.testing.assert_array_equal(by_pair[mask], ids[mask] + 1)
    assert (by_pair[~mask] == 0).all()
    seen += ids[mask][:, 0].tolist()
  assert sorted(seen) == list(range(0, number, 2))
  refused(store, "document_slots` must be at least 6", run, pair_slots=3,
          document_slots=5)  # fmt: skip
  build(store, {"columns": ()}, pair_slots=3, document_slots=5)


def test_a_picture_shows_prompts_and_answers_of_both_halves(tmp_path):
  batch = build(write(tmp_path / "s", [(2, 3, 2), (1, 3, 2)])).batch(0)
  picture = drawings.pairs(batch, height=4, width=2)
  assert picture.shape == (4, 2 * SEQ_LEN, 3)
  colours = [tuple(x) for x in picture[0, 1::2].tolist()]
  green, orange = colours[2], colours[8]
  assert len({*colours[:2], green, orange, colours[5]}) == 4
  assert colours[2:5] == [green] * 3
  assert (picture[-2:] == 255).all()
  # A line is where a pair begins.
  opens = np.flatnonzero((picture[0] == 0).all(axis=1))
  assert opens.tolist() == [0, 18]


def test_plans_read_no_labels(tmp_path, monkeypatch):
  """They are read when pairs are packed, to know which fit."""
  store = write(tmp_path / "s", LONG)
  pipe = build(store, long_pairs="truncate_prompt")
  wanted = pipe.plan(0, pipe.num_steps)
  labels = type(pipe.sources["text"].store.labels)
  monkeypatch.setattr(labels, "runs", None)
  plan = pipe.plan(0, pipe.num_steps)
  assert plan.length.tolist() == wanted.length.tolist()
