# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""`config.data` of a few small stores, in rows of 16 tokens or in buckets."""

from collections.abc import Iterable
from collections.abc import Mapping
import itertools
from typing import Any

SEQ_LEN = 16


def of_rows(
  stores: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], **changes: Any
) -> dict[str, Any]:
  """Returns a run of rows, of a mix where there are several stores.

  Args:
    stores: Paths of stores by the name of their source.
    rows: The sections `rows` of the sources, in turn.
    **changes: Other fields.
  """
  data = {
    "seed": 5,
    "seq_len": SEQ_LEN,
    "global_batch_size": 4,
    "epochs": 2,
    "sources": {
      name: {"store": str(path), "rows": dict(kind)}
      for (name, path), kind in zip(stores.items(), itertools.cycle(rows))
    },
    **changes,
  }
  if len(stores) > 1:
    data.setdefault("mix", {"weights": dict.fromkeys(stores, 1)})
  return data


def in_buckets(data: Mapping[str, Any], **rows: Any) -> dict[str, Any]:
  """Returns a run of rows in buckets of 4, 8 and 16 tokens instead.

  Args:
    data: What `of_rows` returns.
    **rows: The section `rows` of all sources.
  """
  data = {**data, "remainder": "pad"}
  del data["seq_len"], data["global_batch_size"]
  data["buckets"] = {
    "kind": "length", "lengths": (4, 8, SEQ_LEN), "tokens_per_batch": 64,
  }  # fmt: skip
  data["sources"] = {
    name: {"store": own["store"], "rows": rows}
    for name, own in data["sources"].items()
  }
  return data
