# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Files and directories that are at their paths whole or not at all.

Both are staged beside their destination, put on disk and renamed. A directory
has one writer at a time, the process that holds its lock.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import ctypes
import fcntl
import io
import os
import pathlib
import secrets
import shutil
import stat
import tempfile
from typing import Any
from typing import BinaryIO
from typing import cast

from chomp_data import errors

# Linux's renameat2: relative to the working directory; swap the two names.
_AT_FDCWD = -100
_EXCHANGE = 2


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
  """Opens a file to read; raises OSError where it is a fifo or a device."""
  if not stat.S_ISREG(os.stat(path).st_mode):
    raise OSError(f"{os.fspath(path)} is no file with contents")
  return open(path, "rb")


def read_file(path: str | os.PathLike[str]) -> bytes:
  """Returns a file's contents; raises OSError as `open_file`."""
  with open_file(path) as file:
    return file.read()


class _Named(io.FileIO):
  """A file whose errors say which it is: those of a full disk do not."""

  def write(self, data: Any) -> int:
    with _naming(self.name):
      return super().write(data)


def new_file(path: str | os.PathLike[str], mode: str = "xb") -> BinaryIO:
  """Opens a file to write bytes; an OSError of a full disk names it.

  Args:
    path: The file.
    mode: As `open` takes it, of bytes.
  """
  raw = _Named(os.fspath(path), mode)
  kind = io.BufferedRandom if "+" in mode else io.BufferedWriter
  return cast(BinaryIO, kind(raw))


def unnamed_file(directory: pathlib.Path | None) -> BinaryIO:
  """Opens a file that the system removes when it is closed.

  Args:
    directory: Where its bytes are; None for the system's directory.
  """
  descriptor, path = tempfile.mkstemp(dir=directory)
  os.close(descriptor)
  try:
    return new_file(path, "r+b")
  finally:
    os.unlink(path)


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
  """Writes a file's contents; an OSError names it."""
  with new_file(path, "wb") as file:
    file.write(data)


@contextlib.contextmanager
def staged_file(
  path: pathlib.Path,
  staged: pathlib.Path | None = None,
  *,
  create: bool = False,
  durable: bool = True,
) -> Iterator[BinaryIO]:
  """Yields a new file, which has its name once it is complete.

  Args:
    path: The file; its directory is made.
    staged: Where it is until then, on the same file system; a file beside it
      by default.
    create: Whether a file of that name stays, and this one is removed.
    durable: Whether it is on disk, too, once it has its name.

  Raises:
    FileExistsError: If `create`, and there is a file of that name.
  """
  staged = staged or _hidden(path)
  for directory in {staged.parent, path.parent}:
    directory.mkdir(parents=True, exist_ok=True)
  try:
    with new_file(staged) as file:
      yield file
      file.flush()
      if durable:
        os.fsync(file.fileno())
    if create:
      os.link(staged, path)
    else:
      os.replace(staged, path)
    if durable:
      sync(path.parent)
  finally:
    staged.unlink(missing_ok=True)


@contextlib.contextmanager
def _naming(path: Any) -> Iterator[None]:
  try:
    yield
  except OSError as error:
    raise OSError(error.errno, error.strerror, path) from error


def target(path: pathlib.Path) -> pathlib.Path:
  """Returns the path of a directory, or that to which a link there leads.

  A rename would replace the link, or fail, and may not leave its file system.
  """
  return pathlib.Path(os.path.realpath(path)) if path.is_symlink() else path


def beside(path: pathlib.Path, suffix: str) -> pathlib.Path:
  """Returns the sibling of a path with a suffix added to its name."""
  path = path.absolute()
  if not path.name:
    raise errors.StoreError(
      f"`path` must name a directory to create, got {os.fspath(path)!r}. Give"
      " one below it."
    )
  return path.with_name(path.name + suffix)


@contextlib.contextmanager
def lock(path: pathlib.Path) -> Iterator[None]:
  """Holds the one writer's lock of a destination; the kernel frees it.

  Args:
    path: The destination; the lock is the file `path`.lock beside it, gone
      when the lock is.

  Raises:
    StoreError: If another process is writing there, or nothing can be.
  """
  file = beside(path, ".lock")
  flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
  while True:
    try:
      file.parent.mkdir(parents=True, exist_ok=True)
      descriptor = os.open(file, flags, 0o644)
    except OSError as error:
      errors.check_open_files(error)
      raise errors.StoreError(
        f"{path} must be in a directory that can be made and written to, got"
        f" {error.filename}: {error.strerror}. Write elsewhere, or have it"
        " allowed."
      ) from error
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      os.close(descriptor)
      raise errors.StoreError(
        f"{path} must have one writer, but another process holds the lock"
        f" {file}. Wait for it, or write elsewhere."
      ) from None
    except OSError:
      # A file system without locks: not the same as another writer.
      os.close(descriptor)
      raise
    # The holder before us may have removed the file that we locked.
    if _same_file(descriptor, file):
      break
    os.close(descriptor)
  try:
    yield
  finally:
    file.unlink(missing_ok=True)
    os.close(descriptor)


