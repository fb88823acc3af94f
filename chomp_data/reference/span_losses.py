# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Loss by span, in 8 bytes each, joined with the plan.

A run that is asked to (`config.train.span_losses`) writes what each span of
each step lost: a mean in nats and how many tokens it is of. Which documents
these were is not written down, because the plan knows: reading them back is
planning the same steps. One file holds the steps between two checkpoints, so a
resume drops the files from its step on and loses nothing. `documents` lists
which documents of some steps lose more than they used to.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import io
import itertools
import re
from typing import Any
from typing import NamedTuple

import numpy as np

from chomp_data import errors
from chomp_data import pipeline
from chomp_data.rows import spans as spans_lib
from chomp_data.storage import storage

DIRECTORY = "span_losses"

# As they lie in a file: 8 bytes a span, 4 a step.
_LOSS, _TOKENS = np.dtype("<f4"), np.dtype("<u4")
# Steps that are planned at once.
_BLOCK_STEPS = 2_048
# Steps over which a source's mean is taken: losses fall as a run goes on, so
# each is compared with what its source lost at that time.
_MEAN_STEPS = 64
# A source and one of its documents in one integer.
_DOCUMENT_BITS = 40
_FILE = re.compile(rf"{DIRECTORY}/(\d{{12}})-(\d{{12}})\.npz")


@dataclasses.dataclass(frozen=True)
class Sums:
  """What spans lost.

  Attributes:
    nll: float64[N], nats by weight.
    tokens: int64[N], trained tokens.
    weight: float64[N], what they weigh together.
  """

  nll: np.ndarray
  tokens: np.ndarray
  weight: np.ndarray

  @property
  def loss(self) -> np.ndarray:
    """float64[N], nats a token by weight; NaN where none weighs."""
    with np.errstate(invalid="ignore", divide="ignore"):
      return self.nll / self.weight


def by_span(
  spans: spans_lib.Spans,
  nll: np.ndarray,
  mask: np.ndarray,
  weight: np.ndarray | None = None,
) -> Sums:
  """Sums what columns lost over the spans that they are in.

  Args:
    spans: Of the rows; N of them.
    nll: float[B, S], nats of each column's next token, by weight.
    mask: bool[B, S], trained columns.
    weight: float[B, S], what they weigh; None is 1 each.
  """
  begin = spans.row * nll.shape[1] + spans.column
  end = begin + spans.length

  def summed(values: np.ndarray) -> np.ndarray:
    # float64 holds the sum of a batch to 12 digits.
    total = np.zeros(values.size + 1)
    np.cumsum(values, dtype=np.float64, out=total[1:])
    return total[end] - total[begin]

  tokens = np.rint(summed(mask)).astype(np.int64)
  return Sums(
    nll=np.where(tokens, summed(nll), 0.0),
    tokens=tokens,
    weight=summed(weight) if weight is not None else tokens.astype(np.float64),
  )


def of_step(
  pipe: pipeline.Pipeline,
  step: int,
  metrics: Mapping[str, np.ndarray],
  shards: Mapping[str, int] | None = None,
) -> tuple[spans_lib.Spans, Sums]:
  """Returns the spans of a step, and what they lost.

  Args:
    pipe: The run.
    step: The step.
    metrics: On the host, of `training.loss_and_metrics`: of all rows, in their
      order on devices.
    shards: Of the iterator that placed the rows.
  """
  # From places on devices to rows of the plan.
  row = np.argsort(pipe.row_order(step, shards))
  spans, weight = pipe.plan(step), metrics.get("token_weight")
  sums = by_span(
    spans,
    metrics["token_nll"][row],
    metrics["token_mask"][row],
    None if weight is None else weight[row],
  )
  return spans, sums


class Writer:
  """Keeps the losses of a run's spans until a checkpoint, then writes them."""

  def __init__(
    self, pipe: pipeline.Pipeline, workdir: storage.Storage, writes: bool
  ):
    """Binds a directory.

    Args:
      pipe: The run.
      workdir: Its directory.
      writes: Whether this process writes; others only go along.
    """
    self._pipe = pipe
    self._workdir = workdir
    self._writes = writes
    self._first = 0
    self._steps: list[Sums] = []

  def begin(self, step: int) -> None:
    """Starts at a step: what was written of later ones goes."""
    self._first, self._steps = step, []
    if not self._writes:
      return
    for first, last, name in _files(self._workdir):
      if last > step:
        if first < step:
          raise errors.StateError(
            f"{self._workdir.url(name)} must end at a checkpoint's step, got"
            f" steps {first} .. {last - 1} where the run goes on from step"
            f" {step}. Move the file away, or resume from another checkpoint."
          )
        self._workdir.delete([name])

  def add(self, sums: Sums | None) -> None:
    """Adds what the spans of the next step lost, of `of_step`; or None."""
    if sums is not None and self._writes:
      self._steps.append(sums)

  def flush(self) -> None:
    """Writes the steps since the last call to a file of their own."""
    if not self._steps or not self._writes:
      return
    last = self._first + len(self._steps)
    values = {
      "spans": np.asarray([len(step.nll) for step in self._steps], "<u4"),
      "loss": np.concatenate([step.loss for step in self._steps]).astype(_LOSS),
      "tokens": np.concatenate([step.tokens for step in self._steps]).astype(
        _TOKENS
      ),
    }
    buffer = io.BytesIO()
    np.savez(buffer, **values)
    name = f"{DIRECTORY}/{self._first:012d}-{last:012d}.npz"
    self._workdir.put(name, buffer.getvalue())
    self._first, self._steps = last, []


