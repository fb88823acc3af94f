# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a store: its identity, special ids and file."""

import dataclasses

import numpy as np

from chomp_data import errors

# The kinds of tokenizers, and the file by which a store keeps each, so that its
# tokens can be decoded. Bytes need none; of 'custom' ones nothing is known.
TOKENIZER_FILES: dict[str, str | None] = {
  "byte": None,
  "huggingface": "tokenizer.json",
  "sentencepiece": "tokenizer.model",
  "tiktoken": "tokenizer.tiktoken.json",
  "custom": None,
}
# Token ids are read as int32.
MAX_VOCAB_SIZE = 2**31


@dataclasses.dataclass(frozen=True)
class TokenizerInfo:
  """What must be known of a tokenizer to read its tokens.

  Attributes:
    kind: One of `TOKENIZER_FILES`; 'custom' if none of the others made the ids.
    sha256: 64 hex digits that identify the tokenizer: the SHA-256 of its file
      or definition. Sources of a mix must have the same.
    vocab_size: Size of the vocabulary; all ids, also special ones, are below
      it.
    pad_id: Padding, or None.
    eos_id: End of a document, or None.
    bos_id: Begin of a document, or None.
    adds_bos: Whether the stored documents already start with `bos_id`.
    adds_eos: Whether the stored documents already end with `eos_id`.
  """

  kind: str
  sha256: str
  vocab_size: int
  pad_id: int | None = None
  eos_id: int | None = None
  bos_id: int | None = None
  adds_bos: bool = False
  adds_eos: bool = False


def check_ids(
  path: object, values: np.ndarray, first: int, vocab_size: int
) -> None:
  """Raises StoreError naming the first of the wrong ids that is farthest off.

  Args:
    path: What they were read from.
    values: Integers.
    first: The number of the first of them there.
    vocab_size: Ids are below it.
  """
  if not len(values):
    return
  low, high = int(values.min()), int(values.max())
  if low < 0 or high >= vocab_size:
    wrong = low if low < 0 else high
    at = first + int((values == wrong).argmax())
    raise errors.StoreError(
      f"{path}: ids must be in 0 .. {vocab_size - 1}, got {wrong} at token"
      f" {at}. Correct `vocab_size`, or restore the file."
    )
