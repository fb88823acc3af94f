# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How often documents come in some rows of a source, all documents at once.

Epochs that hold as many spans of every document as others are counted once.
"""

import numpy as np

from chomp_data.phased import source_trail

# Rows planned at once.
_BLOCK = 65_536


def counts(source: source_trail.Ordered, first: int, last: int) -> np.ndarray:
  """Returns the spans of each document in rows first .. last - 1.

  Args:
    source: In its order.
    first: A row, counted through epochs.
    last: The row after the last.

  Returns:
    int64[num_documents], by number in the store of all its stores.
  """
  out = np.zeros(source.store.num_documents, np.int64)
  if first >= last:
    return out
  epochs, index = source.epochs.locate(np.asarray([first, last]))
  low, high = epochs.tolist()
  if low == high:
    return _add(out, source, first, last)
  if index[0]:
    _add(out, source, first, source.epochs.start(low + 1))
    low += 1
  _add(out, source, source.epochs.start(high), last)
  while low < high:
    low += _add_epochs(out, source, low, high)
  return out


def _add_epochs(
  out: np.ndarray, source: source_trail.Ordered, epoch: int, end: int
) -> int:
  """Adds a whole epoch, and those like it before `end`; returns how many."""
  phase = [other for begins, other in source.phases if begins <= epoch][-1]
  alike = 1
  if phase.rows.tracing.repeats and epoch >= phase.epochs.ramp:
    later = [begins for begins, _ in source.phases if begins > epoch]
    alike = min([end, *later]) - epoch
  own = phase.rows.tracing.counts(epoch)
  if own is None:
    # In no order: what is packed or read together is planned together.
    own = np.zeros(phase.rows.store.num_documents, np.int64)
    start = phase.rows.epochs.start(epoch)
    _add(own, phase.rows, start, start + phase.rows.epochs.size(epoch))
  # A phase has no documents of stores that join after it.
  out[: len(own)] += alike * own
  return alike


def _add(out: np.ndarray, source, first: int, last: int) -> np.ndarray:
  """Adds the spans of planned rows."""
  for low in range(first, last, _BLOCK):
    spans = source.plan(np.arange(low, min(low + _BLOCK, last)))
    np.add.at(out, spans.document, 1)
  return out
