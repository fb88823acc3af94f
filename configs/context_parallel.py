# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packed rows with two targets each, and columns cut over devices.

    chomp-train --config=configs/context_parallel.py --workdir=runs/cp
    chomp-simulate --config=configs/context_parallel.py:sharded --steps=100

'sharded' is for trainers with context parallelism: ring attention, or MaxText
with its own reorder off. The reference trainer reads columns in order, so it
trains without a layout, and on the next token alone. docs/targets.md says what
batches hold. About a minute on two CPU cores: 100 steps of [8, 512].
"""

import ml_collections

import chomp_data


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment.

  Args:
    arg: 'runlocal' shrinks it to seconds; 'sharded' cuts columns over four
      devices; or both with a comma.
  """
  parts = [part for part in (arg or "").split(",") if part]
  if set(parts) - {"runlocal", "sharded"}:
    raise ValueError(
      "`arg` must be of 'runlocal' and 'sharded', with a comma between two,"
      f" got {arg!r}."
    )
  config = ml_collections.ConfigDict()

  config.data = ml_collections.ConfigDict()
  config.data.seq_len = 512  # tokens
  config.data.global_batch_size = 8  # rows over all processes
  config.data.num_targets = 2  # 1 + the multi-token heads of the model
  if "sharded" in parts:
    config.data.sequence_layout = ml_collections.ConfigDict()
    config.data.sequence_layout.kind = "dual_chunk_swap"
    config.data.sequence_layout.shards = 4  # devices along the columns

  stdlib = ml_collections.ConfigDict()
  stdlib.store = "data/stdlib"
  stdlib.rows = ml_collections.ConfigDict()
  stdlib.rows.kind = "bin"
  stdlib.rows.packing_buffer_docs = 64  # documents of a window
  stdlib.rows.add_eos = True
  stdlib.shuffle = ml_collections.ConfigDict()
  stdlib.shuffle.kind = "block"  # blocks are packing windows
  stdlib.shuffle.window_blocks = 4
  config.data.sources = ml_collections.ConfigDict({"stdlib": stdlib})

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 100

  if "runlocal" in parts:
    config.data.seq_len = 64
    stdlib.rows.packing_buffer_docs = 16
    config.model = ml_collections.ConfigDict()
    config.model.update(d_model=32, num_layers=1, num_heads=2, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=6, log_every_steps=2)
    config.checkpoint = ml_collections.ConfigDict({"every_steps": 3})
  config.data = chomp_data.with_placeholders(config.data)
  return config
