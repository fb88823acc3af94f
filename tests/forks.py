# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Calls that may kill their process, each in a fork of one without threads.

A fork of the tests' own process would have the locks of JAX's threads, without
the threads.
"""

from collections.abc import Callable
import multiprocessing
from typing import Any

_PROCESSES = multiprocessing.get_context("forkserver")
# What is slow to import is imported once.
_PROCESSES.set_forkserver_preload(["chomp_data.prepare.run"])


def call(function: Callable[..., None], *args: Any) -> int:
  """Calls a function of a module; returns its status, -9 where it was killed.

  Args:
    function: Found by its name in the fork.
    *args: What it is given, pickled.
  """
  process = _PROCESSES.Process(target=function, args=args)
  process.start()
  process.join()
  assert process.exitcode is not None
  return process.exitcode
