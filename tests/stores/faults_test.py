# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Faults of files of every kind of store: none is silent.

Each store is opened once, as a run does that begins. Then its files are
altered, cut, swapped or copied over each other, each time in ways that keep
and that change their times, and it is opened anew and from a pickle: an error
that names a file or the store, or, where nothing that is read was touched,
what was there before. Never other contents, also not as another store.
"""

import collections
import dataclasses
import gc
import json
import os
import pathlib
import pickle
import shutil
from typing import Any

import numpy as np
import pytest

from chomp_data import stores
from chomp_data.stores import samples
from chomp_data.stores import samples_array_record
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.testing import stores as testing_stores
from examples import save_to_disk

TOKENS = (
  "zarr", "zarr zstd", "zarr labels", "array_record", "array_record zstd",
)  # fmt: skip
SAMPLES = {
  "samples": samples_array_record.write_samples,
  "arrow": save_to_disk.save_to_disk,
}
KINDS = (*TOKENS, *SAMPLES)
# The others hold more arrays, or compressed ones, in the same files.
QUICK = ("zarr", "zarr zstd", "array_record", "arrow")
# Where files end ArrayRecord and Arrow say where everything is.
END = 1 << 17


@dataclasses.dataclass
class Original:
  """A store that was opened, its files as they were, and how it is read."""

  kind: str
  path: pathlib.Path
  pickled: bytes
  files: dict[pathlib.Path, tuple[bytes, int]]
  contents: list[Any]

  def opened(self, how: str) -> Any:
    if how == "pickle":
      return pickle.loads(self.pickled)
    return opened(self.kind, self.path)

  def reads_the_same(self, how: str) -> bool:
    return same(read_all(self.kind, self.opened(how)), self.contents)

  def restore(self) -> None:
    for file, (data, time) in self.files.items():
      if not file.exists() or file.read_bytes() != data:
        file.write_bytes(data)
      os.utime(file, ns=(time, time))


def write(kind, path, seed=7):
  rng = np.random.default_rng(seed)
  if kind in SAMPLES:
    # Of one size, so that files are of one size too.
    own = [
      (
        {"pixels": rng.integers(0, 256, (64, 64, 3), np.uint8)},
        {"height": 64, "width": 64, "label": i},
      )
      for i in range(70)
    ]
    SAMPLES[kind](path, own, samples_per_file=30)
    return
  lengths = [20_000] * 10 + [0, 7] + [20_000] * 10 + [11, 9] + [500] * 12
  if kind in ("zarr labels", "array_record zstd"):
    lengths = [300, 0, 2_000, 41, 7, 0, 555]
  documents = [rng.integers(0, 256, n) for n in lengths]
  if kind == "array_record":
    testing_stores.make_array_records(path, documents, files=3)
  elif kind == "array_record zstd":
    testing_stores.make_array_records(
      path, documents, files=2, group_size=1, compression="zstd"
    )
  elif kind == "zarr labels":
    count = len(lengths)
    stores.write_store(
      path,
      documents,
      tokenizer_info=stores.TokenizerInfo("custom", "0" * 64, 256),
      chunk=64,
      chunks_per_shard=8,
      ids=[f"{i}.txt" * (i % 3) for i in range(count)],
      meta=["", "a", "b", "", "c", "", "d"],
      levels=(0.0, 1.0, 0.5),
      label_levels=[rng.integers(0, 3, n) for n in lengths],
      weights=rng.random(count).tolist(),
    )
  else:
    testing_stores.make_store(
      path,
      documents,
      chunk=4_096,
      chunks_per_shard=32,
      compression=kind.partition(" ")[2] or "none",
    )


def opened(kind, path):
  if kind in SAMPLES:
    field = samples.ArrayField((64, 64, 3), "uint8")
    return samples.open_samples(path, fields={"pixels": field})
  if kind.startswith("array_record"):
    return testing_stores.open_array_records(path)
  return stores.open_store(path)


def read_all(kind, store):
  if kind in SAMPLES:
    found = store.read(range(store.num_samples), ["label"])
    return [found["pixels"], found["label"]]
  documents = range(store.num_documents)
  optional = []
  if kind == "zarr labels":
    for group in manifest_lib.OPTIONAL_ARRAYS:
      for name in sorted(set(group) & set(store.manifest.arrays)):
        array = store.arrays.array(name)
        optional.append(array.read(0, array.entry.layout.size))
  return [
    *optional,
    store.document_ids(documents),
    np.concatenate([length for _, length in store.iter_lengths()]),
    *[stores.read_document(store, i) for i in documents],
  ]


def same(one, other):
  return len(one) == len(other) and all(
    np.array_equal(a, b) for a, b in zip(one, other, strict=True)
  )


def written(kind, path):
  """Writes a store and opens it once, as a run does that begins."""
  write(kind, path)
  store = opened(kind, path)
  files = {
    file: (file.read_bytes(), file.stat().st_mtime_ns)
    for file in sorted(path.rglob("*"))
    # Nothing of it is read.
    if file.is_file() and file.name != "dataset_info.json"
  }
  contents = read_all(kind, store)
  return Original(kind, path, pickle.dumps(store), files, contents)


@pytest.fixture(
  scope="module",
  params=[
    kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow)
    for kind in KINDS
  ],
)
def original(request, tmp_path_factory):
  return written(request.param, tmp_path_factory.mktemp("faults") / "store")


def outcomes(original, faults, files=None):
  """Returns how often what came of faults, by how the store was opened.

  Args:
    original: What is damaged.
    faults: Functions that damage it.
    files: The file of each fault, which errors of our stores must name.
  """
  found = collections.Counter()
  gc.freeze()  # All that is there by now need not be looked through again.
  try:
    for number, apply in enumerate(faults):
      apply()
      expected = original.path
      if files is not None and original.kind.startswith("zarr"):
        expected = files[number]
      for how in ("open", "pickle"):
        # A store that is still open lends its tables of checksums to copies.
        gc.collect()
        try:
          right = original.reads_the_same(how)
          found[how, "as before" if right else "silent"] += 1
        except stores.StoreError as error:
          named = str(expected) in str(error)
          found[how, "refused" if named else str(error)] += 1
      original.restore()
  finally:
    gc.unfreeze()
    original.restore()
  assert original.reads_the_same("open")
  return found


def put(file, data, time=None):
  """Writes in place; the file keeps a time, or gets a new one."""
  before = file.stat().st_mtime_ns
  file.write_bytes(data)
  if time is not None:
    os.utime(file, ns=(time, time))
  else:
    assert file.stat().st_mtime_ns != before


def is_data(file):
  """Whether a file is of a corpus's contents, which it shares with others."""
  return file.name != "state.json"


