# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The loss of a model over rows that it is not trained on, on a mesh.

Losses are in nats, of columns that are trained on. Every process has all rows
of a batch on the host; the devices share them along the batch axis.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
import math
from typing import Any

from flax import nnx
import jax
import numpy as np

from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import training
from chomp_data.sources import row_source

_FIELDS = (
  "tokens",
  "segment_ids",
  "positions",
  "loss_mask",
  "loss_weight",
  "next_token",
)


@dataclasses.dataclass(frozen=True)
class Score:
  """The loss over a finite set of rows.

  Attributes:
    nll: Sum of negative log likelihoods by weight, in nats.
    tokens: Columns it is summed over.
    rows: Rows that have such a column.
    weight: What the columns weigh together.
  """

  nll: float
  tokens: int
  rows: int
  weight: float

  @property
  def loss(self) -> float:
    """Nats a token; NaN where there is no token."""
    return self.nll / self.weight if self.weight else math.nan

  @property
  def perplexity(self) -> float:
    """exp(loss); 1 is certainty."""
    # Beyond this a float64 overflows, and the model is useless anyway.
    return math.exp(min(self.loss, 700.0))

  def record(self) -> dict[str, float]:
    """Returns it as JSON values."""
    fields = ("perplexity", "loss", "tokens", "rows")
    return {name: getattr(self, name) for name in fields}


def column_losses(
  model: decoder_lib.Decoder,
  batches: Iterable[Mapping[str, Any]],
  sharding: jax.sharding.Sharding | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
  """Yields what each column of each batch loses.

  Args:
    model: The decoder.
    batches: Canonical fields [B, S] on the host; every process has all rows.
    sharding: Of the batch axis, or None for the default device.

  Yields:
    nll float32[B, S] in nats, 0 where not trained on, the mask bool[B, S], and
    what each column weighs.
  """
  graph, params = nnx.split(model)
  whole = None
  if isinstance(sharding, jax.sharding.NamedSharding):
    whole = jax.sharding.NamedSharding(
      sharding.mesh, jax.sharding.PartitionSpec()
    )
  for batch in batches:
    fields = {name: batch[name] for name in _FIELDS if name in batch}
    if sharding is not None:
      fields = {
        name: jax.make_array_from_callback(
          value.shape, sharding, np.asarray(value).__getitem__
        )
        for name, value in fields.items()
      }
    yield jax.device_get(_column_losses(graph, whole, params, fields))


def score(
  model: decoder_lib.Decoder,
  batches: Iterable[Mapping[str, Any]],
  sharding: jax.sharding.Sharding | None = None,
) -> Score:
  """Returns the loss summed over all batches; arguments as `column_losses`."""
  nll, weights, tokens, rows = 0.0, 0.0, 0, 0
  for columns, mask, weight in column_losses(model, batches, sharding):
    nll += float((columns * weight).sum(dtype=np.float64))
    weights += float(weight.sum(dtype=np.float64))
    tokens += int(mask.sum())
    rows += int(mask.any(axis=1).sum())
  return Score(nll, tokens, rows, weights)


def batches_of(
  source: row_source.RowSource, batch_size: int
) -> Iterator[dict[str, Any]]:
  """Yields every row of a source once, in batches of one shape.

  Args:
    source: The rows.
    batch_size: Rows of a batch; the last is filled with rows that have no
      trained column.

  Yields:
    Canonical fields [batch_size, seq_len], on the host.
  """
  for first in range(0, len(source), batch_size):
    rows = np.arange(first, first + batch_size)
    batch = source.batch(np.minimum(rows, len(source) - 1))
    batch["loss_mask"][rows >= len(source)] = False
    yield batch


@functools.partial(jax.jit, static_argnums=(0, 1))
def _column_losses(
  graph: Any, whole: Any, params: Any, batch: Mapping[str, Any]
):
  model = nnx.merge(graph, params)
  logits = model(batch["tokens"], batch["segment_ids"], batch["positions"])
  nll, mask = training.token_nll(logits, batch)
  losses = nll, mask, training.token_weight(batch, mask)
  if whole is None:
    return losses
  return jax.lax.with_sharding_constraint(losses, whole)
