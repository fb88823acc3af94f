# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A Grain source of your own, packed: here the files of Python's own library.

    chomp-train --config=configs/from_grain_source.py --workdir=runs/g
    chomp-train --config=configs/from_grain_source.py:runlocal \\
      --workdir=runs/l  # seconds

Nothing is prepared: an element of `Files` is the tokens of a document, which
are the bytes of a file, and sizes of files are the lengths; what a source must
do is in docs/stores.md. 300 steps of [8, 512] at 0.46 M parameters.
"""

import pathlib
import platform

import ml_collections
import numpy as np

import chomp_data
from chomp_data import stores


class Files:
  """A `grain.sources.RandomAccessDataSource` of the bytes of files."""

  def __init__(self, paths: list[str]):
    """Opens nothing: workers read the files that they need."""
    self._paths = paths

  def __len__(self) -> int:
    return len(self._paths)

  def __getitem__(self, index: int) -> np.ndarray:
    """Returns the tokens of a document, uint8[bytes of the file]."""
    return np.fromfile(self._paths[index], np.uint8)


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment.

  Args:
    arg: 'runlocal' shrinks it to seconds.
  """
  if arg not in (None, "", "runlocal"):
    raise ValueError(f"`arg` must be 'runlocal' or None, got {arg!r}.")
  config = ml_collections.ConfigDict()

  config.data = ml_collections.ConfigDict()
  config.data.seq_len = 512  # tokens
  config.data.global_batch_size = 8  # rows over all processes

  library = pathlib.Path(pathlib.__file__).parent
  paths = sorted(library.glob("*.py"))
  files = ml_collections.ConfigDict()
  files.store = stores.from_source(
    Files([str(path) for path in paths]),
    [path.stat().st_size for path in paths],  # tokens of each document
    vocab_size=258,
    eos_id=256,
    pad_id=257,
    fingerprint=f"python-{platform.python_version()}",
  )
  files.rows = ml_collections.ConfigDict()
  files.rows.kind = "bin"
  files.rows.add_eos = True
  files.shuffle = ml_collections.ConfigDict({"kind": "full"})
  config.data.sources = ml_collections.ConfigDict({"files": files})

  config.model = ml_collections.ConfigDict()
  config.model.num_layers = 2
  config.model.num_heads = 2

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 300

  if arg == "runlocal":
    config.data.seq_len = 64
    config.model.update(d_model=32, num_layers=1, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=6, log_every_steps=2)
    config.checkpoint = ml_collections.ConfigDict({"every_steps": 3})
  config.data = chomp_data.with_placeholders(config.data)
  return config
