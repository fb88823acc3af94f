"""Shows what is in a step's rows, made by the real pipeline.

    %s --config=splice_multi --step=9
    %s --config=... --format=json --count=2
    %s --config=... --follow=runs/x

The terminal view prints decoded text: each segment in its colour, text that
is not trained on dimmed, text that weighs more than 1 bold and less italic,
filler counted. JSON prints one object a row, for
programs: always the canonical fields, whatever `config.data.batch_format`.
`--plan_only` answers without reading a token.

Batches of buckets of sizes are shown as pictures: in the terminal, or with
--output=step.png in a file, where rows of text in buckets of lengths are shown
too, in a legend's colours, one pixel wide a position.

--html=page.html writes one self-contained page: every row as a strip of
segments, with ids, offsets and text under the pointer and by keyboard.

--follow shows the steps that a running job is at, until it ends or Ctrl-C.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import itertools
import json
import pathlib
import sys
import time
from typing import Any

from absl import app
from absl import flags
import numpy as np
import rich.console
import rich.markup
import rich.panel
import rich.text

from chomp_data import cli
from chomp_data import pipeline
from chomp_data import schema
from chomp_data import stores
from chomp_data.audit import job
from chomp_data.audit import naming
from chomp_data.audit import visits
from chomp_data.commands import pictures
from chomp_data.commands.html import gathering
from chomp_data.commands.html import page
from chomp_data.loading import reads as reads_lib
from chomp_data.loading import state as state_lib
from chomp_data.ops import row_layout
from chomp_data.ops import spans as spans_lib
from chomp_data.prepare import tokenizers
from chomp_data.stores import places

_CONFIG = cli.define_config()
_STEP = flags.DEFINE_integer("step", 0, "The first step shown.", 0)
_COUNT = flags.DEFINE_integer("count", 1, "How many steps are shown.", 1)
_ROWS = flags.DEFINE_integer(
  "rows",
  None,
  "Rows shown of each step; by default all in JSON, 4 in the terminal, 64 in"
  " a PNG file.",
  1,
)
_FORMAT = flags.DEFINE_enum(
  "format", "terminal", ["terminal", "json"], "How rows are printed."
)
_PLAN_ONLY = flags.DEFINE_bool(
  "plan_only", False, "Leave the arrays out and read no token."
)
_DATASET_MIX = cli.define_dataset_mix()
_OUTPUT = flags.DEFINE_string(
  "output", None, "A PNG file that the steps of buckets are drawn to."
)
_DOCUMENT = flags.DEFINE_string(
  "document",
  None,
  "A document as NAME/ID, or by number as NAME/#42: only rows that hold it are"
  " shown, and when the run comes to it next.",
)
_HTML = flags.DEFINE_string(
  "html", None, "A file that gets the steps as one page for a browser."
)
_HISTORY = flags.DEFINE_integer(
  "history",
  50,
  "With --html, steps before whose shares of sources are shown too.",
  0,
)
_FOLLOW = flags.DEFINE_string(
  "follow",
  None,
  "The --workdir of a running job: the steps that it is at are shown.",
)

_PNG_ROWS = 64
# Seconds between two looks at a job, and at one in a bucket.
_LOOK_S, _LOOK_FAR_S = 0.5, 10.0
_FIELDS = ("tokens", "segment_ids", "positions", "loss_mask", "loss_weight")
# Control characters of a document must not reach the terminal.
_VISIBLE = {
  code: "\N{REPLACEMENT CHARACTER}"
  for code in (*range(0x20), *range(0x7F, 0xA0))
  if chr(code) not in "\n\t"
}
# By whether trained text weighs less than 1, 1 or more.
_WEIGHT_STYLES = {-1: "italic ", 0: "", 1: "bold "}
_SEGMENT_STYLES = ("green", "cyan", "yellow", "magenta", "blue", "red")


def json_samples(
  pipe: pipeline.Pipeline, step: int, plan_only: bool = False
) -> Iterator[dict[str, Any]]:
  """Yields one JSON object for each row of a step of arrays.

  Args:
    pipe: A run in buckets of sizes.
    step: The step.
    plan_only: Whether to read no array: samples then have a `number` within
      their dataset and bucket, in place of `sample_id`.
  """
  source, bucket = pipe.bucket_of(step)
  samples = pipe.samples(step)
  batch = {} if plan_only else pipe.batch(step)
  for row, sample in enumerate(samples.tolist()):
    record: dict[str, Any] = {
      "step": step,
      "row": row,
      "source": None if sample < 0 else source,
      "bucket": bucket,
    }
    if plan_only:
      record["number"] = sample
    for name, value in batch.items():
      if value.ndim == 1:
        record[name] = _json_number(value[row])
      else:
        own = value[row].astype(np.float64)
        record[name] = {
          "dtype": str(value.dtype),
          "shape": list(value.shape[1:]),
          "min": _json_number(own.min()) if own.size else None,
          "max": _json_number(own.max()) if own.size else None,
          "mean": _json_number(own.mean()) if own.size else None,
        }
    yield record


def _json_number(value: Any) -> Any:
  """Returns a number of NumPy, None where JSON has no word for it."""
  return value.item() if np.isfinite(value) else None


def drawn(pipe: pipeline.Pipeline, step: int, num_rows: int) -> np.ndarray:
  """Returns a step of a bucketed run as a picture, without its title.

  Args:
    pipe: The run.
    step: The step.
    num_rows: Rows shown, at most.

  Raises:
    ConfigError: If samples have no array, only numbers.
  """
  if pipe.holds_text:
    real = row_layout.real_tokens(pipe.plan(step), pipe.row_length(step))
    mask = pipe.canonical(step)["loss_mask"]
    return pictures.of_text(real[:num_rows], mask[:num_rows])
  batch = pipe.batch(step)
  value = _drawable(batch)
  if value is None:
    raise schema.ConfigError(
      [
        "`config.data.buckets.fields` must name an array of one axis or more"
        f" to be drawn, got numbers only ({', '.join(batch)}). Use"
        " --format=json."
      ]
    )
  value = value[:num_rows]
  columns = int(np.ceil(np.sqrt(len(value))))
  size = int(batch["height"][0]), int(batch["width"][0])
  return pictures.grid([pictures.picture(own, size) for own in value], columns)


def sheet(pipe: pipeline.Pipeline, steps: range, num_rows: int) -> np.ndarray:
  """Returns steps below each other, each with its title; a legend of text.

  Args:
    pipe: The run.
    steps: The steps.
    num_rows: Rows shown of each step, at most.
  """
  parts = [pictures.legend()] if pipe.holds_text else []
  for step in steps:
    source, bucket = pipe.bucket_of(step)
    parts.append(pictures.title(f"step {step}: {source}, bucket {bucket}"))
    parts.append(drawn(pipe, step, num_rows))
  return pictures.stacked(parts)


def _drawable(batch: dict[str, np.ndarray]) -> np.ndarray | None:
  """Returns the first field of more than a number a sample, or None."""
  return next((own for own in batch.values() if own.ndim > 1), None)


def print_pictures(
  console: rich.console.Console,
  pipe: pipeline.Pipeline,
  step: int,
  rows: Sequence[int],
) -> None:
  """Prints a step of arrays for a person.

  Its pictures, where the console has colours, and a line for each: numbers,
  and of arrays their dtype, shape, least and greatest value.
  """
  source, bucket = pipe.bucket_of(step)
  # Without colours all blocks are the same.
  whole = rows == range(len(rows))
  if console.is_terminal and whole and _drawable(pipe.batch(step)) is not None:
    shown = drawn(pipe, step, len(rows))
    console.print(pictures.half_blocks(shown, console.width))
  for record in json_samples(pipe, step):
    if record["row"] not in rows:
      continue
    shown = " ".join(f"{name}={_brief(own)}" for name, own in record.items())
    console.print(shown, highlight=False, markup=False, soft_wrap=True)
  count = len(pipe.samples(step))
  console.print(
    f"step {step}: {count} samples of {source}, bucket {bucket}",
    highlight=False,
  )


def _brief(value: Any) -> str:
  """Returns a value of `json_samples` for a line of text."""
  if not isinstance(value, dict):
    return str(value)
  shape = ", ".join(map(str, value["shape"]))
  return f"{value['dtype']}[{shape}] {value['min']}..{value['max']}"


def json_rows(
  pipe: pipeline.Pipeline, step: int, plan_only: bool = False
) -> Iterator[dict[str, Any]]:
  """Yields one JSON object for each row of a step.

  Args:
    pipe: The run.
    step: The step.
    plan_only: Whether to leave the arrays out and read no token.
  """
  spans = pipe.plan(step)
  batch = {} if plan_only else pipe.canonical(step)
  source = spans.row_source()
  in_bucket = {"bucket": pipe.bucket_of(step)[1]} if pipe.in_buckets else {}
  named = _single_spans(pipe, spans)
  for row in range(spans.num_rows):
    record = {
      "step": step,
      **_data_step(pipe, step),
      "row": row,
      "source": None if source[row] < 0 else pipe.source_names[source[row]],
      **in_bucket,
      "spans": named[row],
    }
    record.update(
      {name: batch[name][row].tolist() for name in _FIELDS if name in batch}
    )
    yield record


def _data_step(pipe: pipeline.Pipeline, step: int) -> dict[str, int]:
  """Returns which data step a step reads, where some are skipped."""
  return {"data_step": pipe.steps.data_step(step)} if pipe.steps.skip else {}


def print_step(
  console: rich.console.Console,
  pipe: pipeline.Pipeline,
  step: int,
  rows: Sequence[int],
  plan_only: bool,
) -> None:
  """Prints a step for a person: a panel a row, and totals."""
  spans = pipe.plan(step)
  batch = {} if plan_only else pipe.canonical(step)
  seq_len = pipe.row_length(step)
  real = row_layout.real_tokens(spans, seq_len)
  decoders = {} if plan_only else decoders_of(pipe)
  called = f"step {step}"
  if pipe.steps.skip:
    called += f" (data step {pipe.steps.data_step(step)})"
  source = spans.row_source()
  for row in rows:
    name = "filler" if source[row] < 0 else pipe.source_names[source[row]]
    body = rich.text.Text()
    (named,) = _single_spans(pipe, spans.rows(row, row + 1))
    for span in named:
      document, column, start, identity = (
        span[k] for k in ("document", "column", "start", "id")
      )
      last = span["length"] - 1
      added = [name.upper() for name in ("bos", "eos") if span.get(name)]
      last_token = start + last - len(added)
      body.append(
        f"columns {column}..{column + last} <- document {document}"
        f" {identity!r} tokens {start}..{last_token}"
        f"{''.join(f' + {name}' for name in added)}"
        f"{' (gone)' if 'gone' in span else ''}\n",
        style="bold",
      )
    if batch and name != "filler":
      fields = {name: batch[name][row] for name in _FIELDS if name in batch}
      body.append_text(_row_text(fields, real[row], decoders[name]))
    body.rstrip()
    console.print(
      rich.panel.Panel(
        body,
        title=f"{called} row {row} of {spans.num_rows}: {name}",
        subtitle=f"padding {1 - real[row].mean():.1%}",
        title_align="left",
        subtitle_align="right",
      )
    )
  totals = [
    f"{called}: {spans.num_rows} rows of {seq_len}, {len(spans)} spans",
    f"padding {1 - real.mean():.2%}",
  ]
  if batch:
    totals.append(f"trained positions {batch['loss_mask'].mean():.2%}")
  if "loss_weight" in batch and batch["loss_mask"].any():
    weights = batch["loss_weight"][batch["loss_mask"]]
    totals.append(
      f"weights {weights.min():g} .. {weights.max():g}, mean"
      f" {weights.mean():.3g}"
    )
  console.print(", ".join(totals), highlight=False)


def decoders_of(pipe: pipeline.Pipeline) -> dict[str, Any]:
  """Returns the tokenizers of a run's sources; None where a store has none."""
  found: dict[str, Any] = dict.fromkeys(pipe.sources)
  for name, source in pipe.sources.items():
    # Stores of other tools have token ids and no more.
    if source.store.tokenizer_info.kind != "custom":
      found[name] = tokenizers.load_tokenizer(source.store)
  return found


