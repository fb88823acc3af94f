# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Grids differ in one thing at a time; perplexity is over trained columns."""

import math

from flax import nnx
import jax
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import evaluation
from chomp_data.testing import stores as testing_stores

_SEQ_LEN = 32


@pytest.fixture(scope="module")
def store_path(tmp_path_factory):
  rng = np.random.default_rng(0)
  documents = [rng.integers(3, 30, size=n) for n in (90, 70, 80, 40, 75, 72)]
  path = tmp_path_factory.mktemp("corpus") / "store"
  testing_stores.make_store(path, documents, vocab_size=32)
  return str(path)


def _pipe(store_path: str, **rows) -> pipeline.Pipeline:
  return pipeline.build(
    {
      "seq_len": _SEQ_LEN,
      "global_batch_size": 8,
      "sources": {
        "text": {
          "store": store_path,
          "rows": {
            "kind": "multi_splice",
            "num_docs": 3,
            "doc_select_mode": "first",
            "content_length": _SEQ_LEN,
            "offset_jitter": 2,
            **rows,
          },
        }
      },
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


def test_what_was_trained_is_what_the_plan_holds(store_path):
  pipe = _pipe(store_path)
  seen = evaluation.trained(pipe, 20)["text"]
  spans = pipe.plan(0, 20)
  assert set(seen.documents) == set(spans.document) == {0, 1, 2}
  assert set(seen.columns) == set(spans.column) == {0, 1, 2}
  assert seen.longest == spans.length.max() == _SEQ_LEN - 2


def test_each_question_changes_one_thing(store_path):
  pipe = _pipe(store_path)
  seen = evaluation.trained(pipe, 20)["text"]
  grids = evaluation.grids(pipe.sources["text"], seen)
  assert list(grids) == [
    evaluation.DOCUMENT_STARTS,
    evaluation.LATER_STARTS,
    evaluation.UNSEEN_OFFSETS,
    evaluation.UNTRAINED_DOCUMENTS,
  ]
  plans = {
    name: rows.plan(np.arange(len(rows))) for name, rows in grids.items()
  }
  trained_documents, trained_columns = {0, 1, 2}, {0, 1, 2}
  for name, spans in plans.items():
    assert set(spans.length) == {_SEQ_LEN // 2}
    is_new_column = set(spans.column).isdisjoint(trained_columns)
    assert is_new_column == (name == evaluation.UNSEEN_OFFSETS)
    is_new_document = set(spans.document).isdisjoint(trained_documents)
    assert is_new_document == (name == evaluation.UNTRAINED_DOCUMENTS)
  assert set(plans[evaluation.DOCUMENT_STARTS].start) == {0}
  assert plans[evaluation.LATER_STARTS].start.min() > 0
  # Document 3 is shorter than every trained one, 4 and 5 are alike.
  assert set(plans[evaluation.UNTRAINED_DOCUMENTS].document) == {4, 5}


def test_copies_shorter_than_half_a_row_are_asked_where_they_were_placed(
  store_path,
):
  pipe = _pipe(store_path, content_length=8, offset_jitter=0)
  seen = evaluation.trained(pipe, 20)["text"]
  assert set(seen.columns) == {_SEQ_LEN - 8}
  grids = evaluation.grids(pipe.sources["text"], seen)
  rows = grids[evaluation.DOCUMENT_STARTS]
  spans = rows.plan(np.arange(len(rows)))
  assert set(spans.length) == {8}
  assert set(spans.column) == {_SEQ_LEN - 8}


def test_questions_without_rows_are_left_out(store_path):
  pipe = _pipe(store_path, num_docs=None)
  seen = evaluation.trained(pipe, 60)["text"]
  grids = evaluation.grids(pipe.sources["text"], seen)
  assert evaluation.UNTRAINED_DOCUMENTS not in grids
  nothing = evaluation.Trained(np.empty(0, np.int64), np.empty(0, np.int64), 0)
  assert evaluation.grids(pipe.sources["text"], nothing) == {}


def test_the_score_of_a_grid_is_the_same_in_batches_of_any_size(store_path):
  pipe = _pipe(store_path)
  seen = evaluation.trained(pipe, 20)["text"]
  rows = evaluation.grids(pipe.sources["text"], seen)[
    evaluation.DOCUMENT_STARTS
  ]
  model = _decoder()
  whole = evaluation.score(model, evaluation.batches_of(rows, len(rows)))
  cut = evaluation.score(model, evaluation.batches_of(rows, len(rows) - 2))
  assert whole.rows == cut.rows == len(rows)
  assert whole.tokens == cut.tokens == len(rows) * (_SEQ_LEN // 2 - 1)
  assert math.isclose(whole.nll, cut.nll, rel_tol=1e-5)


def test_perplexity_of_equal_logits_is_the_vocabulary_size(store_path):
  pipe = _pipe(store_path)
  seen = evaluation.trained(pipe, 20)["text"]
  rows = evaluation.grids(pipe.sources["text"], seen)[evaluation.LATER_STARTS]
  model = _decoder()
  model.embedding[...] = 0.0 * model.embedding[...]
  sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  batches = evaluation.batches_of(rows, 4)
  score = evaluation.score(model, batches, sharding)
  assert math.isclose(score.perplexity, 32, rel_tol=1e-5)


def test_perplexity_without_a_trained_column_is_nan():
  assert math.isnan(evaluation.score(_decoder(), []).perplexity)
