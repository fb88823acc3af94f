# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Object stores: connections, answers and objects that fail.

What is stored is read from servers on loopback, S3 (where moto is installed),
GCS and Azure, through a proxy that does to some requests what a case says.
Faults that pass must not be noticed; others must be errors that name what is
read.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import pathlib
import random
import threading
import time
from typing import Any
from unittest import mock

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import run
from chomp_data.reference import mirror
from chomp_data.storage import bucket
from chomp_data.storage import checksums
from chomp_data.storage import opening
from chomp_data.storage import requests
from chomp_data.stores import copying
from chomp_data.stores import span_reads
from chomp_data.testing import stores as testing_stores
from tests.faults import harness
from tests.remote import corrupt_test
from tests.remote import servers
from tests.remote import store_kinds

# Tries of a request in these cases, which wait less than users do.
_TRIES = 8
# Answers of a slow tail, and what a read of a store may take with them.
_SLOW_S = 8.0
_READ_S = 6.0
_WRITE_S = 30.0

# Errors that a user may meet.
_REFUSALS = (
  errors.StoreError,
  errors.StateError,
  errors.PrepareError,
  FileNotFoundError,
)

STORES = ("zarr", "zarr zstd", "megatron", "levanter")
# Formats with checksums of all that is read of them.
SUMMED = ("zarr", "zarr zstd", "checkpoint", "state")
FORMATS = (*STORES, "checkpoint", "state", "jsonl", "parquet")


@dataclasses.dataclass(frozen=True)
class Stored:
  """Something in a bucket, and how it is read.

  Attributes:
    name: Of `FORMATS`.
    proxy: Stands before its server.
    environment: Variables that lead to the server.
    root: URL below which it is.
    read: Reads all of it, with a fresh directory for what is kept.
    contents: What is read.
    num_requests: Reads of objects that this takes.
    num_all: Requests of any kind, listings and HEADs included.
  """

  name: str
  proxy: servers.Proxy
  environment: dict[str, str]
  root: str
  read: Callable[[pathlib.Path], Any]
  contents: Any
  num_requests: int
  num_all: int


@contextlib.contextmanager
def _fresh(directory: pathlib.Path) -> Iterator[None]:
  """Nothing that was read before is known."""
  directory.mkdir(parents=True)
  opening.open_root.cache_clear()
  with mock.patch.dict(
    os.environ,
    {
      "XDG_CACHE_HOME": str(directory / "cache"),
      "CHOMP_DATA_STAGING": str(directory / "staging"),
      # Connections, and how long reads took, are of an environment.
      "AWS_CASE": str(directory),
    },
  ):
    yield


def _servers(
  stack: contextlib.ExitStack,
) -> dict[str, tuple[servers.Proxy, dict[str, str]]]:
  """Starts a server per scheme; returns each and the variables that lead to it.

  Without moto there is none for S3.
  """
  kinds = {"gs": servers.gcs, "az": servers.azure}
  if servers.moto_server() is not None:
    kinds["s3"] = servers.s3
  proxies = {
    scheme: stack.enter_context(server()) for scheme, server in kinds.items()
  }
  return {
    scheme: (proxy, servers.environment(**{scheme: proxy.url}))
    for scheme, proxy in proxies.items()
  }


def _short_delays() -> tuple[float, ...]:
  """Returns the delays of few retries; none if retries are switched off."""
  return (0.01,) * min(_TRIES - 1, len(requests.RETRY_DELAYS_S))


@contextlib.contextmanager
def _stored(
  names: tuple[str, ...], directory: pathlib.Path, seed: int = 0
) -> Iterator[list[Stored]]:
  """Puts something of each format into a bucket of each kind."""
  with contextlib.ExitStack() as stack:
    for patch in (
      mock.patch.object(requests, "RETRY_DELAYS_S", _short_delays()),
      mock.patch.object(span_reads, "DEFAULT_CHUNK_TOKENS", store_kinds.CHUNK),
    ):
      stack.enter_context(patch)
    everything = []
    running = _servers(stack) if names else {}
    for scheme, (proxy, environment) in running.items():
      stack.enter_context(mock.patch.dict(os.environ, environment))
      for name in names:
        root = f"{scheme}://{servers.BUCKET}/{name.replace(' ', '-')}"
        place = directory / f"{scheme}-{name.replace(' ', '-')}"
        with _fresh(place):
          read = corrupt_test.FORMATS[name](root, place)
          proxy.clear()
          contents = read(place / "read")
        everything.append(
          Stored(
            name,
            proxy,
            environment,
            root,
            read,
            contents,
            len(proxy.reads()),
            len(proxy.requests),
          )
        )
    yield everything


