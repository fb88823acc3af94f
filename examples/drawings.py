# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of several sizes, drawn here: digits in many fonts, and plots.

They are real files for resolution buckets where a machine has no pictures and
no network: `digits` are set in the fonts that matplotlib brings, `plots` are
drawn by matplotlib. A sample is a pure function of (dataset, number, sizes,
seed), so a dataset of 100 pictures is the begin of one of 1,000.

A sample's array is `pixels`, uint8[height, width, 3]; its values are `height`,
`width`, `label` and `name`. Labels are one range over both datasets: the
digits 0 .. 9, then the kinds of plots.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import functools
import pathlib
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.index import hashing

DIGITS = "0123456789"
PLOTS = ("line", "points", "bars", "steps", "area", "pie")
DATASETS = ("digits", "plots")
NAMES = (*DIGITS, *PLOTS)

SIZES = ((32, 32), (32, 48), (48, 32), (64, 64))
# Marks of a plot are no longer told apart below it.
_LEAST_SIDE = 16
_MOST_SIDE = 1_024

# Darkest and lightest values of ink and paper: never too close to read.
_INK, _PAPER = (0, 110), (170, 256)
# Of preference pairs: padding, prompt and answer that are chosen, rejected.
_PAIRS = (
  (255, 255, 255),
  (206, 228, 206),
  (70, 150, 85),
  (246, 222, 190),
  (214, 130, 50),
)
_FONTS = "DejaVu*.ttf"
_DPI = 100

Sample = tuple[dict[str, np.ndarray], dict[str, Any]]


def samples(
  dataset: str,
  count: int,
  *,
  sizes: Sequence[tuple[int, int]] = SIZES,
  seed: int = 0,
) -> Iterator[Sample]:
  """Draws the pictures of a dataset.

  Args:
    dataset: One of `DATASETS`.
    count: How many.
    sizes: Heights and widths, in pixels; each comes about as often.
    seed: Of all that is drawn by lot.

  Yields:
    Arrays and values, as `stores.samples_array_record.write_samples` takes
    them.

  Raises:
    PrepareError: If an argument is wrong, or matplotlib is not installed.
  """
  _check(dataset, count)
  check_sizes(sizes)
  draw = {"digits": _digit, "plots": _plot}[dataset]
  first = {"digits": 0, "plots": len(DIGITS)}[dataset]
  kinds = {"digits": len(DIGITS), "plots": len(PLOTS)}[dataset]
  for number in range(count):
    key = hashing.fold_key(seed, dataset, number)
    random = np.random.Generator(np.random.PCG64(key))
    height, width = sizes[int(random.integers(len(sizes)))]
    kind = int(random.integers(kinds))
    pixels = draw(kind, height, width, random)
    values = {
      "height": height,
      "width": width,
      "label": first + kind,
      "name": NAMES[first + kind],
    }
    yield {"pixels": pixels}, values


