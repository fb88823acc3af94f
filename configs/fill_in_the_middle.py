# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packed functions of Python, half of which are rearranged (FIM).

    python examples/stdlib_documents.py --output=data/text
    chomp-prepare --input=data/text/functions.jsonl \\
      --tokenizer=byte --output=data/code
    chomp-train --config=configs/fill_in_the_middle.py \\
      --workdir=runs/fim
    chomp-inspect --config=fill_in_the_middle --rows=2

A function that ends in its row is cut in two places, and its middle comes last,
after prefix and suffix: docs/targets.md. The sentinels are three bytes that
UTF-8 never uses; a tokenizer of a code model has tokens for them. 300 steps of
[8, 1024].
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
  config.data.seq_len = 1_024  # tokens
  config.data.global_batch_size = 8  # rows over all processes

  code = ml_collections.ConfigDict()
  code.store = "data/code"
  code.rows = ml_collections.ConfigDict()
  code.rows.kind = "bin"
  code.rows.packing_buffer_docs = 512  # documents of a window
  code.rows.add_eos = True  # a model must learn where a middle ends
  # By default half of the functions, and of those half with the suffix first.
  code.rows.fim = ml_collections.ConfigDict()
  code.rows.fim.prefix_id = 0xFD
  code.rows.fim.suffix_id = 0xFE
  code.rows.fim.middle_id = 0xFF
  code.shuffle = ml_collections.ConfigDict()
  code.shuffle.kind = "block"  # blocks are packing windows
  config.data.sources = ml_collections.ConfigDict({"code": code})

  config.model = ml_collections.ConfigDict()
  config.model.num_layers = 2
  config.model.num_heads = 2

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 300

  if arg == "runlocal":
    config.data.seq_len = 64
    code.rows.packing_buffer_docs = 16
    config.model.update(d_model=32, num_layers=1, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=6, log_every_steps=2)
    config.checkpoint = ml_collections.ConfigDict({"every_steps": 3})
  config.data = chomp_data.with_placeholders(config.data)
  return config
