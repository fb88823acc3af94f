# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Four shuffles of one corpus: what does cheap reading cost a model?

    chomp-train --config=configs/block_shuffle.py:block_k8 \\
      --workdir=runs/block_k8
    chomp-train --config=configs/block_shuffle.py:full,runlocal \\
      --workdir=runs/l  # seconds

The arms are 'full', 'era', 'block_k8' (the default) and 'block_k32'. They
differ in nothing but the order of rows; losses also differ by chance, so
compare several of `--config.data.seed`. Packing is sequential. Also
`chomp-train --config=configs/block_shuffle.py`. About two minutes an
arm on two CPU cores: 300 steps of [8, 512] at 0.46 M parameters.
"""

import ml_collections

import chomp_data

# Rows of a block: the corpus is small, so blocks are an eighth of a chunk.
_BLOCK = 64
_ARMS = {
  "full": {"kind": "full"},
  "era": {"kind": "era", "era_length": 8 * _BLOCK},
  "block_k8": {
    "kind": "block",
    "io_block_size": _BLOCK,
    "window_blocks": 8,
  },
  "block_k32": {
    "kind": "block",
    "io_block_size": _BLOCK,
    "window_blocks": 32,
  },
}


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment.

  Args:
    arg: An arm, 'runlocal' to shrink it to seconds, or both with a comma.
  """
  parts = [part for part in (arg or "").split(",") if part]
  arms = [part for part in parts if part in _ARMS] or ["block_k8"]
  if len(arms) > 1 or set(parts) - {"runlocal", *_ARMS}:
    raise ValueError(
      f"`arg` must be one of {', '.join(_ARMS)}, 'runlocal', or both with a"
      f" comma, got {arg!r}."
    )
  config = ml_collections.ConfigDict()

  config.data = ml_collections.ConfigDict()
  config.data.seq_len = 512  # tokens
  config.data.global_batch_size = 8  # rows over all processes
  config.data.lookahead = True  # the token after the last column
  config.data.document_id = True  # for loss by document

  stdlib = ml_collections.ConfigDict()
  stdlib.store = "data/stdlib"
  stdlib.rows = ml_collections.ConfigDict()  # of kind "sequential"
  stdlib.rows.add_eos = True
  stdlib.rows.document_slots = 16  # documents of a row in document_id
  stdlib.shuffle = ml_collections.ConfigDict(_ARMS[arms[0]])
  config.data.sources = ml_collections.ConfigDict({"stdlib": stdlib})

  config.model = ml_collections.ConfigDict()
  config.model.num_layers = 2
  config.model.num_heads = 2

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 300

  if "runlocal" in parts:
    config.data.seq_len = 64
    config.model.update(d_model=32, num_layers=1, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=6, log_every_steps=2)
    config.checkpoint = ml_collections.ConfigDict({"every_steps": 3})
  config.data = chomp_data.with_placeholders(config.data)
  return config
