# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where a store is to be: staged on a local disk, then there in one step.

A directory gets its name when it is complete. In a bucket a writer claims the
place first (see `claims`), so that one of several succeeds. Then it writes the
objects, and the manifest last, each of them only where there is none: the store
is complete from its manifest on, and a writer that was killed can be repeated.
"""

from collections.abc import Iterator
from concurrent import futures
import contextlib
import hashlib
import os
import pathlib

from chomp_data import errors
from chomp_data.stores import claims
from chomp_data.stores import heartbeat
from chomp_data.stores import places
from chomp_data.stores import publish
from chomp_data.stores import vocabulary
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import store_writer
from chomp_data.stores.zarr import zarr_opening

# Objects sent at once; each is in memory, a shard of 64 Mi tokens 128 MiB.
_TOGETHER = 4


class Destination:
  """A directory or URL that a store is written to.

  Attributes:
    path: The directory, or the URL.
  """

  def __init__(self, path: str | os.PathLike[str]):
    """Touches nothing yet.

    Raises:
      StoreError: If it is no place for a store.
    """
    self._place: places.ObjectPlace | None = None
    self._claim: claims.Claim | None = None
    self._store = ""
    # Whether this writer removed all objects since it holds the claim.
    self._cleared = False
    self.path: str = os.fspath(path)
    if places.is_url(path):
      self._place = places.ObjectPlace(self.path)
      self.path = self._place.path
      if not places.name_of(self.path):
        raise errors.StoreError(
          f"`path` must name a place in a bucket, got {self.path!r}. Give one"
          " below it."
        )
    else:
      publish.check_local(path)

  @property
  def is_url(self) -> bool:
    """Whether the store is to be in a bucket."""
    return self._place is not None

  @property
  def local(self) -> pathlib.Path:
    """What siblings are named after: what is staged lies beside it."""
    if self._place is None:
      return pathlib.Path(self.path)
    return places.staging(self.path)

  def holds_store(self) -> bool:
    """Returns whether there is a manifest."""
    if self._place is None:
      return pathlib.Path(self.path, manifest_lib.FILE).exists()
    try:
      self._place.read(manifest_lib.FILE)
    except FileNotFoundError:
      return False
    return True

  def check(self, overwrite: bool) -> None:
    """Checks that a store may be put here.

    Args:
      overwrite: Whether a store here may be replaced.

    Raises:
      StoreError: If something else is here, or a store and not `overwrite`.
    """
    if self._place is None:
      store_writer.check_destination(pathlib.Path(self.path), overwrite)
      return
    if not overwrite and self.holds_store():
      raise self._taken()

  @contextlib.contextmanager
  def claimed(self, store: str) -> Iterator[None]:
    """Holds the claim to write here, if this is in a bucket.

    Args:
      store: What tells the store from others; see `claims.held`.

    Raises:
      StoreError: If another writer has it, or it cannot be claimed.
    """
    if self._place is None or self._claim is not None:
      yield
      return
    with claims.held(self.path, store) as self._claim:
      try:
        self._store = store
        if self.holds_store():
          self._claim.finished(store)
        # What a writer of the same store has sent is kept; what one of another
        # store left unfinished is removed.
        elif self._claim.left != store:
          self.clear()
        yield
      finally:
        self._claim = None
        self._cleared = False

  def publish(self, staged: pathlib.Path, overwrite: bool) -> None:
    """Puts a complete store here; it is gone from where it was staged.

    Args:
      staged: Its directory, all files on disk.
      overwrite: Whether a store here may be replaced. In a bucket it is gone
        before the new one comes.

    Raises:
      StoreError: If something else came here, or it cannot be written.
    """
    self.check(overwrite)
    if self._place is None:
      publish.publish(staged, pathlib.Path(self.path))
      return
    manifest = (staged / manifest_lib.FILE).read_bytes()
    with self.claimed(hashlib.sha256(manifest).hexdigest()):
      self._send(staged, manifest, overwrite)

  def _send(
    self, staged: pathlib.Path, manifest: bytes, overwrite: bool
  ) -> None:
    """Sends a store to a bucket whose claim is held."""
    assert self._place is not None
    assert self._claim is not None
    if overwrite:
      self.clear()
    elif self.holds_store():
      raise self._taken()
    names = sorted(
      file.relative_to(staged).as_posix()
      for file in staged.rglob("*")
      if file.is_file()
    )
    names.remove(manifest_lib.FILE)
    with futures.ThreadPoolExecutor(_TOGETHER) as pool:
      sent = [pool.submit(self._send_file, staged, name) for name in names]
      try:
        for future in futures.as_completed(sent):
          future.result()
          heartbeat.beat()
      finally:
        for future in sent:
          future.cancel()
    self._claim.renew()
    if self._cleared:
      # Requests of a writer that was killed may have been carried out since.
      parsed = manifest_lib.parse(manifest, manifest_lib.FILE)
      known = {*zarr_opening.file_sizes(parsed), manifest_lib.FILE}
      self._place.delete(set(self._place.names()) - known)
    if not self._put(manifest_lib.FILE, manifest):
      raise self._taken()

  def clear(self) -> None:
    """Removes the store that is here, in a bucket whose claim is held.

    Raises:
      StoreError: If something else is here.
    """
    assert self._place is not None
    assert self._claim is not None
    names = self._place.names()
    foreign = [name for name in names if not _is_of_store(name)]
    if foreign:
      raise errors.StoreError(
        f"{self.path} must hold a store or nothing, got an object"
        f" {foreign[0]!r}. Choose another output."
      )
    self._claim.note(None)
    self._place.delete([manifest_lib.FILE])
    self._place.delete(names)
    self._claim.note(self._store)
    self._cleared = True

  def tidy(self) -> None:
    """Removes what a writer left that was killed once its store was whole."""
    if self._place is not None:
      claims.tidy(self.path)

  def _send_file(self, staged: pathlib.Path, name: str) -> None:
    self.send(name, (staged / name).read_bytes())

  def send(self, name: str, data: bytes) -> None:
    """Puts an object of a store into a bucket, before its manifest.

    Raises:
      StoreError: If one with other bytes is there.
    """
    if not self._put(name, data):
      raise self._other(name)

  def _put(self, name: str, data: bytes) -> bool:
    """Writes an object; returns False where another one is there."""
    assert self._place is not None
    if self._claim is not None:
      self._claim.wrote()
    # What a run that was killed has sent is as it should be.
    if self._place.create(name, data) or self._place.holds(name, data):
      return True
    if self._claim is None or not self._cleared:
      return False
    # It came after all was removed, from a writer that lost the claim. Read
    # before the claim is renewed, it is none of a writer that took it over.
    _, generation = self._place.read_versioned(name)
    self._claim.renew()
    return self._place.replace(name, data, generation) is not None

  def _other(self, name: str) -> errors.StoreError:
    assert self._place is not None
    return errors.StoreError(
      f"{self._place.file(name)} must not exist, got an object of another"
      " store. Choose another output, or replace what is there with"
      " --overwrite."
    )

  def _taken(self) -> errors.StoreError:
    return errors.StoreError(
      f"{places.join(self.path, manifest_lib.FILE)} must not exist, got a store"
      " there: another writer was first. Choose another output, or replace it"
      " with --overwrite."
    )


@contextlib.contextmanager
def at(path: str | os.PathLike[str]) -> Iterator[Destination]:
  """Yields a destination, which no other process of this machine writes to.

  Raises:
    StoreError: If another one does, or it is no place for a store.
  """
  found = Destination(path)
  with publish.lock(found.local):
    yield found


def _is_of_store(name: str) -> bool:
  known = {
    *manifest_lib.ARRAYS,
    *(own for group in manifest_lib.OPTIONAL_ARRAYS for own in group),
    *filter(None, vocabulary.TOKENIZER_FILES.values()),
    chunk_tables.FOLDER,
    manifest_lib.FILE,
  }
  return name.partition("/")[0] in known
