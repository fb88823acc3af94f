# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The claim of a store's one writer in a bucket.

    gs://BUCKET/corpus.claim/writer.json    {"writer": ..., "store": ..., ...}

A writer creates this object before it writes anything, only where there is
none, and removes it after the manifest. Meanwhile a thread renews it every
`RENEW_S`, each time only in the place of the version that it wrote last.

A later writer watches a claim that it meets. Once it is renewed its writer is
alive, and the later one ends with an error. A claim is taken over (one write,
only in the place of the version that was watched) where its writer

- noted that it failed, or
- ran on this machine and its process has ended, or
- has not renewed it for `SILENT_S`, by the clock of the one who watches.

A writer that was stopped for so long finds its claim gone before it writes the
manifest, and fails. The claim says what the objects beside it are of (`store`),
so that a writer of the same store that takes the claim over keeps them, and
others remove them first.
"""

from collections.abc import Iterator
import contextlib
import datetime
import json
import os
import pathlib
import secrets
import socket
import threading
import time
from typing import Any

from absl import logging

from chomp_data import errors
from chomp_data.storage import bucket
from chomp_data.storage import storage
from chomp_data.threads import heartbeat

NAME = "writer.json"

RENEW_S = 10.0
SILENT_S = 120.0
LOOK_INTERVAL_S = 1.0

# The claims that this process holds.
_held: set[str] = set()


def claim_url(path: str) -> str:
  """Returns the URL below which the claim of a store is."""
  return f"{path}.claim"


class Claim:
  """A claim that this process holds.

  Attributes:
    left: What the objects beside the claim are of, as `held` takes it; None
      where they are of several stores, or of one that is being removed.
  """

  def __init__(self, path: str, store: str):
    """Requests nothing; the arguments are those of `held`."""
    self.left: str | None = store
    self._path = path
    self._objects = bucket.BucketStorage(claim_url(path))
    self._token = secrets.token_hex(16)
    self._since = datetime.datetime.now(datetime.UTC).isoformat()
    # What this process wrote last, or what it took over.
    self._written = storage.ObjectInfo(NAME, 0, None)
    self._renewals = 0
    self._wrote = False
    self._lost = False
    self._lock = threading.Lock()
    self._end = threading.Event()
    self._thread = threading.Thread(
      target=self._renew_always, name="chomp_data-claim", daemon=True
    )

  def note(self, left: str | None) -> None:
    """Notes in the claim which store the objects beside it are of.

    Raises:
      StoreError: If another writer took the claim over.
    """
    self.left = left
    self._wrote = True
    self.renew()

  def renew(self, **more: Any) -> None:
    """Writes the claim again, in the place of the one written last.

    Raises:
      StoreError: If another writer took it over.
    """
    with self._lock:
      if not self._lost:
        self._renewals += 1
        written = self._objects.replace(
          NAME, self._record(**more), self._written
        )
        self._lost = written is None
        self._written = written or self._written
      if self._lost:
        raise errors.StoreError(
          f"{self._path} must have one writer, but another one took over the"
          f" claim {self._objects.url(NAME)}, which this process did not renew"
          f" for over {SILENT_S:g} s. Run it again once the other one ended."
        )

  def acquire(self) -> None:
    """Takes the claim, waiting until that of a writer that ended is free.

    Raises:
      StoreError: If another writer is alive.
    """
    while True:
      data = self._record()
      if self._objects.put(NAME, data, create=True):
        written = self._written_as(data)
        if written is not None:
          self._written = written
          break
        continue
      try:
        there, info = self._objects.read(NAME)
      except FileNotFoundError:
        continue  # It was released meanwhile.
      other = _parsed(there)
      if not self._is_free(other, info):
        continue
      left = other.get("store")
      if left != self.left:
        self.left = None
      self._wrote = True
      logging.info(
        "the claim %s is taken over from %s",
        self._objects.url(NAME),
        _name(other),
      )
      taken = self._objects.replace(NAME, self._record(), info)
      if taken is not None:
        self._written = taken
        break
    _held.add(self._token)
    self._thread.start()

  def _written_as(self, data: bytes) -> storage.ObjectInfo | None:
    """Returns the version of the claim, or None if it does not hold `data`."""

    def check(answer: bytes) -> None:
      # A damaged answer is requested again; another writer's claim is not.
      writer = _parsed(answer).get("writer")
      if answer != data and writer in (None, self._token):
        raise ValueError("it is not what was written")

    try:
      answer, info = self._objects.read(NAME, check=check)
    except FileNotFoundError:
      return None
    return info if answer == data else None

  def release(self, failed: bool) -> None:
    """Removes the claim, or notes in it that its store is not complete.

    Raises:
      StoreError: If it cannot be written, or another writer took it over.
    """
    self._end.set()
    try:
      self._thread.join(RENEW_S)
      if failed and self._thread.is_alive():
        return  # The bucket does not answer.
      if failed and self._wrote:
        self.renew(ended=True)
      else:
        self.renew()
        self._objects.delete([NAME])
    finally:
      _held.discard(self._token)

  def wrote(self) -> None:
    """Notes that an object of the store was written."""
    self._wrote = True

  def finished(self, store: str) -> None:
    """Notes that the objects beside the claim are of a whole store."""
    self.left = store
    self._wrote = False

  def _record(self, **more: Any) -> bytes:
    record = {
      "writer": self._token,
      "store": self.left,
      "host": socket.gethostname(),
      "pid": os.getpid(),
      "process": _process(os.getpid()),
      "since": self._since,
      "renewals": self._renewals,
      **more,
    }
    return json.dumps(record, indent=1).encode()

  def _renew_always(self) -> None:
    while not self._end.wait(RENEW_S):
      try:
        self.renew()
      except errors.AccessError as error:
        logging.warning("%s is not renewed: %s", self._objects.url(NAME), error)
      except errors.StoreError:
        return  # The writer gets the error at its next renewal.

  def _is_free(self, other: dict[str, Any], info: storage.ObjectInfo) -> bool:
    """Watches a claim; returns whether its writer ended, False if it is gone.

    Raises:
      StoreError: If its writer is alive.
    """
    if _has_ended(other):
      return True
    if other.get("writer") not in _held:
      logging.info(
        "%s is claimed by %s: waiting until it renews the claim, for %g s",
        self._path,
        _name(other),
        SILENT_S,
      )
      until = time.monotonic() + SILENT_S
      while time.monotonic() < until:
        time.sleep(LOOK_INTERVAL_S)
        heartbeat.beat()
        try:
          there, now = self._objects.read(NAME)
        except FileNotFoundError:
          return False
        if now.version != info.version:
          other = _parsed(there)
          if _has_ended(other):
            return False  # It is looked at again.
          break
        if _has_ended(other):
          return True
      else:
        return True
    raise errors.StoreError(
      f"{self._path} must have one writer, but {_name(other)} is writing it"
      f" ({self._objects.url(NAME)}). Wait for it, or choose another output."
    )


@contextlib.contextmanager
def held(path: str, store: str) -> Iterator[Claim]:
  """Yields the claim to write a store at a URL.

  Args:
    path: The URL.
    store: What tells the store from others that may be written there: two
      writers that say the same write the same bytes.

  Raises:
    StoreError: If another writer has it, or the place cannot be written to.
  """
  claim = Claim(path, store)
  claim.acquire()
  try:
    yield claim
  except BaseException:
    # What went wrong is raised, and not that this could not be noted.
    with contextlib.suppress(errors.StoreError):
      claim.release(failed=True)
    raise
  claim.release(failed=False)


def tidy(path: str) -> None:
  """Removes the claim of a writer that ended after it finished its store."""
  objects = bucket.BucketStorage(claim_url(path))
  with contextlib.suppress(FileNotFoundError):
    if _has_ended(_parsed(objects.get(NAME))):
      objects.delete([NAME])


def _parsed(data: bytes) -> dict[str, Any]:
  """Returns the record of a claim; of no record an empty one."""
  try:
    record = json.loads(data)
  except ValueError:
    return {}
  return record if isinstance(record, dict) else {}


def _name(record: dict[str, Any]) -> str:
  return (
    f"process {record.get('pid')} of {record.get('host')!r} (since"
    f" {record.get('since')})"
  )


def _has_ended(record: dict[str, Any]) -> bool:
  """Whether a writer said that it ended, or ran here and did."""
  if record.get("ended"):
    return True
  process = record.get("process")
  if not isinstance(process, list) or len(process) != 3:
    return False
  here = _process(os.getpid())
  if here is None or process[:2] != here[:2]:
    return False  # Of another machine: nothing is known.
  pid = record.get("pid")
  if type(pid) is not int or _process(pid) != process:
    return True
  # Of this process, whose claim could not be removed.
  return pid == os.getpid() and record.get("writer") not in _held


def _process(pid: int) -> list[str] | None:
  """Returns what tells a process from all others, None where it is not.

  The start of the system, the namespace of process ids, and when the process
  began in ticks since.
  """
  try:
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    space = os.readlink("/proc/self/ns/pid")
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    state, *_ = fields.split()
    if state in "ZX":
      return (
        None  # A zombie: it has ended, and its parent has not waited for it.
      )
    return [boot, space, fields.split()[19]]
  except (OSError, IndexError, ValueError):
    return None
