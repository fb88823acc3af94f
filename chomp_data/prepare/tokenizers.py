"""Tokenizers: from text to token ids and back. Nothing is downloaded.

`byte` has 259 ids: 0 .. 255 are the bytes of UTF-8, 256 begins a document, 257
ends one, 258 is padding. Any other tokenizer is a Hugging Face
`tokenizer.json`; its special ids are found by their usual names. Documents are
encoded without special tokens: those are added when rows are read.
"""

from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import pathlib
from typing import Protocol

import numpy as np

from chomp_data import errors
from chomp_data import stores

BYTE = "byte"
BOS_ID, EOS_ID, PAD_ID = 256, 257, 258
BYTE_VOCAB_SIZE = 259

_BYTE_DEFINITION = b"chomp_data byte: 0..255 bytes, 256 bos, 257 eos, 258 pad"
_BYTE_SPECIALS = {BOS_ID: "<bos>", EOS_ID: "<eos>", PAD_ID: "<pad>"}

# In order of preference: BERT's separators come last.
_USUAL_NAMES = {
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


class Tokenizer(Protocol):
  """What `prepare` and the tools ask of a tokenizer.

  Attributes:
    info: What a store keeps of it.
    file: Its `tokenizer.json`, or None.
    takes_bytes: Whether files go in as they are, without decoding.
  """

  info: stores.TokenizerInfo
  file: bytes | None
  takes_bytes: bool

  def encode(self, text: str | bytes) -> np.ndarray:
    """Returns the token ids of a text, uint16 or uint32 [length]."""
    ...

  def encode_batch(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
    """Returns the token ids of several texts."""
    ...

  def decode(self, ids: np.ndarray) -> str:
    """Returns the text of token ids, special ones by their names."""
    ...


@dataclasses.dataclass(frozen=True)
class TokenizerSpec:
  """Names a tokenizer, small enough to send to workers.

  Attributes:
    source: 'byte', or the path of a Hugging Face `tokenizer.json`.
    pad_token: The name of its padding token; None finds a usual one.
    eos_token: The name of its end-of-document token.
    bos_token: The name of its begin-of-document token.
  """

  source: str = BYTE
  pad_token: str | None = None
  eos_token: str | None = None
  bos_token: str | None = None


class ByteTokenizer:
  """The bytes of UTF-8 as token ids; see the module."""

  info: stores.TokenizerInfo = stores.TokenizerInfo(
    kind="byte",
    sha256=hashlib.sha256(_BYTE_DEFINITION).hexdigest(),
    vocab_size=BYTE_VOCAB_SIZE,
    pad_id=PAD_ID,
    eos_id=EOS_ID,
    bos_id=BOS_ID,
  )
  file: bytes | None = None
  takes_bytes = True

  def encode(self, text: str | bytes) -> np.ndarray:
    """Returns the bytes of a text as uint16 [length]."""
    data = text.encode() if isinstance(text, str) else text
    return np.frombuffer(data, np.uint8).astype(np.uint16)

  def encode_batch(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
    """Returns the bytes of several texts."""
    return [self.encode(text) for text in texts]

  def decode(self, ids: np.ndarray) -> str:
    """Returns the text of ids; bytes that are no UTF-8 become U+FFFD."""
    ids = np.asarray(ids)
    if np.any((ids < 0) | (ids >= BYTE_VOCAB_SIZE)):
      wrong = ids[(ids < 0) | (ids >= BYTE_VOCAB_SIZE)][0]
      raise ValueError(
        f"`ids` must be in 0 .. {BYTE_VOCAB_SIZE - 1}, got {wrong}."
      )
    edges = np.flatnonzero(ids > 255).tolist()
    parts = []
    for low, high in zip([-1, *edges], [*edges, len(ids)], strict=True):
      if low >= 0:
        parts.append(_BYTE_SPECIALS[int(ids[low])])
      text = ids[low + 1 : high].astype(np.uint8).tobytes()
      parts.append(text.decode(errors="replace"))
    return "".join(parts)


class HuggingFaceTokenizer:
  """A `tokenizer.json`, encoding without special tokens."""

  takes_bytes = False

  def __init__(self, file: bytes, spec: TokenizerSpec):
    """Parses the file.

    Args:
      file: The content of `tokenizer.json`.
      spec: Where it came from, and names of special tokens.

    Raises:
      PrepareError: If it is no tokenizer, or has no token of a given name.
    """
    # Imported where it is used: stores of bytes do without it.
    import tokenizers

    try:
      tokenizer = tokenizers.Tokenizer.from_str(file.decode())
    except Exception as error:  # The library raises bare exceptions.
      raise errors.PrepareError(
        "`--tokenizer` must be 'byte' or a Hugging Face tokenizer.json, got"
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
    ids = _special_ids(vocabulary, spec)
    vocab_size = max(vocabulary.values()) + 1
    self.info: stores.TokenizerInfo = stores.TokenizerInfo(
      kind="huggingface",
      sha256=hashlib.sha256(file).hexdigest(),
      vocab_size=vocab_size,
      pad_id=ids["pad"],
      eos_id=ids["eos"],
      bos_id=ids["bos"],
    )
    self._dtype = np.uint16 if vocab_size <= 2**16 else np.uint32

  def encode(self, text: str | bytes) -> np.ndarray:
    """Returns the token ids of a text."""
    return self.encode_batch([text])[0]

  def encode_batch(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
    """Returns the token ids of several texts."""
    decoded = [t.decode() if isinstance(t, bytes) else t for t in texts]
    return [
      np.asarray(encoding.ids, self._dtype)
      for encoding in self._tokenizer.encode_batch_fast(
        decoded, add_special_tokens=False
      )
    ]

  def decode(self, ids: np.ndarray) -> str:
    """Returns the text of ids."""
    return self._tokenizer.decode(
      np.asarray(ids).tolist(), skip_special_tokens=False
    )


@functools.lru_cache(maxsize=2)
def make_tokenizer(spec: TokenizerSpec) -> Tokenizer:
  """Makes a tokenizer; a process makes each only once.

  Args:
    spec: Which.

  Returns:
    The tokenizer.

  Raises:
    PrepareError: If the file cannot be read, is no tokenizer, or has no token
      of a given name.
  """
  if spec.source != BYTE:
    try:
      file = pathlib.Path(spec.source).read_bytes()
    except OSError as error:
      raise errors.PrepareError(
        "`--tokenizer` must be 'byte' or the path of a readable"
        f" tokenizer.json, got {spec.source!r}: {error.strerror}. Correct it."
      ) from None
    return HuggingFaceTokenizer(file, spec)
  errors.PrepareError.raise_if(
    [
      f"`--{kind}_token` must not be given for the byte tokenizer, whose"
      f" special ids are fixed, got {name!r}. Leave it out."
      for kind in _USUAL_NAMES
      if (name := getattr(spec, f"{kind}_token")) is not None
    ]
  )
  return ByteTokenizer()


def load_tokenizer(store: stores.Store) -> Tokenizer:
  """Returns the tokenizer that a store was made with, from the store itself.

  Args:
    store: An opened store.

  Raises:
    StoreError: If the store has no tokenizer, or its file was altered.
  """
  info = store.tokenizer_info
  if info.kind == "byte":
    if info.sha256 != ByteTokenizer.info.sha256:
      raise stores.StoreError(
        f"The byte tokenizer of {store.path} must have SHA-256"
        f" {ByteTokenizer.info.sha256}, got {info.sha256}. Read the store with"
        " the version that made it."
      )
    return ByteTokenizer()
  if info.kind == "huggingface":
    tokenizer = HuggingFaceTokenizer(
      store.tokenizer_file(), TokenizerSpec(store.path)
    )
    # Special ids may have been named when the store was made.
    tokenizer.info = info
    return tokenizer
  raise stores.StoreError(
    f"The tokenizer of {store.path} must be in the store to decode tokens, got"
    f" kind {info.kind!r}. Prepare the store with tools/prepare.py."
  )


def _special_ids(
  vocabulary: dict[str, int], spec: TokenizerSpec
) -> dict[str, int | None]:
  """Returns the ids of a vocabulary's 'pad', 'eos' and 'bos'."""
  problems = []
  ids: dict[str, int | None] = {}
  for kind, usual in _USUAL_NAMES.items():
    name = getattr(spec, f"{kind}_token")
    if name is not None and name not in vocabulary:
      problems.append(
        f"`--{kind}_token` must be a token of {spec.source}, got {name!r}."
        " Correct it, or leave it out to find a usual one."
      )
    names = usual if name is None else (name,)
    known = [vocabulary[n] for n in names if n in vocabulary]
    ids[kind] = known[0] if known else None
  errors.PrepareError.raise_if(problems)
  return ids
