"""Text in buckets of lengths: one document a row, or a piece of one.

    make prepare-mix  # three corpora of this machine's own text, a minute
    python tools/train.py --config=configs/length_buckets.py \\
      --workdir=runs/lengths
    python tools/train.py --config=configs/length_buckets.py:runlocal \\
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
from ml_collections import config_dict


def _documents(store: str) -> ml_collections.ConfigDict:
  """Returns a source of one document a row."""
  source = ml_collections.ConfigDict()
  source.store = store
  source.rows = ml_collections.ConfigDict()
  source.rows.add_bos = False
  source.rows.add_eos = True
  source.rows.bos_token_id = config_dict.placeholder(int)
  source.rows.eos_token_id = config_dict.placeholder(int)
  source.rows.filler = "pad"
  source.rows.trailing_filler_in_segment = False
  source.rows.pad_token_id = config_dict.placeholder(int)
  source.shuffle = ml_collections.ConfigDict()
  source.shuffle.seed = config_dict.placeholder(int)
  source.weight = config_dict.placeholder(float)  # where the mix has none
  source.max_epochs = config_dict.placeholder(int)
  return source


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment; `arg` 'runlocal' shrinks it to seconds."""
  config = ml_collections.ConfigDict()

  config.data = ml_collections.ConfigDict()
  config.data.seed = 0
  config.data.epochs = config_dict.placeholder(int)  # None: for ever
  config.data.remainder = "pad"  # or 'drop'
  config.data.worker_count = 0  # child processes that read
  config.data.dataset_mix = config_dict.placeholder(str)  # "a:0.9 b:0.1"
  config.data.prefetch = 2  # batches kept ready on devices
  config.data.timeout_s = 600.0  # seconds
  config.data.on_peer_failure = "exit"  # or 'raise'
  config.data.batch_format = "canonical"
  config.data.train_on_eos = True
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
  config.data.mix.kind = "token_balanced"  # or 'weighted', by samples
  config.data.mix.unit = config_dict.placeholder(str)  # 'tokens', 'samples'
  config.data.mix.weights = (("notes", 0.4), ("stdlib", 0.6))
  config.data.mix.stages = config_dict.placeholder(tuple)
  config.data.mix.exhaustion = "drop"
  config.data.mix.allow_tokenizer_differences = False

  config.model = ml_collections.ConfigDict()
  config.model.d_model = 128
  config.model.num_layers = 2
  config.model.num_heads = 2
  config.model.mlp_dim = 384
  config.model.position_embedding = "rope"  # or 'learned'
  config.model.attention = "segment"  # or 'stream'

  config.optimizer = ml_collections.ConfigDict()
  config.optimizer.learning_rate = 3e-3
  config.optimizer.warmup_steps = 30

  config.train = ml_collections.ConfigDict()
  config.train.num_steps = 300
  config.train.log_every_steps = 25
  config.train.seed = 0

  config.checkpoint = ml_collections.ConfigDict()
  config.checkpoint.every_steps = 100
  config.checkpoint.keep = 2

  if arg == "runlocal":
    config.data.buckets.lengths = (32, 64, 128)
    config.data.buckets.tokens_per_batch = 512
    config.data.buckets.assign = "powers_of_two"
    config.data.buckets.stages = (
      (0, (("32", 0.5), ("64", 0.5))),
      (3, (("32", 0.2), ("64", 0.3), ("128", 0.5))),
    )
    config.model.d_model = 32
    config.model.num_layers = 1
    config.model.mlp_dim = 64
    config.optimizer.warmup_steps = 2
    config.train.num_steps = 8
    config.train.log_every_steps = 2
    config.checkpoint.every_steps = 3
  elif arg:
    raise ValueError(f"`arg` must be 'runlocal' or absent, got {arg!r}.")
  return config
