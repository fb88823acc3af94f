# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reports of packing: utilisation, padding, and tokens cut or lost."""

import dataclasses

from chomp_data.pack.packing_options import BinOptions


@dataclasses.dataclass(frozen=True)
class PackingReport:
  """The result of packing an epoch.

  Attributes:
    rows: Rows of the first epoch.
    tokens: Tokens in them, added ones included.
    documents: Documents of the store.
    empty: Documents without tokens, which are skipped.
    long: Documents longer than a row.
    lost: Tokens that `long_documents` truncates or drops.
    cut: Documents with a piece that fits in a row but was cut, counted in a
      few windows (always 0 for 'ffd').
    looked_at: Documents of those windows.
    seq_len: Positions of a row.
  """

  rows: int
  tokens: int
  documents: int
  empty: int
  long: int
  lost: int
  cut: int
  looked_at: int
  seq_len: int

  @property
  def utilisation(self) -> float:
    """Share of positions that hold a token."""
    return self.tokens / (self.rows * self.seq_len)

  @property
  def padding(self) -> float:
    """Share of positions that are filler."""
    return 1 - self.utilisation

  def lines(self, options: BinOptions) -> list[str]:
    """Returns the report as two indented lines of text."""
    cut = ""
    if options.packing_algorithm == "exact":
      cut = (
        f", {self.cut} of the first {self.looked_at} documents cut to fill rows"
      )
    lost = f", {self.lost} tokens lost" if self.lost else ""
    return [
      f"  {self.documents} documents ({self.empty} empty, skipped; {self.long}"
      f" longer than a row: {options.long_documents}{lost}), {self.tokens}"
      f" tokens{cut}",
      f"  utilisation {self.utilisation:.4%}, padding {self.padding:.4%}",
    ]
