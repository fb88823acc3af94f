# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What is trained on in every format, for every combination of options."""

import dataclasses
import itertools
import pathlib
import re

import hypothesis
import numpy as np
import pytest

from chomp_data.config import options
from chomp_data.transforms import formats
from chomp_data.transforms import masks
from tests import laws
from tests.transforms import attention_test as attention
from tests.transforms import keep_fields_test as keep_fields
from tests.transforms import row_strategies as rows_lib

ROOT = pathlib.Path(__file__).parents[2]
ON_OFF = (True, False)

FIELDS = {
  "canonical": {"tokens", "segment_ids", "positions", "loss_mask"},
  "maxtext": {
    f"{side}{suffix}"
    for side in ("inputs", "targets")
    for suffix in ("", "_position", "_segmentation")
  },
  "chomp": {"input_ids", "labels", "attention_mask", "segment_ids"},
  "levanter": {"tokens", "loss_weight", "segment_ids", "positions"},
  "axlearn": {
    "input_ids", "target_labels", "input_segment_ids", "input_positions",
  },
}  # fmt: skip
FIELDS["huggingface"] = FIELDS["chomp"]
# Of those that are not int32.
DTYPES = {
  "loss_mask": np.bool_, "attention_mask": np.bool_, "loss_weight": np.float32,
}  # fmt: skip
# Formats whose integers may be any: `device_fields` sends them in full.
NOT_ON_DEVICES = set()
# Without those that are another name of one.
NAMES = [name for name, spec in formats.FORMATS.items() if spec.name is None]
WITH_TARGETS = [n for n, spec in formats.FORMATS.items() if spec.targets]


def test_every_format_has_its_lines_here():
  assert set(FIELDS) == set(formats.FORMATS), (
    "WORKSPACE.md, 'A batch format, complete', lists what a new one needs"
  )


def test_every_format_says_whether_its_fields_may_be_narrowed():
  for name, spec in formats.FORMATS.items():
    narrowed = getattr(spec.transform, "on_devices", spec.transform is None)
    assert narrowed != (name in NOT_ON_DEVICES), (
      f"{name!r}: set `on_devices` (see `formats.Format`), or list it here"
    )


def formatted(batch, name):
  transform = formats.FORMATS[name].transform
  return batch if transform is None else transform().map(batch)


def with_options(batch, boundary, eos, reset):
  for transform in (
    masks.MaskBoundaryLoss(boundary),
    masks.TrainOnEos(eos, rows_lib.EOS_IDS),
    masks.ResetPositions(reset),
  ):
    batch = transform.map(batch)
  return batch


def trained(batch, name):
  """Returns {(row, column): target} of whatever has weight in a trainer."""
  if name == "canonical":
    weight = batch["loss_mask"]
    last = batch.get("next_token", np.full(len(weight), -1))
    targets = np.column_stack([batch["tokens"][:, 1:], last])
  elif name == "maxtext":
    weight, targets = batch["targets_segmentation"] != 0, batch["targets"]
  elif name == "levanter":
    assert np.isin(batch["loss_weight"], (0, 1)).all()
    weight = batch["loss_weight"] > 0
    targets = np.roll(batch["tokens"], -1, axis=1)
  elif name == "axlearn":
    weight, targets = batch["target_labels"] >= 0, batch["target_labels"]
  elif name in ("chomp", "huggingface"):
    # The model shifts: column i predicts the label of column i + 1, and what
    # column 0 is labelled with would be predicted from column -1.
    row, column = np.nonzero(batch["labels"] != formats.IGNORED_LABEL)
    return {
      (r, c - 1): batch["labels"][r, c]
      for r, c in zip(row.tolist(), column.tolist(), strict=True)
    }
  else:
    raise NotImplementedError(
      f"say here how a trainer of {name!r} reads its batch"
    )
  row, column = np.nonzero(weight)
  return {
    (r, c): targets[r, c]
    for r, c in zip(row.tolist(), column.tolist(), strict=True)
  }


def wanted(case, boundary, eos, lookahead):
  """The same from spans alone, position by position."""
  out = {}
  tokens, segment_ids = case.batch["tokens"], case.batch["segment_ids"]
  for row, spans in enumerate(case.span.tolist()):
    eos_id = rows_lib.EOS_IDS[case.batch["source_id"][row]]
    for column, (here, there) in enumerate(itertools.pairwise(spans)):
      if here == -1 or there == -1:
        continue
      pair = segment_ids[row, column : column + 2]
      if here == there or (not boundary and pair[0] != pair[1]):
        out[row, column] = tokens[row, column + 1]
    last = len(spans) - 1
    if lookahead and case.batch["loss_mask"][row, last]:
      out[row, last] = case.batch["next_token"][row]
    if not eos:
      for column in range(len(spans)):
        if out.get((row, column)) == eos_id:
          del out[row, column]
  return out


