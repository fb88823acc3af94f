"""Opening and reading a store: documents, and spans of their tokens.

Token positions are absolute: document d holds tokens offsets[d] ..
offsets[d + 1] - 1 of the store.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import functools
import os
import pathlib
from typing import Any
from typing import TYPE_CHECKING

import numpy as np

from chomp_data import errors
from chomp_data.stores import arrays
from chomp_data.stores import manifest as manifest_lib
from chomp_data.stores import opening
from chomp_data.stores import publish
from chomp_data.stores import texts

if TYPE_CHECKING:
  from chomp_data.stores import array_record as array_record_lib

DEFAULT_CACHE_BYTES = 256 * 2**20


class Store:
  """A tokenized corpus on disk, read only. Made by `open_store`.

  Pickled, it is a path and a hash: another process opens it at first use, and
  refuses a store that was replaced in between.
  """

  def __init__(
    self,
    path: str | os.PathLike[str],
    expected_hash: str | None = None,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
  ):
    """Opens nothing yet; see `open_store`."""
    self._path = os.fspath(path)
    self._expected_hash = expected_hash
    self._cache_bytes = cache_bytes
    # Of tokens, once `set_cache_bytes` was called.
    self._token_cache_bytes: int | None = None

  def __getstate__(self) -> dict[str, Any]:
    return {
      "_path": self._path,
      "_expected_hash": self.hash,
      "_cache_bytes": self._cache_bytes,
      "_token_cache_bytes": self._token_cache_bytes,
    }

  def __repr__(self) -> str:
    return f"Store({self._path!r}, hash={self.hash[:16]!r})"

  @functools.cached_property
  def _opened(self) -> opening.Opened:
    publish.check_local(self._path)
    opened = opening.Opened(pathlib.Path(self._path), self._cache_bytes)
    found = opened.manifest.hash
    if self._expected_hash not in (None, found):
      raise errors.StoreError(
        f"{self._path} must be the store of hash {self._expected_hash} that"
        f" this run began with, got {found}. Put that store back, or start"
        " again."
      )
    self._expected_hash = found
    if self._token_cache_bytes is not None:
      opened.tokens.set_cache_bytes(self._token_cache_bytes)
    return opened

  @property
  def path(self) -> str:
    """The directory."""
    return self._path

  @property
  def hash(self) -> str:
    """The store's identity, SHA-256 as hex, whatever its path."""
    return self._expected_hash or self._opened.manifest.hash

  @property
  def manifest(self) -> manifest_lib.Manifest:
    """Everything that `manifest.json` says."""
    return self._opened.manifest

  @property
  def tokenizer_info(self) -> manifest_lib.TokenizerInfo:
    """The tokenizer of the tokens."""
    return self.manifest.tokenizer

  @property
  def num_documents(self) -> int:
    """Documents, those of no token included."""
    return self.manifest.num_documents

  @property
  def num_tokens(self) -> int:
    """Tokens of all documents."""
    return self.manifest.num_tokens

  @property
  def token_dtype(self) -> np.dtype:
    """The dtype of tokens on disk, uint16 or uint32."""
    return self.manifest.token_dtype

  @property
  def chunk_tokens(self) -> int:
    """Tokens of a chunk, what is read and checked as one."""
    return self.manifest.arrays["tokens"].layout.chunk

  @property
  def vocab_size(self) -> int:
    """Token ids are below it."""
    return self.manifest.tokenizer.vocab_size

  @property
  def counters(self) -> arrays.Counters:
    """What was read of the tokens in this process."""
    return self._opened.counters

  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Bounds the decoded chunks of tokens that are kept, here and pickled.

    Args:
      cache_bytes: Most bytes, at least one chunk's whatever it says. Nothing
        changes for tokens that are not compressed: they are mapped.

    Raises:
      ValueError: If it is negative.
    """
    if cache_bytes < 0:
      raise ValueError(
        f"`cache_bytes` must be at least 0, got {cache_bytes}. 0 keeps one"
        " chunk."
      )
    self._token_cache_bytes = cache_bytes
    self._opened.tokens.set_cache_bytes(cache_bytes)

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
    documents = np.asarray(documents, np.int64)
    num = len(documents)
    if num and not (
      documents.min() >= 0 and documents.max() < self.num_documents
    ):
      wrong = (documents < 0) | (documents >= self.num_documents)
      raise IndexError(
        f"document must be in 0 .. {self.num_documents - 1} of {self._path},"
        f" got {documents[wrong][0]}."
      )
    ends = np.empty(2 * num, np.int64)
    ends[:num] = documents
    np.add(documents, 1, out=ends[num:])
    ends = self._opened.offsets.gather(ends)
    starts = ends[:num]
    lengths = ends[num:] - starts
    texts.check_rising(lengths, f"{self._path}/offsets")
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
    if batch < 1:
      raise ValueError(f"`batch` must be at least 1, got {batch}.")
    for first in range(0, self.num_documents, batch):
      last = min(first + batch, self.num_documents)
      lengths = np.diff(self._opened.offsets.read(first, last + 1))
      texts.check_rising(lengths, f"{self._path}/offsets")
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
      StoreError: If a chunk that it touches was altered.
      TypeError: If `out` is not a flat int32 array.
    """
    if out.dtype != np.int32 or out.ndim != 1 or not out.flags.c_contiguous:
      raise TypeError(
        "`out` must be int32[M] and contiguous, got"
        f" {out.dtype}{list(out.shape)} with strides {out.strides}."
      )
    self._opened.tokens.copy_spans(starts, lengths, out, positions)

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Reads together what the copies of several batches will need.

    Chunks of compressed tokens that are not in the cache are fetched at once,
    those needed first first, until it is full; the rest is fetched as it is
    copied. The system is asked to read ahead chunks of mapped tokens that no
    copy has touched. `counters` tell the ranges that were asked for.

    Args:
      starts: int64[N], absolute token positions, in the order of the copies.
      lengths: int64[N], in tokens, 0 or more.

    Raises:
      IndexError: If a span is not within the store.
      StoreError: If a chunk that was fetched was altered.
    """
    self._opened.tokens.prefetch(
      np.asarray(starts, np.int64), np.asarray(lengths, np.int64)
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
    starts = np.asarray(starts, np.int64)
    lengths = np.asarray(lengths, np.int64)
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
    return self.read_tokens(*self.bounds(np.asarray([document], np.int64)))

  def document_id(self, document: int) -> str:
    """Returns a document's id; raises IndexError where there is none."""
    return self.document_ids([document])[0]

  def document_ids(self, documents: Sequence[int] | np.ndarray) -> list[str]:
    """Returns the ids of documents, in the order given.

    Args:
      documents: Indices, in any order.

    Raises:
      IndexError: If there is no such document.
      StoreError: If the ids were altered.
    """
    documents = np.asarray(documents, np.int64)
    self.bounds(documents)
    return self._opened.texts("id").take(documents)

  @property
  def has_meta(self) -> bool:
    """Whether each document has a string besides its id."""
    return "meta_offsets" in self.manifest.arrays

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
    if not self.has_meta:
      raise errors.StoreError(
        f"{self._path} must be prepared with --meta_key to keep something of"
        " each document, got a store without."
      )
    documents = np.asarray(documents, np.int64)
    self.bounds(documents)
    return self._opened.texts("meta").take(documents)

  def find_documents(self, ids: Sequence[str]) -> dict[str, list[int]]:
    """Finds documents by id, in one pass over the store's ids.

    Args:
      ids: What to look for.

    Returns:
      The documents of each id, in ascending order; none or several happen.
    """
    found: dict[str, list[int]] = {name: [] for name in ids}
    batches = self._opened.texts("id").batches(self.num_documents)
    for first, names in batches:
      for document, name in enumerate(names, first):
        if name in found:
          found[name].append(document)
    return found

  def tokenizer_file(self) -> bytes:
    """Returns the Hugging Face `tokenizer.json` that the store was made with.

    Raises:
      StoreError: If there is none, or it was altered.
    """
    entry = self.manifest.files.get(manifest_lib.TOKENIZER_FILE)
    path = pathlib.Path(self._path, manifest_lib.TOKENIZER_FILE)
    if entry is None:
      raise errors.StoreError(
        f"{path} must exist, but the tokenizer of {self._path} is of kind"
        f" {self.tokenizer_info.kind!r}, which has no file."
      )
    return opening.read_listed(path, entry)


def open_store(
  path: str | os.PathLike[str],
  *,
  array_record: "array_record_lib.ArrayRecordOptions | None" = None,
  cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> Store:
  """Opens a store; reads its manifest, no token.

  Args:
    path: Its directory, or with `array_record` a directory of ArrayRecord
      files, one of them, or a glob.
    array_record: What ArrayRecord files do not say of themselves; see
      `array_record.open_array_records`. None for stores of tools/prepare.py.
    cache_bytes: Most decoded bytes kept of each compressed array.

  Returns:
    The store.

  Raises:
    StoreError: If it is not a store, is unfinished, of a newer schema, or its
      files are not those that were written.
  """
  if array_record is not None:
    # It imports this module.
    from chomp_data.stores import array_record as array_record_lib

    return array_record_lib.open_array_records(
      path, array_record, cache_bytes=cache_bytes
    )
  store = Store(path, cache_bytes=cache_bytes)
  _ = store.manifest
  return store
