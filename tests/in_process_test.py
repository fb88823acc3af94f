# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A tool that runs in a test's process is the tool, and leaves no trace."""

import logging as std_logging
import subprocess
import sys

from absl import flags
from absl import logging
import pytest

from examples import train_buckets
from tests import in_process


def _traces():
  handler = logging.get_absl_handler()
  return {
    # Flags of libraries stay, as their modules do.
    "flags": {"config", "workdir", "step", "output"} & set(flags.FLAGS),
    "parsed": flags.FLAGS.is_parsed(),
    "verbosity": logging.get_verbosity(),
    "handlers": list(std_logging.getLogger().handlers),
    "filters": list(handler.filters),
    "stream": handler.python_handler.stream,
    "argv": list(sys.argv),
  }


def test_tools_with_the_same_flags_run_after_each_other_and_leave_no_trace():
  in_process.run_tool("prepare", "--help")
  before = _traces()
  for name in ("train", "inspect_batches", "train"):
    done = in_process.run_tool(
      name, "--config=configs/splice_multi.py:runlocal", "surplus"
    )
    assert done.returncode == 1
    assert "surplus" in done.stderr
    assert _traces() == before


@pytest.mark.parametrize(
  ("flags", "status"),
  [(["--help"], 0), (["--nope"], 1), (["--input=nowhere/*", "--output=x"], 1)],
)
def test_status_and_output_are_those_of_a_process(flags, status):
  here = in_process.run_tool("prepare", *flags)
  there = subprocess.run(
    [sys.executable, *here.args], capture_output=True, text=True
  )
  assert here.returncode == there.returncode == status
  assert here.stdout == there.stdout
  # Log lines begin with times.
  last = [done.stderr.strip().splitlines()[-1:] for done in (here, there)]
  assert last[0] == last[1]


def test_a_module_that_a_test_imported_keeps_its_flags():
  own = flags.FLAGS["workdir"]
  done = in_process.run_tool("examples/train_buckets.py", "surplus")
  assert done.returncode == 1
  assert "surplus" in done.stderr
  assert flags.FLAGS["workdir"] is own
  assert sys.modules["examples.train_buckets"] is train_buckets
  module = flags.FLAGS.find_module_defining_flag("workdir")
  assert module == "examples.train_buckets"


def test_a_status_that_was_not_expected_raises_with_the_tools_own_words():
  with pytest.raises(AssertionError, match="nowhere"):
    in_process.run_tool(
      "prepare", "--input=nowhere/*", "--output=x", check=True
    )