class Losses(NamedTuple):
  """Losses of the spans of consecutive steps.

  Attributes:
    key: int64[N], source and document, in one integer.
    step: int64[N], ascending.
    loss: float32[N], nats a token; NaN where none weighs.
    tokens: int64[N], trained tokens.
  """

  key: np.ndarray
  step: np.ndarray
  loss: np.ndarray
  tokens: np.ndarray


def read(
  pipe: pipeline.Pipeline, workdir: storage.Storage, first: int, last: int
) -> Iterator[Losses]:
  """Yields what was written of steps first .. last - 1, a file at a time.

  Args:
    pipe: The run that wrote them.
    workdir: Its directory.
    first: The first step.
    last: The step after the last.

  Raises:
    StateError: If a step was not written, or a file is not of this run.
  """
  at = first
  for begin, end, name in _files(workdir):
    if end <= at or begin >= last:
      continue
    if begin > at:
      break
    values = _loaded(workdir, name)
    ends = np.concatenate([[0], np.cumsum(values["spans"], dtype=np.int64)])
    stop = min(end, last)
    cut = slice(int(ends[at - begin]), int(ends[stop - begin]))
    spans = pipe.plan(at, stop - at)
    count = values["spans"][at - begin : stop - begin].astype(np.int64)
    if len(spans) != count.sum():
      raise errors.StateError(
        f"{workdir.url(name)} must hold a loss for each span of steps {at} .."
        f" {stop - 1}, got {count.sum()} for {len(spans)} planned ones. Give"
        " the config that wrote it."
      )
    yield Losses(
      key=spans.source.astype(np.int64) << _DOCUMENT_BITS | spans.document,
      step=np.repeat(np.arange(at, stop), count),
      loss=values["loss"][cut],
      tokens=values["tokens"][cut].astype(np.int64),
    )
    at = stop
  if at < last:
    raise errors.StateError(
      f"{workdir.url(DIRECTORY)} must hold steps {first} .. {last - 1}, got"
      f" none of step {at}. Train with config.train.span_losses=True, or ask"
      " for other steps."
    )


def steps_written(workdir: storage.Storage) -> tuple[int, int]:
  """Returns the first step written, and the one after the last; 0, 0 is none.

  Args:
    workdir: A run's directory, on a disk or in a bucket.
  """
  files = _files(workdir)
  if not files:
    return 0, 0
  first = last = files[0][0]
  for begin, end, _ in files:
    if begin != last:
      break
    last = end
  return first, last


def _files(workdir: storage.Storage) -> list[tuple[int, int, str]]:
  """Returns (first step, step after the last, name), in order."""
  files = []
  for name in workdir.names(f"{DIRECTORY}/"):
    if match := _FILE.fullmatch(name):
      files.append((int(match[1]), int(match[2]), name))
  return sorted(files)


def _loaded(workdir: storage.Storage, name: str) -> dict[str, Any]:
  try:
    with np.load(io.BytesIO(workdir.get(name))) as file:
      return {name: file[name] for name in ("spans", "loss", "tokens")}
  except (OSError, ValueError, KeyError, EOFError) as error:
    raise errors.StateError(
      f"{workdir.url(name)} must be a file of losses by span, got one that"
      f" cannot be read ({error}). Remove it: its steps are lost to `losses`,"
      " not to the run."
    ) from error


@dataclasses.dataclass(frozen=True)
class _Means:
  """Means of documents over some steps, an entry a document."""

  loss: np.ndarray
  relative: np.ndarray
  tokens: np.ndarray
  spans: np.ndarray
  first: np.ndarray
  last: np.ndarray