@pytest.mark.parametrize("name", formats.FORMATS)
@hypothesis.given(case=rows_lib.packed_rows())
def test_only_what_spans_allow_has_weight_whatever_the_options(name, case):
  for boundary, eos, reset in itertools.product(ON_OFF, repeat=3):
    batch = with_options(case.batch, boundary, eos, reset)
    lookahead = formats.FORMATS[name].lookahead and "next_token" in batch
    actual = trained(formatted(batch, name), name)
    assert actual == wanted(case, boundary, eos, lookahead)
    # The same as laws, should both sides share a mistake.
    real, segment_ids = case.batch["attention_mask"], case.batch["segment_ids"]
    for row, column in actual:
      assert real[row, column]
      if column < real.shape[1] - 1:
        assert real[row, column + 1]
        pair = segment_ids[row, column : column + 2]
        assert not boundary or pair[0] == pair[1] != 0


@pytest.mark.parametrize("name", formats.FORMATS)
@laws.examples(60)
@hypothesis.given(case=rows_lib.packed_rows())
def test_segments_and_positions_reach_the_formats_that_carry_them(name, case):
  batch = formatted(case.batch, name)
  (segment_ids,) = (
    batch[field]
    for field in ("segment_ids", "inputs_segmentation", "input_segment_ids")
    if field in batch
  )
  np.testing.assert_array_equal(segment_ids, case.batch["segment_ids"])
  if "attention_mask" in FIELDS[name]:
    np.testing.assert_array_equal(
      batch["attention_mask"], case.batch["attention_mask"]
    )
  for field in (
    "positions", "inputs_position", "targets_position", "input_positions",
  ):  # fmt: skip
    if field in FIELDS[name]:
      np.testing.assert_array_equal(batch[field], case.batch["positions"])


@hypothesis.given(case=rows_lib.packed_rows())
def test_a_maxtext_target_is_trained_in_the_segment_of_its_input(case):
  for boundary in ON_OFF:
    batch = formatted(with_options(case.batch, boundary, True, True), "maxtext")
    mask = masks.MaskBoundaryLoss(boundary).map(case.batch)["loss_mask"]
    np.testing.assert_array_equal(batch["targets_segmentation"] != 0, mask)
    np.testing.assert_array_equal(
      batch["targets_segmentation"][mask], batch["inputs_segmentation"][mask]
    )


@pytest.mark.parametrize("name", formats.FORMATS)
@laws.examples(60)
@hypothesis.given(case=rows_lib.packed_rows())
def test_fields_and_dtypes_of_a_format_are_always_the_same(name, case):
  before = {**case.batch, "document_id": np.zeros((len(case.span), 2), int)}
  batch = formatted(before, name)
  optional = {"attention_mask", "next_token"} if name == "canonical" else set()
  handed_on = set() if name == "maxtext" else {"source_id", "document_id"}
  assert set(batch) - optional == FIELDS[name] | handed_on
  for field in FIELDS[name]:
    assert batch[field].dtype == DTYPES.get(field, np.int32), field
    assert batch[field].shape == case.span.shape, field
    # Grain's shared memory takes nothing else.
    assert batch[field].flags.c_contiguous, field
  for field in handed_on:
    assert batch[field] is before[field]


@pytest.mark.parametrize("name", formats.FORMATS)
@laws.examples(60)
@hypothesis.given(case=rows_lib.packed_rows())
def test_one_row_alone_is_the_row_of_its_batch(name, case):
  before = dict(case.batch)
  whole = formatted(case.batch, name)
  # The arrays are read-only, so only the dictionary could have changed.
  assert case.batch.keys() == before.keys()
  for row in range(len(case.span)):
    alone = formatted({k: v[row] for k, v in case.batch.items()}, name)
    assert alone.keys() == whole.keys()
    for field in whole:
      np.testing.assert_array_equal(alone[field], whole[field][row])


@pytest.mark.parametrize("name", formats.FORMATS)
def test_a_format_needs_just_the_optional_fields_that_it_says(name):
  batch = {
    "tokens": np.zeros((1, 4), np.int32),
    "segment_ids": np.ones((1, 4), np.int32),
    "positions": np.zeros((1, 4), np.int32),
    "loss_mask": np.zeros((1, 4), np.bool_),
    "source_id": np.zeros(1, np.int32),
  }
  for field in formats.FORMATS[name].needs:
    with pytest.raises(ValueError, match=rf"`batch` must hold `{field}` for"):
      formatted(batch, name)
    batch[field] = np.ones((1, 4), np.bool_)
  assert set(formatted(batch, name)) >= FIELDS[name]