@contextlib.contextmanager
def new_directory(
  path: pathlib.Path, check: Callable[[pathlib.Path], object] | None = None
) -> Iterator[pathlib.Path]:
  """Yields a path to make a directory at, which is published in the end.

  Args:
    path: The destination; of a link the directory to which it leads.
    check: Raises an error if what is at a path must stay there; called before
      and after. By default only an empty directory is replaced.

  Raises:
    StoreError: If something is at the path, or another process writes there.
  """
  path = target(path)
  check = check or _check_empty
  check(path)
  with staging(path) as staged:
    yield staged
    check(path)
    publish(staged, path)


@contextlib.contextmanager
def staging(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a free path beside a destination that is locked meanwhile.

  What is at that path in the end is removed.

  Raises:
    StoreError: If another process writes to the destination.
  """
  with lock(path):
    staged = beside(path, ".writing")
    shutil.rmtree(staged, ignore_errors=True)
    try:
      yield staged
    finally:
      shutil.rmtree(staged, ignore_errors=True)


@contextlib.contextmanager
def staged_directory(
  path: pathlib.Path,
  resumed: pathlib.Path | None = None,
  *,
  stays: bool = False,
) -> Iterator[pathlib.Path]:
  """Yields a directory beside a path, without a lock.

  It is removed in the end, if it is still there.

  Args:
    path: What it is renamed to.
    resumed: One that is `left_behind`, to continue it, or None for a new one.
    stays: Whether it is left behind if the block is interrupted; not by an
      OSError, since another place may be tried.
  """
  staged = resumed or _hidden(path)
  staged.mkdir(exist_ok=resumed is not None)
  is_left = False
  try:
    yield staged
  except OSError:
    raise
  except BaseException:
    is_left = stays
    raise
  finally:
    if not is_left:
      shutil.rmtree(staged, ignore_errors=True)


def left_behind(path: pathlib.Path) -> list[pathlib.Path]:
  """Returns the staged files and directories of a path."""
  return list(path.parent.glob(f".{path.name}.*"))


def _hidden(path: pathlib.Path) -> pathlib.Path:
  return path.with_name(f".{path.name}.{secrets.token_hex(8)}")


def _check_empty(path: pathlib.Path) -> None:
  """Raises StoreError where a path is no empty directory."""
  if path.exists() and (not path.is_dir() or os.listdir(path)):
    raise errors.StoreError(
      f"{path} must be an empty directory or not exist. Choose another output,"
      " or remove it."
    )


def publish(
  staged: pathlib.Path, path: pathlib.Path, durable: bool = True
) -> None:
  """Puts a complete directory on disk and renames it into place.

  Args:
    staged: The directory, on the same file system as its destination.
    path: The destination; what is there is replaced.
    durable: Whether it is on disk, too, once it has its name.
  """
  for folder, _, files in os.walk(staged) if durable else ():
    for name in [*files, ""]:
      sync(pathlib.Path(folder, name))
  if path.is_dir() and os.listdir(path):
    if _exchange(staged, path):
      shutil.rmtree(staged, ignore_errors=True)
    else:
      old = beside(path, ".old")
      shutil.rmtree(old, ignore_errors=True)
      os.rename(path, old)
      os.rename(staged, path)
      shutil.rmtree(old, ignore_errors=True)
  else:
    # An empty directory is replaced by the rename itself.
    os.rename(staged, path)
  if durable:
    sync(path.absolute().parent)


def _exchange(one: pathlib.Path, other: pathlib.Path) -> bool:
  """Swaps two directories in one step; False where the system cannot.

  With two renames a crash between them would leave no store at all.
  """
  try:
    rename = ctypes.CDLL(None, use_errno=True).renameat2
  except (OSError, AttributeError):
    return False
  status = rename(
    _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE
  )
  return status == 0


def bytes_on_disk(path: str | os.PathLike[str]) -> int:
  """Returns the bytes of the blocks that files below a directory take.

  Sparse files take fewer than their sizes. Where a file system does not count
  blocks, sizes are counted.
  """
  total = 0
  for folder, _, names in os.walk(path):
    for name in names:
      status = os.stat(os.path.join(folder, name))
      blocks = getattr(status, "st_blocks", None)
      total += status.st_size if blocks is None else 512 * blocks
  return total


def sync(path: pathlib.Path) -> None:
  """Puts a file or directory on disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    with _naming(path):
      os.fsync(descriptor)
  finally:
    os.close(descriptor)


def _same_file(descriptor: int, path: pathlib.Path) -> bool:
  try:
    return os.path.samestat(os.fstat(descriptor), os.stat(path))
  except FileNotFoundError:
    return False
