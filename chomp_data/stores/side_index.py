# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Derived arrays kept on disk beside a store: built once, shared, checked.

An index is a directory `<store>.index/<name>-<digest>/` of `header.json` and
one file an array. The digest is of everything the arrays depend on, so another
question has another directory; the header repeats it and holds a crc32c of
every page. An index that does not match is built again, never used.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import time
import types
from typing import Any
from typing import Protocol
from typing import Self
import weakref

from absl import logging
import numpy as np
import tqdm

from chomp_data import errors
from chomp_data.stores import checksums
from chomp_data.stores import file_maps
from chomp_data.stores import heartbeat
from chomp_data.stores import places
from chomp_data.stores import publish
from chomp_data.stores import relative_names
from chomp_data.stores import unchanged

HEADER = "header.json"
_JOURNAL = "journal.json"
_SCHEMA = 1
_PAGE_BYTES = 1 << 20
# Up to this size an index is checked whole when it is opened; a larger one
# page by page, at first touch.
_CHECKED_AT_OPEN = _PAGE_BYTES
_POLL_S = 0.2
# When an unfinished index is a killed process's: nothing was written for so
# long, and nobody has its lock. One that can be gone on with is kept longer.
_ABANDONED_S = 600.0
_RESUMED_S = 7 * 86_400.0
# How often what was built so far is kept, to go on from there.
_KEPT_EVERY_S = 5.0
# Read from a bucket in one request, and the largest file that is kept there: it
# is sent in one request, too.
_BLOCK_BYTES = 64 * 2**20
_MOST_SHARED = 2**30
# Types of arrays: integers and truth values, no objects.
_DTYPE = re.compile(r"[<|][biu][1248]")


class BusyError(Exception):
  """Another process builds an index just now."""


# Parts of arrays, appended in the order they come.
Parts = Iterable[Mapping[str, np.ndarray]]

# Makes the parts after those that are there: the sizes of arrays so far.
BuildFrom = Callable[[Mapping[str, int]], Parts]


class Bar(Protocol):
  """How far a pass is; each update is a sign of life."""

  def update(self, n: float | None = 1) -> bool | None:
    """Hears that so much more is done."""
    ...

  def __enter__(self) -> Self: ...

  def __exit__(
    self,
    exc_type: type[BaseException] | None,
    exc_value: BaseException | None,
    traceback: types.TracebackType | None,
    /,
  ) -> None: ...


class _Shown(tqdm.tqdm):
  """A bar where stderr is a terminal."""

  def update(self, n: float | None = 1) -> bool | None:
    heartbeat.beat()
    return super().update(n)


class _Unseen:
  """None: the first of a process's tqdm, seen or not, makes a lock, a semaphore
  and a thread, which takes as long as most passes that are not shown."""

  def update(self, n: float | None = 1) -> None:
    heartbeat.beat()

  def __enter__(self) -> Self:
    return self

  def __exit__(self, *error: Any) -> None:
    pass


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
    return _Unseen()
  return _Shown(
    total=total,
    initial=done,
    desc=what,
    unit=unit,
    unit_scale=True,
    disable=None,
    leave=False,
  )


class _Arrays(dict[str, "SideArray"]):
  """The arrays of an index; one that its header does not list is an error."""

  def __init__(self, directory: pathlib.Path, arrays: dict[str, "SideArray"]):
    super().__init__(arrays)
    self._directory = directory

  def __missing__(self, name: str) -> "SideArray":
    raise errors.StoreError(
      f"{self._directory / HEADER} must list the array {name!r}, got"
      f" {', '.join(self) or 'none'}. Remove {self._directory}: it is built"
      " again."
    )

  def __reduce__(self) -> tuple[Any, ...]:
    return _Arrays, (self._directory, dict(self))


