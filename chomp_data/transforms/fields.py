"""What the transforms share: batches as mappings, and their optional fields."""

import numpy as np

# Fields of one row [S], or of a batch [B, S].
Batch = dict[str, np.ndarray]


def masked(batch: Batch, mask: np.ndarray) -> Batch:
  """Returns a batch with another `loss_mask`, weights 0 where it is False.

  Args:
    batch: Canonical fields.
    mask: bool[..., S].
  """
  out = {**batch, "loss_mask": mask}
  if "loss_weight" in batch:
    out["loss_weight"] = batch["loss_weight"] * mask
  return out


def needed(batch: Batch, name: str, by: object) -> np.ndarray:
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
      f" {', '.join(sorted(batch)) or 'none'}. Ask the source for it."
    )
  return batch[name]
