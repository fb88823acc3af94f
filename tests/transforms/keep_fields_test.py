# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Canonical fields beside those of a format."""

import grain
import numpy as np
import pytest

import chomp_data
from chomp_data.transforms import formats
from tests.loading import columns_test

corpora = columns_test.corpora
# All that a run with these options has.
OPTIONS = {"document_id": True, "num_targets": 2, "train_on_eos": False}
FIELDS = (
  *("tokens", "segment_ids", "positions", "loss_mask", "loss_weight"),
  *("attention_mask", "source_id", "document_id"),
  *("targets", "target_mask", "target_weight"),
  *("targets_2", "target_mask_2", "target_weight_2"),
)
# What formats call the same, and mean another thing.
REPLACED = {
  "chomp": {"loss_weight"},
  "huggingface": {"loss_weight"},
  "levanter": {"loss_weight"},
}


def config(corpora, **changes):
  rows = [columns_test.ROWS["ffd"]]
  return columns_test.config(corpora, rows, **{**OPTIONS, **changes})


def check_equal(batch, expected):
  assert batch.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(batch[name], value, name)


@pytest.mark.parametrize("name", formats.FORMATS)
def test_kept_fields_are_beside_those_of_the_format(corpora, name):
  data = config(corpora, batch_format=name)
  names = sorted(set(FIELDS) - REPLACED.get(name, set()))
  pipe = chomp_data.build({**data, "keep_fields": names})
  canonical = {**data, "batch_format": "canonical"}
  canonical = chomp_data.build({**canonical, "keep_fields": ["attention_mask"]})
  plain = chomp_data.build(data)
  for step in range(4):
    kept = {field: canonical.batch(step)[field] for field in names}
    check_equal(pipe.batch(step), {**plain.batch(step), **kept})


@pytest.mark.parametrize("name", REPLACED)
def test_a_field_that_the_format_makes_is_refused(corpora, name):
  for field in REPLACED[name]:
    data = config(corpora, batch_format=name, keep_fields=["tokens", field])
    with pytest.raises(
      chomp_data.ConfigError,
      match=f"keep_fields` must hold no field .*'{name}' makes .*'{field}'",
    ):
      chomp_data.build(data)


def test_a_format_of_a_user_is_asked_what_it_makes(corpora, monkeypatch):
  class Renamed(grain.transforms.Map):
    def map(self, element):
      return {"ids": element["tokens"], "source_id": element["loss_mask"] * 2}

  monkeypatch.setitem(formats.FORMATS, "renamed", formats.Format(Renamed))
  data = config(corpora, batch_format="renamed")
  batch = chomp_data.build({**data, "keep_fields": ("tokens",)}).batch(0)
  assert batch["tokens"] is batch["ids"]
  with pytest.raises(chomp_data.ConfigError, match=r"makes itself.*source_id"):
    chomp_data.build({**data, "keep_fields": ("source_id",)})


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"keep_fields": "tokens"}, r"keep_fields` must be a list .*'tokens'"),
    ({"keep_fields": [3]}, r"keep_fields` must be a list .*3"),
    (
      {"keep_fields": ["sorce_id"]},
      r"must hold canonical fields .*got 'sorce_id'\. Did you mean `source_id`",
    ),
    (
      {"keep_fields": ["document_id"], "document_id": False},
      r"got 'document_id'.* set the option that adds it: document_id",
    ),
    ({"keep_fields": ["targets_3"]}, r"got 'targets_3'.* num_targets"),
    ({"keep_fields": ["next_token"]}, r"got 'next_token'.* lookahead"),
    ({"keep_fields": ["label_weight"]}, r"got 'label_weight'"),
  ],
)  # fmt: skip
def test_wrong_names_are_refused(corpora, changes, message):
  with pytest.raises(chomp_data.ConfigError, match=message):
    chomp_data.build(config(corpora, batch_format="maxtext", **changes))


def test_fields_that_no_store_has_are_refused(corpora):
  data = config(corpora, names=("text",), batch_format="axlearn")
  for field in ("loss_weight", "target_weight_2", "pair_mask"):
    with pytest.raises(
      chomp_data.ConfigError, match=f"no weights .* where no store .*{field}"
    ):
      chomp_data.build({**data, "keep_fields": [field]})


def test_they_are_in_a_fingerprint_where_they_are_set(corpora):
  data = config(corpora, batch_format="maxtext")
  unset = chomp_data.build({**data, "keep_fields": ()}).fingerprint
  assert unset == chomp_data.build(data).fingerprint
  names = ["source_id", "document_id", "source_id"]
  kept = chomp_data.build({**data, "keep_fields": names}).fingerprint
  assert kept == {**unset, "keep_fields": ["document_id", "source_id"]}


@pytest.mark.parametrize("name", ["chomp", "axlearn"])
def test_layouts_and_narrow_fields_take_them(corpora, name):
  names = ("source_id", "document_id", "loss_mask", "attention_mask")
  data = config(
    corpora,
    batch_format=name,
    keep_fields=names,
    sequence_layout={"kind": "dual_chunk_swap", "shards": 2},
    device_fields="always",
  )
  pipe = chomp_data.build(data)
  order = pipe.run_options.sequence_layout.order(columns_test.SEQ_LEN)
  with chomp_data.make_iterator(pipe) as batches:
    for step in range(2):
      batch = next(batches)
      check_equal(batch, pipe.batch(step))
      mask = pipe.canonical(step)["attention_mask"][:, order]
      np.testing.assert_array_equal(batch["attention_mask"], mask)
