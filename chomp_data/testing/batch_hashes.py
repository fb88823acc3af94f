# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Comparing streams of batches bit by bit."""

from collections.abc import Mapping
import hashlib
from typing import Any

import numpy as np

from chomp_data import schema


@schema.arguments(batch=schema.mapping())
def batch_sha256(batch: Mapping[str, Any]) -> str:
  """Returns the SHA-256 of every field's name, dtype, shape and bytes.

  64-bit integers count as 32-bit ones, which is how they reach devices.

  Args:
    batch: Fields that NumPy can read whole.
  """
  digest = hashlib.sha256()
  for name in sorted(batch):
    value = np.ascontiguousarray(batch[name])
    if value.dtype == np.int64:
      value = value.astype(np.int32)
    digest.update(f"{name}:{value.dtype}:{value.shape};".encode())
    digest.update(value.tobytes())
  return digest.hexdigest()
