# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Batches as pictures: arrays of samples, and where rows of text are filler.

A picture is uint8[height, width, 3]. PNG files need Pillow, which comes with
the extra `plots`; half blocks in a terminal need nothing.
"""

from collections.abc import Sequence
import pathlib
from typing import Any

import numpy as np
import rich.style
import rich.text

from chomp_data.stores.samples import sample_fields

# Channels that are shown; more are latents, whose first three are.
_MOST_CHANNELS = 4
_GAP = 2  # pixels between pictures
_PAPER = 255

_ROW_HEIGHT = 9  # pixels of a row of text, one of paper below it
_LINE_HEIGHT = 14  # pixels of a title

# What positions of text are. A position is trained on where the loss counts
# its prediction of the token after it.
_FILLER, _TOKEN, _TRAINED = (40, 40, 40), (210, 170, 60), (70, 160, 90)
_LEGEND = (
  (_TRAINED, "green: a token whose next one is trained on"),
  (_TOKEN, "yellow: a token whose next one is not trained on"),
  (_FILLER, "dark grey: filler"),
)


def picture(
  array: np.ndarray, size: tuple[int, int] | None = None
) -> np.ndarray:
  """Returns any array of a sample as a picture.

  Args:
    array: [height, width], [height, width, channels], [channels, height,
      width], or flat; uint8 is shown as it is, others from their least to
      their greatest value, and what is no finite number as 0. One pixel stands
      for an array without values.
    size: Height and width of the sample, which tell where the channels of a
      picture, or of latents of a part of its size, are; None guesses.
  """
  value = np.asarray(array)
  if not value.size:
    return np.zeros((1, 1, 3), np.uint8)
  while value.ndim > 3:
    value = value[0]
  if value.ndim < 2:
    value = value.reshape(1, -1)
  if value.ndim == 3:
    if _channels_first(value.shape, size):
      value = np.moveaxis(value, 0, -1)
    value = value[..., :3] if value.shape[-1] >= 3 else value[..., 0]
  if value.dtype != np.uint8:
    value = _stretched(value.astype(np.float64))
  if value.ndim == 2:
    value = np.repeat(value[..., None], 3, axis=-1)
  return np.rint(value).astype(np.uint8)


def _channels_first(
  shape: tuple[int, ...], size: tuple[int, int] | None
) -> bool:
  """Whether the first of 3 axes is the channels."""
  if size is not None:
    first, last = (
      sample_fields.agrees(sides, *size) for sides in (shape[1:], shape[:2])
    )
    if first != last:
      return first
  return shape[-1] > _MOST_CHANNELS and shape[0] < shape[-1]


def _stretched(value: np.ndarray) -> np.ndarray:
  """Returns float64 values in 0 .. 255, 0 where they are not finite."""
  finite = np.isfinite(value)
  if not finite.any():
    return np.zeros_like(value)
  # Halves, so that their difference is finite too.
  value = np.where(finite, value, 0.0) / 2
  low, high = float(value[finite].min()), float(value[finite].max())
  if high <= low:
    return np.zeros_like(value)
  return np.where(finite, (value - low) / (high - low) * 255, 0.0)


def of_text(real: np.ndarray, loss_mask: np.ndarray) -> np.ndarray:
  """Returns rows of text as a picture: 8 pixels high, 1 wide a position.

  A line of paper is below each row; `legend` names the colours.

  Args:
    real: bool[B, L], which positions hold a token.
    loss_mask: bool[B, L], which of them are trained on.
  """
  out = np.empty((*real.shape, 3), np.uint8)
  out[:] = _FILLER
  out[real] = _TOKEN
  out[real & loss_mask] = _TRAINED
  out = np.repeat(out, _ROW_HEIGHT, axis=0)
  out[_ROW_HEIGHT - 1 :: _ROW_HEIGHT] = _PAPER
  return out


def title(text: str, swatch: tuple[int, int, int] | None = None) -> np.ndarray:
  """Returns a line of text as a picture, black on paper.

  Args:
    text: The line.
    swatch: A colour that is shown before it.

  Raises:
    ModuleNotFoundError: If Pillow is not installed; the message says how.
  """
  pillow = _pillow()
  font = pillow.ImageFont.load_default()
  begin = _LINE_HEIGHT if swatch else 0
  width = begin + int(np.ceil(font.getlength(text))) + _GAP
  image = pillow.Image.new("RGB", (width, _LINE_HEIGHT), (_PAPER,) * 3)
  draw = pillow.ImageDraw.Draw(image)
  if swatch:
    draw.rectangle((0, 2, _LINE_HEIGHT - 5, _LINE_HEIGHT - 4), fill=swatch)
  draw.text((begin, 0), text, fill=(0, 0, 0), font=font)
  return np.asarray(image)


def legend() -> np.ndarray:
  """Returns what the colours of `of_text` mean, as a picture.

  Raises:
    ModuleNotFoundError: If Pillow is not installed; the message says how.
  """
  return stacked([title(text, colour) for colour, text in _LEGEND])


def grid(pictures: Sequence[np.ndarray], columns: int) -> np.ndarray:
  """Returns pictures of one size beside and below each other.

  Args:
    pictures: At least one.
    columns: Pictures of a line, at least 1.
  """
  height, width = pictures[0].shape[:2]
  columns = min(columns, len(pictures))
  lines = -(-len(pictures) // columns)
  out = np.full(
    (lines * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, 3),
    _PAPER,
    np.uint8,
  )
  for i, pixels in enumerate(pictures):
    line, column = divmod(i, columns)
    top, left = line * (height + _GAP), column * (width + _GAP)
    out[top : top + height, left : left + width] = pixels
  return out


def stacked(pictures: Sequence[np.ndarray]) -> np.ndarray:
  """Returns pictures of any widths below each other."""
  width = max(part.shape[1] for part in pictures)
  parts = []
  for drawn in pictures:
    part = np.full((drawn.shape[0] + 2 * _GAP, width, 3), _PAPER, np.uint8)
    part[: drawn.shape[0], : drawn.shape[1]] = drawn
    parts.append(part)
  return np.concatenate(parts)


def half_blocks(shown: np.ndarray, columns: int) -> rich.text.Text:
  """Returns a picture for a terminal: two pixels a character.

  Args:
    shown: The picture; pixels are left out where it is too wide.
    columns: Characters of a line.
  """
  step = -(-shown.shape[1] // max(columns, 1))
  shown = shown[::step, ::step]
  if len(shown) % 2:
    shown = np.concatenate([shown, shown[-1:]])
  out = rich.text.Text(no_wrap=True)
  for upper, lower in zip(
    shown[::2].tolist(), shown[1::2].tolist(), strict=True
  ):
    for above, below in zip(upper, lower, strict=True):
      style = rich.style.Style(color=_colour(above), bgcolor=_colour(below))
      out.append("\N{UPPER HALF BLOCK}", style=style)
    out.append("\n")
  out.rstrip()
  return out


def write_png(path: pathlib.Path, shown: np.ndarray) -> None:
  """Writes a picture to a file.

  Args:
    path: The file.
    shown: The picture.

  Raises:
    ModuleNotFoundError: If Pillow is not installed; the message says how.
  """
  _pillow().Image.fromarray(shown).save(path, format="PNG")


def _pillow() -> Any:
  """Returns Pillow with what is drawn by."""
  try:
    import PIL
    import PIL.Image
    import PIL.ImageDraw
    import PIL.ImageFont
  except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
      "PNG files need Pillow, which is not installed. Install"
      " chomp_data with the extra `plots`."
    ) from error
  return PIL


def _colour(pixel: Sequence[int]) -> str:
  return "#{:02x}{:02x}{:02x}".format(*pixel)
