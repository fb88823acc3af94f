# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The bytes of UTF-8 as token ids.

There are 259: 0 .. 255 are the bytes, 256 begins a document, 257 ends one, 258
is padding.
"""

from collections.abc import Sequence
import hashlib

import numpy as np

from chomp_data import stores
from chomp_data.prepare.tokenizers import base

BOS_ID, EOS_ID, PAD_ID = 256, 257, 258
VOCAB_SIZE = 259

_DEFINITION = b"chomp_data byte: 0..255 bytes, 256 bos, 257 eos, 258 pad"
_SPECIALS = {BOS_ID: "<bos>", EOS_ID: "<eos>", PAD_ID: "<pad>"}


class ByteTokenizer:
  """The bytes of UTF-8 as token ids."""

  info: stores.TokenizerInfo = stores.TokenizerInfo(
    kind="byte",
    sha256=hashlib.sha256(_DEFINITION).hexdigest(),
    vocab_size=VOCAB_SIZE,
    pad_id=PAD_ID,
    eos_id=EOS_ID,
    bos_id=BOS_ID,
  )
  file: bytes | None = None
  takes_bytes = True

  def encode_batch(self, texts: Sequence[str | bytes]) -> base.Encoded:
    """Returns the bytes of several texts, as uint8."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if all(isinstance(text, str) and text.isascii() for text in texts):
      flat = "".join(map(base.text_of, texts)).encode()
    else:
      data = [
        text.encode() if isinstance(text, str) else text for text in texts
      ]
      lengths = np.fromiter(map(len, data), np.int64, len(data))
      flat = b"".join(data)
    return base.Encoded(np.frombuffer(flat, np.uint8), lengths)

  def encode_covered(
    self, texts: Sequence[str]
  ) -> list[base.TokensWithOffsets]:
    """Returns the bytes of texts; no special token can be spelled."""
    covered = []
    for text in texts:
      data = np.frombuffer(text.encode(), np.uint8)
      begins = base.character_of_bytes(data)
      covered.append(
        base.TokensWithOffsets(data.astype(np.uint16), begins, begins + 1)
      )
    return covered

  def decode(self, ids: np.ndarray) -> str:
    """Returns the text of ids; bytes that are no UTF-8 become U+FFFD."""
    ids = np.asarray(ids)
    if np.any((ids < 0) | (ids >= VOCAB_SIZE)):
      wrong = ids[(ids < 0) | (ids >= VOCAB_SIZE)][0]
      raise ValueError(f"`ids` must be in 0 .. {VOCAB_SIZE - 1}, got {wrong}.")
    return base.decoded(
      ids,
      ids > 255,
      _SPECIALS.__getitem__,
      lambda text: text.astype(np.uint8).tobytes().decode(errors="replace"),
    )
