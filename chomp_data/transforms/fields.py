# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers of the transforms: masks and optional fields of batches.

Transforms use the array namespace of the fields, NumPy's or JAX's, so that they
run on devices as on the host.
"""

from typing import Any

# Fields of one row [S], or of a batch [B, S].
Batch = dict[str, Any]

# Fields that masks are made from; formats leave them out.
FOR_MASKS = ("attention_mask", "label_weight")


def masked(batch: Batch, mask: Any) -> Batch:
  """Replaces `loss_mask` of a batch; `loss_weight` is 0 where it is False.

  Args:
    batch: Canonical fields.
    mask: bool[..., S].
  """
  masked_batch = {**batch, "loss_mask": mask}
  if "loss_weight" in batch:
    masked_batch["loss_weight"] = batch["loss_weight"] * mask
  return masked_batch


def needed(batch: Batch, name: str, by: object) -> Any:
  """Returns an optional field of a batch.

  Args:
    batch: Canonical fields.
    name: The field.
    by: The transform that needs it, for the message.

  Raises:
    ValueError: If the batch does not have it.
  """
  if name not in batch:
    # Not a ConfigError: the exception must survive pickling by a worker.
    raise ValueError(
      f"`batch` must hold `{name}` for {by}, got the fields"
      f" {', '.join(sorted(batch)) or 'none'}. Rows of a row source or a mix"
      " hold it: keep it until here."
    )
  return batch[name]
