# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Directories for code that only this user and root can write to.

As sshd does for a user's keys, every directory of the path (without links) is
checked from the root down: it must belong to this user or root, and group and
others must not be able to write to it. A parent directory may be writable if it
is sticky, as /tmp is, because others then cannot replace this user's files.
Others cannot replace a directory after it was checked, so the path is safe to
open afterwards.
"""

import contextlib
import os
import pathlib
import stat

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


class UnsafeError(OSError):
  """A file or directory that another user may have written."""


def make(directory: pathlib.Path) -> pathlib.Path:
  """Makes a directory that only this user can write to, if there is none.

  Returns:
    Its path without links.

  Raises:
    UnsafeError: If others may write to it, or replace it.
    OSError: If it cannot be made.
  """
  if not directory.is_absolute():
    raise UnsafeError(f"{directory} must be an absolute path")
  path = pathlib.Path(os.path.realpath(directory))
  for part in [*reversed(path.parents), path]:
    if not os.path.lexists(part):
      with contextlib.suppress(FileExistsError):
        os.mkdir(part, 0o700)
    _check(part, stat.S_IFDIR, sticky=part != path)
  return path


def check(directory: pathlib.Path) -> None:
  """Checks all files and directories in a directory made by `make`.

  Raises:
    UnsafeError: If others may have written some of it.
  """
  for parent, directories, files in os.walk(directory):
    for name in directories:
      _check(pathlib.Path(parent, name), stat.S_IFDIR)
    for name in files:
      _check(pathlib.Path(parent, name), stat.S_IFREG)


def _check(path: pathlib.Path, kind: int, *, sticky: bool = False) -> None:
  """Raises UnsafeError if others may write to a file or directory."""
  status = os.lstat(path)
  if stat.S_IFMT(status.st_mode) != kind:
    name = "directory" if kind == stat.S_IFDIR else "file"
    raise UnsafeError(f"{path} must be a {name}")
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
