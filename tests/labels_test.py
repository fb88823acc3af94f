# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs over stores with labels: fields, accounts, mixes, buckets, resume."""

import functools
import itertools
import logging as std_logging

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data import row_kinds
from chomp_data import schema
from chomp_data.testing import stores as testing_stores
from chomp_data.transforms import formats
from tests.sources import labelled
from tests.sources import small_configs

SEQ_LEN = 16


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
  """Chats with levels and weights, masked ones, and text without labels."""
  root = tmp_path_factory.mktemp("corpora")
  rng = np.random.default_rng(0)
  out = {}
  for seed, (name, table, weights) in enumerate(
    [
      ("chats", labelled.LEVELS, True),
      ("masked", (0.0, 1.0), False),
      ("text", None, False),
      ("rated", None, True),
    ]
  ):
    make_store = functools.partial(testing_stores.make_store, root / name)
    lengths = np.exp(rng.normal(2.4, 1.0, 60)).astype(int).tolist()
    lengths[::13] = [0] * len(lengths[::13])
    out[name] = labelled.make(
      make_store,
      lengths,
      seed,
      table=table,
      weights=weights,
      chunk=64,
      bos_id=2,
    )
  return out


ROWS = {
  "sequential": {"kind": "sequential", "add_bos": True, "add_eos": True},
  "ffd": {"kind": "bin", "packing_buffer_docs": 7, "add_eos": True},
  "exact": {
    "kind": "bin",
    "packing_buffer_docs": 7,
    "packing_algorithm": "exact",
  },
  "reshuffled": {
    "kind": "bin",
    "packing_buffer_docs": 6,
    "shuffle_documents": "block",
    "document_block": 3,
  },
  "multi_splice": {"kind": "multi_splice", "num_docs": 5, "content_length": 9},
  "splice": {"kind": "splice", "doc_index": 5, "content_length": 6},
  "windows": {"kind": "windows", "stride": 5},
}


def rows_config(corpora, rows, names=("chats",), shuffle="block", **changes):
  kinds = {"kind": shuffle}
  if shuffle == "era":
    kinds["era_length"] = 5
  if shuffle == "block" and ROWS[rows]["kind"] != "bin":
    kinds |= {"io_block_size": 4, "window_blocks": 3}
  stores = {name: corpora[name].path for name in names}
  data = small_configs.of_rows(stores, [ROWS[rows]], **changes)
  for section in data["sources"].values():
    section["shuffle"] = kinds
  return data


def bucket_config(corpora, names=("chats", "masked", "text"), **changes):
  data = small_configs.of_rows(
    {name: corpora[name].path for name in names}, [{}]
  )
  return {**small_configs.in_buckets(data, add_eos=True), **changes}


def steps_of(pipe, most=24):
  return range(min(pipe.num_steps or most, most))


def check_run(data, corpora):
  """Compares every step with single positions, and sums with the accounts."""
  pipe = pipeline.build(data)
  by_number = [corpora[name] for name in pipe.source_names]
  weighted = any(own.store.labels.has_weights for own in by_number)
  totals = dict.fromkeys(pipe.source_names, 0)
  for step in steps_of(pipe):
    accounts = pipe.accounts.at(step)
    assert {n: own.loss_tokens for n, own in accounts.items()} == totals
    batch = pipe.canonical(step)
    spans = pipe.plan(step)
    slow = labelled.expected(
      by_number,
      spans,
      pipe.buckets[pipe.run_plan.planned(step).bucket].shape[0],
    )
    np.testing.assert_array_equal(batch["loss_mask"], slow["loss_mask"])
    assert ("loss_weight" in batch) == weighted
    if weighted:
      np.testing.assert_array_equal(batch["loss_weight"], slow["loss_weight"])
    for number, name in enumerate(pipe.source_names):
      own = batch["source_id"] == number
      totals[name] += int(batch["loss_mask"][own].sum())
  assert sum(totals.values())
  # Without what was asked before, too.
  fresh = pipeline.build(data).accounts.at(len(steps_of(pipe)))
  assert {n: own.loss_tokens for n, own in fresh.items()} == totals
  return pipe


@pytest.mark.parametrize(
  ("name", "shuffle"),
  [
    ("chats", "block"),
    pytest.param("rated", "full", marks=pytest.mark.slow),
    pytest.param("chats", "era", marks=pytest.mark.slow),
  ],
)
@pytest.mark.parametrize("rows", ROWS)
def test_accounts_are_the_sums_of_batches_in_every_kind_of_rows(
  corpora, rows, shuffle, name
):
  check_run(rows_config(corpora, rows, (name,), shuffle=shuffle), corpora)


