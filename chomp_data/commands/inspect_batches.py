# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Shows the rows of a step as the real pipeline makes them.

    %s --config=splice_multi --step=9
    %s --config=... --format=json --count=2
    %s --config=... --follow=runs/x

The terminal view prints decoded text: each segment in its own colour; text that
is not trained on is dim, text with a weight above 1 bold and below 1 italic;
padding is counted. JSON prints one object per row, always with the canonical
fields, whatever `config.data.batch_format` is. `--plan_only` reads no tokens.

Batches of size buckets are shown as pictures, in the terminal or, with
--output=step.png, in a file; the file also works for length buckets, with one
pixel per position and a legend of colours.

--html=page.html writes one self-contained page: each row as a strip of
segments, with ids, offsets and text by pointer or keyboard.

--follow shows the current steps of a running job until it ends or Ctrl-C.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import json
import pathlib
import sys
import time
from typing import Any

from absl import app
from absl import flags
import rich.console

from chomp_data import cli
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.audit import job
from chomp_data.audit import naming
from chomp_data.audit import steps as steps_lib
from chomp_data.audit import visits
from chomp_data.commands import pictures
from chomp_data.commands.html import gathering
from chomp_data.commands.html import page
from chomp_data.commands.inspecting import records
from chomp_data.commands.inspecting import terminal
from chomp_data.storage import opening

_CONFIG = cli.define_config()
_STEP = cli.define_step("; by default the first")
_COUNT = flags.DEFINE_integer(
  "count", None, "How many steps are shown from --step on; 1.", 1
)
_CHECKPOINT = cli.define_checkpoint(", and --step defaults to its step")
_ROWS = flags.DEFINE_integer(
  "rows",
  None,
  "Rows shown of each step; by default all in JSON, 4 in the terminal, 64 in"
  " a PNG file.",
  1,
)
_FORMAT = cli.define_format("rows are")
_PLAN_ONLY = flags.DEFINE_bool(
  "plan_only", False, "Leave the arrays out and read no token."
)
_DATASET_MIX = cli.define_dataset_mix()
_OUTPUT = cli.define_text(
  "output", None, "A PNG file that the steps of buckets are drawn to."
)
_DOCUMENT = cli.define_text(
  "document",
  None,
  "A document as NAME/ID, or by number as NAME/#42: only rows that hold it are"
  " shown, and when the run comes to it next.",
)
_HTML = cli.define_text(
  "html", None, "A file that gets the steps as one page for a browser."
)
_HISTORY = flags.DEFINE_integer(
  "history",
  50,
  "With --html, steps before whose shares of sources are shown too.",
  0,
)
_FOLLOW = cli.define_text(
  "follow",
  None,
  "The --workdir of a running job: the steps that it is at are shown.",
)

_PNG_ROWS = 64
# Seconds between two looks at a job, and at one in a bucket.
_LOOK_S, _LOOK_FAR_S = 0.5, 10.0


def _write_page(
  pipe: pipeline.Pipeline, steps: range, path: pathlib.Path
) -> None:
  """Writes steps as a page."""
  _refuse_beside("html", ("output", "format"), "a page is written")
  document = None
  if _DOCUMENT.value is not None:
    document = naming.find_document(pipe, _DOCUMENT.value)
  values = gathering.gathered(
    pipe,
    steps,
    num_rows=_ROWS.value,
    history=_HISTORY.value,
    plan_only=_PLAN_ONLY.value,
    decoders=None if _PLAN_ONLY.value else terminal.decoders_of(pipe),
    document=document,
  )
  in_samples = any(any(step.get("lit", ())) for step in values["steps"])
  if document is not None and values["lit"] is None and not in_samples:
    print(f"{_DOCUMENT.value} is in no row that is shown", file=sys.stderr)
  title = f"Step {steps.start}"
  if len(steps) > 1:
    title = f"Steps {steps.start} to {steps.stop - 1}"
  path.write_text(page.page(values, title))
  print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def _refuse_beside(flag: str, others: Sequence[str], why: str) -> None:
  """Raises ConfigError where flags are given that mean nothing beside one."""
  conflicts = [f"--{name}" for name in others if flags.FLAGS[name].present]
  if conflicts:
    raise schema.ConfigError(
      [
        f"`--{flag}` must come without flags of what is printed, got"
        f" {' and '.join(conflicts)} with it. Leave them out: {why}."
      ]
    )


def _show(pipe: pipeline.Pipeline, steps: range) -> None:
  """Prints or draws steps, as the flags say."""
  html, output = cli.output_file(_HTML), cli.output_file(_OUTPUT)
  if html is not None:
    _write_page(pipe, steps, html)
    return
  if output is not None:
    if pipe.run_options.kind == "rows":
      raise schema.ConfigError(
        [
          "`--output` must not be set for runs without `config.data.buckets`,"
          f" got {output}. Leave it out: rows are printed."
        ]
      )
    _refuse_beside(
      "output", ("plan_only", "format", "document"), "a picture is drawn"
    )
    shown = terminal.sheet(pipe, steps, _ROWS.value or _PNG_ROWS)
    pictures.write_png(output, shown)
    print(f"{output}: {shown.shape[1]} x {shown.shape[0]} pixels")
    return
  console = rich.console.Console()
  # Before anything is printed: there may be no such document.
  document = None
  if _DOCUMENT.value is not None:
    document = naming.find_document(pipe, _DOCUMENT.value)
  if _FORMAT.value != "json":
    console.print(
      pipe.describe(), highlight=False, markup=False, soft_wrap=True
    )
  if document is None:
    _print_steps(console, pipe, steps)
  else:
    _print_document(console, pipe, steps, *document)


