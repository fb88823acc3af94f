# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the tools within the test's process: a new one costs 3 CPU seconds.

A tool runs as it is called: its file is executed as `__main__`, absl parses
the flags, and flags, handlers and levels are as before when it returns. Kills,
signals, limits and several hosts need processes of their own.
"""

import contextlib
import importlib
import io
import logging as std_logging
import os
import pathlib
import runpy
import subprocess
import sys
import types
from unittest import mock
import warnings

from absl import app
from absl import flags
from absl import logging
from absl.testing import flagsaver

ROOT = pathlib.Path(__file__).parents[1]
_OURS = ("chomp_data", "tools", "examples", "benchmarks")


def run_tool(
  name: str,
  *arguments: str,
  check: bool = False,
  env: dict | None = None,
  cwd: pathlib.Path = ROOT,
) -> subprocess.CompletedProcess[str]:
  """Runs a tool in this process, as `subprocess.run` does in its own.

  Args:
    name: A file of tools/ without its ending, or a path from the root.
    *arguments: Flags.
    check: Whether a status other than 0 raises.
    env: Environment variables that are set meanwhile, besides the present.
    cwd: The directory that it runs in.

  Returns:
    Status and what was printed; a string given to `sys.exit` is printed.
  """
  path = ROOT / (name if "/" in name else f"tools/{name}.py")
  command = [str(path), *arguments]
  out, err = io.StringIO(), io.StringIO()
  with (
    # Put back last: the flag --verbosity sets levels when it is put back.
    _own_logging(err),
    _own_flags(),
    mock.patch.object(sys, "argv", command),
    # As Python does: examples import what is beside them.
    mock.patch.object(sys, "path", [str(path.parent), *sys.path]),
    mock.patch.dict(os.environ, env or {}),
    contextlib.chdir(cwd),
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(err),
    warnings.catch_warnings(),
  ):
    status = _status(path)
  done = subprocess.CompletedProcess(
    command, status, out.getvalue(), err.getvalue()
  )
  if check and status:
    raise AssertionError(f"{command}: {status}\n{done.stderr[-3_000:]}")
  return done


def imported(name: str) -> types.ModuleType:
  """Returns a module that defines flags, imported without leaving them.

  Two tests that import such modules themselves cannot be in one process.

  Args:
    name: The module's.
  """
  with _own_flags():
    return importlib.import_module(name)


def _status(path: pathlib.Path) -> int:
  try:
    runpy.run_path(str(path), run_name="__main__")
  except SystemExit as error:
    if isinstance(error.code, str):
      print(error.code, file=sys.stderr)
      return 1
    return int(error.code or 0)
  return 0


@contextlib.contextmanager
def _own_flags():
  """Hides flags of this project's modules, and removes those of the tool."""
  # They are defined once a process, and must not count as the tool's.
  app.define_help_flags()
  parsed = flags.FLAGS.is_parsed()
  hidden = _take_ours()
  saved = flagsaver.save_flag_values()
  libraries = set(sys.modules)
  try:
    yield
  finally:
    _take_ours()
    libraries = set(sys.modules) - libraries
    for name in set(flags.FLAGS) - set(saved):
      # A library's flags stay, because its module does.
      if flags.FLAGS.find_module_defining_flag(name, "") not in libraries:
        delattr(flags.FLAGS, name)
    flagsaver.restore_flag_values({**flagsaver.save_flag_values(), **saved})
    if not parsed:
      flags.FLAGS.unparse_flags()
    for module, own in hidden:
      _set_module(module.__name__, module)
      for flag in own:
        flags.DEFINE_flag(flag, module_name=module.__name__)


def _take_ours() -> list[tuple[types.ModuleType, list[flags.Flag]]]:
  """Removes our modules that define flags: imported anew, they do so again."""
  taken = []
  for name, own in list(flags.FLAGS.flags_by_module_dict().items()):
    if name.partition(".")[0] in _OURS and name in sys.modules and own:
      taken.append((sys.modules[name], list(own)))
      _set_module(name, None)
      for flag in taken[-1][1]:
        delattr(flags.FLAGS, flag.name)
  return taken


def _set_module(name: str, module: types.ModuleType | None) -> None:
  parent, _, last = name.rpartition(".")
  if module is not None:
    sys.modules[name] = module
    setattr(sys.modules[parent], last, module)
  else:
    del sys.modules[name]
    if hasattr(sys.modules.get(parent), last):
      delattr(sys.modules[parent], last)


@contextlib.contextmanager
def _own_logging(err: io.StringIO):
  """Sends absl's messages to a stream; handlers and levels are put back."""
  handler, root = logging.get_absl_handler(), std_logging.getLogger()
  own = logging.get_absl_logger()
  before = list(root.handlers), list(handler.filters)
  levels, verbosity = (root.level, own.level), logging.get_verbosity()
  stream = handler.python_handler.stream
  logging.use_absl_handler()
  handler.python_handler.setStream(err)
  try:
    yield
  finally:
    handler.python_handler.setStream(stream)
    logging.set_verbosity(verbosity)
    root.handlers[:], handler.filters[:] = before
    root.setLevel(levels[0])
    own.setLevel(levels[1])
