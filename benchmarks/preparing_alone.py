# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and encodes, and forgets: what `preparing.py` compares with.

    python benchmarks/preparing_alone.py '["JSON lines", PATH, "byte", null]'

It is a process of its own, as the command is, and imports what it needs only.
"""

from collections.abc import Iterator
import json
import sys

import numpy as np

from chomp_data.prepare import tokenizers

_BATCH_TEXTS, _BATCH_CHARACTERS = 1_024, 4 * 2**20


def _texts(kind: str, path: str) -> Iterator[str]:
  if kind == "JSON lines":
    with open(path, "rb") as file:
      for line in file:
        yield json.loads(line)["text"]
    return
  from pyarrow import parquet

  for batch in parquet.ParquetFile(path).iter_batches(
    batch_size=256, columns=["id", "text"], use_threads=False
  ):
    yield from batch.column("text").to_pylist()


def _encode(tokenizer: tokenizers.Tokenizer, texts: list[str]) -> np.ndarray:
  """Returns token ids as a store keeps them, two bytes each."""
  return tokenizer.encode_batch(texts).tokens.astype(np.uint16, copy=False)


def _read(kind: str, path: str, source: str, pattern: str | None) -> None:
  tokenizer = tokenizers.make_tokenizer(
    tokenizers.TokenizerSpec(source, pattern=pattern)
  )
  batch, characters = [], 0
  for text in _texts(kind, path):
    batch.append(text)
    characters += len(text)
    if len(batch) >= _BATCH_TEXTS or characters >= _BATCH_CHARACTERS:
      _encode(tokenizer, batch)
      batch, characters = [], 0
  _encode(tokenizer, batch)


if __name__ == "__main__":
  _read(*json.loads(sys.argv[1]))
