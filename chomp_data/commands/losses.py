# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Shows which documents of some steps have a higher loss than before.

    %s --config=... --workdir=runs/x --step=1200:1210
    %s --config=... --workdir=runs/x --step=1204 --replay=batch.npz

For investigating a loss spike: lists the documents in a range of steps, sorted
by how far their loss exceeds their own history, or that of their source if they
have none. The run must have been trained with --config.train.span_losses=True.
--replay writes the batches of the range as they were trained on, bit for bit.
"""

from collections.abc import Sequence
import json
import pathlib
from typing import Any

from absl import app
from absl import flags
import numpy as np

import chomp_data
from chomp_data import cli
from chomp_data import pipeline
from chomp_data.audit import job
from chomp_data.audit import steps as steps_lib
from chomp_data.reference import span_losses
from chomp_data.reference import train_options
from chomp_data.storage import opening

_CONFIG = cli.define_config()
_DATASET_MIX = cli.define_dataset_mix()
_WORKDIR = cli.define_workdir("The run's directory or URL.")
_STEP = cli.define_step()
_MOST = flags.DEFINE_integer("most", 20, "Documents shown in the terminal.", 1)
_FORMAT = cli.define_format("documents are")
_REPLAY = cli.define_text(
  "replay",
  None,
  "An .npz file that gets every field of the steps' batches, as STEP/FIELD.",
)


def _show(records: list[dict], most: int) -> None:
  rows: list[list[Any]] = []
  for record in records[:most]:
    before = record["relative_before"]
    steps = str(record["first_step"])
    if record["last_step"] != record["first_step"]:
      steps += f"..{record['last_step']}"
    rows.append(
      [
        f"{record['source']}/{record['id']}",
        f"{record['loss']:.4f}",
        f"{record['relative']:+.4f}",
        None if before is None else f"{before:+.4f}",
        f"{record['excess']:+.4f}",
        record["tokens"],
        steps,
        record["spans_before"],
        record["last_before"],
      ]
    )
  numbers = (
    "loss", "over source", "before", "excess", "tokens", "steps",
    "spans before", "last seen",
  )  # fmt: skip
  console = cli.console()
  console.print(
    cli.table({"document": False} | dict.fromkeys(numbers, True), rows)
  )
  if len(records) > most:
    console.print(f"... {len(records) - most} more documents (--most)")


def _replay(pipe: pipeline.Pipeline, steps: range, path: pathlib.Path) -> None:
  fields = {
    f"{step}/{name}": value
    for step in steps
    for name, value in pipe.batch(step).items()
  }
  with open(path, "wb") as file:
    np.savez(file, allow_pickle=False, **fields)


def main(argv: Sequence[str]) -> None:
  """Prints the documents."""
  cli.refuse_arguments(argv[1:])
  if not _WORKDIR.value:
    raise app.UsageError("`--workdir` must be given: losses are there")
  steps = cli.steps_of(_STEP.value)
  replay = cli.output_file(_REPLAY)
  config = cli.config(_CONFIG, _DATASET_MIX, train_options.SECTIONS)
  if opening.open_storage(_WORKDIR.value).directory is not None:
    opening.open_local(_WORKDIR.value)
  pipe = chomp_data.build(config.get("data"))
  state = job.read(_WORKDIR.value)
  if state is not None:
    pipe = state.run_of(pipe)
  steps_lib.check(pipe, steps[-1], "--step")
  records = span_losses.documents(
    pipe, opening.open_storage(_WORKDIR.value), steps.start, steps.stop
  )
  if replay is not None:
    _replay(pipe, steps, replay)
  if _FORMAT.value == "json":
    for record in records:
      print(json.dumps(record))
  else:
    _show(records, _MOST.value)
