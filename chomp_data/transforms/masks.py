# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Grain transforms that change loss masks and positions of batches.

Each transform returns new arrays for the fields that it changes and keeps the
others, because its input may be shared. Padding is never trained on: the
`loss_mask` of sources excludes it, and the only transform that adds positions
uses `attention_mask`, not segments (the trailing padding of a splice is in its
document's segment).

Canonical fields, [B, S] (or [S], one row): `tokens`, `segment_ids`,
`positions` int32, `loss_mask` bool; `source_id` int32[B]; optional are
`attention_mask` bool[B, S], True for real tokens, `next_token` int32[B], the
token after the last column where its document continues, else padding,
`loss_weight` float32[B, S], 0 where `loss_mask` is False, `label_weight`
float32[B, S], the weight of each position's token as a target, and `targets`
int32[B, S] with `target_mask` bool[B, S] and perhaps `target_weight`, also of
further depths (`targets_2`), which are made by `rows/targets`.
"""

import dataclasses
from typing import ClassVar

import grain
import numpy as np

from chomp_data import schema
from chomp_data.rows import row_masks
from chomp_data.rows import targets
from chomp_data.transforms import fields

_MAX_TOKEN = 2**31 - 1
_NO_EOS = -1

_EOS_IDS = schema.sequence(schema.optional(schema.integer(0, _MAX_TOKEN)))


@dataclasses.dataclass(frozen=True)
class MaskBoundaryLoss(schema.Options, grain.transforms.Map):
  """Leaves out labels at segment transitions, or trains on them too.

      segment_ids       [1, 1, 1, 2, 2, 2]   the last column is padding
      loss_mask, True   [1, 1, 0, 1, 0, 0]
      loss_mask, False  [1, 1, 1, 1, 0, 0]

  A last column is trained on only where the batch has `next_token`. With
  `label_weight`, tokens of weight 0 do not become labels.

  Attributes:
    enabled: Whether the first token of a segment is left out as a label of
      the token before it.
  """

  on_devices: ClassVar[bool] = True

  enabled: bool = schema.option(True, schema.boolean())

  def map(  # pyright: ignore[reportIncompatibleMethodOverride]
    self, element: fields.Batch
  ) -> fields.Batch:
    """Changes `loss_mask`.

    Args:
      element: Canonical fields; with enabled=False also `attention_mask`.

    Returns:
      The batch with a new `loss_mask` and without `label_weight`.

    Raises:
      ValueError: If `attention_mask` is needed and missing.
    """
    element = dict(element)
    label_weight = element.pop("label_weight", None)
    segment_ids, loss_mask = element["segment_ids"], element["loss_mask"]
    ahead = "next_token" in element
    if self.enabled:
      mask = row_masks.successor_mask(segment_ids)
      if ahead:
        last_target = segment_ids[..., -1] != 0
        mask = row_masks.before_end(mask[..., :-1], last_target)
      mask = mask & loss_mask
    else:
      real = fields.needed(element, "attention_mask", self)
      both = row_masks.before_end(real[..., :-1] & real[..., 1:])
      mask = row_masks.crossing_mask(segment_ids) & both
      if label_weight is not None:
        target = row_masks.before_end(label_weight[..., 1:])
        mask = mask & (target > 0)
        if "loss_weight" in element:
          xp = mask.__array_namespace__()
          weight = xp.where(mask, target, element["loss_weight"])
          element["loss_weight"] = weight
      mask = mask | loss_mask
      if not ahead:
        mask = row_masks.before_end(mask[..., :-1])
    return fields.masked(element, mask)


@dataclasses.dataclass(frozen=True)
class TrainOnEos(schema.Options, grain.transforms.Map):
  """Trains on the end of documents, or leaves those labels out.

      tokens            [5, 6, 9, 7, 8, 9]   eos_ids (9,)
      loss_mask, True   [1, 1, 0, 1, 1, 0]
      loss_mask, False  [1, 0, 0, 1, 0, 0]

  It comes after `MaskBoundaryLoss`, which may add labels that are EOS.

  Attributes:
    enabled: Whether EOS is a label.
    eos_ids: The EOS of each source by `source_id`; None = it has none.
  """

  on_devices: ClassVar[bool] = True

  enabled: bool = schema.option(True, schema.boolean())
  eos_ids: tuple[int | None, ...] = schema.option((), _EOS_IDS)

  def map(  # pyright: ignore[reportIncompatibleMethodOverride]
    self, element: fields.Batch
  ) -> fields.Batch:
    """Changes `loss_mask`.

    Args:
      element: Canonical fields.

    Returns:
      The batch, with a new `loss_mask` where enabled is False.

    Raises:
      ValueError: If `source_id` is missing, or beyond `eos_ids`.
    """
    if self.enabled:
      return element
    xp = element["tokens"].__array_namespace__()
    source_id = xp.asarray(fields.needed(element, "source_id", self))
    # Values on devices are not checked; the pipeline made them.
    looks = xp is np and source_id.size
    if looks and not -1 <= source_id.min() <= source_id.max() < len(
      self.eos_ids
    ):
      raise ValueError(
        f"`source_id` must be -1 .. {len(self.eos_ids) - 1}, one of"
        f" `eos_ids`, got {source_id.min()} .. {source_id.max()}. Give"
        " `eos_ids` an entry for each source."
      )
    # Rows of padding have source -1, which is the last entry.
    eos_of = xp.asarray(
      [*(_NO_EOS if e is None else e for e in self.eos_ids), _NO_EOS], xp.int32
    )
    mask = row_masks.eos_targets(
      element["tokens"], eos_of[source_id], element.get("next_token")
    )
    batch = fields.masked(element, ~mask & element["loss_mask"])
    eos = eos_of[source_id][..., None]
    for target, mask, weight in targets.names_in(batch):
      batch[mask] = batch[mask] & ~((batch[target] == eos) & (eos >= 0))
      if weight in batch:
        batch[weight] = batch[weight] * batch[mask]
    return batch


@dataclasses.dataclass(frozen=True)
class ResetPositions(schema.Options, grain.transforms.Map):
  """Counts positions from the start of each segment, or of the row.

      segment_ids       [1, 1, 1, 2, 2, 0]
      positions, True   [0, 1, 2, 0, 1, 0]
      positions, False  [0, 1, 2, 3, 4, 5]

  Attributes:
    enabled: Whether each segment starts at 0.
  """

  enabled: bool = schema.option(True, schema.boolean())

  def map(  # pyright: ignore[reportIncompatibleMethodOverride]
    self, element: fields.Batch
  ) -> fields.Batch:
    """Changes `positions`.

    Args:
      element: Canonical fields.

    Returns:
      The batch with new `positions`.
    """
    segment_ids = element["segment_ids"]
    positions = (
      row_masks.segment_positions(segment_ids)
      if self.enabled
      else row_masks.column_positions(segment_ids.shape)
    )
    return {**element, "positions": positions}
