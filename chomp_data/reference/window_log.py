# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How a run is doing: losses by source, bucket and document, speed and waits.

Losses are in nats per trained token. Positions and shares come from the plan,
so they cover all processes and all steps since the start, whatever this process
has seen. Metrics come off the devices one step late, so that a step is always
in flight while the host reads those of the one before.
"""

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import itertools
import math
import time
from typing import Any

import jax
import numpy as np

from chomp_data import errors
from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.plans import summary
from chomp_data.reference import span_losses
from chomp_data.rows import spans as spans_lib

# (source number, document).
Document = tuple[int, int]

# Of `SourceReads`, what curves show.
_READS = (
  "chunks_fetched",
  "bytes_fetched",
  "cache_hits",
  "requests",
  "retries",
  "corrupt",
)


@dataclasses.dataclass(frozen=True)
class Window:
  """What happened since the last look.

  Attributes:
    steps: Steps taken.
    loss: Mean loss of trained tokens by weight; NaN where there was none.
    tokens: Trained tokens.
    all_masked: Steps without a trained token.
    tokens_per_second: Trained tokens per second of wall time.
    positions_per_second: Positions, padding included, per second.
    wait_share: Fraction of wall time spent waiting for input.
    sources: For each source `rows`, `tokens`, `loss_tokens` and `epochs` taken
      since the start, the window's `loss` (NaN for none), and shares in the
      mix's unit: `window_share`, and since the start `share` and what was
      intended, `intended_share`, which is a mean over steps.
    buckets: For each bucket the window's `batches`, their `share` of all and
      mean `loss`; since the start `passes` by source. None without buckets.
    stages: A line for each stage of buckets that began.
  """

  steps: int
  loss: float
  tokens: int
  all_masked: int
  tokens_per_second: float
  positions_per_second: float
  wait_share: float
  sources: Mapping[str, Mapping[str, Any]]
  buckets: Mapping[str, Mapping[str, Any]] | None = None
  stages: tuple[str, ...] = ()

  def __str__(self) -> str:
    text = (
      f"loss {self.loss:.4f}, {self.tokens_per_second:,.0f} trained tokens/s,"
      f" {self.positions_per_second:,.0f} positions/s,"
      f" {self.wait_share:.1%} waiting for data"
    )
    if self.all_masked:
      text += f", {self.all_masked} steps without a trained token"
    return text

  def record(self) -> dict[str, Any]:
    """Returns how the steps went, as JSON values."""
    record = {
      "loss": self.loss,
      "tokens_per_second": self.tokens_per_second,
      "positions_per_second": self.positions_per_second,
      "wait_share": self.wait_share,
      "by_source": self.sources,
      "by_bucket": self.buckets,
    }
    return {name: value for name, value in record.items() if value is not None}

  def bucket_lines(self) -> list[str]:
    """Returns one line per bucket, after those of stages that began."""
    lines = list(self.stages)
    for name, record in (self.buckets or {}).items():
      passes = ", ".join(f"{n} {p:.2f}" for n, p in record["passes"].items())
      lines.append(
        f"bucket {name}: {record['batches']} batches ({record['share']:.1%}),"
        f" loss {_text(record['loss'])}, passes {passes}"
      )
    return lines

  def curves(self, iterator: iterators.InputIterator) -> dict[str, float]:
    """Returns the points of curves, by name.

    Args:
      iterator: The input: how this process waits and reads, since its start.
    """
    waits = iterator.waits
    out = {
      "train/loss": self.loss,
      "train/tokens_per_second": self.tokens_per_second,
      "train/wait_share": self.wait_share,
      "input/wait_seconds": waits.seconds,
      "input/stalls": waits.stalls,
      "input/failures": waits.failures,
    }
    for name, record in self.sources.items():
      out[f"train/loss/{name}"] = record["loss"]
      out[f"share/{name}"] = record["window_share"]
      for field in ("epochs", "rows", "tokens"):
        if record[field] is not None:
          out[f"{field}/{name}"] = record[field]
    for name, reads in iterator.reads.items():
      for field in _READS:
        out[f"input/{field}/{name}"] = getattr(reads, field)
    return out


class _Sums:
  """Sums of losses by key; None is of all steps."""

  def __init__(self):
    self._sums: dict[Any, list[float]] = {}

  def add(self, keys: Iterable[Hashable], *columns: np.ndarray) -> None:
    """Adds nll, weight and trained tokens, one entry per key."""
    rows = zip(*(np.ravel(column).tolist() for column in columns), strict=True)
    for key, values in zip(keys, rows, strict=True):
      sums = self._sums.setdefault(key, [0.0, 0.0, 0])
      for i, value in enumerate(values):
        sums[i] += value

  def loss(self, key: Hashable) -> float:
    """Returns nats per token by weight; NaN where none weighs."""
    nll, weight, _ = self._sums.get(key, (0.0, 0.0, 0))
    return nll / weight if weight else math.nan

  def tokens(self, key: Hashable) -> int:
    return int(self._sums[key][2]) if key in self._sums else 0

  def means(self) -> dict[Any, tuple[float, int]]:
    """Returns loss and tokens by key, in the order of keys."""
    return {
      key: (self.loss(key), self.tokens(key)) for key in sorted(self._sums)
    }


class WindowLog:
  """Sums the metrics of steps between two looks.

  Attributes:
    steps: Steps of the window whose metrics are summed.
  """

  def __init__(self, pipe: pipeline.Pipeline, first_step: int = 0):
    """Starts a window at a step of a run."""
    self._pipe = pipe
    # Positions, metrics and shards of the step in flight.
    self._pending: (
      tuple[int, Mapping[str, Any], Mapping[str, int] | None] | None
    ) = None
    self.begin(first_step)

  def begin(self, step: int) -> None:
    """Starts a window at a step."""
    self._first = self._next = step
    # Summed over the steps before the window.
    self._intended = _intended(self._pipe, 0, step)
    self._documents = _Sums()
    self._start(0.0)

  def _start(self, wait_s: float) -> None:
    """Starts the sums of a window; `wait_s` was waited for input so far."""
    self._by_key = _Sums()
    self._began, self._wait_s = time.perf_counter(), wait_s
    self.steps: int = 0
    self._all_masked = self._positions = 0
    self._total = _Sums()

  def leave_out(self, seconds: float, waited: float = 0.0) -> None:
    """Leaves time out of the window's: that of compiling, for instance.

    Args:
      seconds: The time.
      waited: How much of it was waited for input.
    """
    self._began += seconds
    self._wait_s += waited

  @property
  def loss(self) -> float:
    """Mean loss of the window so far."""
    return self._total.loss(None)

  def add(
    self,
    metrics: Mapping[str, Any],
    positions: int,
    shards: Mapping[str, int] | None = None,
  ) -> span_losses.Sums | None:
    """Takes the next step's metrics and waits for those of the step before.

    Args:
      metrics: Of `training.Trainer.step`.
      positions: Rows times positions of the step's global batch.
      shards: Of the iterator that placed its rows.

    Returns:
      What the spans of the step before lost, or None.

    Raises:
      DivergedError: If the loss of the step before is not finite.
    """
    before = self.flush()
    self._pending = (positions, metrics, shards)
    return before

  def flush(self) -> span_losses.Sums | None:
    """Waits for the step in flight; as `add`."""
    if self._pending is None:
      return None
    (positions, pending, shards), self._pending = self._pending, None
    metrics = jax.device_get(dict(pending))
    step, self._next = self._next, self._next + 1
    loss, tokens = float(metrics["loss"]), metrics["tokens"]
    if not math.isfinite(loss):
      raise errors.DivergedError(
        f"loss must be finite, got {loss} at step {step}. Lower"
        " `config.optimizer.learning_rate`, or resume with other data."
      )
    self.steps += 1
    self._positions += positions
    self._all_masked += int(metrics["all_masked"])
    weight = metrics.get("weight", tokens)
    self._total.add([None], np.asarray(loss * float(weight)), weight, tokens)
    spans, sums = span_losses.of_step(self._pipe, step, metrics, shards)
    self._add_spans(step, spans, sums)
    return sums

  def _add_spans(
    self, step: int, spans: spans_lib.Spans, sums: span_losses.Sums
  ) -> None:
    """Adds a step by source, bucket and document."""
    columns = sums.nll, sums.weight, sums.tokens
    for source in np.unique(spans.source).tolist():
      of_source = spans.source == source
      self._by_key.add(
        [source], *(column[of_source].sum() for column in columns)
      )
    if self._pipe.run_options.kind != "rows":
      bucket = self._pipe.bucket_of(step)[1]
      self._by_key.add([bucket], *(column.sum() for column in columns))
    if self._pipe.run_options.data.document_id:
      trained = sums.tokens > 0
      documents = zip(
        spans.source[trained].tolist(),
        spans.document[trained].tolist(),
        strict=True,
      )
      self._documents.add(documents, *(column[trained] for column in columns))

  def take(self, step: int, wait_s: float = 0.0) -> Window:
    """Returns the window up to a step, and starts another.

    Args:
      step: The next step.
      wait_s: Seconds waited for input so far.

    Raises:
      IndexError: If the step lies beyond the run.
    """
    seconds = max(time.perf_counter() - self._began, 1e-9)
    is_rows = self._pipe.run_options.kind == "rows"
    window = Window(
      steps=self.steps,
      loss=self.loss,
      tokens=self._total.tokens(None),
      all_masked=self._all_masked,
      tokens_per_second=self._total.tokens(None) / seconds,
      positions_per_second=self._positions / seconds,
      wait_share=(wait_s - self._wait_s) / seconds,
      sources=self._sources(step),
      buckets=None if is_rows else self._buckets(step),
      stages=() if is_rows else self._stages(step),
    )
    self._first = step
    self._start(wait_s)
    return window

  def take_documents(self) -> dict[Document, tuple[float, int]]:
    """Returns {(source, document): (loss, tokens)} since the last call."""
    sums, self._documents = self._documents, _Sums()
    return sums.means()

  def _sources(self, step: int) -> dict[str, dict[str, Any]]:
    accounts = self._pipe.accounts.at(step)
    begun, first, now = (self._units(at) for at in (0, self._first, step))
    window = {name: now[name] - first[name] for name in now}
    since = {name: now[name] - begun[name] for name in now}
    self._intended = self._intended + _intended(self._pipe, self._first, step)
    return {
      name: {
        "rows": accounts[name].rows,
        "tokens": accounts[name].tokens,
        "loss_tokens": accounts[name].loss_tokens,
        "epochs": accounts[name].epochs,
        "loss": self._by_key.loss(i),
        "window_share": window[name] / max(sum(window.values()), 1),
        "intended_share": float(self._intended[i]) / max(step, 1),
        "share": since[name] / max(sum(since.values()), 1),
      }
      for i, name in enumerate(self._pipe.source_names)
    }

  def _buckets(self, step: int) -> dict[str, dict[str, Any]]:
    batches = dict.fromkeys((bucket.name for bucket in self._pipe.buckets), 0)
    for number in range(self._first, step):
      batches[self._pipe.bucket_of(number)[1]] += 1
    epochs = summary.bucket_epochs(self._pipe.run_plan, step)
    return {
      name: {
        "batches": count,
        "share": count / max(step - self._first, 1),
        "loss": self._by_key.loss(name),
        "passes": {
          source: by_name[name]
          for source, by_name in epochs.items()
          if name in by_name
        },
      }
      for name, count in batches.items()
    }

  def _stages(self, step: int) -> tuple[str, ...]:
    plan = self._pipe.run_plan
    return tuple(
      f"stage {text}"
      for begins, text in summary.bucket_stages(plan)
      if self._first <= plan.steps.before(begins) < step
    )

  def _units(self, step: int) -> dict[str, int]:
    """Returns what sources consumed before a step, in the balanced unit."""
    consumed = self._pipe.accounts.questions.consumed(step)
    return {name: source.units for name, source in consumed.items()}


def source_table(
  sources: Mapping[str, Mapping[str, Any]],
  **more: Mapping[str, str],
) -> list[str]:
  """Returns a table of sources, as lines of aligned columns.

  Args:
    sources: Of a `Window`.
    **more: Texts of further columns, by source.
  """
  rows = [["source", "tokens", "share", "wanted", "epochs", "loss", *more]]
  rows += [
    [
      name,
      "unknown" if record["tokens"] is None else f"{record['tokens']:,}",
      f"{record['share']:.2%}",
      f"{record['intended_share']:.2%}",
      f"{record['epochs']:.4g}",
      _text(record["loss"]),
      *(texts[name] for texts in more.values()),
    ]
    for name, record in sources.items()
  ]
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
    "  ".join(
      [
        name.ljust(widths[0]),
        *map(str.rjust, texts, widths[1:]),
      ]
    )
    for name, *texts in rows
  ]


def _intended(pipe: pipeline.Pipeline, first: int, last: int) -> np.ndarray:
  """Returns intended shares summed over steps first .. last - 1."""
  questions = pipe.accounts.questions

  def share(step: int) -> np.ndarray:
    intended = questions.intended(step)
    return np.asarray([intended[name] for name in pipe.source_names])

  total = np.zeros(len(pipe.source_names))
  begins = {pipe.run_plan.steps.before(at) for at, _ in questions.stages}
  starts = sorted(at for at in begins if first < at < last)
  for begin, end in itertools.pairwise([first, *starts, last]):
    if begin < end:
      total += _summed(share, begin, end)
  return total


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


def _text(loss: float) -> str:
  return "-" if math.isnan(loss) else f"{loss:.4f}"
