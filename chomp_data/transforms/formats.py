# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Converts canonical batches to the fields of other trainers.

A format keeps every field that it does not rename or use, such as `source_id`
and `document_id`; only `maxtext` drops the others. `KeepFields` keeps more of
them. Inputs may be shared and are not modified. docs/formats.md cites the
source of each trainer's fields. Formats use the array namespace of the fields,
NumPy's or JAX's.
"""

from collections.abc import Collection
import dataclasses
from typing import Any
from typing import ClassVar

import grain
import numpy as np

from chomp_data.rows import row_masks
from chomp_data.rows import targets as targets_lib
from chomp_data.transforms import fields

# Hugging Face and chomp leave labels of this value out of the loss.
IGNORED_LABEL = -100
# AXLearn leaves labels below 0 out of the loss.
NO_TARGET = -1


@dataclasses.dataclass(frozen=True)
class MaxTextFormat(grain.transforms.Map):
  """The fields of MaxText and of flax's gemma example.

      tokens                [5, 6, 7, 8]     segment_ids [1, 1, 2, 2]
      targets               [6, 7, 8, 8]     loss_mask   [1, 0, 1, 0]
      targets_segmentation  [1, 0, 2, 0]

  A target is trained on wherever its segmentation is not 0. The last column's
  target is `next_token` where the batch has it; otherwise it repeats the last
  token, untrained. Targets that the batch has replace these; those of further
  depths are `targets_2` and `targets_segmentation_2`. MaxText treats every
  field as rows of tokens, so there are no others: counts by source come from
  the plan.
  """

  on_devices: ClassVar[bool] = True

  def map(  # pyright: ignore[reportIncompatibleMethodOverride]
    self, element: fields.Batch
  ) -> fields.Batch:
    """Renames and shifts a batch.

    Args:
      element: Canonical fields, [B, S].

    Returns:
      `inputs`, `targets`, `inputs_position`, `targets_position`,
      `inputs_segmentation`, `targets_segmentation`, int32[B, S] each, and no
      other field.
    """
    segment_ids, positions = element["segment_ids"], element["positions"]
    batch = {
      "inputs": element["tokens"],
      "targets": _targets(element),
      "inputs_position": positions,
      "targets_position": positions,
      "inputs_segmentation": segment_ids,
      "targets_segmentation": segment_ids * element["loss_mask"],
    }
    for target, mask, _ in targets_lib.names_in(element):
      segmentation = target.replace("targets", "targets_segmentation")
      batch[target] = element[target]
      batch[segmentation] = segment_ids * element[mask]
    return batch


@dataclasses.dataclass(frozen=True)
class AXLearnFormat(grain.transforms.Map):
  """The fields of AXLearn's causal language models.

      input_ids      [5, 6, 7, 8]     loss_mask [1, 0, 1, 0]
      target_labels  [6, -1, 8, -1]

  Labels are shifted: the model predicts `target_labels[i]` from the columns up
  to i, and leaves out labels below 0. The last column's label is `next_token`
  where the batch has it and trains on it. Weights of a source become
  `live_targets`, floats that AXLearn uses in place of the mask of its labels.
  Targets that the batch has replace the labels; those of further depths are
  `target_labels_2` and `live_targets_2`.
  """

  on_devices: ClassVar[bool] = True

  def map(  # pyright: ignore[reportIncompatibleMethodOverride]
    self, element: fields.Batch
  ) -> fields.Batch:
    """Renames a batch and makes its labels.

    Args:
      element: Canonical fields, [B, S].

    Returns:
      `input_ids`, `target_labels`, `input_segment_ids`, `input_positions`,
      int32[B, S] each, `live_targets` float32[B, S] where there are weights,
      and the unchanged fields by row.
    """
    batch = dict(element)
    if "loss_weight" in batch:
      batch["live_targets"] = batch.pop("loss_weight")
    targets = _targets(element)
    xp = targets.__array_namespace__()
    labels = xp.where(batch.pop("loss_mask"), targets, NO_TARGET)
    labels = {"target_labels": labels}
    for names in targets_lib.names_in(element):
      end = names[0].removeprefix("targets")
      targets, mask, weight = (batch.pop(name, None) for name in names)
      labels[f"target_labels{end}"] = xp.where(mask, targets, NO_TARGET)
      if weight is not None:
        batch[f"live_targets{end}"] = weight
    for unused in ("next_token", *fields.FOR_MASKS):
      batch.pop(unused, None)
    return {
      "input_ids": batch.pop("tokens"),
      **{
        name: value.astype(xp.int32, copy=False)
        for name, value in labels.items()
      },
      "input_segment_ids": batch.pop("segment_ids"),
      "input_positions": batch.pop("positions"),
      **batch,
    }


@dataclasses.dataclass(frozen=True)
class KeepFields(grain.transforms.Map):
  """Another transform, of whose input some fields are kept.

  Attributes:
    transform: The other one.
    names: The fields.
  """

  transform: grain.transforms.Map
  names: tuple[str, ...]

  @property
  def on_devices(self) -> bool:
    """Whether the other one may run on devices."""
    return getattr(self.transform, "on_devices", False)

  def map(  # pyright: ignore[reportIncompatibleMethodOverride]
    self, element: fields.Batch
  ) -> fields.Batch:
    """Applies the other transform; returns its fields and those of `names`."""
    batch: Any = self.transform.map(element)
    return {**batch, **{name: element[name] for name in self.names}}


def _targets(batch: fields.Batch) -> Any:
  """Returns the token after each column; the last one repeats without one."""
  tokens = batch["tokens"]
  last_target = batch.get("next_token", tokens[..., -1])
  return row_masks.before_end(tokens[..., 1:], last_target)


@dataclasses.dataclass(frozen=True)
class ChompFormat(grain.transforms.Map):
  """The fields of chomp, and of Hugging Face's causal language models.

      tokens     [5, 6, 7, 8]     loss_mask [1, 0, 1, 0]
      labels     [-100, 6, -100, 8]

  Labels are not shifted: the model predicts `labels[i]` from the tokens before
  i. So the token after the last column is not a label, and the first column has
  no label; `loss_weight`, where a source has weights, weighs the label of the
  same column. `segment_ids` are kept, but the model attends across documents,
  and takes no positions.
  """

  on_devices: ClassVar[bool] = True

  def map(  # pyright: ignore[reportIncompatibleMethodOverride]
    self, element: fields.Batch
  ) -> fields.Batch:
    """Renames a batch and makes its labels.

    Args:
      element: Canonical fields with `attention_mask`, [B, S].

    Returns:
      `input_ids`, `labels` int32[B, S], `attention_mask` bool[B, S] (True for
      real tokens), `segment_ids` int32[B, S], and the unchanged fields by
      row.

    Raises:
      ValueError: If `attention_mask` is missing.
    """
    batch = dict(element)
    weight = batch.pop("loss_weight", None)
    if weight is not None:
      batch["loss_weight"] = _after_begin(weight[..., :-1], 0)
    attention_mask = fields.needed(batch, "attention_mask", self)
    tokens = batch.pop("tokens")
    loss_mask = batch.pop("loss_mask")
    for unused in ("positions", "next_token", *fields.FOR_MASKS):
      batch.pop(unused, None)
    xp = tokens.__array_namespace__()
    labels = xp.where(loss_mask[..., :-1], tokens[..., 1:], IGNORED_LABEL)
    return {
      "input_ids": tokens,
      "labels": _after_begin(labels, IGNORED_LABEL),
      "attention_mask": attention_mask,
      "segment_ids": batch.pop("segment_ids"),
      **batch,
    }


@dataclasses.dataclass(frozen=True)
class LevanterFormat(grain.transforms.Map):
  """The arrays of Levanter's `GrugLmExample` and `LmExample`.

      tokens       [5, 6, 7, 8]     segment_ids [1, 1, 2, 2]
      loss_weight  [1., 0., 1., 0.]

  `loss_weight[i]` weighs the prediction of `tokens[i + 1]`; Levanter makes
  targets by rolling tokens, so the last column never has weight.
  """

  on_devices: ClassVar[bool] = True

  def map(  # pyright: ignore[reportIncompatibleMethodOverride]
    self, element: fields.Batch
  ) -> fields.Batch:
    """Makes weights from the mask and the weights of a batch.

    Args:
      element: Canonical fields, [B, S].

    Returns:
      `tokens` int32, `loss_weight` float32, `segment_ids` int32, `positions`
      int32, [B, S] each, and the unchanged fields by row.
    """
    batch = dict(element)
    mask = batch.pop("loss_mask")
    loss_weight = mask.astype(mask.__array_namespace__().float32)
    if "loss_weight" in batch:
      loss_weight = loss_weight * batch.pop("loss_weight")
    loss_weight = row_masks.before_end(loss_weight[..., :-1])
    for unused in ("next_token", *fields.FOR_MASKS):
      batch.pop(unused, None)
    return {
      "tokens": batch.pop("tokens"),
      "loss_weight": loss_weight,
      "segment_ids": batch.pop("segment_ids"),
      "positions": batch.pop("positions"),
      **batch,
    }


def _after_begin(values: Any, first_value: int) -> Any:
  """Prepends a first column to the values of the other columns."""
  xp = values.__array_namespace__()
  begin = xp.full((*values.shape[:-1], 1), first_value, values.dtype)
  return xp.concatenate([begin, values], axis=-1)


@dataclasses.dataclass(frozen=True)
class Format:
  """A batch format and the canonical fields that it needs.

  Attributes:
    transform: The transform; None leaves batches canonical. Its attribute
      `on_devices = True` says that its integers are token ids, segments,
      positions, or -256 to -1, so that `device_fields` may narrow them.
      Without it, batches are sent in full.
    needs: Optional canonical fields that it requires.
    lookahead: Whether it can train on the token after the last column
      (`next_token`).
    name: Its name in fingerprints, if it is an alias of another format.
    weights: Whether its batches have the weights of tokens, if sources do.
    targets: Whether its batches have a field of targets beside the tokens.
  """

  transform: type[grain.transforms.Map] | None
  needs: tuple[str, ...] = ()
  lookahead: bool = False
  name: str | None = None
  weights: bool = True
  targets: bool = False

  def replaced(
    self, names: Collection[str], canonical: Collection[str]
  ) -> list[str]:
    """Returns which fields would replace fields of the format.

    Args:
      names: Canonical fields and columns of stores.
      canonical: All canonical fields that a batch may have.
    """
    if self.transform is None:
      return []
    # The only one without columns; no format passes it on.
    columns = set(canonical) - {"next_token"}
    example = {name: np.zeros((1, 2), np.int32) for name in columns}
    batch: Any = self.transform().map(example)
    return [
      name
      for name in names
      if name in batch and batch[name] is not example.get(name)
    ]


FORMATS: dict[str, Format] = {
  "canonical": Format(None, lookahead=True),
  "maxtext": Format(MaxTextFormat, lookahead=True, weights=False, targets=True),
  "chomp": Format(ChompFormat, needs=("attention_mask",)),
  "huggingface": Format(ChompFormat, needs=("attention_mask",), name="chomp"),
  "levanter": Format(LevanterFormat),
  "axlearn": Format(AXLearnFormat, lookahead=True, targets=True),
}
