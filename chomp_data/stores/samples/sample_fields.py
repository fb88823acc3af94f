# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What the arrays of a sample look like, given its height and width."""

from collections.abc import Collection
from collections.abc import Sequence
import dataclasses
import itertools
import math
import pathlib
from typing import Any

import numpy as np

from chomp_data import errors

# Kinds of NumPy dtypes that a sample's array may have.
KINDS = "biuf"

# Kinds of numbers that an array of a kind may hold.
_WITHIN = {"b": "b", "i": "biu", "u": "biu", "f": "biuf"}

_SIDES = ("height", "width")


@dataclasses.dataclass(frozen=True)
class Spec:
  """One sample's array of a field, without its values.

  Attributes:
    shape: Of the array.
    dtype: Of its values.
  """

  shape: tuple[int, ...]
  dtype: np.dtype


@dataclasses.dataclass(frozen=True)
class ArrayField:
  """How a field's arrays look, where the data does not say.

  Attributes:
    shape: A dimension is an integer, 'height', 'width', or a part of them as
      'height/8': latents of an image. None takes the shape of the first sample
      of each size, which must hold height and width, or the same part of both,
      beside each other where it has 2 or 3 axes. Flat lists and bytes are
      brought to this shape.
    dtype: Of the arrays handed out, 'uint8' for instance; None is as stored.
      Bytes need both.
  """

  shape: tuple[int | str, ...] | None = None
  dtype: str | None = None

  def __post_init__(self) -> None:
    """Checks the fields.

    Raises:
      ValueError: If a dimension or the dtype is none.
    """
    if self.shape is not None:
      object.__setattr__(self, "shape", tuple(self.shape))
      for dim in self.shape:
        if not _is_dimension(dim):
          raise ValueError(
            "`shape` must hold positive integers, 'height', 'width' or parts"
            f" as 'height/8', got {dim!r} in {self.shape}. Correct it."
          )
    if self.dtype is not None:
      try:
        kind = np.dtype(self.dtype).kind
      except TypeError:
        kind = ""
      if kind not in KINDS or not kind:
        raise ValueError(
          f"`dtype` must be of numbers, as 'uint8' or 'float32', got"
          f" {self.dtype!r}. Correct it."
        )

  def shape_at(self, height: int, width: int) -> tuple[int, ...] | None:
    """Returns the shape of a size, or None where it is as stored.

    Raises:
      ValueError: If a side does not divide.
    """
    if self.shape is None:
      return None
    sides = {"height": height, "width": width}
    out = []
    for dim in self.shape:
      if isinstance(dim, str):
        name, _, part = dim.partition("/")
        dim, rest = divmod(sides[name], int(part or 1))
        if rest:
          raise ValueError(
            f"{name} {sides[name]} must be a multiple of {part}, as"
            f" `shape` {self.shape} says. Correct `shape`, or the sizes."
          )
      out.append(int(dim))
    return tuple(out)

  def fitted(
    self, name: str, array: np.ndarray, spec: Spec, is_raw: bool, first: int
  ) -> np.ndarray:
    """Returns a stored array in the shape of its size, as a view.

    Args:
      name: The field's, for messages.
      array: As stored; bytes are uint8[num_bytes].
      spec: What samples of its size have; the dtype is left to who copies.
      is_raw: Whether the array is bytes.
      first: The first sample of its size, which says what the field does not.

    Raises:
      ValueError: If it does not fit; the message follows 'sample 3 '.
    """
    shape, dtype = spec.shape, spec.dtype
    # Not of an array: nothing is allocated by what a field claims.
    size = math.prod(shape)
    by_first = f"as sample {first}, the first of its size, has"
    if is_raw:
      nbytes = size * dtype.itemsize
      if array.nbytes != nbytes:
        raise ValueError(
          f"must hold {nbytes} bytes as `{name}`, {dtype} of shape {shape},"
          f" got {array.nbytes}. Correct the field, or the data."
        )
      array = array.view(dtype)
    if array.shape != shape:
      # Flat lists have no shape of their own.
      is_flat = self.shape is not None and array.ndim == 1
      if not is_flat or array.size != size:
        reason = "as its height and width say" if self.shape else by_first
        raise ValueError(
          f"must have `{name}` of shape {shape}, {reason}, got {array.shape}."
          " Correct the data, or the field."
        )
    if array.dtype != dtype and not _fits(array, dtype):
      reason = "" if self.dtype else f", {by_first}"
      limits = f" from {array.min()} to {array.max()}" * bool(array.size)
      raise ValueError(
        f"must have values of {dtype} as `{name}`{reason}, got"
        f" {array.dtype}{limits}. Correct the field, or the data."
      )
    return array.reshape(shape)


def _is_dimension(dim: object) -> bool:
  if isinstance(dim, str):
    name, slash, part = dim.partition("/")
    whole = part.isdecimal() and int(part) > 0
    return name in _SIDES and (whole if slash else not part)
  return isinstance(dim, int) and not isinstance(dim, bool) and dim > 0


def agrees(shape: Sequence[int], height: int, width: int) -> bool:
  """Whether an array may be of a sample of a height and width.

  Args:
    shape: Of the array; of 1 axis, or of more than 3, any may be.
    height: Of the sample.
    width: Of the sample.

  Returns:
    Whether height and width, or the same part of both as in latents, are
    beside each other and in this order.
  """
  if len(shape) not in (2, 3):
    return True
  return any(
    high > 0
    and wide > 0
    and height % high == 0
    and (wide * (height // high) == width)
    for high, wide in itertools.pairwise(shape)
  )


def holds(dtype: np.dtype, value: object) -> bool:
  """Whether a number may stand in an array of a dtype."""
  kind = np.asarray(value).dtype.kind if np.isscalar(value) else "O"
  if kind not in _WITHIN[dtype.kind]:
    return False
  if kind == "b" or dtype.kind not in "iu":
    return True
  limits = np.iinfo(dtype)
  return limits.min <= int(value) <= limits.max  # pyright: ignore


def _fits(array: np.ndarray, dtype: np.dtype) -> bool:
  """Whether values keep their meaning in a dtype; floats may be rounded."""
  if array.dtype.kind in "iu" and dtype.kind in "iu":
    limits = np.iinfo(dtype)
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    return limits.min <= low and high <= limits.max
  return array.dtype.kind == dtype.kind == "f"


def side_of(
  path: pathlib.Path,
  index: int,
  name: str,
  value: Any,
  names: Collection[str] = (),
) -> int:
  """Returns a height or width; raises StoreError where it is none."""
  is_whole = isinstance(value, int) and not isinstance(value, bool)
  if not is_whole or not 0 < value < 2**31:
    raise errors.StoreError(
      f"{path}: sample {index} must have a positive integer as `{name}`, got"
      f" {value!r}{_others(names)}. Write it, or say which field holds it."
    )
  return value


def _others(names: Collection[str]) -> str:
  return f" (it has {', '.join(names)})" if names else ""
