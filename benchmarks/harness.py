# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What benchmarks share: flags, tables, fresh processes, memory and timings.

A benchmark is a script that calls `run` with its parts, each a function of the
directory of corpora that returns tables. All have the flags below.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any
from typing import TypeVar

from absl import app
from absl import flags
from absl import logging
import numpy as np
import rich.console
import rich.table

SMALL = flags.DEFINE_bool("small", False, "Little of everything: seconds.")
DIRECTORY = flags.DEFINE_string(
  "directory", None, "Where corpora are kept between runs (a new place)."
)
OUTPUT = flags.DEFINE_string("output", None, "Markdown file to write.")
PARTS = flags.DEFINE_list("parts", None, "Parts to run; by default all.")
KINDS = flags.DEFINE_multi_string("kind", None, "A run; by default all.")
PROBE = flags.DEFINE_string(
  "probe", None, "Measure one figure here; for the benchmark itself."
)

SEQ_LEN = 2_048  # tokens of a row

# A cell by column; a line may lack some.
Line = dict[str, str]
# A title, and lines.
Table = tuple[str, list[Line]]
Part = Callable[[pathlib.Path], Table | Iterator[Table]]
_T = TypeVar("_T")


def run(*parts: Part, probe: Callable[..., Any] | None = None) -> None:
  """Runs the main program of a benchmark.

  Args:
    *parts: What makes tables.
    probe: What `probed` calls in a process of its own.
  """
  by_name = {part.__name__: part for part in parts}

  def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
      raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
    logging.set_verbosity(logging.ERROR)
    if PROBE.value and probe is not None:
      print(json.dumps(probe(*json.loads(PROBE.value))))
      return
    blocks = []
    with tempfile.TemporaryDirectory() as temporary:
      directory = pathlib.Path(DIRECTORY.value or temporary)
      directory.mkdir(parents=True, exist_ok=True)
      for name in _chosen("parts", by_name, PARTS.value):
        tables = by_name[name](directory)
        for table in (tables,) if isinstance(tables, tuple) else tables:
          blocks.append(show(table))
          if OUTPUT.value:  # As soon as it is there: some parts take long.
            pathlib.Path(OUTPUT.value).write_text("\n".join(blocks))

  app.run(main)


def show(table: Table) -> str:
  """Prints a table and returns it as Markdown, its title first."""
  title, lines = table
  head = list(dict.fromkeys(name for line in lines for name in line))
  shown = rich.table.Table(*head, title=title)
  cells = [[line.get(name, "") for name in head] for line in lines]
  for row in cells:
    shown.add_row(*row)
  rich.console.Console(width=150).print(shown)
  rows = [head, ["---"] * len(head), *cells]
  text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
  return f"{title}\n\n{text}\n"


def add_line(lines: list[Line], line: Line) -> None:
  """Adds a line to a table, and prints it: the table comes much later."""
  lines.append(line)
  print("  ".join(line.values()), flush=True)


def small(value: _T, few: _T) -> _T:
  """Returns a value, or with `--small` the other."""
  return few if SMALL.value else value


def chosen(names: Iterable[str]) -> list[str]:
  """Returns the runs that `--kind` asks for.

  Raises:
    UsageError: If one of them is unknown.
  """
  return _chosen("kind", names, KINDS.value)


def _chosen(
  flag: str, names: Iterable[str], wanted: Sequence[str] | None
) -> list[str]:
  known = list(names)
  if unknown := sorted(set(wanted or ()) - set(known)):
    raise app.UsageError(
      f"--{flag} must be one of {'; '.join(known)}, got {'; '.join(unknown)}."
    )
  return list(wanted or known)


def probed(
  *arguments: Any,
  env: Mapping[str, str] | None = None,
  kill_after: float | None = None,
) -> Any:
  """Returns what a fresh process of this benchmark measures.

  Args:
    *arguments: Those of the probe, as JSON holds them.
    env: Changes of the environment.
    kill_after: Seconds after which it is killed; it then measured nothing.
  """
  process = subprocess.Popen(
    [sys.executable, sys.argv[0], f"--probe={json.dumps(arguments)}"],
    stdout=subprocess.PIPE,
    text=True,
    env={**os.environ, **(env or {})},
  )
  try:
    out, _ = process.communicate(timeout=kill_after)
  except subprocess.TimeoutExpired:
    process.kill()
    process.communicate()
    return None
  if process.returncode:
    raise RuntimeError(f"a probe of {arguments} ended with an error.")
  return json.loads(out.splitlines()[-1])


def resident(kind: str = "RssAnon", *, children: bool = False) -> int:
  """Returns resident bytes of this process, of no file unless asked for.

  Args:
    kind: 'RssAnon', or 'RssFile' of maps of files.
    children: Whether those of its children are added.
  """
  pids = ["self"]
  if children:  # Whatever thread has started them.
    for listing in pathlib.Path("/proc/self/task").glob("*/children"):
      pids += listing.read_text().split()
  total = 0
  for pid in pids:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    size = re.search(rf"{kind}:\s*(\d+) kB", status)
    total += 1024 * int(size[1]) if size else 0
  return total


def cpu_s(call: Callable[[], _T]) -> tuple[float, _T]:
  """Returns the CPU seconds of a call, of all threads, and its result."""
  began = time.process_time()
  result = call()
  return time.process_time() - began, result


@contextlib.contextmanager
def raw_gather(
  directory: pathlib.Path, num_rows: int = 20_000
) -> Iterator[Callable[[int, int], float]]:
  """Gives a function that times a raw gather of batches.

  `big[idx].astype(np.int32)`, big a page-cached uint16 memory map viewed as
  rows of 2,048 tokens, idx random rows.

  Args:
    directory: Where the map is.
    num_rows: Its rows.

  Yields:
    Seconds of a number of batches of a number of rows.
  """
  rng = np.random.default_rng(0)
  with tempfile.NamedTemporaryFile(dir=directory) as file:
    rng.integers(0, 50_000, num_rows * SEQ_LEN, dtype=np.uint16).tofile(file)
    file.flush()
    big = np.memmap(file.name, np.uint16, "r", shape=(num_rows, SEQ_LEN))
    int(big.astype(np.int64).sum())  # In the page cache.

    def gather(steps: int, batch_size: int) -> float:
      index = rng.integers(0, num_rows, size=(steps, batch_size))
      began = time.perf_counter()
      for rows in index:
        big[rows].astype(np.int32)
      return time.perf_counter() - began

    yield gather


def beside_gather(
  gather: Callable[[int, int], float],
  batches: Iterator[Any],
  steps: int,
  batch_size: int,
  repeats: int,
) -> np.ndarray:
  """Times batches, a raw gather of as many before each repeat.

  Args:
    gather: Of `raw_gather`.
    batches: What is timed.
    steps: Batches of a repeat.
    batch_size: Their rows.
    repeats: How often.

  Returns:
    float64[3, repeats], seconds of the gather, seconds and CPU seconds of the
    batches.
  """
  times = []
  for _ in range(repeats):
    raw = gather(steps, batch_size)
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
      next(batches)
    took = time.perf_counter() - began, time.process_time() - cpu
    times.append((raw, *took))
  return np.transpose(times)


def spread(values: Sequence[float], unit: str) -> Line:
  """Returns a median, and the lowest and the highest value, as two cells."""
  return {
    f"median {unit}": f"{statistics.median(values):.1f}",
    "low .. high": f"{min(values):.1f} .. {max(values):.1f}",
  }
