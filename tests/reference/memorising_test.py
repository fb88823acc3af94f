# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Seed 000's integration tests: a tiny model learns documents from splices."""

import numpy as np
import pytest

import chomp_data
from chomp_data import stores
from chomp_data.reference import decoder
from chomp_data.reference import evaluation
from chomp_data.reference import training
from chomp_data.testing import stores as testing_stores

_SEQ_LEN = 48
_STEPS = 100


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """Trains on 3 of 6 documents of real text for 100 steps."""
  path = tmp_path_factory.mktemp("three") / "store"
  text = (np.__doc__ + np.einsum.__doc__).encode()
  documents = [
    np.frombuffer(text[i * 300 : i * 300 + 60], np.uint8) for i in range(6)
  ]
  testing_stores.make_store(path, documents, vocab_size=259, pad_id=258)
  pipe = chomp_data.build(
    {
      "seq_len": _SEQ_LEN,
      "global_batch_size": 16,
      "document_id": True,
      "sources": {
        "text": {
          "store": str(path),
          "rows": {
            "kind": "multi_splice",
            "num_docs": 3,
            "doc_select_mode": "first",
            "content_length": 32,
            "offset_jitter": 3,
            "alpha": 0.8,
          },
          "shuffle": {"kind": "full"},
        }
      },
    }
  )
  trainer = training.Trainer(
    decoder.DecoderConfig(
      vocab_size=pipe.vocab_size,
      max_positions=_SEQ_LEN,
      d_model=64,
      num_layers=1,
      num_heads=4,
      mlp_dim=128,
    ),
    training.OptimizerOptions(learning_rate=1e-2, warmup_steps=10),
    num_steps=_STEPS,
    mesh=training.data_mesh(),
  )
  state = trainer.init(0)
  losses = []
  with chomp_data.make_iterator(pipe, trainer.batch_sharding) as batches:
    for _ in range(_STEPS):
      state, metrics = trainer.step(state, next(batches))
      losses.append(float(metrics["loss"]))
  return stores.open_store(path), trainer.model(state), losses


def perplexity(store, model, documents, starts):
  grid = chomp_data.GridSource(
    store,
    np.asarray(documents),
    np.asarray(starts),
    np.asarray([14, 16]),
    seq_len=_SEQ_LEN,
    content_length=32,
    min_copy_len=16,
  )
  return evaluation.score(model, evaluation.batches_of(grid, 16)).perplexity


@pytest.mark.slow
def test_loss_decreases_over_100_steps(trained):
  _, _, losses = trained
  assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])
  assert losses[0] == pytest.approx(np.log(259), rel=0.1)


@pytest.mark.slow
def test_documents_are_distinguishable(trained):
  """Each trained document is known, and untrained ones are not."""
  store, model, _ = trained
  known = [perplexity(store, model, [d], [0]) for d in range(3)]
  unknown = [perplexity(store, model, [d], [0]) for d in range(3, 6)]
  assert max(known) < min(unknown) / 3


@pytest.mark.slow
def test_perplexity_is_low_on_later_splices_after_training(trained):
  store, model, _ = trained
  start = perplexity(store, model, [0, 1, 2], [0])
  later = perplexity(store, model, [0, 1, 2], [7, 13, 21])
  untrained = perplexity(store, model, [3, 4, 5], [7, 13, 21])
  assert later < 3 * start
  assert later < untrained / 3
