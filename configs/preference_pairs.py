# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Preference pairs packed into rows, for DPO and reward models.

    python examples/dpo.py --write_pairs=data/preferences.jsonl
    chomp-prepare --input=data/preferences.jsonl \\
      --prompt_key=prompt --chosen_key=chosen --rejected_key=rejected \\
      --tokenizer=byte --output=data/preferences
    python examples/dpo.py --config=configs/preference_pairs.py

A pair is never cut: its halves are segments 2p + 1 and 2p + 2 of one row, and
`pair_mask` says which pairs a row has (docs/pairs.md). A pair longer than a row
loses the start of its prompt. A minute on two CPU cores: 300 steps of [8, 256],
some 60 pairs each.
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

  pairs = ml_collections.ConfigDict()
  pairs.store = "data/preferences"
  pairs.rows = ml_collections.ConfigDict()
  pairs.rows.kind = "bin"
  pairs.rows.packing_buffer_docs = 256  # pairs of a window
  pairs.rows.pair_slots = 16  # the most pairs of a row, the width of pair_mask
  pairs.rows.document_slots = 32  # both halves, for columns of documents
  pairs.rows.long_pairs = "truncate_prompt"  # counted in the log
  pairs.rows.add_eos = True
  pairs.shuffle = ml_collections.ConfigDict({"kind": "block"})
  config.data.sources = ml_collections.ConfigDict({"pairs": pairs})

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 150  # of preferring the chosen answers

  # Of examples/dpo.py alone.
  config.dpo = ml_collections.ConfigDict()
  config.dpo.reference_steps = 150  # of training on both answers before
  config.dpo.reference_store = "data/preferences_with_reference"
  config.dpo.beta = 0.5  # how close the model stays to the reference

  if arg == "runlocal":
    config.data.seq_len = 128
    pairs.rows.packing_buffer_docs = 64
    pairs.rows.pair_slots = 8
    pairs.rows.document_slots = 16
    config.dpo.reference_steps = 6
    config.train.num_steps = 6
  config.data = chomp_data.with_placeholders(config.data)
  return config
