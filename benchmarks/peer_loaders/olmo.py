# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""OLMo-core: composable sources and its data loader."""

# What is imported is in an environment of its own.
# pyright: reportMissingImports=false

from collections.abc import Iterator
from typing import Any

import numpy as np
from olmo_core import data
from olmo_core.data import composable
from olmo_core.data import types
from peer_loaders import base

DISTRIBUTION = "ai2-olmo-core"
KINDS = {
  "one source": "`ConcatAndChunkInstanceSource`, its own collator",
  "mix": "`MixingInstanceSource`, its own collator",
  "packed": (
    "`PackingInstanceSource(fragment)`, `generate_doc_lengths`, its own"
    " collator"
  ),
}

_TOKENIZER = data.TokenizerConfig(
  vocab_size=base.VOCAB_SIZE,
  eos_token_id=base.EOS,
  pad_token_id=base.PAD,
)


def prepare(setting: base.Setting) -> None:
  """Builds the indexes of sources; tokens are read as they are."""
  next(Loader(setting))


class Loader(base.Loader):
  """See the module."""

  def __init__(self, setting: base.Setting):
    """Opens the files of tokens."""
    super().__init__(setting)
    base.init_process_group(setting)
    work = setting.place("olmo")
    work.mkdir(parents=True, exist_ok=True)
    parts = []
    for name in setting.names:
      documents = composable.NumpyDocumentSource(
        source_paths=[str(setting.directory / f"{name}.uint16")],
        dtype=np.uint16,
        work_dir=work,
        tokenizer=_TOKENIZER,
      )
      if setting.kind == "packed":
        rows = composable.PackingInstanceSource(
          documents,
          sequence_length=base.SEQ_LEN,
          work_dir=work,
          tokenizer=_TOKENIZER,
          long_doc_strategy=types.LongDocStrategy.fragment,
        )
      else:
        rows = composable.ConcatAndChunkInstanceSource(
          documents, sequence_length=base.SEQ_LEN, work_dir=work
        )
      parts.append(rows)
    whole = parts[0]
    if len(parts) > 1:
      whole = composable.MixingInstanceSource(
        *(
          composable.MixingInstanceSource.Spec(
            source=part, ratio=weight, max_repetition_factor=10.0
          )
          for part, weight in zip(parts, setting.weights, strict=True)
        ),
        work_dir=work,
        seed=0,
      )
    self._loader = composable.ComposableDataLoader(
      whole,
      collator=data.DataCollator(
        pad_token_id=base.PAD, vocab_size=base.VOCAB_SIZE
      ),
      tokenizer=_TOKENIZER,
      work_dir=work,
      global_batch_size=setting.batch_size * base.SEQ_LEN,
      dp_world_size=setting.ranks,
      dp_rank=setting.rank,
      fs_local_rank=setting.rank,
      seed=0,
      generate_doc_lengths=setting.kind == "packed",
      num_threads=0,  # The default, 4, takes more CPU seconds.
      display_source_visualization=False,
    )
    self._restored = False

  def epoch(self) -> Iterator[base.Batch]:
    """Iterates the loader."""
    if self._restored:
      self._loader.reshuffle(self._loader.epoch)
    else:
      self._loader.reshuffle()
    self._restored = False
    for batch in self._loader:
      fields = {
        name: value.numpy()
        for name, value in batch.items()
        if hasattr(value, "numpy")
      }
      fields["tokens"] = fields.pop("input_ids").astype(np.int32)
      yield fields
    self._loader.reset()

  def state(self) -> Any:
    """Returns the loader's state."""
    return self._loader.state_dict()

  def restore(self, state: Any) -> None:
    """See the class above."""
    self._loader.load_state_dict(state)
    self._restored = True