def _means(
  key: np.ndarray, blocks: Iterable[tuple[Losses, np.ndarray]]
) -> _Means:
  """Returns means of documents `key`, ascending; others are left out."""
  sums = np.zeros((4, len(key)))
  first, last = np.full((2, len(key)), -1, np.int64)
  for losses, usual in blocks:
    among = np.isin(losses.key, key)
    at, step = np.searchsorted(key, losses.key[among]), losses.step[among]
    tokens, loss = losses.tokens[among], losses.loss[among]
    for i, values in enumerate(
      (loss * tokens, (loss - usual[among]) * tokens, tokens, None)
    ):
      sums[i] += np.bincount(at, values, len(key))
    new = first[at] < 0
    # Steps ascend: of several the first assignment is the last in reverse.
    first[at[new][::-1]] = step[new][::-1]
    last[at] = step
  nll, relative, tokens, spans = sums
  with np.errstate(invalid="ignore"):
    loss = nll / tokens
  relative = relative / np.maximum(tokens, 1)
  return _Means(loss, relative, tokens, spans, first, last)


def documents(
  pipe: pipeline.Pipeline, workdir: storage.Storage, first: int, last: int
) -> list[dict[str, Any]]:
  """Returns the documents of steps first .. last - 1, the worst first.

  Args:
    pipe: The run.
    workdir: Its directory, with losses by span.
    first: The first step.
    last: The step after the last.

  Returns:
    {"source", "document", "id", "loss", "tokens", "spans", "first_step",
    "last_step", "loss_before", "spans_before", "last_before", "relative",
    "relative_before", "excess"} each. `loss_before` is the mean over all
    earlier steps that were written, None where the document was not trained on
    in them. `relative` is its loss above the mean of its source in 64 steps
    around, `excess` how much more that is than it was before (0 where there is
    no before). Sorted by excess.

  Raises:
    StateError: If a step was not written.
  """
  begun, _ = steps_written(workdir)
  asked = list(_trained(pipe, workdir, first, last))
  keys = [losses.key for losses, _ in asked]
  key = np.unique(np.concatenate([np.empty(0, np.int64), *keys]))
  now = _means(key, asked)
  before = _means(key, _trained(pipe, workdir, begun, first))
  records: list[dict[str, Any]] = []
  for number, name in enumerate(pipe.source_names):
    low, high = np.searchsorted(key >> _DOCUMENT_BITS, [number, number + 1])
    document = key[low:high] & ((1 << _DOCUMENT_BITS) - 1)
    ids = pipe.sources[name].store.document_ids(document)
    for i, one, identity in zip(
      range(low, high), document.tolist(), ids, strict=True
    ):
      known = bool(before.tokens[i])
      records.append(
        {
          "source": name,
          "document": one,
          "id": identity,
          "loss": float(now.loss[i]),
          "tokens": int(now.tokens[i]),
          "spans": int(now.spans[i]),
          "first_step": int(now.first[i]),
          "last_step": int(now.last[i]),
          "loss_before": float(before.loss[i]) if known else None,
          "spans_before": int(before.spans[i]),
          "last_before": int(before.last[i]) if known else None,
          "relative": float(now.relative[i]),
          "relative_before": float(before.relative[i]) if known else None,
          "excess": float(now.relative[i] - before.relative[i]),
        }
      )
  return sorted(records, key=lambda record: -record["excess"])


def _trained(
  pipe: pipeline.Pipeline, workdir: storage.Storage, first: int, last: int
) -> Iterator[tuple[Losses, np.ndarray]]:
  """Yields the spans of steps first .. last - 1 that were trained on.

  Beside each is the mean loss of its source in the 64 steps around.
  """
  if first >= last:
    return
  # Means are of whole stretches of 64 steps, as far as they were written: of
  # one step alone, a source's only document would be its own mean.
  begun, ended = steps_written(workdir)
  low = min(first, max(first // _MEAN_STEPS * _MEAN_STEPS, begun))
  high = max(last, min(-(-last // _MEAN_STEPS) * _MEAN_STEPS, ended))
  inner = range((low // _BLOCK_STEPS + 1) * _BLOCK_STEPS, high, _BLOCK_STEPS)
  for begin, end in itertools.pairwise([low, *inner, high]):
    parts = zip(*read(pipe, workdir, begin, end), strict=True)
    key, step, loss, tokens = map(np.concatenate, parts)
    loss = np.nan_to_num(loss.astype(np.float64))
    source = key >> _DOCUMENT_BITS
    _, stretch = np.unique(
      source << _DOCUMENT_BITS | step // _MEAN_STEPS, return_inverse=True
    )
    mean = np.bincount(stretch, loss * tokens) / np.maximum(
      np.bincount(stretch, tokens), 1
    )
    pick = (tokens > 0) & (step >= first) & (step < last)
    columns = (key, step, loss, tokens, mean[stretch])
    *columns, usual = (column[pick] for column in columns)
    yield Losses(*columns), usual
