# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Derived arrays kept on disk beside a store: built once, shared, checked.

An index is a directory `<store>.index/<name>-<digest>/` of `header.json` and
one file an array. The digest is of everything the arrays depend on, so another
question has another directory; the header repeats it and holds a crc32c of
every page. A small index that does not match is built again; in a large one the
page that does not match is an error when it is first read.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import threading
import time
from typing import Any
from typing import Self

from absl import logging
import numpy as np
import tqdm

from chomp_data import errors
from chomp_data.index import columns
from chomp_data.index import ragged
from chomp_data.storage import checked_file
from chomp_data.storage import file_maps
from chomp_data.storage import opening
from chomp_data.storage import paths
from chomp_data.storage import publish
from chomp_data.storage import relative_names
from chomp_data.storage import storage
from chomp_data.stores import json_values
from chomp_data.threads import heartbeat
from chomp_data.threads import together

HEADER = "header.json"
JOURNAL = "journal.json"
_SCHEMA = 1
# Up to this size an index is checked whole when it is opened; a larger one
# page by page, at first touch.
CHECKED_AT_OPEN = 1 << 20
_POLL_S = 0.2
# An unfinished index was left by a killed process if nothing was written to it
# for so long and its lock is free. One that can be resumed stays longer.
ABANDONED_S = 600.0
_RESUMED_S = 7 * 86_400.0
# How often a build writes its journal, to be resumed from.
RECORD_INTERVAL_S = 5.0
# An array in a bucket is objects of up to this size, each sent in one request.
OBJECT_BYTES = 2**30
# Neighbouring pages of an array in a bucket are one request up to so many, and
# so many requests are sent at once.
_PAGES_TOGETHER = 8
_REQUESTS_AT_ONCE = 8
# The directory of an index of which only some pages are on this machine.
_PARTIAL = ".partial"
# Types of arrays: integers and truth values, no objects.
_DTYPE = re.compile(r"[<|][biu][1248]")


@dataclasses.dataclass(frozen=True)
class _Entry:
  """An array of an index: its values, and the CRC-32C of its file's pages."""

  dtype: str
  size: int
  crc32c: list[int]

  def __post_init__(self) -> None:
    """Raises ValueError where it is of no integers or truth values."""
    if not _DTYPE.fullmatch(self.dtype) or not 0 <= self.size < 2**62:
      raise ValueError(
        f"an array must be of integers, got {self.size} of"
        f" {relative_names.brief(self.dtype)}"
      )

  @property
  def nbytes(self) -> int:
    """Bytes of its file."""
    return self.size * np.dtype(self.dtype).itemsize


class BusyError(Exception):
  """Another process builds an index just now."""


# Parts of arrays, appended in the order they come.
Parts = Iterable[Mapping[str, np.ndarray]]

# Makes the parts after those that are there: the sizes of arrays so far.
BuildFrom = Callable[[Mapping[str, int]], Parts]


class Bar:
  """The progress of a pass; each update beats for the watchdog of workers."""

  def __init__(self, bar: Any):
    """Takes a bar of tqdm, or None: nothing is shown."""
    self._bar: Any = bar

  def update(self, n: float = 1) -> None:
    """Adds to what is done."""
    heartbeat.beat()
    if self._bar is not None:
      self._bar.update(n)

  def __enter__(self) -> Self:
    return self

  def __exit__(self, *error: object) -> None:
    if self._bar is not None:
      self._bar.close()


def progress(
  total: int, what: str, unit: str, shown: bool, done: int = 0
) -> Bar:
  """Returns a bar over a pass that makes derived arrays.

  Args:
    total: How much there is to pass.
    what: What is made, for the bar.
    unit: 'docs' or 'B'.
    shown: Whether it is long enough to be shown, where stderr is a terminal.
    done: How much of it was passed before.
  """
  if not shown:
    # The first bar of a process, shown or not, makes a lock, a semaphore and a
    # thread, which takes as long as most passes that are not shown.
    return Bar(None)
  return Bar(
    tqdm.tqdm(
      total=total,
      initial=done,
      desc=what,
      unit=unit,
      unit_scale=True,
      disable=None,
      leave=False,
    )
  )


