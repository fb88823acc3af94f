# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Stores of tools/prepare.py: zarr arrays and a manifest, in a directory."""

from collections.abc import Iterator
from collections.abc import Sequence
import os
from typing import Any

import numpy as np

from chomp_data.stores import base
from chomp_data.stores import disk_cache
from chomp_data.stores import places
from chomp_data.stores import publish
from chomp_data.stores import vocabulary
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import zarr_opening

(_WEIGHTS,) = manifest_lib.WEIGHT_ARRAYS


class ZarrStore(base.Store[zarr_opening.OpenedZarr]):
  """A store of tools/prepare.py, read only. Made by `open_zarr`."""

  def _open(self) -> zarr_opening.OpenedZarr:
    if not places.is_url(self._path):
      publish.check_local(self._path)
    disk = None
    if self._cache_dir is not None:
      disk = disk_cache.DiskCache(*self._cache_dir)
    copies = self._expected_hash is not None
    return zarr_opening.OpenedZarr(self._path, self._cache_bytes, disk, copies)

  @property
  def manifest(self) -> manifest_lib.Manifest:
    """Everything that `manifest.json` says."""
    return self._opened.manifest

  @property
  def chats(self) -> dict[str, Any]:
    """How the turns of chats end; see `base.Store`."""
    return dict(self.manifest.prepared.get("chats", {}))

  @property
  def chunk_tokens(self) -> int:
    """Tokens of a chunk, what is read and checked as one."""
    return self.manifest.arrays["tokens"].layout.chunk

  @property
  def stored_bytes(self) -> int:
    """Bytes of the tokens' files."""
    return self.manifest.arrays["tokens"].num_bytes

  @property
  def has_meta(self) -> bool:
    """Whether each document has a string besides its id."""
    return "meta_offsets" in self.manifest.arrays

  def document_meta(self, documents: Sequence[int] | np.ndarray) -> list[str]:
    """Returns what was kept of documents; see `base.Store`."""
    if not self.has_meta:
      return super().document_meta(documents)
    return self._opened.texts("meta").take(self._existing(documents))

  @property
  def has_labels(self) -> bool:
    """Whether some tokens may not be trained on; see `base.Store`."""
    return bool(self.manifest.levels)

  @property
  def has_document_weights(self) -> bool:
    """Whether documents may weigh other than 1; see `base.Store`."""
    return _WEIGHTS in self.manifest.arrays

  @property
  def levels(self) -> np.ndarray:
    """float32[L], the weights of levels; see `base.Store`."""
    return self._opened.levels

  def label_runs(
    self, starts: np.ndarray, lengths: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the levels of tokens in spans; see `base.Store`."""
    if not self.has_labels:
      return super().label_runs(starts, lengths)
    return self._opened.labels.within(starts, lengths)

  def trained_before(self, positions: np.ndarray) -> np.ndarray:
    """Returns how many tokens below positions are trained on."""
    if not self.has_labels:
      return super().trained_before(positions)
    return self._opened.labels.before(positions)

  def prefetch_labels(
    self, starts: np.ndarray, lengths: np.ndarray, documents: np.ndarray
  ) -> None:
    """Asks an object store for labels and weights; see `base.Store`."""
    super().prefetch_labels(starts, lengths, documents)
    if not places.is_url(self._path):
      return
    if self.has_labels:
      self._opened.labels.prefetch(starts, lengths)
    if self.has_document_weights:
      self._opened.weights.prefetch(documents, np.ones_like(documents))

  def document_weights(self, documents: np.ndarray) -> np.ndarray:
    """Returns what multiplies the levels of documents' tokens."""
    if not self.has_document_weights:
      return super().document_weights(documents)
    return self._opened.weights.gather(self._existing(documents))

  def tokenizer_file(self) -> bytes:
    """Returns the tokenizer's file; see `base.Store`."""
    name = vocabulary.TOKENIZER_FILES[self.tokenizer_info.kind]
    if name is None:
      return super().tokenizer_file()
    path = places.join(self._opened.path, name)
    return zarr_opening.read_listed(path, self.manifest.files[name])

  def _id_batches(self) -> Iterator[tuple[int, list[str]]]:
    # In ranges; ids by document cost a gather of each.
    return self._opened.texts("id").batches(self.num_documents)


def open_zarr(
  path: str | os.PathLike[str], cache_bytes: int = base.DEFAULT_CACHE_BYTES
) -> ZarrStore:
  """Opens a store of tools/prepare.py; reads its manifest, no token.

  Args:
    path: Its directory.
    cache_bytes: Most decoded bytes kept of each compressed array.

  Raises:
    StoreError: If it is not a store, is unfinished, of a newer schema, or its
      files are not those that were written.
  """
  store = ZarrStore(path, cache_bytes)
  _ = store.hash
  return store
