# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Indexes beside a store: built once, shared, checked, rebuilt when wrong."""

import multiprocessing
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
import tqdm

from chomp_data import stores
from chomp_data.storage import publish
from chomp_data.stores import side_index
from chomp_data.threads import heartbeat

KEY = {"store": "abc", "seq_len": 8, "order": None}


@pytest.fixture
def store(tmp_path, monkeypatch):
  """Where a store could be, and a cache directory of its own."""
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  (tmp_path / "data").mkdir()
  return tmp_path / "data" / "store"


class Builder:
  """Yields arrays in parts and counts how often it is asked to."""

  def __init__(self, *parts):
    self.parts = parts or (
      {"rows": np.arange(3), "bins": np.arange(5, dtype=np.uint32)},
      {"rows": np.arange(2), "bins": np.empty(0, np.uint32)},
    )
    self.calls = 0

  def __call__(self):
    self.calls += 1
    yield from self.parts


def load(store, build=None, key=None, name="ffd"):
  return side_index.load_or_build(
    store, name, KEY if key is None else key, build or Builder()
  )


def never():
  raise AssertionError("an index that is there was built")
  yield


def beside(store):
  (directory,) = pathlib.Path(f"{store}.index").glob("ffd-*")
  return directory


def check(arrays):
  assert set(arrays) == {"rows", "bins"}
  assert arrays["rows"].read().tolist() == [0, 1, 2, 0, 1]
  assert arrays["bins"].read().tolist() == [0, 1, 2, 3, 4]
  assert arrays["bins"].read().dtype == np.uint32


# --- building and opening --------------------------------------------------


def test_an_index_is_built_once_and_read_back(store):
  check(load(store))
  check(load(store, never))
  assert [p.name for p in store.parent.iterdir()] == ["store.index"]
  # Neither a lock nor a half-built one is left.
  assert [p.name for p in beside(store).parent.iterdir()] == [
    beside(store).name
  ]
  assert sorted(p.name for p in beside(store).iterdir()) == [
    "bins.bin",
    "header.json",
    "rows.bin",
  ]


def test_a_bar_that_is_not_shown_is_a_sign_of_life_alone(monkeypatch):
  monkeypatch.setattr(tqdm.tqdm, "__new__", lambda *args, **options: never())
  before = heartbeat.beats()
  with side_index.progress(3, "lengths", "docs", shown=False) as bar:
    bar.update(3)
  assert heartbeat.beats() == before + 1


@pytest.mark.parametrize(
  "change",
  [
    {"key": {**KEY, "seq_len": 9}},
    {"key": {**KEY, "order": ["full", 0]}},
    {"key": {k: v for k, v in KEY.items() if k != "order"}},
    {"name": "sums"},
  ],
  ids=str,
)
def test_another_question_has_another_index(store, change):
  load(store)
  build = Builder()
  load(store, build, **change)
  assert build.calls == 1
  load(store, never)
  load(store, never, **change)


def test_a_key_says_what_it_says_in_any_order(store):
  load(store, key={"a": 1, "b": [2, (3, 4)]})
  load(store, never, key={"b": (2, [3, 4]), "a": 1})


@pytest.mark.parametrize("sizes", [[0], [3, 0, 5], [200_000, 1, 150_000]])
def test_parts_of_an_array_are_read_as_one(store, sizes):
  values = np.arange(sum(sizes))
  parts = [{"values": part} for part in np.split(values, np.cumsum(sizes)[:-1])]
  array = load(store, Builder(*parts))["values"]
  assert len(array) == len(values)
  assert array.nbytes == values.nbytes
  assert np.array_equal(array.read(), values)


def test_a_builder_that_fails_leaves_nothing(store):
  def fail():
    yield {"rows": np.arange(3)}
    raise stores.StoreError("offsets were altered")

  with pytest.raises(stores.StoreError, match="offsets were altered"):
    load(store, fail)
  assert not list(pathlib.Path(f"{store}.index").iterdir())
  check(load(store))


# --- damage ----------------------------------------------------------------


def flipped(data, at=0):
  return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("file", ["rows.bin", "bins.bin", "header.json"])
@pytest.mark.parametrize(
  "damage",
  [
    pytest.param(lambda data: b"", id="empty"),
    pytest.param(lambda data: data[:-1], id="truncated"),
    pytest.param(lambda data: data + b"\0", id="too long"),
    pytest.param(flipped, id="first bit"),
    pytest.param(lambda data: flipped(data, len(data) - 1), id="last byte"),
    pytest.param(lambda data: bytes(len(data)), id="zeros"),
    pytest.param(lambda data: b"[]", id="other JSON"),
    pytest.param(None, id="missing"),
    pytest.param("directory", id="a directory"),
  ],
)
def test_whatever_is_damaged_is_built_again(store, file, damage):
  load(store)
  path = beside(store) / file
  if callable(damage):
    path.write_bytes(damage(path.read_bytes()))
  else:
    path.unlink()
    if damage:
      path.mkdir()
  build = Builder()
  check(load(store, build))
  assert build.calls == 1
  check(load(store, never))


