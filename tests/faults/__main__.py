# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Injects faults and counts what comes of them.

    python -m tests.faults                     all of them, an hour
    python -m tests.faults --cases=100         at most so many of each
    python -m tests.faults --fault=workers     one of them
    python -m tests.faults --without-guard     each guard off: faults must show

Ends with 1 where a guarded fault does harm, or an unguarded one does none.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import rich.table
import tqdm

from chomp_data import cli
from tests.faults import checkpoints
from tests.faults import files
from tests.faults import harness
from tests.faults import objects
from tests.faults import processes
from tests.faults import states

FAULTS = {
  fault.name: fault
  for room in (files, states, checkpoints, processes, objects)
  for fault in room.FAULTS
}


def _arguments() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    prog="python -m tests.faults",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument(
    "--fault", action="append", choices=FAULTS, help="this one; repeatable"
  )
  parser.add_argument("--cases", type=int, help="at most so many of each")
  parser.add_argument("--seed", type=int, default=0, help="draws the cases")
  parser.add_argument(
    "--without-guard", action="store_true", help="with each guard off"
  )
  parser.add_argument("--json", help="a file for the results")
  for hidden in ("--child", "--first", "--directory", "--answers", "--read"):
    parser.add_argument(hidden, help=argparse.SUPPRESS)
  return parser.parse_args()


def main() -> int:
  """Runs them, or one for a harness that runs elsewhere."""
  args = _arguments()
  if args.read:
    processes.read(pathlib.Path(args.read))
  if args.child:
    harness.answer(
      FAULTS[args.child],
      args.cases,
      int(args.first),
      args.seed,
      pathlib.Path(args.directory),
      pathlib.Path(args.answers),
      not args.without_guard,
    )
    return 0
  guarded = not args.without_guard
  table = rich.table.Table(title_justify="left")
  for name in ("fault", "cases", *harness.GOOD, *harness.BAD, "seconds"):
    table.add_column(name, justify="left" if name == "fault" else "right")
  results = []
  console = cli.console()
  for name in args.fault or FAULTS:
    fault = FAULTS[name]
    cases = fault.many if guarded else fault.few
    cases = min(cases, args.cases or cases)
    with (
      tempfile.TemporaryDirectory() as directory,
      tqdm.tqdm(total=cases, desc=name, disable=None) as bar,
    ):
      result = harness.run(
        fault,
        cases,
        pathlib.Path(directory),
        seed=args.seed,
        guarded=guarded,
        progress=lambda done, bar=bar: bar.update(done - bar.n),
      )
    results.append(result)
    counts = [result.outcomes.get(own, 0) for own in harness.GOOD + harness.BAD]
    table.add_row(
      name, str(result.cases), *map(str, counts), f"{result.seconds:.0f}"
    )
    for line in result.told:
      console.print(f"{name}: {line}", markup=False, highlight=False)
  console.print(table)
  if args.json:
    rows = [vars(result) for result in results]
    pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
  return int(any((result.bad > 0) == guarded for result in results))


if __name__ == "__main__":
  sys.exit(main())
