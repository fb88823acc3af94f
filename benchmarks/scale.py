"""Scale: what a mix of many sources, or of many stages, costs.

    python benchmarks/scale.py

Two parts, each a table (`--parts` runs some), in CPU seconds:

- sources: tiny stores of different sizes, `bin` rows of 2,048, shuffled in
  blocks, balanced in tokens, batches of 1,024 rows: to build the run, its first
  plan and a later one, its first batch; descriptors and anonymous memory on top
  of a run of one source. Indexes are built before and lie beside the stores.
- stages: a chain in which weights change every 1,000 rows: to build it, and the
  first rows of its last stage.

Two minutes on two CPU cores, most of it to write 200 stores.
"""

from collections.abc import Callable
import fractions
import os
import pathlib
import re
import tempfile
import time
from typing import Any

from absl import app
from absl import flags
import numpy as np
import tables

from chomp_data import pipeline
from chomp_data.index.mix import interleave
from chomp_data.index.mix import unit_sums
from chomp_data.testing import stores as testing_stores

_PARTS = flags.DEFINE_list("parts", ["sources", "stages"], "Parts to run.")
_SMALL = flags.DEFINE_bool("small", False, "A few sources and stages: seconds.")
_DIRECTORY = flags.DEFINE_string(
  "directory", None, "Where the stores are made (a new place)."
)
_OUTPUT = flags.DEFINE_string("output", None, "Markdown file to write.")

_ROWS = 1_024  # of a global batch
_STEPS = 64  # batches over which a later plan is measured
_PERIOD = 1_000  # rows of a stage


def sources(counts: tuple[int, ...], directory: pathlib.Path) -> tables.Table:
  """Measures mixes of some numbers of sources."""
  for number in range(max(counts)):
    rng = np.random.default_rng(number)
    sizes = rng.geometric(1 / 600, 300 + number * 37 % 2_000)
    testing_stores.make_store(
      directory / str(number),
      (rng.integers(2, 250, size) for size in sizes.tolist()),
      chunk=65_536,
    )
  pipeline.build(_config(directory, 1)).batch(0)
  lines = [["sources", "build, ms", "first plan", "later plan", "first batch"]]
  lines[0] += ["descriptors", "MB"]
  for count in counts:
    data = _config(directory, count)
    pipeline.build(data).plan(0)  # Indexes are built here.
    descriptors, memory = _descriptors(), _anonymous()
    made: list[pipeline.Pipeline] = []
    cells = [
      _ms(lambda made=made, data=data: made.append(pipeline.build(data)))
    ]
    pipe = made[0]
    cells.append(_ms(lambda pipe=pipe: pipe.plan(0)))
    cells.append(
      _ms(lambda pipe=pipe: [pipe.plan(1 + i) for i in range(_STEPS)]) / _STEPS
    )
    cells.append(_ms(lambda pipe=pipe: pipe.batch(0)))
    lines.append(
      [
        str(count),
        *(f"{cell:.3g}" for cell in cells),
        str(_descriptors() - descriptors),
        f"{(_anonymous() - memory) / 2**20:.3g}",
      ]
    )
  return f"Mixes of many sources, batches of {_ROWS} rows, CPU ms", lines


def stages(counts: tuple[int, ...]) -> tables.Table:
  """Measures chains of some numbers of stages."""
  rng = np.random.default_rng(0)
  sequences = {
    name: unit_sums.ArrayUnits(rng.integers(1, 2_048, 5_000), None)
    for name in "abc"
  }
  lines = [["stages", "build, ms", "first rows of the last stage, ms"]]
  for count in counts:
    chain = [
      interleave.Stage(
        _PERIOD * i,
        {
          name: fractions.Fraction(100 + 800 * (i * step % 97) // 97, 1_000)
          for step, name in enumerate(sequences, 1)
        },
      )
      for i in range(count)
    ]
    made: list[interleave.Interleave] = []
    build = _ms(
      lambda made=made, chain=chain: made.append(
        interleave.Interleave(sequences, chain, 0)
      )
    )
    rows = _PERIOD * (count - 1) + np.arange(_ROWS)
    last = _ms(lambda made=made, rows=rows: made[0].locate(rows))
    lines.append([str(count), f"{build:.3g}", f"{last:.3g}"])
  return "Chains of stages, three sources, CPU ms", lines


def _config(directory: pathlib.Path, count: int) -> dict[str, Any]:
  return {
    "seq_len": 2_048,
    "global_batch_size": _ROWS,
    "sources": {
      str(i): {
        "store": str(directory / str(i)),
        "rows": {"kind": "bin"},
        "shuffle": {"kind": "block"},
        "weight": round(0.1 + i * 31 % 100 / 100, 2),
      }
      for i in range(count)
    },
    "mix": {"kind": "token_balanced"},
  }


def _ms(call: Callable[[], Any]) -> float:
  """Returns the CPU time of a call."""
  began = time.process_time()
  call()
  return 1e3 * (time.process_time() - began)


def _descriptors() -> int:
  return len(os.listdir("/proc/self/fd"))


def _anonymous() -> int:
  """Returns the bytes of this process that are of no file."""
  status = pathlib.Path("/proc/self/status").read_text()
  found = re.search(r"RssAnon:\s*(\d+) kB", status)
  return 1024 * int(found[1]) if found else 0


def main(argv: list[str]) -> None:
  """Prints the tables."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  counts, chains = (3, 32, 200), (1, 500, 5_000)
  if _SMALL.value:
    counts, chains = (2, 5), (1, 50)
  with tempfile.TemporaryDirectory() as temporary:
    directory = pathlib.Path(_DIRECTORY.value or temporary)
    parts = {
      "sources": lambda: sources(counts, directory / "scale"),
      "stages": lambda: stages(chains),
    }
    tables.run_parts(parts, _PARTS.value, _OUTPUT.value)


if __name__ == "__main__":
  app.run(main)
