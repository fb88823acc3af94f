# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Text in buckets of lengths: one document a row, or a piece of one.

    make prepare-mix  # three corpora of this machine's own text, a minute
    chomp-train --config=configs/length_buckets.py \\
      --workdir=runs/lengths
    chomp-train --config=configs/length_buckets.py:runlocal \\
      --workdir=runs/l  # seconds

Batches are of one source and of one length, with as many tokens each: 64 rows
of 64 tokens up to 4 of 1,024. Documents are cut into pieces of powers of two,
which leaves next to no padding; `assign = "least_waste"` keeps those whole that
a bucket holds. A curriculum begins with short rows; the summary at the start
tells how often each stage gives the pieces of each bucket.
About three minutes on two CPU cores: 300 steps of 4,096 tokens at 0.46 M
parameters; every bucket compiles once, at its first batch.
"""

import ml_collections

import chomp_data


def _documents(store: str) -> ml_collections.ConfigDict:
  """Returns a source of one document a row."""
  source = ml_collections.ConfigDict()
  source.store = store
  source.rows = ml_collections.ConfigDict()
  source.rows.add_eos = True
  return source


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment; `arg` 'runlocal' shrinks it to seconds."""
  config = ml_collections.ConfigDict()

  config.data = ml_collections.ConfigDict()
  config.data.remainder = "pad"
  config.data.lookahead = True  # the token after the last column
  config.data.document_id = True  # for loss by document

  config.data.buckets = ml_collections.ConfigDict()
  config.data.buckets.kind = "length"
  config.data.buckets.lengths = (64, 128, 256, 512, 1_024)  # tokens of a row
  config.data.buckets.tokens_per_batch = 4_096  # over all processes
  config.data.buckets.assign = "powers_of_two"  # or 'least_waste'
  config.data.buckets.stages = (  # (from step, weights): others from there on
    (0, (("64", 0.1), ("128", 0.2), ("256", 0.3), ("512", 0.4))),
    (60, (("128", 0.1), ("256", 0.2), ("512", 0.3), ("1024", 0.4))),
  )

  config.data.sources = ml_collections.ConfigDict(
    {name: _documents(f"data/{name}") for name in ("stdlib", "notes")}
  )
  config.data.mix = ml_collections.ConfigDict()
  config.data.mix.weights = (("notes", 0.4), ("stdlib", 0.6))  # of tokens

  config.model = ml_collections.ConfigDict()
  config.model.num_layers = 2
  config.model.num_heads = 2

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 300

  if arg == "runlocal":
    config.data.buckets.lengths = (32, 64, 128)
    config.data.buckets.tokens_per_batch = 512
    config.data.buckets.stages = (
      (0, (("32", 0.5), ("64", 0.5))),
      (3, (("32", 0.2), ("64", 0.3), ("128", 0.5))),
    )
    config.model.update(d_model=32, num_layers=1, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=8, log_every_steps=2)
    config.checkpoint = ml_collections.ConfigDict({"every_steps": 3})
  elif arg:
    raise ValueError(f"`arg` must be 'runlocal' or absent, got {arg!r}.")
  config.data = chomp_data.with_placeholders(config.data)
  return config
