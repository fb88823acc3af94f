# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A SentencePiece `.model`.

Padding, end and begin are those of the model, or as they are named. Text is
normalised as the model says, which may join spaces and lines.
"""

from collections.abc import Sequence
import re

import numpy as np

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare.tokenizers import base


def matches(data: bytes) -> bool:
  """Whether a file looks like one: field 1 of the message, its pieces."""
  return data.startswith(b"\n")


class SentencePieceTokenizer:
  """A `.model` file."""

  takes_bytes = False

  def __init__(self, file: bytes, spec: base.TokenizerSpec):
    """Parses the content of a file, as `kinds.FILES` says."""
    library = base.library("sentencepiece", "sentencepiece", spec.source)
    base.refuse_options(
      spec, ("pattern", "special_tokens"), "a SentencePiece model"
    )
    try:
      model = library.SentencePieceProcessor(model_proto=file)
    except RuntimeError as error:
      raise errors.PrepareError(
        "`--tokenizer` must be a whole SentencePiece .model, got"
        f" {spec.source}: {str(error).strip()}. Give the file that"
        " SentencePiece wrote."
      ) from None
    self._model = model
    self.file: bytes | None = file
    size = model.get_piece_size()
    vocabulary = {model.id_to_piece(i): i for i in range(size)}
    model_ids = {
      "pad": model.pad_id(),
      "eos": model.eos_id(),
      "bos": model.bos_id(),
    }
    ids = base.special_ids(
      vocabulary, spec, {k: i if i >= 0 else None for k, i in model_ids.items()}
    )
    self._names = {
      name: i for name, i in vocabulary.items() if model.is_control(i)
    }
    self.special: frozenset[str] = frozenset(self._names)
    self._control = np.zeros(size, bool)
    self._control[list(self._names.values())] = True
    longest = sorted(self._names, key=lambda name: (-len(name), name))
    self._splitter = re.compile("|".join(map(re.escape, longest)) or r"(?!)")
    self.info: stores.TokenizerInfo = base.info_of(
      "sentencepiece", file, size, ids
    )
    self._dtype = base.token_dtype(size)

  def encode_batch(self, texts: Sequence[str | bytes]) -> base.Encoded:
    """Returns the token ids of several texts."""
    arrays = self._model.encode(
      [base.text_of(text) for text in texts],
      return_type="numpy",
      num_threads=base.threads(),
    )
    return base.concatenated(arrays, self._dtype)

  def encode_covered(
    self, texts: Sequence[str]
  ) -> list[base.TokensWithOffsets]:
    """Returns the token ids of texts, and the characters they cover.

    The model never makes a control token of text, so texts are split where one
    is spelled, and what lies between is encoded by itself.
    """
    return [self._covered(text) for text in texts]

  def _covered(self, text: str) -> base.TokensWithOffsets:
    ids, begins, ends = [], [], []
    begin = 0
    for match in [*self._splitter.finditer(text), None]:
      end = len(text) if match is None else match.start()
      if begin < end:
        encoded = self._model.encode(
          text[begin:end], return_type="offset_mapping"
        )
        ids += encoded["ids"]
        begins += [begin + low for low, _ in encoded["offsets"]]
        ends += [begin + high for _, high in encoded["offsets"]]
      if match is not None:
        ids.append(self._names[match.group()])
        begins.append(match.start())
        ends.append(match.end())
        begin = match.end()
    return base.TokensWithOffsets(
      np.asarray(ids, self._dtype),
      np.asarray(begins, np.int64),
      np.asarray(ends, np.int64),
    )

  def decode(self, ids: np.ndarray) -> str:
    """Returns the text of ids."""
    ids = np.asarray(ids, np.int64)
    return base.decoded(
      ids,
      self._control[ids],
      self._model.id_to_piece,
      lambda text: self._model.decode(text.tolist()),
    )
