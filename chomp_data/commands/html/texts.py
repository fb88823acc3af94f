# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The text of single tokens, so that any cut through a row can be read.

A token may be a part of a character only: then it is joined with those after
it, and the text stands for all of them.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np

from chomp_data.commands import token_texts
from chomp_data.commands.html import packing


class Texts:
  """Texts of the tokens of one tokenizer that were seen."""

  def __init__(self, decode: Callable[[np.ndarray], str]):
    """Knows no token yet.

    Args:
      decode: Of a tokenizer.
    """
    self._decode = decode
    self._texts: dict[tuple[int, ...], str] = {}
    self._numbers: dict[str, int] = {}
    # A token that is a word.
    self._before: int | None = None

  def add(
    self, tokens: np.ndarray, begin: np.ndarray, end: np.ndarray
  ) -> list[tuple[int, int, int]]:
    """Decodes tokens that are new; finds those that are text only together.

    Args:
      tokens: int[N].
      begin: int64[M], where spans begin in `tokens`, ascending.
      end: int64[M], where they end; they do not overlap.

    Returns:
      (first token, how many, number of the text in `joined`), in order.
    """
    inside = np.zeros(len(tokens) + 1, np.int64)
    np.add.at(inside, begin, 1)
    np.add.at(inside, end, -1)
    inside = np.flatnonzero(np.cumsum(inside[:-1]))
    ids = np.unique(tokens[inside]).tolist()
    if self._before is None:
      words = {token: self._decoded((token,)) for token in ids}
      sizes = {
        token: len(text) for token, text in words.items() if text.isalpha()
      }
      self._before = max(sizes, key=lambda token: sizes[token], default=None)
    parts = [
      token for token in ids if token_texts.REPLACEMENT in self._text((token,))
    ]
    places = inside[np.isin(tokens[inside], parts)]
    ends = end[np.searchsorted(begin, places, "right") - 1]
    matches, free = [], 0
    for place, last in zip(places.tolist(), ends.tolist(), strict=True):
      if place < free:
        continue
      last = min(last, place + token_texts.MOST_JOINED)
      key = tuple(tokens[place:last].tolist())
      count = token_texts.num_joined(key, self._text)
      if count > 1:
        text = self._text(key[:count])
        number = self._numbers.setdefault(text, len(self._numbers))
        matches.append((place, count, number))
        free = place + count
    return matches

  @property
  def joined(self) -> list[str]:
    """Texts of tokens that were joined, by number."""
    return list(self._numbers)

  def table(self) -> dict[str, Any]:
    """Returns texts of single tokens as JSON values."""
    single = sorted(key[0] for key in self._texts if len(key) == 1)
    return {
      "ids": packing.packed(np.asarray(single, np.int64)),
      "texts": [self._texts[(token,)] for token in single],
      "joined": self.joined,
    }

  def _text(self, key: tuple[int, ...]) -> str:
    if key not in self._texts:
      text = self._decoded(key)
      # Tokenizers drop the space that the first token of a text begins with,
      # so it is decoded after another one.
      before = self._before
      if before is not None:
        after = self._decoded((before, *key))
        head = self._decoded((before,))
        if after.startswith(head):
          text = after[len(head) :]
      self._texts[key] = text
    return self._texts[key]

  def _decoded(self, key: Sequence[int]) -> str:
    return self._decode(np.asarray(key))