def example():
  """The row of docs/formats.md: documents a and b, and one filler."""
  return {
    "tokens": np.asarray([[11, 12, 13, 21, 22, 0]], np.int32),
    "segment_ids": np.asarray([[1, 1, 1, 2, 2, 0]], np.int32),
    "positions": np.asarray([[0, 1, 2, 0, 1, 5]], np.int32),
    "loss_mask": np.asarray([[1, 1, 0, 1, 0, 0]], np.bool_),
    "attention_mask": np.asarray([[1, 1, 1, 1, 1, 0]], np.bool_),
    "source_id": np.zeros(1, np.int32),
  }


def test_the_example_of_the_documentation_is_what_the_formats_return():
  text = (ROOT / "docs" / "formats.md").read_text()
  checked = set()
  for name in NAMES:
    assert f"## `{name}`" in text, f"docs/formats.md needs a section `{name}`"
    section = text.split(f"## `{name}`")[1].split("\n## ")[0]
    rows = re.findall(r"^(\w+) +((?:-?\d+ *)+)$", section, flags=re.MULTILINE)
    batch = formatted(example(), name)
    for field, values in rows:
      np.testing.assert_array_equal(
        batch[field][0], [float(v) for v in values.split()], err_msg=field
      )
      checked.add((name, field))
  assert checked == {(n, f) for n in NAMES for f in FIELDS[n]}


# (page, sentence or table of it with a list of formats, the formats)
LISTS = [
  ("chats", r"\| format \| what is not trained on.*?\n\n", formats.FORMATS),
  ("formats", r"carry segments to attention \([^)]*", attention.WITH_SEGMENTS),
  ("formats", r"`loss_weight` in [^)]*", keep_fields.REPLACED),
  ("targets", r"- Formats: .*? take their targets", WITH_TARGETS),
  ("targets", r"a format that has targets \([^)]*", WITH_TARGETS),
]


@pytest.mark.parametrize(("page", "pattern", "names"), LISTS)
def test_lists_of_formats_in_the_documentation_are_complete(
  page, pattern, names
):
  text = (ROOT / "docs" / f"{page}.md").read_text()
  (listed,) = re.findall(pattern, text, flags=re.DOTALL)
  listed = {n for n in re.findall(r"`(\w+)`", listed) if n in formats.FORMATS}
  aliases = {name for name, spec in formats.FORMATS.items() if spec.name}
  assert listed - aliases == set(names) - aliases


def test_huggingface_is_another_name_of_chomp_and_no_other_input():
  chomp, other = formats.FORMATS["chomp"], formats.FORMATS["huggingface"]
  assert other == dataclasses.replace(chomp, name="chomp")
  fingerprints = [
    options.TextFields(batch_format=name).fingerprint()
    for name in ("chomp", "huggingface")
  ]
  assert fingerprints[0] == fingerprints[1]


def test_seed_003_chomp_labels_are_unshifted_and_ignored_at_transitions():
  batch = formatted(example(), "chomp")
  assert batch["input_ids"].tolist() == [[11, 12, 13, 21, 22, 0]]
  assert batch["labels"].tolist() == [[-100, 12, 13, -100, 22, -100]]


def test_seed_003_labels_at_transitions_are_kept_without_the_mask():
  batch = masks.MaskBoundaryLoss(False).map(example())
  batch = formatted(batch, "chomp")
  assert batch["labels"].tolist() == [[-100, 12, 13, 21, 22, -100]]


def test_seed_003_labels_equal_to_eos_are_ignored_on_request():
  batch = formatted(masks.TrainOnEos(False, (13,)).map(example()), "chomp")
  assert batch["labels"].tolist() == [[-100, 12, -100, -100, 22, -100]]


def test_lookahead_gives_maxtext_a_target_in_the_last_column():
  batch = example()
  for field in ("tokens", "segment_ids", "positions", "loss_mask"):
    batch[field] = batch[field][:, :5]
  batch["loss_mask"] = batch["loss_mask"].copy()
  batch["loss_mask"][:, -1] = True
  batch["next_token"] = np.asarray([23], np.int32)
  batch = formatted(batch, "maxtext")
  assert batch["targets"].tolist() == [[12, 13, 21, 22, 23]]
  assert batch["targets_segmentation"].tolist() == [[1, 1, 0, 2, 2]]


def test_lookahead_gives_axlearn_a_label_in_the_last_column():
  batch = example()
  batch["loss_mask"] = np.ones((1, 6), np.bool_)
  batch["next_token"] = np.asarray([23], np.int32)
  batch = formatted(batch, "axlearn")
  assert batch["target_labels"].tolist() == [[12, 13, 21, 22, 0, 23]]
