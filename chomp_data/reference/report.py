# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a run: scores, losses by document and coverage, for both readers.

Tables are for people, the JSON record for programs; they hold the same
numbers.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import json
from typing import Any

from etils import epath
import jax
import rich.table

from chomp_data import pipeline
from chomp_data.audit import coverage as coverage_lib
from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import evaluation
from chomp_data.reference import progress
from chomp_data.splice import source as splice_source
from chomp_data.storage import publish

DocumentLosses = Mapping[progress.Document, tuple[float, int]]

_MOST_DOCUMENTS = 20


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
        model,
        evaluation.batches_of(rows, pipe.global_batch_size, sharding),
      )
      for question, rows in {
        **evaluation.grids(source, seen[name]),
        evaluation.VALIDATION: splice_source.validation_of(source),
      }.items()
    }
    for name, source in pipe.sources.items()
  }


def score_table(
  scores: Mapping[str, Mapping[str, evaluation.Score]],
) -> rich.table.Table:
  """Returns the scores, one line a question."""
  table = rich.table.Table(title="perplexity by question", title_justify="left")
  table.add_column("source", overflow="fold")
  table.add_column("question")
  for name in ("perplexity", "loss", "tokens", "rows"):
    table.add_column(name, justify="right")
  for source, questions in scores.items():
    for question, score in questions.items():
      table.add_row(
        source,
        question,
        f"{score.perplexity:.3f}",
        f"{score.loss:.4f}",
        f"{score.tokens:,}",
        f"{score.rows:,}",
      )
  return table


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
  scores: Mapping[str, Mapping[str, evaluation.Score]],
  read: list[coverage_lib.Coverage],
) -> dict[str, Any]:
  """Returns what can be said of a finished run at any time, as JSON values."""
  return {
    "step": step,
    "evaluation": {
      source: {
        question: {
          "perplexity": score.perplexity,
          "loss": score.loss,
          "tokens": score.tokens,
          "rows": score.rows,
        }
        for question, score in questions.items()
      }
      for source, questions in scores.items()
    },
    "coverage": {
      coverage.source: [
        {
          "document": document,
          "id": pipe.sources[coverage.source].store.document_ids([document])[0],
          "length": int(coverage.length[i]),
          "rows": int(coverage.rows[i]),
          "tokens": int(coverage.tokens[i]),
          "distinct_tokens": int(coverage.distinct[i]),
        }
        for i, document in enumerate(coverage.document.tolist())
      ]
      for coverage in read
    },
    "coverage_entropy": {
      coverage.source: coverage.entropy for coverage in read
    },
  }


def progress_record(
  pipe: pipeline.Pipeline, window: progress.Window, losses: DocumentLosses
) -> dict[str, Any]:
  """Returns how a run's last steps went, as JSON values."""
  return {
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
  }


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
