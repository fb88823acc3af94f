# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Copying documents of stores to new ones, for merging and converting.

Documents come in batches of bounded size, with all that a store has of them.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import os
import pathlib
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.storage import publish
from chomp_data.stores import base
from chomp_data.stores import columns
from chomp_data.stores import vocabulary
from chomp_data.stores.zarr import destination
from chomp_data.stores.zarr import store_writer

# Fewer where tokens have columns: a batch is in memory.
_BATCH_TOKENS = 1 << 22
_BATCH_DOCUMENTS = 1 << 16


@dataclasses.dataclass(frozen=True)
class DocumentBatch:
  """Some consecutive documents of a store.

  Attributes:
    first: The first of them.
    tokens: int32[sum of lengths].
    lengths: int64[N].
    ids: Of the documents.
    meta: Metadata of each, or None where the store has none.
    label_levels: uint8[sum of lengths] where the store has labels, or None.
    weights: float32[N] where it has weights, or None.
    token_columns: Values of the tokens by column.
    document_columns: Values of the documents by column.
  """

  first: int
  tokens: np.ndarray
  lengths: np.ndarray
  ids: list[str]
  meta: list[str] | None
  label_levels: np.ndarray | None
  weights: np.ndarray | None
  token_columns: Mapping[str, np.ndarray]
  document_columns: Mapping[str, np.ndarray]

  def select(self, mask: np.ndarray) -> "DocumentBatch":
    """Returns the documents of a mask bool[N]."""
    of_token = np.repeat(mask, self.lengths)
    pick = np.flatnonzero(mask).tolist()
    return DocumentBatch(
      self.first,
      self.tokens[of_token],
      self.lengths[mask],
      [self.ids[i] for i in pick],
      None if self.meta is None else [self.meta[i] for i in pick],
      None if self.label_levels is None else self.label_levels[of_token],
      None if self.weights is None else self.weights[mask],
      {name: values[of_token] for name, values in self.token_columns.items()},
      {name: values[mask] for name, values in self.document_columns.items()},
    )


def document_batches(store: base.Store) -> Iterator[DocumentBatch]:
  """Yields all documents of a store, in order, and pairs uncut."""
  halves = 2 if store.opened.pairs else 1
  token_bytes = columns.bytes_per_token(
    stored.column for stored in store.opened.columns.values()
  )
  most = _BATCH_TOKENS * columns.TOKEN_BYTES // token_bytes
  for first, lengths in store.iter_lengths(_BATCH_DOCUMENTS):
    ends = np.cumsum(lengths)
    start = 0
    while start < len(lengths):
      before = int(ends[start - 1]) if start else 0
      stop = int(np.searchsorted(ends, before + most, "right"))
      stop = max(stop - stop % halves, start + halves)
      yield _document_batch(store, first + start, lengths[start:stop])
      start = stop


def _document_batch(
  store: base.Store, first: int, lengths: np.ndarray
) -> DocumentBatch:
  documents = np.arange(first, first + len(lengths))
  start, _ = store.bounds(documents[:1])
  total = np.asarray([lengths.sum()])
  labels = weights = None
  if store.labels.has_runs:
    _, begin, stop, level = store.labels.runs(start, total)
    labels = np.repeat(level, stop - begin)
  if store.labels.has_document_weights:
    weights = store.labels.document_weights(documents)
  return DocumentBatch(
    first,
    store.read_tokens(start, total),
    lengths,
    store.document_ids(documents),
    base.document_meta(store, documents)
    if store.opened.meta is not None
    else None,
    labels,
    weights,
    _values(store, columns.TOKEN, int(start[0]), int(start[0] + total[0])),
    _values(store, columns.DOCUMENT, first, first + len(lengths)),
  )


def _values(
  store: base.Store, per: str, first: int, stop: int
) -> dict[str, np.ndarray]:
  """Returns what a store's columns hold of some tokens or documents."""
  return {
    name: stored.read(first, stop)
    for name, stored in store.opened.columns.items()
    if stored.column.per == per
  }


