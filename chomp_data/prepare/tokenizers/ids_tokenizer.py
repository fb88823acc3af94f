# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Token ids that come as such; texts are ids of uint32."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare.tokenizers import base

ID = np.dtype("<u4")


def encode(texts: Sequence[str | bytes]) -> base.Encoded:
  """Returns the token ids that texts are."""
  joined = b"".join(text for text in texts if isinstance(text, bytes))
  lengths = np.fromiter(map(len, texts), np.int64, len(texts))
  return base.Encoded(np.frombuffer(joined, ID), lengths // ID.itemsize)


class IdsTokenizer:
  """What is known of the tokenizer of token ids that has no file.

  Attributes:
    info: What a store keeps of it.
    file: None.
    takes_bytes: False: its texts are token ids.
  """

  file: bytes | None = None
  takes_bytes: bool = False

  def __init__(self, spec: base.TokenizerSpec):
    """Takes the ids that flags name.

    Raises:
      PrepareError: If one is not below the vocabulary size.
    """
    size = spec.vocab_size or 0
    ids = {kind: getattr(spec, f"{kind}_id") for kind in base.USUAL_NAMES}
    errors.PrepareError.raise_if(
      [
        f"`--{kind}_id` must be below --vocab_size={size}, got {number}."
        " Correct it."
        for kind, number in ids.items()
        if number is not None and not 0 <= number < size
      ]
      + [
        f"`--{kind}_id` must be set where --adds_{kind} says that ids have"
        " it, got nothing. Set it."
        for kind in ("bos", "eos")
        if getattr(spec, f"adds_{kind}") and ids[kind] is None
      ]
    )
    info = base.info_of("custom", f"ids {size}".encode(), size, ids)
    self.info: stores.TokenizerInfo = dataclasses.replace(
      info, adds_bos=spec.adds_bos, adds_eos=spec.adds_eos
    )

  def encode_batch(self, texts: Sequence[str | bytes]) -> base.Encoded:
    """Returns the ids that texts are."""
    return encode(texts)

  def encode_covered(self, texts: Sequence[str]) -> Any:
    """Raises TypeError: token ids have no characters."""
    raise TypeError(f"`texts` must be token ids, got {texts[:1]}.")

  def decode(self, ids: np.ndarray) -> str:
    """Returns the ids, with spaces between them."""
    return " ".join(map(str, ids.tolist()))
