# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of several sizes in buckets: one static shape a batch.

    make prepare-images  # two datasets of drawn pictures, half a minute
    python examples/train_buckets.py --config=configs/resolution_buckets.py \\
      --workdir=runs/pictures
    python examples/train_buckets.py \\
      --config=configs/resolution_buckets.py:runlocal --workdir=runs/p

Two datasets, digits in many fonts and plots, share the run by pixels. A batch
is of one dataset and one size; large pictures come in smaller batches, so that
all cost about the same. Half a minute on two CPU cores; each of the four
sizes compiles once. `data/images/arrow/<name>` are the same pictures as
`save_to_disk` of Hugging Face writes them, read in place (chomp_data[arrow]).
"""

import ml_collections

import chomp_data


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment; `arg` 'runlocal' shrinks it to seconds."""
  config = ml_collections.ConfigDict()

  config.data = ml_collections.ConfigDict()
  config.data.global_batch_size = 64  # samples over all processes

  config.data.buckets = ml_collections.ConfigDict()
  config.data.buckets.kind = "resolution"
  # (height, width) in pixels; None: those that occur.
  config.data.buckets.sizes = ((32, 32), (32, 48), (48, 32), (64, 64))
  # Arrays, and their shapes: one that is not of its size is an error.
  config.data.buckets.fields = (("pixels", {"shape": ("height", "width", 3)}),)
  config.data.buckets.metadata = ("label",)  # numbers
  config.data.buckets.batch_sizes = (  # samples, where other than above
    ("32x48", 40),
    ("48x32", 40),
    ("64x64", 16),
  )

  config.data.sources = ml_collections.ConfigDict(
    {
      name: {"store": f"data/images/array_record/{name}"}
      for name in ("digits", "plots")
    }
  )
  config.data.mix = ml_collections.ConfigDict()
  config.data.mix.kind = "weighted"
  config.data.mix.unit = "pixels"
  config.data.mix.weights = (("digits", 0.7), ("plots", 0.3))

  config.model = ml_collections.ConfigDict()
  config.model.widths = (32, 64, 128)  # channels
  config.model.num_labels = 16  # ten digits, six kinds of plots

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 800

  if arg == "runlocal":
    config.data.global_batch_size = 4
    config.data.buckets.batch_sizes = (("64x64", 2),)
    config.model.widths = (8, 16)
    config.train.update(num_steps=12, log_every_steps=6)
  elif arg:
    raise ValueError(f"`arg` must be 'runlocal' or absent, got {arg!r}.")
  config.data = chomp_data.with_placeholders(config.data)
  return config
