# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Buckets of sizes, end to end: arrays, epochs, padding, states, checks."""

import collections

import numpy as np
import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data import schema
from chomp_data import stores
from chomp_data.loading import state as state_lib
from chomp_data.stores import samples_array_record
from tests.plans import conftest

SIZES = {"4x6": (4, 6), "6x4": (6, 4), "8x8": (8, 8)}


def seen(pipe, sample_stores):
  """Returns how often each sample came; compares every row with its sample."""
  counts = collections.Counter()
  for step in range(pipe.num_steps):
    name, bucket = pipe.bucket_of(step)
    height, width = SIZES[bucket]
    batch = pipe.batch(step)
    rows = 4 if bucket == "8x8" else 8
    assert batch["pixels"].shape == (rows, height, width, 3)
    assert batch["pixels"].dtype == np.uint8
    assert batch["latent"].shape == (rows, height // 2, width // 2)
    assert (batch["height"] == height).all()
    assert (batch["width"] == width).all()
    for field in ("height", "width", "dataset_id", "sample_id", "label"):
      assert batch[field].dtype == np.int32
    assert batch["score"].dtype == np.float32
    number = pipe.source_names.index(name)
    for row in range(rows):
      sample = int(batch["sample_id"][row])
      if sample < 0:
        assert batch["dataset_id"][row] == -1
        assert not batch["pixels"][row].any()
        assert not batch["label"][row]
        continue
      assert batch["dataset_id"][row] == number
      own, values = sample_stores[name][1][sample]
      assert batch["pixels"][row].tolist() == own["pixels"].tolist()
      assert batch["latent"][row].tolist() == own["latent"].tolist()
      assert batch["label"][row] == values["label"]
      assert batch["score"][row] == values["score"]
      counts[name, sample] += 1
  return counts


def test_padded_epochs_hold_every_sample_once_each(pictures, sample_stores):
  pipe = pipeline.build(conftest.changed(pictures, remainder="pad"))
  counts = seen(pipe, sample_stores)
  assert counts == {
    (name, i): 2
    for name, (_, own) in sample_stores.items()
    for i in range(len(own))
  }


@pytest.mark.parametrize("unit", ["samples", "pixels", "tokens"])
def test_the_ratio_stays_within_one_global_batch_in_any_unit(pictures, unit):
  pipe = pipeline.build(
    conftest.changed(
      pictures, epochs=None, mix__unit=unit, buckets__patch_size=2
    )
  )
  size = {
    "samples": lambda h, w: 1,
    "pixels": lambda h, w: h * w,
    "tokens": lambda h, w: h * w // 4,
  }[unit]
  weights = {"photos": 0.75, "scans": 0.25}
  taken = collections.Counter()
  most = max(size(*own) * 8 for own in SIZES.values())
  for step in range(300):
    name, bucket = pipe.bucket_of(step)
    taken[name] += size(*SIZES[bucket]) * len(
      pipe.run_plan.planned(step).samples
    )
    total = sum(taken.values())
    for own, weight in weights.items():
      assert abs(taken[own] - weight * total) <= most


def test_buckets_that_are_not_given_are_those_that_occur(pictures):
  given = pipeline.build(pictures)
  found = pipeline.build(conftest.changed(pictures, buckets__sizes=None))
  assert [own.name for own in found.buckets] == ["4x6", "6x4", "8x8"]
  assert found.fingerprint == given.fingerprint


def test_another_weight_or_size_is_named_when_a_state_is_restored(pictures):
  with chomp_data.make_iterator(pictures) as it:
    next(it)
    state = it.get_state()
  for fields, path in (
    ({"buckets__batch_sizes": {"8x8": 8}}, r"buckets\.batch_sizes\.8x8"),
    ({"mix__unit": "samples"}, r"mix\.unit"),
    ({"buckets__metadata": ("label",)}, "metadata"),
    ({"sources__scans__shuffle__seed": 1}, r"sources\.scans\.shuffle_seed"),
    (
      {"buckets__fields": {"pixels": {"dtype": "uint8"}, "latent": None}},
      r"sources\.scans\.fields\.pixels",
    ),
  ):
    other = chomp_data.make_iterator(conftest.changed(pictures, **fields))
    with pytest.raises(state_lib.StateError, match=path):
      other.set_state(state)


def write(tmp_path, samples):
  path = tmp_path / "other"
  samples_array_record.write_samples(path, samples)
  return str(path)


def test_another_height_or_width_is_named_when_a_state_is_restored(
  pictures, tmp_path
):
  # Both pairs of numbers fill the same buckets, with other samples.
  values = [{"height": h, "width": w} for h, w in SIZES.values()] * 16
  own = [
    (
      {"flat": np.zeros(7)},
      {**one, "rows": two["height"], "cols": two["width"]},
    )
    for one, two in zip(values, values[1:] + values[:1], strict=True)
  ]
  data = conftest.changed(
    pictures,
    buckets__fields=("flat",),
    buckets__metadata=(),
    sources={"scans": {"store": write(tmp_path, own)}},
  )
  del data["mix"]
  with chomp_data.make_iterator(data) as it:
    next(it)
    state = it.get_state()
  rows = {"height_field": "rows", "width_field": "cols"}
  other = conftest.changed(data, sources__scans__rows=rows)
  assert pipeline.build(other).run_plan.planned(0).samples.tolist() == (
    pipeline.build(data).run_plan.planned(0).samples.tolist()
  )
  with pytest.raises(state_lib.StateError) as error:
    chomp_data.make_iterator(other).set_state(state)
  for name in ("height_field", "width_field", "sizes"):
    assert f"sources.scans.{name}" in str(error.value)


def test_samples_that_no_bucket_takes_are_told_or_dropped(pictures, tmp_path):
  own = list(conftest.arrays(7, 40, ((4, 6), (6, 4), (8, 8))))
  own[5] = next(conftest.arrays(7, 1, ((10, 10),)))
  data = conftest.changed(pictures, sources__scans__store=write(tmp_path, own))
  with pytest.raises(schema.ConfigError) as error:
    pipeline.build(data)
  for word in ("1 samples", "'scans'", str(tmp_path), "sample 5", "10x10"):
    assert word in str(error.value)
  pipe = pipeline.build(conftest.changed(data, buckets__unbucketed="drop"))
  assert "1 in no bucket, dropped" in pipe.describe()
  sampled = [
    int(i)
    for step in range(pipe.num_steps)
    if pipe.bucket_of(step)[0] == "scans"
    for i in pipe.batch(step)["sample_id"]
  ]
  assert sampled
  assert 5 not in sampled


@pytest.mark.parametrize(
  ("fields", "words"),
  [
    (
      {"buckets__sizes": (*SIZES.values(), (2, 2))},
      ["bucket '2x2'", "must have a sample in some dataset"],
    ),
    (
      {"global_batch_size": 64},
      ["bucket '4x6' of dataset 'photos'", "global batch of 64", "remainder"],
    ),
    ({"buckets__metadata": ("weight",)}, ["metadata", "'weight'", "label"]),
    ({"buckets__metadata": ("name",)}, ["metadata", "'name'", "numbers"]),
    ({"buckets__metadata": ("height",)}, ["twice", "'height'"]),
    ({"buckets__fields": ()}, ["buckets.fields"]),
    ({"buckets__fields": {"pixels": {"size": 3}}}, ["buckets.fields"]),
    ({"buckets__sizes": ((4, 6), (4, 6))}, ["buckets.sizes", "distinct"]),
    ({"buckets__batch_sizes": {"9x9": 4}}, ["batch_sizes", "'9x9'", "8x8"]),
    ({"buckets__unbucketed": "keep"}, ["unbucketed", "'error', 'drop'"]),
    ({"batch_format": "maxtext"}, ["batch_format` is not a known field"]),
  ],
)
def test_bad_input_is_one_clear_error(pictures, fields, words):
  with pytest.raises(schema.ConfigError) as error:
    pipeline.build(conftest.changed(pictures, **fields))
  for word in words:
    assert word in str(error.value)


def test_a_record_without_height_names_dataset_and_record(pictures, tmp_path):
  own = list(conftest.arrays(7, 40))
  del own[9][1]["height"]
  with pytest.raises(stores.StoreError) as error:
    pipeline.build(
      conftest.changed(pictures, sources__scans__store=write(tmp_path, own))
    )
  for word in (str(tmp_path), "height", "9"):
    assert word in str(error.value)


def test_an_array_of_another_shape_than_its_size_is_told(pictures, tmp_path):
  own = list(conftest.arrays(7, 40))
  of_size = [i for i, (_, v) in enumerate(own) if v["height"] == 8]
  own[of_size[3]][0]["pixels"] = np.zeros((8, 9, 3), np.uint8)
  data = conftest.changed(pictures, sources__scans__store=write(tmp_path, own))
  pipe = pipeline.build(data)
  wrong = next(
    step
    for step in range(pipe.num_steps)
    if pipe.bucket_of(step) == ("scans", "8x8")
    and 3 in pipe.run_plan.planned(step).samples
  )
  with pytest.raises(stores.StoreError) as error:
    pipe.batch(wrong)
  for word in (str(tmp_path), f"sample {of_size[3]}", "(8, 9, 3)"):
    assert word in str(error.value)


@pytest.mark.parametrize(
  ("sizes", "pixels", "wrong"),
  [
    # All of them turned, where the field has no shape to tell it.
    (((4, 6),), (6, 4, 3), slice(None)),
    # The first of a size only: it must not be taken for the others' truth.
    (((8, 8),), (8, 9, 3), slice(1)),
  ],
)
def test_the_first_array_of_a_size_is_told_and_not_a_later_one(
  pictures, tmp_path, sizes, pixels, wrong
):
  own = list(conftest.arrays(7, 40, sizes))
  for fields, _ in own[wrong]:
    fields["pixels"] = np.zeros(pixels, np.uint8)
  data = conftest.changed(
    pictures,
    buckets__sizes=sizes,
    buckets__batch_sizes={},
    sources={"scans": {"store": write(tmp_path, own)}},
  )
  del data["mix"]
  with pytest.raises(stores.StoreError) as error:
    chomp_data.make_iterator(data)
  height, width = sizes[0]
  for word in (
    f"{tmp_path}/other: sample 0 must have `pixels`",
    f"height {height} and width {width}",
    f"got shape {pixels}",
  ):
    assert word in str(error.value)


@pytest.mark.parametrize(
  ("field", "shape", "of_sample", "found"),
  [
    ("pixels", ("height", "width", 4), (4, 6, 4), (4, 6, 3)),
    ("pixels", ("width", "height", 3), (6, 4, 3), (4, 6, 3)),
    ("latent", ("height/4", "width/2"), (1, 3), (2, 3)),
  ],
)
def test_a_shape_that_fits_no_sample_is_told_before_the_first_batch(
  pictures, sample_stores, field, shape, of_sample, found
):
  fields = {"pixels": None, "latent": None, field: {"shape": shape}}
  data = conftest.changed(
    pictures, buckets__fields=fields, buckets__sizes=((4, 6), (8, 8))
  )
  data["buckets"]["unbucketed"] = "drop"
  with pytest.raises(stores.StoreError) as error:
    pipeline.build(data)
  lines = str(error.value).splitlines()
  assert len(lines) == 2
  for name, line in zip(pictures["sources"], sorted(lines), strict=True):
    path, own = sample_stores[name]
    first = next(
      i for i, (_, v) in enumerate(own) if (v["height"], v["width"]) == (4, 6)
    )
    assert line.startswith(
      f"config.data.sources.{name}.store: dataset {name!r}, {path}: sample"
      f" {first} must have `{field}` of shape {of_sample}, "
    )
    assert f"got {found}." in line


def test_wrong_options_and_wrong_stores_are_one_error(pictures, tmp_path):
  data = conftest.changed(
    pictures,
    buckets__fields=("height",),
    buckets__sizes=None,
    sources__scans__store=f"{tmp_path}/scans",
  )
  data["buckets"]["fields"] = ("pixels",)
  data["sources"]["photos"]["rows"] = {"height_field": "pixels"}
  with pytest.raises(schema.ConfigError) as error:
    pipeline.build(data)
  options, store = error.value.problems
  assert options.startswith("`config.data.sources.photos`: `fields` must name")
  assert store.startswith("config.data.sources.scans.store: ")


def test_a_stage_without_a_bucket_of_a_dataset_names_the_field(
  pictures, tmp_path
):
  own = conftest.arrays(7, 40, ((8, 8),))
  every = {"4x6": 1, "6x4": 1, "8x8": 1}
  data = conftest.changed(
    pictures,
    sources__scans__store=write(tmp_path, own),
    buckets__stages=[(0, {"4x6": 1, "6x4": 1}), (3, every)],
  )
  with pytest.raises(schema.ConfigError) as error:
    pipeline.build(data)
  (problem,) = error.value.problems
  assert problem.startswith("`config.data.buckets.stages[0]` from step 0 on")
  assert "dataset 'scans' has, got 4x6, 6x4; it has 8x8." in problem


def test_datasets_of_other_fields_are_told_before_the_first_batch(
  pictures, tmp_path
):
  own = list(conftest.arrays(7, 40))
  for fields, _ in own:
    fields["latent"] = fields["latent"].astype(np.float16)
  data = conftest.changed(pictures, sources__scans__store=write(tmp_path, own))
  with pytest.raises(schema.ConfigError) as error:
    chomp_data.make_iterator(data)
  for word in ("`latent`", "float32[2, 3] in 'photos'", "float16", "'scans'"):
    assert word in str(error.value)
  # A dtype in the config brings them together.
  data["buckets"]["fields"] = {"pixels": None, "latent": {"dtype": "float32"}}
  with chomp_data.make_iterator(data) as it:
    assert str(next(it)["latent"].dtype) == "float32"


def test_arrays_have_no_tombstones(pictures):
  pictures["tombstones"] = ((0, "gone.jsonl"),)
  with pytest.raises(schema.ConfigError, match="None for samples that are arr"):
    pipeline.build(pictures)
