# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What loaders that are compared have in common; NumPy only.

Each module of this package is one loader, of an environment that need not
hold chomp_data: `DISTRIBUTION` (whose version is told), `KINDS` (what it can
do, and how), `prepare` (what is written once, not timed) and a class `Loader`.
Its entry is in `LOADERS` of benchmarks/peers.py.

A corpus is a directory with two files of each source: `<name>.uint16`, tokens
of documents one after the other, and `<name>.npy`, where they begin, as
int64[N + 1].
Every document ends with `EOS`; `PAD` is in none, so that filler is counted.
"""

# What is imported is in an environment of its own.
# pyright: reportMissingImports=false

import abc
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import importlib.util
import itertools
import pathlib
from typing import Any
from unittest import mock

import numpy as np

SEQ_LEN = 2_048  # tokens
PAD, EOS = 0, 1
VOCAB_SIZE = 50_000
WEIGHTS = {"web": 0.5, "code": 0.3, "wiki": 0.2}  # of a mix
ONE = ("web",)  # the source of what is not a mix

Batch = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Setting:
  """What a loader is opened for.

  Attributes:
    directory: Of the corpus; what `prepare` writes is below it.
    kind: A key of the module's `KINDS`.
    batch_size: Rows of a global batch.
    rank: Of this process, of `ranks`; each takes its part of a batch.
    ranks: How many there are.
    once: Whether batches end after one epoch.
  """

  directory: pathlib.Path
  kind: str
  batch_size: int
  rank: int = 0
  ranks: int = 1
  once: bool = False

  @property
  def names(self) -> tuple[str, ...]:
    """The sources that are read."""
    return tuple(WEIGHTS) if self.kind.startswith("mix") else ONE

  @property
  def weights(self) -> list[float]:
    """Their weights."""
    return [WEIGHTS[name] for name in self.names]

  @property
  def local_rows(self) -> int:
    """Rows of this rank's batches."""
    return self.batch_size // self.ranks

  def tokens(self, name: str) -> np.ndarray:
    """Returns a source's tokens, uint16[T], mapped."""
    return np.memmap(self.directory / f"{name}.uint16", np.uint16, "r")

  def offsets(self, name: str) -> np.ndarray:
    """Returns where its documents begin, and the end, int64[N + 1]."""
    return np.load(self.directory / f"{name}.npy")

  def documents(self, name: str) -> Iterator[np.ndarray]:
    """Yields a source's documents."""
    tokens, offsets = self.tokens(name), self.offsets(name)
    for first, last in itertools.pairwise(offsets.tolist()):
      yield tokens[first:last]

  def rows(self, name: str) -> np.ndarray:
    """Returns a source's whole rows of tokens, uint16[R, SEQ_LEN]."""
    tokens = self.tokens(name)
    count = len(tokens) // SEQ_LEN
    return tokens[: count * SEQ_LEN].reshape(count, SEQ_LEN)

  def place(self, loader: str) -> pathlib.Path:
    """Returns where a loader keeps what it wrote for this kind."""
    return self.directory / loader / self.kind.replace(" ", "_")


class Loader(abc.ABC):
  """Batches of host arrays; `tokens` is int32[B, SEQ_LEN], or flat."""

  def __init__(self, setting: Setting):
    """Opens what `prepare` wrote."""
    self.setting = setting
    self._batches: Iterator[Batch] | None = None

  def __next__(self) -> Batch:
    """Returns the next batch, of the next epoch where one ended."""
    if self._batches is None:
      self._batches = self.epoch()
    try:
      return next(self._batches)
    except StopIteration:
      if self.setting.once:
        raise
    self._batches = self.epoch()
    return next(self._batches)

  @abc.abstractmethod
  def epoch(self) -> Iterator[Batch]:
    """Begins an epoch, or the rest of one after `restore`."""

  @abc.abstractmethod
  def state(self) -> Any:
    """Returns what a checkpoint would hold; it can be pickled."""

  @abc.abstractmethod
  def restore(self, state: Any) -> None:
    """Goes on after the batch that came before `state`."""

  def rows(self, batch: Batch) -> list[np.ndarray]:
    """Returns what a batch is made of, to compare batches across ranks."""
    return list(batch["tokens"])


class GrainLoader(Loader):
  """Batches of an iterator that has Grain's states."""

  _iterator: Any

  def epoch(self) -> Iterator[Batch]:
    """Goes on for ever, or ends where `once` says so."""
    return self._iterator

  def state(self) -> Any:
    """Returns Grain's state."""
    return self._iterator.get_state()

  def restore(self, state: Any) -> None:
    """See the class above."""
    self._iterator.set_state(state)


def import_torchvision() -> None:
  """Imports torchvision, where it is installed, beside any build of torch.

  Libraries that read tokens import it for pictures. A build of it for another
  torch (registries have it for CUDA, beside a torch for CPUs alone) loads none
  of its operators, and ends where it tells torch of their shapes.
  """
  if importlib.util.find_spec("torchvision") is None:
    return
  import torch

  try:
    import torchvision
  except RuntimeError:
    with mock.patch.object(torch.library, "register_fake"):
      import torchvision  # noqa: F401


def init_process_group(setting: Setting) -> None:
  """Joins the processes of torch; `ranks` of 1 are a group of their own."""
  import torch

  if not torch.distributed.is_initialized():
    # Where the others are is in the environment, as torch's launchers set it.
    alone = torch.distributed.HashStore() if setting.ranks == 1 else None
    torch.distributed.init_process_group(
      "gloo", rank=setting.rank, world_size=setting.ranks, store=alone
    )
