# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The raw gather: rows of a mapped array by random numbers, nothing else."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from peer_loaders import base

DISTRIBUTION = "numpy"
KINDS = {"one source": "`big[idx].astype(np.int32)`"}


def prepare(setting: base.Setting) -> None:
  """There is nothing to write."""
  del setting


class Loader(base.Loader):
  """See the module; it has no state and no epochs."""

  def epoch(self) -> Iterator[base.Batch]:
    """Draws rows for ever."""
    big = self.setting.rows(self.setting.names[0])
    rng = np.random.default_rng(0)
    while True:
      index = rng.integers(0, len(big), size=(100, self.setting.batch_size))
      for places in index:
        yield {"tokens": big[places].astype(np.int32)}

  def state(self) -> Any:
    """There is none."""
    raise NotImplementedError

  def restore(self, state: Any) -> None:
    """There is none."""
    raise NotImplementedError
