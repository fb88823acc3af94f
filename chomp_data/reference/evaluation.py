# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what a run learned, by start, offset and document.

Training on splices should make a model predict a document from any start at
any offset. So perplexity is compared over small grids of rows that differ in
one thing at a time; every row copies the same number of tokens, so that no
grid has more context than another. Offsets and documents count as trained
where the plan of the run holds them; no token is read to know that.
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

from chomp_data import pipeline
from chomp_data import stores
from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import training
from chomp_data.rows import spans
from chomp_data.sources import row_source
from chomp_data.splice import grid

DOCUMENT_STARTS = "document starts"
LATER_STARTS = "later starts"
UNSEEN_OFFSETS = "unseen offsets"
UNTRAINED_DOCUMENTS = "untrained documents"
# Not a comparison: the source's own fixed grid, for curves over time.
VALIDATION = "validation grid"

# Documents, starts of each and offsets of each start in a grid, at most.
_NUM_DOCUMENTS = 8
_NUM_STARTS = 4
_NUM_OFFSETS = 4
# Rows copy seq_len / 2 tokens or fewer, which leaves columns for offsets.
_COPIED_FRACTION = 2
# Documents of a store among which untrained ones are looked for, at most.
_CANDIDATES = 65_536
# Rows planned at once.
_BLOCK_ROWS = 65_536

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


@dataclasses.dataclass(frozen=True)
class Trained:
  """What the steps of a run read of one source.

  Attributes:
    documents: int64[D], document indices, ascending.
    columns: int64[O], columns at which copies begin, ascending.
    longest: Tokens of the longest copy.
  """

  documents: np.ndarray
  columns: np.ndarray
  longest: int


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


def planned(pipe: pipeline.Pipeline, num_steps: int) -> Iterator[spans.Spans]:
  """Yields the spans of a run's first steps that are there, in blocks."""
  block = max(1, _BLOCK_ROWS // pipe.global_batch_size)
  for step in range(0, num_steps, block):
    yield pipe.plan(step, min(block, num_steps - step)).live()


def trained(pipe: pipeline.Pipeline, num_steps: int) -> dict[str, Trained]:
  """Returns what the first steps of a run read, by source; reads no token.

  Args:
    pipe: The run.
    num_steps: Steps 0 .. num_steps - 1 count.
  """
  nothing = Trained(np.empty(0, np.int64), np.empty(0, np.int64), 0)
  by_name = dict.fromkeys(pipe.sources, nothing)
  for block in planned(pipe, num_steps):
    for number, (name, seen) in enumerate(by_name.items()):
      of_source = block.source == number
      by_name[name] = Trained(
        np.union1d(seen.documents, block.document[of_source]),
        np.union1d(seen.columns, block.column[of_source]),
        max(seen.longest, int(block.length[of_source].max(initial=0))),
      )
  return by_name


def grids(
  source: row_source.RowSource, seen: Trained
) -> dict[str, grid.GridSource]:
  """Returns the rows of each question that can be asked of a run.

      document starts      t = 0, trained offsets
      later starts         t > 0, trained offsets
      unseen offsets       the starts of both, offsets never trained
      untrained documents  the starts of both, trained offsets

  A question without rows (every offset was trained, or every document) is
  left out.

  Args:
    source: Where the rows came from; gives the documents and the layout.
    seen: What was trained of it.
  """
  if not seen.documents.size:
    return {}
  store, seq_len = source.store, source.seq_len
  # Every row copies this many tokens, at a trained offset or at another one.
  copied = min(
    max(2, seq_len // _COPIED_FRACTION),
    seen.longest,
    seq_len - int(seen.columns[0]),
  )
  usable = np.arange(seq_len - copied + 1)
  old_columns = _spread(np.intersect1d(usable, seen.columns), _NUM_OFFSETS)
  new_columns = _spread(np.setdiff1d(usable, seen.columns), _NUM_OFFSETS)
  lengths = store.bounds(seen.documents)[1]
  documents = _spread(seen.documents[lengths >= copied], _NUM_DOCUMENTS)
  later = _spread(seen.documents[lengths > copied], _NUM_DOCUMENTS)
  others = _spread(_untrained(store, seen, copied), _NUM_DOCUMENTS)
  starts, later_starts, other_starts = (
    grid.evenly_spaced(store.bounds(some)[1] - copied, _NUM_STARTS)
    for some in (documents, later, others)
  )
  # A document barely longer than a copy has t = 0 among its spread starts.
  later_starts = np.maximum(later_starts[:, 1:], 1)
  questions = {
    DOCUMENT_STARTS: (documents, starts[:, :1], old_columns),
    LATER_STARTS: (later, later_starts, old_columns),
    UNSEEN_OFFSETS: (documents, starts, new_columns),
    UNTRAINED_DOCUMENTS: (others, other_starts, old_columns),
  }
  return {
    name: grid.GridSource(
      store,
      *axes,
      seq_len=seq_len,
      content_length=copied,
      min_copy_len=copied,
      layout=source.layout,
      name=name,
    )
    for name, axes in questions.items()
    if all(axis.size for axis in axes)
  }


def _spread(values: np.ndarray, count: int) -> np.ndarray:
  """Returns at most `count` of the values, evenly spaced, ends included."""
  if len(values) <= count:
    return values
  return values[np.arange(count) * (len(values) - 1) // (count - 1)]


def _untrained(store: stores.Store, seen: Trained, shortest: int) -> np.ndarray:
  """Returns documents outside `seen`, of like lengths where there are any."""
  some = _spread(np.arange(store.num_documents), _CANDIDATES)
  some = np.setdiff1d(some, seen.documents)
  lengths = store.bounds(some)[1]
  lengths_seen = store.bounds(seen.documents)[1]
  enough = lengths >= shortest
  alike = (
    enough & (lengths >= lengths_seen.min()) & (lengths <= lengths_seen.max())
  )
  return some[alike] if alike.any() else some[enough]


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
