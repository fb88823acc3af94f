# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the input of two runs: the first step that differs, and why.

    %s packed packed:runlocal --steps=1000
    %s configs/old.py configs/new.py --steps=1000
    %s runs/x configs/new.py:wide --steps=1000 --format=json
    %s pretrain_mix --dataset_mix='data/web:0.9 data/code:0.1' --steps=1000

A and B are configs, as for --config, or checkpoint directories: of a job, of
one step, or of its input. Options on the command line are set in both configs,
and so is --dataset_mix; with only one config, B is the same config with that
mix. If the runs are equal nothing is printed. The exit status is 0 if they are
equal, 1 if they differ, and 2 if this cannot be determined. No tokens are read.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import json
import os
from typing import Any

from absl import app
from absl import flags
import rich.table

from chomp_data import cli
from chomp_data import errors
from chomp_data import pipeline
from chomp_data.audit import difference as difference_lib
from chomp_data.audit import job
from chomp_data.audit import steps as steps_lib
from chomp_data.loading import state as state_lib
from chomp_data.storage import opening

_OPTIONS = cli.define_options()
_DATASET_MIX = cli.define_dataset_mix()
_STORES_OF = cli.define_text(
  "stores_of",
  None,
  "The config whose stores are read where A and B are two checkpoints.",
)
_STEPS = flags.DEFINE_integer(
  "steps", None, "How many steps are compared; by default all.", 1
)
_FORMAT = cli.define_format()

# A config and its mix in one line.
_Named = tuple[str, str | None]


def saved_state(directory: str) -> tuple[Mapping[str, Any], int]:
  """Returns the fingerprint and the step of a checkpoint.

  Args:
    directory: Of a job, whose newest counts, of one step, or of its input.

  Raises:
    StateError: If there is none, or it is damaged.
  """
  state = job.read(directory)
  if state is None or state.fingerprint is None or state.saved_step is None:
    raise errors.StateError(
      f"{directory} must be a config, or hold a checkpoint of an input, got"
      " neither. Give the work directory of a job, or one of its steps."
    )
  return state.fingerprint, state.saved_step


def _is_config(name: str) -> bool:
  """Returns whether a side is a file, not a directory or a bucket."""
  directory = opening.open_storage(name).directory
  return directory is not None and not directory.is_dir()


def runs(
  sides: Sequence[_Named],
  options: Sequence[str],
  stores_of: str | None = None,
) -> tuple[pipeline.Pipeline, pipeline.Pipeline] | None:
  """Returns the runs that are named; None where two checkpoints are equal.

  Args:
    sides: Two configs or directories, and mixes of configs.
    options: Of the configs.
    stores_of: The config whose stores two checkpoints read, or None.

  Raises:
    ConfigError: If a config is wrong.
    StateError: If a checkpoint cannot be compared.
    StoreError: If a store cannot be opened.
    UsageError: If `stores_of` comes with a config.
  """
  pipes: dict[_Named, pipeline.Pipeline] = {}

  def built(side: _Named) -> pipeline.Pipeline:
    if side not in pipes:
      config = cli.load(side[0], options, side[1])
      pipes[side] = pipeline.build(config.get("data"))
    return pipes[side]

  saved = [None if _is_config(name) else saved_state(name) for name, _ in sides]
  configs = [s for s, state in zip(sides, saved, strict=True) if state is None]
  if stores_of is not None and configs:
    raise app.UsageError(
      f"--stores_of must come with two checkpoints, got {configs[0][0]}. Leave"
      " it out: a checkpoint takes the stores of the config beside it."
    )
  if stores_of is not None:
    configs = [(stores_of, sides[0][1])]
  elif saved[0] is not None and saved[1] is not None:
    lines = state_lib.differences(saved[0][0], saved[1][0])
    if not lines:
      return None
    raise errors.StateError(
      "`--stores_of` must name a config for two checkpoints that differ, as"
      " they do not say where stores are, got none:\n  "
      + "\n  ".join(
        line.replace("state has", "A has").replace("config has", "B has")
        for line in lines
      )
      + "\nGive the config that one of them was trained with."
    )
  a, b = (
    built(side)
    if state is None
    else difference_lib.as_saved(built(configs[0]), *state)
    for side, state in zip(sides, saved, strict=True)
  )
  return a, b


def table(
  difference: difference_lib.Difference, names: Sequence[str]
) -> rich.table.Table:
  """Returns what both take of sources that they do not take alike."""
  columns = {"source": False, "of": False}
  numbers = ("rows", "tokens", "trained tokens", "documents", "only here")
  rows: list[list[Any]] = []
  for source, both in difference.sources.items():
    for name, taken in zip(names, both.values(), strict=True):
      row: list[Any] = [source, name, "no such source"]
      if taken is not None:
        row[2:] = [taken.rows, taken.tokens, taken.loss_tokens]
        row += [taken.documents, taken.only_here]
      rows.append(row)
  return cli.table(
    columns | dict.fromkeys(numbers, True),
    rows,
    f"in {difference.steps:,} steps",
  )


def show(difference: difference_lib.Difference, names: Sequence[str]) -> None:
  """Prints a difference for a person."""
  console = cli.console()

  def line(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)

  if difference.first_step is None:
    line(
      f"the same spans in {difference.steps:,} steps; batches are made of them"
      " otherwise"
    )
  else:
    line(f"step {difference.first_step:,} is the first that differs")
  for entry in difference.fields:
    line(f"  {entry}")
  if difference.sources:
    console.print(table(difference, names))
  for source, both in difference.sources.items():
    for name, entry in zip(names, both.values(), strict=True):
      if entry is not None and entry.only_here:
        more = ", ..." * (entry.only_here > len(entry.ids))
        line(f"{source}, only {name}: {', '.join(entry.ids)}{more}")


def main(argv: Sequence[str]) -> int:
  """Prints how two runs differ; returns the exit status."""
  names, mix = argv[1:], _DATASET_MIX.value
  sides = [(name, mix) for name in names]
  if len(names) == 1 and mix is not None and not os.path.isdir(names[0]):
    sides = [(names[0], None), (names[0], mix)]
    names = [names[0], f"{names[0]} --dataset_mix"]
  if len(sides) != 2:
    raise app.UsageError(
      "two configs or checkpoints must be given, or one config and"
      f" --dataset_mix, got {' '.join(names) or 'none'}."
    )
  both = runs(sides, _OPTIONS.value, _STORES_OF.value)
  if both is None:
    steps = _STEPS.value
    result = difference_lib.Difference(steps or 0, None, [], {})
  else:
    steps = steps_lib.num_steps(*both, steps=_STEPS.value)
    result = difference_lib.difference(*both, steps)
  if _FORMAT.value == "json":
    print(json.dumps(result.record()))
  elif not result.is_empty:
    show(result, names)
  return int(not result.is_empty)
