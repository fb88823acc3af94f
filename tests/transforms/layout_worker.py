# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What JAX processes of the layout tests do: read columns, and attend."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import chomp_data
from chomp_data import process_input
from chomp_data.sources import row_reading
from tests.loading import distributed_worker

P = jax.sharding.PartitionSpec


def fetched(data) -> list[int]:
  """Returns the columns of which this process reads a token."""
  sharding = distributed_worker.make_sharding("columns", jax.process_count())
  columns, copy_tokens = set(), row_reading.copy_tokens

  def recorded(sources, spans, tokens):
    for low, high in zip(spans.column, spans.ends(), strict=True):
      columns.update(range(int(low), int(high)))
    copy_tokens(sources, spans, tokens)

  place = process_input.Place.of(sharding)
  source = process_input.of_pipeline(chomp_data.build(data), place).source
  with mock.patch.object(row_reading, "copy_tokens", recorded):
    for step in range(chomp_data.build(data).num_steps):
      source[step]
  return sorted(columns)


def losses(data) -> list:
  """Returns the losses of a small model by step, over shards and on one.

  One device shifts canonical tokens itself, and knows of no target.
  """
  jax.config.update("jax_enable_x64", True)
  try:
    return _losses(data)
  finally:
    jax.config.update("jax_enable_x64", False)


def _losses(data) -> list:
  mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("seq",))
  sharding = {
    2: jax.sharding.NamedSharding(mesh, P(None, "seq")),
    1: jax.sharding.NamedSharding(mesh, P()),
  }
  rng = np.random.default_rng(0)
  shapes = {"table": (256, 16), "q": (16, 16), "k": (16, 16), "v": (16, 16)}
  weights = {n: jnp.asarray(rng.normal(size=s)) for n, s in shapes.items()}
  pipe, out = chomp_data.build(data), []
  names = ["tokens", "segment_ids", "positions"]
  for end in ("", "_2"):
    names += [f"targets{end}", f"target_mask{end}"]

  def loss(fields):
    """Each shard has its own queries, and gathers keys."""
    own = fields["segment_ids"], fields["positions"]
    embedded = weights["table"][fields["tokens"]]
    keys, values, segments, positions = (
      jax.lax.all_gather(x, "seq", axis=1, tiled=True)
      for x in (embedded @ weights["k"], embedded @ weights["v"], *own)
    )
    logits = attended(embedded, keys, values, own, (segments, positions))
    sums = [
      nll(logits, fields[f"targets{end}"], fields[f"target_mask{end}"])
      for end in ("", "_2")
    ]
    return jax.lax.psum(jnp.stack(sums), "seq")

  def attended(embedded, keys, values, own, others):
    scores = jnp.einsum("bqd,bkd->bqk", embedded @ weights["q"], keys) / 4
    sees = own[0][:, :, None] == others[0][:, None, :]
    sees &= own[1][:, :, None] >= others[1][:, None, :]
    mixed = jax.nn.softmax(jnp.where(sees, scores, -1e30), axis=-1) @ values
    return (embedded + mixed) @ weights["table"].T

  def nll(logits, targets, mask):
    each = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(
      logits, targets[..., None], -1
    ).squeeze(-1)
    return jnp.sum(jnp.where(mask, each, 0.0))

  sharded = jax.jit(
    jax.shard_map(
      loss,
      mesh=mesh,
      in_specs=({name: P(None, "seq") for name in names},),
      out_specs=P(),
    )
  )
  with chomp_data.make_iterator(pipe, sharding) as batches:
    for step, batch in enumerate(batches):
      found = sharded({name: batch[name] for name in names})
      whole = pipe.canonical(step)
      embedded = weights["table"][whole["tokens"]]
      fields = whole["segment_ids"], whole["positions"]
      logits = attended(
        embedded, embedded @ weights["k"], embedded @ weights["v"],
        fields, fields,
      )  # fmt: skip
      wanted = []
      for depth in (1, 2):
        end = "" if depth == 1 else "_2"
        # In a row, targets are tokens of later columns; after it, of targets.
        shifted = np.concatenate(
          [whole["tokens"][:, depth:], whole[f"targets{end}"][:, -depth:]], 1
        )
        wanted.append(float(nll(logits, shifted, whole[f"target_mask{end}"])))
      out.append([found.tolist(), wanted])
  return out
