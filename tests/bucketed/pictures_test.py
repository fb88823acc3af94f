"""Arrays as pictures."""

import numpy as np
import pytest

from chomp_data.bucketed import pictures


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


def test_a_terminal_line_is_two_lines_of_pixels_and_fits():
  shown = np.zeros((5, 40, 3), np.uint8)
  lines = pictures.half_blocks(shown, 100).plain.splitlines()
  assert [len(line) for line in lines] == [40, 40, 40]
  lines = pictures.half_blocks(shown, 15).plain.splitlines()
  assert max(len(line) for line in lines) <= 15
