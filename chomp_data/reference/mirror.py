# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a run keeps in an object store: copies of what is on a local disk.

    URL/STEP/complete.json           last, and only where there is none
    URL/STEP/ATTEMPT/FILE            the files of the checkpoint
    URL/STEP/ATTEMPT/FILE@OFFSET     what follows of a large one

A step is there from its `complete.json` on, which names the attempt that wrote
it and what each object must be. A process that is killed before leaves objects
that nobody takes for a checkpoint; they go when a later step is complete.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import json
import pathlib
import secrets
from typing import Any

from absl import logging

from chomp_data import errors
from chomp_data.loading import saved_states
from chomp_data.storage import bucket
from chomp_data.storage import checksums
from chomp_data.storage import relative_names
from chomp_data.stores import json_values
from chomp_data.threads import together

COMPLETE = saved_states.COMPLETE

# Objects sent or fetched at once, and the bytes of the largest.
MAX_TRANSFERS = 8
BLOCK_BYTES = 32 * 2**20

# Where Orbax wrote to a bucket by itself, it says so of a whole step.
_OF_ORBAX = "commit_success.txt"


# What `complete.json` is called of a step that another run went back behind.
_SET_ASIDE = "set_aside.json"


class DamagedError(errors.StoreError):
  """A checkpoint is not as it was sent."""