def _outcome(
  stored: Stored,
  directory: pathlib.Path,
  *,
  passes: bool,
  others: tuple[Any, ...] = (),
) -> str:
  """Reads something, and says what comes of it.

  Args:
    stored: What is read.
    directory: Is not there yet.
    passes: Whether the fault passes, so that an error is bad.
    others: What may be read instead.
  """
  began = time.monotonic()
  try:
    with _fresh(directory):
      contents = stored.read(directory / "read")
  except _REFUSALS as error:
    if passes:
      return f"{harness.UNCLEAR}: ended by a fault that passes: {error}"
    if stored.root.partition("://")[2] in str(error):
      return harness.REFUSED
    return f"{harness.UNCLEAR}: {error}"
  except Exception as error:
    return f"{harness.UNCLEAR}: {error!r}"
  if contents != stored.contents and contents not in others:
    return f"{harness.SILENT}: other contents"
  if time.monotonic() - began > _READ_S:
    return f"{harness.HANG}: {time.monotonic() - began:.0f} s"
  return harness.UNHARMED


def _some(
  rng: random.Random, stored: Stored, at_most: int, *, of_all: bool = False
) -> Callable[[servers.Request], bool]:
  """Returns whether a request is one of a few that follow each other.

  Args:
    rng: Draws which.
    stored: What is read.
    at_most: Requests that are chosen.
    of_all: Whether they may be listings and HEADs, too.
  """
  first = rng.randrange(stored.num_all if of_all else stored.num_requests)
  last = first + rng.randint(1, at_most)
  numbers = itertools.count()

  def chosen(request: servers.Request) -> bool:
    if not of_all and (request.method != "GET" or not request.name):
      return False
    return first <= next(numbers) < last

  return chosen


def _has_tokens(name: str) -> bool:
  return name.endswith(".bin") or "/c/" in name


def _reset(rng: random.Random, stored: Stored) -> bool:
  chosen = _some(rng, stored, _TRIES - 1, of_all=True)
  stored.proxy.fault = lambda request: (
    servers.RESET if chosen(request) else None
  )
  return True


def _storm(rng: random.Random, stored: Stored) -> bool:
  """Answers 429 or 5xx, for as long as is tried again, or for ever."""
  ends = rng.random() < 0.7
  chosen = _some(rng, stored, _TRIES - 1 if ends else 1, of_all=True)
  status = rng.choice((429, 500, 502, 503, 504))
  began = []

  def fault(request: servers.Request) -> int | None:
    if chosen(request):
      began.append(request)
      return status
    return None if ends or not began else status

  stored.proxy.fault = fault
  return ends


def _short(rng: random.Random, stored: Stored) -> bool:
  """Ends some answers before their end."""
  chosen = _some(rng, stored, 3)
  share = rng.random()
  stored.proxy.cut = lambda request, size: (
    int(share * size) if size and chosen(request) else None
  )
  return True


def _flip(rng: random.Random, stored: Stored) -> bool:
  """Flips a bit of an answer."""
  chosen = _some(rng, stored, 1)
  share, bit = rng.random(), rng.randrange(8)

  def damage(request: servers.Request, body: bytes) -> bytes:
    if not body or not chosen(request):
      return body
    flipped = bytearray(body)
    flipped[int(share * len(body))] ^= 1 << bit
    return bytes(flipped)

  stored.proxy.damage = damage
  return True


def _slow(rng: random.Random, stored: Stored) -> bool:
  """Keeps the tokens of some spans back for long."""
  chosen = _some(rng, stored, 1)

  def delay(request: servers.Request) -> float:
    return _SLOW_S if chosen(request) and _has_tokens(request.name) else 0.0

  stored.proxy.delay_s = delay
  return True


def _cases(
  names: tuple[str, ...],
  inject: Callable[[random.Random, Stored], bool],
  rng: random.Random,
  directory: pathlib.Path,
) -> Iterator[harness.Case]:
  """Yields cases that inject a fault while something is read."""

  def case(number: int, stored: Stored) -> str:
    stored.proxy.clear()
    passes = inject(rng, stored)
    try:
      outcome = _outcome(stored, directory / f"{number}", passes=passes)
    finally:
      stored.proxy.clear()
    if outcome in harness.GOOD:
      return outcome
    return f"{outcome} ({stored.root})"

  with _stored(names, directory / "stored") as everything:
    for number in itertools.count():
      stored = everything[number % len(everything)]
      yield functools.partial(case, number, stored)


