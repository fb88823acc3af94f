# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Static shapes of batches, and their names."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Bucket:
  """One static shape of batches.

  Attributes:
    name: '512' or '48x32'.
    batch_size: Rows of a global batch.
    shape: (length,) or (height, width).
  """

  name: str
  batch_size: int
  shape: tuple[int, ...]

  def __str__(self) -> str:
    shape = ", ".join(map(str, (self.batch_size, *self.shape)))
    return f"{self.name}: [{shape}]"


def size_name(height: int, width: int) -> str:
  """Returns a bucket's name, '48x32'."""
  return f"{height}x{width}"
