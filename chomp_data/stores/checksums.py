"""The checksum of everything that is kept on disk."""

from typing import Any

import google_crc32c


def crc32c(data: Any) -> int:
  """Returns the CRC-32C of a contiguous read-only buffer."""
  return google_crc32c.value(data)
