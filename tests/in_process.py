"""Runs the tools within the test's process: a new one costs 3 CPU seconds.

A tool runs as it is called: its file is executed as `__main__`, absl parses
the flags, and flags, handlers and levels are as before when it returns. Kills,
signals, limits and several hosts need processes of their own.
"""

import contextlib
import io
import logging as std_logging
import os
import pathlib
import runpy
import subprocess
import sys
from unittest import mock
import warnings

from absl import app
from absl import flags
from absl import logging
from absl.testing import flagsaver

ROOT = pathlib.Path(__file__).parents[1]


def run_tool(
  name: str, *arguments: str, check: bool = False, env: dict | None = None
) -> subprocess.CompletedProcess[str]:
  """Runs a tool in this process, as `subprocess.run` does in its own.

  Args:
    name: A file of tools/ without its ending, or a path from the root.
    *arguments: Flags.
    check: Whether a status other than 0 raises.
    env: Environment variables that are set meanwhile, besides the present.

  Returns:
    Status and what was printed; a string given to `sys.exit` is printed.
  """
  path = ROOT / (name if "/" in name else f"tools/{name}.py")
  command = [str(path), *arguments]
  out, err = io.StringIO(), io.StringIO()
  with (
    _own_flags(),
    mock.patch.object(sys, "argv", command),
    mock.patch.dict(os.environ, env or {}),
    contextlib.chdir(ROOT),
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(err),
    _own_logging(err),
    warnings.catch_warnings(),
  ):
    status = _status(path)
  done = subprocess.CompletedProcess(
    command, status, out.getvalue(), err.getvalue()
  )
  if check and status:
    raise AssertionError(f"{command}: {status}\n{done.stderr[-3_000:]}")
  return done


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
  """Removes the flags that are defined meanwhile, with modules that did."""
  # They are defined once a process, and must not count as the tool's.
  app.define_help_flags()
  parsed, modules = flags.FLAGS.is_parsed(), set(sys.modules)
  saved = flagsaver.save_flag_values()
  try:
    yield
  finally:
    imported = set(sys.modules) - modules
    for name in set(flags.FLAGS) - set(saved):
      module = flags.FLAGS.find_module_defining_flag(name, "")
      if module not in imported:
        delattr(flags.FLAGS, name)
      elif module.startswith("chomp_data."):
        # The next tool imports it anew, and so defines its flags.
        delattr(flags.FLAGS, name)
        _forget(module)
    # A library's flags stay, because its module does.
    flagsaver.restore_flag_values({**flagsaver.save_flag_values(), **saved})
    if not parsed:
      flags.FLAGS.unparse_flags()


def _forget(module: str) -> None:
  parent, _, name = module.rpartition(".")
  sys.modules.pop(module, None)
  if hasattr(sys.modules.get(parent), name):
    delattr(sys.modules[parent], name)


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