class Mirror:
  """The checkpoints of a run at a URL."""

  def __init__(self, url: str, keep: int | None):
    """Binds a bucket.

    Args:
      url: Where the steps are.
      keep: How many of the newest steps are kept; None keeps all.
    """
    self._place = bucket.BucketStorage(url)
    self._keep = keep

  def steps(self) -> list[int]:
    """Returns the whole steps, ascending.

    Raises:
      StoreError: If there are only checkpoints of another layout, or the place
        cannot be listed.
    """
    names = self._place.names()
    steps = _complete(names)
    # In what this tool sends it lies deeper, in an attempt's folder.
    if not steps and any(
      name.count("/") == 1 and name.endswith(f"/{_OF_ORBAX}") for name in names
    ):
      raise errors.StoreError(
        f"{self._place.path} must hold checkpoints as this tool mirrors them,"
        " got some that Orbax wrote there by itself. Copy them to"
        " DIRECTORY/checkpoints, and resume with --workdir=DIRECTORY."
      )
    return sorted(steps)

  def fetch(self, step: int, directory: pathlib.Path) -> None:
    """Brings a whole step to a directory that is not there yet.

    Raises:
      DamagedError: If an object is missing, or not what was sent.
      StoreError: If one cannot be read.
    """
    try:
      data = self._place.get(f"{step}/{COMPLETE}", check=_parsed)
    except (FileNotFoundError, ValueError) as error:
      if isinstance(error, errors.AccessError):
        raise
      raise self._damaged(step, f"{COMPLETE}: {error}") from error
    # A new directory: no links are in it, and none comes with objects.
    directory.mkdir(parents=True)
    try:
      record = _parsed(data)
      for name in record.files:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch(exist_ok=False)
    except (ValueError, FileExistsError, NotADirectoryError) as error:
      raise self._damaged(step, f"{COMPLETE}: {error}") from error

    def bring(block: tuple[str, int, int]) -> None:
      name, begin, expected = block
      object_name = _object(step, record.attempt, name, begin)

      def check(data: bytes) -> None:
        if checksums.crc32c(data) != expected:
          raise self._damaged(step, f"other bytes in {object_name}")

      try:
        data = self._place.get(object_name, check=check)
      except FileNotFoundError:
        raise self._damaged(step, f"no object {object_name}") from None
      with open(directory / name, "r+b") as file:
        file.seek(begin)
        file.write(data)

    blocks = (
      (name, i * BLOCK_BYTES, expected)
      for name, crc32c in record.files.items()
      for i, expected in enumerate(crc32c)
    )
    together.for_all(bring, blocks, MAX_TRANSFERS)

  def send(self, step: int, directory: pathlib.Path) -> None:
    """Makes a step of a directory; then removes those not to be kept.

    Raises:
      StoreError: If it cannot be written, or another run was first.
    """
    attempt = secrets.token_hex(8)
    files = {
      file.relative_to(directory).as_posix(): file.stat().st_size
      for file in sorted(directory.rglob("*"))
      if file.is_file()
    }
    for name in files:
      relative_names.check(name, directory)
    crc32c: dict[str, list[int]] = {
      name: [0] * -(-size // BLOCK_BYTES) for name, size in files.items()
    }

    def send(block: tuple[str, int]) -> None:
      name, begin = block
      with open(directory / name, "rb") as file:
        file.seek(begin)
        data = file.read(BLOCK_BYTES)
      crc32c[name][begin // BLOCK_BYTES] = checksums.crc32c(data)
      self._place.put(_object(step, attempt, name, begin), data)

    blocks = (
      (name, begin)
      for name, size in files.items()
      for begin in range(0, size, BLOCK_BYTES)
    )
    together.for_all(send, blocks, MAX_TRANSFERS)
    record = dataclasses.asdict(_Complete(attempt, crc32c))
    record["crc32c"] = _crc32c(record)
    data = json.dumps(record, indent=1).encode()
    if not self._place.put(f"{step}/{COMPLETE}", data, create=True):
      raise errors.StoreError(
        f"{self._place.url(f'{step}/{COMPLETE}')} must not exist, got a"
        " checkpoint there: another run writes to this work directory. End one"
        " of them, or give it another --workdir."
      )
    try:
      self._tidy(step, attempt)
    except errors.StoreError as error:
      logging.warning("checkpoints that are too old stay: %s", error)

  def set_aside(self, step: int) -> str:
    """Makes a whole step one that no run goes on from.

    Its objects stay until a run has a later step.

    Returns:
      What to rename it back.
    """
    name = f"{step}/{COMPLETE}"
    data = self._place.get(name, check=_parsed)
    self._place.put(f"{step}/{_SET_ASIDE}", data)
    self._place.delete([name])
    return self._place.url(f"{step}/{_SET_ASIDE}")

  def _tidy(self, step: int, attempt: str) -> None:
    """Removes steps not to be kept, and what other attempts left behind."""
    names = self._place.names()
    steps = sorted(_complete(names))
    newest = set(steps if self._keep is None else steps[-self._keep :])
    prefixes = (f"{step}/{COMPLETE}", f"{step}/{attempt}/")
    removed_names = [
      name
      for name in names
      if (number := _step(name)) is not None
      and number <= step
      and (number not in newest or number == step)
      and not name.startswith(prefixes)
    ]
    # First what makes a step whole, so that none is seen with parts of it gone.
    self._place.delete(
      name for name in removed_names if name.endswith(COMPLETE)
    )
    self._place.delete(
      name for name in removed_names if not name.endswith(COMPLETE)
    )

  def _damaged(self, step: int, got: str) -> DamagedError:
    return DamagedError(
      f"{self._place.url(str(step))} must hold a whole checkpoint, got {got}."
    )


class Files:
  """Other files of a run, sent whole as often as they have changed."""

  def __init__(self, url: str, directory: pathlib.Path, apart: str):
    """Binds a directory and a bucket.

    Args:
      url: Where they are kept.
      directory: Where the run writes them.
      apart: A folder there whose files are none of them.
    """
    self._place = bucket.BucketStorage(url)
    self._directory = directory
    self._apart = f"{apart}/"
    # What is there, as it was when it was sent: size and time.
    self._sent: dict[str, tuple[int, int]] = {}

  def fetch(self, names: Sequence[str]) -> None:
    """Brings those files that are there.

    Raises:
      StoreError: If one cannot be read.
    """
    for name in names:
      with contextlib.suppress(FileNotFoundError):
        (self._directory / name).write_bytes(self._place.get(name))
    self._sent = self._local_files()

  def send(self) -> None:
    """Sends what has changed, and removes what is gone.

    Raises:
      StoreError: If one cannot be written.
    """
    files = self._local_files()
    changed = [name for name in files if files[name] != self._sent.get(name)]
    together.for_all(self._send, changed, MAX_TRANSFERS)
    self._place.delete(self._sent.keys() - files.keys())
    self._sent = files

  def _send(self, name: str) -> None:
    # It may be gone again.
    with contextlib.suppress(FileNotFoundError):
      self._place.put(name, (self._directory / name).read_bytes())

  def _local_files(self) -> dict[str, tuple[int, int]]:
    files = {}
    for path in self._directory.rglob("*"):
      name = path.relative_to(self._directory).as_posix()
      # A hidden file is one that was being written when a run was killed.
      if name.startswith(self._apart) or path.name.startswith("."):
        continue
      if path.is_file():
        status = path.stat()
        files[name] = status.st_size, status.st_mtime_ns
    return files


@dataclasses.dataclass(frozen=True)
class _Complete:
  """What `complete.json` says.

  Attributes:
    attempt: The folder of the checkpoint's objects.
    files: CRC-32C of each block, by file.
  """

  attempt: str
  files: dict[str, list[int]]


def _crc32c(record: Mapping[str, Any]) -> int:
  return checksums.crc32c(json.dumps(record, sort_keys=True).encode())


def _parsed(data: bytes) -> _Complete:
  """Returns what a `complete.json` says; those of older versions have no sum.

  Raises:
    ValueError: If it is not what `Mirror.send` writes.
  """
  stored = json_values.parse(dict[str, Any], data, COMPLETE)
  expected = stored.pop("crc32c", None)
  if expected not in (None, _crc32c(stored)):
    raise ValueError(f"{COMPLETE} has other bytes than were written")
  record = json_values.decode(_Complete, stored, COMPLETE)
  for name in (record.attempt, *record.files):
    relative_names.check(name, COMPLETE)
  return record


def _object(step: int, attempt: str, name: str, begin: int) -> str:
  return f"{step}/{attempt}/{name}" + (f"@{begin}" if begin else "")


def _step(name: str) -> int | None:
  """Returns the step that an object is of, None where it is of none."""
  first = name.partition("/")[0]
  return int(first) if first.isascii() and first.isdigit() else None


def _complete(names: Iterable[str]) -> set[int]:
  """Returns the steps that are whole."""
  # What lies deeper is no step of this run.
  return set(
    saved_states.whole_steps(name for name in names if name.count("/") == 1)
  )
