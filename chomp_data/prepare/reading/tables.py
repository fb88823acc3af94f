# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of Arrow tables as records; rows are numbered from 0.

Only what keys lead to is taken, a column or, where dots lead there, a field of
a column of structs. pyarrow is needed (the extra `arrow`).
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from chomp_data import errors
from chomp_data.prepare import records
from chomp_data.prepare.reading import base

# Rows that become Python's own objects at once.
MAX_ROWS = 1_024
_MOST_BYTES = 4 * 2**20


def pyarrow(path: str) -> Any:
  """Returns the module pyarrow.

  Raises:
    PrepareError: If it is not installed.
  """
  try:
    import pyarrow as arrow  # pyright: ignore
  except ImportError:
    raise errors.PrepareError(
      f"pyarrow must be installed to read {path}. Install chomp_data with the"
      " extra `arrow`."
    ) from None
  return arrow


def unreadable(path: str, kind: str, error: Exception) -> errors.BadInput:
  """Returns the error of a file that is not what it should be."""
  problem = str(error).split("\n", 1)[0][:200].rstrip(".")
  return errors.BadInput(
    path,
    f"must be a whole {kind} file, got {problem or type(error).__name__}.",
    "Correct it, or leave it out with --exclude.",
    "damaged",
  )


def check_columns(path: str, schema: Any, options: records.ReadOptions) -> None:
  """Checks that rows have what documents need.

  Raises:
    BadInput: If a column is missing, or there are two of its name.
  """
  for key in options.keys:
    name = key if key in schema.names else key.partition(".")[0]
    if (count := schema.names.count(name)) > 1:
      raise errors.BadInput(
        path,
        f"must have one column {name!r}, got {count}.",
        "Rename the others, or leave the file out with --exclude.",
        "no column",
      )
  for key, flag in options.required_keys.items():
    if _path(schema, key) is None:
      names = []
      for field in schema:
        names.append(field.name)
        if _is_struct(field.type):
          names += [f"{field.name}.{inner.name}" for inner in field.type]
      raise errors.BadInput(
        path,
        f"must have the column {key!r}, got {records.first_names(names)}.",
        f"Correct --{flag}, or leave the file out with --exclude.",
        "no column",
      )


def columns(schema: Any, keys: Sequence[str]) -> list[str]:
  """Returns the names of what has to be read, with dots into structs."""
  return sorted(
    {".".join(path) for key in keys if (path := _path(schema, key)) is not None}
  )


def numbered(
  batch: Any, first: int, options: records.ReadOptions, where: str
) -> Iterator[base.Numbered]:
  """Yields the rows of a record batch.

  Raises:
    BadInput: If the batch contradicts itself.
  """
  keys = [key for key in options.keys if _path(batch.schema, key)]
  row_bytes = batch.nbytes // max(1, batch.num_rows)
  step = max(1, min(MAX_ROWS, _MOST_BYTES // max(1, row_bytes)))
  for begin in range(0, batch.num_rows, step):
    rows_batch = batch.slice(begin, step)
    try:
      values = [
        _arrays(rows_batch, key)
        if key in options.array_keys
        else _values(rows_batch, key, key == options.text_key)
        for key in keys
      ]
      if options.has_chats:
        chat_keys = (*options.text_keys, *options.chat.keys)
        for key, rows in zip(keys, values, strict=True):
          if key in chat_keys:
            rows[:] = map(_without_nulls, rows)
    except pyarrow(where).ArrowException as error:
      raise unreadable(where, "table", error) from None
    for number, row in enumerate(
      zip(*values, strict=True) if keys else [()] * rows_batch.num_rows,
      first + begin,
    ):
      yield number, _record(keys, row, f"{where}:{number}")


def _arrays(batch: Any, key: str) -> list[Any]:
  """Returns the lists of a column as arrays."""
  column = _column(batch, key)
  # Its offsets may point anywhere; numbers are checked in no time.
  column.validate(full=True)
  return [*map(_array, column)]


def _record(
  keys: Sequence[str], row: Sequence[Any], where: str
) -> Mapping[str, Any] | errors.BadInput:
  for value in row:
    if isinstance(value, UnicodeDecodeError):
      return records.not_utf8(where, value.object[value.start], value.start)
  return dict(zip(keys, row, strict=True))


def _values(batch: Any, key: str, as_bytes: bool) -> list[Any]:
  """Returns what rows have under a key.

  Returns:
    The values; of a string that is no UTF-8 its bytes, and of such a one deeper
    inside the error.
  """
  import pyarrow as arrow  # pyright: ignore

  column = _column(batch, key)
  kind = column.type
  if arrow.types.is_dictionary(kind):
    column, kind = column.dictionary_decode(), kind.value_type
  if arrow.types.is_string_view(kind):
    column, kind = column.cast(arrow.large_string()), arrow.large_string()
  if not as_bytes:
    pass
  elif arrow.types.is_string(kind):
    column = column.cast(arrow.binary())
  elif arrow.types.is_large_string(kind):
    column = column.cast(arrow.large_binary())
  # A damaged file may say that a value lies anywhere in memory. What is text
  # is checked where it is decoded.
  is_nested = arrow.types.is_nested(column.type)
  column.validate(full=not is_nested)
  try:
    return column.to_pylist()
  except UnicodeDecodeError:
    return [_python(value) for value in column]


def _column(batch: Any, key: str) -> Any:
  """Returns what rows have under a key, as an array of Arrow."""
  import pyarrow.compute as compute  # pyright: ignore

  path = _path(batch.schema, key) or []
  column = batch.column(path[0])
  for field in path[1:]:
    column = compute.struct_field(column, field)  # pyright: ignore
  return column


def _array(row: Any) -> Any:
  """Returns a list as an array; what is no even list as Python has it."""
  import pyarrow.compute as compute  # pyright: ignore

  values = getattr(row, "values", None)
  shape = [] if values is None else [len(values)]
  while values is not None and hasattr(values.type, "value_field"):
    sides = compute.unique(compute.list_value_length(values))  # pyright: ignore
    if values.null_count or len(sides) > 1:
      return row.as_py()
    shape.append(sides[0].as_py() if len(sides) else 0)
    values = values.flatten()
  if values is None or values.null_count:
    return row.as_py()
  return values.to_numpy(zero_copy_only=False).reshape(shape)


def _without_nulls(value: Any) -> Any:
  """Returns a value without the keys that Arrow adds to objects.

  An array of objects has one type, so each gets the keys of all, as null.
  """
  if isinstance(value, Mapping):
    return {k: _without_nulls(v) for k, v in value.items() if v is not None}
  return [*map(_without_nulls, value)] if isinstance(value, list) else value


def _python(value: Any) -> Any:
  try:
    return value.as_py()
  except UnicodeDecodeError as error:
    return error.object if hasattr(value, "as_buffer") else error


def _path(schema: Any, key: str) -> list[str] | None:
  """Returns the names that lead to a key's values; as `records` finds them."""
  if key in schema.names:
    return [key]
  name, *inner = key.split(".")
  if name not in schema.names:
    return None
  kind = schema.field(name).type
  for field in inner:
    if not _is_struct(kind) or kind.get_field_index(field) < 0:
      return None
    kind = kind.field(field).type
  return [name, *inner]


def _is_struct(kind: Any) -> bool:
  import pyarrow as arrow  # pyright: ignore

  return arrow.types.is_struct(kind)