@pytest.mark.parametrize(
  ("rows", "unit"),
  [("sequential", "loss_tokens"), ("ffd", "tokens"), ("multi_splice", "rows")],
)
def test_a_mix_of_stores_with_and_without_labels(corpora, rows, unit):
  names = ("chats", "masked", "text")
  mix = {"unit": unit, "weights": {"chats": 2, "masked": 1, "text": 1}}
  pipe = check_run(rows_config(corpora, rows, names, mix=mix), corpora)
  if unit == "loss_tokens":
    step = pipe.num_steps // 2
    own = pipe.accounts.questions.consumed(step)
    accounts = pipe.accounts.at(step)
    assert all(own[n].units == accounts[n].loss_tokens for n in names)
    level = [own["chats"].units / 2, own["masked"].units, own["text"].units]
    assert max(level) - min(level) <= SEQ_LEN


@pytest.mark.parametrize("unit", ["samples", "tokens"])
def test_buckets_of_text_obey_labels(corpora, unit):
  names = ("chats", "masked", "text", "rated")
  data = bucket_config(corpora, names)
  data["mix"]["unit"] = unit
  check_run(data, corpora)


def test_rows_of_other_layouts_in_a_mix_obey_labels(corpora):
  data = rows_config(corpora, "ffd", ("chats", "masked", "text"))
  data["sources"]["masked"]["rows"] = dict(ROWS["multi_splice"])
  data["sources"]["masked"]["shuffle"] = {"kind": "full"}
  pipe = check_run(data, corpora)
  layouts = {own.layout.positions for own in pipe.sources.values()}
  assert len(layouts) == 2


def test_rows_of_sources_without_weights_weigh_one(corpora):
  pipe = pipeline.build(rows_config(corpora, "ffd", ("chats", "text")))
  number, found = pipe.source_names.index("text"), 0
  for step in steps_of(pipe):
    # Also where no row that is read is of a source with weights.
    source = pipe.batch(step)["source_id"]
    own = np.flatnonzero(source == number)
    for rows in (own, np.arange(len(source))):
      batch = pipe.batch(step, rows)
      text = batch["source_id"] == number
      mask, weight = batch["loss_mask"][text], batch["loss_weight"][text]
      np.testing.assert_array_equal(weight, mask.astype(np.float32))
    found += own.size
  assert found


@pytest.mark.parametrize(
  ("boundary", "train_on_eos", "lookahead"),
  [
    (True, True, False), (False, True, True), (False, False, False),
    (True, False, True),
  ],
)  # fmt: skip
@pytest.mark.parametrize("rows", ["sequential", "ffd"])
def test_masks_obey_labels_whatever_the_options(
  corpora, rows, boundary, train_on_eos, lookahead
):
  data = rows_config(
    corpora,
    rows,
    ("chats", "text"),
    mask_boundary_loss=boundary,
    train_on_eos=train_on_eos,
    lookahead=lookahead,
  )
  pipe = pipeline.build(data)
  crossed = 0
  for step in steps_of(pipe, 12):
    batch, spans = pipe.batch(step), pipe.plan(step)
    assert "label_weight" not in batch
    mask, weight = batch["loss_mask"], batch["loss_weight"]
    by_number = [corpora[name] for name in pipe.source_names]
    slow = labelled.expected(by_number, spans, SEQ_LEN)
    name = "_ahead" if lookahead else ""
    wanted = slow["loss_mask" + name].copy()
    wanted_weight = slow["loss_weight" + name].copy()
    if not boundary:
      for i in range(1, len(spans)):
        row, column = int(spans.row[i]), int(spans.column[i])
        if spans.row[i - 1] != row:
          continue
        # A piece that did not fit may begin here, or be only an EOS.
        stored = spans.stored()[0][i] > 0
        label = by_number[int(spans.source[i])].label(
          int(spans.document[i]), int(spans.start[i]) if stored else -1
        )
        if label[0]:
          wanted[row, column - 1] = True
          wanted_weight[row, column - 1] = label[1]
          crossed += 1
    if not train_on_eos:
      targets = np.roll(batch["tokens"], -1, axis=1)
      targets[:, -1] = batch["next_token"] if lookahead else 0
      wanted &= targets != 1
      wanted_weight *= wanted
    np.testing.assert_array_equal(mask, wanted)
    np.testing.assert_array_equal(weight, wanted_weight)
  assert boundary or crossed


# The weight of each column's prediction, as a trainer of a format reads it.
WEIGHTS = {
  "canonical": lambda batch: batch["loss_weight"],
  "levanter": lambda batch: batch["loss_weight"],
  "axlearn": lambda batch: batch["live_targets"],
  # Of the label in the same column, which the column before predicts.
  "chomp": lambda batch: np.pad(batch["loss_weight"][:, 1:], ((0, 0), (0, 1))),
}
WEIGHTS["huggingface"] = WEIGHTS["chomp"]


def test_every_format_with_weights_and_every_kind_of_rows_has_its_lines_here():
  weighing = {name for name, spec in formats.FORMATS.items() if spec.weights}
  assert set(WEIGHTS) == weighing, "say in `WEIGHTS` where its weights are"
  assert {own["kind"] for own in ROWS.values()} == set(row_kinds.ROW_KINDS)