def _single_spans(
  pipe: pipeline.Pipeline, spans: spans_lib.Spans
) -> list[list[dict[str, Any]]]:
  """Returns the spans of each row as plain values, with documents' ids."""
  ids = naming.ids_of(pipe, spans)
  rows: list[list[dict[str, Any]]] = [[] for _ in range(spans.num_rows)]
  names = ("row", "source", "document", "start", "length", "column")
  columns = [getattr(spans, name).tolist() for name in names]
  gone = getattr(spans, "gone", None)
  for i, (row, source, document, *values) in enumerate(
    zip(*columns, strict=True)
  ):
    span = {
      "source": pipe.source_names[source],
      "document": document,
      "id": ids[i],
      **dict(zip(names[3:], values, strict=True)),
    }
    # Tokens that the store lacks, counted in `length`.
    for added in ("bos", "eos"):
      where = getattr(spans, added)
      if where is not None and where[i]:
        span[added] = 1
    if gone is not None and gone[i]:
      span["gone"] = True
    rows[row].append(span)
  return rows


def _row_text(
  fields: dict[str, np.ndarray], real: np.ndarray, tokenizer: Any
) -> rich.text.Text:
  """Returns a row's text: a colour a segment, dim where it is not trained."""
  segment, trained = fields["segment_ids"], fields["loss_mask"]
  # The target of a trained position is the next one, so that is what is lit.
  target = np.zeros_like(trained)
  target[1:] = trained[:-1]
  weight = np.ones(len(trained))
  if "loss_weight" in fields:
    weight[1:] = np.where(trained, fields["loss_weight"], 1)[:-1]
  compared = np.sign(weight - 1).astype(int)
  key = np.stack([real, np.where(real, segment, 0), real & target, compared])
  change = np.flatnonzero(np.any(key[:, 1:] != key[:, :-1], axis=0)) + 1
  edges = [0, *change.tolist(), len(segment)]
  out = rich.text.Text()
  for low, high in itertools.pairwise(edges):
    if not real[low]:
      out.append(f"<filler x {high - low}>", style="dim italic")
      continue
    style = _SEGMENT_STYLES[(int(segment[low]) - 1) % len(_SEGMENT_STYLES)]
    ids = fields["tokens"][low:high]
    if tokenizer is None:
      text = " ".join(map(str, ids.tolist())) + " "
    else:
      text = tokenizer.decode(ids)
    how = _WEIGHT_STYLES[int(compared[low])] if target[low] else "dim "
    out.append(text.translate(_VISIBLE), style=how + style)
  return out


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
    decoders=None if _PLAN_ONLY.value else decoders_of(pipe),
    document=document,
  )
  in_samples = any(any(own.get("lit", ())) for own in values["steps"])
  if document is not None and values["lit"] is None and not in_samples:
    print(f"{_DOCUMENT.value} is in no row that is shown", file=sys.stderr)
  title = f"Step {steps.start}"
  if len(steps) > 1:
    title = f"Steps {steps.start} to {steps.stop - 1}"
  path.write_text(page.page(values, title))
  print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def _refuse_beside(flag: str, others: Sequence[str], why: str) -> None:
  """Raises ConfigError where flags are given that mean nothing beside one."""
  given = [f"--{name}" for name in others if flags.FLAGS[name].present]
  if given:
    raise schema.ConfigError(
      [
        f"`--{flag}` must come without flags of what is printed, got"
        f" {' and '.join(given)} with it. Leave them out: {why}."
      ]
    )


