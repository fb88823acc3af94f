# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Documents that two runs, or a run and a store, both hold.

Held-out sets must not leak: a document is on both sides if its id is, or if
its tokens are (those of a BOS or EOS that a store says it has left out). Tokens
are compared where both sides have one tokenizer.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import hashlib

from absl import logging
import numpy as np

from chomp_data import pipeline
from chomp_data import schema
from chomp_data import stores

WAYS = ("any", "id", "content")

# Tokens, and documents, read together.
_TOKENS = 1 << 22
_DOCUMENTS = 1 << 16
_DIGEST = 16


@dataclasses.dataclass(frozen=True)
class Held:
  """Documents of one source that a side holds.

  Attributes:
    store: Where they are.
    documents: int64[N], ascending; None is all of them.
  """

  store: stores.Store
  documents: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Shared:
  """A document that both sides hold.

  Attributes:
    by: 'id' or 'content', whichever tells it, or 'id and content'.
    source: The first side's source.
    document: The document's number there.
    id: Its id there.
    other_source: The other side's source.
    other_document: The document's number there.
    other_id: Its id there.
  """

  by: str
  source: str
  document: int
  id: str
  other_source: str
  other_document: int
  other_id: str


# (source, document, id).
_Known = tuple[str, int, str]


def held_by(pipe: pipeline.Pipeline) -> dict[str, Held]:
  """Returns what a run may hand out, by source.

  Raises:
    ConfigError: If its samples are arrays.
  """
  if not pipe.sources:
    raise schema.ConfigError(
      [
        "`--overlap` must compare runs of text, got samples of arrays. Compare"
        " what they were made from."
      ]
    )
  return {
    name: Held(source.store, source.documents_used())
    for name, source in pipe.sources.items()
  }


def overlap(
  one: Mapping[str, Held], other: Mapping[str, Held], way: str = "any"
) -> Iterator[Shared]:
  """Yields the documents of `other` that are in `one` too.

  Args:
    one: Documents by source; the side that is kept in memory, about 200 bytes
      a document.
    other: Documents by source.
    way: What tells a document: its 'id', its 'content', or 'any' of them.

  Raises:
    ConfigError: If 'content' is to tell documents of several tokenizers.
  """
  ids: dict[str, _Known] = {}
  contents: dict[bytes, _Known] = {}
  kinds = {
    side.store.opened.tokenizer_identity
    for side in (*one.values(), *other.values())
  }
  by_content = way != "id" and len(kinds) == 1
  if way == "content" and not by_content:
    raise schema.ConfigError(
      [
        "`--by` must be 'id' where sides have several tokenizers, got"
        " 'content': equal texts have other tokens there. Prepare one side with"
        " the tokenizer of the other."
      ]
    )
  if way == "any" and not by_content:
    logging.warning(
      "only ids are compared: equal texts have other tokens where sides have"
      " several tokenizers."
    )
  for place, digest in _documents(one, by_content):
    if way != "content":
      ids.setdefault(place[2], place)
    if digest is not None:
      contents.setdefault(digest, place)
  for place, digest in _documents(other, by_content):
    same_id = None if way == "content" else ids.get(place[2])
    same = None if digest is None else contents.get(digest)
    if same_id is not None and same_id == same:
      yield Shared("id and content", *same_id, *place)
      continue
    if same_id is not None:
      yield Shared("id", *same_id, *place)
    if same is not None:
      yield Shared("content", *same, *place)


def _documents(
  held: Mapping[str, Held], by_content: bool
) -> Iterator[tuple[_Known, bytes | None]]:
  """Yields every document, and a hash of its tokens where it has some."""
  for name, documents_held in held.items():
    store = documents_held.store
    documents = documents_held.documents
    if documents is None:
      documents = np.arange(store.num_documents)
    for low in range(0, len(documents), _DOCUMENTS):
      part = documents[low : low + _DOCUMENTS]
      ids = store.document_ids(part)
      digests: list[bytes | None] = [None] * len(part)
      if by_content:
        digests = _digests(store, part)
      for document, identity, digest in zip(
        part.tolist(), ids, digests, strict=True
      ):
        yield (name, document, identity), digest


def _digests(store: stores.Store, documents: np.ndarray) -> list[bytes | None]:
  """Returns hashes of documents' tokens; None where there is none."""
  info = store.opened.tokenizer
  first, length = store.bounds(documents)
  out: list[bytes | None] = []
  ends = np.cumsum(length)
  low = 0
  while low < len(documents):
    before = int(ends[low] - length[low])
    high = int(np.searchsorted(ends, before + _TOKENS, side="right"))
    high = max(high, low + 1)
    tokens = store.read_tokens(first[low:high], length[low:high])
    begin = 0
    for size in length[low:high].tolist():
      content = tokens[begin : begin + size]
      begin += size
      if info.adds_bos and len(content) and content[0] == info.bos_id:
        content = content[1:]
      if info.adds_eos and len(content) and content[-1] == info.eos_id:
        content = content[:-1]
      digest = hashlib.blake2b(content.tobytes(), digest_size=_DIGEST).digest()
      out.append(digest if len(content) else None)
    low = high
  return out
