# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where writing samples is imported from; it is in `samples`."""

from chomp_data.stores.samples.sample_records import encoded as encoded
from chomp_data.stores.samples.sample_records import (
  write_samples as write_samples,
)
