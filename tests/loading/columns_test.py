# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A process that holds some columns of rows reads those, and the next one."""

import functools
import itertools

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.plans import plan as plan_lib
from chomp_data.testing import stores as testing_stores
from chomp_data.transforms import formats
from tests.loading import processes
from tests.loading import sharding_test
from tests.sources import labelled
from tests.sources import small_configs

SEQ_LEN = 16
CUTS = [(0, 8), (8, 16), (3, 11), (0, 1), (15, 16), (5, 6)]
ROWS = {
  "sequential": {"kind": "sequential", "add_bos": True, "add_eos": True},
  "ffd": {"kind": "bin", "packing_buffer_docs": 7, "add_eos": True},
  "splice": {"kind": "multi_splice", "num_docs": 5, "content_length": 9},
}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
  """Text with levels and weights, and text without."""
  root, out = tmp_path_factory.mktemp("corpora"), {}
  for name, table in (("chats", labelled.LEVELS), ("text", None)):
    make_store = functools.partial(testing_stores.make_store, root / name)
    lengths = np.random.default_rng(0).integers(0, 40, 40).tolist()
    weights = table is not None
    out[name] = labelled.make(
      make_store, lengths, table=table, weights=weights, chunk=64, bos_id=2
    ).path
  return out


def config(corpora, rows, names=("chats",), **changes):
  stores = {name: corpora[name] for name in names}
  return small_configs.of_rows(stores, rows, **{"epochs": 1, **changes})


def check(data):
  """Every column is as in a batch of all of them, whatever else is read."""
  pipe, reads = pipeline.build(data), []
  more = data.get("num_targets", 0)
  widths = {own.name: own.shape[0] for own in pipe.buckets}
  for low, high in [(0, SEQ_LEN), *CUTS]:
    columns = {
      name: (min(low, width - 1), min(high + max(more, 1), width + more))
      for name, width in widths.items()
    }
    source = pipeline.batch_source(pipe, plan_lib.LocalRows(columns=columns))
    for step in range(min(pipe.num_steps, 8)):
      found = source[step]
      for operation in pipe.operations:
        found = operation.map(found)
      whole = pipe.batch(step)
      assert found.keys() == whole.keys()
      for name, value in whole.items():
        if value.ndim == 2:
          last = min(high, value.shape[1])
          cut = (slice(None), slice(min(low, last - 1), last))
          np.testing.assert_array_equal(found[name][cut], value[cut], name)
        else:
          np.testing.assert_array_equal(found[name], value, name)
    counts = source.reads.by_source().values()
    reads.append(sum(own.logical_reads for own in counts))
  return reads


FORMATS = [
  ("canonical", {"lookahead": True}),
  ("canonical", {"num_targets": 3, "train_on_eos": False}),
  ("maxtext", {"num_targets": 2}),
  ("canonical", {"train_on_eos": False, "mask_boundary_loss": False}),
  ("maxtext", {"lookahead": True, "train_on_eos": False}),
  ("chomp", {"train_on_eos": False}),
  ("axlearn", {"lookahead": True}),
]
FORMATS += [
  (name, {})
  for name, spec in formats.FORMATS.items()
  if spec.name is None and name not in dict(FORMATS)
]


@pytest.mark.parametrize(
  ("name", "changes", "rows"),
  [
    (*own, rows)
    for own, rows in zip(FORMATS, itertools.cycle(ROWS))
  ],
)  # fmt: skip
def test_columns_are_as_in_batches_that_were_read_whole(
  corpora, rows, name, changes
):
  changes = {**changes, "batch_format": name}
  whole, *parts = check(config(corpora, [ROWS[rows]], **changes))
  assert sum(parts) < 0.9 * whole * len(parts)


def test_several_ranges_of_columns_are_as_in_batches_that_were_read_whole(
  corpora,
):
  data = config(corpora, [ROWS["ffd"]], num_targets=2)
  pipe, held = pipeline.build(data), np.asarray([1, 2, 9, 12])
  # Each with its two targets, the last ones after the row.
  low, high = np.asarray([1, 9, 15]), np.asarray([5, 15, 18])
  held = np.append(held, 15)
  columns = {str(SEQ_LEN): (low, high)}
  source = pipeline.batch_source(pipe, plan_lib.LocalRows(columns=columns))
  for step in range(pipe.num_steps):
    whole = pipe.batch(step)
    for name, value in source[step].items():
      if value.ndim == 2:
        np.testing.assert_array_equal(value[:, held], whole[name][:, held])


def test_columns_of_mixes_of_layouts_of_buckets_and_of_what_is_gone(
  corpora, tmp_path
):
  kinds = list(ROWS.values())
  gone = tmp_path / "gone.jsonl"
  gone.write_text('{"source": "chats", "document": 3}\n')
  edits = {"tombstones": ((1, str(gone)),)}
  check(config(corpora, kinds[1:], ("chats", "text"), **edits))
  check(config(corpora, kinds[:1], ("chats", "text")))
  data = config(corpora, kinds[:1], ("chats", "text"))
  check(small_configs.in_buckets(data, add_eos=True))


def test_processes_read_their_columns_and_hold_the_batch_together(corpora):
  data = config(corpora, [ROWS["ffd"]], batch_format="axlearn")
  data |= {"lookahead": True, "balance": "attention", "seq_len": 128}
  pipe = pipeline.build(data)
  steps = sharding_test.run(data, "columns", 2)
  sharding_test.check(data, steps, 0, pipe.num_steps, order=pipe.row_order)
  whole = pipeline.batch_source(pipe)
  for step in range(pipe.num_steps):
    whole[step]
  expected = whole.reads.by_source()["chats"].logical_reads
  own = processes.call(
    "tests.loading.distributed_worker:reads", [{"data": data}] * 2
  )
  assert all(0 < count < 0.8 * expected for count, _ in own), (own, expected)
  # Transforms of a job may look at any column.
  assert all(count == expected for _, count in own)