class _Arrays(dict[str, "SideArray"]):
  """The arrays of an index; one that its header does not list is an error."""

  def __missing__(self, name: str) -> "SideArray":
    directory = next((array.path.parent for array in self.values()), "an index")
    raise errors.StoreError(
      f"{HEADER} of {directory} must list the array {name!r}, got"
      f" {', '.join(self) or 'none'}. Remove that directory: it is built again."
    )


class SideArray(checked_file.CheckedFile):
  """An array of an index, in a file of its own."""

  def __init__(self, path: pathlib.Path, entry: _Entry):
    """Maps the file; see `load_or_build`.

    Raises:
      StoreError: If the file is not of the size that the header says.
    """
    self._entry = entry
    super().__init__(
      path,
      np.dtype(entry.dtype),
      entry.crc32c,
      size=entry.size,
      remedy=f"Remove {path.parent}: it is built again.",
    )

  def __reduce__(self) -> tuple[Any, ...]:
    return type(self), (self.path, self._entry)

  def take(self, positions: np.ndarray) -> np.ndarray:
    """Returns int64[N], the values at positions, verified.

    Args:
      positions: int64[N], 0 <= position < len.

    Raises:
      StoreError: If a page was altered.
    """
    return self.gather(positions).astype(np.int64, copy=False)

  @property
  def nbytes(self) -> int:
    """Bytes on disk."""
    return self.values.nbytes


