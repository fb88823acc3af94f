# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads planned rows in the format in which they are sent to devices.

`row_reading` makes the fields of a batch on the host. Here the same tokens and
labels are encoded in fewer bytes by `transfer_format`; devices decode them.
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


def format_of(
  sources: Iterable[row_reading.Readable],
  extra: Collection[str] = (),
  document_slots: int = 0,
  masks_spans: bool = False,
) -> transfer_format.TransferFormat:
  """Returns the transfer format of rows, one for all sources of a run.

  Args:
    sources: All sources of the rows.
    extra: The optional fields that are sent, such as "attention_mask".
    document_slots: Documents of a row in `document_id`; 0 sends none.
    masks_spans: Whether spans may be masked.
  """
  sources = list(sources)
  layouts = [source.layout for source in sources]
  ids = [token for layout in layouts for token in layout.special_ids]
  return transfer_format.TransferFormat(
    seq_len=layouts[0].seq_len,
    wide=transfer_format.is_wide(ids)
    or any(source.store.opened.token_dtype.itemsize > 2 for source in sources),
    restarts=any(layout.positions == "segment" for layout in layouts),
    masks_spans=masks_spans,
    extra=frozenset(extra),
    document_slots=document_slots,
    mixed=len(set(layouts)) > 1,
  )


def read(
  sources: Mapping[int, row_reading.Readable],
  spans: spans_lib.Spans,
  row_format: transfer_format.TransferFormat,
  columns: tuple[int, int] | None = None,
) -> np.ndarray:
  """Reads planned rows.

  Args:
    sources: By number, at least those that spans are of.
    spans: The plan.
    row_format: Their transfer format.
    columns: (first, last + 1) of the columns whose tokens and labels are read,
      or None for all; tokens of others are padding.

  Returns:
    uint16[num_rows, row_format.words].
  """

  def read_part(
    part_sources: Mapping[int, row_reading.Readable], part: spans_lib.Spans
  ) -> dict[str, np.ndarray]:
    return {"rows": _read(part_sources, part, row_format, columns)}

  return row_reading.read_apart(
    sources, spans, not row_format.mixed, read_part
  )["rows"]


def _read(
  sources: Mapping[int, row_reading.Readable],
  spans: spans_lib.Spans,
  row_format: transfer_format.TransferFormat,
  columns: tuple[int, int] | None,
) -> np.ndarray:
  """Reads rows of sources that share a layout."""
  layout = next(iter(sources.values())).layout
  writer = transfer_format.Writer(row_format, spans.num_rows)
  writer.patterns(spans, layout.trailing_filler_in_segment)
  writer.of_run(spans.row_source(), layout.positions == "segment")
  if row_format.document_slots:
    writer.documents(spans.row_documents(row_format.document_slots))
  tokens = row_layout.token_grid(spans, layout)
  # Masked spans are padding in all that follows.
  spans = spans.live()
  fetched = spans if columns is None else spans.in_columns(*columns)
  row_reading.copy_tokens(sources, fetched, tokens)
  writer.tokens(tokens)
  stores = {number: source.store for number, source in sources.items()}
  if row_format.weighs or any(
    store.labels.has_runs for store in stores.values()
  ):
    runs = row_labels.runs_of(stores, fetched, layout.seq_len)
    writer.labels(runs.trained_grid(*tokens.shape))
    if row_format.weighs:
      writer.weights(runs.weight_grid(*tokens.shape))
  if "next_token" in row_format.extra:
    writer.following(
      *row_reading.read_following(sources, spans, layout.filler_id)
    )
  return writer.rows
