# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays about documents: in memory, or of many documents in a side index.

What a pass over all documents of a large store computes is stored beside the
store, so that other processes and later runs need not repeat the pass.
"""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import numpy as np

from chomp_data import stores
from chomp_data.index import columns
from chomp_data.stores import side_index

# Below this a pass over all lengths takes a few milliseconds, and the numbers
# of these documents take a few megabytes.
MIN_ON_DISK = 1 << 18
# Part of the key of what `load_or_build` writes; raise it where arrays are
# computed differently. What `load_or_build_parts` writes has other names then.
_VERSION = 1
_UINT32_MAX = np.iinfo(np.uint32).max


def load_or_build(
  store: stores.Store,
  name: str,
  key: Mapping[str, Any],
  build: Callable[[], Mapping[str, np.ndarray]],
  num_documents: int,
) -> dict[str, columns.Column]:
  """Returns arrays as columns, from a side index if documents are many.

  Args:
    store: Where the documents are.
    name: Name of the side index.
    key: What the arrays depend on besides the store, as JSON values.
    build: Computes the arrays; their numbers are at least 0.
    num_documents: How many documents `build` looks at. Fewer than MIN_ON_DISK
      are computed each time.

  Raises:
    StoreError: If the side index can be written nowhere.
  """
  return load_or_build_parts(
    store,
    name,
    {"version": _VERSION, **key},
    lambda: [{n: _narrowed(array) for n, array in build().items()}],
    num_documents,
  )


def load_or_build_parts(
  store: stores.Store,
  name: str,
  key: Mapping[str, Any],
  build: Callable[[], side_index.Parts],
  num_documents: int,
  most_in_memory: int | None = None,
) -> dict[str, columns.Column]:
  """Returns arrays, built in parts, as columns; files have their dtypes.

  Args:
    store: Where the documents are.
    name: Name of the side index.
    key: What the arrays depend on besides the store, as JSON values.
    build: Yields parts of the arrays.
    num_documents: How many documents `build` looks at.
    most_in_memory: Arrays of fewer values are read from disk into memory; None
      is MIN_ON_DISK.
  """
  if most_in_memory is None:
    most_in_memory = MIN_ON_DISK
  if num_documents < MIN_ON_DISK:
    parts = list(build())
    return {
      n: columns.ArrayColumn(
        np.concatenate([part[n] for part in parts if n in part]).astype(
          np.int64
        )
      )
      for n in dict.fromkeys(n for part in parts for n in part)
    }
  arrays = side_index.load_or_build(
    store.path, name, {"store": store.hash, **key}, build
  )
  return {
    n: columns.ArrayColumn(array.read().astype(np.int64))
    if len(array) < most_in_memory
    else array
    for n, array in arrays.items()
  }


def int64(column: columns.Column) -> np.ndarray:
  """Returns all values of a column, int64[D]."""
  return column.read().astype(np.int64, copy=False)


def _narrowed(values: np.ndarray) -> np.ndarray:
  """Returns values as uint32 where they fit."""
  narrow = int(values.max(initial=0)) <= _UINT32_MAX
  return values.astype(np.uint32) if narrow else values
