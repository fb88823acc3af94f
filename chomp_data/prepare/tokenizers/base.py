# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What every tokenizer is, and what they share."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import importlib
import itertools
import os
from typing import Any
from typing import NamedTuple
from typing import Protocol

import numpy as np

from chomp_data import errors
from chomp_data import stores
from chomp_data.stores.zarr import manifest as manifest_lib

# In order of preference: BERT's separators come last.
USUAL_NAMES: dict[str, tuple[str, ...]] = {
  "pad": (
    "<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>",
  ),
  "eos": (
    "<eos>", "</s>", "<|endoftext|>", "<|end_of_text|>", "<|eos|>", "[EOS]",
    "<|end_of_sentence|>", "[SEP]",
  ),
  "bos": (
    "<bos>", "<s>", "<|begin_of_text|>", "<|startoftext|>", "<|bos|>", "[BOS]",
    "<|begin_of_sentence|>", "[CLS]",
  ),
}  # fmt: skip


class Encoded(NamedTuple):
  """Token ids of several texts, one after the other.

  Attributes:
    tokens: uint16 or uint32, as stores keep them; uint8 of a tokenizer that
      takes bytes.
    lengths: int64, of each text in tokens.
  """

  tokens: np.ndarray
  lengths: np.ndarray


class Covered(NamedTuple):
  """Token ids of a text, and which characters each stands for.

  A token that is one byte of a character covers all of it; one that stands for
  no character has `begins == ends`.

  Attributes:
    tokens: uint16 or uint32, as stores keep them.
    begins: int64, of the first character.
    ends: int64, after the last character.
  """

  tokens: np.ndarray
  begins: np.ndarray
  ends: np.ndarray


class Tokenizer(Protocol):
  """What `prepare` and the tools ask of a tokenizer.

  Attributes:
    info: What a store keeps of it.
    file: The file by which a store keeps it, or None.
    takes_bytes: Whether files go in as they are, without decoding; token ids
      of texts are then bytes, too.
  """

  info: stores.TokenizerInfo
  file: bytes | None
  takes_bytes: bool

  def encode_batch(self, texts: Sequence[str | bytes]) -> Encoded:
    """Returns the token ids of several texts, on all cores of a process."""
    ...

  def encode_covered(self, texts: Sequence[str]) -> list[Covered]:
    """Returns the token ids of texts in which special tokens are spelled."""
    ...

  def decode(self, ids: np.ndarray) -> str:
    """Returns the text of token ids, special ones by their names."""
    ...


@dataclasses.dataclass(frozen=True)
class TokenizerSpec:
  """Names a tokenizer, small enough to send to workers.

  Attributes:
    source: 'byte', or the path of a tokenizer's file.
    pad_token: The name of its padding token; None finds a usual one.
    eos_token: The name of its end-of-document token.
    bos_token: The name of its begin-of-document token.
    pattern: How a tiktoken file's texts are split: a regular expression, or
      the name of a known one; None finds it.
    special_tokens: A tiktoken file's special tokens, as 'NAME' or 'NAME=ID'.
  """

  source: str = "byte"
  pad_token: str | None = None
  eos_token: str | None = None
  bos_token: str | None = None
  pattern: str | None = None
  special_tokens: tuple[str, ...] = ()


def threads() -> int:
  """Returns how many threads a tokenizer may use.

  Processes that share a machine's cores set TOKENIZERS_PARALLELISM, which the
  library of `tokenizer.json` files obeys by itself.
  """
  if os.environ.get("TOKENIZERS_PARALLELISM", "").lower() in ("false", "0"):
    return 1
  return os.cpu_count() or 1


def joined(ids: Sequence[Sequence[int]], dtype: np.dtype) -> Encoded:
  """Returns lists of token ids as one array."""
  lengths = np.fromiter(map(len, ids), np.int64, len(ids))
  flat = itertools.chain.from_iterable(ids)
  return Encoded(np.fromiter(flat, dtype, int(lengths.sum())), lengths)


def token_dtype(vocab_size: int) -> np.dtype:
  """Returns the dtype that a store keeps tokens in."""
  return np.dtype(manifest_lib.token_dtype(vocab_size))


def character_of_bytes(data: np.ndarray) -> np.ndarray:
  """Returns int64[N], the number of the character of each byte of UTF-8.

  bytes       61  c3 a9  62
  characters   0   1  1   2
  """
  return np.cumsum((data & 0xC0) != 0x80) - 1


def special_texts(tokenizer: Tokenizer) -> tuple[tuple[str, str], ...]:
  """Returns how text spells special tokens, as (('bos_token', '<s>'), ...)."""
  if tokenizer.takes_bytes:
    return ()  # Any text is bytes.
  ids = {
    f"{kind}_token": getattr(tokenizer.info, f"{kind}_id")
    for kind in USUAL_NAMES
  }
  return tuple(
    (name, tokenizer.decode(np.asarray([number])))
    for name, number in sorted(ids.items())
    if number is not None
  )


def all_special_texts(tokenizer: Tokenizer) -> tuple[str, ...]:
  """Returns the texts of all tokens that text may spell as special ones."""
  return tuple(sorted(getattr(tokenizer, "special", ())))


def text_of(text: str | bytes) -> str:
  """Returns a text decoded."""
  return text.decode() if isinstance(text, bytes) else text


def special_ids(
  vocabulary: Mapping[str, int],
  spec: TokenizerSpec,
  found: Mapping[str, int | None] | None = None,
) -> dict[str, int | None]:
  """Returns the ids of a vocabulary's 'pad', 'eos' and 'bos'.

  Args:
    vocabulary: Ids by token.
    spec: Names that were given.
    found: Ids where no name was given; None looks for usual names.

  Raises:
    PrepareError: If there is no token of a given name.
  """
  problems = []
  ids: dict[str, int | None] = {}
  for kind, usual in USUAL_NAMES.items():
    name = getattr(spec, f"{kind}_token")
    if name is not None and name not in vocabulary:
      problems.append(
        f"`--{kind}_token` must be a token of {spec.source}, got {name!r}."
        " Correct it, or leave it out to find a usual one."
      )
    if name is None and found is not None:
      ids[kind] = found[kind]
      continue
    names = usual if name is None else (name,)
    known = [vocabulary[n] for n in names if n in vocabulary]
    ids[kind] = known[0] if known else None
  errors.PrepareError.raise_if(problems)
  return ids


def refuse_options(spec: TokenizerSpec, names: Iterable[str], why: str) -> None:
  """Raises PrepareError for options that mean nothing for a tokenizer."""
  flags = {"pattern": "tiktoken_pattern", "special_tokens": "special_token"}
  errors.PrepareError.raise_if(
    [
      f"`--{flags.get(name, name)}` must not be given for {why}, got {value!r}."
      " Leave it out."
      for name in names
      if (value := getattr(spec, name))
    ]
  )


def library(name: str, extra: str, source: str) -> Any:
  """Returns a package that reads a kind of tokenizers.

  Raises:
    PrepareError: If it is not installed.
  """
  try:
    return importlib.import_module(name)
  except ImportError as error:
    raise errors.PrepareError(
      f"{name} must be installed to read {source}, got {error}. Install"
      f" chomp_data[{extra}]."
    ) from None