def _show(pipe: pipeline.Pipeline, steps: range) -> None:
  """Prints or draws steps, as the flags say."""
  if _HTML.value:
    _write_page(pipe, steps, pathlib.Path(_HTML.value))
    return
  if _OUTPUT.value:
    if not pipe.in_buckets:
      raise schema.ConfigError(
        [
          "`--output` must not be set for runs without `config.data.buckets`,"
          f" got {_OUTPUT.value}. Leave it out: rows are printed."
        ]
      )
    _refuse_beside(
      "output", ("plan_only", "format", "document"), "a picture is drawn"
    )
    shown = sheet(pipe, steps, _ROWS.value or _PNG_ROWS)
    pictures.write_png(pathlib.Path(_OUTPUT.value), shown)
    print(f"{_OUTPUT.value}: {shown.shape[1]} x {shown.shape[0]} pixels")
    return
  console = rich.console.Console()
  if _FORMAT.value != "json":
    console.print(
      pipe.describe(), highlight=False, markup=False, soft_wrap=True
    )
  if _DOCUMENT.value is None:
    _print_steps(console, pipe, steps)
  else:
    _print_document(console, pipe, steps, _DOCUMENT.value)
  if _FORMAT.value != "json" and not _PLAN_ONLY.value:
    for line in reads_lib.lines(pipe.reads):
      console.print(line, highlight=False, markup=False, soft_wrap=True)


