# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a run: on one screen, as a picture, as text and as JSON.

Screen and picture show the loss, how full rows were and the tokens of each
source; they are made of what a run logs, the points of `curves.jsonl`. Text
(scores, losses by document, coverage) is for people, JSON for programs; they
hold the same numbers.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import json
import math
import pathlib
from typing import Any

from absl import logging
from etils import epath
import jax
import numpy as np
import rich.table

from chomp_data import pipeline
from chomp_data.audit import coverage as coverage_lib
from chomp_data.reference import curves as curves_lib
from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import evaluation
from chomp_data.reference import window_log
from chomp_data.splice import source as splice_source
from chomp_data.storage import publish

DocumentLosses = Mapping[window_log.Document, tuple[float, int]]
Scores = Mapping[str, Mapping[str, evaluation.Score]]
Points = Sequence[Mapping[str, Any]]

PICTURE = "summary.png"

_SIZE = (11, 3.4)  # inches
_DPI = 120
_MOST_SOURCES = 10  # Named and coloured; a mix of more shows its largest.
_MOST_DOCUMENTS = 20
# Of a score.
_FIGURES = {
  "perplexity": "{:.3f}",
  "loss": "{:.4f}",
  "tokens": "{:,}",
  "rows": "{:,}",
}


def scores(
  pipe: pipeline.Pipeline,
  model: decoder_lib.Decoder,
  num_steps: int,
  sharding: jax.sharding.Sharding,
) -> dict[str, dict[str, evaluation.Score]]:
  """Returns every question's score, by source.

  Args:
    pipe: The run.
    model: Its decoder.
    num_steps: Steps it was trained for.
    sharding: Of the batch axis.
  """
  seen = evaluation.trained(pipe, num_steps)
  return {
    name: {
      question: evaluation.score(
        model, evaluation.batches_of(rows, pipe.global_batch_size), sharding
      )
      for question, rows in {
        **evaluation.grids(source, seen[name]),
        evaluation.VALIDATION: splice_source.validation_of(source),
      }.items()
    }
    for name, source in pipe.sources.items()
  }


def score_table(scores: Scores) -> rich.table.Table:
  """Returns the scores, one line per question."""
  table = rich.table.Table(title="perplexity by question", title_justify="left")
  table.add_column("source", overflow="fold")
  table.add_column("question")
  for name in _FIGURES:
    table.add_column(name, justify="right")
  for source, questions in scores.items():
    for question, score in questions.items():
      figures = _figures(score)
      texts = [form.format(figures[name]) for name, form in _FIGURES.items()]
      table.add_row(source, question, *texts)
  return table


def _figures(score: evaluation.Score) -> dict[str, float]:
  return {name: getattr(score, name) for name in _FIGURES}


def document_lines(
  pipe: pipeline.Pipeline, losses: DocumentLosses
) -> Iterator[str]:
  """Yields loss by document, the greatest first, at most twenty lines."""
  worst = sorted(losses.items(), key=lambda item: -item[1][0])
  for (source, document), (loss, tokens) in worst[:_MOST_DOCUMENTS]:
    name = pipe.source_names[source]
    identity = pipe.sources[name].store.document_ids([document])[0]
    yield f"{loss:8.4f} nats  {tokens:8,} tokens  {name}: {identity}"
  if len(worst) > _MOST_DOCUMENTS:
    yield f"... {len(worst) - _MOST_DOCUMENTS} more documents"


def record(
  pipe: pipeline.Pipeline,
  step: int,
  scores: Scores,
  read: Sequence[coverage_lib.Coverage],
) -> dict[str, Any]:
  """Returns what can be said of a finished run at any time, as JSON values."""
  return {
    "step": step,
    "evaluation": {
      source: {name: _figures(score) for name, score in questions.items()}
      for source, questions in scores.items()
    },
    "coverage": {
      one.source: [
        {
          "document": document,
          "id": pipe.sources[one.source].store.document_ids([document])[0],
          "length": int(one.length[i]),
          "rows": int(one.rows[i]),
          "tokens": int(one.tokens[i]),
          "distinct_tokens": int(one.distinct[i]),
        }
        for i, document in enumerate(one.document.tolist())
      ]
      for one in read
    },
    "coverage_entropy": {one.source: one.entropy for one in read},
  }