def test_an_index_under_a_foreign_name_is_not_used(store):
  load(store, Builder({"rows": np.arange(9)}), key={**KEY, "seq_len": 9})
  foreign = beside(store)
  load(store)
  (own,) = set(foreign.parent.iterdir()) - {foreign}
  shutil.rmtree(own)
  shutil.copytree(foreign, own)
  build = Builder()
  check(load(store, build))
  assert build.calls == 1


def test_a_file_in_the_place_of_an_index_sends_it_to_the_cache(store, tmp_path):
  load(store)
  directory = beside(store)
  shutil.rmtree(directory)
  directory.write_text("not an index")
  check(load(store))
  check(load(store, never))
  assert directory.read_text() == "not an index"
  assert list((tmp_path / "cache").rglob(directory.name))


def test_pages_of_a_large_index_are_checked_at_first_touch(store):
  values = np.arange(300_000)
  load(store, Builder({"values": values}))
  path = beside(store) / "values.bin"
  page = (1 << 20) // 8
  path.write_bytes(flipped(path.read_bytes(), (1 << 20) + 3))
  array = load(store, never)["values"]
  assert np.array_equal(array.read(0, page), values[:page])
  assert np.array_equal(array.read(2 * page), values[2 * page :])
  assert array.take(np.asarray([2 * page])).dtype == np.int64
  for first, last in ((page, page + 1), (page - 1, 2 * page), (0, None)):
    with pytest.raises(
      stores.StoreError, match=r"values\.bin: page 1 must have crc32c.*Remove"
    ):
      array.read(first, last)
  shutil.rmtree(path.parent)
  array = load(store, Builder({"values": values}))["values"]
  assert array.read(page, page + 1) == page


def test_another_process_maps_an_array_anew(store):
  values = np.arange(100_000)
  array = load(store, Builder({"values": values}))["values"]
  sent = pickle.dumps(array)
  assert len(sent) < 1_000
  assert np.array_equal(pickle.loads(sent).read(), values)


# --- places ----------------------------------------------------------------


def block(path):
  """Makes a directory impossible, for whoever asks: it is a file."""
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text("in the way")


def test_an_index_that_cannot_lie_beside_its_store_is_cached(store, tmp_path):
  block(pathlib.Path(f"{store}.index"))
  check(load(store))
  check(load(store, never))
  assert list((tmp_path / "cache" / "chomp_data" / "index").glob("ffd-*"))
  # The copies of a store share what is cached.
  block(tmp_path / "copy.index")
  check(load(tmp_path / "copy", never))


def test_what_is_cached_is_used_when_the_store_s_place_is_free_again(store):
  place = pathlib.Path(f"{store}.index")
  block(place)
  load(store)
  place.unlink()
  check(load(store, never))
  assert not place.exists()


def test_no_place_at_all_is_a_clear_error(store, tmp_path):
  block(pathlib.Path(f"{store}.index"))
  block(tmp_path / "cache")
  with pytest.raises(stores.StoreError) as caught:
    load(store)
  message = str(caught.value)
  assert f"must be kept in {store}.index or {tmp_path}/cache/" in message
  assert "Make one of them writable, or set XDG_CACHE_HOME." in message
  # And why.
  assert message.count("Errno") == 2


def test_without_a_cache_home_the_cache_is_in_the_home(
  store, tmp_path, monkeypatch
):
  monkeypatch.delenv("XDG_CACHE_HOME")
  monkeypatch.setenv("HOME", str(tmp_path / "home"))
  block(pathlib.Path(f"{store}.index"))
  load(store)
  assert list((tmp_path / "home/.cache/chomp_data/index").glob("ffd-*"))


