"""Applying transforms to one batch, outside of a loader."""

from collections.abc import Sequence
from typing import Any

import grain
import numpy as np

from chomp_data import schema


def applied(batch: Any, transforms: Sequence[Any]) -> Any:
  """Returns a batch after transforms, as Grain applies them.

  Args:
    batch: Fields by name.
    transforms: Grain Map or RandomMap transforms.

  Raises:
    ConfigError: If there is another one.
  """
  for operation in transforms:
    if not isinstance(
      operation, grain.transforms.Map | grain.transforms.RandomMap
    ):
      raise schema.ConfigError(
        [
          "`operations` must be Grain Map or RandomMap transforms, got"
          f" {operation!r}. Others change how many batches there are."
        ]
      )
    if isinstance(operation, grain.transforms.RandomMap):
      batch = operation.random_map(batch, np.random.default_rng(0))
    else:
      batch = operation.map(batch)
  return batch
