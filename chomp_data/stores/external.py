# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Stores of other tools: options declare what files omit, the tokenizer."""

from collections.abc import Callable
import dataclasses
import functools
import hashlib
import json
import os
from typing import ClassVar
from typing import Generic
from typing import TypeVar

from chomp_data import errors
from chomp_data import schema
from chomp_data.stores import base
from chomp_data.stores import vocabulary

_TOKEN_ID = schema.optional(schema.integer(0, vocabulary.MAX_VOCAB_SIZE - 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenOptions(schema.Options):
  """What a corpus of token ids does not say of itself.

  Attributes:
    vocab_size: Size of the vocabulary; all token ids, including special ones,
      are below it.
    pad_id: Id of the padding token; None if there is none.
    eos_id: Id of the end-of-document token; None if there is none.
    bos_id: Id of the begin-of-document token; None if there is none.
    adds_bos: Whether documents begin with `bos_id`.
    adds_eos: Whether documents end with `eos_id`.
    tokenizer: Name of the tokenizer that made the ids; it is part of the
      store's hash.
  """

  # The name of the section, which is part of the hash.
  section: ClassVar[str]

  vocab_size: int = schema.required(
    schema.integer(1, vocabulary.MAX_VOCAB_SIZE)
  )
  pad_id: int | None = schema.option(None, _TOKEN_ID)
  eos_id: int | None = schema.option(None, _TOKEN_ID)
  bos_id: int | None = schema.option(None, _TOKEN_ID)
  adds_bos: bool = schema.option(False, schema.boolean())
  adds_eos: bool = schema.option(False, schema.boolean())
  tokenizer: str | None = schema.option(None, schema.optional(schema.text()))

  def problems(self, path: str) -> list[str]:
    """Returns what is wrong between these fields."""
    problems = []
    for name in ("pad_id", "eos_id", "bos_id"):
      value = getattr(self, name)
      if value is not None and value >= self.vocab_size:
        problems.append(
          f"`{path}.{name}` must be below `vocab_size` {self.vocab_size}, got"
          f" {value}. Correct one of them."
        )
    for name in ("eos", "bos"):
      if getattr(self, f"adds_{name}") and getattr(self, f"{name}_id") is None:
        problems.append(
          f"`{path}.{name}_id` must be set with `adds_{name}`, got None. Say"
          " which id the data hold."
        )
    return problems

  def check(self) -> None:
    """Raises StoreError where fields do not fit each other."""
    problems = self.problems(self.section)
    if problems:
      raise errors.StoreError(" ".join(problems))

  @property
  def tokenizer_identity(self) -> tuple[str, str] | None:
    """What they name the tokenizer; see `base.Opened`."""
    return ("name", self.tokenizer) if self.tokenizer else None

  @property
  def tokenizer_info(self) -> vocabulary.TokenizerInfo:
    """The tokenizer that they describe."""
    definition = {self.section: self.tokenizer, "vocab_size": self.vocab_size}
    text = json.dumps(definition, sort_keys=True).encode()
    return vocabulary.TokenizerInfo(
      kind="custom",
      sha256=hashlib.sha256(text).hexdigest(),
      vocab_size=self.vocab_size,
      pad_id=self.pad_id,
      eos_id=self.eos_id,
      bos_id=self.bos_id,
      adds_bos=self.adds_bos,
      adds_eos=self.adds_eos,
    )


_Options = TypeVar("_Options", bound=TokenOptions)


class ExternalStore(base.Store, Generic[_Options]):
  """A store of files that another tool wrote.

  Attributes:
    options: What its files do not say.
  """

  def __init__(
    self,
    path: str | os.PathLike[str],
    options: _Options,
    cache_bytes: int = base.DEFAULT_CACHE_BYTES,
  ):
    """Opens nothing yet; see the function that opens its kind."""
    super().__init__(path, cache_bytes)
    self.options: _Options = options

  @property
  def _is_same(self) -> Callable[[str], bool]:
    """Says whether the store of a hash is there, by opening it again."""
    # It does not hold this store, which holds it.
    return functools.partial(_is_same, type(self), self._path, self.options)


def _is_same(
  cls: Callable[[str, _Options], base.Store],
  path: str,
  options: _Options,
  identity: str,
) -> bool:
  try:
    return cls(path, options).hash == identity
  except errors.StoreError:
    return False


def identity_hash(
  options: TokenOptions,
  schema_number: int,
  num_documents: int,
  num_tokens: int,
  content: str,
) -> str:
  """Returns the hash of a store of external files, SHA-256 as hex.

  Args:
    options: What its files do not say.
    schema_number: Of the index that `content` comes from.
    num_documents: Of the store.
    num_tokens: Of the store.
    content: Hex digest of tokens and documents.
  """
  identity = {
    "format": f"chomp_data {options.section}",
    "schema": schema_number,
    "num_documents": num_documents,
    "num_tokens": num_tokens,
    "tokenizer": dataclasses.asdict(options.tokenizer_info),
    "content": content,
  }
  text = json.dumps(identity, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()
