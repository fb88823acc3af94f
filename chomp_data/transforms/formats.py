"""Field names of other trainers, made from canonical batches at the edge."""

import grain
import numpy as np

Batch = dict[str, np.ndarray]


class MaxTextFormat(grain.transforms.Map):
  """The fields of MaxText and of flax's gemma example.

  A target is trained on wherever its segmentation is not 0. The last column
  has no target: its segmentation is 0.
  """

  def map(  # pyright: ignore[reportIncompatibleMethodOverride]
    self, element: Batch
  ) -> Batch:
    """Renames and shifts a batch.

    Args:
      element: Canonical fields, [B, S].

    Returns:
      `inputs`, `targets`, `inputs_position`, `targets_position`,
      `inputs_segmentation`, `targets_segmentation`, int32[B, S] each, and the
      fields of lower rank as they were.
    """
    batch = dict(element)
    tokens = batch.pop("tokens")
    segment_ids = batch.pop("segment_ids")
    positions = batch.pop("positions")
    loss_mask = batch.pop("loss_mask")
    targets = np.empty_like(tokens)
    targets[:, :-1] = tokens[:, 1:]
    targets[:, -1] = tokens[:, -1]
    return {
      "inputs": tokens,
      "targets": targets,
      "inputs_position": positions,
      "targets_position": positions,
      "inputs_segmentation": segment_ids,
      "targets_segmentation": segment_ids * loss_mask,
      **batch,
    }


# The transform of each batch format; None hands canonical batches on.
FORMATS: dict[str, type[grain.transforms.Map] | None] = {
  "canonical": None,
  "maxtext": MaxTextFormat,
}