def _print_steps(
  console: rich.console.Console,
  pipe: pipeline.Pipeline,
  steps: range,
  found: Mapping[int, Sequence[int]] | None = None,
) -> None:
  """Prints steps, as the flags say; of those in `found` these rows alone."""
  as_json = _FORMAT.value == "json"
  for step in steps:
    num_rows = len(pipe.samples(step)) if pipe.in_buckets else None
    if num_rows is None:
      num_rows = pipe.plan(step).num_rows
    most = _ROWS.value or (num_rows if as_json else 4)
    rows: Sequence[int] = range(min(most, num_rows))
    if found is not None:
      rows = found.get(step, [])[:most]
      if not rows:
        continue
    if as_json:
      rows_of = json_rows if pipe.holds_text else json_samples
      for record in rows_of(pipe, step, _PLAN_ONLY.value):
        if record["row"] in rows:
          print(json.dumps(record), flush=_FOLLOW.value is not None)
    elif pipe.holds_text:
      print_step(console, pipe, step, rows, _PLAN_ONLY.value)
    elif _PLAN_ONLY.value:
      source, bucket = pipe.bucket_of(step)
      console.print(f"step {step}: {source}, bucket {bucket}", highlight=False)
    else:
      print_pictures(console, pipe, step, rows)


def _print_document(
  console: rich.console.Console,
  pipe: pipeline.Pipeline,
  steps: range,
  name: str,
) -> None:
  """Prints rows of steps that hold a document, and when it comes next."""
  source, document = naming.find_document(pipe, name)
  trail = visits.Visits(pipe, source, document)
  found: dict[int, list[int]] = {}
  following = None
  for visit in trail.ahead(steps.start):
    if visit.step >= steps.stop:
      following = visit.step
      break
    rows = found.setdefault(visit.step, [])
    if visit.row not in rows:
      rows.append(visit.row)
  _print_steps(console, pipe, steps, found)
  told: dict[str, Any] = {"source": source, "document": document}
  if pipe.holds_text:
    told["id"] = pipe.sources[source].store.document_id(document)
  told["before"] = trail.before(steps.start)
  told["next_step"] = following
  if _FORMAT.value == "json":
    print(json.dumps(told))
    return
  shown = sum(map(len, found.values()))
  then = "never again" if following is None else f"next at step {following}"
  console.print(
    f"{source}/#{document}{f' ({own})' if (own := told.get('id')) else ''}: in"
    f" {shown} rows of these steps, {told['before']} times before, {then}",
    highlight=False,
    markup=False,
    soft_wrap=True,
  )