def pairs(
  batch: dict[str, np.ndarray], height: int = 16, width: int = 4
) -> np.ndarray:
  """Returns packed preference pairs as a picture, uint8[rows, columns, 3].

  Chosen answers are green and rejected ones orange, their prompts pale; padding
  is white, and a line is between the pairs of a row.

  Args:
    batch: Canonical fields of rows of pairs.
    height: Pixels of a row, two of them white.
    width: Pixels of a position.
  """
  segments = batch["segment_ids"]
  answer = np.zeros(segments.shape, np.bool_)
  answer[:, 1:] = batch["loss_mask"][:, :-1]
  # No segment, then the prompt and the answer of both halves.
  colour = np.where(segments > 0, 1 + 2 * ((segments - 1) % 2) + answer, 0)
  picture = np.asarray(_PAIRS, np.uint8)[colour]
  picture = picture.repeat(width, axis=1)
  opens = np.diff((segments + 1) // 2, axis=1, prepend=0) > 0
  picture[:, ::width][opens] = 0
  picture = picture.repeat(height, axis=0)
  picture.reshape(len(segments), height, -1)[:, -2:] = 255
  return picture


def _check(dataset: str, count: int) -> None:
  if dataset not in DATASETS:
    rule = schema.choice(DATASETS)
    raise errors.PrepareError(
      schema.bad_value("dataset", rule, dataset, "Choose one.")
    )
  if count < 1:
    raise errors.PrepareError(
      f"`count` must be at least 1, got {count}. Say how many to draw."
    )


def check_sizes(sizes: Sequence[tuple[int, int]]) -> None:
  """Raises PrepareError unless pictures of these sizes can be drawn.

  Args:
    sizes: Heights and widths, in pixels.
  """
  for size in sizes:
    if len(size) != 2 or not all(_LEAST_SIDE <= s <= _MOST_SIDE for s in size):
      raise errors.PrepareError(
        f"`sizes` must be heights and widths of {_LEAST_SIDE} to {_MOST_SIDE}"
        f" pixels, got {size}. Choose others."
      )
  if not sizes or len(set(sizes)) < len(sizes):
    raise errors.PrepareError(
      f"`sizes` must hold one size or more, each once, got {list(sizes)}."
      " Correct them."
    )


def _digit(
  kind: int, height: int, width: int, random: np.random.Generator
) -> np.ndarray:
  """Returns uint8[height, width, 3], a digit somewhere in the picture."""
  drawing = _library("PIL.Image"), _library("PIL.ImageDraw")
  files = _fonts()
  side = min(height, width)
  font = _font(
    files[int(random.integers(len(files)))],
    int(random.integers(side // 2, side)),
  )
  paper, ink = _colour(random, _PAPER), _colour(random, _INK)
  image = drawing[0].new("RGB", (width, height), paper)
  pen = drawing[1].Draw(image)
  left, top, right, bottom = pen.textbbox((0, 0), DIGITS[kind], font=font)
  column = int(random.integers(max(1, width - (right - left) + 1))) - left
  row = int(random.integers(max(1, height - (bottom - top) + 1))) - top
  pen.text((column, row), DIGITS[kind], fill=ink, font=font)
  return np.asarray(image)


def _plot(
  kind: int, height: int, width: int, random: np.random.Generator
) -> np.ndarray:
  """Returns uint8[height, width, 3], a plot that fills the picture."""
  figures = _library("matplotlib.figure")
  agg = _library("matplotlib.backends.backend_agg")
  paper, ink = _colour(random, _PAPER), _colour(random, _INK)
  figure = figures.Figure(
    figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor=_unit(paper)
  )
  axes = figure.add_axes((0.06, 0.06, 0.88, 0.88))
  axes.set_axis_off()
  x = np.arange(int(random.integers(5, 9)))
  y = 0.15 + 0.85 * random.random(len(x))
  colour = _unit(ink)
  name = PLOTS[kind]
  if name == "line":
    axes.plot(x, y, color=colour, linewidth=1)
  elif name == "points":
    axes.scatter(x, y, color=colour, s=4, linewidths=0)
  elif name == "bars":
    axes.bar(x, y, color=colour, width=0.6)
  elif name == "steps":
    axes.step(x, y, color=colour, linewidth=1)
  elif name == "area":
    axes.fill_between(x, y, color=colour, linewidth=0)
  else:
    parts = [_unit(_colour(random, _INK)) for _ in x[:4]]
    axes.pie(y[:4], colors=parts)
  canvas = agg.FigureCanvasAgg(figure)
  canvas.draw()
  return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _colour(
  random: np.random.Generator, limits: tuple[int, int]
) -> tuple[int, int, int]:
  red, green, blue = random.integers(*limits, size=3).tolist()
  return red, green, blue


def _unit(colour: tuple[int, int, int]) -> tuple[float, ...]:
  return tuple(part / 255 for part in colour)


@functools.cache
def _fonts() -> tuple[str, ...]:
  """Returns the same files on every machine: matplotlib brings them."""
  folder = pathlib.Path(_library("matplotlib").get_data_path(), "fonts", "ttf")
  # 'Display' holds a few signs only.
  paths = (p for p in folder.glob(_FONTS) if "Display" not in p.name)
  return tuple(sorted(str(path) for path in paths))


@functools.cache
def _font(path: str, size: int) -> Any:
  return _library("PIL.ImageFont").truetype(path, size)


def _library(name: str) -> Any:
  """Returns a module of matplotlib or of what it brings."""
  import importlib

  try:
    return importlib.import_module(name)
  except ImportError as error:
    raise errors.PrepareError(
      f"{name.partition('.')[0]} must be installed to draw pictures. Install"
      " chomp_data with the extra `plots`."
    ) from error
