# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Perplexity is over trained columns, in batches of any size."""

import math

from flax import nnx
import jax
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import evaluation
from chomp_data.splice import grid
from chomp_data.testing import stores as testing_stores

_SEQ_LEN = 32


@pytest.fixture(scope="module")
def store_path(tmp_path_factory):
  rng = np.random.default_rng(0)
  documents = [rng.integers(3, 30, size=n) for n in (90, 70, 80, 40, 75, 72)]
  path = tmp_path_factory.mktemp("corpus") / "store"
  testing_stores.make_store(path, documents, vocab_size=32)
  return str(path)


def _pipe(store_path: str) -> pipeline.Pipeline:
  return pipeline.build(
    {
      "seq_len": _SEQ_LEN,
      "global_batch_size": 8,
      "sources": {"text": {"store": store_path, "rows": {"kind": "bin"}}},
    }
  )


def _decoder() -> decoder_lib.Decoder:
  config = decoder_lib.DecoderConfig(
    vocab_size=32,
    max_positions=_SEQ_LEN,
    d_model=8,
    num_layers=1,
    num_heads=2,
    mlp_dim=8,
  )
  return decoder_lib.Decoder(config, rngs=nnx.Rngs(0))


def _rows(store_path: str) -> grid.GridSource:
  """Returns twelve rows of half a row each, at four columns."""
  source = _pipe(store_path).sources["text"]
  return grid.GridSource(
    source.store,
    np.arange(3),
    np.zeros((3, 1), np.int64),
    np.asarray([0, 1, 2, 5]),
    seq_len=_SEQ_LEN,
    content_length=_SEQ_LEN // 2,
    min_copy_len=_SEQ_LEN // 2,
    layout=source.layout,
    name="text",
  )


def test_the_score_of_a_grid_is_the_same_in_batches_of_any_size(store_path):
  rows = _rows(store_path)
  model = _decoder()
  whole = evaluation.score(model, evaluation.batches_of(rows, len(rows)))
  cut = evaluation.score(model, evaluation.batches_of(rows, len(rows) - 2))
  assert whole.rows == cut.rows == len(rows)
  assert whole.tokens == cut.tokens == len(rows) * (_SEQ_LEN // 2 - 1)
  assert math.isclose(whole.nll, cut.nll, rel_tol=1e-5)


def test_perplexity_of_equal_logits_is_the_vocabulary_size(store_path):
  rows = _rows(store_path)
  model = _decoder()
  model.embedding[...] = 0.0 * model.embedding[...]
  sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  batches = evaluation.batches_of(rows, 4)
  score = evaluation.score(model, batches, sharding)
  assert math.isclose(score.perplexity, 32, rel_tol=1e-5)


def test_perplexity_without_a_trained_column_is_nan():
  assert math.isnan(evaluation.score(_decoder(), []).perplexity)
