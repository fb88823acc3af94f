# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A small decoder-only transformer that reads every canonical batch field.

`segment_ids` decide who attends to whom, `positions` where a token stands; no
position is taken from an array index. Shapes: B rows, S positions, D model
width, H heads, V vocabulary. Parameters are float32, logits too.
"""

import dataclasses

from flax import nnx
import jax
import jax.numpy as jnp

from chomp_data import schema

ATTENTIONS = ("segment", "stream")
POSITION_EMBEDDINGS = ("rope", "learned")

# Wavelengths of RoPE reach about 2 pi times this many positions.
_ROPE_BASE = 10_000.0
_INIT_STDDEV = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderConfig(schema.Options):
  """The fields of `config.model`.

  Attributes:
    vocab_size: Size of the vocabulary; if it is not set, chomp-train uses the
      stores' vocabulary.
    max_positions: Number of positions; if it is not set, chomp-train uses the
      length of the longest row.
    d_model: Width of the residual stream.
    num_layers: Number of decoder blocks.
    num_heads: Number of attention heads per block.
    mlp_dim: Width of each block's gated MLP.
    position_embedding: How positions are encoded: 'rope' by their differences,
      'learned' by one vector per position.
    attention: What a token attends to: 'segment' is earlier columns of its
      segment, 'stream' every earlier column of the row, including padding.
    tie_embeddings: Whether the output layer is the embedding, transposed.
    dtype: Type of activations; parameters and logits stay float32.
  """

  vocab_size: int = schema.required(schema.integer(1, 2**31 - 1))
  max_positions: int = schema.required(schema.integer(1, 2**31 - 1))
  d_model: int = schema.option(128, schema.integer(2))
  num_layers: int = schema.option(3, schema.integer(1))
  num_heads: int = schema.option(4, schema.integer(1))
  mlp_dim: int = schema.option(384, schema.integer(1))
  position_embedding: str = schema.option(
    "rope", schema.choice(POSITION_EMBEDDINGS)
  )
  attention: str = schema.option("segment", schema.choice(ATTENTIONS))
  tie_embeddings: bool = schema.option(True, schema.boolean())
  dtype: str = schema.option("float32", schema.choice(("float32", "bfloat16")))

  def problems(self, path: str) -> list[str]:
    """Returns what is wrong between these fields."""
    problems = []
    if self.d_model % self.num_heads:
      problems.append(
        f"`{path}.d_model` must be a multiple of num_heads, got"
        f" {self.d_model} with {self.num_heads} heads. Change one of them."
      )
    elif self.position_embedding == "rope" and self.head_dim % 2:
      problems.append(
        f"`{path}.d_model` must give heads of even width for 'rope', got"
        f" {self.d_model} / {self.num_heads} = {self.head_dim}. Change one of"
        " them, or use 'learned'."
      )
    return problems

  @property
  def head_dim(self) -> int:
    """Width of a head."""
    return self.d_model // self.num_heads


class Decoder(nnx.Module):
  """Pre-norm blocks between an embedding and a language model head."""

  def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
    """Initialises parameters.

    Args:
      config: Sizes and kinds.
      rngs: Streams of randomness; `params` is used.

    Raises:
      ConfigError: If fields contradict each other.
    """
    if problems := config.problems("config.model"):
      raise schema.ConfigError(problems)
    self.config = config
    init = nnx.initializers.normal(_INIT_STDDEV)
    self.embedding = nnx.Param(
      init(rngs.params(), (config.vocab_size, config.d_model), jnp.float32)
    )
    if config.position_embedding == "learned":
      self.position_table = nnx.Param(
        init(rngs.params(), (config.max_positions, config.d_model), jnp.float32)
      )
    self.layers = nnx.List(
      [_Block(config, rngs=rngs) for _ in range(config.num_layers)]
    )
    self.final_norm = nnx.RMSNorm(config.d_model, rngs=rngs)
    if not config.tie_embeddings:
      self.head = nnx.Param(
        init(rngs.params(), (config.vocab_size, config.d_model), jnp.float32)
      )

  def __call__(
    self, tokens: jax.Array, segment_ids: jax.Array, positions: jax.Array
  ) -> jax.Array:
    """Returns next-token logits.

    Args:
      tokens: int32[B, S].
      segment_ids: int32[B, S].
      positions: int32[B, S], below max_positions.

    Returns:
      float32[B, S, V].
    """
    embedded = self.embed(tokens, positions)
    return self.logits(embedded, segment_ids, positions)

  def embed(self, tokens: jax.Array, positions: jax.Array) -> jax.Array:
    """Returns the blocks' input, dtype[B, S, D]."""
    out = self.embedding[...][tokens]
    if self.config.position_embedding == "learned":
      out += self.position_table[...][positions]
    return out.astype(self.config.dtype)

  def logits(
    self, embedded: jax.Array, segment_ids: jax.Array, positions: jax.Array
  ) -> jax.Array:
    """Returns next-token logits of embedded tokens.

    Args:
      embedded: dtype[B, S, D], from `embed`.
      segment_ids: int32[B, S].
      positions: int32[B, S].

    Returns:
      float32[B, S, V].
    """
    rotation = None
    if self.config.position_embedding == "rope":
      rotation = rope_rotation(positions, self.config.head_dim)
    mask = attention_mask(segment_ids, self.config.attention)
    stream = embedded
    for layer in self.layers:
      stream = layer(stream, mask, rotation)
    out = self.final_norm(stream)
    head = self.embedding if self.config.tie_embeddings else self.head
    return jnp.einsum(
      "bsd,vd->bsv",
      out.astype(self.config.dtype),
      head[...].astype(self.config.dtype),
      preferred_element_type=jnp.float32,
    )


