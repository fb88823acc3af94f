# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What every store is: tokens, and parts that say what they are of.

A `Store` is a path and what `Opened` holds: tokens, where documents are, ids
and, where they exist, labels, weights and metadata. A kind of stores, or a view
of stores, defines only how these are opened; `kinds` lists the kinds. Checks
and messages are written once, here and in the parts.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import os
from typing import Any
from typing import Protocol

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.index import integers
from chomp_data.storage import chunk_cache
from chomp_data.storage import disk_cache
from chomp_data.stores import columns as columns_lib
from chomp_data.stores import documents as documents_lib
from chomp_data.stores import labels as labels_lib
from chomp_data.stores import modification_guard
from chomp_data.stores import reopening
from chomp_data.stores import span_reads
from chomp_data.stores import texts
from chomp_data.stores import vocabulary

DEFAULT_CACHE_BYTES = 256 * 2**20

CACHE_BYTES = schema.integer(0, 2**63 - 1)
_BATCH = schema.integer(1)


class Tokens(columns_lib.Elements, Protocol):
  """The tokens of all documents, read as `Store.copy_tokens` says.

  Attributes:
    counters: What was read of them in this process.
  """

  @property
  def counters(self) -> chunk_cache.Counters: ...

  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Bounds the bytes of decoded chunks that are cached."""
    ...


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
  """The parts of a store, as one process reads them.

  Attributes:
    hash: The store's identity, SHA-256 as hex: of tokens, documents and
      tokenizer, whatever its path.
    tokenizer: The tokenizer of the tokens.
    tokenizer_identity: What identifies the tokenizer, as (kind of evidence,
      value): ('sha256', hex) of its definition, ('name', text) where only its
      name is known, None where that is not known either. Values of one kind
      may be compared.
    num_tokens: Tokens of all documents.
    token_dtype: The dtype of tokens as stored.
    documents: Where documents are.
    tokens: Their tokens.
    ids: Their ids.
    meta: One more string per document, or None.
    labels: The levels of tokens; None: all are trained on.
    weights: float32 per document, what multiplies the levels of its tokens;
      None: 1.
    columns: By name, what is stored beside tokens and documents.
    guard: The files that must stay as they are, or None: nothing to compare.
    tokenizer_file: Returns the file of the tokenizer, or raises StoreError;
      None where there is none.
    chats: How the turns of chats end that `prepare` made, else empty.
    chunk_tokens: Tokens of a chunk, of which blocks of a shuffle are made; of
      kinds without chunks those of a default store, for the same blocks.
    file_bytes: Bytes of the tokens' files, or None: those of the tokens.
    is_mapped: Whether tokens are copied from maps of local files, so that
      nothing is gained by fetching together what many batches need.
    is_remote: Whether they are in an object store.
    pairs: Whether documents 2k and 2k + 1 are the chosen and the rejected
      answer of preference pair k.
  """

  hash: str
  tokenizer: vocabulary.TokenizerInfo
  tokenizer_identity: tuple[str, str] | None
  num_tokens: int
  token_dtype: np.dtype
  documents: documents_lib.Documents
  tokens: Tokens
  ids: texts.Texts
  meta: texts.Texts | None = None
  labels: labels_lib.LabelRuns | None = None
  weights: labels_lib.Values | None = None
  columns: Mapping[str, columns_lib.StoredColumn] = dataclasses.field(
    default_factory=dict
  )
  guard: modification_guard.ModificationGuard | None = None
  tokenizer_file: Callable[[], bytes] | None = None
  chats: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  chunk_tokens: int = dataclasses.field(
    default_factory=lambda: span_reads.DEFAULT_CHUNK_TOKENS
  )
  file_bytes: int | None = None
  is_mapped: bool = False
  is_remote: bool = False
  pairs: bool = False

  @property
  def stored_bytes(self) -> int:
    """Bytes of the tokens as they are stored."""
    if self.file_bytes is not None:
      return self.file_bytes
    return self.num_tokens * self.token_dtype.itemsize


class Store(reopening.Reopened[Opened]):
  """A tokenized corpus, read only. Made by `open_store`.

  Pickled, it is a path, its options, and a hash: another process opens it at
  first use, and refuses a store that was replaced in between.
  """

  _noun = "store"
  _remedy = "Put that store back"

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
    super().__init__(path)
    self._cache_bytes = cache_bytes
    # Of tokens, once `set_cache` was called.
    self._token_cache_bytes: int | None = None
    # A directory and its bound, once `set_cache` was called with it.
    self._cache_dir: tuple[str, int] | None = None

  @property
  def _disk_cache(self) -> disk_cache.DiskCache | None:
    """Where chunks of a bucket are cached on a local disk, too."""
    if self._cache_dir is None:
      return None
    return disk_cache.DiskCache(*self._cache_dir)

  def _checked(self) -> Opened:
    opened = super()._checked()
    if self._token_cache_bytes is not None:
      opened.tokens.set_cache_bytes(self._token_cache_bytes)
    return opened

  @functools.cached_property
  def labels(self) -> labels_lib.Labels:
    """Which tokens are trained on, and what they weigh."""
    opened = self.opened
    return labels_lib.Labels(
      opened.labels or labels_lib.AllTrained(opened.num_tokens),
      opened.weights,
      len(opened.documents),
      self._path,
      opened.is_remote,
    )

  def __getstate__(self) -> dict[str, Any]:
    state = super().__getstate__()
    state.pop("labels", None)
    return state

  @property
  def num_documents(self) -> int:
    """Documents, those of no token included."""
    return len(self.opened.documents)

  @property
  def num_tokens(self) -> int:
    """Tokens of all documents."""
    return self.opened.num_tokens

  @property
  def counters(self) -> chunk_cache.Counters:
    """What was read of the tokens in this process."""
    return self.opened.tokens.counters

  @schema.arguments(
    cache_bytes=schema.optional(CACHE_BYTES),
    directory=schema.optional(schema.path()),
    most_bytes=schema.optional(schema.integer(1)),
  )
  def set_cache(
    self,
    cache_bytes: int | None = None,
    *,
    directory: str | None = None,
    most_bytes: int | None = None,
  ) -> None:
    """Bounds the decoded chunks that are cached; holds for pickles, too.

    Args:
      cache_bytes: Most bytes of decoded tokens in memory, at least those of
        one chunk. None: as before. Nothing changes for tokens that are not
        compressed: they are mapped.
      directory: A local directory where chunks of a bucket are cached, too.
        Processes and runs may share it. None: as before.
      most_bytes: Of all files in `directory`, which needs it.

    Raises:
      ValueError: If a number is out of range, or `most_bytes` is missing.
      StoreError: If there is a `directory` for a store that is in no bucket, or
        it cannot be written to.
    """
    if (directory is None) != (most_bytes is None):
      raise ValueError(
        "`most_bytes` must be set where `directory` is, and only there, got"
        f" {most_bytes!r} and {directory!r}."
      )
    if directory is not None and most_bytes is not None:
      if not self.opened.is_remote:
        raise errors.StoreError(
          f"`cache_dir` must be None for a store on a local disk, got"
          f" {directory!r} for {self._path}. Leave it out."
        )
      disk_cache.DiskCache(directory, most_bytes)
      self._cache_dir = directory, most_bytes
      # Opened again with it: so far the manifest was read, and no chunk.
      self._opened = None
      vars(self).pop("labels", None)
    if cache_bytes is not None:
      self._token_cache_bytes = cache_bytes
      self.opened.tokens.set_cache_bytes(cache_bytes)

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
    return self.opened.documents.bounds(self._existing(documents))

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
      yield first, self.opened.documents.lengths(first, last)

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
    opened = self.opened
    try:
      opened.tokens.copy_spans(starts, lengths, out, positions)
    except errors.StoreError:
      if opened.guard is not None:
        # A store that was replaced is the cause, if it was.
        opened.guard.check()
      raise
    if opened.guard is not None:
      opened.guard.check()

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> bool:
    """Reads together what the copies of several batches will need.

    Chunks of compressed tokens and of buckets are requested in the order of
    the calls, as there is room for them in the cache, and nothing waits for
    them here. The system is asked to read ahead chunks of mapped tokens that
    no copy has touched. `counters` count the ranges that were requested.

    Args:
      starts: int64[N], absolute token positions, in the order of the copies.
      lengths: int64[N], in tokens, 0 or more.

    Returns:
      Whether it helps to plan further ahead and ask for that too: the store is
      far away, and there is room for more.

    Raises:
      IndexError: If a span is not within the store.
    """
    return bool(
      self.opened.tokens.prefetch(
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

  def document_ids(self, documents: Sequence[int] | np.ndarray) -> list[str]:
    """Returns the ids of documents, in the order given.

    Args:
      documents: Indices, in any order.

    Raises:
      IndexError: If there is no such document.
      StoreError: If the ids were altered.
    """
    return self.opened.ids.take(self._existing(documents))

  def _existing(self, documents: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns documents as int64[N]; raises IndexError where there is none."""
    return documents_lib.existing(documents, self.num_documents, self._path)


