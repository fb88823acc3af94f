# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Attention follows segments and positions follow `positions`."""

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from chomp_data import schema
from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import training

# Long, and of the reference trainer or other libraries: see `make test-slow`.
pytestmark = pytest.mark.slow

_VOCAB, _SEQ_LEN = 19, 12


def _decoder(**options) -> decoder_lib.Decoder:
  config = decoder_lib.DecoderConfig(
    vocab_size=_VOCAB,
    max_positions=64,
    d_model=16,
    num_layers=2,
    num_heads=2,
    mlp_dim=24,
    **options,
  )
  return decoder_lib.Decoder(config, rngs=nnx.Rngs(0))


def _two_documents() -> dict[str, jax.Array]:
  """One row: document A in columns 0..4, document B in 5..11."""
  rng = np.random.default_rng(1)
  segment_ids = np.asarray([[1] * 5 + [2] * 7], np.int32)
  loss_mask = np.ones((1, _SEQ_LEN), np.bool_)
  loss_mask[0, [4, 11]] = False
  return {
    "tokens": jnp.asarray(rng.integers(0, _VOCAB, (1, _SEQ_LEN), np.int32)),
    "segment_ids": jnp.asarray(segment_ids),
    "positions": jnp.arange(_SEQ_LEN, dtype=jnp.int32)[None],
    "loss_mask": jnp.asarray(loss_mask),
  }


def _gradient_of_b_at(model: decoder_lib.Decoder) -> np.ndarray:
  """Returns |d loss of B / d embedding| summed by column, float32[S]."""
  batch = _two_documents()
  batch["loss_mask"] &= batch["segment_ids"] == 2

  def loss(embedded):
    logits = model.logits(embedded, batch["segment_ids"], batch["positions"])
    return training.token_nll(logits, batch)[0].sum()

  embedded = model.embed(batch["tokens"], batch["positions"])
  gradient = jax.jit(jax.grad(loss))(embedded)
  return np.abs(gradient).sum(axis=(0, 2))


@pytest.mark.parametrize("position_embedding", ["rope", "learned"])
@pytest.mark.slow
def test_a_document_takes_nothing_from_its_neighbour_in_segment_attention(
  position_embedding,
):
  model = _decoder(attention="segment", position_embedding=position_embedding)
  by_column = _gradient_of_b_at(model)
  assert np.all(by_column[:5] == 0.0)
  assert np.all(by_column[5:11] > 0.0)


def test_a_document_reads_its_neighbour_in_stream_attention():
  by_column = _gradient_of_b_at(_decoder(attention="stream"))
  assert np.all(by_column[:11] > 0.0)


def test_attention_masks_are_the_docstrings_example():
  segment_ids = jnp.asarray([[1, 1, 2]])
  segment = decoder_lib.attention_mask(segment_ids, "segment")
  stream = decoder_lib.attention_mask(segment_ids, "stream")
  np.testing.assert_array_equal(segment, [[[1, 0, 0], [1, 1, 0], [0, 0, 1]]])
  np.testing.assert_array_equal(stream, [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]])


@pytest.mark.parametrize("attention", ["segment", "stream"])
def test_no_column_sees_a_later_one(attention):
  model, batch = _decoder(attention=attention), _two_documents()
  tokens = batch["tokens"]
  changed = tokens.at[0, 8].set((tokens[0, 8] + 1) % _VOCAB)
  before = model(tokens, batch["segment_ids"], batch["positions"])
  after = model(changed, batch["segment_ids"], batch["positions"])
  differs = np.any(np.asarray(before != after), axis=(0, 2))
  assert not differs[:8].any()
  assert differs[8:].all()


def _content_at(column: int) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns a row of 24 whose columns `column` .. column + 7 hold a text."""
  tokens = np.zeros((1, 24), np.int32)
  tokens[0, column : column + 8] = np.arange(3, 11)
  segment_ids = np.zeros((1, 24), np.int32)
  segment_ids[0, column:] = 1
  positions = np.arange(24, dtype=np.int32)[None]
  return jnp.asarray(tokens), jnp.asarray(segment_ids), jnp.asarray(positions)


def _logits_at(model: decoder_lib.Decoder, column: int) -> np.ndarray:
  return np.asarray(model(*_content_at(column)))[0, column : column + 8]


@pytest.mark.slow
def test_rope_sees_the_same_text_alike_at_every_offset():
  model = _decoder(position_embedding="rope")
  reference = _logits_at(model, 0)
  for column in (1, 7, 16):
    np.testing.assert_allclose(_logits_at(model, column), reference, atol=1e-4)


@pytest.mark.parametrize("position_embedding", ["rope", "learned"])
def test_positions_come_from_the_batch_and_not_from_the_column(
  position_embedding,
):
  model = _decoder(position_embedding=position_embedding)
  tokens, segment_ids, positions = _content_at(0)
  reference = model(tokens, segment_ids, positions)
  # RoPE sees differences only, and weights start small: twice as far apart.
  stretched = model(tokens, segment_ids, 2 * positions)
  assert np.abs(np.asarray(reference - stretched)).max() > 1e-5
  if position_embedding == "learned":
    # Two rows of the table swapped, and the ids with them: nothing changes.
    table = model.position_table[...]
    model.position_table[...] = table.at[jnp.asarray([2, 5])].set(
      table[jnp.asarray([5, 2])]
    )
    swapped = positions.at[0, 2].set(5).at[0, 5].set(2)
    np.testing.assert_allclose(
      model(tokens, segment_ids, swapped), reference, atol=1e-5
    )


def test_bfloat16_activations_keep_float32_parameters_and_logits():
  model, batch = _decoder(dtype="bfloat16"), _two_documents()
  assert model.embed(batch["tokens"], batch["positions"]).dtype == jnp.bfloat16
  logits = model(batch["tokens"], batch["segment_ids"], batch["positions"])
  assert logits.dtype == jnp.float32
  params = jax.tree.leaves(nnx.state(model, nnx.Param))
  assert {leaf.dtype for leaf in params} == {jnp.dtype("float32")}
  exact = _decoder()
  np.testing.assert_allclose(
    logits,
    exact(batch["tokens"], batch["segment_ids"], batch["positions"]),
    atol=0.02,
  )


def test_a_width_that_heads_do_not_divide_is_refused():
  with pytest.raises(schema.ConfigError, match="got 18 with 4 heads"):
    decoder_lib.Decoder(
      decoder_lib.DecoderConfig(
        vocab_size=9, max_positions=8, d_model=18, num_heads=4
      ),
      rngs=nnx.Rngs(0),
    )


def test_rope_refuses_heads_of_odd_width():
  config = decoder_lib.DecoderConfig(
    vocab_size=9, max_positions=8, d_model=6, num_heads=2
  )
  assert config.problems("config.model") == [
    "`config.model.d_model` must give heads of even width for 'rope', got 6 /"
    " 2 = 3. Change one of them, or use 'learned'."
  ]