def attention_mask(segment_ids: jax.Array, attention: str) -> jax.Array:
  """Returns which columns (last axis) each column attends to.

      segment_ids [1, 1, 2]   segment  [[1, 0, 0],   stream  [[1, 0, 0],
                                        [1, 1, 0],            [1, 1, 0],
                                        [0, 0, 1]]            [1, 1, 1]]

  Args:
    segment_ids: int32[B, S].
    attention: 'segment' or 'stream'.

  Returns:
    bool[B, S, S], or bool[1, S, S] for 'stream'. Every column attends to
    itself, so no row of the softmax is empty.
  """
  causal = jnp.tri(segment_ids.shape[1], dtype=jnp.bool_)[None]
  if attention == "stream":
    return causal
  return causal & (segment_ids[:, :, None] == segment_ids[:, None, :])


def rope_rotation(positions: jax.Array, head_dim: int) -> jax.Array:
  """Returns the cosine and sine of RoPE's angles.

  Args:
    positions: int32[B, S].
    head_dim: Width of a head, even.

  Returns:
    float32[2, B, S, head_dim / 2].
  """
  exponent = jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim
  angle = positions[..., None].astype(jnp.float32) / _ROPE_BASE**exponent
  return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


class _Block(nnx.Module):
  """Attention and a gated MLP, each behind a norm, added to the stream."""

  def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
    def linear(features_in: int, features_out: int, stddev: float):
      return nnx.Linear(
        features_in,
        features_out,
        use_bias=False,
        kernel_init=nnx.initializers.normal(stddev),
        dtype=jnp.dtype(config.dtype),
        rngs=rngs,
      )

    # What is added to the stream shrinks with depth, as in GPT-2.
    out_stddev = _INIT_STDDEV / (2 * config.num_layers) ** 0.5
    self.num_heads = config.num_heads
    self.attention_norm = nnx.RMSNorm(config.d_model, rngs=rngs)
    self.qkv = linear(config.d_model, 3 * config.d_model, _INIT_STDDEV)
    self.attention_out = linear(config.d_model, config.d_model, out_stddev)
    self.mlp_norm = nnx.RMSNorm(config.d_model, rngs=rngs)
    self.mlp_in = linear(config.d_model, 2 * config.mlp_dim, _INIT_STDDEV)
    self.mlp_out = linear(config.mlp_dim, config.d_model, out_stddev)

  def __call__(
    self, stream: jax.Array, mask: jax.Array, rotation: jax.Array | None
  ) -> jax.Array:
    heads = self.qkv(self.attention_norm(stream))
    heads = heads.reshape(*stream.shape[:2], 3, self.num_heads, -1)
    query, key, value = jnp.moveaxis(heads, 2, 0)
    if rotation is not None:
      query, key = _rotate(query, rotation), _rotate(key, rotation)
    attended = jax.nn.dot_product_attention(
      query, key, value, mask=mask[:, None]
    )
    stream += self.attention_out(attended.reshape(stream.shape))
    gate, up = jnp.split(self.mlp_in(self.mlp_norm(stream)), 2, axis=-1)
    return stream + self.mlp_out(nnx.silu(gate) * up)


def _rotate(heads: jax.Array, rotation: jax.Array) -> jax.Array:
  """Rotates pairs (i, i + head_dim / 2) of [B, S, H, head_dim]."""
  cos, sin = rotation[:, :, :, None]
  first, second = jnp.split(heads.astype(jnp.float32), 2, axis=-1)
  turned = [first * cos - second * sin, second * cos + first * sin]
  return jnp.concatenate(turned, axis=-1).astype(heads.dtype)
