# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What every store is: documents of tokens, and where each of them lies.

Token positions are absolute: document d holds tokens offsets[d] ..
offsets[d + 1] - 1 of the store.

A store may say which tokens are trained on and what they weigh: `has_labels`
and what stands below it. One that does not trains on all of them.

A kind of stores is a class of `Opened`, which reads, and one of `Store`, which
makes it; `kinds` lists them. Checks and messages are written once, here.
"""

import abc
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import os
from typing import Any
from typing import Generic
from typing import Protocol
from typing import TYPE_CHECKING
from typing import TypeVar

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.index import integers
from chomp_data.stores import disk_cache
from chomp_data.stores import labels
from chomp_data.stores import places
from chomp_data.stores import span_reads
from chomp_data.stores import vocabulary

DEFAULT_CACHE_BYTES = 256 * 2**20

_ID_BATCH = 1 << 16

CACHE_BYTES = schema.integer(0, 2**63 - 1)
_BATCH = schema.integer(1)
_IDS = schema.sequence(schema.text(empty=True))


class Offsets(Protocol):
  """The first token of every document, and the end: N + 1 of them."""

  def gather(self, positions: np.ndarray, /) -> np.ndarray:
    """Returns int64[N] fresh, offsets[positions] of int64[N] in range."""
    ...

  def read(self, start: int, stop: int, /) -> np.ndarray:
    """Returns offsets[start:stop], int64."""
    ...


class Tokens(Protocol):
  """The tokens of all documents, one after the other.

  Attributes:
    counters: What was read of them in this process.
  """

  @property
  def counters(self) -> span_reads.Counters: ...

  def copy_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    """See `Store.copy_tokens`."""
    ...

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> bool | None:
    """See `Store.prefetch`."""
    ...

  def set_cache_bytes(self, cache_bytes: int) -> None:
    """See `Store.set_cache_bytes`."""
    ...


class Opened(Protocol):
  """What a process holds of an opened store; made anew in each.

  Attributes:
    hash: The store's identity, SHA-256 as hex: of tokens, documents and
      tokenizer, whatever its path.
    tokenizer_info: The tokenizer of the tokens.
    num_documents: Documents, those of no token included.
    num_tokens: Tokens of all documents.
    token_dtype: The dtype of tokens as stored.
    offsets: Where documents lie.
    tokens: Their tokens.
  """

  @property
  def hash(self) -> str: ...
  @property
  def tokenizer_info(self) -> vocabulary.TokenizerInfo: ...
  @property
  def num_documents(self) -> int: ...
  @property
  def num_tokens(self) -> int: ...
  @property
  def token_dtype(self) -> np.dtype: ...
  @property
  def offsets(self) -> Offsets: ...
  @property
  def tokens(self) -> Tokens: ...

  def ids(self, documents: np.ndarray) -> list[str]:
    """Returns the ids of documents int64[N] that exist, in that order."""
    ...


# A store of any kind is a plain `Store`; Python before 3.13 cannot say it.
if TYPE_CHECKING:
  import typing_extensions

  OpenedT = typing_extensions.TypeVar(
    "OpenedT", bound=Opened, default=Opened, covariant=True
  )
else:
  OpenedT = TypeVar("OpenedT", bound=Opened)


class Store(abc.ABC, Generic[OpenedT]):
  """A tokenized corpus, read only. Made by `open_store`.

  Pickled, it is a path, what its kind was told, and a hash: another process
  opens it at first use, and refuses a store that was replaced in between.
  """

  @schema.arguments(path=schema.path(), cache_bytes=CACHE_BYTES)
  def __init__(
    self,
    path: str | os.PathLike[str],
    cache_bytes: int = DEFAULT_CACHE_BYTES,
  ):
    """Opens nothing yet.

    Args:
      path: Of the store.
      cache_bytes: Most decoded bytes that are kept of an array.
    """
    self._path = os.fspath(path)
    self._cache_bytes = cache_bytes
    self._expected_hash: str | None = None
    # Of tokens, once `set_cache_bytes` was called.
    self._token_cache_bytes: int | None = None
    # A directory and its bound, once `set_cache_dir` was called.
    self._cache_dir: tuple[str, int] | None = None

  @abc.abstractmethod
  def _open(self) -> OpenedT:
    """Returns the store as this process reads it.

    `_expected_hash` is None where it is opened at the first time.

    Raises:
      StoreError: If it is damaged, or no such store.
    """

  @functools.cached_property
  def _opened(self) -> OpenedT:
    opened = self._open()
    if self._expected_hash not in (None, opened.hash):
      raise errors.StoreError(
        f"{self._path} must be the store of hash {self._expected_hash} that"
        f" this run began with, got {opened.hash}. Put that store back, or"
        " start again."
      )
    self._expected_hash = opened.hash
    if self._token_cache_bytes is not None:
      opened.tokens.set_cache_bytes(self._token_cache_bytes)
    return opened

  def __getstate__(self) -> dict[str, Any]:
    state = {**vars(self), "_expected_hash": self.hash}
    state.pop("_opened", None)
    return state

  def __repr__(self) -> str:
    return f"{type(self).__name__}({self._path!r}, hash={self.hash[:16]!r})"

  @property
  def path(self) -> str:
    """Where it is."""
    return self._path

  @property
  def hash(self) -> str:
    """The store's identity, SHA-256 as hex, whatever its path."""
    return self._expected_hash or self._opened.hash

  @property
  def tokenizer_info(self) -> vocabulary.TokenizerInfo:
    """The tokenizer of the tokens."""
    return self._opened.tokenizer_info

  @property
  def tokenizer_identity(self) -> tuple[str, str] | None:
    """What tells the tokenizer from others, as (kind of evidence, value).

    ('sha256', hex) of its definition, ('name', text) where somebody only names
    it, None where nobody does. Values of one kind may be compared.
    """
    return "sha256", self.tokenizer_info.sha256

  @property
  def num_documents(self) -> int:
    """Documents, those of no token included."""
    return self._opened.num_documents

  @property
  def num_tokens(self) -> int:
    """Tokens of all documents."""
    return self._opened.num_tokens

  @property
  def token_dtype(self) -> np.dtype:
    """The dtype of tokens as stored."""
    return self._opened.token_dtype

  @property
  def chunk_tokens(self) -> int:
    """Tokens of a chunk, of which blocks of a shuffle are made.

    Of kinds without chunks those of a default store, for the same blocks.
    """
    return span_reads.DEFAULT_CHUNK_TOKENS

  @property
  def vocab_size(self) -> int:
    """Token ids are below it."""
    return self.tokenizer_info.vocab_size

  @property
  def counters(self) -> span_reads.Counters:
    """What was read of the tokens in this process."""
    return self._opened.tokens.counters

  @property
  def stored_bytes(self) -> int:
    """Bytes of the tokens as they are stored."""
    return self.num_tokens * self.token_dtype.itemsize

  @property
  def cache_bytes(self) -> int:
    """Most bytes of decoded chunks of tokens that are kept."""
    if self._token_cache_bytes is None:
      return self._cache_bytes
    return self._token_cache_bytes

  @schema.arguments(cache_bytes=CACHE_BYTES)
  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Bounds the decoded chunks of tokens that are kept, here and pickled.

    Args:
      cache_bytes: Most bytes, at least one chunk's whatever it says. Nothing
        changes for tokens that are not compressed: they are mapped.

    Raises:
      ValueError: If it is negative.
    """
    self._token_cache_bytes = cache_bytes
    self._opened.tokens.set_cache_bytes(cache_bytes)

  @schema.arguments(directory=schema.path(), most_bytes=schema.integer(1))
  def set_cache_dir(self, directory: str, most_bytes: int) -> None:
    """Keeps chunks that come from a bucket on a local disk, too.

    Args:
      directory: A local one, which processes and runs may share.
      most_bytes: Of all files in it.

    Raises:
      StoreError: If the store is not in a bucket, or the directory cannot be
        written to.
    """
    if not places.is_url(self._path):
      raise errors.StoreError(
        f"`cache_dir` must be None for a store on a local disk, got"
        f" {directory!r} for {self._path}. Leave it out."
      )
    disk_cache.DiskCache(directory, most_bytes)
    self._cache_dir = directory, most_bytes
    # Opened again with it: so far the manifest was read, and no chunk.
    if "_opened" in vars(self):
      del self._opened

  def bounds(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where documents lie.

    Args:
      documents: int64[N], in any order.

    Returns:
      (first token int64[N], length int64[N]).

    Raises:
      IndexError: If there is no such document.
      StoreError: If the offsets were altered.
    """
    documents = self._existing(documents)
    num = len(documents)
    ends = np.empty(2 * num, np.int64)
    ends[:num] = documents
    np.add(documents, 1, out=ends[num:])
    ends = self._opened.offsets.gather(ends)
    starts = ends[:num]
    lengths = ends[num:] - starts
    span_reads.check_rising(lengths, f"{self._path}/offsets")
    return starts, lengths

  def iter_lengths(
    self, batch: int = 1 << 20
  ) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the lengths of all documents, a bounded part at a time.

    Args:
      batch: Most documents of a part.

    Yields:
      (first document, lengths int64[n]).

    Raises:
      ValueError: If `batch` is not positive.
      StoreError: If the offsets were altered.
    """
    batch = schema.argument("batch", _BATCH, batch)
    for first in range(0, self.num_documents, batch):
      last = min(first + batch, self.num_documents)
      lengths = np.diff(self._opened.offsets.read(first, last + 1))
      span_reads.check_rising(lengths, f"{self._path}/offsets")
      yield first, lengths

  def copy_tokens(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    """Copies spans: out[p : p + l] = tokens[s : s + l] for each of them.

    Args:
      starts: int64[N], absolute token positions.
      lengths: int64[N], in tokens, 0 or more.
      out: int32[M], contiguous.
      positions: int64[N], in `out`.

    Raises:
      IndexError: If a span is not within the store, or not within `out`.
      StoreError: If a chunk that it touches was altered, or the store was
        written anew since it was opened.
      TypeError: If `out` is not a flat int32 array.
    """
    if not isinstance(out, np.ndarray):
      raise TypeError(f"`out` must be an int32 array, got {out!r}.")
    if out.dtype != np.int32 or out.ndim != 1 or not out.flags.c_contiguous:
      raise TypeError(
        "`out` must be int32[M] and contiguous, got"
        f" {out.dtype}{list(out.shape)} with strides {out.strides}."
      )
    starts = integers.array("starts", starts)
    lengths = integers.array("lengths", lengths)
    positions = integers.array("positions", positions)
    opened = self._opened
    unchanged = getattr(opened, "unchanged", None)
    try:
      opened.tokens.copy_spans(starts, lengths, out, positions)
    except errors.StoreError:
      if unchanged is not None:
        # Why its bytes are others.
        unchanged.check()
      raise
    if unchanged is not None:
      unchanged.check()

  @property
  def is_mapped(self) -> bool:
    """Whether tokens are copied from where they lie on a local disk.

    Then nothing is gained by fetching together what many batches need.
    """
    return getattr(self._opened.tokens, "is_mapped", False)

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> bool:
    """Reads together what the copies of several batches will need.

    Chunks of compressed tokens that are not in the cache are fetched at once,
    those needed first first, until it is full; the rest is fetched as it is
    copied. The system is asked to read ahead chunks of mapped tokens that no
    copy has touched. Chunks of an object store are asked for, in the order of
    the calls as there is room for them, and nothing waits for them here.
    `counters` tell the ranges that were asked for.

    Args:
      starts: int64[N], absolute token positions, in the order of the copies.
      lengths: int64[N], in tokens, 0 or more.

    Returns:
      Whether it helps to plan further ahead and ask for that too: the store is
      far away, and there is room for more.

    Raises:
      IndexError: If a span is not within the store.
      StoreError: If a chunk that was fetched was altered.
    """
    return bool(
      self._opened.tokens.prefetch(
        integers.array("starts", starts), integers.array("lengths", lengths)
      )
    )

  def read_tokens(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns spans one after the other, int32[sum of lengths].

    Args:
      starts: int64[N], absolute token positions.
      lengths: int64[N], in tokens, 0 or more.

    Raises:
      IndexError: If a span is not within the store.
      StoreError: If a chunk that it touches was altered.
    """
    starts = integers.array("starts", starts)
    lengths = integers.array("lengths", lengths)
    wrong = (lengths < 0) | (lengths > self.num_tokens)
    if wrong.any():
      raise IndexError(
        f"length must be in 0 .. {self.num_tokens} of {self._path}, got"
        f" {lengths[wrong][0]}."
      )
    ends = np.cumsum(lengths)
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.int32)
    self.copy_tokens(starts, lengths, out, ends - lengths)
    return out

  def read_document(self, document: int) -> np.ndarray:
    """Returns a document's tokens, int32[length]; raises as `bounds`."""
    number = integers.array("document", [integers.whole("document", document)])
    return self.read_tokens(*self.bounds(number))

  @property
  def holds_pieces(self) -> bool:
    """Whether its documents may be pieces of the documents of another store."""
    return False

  def at_ends(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns whether documents begin, and end, where whole ones do, bool[N].

    Args:
      documents: int64[N], their numbers.
    """
    whole = np.ones(len(self._existing(documents)), np.bool_)
    return whole, whole

  @property
  def has_labels(self) -> bool:
    """Whether some tokens may not be trained on; else all are."""
    return False

  @property
  def has_document_weights(self) -> bool:
    """Whether documents may weigh other than 1; see `document_weights`."""
    return False

  @property
  def has_weights(self) -> bool:
    """Whether trained tokens may weigh other than 1, by level or document."""
    by_level = self.has_labels and len(self.levels) > len(labels.LEVELS)
    return self.has_document_weights or by_level

  @functools.cached_property
  def trains_on_all(self) -> bool:
    """Whether every token is trained on, so that none need be counted.

    Where only documents have weights, all of them are looked at once.
    """
    if self.has_labels or not self.has_document_weights:
      return not self.has_labels
    return all(
      self.document_weights(np.arange(first, first + len(own))).all()
      for first, own in self.iter_lengths()
    )

  @property
  def levels(self) -> np.ndarray:
    """float32[L], the weights of levels; 0 is not trained on, 1 weighs 1."""
    return labels.LEVELS

  def label_runs(
    self, starts: np.ndarray, lengths: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the levels of tokens in spans, as runs of one level.

    A token is trained on as a target, where its level weighs more than 0.

        tokens of levels 0 0 1 1 1 0, spans (0, 4) and (4, 2):
        span [0, 0, 1, 1], begin [0, 2, 0, 1], stop [2, 4, 1, 2],
        level [0, 1, 1, 0]

    Args:
      starts: int64[N], absolute token positions.
      lengths: int64[N], in tokens, 0 or more.

    Returns:
      By run, in the order of the spans: the span int64[M], the first token and
      the one after the last, counted from the span's start, int64[M] each, and
      the level uint8[M]. Runs of a span follow each other and cover it.

    Raises:
      IndexError: If a span is not within the store.
      StoreError: If the labels were altered.
    """
    starts = integers.array("starts", starts)
    lengths = integers.array("lengths", lengths)
    span_reads.check_spans(starts, lengths, self.num_tokens)
    span = np.flatnonzero(lengths)
    begin = np.zeros(len(span), np.int64)
    return span, begin, lengths[span], np.ones(len(span), np.uint8)

  def trained_before(self, positions: np.ndarray) -> np.ndarray:
    """Returns how many tokens below positions have levels that weigh.

    Args:
      positions: int64[N], absolute, 0 .. `num_tokens`.

    Returns:
      int64[N]; no token is read.

    Raises:
      IndexError: If a position is not within the store.
      StoreError: If the labels were altered.
    """
    positions = integers.array("positions", positions)
    span_reads.check_spans(positions, positions * 0, self.num_tokens)
    return positions.copy()

  def prefetch_labels(
    self, starts: np.ndarray, lengths: np.ndarray, documents: np.ndarray
  ) -> None:
    """Asks an object store for labels and weights; see `prefetch`.

    Args:
      starts: int64[N], absolute token positions.
      lengths: int64[N], in tokens, 0 or more.
      documents: int64[M], whose weights will be read.
    """
    integers.array("starts", starts)
    integers.array("lengths", lengths)
    integers.array("documents", documents)

  def document_weights(self, documents: np.ndarray) -> np.ndarray:
    """Returns what multiplies the levels of documents' tokens.

    A document of weight 0 is not trained on.

    Args:
      documents: int64[N], in any order.

    Returns:
      float32[N], 1 where the store says nothing.

    Raises:
      IndexError: If there is no such document.
      StoreError: If the weights were altered.
    """
    return np.ones(len(self._existing(documents)), np.float32)

  def document_id(self, document: int) -> str:
    """Returns a document's id; raises IndexError where there is none."""
    return self.document_ids([integers.whole("document", document)])[0]

  def document_ids(self, documents: Sequence[int] | np.ndarray) -> list[str]:
    """Returns the ids of documents, in the order given.

    Args:
      documents: Indices, in any order.

    Raises:
      IndexError: If there is no such document.
      StoreError: If the ids were altered.
    """
    return self._opened.ids(self._existing(documents))

  def find_documents(self, ids: Sequence[str]) -> dict[str, list[int]]:
    """Finds documents by id, in one pass over the store's ids.

    Args:
      ids: What to look for.

    Returns:
      The documents of each id, in ascending order; none or several happen.
    """
    ids = schema.argument("ids", _IDS, ids)
    found: dict[str, list[int]] = {name: [] for name in ids}
    for first, names in self._id_batches():
      for document, name in enumerate(names, first):
        if name in found:
          found[name].append(document)
    return found

  @property
  def has_meta(self) -> bool:
    """Whether each document has a string besides its id."""
    return False

  def document_meta(self, documents: Sequence[int] | np.ndarray) -> list[str]:
    """Returns what tools/prepare.py --meta_key kept of documents.

    Args:
      documents: Indices, in any order.

    Returns:
      Their strings, in the order given; '' where a document had none.

    Raises:
      IndexError: If there is no such document.
      StoreError: If nothing was kept, or it was altered.
    """
    self._existing(documents)
    raise errors.StoreError(
      f"{self._path} must be prepared with --meta_key to keep something of"
      " each document, got a store without."
    )

  @property
  def chats(self) -> dict[str, Any]:
    """How the turns of chats end that `prepare` made, else empty."""
    return {}

  def tokenizer_file(self) -> bytes:
    """Returns the file of the tokenizer that the store was made with.

    Raises:
      StoreError: If there is none, or it was altered.
    """
    raise errors.StoreError(
      f"{self._path} must hold the file of its tokenizer, got a tokenizer of"
      f" kind {self.tokenizer_info.kind!r}, which has none here. Decode with"
      " the tokenizer that made the tokens."
    )

  def closest_id(self, name: str) -> str:
    """Returns ' Did you mean `x`?' with the nearest of the first 65,536 ids.

    Args:
      name: The id of no document.

    Returns:
      '' where none is near.
    """
    name = schema.argument("name", schema.text(empty=True), name)
    return schema.did_you_mean(name, next(self._id_batches(), (0, []))[1])

  def _id_batches(self) -> Iterator[tuple[int, list[str]]]:
    """Yields (first document, ids) of all documents, a part at a time."""
    for first in range(0, self.num_documents, _ID_BATCH):
      last = min(first + _ID_BATCH, self.num_documents)
      yield first, self._opened.ids(np.arange(first, last))

  def _existing(self, documents: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns documents as int64[N]; raises IndexError where there is none."""
    documents = integers.array("documents", documents)
    if len(documents) and not (
      documents.min() >= 0 and documents.max() < self.num_documents
    ):
      wrong = (documents < 0) | (documents >= self.num_documents)
      raise IndexError(
        f"document must be in 0 .. {self.num_documents - 1} of {self._path},"
        f" got {documents[wrong][0]}."
      )
    return documents
