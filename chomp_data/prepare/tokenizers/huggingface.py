# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face `tokenizer.json`.

Its special ids are found by their usual names, or as they are named.
"""

from collections.abc import Sequence

import numpy as np

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare.tokenizers import base


def matches(data: bytes) -> bool:
  """Whether a file looks like one: it is a JSON object."""
  return data[:64].lstrip().startswith(b"{")


class HuggingFaceTokenizer:
  """A `tokenizer.json`, encoding without special tokens."""

  takes_bytes = False

  def __init__(self, file: bytes, spec: base.TokenizerSpec):
    """Parses the content of a file, as `kinds.FILES` says."""
    # Imported where it is used: stores of bytes do without it.
    import tokenizers

    base.refuse_options(spec, ("pattern", "special_tokens"), "a tokenizer.json")
    try:
      tokenizer = tokenizers.Tokenizer.from_str(file.decode())
    except Exception as error:  # The library raises bare exceptions.
      raise errors.PrepareError(
        "`--tokenizer` must be a whole Hugging Face tokenizer.json, got"
        f" {spec.source}: {error}. Give the file that `save` of the tokenizers"
        " library wrote."
      ) from None
    # Settings for batches of models would cut and pad our documents.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    self._tokenizer = tokenizer
    self.file: bytes | None = file
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if not vocabulary:
      raise errors.PrepareError(
        f"`--tokenizer` must have a vocabulary, got none in {spec.source}."
        " Train it first."
      )
    ids = base.special_ids(vocabulary, spec)
    vocab_size = max(vocabulary.values()) + 1
    self.info: stores.TokenizerInfo = base.info_of(
      "huggingface", file, vocab_size, ids
    )
    self._dtype = base.token_dtype(vocab_size)
    # Also those that are not called special: text spells them all the same.
    added = tokenizer.get_added_tokens_decoder().values()
    self.special: frozenset[str] = frozenset(token.content for token in added)

  def encode_batch(self, texts: Sequence[str | bytes]) -> base.Encoded:
    """Returns the token ids of several texts."""
    encodings = self._tokenizer.encode_batch_fast(
      [base.text_of(text) for text in texts], add_special_tokens=False
    )
    return base.joined([encoding.ids for encoding in encodings], self._dtype)

  def encode_covered(
    self, texts: Sequence[str]
  ) -> list[base.TokensWithOffsets]:
    """Returns the token ids of texts, and the characters they cover."""
    covered = []
    for encoding in self._tokenizer.encode_batch(
      list(texts), add_special_tokens=False
    ):
      offsets = np.asarray(encoding.offsets, np.int64).reshape(-1, 2)
      ids = np.asarray(encoding.ids, self._dtype)
      covered.append(base.TokensWithOffsets(ids, offsets[:, 0], offsets[:, 1]))
    return covered

  def decode(self, ids: np.ndarray) -> str:
    """Returns the text of ids."""
    return self._tokenizer.decode(
      np.asarray(ids).tolist(), skip_special_tokens=False
    )
