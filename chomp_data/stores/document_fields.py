# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Several metadata fields of a document in the one string a store keeps.

    {"lang": "en", "source": "wiki"}  <->  '{"lang":"en","source":"wiki"}'

The string is a JSON object with sorted keys, whose values are strings. It is
stored where `--meta_key` stores a single value, so checksums, copies, merges
and splits treat both alike.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import json
from typing import TYPE_CHECKING

import numpy as np

from chomp_data import errors

if TYPE_CHECKING:  # What prepare's workers import needs no store.
  from chomp_data.stores import base


def encoded(fields: Mapping[str, str]) -> str:
  """Returns the string that a store keeps of a document's fields."""
  return json.dumps(
    fields, sort_keys=True, ensure_ascii=False, separators=(",", ":")
  )


def values(
  store: "base.Store",
  documents: Sequence[int] | np.ndarray,
  keys: Sequence[str],
) -> list[tuple[str, ...]]:
  """Returns the values of some fields of documents, in the order given.

  Args:
    store: Where the documents are.
    documents: Their numbers.
    keys: The fields.

  Raises:
    StoreError: If the store keeps no such field.
  """
  if store.opened.meta is None:
    raise _without(store, keys[0], ())
  out = []
  for text in store.opened.meta.take(np.asarray(documents, np.int64)):
    fields = _decoded(text)
    for key in keys:
      if key not in fields:
        raise _without(store, key, fields)
    out.append(tuple(fields[key] for key in keys))
  return out


def _decoded(text: str) -> dict[str, str]:
  """Returns the fields in a string; none where it is a single value."""
  if not text.startswith("{"):
    return {}
  try:
    fields = json.loads(text)
  except (ValueError, RecursionError):
    return {}
  return {k: value for k, value in fields.items() if isinstance(value, str)}


def _without(
  store: "base.Store", key: str, known: Sequence[str] | Mapping[str, str]
) -> errors.StoreError:
  stored = f"the fields {', '.join(known)}" if known else "no fields"
  return errors.StoreError(
    f"{store.path} must keep the field {key!r} of each document, got {stored}."
    " Prepare it with --meta_keys, or name another field."
  )
