# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What packing comes to: utilisation, padding, and what was cut or lost."""

import dataclasses

from chomp_data.pack.packing_options import BinOptions


@dataclasses.dataclass(frozen=True)
class PackingReport:
  """What an epoch's packing comes to.

  Attributes:
    rows: Rows of the first epoch.
    tokens: Tokens in them, added ones included.
    documents: Documents of the store.
    empty: Documents of no token, skipped.
    long: Documents longer than a row.
    lost: Tokens that `long_documents` truncates or drops.
    cut: Documents of which a part that fits in a row was cut, in the windows
      looked at (always 0 for 'ffd').
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
    """Returns the report in words, two indented lines."""
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