def progress_record(
  pipe: pipeline.Pipeline, window: window_log.Window, losses: DocumentLosses
) -> dict[str, Any]:
  """Returns how a run's last steps went, as JSON values."""
  out = {
    "loss": window.loss,
    "tokens_per_second": window.tokens_per_second,
    "positions_per_second": window.positions_per_second,
    "wait_share": window.wait_share,
    "loss_by_document": [
      {
        "source": pipe.source_names[source],
        "document": document,
        "loss": loss,
        "tokens": tokens,
      }
      for (source, document), (loss, tokens) in losses.items()
    ],
    "by_source": window.sources,
  }
  return out if window.buckets is None else {**out, "by_bucket": window.buckets}


def write_json(path: epath.Path, values: Mapping[str, Any]) -> None:
  """Updates a record so that a reader sees the old or the new one whole.

  Args:
    path: The file; fields of it that `values` does not have are kept.
    values: The record.
  """
  # Where there is none yet, or it is no longer readable, it is written anew.
  with contextlib.suppress(OSError, ValueError, TypeError):
    values = {**json.loads(path.read_text()), **values}
  # JSON has no NaN: a loss over no token becomes null.
  values = json.loads(json.dumps(values), parse_constant=lambda _: None)
  part = path.with_name(path.name + ".part")
  publish.write_file(part, f"{json.dumps(values, indent=2)}\n".encode())
  part.replace(path)


def sources(
  pipe: pipeline.Pipeline,
  by_source: Mapping[str, Mapping[str, Any]],
  read: Sequence[coverage_lib.Coverage],
  history: Points,
) -> list[dict[str, Any]]:
  """Returns what a run read of each source, the most tokens first.

  Args:
    pipe: The run.
    by_source: Of a `window_log.Window`.
    read: The documents that it read.
    history: Of `points`.

  Returns:
    The records of `by_source` with `name`, `documents` (read at least once),
    `filled` (the fraction of the positions of its rows that hold tokens, None
    where rows are of several lengths), `filled_alone` (the same for rows of one
    document each) and `loss` (of its latest window, NaN for none).
  """
  latest = history[-1] if history else {}
  out = []
  for coverage in read:
    record = by_source[coverage.source]
    filled = alone = None
    if (
      pipe.run_options.kind == "rows"
      and record["rows"]
      and len(coverage.length)
    ):
      filled = record["tokens"] / (record["rows"] * pipe.seq_len)
      lengths = np.minimum(coverage.length, pipe.seq_len)
      alone = float(lengths.mean()) / pipe.seq_len
    out.append(
      {
        **record,
        "name": coverage.source,
        "documents": len(coverage.document),
        "filled": filled,
        "filled_alone": alone,
        "loss": _finite(latest.get(f"train/loss/{coverage.source}")),
      }
    )
  return sorted(out, key=lambda source: -source["tokens"])


def points(workdir: str) -> list[dict[str, Any]]:
  """Returns the points of a run's curves, in the order of steps.

  Args:
    workdir: The run's local directory.
  """
  path = pathlib.Path(workdir, curves_lib.FILE)
  if not path.exists():
    return []
  return [json.loads(line) for line in path.read_text().splitlines()]


