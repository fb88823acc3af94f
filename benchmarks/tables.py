# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of benchmarks: shown in a terminal, written as Markdown."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import pathlib

from absl import app
import rich.console
import rich.table

# A title, the head, and lines of cells.
Table = tuple[str, list[list[str]]]


def show(table: Table, output: str | None = None) -> str:
  """Prints a table and returns it as Markdown, its title first.

  Args:
    table: What is shown.
    output: Markdown file to write too, or None.
  """
  title, (head, *lines) = table
  shown = rich.table.Table(*head, title=title)
  for line in lines:
    shown.add_row(*line)
  rich.console.Console(width=150).print(shown)
  rows = [head, ["---"] * len(head), *lines]
  text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
  markdown = f"{title}\n\n{text}\n"
  if output:
    pathlib.Path(output).write_text(markdown)
  return markdown


def run_parts(
  parts: Mapping[str, Callable[[], Table]],
  names: Sequence[str],
  output: str | None,
) -> None:
  """Runs parts of a benchmark, shows their tables and writes them.

  Args:
    parts: What makes a table, by name.
    names: Which of them are run, in this order.
    output: Markdown file to write, or None.

  Raises:
    UsageError: If a name is unknown.
  """
  unknown = set(names) - set(parts)
  if unknown:
    raise app.UsageError(
      f"--parts must be some of {', '.join(parts)}, got"
      f" {', '.join(sorted(unknown))}."
    )
  blocks = []
  for name in names:
    blocks.append(show(parts[name]()))
    if output:  # As soon as it is there: some parts take long.
      pathlib.Path(output).write_text("\n".join(blocks))
