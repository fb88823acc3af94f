# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A store in zstd, read through TensorStore: half the bytes, as in a bucket.

    chomp-stores convert data/stdlib --to=zstd --output=data/zstd
    chomp-train --config=configs/zstd_store.py --workdir=runs/zstd
    chomp-train --config=configs/zstd_store.py:runlocal \\
      --workdir=runs/l  # seconds

Batches are those of the store that is not compressed. Chunks are fetched whole
and kept decoded within `shuffle_cache_bytes`, so rows come block-shuffled: an
epoch then fetches each chunk about once. About two minutes on two CPU cores:
300 steps of [8, 512] at 0.46 M parameters.
"""

import ml_collections

import chomp_data


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
  config.data.shuffle_cache_bytes = 256 * 2**20

  stdlib = ml_collections.ConfigDict()
  stdlib.store = "data/zstd"
  stdlib.rows = ml_collections.ConfigDict()  # of kind "sequential"
  stdlib.rows.add_eos = True
  stdlib.shuffle = ml_collections.ConfigDict()
  stdlib.shuffle.kind = "block"  # blocks are chunks
  config.data.sources = ml_collections.ConfigDict({"stdlib": stdlib})

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
