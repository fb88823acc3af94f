# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where a store is written: a directory, or a prefix of a bucket.

A directory is staged beside its destination and gets its name when it is
complete. In a bucket a writer claims the destination first (see `claims`), so
that one of several succeeds. Then it writes the objects, and the manifest last,
each of them only where there is none: the store is complete from its manifest
on, and a writer that was killed can be repeated.
"""

import abc
from collections.abc import Iterator
import contextlib
import functools
import hashlib
import os
import pathlib

from chomp_data import errors
from chomp_data.storage import bucket
from chomp_data.storage import claims
from chomp_data.storage import opening
from chomp_data.storage import paths
from chomp_data.storage import publish
from chomp_data.stores.zarr import array_writer
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import store_writer
from chomp_data.stores.zarr import zarr_opening
from chomp_data.threads import together

# Objects sent at once; each is in memory, a shard of 64 Mi tokens 128 MiB.
_SENT_TOGETHER = 4


class Destination(abc.ABC):
  """Where a store is written.

  Attributes:
    path: The directory, or the URL.
    local: The path on this machine that is locked, and that the names of
      staged directories begin with.
    work: The directory or URL of what is kept until the store is published.
    shards: The directory or URL that shard files are written to.
  """

  path: str
  local: pathlib.Path
  work: str
  shards: str

  @property
  def staged(self) -> pathlib.Path:
    """The local directory of all files of the store that are no shards."""
    return publish.beside(self.local, ".partial") / "store"

  @abc.abstractmethod
  def holds_store(self) -> bool:
    """Returns whether there is a manifest."""

  @abc.abstractmethod
  def check(self, overwrite: bool) -> None:
    """Checks that a store may be put here.

    Args:
      overwrite: Whether a store here may be replaced.

    Raises:
      StoreError: If something else is here, or a store and not `overwrite`.
    """

  def claimed(self, store: str) -> contextlib.AbstractContextManager[None]:
    """Holds the claim to write here.

    Args:
      store: Identifies the store; two writers that give the same write the
        same bytes.

    Raises:
      StoreError: If another writer has the claim, or nothing can be written.
    """
    del store
    return contextlib.nullcontext()

  def begin(self, overwrite: bool) -> None:
    """Prepares for shard files; the claim is held.

    Raises:
      StoreError: As `check`.
    """
    self.check(overwrite)

  @abc.abstractmethod
  def publish(self, staged: pathlib.Path, overwrite: bool) -> None:
    """Completes a store; what was staged is removed.

    Args:
      staged: A local directory, of all files of the store but those that were
        written to `shards`.
      overwrite: Whether a store here may be replaced. In a bucket it is removed
        before the new one is written.

    Raises:
      StoreError: If something else came here, or it cannot be written.
    """

  def tidy(self) -> None:
    """Removes what runs leave that are killed, but the store."""
    with contextlib.suppress(FileNotFoundError):
      opening.open_storage(publish.beside(self.local, ".partial")).clear()


class _Directory(Destination):
  """A directory."""

  def __init__(self, path: str | os.PathLike[str]):
    opening.open_local(path)
    self.path: str = os.fspath(path)
    self.local: pathlib.Path = publish.target(pathlib.Path(path))
    self.work: str = f"{os.path.abspath(self.local)}.partial"
    self.shards: str = f"{self.work}/store"

  def holds_store(self) -> bool:
    return (self.local / manifest_lib.FILE).exists()

  def check(self, overwrite: bool) -> None:
    store_writer.check_destination(self.local, overwrite)

  def begin(self, overwrite: bool) -> None:
    pass  # What is there is checked when it is replaced.

  def publish(self, staged: pathlib.Path, overwrite: bool) -> None:
    self.check(overwrite)
    publish.publish(staged, self.local)


class _Bucket(Destination):
  """A prefix of a bucket."""

  def __init__(self, place: bucket.BucketStorage):
    self._storage = place
    self._claim: claims.Claim | None = None
    self._store = ""
    # Whether this writer removed all objects since it holds the claim.
    self._cleared = False
    self.path: str = place.path
    if not paths.name_of(self.path):
      raise errors.StoreError(
        f"`path` must name a place in a bucket, got {self.path!r}. Give one"
        " below it."
      )
    self.local: pathlib.Path = paths.staging(self.path)
    self.work: str = f"{self.path}.partial"
    self.shards: str = self.path

  def holds_store(self) -> bool:
    return self._storage.head(manifest_lib.FILE) is not None

  def check(self, overwrite: bool) -> None:
    if not overwrite and self.holds_store():
      raise self._taken()

  @contextlib.contextmanager
  def claimed(self, store: str) -> Iterator[None]:
    if self._claim is not None:
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
          self._clear(self._claim)
        yield
      finally:
        self._claim = None
        self._cleared = False

  def begin(self, overwrite: bool) -> None:
    assert self._claim is not None
    self.check(overwrite)
    if overwrite and not self._cleared:
      self._clear(self._claim)

  def publish(self, staged: pathlib.Path, overwrite: bool) -> None:
    self.check(overwrite)
    manifest = (staged / manifest_lib.FILE).read_bytes()
    with self.claimed(hashlib.sha256(manifest).hexdigest()):
      self.begin(overwrite)
      self._send_all(staged, manifest)

  def tidy(self) -> None:
    super().tidy()
    opening.open_storage(self.work).clear()
    claims.tidy(self.path)

  def _send_all(self, staged: pathlib.Path, manifest: bytes) -> None:
    """Sends staged files, the manifest last."""
    assert self._claim is not None
    names = sorted(opening.open_storage(staged).names())
    names.remove(manifest_lib.FILE)
    send = functools.partial(self._send_file, staged)
    together.for_all(send, names, _SENT_TOGETHER)
    self._claim.renew()
    if self._cleared:
      # Requests of a writer that was killed may have been carried out since.
      parsed = manifest_lib.parse(manifest, manifest_lib.FILE)
      files = {*zarr_opening.file_sizes(parsed), manifest_lib.FILE}
      self._storage.delete(set(self._storage.names()) - files)
    if not self._put(manifest_lib.FILE, manifest):
      raise self._taken()

  def _send_file(self, staged: pathlib.Path, name: str) -> None:
    if not self._put(name, (staged / name).read_bytes()):
      raise array_writer.other_object(self._storage, name)

  def _put(self, name: str, data: bytes) -> bool:
    """Writes an object; returns False where another one is there."""
    assert self._claim is not None
    self._claim.wrote()
    if array_writer.put_same(self._storage, name, data):
      return True
    if not self._cleared:
      return False
    # It came after all was removed, from a writer that lost the claim. Read
    # before the claim is renewed, it is none of a writer that took it over.
    _, version = self._storage.read(name)
    self._claim.renew()
    return self._storage.replace(name, data, version) is not None

  def _clear(self, claim: claims.Claim) -> None:
    """Removes the objects that are here.

    Raises:
      StoreError: If one of them is of no store.
    """
    names = self._storage.names()
    for name in names:
      if not store_writer.is_of_store(name):
        raise errors.StoreError(
          f"{self.path} must hold a store or nothing, got an object {name!r}."
          " Choose another output."
        )
    claim.note(None)
    self._storage.delete([manifest_lib.FILE])
    self._storage.delete(names)
    claim.note(self._store)
    self._cleared = True

  def _taken(self) -> errors.StoreError:
    return errors.StoreError(
      f"{self._storage.url(manifest_lib.FILE)} must not exist, got a store"
      " there: another writer was first. Choose another output, or replace it"
      " with --overwrite."
    )


def open_destination(path: str | os.PathLike[str]) -> Destination:
  """Returns where a store is written; touches nothing yet.

  Args:
    path: A directory or a URL.

  Raises:
    StoreError: If no store can be there.
  """
  place = opening.open_storage(path)
  if isinstance(place, bucket.BucketStorage):
    return _Bucket(place)
  return _Directory(path)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[Destination]:
  """Yields a destination that no other process of this machine writes to.

  Raises:
    StoreError: If another one does, or no store can be there.
  """
  output = open_destination(path)
  with publish.lock(output.local):
    yield output
