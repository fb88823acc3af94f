# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""All that a run measures beside its loss, at one step.

`held_out` says what is measured; this gathers it for logs, curves and files.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import jax

from chomp_data import pipeline
from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import held_out


@dataclasses.dataclass(frozen=True)
class Results:
  """What one evaluation came to.

  Attributes:
    curves: Points of curves, by name.
    documents: Records of documents, as JSON values, by what was asked of them.
  """

  curves: Mapping[str, float]
  documents: Mapping[str, Sequence[Mapping[str, Any]]]

  def __bool__(self) -> bool:
    return bool(self.curves)

  def __str__(self) -> str:
    return ", ".join(f"{name} {v:.4f}" for name, v in self.curves.items())


class Evaluation:
  """What a run measures beside its loss, of stores and of its documents."""

  def __init__(
    self,
    pipe: pipeline.Pipeline,
    options: held_out.EvaluationOptions,
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
      held_out.HeldOut(name, path, pipe, options.max_rows)
      for name, path in options.stores or ()
    ]
    self._learned = []
    if options.pz_window is not None:
      self._learned = [
        held_out.Memorization(pipe, name, options) for name in pipe.sources
      ]

  def measure(self, model: decoder_lib.Decoder, step: int) -> Results:
    """Returns what a model comes to after so many steps."""
    curves: dict[str, float] = {}
    documents: dict[str, list[dict[str, Any]]] = {}
    for store in self._stores:
      scores = store.measure(model, self._sharding)
      curves[f"held_out/loss/{store.name}"] = scores.loss
      curves[f"held_out/bits_per_byte/{store.name}"] = scores.bits_per_byte
      documents.setdefault("held_out", []).extend(
        {"store": store.name, **record} for record in scores.records()
      )
    for store in self._learned:
      records = store.measure(model, step, self._sharding)
      if records:
        mean = sum(record["p_z"] for record in records) / len(records)
        curves[f"p_z/{store.name}"] = mean
        documents.setdefault("p_z", []).extend(records)
    return Results(curves, documents)
