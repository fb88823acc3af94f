# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Records of token ids, and the columns that a store keeps of records.

The text of such a document is its ids as uint32, so that it is hashed, counted
and measured as every other text is.
"""

from collections.abc import Callable
from collections.abc import Mapping
import functools
import re
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.stores import columns as columns_lib

_COLUMN = re.compile(r"(\w+):(\w+)(?:\[([\d, ]+)\])?(@target)?")


@functools.lru_cache
def columns_of(
  per_token: tuple[str, ...], per_document: tuple[str, ...]
) -> Mapping[str, columns_lib.Column]:
  """Returns the columns that flags declare.

  Args:
    per_token: NAME:DTYPE, NAME:DTYPE[SHAPE], with @target at the end if values
      are of the prediction of the next token.
    per_document: NAME:DTYPE.

  Raises:
    PrepareError: If one declares none.
  """
  columns: dict[str, columns_lib.Column] = {}
  problems: list[str] = []
  for flag, per, texts in (
    ("column", columns_lib.TOKEN, per_token),
    ("document_column", columns_lib.DOCUMENT, per_document),
  ):
    for text in texts:
      try:
        name, column = _declared(text, per)
      except ValueError as error:
        problems.append(
          f"`--{flag}` must be NAME:DTYPE, as quality:uint8, of tokens also"
          f" NAME:DTYPE[SHAPE]@target, got {text!r}: {error}"
        )
        continue
      if name in columns:
        problems.append(
          f"`--{flag}` must declare each column once, got {name!r} twice. Leave"
          " one out."
        )
      columns[name] = column
  errors.PrepareError.raise_if(problems)
  return columns


def _declared(text: str, per: str) -> tuple[str, columns_lib.Column]:
  match = _COLUMN.fullmatch(text)
  if match is None:
    raise ValueError("it has no name and dtype. Correct it.")
  name, dtype, shape, target = match.groups()
  if problem := columns_lib.name_problem(name):
    raise ValueError(problem)
  sides = tuple(int(side) for side in (shape or "").split(",") if side)
  align = columns_lib.TARGET if target else columns_lib.TOKEN
  return name, columns_lib.Column(dtype, sides, per, align)


def text_of_ids(
  value: Any, key: str, vocab_size: int | None, where: str
) -> bytes:
  """Returns the token ids of a record as a text.

  Raises:
    BadInput: If they are none, or not below `vocab_size`.
  """
  try:
    ids = np.asarray(value)
  except ValueError:  # Lists of unlike lengths.
    ids = np.zeros((1, 1))
  if ids.size and (
    ids.ndim != 1
    or ids.dtype.kind not in "iu"
    or not 0 <= int(ids.min()) <= int(ids.max()) < 2**32
  ):
    raise errors.BadInput(
      where,
      f"must have a list of token ids under {key!r}, got {str(value)[:40]}.",
      "Correct it, or --ids_key.",
      "no ids",
    )
  if vocab_size is not None and ids.size and int(ids.max()) >= vocab_size:
    raise errors.BadInput(
      where,
      f"must have token ids below the vocabulary size {vocab_size} under"
      f" {key!r}, got {ids.max()}.",
      "Correct them, or give their tokenizer or --vocab_size.",
      "id beyond the vocabulary",
    )
  return ids.astype("<u4").tobytes()


def values_of(
  columns: Mapping[str, columns_lib.Column],
  value: Callable[[str, str], Any],
  num_tokens: int,
  num_halves: int | None,
  where: str,
) -> dict[str, np.ndarray]:
  """Returns the values of a record by column.

  Args:
    columns: The columns.
    value: Returns what a record has under (key, flag).
    num_tokens: Of the document.
    num_halves: 2 for pairs, which have [chosen, rejected] for each number of a
      document; else None.
    where: The record in errors.

  Raises:
    BadInput: If they are others than those of a column.
  """
  values = {}
  for name, column in columns.items():
    flag, count = "column", num_tokens
    if column.per == columns_lib.DOCUMENT:
      flag, count = "document_column", num_halves
    of_record = value(name, flag)
    if count is None:
      of_record, count = [of_record], 1
    try:
      values[name] = columns_lib.checked(name, column, of_record, count)
    except (errors.StoreError, ValueError) as error:
      raise errors.BadInput(
        where,
        f"must have values of {column} under {name!r}: {error}",
        f"Correct them, or --{flag}.",
        "wrong column",
      ) from None
  return values
