# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which tokenizers there are: a file says by its content what it is."""

from collections.abc import Callable
import functools
import pathlib
from typing import Any

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare.tokenizers import base
from chomp_data.prepare.tokenizers import byte_tokenizer
from chomp_data.prepare.tokenizers import huggingface
from chomp_data.prepare.tokenizers import ids_tokenizer
from chomp_data.prepare.tokenizers import sentence_piece
from chomp_data.prepare.tokenizers import tiktoken_ranks
from chomp_data.storage import opening

BYTE = "byte"
_HUGGINGFACE_FILE = "tokenizer.json"

# By the kind that a store names: a module's `matches` says whether a file is
# one. They are tried in this order: the JSON of tiktoken is an object, too. A
# class takes the content of the file and where it came from, with the names of
# special tokens. It raises PrepareError if the file is damaged or lacks a token
# that is named, or if the library is not installed.
FILES: dict[str, tuple[Callable[[bytes], bool], Callable[..., Any]]] = {
  "tiktoken": (tiktoken_ranks.matches, tiktoken_ranks.TiktokenTokenizer),
  "huggingface": (huggingface.matches, huggingface.HuggingFaceTokenizer),
  "sentencepiece": (
    sentence_piece.matches,
    sentence_piece.SentencePieceTokenizer,
  ),
}


def make_tokenizer(spec: base.TokenizerSpec) -> base.Tokenizer:
  """Makes a tokenizer; a process makes each only once while it is the same.

  Returns:
    The tokenizer.

  Raises:
    PrepareError: If the file cannot be read, is no tokenizer, or has no token
      of a given name.
  """
  if spec.vocab_size is not None:
    return ids_tokenizer.IdsTokenizer(spec)
  if spec.source == BYTE:
    base.refuse_options(
      spec,
      (
        *(f"{kind}_token" for kind in base.USUAL_NAMES),
        "pattern",
        "special_tokens",
      ),
      "the byte tokenizer, whose special ids are fixed",
    )
    return byte_tokenizer.ByteTokenizer()
  try:
    storage, name = opening.open_object(spec.source)
    if storage.is_remote:
      file = storage.get(name)
    else:
      file = pathlib.Path(spec.source).read_bytes()
  except OSError as error:
    raise errors.PrepareError(
      "`--tokenizer` must be 'byte' or the path of a readable file, got"
      f" {spec.source!r}: {error.strerror}. {_how_to_get(spec.source)}"
    ) from None
  return _from_file(file, spec)


def _how_to_get(name: str) -> str:
  """Returns what to do about a name that is not the path of a file."""
  path = pathlib.Path(name)
  if (path / _HUGGINGFACE_FILE).is_file():
    return f"Name the file in it: --tokenizer={path / _HUGGINGFACE_FILE}."
  if path.suffix or opening.open_object(name)[0].is_remote:
    return "Correct the path; nothing is downloaded."
  if name in tiktoken_ranks.PATTERNS:
    return (
      "Nothing is downloaded: on a machine with a network, set"
      " TIKTOKEN_CACHE_DIR to a directory, run"
      f" `python -c \"import tiktoken; tiktoken.get_encoding('{name}')\"`, and"
      " give the file that is there then."
    )
  return (
    "Nothing is downloaded: if it is a model of the Hugging Face Hub, run"
    f" `hf download {name} {_HUGGINGFACE_FILE} --local-dir={path.name}` on a"
    f" machine with a network (`pip install huggingface_hub` has the command),"
    f" and give --tokenizer={path.name}/{_HUGGINGFACE_FILE}."
  )


@functools.lru_cache(maxsize=2)
def _from_file(file: bytes, spec: base.TokenizerSpec) -> base.Tokenizer:
  for matches, make in FILES.values():
    if matches(file):
      return make(file, spec)
  raise errors.PrepareError(
    "`--tokenizer` must be 'byte', a Hugging Face tokenizer.json, a"
    f" SentencePiece .model or a tiktoken file, got {spec.source}, which begins"
    f" with {file[:16]!r}. Give such a file."
  )


def load_tokenizer(store: "stores.Store") -> base.Tokenizer:
  """Returns the tokenizer that a store was made with, from the store itself.

  Args:
    store: An opened store.

  Raises:
    StoreError: If the store has no tokenizer, or its file was altered.
    PrepareError: If the package that reads it is not installed.
  """
  # Not at import: workers need no store.
  from chomp_data.stores import base as store_base

  info = store.opened.tokenizer
  if info.kind == BYTE:
    if info.sha256 != byte_tokenizer.ByteTokenizer.info.sha256:
      raise stores.StoreError(
        f"The byte tokenizer of {store.path} must have SHA-256"
        f" {byte_tokenizer.ByteTokenizer.info.sha256}, got {info.sha256}. Read"
        " the store with the version that made it."
      )
    return byte_tokenizer.ByteTokenizer()
  if info.kind in FILES:
    _, make = FILES[info.kind]
    tokenizer = make(
      store_base.tokenizer_file(store), base.TokenizerSpec(store.path)
    )
    # Special ids may have been named when the store was made.
    tokenizer.info = info
    return tokenizer
  raise stores.StoreError(
    f"The tokenizer of {store.path} must be in the store to decode tokens, got"
    f" kind {info.kind!r}. Prepare the store with chomp-prepare."
  )
