# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Samples: shapes that disagree with sizes, and values that are written."""

import re

import numpy as np
import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.stores import samples
from chomp_data.stores import samples_array_record
from examples import save_to_disk

WRITERS = {
  "array_record": samples_array_record.write_samples,
  "arrow": save_to_disk.save_to_disk,
}


def store_of(path, kind, shapes, fields=("a",), size=(4, 6)):
  """Returns a store of zeros of shapes, of samples of one size."""
  height, width = size
  values = {"height": height, "width": width}
  own = [({"a": np.zeros(shape, np.uint8)}, values) for shape in shapes]
  WRITERS[kind](path, own)
  return samples.open_samples(path, fields=fields)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("shape", [(6, 4, 3), (4, 3), (8, 12), (4, 3, 6)])
def test_the_first_sample_of_a_size_must_have_that_size(tmp_path, kind, shape):
  store = store_of(tmp_path / "data", kind, [shape, (4, 6, 3)[: len(shape)]])
  message = re.escape(
    f"{tmp_path}/data: sample 0 must have `a` of its height 4 and width 6, or"
    f" of the same part of both, beside each other, got shape {shape}"
  )
  for index in (0, 1):
    with pytest.raises(stores.StoreError, match=message):
      store.read([index])
  with pytest.raises(stores.StoreError, match=message):
    store.specs(4, 6)
  # A stated shape is what is meant.
  stated = {"a": samples.ArrayField(shape)}
  store = samples.open_samples(tmp_path / "data", fields=stated)
  assert store.read([0])["a"].shape == (1, *shape)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
  "shape",
  [(4, 6), (4, 6, 3), (16, 4, 6), (2, 3), (2, 3, 9), (9, 2, 3), (7,), (24,)],
)
def test_pixels_latents_and_flat_arrays_need_no_shape(tmp_path, kind, shape):
  store = store_of(tmp_path / "data", kind, [shape])
  assert store.read([0])["a"].shape == (1, *shape)


def test_another_dtype_than_the_first_samples_names_both(tmp_path):
  values = {"height": 2, "width": 2}
  own = [
    ({"a": np.full((2, 2), 1, dtype)}, values)
    for dtype in (np.uint8, np.float32)
  ]
  samples_array_record.write_samples(tmp_path / "data", own)
  store = samples.open_samples(tmp_path / "data", fields=["a"])
  message = "sample 1 must have values of uint8 as `a`, as sample 0, the first"
  with pytest.raises(stores.StoreError, match=message):
    store.read([0, 1])


def test_numpy_scalars_are_written_as_numbers(tmp_path):
  values = {
    "height": np.int32(2),
    "width": np.int64(2),
    "label": np.uint8(7),
    "score": np.float32(0.5),
    "good": np.bool_(True),
    "name": np.str_("seven"),
  }
  own = [({"a": np.zeros((2, 2))}, values)]
  samples_array_record.write_samples(tmp_path / "data", own)
  store = samples.open_samples(tmp_path / "data", fields=["a"])
  found = {name: value[0] for name, value in store.metadata([0]).items()}
  assert found == {
    "height": 2,
    "width": 2,
    "label": 7,
    "score": 0.5,
    "good": True,
    "name": "seven",
  }
  dtypes = {name: dtype and dtype.kind for name, dtype in
            store.value_dtypes.items()}  # fmt: skip
  assert list(dtypes.values()) == ["i", "i", "i", "f", "b", None]


@pytest.mark.parametrize("value", [b"raw", np.arange(3), {1}, np.bytes_(b"x")])
def test_what_json_cannot_say_names_the_sample(tmp_path, value):
  good = {"height": 2, "width": 2}
  own = [
    ({"a": np.zeros((2, 2))}, {**good, "label": label})
    for label in (1, 2, value)
  ]
  message = f"{tmp_path}/data: sample 2: `label` must be what JSON can say"
  with pytest.raises(stores.StoreError, match=message):
    samples_array_record.write_samples(
      tmp_path / "data", own, samples_per_file=2
    )
  assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("kind", WRITERS)
