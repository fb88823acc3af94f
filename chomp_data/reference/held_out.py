# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a run makes of text that it is not trained on, and learns by heart.

Held-out stores (`chomp-stores split` makes them) are measured whole or up to
some rows: loss, bits a byte, and both by document. P(z) is asked of trained
documents: the probability that the model goes on word for word from a prefix,
windows of a document one by one, beside how often the run has read it.
"""

from collections.abc import Mapping
import dataclasses
import functools
import math
from typing import Any

import jax
import numpy as np

from chomp_data import errors
from chomp_data import pipeline
from chomp_data import schema
from chomp_data import stores
from chomp_data.plans import occurrences
from chomp_data.prepare import tokenizers
from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import evaluation
from chomp_data.reference import span_losses
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
    problem = None
    if (
      source_opening.tokenizers_differ(opened, trained)
      or opened.opened.tokenizer.vocab_size > run.vocab_size
    ):
      problem = (
        f"`{where}` must be a store of the run's tokenizer, got {path} of"
        f" {source_opening.tokenizer_text(opened)} for"
        f" {source_opening.tokenizer_text(trained)}. Prepare it with the"
        " tokenizer of the run."
      )
    elif opened.num_tokens - opened.num_documents < 1:
      problem = (
        f"`{where}` must hold a document of two tokens or more, got {path}"
        f" of {opened.num_documents} documents and {opened.num_tokens}"
        " tokens. Hold out more, or leave the store out."
      )
    if problem is not None:
      raise schema.ConfigError([problem])
    self.name = name
    rows = {"kind": "bin", "shuffle_rows": False}
    self._pipe = pipeline.build(
      {
        "seq_len": run.seq_len,
        "global_batch_size": run.global_batch_size,
        "epochs": 1,
        "remainder": "pad",
        "sources": {name: {"store": path, "rows": rows}},
      }
    )
    self._store = self._pipe.sources[name].store
    self._steps = self._pipe.num_steps or 0
    if max_rows is not None:
      self._steps = min(self._steps, -(-max_rows // run.global_batch_size))

  def measure(
    self, model: decoder_lib.Decoder, sharding: jax.sharding.Sharding | None
  ) -> tuple[float, float, list[dict[str, Any]]]:
    """Returns nats per token, bits per byte, and a record of each document.

    Bits per byte are NaN where the store does not know its tokenizer.

    Args:
      model: The decoder.
      sharding: Of the batch axis, or None for the default device.

    Returns:
      The two means, and {"document", "id", "loss", "bits_per_byte", "tokens"}
      of each document, the greatest loss first.
    """
    count = self._store.num_documents
    nll, tokens = np.zeros(count), np.zeros(count)
    batches = map(self._pipe.canonical, range(self._steps))
    for step, (columns, mask, _) in enumerate(
      evaluation.column_losses(model, batches, sharding)
    ):
      spans = self._pipe.plan(step)
      by_span = span_losses.by_span(spans, columns, mask)
      nll += np.bincount(spans.document, by_span.nll, count)
      tokens += np.bincount(spans.document, by_span.tokens, count)
    document = np.flatnonzero(tokens)
    nll, tokens = nll[document], tokens[document].astype(np.int64)
    # Of a document of n tokens the first is not predicted.
    share = tokens / self._store.bounds(document)[1]
    num_bytes = self._text_bytes[document] * share
    loss, bits = nll / tokens, nll / num_bytes / math.log(2)
    ids = self._store.document_ids(document)
    records = [
      {
        "document": int(document[i]),
        "id": ids[i],
        "loss": float(loss[i]),
        "bits_per_byte": float(bits[i]),
        "tokens": int(tokens[i]),
      }
      for i in np.argsort(-loss, kind="stable").tolist()
    ]
    return (
      float(nll.sum() / tokens.sum()),
      float(nll.sum() / num_bytes.sum() / math.log(2)),
      records,
    )

  @functools.cached_property
  def _text_bytes(self) -> np.ndarray:
    """The bytes of text of each document that is measured."""
    out = np.full(self._store.num_documents, np.nan)
    try:
      tokenizer = tokenizers.load_tokenizer(self._store)
    except errors.StoreError:
      # Tokens alone: what they stand for is not known.
      return out
    spans = self._pipe.plan(0, self._steps)
    for document in np.unique(spans.document).tolist():
      text = tokenizer.decode(stores.read_document(self._store, document))
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

  @functools.cached_property
  def document(self) -> np.ndarray:
    """The documents that the run reads first and are long enough, ascending."""
    number = self._pipe.source_names.index(self.name)
    store = self._pipe.sources[self.name].store
    documents: dict[int, None] = {}
    last = min(self._pipe.num_steps or _LOOKED_AT, _LOOKED_AT)
    for spans in evaluation.planned(self._pipe, last):
      read = spans.document[spans.source == number]
      read = read[np.sort(np.unique(read, return_index=True)[1])]
      read = read[store.bounds(read)[1] >= self._window]
      documents |= dict.fromkeys(read.tolist())
      if len(documents) >= self._options.pz_documents:
        break
    first = list(documents)[: self._options.pz_documents]
    return np.sort(np.asarray(first, np.int64))

  @functools.cached_property
  def _rows(self) -> grid.GridSource:
    """The windows of all documents, of which there must be one."""
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

  @functools.cached_property
  def _occurrences(self) -> occurrences.Occurrences:
    parts = occurrences.whole(self.document)
    return occurrences.Occurrences(self._pipe.run_plan, self.name, parts)

  def exposures(self, step: int) -> np.ndarray:
    """Returns how many spans of each document came before a step, int64[D]."""
    return self._occurrences.count(0, step)[0]

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
    if not len(self.document):
      return []
    asked = np.arange(self._rows.seq_len)
    # Column i predicts token i + 1 of the window.
    asked = (asked >= self._prefix - 1) & (asked < self._window - 1)
    batches = (
      {**batch, "loss_mask": np.broadcast_to(asked, batch["tokens"].shape)}
      for batch in evaluation.batches_of(
        self._rows, self._pipe.global_batch_size
      )
    )
    count = len(self._rows)
    log_p = np.concatenate(
      [
        -nll.sum(axis=1, dtype=np.float64)
        for nll, _, _ in evaluation.column_losses(model, batches, sharding)
      ]
    )[:count]
    owner = np.searchsorted(
      self.document, self._rows.plan(np.arange(count)).document
    )
    ids = self._rows.store.document_ids(self.document)
    exposures = self.exposures(step)
    return [
      {
        "source": self.name,
        "document": document,
        "id": ids[i],
        "exposures": int(exposures[i]),
        "windows": len(logs),
        "p_z": float(np.exp(logs).mean()),
        "p_z_max": float(np.exp(logs.max())),
        "log_p_z": float(logs.mean()),
      }
      for i, document in enumerate(self.document.tolist())
      for logs in [log_p[owner == i]]
    ]


class Evaluation:
  """What a run measures beside its loss, of stores and of its documents."""

  def __init__(
    self,
    pipe: pipeline.Pipeline,
    options: EvaluationOptions,
    sharding: jax.sharding.Sharding,
  ):
    """Opens held-out stores.

    Args:
      pipe: The run.
      options: What is measured.
      sharding: Of the batch axis.

    Raises:
      ConfigError: If a store has nothing to measure.
      StoreError: If one cannot be opened.
    """
    self._sharding = sharding
    self._stores = [
      HeldOut(name, path, pipe, options.max_rows)
      for name, path in options.stores or ()
    ]
    self._learned = []
    if options.pz_window is not None:
      self._learned = [
        Memorization(pipe, name, options) for name in pipe.sources
      ]

  def measure(
    self, model: decoder_lib.Decoder, step: int
  ) -> tuple[dict[str, float], dict[str, list[dict[str, Any]]]]:
    """Returns points of curves, and records of documents by what was asked.

    Args:
      model: The decoder.
      step: Steps that it was trained for.
    """
    curves: dict[str, float] = {}
    documents: dict[str, list[dict[str, Any]]] = {}
    for store in self._stores:
      loss, bits_per_byte, records = store.measure(model, self._sharding)
      curves[f"held_out/loss/{store.name}"] = loss
      curves[f"held_out/bits_per_byte/{store.name}"] = bits_per_byte
      documents.setdefault("held_out", []).extend(
        {"store": store.name, **record} for record in records
      )
    for source in self._learned:
      records = source.measure(model, step, self._sharding)
      if records:
        mean = sum(record["p_z"] for record in records) / len(records)
        curves[f"p_z/{source.name}"] = mean
        documents.setdefault("p_z", []).extend(records)
    return curves, documents
