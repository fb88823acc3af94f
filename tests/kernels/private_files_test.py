# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A directory is refused if another user may have written anything in it."""

import os
import pathlib

import pytest

from chomp_data.kernels import private_files

OTHER = 12_345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may chown")


@pytest.fixture
def directory(tmp_path):
  """A directory with a directory with a file, `above/here/inner/code`."""
  path = private_files.make(tmp_path / "above" / "here")
  (path / "inner").mkdir(mode=0o700)
  (path / "inner" / "code").write_bytes(b"code")
  (path / "inner" / "code").chmod(0o600)
  return path


def checked(directory):
  """What is wrong with a directory, or None."""
  try:
    private_files.check(private_files.make(directory))
  except private_files.UnsafeError as error:
    return str(error)
  return None


def test_a_directory_of_this_user_is_safe(directory):
  assert checked(directory) is None
  assert directory.stat().st_mode & 0o777 == 0o700


PATHS = ["inner/code", "inner", ".", ".."]


@as_root
@pytest.mark.parametrize("of", PATHS)
def test_what_belongs_to_another_user_is_refused(directory, of):
  path = (directory / of).resolve()
  os.chown(path, OTHER, -1)
  wanted = f"{path} must belong to user 0 or root, got user 12345"
  assert checked(directory) == wanted


@pytest.mark.parametrize(
  ("of", "mode"), zip(PATHS, (0o777, 0o770, 0o707, 0o720), strict=True)
)
def test_what_others_can_write_is_refused(directory, of, mode):
  path = (directory / of).resolve()
  path.chmod(mode)
  wanted = f"{path} must not be writable for group or others, got mode {mode:o}"
  assert checked(directory) == wanted


def test_a_sticky_directory_above_is_as_safe_as_tmp(directory):
  directory.parent.chmod(0o1777)
  assert checked(directory) is None
  directory.chmod(0o1777)
  assert "must not be writable" in str(checked(directory))


@as_root
def test_a_directory_that_another_user_made_in_tmp_is_refused(
  directory, tmp_path
):
  shared = tmp_path / "shared"
  shared.mkdir()
  shared.chmod(0o1777)
  directory.parent.rename(shared / "above")
  directory.parent.symlink_to(shared / "above")
  assert checked(directory) is None
  os.chown(shared / "above", OTHER, -1)
  assert "got user 12345" in str(checked(directory))


@pytest.mark.parametrize("of", ["inner/code", "inner"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_links_and_special_files_are_refused(directory, tmp_path, of, kind):
  path = directory / of
  path.rename(tmp_path / "elsewhere")
  if kind == "link":
    path.symlink_to(tmp_path / "elsewhere")
  else:
    os.mkfifo(path)
  assert f"{path} must be a " in str(checked(directory))


def test_a_link_to_a_directory_of_another_mode_is_followed_and_checked(
  directory, tmp_path
):
  elsewhere = tmp_path / "elsewhere"
  directory.rename(elsewhere)
  directory.symlink_to(elsewhere)
  assert private_files.make(directory) == elsewhere.resolve()
  assert checked(directory) is None
  elsewhere.chmod(0o777)
  assert f"{elsewhere} must not be writable" in str(checked(directory))


def test_a_file_in_the_place_of_a_directory_is_refused(tmp_path):
  (tmp_path / "file").write_bytes(b"")
  for path in (tmp_path / "file", tmp_path / "file" / "below"):
    with pytest.raises(OSError, match="file"):
      private_files.make(path)


def test_a_relative_path_is_not_used(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(private_files.UnsafeError, match="an absolute path"):
    private_files.make(pathlib.Path("here"))
  assert not list(tmp_path.iterdir())
