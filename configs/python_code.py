# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Functions, methods and classes of Python's library, packed and mixed.

    make train  # writes and prepares the three stores, then trains on them
    chomp-train --config=configs/python_code.py --workdir=runs/code
    chomp-train --config=configs/python_code.py:runlocal \\
      --workdir=runs/l  # seconds

Documents are short (a mean of 152 tokens), so a row of 512 tokens holds about
four. Each source gets its share of the tokens, padding excluded. About a
minute on two CPU cores: 150 steps of [8, 512] at 1 M parameters, 0.6 M of the
2.2 M tokens.
"""

import ml_collections

import chomp_data

# Shares of the tokens. Classes are a ninth of all tokens, so they repeat first.
_SHARES = {"functions": 0.4, "methods": 0.4, "classes": 0.2}


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment; `arg` 'runlocal' shrinks it to seconds."""
  config = ml_collections.ConfigDict()

  config.data = ml_collections.ConfigDict()
  config.data.seq_len = 512  # tokens
  config.data.global_batch_size = 8  # rows over all processes
  config.data.sources = ml_collections.ConfigDict()
  for name in _SHARES:
    source = ml_collections.ConfigDict()
    source.store = f"data/{name}"
    source.rows = ml_collections.ConfigDict()
    source.rows.kind = "bin"  # whole documents, First-Fit-Decreasing
    source.rows.packing_buffer_docs = 256  # documents packed together
    source.rows.add_eos = True  # after each document
    source.shuffle = ml_collections.ConfigDict()
    source.shuffle.kind = "block"  # a block is what was packed together
    source.shuffle.window_blocks = 8
    config.data.sources[name] = source
  config.data.mix = ml_collections.ConfigDict()
  config.data.mix.weights = ml_collections.ConfigDict(_SHARES)

  config.model = ml_collections.ConfigDict()
  config.model.num_layers = 2
  config.model.num_heads = 2

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 150

  if arg == "runlocal":
    config.data.seq_len = 64
    config.model.update(d_model=32, num_layers=1, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=6, log_every_steps=2)
    config.checkpoint = ml_collections.ConfigDict({"every_steps": 3})
  elif arg:
    raise ValueError(f"`arg` must be 'runlocal' or absent, got {arg!r}.")
  config.data = chomp_data.with_placeholders(config.data)
  return config
