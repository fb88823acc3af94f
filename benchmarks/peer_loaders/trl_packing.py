# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face datasets, packed by TRL, in a torch `DataLoader`.

Packing and shuffling are done once and written (`flatten_indices`), so that
rows are read as they lie. Packed batches are one long row of what tokens there
are (`padding_free`), with position ids that begin anew at every document: made
by TRL's collator here, and by a few lines of NumPy in `trl_numpy.py`.
"""

# What is imported is in an environment of its own.
# pyright: reportMissingImports=false

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import numpy as np
from peer_loaders import base

base.import_torchvision()
import accelerate  # noqa: E402
import accelerate.data_loader  # noqa: E402
import datasets  # noqa: E402
import torch  # noqa: E402
import torch.utils.data  # noqa: E402
import trl  # noqa: E402
from trl.trainer import sft_trainer  # noqa: E402

DISTRIBUTION = "trl"
KINDS = {
  "one source": "`pack_dataset('wrapped')`, torch's collator",
  "mix": "`pack_dataset('wrapped')`, `interleave_datasets`, torch's collator",
  "packed": "`pack_dataset('bfd_split')`, TRL's padding-free collator",
}


def prepare(setting: base.Setting) -> None:
  """Packs, shuffles and saves."""
  path = setting.place("trl")
  if path.exists():
    return
  parts = []
  for name in setting.names:
    texts = datasets.Dataset.from_generator(
      _examples,
      gen_kwargs={"setting": setting, "name": name},
      features=datasets.Features(
        {"input_ids": datasets.List(datasets.Value("int32"))}
      ),
      cache_dir=str(path) + ".cache",
    )
    if setting.kind == "packed":
      packed = trl.pack_dataset(texts, base.SEQ_LEN, "bfd_split")
    else:
      # In one piece: otherwise each 1,000 documents end in a row that is short.
      packed = trl.pack_dataset(
        texts, base.SEQ_LEN, "wrapped", map_kwargs={"batch_size": None}
      ).select(range(len(setting.rows(name))))
    parts.append(packed.shuffle(seed=0))
  whole = parts[0]
  if len(parts) > 1:
    whole = datasets.interleave_datasets(
      parts,
      probabilities=setting.weights,
      seed=0,
      stopping_strategy="all_exhausted",
    )
  whole.flatten_indices().save_to_disk(str(path))


def _examples(setting: base.Setting, name: str) -> Iterator[dict[str, Any]]:
  for document in setting.documents(name):
    yield {"input_ids": document.astype(np.int32)}


class Loader(base.Loader):
  """See the module; ranks and resuming are accelerate's."""

  @staticmethod
  def row_format(flat: bool) -> str:
    """Returns what rows are of before they are collated."""
    return "numpy" if flat else "torch"

  @staticmethod
  def collator(flat: bool) -> Callable[[list[Any]], base.Batch] | None:
    """Returns what makes a batch of rows; None is torch's own."""
    if not flat:
      return None
    return sft_trainer.DataCollatorForLanguageModeling(
      pad_token_id=base.PAD, padding_free=True
    )

  def __init__(self, setting: base.Setting):
    """Opens what was saved."""
    super().__init__(setting)
    packed = datasets.load_from_disk(str(setting.place("trl")))
    self._flat = setting.kind == "packed"
    loader = torch.utils.data.DataLoader(
      packed.with_format(self.row_format(self._flat)),
      batch_size=setting.batch_size,
      collate_fn=self.collator(self._flat),
      drop_last=True,
    )
    if setting.ranks > 1:
      loader = accelerate.data_loader.prepare_data_loader(
        loader,
        num_processes=setting.ranks,
        process_index=setting.rank,
        split_batches=True,
        put_on_device=False,
      )
    self._loader = loader
    self._step = self._skip = 0

  def epoch(self) -> Iterator[base.Batch]:
    """Iterates the loader."""
    loader = accelerate.skip_first_batches(self._loader, self._skip)
    self._step, self._skip = self._skip, 0
    for batch in loader:
      self._step += 1
      fields = {
        name: value.numpy() if torch.is_tensor(value) else np.asarray(value)
        for name, value in batch.items()
      }
      fields["tokens"] = fields.pop("input_ids").astype(np.int32)
      yield fields

  def state(self) -> Any:
    """Returns the step, as TRL's trainer does."""
    return self._step

  def restore(self, state: Any) -> None:
    """See the class above."""
    self._skip = state

  def rows(self, batch: base.Batch) -> list[np.ndarray]:
    """Returns documents where there are no rows."""
    if not self._flat:
      return super().rows(batch)
    return np.split(batch["tokens"][0], batch["cu_seq_lens_q"][1:-1])
