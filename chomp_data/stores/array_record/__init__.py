# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""ArrayRecord corpora of token ids as stores."""

from chomp_data.stores.array_record.record_store import (
  ArrayRecordOptions as ArrayRecordOptions,
)
from chomp_data.stores.array_record.record_store import (
  ArrayRecordStore as ArrayRecordStore,
)
from chomp_data.stores.array_record.record_store import (
  open_array_records as open_array_records,
)
