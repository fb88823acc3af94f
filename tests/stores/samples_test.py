# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Samples: read in place from two formats, equal to what was written."""

import json
import os
import pickle
import re
import struct
import subprocess
import sys

import hypothesis
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
import numpy as np
import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.stores import samples
from chomp_data.stores import samples_array_record
from chomp_data.stores.samples import arrow_columns
from chomp_data.stores.samples import sample_records
from chomp_data.testing import stores as stores_testing
from examples import save_to_disk
from tests import laws

Field = samples.ArrayField
SIZES = [(4, 4), (4, 6), (6, 4)]
WRITERS = {
  "array_record": samples_array_record.write_samples,
  "arrow": save_to_disk.save_to_disk,
}
PIXELS = {"pixels": Field(("height", "width", 3), "uint8")}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def made(count=30, dtype=np.uint8):
  """Returns samples of several sizes."""
  random = np.random.default_rng(0)
  out = []
  for i in range(count):
    height, width = SIZES[i % len(SIZES)]
    pixels = random.integers(0, 256, (height, width, 3)).astype(dtype)
    latent = random.standard_normal((5, height // 2, width // 2))
    arrays = {
      "pixels": pixels,
      "latent": latent.astype(np.float32),
      "mask": random.integers(0, 2, (height, width)).astype(np.bool_),
    }
    values = {
      "height": height,
      "width": width,
      "label": i % 7,
      "score": i / 4,
      "good": i % 2 == 0,
      "name": f"sample {i}",
    }
    out.append((arrays, values))
  return out


def written(path, kind, own, samples_per_file=8):
  WRITERS[kind](path, own, samples_per_file=samples_per_file)
  return path


def opened(path, fields=PIXELS, **options):
  return samples.open_samples(path, fields=fields, **options)


@pytest.mark.parametrize("kind", WRITERS)
def test_what_was_written_is_read_in_any_order(tmp_path, kind):
  own = made()
  fields = {**PIXELS, "latent": None, "mask": None}
  store = opened(written(tmp_path / "data", kind, own), fields)
  assert store.num_samples == len(store) == 30
  heights, widths = store.sizes()
  assert heights.dtype == widths.dtype == np.int32
  assert heights.tolist() == [values["height"] for _, values in own]
  assert widths.tolist() == [values["width"] for _, values in own]
  random = np.random.default_rng(1)
  for number, (height, width) in enumerate(SIZES):
    indices = random.permutation(np.arange(number, 30, len(SIZES)))
    batch = store.read(indices, metadata=["label", "score"])
    assert set(batch) == {*fields, "label", "score"}
    for name in fields:
      expected = np.stack([own[i][0][name] for i in indices])
      assert batch[name].dtype == expected.dtype
      np.testing.assert_array_equal(batch[name], expected)
      spec = store.specs(height, width)[name]
      assert (spec.shape, spec.dtype) == (expected.shape[1:], expected.dtype)
    assert batch["label"].tolist() == (indices % 7).tolist()
    assert batch["score"].tolist() == (indices / 4).tolist()


@pytest.mark.parametrize("kind", WRITERS)
def test_metadata_of_samples_of_any_size(tmp_path, kind):
  store = opened(written(tmp_path / "data", kind, made()))
  assert set(store.metadata_names) >= {"label", "score", "good", "name"}
  found = store.metadata([3, 1, 29])
  assert found["label"].tolist() == [3, 1, 1]
  assert found["label"].dtype == np.int64
  assert found["score"].tolist() == [0.75, 0.25, 7.25]
  assert found["good"].tolist() == [False, False, False]
  assert found["good"].dtype == np.bool_
  assert found["height"].tolist() == [4, 4, 6]
  assert found["name"] == ["sample 3", "sample 1", "sample 29"]
  assert set(store.metadata([0], ["label"])) == {"label"}


@pytest.mark.parametrize(
  "kind", ["array_record", pytest.param("arrow", marks=pytest.mark.slow)]
)
def test_another_process_reads_what_was_pickled_or_refuses_it(tmp_path, kind):
  path = written(tmp_path / "data", kind, made())
  store = opened(path)
  code = (
    "import pickle, sys; store = pickle.loads(sys.stdin.buffer.read());"
    "print(store.hash, int(store.read([5, 2])['pixels'].sum()))"
  )
  # Before the other process opens it, and after.
  for _ in range(2):
    result = subprocess.run(
      [sys.executable, "-c", code],
      input=pickle.dumps(store),
      capture_output=True,
      check=True,
    )
    expected = f"{store.hash} {store.read([5, 2])['pixels'].sum()}"
    assert result.stdout.decode().strip() == expected
  text = pickle.dumps(store)
  for file in path.iterdir():
    file.unlink()
  path.rmdir()
  written(path, kind, made(29))
  with pytest.raises(stores.StoreError, match="run began with"):
    _ = pickle.loads(text).num_samples
  assert opened(path).hash != store.hash
  # Also where the new files have their index.
  with pytest.raises(stores.StoreError, match="run began with, got"):
    _ = pickle.loads(text).num_samples


@pytest.mark.parametrize("kind", WRITERS)
def test_the_hash_is_of_the_content(tmp_path, kind):
  own = made()
  store = opened(written(tmp_path / "a", kind, own))
  again = opened(written(tmp_path / "b", kind, own))
  assert store.hash == again.hash
  own[17][0]["pixels"][0, 0, 0] ^= 1
  assert opened(written(tmp_path / "c", kind, own)).hash != store.hash
  assert repr(str(tmp_path / "a")) in repr(store)


@pytest.mark.parametrize("kind", WRITERS)
def test_samples_and_sizes_that_are_not_there(tmp_path, kind):
  path = written(tmp_path / "data", kind, made())
  store = opened(path)
  for wrong in ([30], [-1], [0, 3, 99]):
    outside = next(i for i in wrong if not 0 <= i < 30)
    with pytest.raises(IndexError, match=rf"in 0 \.\. 29, got {outside}"):
      store.read(wrong)
    with pytest.raises(IndexError, match=rf"in 0 \.\. 29, got {outside}"):
      store.metadata(wrong)
  with pytest.raises(
    ValueError, match=r"4 x 4 \(sample 0\) and 4 x 6 \(sample"
  ):
    store.read([0, 3, 1])
  with pytest.raises(ValueError, match="one or more samples"):
    store.read([])
  assert store.metadata([])["name"] == []
  with pytest.raises(stores.StoreError, match="samples of 9 x 9, got none"):
    store.specs(9, 9)
  with pytest.raises(ValueError, match=r"got \['nope'\]"):
    store.metadata([0], ["nope"])
  with pytest.raises(ValueError, match=r"got \['nope'\]"):
    store.read([0], ["nope"])
  with pytest.raises(ValueError, match="sample 0 must have a number as `name`"):
    store.read([0], ["name"])


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("value", [0, -4, None, 4.5, 2**31])
def test_a_sample_without_a_size_is_named(tmp_path, kind, value):
  own = made(5)
  own[3][1]["width"] = value
  if kind == "arrow" and isinstance(value, float):
    for _, values in own:
      values["width"] = float(values["width"])
  path = written(tmp_path / "data", kind, own)
  wrong = "0" if kind == "arrow" and value == 4.5 else "3"
  message = rf"{path}: sample {wrong} must have a positive integer as `width`"
  with pytest.raises(stores.StoreError, match=message):
    opened(path)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_size_may_have_other_names_and_must_have_one(tmp_path, kind):
  own = made(6)
  for _, values in own:
    values["rows"], values["cols"] = values.pop("height"), values.pop("width")
  path = written(tmp_path / "data", kind, own)
  store = opened(path, height_field="rows", width_field="cols")
  assert store.sizes()[1].tolist() == [4, 6, 4, 4, 6, 4]
  with pytest.raises(stores.StoreError, match=rf"{path}.*`height`"):
    opened(path)


@pytest.mark.parametrize("kind", WRITERS)
def test_an_array_that_disagrees_with_its_size_is_named(tmp_path, kind):
  own = made(9)
  turned = own[7][0]["pixels"].transpose(1, 0, 2).copy()
  own[7][0]["pixels"] = turned
  path = written(tmp_path / "data", kind, own)
  message = re.escape(
    f"{path}: sample 7 must have `pixels` of shape (4, 6, 3), as its height and"
    " width say, got (6, 4, 3)"
  )
  with pytest.raises(stores.StoreError, match=message):
    opened(path).read([1, 7])
  # Without a stated shape, by the first sample of its size.
  message = re.escape(
    f"{path}: sample 7 must have `pixels` of shape (4, 6, 3), as sample 1, the"
    " first of its size, has, got (6, 4, 3)"
  )
  with pytest.raises(stores.StoreError, match=message):
    opened(path, ["pixels"]).read([7])
  assert opened(path).read([1, 4])["pixels"].shape == (2, 4, 6, 3)


@pytest.mark.parametrize("kind", WRITERS)
def test_shapes_are_parts_of_sizes_and_dtypes_are_brought_about(tmp_path, kind):
  path = written(tmp_path / "data", kind, made(6, np.int64))
  fields = {
    "pixels": Field(("height", "width", 3), "uint8"),
    "latent": Field((5, "height/2", "width/2"), "float16"),
  }
  batch = opened(path, fields).read([1, 4])
  assert batch["pixels"].dtype == np.uint8
  assert batch["latent"].dtype == np.float16
  own = made(6)
  np.testing.assert_array_equal(batch["pixels"][1], own[4][0]["pixels"])
  fields["latent"] = Field((5, "height/4", "width/4"))
  with pytest.raises(
    stores.StoreError, match="width 6 must be a multiple of 4"
  ):
    opened(path, fields).read([1])
  with pytest.raises(stores.StoreError, match=r"sample 1 .*values of int8"):
    opened(path, {"pixels": Field(None, "int8")}).read([1])
  with pytest.raises(stores.StoreError, match=r"values of int32 .*got float32"):
    opened(path, {"latent": Field(None, "int32")}).read([1])


@pytest.mark.parametrize("kind", WRITERS)
def test_flat_lists_get_the_shape_that_is_stated(tmp_path, kind):
  own = made(6)
  for arrays, _ in own:
    arrays["pixels"] = arrays["pixels"].reshape(-1)
  path = written(tmp_path / "data", kind, own)
  batch = opened(path).read([2, 5])["pixels"]
  np.testing.assert_array_equal(batch[1], made(6)[5][0]["pixels"])
  assert opened(path, ["pixels"]).read([2])["pixels"].shape == (1, 72)
  square = {"pixels": Field(("height", "height", 3), "uint8")}
  with pytest.raises(stores.StoreError, match=r"sample 1 must .* got \(72,\)"):
    opened(path, square).read([1])


def store_of(path, kind, shapes, fields=("a",), size=(4, 6)):
  """Returns a store of zeros of shapes, of samples of one size."""
  height, width = size
  values = {"height": height, "width": width}
  own = [({"a": np.zeros(shape, np.uint8)}, values) for shape in shapes]
  WRITERS[kind](path, own)
  return opened(path, fields)


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
  stated = {"a": Field(shape)}
  store = opened(tmp_path / "data", stated)
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
  written(tmp_path / "data", "array_record", own)
  store = opened(tmp_path / "data", ["a"])
  message = "sample 1 must have values of uint8 as `a`, as sample 0, the first"
  with pytest.raises(stores.StoreError, match=message):
    store.read([0, 1])


def large(path, kind, altered=None):
  """Writes one file whose middle is in no key of an index."""
  own = made()
  if altered is not None:
    own[altered][0]["pixels"][0, 0, 0] ^= 1
  filler = np.zeros(40_000, np.uint8)
  # Before and after: columns lie side by side in one format.
  own = [
    ({"before": filler, **arrays, "after": filler}, values)
    for arrays, values in own
  ]
  written(path, kind, own, samples_per_file=30)
  (file,) = path.glob("*0000-of*")
  return file


def put_in_silence(file, data):
  """Replaces a file's bytes; its size and modification time stay."""
  stat = file.stat()
  assert len(data) == stat.st_size
  file.write_bytes(data)
  os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def replaced(data, at, new):
  """Replaces bytes in the middle of a file."""
  assert 2**16 < at < len(data) - 2**17
  assert data[at : at + len(new)] != new
  return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_byte_that_was_altered_in_silence_is_found(tmp_path, kind):
  file = large(tmp_path / "data", kind)
  text = pickle.dumps(opened(tmp_path / "data"))
  pixels = made()[15][0]["pixels"]
  altered = pixels.copy()
  altered[2, 1, 1] ^= 0x40
  data = file.read_bytes()
  at = data.index(pixels.tobytes())
  put_in_silence(file, replaced(data, at, altered.tobytes()))
  again = pickle.loads(text)
  # It stays an error.
  for _ in range(2):
    with pytest.raises(stores.StoreError, match=str(file)):
      again.read([15])


def test_a_record_that_was_written_again_in_silence_is_found(tmp_path):
  # The library's own checksums fit: they were written again, too.
  file = large(tmp_path / "data", "array_record")
  text = pickle.dumps(opened(tmp_path / "data"))
  other = large(tmp_path / "other", "array_record", altered=15)
  put_in_silence(file, other.read_bytes())
  again = pickle.loads(text)
  with pytest.raises(stores.StoreError, match=f"{file}: record 15 .*crc32c"):
    again.read([15])
  assert len(again.read([12])["pixels"]) == 1


@pytest.mark.parametrize("what", ["offsets", "labels", "heights", "places"])
def test_what_says_where_numbers_are_is_checked_as_well(
  tmp_path, monkeypatch, what
):
  # Small pages, so that no other value lies in the same.
  monkeypatch.setattr(arrow_columns, "PAGE_BYTES", 64)
  monkeypatch.setattr(save_to_disk, "BATCH_ROWS", 10)
  file = large(tmp_path / "data", "arrow")
  text, data = pickle.dumps(opened(tmp_path / "data")), file.read_bytes()
  arrow = arrow_columns.pyarrow()
  mapped = arrow.py_buffer(data)
  with arrow.ipc.open_stream(mapped) as stream:
    batch = list(stream)[1]
  pixels = batch.column("pixels").buffers()
  if what == "places":
    # As the batch's description says it, from where its buffers begin.
    parts = [b for c in batch.columns for b in c.buffers() if b and b.size]
    begin = pixels[-1].address - min(part.address for part in parts)
    at = data.index(struct.pack("<qq", begin, pixels[-1].size))
    new = struct.pack("<q", begin - 8)
  elif what == "offsets":
    # Sample 13 becomes a copy of sample 10, whose size is the same.
    at = pixels[1].address - mapped.address
    offsets = batch.column("pixels").offsets.to_numpy().copy()
    offsets[3:5] = offsets[:2]
    new = offsets.tobytes()
  else:
    column = batch.column(what.removesuffix("s"))
    at = column.buffers()[1].address - mapped.address
    # Not the first ones, which share a page with the column before.
    new = (column.to_numpy() + (np.arange(10) > 7)).tobytes()
  put_in_silence(file, replaced(data, at, new))
  with pytest.raises(stores.StoreError, match=str(file)):
    pickle.loads(text).read(np.arange(10, 20, 3), ["label"])


@pytest.mark.parametrize("kind", WRITERS)
def test_no_altered_byte_gives_other_samples(tmp_path, kind, monkeypatch):
  # Many batches, so that what describes them is in the middle of the file.
  monkeypatch.setattr(save_to_disk, "BATCH_ROWS", 3)
  monkeypatch.setattr(arrow_columns, "PAGE_BYTES", 64)
  file = large(tmp_path / "data", kind)
  store = opened(tmp_path / "data")
  text, data = pickle.dumps(store), file.read_bytes()
  indices = np.arange(1, 30, 3)
  expected = store.read(indices, ["label"])
  random = np.random.default_rng(0)
  # Zeros of the filler are not read: most flips are where they are not.
  places = np.flatnonzero(np.frombuffer(data, np.uint8))
  places = places[(places > 2**16) & (places < len(data) - 2**17)]
  messages = []
  for at in random.choice(places, 150):
    altered = bytearray(data)
    altered[at] ^= 1 << random.integers(8)
    put_in_silence(file, altered)
    try:
      found = pickle.loads(text).read(indices, ["label"])
    except stores.StoreError as error:
      messages.append(str(error))
      continue
    for name, value in expected.items():
      np.testing.assert_array_equal(found[name], value)
  assert len(messages) > 20
  assert all(str(tmp_path / "data") in message for message in messages)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_that_was_damaged_before_it_was_indexed(tmp_path, kind):
  # Other values cannot be told from true ones then; what cannot be read can.
  path = written(tmp_path / "data", kind, made(6))
  (file,) = path.glob("*-of-*")
  data, random = file.read_bytes(), np.random.default_rng(1)
  places = np.flatnonzero(np.frombuffer(data, np.uint8))
  messages = []
  for number, at in enumerate(random.choice(places, 120)):
    altered = bytearray(data)
    altered[at] ^= 1 << random.integers(8)
    file.write_bytes(altered)
    try:
      store = opened(path, index_dir=tmp_path / str(number))
      store.metadata(range(store.num_samples))
      for index in range(store.num_samples):
        store.read([index])
    except stores.StoreError as error:
      messages.append(str(error))
  assert len(messages) > 20
  assert all(str(path) in message for message in messages)


def test_text_that_is_not_where_a_file_says_is_found_while_indexing(tmp_path):
  path = written(tmp_path / "data", "arrow", made(6))
  (file,) = path.glob("*-of-*")
  data = file.read_bytes()
  arrow = arrow_columns.pyarrow()
  mapped = arrow.py_buffer(data)
  with arrow.ipc.open_stream(mapped) as stream:
    (batch,) = stream
  offsets = batch.column("name").buffers()[1]
  # Where sample 2 begins: far beyond the text.
  at = offsets.address - mapped.address + 4 * 2
  altered = data[:at] + struct.pack("<i", 10**9) + data[at + 4 :]
  file.write_bytes(altered)
  with pytest.raises(stores.StoreError, match=f"{file} must hold whole record"):
    opened(path)


def test_more_numbers_than_there_are_is_found_while_indexing(tmp_path):
  path = written(tmp_path / "data", "arrow", made(6))
  (file,) = path.glob("*-of-*")
  data = file.read_bytes()
  count = sum(arrays["pixels"].size for arrays, _ in made(6))
  # How the file says a length, beside how many values are missing.
  at = data.index(struct.pack("<qq", count, 0))
  altered = data[:at] + struct.pack("<q", count + 99) + data[at + 8 :]
  file.write_bytes(altered)
  with pytest.raises(stores.StoreError, match=f"{file} must hold whole record"):
    opened(path)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_that_changed_is_indexed_again(tmp_path, kind):
  file = large(tmp_path / "data", kind)
  first = opened(tmp_path / "data").hash
  other = large(tmp_path / "other", kind, altered=15)
  # Same size, same ends, another time.
  file.write_bytes(other.read_bytes())
  assert opened(tmp_path / "data").hash != first
  assert opened(tmp_path / "data").hash == opened(tmp_path / "other").hash


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_that_was_cut_is_an_error_that_names_it(tmp_path, kind):
  path = written(tmp_path / "data", kind, made(), samples_per_file=10)
  file = sorted(path.glob("*-of-*"))[1]
  data = file.read_bytes()
  for size in (0, 3, 8, len(data) // 3, len(data) // 2, len(data) - 8,
               len(data) - 1):  # fmt: skip
    file.write_bytes(data[:size])
    with pytest.raises(stores.StoreError, match=str(file)):
      opened(path)
  file.write_bytes(data)
  assert opened(path).num_samples == 30
  file.unlink()
  with pytest.raises(stores.StoreError, match=str(file)):
    opened(path)


@pytest.mark.parametrize("kind", WRITERS)
def test_an_index_may_lie_elsewhere(tmp_path, kind):
  path = written(tmp_path / "data", kind, made())
  opened(path, index_dir=tmp_path / "indexes")
  assert list((tmp_path / "indexes").iterdir())
  assert not (tmp_path / "data.index").exists()
  opened(path)
  assert (tmp_path / "data.index").exists()


def test_nothing_is_there_to_open(tmp_path):
  with pytest.raises(stores.StoreError, match="nowhere"):
    opened(tmp_path / "nowhere")
  (tmp_path / "empty").mkdir()
  with pytest.raises(stores.StoreError, match="must hold ArrayRecord files"):
    opened(tmp_path / "empty")
  with pytest.raises(stores.StoreError, match="must be a local directory"):
    opened("gs://bucket/data")


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: Field((0, 3)), "`shape` must hold positive integers.* got 0"),
    (lambda: Field(("depth",)), "got 'depth'"),
    (lambda: Field(("height/0",)), "got 'height/0'"),
    (lambda: Field(("height/",)), "got 'height/'"),
    (lambda: Field(None, "text"), "`dtype` must be of numbers.* got 'text'"),
    (lambda: Field(None, "datetime64[s]"), "got 'datetime64"),
    (lambda: opened("data", []), r"`fields` must be one or more .*, got \[\]"),
    (lambda: opened("data", ["height"]), "must name arrays, got 'height'"),
  ],
)
def test_fields_that_cannot_be(make, message):
  with pytest.raises(ValueError, match=message):
    make()


