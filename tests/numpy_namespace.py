# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""NumPy as the array namespace of `transfer_format.decode`."""

import numpy as np

from chomp_data.rows import transfer_format

NUMPY = transfer_format.Namespace(
  np,
  lambda values: np.maximum.accumulate(values, axis=-1),
  lambda values, start, width: values[:, start : start + width],
  np.int64,
)
