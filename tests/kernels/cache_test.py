# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Loops are compiled once, in a child process, and cached in private."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import types

import pytest

from chomp_data.kernels import private_files

cache = pytest.importorskip("chomp_data.kernels.cache")

LOAD = """
  from chomp_data.kernels import compiled
  print(compiled.wait())
"""
# Fails where something is to be compiled.
LOAD_ONLY = """
  from chomp_data.kernels import cache
  cache._run_compiler = None
  loops = cache.load()
  print(sorted(loops), any(f.stats.cache_misses for f in loops.values()))
"""
LOADED = "['copy_spans', 'first_fit', 'placed'] False\n"


def run(program, cache_home, directory=None, umask=-1):
  """What a fresh process prints, and what it logs."""
  done = subprocess.run(
    [sys.executable, "-c", textwrap.dedent(program)],
    capture_output=True,
    text=True,
    cwd=directory,
    umask=umask,
    env={
      **os.environ,
      "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
      "CHOMP_DATA_KERNELS": "",
      "XDG_CACHE_HOME": str(cache_home),
    },
  )
  assert done.returncode == 0, done.stderr
  return done.stdout, done.stderr


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory):
  """A user's cache of compiled loops, made where a umask lets all write."""
  home = tmp_path_factory.mktemp("once")
  assert run(LOAD, home, umask=0) == ("True\n", "")
  return home


@pytest.fixture
def home(compiled_once, tmp_path):
  """A copy of it."""
  return shutil.copytree(compiled_once, tmp_path / "cache")


def directory_of(home):
  (path,) = (home / "chomp_data_kernels").iterdir()
  return path


def test_other_processes_load_what_one_has_compiled(home):
  assert run(LOAD_ONLY, home) == (LOADED, "")


def test_where_a_umask_lets_all_write_the_cache_is_private(compiled_once):
  paths = list((compiled_once / "chomp_data_kernels").rglob("*"))
  assert {path.suffix for path in paths} >= {".nbi", ".nbc"}
  for path in paths:
    assert not path.stat().st_mode & 0o022


@pytest.mark.parametrize(
  ("of", "complete"), [("**/*.nbi", True), ("**/*.nbc", False), (".", True)]
)
def test_code_that_others_can_write_is_not_loaded(home, of, complete):
  if not complete:
    # Neither by the compiler.
    (directory_of(home) / "complete").unlink()
  paths = [directory_of(home)] if of == "." else directory_of(home).glob(of)
  path = sorted(paths)[0]
  path.chmod(0o770)
  printed, logged = run(LOAD, home)
  assert printed == "False\n"
  (line,) = logged.splitlines()
  assert f"{path} must not be writable for group or others" in line
  assert "NumPy does the work" in line


def test_code_in_another_place_than_was_checked_is_not_loaded(home):
  directory = private_files.make(home / "other")
  cache.load()  # From where this process has its cache.
  with pytest.raises(private_files.UnsafeError, match="numba's cache must be"):
    cache.compiled_in(directory)


@pytest.mark.parametrize("setting", ["", "cache"])
def test_without_a_home_nothing_is_cached_and_one_line_says_so(
  tmp_path, setting
):
  # As where neither $HOME nor the list of users has one.
  program = "\n  import os\n  os.path.expanduser = lambda path: path" + LOAD
  # Of whoever made the directory that the process is in.
  for place in ("~/.cache", "cache", ".cache"):
    (tmp_path / place / "chomp_data_kernels").mkdir(parents=True)
  before = sorted(tmp_path.rglob("*"))
  printed, logged = run(program, setting, directory=tmp_path)
  assert printed == "False\n"
  (line,) = logged.splitlines()
  assert "there is no home directory" in line
  assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("size", [0, 1_000])
@pytest.mark.slow
def test_a_file_that_was_cut_short_is_compiled_again_by_the_next_process(
  home, size
):
  file = sorted(directory_of(home).glob("**/*.nbc"))[0]
  file.write_bytes(file.read_bytes()[:size])
  printed, logged = run(LOAD, home)
  assert printed == "False\n"
  assert len(logged.splitlines()) == 1
  assert run(LOAD, home) == ("True\n", "")
  assert run(LOAD_ONLY, home) == (LOADED, "")


@pytest.mark.slow
def test_what_a_killed_compiler_left_is_completed(home):
  (directory_of(home) / "complete").unlink()
  file = sorted(directory_of(home).glob("**/*.nbc"))[0]
  file.unlink()
  assert run(LOAD, home) == ("True\n", "")
  assert run(LOAD_ONLY, home) == (LOADED, "")


def test_numba_that_fails_leaves_the_work_to_numpy(tmp_path, monkeypatch):
  lost = types.SimpleNamespace(
    path=[], executable=sys.executable, implementation=sys.implementation
  )
  monkeypatch.setattr(cache, "sys", lost)
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  with pytest.raises(RuntimeError, match="No module named"):
    cache.load()
  assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def children_of(pid):
  return [
    int(child)
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
    for child in (task / "children").read_text().split()
  ]


def is_running(pid):
  try:
    return "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2]
  except OSError:
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_compiler_ends_with_the_process_that_waits_for_it(tmp_path):
  begun, stub = tmp_path / "begun", tmp_path / "stub" / "numba"
  # The parent has numba; to its child it says that it has begun, for ever.
  program = f"""
    import sys
    from chomp_data.kernels import cache
    sys.path.insert(0, {str(stub.parent)!r})
    cache.load()
  """
  stub.mkdir(parents=True)
  (stub / "__init__.py").write_text(
    f"import time; open({str(begun)!r}, 'x').close(); time.sleep(600)"
  )
  env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
  env["TMPDIR"] = str(tmp_path / "tmp")
  env["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
  (tmp_path / "tmp").mkdir()
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
  for place in ("tmp", "cache"):
    assert not [p for p in (tmp_path / place).rglob("*") if p.is_file()]
