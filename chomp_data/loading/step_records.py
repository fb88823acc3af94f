# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A Grain loader whose records hold a few steps, read at once.

    record 0      record 1          record 2
    step 0        steps 1, 2        steps 3, 4, 5, 6

Grain's bookkeeping of a record, and NumPy's cost by call, are then shared by
several steps. Grain reads all steps of a record in the source's `__getitem__`
and applies the transforms to the batch of each.

Where records begin and end decides nothing: the state is the one of
`grain.DataLoader` over records of one step, in both directions. What either
has saved the other restores, at every step.
"""

from collections.abc import Sequence
import dataclasses
import json
import time
from typing import Any

import grain
import numpy as np

from chomp_data.loading import batches
from chomp_data.loading import reads as reads_lib
from chomp_data.plans import certifying

Transform = grain.transforms.Map | grain.transforms.RandomMap

# A record holds as many steps as are read and transformed in this time, so that
# no batch waits long for the others of its record; or one step.
RECORD_S = 0.01


@dataclasses.dataclass
class _Record:
  """The batches of consecutive steps.

  Attributes:
    steps: The steps.
    batches: Of each step; fewer where a transform failed.
    generators: Of each row of each step, for random transforms; None where
      there are none.
    error: What a transform raised, of the step after the last batch.
  """

  steps: range
  batches: list[Any]
  generators: list[list[np.random.Generator]] | None = None
  error: Exception | None = None


class _Records:
  """A Grain source: record `step` holds the steps from that one on."""

  def __init__(self, source: batches.BatchSource, sampler: batches.StepSampler):
    self._source = source
    self._sampler = sampler
    self._steps = range(0)
    self._most = 1

  def __len__(self) -> int:
    return len(self._source)

  def __getitem__(self, index: int) -> _Record:
    steps = self.steps(int(index))
    generators = None
    if self._sampler.has_generators:
      generators = [
        self._sampler.generators(step, rows)
        for step, rows in zip(steps, self._source.rows_of(steps), strict=True)
      ]
    return _Record(steps, self._source.read(steps), generators)

  def steps(self, step: int) -> range:
    """Returns the steps of the record that begins with one.

    The same ones until those of another record are asked for.
    """
    if not self._steps or self._steps.start != step:
      self._steps = self._source.together(step, self._most)
    return self._steps

  def took(self, seconds: float) -> None:
    """Chooses the steps of the next records.

    Args:
      seconds: What the record that was read last took, transforms included.
    """
    each = max(seconds / len(self._steps), 1e-9)
    self._most = max(1, int(RECORD_S / each))

  def __repr__(self) -> str:
    return f"{self._source!r} by record"


class _Sampler:
  """A Grain sampler of the steps that records begin with."""

  def __init__(self, records: _Records, first_step: int):
    self._records = records
    self._first_step = first_step
    # The number of the record that was asked for last, and its first step.
    self._last = 0, first_step

  def __len__(self) -> int:
    # As if each had one step: `StepIterator` stops at the last step.
    return max(len(self._records) - self._first_step, 0)

  def __getitem__(self, index: int) -> grain.RecordMetadata:
    number, step = self._last
    if index < number:
      number, step = 0, self._first_step
    while number < index:
      step, number = self._records.steps(step).stop, number + 1
    self._last = number, step
    return grain.RecordMetadata(index=index, record_key=step)

  def __repr__(self) -> str:
    return f"RecordSampler({self._first_step})"


class _EachStep(grain.transforms.Map):
  """Applies a transform to the batch of each step of a record."""

  def __init__(self, operation: Transform):
    self._operation = operation

  def map(  # pyright: ignore[reportIncompatibleMethodOverride]
    self, element: _Record
  ) -> _Record:
    out = []
    for i, batch in enumerate(element.batches):
      try:
        out.append(self._applied(batch, element, i))
      except Exception as error:
        # Batches before it are returned first, whatever the record holds.
        error.add_note(f"A transform of the batch of step {element.steps[i]}.")
        return dataclasses.replace(element, batches=out, error=error)
    return dataclasses.replace(element, batches=out)

  def _applied(self, batch: Any, record: _Record, i: int) -> Any:
    if not isinstance(self._operation, grain.transforms.RandomMap):
      return self._operation.map(batch)
    assert record.generators is not None
    # Row by row: which rows a process holds then changes none of them.
    rows = []
    for row, rng in enumerate(record.generators[i]):
      element = {name: value[row : row + 1] for name, value in batch.items()}
      mapped: Any = self._operation.random_map(element, rng)
      for name, value in mapped.items():
        if len(value) != 1:
          raise ValueError(
            f"`{type(self._operation).__name__}.random_map` must return fields"
            f" of one row, [1, ...], got {len(value)} rows of {name!r}. It is"
            " called for each row of a batch: take sizes from the element."
          )
      rows.append(mapped)
    return {
      name: np.concatenate([row[name] for row in rows]) for name in rows[0]
    }


class _Batch(grain.transforms.Map):
  """Returns the batch of a record of one step."""

  def map(  # pyright: ignore[reportIncompatibleMethodOverride]
    self, element: _Record
  ) -> Any:
    if element.error is not None:
      raise element.error
    return element.batches[0]


class _OfWorkers(_Records):
  """Records of one step, whose batches loader workers hand over."""

  @property
  def reads(self) -> reads_lib.Reads:
    """What was read, by source."""
    return self._source.reads

  def certificate_sums(self, step: int) -> certifying.Sums:
    """Returns what a step holds that was read a moment ago, as sums."""
    return self._source.certificate_sums(step)

  def __repr__(self) -> str:
    return repr(self._source)  # Grain's own states hold it.


def of_workers(
  source: batches.BatchSource,
  sampler: batches.StepSampler,
  operations: Sequence[Transform],
) -> tuple[Any, Sequence[Transform]]:
  """Returns a source and transforms for a loader with workers.

  Args:
    source: Batches by step.
    sampler: The steps, with generators where transforms are random.
    operations: Transforms over the batch of a step.
  """
  if not sampler.has_generators:
    return source, operations
  each = [_EachStep(operation) for operation in operations]
  return _OfWorkers(source, sampler), [*each, _Batch()]


class StepLoader(grain.DataLoader):
  """A loader of single steps that reads several in a record."""

  def __init__(
    self,
    source: batches.BatchSource,
    sampler: batches.StepSampler,
    operations: Sequence[Transform],
    **options: Any,
  ):
    """Binds batches.

    Args:
      source: Batches by step.
      sampler: The steps, with generators where transforms are random.
      operations: Transforms over the batch of a step.
      **options: Of `grain.DataLoader`; without child processes.
    """
    # Of single steps: their states are those of this loader.
    super().__init__(
      data_source=source,
      sampler=sampler,
      operations=operations,
      worker_count=0,
      **options,
    )
    self._source = source
    self._steps_of = sampler
    self._options: dict[str, Any] = {
      **options,
      "operations": [_EachStep(operation) for operation in operations],
      "worker_count": 0,
    }
    first = sampler.first_step
    self.steps: range = range(first, first + len(sampler))

  def __iter__(self) -> "StepIterator":
    return StepIterator(self)

  def records(self, step: int) -> tuple[_Records, grain.DataLoaderIterator]:
    """Returns the source of records from a step on, and Grain's iterator."""
    records = _Records(self._source, self._steps_of)
    loader = grain.DataLoader(
      data_source=records, sampler=_Sampler(records, step), **self._options
    )
    return records, iter(loader)


