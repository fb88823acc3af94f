# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Held-out stores, against slow arithmetic on the same model."""

import math

from flax import nnx
import jax.numpy as jnp
import numpy as np
import pytest

import chomp_data
from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import tokenizers
from chomp_data.reference import decoder
from chomp_data.reference import held_out
from chomp_data.testing import stores as testing_stores

SEQ_LEN = 24
TEXTS = [
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


def data_of(store):
  return {
    "seq_len": SEQ_LEN,
    "global_batch_size": 4,
    "sources": {
      "text": {
        "store": str(store),
        "rows": {"kind": "sequential"},
        "shuffle": {"kind": "full"},
      }
    },
  }


@pytest.fixture(name="pipe")
def fixture_pipe(tmp_path):
  write(tmp_path / "trained", [text * 4 for text in TEXTS])
  return chomp_data.build(data_of(tmp_path / "trained"))


@pytest.fixture(name="model", scope="module")
def fixture_model():
  config = decoder.DecoderConfig(
    vocab_size=260,
    max_positions=SEQ_LEN,
    d_model=16,
    num_layers=1,
    num_heads=2,
    mlp_dim=16,
  )
  return decoder.Decoder(config, rngs=nnx.Rngs(0))


@nnx.jit
def logits_of(model, tokens):
  return model(tokens, jnp.ones_like(tokens), jnp.arange(SEQ_LEN)[None])


def log_probabilities(model, text: bytes) -> np.ndarray:
  """Returns the log probability of each byte but the first, one by one."""
  # What follows does not change what comes before.
  padded = text + bytes(SEQ_LEN - len(text))
  tokens = jnp.asarray(np.frombuffer(padded, np.uint8)[None].astype(np.int32))
  logits = np.asarray(logits_of(model, tokens), np.float64)[0]
  logits -= logits.max(axis=1, keepdims=True)
  log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
  return log_p[np.arange(len(text) - 1), np.asarray(tokens)[0, 1 : len(text)]]


def test_loss_and_bits_a_byte_are_those_of_documents(pipe, model, tmp_path):
  path = tmp_path / "held"
  write(path, TEXTS)
  held = held_out.HeldOut("web", str(path), pipe, None)
  loss, bits_per_byte = held.measure(model, None)
  # A document longer than a row is cut; one byte alone predicts nothing.
  logs = [
    log_probabilities(model, text[i : i + SEQ_LEN])
    for text in TEXTS[:3]
    for i in range(0, len(text), SEQ_LEN)
    if len(text) > i + 1
  ]
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