def test_arrays_of_truth_values_are_read(tmp_path, kind):
  random = np.random.default_rng(0)
  own = [
    (
      {"mask": random.integers(0, 2, (3, 5)).astype(np.bool_)},
      {"height": 3, "width": 5},
    )
    for _ in range(20)
  ]
  WRITERS[kind](tmp_path / "data", own, samples_per_file=7)
  fields = {"mask": samples.ArrayField(("height", "width"))}
  store = samples.open_samples(tmp_path / "data", fields=fields)
  order = random.permutation(20)
  found = store.read(order)["mask"]
  assert found.dtype == np.bool_
  np.testing.assert_array_equal(
    found, np.stack([own[i][0]["mask"] for i in order])
  )


def test_truth_values_of_other_lengths_or_missing_are_named(tmp_path):
  arrow = pytest.importorskip("pyarrow")
  path = tmp_path / "data"
  own = [({"a": np.ones((2, 2), np.bool_)}, {"height": 2, "width": 2})] * 3
  save_to_disk.save_to_disk(path, own)
  (file,) = path.glob("*.arrow")
  good = [[True, False], [False, True]]
  batch = arrow.RecordBatch.from_pydict(
    {
      "a": arrow.array([good, [[True, None], [True, True]], good]),
      "height": arrow.array([2, 2, 2]),
      "width": arrow.array([2, 2, 2]),
    }
  )
  with arrow.ipc.new_stream(str(file), batch.schema) as writer:
    writer.write_batch(batch)
  store = samples.open_samples(path, fields=["a"])
  assert store.read([2, 0])["a"].tolist() == [good, good]
  with pytest.raises(stores.StoreError, match="sample 1 must hold `a`, got a"):
    store.read([0, 1])


def test_saved_numbers_have_one_type_in_all_batches(tmp_path, monkeypatch):
  pytest.importorskip("pyarrow")
  monkeypatch.setattr(save_to_disk, "BATCH_ROWS", 2)

  def save(path, labels):
    own = [
      ({"a": np.zeros((2, 2))}, {"height": 2, "width": 2, "label": label})
      for label in labels
    ]
    save_to_disk.save_to_disk(path, own, samples_per_file=4)
    return samples.open_samples(path, fields=["a"])

  # Whole numbers are floats too, in another batch or another file.
  store = save(tmp_path / "a", [0, 0.5, 1, 2, 3, 4])
  assert store.metadata(range(6))["label"].tolist() == [0, 0.5, 1, 2, 3, 4]
  for labels, wrong in (
    ([0, 1, 2, 0.5], "samples 2 .. 3 must have the columns and types"),
    ([0, 1, 2, 3, 4.5], "samples 4 .. 4 must have the columns and types"),
    ([0, 1, 2, "x"], "samples 2 .. 3 must have the columns and types"),
  ):
    with pytest.raises(errors.PrepareError, match=wrong):
      save(tmp_path / "b", labels)
    assert not (tmp_path / "b").exists()


def test_arrays_of_other_numbers_of_axes_are_not_saved(tmp_path):
  pytest.importorskip("pyarrow")
  own = [
    ({"a": np.zeros(shape)}, {"height": 2, "width": 2})
    for shape in ((2, 2), (2, 2, 3))
  ]
  with pytest.raises(errors.PrepareError, match="arrays of 2 and of 3 axes"):
    save_to_disk.save_to_disk(tmp_path / "data", own)


@pytest.mark.parametrize("kind", WRITERS)
def test_whole_numbers_and_fractions_are_floats_in_both_formats(tmp_path, kind):
  for number, labels in enumerate(([0, 0.5], [0.5, 0], [True, False], [1, 2])):
    own = [
      ({"a": np.zeros((2, 2))}, {"height": 2, "width": 2, "label": label})
      for label in labels
    ]
    path = tmp_path / str(number)
    WRITERS[kind](path, own)
    store = samples.open_samples(path, fields=["a"])
    expected = np.asarray(labels).dtype
    assert store.value_dtypes["label"] == expected
    assert store.read([1, 0], ["label"])["label"].dtype == expected
