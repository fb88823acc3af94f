# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Splices of one document: is what the model learns position-invariant?

    chomp-train --config=configs/splice_single.py --workdir=runs/y
    chomp-train --config=configs/splice_single.py:runlocal \\
      --workdir=runs/m  # seconds

Every start of the document at every offset where K tokens of it fit, each
epoch in another order. About a minute on two cores.
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
  stdlib.rows.kind = "splice"
  stdlib.rows.doc_select_mode = "longest"
  stdlib.rows.min_doc_length = 256  # tokens
  stdlib.rows.max_doc_length = 4_096  # tokens
  stdlib.rows.content_start_mode = "slide_within"
  stdlib.rows.content_length = 128  # K, tokens
  stdlib.rows.offset_stride = 4  # columns
  stdlib.rows.offset_domain = "tight"
  stdlib.rows.min_copy_len = 8  # tokens
  stdlib.shuffle = ml_collections.ConfigDict()
  stdlib.shuffle.kind = "full"  # a new permutation each epoch
  config.data.sources = ml_collections.ConfigDict({"stdlib": stdlib})

  config.model = ml_collections.ConfigDict()
  config.model.num_layers = 2
  config.model.num_heads = 2

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 150

  config.checkpoint = ml_collections.ConfigDict()
  config.checkpoint.every_steps = 50

  if arg == "runlocal":
    config.data.seq_len = 64
    config.data.global_batch_size = 8
    stdlib.rows.content_length = 32
    config.model.update(d_model=32, num_layers=1, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=6, log_every_steps=2)
    config.checkpoint.every_steps = 3
  elif arg:
    raise ValueError(f"`arg` must be 'runlocal' or absent, got {arg!r}.")
  config.data = chomp_data.with_placeholders(config.data)
  return config
