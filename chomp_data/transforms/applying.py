# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Applying transforms to one batch, outside of a loader."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import grain
import numpy as np

from chomp_data import schema


def _transforms(value: Any) -> Any:
  """Returns transforms as a tuple; raises unless each is a Map or RandomMap."""
  kinds = (grain.transforms.Map, grain.transforms.RandomMap)
  if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
    raise TypeError
  value = tuple(value)
  if not all(isinstance(transform, kinds) for transform in value):
    raise ValueError
  return value


TRANSFORMS = schema.Rule(
  "a list of Grain Map or RandomMap transforms (others change how many batches"
  " there are)",
  _transforms,
)


def applied(batch: Any, transforms: Sequence[Any]) -> Any:
  """Applies transforms to a batch as Grain does.

  Args:
    batch: Fields by name.
    transforms: Grain Map or RandomMap transforms.

  Raises:
    ConfigError: If one is of another class.
  """
  for operation in schema.argument("operations", TRANSFORMS, transforms):
    if isinstance(operation, grain.transforms.RandomMap):
      batch = operation.random_map(batch, np.random.default_rng(0))
    else:
      batch = operation.map(batch)
  return batch
