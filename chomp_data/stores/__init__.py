"""Stores: tokenized corpora on disk, opened, read, checked and written."""

from chomp_data.errors import StoreError as StoreError
from chomp_data.stores.array_record.record_store import (
  ArrayRecordOptions as ArrayRecordOptions,
)
from chomp_data.stores.array_record.record_store import (
  ArrayRecordStore as ArrayRecordStore,
)
from chomp_data.stores.array_record.record_store import (
  open_array_records as open_array_records,
)
from chomp_data.stores.base import Store as Store
from chomp_data.stores.concatenated import as_one as as_one
from chomp_data.stores.kinds import open_store as open_store
from chomp_data.stores.kinds import open_stores as open_stores
from chomp_data.stores.kinds import STORE_KINDS as STORE_KINDS
from chomp_data.stores.kinds import StoreKind as StoreKind
from chomp_data.stores.span_reads import Counters as Counters
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
