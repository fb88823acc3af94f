# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The names of the fields of batches, of all formats."""

from chomp_data.rows import targets

# Fields whose second axis is the columns of rows.
OF_COLUMNS = frozenset(
  (
    *("tokens", "segment_ids", "positions", "loss_mask", "attention_mask"),
    *("loss_weight", "label_weight", "inputs", "inputs_position"),
    *("targets_position", "inputs_segmentation", "input_ids", "labels"),
    *("input_segment_ids", "input_positions"),
  )
).union(
  name.replace("targets", other)
  for depth in range(1, targets.MAX_TARGETS + 1)
  for name in targets.names(depth)
  for other in (
    "targets",
    "targets_segmentation",
    "target_labels",
    "live_targets",
  )
)
# Those of rows, whatever their width.
OF_ROWS = frozenset(("document_id", "pair_mask"))

_OTHERS = frozenset(("source_id", "next_token"))


def is_field(name: str) -> bool:
  """Returns whether batches may have a field of a name."""
  return name in OF_COLUMNS or name in OF_ROWS or name in _OTHERS
