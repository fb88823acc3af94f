# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Grain as it comes: one record a document, its own mix and packers.

Records are slices of a mapped array, which is faster than any file format.
Documents longer than a row are cut into pieces of a row before First-Fit, which
would refuse them. No read threads: fewer CPU seconds than its default of 16.
"""

import grain
import numpy as np
from peer_loaders import base

DISTRIBUTION = "grain"
KINDS = {
  "one source": "`ConcatThenSplitIterDataset`, Grain's `batch`",
  "mix": "`MapDataset.mix`, `ConcatThenSplitIterDataset`, Grain's `batch`",
  "packed": "`FirstFitPackIterDataset`, 64 bins, Grain's `batch`",
}

_BINS = 64


def prepare(setting: base.Setting) -> None:
  """There is nothing to write."""
  del setting


class _Documents:
  """A source's documents, by number."""

  def __init__(self, setting: base.Setting, name: str):
    self._tokens = setting.tokens(name)
    self._offsets = setting.offsets(name)

  def __len__(self) -> int:
    return len(self._offsets) - 1

  def __getitem__(self, index: int) -> dict[str, np.ndarray]:
    first, last = self._offsets[index], self._offsets[index + 1]
    return {"tokens": self._tokens[first:last].astype(np.int32)}


class _Cut(grain.experimental.FlatMapTransform):
  """Cuts documents into pieces of at most a row."""

  max_fan_out = 64

  def flat_map(self, element: dict[str, np.ndarray]) -> list[dict]:
    tokens = element["tokens"]
    return [
      {"tokens": tokens[first : first + base.SEQ_LEN]}
      for first in range(0, len(tokens), base.SEQ_LEN)
    ]


class Loader(base.GrainLoader):
  """As Grain documents it: shuffle, shard, repeat, mix, pack, batch."""

  def __init__(self, setting: base.Setting):
    """Builds the pipeline."""
    super().__init__(setting)
    parts = []
    for name in setting.names:
      part = grain.MapDataset.source(_Documents(setting, name)).shuffle(seed=0)
      part = part[setting.rank :: setting.ranks]
      parts.append(part if setting.once else part.repeat())
    mixed = parts[0]
    if len(parts) > 1:
      mixed = grain.MapDataset.mix(parts, setting.weights)
    records = mixed.to_iter_dataset(
      grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    )
    length = {"tokens": base.SEQ_LEN}
    if setting.kind == "packed":
      cut = grain.experimental.FlatMapIterDataset(records, _Cut())
      packed = grain.experimental.FirstFitPackIterDataset(
        cut, length_struct=length, num_packing_bins=_BINS, seed=0
      )
    else:
      packed = grain.experimental.ConcatThenSplitIterDataset(
        records, length_struct=length
      )
    self._iterator = iter(packed.batch(setting.local_rows, drop_remainder=True))