def _replaced(
  rng: random.Random, directory: pathlib.Path
) -> Iterator[harness.Case]:
  """Yields cases that replace an object while it is read.

  From its second request on, an object is one of the same size in which some
  bytes differ.
  """

  def case(number: int, stored: Stored) -> str:
    first = rng.randrange(stored.num_requests // 2)
    seed, any_name = rng.randrange(2**32), rng.random() < 0.3
    numbers = itertools.count()
    lock = threading.Lock()
    seen: set[str] = set()
    before: dict[str, bytes] = {}
    storage = opening.open_storage(stored.root.rpartition("/")[0])

    def replace(request: servers.Request) -> None:
      if request.method not in ("GET", "HEAD") or not request.name:
        return
      if not any_name and not _has_tokens(request.name):
        return
      with lock:
        again = request.name in seen
        seen.add(request.name)
        if next(numbers) < first or not again or before:
          return
        before[request.name] = b""
      before[request.name] = data = storage.get(request.name)
      changed = bytearray(data)
      for at in random.Random(seed).choices(range(len(data)), k=8):
        changed[at] ^= 1
      storage.put(request.name, bytes(changed))

    stored.proxy.clear()
    stored.proxy.fault = replace
    try:
      outcome = _outcome(stored, directory / f"{number}", passes=False)
    finally:
      stored.proxy.clear()
      for name, data in before.items():
        storage.put(name, data)
    if outcome in harness.GOOD:
      return outcome
    return f"{outcome} ({stored.root}, {[*before]})"

  with _stored(STORES, directory / "stored") as everything:
    for number in itertools.count():
      yield functools.partial(
        case, number, everything[number % len(everything)]
      )


def _prepare(root: str, directory: pathlib.Path, output: str) -> None:
  del directory
  options = {"shard_bytes": 2**15, "chunk": 2**10, "duplicates": "drop"}
  run.prepare(run.Options((f"{root}/input/*.jsonl",), output, **options))


def _copy(root: str, directory: pathlib.Path, output: str) -> None:
  del directory
  copying.copy(stores.open_store(f"{root}/store"), output)


def _send(root: str, directory: pathlib.Path, output: str) -> None:
  del root
  mirror.Mirror(output, keep=None).send(3, directory)


def _store_at(output: str, directory: pathlib.Path) -> Any:
  del directory
  store = stores.open_store(output)
  stores.verify_store(output)
  return store.hash


def _sent_to(output: str, directory: pathlib.Path) -> Any:
  mirror.Mirror(output, keep=None).fetch(3, directory)
  return {
    file.relative_to(directory).as_posix(): file.read_bytes()
    for file in directory.rglob("*")
    if file.is_file()
  }


# What is written to a bucket, and what is read of it.
_WRITES = {
  "prepare": (_prepare, _store_at),
  "copy": (_copy, _store_at),
  "checkpoint": (_send, _sent_to),
}


def _writes(
  rng: random.Random, directory: pathlib.Path
) -> Iterator[harness.Case]:
  """Yields cases in which requests fail while something is written.

  Requests of any kind: those that read inputs in the bucket, listings, HEADs
  and writes, which are not carried out, or are and their answers are lost; for
  as long as is tried again, or for ever.
  """

  def case(number: int, name: str, proxy: servers.Proxy, root: str) -> str:
    write, read = _WRITES[name]
    place, output = directory / f"{number}", f"{root}/{name}-{number}"
    first = rng.randrange(num_requests[name, root])
    fault = rng.choice((servers.RESET, 429, 500, 502, 503, 504, None))
    passes = fault in (servers.RESET, None) or rng.random() < 0.7
    last = first + rng.randint(1, _TRIES - 1) if passes else math.inf
    numbers = itertools.count()

    def chosen(request: servers.Request) -> bool:
      del request
      return first <= next(numbers) < last

    with _fresh(place):
      proxy.clear()
      if fault is None:
        proxy.lost = chosen
      else:
        proxy.fault = lambda request: fault if chosen(request) else None
      began = time.monotonic()
      try:
        write(root, directory / "files", output)
      except Exception as error:
        if passes:
          return f"{harness.UNCLEAR}: ended by a fault that passes: {error!r}"
        names_it = root.partition("://")[2] in str(error)
        if names_it and isinstance(error, _REFUSALS):
          return harness.REFUSED
        return f"{harness.UNCLEAR}: {error!r}"
      finally:
        proxy.clear()
      if time.monotonic() - began > _WRITE_S:
        return f"{harness.HANG}: {time.monotonic() - began:.0f} s"
      contents = read(output, place / "read")
    if contents != expected[name, root]:
      return f"{harness.SILENT}: other contents ({output})"
    return harness.UNHARMED

  expected: dict[tuple[str, str], Any] = {}
  num_requests: dict[tuple[str, str], int] = {}
  files = directory / "files"
  files.mkdir(parents=True)
  for i in range(4):
    (files / f"{i}").write_bytes(random.Random(i).randbytes(2_000))
  with _stored((), directory / "stored") as _, contextlib.ExitStack() as stack:
    places = []
    for scheme, (proxy, environment) in _servers(stack).items():
      stack.enter_context(mock.patch.dict(os.environ, environment))
      root = f"{scheme}://{servers.BUCKET}/writes"
      lines = [json.dumps({"text": f"text {i} " * 40}) for i in range(200)]
      for i in range(3):
        data = "\n".join(lines[i::3]).encode()
        opening.open_storage(root).put(f"input/{i}.jsonl", data)
      local = testing_stores.make_store(
        directory / f"{scheme}-store",
        [[3 + i % 200] * 300 for i in range(40)],
        chunk=1_024,
        chunks_per_shard=2,
      )
      copying.copy(local, f"{root}/store")
      for name, (write, read) in _WRITES.items():
        with _fresh(directory / f"{scheme}-{name}"):
          proxy.clear()
          write(root, files, f"{root}/{name}")
          num_requests[name, root] = len(proxy.requests)
          expected[name, root] = read(
            f"{root}/{name}", directory / f"{scheme}-{name}" / "read"
          )
        places.append((name, proxy, root))
    for number in itertools.count():
      yield functools.partial(case, number, *places[number % len(places)])


@contextlib.contextmanager
def _without_retries() -> Iterator[None]:
  # After `_stored` has set its own.
  with mock.patch.object(requests, "RETRY_DELAYS_S", ()):
    yield


@contextlib.contextmanager
def _without_hedging() -> Iterator[None]:
  hedged = requests.hedged
  with mock.patch.object(
    requests, "hedged", lambda request, after, sent: hedged(request, None, sent)
  ):
    yield


@contextlib.contextmanager
def _without_checksums() -> Iterator[None]:
  with mock.patch.object(checksums, "crc32c", return_value=0):
    yield


@contextlib.contextmanager
def _without_versions() -> Iterator[None]:
  read = bucket.BucketStorage.read

  def without_version(self, *arguments, **options):
    return read(self, *arguments, **{**options, "version": None})

  with mock.patch.object(bucket.BucketStorage, "read", without_version):
    yield


_RETRIES = harness.Guard("retries", _without_retries)
_CHECKSUMS = harness.Guard("checksums", _without_checksums)
_VERSIONS = harness.Guard("versions", _without_versions)
_HEDGING = harness.Guard("second requests", _without_hedging)

FAULTS = (
  harness.Fault(
    "writes",
    "requests of a prepare from bucket to bucket, of a copy or of a checkpoint"
    " fail, or their answers are lost: nothing is noticed; for ever: an error",
    _writes,
    _RETRIES,
    few=24,
    many=300,
  ),
  harness.Fault(
    "resets",
    "connections of up to 7 requests are reset: nothing is noticed",
    functools.partial(_cases, FORMATS, _reset),
    _RETRIES,
    few=24,
    many=500,
  ),
  harness.Fault(
    "storms",
    "429 or 5xx for up to 7 requests: nothing is noticed; for ever: an error",
    functools.partial(_cases, FORMATS, _storm),
    _RETRIES,
    few=24,
    many=500,
  ),
  harness.Fault(
    "short-bodies",
    "answers that end before their end: nothing is noticed",
    functools.partial(_cases, FORMATS, _short),
    _RETRIES,
    few=24,
    many=500,
  ),
  harness.Fault(
    "flips-in-transit",
    "a bit of an answer, of what has checksums: it is asked again",
    functools.partial(_cases, SUMMED, _flip),
    _CHECKSUMS,
    few=36,
    many=500,
  ),
  harness.Fault(
    "replaced-objects",
    "an object is another one from some request on: an error that names it",
    _replaced,
    _VERSIONS,
    few=60,
    many=500,
  ),
  harness.Fault(
    "slow-tails",
    "an answer with tokens takes 8 s: a second request gets them",
    functools.partial(_cases, STORES, _slow),
    _HEDGING,
    few=24,
    many=200,
  ),
)
