# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a run makes of text that it is not trained on, and learns by heart.

Held-out stores (`chomp-stores split` makes them) are measured whole or up to
some rows: loss, bits a byte, and both by document. P(z) is asked of trained
documents: the probability that the model goes on word for word from a prefix,
windows of a document one by one, beside how often the run has read it.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
import math
from typing import Any

from flax import nnx
import jax
import numpy as np

from chomp_data import errors
from chomp_data import pipeline
from chomp_data import schema
from chomp_data import stores
from chomp_data.audit import visits
from chomp_data.prepare import tokenizers
from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import evaluation
from chomp_data.reference import span_losses
from chomp_data.reference import training
from chomp_data.sources import source_opening
from chomp_data.splice import grid

# Steps among which documents are looked for.
_LOOKED_AT = 4_096


def _stores(value: Any) -> tuple[tuple[str, str], ...]:
  pairs = value.items() if isinstance(value, Mapping) else value
  out = [(name, path) for name, path in pairs]
  if not out or any(
    not isinstance(text, str) or not text for paths in out for text in paths
  ):
    raise ValueError
  if len(dict(out)) != len(out):
    raise ValueError
  return tuple(out)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationOptions(schema.Options):
  """The fields of `config.evaluation`.

  Attributes:
    every_steps: Steps from one evaluation to the next; the last step always
      has one where there is something to measure.
    stores: Held-out stores by name, of the run's tokenizer.
    max_rows: Rows of each store that are measured, at most; None is all.
    pz_window: Tokens of a window whose continuation is asked for: P(z) of
      trained documents; None does not ask.
    pz_prefix: Tokens of a window that the model is given; it goes on from
      there.
    pz_documents: Documents of each source that are asked, at most.
    pz_windows: Windows of each document, at most, evenly spaced.
  """

  every_steps: int = schema.option(100, schema.integer(1))
  stores: tuple[tuple[str, str], ...] | None = schema.option(
    None,
    schema.optional(
      schema.Rule(
        "a mapping (or a list of pairs) of distinct names to paths of stores",
        _stores,
      )
    ),
  )
  max_rows: int | None = schema.option(
    1_024, schema.optional(schema.integer(1))
  )
  pz_window: int | None = schema.option(
    None, schema.optional(schema.integer(2))
  )
  pz_prefix: int = schema.option(50, schema.integer(1))
  pz_documents: int = schema.option(16, schema.integer(1))
  pz_windows: int = schema.option(32, schema.integer(1))

  def is_due(self, step: int, last: int) -> bool:
    """Returns whether there is something to measure after a step.

    Args:
      step: Steps taken.
      last: Steps of the run.
    """
    asked = self.stores is not None or self.pz_window is not None
    return asked and (step % self.every_steps == 0 or step == last)

  def problems(self, path: str, seq_len: int | None = None) -> list[str]:
    """Returns what is wrong between these fields, and for rows so long."""
    problems = []
    if self.pz_window is None:
      return problems
    if self.pz_window <= self.pz_prefix:
      problems.append(
        f"`{path}.pz_window` must be above pz_prefix, got {self.pz_window} with"
        f" {self.pz_prefix}. Raise it: what follows the prefix is asked for."
      )
    if seq_len is not None and self.pz_window > seq_len:
      problems.append(
        f"`{path}.pz_window` must be at most `config.data.seq_len`, got"
        f" {self.pz_window} > {seq_len}. Lower it."
      )
    return problems


@dataclasses.dataclass(frozen=True)
class Measured:
  """What a held-out store came to, one entry a document that was measured.

  Attributes:
    store: The store.
    document: int64[D], ascending.
    nll: float64[D], nats.
    tokens: int64[D], tokens that were predicted.
    num_bytes: float64[D], bytes of text of these tokens; NaN where the store
      does not know its tokenizer.
  """

  store: stores.Store
  document: np.ndarray
  nll: np.ndarray
  tokens: np.ndarray
  num_bytes: np.ndarray

  @property
  def loss(self) -> float:
    """Nats a token."""
    return float(self.nll.sum() / self.tokens.sum())

  @property
  def bits_per_byte(self) -> float:
    """Bits a byte of text: what stores of other tokenizers compare by."""
    return float(self.nll.sum() / self.num_bytes.sum() / math.log(2))

  def records(self) -> Iterator[dict[str, Any]]:
    """Yields each document's figures, the greatest loss first."""
    order = np.argsort(-self.nll / self.tokens, kind="stable")
    ids = self.store.document_ids(self.document[order])
    for identity, i in zip(ids, order.tolist(), strict=True):
      yield {
        "document": int(self.document[i]),
        "id": identity,
        "loss": float(self.nll[i] / self.tokens[i]),
        "bits_per_byte": float(self.nll[i] / self.num_bytes[i] / math.log(2)),
        "tokens": int(self.tokens[i]),
      }


