# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Columns: arrays that a store holds beside its tokens or its documents.

    tokens   [11 12 13]       quality        uint8[3], per token
                              teacher_probs  float16[3, 8], per token
    lengths  [2 1]            margin         float32[2], per document

On disk a column is an array of one dimension, its values one after the other.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import re
from typing import Any
from typing import Protocol

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.rows import field_names

# What JAX supports without 64-bit types.
DTYPES = (
  *("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32"),
  *("float16", "bfloat16", "float32"),
)
TOKEN, DOCUMENT, TARGET = "token", "document", "target"
# An array of a store that holds a column begins with it.
ARRAY_PREFIX = "column_"
# Of a token in memory, an int32.
TOKEN_BYTES = 4

# More values of a token than any teacher stores.
_MAX_WIDTH = 2**20
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


@dataclasses.dataclass(frozen=True)
class Column(schema.Options):
  """What the values of a column are.

  Attributes:
    dtype: One of 'bool', 'int8', 'int16', 'int32', 'uint8', 'uint16', 'uint32',
      'float16', 'bfloat16' and 'float32'.
    shape: The shape of a value, () for a number.
    per: 'token' or 'document'; documents have numbers only.
    align: 'token' if a value is of its token, 'target' if it is of the
      prediction of the next token, made at its token.
  """

  dtype: str = schema.required(schema.choice(DTYPES))
  shape: tuple[int, ...] = schema.option((), schema.sequence(schema.integer(1)))
  per: str = schema.option(TOKEN, schema.choice((TOKEN, DOCUMENT)))
  align: str = schema.option(TOKEN, schema.choice((TOKEN, TARGET)))

  def __post_init__(self) -> None:
    """Checks the fields, and that they fit together."""
    super().__post_init__()
    problems = []
    if self.per == DOCUMENT and (self.shape or self.align == TARGET):
      problems.append(
        "`Column.per` must be 'token' for values with a shape or with"
        f" align='target', got {self.per!r}. Store a number for each document."
      )
    if self.width > _MAX_WIDTH:
      problems.append(
        f"`Column.shape` must be of at most {_MAX_WIDTH} elements, got"
        f" {self.shape}. Store fewer."
      )
    if problems:
      raise errors.ConfigError(problems)

  @property
  def width(self) -> int:
    """Elements of a value."""
    return math.prod(self.shape)

  @property
  def numpy_dtype(self) -> np.dtype:
    """The dtype of its elements."""
    if self.dtype == "bfloat16":
      import ml_dtypes  # It comes with JAX.

      return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(self.dtype)

  @property
  def json(self) -> dict[str, Any]:
    """Its entry in a manifest; defaults are left out."""
    entry: dict[str, Any] = {"dtype": self.dtype, "per": self.per}
    if self.shape:
      entry["shape"] = list(self.shape)
    if self.align != TOKEN:
      entry["align"] = self.align
    return entry

  def __str__(self) -> str:
    """Returns for instance 'float16[8] per token, aligned to targets'."""
    shape = f"[{','.join(map(str, self.shape))}]" if self.shape else ""
    aligned = ", aligned to targets" * (self.align == TARGET)
    return f"{self.dtype}{shape} per {self.per}{aligned}"


def bytes_per_token(columns: Iterable[Column]) -> int:
  """Returns the bytes of an int32 token and its values of columns."""
  return TOKEN_BYTES + sum(
    column.width * column.numpy_dtype.itemsize
    for column in columns
    if column.per == TOKEN
  )


def name_problem(name: str) -> str | None:
  """Returns what is wrong with the name of a column, or None."""
  if not _NAME.fullmatch(name):
    return (
      "the name of a column must be a letter and at most 63 letters, digits"
      f" and underscores, got {name!r}. Rename it."
    )
  if field_names.is_field(name):
    return (
      "the name of a column must not be that of a field of batches, got"
      f" {name!r}. Rename it."
    )
  return None


def array_name(name: str) -> str:
  """Returns the array of a store that holds a column."""
  return ARRAY_PREFIX + name


