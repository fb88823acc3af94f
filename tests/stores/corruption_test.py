# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Any altered, missing, swapped or extra byte is an error that names a file."""

import json
import os
import pathlib
import shutil

import numpy as np
import pytest

from chomp_data import stores
from chomp_data.storage import checksums
from chomp_data.stores import samples
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.testing import stores as testing_stores
from tests.golden import archive
from tests.golden import corpora

LENGTHS = [30, 0, 25, 41, 3]


@pytest.fixture(scope="module", params=["none", "zstd", "labels", "columns"])
def original(request, tmp_path_factory):
  """A store of two shards and more of each array."""
  rng = np.random.default_rng(0)
  if request.param == "labels":
    return pathlib.Path(
      stores.write_store(
        tmp_path_factory.mktemp("original") / "store",
        [rng.integers(0, 256, n) for n in LENGTHS],
        ids=["first", "", "third/file.txt", "x", "last"],
        meta=["", "a", "b", "", "c"],
        tokenizer_info=stores.TokenizerInfo("custom", "0" * 64, 256),
        chunk=4,
        chunks_per_shard=3,
        levels=(0.0, 1.0, 0.5),
        label_levels=[rng.integers(0, 3, n) for n in LENGTHS],
        weights=[1.0, 0.0, 2.5, 1.0, 3.0],
      ).path
    )
  columns = {}
  if request.param == "columns":
    columns = {
      "columns": {
        "quality": stores.Column("float16", (2,)),
        "margin": stores.Column("int32", per="document"),
      },
      "column_values": {
        "quality": [rng.normal(size=(n, 2)) for n in LENGTHS],
        "margin": [5, 4, 3, 2, 1],
      },
    }
  return pathlib.Path(
    testing_stores.make_store(
      tmp_path_factory.mktemp("original") / "store",
      [rng.integers(0, 256, n) for n in LENGTHS],
      ids=["first", "", "third/file.txt", "x", "last"],
      chunk=4,
      chunks_per_shard=3,
      compression="none" if columns else request.param,
      **columns,
    ).path
  )


@pytest.fixture
def copy(original, tmp_path):
  return pathlib.Path(shutil.copytree(original, tmp_path / "store"))


def files_of(path):
  return sorted(p for p in path.rglob("*") if p.is_file())


def read_all(path):
  """Opens a store and touches everything."""
  store = stores.open_store(path)
  for group in manifest_lib.OPTIONAL_ARRAYS:
    for name in set(group) & set(store.manifest.arrays):
      array = store.arrays.array(name)
      array.read(0, array.entry.layout.size)
  for name, stored in store.opened.columns.items():
    per_token = store.manifest.columns[name].per == "token"
    stored.read(0, store.num_tokens if per_token else store.num_documents)
  for document in range(store.num_documents):
    stores.read_document(store, document)
  list(store.iter_lengths(2))
  return store.document_ids(range(store.num_documents))


def assert_refused(path, match):
  with pytest.raises(stores.StoreError, match=match):
    read_all(path)
  with pytest.raises(stores.StoreError, match=match):
    stores.verify_store(path)


def test_an_unaltered_copy_reads(copy):
  assert read_all(copy)[0] == "first"
  stores.verify_store(copy)


@pytest.mark.parametrize("name", ["extra", "tokens/c/99", "tokens/c/0.tmp"])
def test_an_extra_file_is_refused(copy, name):
  (copy / name).write_bytes(b"")
  assert_refused(copy, name)


@pytest.fixture(scope="module", params=["labelled", "code"])
def old(request, tmp_path_factory):
  """A store of schema 1, not compressed and compressed."""
  path = tmp_path_factory.mktemp("old")
  archive.unpack(path)
  return path / request.param


def test_a_store_of_schema_1_reads_and_no_flipped_byte_of_it(old):
  store = stores.open_store(old)
  assert store.manifest.schema == 1
  wanted = corpora.documents(old.name)
  for i, tokens in enumerate(wanted):
    assert stores.read_document(store, i).tolist() == tokens.tolist()
  stores.verify_store(old)
  rng = np.random.default_rng(0)
  for file in files_of(old):
    data = file.read_bytes()
    for offset in rng.integers(0, len(data), 5).tolist():
      bad = bytearray(data)
      bad[offset] ^= 1 << rng.integers(8)
      file.write_bytes(bad)
      with pytest.raises(stores.StoreError, match=str(old)):
        stores.verify_store(old)
    file.write_bytes(data[:-1])
    with pytest.raises(stores.StoreError, match=str(file)):
      stores.open_store(old)
    file.write_bytes(data)


def test_chunks_swapped_with_their_checksums_are_refused(copy):
  store = stores.open_store(copy)
  if store.manifest.arrays["tokens"].layout.compression == "zstd":
    pytest.skip("compressed chunks differ in size")
  file = copy / "tokens" / "c" / "0"
  data = file.read_bytes()
  stride = 4 * 2 + 4
  swapped = data[stride : 2 * stride] + data[:stride] + data[2 * stride :]
  assert swapped != data
  file.write_bytes(swapped)
  assert_refused(copy, "tokens/c/0.*(crc32c|SHA-256)")


