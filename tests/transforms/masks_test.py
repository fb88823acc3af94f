# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Transforms of loss masks and positions, on rows packed from spans."""

import hypothesis
import numpy as np
import pytest

from chomp_data.transforms import masks
from tests import laws
from tests.transforms import row_strategies as rows_lib

BOUNDARY = masks.MaskBoundaryLoss
EOS = masks.TrainOnEos
RESET = masks.ResetPositions

TRANSFORMS = [
  BOUNDARY(True),
  BOUNDARY(False),
  EOS(True, rows_lib.EOS_IDS),
  EOS(False, rows_lib.EOS_IDS),
  RESET(True),
  RESET(False),
]


def assert_same(first, second):
  assert set(first) == set(second)
  for name in first:
    np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    assert first[name].dtype == second[name].dtype, name


@hypothesis.given(case=rows_lib.packed_rows())
def test_masking_again_takes_back_what_boundary_labels_added(case):
  trained = BOUNDARY(False).map(case.batch)
  assert_same(BOUNDARY(True).map(trained), case.batch)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@laws.examples(60)
@hypothesis.given(case=rows_lib.packed_rows())
def test_a_transform_twice_is_the_transform_once(transform, case):
  once = transform.map(case.batch)
  assert_same(transform.map(once), once)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@laws.examples(60)
@hypothesis.given(case=rows_lib.packed_rows())
def test_one_row_alone_is_the_row_of_its_batch(transform, case):
  whole = transform.map(case.batch)
  for row in range(len(case.span)):
    alone = {name: value[row] for name, value in case.batch.items()}
    wanted = {name: value[row] for name, value in whole.items()}
    assert_same(transform.map(alone), wanted)


@hypothesis.given(case=rows_lib.packed_rows())
def test_reset_positions_agree_with_those_of_spans_inside_documents(case):
  reset = RESET(True).map(case.batch)["positions"]
  for index in range(case.span.max(initial=-1) + 1):
    row, columns = np.nonzero(case.span == index)
    segment = case.batch["segment_ids"][row[0]]
    first = np.flatnonzero(segment == segment[columns[0]])[0]
    np.testing.assert_array_equal(reset[row, columns], columns - first)


@hypothesis.given(case=rows_lib.packed_rows())
def test_positions_without_reset_are_columns(case):
  positions = RESET(False).map(case.batch)["positions"]
  seq_len = case.span.shape[1]
  np.testing.assert_array_equal(
    positions, np.broadcast_to(np.arange(seq_len), case.span.shape)
  )
  assert positions.dtype == np.int32


def batch_of(**fields):
  return {
    name: np.asarray(value, np.bool_ if "mask" in name else np.int32)
    for name, value in fields.items()
  }


def test_seed_003_labels_at_segment_transitions_are_masked():
  batch = batch_of(
    tokens=[[5, 6, 9, 7, 8, 0]],
    segment_ids=[[1, 1, 1, 2, 2, 2]],
    loss_mask=[[1, 1, 1, 1, 0, 0]],
  )
  assert BOUNDARY().map(batch)["loss_mask"].tolist() == [
      [True, True, False, True, False, False]
  ]  # fmt: skip


def test_filler_between_segments_keeps_their_boundary_untrained():
  # Segments reach each other by filler at the end of 1, and the start of 3.
  batch = batch_of(
    segment_ids=[[1, 1, 1, 2, 2, 3, 3]],
    loss_mask=[[1, 0, 0, 1, 0, 0, 0]],
    attention_mask=[[1, 1, 0, 1, 1, 0, 1]],
  )
  assert BOUNDARY(False).map(batch)["loss_mask"].astype(int).tolist() == [
    [1, 0, 0, 1, 0, 0, 0]
  ]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_last_column_is_trained_on_only_with_a_next_token(enabled):
  batch = batch_of(
    segment_ids=[[1, 1], [1, 1], [1, 0]],
    loss_mask=[[1, 1], [1, 0], [0, 1]],
    attention_mask=[[1, 1], [1, 1], [1, 0]],
  )
  mask = BOUNDARY(enabled).map(batch)["loss_mask"]
  assert mask[:, 1].tolist() == [False, False, False]
  mask = BOUNDARY(enabled).map(
    {**batch, "next_token": np.asarray([3, 0, 0], np.int32)}
  )["loss_mask"]
  assert mask[:2, 1].tolist() == [True, False]
  if enabled:
    assert not mask[2, 1]


def test_seed_003_labels_equal_to_eos_are_masked_by_source():
  batch = batch_of(
    tokens=[[5, 9, 9, 8], [5, 9, 9, 8], [5, 9, 9, 8], [9, 9, 9, 9]],
    loss_mask=[[1, 1, 1, 1]] * 4,
    next_token=[9, 8, 9, 9],
    source_id=[0, 1, 2, -1],
  )
  mask = EOS(False, (9, 8, None)).map(batch)["loss_mask"]
  assert mask.astype(int).tolist() == [
    [0, 0, 1, 0],
    [1, 1, 0, 0],
    [1, 1, 1, 1],
    [1, 1, 1, 1],
  ]
  assert EOS(True, (9, 8, None)).map(batch) is batch


def test_boundary_labels_need_the_attention_mask():
  batch = batch_of(segment_ids=[[1, 2]], loss_mask=[[0, 0]])
  with pytest.raises(
    ValueError,
    match=r"`attention_mask` for MaskBoundaryLoss\(enabled=False\).*loss_mask",
  ):
    BOUNDARY(False).map(batch)
  BOUNDARY(True).map(batch)


@pytest.mark.parametrize(
  "eos_ids", ["1", (1, -1), (True,), (2**31,), ("eos",), 3, (1.0,)]
)
def test_bad_eos_ids_are_refused(eos_ids):
  with pytest.raises(ValueError, match=r"\.eos_ids` must be a list .*got"):
    EOS(False, eos_ids)


@pytest.mark.parametrize("source_id", [2, -2])
def test_a_source_without_entry_is_an_error(source_id):
  batch = batch_of(tokens=[[1, 2]], loss_mask=[[1, 0]], source_id=[source_id])
  with pytest.raises(
    ValueError, match=rf"`source_id` must be -1 \.\. 1.*got {source_id}"
  ):
    EOS(False, (1, 2)).map(batch)


def test_eos_by_source_needs_the_sources():
  batch = batch_of(tokens=[[1, 2]], loss_mask=[[1, 0]])
  with pytest.raises(ValueError, match=r"hold `source_id`"):
    EOS(False, (1, 2)).map(batch)
