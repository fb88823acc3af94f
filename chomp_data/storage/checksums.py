# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""CRC-32C, the checksum of all stored bytes."""

import os
from typing import Any

import google_crc32c

_BLOCK_BYTES = 32 * 2**20


def crc32c(data: Any) -> int:
  """Returns the CRC-32C of a contiguous read-only buffer."""
  return google_crc32c.value(data)


def extend(crc: int, data: Any) -> int:
  """Returns the CRC-32C of what has the CRC-32C `crc`, followed by a buffer."""
  return google_crc32c.extend(crc, data)


def of_file(path: os.PathLike[str]) -> tuple[int, int]:
  """Returns a file's size and CRC-32C.

  Raises:
    OSError: If it cannot be read.
  """
  size = crc32c = 0
  with open(path, "rb") as file:
    while block := file.read(_BLOCK_BYTES):
      crc32c = google_crc32c.extend(crc32c, block)
      size += len(block)
  return size, crc32c
