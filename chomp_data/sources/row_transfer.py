# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Planned rows as they travel to devices, where fields are made of them.

What `row_reading` reads and places on the host, encoded by `transfer_format`.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping

import numpy as np

from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import transfer_format
from chomp_data.sources import row_labels
from chomp_data.sources import row_reading


def wire_of(
  sources: Iterable[row_reading.Readable],
  extra: Collection[str] = (),
  document_slots: int = 0,
  gone: bool = False,
) -> transfer_format.Wire:
  """Returns how rows of some sources travel, in one form for all of them.

  Args:
    sources: All whose rows there may be.
    extra: As in `RowSource.read`.
    document_slots: Documents of `document_id`; 0 is without it.
    gone: Whether spans may be gone.
  """
  sources = list(sources)
  layouts = [own.layout for own in sources]
  ids = [
    token
    for own in layouts
    for token in (
      own.filler_id,
      own.token_before_document,
      own.bos_id,
      own.eos_id,
    )
  ]
  return transfer_format.Wire(
    seq_len=layouts[0].seq_len,
    wide=transfer_format.is_wide(ids)
    or any(own.store.token_dtype.itemsize > 2 for own in sources),
    restarts=any(own.positions == "segment" for own in layouts),
    gone=gone,
    extra=frozenset(extra),
    document_slots=document_slots,
    mixed=len(set(layouts)) > 1,
  )


def read(
  sources: Mapping[int, row_reading.Readable],
  spans: spans_lib.Spans,
  wire: transfer_format.Wire,
  columns: tuple[int, int] | None = None,
) -> np.ndarray:
  """Reads planned rows.

  Args:
    sources: By number, at least those that spans are of.
    spans: The plan.
    wire: How they travel.
    columns: As in `RowSource.read`.

  Returns:
    uint16[num_rows, wire.words].
  """
  parts = [
    (rows, _read(some, part, wire, columns))
    for rows, some, part in row_reading.by_layout(
      sources, spans, not wire.mixed
    )
  ]
  if len(parts) == 1:
    return parts[0][1]
  out = np.empty((spans.num_rows, wire.words), np.uint16)
  for rows, encoded in parts:
    out[rows] = encoded
  return out


def _read(
  sources: Mapping[int, row_reading.Readable],
  spans: spans_lib.Spans,
  wire: transfer_format.Wire,
  columns: tuple[int, int] | None = None,
) -> np.ndarray:
  """Reads rows of sources that share a layout."""
  layout = next(iter(sources.values())).layout
  out = transfer_format.Writer(wire, spans.num_rows)
  out.patterns(spans, layout.trailing_filler_in_segment)
  out.of_run(spans.row_source(), layout.positions == "segment")
  if wire.document_slots:
    out.documents(spans.row_documents(wire.document_slots))
  tokens = row_layout.token_grid(spans, layout)
  # Masked spans are padding in all that follows.
  spans = spans.live()
  fetched = spans if columns is None else spans.in_columns(*columns)
  row_reading.copy_tokens(sources, fetched, tokens)
  out.tokens(tokens)
  stores = {number: own.store for number, own in sources.items()}
  if wire.weighs or any(own.has_labels for own in stores.values()):
    runs = row_labels.runs_of(stores, fetched, layout.seq_len)
    out.labels(runs.trained_grid(*tokens.shape))
    if wire.weighs:
      out.weights(runs.weight_grid(*tokens.shape))
  if "next_token" in wire.extra:
    out.following(*row_reading.read_following(sources, spans, layout.filler_id))
  return out.rows
