# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packed rows whose columns are cut over devices, with two targets each.

    chomp-simulate --config=configs/context_parallel.py

For trainers with context parallelism (ring attention, MaxText with its own
reorder off) and a head that predicts the token after the next one. The
reference trainer reads columns in order: it takes no layout. docs/targets.md
says what batches hold.
"""

import ml_collections

import chomp_data


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment.

  Args:
    arg: 'runlocal' shrinks it to seconds.
  """
  if arg not in (None, "", "runlocal"):
    raise ValueError(f"`arg` must be 'runlocal' or nothing, got {arg!r}.")
  config = ml_collections.ConfigDict()

  config.data = ml_collections.ConfigDict()
  config.data.seq_len = 4_096  # tokens
  config.data.global_batch_size = 8  # rows over all processes
  config.data.num_targets = 2  # 1 + the multi-token heads of the model
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

  if arg == "runlocal":
    config.data.seq_len = 64
    stdlib.rows.packing_buffer_docs = 16
  config.data = chomp_data.with_placeholders(config.data)
  return config
