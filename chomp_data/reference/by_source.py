# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How a run goes by source: position, loss, intended and actual share.

Positions and shares come from the plan, so they cover all processes and all
steps since the start, whatever this process has seen.
"""

from collections.abc import Callable
from collections.abc import Mapping
import functools
import itertools
import math
from typing import Any

import numpy as np

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.reference import progress

# Of `SourceReads`, what curves show.
_READS = (
  "chunks_fetched",
  "bytes_fetched",
  "cache_hits",
  "requests",
  "retries",
  "corrupt",
)


class SourceLog:
  """Sums losses by source between two looks."""

  def __init__(self, pipe: pipeline.Pipeline, first_step: int = 0):
    """Starts a window.

    Args:
      pipe: The run.
      first_step: The step of the first batch to come.
    """
    self._pipe = pipe
    self._names = pipe.source_names
    # Intended shares summed over the steps before one.
    self._summed = (0, np.zeros(len(self._names)))
    self.begin(first_step)

  def begin(self, step: int) -> None:
    """Starts a window at a step."""
    self._first = step
    self._nll = np.zeros(len(self._names))
    self._weight = np.zeros(len(self._names))

  def add(self, metrics: Mapping[str, np.ndarray] | None) -> None:
    """Adds a step's sums.

    Args:
      metrics: On the host, with `source_id` int[B], `row_nll` float[B],
        `row_tokens` int[B] and, of batches with weights, `row_weight`
        float[B]; or None.
    """
    if metrics is None or "source_id" not in metrics:
      return
    source = np.asarray(metrics["source_id"])
    is_row = source >= 0
    count = len(self._names)
    self._nll += np.bincount(
      source[is_row], np.asarray(metrics["row_nll"], np.float64)[is_row], count
    )
    weight = metrics.get("row_weight", metrics["row_tokens"])
    self._weight += np.bincount(
      source[is_row], np.asarray(weight, np.float64)[is_row], count
    )

  def take(self, step: int) -> dict[str, dict[str, Any]]:
    """Returns the window up to a step, by source, and starts another.

    Args:
      step: The next step.

    Returns:
      For each source `rows`, `tokens`, `loss_tokens` and `epochs` taken since
      the start, the window's `loss` (NaN for none), and shares in the mix's
      unit: `window_share` and what was intended, `window_intended`; since the
      start `share` and `intended_share`. Intended are means over steps.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    accounts = self._pipe.accounts.at(step)
    out = {}
    now = self._units(step)
    window = {
      n: now[n] - taken for n, taken in self._units(self._first).items()
    }
    since = {n: now[n] - taken for n, taken in self._units(0).items()}
    meant = self._intended(self._first, step)
    meant_since = self._intended(0, self._first) + meant
    self._summed = (step, meant_since)
    for i, name in enumerate(self._names):
      counts, weight = accounts[name], self._weight[i]
      out[name] = {
        "rows": counts.rows,
        "tokens": counts.tokens,
        "loss_tokens": counts.loss_tokens,
        "epochs": counts.epochs,
        "loss": self._nll[i] / weight if weight else math.nan,
        "window_intended": float(meant[i]) / max(step - self._first, 1),
        "window_share": window[name] / max(sum(window.values()), 1),
        "intended_share": float(meant_since[i]) / max(step, 1),
        "share": since[name] / max(sum(since.values()), 1),
      }
    self.begin(step)
    return out

  def _intended(self, first: int, last: int) -> np.ndarray:
    """Returns intended shares summed over steps first .. last - 1."""
    questions = self._pipe.accounts.questions
    if first == 0 and self._summed[0] == last:
      return self._summed[1]

    @functools.cache
    def share(step: int) -> np.ndarray:
      intended = questions.intended(step)
      return np.asarray([intended[name] for name in self._names])

    total = np.zeros(len(self._names))
    if first == last:
      return total
    begins = {
      self._pipe.run_plan.steps.before(at) for at, _ in questions.stages
    }
    starts = sorted(at for at in begins if first < at < last)
    for begin, end in itertools.pairwise([first, *starts, last]):
      total += _summed(share, begin, end)
    return total

  def _units(self, step: int) -> dict[str, int]:
    """Returns what sources consumed before a step, in the balanced unit."""
    consumed = self._pipe.accounts.questions.consumed(step)
    return {name: source.units for name, source in consumed.items()}


def _summed(
  share: Callable[[int], np.ndarray], first: int, last: int
) -> np.ndarray:
  """Returns the sum of shares over steps first .. last - 1 of one stage.

  Sources only leave in a stage, so shares that are the same at both ends are
  the same between them: halving finds the few steps at which one leaves.
  """
  if np.array_equal(share(first), share(last - 1)):
    return (last - first) * share(first)
  middle = (first + last) // 2
  return _summed(share, first, middle) + _summed(share, middle, last)


def curves(
  window: progress.Window,
  records: Mapping[str, Mapping[str, Any]],
  iterator: iterators.InputIterator,
) -> dict[str, float]:
  """Returns the points of a window's curves, by name.

  Args:
    window: Of the whole run.
    found: By source; see `SourceLog.take`.
    iterator: The input: how this process waits and reads, since its start.
  """
  waits = iterator.waits
  out = {
    "train/loss": window.loss,
    "train/tokens_per_second": window.tokens_per_second,
    "train/wait_share": window.wait_share,
    "input/wait_seconds": waits.seconds,
    "input/stalls": waits.stalls,
    "input/failures": waits.failures,
  }
  for name, record in records.items():
    out[f"train/loss/{name}"] = record["loss"]
    out[f"share/{name}"] = record["window_share"]
    for field in ("epochs", "rows", "tokens"):
      if record[field] is not None:
        out[f"{field}/{name}"] = record[field]
  for name, record in iterator.reads.items():
    for field in _READS:
      out[f"input/{field}/{name}"] = getattr(record, field)
  return out


def lines(records: Mapping[str, Mapping[str, Any]]) -> list[str]:
  """Returns one line a source, for the log."""
  return [
    f"source {name}: rows {sums['rows']:,}, tokens {_count(sums['tokens'])},"
    f" epochs {sums['epochs']:.4g}, loss {_loss(sums['loss'])}, share"
    f" {sums['window_share']:.2%} of {sums['window_intended']:.2%} intended,"
    f" since the start {sums['share']:.2%} of {sums['intended_share']:.2%}"
    " intended"
    for name, sums in records.items()
  ]


def _loss(value: float) -> str:
  return "-" if math.isnan(value) else f"{value:.4f}"


def _count(value: int | None) -> str:
  return "unknown" if value is None else f"{value:,}"
