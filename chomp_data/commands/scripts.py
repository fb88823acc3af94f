# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The console commands: each loads its module when it is run.

Workers that a command spawns import this module again, so it has to be light.
"""

import importlib
import sys
import traceback


def prepare() -> None:
  """Prepares a store of text."""
  _run("prepare")


def inspect_batches() -> None:
  """Shows what is in a step's rows."""
  _run("inspect_batches")


def diff() -> None:
  """Compares what two runs hand out."""
  _compare("diff")


def verify_run() -> None:
  """Holds what a run handed out against its plan."""
  _compare("verify_run")


def simulate() -> None:
  """Says what a run will consume."""
  _run("simulate")


def trace() -> None:
  """Says which documents are in a step, and in which steps a document is."""
  _run("trace")


def stores() -> None:
  """Looks at stores and makes new ones of them."""
  importlib.import_module("chomp_data.commands.stores").main()


def losses() -> None:
  """Says which documents of some steps cost more than they used to."""
  _run("losses")


def train() -> None:
  """Trains the reference decoder."""
  _run("train")


def _compare(name: str) -> None:
  """Runs a command whose status 1 says that two things differ."""
  try:
    _run(name)
  except SystemExit as ended:
    if not isinstance(ended.code, str):
      raise
    print(ended.code, file=sys.stderr)
    sys.exit(2)
  except Exception:
    # Python's own status of an error is 1.
    traceback.print_exc()
    sys.exit(2)


def _run(name: str) -> None:
  from chomp_data import cli

  try:
    command = importlib.import_module(f"chomp_data.commands.{name}")
  except ModuleNotFoundError as error:
    if error.name not in ("flax", "optax"):
      raise
    sys.exit(
      f"error: {error.name} must be installed to train, got none. Install"
      " chomp_data with the extra `train`."
    )
  cli.run(command.main)
