# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The bytes of a file, decompressed, some at a time."""

from collections.abc import Generator
from collections.abc import Iterator
import gzip
from typing import Any
from typing import IO
import zlib

import zstandard

from chomp_data import errors
from chomp_data.prepare.reading import base

BLOCK = 1 << 20

# The reason that an archive without its end is counted by.
TRUNCATED = "truncated"
_LEAST_ZSTD = 64


def blocks(
  file: base.InputFile,
  block: int | None = None,
  begin: int = 0,
  until: int | None = None,
) -> Generator[bytes, None, None]:
  """Yields the decompressed bytes of a file.

  Args:
    file: Which.
    block: Bytes that are read at once, or None for many.
    begin: Bytes that are left out, of a file that is not compressed.
    until: Where the caller is about to stop, in the file; None is its end.

  Raises:
    BadInput: If it cannot be decompressed.
    PrepareError: If it cannot be read.
  """
  try:
    with base.opened(file, until=until) as raw:
      if begin:
        raw.seek(begin)
      yield from unpacked(file, raw, block)
  except OSError as error:
    raise base.unreadable(file, error) from None


def unpacked(
  file: base.InputFile, raw: Any, block: int | None = None
) -> Generator[bytes, None, None]:
  """Yields the decompressed bytes of a file that is open.

  Args:
    file: Which.
    raw: It, at the first byte to yield.
    block: Bytes that are read at once, or None for many.

  Raises:
    BadInput: If it cannot be decompressed.
    PrepareError: If it cannot be read.
  """
  block = block or BLOCK
  try:
    if file.compression != "none" and not file.size:
      raise EOFError("an empty file")
    if file.compression == "zst":
      yield from _zstd_blocks(raw, block)
      return
    stream = gzip.GzipFile(fileobj=raw) if file.compression == "gz" else raw
    # Of an object no more than one request brings, so that `until` holds. Of an
    # archive no more than one read, so that all before an error is yielded.
    one = file.is_remote or file.compression == "gz"
    while data := _read_one(stream, block) if one else stream.read(block):
      yield data
  except (gzip.BadGzipFile, EOFError, zlib.error, zstandard.ZstdError) as error:
    truncated = isinstance(error, EOFError)
    raise errors.BadInput(
      file.path,
      f"must be a whole .{file.compression} archive, got {error}.",
      "Correct it, or leave it out with --exclude."
      + " --on_error=skip takes the lines before its end." * truncated,
      TRUNCATED if truncated else "damaged",
    ) from None
  except OSError as error:
    raise base.unreadable(file, error) from None


def _read_one(stream: Any, size: int) -> bytes:
  """Returns what is in the buffer, filled by one request if it is empty."""
  stream.peek(1)
  return stream.read1(size)


def _zstd_blocks(raw: IO[bytes], size: int) -> Iterator[bytes]:
  """Yields decompressed bytes; a cut frame is an error, not an end.

  Little is given at once where it becomes much, up to 32 Ki times as much.
  """
  frame, step = None, _LEAST_ZSTD
  while block := raw.read(step):
    count = 0
    while block:
      if frame is None:
        frame = zstandard.ZstdDecompressor().decompressobj()
      if data := frame.decompress(block):
        count += len(data)
        yield data
      block = frame.unused_data if frame.eof else b""
      frame = None if frame.eof else frame
    step = min(2 * step, size) if count < size // 2 else step
    step = max(step // 2, _LEAST_ZSTD) if count > size else step
  if frame is not None:
    raise EOFError("a zstd frame without its end")
