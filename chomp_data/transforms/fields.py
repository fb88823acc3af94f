# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What the transforms share: batches as mappings, and their optional fields.

They are written over an array namespace, NumPy's or JAX's, whichever made the
fields: so a batch format is made on devices as on the host.
"""

from typing import Any

# Fields of one row [S], or of a batch [B, S].
Batch = dict[str, Any]

# Fields from which masks are made, and which formats leave out.
FOR_MASKS = ("attention_mask", "label_weight")


def masked(batch: Batch, mask: Any) -> Batch:
  """Returns a batch with another `loss_mask`, weights 0 where it is False.

  Args:
    batch: Canonical fields.
    mask: bool[..., S].
  """
  out = {**batch, "loss_mask": mask}
  if "loss_weight" in batch:
    out["loss_weight"] = batch["loss_weight"] * mask
  return out


def needed(batch: Batch, name: str, by: object) -> Any:
  """Returns a field that not every batch has.

  Args:
    batch: Canonical fields.
    name: The field.
    by: Who needs it, for the message.

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