@pytest.mark.parametrize(
  "many", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_no_flipped_bit_is_silent(original, many):
  rng = np.random.default_rng(0)

  def flip(file, at, bit):
    data = bytearray(original.files[file][0])
    data[at] ^= 1 << bit
    put(file, data, original.files[file][1])

  faults = []
  for file, (data, _) in original.files.items():
    count = 8 if original.kind.startswith("zarr") else 14
    if not many:
      count = 2 if len(original.files) > 9 else 5
    # Not padding, of which some files are full.
    filled = np.flatnonzero(np.frombuffer(data, np.uint8))
    places = [
      *rng.choice(filled, count),
      *rng.integers(max(0, len(data) - END), len(data), count),
      len(data) - 1,
    ]
    for at in places:
      bit = int(rng.integers(8))
      faults.append(lambda file=file, at=int(at), bit=bit: flip(file, at, bit))
  found = outcomes(original, faults)
  assert {what for _, what in found} <= {"refused", "as before"}, found
  # Padding, and what nobody asks for, may be read as before; so may the last
  # `END` bytes of record files, which an index replaces: 22 of 29 flips.
  share = 0.6 if original.kind.startswith(("zarr", "arrow")) else 0.25
  assert found["open", "refused"] > len(faults) * share * (many or 0.5), found


def test_every_cut_or_grown_file_is_refused(original):
  rng = np.random.default_rng(1)
  faults, files = [], []
  for file, (data, time) in original.files.items():
    ends = [0, len(data) - 1, *rng.integers(0, len(data), 3)]
    for changed in [*(data[:end] for end in ends), data + b"\0"]:
      if file.name == "state.json" and changed[:-1] == data:
        continue
      for own in (time, None):
        faults.append(
          lambda file=file, changed=changed, own=own: put(file, changed, own)
        )
        files.append(file)
  found = outcomes(original, faults, files)
  assert set(found) == {("open", "refused"), ("pickle", "refused")}, found


def pairs(original):
  """Returns pairs of files that hold the same kind of thing, not the same."""
  names = list(filter(is_data, original.files))
  data = {file: original.files[file][0] for file in names}
  return [
    (one, other)
    for one in names
    for other in names
    if one.parent == other.parent and data[one] != data[other]
  ]


@pytest.mark.parametrize(
  "times",
  [
    "moved",
    *(pytest.param(own, marks=pytest.mark.slow) for own in ("kept", "new")),
  ],
)
def test_every_swap_is_refused(original, times, tmp_path):
  def swap(one, other):
    (left, early), (right, late) = original.files[one], original.files[other]
    if times == "moved":
      # As `mv` does it.
      shutil.move(one, tmp_path / "kept")
      shutil.move(other, one)
      shutil.move(tmp_path / "kept", other)
      assert one.stat().st_mtime_ns == late
    else:
      kept = times == "kept"
      put(one, right, early if kept else None)
      put(other, left, late if kept else None)

  found = pairs(original)
  faults = [lambda own=own: swap(*own) for own in found if own[0] < own[1]]
  assert faults
  found = outcomes(original, faults)
  assert set(found) == {("open", "refused"), ("pickle", "refused")}, found


@pytest.mark.parametrize(
  "times",
  [
    "kept",
    *(pytest.param(own, marks=pytest.mark.slow) for own in ("copied", "new")),
  ],
)
def test_every_copy_over_another_file_is_refused(original, times):
  def copy(one, other):
    data, time = original.files[one]
    own = {"copied": time, "kept": original.files[other][1], "new": None}
    put(other, data, own[times])

  faults = [lambda own=own: copy(*own) for own in pairs(original)]
  assert faults
  found = outcomes(original, faults)
  assert set(found) == {("open", "refused"), ("pickle", "refused")}, found


def test_every_missing_file_is_refused(original):
  faults = [lambda file=file: file.unlink() for file in original.files]
  found = outcomes(original, faults, [file.name for file in original.files])
  assert set(found) == {("open", "refused"), ("pickle", "refused")}, found


# --- what is no fault ------------------------------------------------------


@pytest.fixture(params=["array_record", *SAMPLES])
def rewritten(request, tmp_path):
  """Returns (kind, path, files) of a corpus without a manifest, opened."""
  path = tmp_path / "store"
  write(request.param, path)
  opened(request.param, path)
  files = sorted(file for file in path.glob("*-of-*"))
  return request.param, path, files


def renamed(path, names):
  """Gives files other names, as a writer of several corpora numbers them."""
  for old, new in names.items():
    (path / old).rename(path / f"{new}.new")
  for new in names.values():
    (path / f"{new}.new").rename(path / new)
  state = path / "state.json"
  if state.exists():
    files = [{"filename": name} for name in sorted(names.values())]
    state.write_text(json.dumps({"_data_files": files}))


def test_files_that_were_touched_are_the_same_store(rewritten):
  kind, path, files = rewritten
  before = opened(kind, path).hash
  for file in files:
    os.utime(file)
  assert opened(kind, path).hash == before


def test_files_of_other_names_and_fewer_files_are_another_store(rewritten):
  kind, path, files = rewritten
  before = opened(kind, path)
  first, second, third = (file.name for file in files)
  renamed(path, {first: "y-0.array_record", second: "x-1.array_record",
                 third: "x-0.array_record"})  # fmt: skip
  swapped = opened(kind, path)
  assert swapped.hash != before.hash
  # The first one goes, and the others are numbered anew.
  (path / "x-0.array_record").unlink()
  renamed(path, {"x-1.array_record": "x-0.array_record",
                 "y-0.array_record": "x-1.array_record"})  # fmt: skip
  assert (
    len(opened(kind, path).files if kind == "array_record" else [1, 2]) == 2
  )
  assert opened(kind, path).hash != swapped.hash


def test_a_store_that_was_written_anew_is_another_store(rewritten):
  kind, path, files = rewritten
  before = opened(kind, path).hash
  shutil.rmtree(path)
  write(kind, path, seed=8)
  assert sorted(path.glob("*-of-*")) == files
  assert opened(kind, path).hash != before


def test_the_error_says_how_to_take_files_as_they_are(rewritten):
  kind, path, files = rewritten
  first, second, _ = files
  for i, file in enumerate(files):
    os.utime(file, ns=(i, i))
  shutil.rmtree(f"{path}.index")
  before = opened(kind, path).hash
  first.rename(path / "kept")
  second.rename(first)
  (path / "kept").rename(second)
  with pytest.raises(stores.StoreError, match=f"{first} must hold") as caught:
    opened(kind, path)
  assert f"got what was in {second.name}" in str(caught.value)
  index = str(caught.value).rpartition("remove ")[2].removesuffix(".")
  shutil.rmtree(index)
  assert opened(kind, path).hash != before


def test_damage_is_found_where_the_index_is_in_the_cache(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  paths = []
  for name, token in (("a", 1), ("b", 2)):
    path = tmp_path / name
    testing_stores.make_array_records(path, [[token] * 100], files=1)
    (file,) = path.iterdir()
    os.utime(file, ns=(0, 0))
    pathlib.Path(f"{path}.index").write_text("in the way")
    paths.append(file)
  # Files of one name, size and time are two corpora at two places.
  for path, token in zip(paths, (1, 2), strict=True):
    store = testing_stores.open_array_records(path.parent)
    assert stores.read_document(store, 0).tolist() == [token] * 100
  paths[0].write_bytes(paths[1].read_bytes())
  os.utime(paths[0], ns=(0, 0))
  shutil.rmtree(
    next(
      file.parent
      for file in (tmp_path / "cache").rglob("header.json")
      if json.loads(file.read_bytes())["store"] == str(tmp_path / "b")
    )
  )
  # A file of the same size and time is compared when it is read.
  store = testing_stores.open_array_records(paths[0].parent)
  with pytest.raises(
    stores.StoreError, match=f"{paths[0]}: record 0 .* If it is right as it is"
  ) as caught:
    stores.read_document(store, 0)
  shutil.rmtree(str(caught.value).rpartition("remove ")[2].removesuffix("."))
  store = testing_stores.open_array_records(paths[0].parent)
  assert stores.read_document(store, 0).tolist() == [2] * 100


def test_a_state_that_names_a_file_twice_is_refused(tmp_path):
  write("arrow", tmp_path / "store")
  state = tmp_path / "store" / "state.json"
  # One bit makes another number of a file's.
  text = state.read_text()
  state.write_text(text.replace("data-00000", "data-00001"))
  with pytest.raises(stores.StoreError, match=f"{state} must name each file"):
    opened("arrow", tmp_path / "store")
