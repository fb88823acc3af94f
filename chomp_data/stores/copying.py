# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Documents from stores into new ones: what merging and converting are made of.

Documents come in blocks of bounded size, with all that a store keeps of them.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import os
import pathlib
import shutil
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.stores import base
from chomp_data.stores import publish
from chomp_data.stores import span_reads
from chomp_data.stores import vocabulary
from chomp_data.stores.zarr import destination
from chomp_data.stores.zarr import store_writer

_BLOCK_TOKENS = 1 << 22
_BLOCK_DOCUMENTS = 1 << 16


@dataclasses.dataclass(frozen=True)
class Block:
  """Some consecutive documents of a store.

  Attributes:
    first: The first of them.
    tokens: int32[sum of lengths].
    lengths: int64[N].
    ids: Of the documents.
    meta: What the store keeps of each besides, or None.
    label_levels: uint8[sum of lengths] where the store has labels, or None.
    weights: float32[N] where it has weights, or None.
  """

  first: int
  tokens: np.ndarray
  lengths: np.ndarray
  ids: list[str]
  meta: list[str] | None
  label_levels: np.ndarray | None
  weights: np.ndarray | None

  def chosen(self, mask: np.ndarray) -> "Block":
    """Returns the documents of a mask bool[N]."""
    of_token = np.repeat(mask, self.lengths)
    pick = np.flatnonzero(mask).tolist()
    return Block(
      self.first,
      self.tokens[of_token],
      self.lengths[mask],
      [self.ids[i] for i in pick],
      None if self.meta is None else [self.meta[i] for i in pick],
      None if self.label_levels is None else self.label_levels[of_token],
      None if self.weights is None else self.weights[mask],
    )


def blocks(store: base.Store) -> Iterator[Block]:
  """Yields all documents of a store, in order."""
  for begin, lengths in store.iter_lengths(_BLOCK_DOCUMENTS):
    ends = np.cumsum(lengths)
    at = 0
    while at < len(lengths):
      before = int(ends[at - 1]) if at else 0
      stop = int(np.searchsorted(ends, before + _BLOCK_TOKENS, "right"))
      stop = max(stop, at + 1)
      yield _block(store, begin + at, lengths[at:stop])
      at = stop


def _block(store: base.Store, first: int, lengths: np.ndarray) -> Block:
  documents = np.arange(first, first + len(lengths))
  start, _ = store.bounds(documents[:1])
  total = np.asarray([lengths.sum()])
  labels = weights = None
  if store.has_labels:
    _, begin, stop, level = store.label_runs(start, total)
    labels = np.repeat(level, stop - begin)
  if store.has_document_weights:
    weights = store.document_weights(documents)
  return Block(
    first,
    store.read_tokens(start, total),
    lengths,
    store.document_ids(documents),
    store.document_meta(documents) if store.has_meta else None,
    labels,
    weights,
  )


def writer_of(
  place: pathlib.Path,
  store: base.Store,
  **options: Any,
) -> store_writer.StoreWriter:
  """Returns a writer of what a store holds.

  Args:
    place: A directory that does not exist.
    store: The store, or one that holds the like.
    **options: Of `StoreWriter`: compression, chunk, chunks_per_shard.
  """
  kept = vocabulary.TOKENIZER_FILES.get(store.tokenizer_info.kind)
  return store_writer.StoreWriter(
    place,
    store.tokenizer_info,
    tokenizer_file=store.tokenizer_file() if kept is not None else None,
    has_meta=store.has_meta,
    levels=store.levels.tolist() if store.has_labels else None,
    has_weights=store.has_document_weights,
    **options,
  )


def append(writer: store_writer.StoreWriter, block: Block) -> None:
  """Appends a block."""
  writer.append(
    block.tokens,
    block.lengths,
    block.ids,
    block.meta,
    block.label_levels,
    block.weights,
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
  output = destination.Destination(path)
  output.check(overwrite)
  with staging(output.local) as place:
    yield place
    # It checks again: something may have come there in the meantime.
    output.publish(place, overwrite)


@contextlib.contextmanager
def staging(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a path beside a destination, locked; what is left there goes.

  Raises:
    StoreError: If another writer is at it.
  """
  with publish.lock(path):
    place = publish.beside(path, ".writing")
    shutil.rmtree(place, ignore_errors=True)
    try:
      yield place
    finally:
      shutil.rmtree(place, ignore_errors=True)


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
    progress: Told the tokens of each block.
    **options: As in `writer_of`.

  Raises:
    StoreError: If the store is damaged, or there is something at the path.
  """
  with (
    staged(path, overwrite) as place,
    writer_of(place, store, **options) as writer,
  ):
    for block in blocks(store):
      append(writer, block)
      progress(len(block.tokens))
    writer.finish(prepared=prepared)


def check_alike(stores: Sequence[base.Store]) -> None:
  """Raises StoreError where stores do not keep the same of their documents."""
  first = stores[0]
  for other in stores[1:]:
    if other.has_meta != first.has_meta:
      with_meta, without = first, other
      if other.has_meta:
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
    progress: Told the tokens of each read.

  Raises:
    StoreError: If something is not as it was.
  """
  for first in _starts(store.num_tokens):
    count = min(_BLOCK_TOKENS, store.num_tokens - first)
    store.read_tokens(np.asarray([first]), np.asarray([count]))
    progress(count)
  for _, lengths in store.iter_lengths():
    span_reads.check_rising(lengths, f"{store.path}/offsets")


def _starts(num_tokens: int) -> Iterable[int]:
  return range(0, num_tokens, _BLOCK_TOKENS)
