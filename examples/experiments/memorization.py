# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""P(z): what a model knows by heart of the documents that it is trained on.

The probability that it continues a window word for word after a prefix, windows
of a document one by one, beside how often the run has read the document.
"""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from chomp_data import pipeline
from chomp_data.audit import steps
from chomp_data.plans import occurrences
from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import evaluation
from chomp_data.splice import grid

# Steps among which documents are looked for.
_LOOKED_AT = 4_096


@dataclasses.dataclass(frozen=True)
class Options:
  """What is asked of each source.

  Attributes:
    window: Tokens of a window.
    prefix: Tokens of a window that the model is given.
    documents: Documents that are asked, at most.
    windows: Windows of each document, at most, evenly spaced.
  """

  window: int
  prefix: int
  documents: int = 16
  windows: int = 32


class Memorization:
  """P(z) of some documents of a source, and how often they were read."""

  def __init__(self, pipe: pipeline.Pipeline, name: str, options: Options):
    """Binds a run; planned later, as a state may say when stores join.

    Args:
      pipe: The run.
      name: One of its sources.
      options: What is asked.
    """
    self.name = name
    self._pipe = pipe
    self._window, self._prefix = options.window, options.prefix
    self._options = options

  @functools.cached_property
  def document(self) -> np.ndarray:
    """The documents that the run reads first and are long enough, ascending."""
    number = self._pipe.source_names.index(self.name)
    store = self._pipe.sources[self.name].store
    documents: dict[int, None] = {}
    last = min(self._pipe.num_steps or _LOOKED_AT, _LOOKED_AT)
    for _, spans in steps.walk(self._pipe, 0, last):
      live = spans.live()
      read = live.document[live.source == number]
      read = read[np.sort(np.unique(read, return_index=True)[1])]
      read = read[store.bounds(read)[1] >= self._window]
      documents |= dict.fromkeys(read.tolist())
      if len(documents) >= self._options.documents:
        break
    first = list(documents)[: self._options.documents]
    return np.sort(np.asarray(first, np.int64))

  @functools.cached_property
  def _rows(self) -> grid.GridSource:
    """The windows of all documents, of which there must be one."""
    source = self._pipe.sources[self.name]
    last = source.store.bounds(self.document)[1] - self._window
    return grid.GridSource(
      source.store,
      self.document,
      grid.evenly_spaced(last, self._options.windows),
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
