# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a fault is, and how it is counted.

Each fault yields cases; a case injects it once and says what came of it. Cases
run in a process of their own: one that crashes or hangs is counted as such,
and the fault goes on with the next case.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

_ROOT = pathlib.Path(__file__).parents[2]

# What may come of a case, the good ones first.
REFUSED = "refused"  # An error of ours, which names what is wrong.
UNHARMED = "unharmed"  # What is handed out is right.
UNCLEAR = "unclear"  # An error that is not ours, or does not name it.
SILENT = "silent"  # Something wrong is handed out, or nothing is said.
HANG = "hang"  # It does not end.
CRASH = "crash"  # The process dies of a signal.
GOOD = (REFUSED, UNHARMED)
BAD = (UNCLEAR, SILENT, HANG, CRASH)

Case = Callable[[], str]

# What a child writes before its first case, and after its last.
_BEGUN, _END = "begun", "end"
_BEGIN_S = 120.0


@dataclasses.dataclass(frozen=True)
class Guard:
  """What keeps a fault from doing harm.

  Attributes:
    name: On the command line.
    off: Switches it off in this process until it is left.
  """

  name: str
  off: Callable[[], contextlib.AbstractContextManager[None]]


@dataclasses.dataclass(frozen=True)
class Fault:
  """A kind of fault.

  Attributes:
    name: On the command line.
    about: What is injected, and what must come of it.
    cases: Yields cases; of a generator and a directory for files.
    guard: Without it some case is bad.
    few: Cases in the tests.
    many: Cases of the command.
    case_s: A case that takes longer hangs.
  """

  name: str
  about: str
  cases: Callable[[random.Random, pathlib.Path], Iterator[Case]]
  guard: Guard
  few: int
  many: int
  case_s: float = 60.0


@dataclasses.dataclass(frozen=True)
class Result:
  """What came of a fault.

  Attributes:
    fault: Its name.
    outcomes: How often which.
    seconds: Of wall, of all cases.
    told: What there is to say of bad ones, at most a few.
  """

  fault: str
  outcomes: dict[str, int]
  seconds: float
  told: list[str]

  @property
  def cases(self) -> int:
    """How many there were."""
    return sum(self.outcomes.values())

  @property
  def bad(self) -> int:
    """How many ended as they must not."""
    return sum(self.outcomes.get(name, 0) for name in BAD)


def run(
  fault: Fault,
  cases: int,
  directory: pathlib.Path,
  *,
  seed: int = 0,
  guarded: bool = True,
  progress: Callable[[int], None] = lambda done: None,
) -> Result:
  """Runs cases of a fault.

  Args:
    fault: Which.
    cases: How many, at most as many as it has.
    directory: For its files.
    seed: Draws them.
    guarded: False switches the guard off.
    progress: Told the cases that are done.
  """
  began = time.monotonic()
  outcomes: dict[str, int] = {}
  told: list[str] = []
  done = 0
  while done < cases:
    log = directory / f"{fault.name}-{done}.log"
    found, ended = _child(fault, cases, done, directory, seed, guarded, log)
    for line in found:
      name = line.partition(": ")[0]
      outcomes[name] = outcomes.get(name, 0) + 1
      if name in BAD and len(told) < 5:
        told.append(f"case {done}: {line[:300]}")
      done += 1
    if ended is None:
      break
    if done >= cases:
      break
    outcomes[ended] = outcomes.get(ended, 0) + 1
    if len(told) < 5:
      told.append(f"case {done}: {ended}: {_tail(log)}")
    done += 1
    progress(done)
  progress(done)
  return Result(fault.name, outcomes, time.monotonic() - began, told)


def _child(
  fault: Fault,
  cases: int,
  first: int,
  directory: pathlib.Path,
  seed: int,
  guarded: bool,
  log: pathlib.Path,
) -> tuple[list[str], str | None]:
  """Runs cases from one on; returns what came of them, and how it ended.

  None is the end of the cases; HANG or CRASH are of the case after the last.
  """
  answers = directory / f"{fault.name}-{first}.answers"
  own = directory / f"{fault.name}-{first}"
  own.mkdir()
  with open(log, "w") as file:
    child = subprocess.Popen(
      [
        *(sys.executable, "-m", "tests.faults", "--child", fault.name),
        *("--cases", str(cases), "--first", str(first), "--seed", str(seed)),
        *("--directory", str(own), "--answers", str(answers)),
        *([] if guarded else ["--without-guard"]),
      ],
      cwd=_ROOT,
      env={**os.environ, "PYTHONPATH": str(_ROOT), "JAX_PLATFORMS": "cpu"},
      stdout=file,
      stderr=file,
      # With all that it starts.
      start_new_session=True,
    )
  seen, since = 0, time.monotonic() + _BEGIN_S
  try:
    while child.poll() is None:
      lines = _lines(answers)
      if len(lines) != seen:
        seen, since = len(lines), time.monotonic()
      if time.monotonic() - since > fault.case_s:
        return lines[1:], HANG
      time.sleep(0.05)
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(child.pid, signal.SIGKILL)
    child.wait()
  lines = _lines(answers)
  if not lines:
    raise RuntimeError(f"{fault.name} could not begin: {_tail(log)}")
  if lines[-1] == _END:
    return lines[1:-1], None
  if child.returncode > 0:
    raise RuntimeError(
      f"{fault.name}, case {first + len(lines) - 1}: {_tail(log)}"
    )
  return lines[1:], CRASH


def _lines(answers: pathlib.Path) -> list[str]:
  if not answers.exists():
    return []
  text = answers.read_text()
  return [json.loads(line) for line in text.splitlines(keepends=True)
          if line.endswith("\n")]  # fmt: skip


def _tail(log: pathlib.Path) -> str:
  lines = [line for line in log.read_text().splitlines() if line.strip()]
  return lines[-1][:200] if lines else "nothing in its log"


def answer(
  fault: Fault,
  cases: int,
  first: int,
  seed: int,
  directory: pathlib.Path,
  answers: pathlib.Path,
  guarded: bool,
) -> None:
  """Runs cases in this process, and writes a line of each; see `run`."""
  with contextlib.ExitStack() as stack:
    if not guarded:
      stack.enter_context(fault.guard.off())
    file = stack.enter_context(open(answers, "w"))
    rng = random.Random(seed)
    for number, case in enumerate(fault.cases(rng, directory)):
      if not number:
        file.write(json.dumps(_BEGUN) + "\n")
        file.flush()
      if number >= cases:
        break
      if number >= first:
        file.write(json.dumps(case()) + "\n")
        file.flush()
    file.write(json.dumps(_END) + "\n")
