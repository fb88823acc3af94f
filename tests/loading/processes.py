# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""JAX processes that stay: a start costs 2 CPU seconds, most jobs much less.

`call` runs a function once in each process of a set. A set is started when it
is first asked for, and ends with the tests. Each process has other hashes of
strings, and none has compiled loops. Processes that are killed, or that
disagree, need sets of their own.
"""

import atexit
from collections.abc import Mapping
from collections.abc import Sequence
import importlib
import json
import os
import pathlib
import queue
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Any

_ROOT = pathlib.Path(__file__).parents[2]
# Libraries print too.
_ANSWER = "answer: "


class ProcessSet:
  """Processes of one JAX runtime, with so many CPU devices each."""

  def __init__(self, count: int, num_devices: int):
    with socket.socket() as listener:
      listener.bind(("127.0.0.1", 0))
      address = f"127.0.0.1:{listener.getsockname()[1]}"
    self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
    self._processes = [
      subprocess.Popen(
        [sys.executable, "-m", __name__, address, str(count), str(i)],
        cwd=_ROOT,
        env={
          **os.environ,
          "CHOMP_DATA_KERNELS": "off",
          "JAX_PLATFORMS": "cpu",
          "PYTHONHASHSEED": str(i + 7),
          "PYTHONPATH": str(_ROOT),
          "XLA_FLAGS": f"--xla_force_host_platform_device_count={num_devices}",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=self._log,
        text=True,
      )
      for i in range(count)
    ]
    self._answers = [queue.SimpleQueue() for _ in self._processes]
    for process, answers in zip(self._processes, self._answers, strict=True):
      threading.Thread(
        target=_listen, args=(process.stdout, answers), daemon=True
      ).start()

  def call(self, function, arguments, timeout_s) -> list[Any]:
    for process, own in zip(self._processes, arguments, strict=True):
      process.stdin.write(json.dumps([function, own]) + "\n")
      process.stdin.flush()
    return [self._answer(answers, timeout_s) for answers in self._answers]

  def _answer(self, answers, timeout_s):
    try:
      return json.loads(answers.get(timeout=timeout_s))
    except (queue.Empty, json.JSONDecodeError) as error:
      self._log.seek(0)
      log = self._log.read()
      raise AssertionError(f"no answer of a process\n{log[-9_000:]}") from error

  def close(self) -> None:
    for process in self._processes:
      process.kill()
      process.wait()
      process.stdin.close()
      process.stdout.close()
    self._log.close()


_SETS: dict[tuple[int, int], ProcessSet] = {}


@atexit.register
def _close() -> None:
  for own in _SETS.values():
    own.close()


def call(
  function: str,
  arguments: Sequence[Mapping[str, Any]],
  *,
  num_devices: int = 2,
  timeout_s: float = 240,
) -> list[Any]:
  """Calls a function in as many processes as there are arguments.

  Args:
    function: 'module:name'; takes and returns what JSON holds.
    arguments: Those of each process, by name.
    num_devices: CPU devices of each process.
    timeout_s: How long each may take.

  Returns:
    What each process returned.

  Raises:
    AssertionError: If one ends, with what all of them have logged.
  """
  key = len(arguments), num_devices
  if key not in _SETS:
    _SETS[key] = ProcessSet(*key)
  try:
    return _SETS[key].call(function, arguments, timeout_s)
  except BaseException:
    # Others may wait for the one that failed: the next call starts anew.
    _SETS.pop(key).close()
    raise


def _listen(lines, answers: queue.SimpleQueue) -> None:
  for line in lines:
    if line.startswith(_ANSWER):
      answers.put(line.removeprefix(_ANSWER))
  answers.put("")


def main() -> None:
  """Answers until there are no more questions."""
  import jax

  address, count, index = sys.argv[1:]
  jax.distributed.initialize(address, int(count), int(index))
  for line in sys.stdin:
    function, arguments = json.loads(line)
    module, _, name = function.partition(":")
    found = getattr(importlib.import_module(module), name)(**arguments)
    print(_ANSWER + json.dumps(found), flush=True)
  # No barrier with processes that were killed.
  os._exit(0)


if __name__ == "__main__":
  main()
