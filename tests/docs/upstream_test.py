# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Faults of dependencies are still there, and so are the workarounds.

Each program of docs/upstream.md runs by itself and prints what the page shows.
One that fails after an upgrade names what can be removed.
"""

import contextlib
import dataclasses
import importlib.metadata
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import pytest

from tests.docs import pages

# A worker starts within about three seconds.
HANG_S = 20
_STILL_RUNNING = f"[still running after {HANG_S} s]"
_PACKAGES = {"Orbax": "orbax-checkpoint", "Grain": "grain", "JAX": "jax"}
# The JAX program itself waits longer than that; it ends by itself.
_LONGEST_S = 60


@dataclasses.dataclass(frozen=True)
class Fault:
  """A section of the page.

  Attributes:
    title: Its heading.
    seen: Package and version.
    workarounds: (file, name in it).
    program: What shows the fault.
    shown: What the program prints.
  """

  title: str
  seen: tuple[str, str]
  workarounds: tuple[tuple[str, str], ...]
  program: str
  shown: str


def faults() -> list[Fault]:
  """Returns the faults of the page, in order."""
  parts = re.split(r"^### (.*)\n", pages.text("upstream.md"), flags=re.M)[1:]
  out = []
  for title, text in zip(parts[::2], parts[1::2], strict=True):
    (seen,) = re.findall(r"^Seen in (\w+) ([\d.]+\d)\.", text, re.M)
    named = re.findall(r"`(chomp_data/[\w/]+\.py)`,\s`(\w+)`", text)
    programs = re.findall(r"^```(python|text)\n(.*?)^```$", text, re.M | re.S)
    (_, program), (_, shown) = programs
    out.append(Fault(title, seen, tuple(named), program, shown))
  return out


def run(program: str, directory: pathlib.Path, timeout_s: float) -> str:
  """Returns what a program prints, and whether it is then still running."""
  path = directory / "program.py"
  path.write_text(program)
  # A file: processes that are left would keep a pipe open.
  with tempfile.TemporaryFile("w+") as out:
    process = subprocess.Popen(
      [sys.executable, str(path)],
      cwd=directory,
      env={**os.environ, "JAX_PLATFORMS": "cpu"},
      stdout=out,
      stderr=subprocess.DEVNULL,
      start_new_session=True,
    )
    try:
      process.wait(timeout=timeout_s)
      ending = ""
    except subprocess.TimeoutExpired:
      ending = _STILL_RUNNING + "\n"
    finally:
      # Its workers too, those that its end left behind among them.
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
      process.wait()
    out.seek(0)
    return out.read() + ending


def _is_older(fault: Fault) -> bool:
  """Returns whether a version before the one of the page is installed."""
  name, version = fault.seen
  if name == "CPython":
    return False
  installed = importlib.metadata.version(_PACKAGES[name])
  return _numbers(installed) < _numbers(version)


def _numbers(version: str) -> list[int]:
  return [int(number) for number in re.findall(r"\d+", version)]


# Slow: they depend on versions alone, which a test below compares.
@pytest.mark.slow
@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.title)
def test_a_fault_is_still_there(fault, tmp_path):
  if _is_older(fault):
    pytest.skip("a version before the one of the page")
  hangs = fault.shown.endswith(_STILL_RUNNING + "\n")
  printed = run(fault.program, tmp_path, HANG_S if hangs else _LONGEST_S)
  assert printed == fault.shown, (
    f"{fault.title!r} no longer reproduces as docs/upstream.md shows. If it is"
    f" corrected, drop the workaround at {fault.workarounds} and the section:"
    " docs/upstream.md says in which order."
  )


def test_every_workaround_is_where_the_page_says():
  for fault in faults():
    assert fault.workarounds, fault.title
    for file, name in fault.workarounds:
      text = (pages.ROOT / file).read_text()
      assert re.search(rf"\b{name}\b", text), (fault.title, file, name)


def test_versions_are_those_that_the_tests_run_with():
  """After an upgrade each fault must be looked at again."""
  constraints = (pages.ROOT / "constraints.txt").read_text()
  for fault in faults():
    name, version = fault.seen
    if name != "CPython":
      assert f"{_PACKAGES[name]}=={version}\n" in constraints, (
        f"{fault.title!r} was seen in {name} {version}, constraints.txt has"
        " another version: run `pytest tests/docs/upstream_test.py` with slow"
        " tests, then write the new version in docs/upstream.md"
      )
      installed = importlib.metadata.version(_PACKAGES[name])
      if pathlib.Path(sys.prefix).name != ".venv-oldest":
        assert installed == version, "constraints.txt is not installed"
