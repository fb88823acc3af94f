"""Whole documents packed into rows, block-shuffled: pretraining without waste.

    python tools/train.py --config=configs/packed.py --workdir=runs/packed
    python tools/train.py --config=configs/packed.py:full,runlocal \\
      --workdir=runs/l  # seconds

First-Fit-Decreasing over windows of documents, each window a block of the
shuffle. A store of web text takes the default window of 5,120 documents; the
standard library has some 740 long files, so windows are of 64 here. About two
minutes on two CPU cores: 300 steps of [8, 512] at 0.46 M parameters.
"""

import ml_collections
from ml_collections import config_dict


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
  config.data.seed = 0
  config.data.epochs = config_dict.placeholder(int)  # None: for ever
  config.data.remainder = "drop"  # or 'pad'
  config.data.worker_count = 0  # child processes that read
  config.data.dataset_mix = config_dict.placeholder(str)  # "a:0.9 b:0.1"
  config.data.prefetch = 2  # batches kept ready on devices
  config.data.timeout_s = 600.0  # seconds
  config.data.on_peer_failure = "exit"  # or 'raise'
  config.data.batch_format = "canonical"
  config.data.mask_boundary_loss = True  # no label across documents
  config.data.train_on_eos = True
  config.data.lookahead = True  # the token after the last column
  config.data.document_id = True  # for loss by document
  config.data.shuffle_cache_bytes = 2 * 2**30  # windows of block shuffles

  stdlib = ml_collections.ConfigDict()
  stdlib.store = "data/stdlib"
  stdlib.rows = ml_collections.ConfigDict()
  stdlib.rows.kind = "bin"
  # How documents are packed.
  stdlib.rows.packing_algorithm = "ffd"  # or 'exact': the fewest rows
  stdlib.rows.packing_buffer_docs = 64  # documents of a window
  stdlib.rows.packing_max_docs_per_bin = config_dict.placeholder(int)
  stdlib.rows.long_documents = "cut"  # or 'truncate', 'drop'
  stdlib.rows.shuffle_rows = True  # of a window, anew in every epoch
  # Added tokens.
  stdlib.rows.add_bos = False
  stdlib.rows.add_eos = True
  stdlib.rows.bos_token_id = config_dict.placeholder(int)
  stdlib.rows.eos_token_id = config_dict.placeholder(int)
  # In which order documents are packed.
  stdlib.rows.shuffle_documents = "none"  # or 'block', 'full'
  stdlib.rows.reshuffle_documents = True  # each epoch its own order
  stdlib.rows.document_block = config_dict.placeholder(int)  # documents
  # What rows look like.
  stdlib.rows.reset_positions = True  # at each document
  stdlib.rows.filler = "pad"
  stdlib.rows.trailing_filler_in_segment = False
  stdlib.rows.pad_token_id = config_dict.placeholder(int)
  stdlib.rows.document_slots = 16  # documents of a row in document_id
  stdlib.shuffle = ml_collections.ConfigDict()
  stdlib.shuffle.kind = "block"  # blocks are packing windows
  stdlib.shuffle.io_block_size = config_dict.placeholder(int)  # rows
  stdlib.shuffle.window_blocks = 4
  stdlib.shuffle.cache_windows = config_dict.placeholder(int)
  stdlib.shuffle.perm_type = "feistel"  # or 'linear'
  stdlib.shuffle.era_length = config_dict.placeholder(int)  # rows
  stdlib.shuffle.seed = config_dict.placeholder(int)
  config.data.sources = ml_collections.ConfigDict({"stdlib": stdlib})

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

  if "runlocal" in parts:
    config.data.seq_len = 64
    stdlib.rows.packing_buffer_docs = 16
    config.model.d_model = 32
    config.model.num_layers = 1
    config.model.mlp_dim = 64
    config.optimizer.warmup_steps = 2
    config.train.num_steps = 6
    config.train.log_every_steps = 2
    config.checkpoint.every_steps = 3
  for kind in ("none", "full"):
    if kind in parts:
      stdlib.shuffle.kind = kind
      stdlib.shuffle.window_blocks = None
  return config
