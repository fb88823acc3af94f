# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A tenth of a run, which repeats each source as often as the whole run would.

    make prepare-mix  # three corpora of this machine's own text, a minute
    chomp-train --config=configs/simulated_epochs.py --workdir=runs/s
    chomp-simulate --config=configs/simulated_epochs.py --steps=300
    chomp-simulate --config=configs/simulated_epochs.py:target --steps=3000

Each source is restricted to a tenth of its tokens, so that the small 'notes'
are repeated as in the run of 3,000 steps, which 'target' is: choices between
mixtures are then made at the repetition that they will have.
docs/mixing.md says which documents are selected. About three minutes on two CPU
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
  source.shuffle = ml_collections.ConfigDict()
  source.shuffle.kind = "block"  # blocks are packing windows
  source.shuffle.window_blocks = 4
  return source


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment.

  Args:
    arg: 'runlocal' shrinks it to seconds; 'target' is the run whose epochs are
      simulated.
  """
  if arg not in (None, "runlocal", "target"):
    raise ValueError(
      f"`arg` must be 'runlocal', 'target' or absent, got {arg!r}."
    )
  config = ml_collections.ConfigDict()

  config.data = ml_collections.ConfigDict()
  config.data.seq_len = 512  # tokens
  config.data.global_batch_size = 8  # rows over all processes

  documents = 16 if arg == "runlocal" else 64  # of a packing window
  config.data.sources = ml_collections.ConfigDict(
    {
      name: _packed(f"data/{name}", documents)
      for name in ("stdlib", "packages", "notes")
    }
  )
  config.data.mix = ml_collections.ConfigDict()
  config.data.mix.weights = (
    ("stdlib", 0.3),
    ("packages", 0.4),
    ("notes", 0.3),
  )
  step_tokens = config.data.seq_len * config.data.global_batch_size
  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 3_000 if arg == "target" else 300
  if arg != "target":
    config.data.simulated_epochs = ml_collections.ConfigDict()
    config.data.simulated_epochs.target_tokens = 3_000 * step_tokens
    config.data.simulated_epochs.run_tokens = 300 * step_tokens

  config.model = ml_collections.ConfigDict()
  config.model.num_layers = 2
  config.model.num_heads = 2

  if arg == "runlocal":
    config.data.seq_len = 64
    config.model.update(d_model=32, num_layers=1, mlp_dim=64)
    config.optimizer = ml_collections.ConfigDict({"warmup_steps": 2})
    config.train.update(num_steps=6, log_every_steps=2)
    config.checkpoint = ml_collections.ConfigDict({"every_steps": 3})
  config.data = chomp_data.with_placeholders(config.data)
  return config