class StepIterator(grain.DataLoaderIterator):
  """Batches of single steps; its state is Grain's."""

  def __init__(self, loader: StepLoader):
    """Begins with the loader's first step."""
    # Over single steps: it makes and checks states, and reads nothing.
    super().__init__(loader, state=None)
    self._loader = loader
    self._go_to(0)

  def _go_to(self, index: int) -> None:
    """Goes to a step, counted from the loader's first one."""
    self._index = index
    self._record = _Record(range(0), [])
    # Batches of the record that were returned.
    self._returned = 0
    step = self._loader.steps.start + index
    self._source, self._records = self._loader.records(step)

  def __next__(self) -> Any:
    if self._index >= len(self._loader.steps):
      raise StopIteration
    if self._returned == len(self._record.steps):
      began = time.perf_counter()
      self._record, self._returned = next(self._records), 0
      self._source.took(time.perf_counter() - began)
    if self._returned == len(self._record.batches):
      error = self._record.error
      assert error is not None
      # A step that failed stays the next one.
      self._go_to(self._index)
      raise error
    batch = self._record.batches[self._returned]
    self._returned += 1
    self._index += 1
    return batch

  def get_state(self) -> bytes:
    """Returns the state after the batches that were returned."""
    state = json.loads(super().get_state())
    state["last_seen_indices"]["0"] = self._index - 1
    return json.dumps(state, indent=4).encode()

  def set_state(self, state: bytes) -> None:
    """Goes to where a state was saved; see `grain.DataLoaderIterator`."""
    super().set_state(state)
    self._go_to(json.loads(state)["last_seen_indices"]["0"] + 1)

  def start_prefetch(self) -> None:
    """Begins to read; see `grain.DataLoaderIterator`."""
    self._records.start_prefetch()