class HeldOut:
  """One held-out store as rows of whole documents, longer ones cut."""

  def __init__(
    self,
    name: str,
    path: str,
    run: pipeline.Pipeline,
    max_rows: int | None,
  ):
    """Opens the store.

    Args:
      name: Its name.
      path: Where it is.
      run: The run that it is held out of; gives seq_len and batch size.
      max_rows: Rows that are measured, at most.

    Raises:
      ConfigError: If the store has nothing to measure, or another tokenizer.
      StoreError: If it cannot be opened.
    """
    where = f"config.evaluation.stores.{name}"
    opened = stores.open_store(path)
    trained = next(iter(run.sources.values())).store
    if (
      source_opening.tokenizers_differ(opened, trained)
      or opened.opened.tokenizer.vocab_size > run.vocab_size
    ):
      raise schema.ConfigError(
        [
          f"`{where}` must be a store of the run's tokenizer, got {path} of"
          f" {source_opening.tokenizer_text(opened)} for"
          f" {source_opening.tokenizer_text(trained)}. Prepare it with the"
          " tokenizer of the run."
        ]
      )
    if opened.num_tokens - opened.num_documents < 1:
      raise schema.ConfigError(
        [
          f"`{where}` must hold a document of two tokens or more, got {path}"
          f" of {opened.num_documents} documents and {opened.num_tokens}"
          " tokens. Hold out more, or leave the store out."
        ]
      )
    self.name = name
    self.pipe: pipeline.Pipeline = pipeline.build(
      {
        "seq_len": run.seq_len,
        "global_batch_size": run.global_batch_size,
        "epochs": 1,
        "remainder": "pad",
        "sources": {
          name: {
            "store": path,
            "rows": {"kind": "bin", "shuffle_rows": False},
          }
        },
      }
    )
    steps = self.pipe.num_steps
    assert steps is not None
    if max_rows is not None:
      steps = min(steps, -(-max_rows // run.global_batch_size))
    self._steps: int = steps

  @property
  def store(self) -> stores.Store:
    """The store."""
    return self.pipe.sources[self.name].store

  def measure(
    self, model: decoder_lib.Decoder, sharding: jax.sharding.Sharding | None
  ) -> Measured:
    """Returns what the model makes of it.

    Args:
      model: The decoder.
      sharding: Of the batch axis, or None for the default device.
    """
    graph, params = nnx.split(model)
    count = self.store.num_documents
    nll, tokens = np.zeros(count), np.zeros(count, np.int64)
    for step in range(self._steps):
      batch = self.pipe.canonical(step)
      columns, mask = columns_nll(graph, params, batch, sharding)
      spans = self.pipe.plan(step)
      by_span = span_losses.by_span(spans, columns, mask)
      nll += np.bincount(spans.document, by_span.nll, count)
      tokens += np.bincount(spans.document, by_span.tokens, count).astype(
        np.int64
      )
    document = np.flatnonzero(tokens)
    length = self.store.bounds(document)[1]
    # Of a document of n tokens the first is not predicted.
    share = tokens[document] / length
    return Measured(
      self.store,
      document,
      nll[document],
      tokens[document],
      self._text_bytes[document] * share,
    )

  @functools.cached_property
  def _text_bytes(self) -> np.ndarray:
    """The bytes of text of each document that is measured."""
    out = np.full(self.store.num_documents, np.nan)
    try:
      tokenizer = tokenizers.load_tokenizer(self.store)
    except errors.StoreError:
      # Tokens alone: what they stand for is not known.
      return out
    spans = self.pipe.plan(0, self._steps)
    for document in np.unique(spans.document).tolist():
      text = tokenizer.decode(stores.read_document(self.store, document))
      out[document] = len(text.encode())
    return out


class Memorization:
  """P(z) of some documents of a source, and how often they were read."""

  def __init__(
    self, pipe: pipeline.Pipeline, name: str, options: EvaluationOptions
  ):
    """Binds a run; planned later, as a state may say when stores join.

    Args:
      pipe: The run.
      name: One of its sources.
      options: With `pz_window`.
    """
    assert options.pz_window is not None
    self.name = name
    self._pipe = pipe
    self._window, self._prefix = options.pz_window, options.pz_prefix
    self._options = options
    self._seen: tuple[int, np.ndarray | None] = (0, None)

  @functools.cached_property
  def document(self) -> np.ndarray:
    """The documents that are asked, int64[D], ascending."""
    return _trained(
      self._pipe, self.name, self._options.pz_documents, self._window
    )

  @functools.cached_property
  def _rows(self) -> grid.GridSource | None:
    """The windows of all documents."""
    if not len(self.document):
      return None
    source = self._pipe.sources[self.name]
    last = source.store.bounds(self.document)[1] - self._window
    return grid.GridSource(
      source.store,
      self.document,
      grid.evenly_spaced(last, self._options.pz_windows),
      np.zeros(1, np.int64),
      seq_len=source.seq_len,
      content_length=self._window,
      min_copy_len=self._window,
      layout=source.layout,
      name=f"{self.name}/windows",
    )

  def exposures(self, step: int) -> np.ndarray:
    """Returns how many spans of each document came before a step, int64[D]."""
    first, spans = self._seen
    if spans is None or step < first:
      first, spans = 0, np.zeros(len(self.document), np.int64)
    if step > first:
      added = visits.exposures(self._pipe, self.name, first, step)
      spans = spans + added[self.document]
      self._seen = (step, spans)
    return spans

  def measure(
    self,
    model: decoder_lib.Decoder,
    step: int,
    sharding: jax.sharding.Sharding | None,
  ) -> list[dict[str, Any]]:
    """Returns a record of each document, as JSON values.

    Args:
      model: The decoder.
      step: Steps that it was trained for.
      sharding: Of the batch axis, or None for the default device.

    Returns:
      {"source", "document", "id", "exposures", "windows", "p_z", "p_z_max",
      "log_p_z"}: mean and greatest probability over its windows, and the mean
      of its logarithm in nats.
    """
    if self._rows is None:
      return []
    graph, params = nnx.split(model)
    count = len(self._rows)
    size = self._pipe.global_batch_size
    log_p = np.empty(count)
    asked = np.arange(self._rows.seq_len)
    # Column i predicts token i + 1 of the window.
    asked = (asked >= self._prefix - 1) & (asked < self._window - 1)
    for first in range(0, count, size):
      rows = np.minimum(np.arange(first, first + size), count - 1)
      batch = self._rows.batch(rows)
      batch["loss_mask"] = np.broadcast_to(asked, batch["tokens"].shape)
      columns, _ = columns_nll(graph, params, batch, sharding)
      part = min(size, count - first)
      log_p[first : first + part] = -columns.sum(axis=1, dtype=np.float64)[
        :part
      ]
    owner = np.searchsorted(
      self.document, self._rows.plan(np.arange(count)).document
    )
    windows = np.bincount(owner, minlength=len(self.document))
    mean = np.bincount(owner, np.exp(log_p), len(self.document)) / windows
    logs = np.bincount(owner, log_p, len(self.document)) / windows
    most = np.full(len(self.document), -np.inf)
    np.maximum.at(most, owner, log_p)
    ids = self._rows.store.document_ids(self.document)
    exposures = self.exposures(step)
    return [
      {
        "source": self.name,
        "document": int(document),
        "id": identity,
        "exposures": int(exposures[i]),
        "windows": int(windows[i]),
        "p_z": float(mean[i]),
        "p_z_max": float(np.exp(most[i])),
        "log_p_z": float(logs[i]),
      }
      for i, (document, identity) in enumerate(
        zip(self.document.tolist(), ids, strict=True)
      )
    ]


def columns_nll(
  graph: Any,
  params: Any,
  batch: Mapping[str, np.ndarray],
  sharding: jax.sharding.Sharding | None,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns what each column of a batch loses, on the host.

  Args:
    graph: Of the decoder, `nnx.split`.
    params: Likewise.
    batch: Canonical fields [B, S]; every process has all rows.
    sharding: Of the batch axis, or None for the default device.

  Returns:
    float32[B, S] in nats, 0 where it is not trained on, and bool[B, S].
  """
  fields = {
    name: batch[name]
    for name in ("tokens", "segment_ids", "positions", "loss_mask")
  }
  whole = None
  if isinstance(sharding, jax.sharding.NamedSharding):
    whole = jax.sharding.NamedSharding(
      sharding.mesh, jax.sharding.PartitionSpec()
    )
  fields = evaluation.placed(fields, sharding)
  losses = _columns_nll(graph, whole, params, fields)
  nll, mask = jax.device_get(losses)
  return nll, mask


@functools.partial(jax.jit, static_argnums=(0, 1))
def _columns_nll(graph: Any, whole: Any, params: Any, batch: Mapping[str, Any]):
  model = nnx.merge(graph, params)
  logits = model(batch["tokens"], batch["segment_ids"], batch["positions"])
  losses = training.token_nll(logits, batch)
  return (
    losses if whole is None else jax.lax.with_sharding_constraint(losses, whole)
  )


def _trained(
  pipe: pipeline.Pipeline, name: str, most: int, shortest: int
) -> np.ndarray:
  """Returns documents that a run reads first, of at least so many tokens.

  Args:
    pipe: The run.
    name: One of its sources.
    most: Documents, at most.
    shortest: Tokens of each, at least.

  Returns:
    int64[D], ascending.
  """
  number = pipe.source_names.index(name)
  store = pipe.sources[name].store
  documents: dict[int, None] = {}
  limit = pipe.num_steps or _LOOKED_AT
  block = max(1, 65_536 // pipe.global_batch_size)
  for step in range(0, min(limit, _LOOKED_AT), block):
    spans = pipe.plan(step, min(block, min(limit, _LOOKED_AT) - step)).live()
    planned = spans.document[spans.source == number]
    _, first = np.unique(planned, return_index=True)
    planned = planned[np.sort(first)]
    for document in planned[store.bounds(planned)[1] >= shortest].tolist():
      documents.setdefault(document)
    if len(documents) >= most:
      break
  return np.sort(np.asarray(list(documents)[:most], np.int64))
