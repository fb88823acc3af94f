# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Stores: tokenized corpora on disk, opened, read, checked and written.

Names are handed on lazily: workers of prepare need few of the modules below.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from chomp_data.errors import StoreError as StoreError
  from chomp_data.storage.chunk_cache import Counters as Counters
  from chomp_data.stores.array_record.record_store import (
    ArrayRecordOptions as ArrayRecordOptions,
  )
  from chomp_data.stores.array_record.record_store import (
    ArrayRecordStore as ArrayRecordStore,
  )
  from chomp_data.stores.array_record.record_store import (
    open_array_records as open_array_records,
  )
  from chomp_data.stores.base import document_meta as document_meta
  from chomp_data.stores.base import read_document as read_document
  from chomp_data.stores.base import Store as Store
  from chomp_data.stores.columns import Column as Column
  from chomp_data.stores.concatenated import as_one as as_one
  from chomp_data.stores.grain_source import from_source as from_source
  from chomp_data.stores.grain_source import SourceStore as SourceStore
  from chomp_data.stores.kinds import open_store as open_store
  from chomp_data.stores.kinds import open_stores as open_stores
  from chomp_data.stores.kinds import STORE_KINDS as STORE_KINDS
  from chomp_data.stores.kinds import StoreKind as StoreKind
  from chomp_data.stores.tokenized.levanter_store import (
    LevanterOptions as LevanterOptions,
  )
  from chomp_data.stores.tokenized.megatron_store import (
    MegatronOptions as MegatronOptions,
  )
  from chomp_data.stores.verify import verify_store as verify_store
  from chomp_data.stores.vocabulary import TokenizerInfo as TokenizerInfo
  from chomp_data.stores.zarr.manifest import Manifest as Manifest
  from chomp_data.stores.zarr.store_writer import StoreWriter as StoreWriter
  from chomp_data.stores.zarr.store_writer import write_store as write_store
  from chomp_data.stores.zarr.zarr_store import ZarrStore as ZarrStore

_LAZY = {
  "StoreError": "chomp_data.errors",
  "ArrayRecordOptions": "chomp_data.stores.array_record.record_store",
  "ArrayRecordStore": "chomp_data.stores.array_record.record_store",
  "open_array_records": "chomp_data.stores.array_record.record_store",
  "document_meta": "chomp_data.stores.base",
  "read_document": "chomp_data.stores.base",
  "Store": "chomp_data.stores.base",
  "Column": "chomp_data.stores.columns",
  "as_one": "chomp_data.stores.concatenated",
  "from_source": "chomp_data.stores.grain_source",
  "SourceStore": "chomp_data.stores.grain_source",
  "open_store": "chomp_data.stores.kinds",
  "open_stores": "chomp_data.stores.kinds",
  "STORE_KINDS": "chomp_data.stores.kinds",
  "StoreKind": "chomp_data.stores.kinds",
  "Counters": "chomp_data.storage.chunk_cache",
  "LevanterOptions": "chomp_data.stores.tokenized.levanter_store",
  "MegatronOptions": "chomp_data.stores.tokenized.megatron_store",
  "verify_store": "chomp_data.stores.verify",
  "TokenizerInfo": "chomp_data.stores.vocabulary",
  "Manifest": "chomp_data.stores.zarr.manifest",
  "StoreWriter": "chomp_data.stores.zarr.store_writer",
  "write_store": "chomp_data.stores.zarr.store_writer",
  "ZarrStore": "chomp_data.stores.zarr.zarr_store",
}

if not TYPE_CHECKING:  # Else any name would pass for one of ours.

  def __getattr__(name):
    if name in _LAZY:
      return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
