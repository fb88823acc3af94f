# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Documents for people: their tokens, and which of them are trained on.

    chat 7: 14 tokens, 3 of them trained on
      <|im_start|>│user\\n
      Hi│<|im_end|>│\\n
      <|im_start|>│assistant\\n
    + Hello│.│<|im_end|>
      \\n

A line ends where a token ends with a line break, and where training begins or
ends; + is trained on, with a weight if that is not 1.
"""

from collections.abc import Iterator

import numpy as np
import rich.text

from chomp_data.commands import token_texts
from chomp_data.prepare import labelled
from chomp_data.prepare import tokenizers

_VISIBLE = token_texts.CONTROLS | {
  ord("\n"): "\\n",
  ord("\r"): "\\r",
  ord("\t"): "\\t",
}


def text(
  name: str, encoded: labelled.Labelled, tokenizer: tokenizers.Tokenizer
) -> rich.text.Text:
  """Returns the tokens of a document.

  Args:
    name: The document's id.
    encoded: The tokens of this one document.
    tokenizer: That made them.
  """
  ids = encoded.tokens.astype(np.int64)
  weights = np.ones(len(ids))
  if encoded.labels is not None:
    starts, values = encoded.labels
    weights = np.repeat(values, np.diff(np.append(starts, len(ids))))
  trained = int(np.count_nonzero(weights))
  out = rich.text.Text()
  out.append(
    f"{name}: {len(ids):,} tokens, {trained:,} of them trained on", "bold"
  )
  before = None
  for shown, weight in _shown(ids, weights, tokenizer):
    if before is None or before != weight:
      mark = "" if weight in (0, 1) else f"{weight:g} "
      out.append(f"\n{'+' if weight else ' '} {mark}")
    else:
      out.append("│", "dim")
    out.append(shown.translate(_VISIBLE), "green" if weight else "dim")
    before = None if shown.endswith("\n") else weight
  return out


def _shown(
  ids: np.ndarray, weights: np.ndarray, tokenizer: tokenizers.Tokenizer
) -> Iterator[tuple[str, float]]:
  """Yields the texts of tokens; those that share a character together."""
  begin = 0
  while begin < len(ids):
    end = begin + token_texts.num_joined(ids[begin:], tokenizer.decode)
    yield tokenizer.decode(ids[begin:end]), float(weights[begin:end].max())
    begin = end
