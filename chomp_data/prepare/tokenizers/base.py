# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What every tokenizer is, and what they share."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import hashlib
import importlib
import itertools
import os
from typing import Any
from typing import NamedTuple
from typing import Protocol

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data import stores
from chomp_data.prepare import option_fields
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


class TokensWithOffsets(NamedTuple):
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
    file: Its file in a store, or None.
    takes_bytes: Whether files go in as they are, without decoding; token ids
      of texts are then bytes, too.
  """

  info: stores.TokenizerInfo
  file: bytes | None
  takes_bytes: bool

  def encode_batch(self, texts: Sequence[str | bytes]) -> Encoded:
    """Returns the token ids of several texts, on all cores of a process."""
    ...

  def encode_covered(self, texts: Sequence[str]) -> list[TokensWithOffsets]:
    """Returns the token ids of texts in which special tokens are spelled."""
    ...

  def decode(self, ids: np.ndarray) -> str:
    """Returns the text of token ids, special ones by their names."""
    ...


@dataclasses.dataclass(frozen=True)
class TokenizerSpec:
  """Names a tokenizer, small enough to send to workers.

  Attributes:
    source: 'byte' (the bytes of UTF-8, 259 ids), or the path of a Hugging Face
      tokenizer.json, a SentencePiece .model or a tiktoken file.
    pad_token: The padding token; by default the first of the usual names that
      the vocabulary has.
    eos_token: The end-of-document token; by default the first of the usual
      names that the vocabulary has.
    bos_token: The begin-of-document token; by default the first of the usual
      names that the vocabulary has.
    pattern: How a tiktoken file's texts are split: a regular expression, or
      one of r50k_base, cl100k_base, o200k_base; known for the files of these.
    special_tokens: A special token of a tiktoken file, as
      '<|endoftext|>=50256'; without an id it takes the next.
    vocab_size: With --ids_key and without a tokenizer, ids are below it.
    pad_id: With --ids_key, the padding token.
    eos_id: With --ids_key, the end-of-document token.
    bos_id: With --ids_key, the begin-of-document token.
    adds_eos: With --ids_key, whether documents end with --eos_id already.
    adds_bos: With --ids_key, whether documents begin with --bos_id already.
  """

  source: str = option_fields.option("byte", flag="tokenizer")
  pad_token: str | None = option_fields.option(None, schema.text())
  eos_token: str | None = option_fields.option(None, schema.text())
  bos_token: str | None = option_fields.option(None, schema.text())
  pattern: str | None = option_fields.option(
    None, schema.text(), flag="tiktoken_pattern"
  )
  special_tokens: tuple[str, ...] = option_fields.option(
    (), flag="special_token"
  )
  vocab_size: int | None = option_fields.option(None, flag=None)
  pad_id: int | None = option_fields.option(None)
  eos_id: int | None = option_fields.option(None)
  bos_id: int | None = option_fields.option(None)
  adds_eos: bool = option_fields.option(False)
  adds_bos: bool = option_fields.option(False)


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


def concatenated(arrays: Sequence[np.ndarray], dtype: np.dtype) -> Encoded:
  """Returns arrays of token ids as one."""
  lengths = np.fromiter(map(len, arrays), np.int64, len(arrays))
  tokens = np.concatenate(arrays) if arrays else np.empty(0)
  return Encoded(tokens.astype(dtype), lengths)


def info_of(
  kind: str, file: bytes, vocab_size: int, ids: Mapping[str, int | None]
) -> stores.TokenizerInfo:
  """Returns what a store keeps of a tokenizer."""
  return stores.TokenizerInfo(
    kind=kind,
    sha256=hashlib.sha256(file).hexdigest(),
    vocab_size=vocab_size,
    pad_id=ids["pad"],
    eos_id=ids["eos"],
    bos_id=ids["bos"],
  )


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


def decoded(
  ids: np.ndarray,
  is_special: np.ndarray,
  name: Callable[[int], str],
  text: Callable[[np.ndarray], str],
) -> str:
  """Returns the text of ids, special ones by their names."""
  edges = np.flatnonzero(is_special).tolist()
  parts = []
  for low, high in zip([-1, *edges], [*edges, len(ids)], strict=True):
    if low >= 0:
      parts.append(name(int(ids[low])))
    parts.append(text(ids[low + 1 : high]))
  return "".join(parts)


def text_of(text: str | bytes) -> str:
  """Returns a text decoded."""
  return text.decode() if isinstance(text, bytes) else text


def special_ids(
  vocabulary: Mapping[str, int],
  spec: TokenizerSpec,
  default_ids: Mapping[str, int | None] | None = None,
) -> dict[str, int | None]:
  """Returns the ids of a vocabulary's 'pad', 'eos' and 'bos'.

  Args:
    vocabulary: Ids by token.
    spec: Names that were given.
    default_ids: Ids where no name was given; None looks for usual names.

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
    if name is None and default_ids is not None:
      ids[kind] = default_ids[kind]
      continue
    names = usual if name is None else (name,)
    ids[kind] = next((vocabulary[n] for n in names if n in vocabulary), None)
  errors.PrepareError.raise_if(problems)
  return ids


def refuse_options(spec: TokenizerSpec, names: Iterable[str], why: str) -> None:
  """Raises PrepareError for options that mean nothing for a tokenizer."""
  flags = option_fields.flags_of(TokenizerSpec)
  flag_names = {flag.option.name: flag.name for flag in flags}
  errors.PrepareError.raise_if(
    [
      f"`--{flag_names[name]}` must not be given for {why}, got {value!r}."
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
