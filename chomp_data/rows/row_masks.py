# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Loss masks and positions of packed rows, from segment ids.

`segment_ids` are any integers, 0 is padding; a segment begins where the id
changes. A mask is True at column i for the token at column i + 1, its target.
Every function takes one row or any number of rows. Masks may be made on
devices: they use the array namespace of their arguments. Positions use NumPy.
"""

from typing import Any

import numpy as np


def successor_mask(segment_ids: Any) -> Any:
  """Marks positions whose next position is in the same segment.

      segment_ids  [1, 1, 1, 2, 2, 0, 0]
      mask         [1, 1, 0, 1, 0, 0, 0]

  Args:
    segment_ids: int[..., seq_len].

  Returns:
    bool[..., seq_len], False in the last column.

  Raises:
    TypeError: If `segment_ids` is not of an integer dtype.
  """
  _check_integer("segment_ids", segment_ids)
  here = segment_ids[..., :-1]
  mask = before_end((here == segment_ids[..., 1:]) & (here != 0))
  return mask[..., : segment_ids.shape[-1]]


def crossing_mask(segment_ids: Any) -> Any:
  """Marks positions whose next position is in another segment.

      segment_ids  [1, 1, 1, 2, 2, 0, 3]
      mask         [0, 0, 1, 0, 0, 0, 0]

  Args:
    segment_ids: int[..., seq_len].

  Returns:
    bool[..., seq_len], False in the last column, and where either position is
    padding.

  Raises:
    TypeError: If `segment_ids` is not of an integer dtype.
  """
  _check_integer("segment_ids", segment_ids)
  here, after = segment_ids[..., :-1], segment_ids[..., 1:]
  mask = before_end((here != after) & (here != 0) & (after != 0))
  return mask[..., : segment_ids.shape[-1]]


def segment_starts(segment_ids: np.ndarray) -> np.ndarray:
  """Marks the first position of every run of one segment id.

      segment_ids  [0, 0, 1, 1, 2, 2, 0]
      starts       [1, 0, 1, 0, 1, 0, 1]

  Args:
    segment_ids: int[..., seq_len].

  Returns:
    bool[..., seq_len], True in the first column.

  Raises:
    TypeError: If `segment_ids` is not of an integer dtype.
  """
  _check_integer("segment_ids", segment_ids)
  starts = np.ones(segment_ids.shape, np.bool_)
  np.not_equal(segment_ids[..., 1:], segment_ids[..., :-1], out=starts[..., 1:])
  return starts


def segment_positions(segment_ids: np.ndarray) -> np.ndarray:
  """Counts positions from the start of each run of one segment id.

      segment_ids  [0, 0, 1, 1, 1, 2, 2, 0]
      positions    [0, 1, 0, 1, 2, 0, 1, 0]

  Each run of padding also counts from its own first column, so that no position
  exceeds the longest run.

  Args:
    segment_ids: int[..., seq_len].

  Returns:
    int32[..., seq_len], a new array.

  Raises:
    TypeError: If `segment_ids` is not of an integer dtype.
  """
  flat_starts = np.flatnonzero(segment_starts(segment_ids))
  if not segment_ids.size:
    return np.zeros(segment_ids.shape, np.int32)
  seq_len = segment_ids.shape[-1]
  # Columns and not flat indices: they fit int32 whatever the number of rows.
  origin = (flat_starts % seq_len).astype(np.int32)
  lengths = np.diff(flat_starts, append=segment_ids.size)
  columns = np.arange(seq_len, dtype=np.int32)
  return columns - np.repeat(origin, lengths).reshape(segment_ids.shape)


def column_positions(shape: tuple[int, ...]) -> np.ndarray:
  """Returns int32[*shape], the column of every position."""
  positions = np.empty(shape, np.int32)
  positions[...] = np.arange(shape[-1], dtype=np.int32)
  return positions


def eos_targets(
  tokens: Any,
  eos_id: Any,
  next_token: Any = None,
) -> Any:
  """Marks positions whose target is the end-of-document token.

      tokens      [5, 6, 9, 7, 9]     eos_id 9
      mask        [0, 1, 0, 1, 0]     next_token None
      mask        [0, 1, 0, 1, 1]     next_token 9

  Args:
    tokens: int[..., seq_len].
    eos_id: int[...], the token of each row, or one for all; a negative number
      marks nothing in its row.
    next_token: int[...], the token after each row's last column, or None.

  Returns:
    bool[..., seq_len]; without `next_token` False in the last column.

  Raises:
    TypeError: If an argument is not of an integer dtype.
  """
  _check_integer("tokens", tokens)
  xp = tokens.__array_namespace__()
  eos = xp.asarray(eos_id)
  _check_integer("eos_id", eos)
  here = tokens[..., 1:] == eos[..., None]
  last_target = None
  if next_token is not None:
    _check_integer("next_token", next_token)
    last_target = xp.broadcast_to(next_token == eos, tokens.shape[:-1])
  mask = before_end(here, last_target)
  # A negative token id would otherwise equal the "no EOS" of its row.
  return (mask & (eos >= 0)[..., None])[..., : tokens.shape[-1]]


def before_end(values: Any, last: Any = None) -> Any:
  """Appends a last column to the values of the other columns.

      values [[1, 2], [3, 4]], last [5, 6] -> [[1, 2, 5], [3, 4, 6]]

  Args:
    values: [..., seq_len - 1].
    last: [...], or None for 0.
  """
  xp = values.__array_namespace__()
  if last is None:
    last = xp.zeros(values.shape[:-1], values.dtype)
  return xp.concatenate([values, last[..., None]], axis=-1)


def _check_integer(name: str, values: Any) -> None:
  if not np.issubdtype(values.dtype, np.integer):
    raise TypeError(
      f"`{name}` must be of an integer dtype, got {values.dtype}. Convert it."
    )
