"""Splices of ten files as one part of a pretraining mix.

    make prepare-mix  # corpora of this machine's own text, a minute
    python tools/train.py --config=configs/splice_in_mix.py --workdir=runs/sm
    python tools/train.py --config=configs/splice_in_mix.py:runlocal \\
      --workdir=runs/l  # seconds

Nine of ten tokens are packed documents of installed packages, one is of ten
standard library files placed at every position of the row. The run ends with
a coverage report of both. Other stores:
--dataset_mix='packages=data/a:0.9 stdlib=data/b:0.1'. About three minutes on
two CPU cores: 300 steps of [8, 512] at 0.46 M parameters.
"""

import ml_collections
from ml_collections import config_dict


def _packed(store: str, buffer_docs: int) -> ml_collections.ConfigDict:
  """Returns a bin-packed, block-shuffled source."""
  source = ml_collections.ConfigDict()
  source.store = store
  source.rows = ml_collections.ConfigDict()
  source.rows.kind = "bin"
  # How documents are packed.
  source.rows.packing_algorithm = "ffd"  # or 'exact': the fewest rows
  source.rows.packing_buffer_docs = buffer_docs  # documents of a window
  source.rows.packing_max_docs_per_bin = config_dict.placeholder(int)
  source.rows.long_documents = "cut"  # or 'truncate', 'drop'
  source.rows.shuffle_rows = True  # of a window, anew in every epoch
  # Added tokens.
  source.rows.add_bos = False
  source.rows.add_eos = True
  source.rows.bos_token_id = config_dict.placeholder(int)
  source.rows.eos_token_id = config_dict.placeholder(int)
  # In which order documents are packed.
  source.rows.shuffle_documents = "none"  # or 'block', 'full'
  source.rows.reshuffle_documents = True  # each epoch its own order
  source.rows.document_block = config_dict.placeholder(int)  # documents
  # What rows look like.
  source.rows.reset_positions = True  # at each document
  source.rows.filler = "pad"
  source.rows.trailing_filler_in_segment = False
  source.rows.pad_token_id = config_dict.placeholder(int)
  source.rows.document_slots = 16  # documents of a row in document_id
  source.shuffle = ml_collections.ConfigDict()
  source.shuffle.kind = "block"  # blocks are packing windows
  source.shuffle.io_block_size = config_dict.placeholder(int)  # rows
  source.shuffle.window_blocks = 4
  source.shuffle.cache_windows = config_dict.placeholder(int)
  source.shuffle.perm_type = "feistel"  # or 'linear'
  source.shuffle.era_length = config_dict.placeholder(int)  # rows
  source.shuffle.seed = config_dict.placeholder(int)
  source.weight = config_dict.placeholder(float)  # where the mix has none
  source.max_epochs = config_dict.placeholder(int)
  return source


def get_config(arg: str | None = None) -> ml_collections.ConfigDict:
  """Returns the experiment; `arg` 'runlocal' shrinks it to seconds."""
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
  stdlib.rows.kind = "multi_splice"
  # Which documents.
  stdlib.rows.num_docs = 10
  stdlib.rows.strict_num_docs = True
  stdlib.rows.doc_select_mode = "longest"
  stdlib.rows.min_doc_length = 512  # tokens: one full row
  stdlib.rows.max_doc_length = 6_250  # tokens
  stdlib.rows.restrict_to_training_subset = False
  stdlib.rows.initial_batch_size = config_dict.placeholder(int)  # rows
  stdlib.rows.max_train_batches = config_dict.placeholder(int)
  # Which starts and offsets.
  stdlib.rows.mode = "splice"
  stdlib.rows.content_start_mode = "coverage_balanced"
  stdlib.rows.content_length = config.data.get_ref("seq_len")  # K = S, tokens
  stdlib.rows.content_stride = 1  # tokens
  stdlib.rows.offset_stride = 1  # columns
  stdlib.rows.offset_domain = config_dict.placeholder(str)
  stdlib.rows.min_copy_len = 8  # tokens
  stdlib.rows.alpha = 0.8
  stdlib.rows.adaptive_k = True
  stdlib.rows.offset_jitter = 2  # columns
  stdlib.rows.jitter_mode = "uniform"
  # How often each document.
  stdlib.rows.balance_mode = "by_temperature"
  stdlib.rows.balance_tau = 0.7
  stdlib.rows.doc_weights = config_dict.placeholder(tuple)
  stdlib.rows.epoch_length = config_dict.placeholder(int)  # rows
  stdlib.rows.groups = config_dict.placeholder(tuple)  # (name, ids) pairs
  stdlib.rows.group_by_meta = False  # or by prepare.py's --meta_key
  stdlib.rows.group_weights = config_dict.placeholder(tuple)
  stdlib.rows.doc_overrides = config_dict.placeholder(tuple)  # stride, alpha
  # What changes with the rows of the source.
  stdlib.rows.curriculum_start = config_dict.placeholder(int)  # documents
  stdlib.rows.curriculum_every = config_dict.placeholder(int)  # rows
  stdlib.rows.content_length_schedule = config_dict.placeholder(tuple)
  # In which order.
  stdlib.rows.shuffle_content = False
  stdlib.rows.shuffle_offsets = False
  stdlib.rows.content_seed = config_dict.placeholder(int)
  stdlib.rows.offset_seed = config_dict.placeholder(int)
  # What stands around a copy.
  stdlib.rows.filler = "pad"
  stdlib.rows.trailing_filler_in_segment = True
  stdlib.rows.eos_before_document = False
  stdlib.rows.pad_token_id = config_dict.placeholder(int)
  stdlib.rows.eos_token_id = config_dict.placeholder(int)
  stdlib.shuffle = ml_collections.ConfigDict()
  stdlib.shuffle.kind = "full"  # a new permutation each epoch, or 'none'
  stdlib.shuffle.io_block_size = config_dict.placeholder(int)  # rows
  stdlib.shuffle.window_blocks = config_dict.placeholder(int)
  stdlib.shuffle.cache_windows = config_dict.placeholder(int)
  stdlib.shuffle.perm_type = "feistel"  # or 'linear'
  stdlib.shuffle.era_length = config_dict.placeholder(int)  # rows
  stdlib.shuffle.seed = config_dict.placeholder(int)
  stdlib.weight = config_dict.placeholder(float)  # where the mix has none
  stdlib.max_epochs = config_dict.placeholder(int)
  packages = _packed("data/packages", 16 if arg == "runlocal" else 64)
  config.data.sources = ml_collections.ConfigDict(
    {"packages": packages, "stdlib": stdlib}
  )
  config.data.mix = ml_collections.ConfigDict()
  config.data.mix.kind = "token_balanced"  # or 'weighted', by rows
  config.data.mix.unit = config_dict.placeholder(str)  # or 'loss_tokens'
  config.data.mix.weights = (("packages", 0.9), ("stdlib", 0.1))
  config.data.mix.stages = config_dict.placeholder(tuple)
  config.data.mix.exhaustion = "drop"
  config.data.mix.allow_tokenizer_differences = False
  config.data.mix.resume_state = config_dict.placeholder(dict)

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
    config.data.seq_len = 64
    stdlib.rows.num_docs = 3
    config.model.d_model = 32
    config.model.num_layers = 1
    config.model.mlp_dim = 64
    config.optimizer.warmup_steps = 2
    config.train.num_steps = 6
    config.train.log_every_steps = 2
    config.checkpoint.every_steps = 3
  elif arg:
    raise ValueError(f"`arg` must be 'runlocal' or absent, got {arg!r}.")
  return config
