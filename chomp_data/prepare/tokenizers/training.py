# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A tokenizer of a corpus's own: byte-level BPE, by the `tokenizers` library.

The same texts in the same order give the same file, on any number of cores.
Its special tokens are `SPECIAL`, the first ids; the 256 bytes follow, so that
any text can be encoded.
"""

from collections.abc import Iterable

ALGORITHMS = ("bpe",)
SPECIAL = ("<|pad|>", "<|eos|>", "<|bos|>")
# As `tokenizers.special_texts` will say of it.
SPECIAL_TEXTS = tuple((f"{name[2:5]}_token", name) for name in sorted(SPECIAL))
LEAST_VOCAB_SIZE = 256 + len(SPECIAL)


def train_bpe(texts: Iterable[str], vocab_size: int) -> bytes:
  """Returns the `tokenizer.json` of a BPE of texts.

  Args:
    texts: Drawn one by one, and not kept.
    vocab_size: Tokens at most, special ones included; small texts give fewer.
  """
  import tokenizers
  from tokenizers import decoders
  from tokenizers import models
  from tokenizers import pre_tokenizers
  from tokenizers import trainers

  tokenizer = tokenizers.Tokenizer(models.BPE())
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=vocab_size,
    special_tokens=list(SPECIAL),
    initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    show_progress=False,
  )
  tokenizer.train_from_iterator(texts, trainer)
  return tokenizer.to_str(pretty=False).encode()
