# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A forecast as a picture: shares of sources over steps, and what changes when.

Files need matplotlib, which comes with the extra `plots`; the sketch for a
terminal needs nothing.
"""

from typing import Any

import numpy as np

from chomp_data.audit import forecast as forecast_lib

_LEVELS = " ▁▂▃▄▅▆▇█"
_SIZE = (9, 4.5)  # inches
_DPI = 120
# More marks of one kind are not named: they would cover each other.
_MOST_NAMED = 12


def sketch(history: forecast_lib.History) -> list[str]:
  """Returns a line for each source: its share of rows, step by step."""
  width = max(map(len, history.names))
  lines = []
  for name, share in zip(history.names, history.shares().T, strict=True):
    level = np.ceil(share * (len(_LEVELS) - 1)).astype(int)
    bars = "".join(_LEVELS[height] for height in level.tolist())
    lines.append(f"{name:<{width}} |{bars}| {share[-1]:.0%} at the end")
  return lines


def write(
  path: str, forecast: forecast_lib.Forecast, history: forecast_lib.History
) -> None:
  """Draws a file; its ending says which format.

  Args:
    path: The file.
    forecast: What is drawn: stages, ends and begins of epochs.
    history: Its shares.
  """
  import matplotlib as mpl

  mpl.use("Agg")
  from matplotlib import pyplot

  figure, axis = pyplot.subplots(figsize=_SIZE, layout="constrained")
  edges, shares = history.steps, history.shares()
  colors = _colors(len(history.names))
  axis.stackplot(
    np.repeat(edges, 2)[1:-1],
    *(np.repeat(share, 2) for share in shares.T),
    labels=history.names,
    colors=colors,
  )
  top = axis.get_xaxis_transform()
  for mark in [mark for mark in forecast.marks if mark.step][:_MOST_NAMED]:
    axis.axvline(mark.step, color="black", lw=1, ls="--")
    label = f" {mark.kind.replace('_', ' ')}: {mark.text}"
    axis.text(
      mark.step,
      0.02,
      label,
      rotation=90,
      fontsize=7,
      transform=top,
      va="bottom",
    )
  for name, source, color in zip(
    history.names, forecast.sources.values(), colors, strict=True
  ):
    for step in source.begins:
      axis.plot(
        step, 1.015, "v", color=color, ms=5, transform=top, clip_on=False
      )
    if source.ends is not None:
      axis.plot(
        source.ends, 1.015, "X", color=color, ms=7, transform=top, clip_on=False
      )
      axis.axvline(source.ends, color=color, lw=1, ls=":")
    del name
  axis.set(
    xlim=(0, forecast.steps),
    ylim=(0, 1),
    xlabel="step (triangle: a source begins again, cross: it has ended)",
    ylabel="share of rows",
  )
  axis.margins(0)
  figure.legend(loc="outside right upper", frameon=False)
  figure.savefig(path, dpi=_DPI)
  pyplot.close(figure)


def _colors(count: int) -> Any:
  """Returns so many colours, apart for a dozen."""
  import matplotlib as mpl

  if count <= 10:
    return mpl.colormaps["tab10"].colors[:count]  # pyright: ignore
  return mpl.colormaps["turbo"](np.linspace(0.05, 0.95, count))