def checked(name: str, column: Column, values: Any, count: int) -> np.ndarray:
  """Returns the values of `count` tokens or documents in their dtype.

  Args:
    name: The column, for messages.
    column: What it holds.
    values: [count, *column.shape], of numbers that its dtype holds.
    count: How many.

  Returns:
    [count, *column.shape].

  Raises:
    StoreError: If they are others.
  """
  shape = (count, *column.shape)
  array = np.asarray(values)
  if not count and not array.size:
    return np.empty(shape, column.numpy_dtype)
  if array.shape != shape or array.dtype.kind in "OUSMmc":
    raise errors.StoreError(
      f"`columns[{name!r}]` must be numbers of shape {list(shape)}, got"
      f" {array.dtype}{list(array.shape)}. Give one value for each"
      f" {column.per}."
    )
  stored = cast(array, column)
  if stored is None:
    raise errors.StoreError(
      f"`columns[{name!r}]` must be numbers that {column.dtype} holds, got"
      f" others among {array.min()} .. {array.max()}. Choose another dtype."
    )
  return stored


def cast(values: np.ndarray, column: Column) -> np.ndarray | None:
  """Returns numbers in a column's dtype, None where it does not hold them.

  Floating-point dtypes round; finite numbers stay finite.
  """
  dtype = column.numpy_dtype
  if values.dtype == dtype:
    return values
  with np.errstate(over="ignore", invalid="ignore"):
    stored = values.astype(dtype)
    if dtype.kind in "biu":
      same = stored == values
    else:
      wide = stored.astype(np.float64)
      same = np.isfinite(wide) | ~np.isfinite(values.astype(np.float64))
  return stored if same.all() else None


class Elements(Protocol):
  """An array of a store, or of several as one: elements one after the other."""

  def copy_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    """Copies spans: out[p : p + l] = elements[s : s + l] for each of them."""
    ...

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> bool | None:
    """Requests spans, as `Store.prefetch`; does not wait."""
    ...


class StoredColumn:
  """The values of a column, by the numbers of tokens or documents.

  Attributes:
    column: What they are.
    elements: Their elements one after the other, as stores have them.
    lacking: Paths of stores, of several that are read as one, without it.
  """

  def __init__(
    self, column: Column, elements: Elements, lacking: tuple[str, ...] = ()
  ):
    """Reads nothing; see the attributes."""
    self.column: Column = column
    self.elements: Elements = elements
    self.lacking: tuple[str, ...] = lacking

  def copy(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    """Copies spans: out[p : p + l] = values[s : s + l] for each of them.

    Args:
      starts: int64[N], tokens of the store, or documents.
      lengths: int64[N], 0 or more.
      out: [M, *column.shape], contiguous, of the column's dtype.
      positions: int64[N], in `out`.

    Raises:
      IndexError: If a span is not within the store, or not within `out`.
      StoreError: If a chunk that it touches was altered.
    """
    width, flat = self.column.width, out.reshape(-1)
    if self.column.dtype == "bfloat16":
      flat = flat.view(np.uint16)
    self.elements.copy_spans(
      starts * width, lengths * width, flat, positions * width
    )

  def read(self, start: int, stop: int) -> np.ndarray:
    """Returns values start .. stop - 1, a fresh array."""
    out = np.empty((stop - start, *self.column.shape), self.column.numpy_dtype)
    span = np.asarray([start]), np.asarray([stop - start])
    self.copy(*span, out, np.zeros(1, np.int64))
    return out

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
    """Requests the values of spans; does not wait."""
    width = self.column.width
    self.elements.prefetch(starts * width, lengths * width)


def check_alike(
  stores: Sequence[tuple[str, Mapping[str, StoredColumn]]], complete: bool
) -> None:
  """Raises StoreError where stores have other columns of a name.

  Args:
    stores: (path, columns) of each.
    complete: Whether all must have all columns.
  """
  first: dict[str, tuple[str, Column]] = {}
  for path, stored in stores:
    for name, values in stored.items():
      other_path, other = first.setdefault(name, (path, values.column))
      if values.column != other:
        raise errors.StoreError(
          f"{path} must have the column {name!r} as {other_path} has it,"
          f" {other}, got {values.column}. Prepare both alike."
        )
  for path, stored in stores if complete else ():
    for name in first.keys() - stored.keys():
      raise errors.StoreError(
        f"{path} must have the column {name!r} as {first[name][0]} does, got"
        " none. Prepare it with the column, or drop the column."
      )