def lines(read: Sequence[Mapping[str, Any]], history: Points) -> list[str]:
  """Returns the summary as text: a table of sources, and the loss.

  Args:
    read: Of `sources`.
    history: Of `points`.
  """
  width = max(len("source"), *(len(source["name"]) for source in read))
  form = f"{{:<{width}}}  {{:>12}}  {{:>6}}  {{:>6}}  {{:>9}}  {{:>6}}"
  form += "  {:>11}  {:>6}"
  heads = ("tokens", "share", "wanted", "documents", "epochs", "rows filled")
  out = [form.format("source", *heads, "loss")]
  out += [
    form.format(
      source["name"],
      f"{source['tokens']:,}",
      f"{source['share']:.1%}",
      f"{source['intended_share']:.1%}",
      f"{source['documents']:,}",
      f"{source['epochs']:.2f}",
      "-" if source["filled"] is None else f"{source['filled']:.1%}",
      "-" if math.isnan(source["loss"]) else f"{source['loss']:.2f}",
    )
    for source in read[:_MOST_SOURCES]
  ]
  if len(read) > _MOST_SOURCES:
    out.append(f"... and {len(read) - _MOST_SOURCES} more sources")
  alone = [source for source in read if source["filled_alone"] is not None]
  if alone:
    total = sum(source["documents"] for source in alone)
    filled = sum(s["documents"] * s["filled_alone"] for s in alone) / total
    out.append(
      f"With one document in each row, {filled:.1%} of the positions would"
      " hold tokens."
    )
  losses = [p["train/loss"] for p in history if p.get("train/loss") is not None]
  if len(losses) > 1:
    out.append(
      f"Training loss: {losses[0]:.2f} nats per token at step"
      f" {history[0]['step']}, {losses[-1]:.2f} at step {history[-1]['step']}."
    )
  return out


def draw(path: str, read: Sequence[Mapping[str, Any]], history: Points) -> bool:
  """Draws the loss, how full rows are and tokens by source.

  Args:
    path: The PNG file.
    read: Of `sources`.
    history: Of `points`.

  Returns:
    Whether there is a picture: False without matplotlib (logged) or points.
  """
  if not history:
    return False
  try:
    from matplotlib import figure as figure_lib
    from matplotlib import ticker
  except ImportError:
    logging.info("no %s: install matplotlib for a picture", PICTURE)
    return False
  read = read[:_MOST_SOURCES]
  figure = figure_lib.Figure(figsize=_SIZE, layout="constrained")
  loss, rows, tokens = figure.subplots(1, 3)
  steps = [point["step"] for point in history]

  for source in read:
    values = [_finite(p.get(f"train/loss/{source['name']}")) for p in history]
    loss.plot(steps, values, lw=1.2, label=source["name"])
  if len(read) > 1:
    values = [_finite(point.get("train/loss")) for point in history]
    loss.plot(steps, values, color="black", lw=1.6, label="all")
  loss.set(title="training loss", xlabel="step", ylabel="nats per token")
  loss.legend(frameon=False, fontsize=8)

  full = [source for source in read if source["filled"] is not None]
  for offset, label, color, values in (
    (-0.2, "as read", "tab:green", [s["filled"] for s in full]),
    (0.2, "one document", "lightgrey", [s["filled_alone"] for s in full]),
  ):
    places = np.arange(len(full)) + offset
    bars = rows.barh(places, values, 0.38, label=label, color=color)
    rows.bar_label(bars, [f"{v:.1%}" for v in values], padding=-32, fontsize=8)
  rows.set_yticks(range(len(full)), [source["name"] for source in full])
  rows.invert_yaxis()
  rows.set(title="row utilisation", xlabel="positions that hold tokens")
  rows.set_xlim(0, 1)
  rows.xaxis.set_major_formatter(ticker.PercentFormatter(1))
  rows.legend(frameon=False, fontsize=8, loc="lower right")

  tokens.stackplot(
    [0, *steps],
    *([0, *(p.get(f"tokens/{s['name']}") or 0 for p in history)] for s in read),
    labels=[
      f"{s['name']} {s['share']:.1%} (wanted {s['intended_share']:.0%})"
      for s in read
    ],
    alpha=0.85,
  )
  tokens.set(title="tokens by source", xlabel="step", ylabel="tokens")
  tokens.yaxis.set_major_formatter(ticker.EngFormatter(sep=""))
  tokens.legend(frameon=False, fontsize=8, loc="upper left")
  figure.savefig(path, dpi=_DPI, metadata={"Software": None})
  return True


def _finite(value: float | None) -> float:
  return math.nan if value is None else value
