# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Compiled code is read from where nobody else can have written it."""

import hashlib
import json
import logging
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from chomp_data.kernels import private_files

machine_code = pytest.importorskip("chomp_data.kernels.machine_code")

GOOD = {"loop": ["symbol", "Y29kZQ=="]}
BAD = {"loop": ["symbol", "b2YgYW5vdGhlcg=="]}
OTHER = 12_345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may chown")


def signed(loops):
  text = json.dumps(loops).encode()
  return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


@pytest.fixture
def compiled(tmp_path, monkeypatch):
  """How often the loops were compiled; the user's cache is in `tmp_path`."""
  calls = []

  def build():
    calls.append(1)
    return signed(GOOD)

  package = tmp_path / "package"
  package.mkdir()
  (package / "__pycache__").write_bytes(b"")  # No directory can be made there.
  for name in machine_code._SOURCES:
    (package / name).write_bytes(b"")
  monkeypatch.setattr(machine_code, "_HERE", package)
  monkeypatch.setattr(machine_code, "_build", build)
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  return calls


@pytest.fixture
def kept(compiled, tmp_path):
  """The file that the loops are kept in."""
  machine_code._kept()
  (file,) = (tmp_path / "cache" / "chomp_data_kernels").iterdir()
  compiled.clear()
  return file


def is_taken(compiled, kept):
  """Returns whether what is in the cache is loaded."""
  kept.write_bytes(signed(BAD))
  found = machine_code._kept()
  assert found in (GOOD, BAD)
  assert len(compiled) == (found == GOOD)
  return found == BAD


def test_code_in_a_directory_of_this_user_is_loaded(compiled, kept):
  assert is_taken(compiled, kept)
  assert kept.parent.stat().st_mode & 0o777 == 0o700


def test_where_a_umask_lets_all_write_the_cache_is_private(compiled, tmp_path):
  before = os.umask(0)
  try:
    machine_code._kept()
    machine_code._kept()
  finally:
    os.umask(before)
  assert len(compiled) == 1
  for path in (tmp_path / "cache").rglob("*"):
    assert not path.stat().st_mode & 0o022


def the_file(kept):
  return kept


def its_directory(kept):
  return kept.parent


def the_directory_above(kept):
  return kept.parent.parent


PATHS = [the_file, its_directory, the_directory_above]


@as_root
@pytest.mark.parametrize("of", PATHS)
def test_code_that_belongs_to_another_user_is_not_loaded(
  compiled, kept, of, caplog
):
  caplog.set_level(logging.INFO, "absl")
  os.chown(of(kept), OTHER, -1)
  assert not is_taken(compiled, kept)
  logged = [own.getMessage() for own in caplog.records]
  if of is the_file:
    # It was replaced by one of this user.
    assert kept.stat().st_uid == 0
    assert not logged
  else:
    (line,) = logged
    assert f"{of(kept)} must belong to user 0 or root, got user 12345" in line


@pytest.mark.parametrize("of", PATHS)
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707, 0o720])
def test_code_that_others_can_write_is_not_loaded(
  compiled, kept, of, mode, caplog
):
  caplog.set_level(logging.INFO, "absl")
  of(kept).chmod(mode)
  assert not is_taken(compiled, kept)
  if of is not the_file:
    (line,) = [own.getMessage() for own in caplog.records]
    assert f"{of(kept)} must not be writable for group or others" in line


def test_a_sticky_directory_above_is_as_safe_as_tmp(compiled, kept):
  kept.parent.parent.chmod(0o1777)
  assert is_taken(compiled, kept)
  kept.parent.chmod(0o1777)
  compiled.clear()
  assert not is_taken(compiled, kept)


@as_root
def test_a_directory_that_another_user_made_in_tmp_is_not_used(
  compiled, kept, tmp_path
):
  shared = tmp_path / "shared"
  shared.mkdir()
  shared.chmod(0o1777)
  kept.parent.parent.rename(shared / "cache")
  (tmp_path / "cache").symlink_to(shared / "cache")
  file = shared / "cache" / "chomp_data_kernels" / kept.name
  assert is_taken(compiled, file)
  os.chown(shared / "cache", OTHER, -1)
  compiled.clear()
  assert not is_taken(compiled, file)


