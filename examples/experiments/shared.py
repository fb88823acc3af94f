# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What the experiments share: a corpus, a small decoder and tables."""

import ast
from collections.abc import Iterator
from collections.abc import Sequence
import pathlib
import sysconfig
from typing import Any

from absl import app
import rich.console
import rich.table

from chomp_data import pipeline
from chomp_data.reference import decoder
from chomp_data.reference import training


def functions(shortest: int, longest: int) -> Iterator[dict[str, str]]:
  """Yields the standard library's functions of shortest to longest bytes."""
  stdlib = pathlib.Path(sysconfig.get_path("stdlib"))
  for path in sorted(stdlib.glob("*.py")):
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
      if isinstance(node, ast.FunctionDef):
        source = ast.get_source_segment(text, node) or ""
        if shortest <= len(source.encode()) <= longest:
          yield {"id": f"{path.name}:{node.lineno}", "text": source}


def make_trainer(
  pipe: pipeline.Pipeline,
  seq_len: int,
  num_steps: int,
  optimizer: training.OptimizerOptions,
  **model: Any,
) -> training.Trainer:
  """Returns the trainer of a decoder of 2 layers of width 64."""
  return training.Trainer(
    decoder.DecoderConfig(
      vocab_size=pipe.vocab_size,
      max_positions=seq_len,
      d_model=64,
      num_layers=2,
      num_heads=4,
      mlp_dim=192,
      **model,
    ),
    optimizer,
    num_steps=num_steps,
    mesh=training.data_mesh(),
  )


def show(title: str, lines: Sequence[Sequence[str]], output: str | None) -> str:
  """Prints a table, its head first, and returns it as Markdown.

  Args:
    title: Its title.
    lines: The head, and lines of cells.
    output: A Markdown file that the table is appended to, or None.
  """
  head, *cells = lines
  table = rich.table.Table(*head, title=title)
  for line in cells:
    table.add_row(*line)
  rich.console.Console(width=150).print(table)
  rows = [head, ["---"] * len(head), *cells]
  text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
  markdown = f"{title}\n\n{text}\n"
  if output:
    with open(output, "a") as file:
      file.write(f"{markdown}\n")
  return markdown


def refuse_arguments(argv: Sequence[str]) -> None:
  """Raises a usage error if a command has arguments that are no flags."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
