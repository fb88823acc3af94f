# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What an array is: a hash of fixed blocks, which can be computed in any order.

A block is `BLOCK` elements, whatever the chunks, so that the same values have
the same hash in every form, and processes can share the work. Of an array of
one block or less the hash is SHA-256 of its values as little-endian bytes; of
a larger one SHA-256 of the blocks' hashes, 32 bytes each.

    values, 9 Mi   [ 4 Mi ][ 4 Mi ][ 1 Mi ]
    hash           SHA-256( S(0)  + S(1)  + S(2) )
"""

import hashlib

# Stores whose arrays are smaller have the hash that schema 1 gave them.
BLOCK = 2**22


class TreeHash:
  """The hash of values that are given in order, a part at a time."""

  def __init__(self):
    """Nothing yet."""
    self._done: list[bytes] = []
    self._content = hashlib.sha256()
    self._filled = 0

  def update(self, values: memoryview) -> None:
    """Adds values: the `data` of a contiguous little-endian array."""
    begin = 0
    while begin < len(values):
      # A full block ends only when another value comes: it may be the only one.
      if self._filled == BLOCK:
        self._end_block()
      end = min(len(values), begin + BLOCK - self._filled)
      self._content.update(values[begin:end])
      self._filled += end - begin
      begin = end

  @property
  def digests(self) -> list[bytes]:
    """Of each block so far, the last one as far as it is filled."""
    return [*self._done, self._content.digest()]

  def hexdigest(self) -> str:
    """Returns the hash of all values so far, as hex."""
    return joined(self.digests)

  def _end_block(self) -> None:
    self._done.append(self._content.digest())
    self._content = hashlib.sha256()
    self._filled = 0


def joined(digests: list[bytes]) -> str:
  """Returns an array's hash from those of its blocks, one or more in order."""
  if len(digests) == 1:
    return digests[0].hex()
  return hashlib.sha256(b"".join(digests)).hexdigest()


def num_blocks(size: int) -> int:
  """Returns how many blocks have a hash: one, too, where there is no value."""
  return max(1, -(-size // BLOCK))
