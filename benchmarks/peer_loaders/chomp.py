# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""chomp_data, through its public API: `build`, then `data_loader`."""

from typing import Any

import numpy as np
from peer_loaders import base

import chomp_data
from chomp_data import pipeline as _pipeline  # noqa: F401
from chomp_data import stores

# What `chomp_data` would import when it is first asked, before clocks run.
from chomp_data.loading import feed as _feed  # noqa: F401

DISTRIBUTION = "chomp_data"
KINDS = {
  "one source, full shuffle": "`sequential`, shuffle `full`",
  "one source, block shuffle": "`sequential`, shuffle `block`",
  "mix": "`sequential`, shuffle `block`, `token_balanced`",
  "packed, ffd": "`bin`, shuffle `block`",
  "packed, exact": "`bin`, `exact`, shuffle `block`",
  "splice": "`multi_splice`, 10 documents a row",
}

_ROWS: dict[str, dict[str, Any]] = {
  "one source, full shuffle": {"kind": "sequential"},
  "one source, block shuffle": {"kind": "sequential"},
  "mix": {"kind": "sequential"},
  "packed, ffd": {"kind": "bin"},
  "packed, exact": {"kind": "bin", "packing_algorithm": "exact"},
  "splice": {
    "kind": "multi_splice",
    "num_docs": 10,
    "content_length": base.SEQ_LEN,
    "alpha": 0.8,
    "balance_tau": 0.7,
    "offset_jitter": 2,
  },
}


def prepare(setting: base.Setting) -> None:
  """Writes stores, once for all kinds, and the indexes beside them."""
  import hashlib

  info = stores.TokenizerInfo(
    kind="custom",
    sha256=hashlib.sha256(b"synthetic").hexdigest(),
    vocab_size=base.VOCAB_SIZE,
    pad_id=base.PAD,
    eos_id=base.EOS,
    bos_id=None,
    adds_bos=False,
    adds_eos=True,
  )
  for name in setting.names:
    path = setting.directory / "chomp" / name
    if not path.exists():
      stores.write_store(path, setting.documents(name), tokenizer_info=info)
  next(Loader(setting))


def _config(setting: base.Setting) -> dict[str, Any]:
  """Returns `config.data`."""
  shuffle = "full" if "full" in setting.kind else "block"
  sources: dict[str, Any] = {}
  for name in setting.names:
    sources[name] = {
      "store": str(setting.directory / "chomp" / name),
      "rows": _ROWS[setting.kind],
    }
    if setting.kind != "splice":
      sources[name]["shuffle"] = {"kind": shuffle}
  config: dict[str, Any] = {
    "seq_len": base.SEQ_LEN,
    "global_batch_size": setting.batch_size,
    "sources": sources,
    "epochs": 1 if setting.once else None,
  }
  if len(sources) > 1:
    config["mix"] = {"kind": "token_balanced", "weights": base.WEIGHTS}
  return config


class Loader(base.GrainLoader):
  """Host batches with every canonical field."""

  def __init__(self, setting: base.Setting):
    """Builds the pipeline."""
    super().__init__(setting)
    pipe = chomp_data.build(_config(setting))
    rows = np.arange(setting.local_rows) + setting.rank * setting.local_rows
    local_rows = None if setting.ranks == 1 else rows
    self._iterator = iter(pipe.data_loader(local_rows))
