# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows and samples of steps for people: text, and pictures of arrays."""

from collections.abc import Mapping
from collections.abc import Sequence
import itertools
from typing import Any

import numpy as np
import rich.console
import rich.panel
import rich.text

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.commands import pictures
from chomp_data.commands import token_texts
from chomp_data.commands.inspecting import records
from chomp_data.prepare import tokenizers
from chomp_data.rows import row_layout

_VISIBLE = {
  code: text
  for code, text in token_texts.CONTROLS.items()
  if chr(code) not in "\n\t"
}
# By whether trained text weighs less than 1, 1 or more.
_WEIGHT_STYLES = {-1: "italic ", 0: "", 1: "bold "}
_SEGMENT_STYLES = ("green", "cyan", "yellow", "magenta", "blue", "red")


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
  seq_len = pipe.buckets[pipe.run_plan.planned(step).bucket].shape[0]
  real = row_layout.real_tokens(spans, seq_len)
  decoders = {} if plan_only else decoders_of(pipe)
  called = f"step {step}"
  if pipe.run_plan.steps.skip:
    called += f" (data step {pipe.run_plan.steps.data_step(step)})"
  source = spans.row_source()
  for row in rows:
    name = "filler" if source[row] < 0 else pipe.source_names[source[row]]
    body = rich.text.Text()
    (named,) = records.spans_by_row(pipe, spans.rows(row, row + 1))
    parts = {span["column"]: span["part"] for span in named if "part" in span}
    for span in named:
      document, column, start, identity = (
        span[k] for k in ("document", "column", "start", "id")
      )
      last = span["length"] - 1
      added = [name.upper() for name in ("bos", "eos") if span.get(name)]
      last_token = start + last - len(added) - span.get("sentinels", 0)
      tokens = f"tokens {start}..{last_token}"
      if "part" in span:
        empty = last_token < start
        tokens = f"{span['part']}: {'no tokens' if empty else tokens}"
      body.append(
        f"columns {column}..{column + last} <- document {document}"
        f" {identity!r} {tokens}"
        f"{''.join(f' + {name}' for name in added)}"
        f"{' (gone)' if 'gone' in span else ''}\n",
        style="bold",
      )
    if batch and name != "filler":
      fields = {
        name: batch[name][row] for name in records.FIELDS if name in batch
      }
      body.append_text(_row_text(fields, real[row], decoders[name], parts))
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
  decoders: dict[str, Any] = dict.fromkeys(pipe.sources)
  for name, source in pipe.sources.items():
    # Stores of other tools have token ids and no more.
    if source.store.opened.tokenizer.kind != "custom":
      decoders[name] = tokenizers.load_tokenizer(source.store)
  return decoders


def _row_text(
  fields: dict[str, np.ndarray],
  real: np.ndarray,
  tokenizer: Any,
  parts: Mapping[int, str],
) -> rich.text.Text:
  """Returns a row's text: a colour a segment, dim where it is not trained.

  `parts` are names of parts of rearranged documents, by the columns of their
  sentinels.
  """
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
  marks = {edge for column in parts for edge in (column, column + 1)}
  edges = sorted({0, *change.tolist(), *marks, len(segment)})
  out = rich.text.Text()
  for low, high in itertools.pairwise(edges):
    if not real[low]:
      out.append(f"<filler x {high - low}>", style="dim italic")
      continue
    style = _SEGMENT_STYLES[(int(segment[low]) - 1) % len(_SEGMENT_STYLES)]
    ids = fields["tokens"][low:high]
    if low in parts:
      text = f"<{parts[low]}>"
      style = f"reverse {style}"
    elif tokenizer is None:
      text = " ".join(map(str, ids.tolist())) + " "
    else:
      text = tokenizer.decode(ids)
    how = _WEIGHT_STYLES[int(compared[low])] if target[low] else "dim "
    out.append(text.translate(_VISIBLE), style=how + style)
  return out


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
  for record in records.json_samples(pipe, step):
    if record["row"] not in rows:
      continue
    shown = " ".join(f"{name}={_brief(item)}" for name, item in record.items())
    console.print(shown, highlight=False, markup=False, soft_wrap=True)
  count = pipe.buckets[pipe.run_plan.planned(step).bucket].batch_size
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


def drawn(pipe: pipeline.Pipeline, step: int, num_rows: int) -> np.ndarray:
  """Returns a step of a bucketed run as a picture, without its title.

  Args:
    pipe: The run.
    step: The step.
    num_rows: Rows shown, at most.

  Raises:
    ConfigError: If samples have no array, only numbers.
  """
  if pipe.sources:
    seq_len = pipe.buckets[pipe.run_plan.planned(step).bucket].shape[0]
    real = row_layout.real_tokens(pipe.plan(step), seq_len)
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
  return pictures.grid(
    [pictures.picture(sample, size) for sample in value], columns
  )


def sheet(pipe: pipeline.Pipeline, steps: range, num_rows: int) -> np.ndarray:
  """Returns steps below each other, each with its title; a legend of text.

  Args:
    pipe: The run.
    steps: The steps.
    num_rows: Rows shown of each step, at most.
  """
  parts = [pictures.legend()] if pipe.sources else []
  for step in steps:
    source, bucket = pipe.bucket_of(step)
    parts.append(pictures.title(f"step {step}: {source}, bucket {bucket}"))
    parts.append(drawn(pipe, step, num_rows))
  return pictures.stacked(parts)


def _drawable(batch: dict[str, np.ndarray]) -> np.ndarray | None:
  """Returns the first field of more than a number a sample, or None."""
  return next((field for field in batch.values() if field.ndim > 1), None)