_AS_ANOTHER_USER = """
import mmap, os, sys  # NumPy wants mmap when it may no longer be readable.
import numpy as np
from chomp_data.threads import heartbeat
from chomp_data.stores import side_index
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os.environ["XDG_CACHE_HOME"] = sys.argv[2]
built = []
def build():
  built.append(1)
  yield {"rows": np.arange(3)}
side_index.load_or_build(sys.argv[1], "ffd", {"k": 1}, build)
print(len(built))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="changes user")
@pytest.mark.parametrize(
  ("mode", "expected"), [(0o755, "0"), (0o700, "1"), (0o555, "0")]
)
def test_another_user_reads_the_index_or_has_one_in_the_cache(mode, expected):
  # Not pytest's own directory, where others may not look.
  with tempfile.TemporaryDirectory() as root:
    os.chmod(root, 0o755)
    store, cache = pathlib.Path(root, "store"), pathlib.Path(root, "cache")
    load(store, Builder({"rows": np.arange(3)}), key={"k": 1})
    pathlib.Path(f"{store}.index").chmod(mode)
    cache.mkdir()
    cache.chmod(0o777)
    for built in (expected, "0"):
      done = subprocess.run(
        [sys.executable, "-c", _AS_ANOTHER_USER, str(store), str(cache)],
        check=True,
        capture_output=True,
        text=True,
      )
      assert done.stdout.split() == [built], done.stderr


# --- several processes -----------------------------------------------------


def build_slowly(log):
  with open(log, "a") as file:
    file.write(f"{os.getpid()}\n")
  for part in Builder().parts:
    time.sleep(0.3)
    yield part


def open_at_once(store, log, barrier, results):
  barrier.wait()
  arrays = load(store, lambda: build_slowly(log))
  results.put([arrays["rows"].read().sum(), arrays["bins"].read().sum()])


def test_processes_that_start_at_once_build_one_index(store, tmp_path):
  context = multiprocessing.get_context("spawn")
  barrier, results = context.Barrier(2), context.Queue()
  log = tmp_path / "log"
  processes = [
    context.Process(target=open_at_once, args=(store, log, barrier, results))
    for _ in range(2)
  ]
  for process in processes:
    process.start()
  found = [results.get(timeout=60) for _ in processes]
  for process in processes:
    process.join()
    assert process.exitcode == 0
  assert found == [[4, 10]] * 2
  assert len(log.read_text().split()) == 1


@pytest.mark.slow
def test_who_waits_for_an_index_sees_it_grow(store):
  """And nothing that is held up is a sign of life."""
  beats = []

  def build():
    for _ in range(5):
      beats.append(heartbeat.beats())
      yield {"rows": np.zeros(1 << 16, np.int64)}
      time.sleep(0.5)
    time.sleep(1)
    beats.append(heartbeat.beats())

  threads = [
    threading.Thread(target=load, args=(store, build)) for _ in range(2)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert 3 <= beats[-1] - beats[0] <= 6


def build_for_ever(started):
  yield {"rows": np.arange(3), "bins": np.arange(3, dtype=np.uint32)}
  pathlib.Path(started).touch()
  time.sleep(600)


def build_until_killed(store, started):
  load(store, lambda: build_for_ever(started))


def test_a_killed_builder_leaves_nothing_that_is_used(store, tmp_path):
  started = tmp_path / "started"
  process = multiprocessing.get_context("spawn").Process(
    target=build_until_killed, args=(store, str(started))
  )
  process.start()
  deadline = time.monotonic() + 60
  while not started.exists() and time.monotonic() < deadline:
    time.sleep(0.01)
  os.kill(process.pid, signal.SIGKILL)
  process.join()
  assert process.exitcode == -signal.SIGKILL
  # It had begun, and what it left is in the way of nobody.
  place = pathlib.Path(f"{store}.index")
  assert [p for p in place.iterdir() if p.name.startswith(".")]
  build = Builder()
  check(load(store, build))
  assert build.calls == 1
  assert list(place.iterdir()) == [beside(store)]


def test_a_process_that_waits_goes_on_where_the_builder_died(store, tmp_path):
  started, log = tmp_path / "started", tmp_path / "log"
  process = multiprocessing.get_context("spawn").Process(
    target=build_until_killed, args=(store, str(started))
  )
  process.start()
  deadline = time.monotonic() + 60
  while not started.exists() and time.monotonic() < deadline:
    time.sleep(0.01)
  found = []
  thread = threading.Thread(
    target=lambda: found.append(load(store, lambda: build_slowly(log)))
  )
  thread.start()
  time.sleep(0.5)
  assert not log.exists()
  os.kill(process.pid, signal.SIGKILL)
  process.join()
  thread.join(60)
  check(found[0])


def test_an_index_in_use_outlives_its_directory(store):
  arrays = load(store)
  shutil.rmtree(beside(store).parent)
  check(arrays)


def test_what_killed_builders_of_other_indexes_left_is_swept_at_a_start(store):
  load(store)
  parent = side_index.places(store)[0]
  old = time.time() - 2 * side_index.ABANDONED_S
  left = {}
  for name in ("dead", "alive", "fresh", "goes_on"):
    staged = left[name] = parent / f".{name}-{'0' * 24}.abc"
    staged.mkdir()
    (staged / "rows.bin").write_bytes(b"abc")
    if name == "goes_on":
      (staged / side_index.JOURNAL).write_bytes(b"{}")
    for path in (*staged.iterdir(), staged) if name != "fresh" else ():
      os.utime(path, (old, old))
  # What this process has looked at before.
  side_index.sweep.cache_clear()
  with publish.lock(parent / f"alive-{'0' * 24}"):
    load(store, never)
  assert not left.pop("dead").exists()
  assert all(path.exists() for path in left.values())
  assert len(list(parent.iterdir())) == 4, "nothing else came or went"