def writer_of(
  directory: pathlib.Path,
  store: base.Store,
  **options: Any,
) -> store_writer.StoreWriter:
  """Returns a writer of stores like another one.

  Args:
    directory: A path where nothing exists.
    store: The other one: its tokenizer, labels, weights, metadata and columns.
    **options: Of `StoreWriter`: compression, chunk, chunks_per_shard.
  """
  kind = store.opened.tokenizer.kind
  has_file = vocabulary.TOKENIZER_FILES.get(kind) is not None
  return store_writer.StoreWriter(
    directory,
    store.opened.tokenizer,
    tokenizer_file=base.tokenizer_file(store) if has_file else None,
    has_meta=store.opened.meta is not None,
    levels=store.labels.levels.tolist() if store.labels.has_runs else None,
    has_weights=store.labels.has_document_weights,
    pairs=store.opened.pairs,
    columns={
      name: stored.column for name, stored in store.opened.columns.items()
    },
    **options,
  )


def append(writer: store_writer.StoreWriter, batch: DocumentBatch) -> None:
  """Appends a batch."""
  writer.append(
    batch.tokens,
    batch.lengths,
    batch.ids,
    batch.meta,
    batch.label_levels,
    batch.weights,
    {**batch.token_columns, **batch.document_columns},
  )


@contextlib.contextmanager
def staged(
  path: str | os.PathLike[str], overwrite: bool
) -> Iterator[pathlib.Path]:
  """Yields a directory to make, published as a store where all goes well.

  Args:
    path: The destination, a directory or a URL.
    overwrite: Whether a store there may be replaced.

  Raises:
    StoreError: If there is something else, or another writer is at it.
  """
  output = destination.open_destination(path)
  output.check(overwrite)
  with publish.staging(output.local) as directory:
    yield directory
    # It checks again: something may have come there in the meantime.
    output.publish(directory, overwrite)


def copy(
  store: base.Store,
  path: str | os.PathLike[str],
  *,
  prepared: Mapping[str, Any] | None = None,
  overwrite: bool = False,
  progress: Callable[[int], object] = lambda num_tokens: None,
  **options: Any,
) -> None:
  """Writes what a store holds to a new one.

  Args:
    store: The store, of any kind.
    path: The directory to create, or a URL.
    prepared: How the store was made, JSON values.
    overwrite: Whether a store there may be replaced.
    progress: Called with the number of tokens of each batch.
    **options: As in `writer_of`.

  Raises:
    StoreError: If the store is damaged, or there is something at the path.
  """
  with (
    staged(path, overwrite) as directory,
    writer_of(directory, store, **options) as writer,
  ):
    for batch in document_batches(store):
      append(writer, batch)
      progress(len(batch.tokens))
    writer.finish(prepared=prepared)


def check_alike(stores: Sequence[base.Store]) -> None:
  """Raises StoreError where stores do not keep the same of their documents."""
  columns.check_alike(
    [(store.path, store.opened.columns) for store in stores], complete=True
  )
  first = stores[0]
  for other in stores[1:]:
    if (other.opened.meta is None) != (first.opened.meta is None):
      with_meta, without = first, other
      if other.opened.meta is not None:
        with_meta, without = other, first
      raise errors.StoreError(
        f"{without.path} must keep a string of each document as"
        f" {with_meta.path} does, got a store without. Prepare it with"
        " --meta_key, or the other one without."
      )


def read_all(
  store: base.Store,
  progress: Callable[[int], object] = lambda num_tokens: None,
) -> None:
  """Reads all tokens of a store, which checks them as far as it can.

  Args:
    store: The store.
    progress: Called with the number of tokens of each read.

  Raises:
    StoreError: If something is not as it was.
  """
  for first in range(0, store.num_tokens, _BATCH_TOKENS):
    count = min(_BATCH_TOKENS, store.num_tokens - first)
    store.read_tokens(np.asarray([first]), np.asarray([count]))
    progress(count)
  for _ in store.iter_lengths():
    pass
