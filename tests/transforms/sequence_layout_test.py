# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Layouts are permutations of columns; losses on them are those without."""

import itertools

import grain
import numpy as np
import pytest

import chomp_data
from chomp_data.transforms import formats
from tests.loading import columns_test
from tests.sources import small_configs

corpora = columns_test.corpora
SEQ_LEN = columns_test.SEQ_LEN
KINDS = ("contiguous", "dual_chunk_swap", "striped")


def config(corpora, kind, shards=2, rows="ffd", **changes):
  layout = {"kind": kind, "shards": shards, **changes.pop("layout", {})}
  changes = {"num_targets": 2, "sequence_layout": layout, **changes}
  return columns_test.config(corpora, [columns_test.ROWS[rows]], **changes)


def orders(kind, seq_len, shards):
  """Returns the canonical columns of each shard, from the definition."""
  columns = list(range(seq_len))
  if kind == "striped":
    return [columns[i::shards] for i in range(shards)]
  if kind == "contiguous":
    size = seq_len // shards
    return [columns[i * size : (i + 1) * size] for i in range(shards)]
  size = seq_len // (2 * shards)
  chunks = [columns[i * size : (i + 1) * size] for i in range(2 * shards)]
  return [chunks[i] + chunks[2 * shards - 1 - i] for i in range(shards)]


class Bias(grain.transforms.Map):
  """Adds a field with columns, and one of rows."""

  fingerprint = "bias"

  def map(self, element):
    names = ("tokens", "inputs", "input_ids")
    tokens = next(element[name] for name in names if name in element)
    return {**element, "bias": tokens * 2, "votes": tokens[:, ::-1]}


def restored(batch, layout, names):
  """Returns a batch with the fields that have columns put back."""
  inverse = np.argsort(layout.order(SEQ_LEN))
  return {
    name: np.asarray(value)[:, inverse] if name in names else np.asarray(value)
    for name, value in batch.items()
  }


@pytest.mark.parametrize(
  ("name", "kind"), zip(formats.FORMATS, itertools.cycle(KINDS), strict=False)
)
def test_the_inverse_of_every_field_is_the_canonical_batch(corpora, kind, name):
  """Also where `document_id` is as wide as rows, and of a user's fields."""
  changes = {"batch_format": name, "document_id": True, "train_on_eos": False}
  layout = {"fields": ("bias",), "row_fields": ("votes",)}
  data = config(corpora, kind, layout=layout, **changes)
  data["sources"]["chats"]["rows"] = {
    **columns_test.ROWS["ffd"], "document_slots": SEQ_LEN,
  }  # fmt: skip
  plain = {**data, "sequence_layout": None}
  own = chomp_data.build(data).run_options.sequence_layout
  with (
    chomp_data.make_iterator(data, operations=[Bias()]) as batches,
    chomp_data.make_iterator(plain, operations=[Bias()]) as wanted,
  ):
    for batch, whole in zip(batches, wanted, strict=True):
      columns = {
        field
        for field, value in whole.items()
        if value.ndim == 2 and field not in ("document_id", "votes")
      }
      found = restored(batch, own, columns)
      assert found.keys() == whole.keys()
      for field, value in whole.items():
        np.testing.assert_array_equal(found[field], np.asarray(value), field)


def test_buckets_are_permuted_by_their_own_length(corpora):
  data = config(corpora, "dual_chunk_swap")
  data = small_configs.in_buckets(data, add_eos=True)
  pipe = chomp_data.build(data)
  plain = chomp_data.build({**data, "sequence_layout": None})
  widths = set()
  for step in range(pipe.num_steps):
    batch, whole = pipe.batch(step), plain.batch(step)
    width = whole["tokens"].shape[1]
    widths.add(width)
    order = list(itertools.chain(*orders("dual_chunk_swap", width, 2)))
    for field, value in whole.items():
      value = value[:, order] if value.ndim == 2 else value
      np.testing.assert_array_equal(batch[field], value, field)
  assert widths == {4, 8, SEQ_LEN}


def test_a_layout_is_no_difference_between_runs(corpora):
  data = config(corpora, "striped")
  pipe = chomp_data.build(data)
  other = chomp_data.build({**data, "sequence_layout": None})
  assert pipe.fingerprint == other.fingerprint
  np.testing.assert_array_equal(pipe.plan(1).column, other.plan(1).column)
  with chomp_data.make_iterator(pipe) as batches:
    next(batches)
    state = batches.get_state()
  with chomp_data.make_iterator(other) as batches:
    batches.set_state(state)
    batch = next(batches)
    assert batches.step == 2
    wanted = other.batch(1)["tokens"]
    np.testing.assert_array_equal(np.asarray(batch["tokens"]), wanted)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"seq_len": 18}, "seq_len` must be a multiple of 4 .* got 18"),
    ({"lookahead": True}, "lookahead` must be False .*num_targets=1"),
    ({"num_targets": 0}, "num_targets` must be at least 1 .* got 0"),
    (
      {"num_targets": 0, "batch_format": "levanter"},
      "num_targets` must be at least 1 .* maxtext or axlearn",
    ),
    ({"layout": {"kind": "rings"}}, "sequence_layout.kind` must be .*'rings'"),
    ({"layout": {"shards": 0}}, "sequence_layout.shards` must be .* got 0"),
    ({"layout": {"chunks": 2}}, "chunks"),
  ],
)
def test_what_does_not_go_with_a_layout_is_refused(corpora, changes, message):
  with pytest.raises(chomp_data.ConfigError, match=message):
    chomp_data.build(config(corpora, "dual_chunk_swap", **changes))


def test_a_bucket_that_does_not_divide_is_refused(corpora):
  data = config(corpora, "striped", shards=8)
  data = small_configs.in_buckets(data, add_eos=True)
  with pytest.raises(
    chomp_data.ConfigError, match=r"lengths\[0\]` must be a multiple of 8"
  ):
    chomp_data.build(data)


def test_formats_with_targets_need_no_others(corpora):
  for name in ("maxtext", "axlearn"):
    data = config(corpora, "striped", batch_format=name, num_targets=0)
    plain = chomp_data.build({**data, "sequence_layout": None}).batch(0)
    batch = chomp_data.build(data).batch(0)
    order = list(itertools.chain(*orders("striped", SEQ_LEN, 2)))
    assert batch.keys() == plain.keys()
    for field, value in plain.items():
      value = value[:, order] if value.ndim == 2 else value
      np.testing.assert_array_equal(batch[field], value)


def test_a_field_that_is_not_declared_is_refused(corpora):
  data = config(corpora, "striped", layout={"fields": ("bias",)})
  with pytest.raises(ValueError, match="'votes' of shape"):
    chomp_data.make_iterator(data, operations=[Bias()])


def test_fields_of_a_layout_are_made_on_the_host(corpora):
  data = {**config(corpora, "striped"), "device_fields": "always"}
  pipe = chomp_data.build(data)
  with chomp_data.make_iterator(pipe) as batches:
    for step, batch in enumerate(batches):
      for field, value in pipe.batch(step).items():
        np.testing.assert_array_equal(np.asarray(batch[field]), value)
