# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Chats packed into rows, of which only the answers are trained on.

    python examples/sft.py --write_chats=data/chats.jsonl
    chomp-prepare --input=data/chats.jsonl --messages_key=messages \\
      --tokenizer=byte --output=data/chats
    python examples/sft.py --config=configs/sft.py
    chomp-train --config=configs/sft.py --workdir=runs/sft

The store says which tokens are trained on, so no option here does
(docs/chats.md). With `add_eos` an answer that ends a chat is followed by an EOS
that is trained on too. Chats longer than a row are dropped and counted. Half a
minute on two CPU cores: 300 steps of [8, 256].
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
  config.data.seq_len = 256  # tokens
  config.data.global_batch_size = 8  # rows over all processes
  # Batches hold `next_token` [B]: the target of the last column where a
  # document continues in the next row, as chats do with long_documents='cut'.
  # Without it that column has no target. examples/sft.py appends it to targets.
  config.data.lookahead = True

  chats = ml_collections.ConfigDict()
  chats.store = "data/chats"
  chats.rows = ml_collections.ConfigDict()
  chats.rows.kind = "bin"
  chats.rows.packing_buffer_docs = 64  # chats of a window
  chats.rows.add_eos = True
  # Part of a chat would be an answer without its question, or without its end.
  chats.rows.long_documents = "drop"  # counted in the log
  chats.shuffle = ml_collections.ConfigDict({"kind": "block"})
  config.data.sources = ml_collections.ConfigDict({"chats": chats})

  config.model = ml_collections.ConfigDict()
  config.model.num_layers = 2
  config.model.num_heads = 2

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 300

  if arg == "runlocal":
    config.data.seq_len = 64
    chats.rows.packing_buffer_docs = 16
    config.model.update(d_model=32, num_layers=1, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=6, log_every_steps=2)
    config.checkpoint = ml_collections.ConfigDict({"every_steps": 3})
  config.data = chomp_data.with_placeholders(config.data)
  return config
