# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core: `GPTDataset`, blended where there are several sources.

Its sampler is the trainer's (Megatron-LM) and not in this package; batches here
are consecutive samples, which is what that sampler takes.
"""

# What is imported is in an environment of its own.
# pyright: reportMissingImports=false

from collections.abc import Iterator
import dataclasses
from typing import Any

from megatron.core.datasets import blended_megatron_dataset_builder as builder
from megatron.core.datasets import gpt_dataset
from megatron.core.datasets import indexed_dataset
import numpy as np
from peer_loaders import base
import torch
import torch.utils.data

DISTRIBUTION = "megatron-core"
KINDS = {
  "one source": "`GPTDataset`, torch's collator",
  "mix": "`BlendedDataset`, torch's collator",
  "packed": "`GPTDataset(reset_position_ids, eod_mask_loss)`, torch's collator",
}


@dataclasses.dataclass
class _Tokenizer:
  """What the dataset asks of a tokenizer."""

  eod: int = base.EOS
  pad: int = base.PAD
  vocab_size: int = base.VOCAB_SIZE
  unique_identifiers: dict = dataclasses.field(
    default_factory=lambda: {"class": "synthetic"}
  )


def prepare(setting: base.Setting) -> None:
  """Writes .bin and .idx, and the indexes of the dataset."""
  place = setting.place("megatron")
  place.mkdir(parents=True, exist_ok=True)
  for name in setting.names:
    if (place / f"{name}.idx").exists():
      continue
    writer = indexed_dataset.IndexedDatasetBuilder(
      str(place / f"{name}.bin"), dtype=np.uint16
    )
    for document in setting.documents(name):
      writer.add_document(document, [len(document)])
    writer.finalize(str(place / f"{name}.idx"))
  Loader(setting)


class Loader(base.Loader):
  """See the module."""

  def __init__(self, setting: base.Setting):
    """Builds the dataset; one epoch of one source, as many rows of a mix."""
    super().__init__(setting)
    base.init_process_group(setting)  # Blends ask it for their rank.
    place = setting.place("megatron")
    prefixes = [str(place / name) for name in setting.names]
    mixed = len(prefixes) > 1
    packed = setting.kind == "packed"
    rows = sum(len(setting.rows(name)) for name in setting.names)
    config = gpt_dataset.GPTDatasetConfig(
      random_seed=0,
      sequence_length=base.SEQ_LEN,
      blend=(prefixes, setting.weights if mixed else None),
      split="1,0,0",
      path_to_cache=str(place / "cache"),
      tokenizer=_Tokenizer(),  # pyright: ignore
      reset_position_ids=packed,
      reset_attention_mask=packed,
      eod_mask_loss=packed,
      create_attention_mask=False,
    )
    self._dataset = builder.BlendedMegatronDatasetBuilder(
      gpt_dataset.GPTDataset,
      [rows if mixed else None, 0, 0],  # pyright: ignore
      lambda: True,
      config,
    ).build()[0]
    self._consumed = 0

  def epoch(self) -> Iterator[base.Batch]:
    """Goes through the samples in the dataset's order."""
    size, local_rows = self.setting.batch_size, self.setting.local_rows
    begin = self.setting.rank * local_rows
    first = self._consumed
    batches = [
      range(at + begin, at + begin + local_rows)
      for at in range(first, len(self._dataset) - size + 1, size)
    ]
    loader = torch.utils.data.DataLoader(self._dataset, batch_sampler=batches)
    for batch in loader:
      self._consumed += size
      fields = {name: value.numpy() for name, value in batch.items()}
      fields["tokens"] = fields["tokens"].astype(np.int32)
      yield fields
    self._consumed = 0

  def state(self) -> Any:
    """Returns the samples consumed, as Megatron-LM does."""
    return self._consumed

  def restore(self, state: Any) -> None:
    """See the class above."""
    self._consumed = state
