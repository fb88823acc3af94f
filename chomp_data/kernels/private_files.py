# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Files of code that nobody but this user and root can have written.

As sshd checks a user's keys, every directory from the root on is checked, of
the path without links: it must belong to this user or root, and group and
others must not be able to write to it. A directory above may be writable where
it is sticky, as /tmp is, since others can then replace nothing of ours in it.
What is checked is what is open, so that a path that changes meanwhile has no
effect.
"""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import secrets
import stat

# To pass through a directory one need not be allowed to list it.
_PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY)
_SAFELY = os.O_NOFOLLOW | os.O_CLOEXEC
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


class UnsafeError(OSError):
  """A file or directory that another user may have written."""


def read(directory: pathlib.Path, name: str) -> bytes:
  """Returns the content of a file.

  Raises:
    UnsafeError: If others may have written it.
    OSError: If it is not there, or cannot be read.
  """
  with _opened(directory, create=False) as place:
    flags = os.O_RDONLY | os.O_NONBLOCK | _SAFELY
    with open(os.open(name, flags, dir_fd=place), "rb") as file:
      path = directory / name
      status = _checked(file.fileno(), path)
      if not stat.S_ISREG(status.st_mode):
        raise UnsafeError(f"{path} must be a file")
      return file.read()


def write(directory: pathlib.Path, name: str, data: bytes) -> None:
  """Puts a file in the place of one of that name; makes the directory.

  Raises:
    UnsafeError: If others may write to the directory.
    OSError: If it cannot be written.
  """
  with _opened(directory, create=True) as place:
    for other in os.listdir(place):
      # Of a process that was killed while it wrote; one that is writing now
      # fails to rename its file, and does without.
      if other.startswith(f"{name}."):
        with contextlib.suppress(FileNotFoundError):
          os.unlink(other, dir_fd=place)
    staged = f"{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY
    with open(os.open(staged, flags, 0o644, dir_fd=place), "wb") as file:
      file.write(data)
    os.rename(staged, name, src_dir_fd=place, dst_dir_fd=place)


@contextlib.contextmanager
def _opened(directory: pathlib.Path, *, create: bool) -> Iterator[int]:
  """Yields the descriptor of a directory; see the module."""
  if not directory.is_absolute():
    raise UnsafeError(f"{directory} must be an absolute path")
  path = pathlib.Path(os.path.realpath(directory))
  place = os.open(path.anchor, _PATH_ONLY | os.O_DIRECTORY | _SAFELY)
  try:
    for parent in [*reversed(path.parents), path][1:]:
      _checked(place, parent.parent, sticky=True)
      flags = (os.O_RDONLY if parent == path else _PATH_ONLY) | os.O_DIRECTORY
      try:
        below = os.open(parent.name, flags | _SAFELY, dir_fd=place)
      except FileNotFoundError:
        if not create:
          raise
        with contextlib.suppress(FileExistsError):
          os.mkdir(parent.name, 0o700, dir_fd=place)
        below = os.open(parent.name, flags | _SAFELY, dir_fd=place)
      os.close(place)
      place = below
    _checked(place, path)
    yield place
  finally:
    os.close(place)


def _checked(
  descriptor: int, path: pathlib.Path, *, sticky: bool = False
) -> os.stat_result:
  """Returns the status of what is open; raises UnsafeError."""
  status = os.fstat(descriptor)
  if status.st_uid not in (0, os.geteuid()):
    raise UnsafeError(
      f"{path} must belong to user {os.geteuid()} or root, got user"
      f" {status.st_uid}"
    )
  excused = sticky and status.st_mode & stat.S_ISVTX
  if status.st_mode & _WRITABLE and not excused:
    raise UnsafeError(
      f"{path} must not be writable for group or others, got mode"
      f" {stat.S_IMODE(status.st_mode):o}"
    )
  return status