def _print_steps(
  console: rich.console.Console,
  pipe: pipeline.Pipeline,
  steps: range,
  rows_by_step: Mapping[int, Sequence[int]] | None = None,
) -> None:
  """Prints steps, as the flags say; if there are `rows_by_step`, only those."""
  as_json = _FORMAT.value == "json"
  for step in steps:
    num_rows = pipe.buckets[pipe.run_plan.planned(step).bucket].batch_size
    most = _ROWS.value or (num_rows if as_json else 4)
    rows: Sequence[int] = range(min(most, num_rows))
    if rows_by_step is not None:
      rows = rows_by_step.get(step, [])[:most]
      if not rows:
        continue
    if as_json:
      rows_of = records.json_rows if pipe.sources else records.json_samples
      for record in rows_of(pipe, step, _PLAN_ONLY.value):
        if record["row"] in rows:
          print(json.dumps(record), flush=_FOLLOW.value is not None)
    elif pipe.sources:
      terminal.print_step(console, pipe, step, rows, _PLAN_ONLY.value)
    elif _PLAN_ONLY.value:
      source, bucket = pipe.bucket_of(step)
      console.print(f"step {step}: {source}, bucket {bucket}", highlight=False)
    else:
      terminal.print_pictures(console, pipe, step, rows)


def _print_document(
  console: rich.console.Console,
  pipe: pipeline.Pipeline,
  steps: range,
  source: str,
  document: int,
) -> None:
  """Prints rows of steps that hold a document, and when it comes next."""
  trail = visits.Visits(pipe, source, document)
  rows_of: dict[int, list[int]] = {}
  following = None
  for visit in trail.next_visits(steps.start):
    if visit.step >= steps.stop:
      following = visit.step
      break
    rows = rows_of.setdefault(visit.step, [])
    if visit.row not in rows:
      rows.append(visit.row)
  _print_steps(console, pipe, steps, rows_of)
  record: dict[str, Any] = {"source": source, "document": document}
  if pipe.sources:
    record["id"] = pipe.sources[source].store.document_ids([document])[0]
  record["before"] = trail.count_before(steps.start)
  record["next_step"] = following
  if _FORMAT.value == "json":
    print(json.dumps(record))
    return
  shown = sum(map(len, rows_of.values()))
  then = "never again" if following is None else f"next at step {following}"
  identity = f" ({record['id']})" if record.get("id") else ""
  console.print(
    f"{source}/#{document}{identity}: in"
    f" {shown} rows of these steps, {record['before']} spans before, {then}",
    highlight=False,
    markup=False,
    soft_wrap=True,
  )


def _follow(pipe: pipeline.Pipeline, workdir: str) -> None:
  """Shows the steps that a job is at, until it ends."""
  _refuse_beside(
    "follow",
    ("step", "count", "document", "checkpoint", "output", "html"),
    "the job's step is shown",
  )
  console = rich.console.Console()
  run, saved, shown, warned = pipe, None, None, False
  while True:
    state = job.read(workdir)
    if state is not None:
      if state.fingerprint != saved:
        run, saved = state.run_of(pipe), state.fingerprint
      step = _last_at(run, state.step)
      if step != shown and not (state.ended and shown is not None):
        _print_steps(console, run, range(step, step + 1))
        shown = step
      if state.ended:
        print(f"job {state.status} at step {state.step}", file=sys.stderr)
        return
    elif not warned:
      warned = True
      print(f"waiting for the first word of {workdir}", file=sys.stderr)
    is_remote = opening.open_storage(workdir).directory is None
    time.sleep(_LOOK_FAR_S if is_remote else _LOOK_S)


def _steps(pipe: pipeline.Pipeline, at: int) -> range:
  """Returns the steps that are shown.

  Args:
    pipe: The run.
    at: The step that is shown without --step.
  """
  if _STEP.value is None:
    first = _last_at(pipe, at)
    steps = range(first, first + 1)
  else:
    steps = cli.steps_of(_STEP.value)
  if _COUNT.value is not None:
    if ":" in (_STEP.value or ""):
      raise app.UsageError(
        f"--count must not come with --step=A:B, got --step={_STEP.value} and"
        f" --count={_COUNT.value}. Leave one of them out."
      )
    steps = range(steps.start, steps.start + _COUNT.value)
  flag = "--step" if _COUNT.value is None else "--step + --count"
  steps_lib.check(pipe, steps[-1], flag)
  return steps


def _last_at(pipe: pipeline.Pipeline, step: int) -> int:
  """Returns the step that a job is at; the last one of one that is through."""
  last = step if pipe.num_steps is None else pipe.num_steps - 1
  return max(0, min(step, last))


def main(argv: Sequence[str]) -> None:
  """Prints the steps asked for."""
  cli.refuse_arguments(argv[1:])
  pipe = pipeline.build(cli.config(_CONFIG, _DATASET_MIX).get("data"))
  if _FOLLOW.value is not None:
    with contextlib.suppress(KeyboardInterrupt):
      _follow(pipe, _FOLLOW.value)
    return
  at = 0
  if _CHECKPOINT.value:
    pipe, at = job.continued(pipe, _CHECKPOINT.value)
  _show(pipe, _steps(pipe, at))
