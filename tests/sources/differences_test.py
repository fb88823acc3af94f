# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers and choices that the documentation states of splices."""

import logging

import numpy as np
import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data.testing import stores as testing_stores


@pytest.mark.parametrize(
  ("mode", "rows"), [("by_coverage", 6_811), ("by_document", 17_715)]
)
def test_epoch_sizes_of_three_documents(make_store, mode, rows):
  store = make_store([np.full(n, 5) for n in (10_000, 5_000, 2_000)])
  options = chomp_data.MultiSpliceOptions(
    num_docs=3, content_length=4_096, balance_mode=mode
  )
  source = chomp_data.SpliceSource(store, options, seq_len=4_096)
  assert len(source) == rows


def test_the_last_window_ends_with_the_document(make_store):
  store = make_store([np.arange(3, 23)])
  options = chomp_data.WindowOptions(stride=5)
  source = chomp_data.SpliceSource(store, options, seq_len=8)
  starts = source.plan(np.arange(len(source))).start.tolist()
  assert starts == [0, 5, 10, 12]


@pytest.mark.parametrize("kind", ["windows", "multi_splice", "sequential"])
def test_lookahead_without_effect_is_logged_once(tmp_path, caplog, kind):
  store = testing_stores.make_store(tmp_path / "store", [range(3, 23)])
  rows = {"kind": kind, **({"num_docs": 1} if kind != "sequential" else {})}
  config = {
    "seq_len": 8,
    "global_batch_size": 1,
    "lookahead": True,
    "sources": {"a": {"store": str(store.path), "rows": rows}},
  }
  with caplog.at_level(logging.INFO):
    pipe = pipeline.build(config)
  batch = pipe.batch(0)
  said = caplog.text.count("lookahead` has no effect on splices and windows")
  if kind == "sequential":
    assert (said, batch["next_token"].tolist()) == (0, [11])
  else:
    assert (said, batch["next_token"].tolist()) == (1, [0])
    assert not batch["loss_mask"][:, -1].any()
