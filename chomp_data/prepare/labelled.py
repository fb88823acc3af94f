# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Token ids of documents, and what each token weighs in training.

A text is encoded as a whole, so that its tokens are those that a model meets
when it is asked; its pieces only give the weights of characters. A token that
covers characters of two pieces has the larger weight, so that the first token
of an answer is trained on where it includes the space or the line before it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from chomp_data import errors
from chomp_data.prepare import records
from chomp_data.prepare import tokenizers
from chomp_data.prepare.tokenizers import ids_tokenizer


class Labelled(NamedTuple):
  """Token ids of documents, one after the other.

  Attributes:
    tokens: As the tokenizer gives them.
    lengths: int64[N], of each document in tokens.
    labels: Of runs of tokens that weigh the same, the first token int64[R] and
      the weight float64[R]; None where all are trained on alike.
    weights: float32[N], of documents; None where all weigh the same.
  """

  tokens: np.ndarray
  lengths: np.ndarray
  labels: tuple[np.ndarray, np.ndarray] | None
  weights: np.ndarray | None


def encode(
  tokenizer: tokenizers.Tokenizer,
  documents: Sequence[records.Document],
  read: records.ReadOptions,
) -> Labelled:
  """Returns the tokens of documents.

  Raises:
    PrepareError: If the tokenizer fails; the message names the document.
  """
  try:
    return _encode(tokenizer, documents, read)
  except Exception as error:  # The libraries raise bare exceptions.
    for document in documents:
      try:
        _encode(tokenizer, [document], read)
      except Exception as problem:
        raise errors.PrepareError(
          f"document {document.name!r} must be text that the tokenizer can"
          f" encode, got {len(document.text):,} characters that begin with"
          f" {document.text[:20]!r}: {problem}. Leave it out, or take another"
          " tokenizer."
        ) from error
    raise


def _encode(
  tokenizer: tokenizers.Tokenizer,
  documents: Sequence[records.Document],
  read: records.ReadOptions,
) -> Labelled:
  weights = None
  if read.weight_key is not None:
    weights = np.asarray(
      [document.weight for document in documents], np.float32
    )
  if not read.has_labels:
    encode_texts = tokenizer.encode_batch
    if read.ids_key is not None:
      encode_texts = ids_tokenizer.encode
    encoded = encode_texts([document.text for document in documents])
    return Labelled(encoded.tokens, encoded.lengths, None, weights)
  texts = [
    "".join(text for text, _ in document.pieces) for document in documents
  ]
  covered = tokenizer.encode_covered(texts)
  lengths = np.asarray([len(text.tokens) for text in covered], np.int64)
  weighed = [
    token_weights(text, document.pieces)
    for text, document in zip(covered, documents, strict=True)
  ]
  flat = np.concatenate([np.zeros(0), *weighed])
  starts = np.flatnonzero(np.diff(flat, prepend=np.nan))
  tokens = [text.tokens for text in covered]
  return Labelled(
    np.concatenate(tokens) if tokens else np.zeros(0, np.uint16),
    lengths,
    (starts, flat[starts]),
    weights,
  )


def token_weights(
  covered: tokenizers.TokensWithOffsets, pieces: Sequence[tuple[str, float]]
) -> np.ndarray:
  """Returns what the tokens of a text weigh.

      text      a s k : \\n Y e s
      pieces    0 0 0 0 0  1 1 1
      tokens    ---- --- -------
      weights   0    0   1

  Args:
    covered: The tokens, and the characters that each stands for.
    pieces: (text, weight), which joined are the text.

  Returns:
    float64, by token.
  """
  ends = np.cumsum([len(text) for text, _ in pieces])
  weights = np.asarray([weight for _, weight in pieces], float)
  if not len(covered.tokens) or not len(ends) or not ends[-1]:
    return np.zeros(len(covered.tokens))
  ends, weights = (
    ends[np.diff(ends, prepend=0) > 0],
    weights[np.diff(ends, prepend=0) > 0],
  )
  low, high = covered.begins.copy(), covered.ends.copy()
  # A token that stands for nothing is a byte of the character there, or the
  # space before it, which some tokenizers leave out.
  empty = low >= high
  before = np.append(0, covered.ends[:-1])
  low[empty] = np.minimum(before, low)[empty]
  high[empty] = np.maximum(high, low + 1)[empty]
  last = ends[-1]
  first = np.searchsorted(ends, np.minimum(low, last - 1), side="right")
  after = np.searchsorted(ends, np.minimum(high, last) - 1, side="right") + 1
  # The largest weight of pieces first .. after - 1.
  edges = np.stack([first, after], axis=1).reshape(-1)
  padded = np.append(weights, 0.0)
  return np.maximum.reduceat(padded, edges)[::2]
