# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""LitData: `optimize` with `TokensLoader`, then `StreamingDataset`.

Chunks of uint16 tokens, read by memory map: rows of a stream of documents.
"""

# What is imported is in an environment of its own.
# pyright: reportMissingImports=false

from collections.abc import Iterator
from typing import Any

import litdata
import numpy as np
from peer_loaders import base
import torch

DISTRIBUTION = "litdata"
KINDS = {
  "one source": (
    "`StreamingDataset(TokensLoader, shuffle=True)`, torch's collator"
  ),
  "mix": "`CombinedStreamingDataset`, torch's collator",
}


def _document(index: int, setting: base.Setting, name: str) -> Any:
  first, last = setting.offsets(name)[index : index + 2]
  return torch.from_numpy(np.array(setting.tokens(name)[first:last]))


def prepare(setting: base.Setting) -> None:
  """Writes chunks of 4 Mi tokens."""
  import functools

  for name in setting.names:
    path = setting.place("lit") / name
    if not path.exists():
      litdata.optimize(
        fn=functools.partial(_document, setting=setting, name=name),
        inputs=list(range(len(setting.offsets(name)) - 1)),
        output_dir=str(path),
        chunk_size=2_048 * base.SEQ_LEN,
        num_workers=1,
        item_loader=litdata.TokensLoader(),
        verbose=False,
      )


class Loader(base.Loader):
  """See the module."""

  def __init__(self, setting: base.Setting):
    """Opens the chunks."""
    super().__init__(setting)
    base.init_process_group(setting)
    parts = [
      litdata.StreamingDataset(
        str(setting.place("lit") / name),
        item_loader=litdata.TokensLoader(block_size=base.SEQ_LEN),
        shuffle=True,
        drop_last=True,
        seed=0,
      )
      for name in setting.names
    ]
    dataset = parts[0]
    if len(parts) > 1:
      dataset = litdata.CombinedStreamingDataset(
        parts, seed=0, weights=setting.weights, iterate_over_all=False
      )
    self._loader = litdata.StreamingDataLoader(
      dataset, batch_size=setting.local_rows, num_workers=0, drop_last=True
    )

  def epoch(self) -> Iterator[base.Batch]:
    """Iterates the loader."""
    for tokens in self._loader:
      yield {"tokens": np.asarray(tokens).astype(np.int32)}

  def state(self) -> Any:
    """Returns the loader's state."""
    return self._loader.state_dict()

  def restore(self, state: Any) -> None:
    """See the class above."""
    self._loader.load_state_dict(state)
