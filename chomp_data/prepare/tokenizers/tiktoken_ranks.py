# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A tiktoken file of ranks: one token a line, base64 and its rank.

Such a file says neither how texts are split nor which special tokens there
are. Both are known for the files of `KNOWN`, and must be given for others. A
store keeps one JSON file of all three, which is a `--tokenizer` by itself.
"""

import base64
import binascii
from collections.abc import Sequence
import concurrent.futures
import hashlib
import json
import re

import numpy as np

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare.tokenizers import base
from chomp_data.stores import json_values

_FORMAT = "chomp_data tiktoken"
_BEGIN = json.dumps({"format": _FORMAT})[:-1].encode()
_LINE = re.compile(rb"[A-Za-z0-9+/]+=* \d+\s*(\n|$)")

# As tiktoken 0.14 has them (tiktoken_ext/openai_public.py).
PATTERNS = {
  "r50k_base": (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$"
    r"|\s+(?!\S)|\s"
  ),
  "cl100k_base": (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
  ),
  "o200k_base": (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
  ),
}
# By SHA-256 of the file: the pattern and the special tokens.
KNOWN = {
  "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": (
    "r50k_base", {"<|endoftext|>": 50256},
  ),
  "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": (
    "r50k_base", {"<|endoftext|>": 50256},
  ),
  "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": (
    "cl100k_base",
    {
      "<|endoftext|>": 100257, "<|fim_prefix|>": 100258,
      "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
      "<|endofprompt|>": 100276,
    },
  ),
  "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": (
    "o200k_base", {"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
  ),
}  # fmt: skip


def matches(data: bytes) -> bool:
  """Whether a file looks like one of ranks, or is a store's."""
  return data.startswith(_BEGIN) or _LINE.match(data) is not None


class TiktokenTokenizer:
  """Ranks, a pattern and special tokens."""

  takes_bytes = False

  def __init__(self, file: bytes, spec: base.TokenizerSpec):
    """Parses ranks, or the file of a store, as `kinds.FILES` says."""
    library = base.library("tiktoken", "tiktoken", spec.source)
    if file.startswith(_BEGIN):
      base.refuse_options(
        spec, ("pattern", "special_tokens"), "a file that says it"
      )
      pattern, special, text = _decode_file(file, spec)
      self.file: bytes | None = file
      ranks = _ranks(text.encode(), spec)
    else:
      pattern, known_tokens = _pattern(file, spec)
      ranks = _ranks(file, spec)
      special = _special_tokens(known_tokens, ranks, spec)
      self.file = _encode_file(pattern, special, file)
    try:
      self._encoding = library.Encoding(
        "tiktoken", pat_str=pattern, mergeable_ranks=ranks,
        special_tokens=special,
      )  # fmt: skip
    except Exception as error:  # The library raises bare exceptions.
      raise errors.PrepareError(
        f"`--tiktoken_pattern` must be a regular expression, got {pattern!r}:"
        f" {error}. Correct it."
      ) from None
    vocab_size = self._encoding.n_vocab
    ids = base.special_ids(special, spec)
    self.special: frozenset[str] = frozenset(special)
    self._dtype = base.token_dtype(vocab_size)
    self._lengths = np.zeros(vocab_size, np.int64)
    for token, rank in ranks.items():
      self._lengths[rank] = len(token)
    for name, number in special.items():
      self._lengths[number] = len(name.encode())
    self.info: stores.TokenizerInfo = base.info_of(
      "tiktoken", self.file, vocab_size, ids
    )

  def encode_batch(self, texts: Sequence[str | bytes]) -> base.Encoded:
    """Returns the token ids of several texts."""
    arrays = self._on_threads([base.text_of(text) for text in texts], set())
    return base.concatenated(arrays, self._dtype)

  def encode_covered(
    self, texts: Sequence[str]
  ) -> list[base.TokensWithOffsets]:
    """Returns the token ids of texts, and the characters they cover."""
    covered = []
    arrays = self._on_threads(texts, self._encoding.special_tokens_set)
    for text, ids in zip(texts, arrays, strict=True):
      ends = np.cumsum(self._lengths[ids])
      begins = ends - self._lengths[ids]
      characters = base.character_of_bytes(
        np.frombuffer(text.encode(), np.uint8)
      )
      covered.append(
        base.TokensWithOffsets(
          ids.astype(self._dtype), characters[begins], characters[ends - 1] + 1
        )
      )
    return covered

  def _on_threads(
    self, texts: Sequence[str], allowed: set[str]
  ) -> list[np.ndarray]:
    """Returns the ids of texts; the library encodes without the GIL."""

    def encode(text: str) -> np.ndarray:
      return self._encoding.encode_to_numpy(
        text, allowed_special=allowed, disallowed_special=()
      )

    count = base.threads()
    if count == 1 or len(texts) == 1:
      return [encode(text) for text in texts]
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
      return list(pool.map(encode, texts))

  def decode(self, ids: np.ndarray) -> str:
    """Returns the text of ids; bytes that are no UTF-8 become U+FFFD."""
    return self._encoding.decode(np.asarray(ids).tolist())


