# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Stores of chomp-prepare: zarr arrays and a manifest, in a directory."""

from collections.abc import Callable
import dataclasses
import os

from chomp_data.storage import opening
from chomp_data.stores import base
from chomp_data.stores import documents
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import zarr_opening

(_WEIGHTS,) = manifest_lib.WEIGHT_ARRAYS


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Opened(base.Opened):
  """The parts of a store of chomp-prepare, and its arrays."""

  arrays: zarr_opening.OpenedZarr


class ZarrStore(base.Store):
  """A store of chomp-prepare, read only. Made by `open_zarr`."""

  def _open(self) -> _Opened:
    if opening.open_storage(self._path).directory is not None:
      opening.open_local(self._path)
    copies = self._expected_hash is not None
    arrays = zarr_opening.OpenedZarr(
      self._path, self._cache_bytes, self._disk_cache, copies
    )
    manifest = arrays.manifest
    tokens = manifest.arrays["tokens"]
    is_compressed = tokens.layout.compression != "none"
    return _Opened(
      hash=manifest.hash,
      tokenizer=manifest.tokenizer,
      tokenizer_identity=("sha256", manifest.tokenizer.sha256),
      num_tokens=manifest.num_tokens,
      token_dtype=manifest.token_dtype,
      documents=documents.StoredOffsets(
        arrays.array("offsets"), manifest.num_documents, self._path
      ),
      tokens=arrays.array("tokens"),
      ids=arrays.texts("id"),
      meta=arrays.texts("meta") if "meta_offsets" in manifest.arrays else None,
      labels=arrays.labels() if manifest.levels else None,
      weights=arrays.array(_WEIGHTS) if _WEIGHTS in manifest.arrays else None,
      columns=arrays.columns(),
      guard=arrays.guard,
      tokenizer_file=_tokenizer_file(arrays),
      chats=manifest.prepared.get("chats", {}),
      chunk_tokens=tokens.layout.chunk,
      file_bytes=tokens.num_bytes,
      is_mapped=not arrays.is_remote and not is_compressed,
      is_remote=arrays.is_remote,
      pairs=manifest.pairs,
      arrays=arrays,
    )

  @property
  def arrays(self) -> zarr_opening.OpenedZarr:
    """The readers of its arrays."""
    assert isinstance(self.opened, _Opened)
    return self.opened.arrays

  @property
  def manifest(self) -> manifest_lib.Manifest:
    """Everything that `manifest.json` says."""
    return self.arrays.manifest


def _tokenizer_file(
  arrays: zarr_opening.OpenedZarr,
) -> Callable[[], bytes] | None:
  """Returns what reads the tokenizer's file, where the store has one."""
  name = arrays.manifest.tokenizer_file
  if name is None:
    return None
  entry = arrays.manifest.files[name]
  return lambda: zarr_opening.read_listed(arrays.files, name, entry)


def open_zarr(
  path: str | os.PathLike[str], cache_bytes: int = base.DEFAULT_CACHE_BYTES
) -> ZarrStore:
  """Opens a store of chomp-prepare; reads its manifest, no token.

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
