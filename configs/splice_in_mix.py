# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Splices of ten files as one part of a pretraining mix.

    make prepare-mix  # corpora of this machine's own text, a minute
    chomp-train --config=configs/splice_in_mix.py --workdir=runs/sm
    chomp-train --config=configs/splice_in_mix.py:runlocal \\
      --workdir=runs/l  # seconds

Nine of ten tokens are packed documents of installed packages, one is of ten
standard library files placed at every position of the row. The run ends with
a coverage report of both. Other stores:
--dataset_mix='packages=data/a:0.9 stdlib=data/b:0.1'. About three minutes on
two CPU cores: 300 steps of [8, 512] at 0.46 M parameters.
"""

import ml_collections

import chomp_data


def _packed(store: str, buffer_docs: int) -> ml_collections.ConfigDict:
  """Returns a bin-packed, block-shuffled source."""
  source = ml_collections.ConfigDict()
  source.store = store
  source.rows = ml_collections.ConfigDict()
  source.rows.kind = "bin"
  source.rows.packing_buffer_docs = buffer_docs  # documents of a window
  source.rows.add_eos = True
  source.rows.document_slots = 16  # documents of a row in document_id
  source.shuffle = ml_collections.ConfigDict()
  source.shuffle.kind = "block"  # blocks are packing windows
  source.shuffle.window_blocks = 4
  return source


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment; `arg` 'runlocal' shrinks it to seconds."""
  config = ml_collections.ConfigDict()

  config.data = ml_collections.ConfigDict()
  config.data.seq_len = 512  # tokens
  config.data.global_batch_size = 8  # rows over all processes
  config.data.lookahead = True  # the token after the last column
  config.data.document_id = True  # for loss by document

  stdlib = ml_collections.ConfigDict()
  stdlib.store = "data/stdlib"
  stdlib.rows = ml_collections.ConfigDict()
  stdlib.rows.kind = "multi_splice"
  stdlib.rows.min_doc_length = 512  # tokens: one full row
  stdlib.rows.max_doc_length = 6_250  # tokens
  stdlib.rows.content_length = config.data.get_oneway_ref("seq_len")  # K = S
  stdlib.rows.min_copy_len = 8  # tokens
  stdlib.rows.alpha = 0.8
  stdlib.rows.offset_jitter = 2  # columns
  stdlib.rows.balance_tau = 0.7
  stdlib.shuffle = ml_collections.ConfigDict()
  stdlib.shuffle.kind = "full"  # a new permutation each epoch
  packages = _packed("data/packages", 16 if arg == "runlocal" else 64)
  config.data.sources = ml_collections.ConfigDict(
    {"packages": packages, "stdlib": stdlib}
  )
  config.data.mix = ml_collections.ConfigDict()
  config.data.mix.weights = (("packages", 0.9), ("stdlib", 0.1))  # of tokens

  config.model = ml_collections.ConfigDict()
  config.model.num_layers = 2
  config.model.num_heads = 2

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 300

  if arg == "runlocal":
    config.data.seq_len = 64
    stdlib.rows.num_docs = 3
    config.model.update(d_model=32, num_layers=1, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=6, log_every_steps=2)
    config.checkpoint = ml_collections.ConfigDict({"every_steps": 3})
  elif arg:
    raise ValueError(f"`arg` must be 'runlocal' or absent, got {arg!r}.")
  config.data = chomp_data.with_placeholders(config.data)
  return config
