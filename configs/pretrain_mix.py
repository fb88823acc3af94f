# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A pretraining mix in stages: three packed sources, balanced in tokens.

    make prepare-mix  # three corpora of this machine's own text, a minute
    chomp-train --config=configs/pretrain_mix.py --workdir=runs/mix
    chomp-train --config=configs/pretrain_mix.py:runlocal \\
      --workdir=runs/l  # seconds

Sources: the standard library, installed packages, and from step 150 on their
notes (licences, readmes). Weights are shares of tokens, padding excluded. A
running job may get another stage: append it and resume. Other stores, without
stages: --dataset_mix='data/a:0.9 data/b:0.1'. About three minutes on two CPU
cores: 300 steps of [8, 512] at 0.46 M parameters.
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

  documents = 16 if arg == "runlocal" else 64  # of a packing window
  config.data.sources = ml_collections.ConfigDict(
    {
      name: _packed(f"data/{name}", documents)
      for name in ("stdlib", "packages", "notes")
    }
  )
  config.data.mix = ml_collections.ConfigDict()
  config.data.mix.stages = (  # (from step, weights): others from there on
    (0, (("stdlib", 0.5), ("packages", 0.5))),
    (150, (("stdlib", 0.3), ("packages", 0.4), ("notes", 0.3))),
  )

  config.model = ml_collections.ConfigDict()
  config.model.num_layers = 2
  config.model.num_heads = 2

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 300

  if arg == "runlocal":
    config.data.seq_len = 64
    config.data.mix.stages = (
      (0, (("stdlib", 0.5), ("packages", 0.5))),
      (3, (("stdlib", 0.3), ("packages", 0.4), ("notes", 0.3))),
    )
    config.model.update(d_model=32, num_layers=1, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=6, log_every_steps=2)
    config.checkpoint = ml_collections.ConfigDict({"every_steps": 3})
  elif arg:
    raise ValueError(f"`arg` must be 'runlocal' or absent, got {arg!r}.")
  config.data = chomp_data.with_placeholders(config.data)
  return config
