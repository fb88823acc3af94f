# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packed rows of code in which half of the files are rearranged (FIM).

    python tools/train.py --config=configs/fill_in_the_middle.py \\
      --workdir=runs/fim
    chomp-inspect --config=fill_in_the_middle --rows=2

A file that ends in its row is cut in two places, and its middle comes last,
after prefix and suffix: docs/fill_in_the_middle.md. The sentinels are three
bytes that UTF-8 never uses; a tokenizer of a code model has tokens for them.
About a minute on two CPU cores: 300 steps of [8, 512].
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
  config.data.seq_len = 512  # tokens
  config.data.global_batch_size = 8  # rows over all processes

  stdlib = ml_collections.ConfigDict()
  stdlib.store = "data/stdlib"
  stdlib.rows = ml_collections.ConfigDict()
  stdlib.rows.kind = "bin"
  stdlib.rows.packing_buffer_docs = 64  # documents of a window
  stdlib.rows.add_eos = True  # a model must learn where a middle ends
  stdlib.rows.fim = ml_collections.ConfigDict()
  stdlib.rows.fim.rate = 0.5  # share of the pieces with their document's end
  stdlib.rows.fim.spm_rate = 0.5  # share of those with the suffix first
  stdlib.rows.fim.prefix_id = 0xFD
  stdlib.rows.fim.suffix_id = 0xFE
  stdlib.rows.fim.middle_id = 0xFF
  stdlib.shuffle = ml_collections.ConfigDict()
  stdlib.shuffle.kind = "block"  # blocks are packing windows
  stdlib.shuffle.window_blocks = 4
  config.data.sources = ml_collections.ConfigDict({"stdlib": stdlib})

  config.model = ml_collections.ConfigDict()
  config.model.num_layers = 2
  config.model.num_heads = 2

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 300

  if arg == "runlocal":
    config.data.seq_len = 64
    stdlib.rows.packing_buffer_docs = 16
    config.model.update(d_model=32, num_layers=1, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=6, log_every_steps=2)
    config.checkpoint = ml_collections.ConfigDict({"every_steps": 3})
  config.data = chomp_data.with_placeholders(config.data)
  return config
