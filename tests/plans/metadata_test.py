# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers of samples in batches: one dtype for all, and none out of range."""

import re

import numpy as np
import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data import stores
from chomp_data.stores import samples_array_record
from tests.plans import conftest


def write(tmp_path, samples):
  path = tmp_path / "other"
  samples_array_record.write_samples(path, samples)
  return str(path)


@pytest.mark.parametrize(
  ("value", "rule"),
  [
    (2**31, "-2147483648 .. 2147483647"),
    (-(2**31) - 1, "-2147483648 .. 2147483647"),
    (1e39, "what float32 holds"),
  ],
)
def test_metadata_out_of_range_names_its_sample(
  pictures, tmp_path, value, rule
):
  own = list(conftest.arrays(7, 40))
  if isinstance(value, float):
    own[0][1]["label"] = 0.5
  own[9][1]["label"] = value
  path = write(tmp_path, own)
  data = conftest.changed(pictures, sources={"scans": {"store": path}})
  del data["mix"]
  pipe = pipeline.build(data)
  message = f"{path}: sample 9 of dataset 'scans' must have a `label` of {rule}"
  height = own[9][1]["height"]
  number = sum(values["height"] == height for _, values in own[:9])
  wrong = next(
    step
    for step in range(pipe.num_steps)
    if pipe.bucket_of(step)[1] == f"{height}x{own[9][1]['width']}"
    and number in pipe.run_plan.planned(step).samples
  )
  for step in range(wrong):
    assert 9 not in pipe.batch(step)["sample_id"]
  with pytest.raises(stores.StoreError, match=re.escape(message)) as error:
    pipe.batch(wrong)
  assert f"got {value}" in str(error.value)
  it = chomp_data.make_iterator(data)
  with it, pytest.raises(stores.StoreError, match=re.escape(message)):
    list(it)


def test_metadata_out_of_range_from_the_first_sample_on_is_told_at_once(
  pictures, tmp_path
):
  own = list(conftest.arrays(7, 40))
  for _, values in own:
    values["label"] += 2**31
  data = conftest.changed(pictures, sources__scans__store=write(tmp_path, own))
  message = "sample 0 of dataset 'scans' must have a `label` of -2147483648"
  with pytest.raises(stores.StoreError, match=message):
    pipeline.build(data)


@pytest.mark.parametrize("place", [0, 9])
def test_one_fraction_makes_metadata_float32_in_every_batch(
  pictures, tmp_path, place
):
  own = list(conftest.arrays(7, 40))
  own[place][1]["label"] = 0.5
  data = conftest.changed(
    pictures,
    remainder="pad",
    sources={"scans": {"store": write(tmp_path, own)}},
  )
  del data["mix"]
  pipe = pipeline.build(data)
  for step in range(pipe.num_steps):
    batch = pipe.batch(step)
    assert batch["label"].dtype == np.float32
    for sample, label in zip(batch["sample_id"], batch["label"], strict=True):
      assert label == (own[sample][1]["label"] if sample >= 0 else 0)


def test_a_fraction_in_one_dataset_makes_metadata_float32_in_all(
  pictures, tmp_path
):
  own = list(conftest.arrays(7, 40))
  own[9][1]["label"] = 0.5
  data = conftest.changed(pictures, sources__scans__store=write(tmp_path, own))
  pipe = pipeline.build(data)
  found = {
    (pipe.bucket_of(step)[0], pipe.batch(step)["label"].dtype.name)
    for step in range(pipe.num_steps)
  }
  assert found == {("photos", "float32"), ("scans", "float32")}
  with chomp_data.make_iterator(data) as it:
    assert next(it)["label"].dtype == np.float32