class SideArray:
  """An array of an index, read from its file through a memory map.

  Attributes:
    path: The file.
  """

  def __init__(self, path: pathlib.Path, entry: Mapping[str, Any]):
    """Maps the file; see `load_or_build`. Other processes map it anew.

    Within a process `_array` shares one map, and what of it was checked.

    Raises:
      StoreError: If the file is not of the size that the header says.
    """
    self.path = path
    self._entry = dict(entry)
    # From before it is read: what is written later is another file.
    self._stamp = unchanged.stamp(path)
    dtype, self._crc32c = np.dtype(entry["dtype"]), entry["crc32c"]
    self._checked = np.zeros(len(self._crc32c), np.bool_)
    size = path.stat().st_size if path.exists() else -1
    if size != entry["size"] * dtype.itemsize:
      raise self._damaged(f"must be of {entry['size']} values, got {size} B")
    if size:
      self._values = file_maps.mapped(path, dtype)
    else:
      self._values = np.empty(0, dtype)

  def __reduce__(self) -> tuple[Any, ...]:
    return _array, (self.path, self._entry)

  def is_of(self, entry: Mapping[str, Any]) -> bool:
    """Returns whether its file is still the one that was mapped."""
    own = dict(entry) == self._entry
    return own and unchanged.stamp(self.path) == self._stamp

  def __len__(self) -> int:
    return len(self._values)

  def read(self, first: int = 0, last: int | None = None) -> np.ndarray:
    """Returns values first .. last - 1, checked, as a view of the map.

    Raises:
      StoreError: If a page was altered.
    """
    last = len(self) if last is None else last
    size = self._values.itemsize
    low = first * size // _PAGE_BYTES
    high = -(-last * size // _PAGE_BYTES)
    self._check(low + np.flatnonzero(~self._checked[low:high]))
    return np.asarray(self._values[first:last])

  def take(self, positions: np.ndarray) -> np.ndarray:
    """Returns int64[N], the values at positions, checked.

    Args:
      positions: int64[N], 0 <= position < len.

    Raises:
      StoreError: If a page was altered.
    """
    pages = positions * self._values.itemsize // _PAGE_BYTES
    unknown = pages[~self._checked[pages]]
    if len(unknown):
      self._check(np.unique(unknown))
    return np.asarray(self._values[positions]).astype(np.int64, copy=False)

  def search(self, values: np.ndarray) -> np.ndarray:
    """Returns int64[N], how many of ascending values are at most each.

    Args:
      values: int64[N], at least 0.

    Raises:
      StoreError: If a page was altered.
    """
    # In their type, or NumPy would copy all of them into the other one.
    values = np.clip(values, 0, np.iinfo(self._values.dtype).max)
    values = values.astype(self._values.dtype)
    found = np.searchsorted(self._values, values, side="right")
    # Pages on the way are not checked. Where the neighbours are right, and
    # the values ascend, so is what was found.
    below = self.take(np.maximum(found - 1, 0))
    above = self.take(np.minimum(found, len(self) - 1))
    right = ((found == 0) | (below <= values)) & (
      (found == len(self)) | (above > values)
    )
    if not np.all(right):
      self.read()
      return np.searchsorted(self._values, values, side="right")
    return found

  def _check(self, pages: np.ndarray) -> None:
    """Checks pages that were not yet.

    Raises:
      StoreError: If one was altered.
    """
    raw = self._values.view(np.uint8)
    for page in pages.tolist():
      data = raw[page * _PAGE_BYTES : (page + 1) * _PAGE_BYTES]
      found = checksums.crc32c(np.ascontiguousarray(data))
      if found != self._crc32c[page]:
        raise self._damaged(
          f"page {page} must have crc32c {self._crc32c[page]:08x}, got"
          f" {found:08x}"
        )
      self._checked[page] = True
      # All of it was read, of which few values may be needed.
      file_maps.release(data)

  @property
  def nbytes(self) -> int:
    """Bytes on disk."""
    return self._values.nbytes

  def _damaged(self, what: str) -> errors.StoreError:
    return errors.StoreError(
      f"{self.path}: {what}. Remove {self.path.parent}: it is built again."
    )


# Those that this process holds, by path: a copy of a plan reads what was mapped
# and checked.
_held: weakref.WeakValueDictionary[str, SideArray] = (
  weakref.WeakValueDictionary()
)


def _array(path: pathlib.Path, entry: Mapping[str, Any]) -> SideArray:
  """Returns an array of an index; see `SideArray`."""
  known = _held.get(str(path))
  if known is None or not known.is_of(entry):
    known = _held[str(path)] = SideArray(path, entry)
  return known


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
      interrupted, what was kept last stays, and it goes on from there.
    wait: Whether to wait where another process builds it.
    share: Whether it is kept beside a store in a bucket, too.

  Returns:
    The arrays by name.

  Raises:
    BusyError: If another process builds it, and nobody is to wait.
    StoreError: If it can be kept nowhere.
  """
  key = _whole_key(name, key)
  tried = []
  for parent in _places(store_path):
    _sweep(parent)
    directory = parent / _directory(name, key)
    found = _opened(directory, key)
    if found is not None:
      return found
    tried.append(directory)
  if places.is_url(store_path):
    kept = _place(store_path, tried[0].name)
    if _fetched(kept, tried[0], key):
      found = _opened(tried[0], key)
      if found is not None:
        return found
  problems = []
  for directory in tried:
    try:
      directory.parent.mkdir(parents=True, exist_ok=True)
      if not os.access(directory.parent, os.W_OK):
        raise PermissionError(f"{directory.parent} is not writable")
      beside = not places.is_url(store_path) and directory == tried[0]
      built = _built(
        directory,
        key,
        build_from or _from_nothing(build),
        None if beside else store_path,
        wait,
        resumes=build_from is not None,
      )
      if share and places.is_url(store_path):
        _shared(directory, _place(store_path, directory.name))
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


def _from_nothing(build: Callable[[], Parts] | None) -> BuildFrom:
  assert build is not None
  return lambda sizes: build()


def find(
  store_path: str | os.PathLike[str], name: str, key: Mapping[str, Any]
) -> dict[str, SideArray] | None:
  """Returns an index that is on this machine, or None.

  Args:
    store_path: As in `load_or_build`.
    name: Likewise.
    key: Likewise.
  """
  key = _whole_key(name, key)
  for parent in _places(store_path):
    found = _opened(parent / _directory(name, key), key)
    if found is not None:
      return found
  return None


def drop(
  store_path: str | os.PathLike[str], name: str, key: Mapping[str, Any]
) -> None:
  """Removes an index from this machine, if it is there.

  Who has it open goes on reading; who asks for it again builds it again.

  Args:
    store_path: As in `load_or_build`.
    name: Likewise.
    key: Likewise.
  """
  for parent in _places(store_path):
    directory = parent / _directory(name, _whole_key(name, key))
    # Gone at once under its name, which another process may give anew.
    with contextlib.suppress(OSError), _staging(directory) as staged:
      os.rename(directory, staged / directory.name)


def _whole_key(name: str, key: Mapping[str, Any]) -> dict[str, Any]:
  return {"schema": _SCHEMA, "name": name, **key}


def _directory(name: str, key: Mapping[str, Any]) -> str:
  return f"{name}-{hashlib.sha256(_canonical(key)).hexdigest()[:24]}"


def known(
  store_path: str | os.PathLike[str],
) -> Iterator[tuple[pathlib.Path, Mapping[str, Any]]]:
  """Yields directory and key of every index that was built of a store.

  What lies in the user's cache directory is shared by all stores: of these,
  indexes that say that they were built of the store at this path.

  Args:
    store_path: As `load_or_build` takes it.
  """
  *beside, cache = _places(store_path)
  for parent in (*beside, cache):
    for file in sorted(parent.glob(f"*/{HEADER}")):
      try:
        header = _header(file.parent)
        is_of = header.get("store") == _absolute(store_path)
        key = header.get("key")
        if (parent in beside or is_of) and isinstance(key, Mapping):
          yield file.parent, key
      except (OSError, ValueError):
        continue  # Whoever asks for it builds it again.


def _absolute(path: str | os.PathLike[str]) -> str:
  text = os.fspath(path)
  return text.rstrip("/") if places.is_url(text) else os.path.abspath(text)


def _places(store_path: str | os.PathLike[str]) -> list[pathlib.Path]:
  """Returns the directories that may hold indexes; the first is tried first."""
  root = os.environ.get("XDG_CACHE_HOME") or os.path.join(
    os.path.expanduser("~"), ".cache"
  )
  cache = pathlib.Path(root, "chomp_data", "index")
  if places.is_url(store_path):
    return [cache]
  return [publish.beside(pathlib.Path(store_path), ".index"), cache]


def _place(store_path: str | os.PathLike[str], name: str) -> places.Place:
  """Returns where an index lies beside a store in a bucket."""
  return places.at(f"{_absolute(store_path)}.index/{name}")


def _fetched(
  kept: places.Place, directory: pathlib.Path, key: Mapping[str, Any]
) -> bool:
  """Brings an index to the cache directory; returns whether there was one."""
  try:
    header = _parsed_header(kept.read(HEADER, check=_parsed_header))
    if header["key"] != json.loads(_canonical(key)):
      return False
    entries = _entries(header, kept.file(HEADER), ("crc32c",))
    sizes = {
      name: entry["size"] * np.dtype(entry["dtype"]).itemsize
      for name, entry in entries.items()
    }
    header = {**header, "store": kept.path.rpartition(".index/")[0]}
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _staging(directory) as staged:
      for name, size in sizes.items():
        with publish.new_file(staged / f"{name}.bin", "wb") as file:
          for low in range(0, size, _BLOCK_BYTES):
            high = min(low + _BLOCK_BYTES, size)
            first = low // _PAGE_BYTES
            crcs = header["arrays"][name]["crc32c"][first:]

            def check(block: bytes, crcs: list[int] = crcs) -> None:
              if crcs[: -(-len(block) // _PAGE_BYTES)] != _page_crcs(block):
                raise ValueError("other bytes than were written")

            file.write(kept.read(f"{name}.bin", low, high, check))
            heartbeat.beat()
      _write_header(staged, header)
      # Another process may have brought it in the meantime: either is right.
      with contextlib.suppress(OSError):
        os.rename(staged, directory)
    return True
  except (
    FileNotFoundError, KeyError, TypeError, AttributeError, RecursionError,
  ):  # fmt: skip
    return False
  except (OSError, ValueError) as error:
    logging.info("index %s cannot be used: %s", kept.path, error)
    return False


def _shared(directory: pathlib.Path, kept: places.Place) -> None:
  """Keeps an index beside its store in a bucket, where one may write there."""
  files = sorted(directory.glob("*.bin"))
  if any(file.stat().st_size > _MOST_SHARED for file in files):
    return
  try:
    for file in files:
      if file.stat().st_size:
        kept.write(file.name, file.read_bytes())
    kept.write(HEADER, (directory / HEADER).read_bytes())
  except errors.StoreError as error:
    logging.info("index %s is on this machine only: %s", directory, error)


def _built(
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
      found = _opened(directory, key)
      if found is None:
        _write(directory, key, build, of, resumes)
        found = _opened(directory, key)
      if found is None:
        raise errors.StoreError(
          f"{directory} must read back as it was written, but does not. Check"
          " the disk."
        )
      return found


@functools.cache
def _sweep(parent: pathlib.Path) -> None:
  """Removes what processes that were killed have left in a directory, once.

  Whoever builds the same index again removes or uses it; another config asks
  for another index.
  """
  try:
    names = os.listdir(parent)
  except OSError:  # It is not there yet, or not to be looked at.
    return
  for name in names:
    # `.name-digest.random`. No pattern: compiling one takes longer than all.
    if not name.startswith(".") or "-" not in name.rpartition(".")[0]:
      continue
    staged = parent / name
    with contextlib.suppress(OSError, errors.StoreError):
      last = max(path.stat().st_mtime for path in (staged, *staged.iterdir()))
      goes_on = (staged / _JOURNAL).exists()
      limit = _RESUMED_S if goes_on else _ABANDONED_S
      if time.time() - last < limit:
        continue
      with publish.lock(parent / staged.name[1:].rpartition(".")[0]):
        shutil.rmtree(staged, ignore_errors=True)


def _staged_prefix(directory: pathlib.Path) -> str:
  return f".{directory.name}."


def _staged_bytes(directory: pathlib.Path) -> int:
  """Returns the bytes of an index that is being written."""
  size = 0
  pattern = f"{_staged_prefix(directory)}*/*"
  for path in directory.parent.glob(pattern):
    with contextlib.suppress(FileNotFoundError):  # It is in its place now.
      size += path.stat().st_size
  return size


def _write(
  directory: pathlib.Path,
  key: Mapping[str, Any],
  build: BuildFrom,
  of: str | os.PathLike[str] | None,
  resumes: bool,
) -> None:
  prefix = _staged_prefix(directory)
  again, writers = None, {}
  # We hold the lock: whoever left these was killed.
  for abandoned in directory.parent.glob(f"{prefix}*"):
    if resumes and again is None:
      writers = _kept(abandoned)
      again = abandoned if writers else None
    if abandoned != again:
      shutil.rmtree(abandoned, ignore_errors=True)
  with _staging(directory, again, resumes) as staged:
    sizes = {name: writer.size for name, writer in writers.items()}
    kept = time.monotonic()
    with contextlib.ExitStack() as stack:
      for writer in writers.values():
        stack.callback(writer.close)
      for part in build(sizes):
        for name, values in part.items():
          if name not in writers:
            writers[name] = _Writer(staged / f"{name}.bin", values.dtype)
            stack.callback(writers[name].close)
          writers[name].append(values)
        if resumes and time.monotonic() - kept > _KEPT_EVERY_S:
          _keep(staged, writers)
          kept = time.monotonic()
    arrays = {name: writer.entry() for name, writer in writers.items()}
    header: dict[str, Any] = {"key": key, "arrays": arrays}
    if of is not None:
      header["store"] = _absolute(of)
    (staged / _JOURNAL).unlink(missing_ok=True)
    _write_header(staged, header)
    if directory.exists():
      shutil.rmtree(directory)
    os.rename(staged, directory)


@contextlib.contextmanager
def _staging(
  directory: pathlib.Path,
  again: pathlib.Path | None = None,
  resumes: bool = False,
) -> Iterator[pathlib.Path]:
  """Yields a directory beside another one, to be given its name.

  Args:
    directory: That one.
    again: The directory that was yielded before, or None for a new one.
    resumes: Whether it stays where what is done in it is interrupted. Where
      the disk fails it goes: another place may be tried.
  """
  prefix = _staged_prefix(directory)
  staged = again or pathlib.Path(
    tempfile.mkdtemp(prefix=prefix, dir=directory.parent)
  )
  stays = False
  try:
    yield staged
  except OSError:
    raise
  except BaseException:
    stays = resumes
    raise
  finally:
    if not stays:
      shutil.rmtree(staged, ignore_errors=True)


def _keep(staged: pathlib.Path, writers: Mapping[str, "_Writer"]) -> None:
  """Keeps what was written so far, whatever becomes of this process."""
  for writer in writers.values():
    writer.sync()
  arrays = {
    name: {"dtype": writer.dtype.str, "size": writer.size}
    for name, writer in writers.items()
  }
  temporary = staged / f".{_JOURNAL}"
  _write_header(staged, {"arrays": arrays}, temporary.name)
  os.replace(temporary, staged / _JOURNAL)


def _kept(staged: pathlib.Path) -> dict[str, "_Writer"]:
  """Returns what a build that was interrupted has kept; none: nothing."""
  writers: dict[str, _Writer] = {}
  try:
    header = _header(staged, _JOURNAL)
    for name, entry in _entries(header, staged / _JOURNAL).items():
      dtype, size = np.dtype(entry["dtype"]), entry["size"]
      writers[name] = _Writer(staged / f"{name}.bin", dtype, size)
  except (OSError, ValueError) as error:
    logging.info("%s cannot be gone on with: %s", staged, error)
    for writer in writers.values():
      writer.close()
    return {}
  return writers


def _write_header(
  staged: pathlib.Path, header: dict[str, Any], name: str = HEADER
) -> None:
  header["sha256"] = hashlib.sha256(_canonical(header)).hexdigest()
  publish.write_file(staged / name, _canonical(header))
  staged.chmod(0o755)


class _Writer:
  """Appends to a file and sums its pages."""

  def __init__(self, path: pathlib.Path, dtype: np.dtype, size: int = 0):
    """Begins a file, or goes on after its first `size` values.

    Raises:
      ValueError: If the file has fewer.
    """
    self.dtype = dtype
    self._file = publish.new_file(path, "r+b" if size else "wb")
    self._page = bytearray()
    self._crc32c: list[int] = []
    self._bytes = 0
    left = size * dtype.itemsize
    while left:
      data = self._file.read(min(left, _BLOCK_BYTES))
      if not data:
        self._file.close()
        raise ValueError(f"{path} must have {size} values, got fewer")
      self._sum(data)
      left -= len(data)
    self._file.truncate()

  @property
  def size(self) -> int:
    """Values in the file."""
    return self._bytes // self.dtype.itemsize

  def append(self, values: np.ndarray) -> None:
    data = np.ascontiguousarray(values, self.dtype).tobytes()
    self._file.write(data)
    self._sum(data)

  def sync(self) -> None:
    """Leaves on the disk what was appended."""
    self._file.flush()
    os.fsync(self._file.fileno())

  def _sum(self, data: bytes) -> None:
    self._bytes += len(data)
    self._page += data
    whole = len(self._page) // _PAGE_BYTES * _PAGE_BYTES
    for first in range(0, whole, _PAGE_BYTES):
      page = bytes(self._page[first : first + _PAGE_BYTES])
      self._crc32c.append(checksums.crc32c(page))
    del self._page[:whole]

  def close(self) -> None:
    if self._page:
      self._crc32c.append(checksums.crc32c(bytes(self._page)))
      self._page.clear()
    self.sync()
    self._file.close()

  def entry(self) -> dict[str, Any]:
    return {
      "dtype": self.dtype.str,
      "size": self.size,
      "crc32c": self._crc32c,
    }


def _opened(
  directory: pathlib.Path, key: Mapping[str, Any]
) -> dict[str, SideArray] | None:
  """Returns the arrays of a directory, or None where they must be built."""
  # Not `directory.is_dir()`, which raises where one may not look.
  if not os.path.isdir(directory):
    return None
  try:
    header = _header(directory)
    if header.get("key") != json.loads(_canonical(key)):
      raise errors.StoreError(f"{directory / HEADER} is of another index")
    arrays = {
      name: _array(directory / f"{name}.bin", entry)
      for name, entry in _entries(
        header, directory / HEADER, ("crc32c",)
      ).items()
    }
    if sum(array.nbytes for array in arrays.values()) <= _CHECKED_AT_OPEN:
      for array in arrays.values():
        array.read()
  # A StoreError is a ValueError.
  except (OSError, ValueError) as error:
    errors.check_open_files(error)
    logging.warning("%s is built again: %s", directory, error)
    return None
  return _Arrays(directory, arrays)


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
  header: Mapping[str, Any],
  path: str | os.PathLike[str],
  more: tuple[str, ...] = (),
) -> dict[str, dict[str, Any]]:
  """Returns what a header says of each array, all of it checked.

  Args:
    header: Of an index, or of a build that was interrupted.
    path: Its file, for messages.
    more: Names of fields besides 'dtype' and 'size'.

  Raises:
    StoreError: If a name is not one of a file in the directory, or a field is
      not of its type.
  """

  def fail(name: str, rule: str, value: Any) -> errors.StoreError:
    return errors.StoreError(
      f"`{name}` of {os.fspath(path)} must be {rule}, got"
      f" {relative_names.brief(value)}. Remove its directory: it is built"
      " again."
    )

  arrays = header.get("arrays")
  if not isinstance(arrays, dict):
    raise fail("arrays", "an object", arrays)
  for name, entry in arrays.items():
    if not relative_names.is_part(name):
      raise fail("arrays", "of names of files in its directory", name)
    if not isinstance(entry, dict) or set(entry) != {"dtype", "size", *more}:
      raise fail(f"arrays.{name}", "an array's entry", entry)
    dtype, size = entry["dtype"], entry["size"]
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
      raise fail(f"arrays.{name}.dtype", "a type of integers", dtype)
    if type(size) is not int or not 0 <= size < 2**62:
      raise fail(f"arrays.{name}.size", "an integer of 0 or more", size)
    if "crc32c" in more:
      crc32c = entry["crc32c"]
      pages = -(-size * np.dtype(dtype).itemsize // _PAGE_BYTES)
      if not isinstance(crc32c, list) or len(crc32c) != pages:
        raise fail(f"arrays.{name}.crc32c", f"{pages} checksums", crc32c)
      if any(type(own) is not int for own in crc32c):
        raise fail(f"arrays.{name}.crc32c", "integers", crc32c)
  return arrays


def _page_crcs(data: bytes) -> list[int]:
  """Returns the crc32c of the pages of bytes that begin with one."""
  return [
    checksums.crc32c(data[low : low + _PAGE_BYTES])
    for low in range(0, len(data), _PAGE_BYTES)
  ]


def _canonical(value: Any) -> bytes:
  return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