def test_an_index_that_points_elsewhere_is_refused(copy):
  file = copy / "tokens" / "c" / "0"
  data = file.read_bytes()
  index = np.frombuffer(data[-52:-4], "<u8").reshape(-1, 2)[[1, 0, 2]]
  crc = array_layout.crc_bytes(checksums.crc32c(index.tobytes()))
  file.write_bytes(data[:-52] + index.tobytes() + crc)
  assert_refused(copy, "tokens/c/0")


def test_nothing_of_a_bad_chunk_is_handed_out_twice_either(copy):
  file = copy / "tokens" / "c" / "0"
  data = bytearray(file.read_bytes())
  data[1] ^= 1
  file.write_bytes(data)
  store = stores.open_store(copy)
  for _ in range(3):
    out = np.full(4, -1, np.int32)
    with pytest.raises(stores.StoreError, match="chunk 0"):
      store.copy_tokens(np.zeros(1, int), np.full(1, 4), out, np.zeros(1, int))
    assert out.tolist() == [-1] * 4


def test_what_is_not_a_store_says_so(tmp_path):
  with pytest.raises(stores.StoreError, match="got nothing there"):
    stores.open_store(tmp_path / "nowhere")
  (tmp_path / "file").write_text("x")
  with pytest.raises(stores.StoreError, match="got a file there"):
    stores.open_store(tmp_path / "file")
  (tmp_path / "folder").mkdir()
  with pytest.raises(stores.StoreError, match="unfinished"):
    stores.open_store(tmp_path / "folder")
  (tmp_path / "folder" / "manifest.json").write_text('{"format": "other"}')
  with pytest.raises(stores.StoreError, match="must have format"):
    stores.open_store(tmp_path / "folder")


@pytest.mark.parametrize(
  "name", ["", "/documents-00000-of-00002.array_record", "/*.array_record"]
)
def test_array_record_files_say_how_they_are_opened(tmp_path, name):
  testing_stores.make_array_records(tmp_path / "records", [[1, 2]])
  with pytest.raises(stores.StoreError, match=r"records .* `array_record`"):
    stores.open_store(f"{tmp_path / 'records'}{name}")
  with pytest.raises(stores.StoreError, match="got nothing there"):
    stores.open_store(tmp_path / "no.array_record")


@pytest.mark.parametrize("file", ["state.json", "dataset_dict.json"])
def test_what_save_to_disk_wrote_says_how_it_is_opened(tmp_path, file):
  (tmp_path / file).write_text("{}")
  with pytest.raises(stores.StoreError, match=r"`save_to_disk`.*'resolution'"):
    stores.open_store(tmp_path)


def test_what_is_no_file_in_the_place_of_one_is_refused(copy, tmp_path):
  for file in files_of(copy):
    if file.name.isdigit() and file.name != "0":
      continue  # A shard as the first one of its array is.
    data = file.read_bytes()
    file.unlink()
    os.mkfifo(file)
    assert_refused(copy, str(file))
    for target in (file.name, "nowhere", "/dev/zero"):
      file.unlink()
      file.symlink_to(target)
      assert_refused(copy, str(file))
    file.unlink()
    file.mkdir()
    assert_refused(copy, str(file))
    file.rmdir()
    file.write_bytes(data)
  (tmp_path / "records").mkdir()
  os.mkfifo(tmp_path / "records" / "x.array_record")
  with pytest.raises(stores.StoreError, match=r"x\.array_record must be read"):
    testing_stores.open_array_records(tmp_path / "records")


@pytest.mark.parametrize(
  "opened",
  [
    stores.open_store,
    testing_stores.open_array_records,
    lambda path: samples.open_samples(path, fields=["pixels"]),
  ],
)
@pytest.mark.parametrize(
  ("name", "reason"),
  [
    ("\0", "null byte"),
    ("\ud800", "surrogates"),
    ("x" * 100_000, "File name too long"),
  ],
  ids=["null", "surrogate", "long"],
)
def test_paths_that_no_file_can_have_are_refused(
  tmp_path, opened, name, reason
):
  with pytest.raises(stores.StoreError, match=reason) as caught:
    opened(f"{tmp_path}/{name}")
  assert len(str(caught.value)) < 1_000


def test_a_newer_schema_is_named(copy):
  file = copy / "manifest.json"
  values = json.loads(file.read_bytes())
  values["schema"] = 7
  file.write_text(json.dumps(values))
  assert_refused(copy, "schema of 1, 2, 3, got 7")


def test_random_bytes_are_never_a_manifest():
  rng = np.random.default_rng(0)
  for size in [0, 1, 5, 100, 10_000]:
    for _ in range(20):
      with pytest.raises(stores.StoreError, match=r"m\.json"):
        manifest_lib.parse(rng.bytes(size), "m.json")
  for text in (b"[" * 100_000, b"1" * 10_000, b"null", b"[]", b'"x"'):
    with pytest.raises(stores.StoreError, match=r"m\.json"):
      manifest_lib.parse(text, "m.json")