def _ranks(data: bytes, spec: base.TokenizerSpec) -> dict[bytes, int]:
  ranks = {}
  for number, line in enumerate(data.splitlines(), 1):
    if not line:
      continue
    try:
      token, rank = line.split()
      ranks[base64.b64decode(token, validate=True)] = int(rank)
    except (ValueError, binascii.Error):
      raise errors.PrepareError(
        f"{spec.source}:{number} must be a token in base64 and its rank, got"
        f" {line[:40]!r}. Give the whole tiktoken file."
      ) from None
  missing = [b for b in range(256) if bytes([b]) not in ranks]
  if missing or len(set(ranks.values())) < len(ranks):
    problem = f"none of byte {missing[0]:#04x}" if missing else "a rank twice"
    raise errors.PrepareError(
      f"{spec.source} must rank each byte, and each token once, got {problem}."
      " Give the whole tiktoken file."
    )
  return ranks


def _pattern(
  file: bytes, spec: base.TokenizerSpec
) -> tuple[str, dict[str, int]]:
  """Returns the pattern, and the special tokens that are known."""
  name, special = KNOWN.get(hashlib.sha256(file).hexdigest(), (None, {}))
  name = spec.pattern or name
  if name is None:
    raise errors.PrepareError(
      f"`--tiktoken_pattern` must be given for {spec.source}, got none: the"
      " file does not say how texts are split. Give the regular expression of"
      f" its tokenizer, or one of {', '.join(PATTERNS)}."
    )
  return PATTERNS.get(name, name), special


def _special_tokens(
  known_tokens: dict[str, int],
  ranks: dict[bytes, int],
  spec: base.TokenizerSpec,
) -> dict[str, int]:
  """Returns ids by name; names without one take the next."""
  special = dict(known_tokens)
  for text in spec.special_tokens:
    name, equals, number = text.rpartition("=")
    if not equals or not number.isdigit():
      name = text
      number = max([*ranks.values(), *special.values()]) + 1
    special[name] = int(number)
  used = set(ranks.values())
  wrong = [name for name, number in special.items() if number in used]
  if wrong or len(set(special.values())) < len(special) or "" in special:
    raise errors.PrepareError(
      "`--special_token` must name tokens of ids of their own, got"
      f" {wrong[0] if wrong else list(special)!r}. Give other ids."
    )
  return special


def _encode_file(pattern: str, special: dict[str, int], file: bytes) -> bytes:
  """Returns the file of a tokenizer in a store."""
  values = {
    "format": _FORMAT,
    "pattern": pattern,
    "special_tokens": special,
    "ranks": file.decode("ascii"),
  }
  return json.dumps(values).encode()


def _decode_file(
  file: bytes, spec: base.TokenizerSpec
) -> tuple[str, dict[str, int], str]:
  try:
    values = json.loads(file)
    return (
      json_values.decode(str, values["pattern"], "pattern"),
      json_values.decode(dict[str, int], values["special_tokens"], "tokens"),
      json_values.decode(str, values["ranks"], "ranks"),
    )
  except (ValueError, KeyError, TypeError) as error:
    raise errors.PrepareError(
      f"`--tokenizer` must be a whole tokenizer file of a store, got"
      f" {spec.source}: {error}. Take it from the store again."
    ) from None