class RemoteSideArray(SideArray):
  """An array in a bucket; pages are downloaded when they are first read.

  Its file on this machine begins as zeros. A page whose checksum is not right
  is requested, written to the file and stays for other processes.
  """

  def __init__(self, path: pathlib.Path, entry: _Entry, url: str):
    """Maps the file; requests nothing.

    Args:
      path: The file on this machine, of the array's size.
      entry: What the header says of the array.
      url: Of the index in the bucket.
    """
    super().__init__(path, entry)
    self._remote = opening.open_storage(url)

  def __reduce__(self) -> tuple[Any, ...]:
    return type(self), (self.path, self._entry, self._remote.path)

  def search(self, values: np.ndarray) -> np.ndarray:
    values = self._as_stored(values)
    # By the first values of pages, so that few are downloaded.
    page = columns.last_at_most(
      lambda pages: self.gather(pages * self._per_page),
      values,
      np.zeros(len(values), np.int64),
      np.full(len(values), len(self._is_verified), np.int64),
    )
    counts = np.zeros(len(values), np.int64)
    for number in np.unique(page).tolist():
      in_page = page == number
      start = number * self._per_page
      stop = min(start + self._per_page, len(self))
      counts[in_page] = start + np.searchsorted(
        self.read(start, stop), values[in_page], side="right"
      )
    return counts

  def _restore(self, pages: list[int]) -> None:
    per_object = OBJECT_BYTES // checked_file.PAGE_BYTES
    runs = ragged.neighbours(
      pages, lambda page: page % per_object == 0, _PAGES_TOGETHER
    )
    together.for_all(self._download, runs, _REQUESTS_AT_ONCE)

  def _download(self, pages: list[int]) -> None:
    """Requests pages that follow each other and writes them to the file."""
    page_bytes = checked_file.PAGE_BYTES
    start = pages[0] * page_bytes
    stop = min((pages[-1] + 1) * page_bytes, self.nbytes)
    number, low = divmod(start, OBJECT_BYTES)

    def check(data: bytes) -> None:
      for i, page in enumerate(pages):
        self._check_page(page, data[i * page_bytes : (i + 1) * page_bytes])

    name = _object_name(self.path.name, number)
    try:
      data = self._remote.get(name, low, low + stop - start, check=check)
      with open(self.path, "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), data, start)
    except OSError as error:
      raise self.damaged(
        f"must be written from {self._remote.url(name)}, got {error}"
      ) from error
    # Through the map, which is of another file where that one was replaced.
    for page in pages:
      self._check_page(page, self._page(page))
      file_maps.release(self._page(page))
    self._is_verified[pages] = True
    heartbeat.beat()


def _object_name(file_name: str, number: int) -> str:
  """Returns the name of an object of an array's file, from 0."""
  return f"{file_name}.{number}" if number else file_name


def load_or_build(
  store_path: str | os.PathLike[str],
  name: str,
  key: Mapping[str, Any],
  build: Callable[[], Parts] | None = None,
  *,
  build_from: BuildFrom | None = None,
  wait: bool = True,
  share: bool = True,
) -> dict[str, SideArray]:
  """Returns an index, built by one process if it is not there or not right.

  Args:
    store_path: The store; the index lies beside it, or in the user's cache
      directory where that place is not writable. Of a store in a bucket it is
      always read from the cache directory, and kept beside the store for other
      machines where one may write there.
    name: What the index is, for its directory.
    key: All that its arrays depend on, as JSON values.
    build: Makes the arrays, in parts.
    build_from: Makes them too, where it takes long: of a build that was
      interrupted, what its journal has stays, and it continues from there.
    wait: Whether to wait where another process builds it.
    share: Whether it is kept beside a store in a bucket, too.

  Returns:
    The arrays by name.

  Raises:
    BusyError: If another process builds it, and not `wait`.
    StoreError: If it can be kept nowhere.
  """
  for parent in places(store_path):
    sweep(parent)
  arrays = find(store_path, name, key, in_bucket=True)
  if arrays is not None:
    return arrays

  def parts(sizes: Mapping[str, int]) -> Parts:
    assert build is not None
    return build()

  is_remote = opening.open_storage(store_path).is_remote
  whole_key, tried = _located(store_path, name, key)
  problems = []
  for directory in tried:
    try:
      directory.parent.mkdir(parents=True, exist_ok=True)
      if not os.access(directory.parent, os.W_OK):
        raise PermissionError(f"{directory.parent} is not writable")
      beside = not is_remote and directory == tried[0]
      built = _build_locked(
        directory,
        whole_key,
        build_from or parts,
        None if beside else store_path,
        wait,
        resumes=build_from is not None,
      )
      if share and is_remote:
        _upload(directory, _remote_storage(store_path, directory.name))
      return built
    except OSError as error:
      errors.check_open_files(error)
      logging.warning("index %s cannot be kept there: %s", directory, error)
      problems.append(str(error))
  raise errors.StoreError(
    f"the index {name!r} of {os.fspath(store_path)} must be kept in"
    f" {tried[0].parent} or {tried[-1].parent}, but neither is writable"
    f" ({'; '.join(problems)}). Make one of them writable, or set"
    " XDG_CACHE_HOME."
  )


def find(
  store_path: str | os.PathLike[str],
  name: str,
  key: Mapping[str, Any],
  in_bucket: bool = False,
) -> dict[str, SideArray] | None:
  """Returns an index that is on this machine, or None.

  Args:
    store_path: As in `load_or_build`.
    name: Likewise.
    key: Likewise.
    in_bucket: Whether one is looked for beside a store in a bucket, too.
  """
  key, directories = _located(store_path, name, key)
  for directory in directories:
    arrays = _open(directory, key)
    if arrays is not None:
      return arrays
  if not opening.open_storage(store_path).is_remote:
    return None
  (directory,) = directories
  remote = _remote_storage(store_path, directory.name)
  arrays = _open(_partial(directory), key, is_partial=True)
  if arrays is None and in_bucket and _make_partial(remote, directory, key):
    arrays = _open(_partial(directory), key, is_partial=True)
  return arrays


def drop(
  store_path: str | os.PathLike[str], name: str, key: Mapping[str, Any]
) -> None:
  """Removes an index from this machine, if it is there.

  Open readers are unaffected; the next one builds it again.

  Args:
    store_path: As in `load_or_build`.
    name: Likewise.
    key: Likewise.
  """
  for directory in _located(store_path, name, key)[1]:
    for path in (directory, _partial(directory)):
      # Renamed first: another process may make one of its name at any time.
      with (
        contextlib.suppress(OSError),
        publish.staged_directory(path) as staged,
      ):
        os.rename(path, staged / path.name)


def _located(
  store_path: str | os.PathLike[str], name: str, key: Mapping[str, Any]
) -> tuple[dict[str, Any], list[pathlib.Path]]:
  """Returns the key of a header, and where it may be, the first place first."""
  key = {"schema": _SCHEMA, "name": name, **key}
  directory = f"{name}-{hashlib.sha256(_canonical(key)).hexdigest()[:24]}"
  return key, [parent / directory for parent in places(store_path)]


def known(
  store_path: str | os.PathLike[str], name: str = "*"
) -> Iterator[tuple[pathlib.Path, Mapping[str, Any]]]:
  """Yields directory and key of every index that was built of a store.

  What lies in the user's cache directory is shared by all stores: of these,
  indexes that say that they were built of the store at this path.

  Args:
    store_path: As `load_or_build` takes it.
    name: Of the indexes, as in `load_or_build`; by default any.
  """
  *beside, cache = places(store_path)
  for parent in (*beside, cache):
    for file in sorted(parent.glob(f"{name}-*/{HEADER}")):
      try:
        header = _header(file.parent)
        is_of = header.get("store") == _absolute(store_path)
        key = header.get("key")
        if (parent in beside or is_of) and isinstance(key, Mapping):
          yield file.parent, key
      except (OSError, ValueError):
        continue  # It is built again when it is needed.


def _absolute(path: str | os.PathLike[str]) -> str:
  files = opening.open_storage(path)
  return files.path if files.is_remote else os.path.abspath(files.path)


def places(store_path: str | os.PathLike[str]) -> list[pathlib.Path]:
  """Returns the directories that may hold indexes; the first is tried first."""
  root = os.environ.get("XDG_CACHE_HOME") or os.path.join(
    os.path.expanduser("~"), ".cache"
  )
  cache = pathlib.Path(root, "chomp_data", "index")
  is_object = paths.is_of_object(store_path)
  if is_object or opening.open_storage(store_path).is_remote:
    return [cache]
  return [publish.beside(pathlib.Path(store_path), ".index"), cache]


def _remote_storage(
  store_path: str | os.PathLike[str], name: str
) -> storage.Storage:
  """Returns where an index lies beside a store in a bucket."""
  return opening.open_storage(f"{_absolute(store_path)}.index/{name}")


def _partial(directory: pathlib.Path) -> pathlib.Path:
  """Returns where an index is of which pages are still in a bucket."""
  return directory.with_name(directory.name + _PARTIAL)


def _make_partial(
  remote: storage.Storage, directory: pathlib.Path, key: Mapping[str, Any]
) -> bool:
  """Makes the files of an index in a bucket, without their pages.

  Returns:
    Whether there is such an index.
  """
  try:
    header = _parsed_header(remote.get(HEADER, check=_parsed_header))
    if header.get("key") != json.loads(_canonical(key)):
      return False
    header = {**header, "store": remote.path.rpartition(".index/")[0]}
    directory.parent.mkdir(parents=True, exist_ok=True)
    with publish.staged_directory(directory) as staged:
      for name, entry in _entries(header, remote.url(HEADER)).items():
        with publish.new_file(staged / f"{name}.bin") as file:
          file.truncate(entry.nbytes)
      publish.write_file(staged / HEADER, _header_bytes(header))
      # Another process may have made it meanwhile: either is right.
      with contextlib.suppress(OSError):
        os.rename(staged, _partial(directory))
    return True
  except FileNotFoundError:
    return False
  except (OSError, ValueError) as error:
    logging.info("index %s cannot be used: %s", remote.path, error)
    return False


def _upload(directory: pathlib.Path, remote: storage.Storage) -> None:
  """Uploads an index beside its store in a bucket, where that is allowed."""
  try:
    for path in sorted(directory.glob("*.bin")):
      with publish.open_file(path) as file:
        number = 0
        while data := file.read(OBJECT_BYTES):
          remote.put(_object_name(path.name, number), data)
          number += 1
    remote.put(HEADER, (directory / HEADER).read_bytes())
  except errors.StoreError as error:
    logging.info("index %s is on this machine only: %s", directory, error)


_building = threading.RLock()


def _build_locked(
  directory: pathlib.Path,
  key: Mapping[str, Any],
  build: BuildFrom,
  of: str | os.PathLike[str] | None,
  wait: bool,
  resumes: bool,
) -> dict[str, SideArray]:
  waited, written = False, 0
  while True:
    with contextlib.ExitStack() as stack:
      try:
        stack.enter_context(publish.lock(directory))
      except errors.StoreError:
        if not wait:
          raise BusyError(str(directory)) from None
        if not waited:
          logging.info("waiting for another process to build %s", directory)
        waited = True
        # It is alive as long as what it writes grows.
        size = _staged_bytes(directory)
        if size != written:
          written = size
          heartbeat.beat()
        time.sleep(_POLL_S)
        continue
      # Several threads open the sources of a run in buckets: what they build
      # takes memory, one after the other.
      stack.enter_context(_building)
      arrays = _open(directory, key)
      if arrays is None:
        _write(directory, key, build, of, resumes)
        arrays = _open(directory, key)
      if arrays is None:
        raise errors.StoreError(
          f"{directory} must read back as it was written, but does not. Check"
          " the disk."
        )
      return arrays


@functools.cache
def sweep(parent: pathlib.Path) -> None:
  """Removes unfinished indexes of killed processes in a directory, once.

  A build of the same index removes or resumes its own; another config has
  another index.
  """
  try:
    names = os.listdir(parent)
  except OSError:  # It is not there yet, or may not be listed.
    return
  for name in names:
    # `.name-digest.random`. No pattern: compiling one takes longer than all.
    if not name.startswith(".") or "-" not in name.rpartition(".")[0]:
      continue
    staged = parent / name
    with contextlib.suppress(OSError, errors.StoreError):
      last = max(path.stat().st_mtime for path in (staged, *staged.iterdir()))
      is_resumable = (staged / JOURNAL).exists()
      limit = _RESUMED_S if is_resumable else ABANDONED_S
      if time.time() - last < limit:
        continue
      with publish.lock(parent / staged.name[1:].rpartition(".")[0]):
        shutil.rmtree(staged, ignore_errors=True)


def _staged_bytes(directory: pathlib.Path) -> int:
  """Returns the bytes of an index that is being written."""
  size = 0
  for staged in publish.left_behind(directory):
    with contextlib.suppress(OSError):  # It is in its place now.
      size += sum(path.stat().st_size for path in staged.iterdir())
  return size


def _write(
  directory: pathlib.Path,
  key: Mapping[str, Any],
  build: BuildFrom,
  of: str | os.PathLike[str] | None,
  resumes: bool,
) -> None:
  resumed, writers = None, {}
  # The lock is held: the process that left these was killed.
  for abandoned in publish.left_behind(directory):
    if resumes and resumed is None:
      writers = _resumed_writers(abandoned)
      resumed = abandoned if writers else None
    if abandoned != resumed:
      shutil.rmtree(abandoned, ignore_errors=True)
  with publish.staged_directory(directory, resumed, stays=resumes) as staged:
    sizes = {name: writer.size for name, writer in writers.items()}
    journal_written = time.monotonic()
    with contextlib.ExitStack() as stack:
      for writer in writers.values():
        stack.callback(writer.close)
      for part in build(sizes):
        for name, values in part.items():
          if name not in writers:
            writers[name] = _Writer(staged / f"{name}.bin", values.dtype)
            stack.callback(writers[name].close)
          writers[name].append(values)
        if resumes and time.monotonic() - journal_written > RECORD_INTERVAL_S:
          _write_journal(staged, writers)
          journal_written = time.monotonic()
    header: dict[str, Any] = {"key": key, "arrays": _written(writers)}
    if of is not None:
      header["store"] = _absolute(of)
    (staged / JOURNAL).unlink(missing_ok=True)
    publish.write_file(staged / HEADER, _header_bytes(header))
    publish.publish(staged, directory, durable=False)


def _write_journal(
  staged: pathlib.Path, writers: Mapping[str, "_Writer"]
) -> None:
  """Writes what there is so far, from which another process may resume."""
  for writer in writers.values():
    writer.sync()
  data = _header_bytes({"arrays": _written(writers)})
  with publish.staged_file(staged / JOURNAL, durable=False) as file:
    file.write(data)


def _written(writers: Mapping[str, "_Writer"]) -> dict[str, Any]:
  """Returns what a header says of the arrays that are being written."""
  return {
    name: dataclasses.asdict(
      _Entry(writer.dtype.str, writer.size, writer.crc32c())
    )
    for name, writer in writers.items()
  }


def _resumed_writers(staged: pathlib.Path) -> dict[str, "_Writer"]:
  """Returns the writers of an interrupted build; none where it has nothing."""
  writers: dict[str, _Writer] = {}
  try:
    header = _header(staged, JOURNAL)
    for name, entry in _entries(header, staged / JOURNAL).items():
      dtype = np.dtype(entry.dtype)
      writers[name] = _Writer(staged / f"{name}.bin", dtype, entry.size)
  except (OSError, ValueError) as error:
    logging.info("%s cannot be resumed: %s", staged, error)
    for writer in writers.values():
      writer.close()
    return {}
  return writers


def _header_bytes(header: dict[str, Any]) -> bytes:
  """Returns a header with its digest, as JSON."""
  sha256 = hashlib.sha256(_canonical(header)).hexdigest()
  return _canonical({**header, "sha256": sha256})


class _Writer:
  """Appends values to the file of an array."""

  def __init__(self, path: pathlib.Path, dtype: np.dtype, size: int = 0):
    """Begins a file, or continues after its first `size` values.

    Raises:
      ValueError: If the file has fewer.
    """
    self.dtype = dtype
    self._file = checked_file.CheckedWriter(path, size * dtype.itemsize)
    self.sync = self._file.sync
    self.close = self._file.close
    self.crc32c = self._file.sums.crc32c

  @property
  def size(self) -> int:
    """Values in the file."""
    return self._file.sums.num_bytes // self.dtype.itemsize

  def append(self, values: np.ndarray) -> None:
    self._file.write(np.ascontiguousarray(values, self.dtype).data)


def _open(
  directory: pathlib.Path, key: Mapping[str, Any], is_partial: bool = False
) -> dict[str, SideArray] | None:
  """Returns the arrays of a directory, or None where they must be built.

  Args:
    directory: Where the files are.
    key: What the index must depend on.
    is_partial: Whether pages may be missing, which are in the bucket that the
      header names: that of another store of the same hash, maybe.
  """
  # Not `directory.is_dir()`, which raises where one may not look.
  if not os.path.isdir(directory):
    return None
  try:
    header = _header(directory)
    if header.get("key") != json.loads(_canonical(key)):
      raise errors.StoreError(f"{directory / HEADER} is of another index")
    make: Callable[[pathlib.Path, _Entry], SideArray] = SideArray
    if is_partial:
      url = f"{header['store']}.index/{directory.name.removesuffix(_PARTIAL)}"
      make = functools.partial(RemoteSideArray, url=url)
    arrays = {
      name: make(directory / f"{name}.bin", entry)
      for name, entry in _entries(header, directory / HEADER).items()
    }
    if sum(array.nbytes for array in arrays.values()) <= CHECKED_AT_OPEN:
      if is_partial:
        together.for_all(SideArray.read, arrays.values(), _REQUESTS_AT_ONCE)
      else:
        for array in arrays.values():
          array.read()
  # A StoreError is a ValueError.
  except (OSError, ValueError) as error:
    errors.check_open_files(error.__cause__ or error)
    logging.warning("%s is built again: %s", directory, error)
    return None
  return _Arrays(arrays)


def _header(directory: pathlib.Path, name: str = HEADER) -> dict[str, Any]:
  """Returns a header; raises OSError, or ValueError where it is none."""
  try:
    return _parsed_header(publish.read_file(directory / name))
  except errors.StoreError as error:
    raise errors.StoreError(f"{directory / name} {error}") from error


def _parsed_header(data: bytes) -> dict[str, Any]:
  """Returns a header less its digest; raises ValueError where it is none."""
  try:
    header = json.loads(data)
  except RecursionError as error:
    raise errors.StoreError("is no header") from error
  if not isinstance(header, dict):
    raise errors.StoreError("is no header")
  stated = header.pop("sha256", None)
  if stated != hashlib.sha256(_canonical(header)).hexdigest():
    raise errors.StoreError("was altered")
  return header


def _entries(
  header: Mapping[str, Any], path: str | os.PathLike[str]
) -> dict[str, _Entry]:
  """Returns what a header says of each array, checked.

  Raises:
    StoreError: If a name is not one of a file in the directory, or a field is
      not of its type; it names the header's `path`.
  """
  try:
    entries: dict[str, _Entry] = json_values.decode(
      dict[str, _Entry], header.get("arrays"), "arrays"
    )
    for name in entries:
      if not relative_names.is_part(name):
        raise ValueError(
          "`arrays` must be of names of files in its directory, got"
          f" {relative_names.brief(name)}"
        )
  except ValueError as error:
    raise errors.StoreError(
      f"{os.fspath(path)} must list its arrays, but {error}. Remove its"
      " directory: it is built again."
    ) from None
  return entries


def _canonical(value: Any) -> bytes:
  return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
