# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The loss of a run on held-out stores (`chomp-stores split` makes them).

They are measured whole or up to some rows: nats per token, and bits per byte of
their text.
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
from chomp_data.prepare import tokenizers
from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import evaluation
from chomp_data.reference import span_losses
from chomp_data.sources import source_opening


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

  def is_due(self, step: int, last: int) -> bool:
    """Returns whether there is something to measure after a step.

    Args:
      step: Steps taken.
      last: Steps of the run.
    """
    due = step % self.every_steps == 0 or step == last
    return self.stores is not None and due


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
  ) -> tuple[float, float]:
    """Returns nats per token, and bits per byte of the text.

    Both are NaN where no token is predicted, and bits per byte where the store
    does not know its tokenizer or the text has no bytes.

    Args:
      model: The decoder.
      sharding: Of the batch axis, or None for the default device.
    """
    nll, tokens, num_bytes = 0.0, 0, 0.0
    batches = map(self._pipe.canonical, range(self._steps))
    for step, (columns, mask, _) in enumerate(
      evaluation.column_losses(model, batches, sharding)
    ):
      spans = self._pipe.plan(step)
      trained = span_losses.by_span(spans, columns, mask).tokens
      # Of a document of n tokens the first is not predicted.
      share = trained / self._store.bounds(spans.document)[1]
      num_bytes += float((self._text_bytes[spans.document] * share).sum())
      nll += float(columns.sum(dtype=np.float64))
      tokens += int(mask.sum())
    if not tokens:  # Documents of one token: none is predicted.
      return math.nan, math.nan
    bits = nll / math.log(2)
    return nll / tokens, bits / num_bytes if num_bytes else math.nan

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


class Evaluation:
  """What a run measures beside its loss."""

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

  def measure(self, model: decoder_lib.Decoder) -> dict[str, float]:
    """Returns points of curves."""
    curves: dict[str, float] = {}
    for store in self._stores:
      loss, bits_per_byte = store.measure(model, self._sharding)
      curves[f"held_out/loss/{store.name}"] = loss
      curves[f"held_out/bits_per_byte/{store.name}"] = bits_per_byte
    return curves