@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_what_is_no_file_is_not_loaded(compiled, kept, tmp_path, kind):
  kept.unlink()
  if kind == "link":
    (tmp_path / "other.json").write_bytes(signed(BAD))
    kept.symlink_to(tmp_path / "other.json")
  elif kind == "directory":
    kept.mkdir()
  else:
    os.mkfifo(kept)
  assert machine_code._kept() == GOOD
  assert len(compiled) == 1


def test_a_link_to_a_directory_of_another_mode_is_followed_and_checked(
  compiled, kept, tmp_path
):
  elsewhere = tmp_path / "elsewhere"
  kept.parent.rename(elsewhere)
  kept.parent.symlink_to(elsewhere)
  assert is_taken(compiled, elsewhere / kept.name)
  elsewhere.chmod(0o777)
  compiled.clear()
  assert not is_taken(compiled, elsewhere / kept.name)


@pytest.mark.parametrize("cache", ["", "cache", None])
def test_without_a_home_nothing_is_kept_and_one_line_says_so(
  compiled, tmp_path, monkeypatch, caplog, cache
):
  caplog.set_level(logging.INFO, "absl")
  work = tmp_path / "work"
  # Of whoever made the directory that the process is in.
  for place in ("~/.cache", "cache", ".cache"):
    directory = work / place / "chomp_data_kernels"
    directory.mkdir(parents=True)
    name = f"loops-{machine_code._key()}.json"
    (directory / name).write_bytes(signed(BAD))
  monkeypatch.chdir(work)
  if cache is None:
    monkeypatch.delenv("XDG_CACHE_HOME")
  else:
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
  # As where neither $HOME nor the list of users has one.
  monkeypatch.setattr(os.path, "expanduser", lambda path: path)
  before = sorted(work.rglob("*"))
  assert machine_code._kept() == GOOD
  assert sorted(work.rglob("*")) == before
  (line,) = [own.getMessage() for own in caplog.records]
  assert "kept nowhere" in line
  assert "there is no home directory" in line


def test_what_a_killed_process_left_half_written_goes(kept):
  left = kept.with_name(f"{kept.name}.0123")
  left.write_bytes(b"half")
  other = kept.with_name("loops-other.json")
  other.write_bytes(b"of another version")
  kept.unlink()
  machine_code._kept()
  assert sorted(kept.parent.iterdir()) == sorted([kept, other])


def test_a_relative_path_is_not_used(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(private_files.UnsafeError, match="an absolute path"):
    private_files.write(pathlib.Path("here"), "name", b"")
  assert not list(tmp_path.iterdir())


def children_of(pid):
  found = pathlib.Path(f"/proc/{pid}/task")
  return [
    int(child)
    for task in found.iterdir()
    for child in (task / "children").read_text().split()
  ]


def is_running(pid):
  try:
    return "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2]
  except OSError:
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_compiler_ends_with_the_process_that_waits_for_it(tmp_path):
  program = f"""
    import os, pathlib
    from chomp_data.kernels import machine_code
    machine_code._HERE = pathlib.Path({str(tmp_path / "package")!r})
    machine_code._key = lambda: "key"
    machine_code._kept()
  """
  # It says that it has begun, and never ends by itself.
  begun = tmp_path / "begun"
  stub = tmp_path / "stub" / "numba"
  stub.mkdir(parents=True)
  (stub / "__init__.py").write_text(
    f"import time; open({str(begun)!r}, 'x').close(); time.sleep(600)"
  )
  env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
  env["TMPDIR"] = str(tmp_path / "tmp")
  env["PYTHONPATH"] = os.pathsep.join([str(stub.parent), *sys.path])
  (tmp_path / "tmp").mkdir()
  (tmp_path / "package").mkdir()
  parent = subprocess.Popen(
    [sys.executable, "-c", textwrap.dedent(program)], env=env
  )
  try:
    until = time.monotonic() + 60
    while not begun.exists():
      assert time.monotonic() < until
      assert parent.poll() is None
      time.sleep(0.02)
    compilers = children_of(parent.pid)
    assert compilers
  finally:
    parent.send_signal(signal.SIGKILL)
    parent.wait()
  until = time.monotonic() + 20
  while any(map(is_running, compilers)):
    assert time.monotonic() < until, "the compiler runs on"
    time.sleep(0.05)
  for place in ("tmp", "cache", "package"):
    assert not [own for own in tmp_path.rglob(f"{place}/*") if own.is_file()]
  assert not list((tmp_path / "tmp").iterdir())