def tokenizer_file(store: Store) -> bytes:
  """Returns the file of the tokenizer that a store was made with.

  Raises:
    StoreError: If there is none, or it was altered.
  """
  if store.opened.tokenizer_file is None:
    raise errors.StoreError(
      f"{store.path} must hold the file of its tokenizer, got a tokenizer of"
      f" kind {store.opened.tokenizer.kind!r}, which has none here. Decode with"
      " the tokenizer that made the tokens."
    )
  return store.opened.tokenizer_file()


def cache_bytes(all_stores: Collection[Store]) -> list[int]:
  """Returns the bytes of decoded tokens that one process keeps of each store.

  Those of `set_cache`; the other stores share the budget of the process, and
  each has a bound besides.
  """
  sharing = sum(store._token_cache_bytes is None for store in all_stores)
  equal_share = chunk_cache.PROCESS_BUDGET.capacity // max(sharing, 1)
  return [
    min(store._cache_bytes, equal_share)
    if store._token_cache_bytes is None
    else store._token_cache_bytes
    for store in all_stores
  ]


def read_document(store: Store, document: int) -> np.ndarray:
  """Returns a document's tokens, int32[length].

  Raises:
    IndexError: If there is no such document.
    StoreError: If its offsets or tokens were altered.
  """
  number = integers.array("document", [integers.whole("document", document)])
  return store.read_tokens(*store.bounds(number))


def document_meta(
  store: Store, documents: Sequence[int] | np.ndarray
) -> list[str]:
  """Returns the metadata that `--meta_key` stored of documents.

  Args:
    store: Where the documents are.
    documents: Indices, in any order.

  Returns:
    Their strings, in the order given; '' where a document had none.

  Raises:
    IndexError: If there is no such document.
    StoreError: If the store has no metadata, or it was altered.
  """
  numbers = documents_lib.existing(documents, store.num_documents, store.path)
  if store.opened.meta is None:
    raise errors.StoreError(
      f"{store.path} must be prepared with --meta_key to keep something of"
      " each document, got a store without."
    )
  return store.opened.meta.take(numbers)
