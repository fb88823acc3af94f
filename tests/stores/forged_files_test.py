# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Files of JSON that someone altered, with digests that fit what they altered.

Whatever a manifest, a header or a list of files says, nothing outside of its
directory is written, and what is wrong is an error that names the file.
"""

import copy
import hashlib
import itertools
import json
import os
import pathlib
import shutil

import numpy as np
import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.loading import state as state_lib
from chomp_data.prepare import inputs
from chomp_data.prepare import part_files
from chomp_data.prepare import run
from chomp_data.reference import checkpoint_sums
from chomp_data.storage import checksums
from chomp_data.storage import relative_names
from chomp_data.stores import checksum_sidecar
from chomp_data.stores import samples
from chomp_data.stores import side_index
from chomp_data.stores.array_record import record_writer
from chomp_data.stores.tokenized import levanter_store
from chomp_data.stores.tokenized import zarr_chunks
from chomp_data.testing import stores as testing_stores
from examples import save_to_disk

LEVANTER = pathlib.Path(__file__).parent / "fixtures" / "levanter"

# What no field of any of the files may be; a few are valid in some.
VALUES = [
  None, True, -1, 2**70, 1.5, float("inf"), "", "x", [], {}, [1], [[1]],
  {"a": 1}, ["x"], [None],
]  # fmt: skip
NAMES = [
  "/{outside}/made",
  "/{outside}/canary",
  "../outside/made",
  "../../outside/made",
  "../../../outside/canary",
  "x/../../outside/made",
  "..",
  ".",
  "",
  "a//b",
  "a/",
  "./a",
  "C:/a",
  "c:a",
  "..\\outside\\made",
  "a\0b",
  "x" * 300,
  "\ud800",
]


def unsigned(values):
  return json.dumps(values).encode()


def signed_manifest(values):
  values = {name: own for name, own in values.items() if name != "digest"}

  def canonical(own):
    return (json.dumps(own, indent=1, sort_keys=True) + "\n").encode()

  digest = hashlib.sha256(canonical(values)).hexdigest()
  return canonical(values | {"digest": digest})


def signed_header(values):
  values = {name: own for name, own in values.items() if name != "sha256"}

  def canonical(own):
    text = json.dumps(own, sort_keys=True, separators=(",", ":"))
    return text.encode()

  digest = hashlib.sha256(canonical(values)).hexdigest()
  return canonical(values | {"sha256": digest})


def signed_sums(values):
  values = {name: own for name, own in values.items() if name != "digest"}
  return json.dumps({**values, "digest": state_lib.digest(values)}).encode()


def signed_row(values):
  data = json.dumps(values).encode()
  return b"%08x\n%b" % (checksums.crc32c(data), data)


def unsigned_row(data):
  return json.loads(data.partition(b"\n")[2])


class Case:
  """A file of JSON, and what reads it.

  Attributes:
    make: Writes good data to a directory; returns the path of the file.
    read: Reads data from that directory.
    sign: Returns the bytes of altered values.
    parse: Returns the values of the file's bytes.
    names: Whether keys or values of the file are names of files.
  """

  def __init__(self, make, read, sign=unsigned, parse=json.loads, names=True):
    self.make, self.read, self.sign = make, read, sign
    self.parse, self.names = parse, names


def documents():
  return [np.arange(9) % 7, np.arange(30) % 5]


def zarr(root):
  testing_stores.make_store(root, documents())
  return root / "manifest.json"


def read_store(root):
  store = stores.open_store(root)
  return [
    stores.read_document(store, i).tolist() for i in range(store.num_documents)
  ]


def records(root):
  testing_stores.make_array_records(root, documents(), files=2)
  return root


def read_records(root):
  store = testing_stores.open_array_records(root, "uint16")
  return [
    stores.read_document(store, i).tolist() for i in range(store.num_documents)
  ]


def indexed_records(root):
  read_records(records(root))
  (file,) = pathlib.Path(f"{root}.index").glob("*/header.json")
  return file


def indexed_records_that_changed(root):
  file = indexed_records(root)
  # Written again: the index is compared with what is there now.
  for own in root.iterdir():
    own.write_bytes(own.read_bytes())
    os.utime(own, (1, 1))
  return file


def adopted_records(root):
  records(root)
  names = tuple(sorted(own.name for own in root.iterdir()))
  checksum_sidecar.adopt(root, root, names)
  return pathlib.Path(f"{root}.adopted", checksum_sidecar.FILE)


def prepared_records(root):
  source = root.with_name("text.jsonl")
  source.write_text('{"text": "a text"}\n')
  run.prepare(run.Options((str(source),), str(root), format="array_record"))
  return root / record_writer.FILE


def read_prepared(root):
  record_writer.prepared_at(root)
  return read_store(root)


def levanter(root):
  shutil.copytree(LEVANTER / "sharded", root)
  return root / levanter_store.LEDGER


def read_levanter(root):
  options = levanter_store.LevanterOptions(vocab_size=100_000)
  return levanter_store.open_levanter(root, options).num_documents


def some_samples():
  pixels = np.zeros((2, 3, 3), np.uint8)
  values = {"height": 2, "width": 3}
  return [({"pixels": pixels}, values)] * 3


FIELDS = {"pixels": samples.ArrayField(("height", "width", 3), "uint8")}


def saved(root):
  pytest.importorskip("pyarrow")
  save_to_disk.save_to_disk(root, some_samples(), samples_per_file=2)
  return root / "state.json"


def read_samples(root):
  return samples.open_samples(root, fields=FIELDS).num_samples


def read_saved_text(root):
  return [file.name for file in inputs.discover([str(root)], [])]


def sums(root):
  for name in ("model", "sums"):
    (root / name).mkdir(parents=True)
  (root / "_CHECKPOINT_METADATA").write_text('{"item_handlers": {"sums": 1}}')
  (root / "model" / "x").write_bytes(b"weights")
  files = {"model/x": list(checksums.of_file(root / "model" / "x"))}
  file = root / "sums" / "sums.json"
  file.write_bytes(signed_sums({"files": files}))
  return file


def read_sums(root):
  problem = checkpoint_sums.problem(root, ["model"])
  if problem is not None:
    raise errors.StoreError(f"sums.json {problem}")


def part(root):
  root.mkdir()
  with part_files.PartWriter(
    str(root), "key", np.dtype("<u2"), has_meta=False, has_labels=False,
    has_weights=False,
  ) as writer:  # fmt: skip
    writer.add(np.arange(5), np.asarray([2, 3]), ["a", "b"])
    writer.finish(0, {})
  return root / "key.json"


def read_part(root):
  if part_files.find(str(root), "key") is None:
    raise errors.StoreError("key.json is made again")


def journal(root):
  root.with_name("data.index").mkdir()

  class StopError(Exception):
    pass

  def build(sizes):
    yield {"a": np.arange(5)}
    raise StopError

  side_index.RECORD_INTERVAL_S, before = -1.0, side_index.RECORD_INTERVAL_S
  try:
    with pytest.raises(StopError):
      side_index.load_or_build(root, "it", {}, build_from=build)
  finally:
    side_index.RECORD_INTERVAL_S = before
  (file,) = root.with_name("data.index").glob(".it-*/journal.json")
  return file


def read_journal(root):
  arrays = side_index.load_or_build(
    root, "it", {}, build_from=lambda sizes: [{"a": np.arange(5)}]
  )
  return arrays["a"].read()


def zarr_json(root):
  root.mkdir()
  (found,) = LEVANTER.glob("cache/input_ids/data/zarr.json")
  return pathlib.Path(shutil.copy(found, root / "zarr.json"))


def read_zarr_json(root):
  file = root / "zarr.json"
  return zarr_chunks.format_of(str(file), file.read_bytes())


CASES = {
  "manifest": Case(zarr, read_store, signed_manifest),
  "index": Case(indexed_records, read_records, signed_header),
  "index of changed files": Case(
    indexed_records_that_changed, read_records, signed_header
  ),
  "journal": Case(journal, read_journal, signed_header),
  "adopted": Case(adopted_records, read_records),
  "prepared records": Case(prepared_records, read_prepared, names=False),
  "levanter": Case(levanter, read_levanter),
  "zarr.json": Case(zarr_json, read_zarr_json, names=False),
  "save_to_disk": Case(saved, read_samples),
  "text of save_to_disk": Case(saved, read_saved_text),
  "sums": Case(sums, read_sums, signed_sums),
  "part": Case(
    part, read_part, signed_row, parse=unsigned_row, names=False
  ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def outside(tmp_path, monkeypatch):
  """A directory that nothing may be written to."""
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  path = tmp_path / "outside"
  path.mkdir()
  (path / "canary").write_text("alive")
  (path / "canary.bin").write_text("alive" * 1_000)
  return path


def state_of(path):
  return {
    own.relative_to(path).as_posix(): own.stat().st_mtime_ns
    for own in path.rglob("*")
    if own.is_file()
  }


@pytest.fixture
def made(request, tmp_path):
  """Returns a case, its pristine directory, and its file relative to that."""
  case = CASES[request.param]
  area = tmp_path / "area"
  area.mkdir()
  file = case.make(area / "data")
  pristine = tmp_path / "pristine"
  shutil.copytree(area, pristine)
  return case, pristine, file.relative_to(area)


def altered(case, pristine, file, data, tmp_path):
  """Returns what reading gives with other bytes of the file."""
  area = tmp_path / "area"
  if state_of(area) != state_of(pristine):
    shutil.rmtree(area)
    shutil.copytree(pristine, area)
  (area / file).write_bytes(data)
  try:
    case.read(area / "data")
  except (errors.StoreError, errors.PrepareError) as error:
    return str(error)
  return None


def paths_in(value):
  """Yields how to reach every value of a tree of JSON."""
  yield ()
  items = ()
  if isinstance(value, dict):
    items = value.items()
  elif isinstance(value, list):
    items = enumerate(value[:3])
  for key, own in items:
    for path in paths_in(own):
      yield (key, *path)


def replaced(values, path, new):
  if not path:
    return new
  values = copy.deepcopy(values)
  place = values
  for key in path[:-1]:
    place = place[key]
  place[path[-1]] = new
  return values


def removed(values, path):
  values = copy.deepcopy(values)
  place = values
  for key in path[:-1]:
    place = place[key]
  del place[path[-1]]
  return values


def at(values, path):
  for key in path:
    values = values[key]
  return values


def forged(case, values):
  """Yields values of other types in each place, and places left out."""
  turn = itertools.cycle(VALUES)
  for path in paths_in(values):
    for _ in range(1):
      new = next(turn)
      if path or isinstance(new, dict):
        yield f"{path} = {new!r}", replaced(values, path, new)
    if path:
      yield f"no {path}", removed(values, path)


@pytest.mark.parametrize(
  "made",
  [
    pytest.param(name, marks=pytest.mark.slow)
    if name == "index of changed files"
    else name
    for name in CASES
  ],
  indirect=True,
)
def test_a_value_of_another_type_is_an_error_that_names_the_file(
  made, tmp_path, outside
):
  case, pristine, file = made
  good = (pristine / file).read_bytes()
  assert altered(case, pristine, file, good, tmp_path) is None
  before = state_of(outside)
  values, refused = case.parse(good), 0
  for what, own in forged(case, values):
    try:
      problem = altered(case, pristine, file, case.sign(own), tmp_path)
    except Exception as error:
      raise AssertionError(f"{what}: {error!r}") from error
    if problem is not None:
      refused += 1
      named = (file.name, "header.json", "area/data/")
      assert any(own in problem for own in named), (what, problem)
  assert state_of(outside) == before
  assert refused or file.name in ("header.json", "journal.json")


def renamed(values, names):
  """Yields values in which a key or a text is another name."""
  turn = itertools.cycle(names)
  paths = [path for path in paths_in(values) if path]
  # Each name in some place, and in each place one of them at least.
  for path in itertools.islice(
    itertools.cycle(paths), max(len(paths), len(names))
  ):
    if isinstance(at(values, path), str):
      name = next(turn)
      yield path, name, replaced(values, path, name)
    parent = at(values, path[:-1])
    if isinstance(parent, dict):
      name = next(turn)
      own = {name if key == path[-1] else key: parent[key] for key in parent}
      yield path, name, replaced(values, path[:-1], own)


@pytest.mark.parametrize(
  "made", [name for name in CASES if CASES[name].names], indirect=True
)
def test_no_name_leads_out_of_the_directory(made, tmp_path, outside):
  case, pristine, file = made
  before = state_of(outside)
  around = set(os.listdir(tmp_path))
  values = case.parse((pristine / file).read_bytes())
  names = [own.replace("/{outside}", str(outside)) for own in NAMES]
  for path, name, own in renamed(values, names):
    try:
      altered(case, pristine, file, case.sign(own), tmp_path)
    except Exception as error:
      raise AssertionError(f"{path} = {name!r}: {error!r}") from error
    assert state_of(outside) == before, (path, name)
    assert set(os.listdir(tmp_path)) <= around | {"cache"}, (path, name)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_none_is_refused(name):
  assert not relative_names.is_valid(name.replace("{outside}", "a"))
  with pytest.raises(errors.StoreError, match=r"list\.json must name files"):
    relative_names.check(name, "list.json")


@pytest.mark.parametrize("name", [None, 5, True, ["a"], {"a": 1}, b"a"])
def test_a_value_that_is_no_text_is_no_name(name):
  with pytest.raises(errors.StoreError, match=r"list\.json must name files"):
    relative_names.check(name, "list.json")


@pytest.mark.parametrize(
  "name", ["a", "a/b.c", "model/d/0f...", "...", "a b", "ä", "-x", "ab:c"]
)
def test_names_of_files_are_names(name):
  assert relative_names.check(name, "list.json") == name
  assert not relative_names.leaves_address(name)


def test_links_that_lead_out_of_the_directory_are_refused(tmp_path):
  root = tmp_path / "data"
  root.mkdir()
  (root / "list.json").write_text("{}")
  (root / "real").write_text("")
  (root / "inside").symlink_to("real")
  (root / "out").symlink_to(tmp_path / "outside" / "canary")
  (root / "folder").symlink_to(tmp_path / "outside")

  def path_of(name):
    return relative_names.path_below(root, name, root / "list.json")

  assert path_of("real") == root / "real"
  assert path_of("inside") == root / "inside"
  for name in ("out", "folder/canary", "folder/new"):
    with pytest.raises(errors.StoreError, match=r"list\.json .*a link to"):
      path_of(name)
  # All of a directory may be links, the file that names others with them.
  (tmp_path / "outside" / "list.json").write_text("{}")
  (root / "list.json").unlink()
  (root / "list.json").symlink_to(tmp_path / "outside" / "list.json")
  assert path_of("out") == root / "out"


def test_a_dataset_whose_file_is_a_link_elsewhere_is_refused(tmp_path, outside):
  file = saved(tmp_path / "data")
  first = json.loads(file.read_bytes())["_data_files"][0]["filename"]
  shutil.move(tmp_path / "data" / first, outside / first)
  (tmp_path / "data" / first).symlink_to(outside / first)
  with pytest.raises(errors.StoreError, match=r"state\.json .*a link to"):
    read_samples(tmp_path / "data")