def assert_carries_weights(make_config, name):
  lookahead = formats.FORMATS[name].lookahead
  plain = pipeline.build(make_config(lookahead=lookahead))
  pipe = pipeline.build(make_config(lookahead=lookahead, batch_format=name))
  weighed = 0
  for step in steps_of(pipe, 6):
    canonical = plain.batch(step)
    mask, weight = canonical["loss_mask"], canonical["loss_weight"]
    batch = pipe.batch(step)
    np.testing.assert_array_equal(WEIGHTS[name](batch), weight)
    assert not weight[~mask].any()
    weighed += np.count_nonzero(weight[mask] != 1)
  assert weighed


@pytest.mark.parametrize(
  ("rows", "name"),
  [
    *zip(ROWS, itertools.cycle(WEIGHTS), strict=False),
    *(("multi_splice", name) for name in WEIGHTS),
  ],
)
def test_a_format_carries_weights_in_every_kind_of_rows(corpora, rows, name):
  assert_carries_weights(functools.partial(rows_config, corpora, rows), name)


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_format_carries_weights_in_buckets(corpora, name):
  names = ("chats", "rated")
  assert_carries_weights(functools.partial(bucket_config, corpora, names), name)


def formatted(corpora, name, step=1):
  data = rows_config(corpora, "sequential", batch_format=name)
  return pipeline.build(data).batch(step)


def test_formats_obey_labels(corpora, caplog):
  mask = formatted(corpora, "canonical")["loss_mask"]
  chomp = formatted(corpora, "chomp")
  np.testing.assert_array_equal(chomp["labels"][:, 1:] != -100, mask[:, :-1])
  assert not chomp["loss_weight"][:, 0].any()
  axlearn = formatted(corpora, "axlearn")
  np.testing.assert_array_equal(axlearn["target_labels"] >= 0, mask)
  with caplog.at_level(std_logging.WARNING):
    maxtext = formatted(corpora, "maxtext")
  np.testing.assert_array_equal(maxtext["targets_segmentation"] > 0, mask)
  assert "loss_weight" not in maxtext
  assert "'maxtext' has no place for weights" in caplog.text
  assert "'chats'" in caplog.text


def test_balancing_trained_tokens_of_which_there_are_none_is_refused(
  corpora, tmp_path
):
  testing_stores.make_store(
    tmp_path / "none",
    [[3, 4, 5]] * 20,
    levels=(0.0, 1.0),
    label_levels=[[0, 0, 0]] * 20,
  )
  data = rows_config(corpora, "ffd", ("chats", "text"))
  data["mix"] = {"unit": "loss_tokens", "weights": {"chats": 1, "text": 1}}
  data["sources"]["text"]["store"] = str(tmp_path / "none")
  with pytest.raises(
    schema.ConfigError, match=r"mix\.unit` must be another .*'text', of .*none"
  ):
    pipeline.build(data)
  data["mix"]["unit"] = "tokens"
  pipe = pipeline.build(data)
  assert pipe.accounts.at(pipe.num_steps)["text"].loss_tokens == 0
  testing_stores.make_store(
    tmp_path / "weightless", [[3, 4, 5]] * 20, weights=[0.0] * 20
  )
  data["sources"]["text"]["store"] = str(tmp_path / "weightless")
  pipe = pipeline.build(data)
  assert pipe.accounts.at(pipe.num_steps)["text"].loss_tokens == 0
  data["mix"]["unit"] = "loss_tokens"
  with pytest.raises(schema.ConfigError, match="weightless"):
    pipeline.build(data)


class Joined:
  """Corpora one after the other, as one source reads them."""

  def __init__(self, *members):
    self.members = members

  def label(self, document, token):
    for own in self.members:
      if document < own.store.num_documents:
        return own.label(document, token)
      document -= own.store.num_documents
    raise IndexError(document)


@pytest.mark.parametrize(
  ("rows", "joined"),
  [
    ("sequential", (0, 1, 2)), ("ffd", (0, 1, 2)), ("multi_splice", (0, 0, 0)),
  ],
)  # fmt: skip
def test_many_stores_as_one_source_obey_the_labels_of_each(
  corpora, rows, joined
):
  data = rows_config(corpora, rows, epochs=4)
  names = ("text", "chats", "masked")
  source = data["sources"]["chats"]
  source |= {"store": [corpora[n].path for n in names], "joined": joined}
  pipe = pipeline.build(data)
  whole = Joined(*(corpora[name] for name in names))
  total = 0
  for step in steps_of(pipe, 100):
    assert pipe.accounts.at(step)["chats"].loss_tokens == total
    batch, spans = pipe.batch(step), pipe.plan(step)
    slow = labelled.expected([whole], spans, SEQ_LEN)
    np.testing.assert_array_equal(batch["loss_mask"], slow["loss_mask"])
    np.testing.assert_array_equal(batch["loss_weight"], slow["loss_weight"])
    total += int(batch["loss_mask"].sum())
