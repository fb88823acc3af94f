# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of text in the format in which they are copied to devices."""

from collections.abc import Mapping
import dataclasses

import numpy as np

from chomp_data.rows import spans as spans_lib
from chomp_data.rows import transfer_format
from chomp_data.sources import row_reading
from chomp_data.sources import row_transfer


@dataclasses.dataclass(frozen=True)
class Transfer:
  """How rows of a bucket are copied to devices.

  Attributes:
    row_format: The format, from which devices compute the fields of a batch.
    sources: The sources of the rows, by number.
  """

  row_format: transfer_format.TransferFormat
  sources: Mapping[int, row_reading.Readable]

  def rows(
    self, spans: spans_lib.Spans, columns: tuple[int, int] | None
  ) -> np.ndarray:
    """Reads planned rows in the format, uint16[R, words].

    Args:
      spans: The plan of the rows.
      columns: (first, last + 1) of the columns whose tokens are read; None is
        all.
    """
    return row_transfer.read(self.sources, spans, self.row_format, columns)

  def tokens(self, rows: np.ndarray) -> np.ndarray:
    """Returns the tokens of rows that `rows` returned, int32[R, seq_len]."""
    return transfer_format.tokens_of(self.row_format, rows, np)
