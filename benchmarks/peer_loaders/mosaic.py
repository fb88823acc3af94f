# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""MosaicML Streaming: MDS shards of rows, then `StreamingDataset`."""

# What is imported is in an environment of its own.
# pyright: reportMissingImports=false

from collections.abc import Iterator
from typing import Any

import numpy as np
from peer_loaders import base

base.import_torchvision()
import streaming  # noqa: E402

DISTRIBUTION = "mosaicml-streaming"
KINDS = {
  "one source": "`StreamingDataset(shuffle=True)`, MDS, torch's collator",
  "mix": "`Stream(proportion=)`, torch's collator",
}


def prepare(setting: base.Setting) -> None:
  """Writes rows as `ndarray:uint16:2048`."""
  for name in setting.names:
    path = setting.place("mosaic") / name
    if not path.exists():
      with streaming.MDSWriter(
        out=str(path), columns={"tokens": f"ndarray:uint16:{base.SEQ_LEN}"}
      ) as out:
        for row in setting.rows(name):
          out.write({"tokens": np.array(row)})


class Loader(base.Loader):
  """See the module; ranks come from the environment, as launchers set it."""

  def __init__(self, setting: base.Setting):
    """Opens the shards."""
    super().__init__(setting)
    base.init_process_group(setting)
    place = setting.place("mosaic")
    mixed = len(setting.names) > 1
    streams = [
      streaming.Stream(
        local=str(place / name), proportion=weight if mixed else None
      )
      for name, weight in zip(setting.names, setting.weights, strict=True)
    ]
    self._loader = streaming.StreamingDataLoader(
      streaming.StreamingDataset(
        streams=streams,
        shuffle=True,
        shuffle_seed=0,
        batch_size=setting.local_rows,
      ),
      batch_size=setting.local_rows,
      num_workers=0,
      drop_last=True,
    )

  def epoch(self) -> Iterator[base.Batch]:
    """Iterates the loader."""
    for batch in self._loader:
      yield {"tokens": batch["tokens"].numpy().astype(np.int32)}

  def state(self) -> Any:
    """Returns the loader's state."""
    return self._loader.state_dict()

  def restore(self, state: Any) -> None:
    """See the class above."""
    self._loader.load_state_dict(state)
