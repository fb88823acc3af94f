# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Buckets and layouts of columns over real JAX processes.

Here, where other tests have such processes: each set takes seconds to start.
"""

import pytest

import chomp_data
from tests.loading import columns_test
from tests.loading import processes
from tests.loading import sharding_test
from tests.plans import conftest
from tests.transforms import sequence_layout_test

corpora = columns_test.corpora
text, text_stores = conftest.text, conftest.text_stores
pictures, sample_stores = conftest.pictures, conftest.sample_stores


@pytest.mark.slow
def test_arrays_are_in_step_over_four_processes_and_go_on_over_two(
  pictures, tmp_path
):
  pictures = conftest.changed(
    pictures, remainder="pad", buckets__batch_sizes={"8x8": 16}
  )
  sharding_test.check_sizes(pictures, tmp_path, (4, 2), 4)


@pytest.mark.slow
def test_a_checkpoint_restores_on_other_processes_and_workers(text, tmp_path):
  data = {**text, "buckets": {**text["buckets"], "tokens_per_batch": 512}}
  sharding_test.check_sizes(data, tmp_path, (2, 1), 5)


def test_buckets_that_do_not_divide_are_one_clear_error(text):
  told = sharding_test.refused(text, {"data": 8}, "own('data')")
  # Of 32, 16, 8 and 4 rows only the last do not divide by 8.
  assert told.startswith("ConfigError: `config.data.buckets.tokens_per")
  assert "4 rows of bucket 64 over 8 devices" in told
  assert "'data': 8" in told
  assert told.count("rows of bucket") == 1


def of_pixels(pictures, **buckets):
  return {
    **pictures,
    "remainder": "pad",
    "global_batch_size": 16,
    "buckets": {**pictures["buckets"], "fields": ("pixels",), **buckets},
  }


def test_a_side_that_does_not_divide_is_told_and_not_the_rows(pictures):
  data = of_pixels(pictures, batch_sizes={})
  told = sharding_test.refused(data, {"data": 2, "sp": 4}, "own('data', 'sp')")
  assert "axis 1 of `pixels` must divide over the sharding" in told
  assert "got 6 of bucket 6x4 over 4 devices" in told
  assert "rows" not in told
  assert told.count("must") == 1


@pytest.mark.parametrize(
  ("batch_sizes", "field", "rows"),
  [
    ({}, "config.data.global_batch_size", "12 rows of bucket 4x6"),
    (
      {"4x6": 24, "6x4": 24, "8x8": 4},
      "config.data.buckets.batch_sizes",
      "4 rows of bucket 8x8",
    ),
  ],
)
def test_rows_that_do_not_divide_name_the_field_that_says_how_many(
  pictures, batch_sizes, field, rows
):
  data = of_pixels(pictures, batch_sizes=batch_sizes)
  if not batch_sizes:
    data["global_batch_size"] = 12
  told = sharding_test.refused(data, {"data": 8}, "own('data')")
  assert f"`{field}` must give batches that divide" in told
  assert f"got {rows} over 8 devices" in told
  assert told.count("must") == (1 if batch_sizes else 3)


def test_a_field_without_a_sharding_is_told_once(pictures):
  names = ["pixels", "label", "score", "width", "dataset_id", "sample_id"]
  shardings = ", ".join(f"'{name}': own('data')" for name in names)
  data = of_pixels(pictures, batch_sizes={})
  told = sharding_test.refused(data, {"data": 8}, f"{{{shardings}}}")
  assert "`sharding` must hold field 'height' or rank 1" in told
  assert told.count("must") == 1


def test_a_sharding_of_more_axes_than_a_field_is_told_once(pictures):
  shardings = "{1: own('data', 'sp'), 4: own('data')}"
  data = of_pixels(pictures, batch_sizes={}, metadata=())
  told = sharding_test.refused(data, {"data": 2, "sp": 4}, shardings)
  for name in ("height", "width", "dataset_id", "sample_id"):
    assert told.count(f"`sharding` must fit field '{name}' of 1 axes") == 1


def test_processes_read_their_columns_and_the_targets_of_these(corpora):
  """Two processes of two devices: every shard is that of the whole batch."""
  kind = "dual_chunk_swap"
  data = sequence_layout_test.config(
    corpora, kind, 4, "sequential", seq_len=128
  )
  pipe = chomp_data.build(data)
  steps = sharding_test.run(data, "columns", 2)
  sharding_test.check(data, steps, 0, pipe.num_steps)
  tokens = processes.call(
    "tests.transforms.layout_worker:fetched", [{"data": data}] * 2
  )
  columns = sequence_layout_test.orders(kind, 128, 4)
  for process, fetched in enumerate(tokens):
    held = set(columns[2 * process]) | set(columns[2 * process + 1])
    needed = {c + d for c in held for d in range(3)}
    assert set(fetched) == needed
