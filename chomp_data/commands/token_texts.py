# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Texts of tokens for people: whole characters, and none that control.

A token may be a part of a character only; its text is then that of the tokens
that hold the rest of it, too.
"""

from collections.abc import Callable
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Control characters of a document must not reach a terminal.
CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), REPLACEMENT)

# No UTF-8 character has more bytes, and no token has less than one.
MOST_JOINED = 4


def num_joined(tokens: Any, decode: Callable[[Any], str]) -> int:
  """Returns how many tokens, from the first on, hold whole characters.

  1 where no few tokens do.

  Args:
    tokens: A sequence or array of the first and those after it.
    decode: Returns the text of tokens, with U+FFFD for parts of characters.
  """
  for count in range(1, min(MOST_JOINED, len(tokens)) + 1):
    if REPLACEMENT not in decode(tokens[:count]):
      return count
  return 1
