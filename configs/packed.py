# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Whole documents packed into rows, block-shuffled: pretraining without waste.

    chomp-train --config=configs/packed.py --workdir=runs/packed
    chomp-train --config=configs/packed.py:full,runlocal \\
      --workdir=runs/l  # seconds

First-Fit-Decreasing over windows of documents, each window a block of the
shuffle. A store of web text takes the default window of 5,120 documents; the
standard library has some 740 long files, so windows are of 64 here. About two
minutes on two CPU cores: 300 steps of [8, 512] at 0.46 M parameters.
"""

import ml_collections

import chomp_data


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment.

  Args:
    arg: 'runlocal' shrinks it to seconds; 'none' or 'full' is the shuffle in
      place of 'block'; or both with a comma.
  """
  parts = [part for part in (arg or "").split(",") if part]
  if set(parts) - {"runlocal", "none", "full"}:
    raise ValueError(
      "`arg` must be of 'runlocal', 'none' and 'full', with a comma between"
      f" two, got {arg!r}."
    )
  config = ml_collections.ConfigDict()

  config.data = ml_collections.ConfigDict()
  config.data.seq_len = 512  # tokens
  config.data.global_batch_size = 8  # rows over all processes
  config.data.lookahead = True  # the token after the last column
  config.data.document_id = True  # for loss by document

  stdlib = ml_collections.ConfigDict()
  stdlib.store = "data/stdlib"
  stdlib.rows = ml_collections.ConfigDict()
  stdlib.rows.kind = "bin"
  stdlib.rows.packing_buffer_docs = 64  # documents of a window
  stdlib.rows.add_eos = True
  stdlib.rows.document_slots = 16  # documents of a row in document_id
  stdlib.shuffle = ml_collections.ConfigDict()
  stdlib.shuffle.kind = "block"  # blocks are packing windows
  stdlib.shuffle.window_blocks = 4
  config.data.sources = ml_collections.ConfigDict({"stdlib": stdlib})

  config.model = ml_collections.ConfigDict()
  config.model.num_layers = 2
  config.model.num_heads = 2

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 300

  if "runlocal" in parts:
    config.data.seq_len = 64
    stdlib.rows.packing_buffer_docs = 16
    config.model.update(d_model=32, num_layers=1, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=6, log_every_steps=2)
    config.checkpoint = ml_collections.ConfigDict({"every_steps": 3})
  for kind in ("none", "full"):
    if kind in parts:
      stdlib.shuffle = ml_collections.ConfigDict({"kind": kind})
  config.data = chomp_data.with_placeholders(config.data)
  return config
