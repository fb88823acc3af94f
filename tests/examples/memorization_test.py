# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""P(z), against slow arithmetic on the same model."""

import numpy as np
import pytest

import chomp_data
from chomp_data import iterators
from chomp_data import stores
from examples.experiments import memorization
from tests.reference import held_out_test as held_out

pipe, model = held_out.fixture_pipe, held_out.fixture_model


def test_p_z_is_the_probability_of_a_windows_continuation(pipe, model):
  options = memorization.Options(window=10, prefix=4, windows=3, documents=2)
  asked = memorization.Memorization(pipe, "text", options)
  assert len(asked.document) == 2
  records = asked.measure(model, 7, None)
  store = pipe.sources["text"].store
  for own in records:
    text = (
      stores.read_document(store, own["document"]).astype(np.uint8).tobytes()
    )
    last = len(text) - 10
    starts = sorted({0, last // 2, last})
    logs = [
      held_out.log_probabilities(model, text[start : start + 10])[3:].sum()
      for start in starts
    ]
    assert own["windows"] == len(starts)
    assert own["log_p_z"] == pytest.approx(np.mean(logs), rel=1e-4)
    assert own["p_z"] == pytest.approx(np.mean(np.exp(logs)), rel=1e-3)
    assert own["p_z_max"] == pytest.approx(np.exp(max(logs)), rel=1e-3)
    spans = pipe.plan(0, 7).document
    assert own["exposures"] == np.count_nonzero(spans == own["document"])
  assert asked.exposures(0).tolist() == [0, 0]
  later = asked.exposures(9)
  spans = pipe.plan(0, 9).document
  counts = np.bincount(spans, minlength=max(asked.document) + 1)
  assert later.tolist() == counts[asked.document].tolist()


def test_documents_are_those_that_a_resumed_run_has_read_first(tmp_path):
  held_out.write(tmp_path / "a", [text * 4 for text in held_out.TEXTS])
  held_out.write(tmp_path / "b", [text * 5 for text in held_out.TEXTS * 4])
  (tmp_path / "gone.jsonl").write_text('{"source": "text", "document": 0}\n')
  data = {**held_out.data_of(tmp_path / "a"), "epochs": 3}
  options = memorization.Options(window=10, prefix=4, documents=3)

  def documents(data):
    pipe = chomp_data.build(data)
    with iterators.make_iterator(pipe) as batches:
      batches.set_state(state)
      asked = memorization.Memorization(batches.pipeline, "text", options)
      return asked.document.tolist()

  with iterators.make_iterator(data) as batches:
    next(batches)
    state = batches.get_state()
  assert documents(data) == [0, 1, 2]
  both = (str(tmp_path / "a"), str(tmp_path / "b"))
  source = {"text": {**data["sources"]["text"], "store": both}}
  # The second store joins at the next epoch, as the state tells.
  assert documents({**data, "sources": source}) == [0, 1, 2]
  # A document that is gone before it came is not asked.
  gone = {**data, "tombstones": ((0, str(tmp_path / "gone.jsonl")),)}
  asked = memorization.Memorization(chomp_data.build(gone), "text", options)
  assert asked.document.tolist() == [1, 2]
