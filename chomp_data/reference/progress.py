# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How a run is doing: loss, speed, time spent waiting, loss by document.

Losses are in nats a trained token. Metrics come off the devices one step late,
so that a step is always in flight while the host reads the last one's.
"""

from collections.abc import Mapping
import dataclasses
import math
import time
from typing import Any

import jax
import numpy as np

from chomp_data import errors

Document = tuple[int, int]


DivergedError = errors.DivergedError


@dataclasses.dataclass(frozen=True)
class Window:
  """What happened since the last look.

  Attributes:
    steps: Steps taken.
    loss: Mean loss of trained tokens by weight; NaN where there was none.
    tokens: Trained tokens.
    all_masked: Steps without a trained token.
    tokens_per_second: Trained tokens a second of wall time.
    positions_per_second: Positions, filler included, a second.
    wait_share: Fraction of wall time spent waiting for input.
  """

  steps: int
  loss: float
  tokens: int
  all_masked: int
  tokens_per_second: float
  positions_per_second: float
  wait_share: float

  def __str__(self) -> str:
    text = (
      f"loss {self.loss:.4f}, {self.tokens_per_second:,.0f} trained tokens/s,"
      f" {self.positions_per_second:,.0f} positions/s,"
      f" {self.wait_share:.1%} waiting for data"
    )
    if self.all_masked:
      text += f", {self.all_masked} steps without a trained token"
    return text


class Meter:
  """Sums metrics between two looks."""

  def __init__(self, positions_per_step: int = 0):
    """Starts the clock.

    Args:
      positions_per_step: Rows times positions of a global batch, where `add`
        does not say.
    """
    self._positions_per_step = positions_per_step
    self._pending: tuple[int, int, Mapping[str, Any]] | None = None
    self._restart(0.0)

  def add(
    self,
    step: int,
    metrics: Mapping[str, jax.Array],
    positions: int | None = None,
  ) -> Mapping[str, np.ndarray] | None:
    """Takes a step's metrics and waits for those of the step before.

    Args:
      step: The step, for messages.
      metrics: Of `training.Trainer.step`.
      positions: Rows times positions of its global batch; None is as many as
        every step has.

    Returns:
      The metrics of the step before, on the host, or None.

    Raises:
      DivergedError: If the loss of the step before is not finite.
    """
    before = self.flush()
    if positions is None:
      positions = self._positions_per_step
    self._pending = (step, positions, metrics)
    return before

  def flush(self) -> Mapping[str, np.ndarray] | None:
    """Waits for the step in flight; see `add`."""
    if self._pending is None:
      return None
    (step, positions, pending), self._pending = self._pending, None
    metrics = jax.device_get(dict(pending))
    loss, tokens = float(metrics["loss"]), int(metrics["tokens"])
    if not math.isfinite(loss):
      raise DivergedError(
        f"loss must be finite, got {loss} at step {step}. Lower"
        " `config.optimizer.learning_rate`, or resume with other data."
      )
    self._steps += 1
    self._positions += positions
    self._tokens += tokens
    weight = float(metrics.get("weight", tokens))
    self._weight += weight
    self._nll += loss * weight
    self._all_masked += int(metrics["all_masked"])
    return metrics

  def leave_out(self, seconds: float) -> None:
    """Leaves time out of the window's: that of compiling, for instance."""
    self._began += seconds

  def window(self, wait_s: float) -> Window:
    """Returns the sums of flushed steps and starts anew.

    Args:
      wait_s: Seconds waited for input so far.
    """
    seconds = max(time.perf_counter() - self._began, 1e-9)
    out = Window(
      steps=self._steps,
      loss=self._nll / self._weight if self._weight else math.nan,
      tokens=self._tokens,
      all_masked=self._all_masked,
      tokens_per_second=self._tokens / seconds,
      positions_per_second=self._positions / seconds,
      wait_share=(wait_s - self._wait_s) / seconds,
    )
    self._restart(wait_s)
    return out

  def _restart(self, wait_s: float) -> None:
    self._began = time.perf_counter()
    self._wait_s = wait_s
    self._steps = self._tokens = self._all_masked = self._positions = 0
    self._nll = self._weight = 0.0


class DocumentLosses:
  """Sums losses by (source, document)."""

  def __init__(self):
    self._sums: dict[Document, list[float]] = {}

  def add(self, metrics: Mapping[str, np.ndarray] | None) -> None:
    """Adds a step's sums, where its batch named documents.

    Args:
      metrics: On the host, with `document_id` int[B, D], `document_nll`
        float[B, D], `document_tokens` int[B, D], of batches with weights
        `document_weight` float[B, D], and `source_id` int[B]; or without them,
        or None.
    """
    if metrics is None or "document_id" not in metrics:
      return
    document = metrics["document_id"]
    source = np.zeros(len(document), np.int64)
    source = metrics.get("source_id", source)[:, None]
    columns = (
      np.broadcast_to(source, document.shape),
      document,
      metrics["document_nll"],
      metrics.get("document_weight", metrics["document_tokens"]),
      metrics["document_tokens"],
    )
    for row_source, name, nll, weight, tokens in zip(
      *(column.ravel().tolist() for column in columns), strict=True
    ):
      if name >= 0 and tokens:
        sums = self._sums.setdefault((row_source, name), [0.0, 0.0, 0])
        sums[0] += nll
        sums[1] += weight
        sums[2] += tokens

  def take(self) -> dict[Document, tuple[float, int]]:
    """Returns {(source, document): (loss, tokens)} and starts anew."""
    out = {
      key: (nll / weight if weight else math.nan, int(tokens))
      for key, (nll, weight, tokens) in sorted(self._sums.items())
    }
    self._sums = {}
    return out
