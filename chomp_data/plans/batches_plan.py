# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Batches merged one by one: each is of one source and one static shape."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

import numpy as np

from chomp_data.bucket import dataset as dataset_lib
from chomp_data.bucket import schedule as schedule_lib
from chomp_data.index import steps as steps_lib
from chomp_data.plans import mix as mix_lib
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import summary
from chomp_data.plans import token_sums
from chomp_data.plans import tombstones
from chomp_data.plans import trails
from chomp_data.rows import buckets as buckets_lib
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import transfer_format
from chomp_data.sources import row_source
from chomp_data.sources import row_transfer

# Steps of a run without an end have numbers below this.
_ENDLESS = 2**40


class BatchesPlan(plan_lib.Plan):
  """A run's batches of a few static shapes.

  Attributes:
    datasets: By name, in the order of their numbers.
    schedule: Which of them each data step has.
  """

  reader_name = "BucketBatches"

  def __init__(
    self,
    datasets: Mapping[str, dataset_lib.Dataset],
    buckets: Sequence[buckets_lib.Bucket],
    schedule: schedule_lib.BucketSchedule,
    *,
    steps: steps_lib.Steps,
    stages: mix_lib.Stages,
    bucket_stages: mix_lib.Stages | None,
    fingerprints: Mapping[str, Mapping[str, Any]],
    by_tokens: bool,
    gone: tombstones.Tombstones,
    path: str,
  ):
    """Binds datasets to their schedule.

    Args:
      datasets: By name, in the order of their numbers.
      buckets: In the order of their numbers.
      schedule: Which of them each data step has.
      steps: Which data step each step is; each has rows of its own.
      stages: (from_step, weights of datasets).
      bucket_stages: (from_step, weights of buckets), or None.
      fingerprints: Of the sections `buckets` and `mix`, and what orders each
        dataset by `sources`.
      by_tokens: Whether tokens of text are what datasets are balanced by.
      gone: Documents and spans that are gone.
      path: Dotted path of `config.data`, for messages.
    """
    self.datasets: dict[str, dataset_lib.Dataset] = dict(datasets)
    self.buckets: tuple[buckets_lib.Bucket, ...] = tuple(buckets)
    self.schedule = schedule
    self.steps: steps_lib.Steps = steps
    self.gone: tombstones.Tombstones = gone
    self.source_names: list[str] = list(self.datasets)
    self.sources: dict[str, row_source.RowSource] = {
      name: own.text
      for name, own in self.datasets.items()
      if own.text is not None
    }
    self._numbered = tuple(self.datasets.values())
    self._bucket_stages = bucket_stages
    self._fingerprints = fingerprints
    self._by_tokens = by_tokens
    # By number and unit.
    self._unit_sums: dict[tuple[int, str], Callable[[int], int]] = {}
    self._path = path
    self._samples = {n: sum(d.counts.values()) for n, d in datasets.items()}
    own = mix_lib.BatchMix(
      schedule, steps, stages, self._samples, f"{path}.mix"
    )
    self._stages = own.stages
    self.mix: mix_lib.Mix | None = own if len(self.datasets) > 1 else None

  @property
  def num_steps(self) -> int | None:
    """Steps of the whole run, or None; see `Plan`."""
    end = self.schedule.num_steps
    return None if end is None else self.steps.before(end)

  @property
  def step_limit(self) -> int:
    """Steps below this can be read; see `Plan`."""
    return _ENDLESS if self.num_steps is None else self.num_steps

  def at(self, step: int) -> tuple[int | None, int]:
    """Returns the dataset and the bucket of a step, by number; see `Plan`."""
    self.check_steps(step)
    return self.schedule.at(self.steps.data_step(int(step)))

  def spans(
    self, first_step: int, count: int = 1, rows: plan_lib.Rows | None = None
  ) -> spans_lib.Spans:
    """Plans consecutive steps without reading a token; see `Plan`."""
    return self._spans(first_step, count, rows, self.gone)

  def whole_spans(self, first_step: int, count: int) -> spans_lib.Spans:
    """Plans steps as if nothing were gone; see `Plan`."""
    return self._spans(first_step, count, None, tombstones.Tombstones())

  def _spans(
    self,
    first_step: int,
    count: int,
    rows: plan_lib.Rows | None,
    gone: tombstones.Tombstones,
  ) -> spans_lib.Spans:
    self.check_steps(first_step, count)
    parts = []
    for step in range(first_step, first_step + count):
      spans = self._step(step, rows, gone).spans
      if spans is None:
        raise TypeError(
          f"steps must hold text to have spans, got arrays at step {step}. Ask"
          " for its samples."
        )
      parts.append(spans)
    return parts[0] if count == 1 else spans_lib.concatenated(parts)

  def planned(
    self,
    first_step: int,
    count: int = 1,
    rows: plan_lib.Rows | None = None,
    stride: int = 1,
  ) -> plan_lib.Planned:
    """Returns what `read` needs for one step; see `Plan`."""
    del stride
    if count != 1:
      raise ValueError(
        f"`count` must be 1, got {count}. Steps differ in their shapes."
      )
    self.check_steps(first_step)
    return self._step(first_step, rows, self.gone)

  def _step(
    self, run_step: int, rows: plan_lib.Rows | None, gone: tombstones.Tombstones
  ) -> plan_lib.Planned:
    step = self.steps.data_step(int(run_step))
    dataset, bucket = self.schedule.at(step)
    own = None if rows is None else rows[self.buckets[bucket].name]
    samples = self.schedule.samples(step, own)
    planned = self._planned(dataset, bucket, samples)
    if planned.spans is None:
      return planned
    steps = np.full(planned.spans.num_rows, step)
    spans = gone.without(planned.spans, steps)
    return dataclasses.replace(planned, spans=spans)

  def _planned(
    self, dataset: int, bucket: int, samples: np.ndarray
  ) -> plan_lib.Planned:
    spans = self._numbered[dataset].spans(bucket, samples)
    if spans is not None:
      source = np.full(len(spans), dataset, np.int32)
      spans = dataclasses.replace(spans, source=source)
    return plan_lib.Planned(spans, bucket, dataset, samples)

  def prefetch(self, planned: plan_lib.Planned) -> bool:
    """Fetches what reading a planned step will need; see `Plan`."""
    fetched = planned.fetched
    if fetched is None:
      return False
    rows = self._numbered[planned.dataset].rows
    return rows[planned.bucket].prefetch(fetched)

  def read(self, planned: plan_lib.Planned) -> dict[str, np.ndarray]:
    """Returns a step's fields; see `Plan`."""
    assert planned.samples is not None
    return self._numbered[planned.dataset].read(
      planned.bucket,
      planned.samples,
      planned.dataset,
      planned.spans,
      planned.columns,
    )

  def wire(self, bucket: int) -> transfer_format.Wire | None:
    """Returns how rows of text travel to devices; see `Plan`."""
    if not all(own.rows for own in self._numbered):
      return None
    rows = [own.rows[bucket] for own in self._numbered]
    first = self._numbered[0]
    gone = self.gone.first_step is not None
    return row_transfer.wire_of(rows, first.extra, first.document_slots, gone)

  def on_wire(self, planned: plan_lib.Planned) -> np.ndarray:
    """Returns a step of text as it travels to devices; see `Plan`."""
    wire = self._wires[planned.bucket]
    if wire is None:
      return super().on_wire(planned)
    assert planned.spans is not None
    rows = self._numbered[planned.dataset].rows[planned.bucket]
    return row_transfer.read(
      {planned.dataset: rows}, planned.spans, wire, planned.columns
    )

  @functools.cached_property
  def _wires(self) -> list[transfer_format.Wire | None]:
    return [self.wire(number) for number in range(len(self.buckets))]

  def examples(self, bucket: int) -> Iterator[tuple[str, plan_lib.Planned]]:
    """Yields the first sample of each dataset in a bucket; see `Plan`."""
    for number, (name, own) in enumerate(self.datasets.items()):
      if own.counts.get(self.buckets[bucket].name):
        yield name, self._planned(number, bucket, np.zeros(1, np.int64))

  def in_data_steps(self, count: int) -> plan_lib.Counts:
    """Returns samples of the first data steps; see `Plan`."""
    counts = self.schedule.consumed(self._within(count)).tolist()
    names = [bucket.name for bucket in self.buckets]
    return {
      name: dict(zip(names, own, strict=True))
      for name, own in zip(self.datasets, counts, strict=True)
    }

  def rows_held(self, step: int) -> dict[str, int]:
    """Returns rows by bucket before a step, filler included; see `Plan`."""
    end = self.schedule.num_steps
    batches = self._batches(self._within(self.steps.data_step(step)))
    for begin, after in self.steps.skipped(step):
      last = after if end is None else min(after, end)
      batches -= self._batches(last) - self._batches(begin)
    return {
      bucket.name: count * bucket.batch_size
      for bucket, count in zip(self.buckets, batches.tolist(), strict=True)
    }

  def _batches(self, data_step: int) -> np.ndarray:
    """Returns batches by bucket before a data step, int64[num_buckets]."""
    return self.schedule.batches(data_step).sum(axis=0)

  def epoch_begins(self, source: str, epoch: int) -> int | None:
    """Returns the step of an epoch's first batch; see `Plan`.

    In stages of buckets it is that after all buckets had the epoch before.
    """
    found = self.schedule.epoch_begins(source, epoch)
    return None if found is None else self.steps.before(found)

  def ends(self, source: str) -> int | None:
    """Returns the step after a dataset's last batch; see `Plan`."""
    found = self.schedule.ends(source)
    return None if found is None else self.steps.before(found)

  def passes(self, source: str, samples: int) -> float:
    """Returns how often a dataset was passed; see `Plan`."""
    return samples / max(self._samples[source], 1)

  def num_documents(self, source: str) -> int:
    """Returns the documents, or the samples, of a dataset; see `Plan`."""
    return self.datasets[source].num_documents

  def sample_numbers(self, step: int) -> np.ndarray:
    """Returns the numbers of a step's samples in their store; see `Plan`."""
    planned = self.planned(step)
    samples = planned.samples
    assert samples is not None
    out = np.full(len(samples), -1, np.int64)
    real = samples >= 0
    own = self._numbered[planned.dataset]
    out[real] = own.numbers_of(planned.bucket, samples[real])
    return out

  def trail(self, source: str, document: int) -> trails.Trail:
    """Returns where a document, or a sample, comes in the run; see `Plan`."""
    return trails.BatchesTrail(
      self.schedule,
      self.source_names.index(source),
      self.datasets[source].samples_of(document),
    )

  def documents(self, source: str, step: int) -> np.ndarray:
    """Returns which documents a dataset has given; see `Plan`."""
    number, own = self.source_names.index(source), self.datasets[source]
    seen = np.zeros(self.num_documents(source), np.bool_)
    # Samples of arrays are numbered by bucket.
    counts = [own.counts.get(bucket.name, 0) for bucket in self.buckets]
    first = np.cumsum([0, *counts])
    most = plan_lib.documents_to_see(own.text) if own.text else len(seen)
    for bucket, samples, spans in self._handed_out(number, step):
      if spans is None:
        seen[first[bucket] + samples] = True
      else:
        seen[spans.document[spans.stored()[0] > 0]] = True
      if np.count_nonzero(seen) == most:
        break
    return seen

  def exposures(self, source: str, first: int, last: int) -> np.ndarray:
    """Returns how often documents, or samples, come; see `Plan`."""
    number = self.source_names.index(source)
    own = self.datasets[source]
    begins, ends = (
      self.schedule.parts_at(number, self._within(step))
      for step in (first, last)
    )
    out = np.zeros(own.num_documents, np.int64)
    for (order, low), (_, high) in zip(begins, ends, strict=True):
      for bucket in np.flatnonzero(order.counts).tolist():
        samples = np.arange(order.counts[bucket])
        counts = order.counts_between(bucket, samples, low, high)
        np.add.at(out, own.numbers_of(bucket, samples), counts)
    return out

  def _handed_out(
    self, number: int, step: int
  ) -> Iterator[tuple[int, np.ndarray, spans_lib.Spans | None]]:
    """Yields bucket, samples and live spans of a dataset before a step."""
    if not self.steps.skipped(step) and not self.is_gone_before(step):
      for order, place in self.schedule.parts_at(number, self._within(step)):
        for bucket, samples in order.samples_between(0, place):
          yield bucket, samples, self._numbered[number].spans(bucket, samples)
      return
    for own in range(step):
      if self.at(own)[0] != number:
        continue
      planned = self._step(own, None, self.gone)
      assert planned.samples is not None
      samples, spans = planned.samples, planned.spans
      live = None if spans is None else spans.live()
      yield planned.bucket, samples[samples >= 0], live

  def whole_sums(self) -> token_sums.TokenSums | None:
    """Returns sums of tokens by dataset, None for arrays; see `Plan`."""
    if not self.sources:
      return None
    return token_sums.StepSums(
      {name: own.store for name, own in self.sources.items()},
      self.whole_spans,
      self._by_epoch,
      self._units if self._by_tokens else None,
    )

  def _by_epoch(self, step: int, number: int, unit: str) -> int:
    """Returns what a dataset consumed before a step, from its epochs."""
    before = self._unit_sums.get((number, unit))
    if before is None:
      own = functools.partial(_sample_units, self._numbered[number], unit)
      before = self.schedule.unit_sums(number, own)
      self._unit_sums[number, unit] = before
    return self._given(step, before)

  def _units(self, step: int) -> np.ndarray:
    """Returns the units that were handed out before a step, by dataset."""
    return self._given(step, self.schedule.consumed_units)

  def _given(self, step: int, before: Callable[[int], Any]) -> Any:
    """Returns what was handed out before a step, of sums by data step."""
    total = before(self._within(self.steps.data_step(step)))
    for first, last in self.steps.skipped(step):
      total = total - (before(self._within(last)) - before(self._within(first)))
    return total

  def _within(self, count: int) -> int:
    """Returns how many of the first data steps there are."""
    end = self.schedule.num_steps
    return count if end is None else min(count, end)

  @property
  def by_bucket(self) -> bool:
    """True: checkpoints tell samples by bucket."""
    return True

  @property
  def fingerprint(self) -> dict[str, Any]:
    """buckets, mix and datasets, as JSON values."""
    stages = self._bucket_stages
    return {
      "buckets": {
        **self._fingerprints["buckets"],
        "batch_sizes": {own.name: own.batch_size for own in self.buckets},
        "stages": None if stages is None else _as_json(stages),
      },
      "mix": {**self._fingerprints["mix"], "stages": _as_json(self._stages)},
      "sources": {
        name: {**own.fingerprint, **self._fingerprints["sources"][name]}
        for name, own in self.datasets.items()
      },
    }

  def describe(self) -> list[str]:
    """Returns the summary for the log: the shapes that will come."""
    return [
      f"in {len(self.buckets)} static shapes"
      f" ({self._fingerprints['buckets']['kind']}), by"
      f" {self._fingerprints['mix']['unit']}",
      *summary.bucket_lines(self.datasets, self.buckets, self.schedule),
      *summary.stage_lines(self, self._bucket_stages),
      *(own.describe() for own in self.datasets.values()),
    ]

  def warnings(self) -> list[str]:
    """Returns which buckets a stage gives again and again; see `Plan`."""
    return [
      f"{self._path}.buckets.stages: {line}."
      for line in summary.repeats(self, self._bucket_stages)
    ]

  def stages(self) -> list[tuple[int, str]]:
    """Returns where stages of the curriculum begin; see `Plan`."""
    return [
      (step, summary.stage_text(self, step, weights))
      for step, weights in self._bucket_stages or ()
    ]

  def bucket_passes(self, step: int) -> dict[str, dict[str, float]]:
    """Returns how often each bucket of each dataset was passed; see `Plan`."""
    return {
      name: {
        bucket: count / self.datasets[name].counts[bucket]
        for bucket, count in own.items()
        if self.datasets[name].counts.get(bucket)
      }
      for name, own in self.taken(step).items()
    }


def _sample_units(
  dataset: dataset_lib.Dataset, unit: str, bucket: int, samples: np.ndarray
) -> np.ndarray:
  """Returns int64[N], what samples of text consume."""
  spans = dataset.spans(bucket, samples)
  assert spans is not None
  assert dataset.text is not None
  return token_sums.sample_units(spans, unit, dataset.text.store)


def _as_json(stages: mix_lib.Stages) -> dict[str, dict[str, str]]:
  return {
    str(step): {name: str(weight) for name, weight in sorted(weights.items())}
    for step, weights in stages
  }
