# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a run: on one screen, as a picture and as JSON.

Screen and picture show the loss, how full rows were and the tokens of each
source; they are made of what a run logs, the points of `curves.jsonl`.
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
import numpy as np

from chomp_data import pipeline
from chomp_data.audit import coverage as coverage_lib
from chomp_data.reference import curves as curves_lib
from chomp_data.reference import window_log
from chomp_data.storage import publish

DocumentLosses = Mapping[window_log.Document, tuple[float, int]]
Points = Sequence[Mapping[str, Any]]

PICTURE = "summary.png"

_SIZE = (11, 3.4)  # inches
_DPI = 120
_MOST_SOURCES = 10  # Named and coloured; a mix of more shows its largest.
_MOST_DOCUMENTS = 20


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


def document_records(
  pipe: pipeline.Pipeline, losses: DocumentLosses
) -> list[dict[str, Any]]:
  """Returns loss by document, as JSON values."""
  return [
    {
      "source": pipe.source_names[source],
      "document": document,
      "loss": loss,
      "tokens": tokens,
    }
    for (source, document), (loss, tokens) in losses.items()
  ]


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
  with publish.staged_file(pathlib.Path(path)) as file:
    file.write(f"{json.dumps(values, indent=2)}\n".encode())


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
  shown = {source["name"]: source for source in read[:_MOST_SOURCES]}
  out = window_log.source_table(
    shown,
    documents={name: f"{s['documents']:,}" for name, s in shown.items()},
    filled={
      name: "-" if s["filled"] is None else f"{s['filled']:.1%}"
      for name, s in shown.items()
    },
  )
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
