# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The order of columns on devices, for context parallelism.

    8 columns, 2 shards    shard 0       shard 1
    contiguous             0 1 2 3       4 5 6 7
    dual_chunk_swap        0 1 6 7       2 3 4 5
    striped                0 2 4 6       1 3 5 7

With causal attention a later column costs more: contiguous shards do unequal
work. `dual_chunk_swap` is what MaxText calls a load-balanced reorder and ring
attention a zigzag.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
from typing import Any

import grain
import numpy as np

from chomp_data import schema
from chomp_data.rows import field_names

_ALIASES = {"zigzag": "dual_chunk_swap"}


def _contiguous(seq_len: int, shards: int) -> np.ndarray:
  del shards
  return np.arange(seq_len)


def _dual_chunk_swap(seq_len: int, shards: int) -> np.ndarray:
  chunks = np.arange(seq_len).reshape(2, shards, -1)
  # Chunk i beside chunk 2n - 1 - i.
  return np.stack([chunks[0], chunks[1, ::-1]], axis=1).reshape(-1)


def _striped(seq_len: int, shards: int) -> np.ndarray:
  return np.arange(seq_len).reshape(-1, shards).T.reshape(-1)


# The order of columns, and into how many parts a shard divides a row.
_KINDS: dict[str, tuple[Callable[[int, int], np.ndarray], int]] = {
  "contiguous": (_contiguous, 1),
  "dual_chunk_swap": (_dual_chunk_swap, 2),
  "striped": (_striped, 1),
}


@dataclasses.dataclass(frozen=True)
class SequenceLayout(schema.Options):
  """The section `sequence_layout`: an order of columns.

  Attributes:
    kind: 'contiguous', 'dual_chunk_swap' ('zigzag' is another name) or
      'striped'.
    shards: How many shards the columns are split into.
    fields: Fields of a user's transforms whose second axis is the columns.
    row_fields: Fields of a user's transforms whose second axis is not the
      columns, although it has the same length.
  """

  kind: str = schema.required(schema.choice((*_KINDS, *_ALIASES)))
  shards: int = schema.required(schema.integer(1, 2**20))
  fields: tuple[str, ...] = schema.option((), schema.sequence(schema.text()))
  row_fields: tuple[str, ...] = schema.option(
    (), schema.sequence(schema.text())
  )

  @property
  def is_contiguous(self) -> bool:
    """Whether columns keep their order."""
    return self.kind == "contiguous" or self.shards == 1

  def problems(self, path: str, lengths: Mapping[str, int]) -> list[str]:
    """Returns why columns cannot be divided into shards.

    Args:
      path: The dotted path of the layout.
      lengths: Columns of a row, by what they are called in messages.
    """
    parts = _KINDS[_ALIASES.get(self.kind, self.kind)][1] * self.shards
    return [
      f"`{name}` must be a multiple of {parts} with `{path}.kind`"
      f" {self.kind!r} and {self.shards} shards, got {length}. Change it, or"
      f" `{path}.shards`."
      for name, length in lengths.items()
      if length % parts
    ]

  def order(self, seq_len: int) -> np.ndarray:
    """Returns the canonical column of each column of the layout, int64[S].

    Args:
      seq_len: Columns of a row, which the layout divides.
    """
    return _order(_ALIASES.get(self.kind, self.kind), self.shards, seq_len)


@dataclasses.dataclass(frozen=True)
class ReorderColumns(grain.transforms.Map):
  """Puts the columns of a batch in the order of a layout.

  Attributes:
    layout: The order.
  """

  layout: SequenceLayout

  def map(  # pyright: ignore[reportIncompatibleMethodOverride]
    self, element: Mapping[str, Any]
  ) -> dict[str, Any]:
    """Permutes the columns of the fields that have columns.

    Args:
      element: Fields [B, ...], after all other transforms.

    Returns:
      New arrays of the fields with columns; the others as they are.

    Raises:
      ValueError: If a field may have columns and is not declared.
    """
    layout = self.layout
    columns = field_names.OF_COLUMNS.union(layout.fields) - set(
      layout.row_fields
    )
    widths = {
      value.shape[1] for name, value in element.items() if name in columns
    }
    known = columns | field_names.OF_ROWS | set(layout.row_fields)
    for name, value in element.items():
      shape = np.shape(value)
      if name not in known and len(shape) > 1 and shape[1] in widths:
        # Not a ConfigError: the exception must survive pickling by a worker.
        raise ValueError(
          "`config.data.sequence_layout.fields` must hold each field of a"
          f" transform that has columns, got {layout.fields} and {name!r} of"
          f" shape {shape}. Add it, or add it to `row_fields` if its second"
          " axis is not the columns. (A field of a batch format belongs in"
          " `OF_COLUMNS` of chomp_data/rows/field_names.py.)"
        )
    return {
      name: value[:, layout.order(value.shape[1])] if name in columns else value
      for name, value in element.items()
    }


@functools.lru_cache(maxsize=64)
def _order(kind: str, shards: int, seq_len: int) -> np.ndarray:
  order = _KINDS[kind][0](seq_len, shards)
  order.setflags(write=False)
  return order
