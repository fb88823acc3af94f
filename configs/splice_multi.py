# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Splices of several documents: memorise them at every position of the row.

    chomp-train --config=configs/splice_multi.py --workdir=runs/x
    chomp-train --config=configs/splice_multi.py:runlocal \\
      --workdir=runs/l  # seconds

Lengths are those of files of this machine's standard library; for long texts
take 4,096 .. 100,000 tokens. About two minutes on two CPU cores: 300 steps of
[16, 256] at 0.46 M parameters.
"""

import ml_collections

import chomp_data


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment; `arg` 'runlocal' shrinks it to seconds."""
  config = ml_collections.ConfigDict()

  config.data = ml_collections.ConfigDict()
  config.data.seq_len = 256  # tokens
  config.data.global_batch_size = 16  # rows over all processes
  config.data.document_id = True  # for loss by document

  stdlib = ml_collections.ConfigDict()
  stdlib.store = "data/stdlib"
  stdlib.rows = ml_collections.ConfigDict()
  stdlib.rows.kind = "multi_splice"
  stdlib.rows.min_doc_length = 256  # tokens: one full row
  stdlib.rows.max_doc_length = 6_250  # tokens
  stdlib.rows.content_length = config.data.get_oneway_ref("seq_len")  # K = S
  stdlib.rows.min_copy_len = 8  # tokens
  stdlib.rows.alpha = 0.8
  stdlib.rows.offset_jitter = 2  # columns
  stdlib.rows.balance_tau = 0.7
  stdlib.shuffle = ml_collections.ConfigDict()
  stdlib.shuffle.kind = "full"  # a new permutation each epoch
  config.data.sources = ml_collections.ConfigDict({"stdlib": stdlib})

  config.model = ml_collections.ConfigDict()
  config.model.num_layers = 2
  config.model.num_heads = 2

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 300

  if arg == "runlocal":
    config.data.seq_len = 64
    config.data.global_batch_size = 8
    stdlib.rows.num_docs = 3
    config.model.update(d_model=32, num_layers=1, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=6, log_every_steps=2)
    config.checkpoint = ml_collections.ConfigDict({"every_steps": 3})
  elif arg:
    raise ValueError(f"`arg` must be 'runlocal' or absent, got {arg!r}.")
  config.data = chomp_data.with_placeholders(config.data)
  return config
