# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Samples: precomputed arrays with a height, a width and metadata."""

from chomp_data.stores.samples.sample_fields import ArrayField as ArrayField
from chomp_data.stores.samples.sample_fields import Spec as Spec
from chomp_data.stores.samples.sample_store import open_samples as open_samples
from chomp_data.stores.samples.sample_store import SampleStore as SampleStore
