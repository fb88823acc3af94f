# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Text files: each is one document, whatever its name."""

from collections.abc import Iterator
from typing import Any

from chomp_data.prepare import records
from chomp_data.prepare.reading import base
from chomp_data.prepare.reading import byte_blocks


class Text(base.InputKind):
  """Files of UTF-8, of any name."""

  def split(
    self,
    file: base.InputFile,
    opened: Any,
    part_bytes: int,
    options: records.ReadOptions,
  ) -> list[base.InputPiece]:
    """Checks the size; a document is not split."""
    if file.size > options.max_document_bytes:
      raise records.too_long(file.path, options)
    return [base.InputPiece(file, 0, file.size, 0, file.size)]

  def read(
    self, piece: base.InputPiece, options: records.ReadOptions
  ) -> Iterator[base.Numbered]:
    """Yields the file, as if it were a record's text."""
    data = b"".join(byte_blocks.blocks(piece.file))
    yield None, {options.text_key: data}
