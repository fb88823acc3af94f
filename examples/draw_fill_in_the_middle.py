# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Draws rows of documents that are rearranged: a picture of the documentation.

    python examples/draw_fill_in_the_middle.py

Two rows of `configs/fill_in_the_middle.py` in three epochs, from their plan
alone. It needs the store that the config names (`make train` prepares it), and
the extra `plots`.
"""

from collections.abc import Sequence
import pathlib

from absl import app
from absl import flags
import matplotlib.figure
import matplotlib.patches
import numpy as np

import chomp_data
from chomp_data.pack import fill_in_the_middle
from chomp_data.rows import spans as spans_lib

_CONFIG = flags.DEFINE_string(
  "config", "fill_in_the_middle", "A config with `rows.fim`."
)
_STORE = flags.DEFINE_string("store", None, "Another store than the config's.")
_ROWS = flags.DEFINE_list("rows", ["225", "300"], "Which rows of an epoch.")
_OUTPUT = flags.DEFINE_string(
  "output", "docs/images/fill_in_the_middle.png", "The picture."
)

_EPOCHS = 3
_COLOURS = {
  "prefix": "#4c78a8",
  "middle": "#f58518",
  "suffix": "#72b7b2",
  "in order": "#c8c8c8",
  "sentinel": "#222222",
}


def bars(spans: spans_lib.Spans) -> list[tuple[int, int, str]]:
  """Returns (column, width, what it is) of the parts of one planned row."""
  boxes = []
  rearranged, sentinels = set(), spans.sentinels()
  if sentinels is not None:
    rearranged = set(spans.segment[sentinels > 0].tolist())
  for i in range(len(spans)):
    column, width = int(spans.column[i]), int(spans.length[i])
    part = "in order"
    if spans.segment[i] in rearranged and spans.added_before is not None:
      part = fill_in_the_middle.PARTS[
        int(spans.added_before[i]) - spans_lib.SENTINEL
      ]
      boxes.append((column, 1, "sentinel"))
      column, width = column + 1, width - 1
    boxes.append((column, width, part))
  return boxes


def draw(
  rows: chomp_data.RowSource, numbers: Sequence[int], path: pathlib.Path
) -> None:
  """Draws some rows of a source in their first epochs.

  Args:
    rows: The source, without BOS.
    numbers: Rows of an epoch.
    path: The picture.
  """
  figure = matplotlib.figure.Figure(
    figsize=(9, 0.42 * _EPOCHS * len(numbers) + 0.9)
  )
  axes = figure.add_subplot()
  labels = []
  for number in numbers:
    for epoch in range(_EPOCHS):
      spans = rows.plan(np.asarray([epoch * len(rows) + number]))
      at = -len(labels) - 0.6 * (number != numbers[0])
      for column, width, part in bars(spans):
        # A sentinel is one position: wide enough to be seen.
        axes.barh(
          at,
          5 if part == "sentinel" else width,
          left=column,
          height=0.72,
          color=_COLOURS[part],
          edgecolor="white" if part == "in order" else "none",
          linewidth=0.8,
          zorder=3 if part == "sentinel" else 2,
        )
      labels.append((at, f"row {number}, epoch {epoch}"))
  axes.set_yticks(*zip(*labels, strict=True))
  axes.set_xlim(0, rows.seq_len)
  axes.set_xlabel("column")
  axes.spines[["top", "right", "left"]].set_visible(False)
  axes.tick_params(left=False)
  handles = [
    matplotlib.patches.Patch(color=colour, label=part)
    for part, colour in _COLOURS.items()
  ]
  figure.legend(handles=handles, loc="upper center", ncols=5, frameon=False)
  figure.savefig(path, dpi=110, bbox_inches="tight")


def main(argv: Sequence[str]) -> None:
  """Draws the picture."""
  if argv[1:]:
    raise app.UsageError(f"No arguments are expected, got {argv[1:]}.")
  data = chomp_data.load_config(_CONFIG.value).data
  (source,) = data.sources.values()
  if _STORE.value is not None:
    source.store = _STORE.value
  rows = source.rows.copy_and_resolve_references().to_dict()
  fim = {
    name: value for name, value in rows["fim"].items() if value is not None
  }
  source_rows = chomp_data.BinSource(
    source.store,
    chomp_data.BinOptions(
      packing_buffer_docs=rows["packing_buffer_docs"],
      add_eos=True,
      shuffle_rows=False,
      fim=chomp_data.FimOptions(**fim),
    ),
    seq_len=data.seq_len,
  )
  draw(
    source_rows, [int(row) for row in _ROWS.value], pathlib.Path(_OUTPUT.value)
  )


if __name__ == "__main__":
  app.run(main)
