"""Compares what two runs hand out: where they first differ, and why.

    %s packed packed --config.data.seed=3
    %s configs/old.py configs/new.py --steps=1000
    %s runs/x configs/new.py:wide --steps=1000 --format=json

A and B are configs, as --config takes them, or directories of checkpoints: of
a job, of one step, or of its input. Options of the command line are set in
both configs. Nothing is printed where they are equal; exit status is then 0, 1
where they differ, and 2 where that cannot be told. No token is read.
"""

from collections.abc import Sequence
import json
import os
import pathlib
from typing import Any

from absl import app
from absl import flags
import rich.console
import rich.table

from chomp_data import cli
from chomp_data import errors
from chomp_data import pipeline
from chomp_data.audit import difference as difference_lib
from chomp_data.audit import job
from chomp_data.loading import state as state_lib

_OPTIONS = cli.define_options()
_STEPS = flags.DEFINE_integer(
  "steps", None, "How many steps are compared; by default all.", 1
)
_FORMAT = flags.DEFINE_enum(
  "format", "terminal", ["terminal", "json"], "How it is printed."
)

# Of a step of a checkpoint, or of its item.
_STATES = ("input.json", "*/input.json")


def saved_state(directory: str) -> tuple[dict[str, Any], int]:
  """Returns the fingerprint and the step of a checkpoint.

  Args:
    directory: Of a job, whose newest counts, of one step, or of its input.

  Raises:
    StateError: If there is none, or it is damaged.
  """
  place = pathlib.Path(directory)
  for pattern in _STATES:
    found = sorted(place.glob(pattern))
    if len(found) == 1:
      record = state_lib.decode(found[0].read_bytes())
      return record["fingerprint"], record["step"]
  newest = job.read(directory)
  if newest is None or newest.fingerprint is None:
    raise errors.StateError(
      f"{directory} must be a config, or hold a checkpoint of an input, got"
      " neither. Give the work directory of a job, or one of its steps."
    )
  return newest.fingerprint, newest.step


def runs(
  names: Sequence[str], options: Sequence[str]
) -> tuple[pipeline.Pipeline, pipeline.Pipeline] | None:
  """Returns the runs that are named; None where two checkpoints are equal.

  Args:
    names: Two configs or directories.
    options: Of the configs.

  Raises:
    ConfigError: If a config is wrong.
    StateError: If a checkpoint cannot be compared.
    StoreError: If a store cannot be opened.
  """
  saved = [saved_state(own) if os.path.isdir(own) else None for own in names]
  if saved[0] is not None and saved[1] is not None:
    lines = state_lib.differences(saved[0][0], saved[1][0])
    if not lines:
      return None
    raise errors.StateError(
      "one of two runs must be a config: checkpoints do not say where stores"
      " are, got two that differ:\n  " + "\n  ".join(lines)
    )
  found: dict[str, pipeline.Pipeline] = {}
  for name, own in zip(names, saved, strict=True):
    if own is None and name not in found:
      config = cli.load(name, options)
      found[name] = pipeline.build(config.get("data"))
  other = next(iter(found.values()))
  a, b = (
    found[name] if own is None else difference_lib.as_saved(other, *own)
    for name, own in zip(names, saved, strict=True)
  )
  return a, b


def table(
  found: difference_lib.Difference, names: Sequence[str]
) -> rich.table.Table:
  """Returns what both take of sources that they do not take alike."""
  out = rich.table.Table(
    title=f"in {found.steps:,} steps", title_justify="left"
  )
  out.add_column("source", overflow="fold")
  out.add_column("of", overflow="fold")
  for name in ("rows", "tokens", "trained tokens", "documents", "only here"):
    out.add_column(name, justify="right")
  for source, both in found.sources.items():
    for name, own in zip(names, both.values(), strict=True):
      cells = ["no such source"]
      if own is not None:
        counts = own.rows, own.tokens, own.loss_tokens, own.documents
        cells = ["-" if n is None else f"{n:,}" for n in counts]
        cells.append(f"{own.only_here:,}")
      out.add_row(source, name, *cells)
  return out


def show(found: difference_lib.Difference, names: Sequence[str]) -> None:
  """Prints a difference for a person."""
  console = cli.console()

  def line(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)

  if found.first_step is None:
    line(
      f"the same spans in {found.steps:,} steps; batches are made of them"
      " otherwise"
    )
  else:
    line(f"step {found.first_step:,} is the first that differs")
  for own in found.fields:
    line(f"  {own}")
  if found.sources:
    console.print(table(found, names))
  for source, both in found.sources.items():
    for name, own in zip(names, both.values(), strict=True):
      if own is not None and own.only_here:
        more = ", ..." * (own.only_here > len(own.ids))
        line(f"{source}, only {name}: {', '.join(own.ids)}{more}")


def main(argv: Sequence[str]) -> int:
  """Prints how two runs differ; returns the exit status."""
  if len(argv) != 3:
    raise app.UsageError(
      "two configs or checkpoints must be given, got"
      f" {' '.join(argv[1:]) or 'none'}."
    )
  names = argv[1:]
  both = runs(names, _OPTIONS.value)
  if both is None:
    steps = _STEPS.value
    found = difference_lib.Difference(steps or 0, None, [], {})
  else:
    steps = difference_lib.num_steps(*both, _STEPS.value)
    found = difference_lib.difference(*both, steps)
  if _FORMAT.value == "json":
    print(json.dumps(found.record()))
  elif not found.is_empty:
    show(found, names)
  return int(not found.is_empty)
