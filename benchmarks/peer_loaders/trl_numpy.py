# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What `trl_packing` reads, collated by a few lines of NumPy.

What someone writes who finds the stock collators slow: rows stay NumPy arrays
until a batch is whole.
"""

# What is imported is in an environment of its own.
# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any

import numpy as np
from peer_loaders import base
from peer_loaders import trl_packing

DISTRIBUTION = "trl"
KINDS = {
  "one source": "`pack_dataset('wrapped')`, NumPy collator",
  "mix": "`pack_dataset('wrapped')`, `interleave_datasets`, NumPy collator",
  "packed": "`pack_dataset('bfd_split')`, NumPy collator",
}
# The same files.
prepare = trl_packing.prepare


def _stacked(rows: list[Any]) -> base.Batch:
  """Returns rows of one length as a batch."""
  return {"input_ids": np.stack([row["input_ids"] for row in rows])}


def _flat(rows: list[Any]) -> base.Batch:
  """Returns rows one after the other, with what keeps documents apart."""
  tokens = np.concatenate([row["input_ids"] for row in rows])
  lengths = np.concatenate([row["seq_lengths"] for row in rows])
  ends = np.cumsum(lengths, dtype=np.int32)
  begins = ends - lengths
  positions = np.arange(len(tokens), dtype=np.int32)
  positions -= np.repeat(begins, lengths)
  labels = tokens.astype(np.int64)
  labels[begins] = -100
  return {
    "input_ids": tokens[None],
    "labels": labels[None],
    "position_ids": positions[None],
    "cu_seq_lens_q": np.concatenate([[0], ends]),
  }


class Loader(trl_packing.Loader):
  """As there, but for the collator."""

  @staticmethod
  def row_format(flat: bool) -> str:
    """Returns what rows are of before they are collated."""
    del flat
    return "numpy"

  @staticmethod
  def collator(flat: bool) -> Callable[[list[Any]], base.Batch]:
    """Returns what makes a batch of rows."""
    return _flat if flat else _stacked
