"""Stores: tokenized corpora on disk, opened, read, checked and written."""

from chomp_data.errors import StoreError as StoreError
from chomp_data.stores.array_record import (
  ArrayRecordOptions as ArrayRecordOptions,
)
from chomp_data.stores.array_record import (
  open_array_records as open_array_records,
)
from chomp_data.stores.arrays import Counters as Counters
from chomp_data.stores.manifest import Manifest as Manifest
from chomp_data.stores.manifest import TokenizerInfo as TokenizerInfo
from chomp_data.stores.store import open_store as open_store
from chomp_data.stores.store import Store as Store
from chomp_data.stores.verify import verify_store as verify_store
from chomp_data.stores.writer import StoreWriter as StoreWriter
from chomp_data.stores.writer import write_store as write_store
