# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Held-out stores and P(z), against slow arithmetic on the same model."""

import math

from flax import nnx
import jax.numpy as jnp
import numpy as np
import pytest

import chomp_data
from chomp_data import errors
from chomp_data import iterators
from chomp_data import stores
from chomp_data.prepare import tokenizers
from chomp_data.reference import decoder
from chomp_data.reference import held_out
from chomp_data.testing import stores as testing_stores

_SEQ_LEN = 24
_TEXTS = [
  b"The quick brown fox jumps",
  "h\u00e9 ".encode() * 5,
  b"over a dog",
  b"x",
]


def write(path, texts):
  return stores.write_store(
    path,
    [np.frombuffer(text, np.uint8) for text in texts],
    tokenizer_info=tokenizers.make_tokenizer(tokenizers.TokenizerSpec()).info,
  )


@pytest.fixture(name="pipe")
def fixture_pipe(tmp_path):
  write(tmp_path / "trained", [text * 4 for text in _TEXTS])
  return chomp_data.build(
    {
      "seq_len": _SEQ_LEN,
      "global_batch_size": 4,
      "sources": {
        "text": {
          "store": str(tmp_path / "trained"),
          "rows": {"kind": "sequential"},
          "shuffle": {"kind": "full"},
        }
      },
    }
  )


@pytest.fixture(name="model", scope="module")
def fixture_model():
  config = decoder.DecoderConfig(
    vocab_size=260,
    max_positions=_SEQ_LEN,
    d_model=16,
    num_layers=1,
    num_heads=2,
    mlp_dim=16,
  )
  return decoder.Decoder(config, rngs=nnx.Rngs(0))


@nnx.jit
def logits_of(model, tokens):
  return model(tokens, jnp.ones_like(tokens), jnp.arange(_SEQ_LEN)[None])


def log_probabilities(model, text: bytes) -> np.ndarray:
  """Returns the log probability of each byte but the first, one by one."""
  # What follows does not change what comes before.
  padded = text + bytes(_SEQ_LEN - len(text))
  tokens = jnp.asarray(np.frombuffer(padded, np.uint8)[None].astype(np.int32))
  logits = np.asarray(logits_of(model, tokens), np.float64)[0]
  logits -= logits.max(axis=1, keepdims=True)
  log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
  return log_p[np.arange(len(text) - 1), np.asarray(tokens)[0, 1 : len(text)]]


def test_loss_and_bits_a_byte_are_those_of_documents(pipe, model, tmp_path):
  path = tmp_path / "held"
  write(path, _TEXTS)
  held = held_out.HeldOut("web", str(path), pipe, None)
  loss, bits_per_byte, records = held.measure(model, None)
  # A document longer than a row is cut; one byte alone predicts nothing.
  pieces = [
    [text[i : i + _SEQ_LEN] for i in range(0, len(text), _SEQ_LEN)]
    for text in _TEXTS
  ]
  logs = [
    np.concatenate([log_probabilities(model, own) for own in cut if own[1:]])
    for cut in pieces[:3]
  ]
  assert [own["loss"] for own in records] == sorted(
    (own["loss"] for own in records), reverse=True
  )
  records.sort(key=lambda own: own["document"])
  assert [own["document"] for own in records] == [0, 1, 2]
  assert [own["tokens"] for own in records] == [len(own) for own in logs]
  np.testing.assert_allclose(
    [own["loss"] for own in records], [-own.mean() for own in logs], rtol=1e-5
  )
  assert loss == pytest.approx(-np.concatenate(logs).mean(), 1e-5)
  # Bytes are tokens here.
  assert bits_per_byte == pytest.approx(loss / math.log(2))


def test_held_out_stores_that_cannot_be_measured_are_named(pipe, tmp_path):
  write(tmp_path / "empty", [b"x", b"y"])
  with pytest.raises(errors.ConfigError, match=r"stores\.web.*two tokens"):
    held_out.HeldOut("web", str(tmp_path / "empty"), pipe, None)
  testing_stores.make_store(tmp_path / "other", [[3, 4, 5]], vocab_size=64)
  with pytest.raises(errors.ConfigError, match=r"stores\.web.*tokenizer"):
    held_out.HeldOut("web", str(tmp_path / "other"), pipe, None)


def test_p_z_is_the_probability_of_a_windows_continuation(pipe, model):
  options = held_out.EvaluationOptions(
    pz_window=10, pz_prefix=4, pz_windows=3, pz_documents=2
  )
  asked = held_out.Memorization(pipe, "text", options)
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
      log_probabilities(model, text[start : start + 10])[3:].sum()
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
  write(tmp_path / "a", [text * 4 for text in _TEXTS])
  write(tmp_path / "b", [text * 5 for text in _TEXTS * 4])
  (tmp_path / "gone.jsonl").write_text('{"source": "text", "document": 0}\n')
  data = {
    "seq_len": _SEQ_LEN,
    "global_batch_size": 4,
    "epochs": 3,
    "sources": {
      "text": {
        "store": str(tmp_path / "a"),
        "rows": {"kind": "sequential"},
        "shuffle": {"kind": "full"},
      }
    },
  }
  options = held_out.EvaluationOptions(
    pz_window=10, pz_prefix=4, pz_documents=3
  )

  def documents(data):
    pipe = chomp_data.build(data)
    with iterators.make_iterator(pipe) as batches:
      batches.set_state(state)
      asked = held_out.Memorization(batches.pipeline, "text", options)
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
  asked = held_out.Memorization(chomp_data.build(gone), "text", options)
  assert asked.document.tolist() == [1, 2]


def test_options_that_contradict_are_refused():
  options = held_out.EvaluationOptions(pz_window=10, pz_prefix=10)
  (problem,) = options.problems("config.evaluation", 64)
  assert "must be above pz_prefix, got 10" in problem
  options = held_out.EvaluationOptions(pz_window=100)
  (problem,) = options.problems("config.evaluation", 64)
  assert "at most `config.data.seq_len`, got 100 > 64" in problem
