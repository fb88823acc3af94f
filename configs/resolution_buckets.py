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
from ml_collections import config_dict


def _pictures(store: str) -> ml_collections.ConfigDict:
  """Returns a source of one picture a row."""
  source = ml_collections.ConfigDict()
  source.store = store
  source.rows = ml_collections.ConfigDict()
  source.rows.height_field = "height"
  source.rows.width_field = "width"
  source.shuffle = ml_collections.ConfigDict()
  source.shuffle.seed = config_dict.placeholder(int)
  source.weight = config_dict.placeholder(float)  # where the mix has none
  source.max_epochs = config_dict.placeholder(int)
  return source


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment; `arg` 'runlocal' shrinks it to seconds."""
  config = ml_collections.ConfigDict()

  config.data = ml_collections.ConfigDict()
  config.data.global_batch_size = 64  # samples over all processes
  config.data.seed = 0
  config.data.epochs = config_dict.placeholder(int)  # None: for ever
  config.data.remainder = "drop"  # or 'pad'
  config.data.worker_count = 0  # child processes that read
  config.data.dataset_mix = config_dict.placeholder(str)  # "a:0.9 b:0.1"
  config.data.prefetch = 2  # batches kept ready on devices
  config.data.timeout_s = 600.0  # seconds
  config.data.on_peer_failure = "exit"  # or 'raise'

  config.data.buckets = ml_collections.ConfigDict()
  config.data.buckets.kind = "resolution"
  # (height, width) in pixels; None: those that occur.
  config.data.buckets.sizes = ((32, 32), (32, 48), (48, 32), (64, 64))
  # Arrays, and their shapes: one that is not of its size is an error.
  config.data.buckets.fields = (("pixels", {"shape": ("height", "width", 3)}),)
  config.data.buckets.metadata = ("label",)  # numbers
  config.data.buckets.unbucketed = "error"  # or 'drop': other sizes
  config.data.buckets.patch_size = 1  # pixels of a side, for unit 'tokens'
  config.data.buckets.batch_sizes = (  # samples, where other than above
    ("32x48", 40),
    ("48x32", 40),
    ("64x64", 16),
  )
  config.data.buckets.stages = config_dict.placeholder(tuple)  # a curriculum

  config.data.sources = ml_collections.ConfigDict(
    {
      name: _pictures(f"data/images/array_record/{name}")
      for name in ("digits", "plots")
    }
  )
  config.data.mix = ml_collections.ConfigDict()
  config.data.mix.kind = "weighted"
  config.data.mix.unit = "pixels"  # or 'samples', 'tokens'
  config.data.mix.weights = (("digits", 0.7), ("plots", 0.3))
  config.data.mix.stages = config_dict.placeholder(tuple)
  config.data.mix.exhaustion = "drop"
  config.data.mix.allow_tokenizer_differences = False

  config.model = ml_collections.ConfigDict()
  config.model.widths = (32, 64, 128)  # channels
  config.model.num_labels = 16  # ten digits, six kinds of plots

  config.optimizer = ml_collections.ConfigDict()
  config.optimizer.learning_rate = 2e-3

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 800
  config.train.log_every_steps = 100
  config.train.checkpoint_every_steps = 100

  if arg == "runlocal":
    config.data.global_batch_size = 4
    config.data.buckets.batch_sizes = (("64x64", 2),)
    config.model.widths = (8, 16)
    config.train.num_steps = 12
    config.train.log_every_steps = 6
  elif arg:
    raise ValueError(f"`arg` must be 'runlocal' or absent, got {arg!r}.")
  return config
