# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Places where stores are: local directories, and prefixes of object stores.

    /data/corpus, data/corpus   files
    s3://BUCKET/PREFIX          objects, through TensorStore's driver `s3`
    gs://BUCKET/PREFIX          objects, through TensorStore's driver `gcs`

Names are relative to a place, with slashes. Credentials are those that
`credentials` finds. Servers other than Amazon's are named in
AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, with AWS_REGION, as for Amazon's own
tools; servers other than Google's in TENSORSTORE_GCS_HTTP_URL.

A request that fails, and an answer that is not what was written, are retried
with backoff and counted. What another try cannot change, such as a missing
permission, is an error at once; so are damaged bytes that come again and again
the same, which are then damaged where they are stored.
"""

import abc
import atexit
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from concurrent import futures
import contextlib
import dataclasses
import errno
import hashlib
import os
import pathlib
import random
import re
import secrets
import threading
import time
from typing import Any
import urllib.parse

from chomp_data import errors
from chomp_data.stores import checksums
from chomp_data.stores import credentials
from chomp_data.stores import heartbeat
from chomp_data.stores import publish
from chomp_data.stores import relative_names

# By the scheme of a URL: TensorStore's driver.
DRIVERS: dict[str, str] = {"s3": "s3", "gs": "gcs"}

# Names of buckets. Amazon's are names of hosts; servers other than Amazon's
# also take names of the former rule.
_NAMING = {
  "s3": (
    re.compile(
      r"(?!\d+\.\d+\.\d+\.\d+$)(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
    ),
    "3 to 63 lower-case letters, digits, dots and hyphens that begin and end"
    " with a letter or digit, without two dots in a row, and no IP address",
  ),
  "s3 elsewhere": (
    re.compile(r"[A-Za-z0-9._-]{3,255}"),
    "3 to 255 letters, digits, dots, hyphens and underscores",
  ),
  "gs": (
    re.compile(
      r"(?!\d+\.\d+\.\d+\.\d+$)(?!.*\.\.)(?!goog)(?=.{3,222}$)"
      r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9_])?"
      r"(\.[a-z0-9_-]{1,63})*(?<![._-])"
    ),
    "3 to 63 (with dots 222) lower-case letters, digits, hyphens, underscores"
    " and dots that begin and end with a letter or digit, no IP address, and"
    " not beginning with 'goog'",
  ),
}

# Seconds before each further try: 100 s in all, as long as a server restarts.
RETRY_DELAYS_S: tuple[float, ...] = (
  0.2,
  0.4,
  0.8,
  1.6,
  3.2,
  6.4,
  12.8,
  25.6,
  25.6,
  25.6,
)

# Damaged bytes that come so often in a row, each time the same, are damaged
# where they are stored: the last one comes 3 s after the first at most.
_SAME_ANSWERS = 5

# A request that takes so long is taken for lost, however large.
REQUEST_TIMEOUT_S = 60.0

# Where no server of that name was ever reached: 6 s.
_TRIES_UNREACHED = 5
_UNREACHED = re.compile(r"curl_code='[67]'")

# Listings come in pages of 1,000 names.
_LIST_TIMEOUT_S = 600.0

# What it costs to find the size of an object: bytes that are read for it, at
# most, and how fast the search for its end gets on.
_SIZE_WINDOW = 2**20
_SIZE_STEP = 8
_BEYOND_ANY = 2**60
_TOLD_SIZE = re.compile(r"total size (\d+)|<ActualObjectSize>(\d+)<")
_OTHER_RANGE = re.compile(
  r"byte range \[(-?\d+), (\d+|\?)\) was not satisfied.* total size (\d+)"
)

# Objects deleted at once.
_TOGETHER = 32

# TensorStore's names of what another try will not mend.
_FINAL = {
  "FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE",
  "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED",
}  # fmt: skip


@dataclasses.dataclass
class Requests:
  """What was asked of object stores.

  Attributes:
    requests: Requests sent, further tries and doubles included.
    retries: Further tries after one that failed.
    corrupt: Answers that were too short, too long, or not what was written.
    doubled: Second requests for what took too long to come.
    bytes_read: Bytes that came.
    bytes_written: Bytes that were sent.
  """

  requests: int = 0
  retries: int = 0
  corrupt: int = 0
  doubled: int = 0
  bytes_read: int = 0
  bytes_written: int = 0

  def add(self, more: "Requests") -> None:
    """Counts what was counted elsewhere, too."""
    for field in dataclasses.fields(self):
      value = getattr(self, field.name) + getattr(more, field.name)
      setattr(self, field.name, value)


@dataclasses.dataclass(frozen=True)
class Found:
  """What there is of an object.

  Attributes:
    size: Its bytes.
    version: Another one once it was changed: of a file its time in ns, of an
      object its ETag or its generation.
  """

  size: int
  version: int | str


class DamagedAnswer(Exception):
  """An answer is not what was written; raised where it is asked for again.

  Attributes:
    error: What is raised if no further answer is right.
    answer: Tells it from other answers; None where its bytes are not known.
  """

  def __init__(self, error: Exception, answer: Any = None):
    """See the attributes."""
    super().__init__(str(error))
    self.error: Exception = error
    self.answer: Any = answer


# Called with the bytes of an answer; raises ValueError (such as a StoreError)
# where they are not those that were written.
Check = Callable[[bytes], object]


# Set when the process is about to end: what waits for a further try gives up.
_ending = threading.Event()


def at_exit(stop: Callable[[], object]) -> None:
  """Calls something before the interpreter waits for threads at its end.

  What `atexit` is told is called after it; threads that wait out the failures
  of a server would hold up the end of a process for minutes.
  """
  register = getattr(threading, "_register_atexit", atexit.register)
  register(stop)
  register(_ending.set)


# Of this process. Threads count into it, so it is not exact to the last one.
counts: Requests = Requests()


def is_url(path: str | os.PathLike[str]) -> bool:
  """Returns whether a path is a URL, of whatever scheme."""
  return "://" in os.fspath(path)


def join(path: str, name: str) -> str:
  """Returns the path of a name below a directory or a URL."""
  return f"{path.rstrip('/')}/{name}" if is_url(path) else f"{path}/{name}"


def staging(url: str) -> pathlib.Path:
  """Returns where what goes to a URL, or comes from it, is on a local disk.

  It is in the user's cache directory, or in what CHOMP_DATA_STAGING names.
  """
  root = os.environ.get("CHOMP_DATA_STAGING")
  if not root:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(
      os.path.expanduser("~"), ".cache"
    )
    root = os.path.join(cache, "chomp_data", "staging")
  digest = hashlib.sha256(url.encode()).hexdigest()[:12]
  return pathlib.Path(root, f"{name_of(url)}-{digest}")


def at(path: str | os.PathLike[str]) -> "Place":
  """Returns the place of a directory or a URL; asks nothing of it yet.

  Args:
    path: Of a directory that may not exist, or `s3://` or `gs://`.

  Raises:
    StoreError: If it is a URL of another scheme, or names no bucket.
  """
  if is_url(path):
    return ObjectPlace(os.fspath(path))
  return LocalPlace(path)


class Place(abc.ABC):
  """Objects by name: what is written is there whole, or not at all.

  Attributes:
    path: Of the directory, or the URL, without a slash at its end.
  """

  path: str

  def file(self, name: str) -> str:
    """Returns the path or URL of an object."""
    return f"{self.path}/{name}"

  @abc.abstractmethod
  def read(
    self,
    name: str,
    begin: int = 0,
    end: int | None = None,
    check: Check | None = None,
  ) -> bytes:
    """Returns the bytes begin .. end - 1 of an object, or those up to its end.

    Args:
      name: The object.
      begin: The first byte; below 0 it counts from the object's end.
      end: Behind the last one; None is the object's end.
      check: Checks the bytes. Those of a bucket are asked for again where it
        raises ValueError; its last error is raised where that does not help.

    Raises:
      FileNotFoundError: If there is no such object.
      StoreError: If it cannot be read.
    """

  @abc.abstractmethod
  def find(self, name: str) -> Found | None:
    """Returns what there is of an object, or None where there is none.

    Raises:
      StoreError: If it cannot be read.
    """

  @abc.abstractmethod
  def version(self, name: str) -> int | str | None:
    """Returns `find(name).version`, for less."""

  @abc.abstractmethod
  def names(self, prefix: str = "") -> list[str]:
    """Returns the names of all objects below a prefix, ascending."""

  @abc.abstractmethod
  def write(self, name: str, data: bytes) -> None:
    """Writes an object, in the place of one of that name."""

  @abc.abstractmethod
  def create(self, name: str, data: bytes) -> bool:
    """Writes an object unless there is one; returns whether it did.

    Of several that do so at once, in whatever process, one succeeds.
    """

  @abc.abstractmethod
  def delete(self, names: Iterable[str]) -> None:
    """Deletes objects; those that are not there are no error."""

  @abc.abstractmethod
  def kvstore(self) -> Any:
    """Returns the `tensorstore.KvStore` of the place, opened once."""


class LocalPlace(Place):
  """A directory of files."""

  def __init__(self, path: str | os.PathLike[str]):
    """See `at`."""
    self.path: str = os.fspath(path)
    self._kvstore: Any = None

  def read(
    self,
    name: str,
    begin: int = 0,
    end: int | None = None,
    check: Check | None = None,
  ) -> bytes:
    """Returns bytes of a file; see `Place`."""
    data = self._read(name, begin, end)
    if check is not None:
      check(data)
    return data

  def _read(self, name: str, begin: int, end: int | None) -> bytes:
    try:
      with publish.open_file(self.file(name)) as file:
        file.seek(begin, os.SEEK_SET if begin >= 0 else os.SEEK_END)
        return file.read() if end is None else file.read(end - begin)
    except (FileNotFoundError, NotADirectoryError):
      raise FileNotFoundError(
        errno.ENOENT, "no file", self.file(name)
      ) from None
    except OSError as error:
      raise errors.StoreError(
        f"{self.file(name)} must be readable, got {error}. Check the disk and"
        " its permissions."
      ) from error

  def find(self, name: str) -> Found | None:
    """Returns a file's size and time; see `Place`."""
    try:
      found = os.stat(self.file(name))
    except (FileNotFoundError, NotADirectoryError):
      return None
    except OSError as error:
      raise errors.StoreError(
        f"{self.file(name)} must be readable, got {error}. Check the disk and"
        " its permissions."
      ) from error
    return Found(found.st_size, found.st_mtime_ns)

  def version(self, name: str) -> int | str | None:
    """Returns a file's time; see `Place`."""
    found = self.find(name)
    return None if found is None else found.version

  def names(self, prefix: str = "") -> list[str]:
    """Returns the files below a prefix; see `Place`."""
    found = []
    below = os.path.join(self.path, prefix.rpartition("/")[0])
    for folder, _, files in os.walk(below):
      for file in files:
        name = pathlib.Path(folder, file).relative_to(self.path).as_posix()
        if name.startswith(prefix):
          found.append(name)
    return sorted(found)

  def write(self, name: str, data: bytes) -> None:
    """Writes a file, which is then on disk; see `Place`."""
    with self._staged(name, data) as staged:
      os.replace(staged, self.file(name))

  def create(self, name: str, data: bytes) -> bool:
    """Writes a file unless there is one; see `Place`."""
    with self._staged(name, data) as staged:
      try:
        os.link(staged, self.file(name))
      except FileExistsError:
        return False
      return True

  def delete(self, names: Iterable[str]) -> None:
    """Deletes files; see `Place`."""
    for name in names:
      pathlib.Path(self.file(name)).unlink(missing_ok=True)

  def kvstore(self) -> Any:
    """Returns TensorStore's view of the directory; see `Place`."""
    if self._kvstore is None:
      import tensorstore as ts

      spec = {"driver": "file", "path": f"{os.path.abspath(self.path)}/"}
      self._kvstore = ts.KvStore.open(spec).result()
    return self._kvstore

  @contextlib.contextmanager
  def _staged(self, name: str, data: bytes) -> Iterator[pathlib.Path]:
    path = pathlib.Path(self.file(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
      with publish.new_file(staged) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
      yield staged
      publish.sync(path.parent)
    finally:
      staged.unlink(missing_ok=True)


class ObjectPlace(Place):
  """A prefix of a bucket."""

  def __init__(self, path: str):
    """See `at`."""
    scheme, _, rest = path.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme not in DRIVERS or not bucket:
      raise errors.StoreError(
        f"`path` must be a directory, s3://BUCKET/PATH or gs://BUCKET/PATH, got"
        f" {path!r}. Correct it, or copy what is there to one of these."
      )
    naming = scheme
    if scheme == "s3" and _endpoint():
      naming = "s3 elsewhere"
    pattern, rule = _NAMING[naming]
    if not pattern.fullmatch(bucket):
      raise errors.StoreError(
        f"`path` must name a bucket of {rule}, got {bucket!r} in {path!r}."
        " Correct it."
      )
    self._scheme = scheme
    self._bucket = bucket
    self._prefix = prefix.strip("/")
    self.path: str = f"{scheme}://{bucket}/{self._prefix}".rstrip("/")
    self._kvstore: Any = None
    self._process = 0
    self._answered = False
    self._credentials = credentials.Credentials({}, (), False)
    self._lock = threading.Lock()

  def __getstate__(self) -> dict[str, Any]:
    return {"path": self.path}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__init__(state["path"])

  def read(
    self,
    name: str,
    begin: int = 0,
    end: int | None = None,
    check: Check | None = None,
  ) -> bytes:
    """Returns bytes of an object; see `Place`."""
    return self.read_within(name, begin, end, check=check)

  def read_within(
    self,
    name: str,
    begin: int,
    end: int | None,
    patience_s: float | None = None,
    count: Requests | None = None,
    version: int | str | None = None,
    check: Check | None = None,
  ) -> bytes:
    """Returns bytes of an object, asked for twice where they are slow to come.

    Args:
      name: The object.
      begin: As in `read`.
      end: As in `read`.
      patience_s: After so many seconds a second request is sent, and the
        first answer taken; None sends none.
      count: Counted into, besides `counts`.
      version: What `version` said of the object; None is any.
      check: As in `read`.

    Raises:
      FileNotFoundError: If there is no such object.
      StoreError: If it cannot be read, or is of another version.
    """
    if begin == end:
      return b""
    wanted = slice(begin, end) if begin or end is not None else None
    asked = Requests()

    def ask() -> Any:
      answer = self._first_answer(name, wanted, patience_s, asked)
      if answer.state != "missing":
        asked.bytes_read += len(answer.value)
        if version is not None and self._version_of(answer) != version:
          raise errors.StoreError(
            f"{self.file(name)} must be the object of version {version} that"
            f" was opened, got {self._version_of(answer)}: it was replaced"
            " meanwhile. Put it back, or start again."
          )
        self._check_answer(name, answer.value, begin, end, check)
      return answer

    try:
      found = self._persist("read", name, ask, asked)
    finally:
      if count is not None:
        count.add(asked)
    if found.state == "missing":
      raise FileNotFoundError(errno.ENOENT, "no object", self.file(name))
    return found.value

  def _check_answer(
    self,
    name: str,
    data: bytes,
    begin: int,
    end: int | None,
    check: Check | None,
  ) -> None:
    """Raises DamagedAnswer where bytes are not those that were asked for."""
    try:
      size = -begin if end is None else end - begin
      if size > 0 and len(data) != size:
        raise errors.StoreError(
          f"{self.file(name)} must be answered with {size} bytes, got"
          f" {len(data)}. Check the server, or what lies between."
        )
      if check is not None:
        check(data)
    except ValueError as error:
      raise DamagedAnswer(error, (len(data), checksums.crc32c(data))) from error

  def ask_again(self, name: str, ask: Callable[[], Any]) -> Any:
    """Returns what a function makes of several reads of an object.

    Args:
      name: The object.
      ask: Called again where it raises DamagedAnswer.
    """
    return self._persist("read", name, ask)

  def find(self, name: str) -> Found | None:
    """Returns size and version of an object; see `Place`.

    One request, and those for its size: one where the server tells it of a
    range that lies beyond the end, as S3 does, else some 20 for 1 GiB.
    """
    version = self.version(name)
    return None if version is None else Found(self._size(name), version)

  def version(self, name: str) -> int | str | None:
    """Returns the ETag or the generation of an object; see `Place`."""
    asked = Requests()
    found = self._persist(
      "read",
      name,
      lambda: self._first_answer(name, slice(0, 0), None, asked),
      asked,
    )
    if found.state == "missing":
      return None
    return self._version_of(found)

  def _version_of(self, found: Any) -> str:
    """Returns the version of the object that an answer is of."""
    # Behind a byte that says that there is an object.
    told = found.stamp.generation[1:]
    if self._scheme == "gs":
      return str(int.from_bytes(told, "little"))
    return told.decode("utf-8", "backslashreplace").strip('"')

  def _size(self, name: str) -> int:
    """Returns the size of an object, which TensorStore tells in errors only."""
    _, told = self._has(name, _BEYOND_ANY, _BEYOND_ANY + 1)
    if told is not None:
      return told
    # There are `low` bytes at least, and less than `high`.
    low, high = 0, _SIZE_WINDOW
    while self._has(name, high - 1, high)[0]:
      low, high = high, _SIZE_STEP * high
    while high - low > _SIZE_WINDOW:
      middle = (low + high) // 2
      if self._has(name, middle - 1, middle)[0]:
        low = middle
      else:
        high = middle
    # A range that the object ends in.
    _, told = self._has(name, low, high)
    if told is not None:
      return told
    while high - low > 1:
      middle = (low + high) // 2
      if self._has(name, middle - 1, middle)[0]:
        low = middle
      else:
        high = middle
    return low

  def _has(self, name: str, begin: int, end: int) -> tuple[bool, int | None]:
    """Returns whether an object has all of some bytes, and its size if told."""
    try:
      self.read(name, begin, end)
    except errors.StoreError as error:
      reason = str(error.__cause__)
      if not reason.startswith("OUT_OF_RANGE") or _is_damaged(reason):
        raise
      told = _TOLD_SIZE.search(reason)
      return False, told and int(told[1] or told[2])
    return True, None

  def names(self, prefix: str = "") -> list[str]:
    """Returns the objects below a prefix; see `Place`."""
    import tensorstore as ts

    # Up to the first string that the prefix is no begin of.
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else ""
    within = ts.KvStore.KeyRange(prefix, end)

    def ask() -> Any:
      counts.requests += 1
      return self.kvstore().list(within).result(_LIST_TIMEOUT_S)

    found = self._persist("list", prefix, ask)
    if not found and self._scheme == "gs":
      # TensorStore takes a refused listing of GCS for an empty one; who may
      # not read either is told so.
      self.version(prefix or "any")
    names = sorted(name.decode() for name in found)
    reachable = [own for own in names if not relative_names.leaves_address(own)]
    if len(reachable) < len(names):
      from absl import logging

      bad = set(names).difference(reachable)
      logging.warning(
        "ignored %d object(s) of %s with a part '.' or '..' in their names,"
        " which HTTP clients take for other objects, such as %s",
        len(bad),
        self.path,
        relative_names.brief(min(bad)),
      )
    return reachable

  def write(self, name: str, data: bytes) -> None:
    """Writes an object; see `Place`."""
    self._put(name, data, Requests())

  def create(self, name: str, data: bytes) -> bool:
    """Writes an object unless there is one; see `Place`."""
    import tensorstore as ts

    # What TensorStore calls the state of objects that are not there.
    nowhere = ts.KvStore.open("memory://").result().read("").result()
    missing = nowhere.stamp.generation
    asked = Requests()
    if self._put(name, data, asked, if_equal=missing).generation:
      return True
    # A try that failed for us may have been carried out.
    return bool(asked.retries) and self.holds(name, data)

  def holds(self, name: str, data: bytes) -> bool:
    """Returns whether an object is there and holds some bytes."""

    def check(answer: bytes) -> None:
      if answer != data:
        raise ValueError("other bytes")

    try:
      self.read(name, check=check)
    except FileNotFoundError:
      return False
    except errors.StoreError:
      raise
    except ValueError:
      return False
    return True

  def read_versioned(self, name: str) -> tuple[bytes, bytes]:
    """Returns the bytes of an object, and what `replace` takes.

    Raises:
      FileNotFoundError: If there is no such object.
      StoreError: If it cannot be read.
    """
    asked = Requests()
    found = self._persist(
      "read",
      name,
      lambda: self._first_answer(name, None, None, asked),
      asked,
    )
    if found.state == "missing":
      raise FileNotFoundError(errno.ENOENT, "no object", self.file(name))
    return found.value, found.stamp.generation

  def replace(self, name: str, data: bytes, generation: bytes) -> bytes | None:
    """Writes an object in the place of one version of it only.

    Args:
      name: The object.
      data: What no other process writes there.
      generation: As `read_versioned` returned it.

    Returns:
      The generation that was written; None where another one is there.
    """
    asked = Requests()
    stamp = self._put(name, data, asked, if_equal=generation)
    if stamp.generation:
      return stamp.generation
    if asked.retries:
      # A try that failed for us may have been carried out.
      with contextlib.suppress(FileNotFoundError):
        there, generation = self.read_versioned(name)
        if there == data:
          return generation
    return None

  def delete(self, names: Iterable[str]) -> None:
    """Deletes objects; see `Place`."""
    store = self.kvstore()

    def delete(name: str) -> None:
      def ask() -> Any:
        counts.requests += 1
        return store.write(name, None).result(REQUEST_TIMEOUT_S)

      self._persist("delete", name, ask)

    names = list(names)
    if names:
      with futures.ThreadPoolExecutor(min(_TOGETHER, len(names))) as pool:
        list(pool.map(delete, names))

  def kvstore(self) -> Any:
    """Returns TensorStore's view of the prefix; see `Place`."""
    with self._lock:
      # A fork has none of TensorStore's threads.
      if self._kvstore is None or self._process != os.getpid():
        self._kvstore = self._opened()
        self._process = os.getpid()
      return self._kvstore

  def _put(
    self, name: str, data: bytes, asked: Requests, **condition: Any
  ) -> Any:
    store = self.kvstore()

    def ask() -> Any:
      asked.requests += 1
      return store.write(name, data, **condition).result(REQUEST_TIMEOUT_S)

    found = self._persist("write", name, ask, asked)
    counts.bytes_written += len(data)
    return found

  def _opened(self) -> Any:
    import tensorstore as ts

    driver = DRIVERS[self._scheme]
    spec: dict[str, Any] = {
      "driver": driver,
      "bucket": self._bucket,
      "path": f"{self._prefix}/" if self._prefix else "",
      # Tries are ours, to be counted and to end in an error with the path.
      "context": {
        f"{driver}_request_retries": {
          "max_retries": 0,
          "initial_delay": "1ms",
          "max_delay": "1ms",
        }
      },
    }
    if self._scheme == "gs":
      self._credentials = credentials.of_gcs()
    else:
      self._credentials = credentials.of_s3()
      spec["context"]["aws_credentials"] = self._credentials.provider
      endpoint = _endpoint()
      region = os.environ.get("AWS_REGION") or os.environ.get(
        "AWS_DEFAULT_REGION"
      )
      if endpoint:
        spec["endpoint"] = endpoint.rstrip("/")
        region = region or "us-east-1"
      if region:
        spec["aws_region"] = region
    try:
      return ts.KvStore.open(spec).result(REQUEST_TIMEOUT_S)
    except (ValueError, OSError) as error:
      raise errors.StoreError(
        f"{self.path} must be a place in an object store, got"
        f" {_reason(error)}. Correct it."
      ) from error

  def _persist(
    self,
    what: str,
    name: str,
    ask: Callable[[], Any],
    asked: Requests | None = None,
  ) -> Any:
    """Returns an answer, asked for again where asking may help."""
    asked = Requests() if asked is None else asked
    if relative_names.leaves_address(name):
      raise errors.StoreError(
        f"objects of {self.path} must have names without parts '.' and '..',"
        f" got {relative_names.brief(name)}. Rename the object."
      )
    try:
      return self._asked_again(what, name, ask, asked)
    finally:
      counts.add(asked)

  def _asked_again(
    self, what: str, name: str, ask: Callable[[], Any], asked: Requests
  ) -> Any:
    began = time.monotonic()
    same, last = 0, None
    for delay in (*RETRY_DELAYS_S, None):
      try:
        answer = ask()
        self._answered = True
        return answer
      except errors.StoreError:
        raise  # What the place itself says is no answer of a server.
      except DamagedAnswer as error:
        asked.corrupt += 1
        same = same + 1 if error.answer == last is not None else 1
        last = error.answer
        stored = same >= _SAME_ANSWERS
        if delay is None or stored or _ending.is_set():
          raise error.error from error
        reason = str(error)
      except Exception as error:  # Of many types, by what went wrong.
        code, reason = _code(error), _reason(error)
        # No server ever answered: its name is wrong.
        nobody = not self._answered and _UNREACHED.search(str(error))
        if nobody and asked.retries >= _TRIES_UNREACHED:
          delay = None
        final = code in _FINAL
        if code == "OUT_OF_RANGE" and _is_damaged(str(error)):
          asked.corrupt += 1
          final, same = False, 0
        if delay is None or final or _ending.is_set():
          raise self._error(what, name, code, reason, began) from error
      asked.retries += 1
      from absl import logging  # Not in workers that fail at nothing.

      logging.log_every_n_seconds(
        logging.WARNING,
        "%s of %s is tried again in %.1f s: %s",
        10,
        what,
        self.file(name),
        delay,
        reason,
      )
      # Between half and the whole of it: not all workers at once.
      until = time.monotonic() + delay * random.uniform(0.5, 1.0)
      while (left := until - time.monotonic()) > 0:
        heartbeat.beat()
        _ending.wait(min(left, 1.0))
        if _ending.is_set():
          break
    raise AssertionError("unreachable")

  def _first_answer(
    self,
    name: str,
    wanted: slice | None,
    patience_s: float | None,
    asked: Requests,
  ) -> Any:
    """Returns the first answer of a request, and of a second if it is slow."""
    store = self.kvstore()
    asked.requests += 1
    first = store.read(name, byte_range=wanted)
    try:
      return first.result(patience_s or REQUEST_TIMEOUT_S)
    except TimeoutError:
      if patience_s is None:
        raise
    asked.requests += 1
    asked.doubled += 1
    arrived = threading.Event()
    both = [first, store.read(name, byte_range=wanted)]
    for future in both:
      future.add_done_callback(lambda _: arrived.set())
    until = time.monotonic() + REQUEST_TIMEOUT_S
    while both:
      if not arrived.wait(max(until - time.monotonic(), 0.0)):
        raise TimeoutError(f"no answer within {REQUEST_TIMEOUT_S:g} s")
      arrived.clear()
      for future in [own for own in both if own.done()]:
        both.remove(future)
        if not both or future.exception() is None:
          for other in both:
            other.cancel()
          return future.result()
    raise AssertionError("unreachable")

  def _error(
    self, what: str, name: str, code: str, reason: str, began: float
  ) -> errors.StoreError:
    took = time.monotonic() - began
    fix = "Check the network and the server."
    if code in ("PERMISSION_DENIED", "UNAUTHENTICATED"):
      fix = self._credentials.advice(what)
    elif code == "NOT_FOUND":
      fix = f"Check that the bucket {self._bucket!r} exists."
    verb = {"read": "readable", "list": "listable", "delete": "deletable"}
    return errors.AccessError(
      f"{self.file(name)} must be {verb.get(what, 'writable')}, got"
      f" {reason.rstrip('.')} ({took:.1f} s). {fix}"
    )


def _endpoint() -> str | None:
  """Returns the server of S3, None where it is Amazon's."""
  return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get(
    "AWS_ENDPOINT_URL"
  )


def _is_damaged(reason: str) -> bool:
  """Whether an object has the range that an answer did not have."""
  told = _OTHER_RANGE.search(reason)
  if told is None:
    return False
  begin, end, size = int(told[1]), told[2], int(told[3])
  if end == "?":
    return -size <= begin < size
  return begin < int(end) <= size


def _code(error: Exception) -> str:
  """Returns TensorStore's name of an error's kind, or ''."""
  code, _, rest = str(error).partition(":")
  # The last try's own code is lost in "all tries failed", its number is not.
  if "http_response_code='401'" in rest or "http_response_code='403'" in rest:
    return "PERMISSION_DENIED"
  return code if code.isupper() else ""


def _reason(error: Exception) -> str:
  """Returns what an error says, less the page that came with it."""
  text = str(error).partition(" [http_response_body")[0]
  text = text.replace("All 0 retry attempts failed: ", "")
  status = re.search(r"http_response_code='(\d+)'", str(error))
  if status is not None and status[0] not in text:
    text += f" (HTTP status {status[1]})"
  return text.split("\n", 1)[0][:300] or type(error).__name__


def name_of(path: str | os.PathLike[str]) -> str:
  """Returns the last part of a path or URL."""
  text = os.fspath(path)
  if is_url(text):
    return urllib.parse.urlsplit(text).path.rstrip("/").rpartition("/")[2]
  return pathlib.Path(text).name