# ArrayRecord files of samples.


@laws.examples(60)
@hypothesis.given(
  arrays=st.dictionaries(
    st.text(min_size=1, max_size=5),
    hnp.arrays(
      st.sampled_from(["uint8", "int64", ">f4", "float16", "bool"]),
      hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
    ),
    max_size=3,
  ),
  values=st.dictionaries(
    st.text(max_size=5), st.integers() | st.booleans() | st.text(max_size=9)
  ),
)
def test_a_record_is_what_was_encoded(arrays, values):
  data = samples_array_record.encoded(arrays, values)
  found, read = sample_records.decoded_image(data)
  assert read == values
  assert list(found) == list(arrays)
  for name, array in arrays.items():
    np.testing.assert_array_equal(found[name], array)
    assert found[name].dtype == array.dtype.newbyteorder("=")
  for cut in {0, 3, 4, len(data) // 2, len(data) - 1}:
    with pytest.raises(ValueError):  # noqa: PT011  whatever is cut off
      sample_records.decoded_image(data[:cut])
  with pytest.raises(ValueError, match="bytes, where it names"):
    sample_records.decoded_image(data + b"x")


def test_records_that_are_no_samples_or_lack_a_field(tmp_path):
  path = tmp_path / "data"
  own = made(6)
  del own[4][0]["latent"], own[4][1]["label"]
  written(path, "array_record", own, samples_per_file=2)
  with pytest.raises(stores.StoreError, match="sample 4 must hold `latent`"):
    opened(path, ["latent"]).read([4])
  with pytest.raises(stores.StoreError, match="sample 4 must hold `label`"):
    opened(path).read([1, 4], ["label"])
  with pytest.raises(stores.StoreError, match="sample 0 must hold `nope`"):
    opened(path, ["nope"])
  stores_testing.make_array_records(tmp_path / "tokens", [[1, 2, 3], [4]])
  with pytest.raises(stores.StoreError, match="record 0 must be a sample"):
    opened(tmp_path / "tokens")


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
  written(tmp_path / "data", "array_record", own)
  store = opened(tmp_path / "data", ["a"])
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


@pytest.mark.parametrize("turned", [False, True])
def test_metadata_has_the_dtype_that_holds_all_values(tmp_path, turned):
  own = made(6)
  own[3][1]["score"] = 2
  own[4][1]["label"] = 2.5
  own[5][1]["good"] = 7
  own = own[::-1] if turned else own
  store = opened(written(tmp_path / "data", "array_record", own))
  dtypes = {"label": np.float64, "score": np.float64, "good": np.int64}
  assert {n: store.value_dtypes[n] for n in dtypes} == dtypes
  assert store.value_dtypes["height"] == np.int64
  assert store.value_dtypes["name"] is None
  for index in range(6):
    found = store.read([index], list(dtypes))
    assert {n: found[n].dtype for n in dtypes} == dtypes
    assert {n: found[n][0] for n in dtypes} == {
      n: own[index][1][n] for n in dtypes
    }


@pytest.mark.parametrize("value", ["x", 2**63, -(2**63) - 1, None, [1]])
def test_a_value_that_is_no_number_of_its_dtype_names_its_sample(
  tmp_path, value
):
  own = made(6)
  own[4][1]["label"] = value
  store = opened(written(tmp_path / "data", "array_record", own))
  assert store.read([1], ["label"])["label"].dtype == np.int64
  message = "sample 4 must have one of int64 as `label`, got"
  with pytest.raises(stores.StoreError, match=message):
    store.read([1, 4], ["label"])


@pytest.mark.parametrize("kind", WRITERS)
def test_writing_over_something_or_nothing_is_an_error(tmp_path, kind):
  path = written(tmp_path / "data", kind, made(3))
  with pytest.raises(ValueError, match="must be an empty directory"):
    written(path, kind, made(3))
  with pytest.raises(ValueError, match="must hold samples, got none"):
    written(tmp_path / "none", kind, [])
  assert sorted(p.name for p in tmp_path.iterdir()) == ["data"]


def test_arrays_of_no_numbers_are_not_written():
  with pytest.raises(ValueError, match="`a` must hold numbers, got <U1"):
    samples_array_record.encoded({"a": np.asarray(["x"])}, {})


# Directories of `save_to_disk`.


def arrow_file(path, columns, **options):
  """Writes one Arrow file of a saved dataset, as pyarrow sees fit."""
  arrow = arrow_columns.pyarrow()
  path.mkdir(exist_ok=True)
  batch = arrow.RecordBatch.from_pydict(columns)
  number = len(list(path.glob("*.arrow")))
  name = f"data-{number}.arrow"
  with arrow.ipc.new_stream(
    str(path / name), batch.schema, options=arrow.ipc.IpcWriteOptions(**options)
  ) as writer:
    writer.write_batch(batch)
  names = [{"filename": f"data-{i}.arrow"} for i in range(number + 1)]
  (path / "state.json").write_text(json.dumps({"_data_files": names}))
  return path / name


def columns(**own):
  arrow = arrow_columns.pyarrow()
  return {
    "height": arrow.array([2, 2, 2], arrow.int32()),
    "width": arrow.array([2, 2, 2], arrow.int32()),
    **own,
  }


@laws.examples(60)
@hypothesis.given(
  array=hnp.arrays(
    st.sampled_from(["uint8", "int16", "float16", "float32", "float64"]),
    hnp.array_shapes(min_dims=2, max_dims=5, max_side=3),
    elements={"allow_nan": False},
  ),
  large=st.booleans(),
  fixed=st.integers(0, 15),
)
def test_nested_lists_of_any_kind_are_arrays(array, large, fixed):
  arrow = arrow_columns.pyarrow()
  own = arrow.array(array.reshape(-1))
  for depth in range(array.ndim - 1, 0, -1):
    length = array.shape[depth]
    if fixed >> depth & 1:
      own = arrow.FixedSizeListArray.from_arrays(own, length)
      continue
    offsets = np.arange(len(own) // length + 1) * length
    kind = arrow.LargeListArray if large else arrow.ListArray
    dtype = arrow.int64() if large else arrow.int32()
    own = kind.from_arrays(arrow.array(offsets, dtype), own)
  assert arrow_columns.is_array(own.type)

  class Unchecked:
    def verify(self, *args):
      pass

  column = arrow_columns.Column(Unchecked(), own, "pixels")
  for row in range(len(array)):
    found = column.array(row)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array[row])


def test_missing_and_uneven_values_are_named(tmp_path):
  arrow = arrow_columns.pyarrow()
  good, truth = [[1, 2], [3, 4]], [[True, False], [False, True]]
  path = tmp_path / "data"
  arrow_file(
    path,
    columns(
      none=arrow.array([good, None, good]),
      inner=arrow.array([good, [[1, 2], None], good]),
      value=arrow.array([good, [[1, 2], [3, None]], good]),
      truth=arrow.array([truth, [[True, None], [True, True]], truth]),
      uneven=arrow.array([good, [[1], [2, 3, 4]], good]),
      text=arrow.array(["a", None, "b"]),
    ),
  )
  for name in ("none", "inner", "value", "truth"):
    store, right = opened(path, [name]), truth if name == "truth" else good
    assert store.read([0, 2])[name].tolist() == [right, right]
    message = f"{path}: sample 1 must hold `{name}`, got a missing value"
    with pytest.raises(stores.StoreError, match=message):
      store.read([0, 1])
  with pytest.raises(stores.StoreError, match=r"sample 1 .*got lengths 1 to 3"):
    opened(path, ["uneven"]).read([1])
  assert opened(path, ["none"]).metadata([0, 2])["text"] == ["a", "b"]
  with pytest.raises(stores.StoreError, match="sample 1 must hold `text`"):
    opened(path, ["none"]).metadata([0, 1])


def test_bytes_are_arrays_where_the_field_says_so(tmp_path):
  arrow = arrow_columns.pyarrow()
  own = [np.arange(4, dtype="<f4") + i for i in range(3)]
  texts = [array.tobytes() for array in own]
  path = tmp_path / "data"
  arrow_file(
    path,
    columns(
      plain=arrow.array(texts),
      large=arrow.array(texts, arrow.large_binary()),
      fixed=arrow.array(texts, arrow.binary(16)),
      short=arrow.array([texts[0], texts[1][:15], None]),
    ),
  )
  field = Field(("height", "width"), "float32")
  for name in ("plain", "large", "fixed"):
    found = opened(path, {name: field}).read([2, 0])[name]
    np.testing.assert_array_equal(found.reshape(2, 4), [own[2], own[0]])
  with pytest.raises(stores.StoreError, match="must have a shape and a dtype"):
    opened(path, ["plain"])
  store = opened(path, {"short": field})
  with pytest.raises(stores.StoreError, match="sample 1 must hold 16 bytes"):
    store.read([0, 1])
  with pytest.raises(stores.StoreError, match=r"sample 2 .* missing value"):
    store.read([2])


def test_columns_that_are_not_there_or_hold_no_arrays(tmp_path):
  arrow = arrow_columns.pyarrow()
  path = tmp_path / "data"
  arrow_file(path, columns(a=arrow.array([[1]] * 3), b=arrow.array("abc")))
  for field, message in (
    ("c", "must have a column `c`, got height, width, a, b"),
    ("b", "column `b` must hold lists of numbers or truth values, or bytes"),
  ):
    with pytest.raises(stores.StoreError, match=f"{path}.*{message}"):
      opened(path, [field])
  with pytest.raises(stores.StoreError, match="must have a column `h`"):
    opened(path, ["a"], height_field="h")


def test_files_of_other_columns_or_that_are_compressed(tmp_path):
  arrow = arrow_columns.pyarrow()
  path = tmp_path / "data"
  arrow_file(path, columns(a=arrow.array([[1]] * 3)))
  second = arrow_file(path, columns(a=arrow.array([[1.5]] * 3)))
  with pytest.raises(
    stores.StoreError, match=f"{second} must have the columns"
  ):
    opened(path, ["a"])
  packed = tmp_path / "packed"
  own = columns(a=arrow.array([[1] * 99] * 3))
  file = arrow_file(packed, own, compression="zstd")
  with pytest.raises(stores.StoreError, match=f"{file}.*without compression"):
    opened(packed, ["a"])


def test_a_state_that_names_no_files_or_others(tmp_path):
  arrow = arrow_columns.pyarrow()
  path = tmp_path / "data"
  file = arrow_file(path, columns(a=arrow.array([[1]] * 3)))
  good = {"_data_files": [{"filename": file.name}]}
  for state, message in (
    ({}, "state.json must name the dataset's files"),
    ([], "state.json must name the dataset's files"),
    ({"_data_files": []}, "must name the files of the dataset, got none"),
    ({"_data_files": [{"filename": "../a"}]}, "must name files beside it"),
    ({"_data_files": [{"filename": "b"}]}, "b must exist, as state.json says"),
    (good | {"_indices_data_files": [{"filename": "i"}]}, "flatten_indices"),
  ):
    (path / "state.json").write_text(json.dumps(state))
    with pytest.raises(stores.StoreError, match=message):
      opened(path, ["a"])
  (path / "state.json").write_text(json.dumps(good))
  assert opened(path, ["a"]).num_samples == 3
  (tmp_path / "dataset_dict.json").write_text('{"splits": ["data", "test"]}')
  with pytest.raises(
    stores.StoreError, match=f"data, test. Name one, as {path}"
  ):
    opened(tmp_path, ["a"])


def test_saved_numbers_have_one_type_in_all_batches(tmp_path, monkeypatch):
  monkeypatch.setattr(save_to_disk, "BATCH_ROWS", 2)

  def save(path, labels):
    own = [
      ({"a": np.zeros((2, 2))}, {"height": 2, "width": 2, "label": label})
      for label in labels
    ]
    save_to_disk.save_to_disk(path, own, samples_per_file=4)
    return opened(path, ["a"])

  # Whole numbers are floats too, in another batch or another file.
  store = save(tmp_path / "a", [0, 0.5, 1, 2, 3, 4])
  found = store.metadata(range(6))["label"]
  assert found.dtype == np.float64
  assert found.tolist() == [0, 0.5, 1, 2, 3, 4]
  for labels, wrong in (
    ([0, 1, 2, 0.5], "samples 2 .. 3 must have the columns and types"),
    ([0, 1, 2, 3, 4.5], "samples 4 .. 4 must have the columns and types"),
    ([0, 1, 2, "x"], "samples 2 .. 3 must have the columns and types"),
  ):
    with pytest.raises(errors.PrepareError, match=wrong):
      save(tmp_path / "b", labels)
    assert not (tmp_path / "b").exists()


def test_arrays_of_other_numbers_of_axes_are_not_saved(tmp_path):
  own = [
    ({"a": np.zeros(shape)}, {"height": 2, "width": 2})
    for shape in ((2, 2), (2, 2, 3))
  ]
  with pytest.raises(errors.PrepareError, match="arrays of 2 and of 3 axes"):
    save_to_disk.save_to_disk(tmp_path / "data", own)


@pytest.fixture(scope="module")
def hugging_face():
  """The library itself, which the reader does without."""
  return pytest.importorskip("datasets")


def test_what_hugging_face_saves_is_read_in_place(tmp_path, hugging_face):
  hf, count = hugging_face, 25
  random = np.random.default_rng(0)
  sizes = [(2, 3), (4, 3)]
  rows = {
    "fixed_3d": random.standard_normal((count, 3, 4, 5)).astype(np.float32),
    "half_4d": random.standard_normal((count, 2, 3, 2, 2)).astype(np.float16),
    "open_2d": [
      random.integers(0, 99, (sizes[i % 2][0], 3)).astype(np.uint8)
      for i in range(count)
    ],
    "nested": [np.full((2, 2), i).tolist() for i in range(count)],
    "flat": random.standard_normal((count, 6)).astype(np.float32),
    "raw": [bytes([i]) * 6 for i in range(count)],
    "height": [sizes[i % 2][0] for i in range(count)],
    "width": [3] * count,
    "label": [i % 2 for i in range(count)],
    "caption": [f"picture {i}" for i in range(count)],
  }
  features = hf.Features(
    {
      "fixed_3d": hf.Array3D((3, 4, 5), "float32"),
      "half_4d": hf.Array4D((2, 3, 2, 2), "float16"),
      "open_2d": hf.Array2D((None, 3), "uint8"),
      "nested": hf.Sequence(hf.Sequence(hf.Value("int16"))),
      "flat": hf.Sequence(hf.Value("float32"), length=6),
      "raw": hf.Value("binary"),
      "height": hf.Value("int32"),
      "width": hf.Value("int64"),
      "label": hf.ClassLabel(names=["odd", "even"]),
      "caption": hf.Value("string"),
    }
  )
  path = tmp_path / "saved"
  dataset = hf.Dataset.from_dict(rows, features=features)
  # A selection is saved in its own order.
  order = random.permutation(count)
  dataset.select(order).save_to_disk(str(path), num_shards=3)
  before = {file: file.stat().st_mtime_ns for file in path.iterdir()}
  fields = {
    "fixed_3d": Field((3, 4, 5)),
    "half_4d": None,
    "open_2d": None,
    "nested": Field((2, 2)),
    "flat": Field((2, 3), "float16"),
    "raw": Field((2, 3), "uint8"),
  }
  store = opened(path, fields)
  assert store.num_samples == count
  assert store.sizes()[0].tolist() == [rows["height"][i] for i in order]
  library = hf.load_from_disk(str(path)).with_format("numpy")
  for height, _ in sizes:
    own = np.flatnonzero(store.sizes()[0] == height)
    batch, expected = store.read(own, ["label"]), library[own]
    for name in ("fixed_3d", "half_4d", "open_2d", "nested"):
      np.testing.assert_array_equal(batch[name], np.stack(expected[name]))
    np.testing.assert_array_equal(
      batch["flat"].reshape(-1, 6), rows["flat"][order[own]].astype(np.float16)
    )
    assert [value.tobytes() for value in batch["raw"]] == [
      rows["raw"][i] for i in order[own]
    ]
    assert batch["label"].tolist() == expected["label"].tolist()
    assert store.metadata(own)["caption"] == list(expected["caption"])
  assert before == {file: file.stat().st_mtime_ns for file in path.iterdir()}


def test_hugging_face_opens_what_is_saved_here(tmp_path, hugging_face):
  own = made(13)
  written(tmp_path / "data", "arrow", own, samples_per_file=5)
  dataset = hugging_face.load_from_disk(str(tmp_path / "data"))
  assert len(dataset) == 13
  for row, (arrays, values) in zip(dataset, own, strict=True):
    assert row["pixels"] == arrays["pixels"].tolist()
    assert {name: row[name] for name in values} == values


def test_the_library_is_not_needed_to_read(tmp_path):
  path = written(tmp_path / "data", "arrow", made())
  code = f"""
import sys
sys.modules["datasets"] = None
from chomp_data.stores import samples
print(samples.open_samples({str(path)!r}, fields=["pixels"]).read([1]).keys())
"""
  result = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, check=True
  )
  assert b"pixels" in result.stdout


def test_without_pyarrow_the_error_names_the_extra(tmp_path, monkeypatch):
  path = written(tmp_path / "data", "arrow", made(3))
  monkeypatch.setitem(sys.modules, "pyarrow", None)
  with pytest.raises(stores.StoreError, match=r"with the extra `arrow`"):
    opened(path)
  records = written(tmp_path / "records", "array_record", made(3))
  assert opened(records).num_samples == 3
