# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays as pictures."""

import numpy as np
import pytest

from chomp_data.commands import pictures


def test_pixels_are_shown_as_they_are():
  pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
  np.testing.assert_array_equal(pictures.picture(pixels), pixels)


@pytest.mark.parametrize(
  "shape", [(4, 6), (4, 6, 1), (4, 6, 4), (4, 4, 6), (2, 4, 6)]
)
def test_latents_are_stretched_to_all_values(shape):
  value = np.random.default_rng(0).normal(size=shape).astype(np.float16)
  found = pictures.picture(value)
  assert found.shape == (4, 6, 3)
  assert found.dtype == np.uint8
  assert (found.min(), found.max()) == (0, 255) or shape[-1] == 4


@pytest.mark.parametrize(
  ("channels", "part"), [(3, 1), (5, 2), (16, 1), (32, 2)]
)
def test_channels_are_where_height_and_width_are_not(channels, part):
  value = np.random.default_rng(0).normal(size=(16, 12, channels))
  size = 16 * part, 12 * part
  found = pictures.picture(value, size)
  assert found.shape == (16, 12, 3)
  first = np.ascontiguousarray(np.moveaxis(value, -1, 0))
  np.testing.assert_array_equal(pictures.picture(first, size), found)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_is_not_finite_is_black(dtype):
  value = np.asarray([[np.nan, 1, 2], [np.inf, -np.inf, 3]], dtype)
  found = pictures.picture(value)[..., 0]
  assert found.tolist() == [[0, 0, 128], [0, 0, 255]]
  assert not pictures.picture(np.full((2, 2), np.nan, dtype)).any()
  limits = np.finfo(dtype)
  found = pictures.picture(np.asarray([[limits.min, 0, limits.max]], dtype))
  assert found[0, :, 0].tolist() == [0, 128, 255]


@pytest.mark.parametrize(
  ("shape", "dtype"), [((0,), np.uint8), ((4, 0, 3), np.float32)]
)
def test_an_array_without_values_is_one_pixel(shape, dtype):
  assert pictures.picture(np.zeros(shape, dtype)).shape == (1, 1, 3)


def test_embeddings_and_constants_are_pictures_too():
  assert pictures.picture(np.zeros(7)).shape == (1, 7, 3)
  assert not pictures.picture(np.full((2, 2), 3.5)).any()


def test_a_grid_holds_every_picture_in_order():
  own = [np.full((2, 3, 3), i, np.uint8) for i in range(5)]
  found = pictures.grid(own, 2)
  assert found.shape == (3 * 4 - 2, 2 * 5 - 2, 3)
  for i in range(5):
    assert (found[4 * (i // 2), 5 * (i % 2)] == i).all()
  assert (found[8, 5] == 255).all()


def test_text_shows_tokens_filler_and_what_is_trained_on():
  real = np.asarray([[True, True, False]])
  found = pictures.of_text(real, np.asarray([[True, False, False]]))
  assert len({tuple(own) for own in found[0].tolist()}) == 3
  # Rows of text are high enough to be seen, and apart.
  assert (found[:8] == found[0]).all()
  assert (found[8] == 255).all()


def colours(shown):
  return {tuple(own) for own in shown.reshape(-1, 3).tolist()}


def test_the_legend_names_every_colour_of_text(monkeypatch):
  real = np.asarray([[True, True, False]])
  used = colours(pictures.of_text(real, np.asarray([[True, False, False]])))
  assert used <= colours(pictures.legend())
  lines = []
  monkeypatch.setattr(
    pictures,
    "title",
    lambda text, colour: lines.append((colour, text)) or np.zeros((1, 1, 3)),
  )
  pictures.legend()
  named = {
    "green": pictures.of_text(real[:, :1], real[:, :1])[0, 0],
    "yellow": pictures.of_text(real[:, :1], ~real[:, :1])[0, 0],
    "grey": pictures.of_text(~real[:, :1], ~real[:, :1])[0, 0],
  }
  for name, pixel in named.items():
    (line,) = [text for colour, text in lines if colour == tuple(pixel)]
    assert name in line.partition(":")[0]


def test_a_title_is_drawn_dark_on_paper():
  found = pictures.title("step 3: notes, bucket 64")
  assert found.shape[0] >= 8
  assert found.max() == 255
  assert found.min() < 100


def test_a_terminal_line_is_two_lines_of_pixels_and_fits():
  shown = np.zeros((5, 40, 3), np.uint8)
  lines = pictures.half_blocks(shown, 100).plain.splitlines()
  assert [len(line) for line in lines] == [40, 40, 40]
  lines = pictures.half_blocks(shown, 15).plain.splitlines()
  assert max(len(line) for line in lines) <= 15