def _follow(pipe: pipeline.Pipeline, workdir: str) -> None:
  """Shows the steps that a job is at, until it ends."""
  _refuse_beside(
    "follow",
    ("step", "count", "document", "output", "html"),
    "the job's step is shown",
  )
  console = rich.console.Console()
  shown, warned = None, False
  while True:
    found = job.read(workdir)
    if found is not None:
      if found.fingerprint is not None and not warned:
        warned = True
        for line in state_lib.differences(
          found.fingerprint, pipe.fingerprint, found.step
        ):
          print(f"warning: not the job's config: {line}", file=sys.stderr)
      # A job that is through is at no step: its last one is shown.
      last = found.step if pipe.num_steps is None else pipe.num_steps - 1
      step = min(found.step, last)
      if step != shown and not (found.ended and shown is not None):
        _print_steps(console, pipe, range(step, step + 1))
        shown = step
      if found.ended:
        print(f"job {found.status} at step {found.step}", file=sys.stderr)
        return
    elif not warned:
      warned = True
      print(f"waiting for the first word of {workdir}", file=sys.stderr)
    time.sleep(_LOOK_FAR_S if places.is_url(workdir) else _LOOK_S)


def main(argv: Sequence[str]) -> None:
  """Prints the steps asked for."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  try:
    pipe = pipeline.build(cli.config(_CONFIG, _DATASET_MIX).get("data"))
    if _FOLLOW.value is not None:
      with contextlib.suppress(KeyboardInterrupt):
        _follow(pipe, _FOLLOW.value)
      return
    last = _STEP.value + _COUNT.value
    if pipe.num_steps is not None and last > pipe.num_steps:
      raise schema.ConfigError(
        [
          f"`--step` + `--count` must be at most the run's {pipe.num_steps}"
          f" steps, got {last}. Lower them."
        ]
      )
    _show(pipe, range(_STEP.value, last))
  except BrokenPipeError:
    sys.stderr.close()  # `| head` had enough.
  except (
    schema.ConfigError,
    stores.StoreError,
    state_lib.StateError,
    IndexError,
    ModuleNotFoundError,
    OSError,
  ) as error:
    sys.exit(f"error: {error}")
