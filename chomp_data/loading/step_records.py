"""Several steps in one Grain record, read and handed out one at a time.

Grain's bookkeeping of a record costs as much as reading a batch of 8 rows. The
state is the one of `grain.DataLoader` over single steps, both ways: what either
has saved the other restores, at every step.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import json
from typing import Any
from typing import Protocol

import grain

from chomp_data.loading import batches


class Steps(Protocol):
  """Batches by step; see `batches.BatchSource`."""

  def __len__(self) -> int: ...

  def __getitem__(self, index: int) -> Any: ...


# Then Grain takes half a microsecond of a step.
_RECORD_STEPS = 64


@dataclasses.dataclass(frozen=True)
class _Batches:
  """Batches of several steps, to be read.

  Attributes:
    steps: Which.
    read: Returns the batch of one of them.
  """

  steps: range
  read: Callable[[int], Any]


class _Record:
  """A Grain source whose record `step` is the batches from that step on."""

  def __init__(self, source: Steps, size: int):
    self._source = source
    self._size = size

  def __len__(self) -> int:
    return len(self._source)

  def __getitem__(self, index: int) -> _Batches:
    first = int(index)
    last = min(first + self._size, len(self._source))
    return _Batches(range(first, last), self._source.__getitem__)

  def __repr__(self) -> str:
    return f"{self._source!r} by {self._size}"


class _Sampler:
  """A Grain sampler of every n-th step."""

  def __init__(self, first_step: int, num_steps: int, size: int):
    self._steps = range(first_step, max(num_steps, first_step), size)

  def __len__(self) -> int:
    return len(self._steps)

  def __getitem__(self, index: int) -> grain.RecordMetadata:
    return grain.RecordMetadata(index=index, record_key=self._steps[index])

  def __repr__(self) -> str:
    return repr(self._steps)


class _Each(grain.transforms.Map):
  """A transform of a batch, as one of a record."""

  def __init__(self, operation: grain.transforms.Map):
    self._operation = operation

  def map(self, element: Any) -> Any:
    read = element.read
    return _Batches(element.steps, lambda step: self._operation.map(read(step)))


class StepLoader(grain.DataLoader):
  """A loader of single steps that reads several in a record."""

  def __init__(
    self,
    source: Steps,
    sampler: batches.StepSampler,
    operations: Sequence[grain.transforms.Map],
    size: int = _RECORD_STEPS,
    **options: Any,
  ):
    """Binds batches.

    Args:
      source: Batches by step.
      sampler: The steps that are handed out; without random generators.
      operations: Transforms over batches.
      size: Steps of a record.
      **options: Of `grain.DataLoader`; without child processes.
    """
    super().__init__(
      data_source=source,
      sampler=sampler,
      operations=operations,
      worker_count=0,
      **options,
    )
    self._of_records: dict[str, Any] = {
      "data_source": _Record(source, size),
      "operations": [_Each(operation) for operation in operations],
      "worker_count": 0,
      **options,
    }
    self._first_step = sampler.first_step
    self._num_steps = len(source)
    self._size = size

  def __iter__(self) -> "StepIterator":
    return StepIterator(self)

  def records(self, index: int) -> grain.DataLoaderIterator:
    """Returns an iterator over records that begins with some batch."""
    first = self._first_step + index
    sampler = _Sampler(first, self._num_steps, self._size)
    return iter(grain.DataLoader(sampler=sampler, **self._of_records))


class StepIterator(grain.DataLoaderIterator):
  """Batches of single steps; its state is Grain's."""

  def __init__(self, loader: StepLoader):
    """Begins with the loader's first step."""
    # Not Grain's own constructor: it would make what `_single` makes, and a
    # first batch does without.
    self._loader = loader
    self._start(0)

  @functools.cached_property
  def _single(self) -> grain.DataLoaderIterator:
    """Grain's iterator of single steps: it checks states, and reads nothing."""
    return grain.DataLoaderIterator(self._loader, state=None)

  def _start(self, index: int) -> None:
    self._index = index
    self._steps = range(0)
    self._records = self._loader.records(index)

  def __next__(self) -> Any:
    if not self._steps:
      found = next(self._records)
      self._steps, self._read = found.steps, found.read
    batch = self._read(self._steps[0])
    # Only now: a step that cannot be read stays the next one.
    self._steps = self._steps[1:]
    self._index += 1
    return batch

  def get_state(self) -> bytes:
    """Returns the state after the batches that were handed out."""
    state = json.loads(self._single.get_state())
    state["last_seen_indices"]["0"] = self._index - 1
    return json.dumps(state, indent=4).encode()

  def set_state(self, state: bytes) -> None:
    """Goes on where a state was saved; see `grain.DataLoaderIterator`."""
    self._single.set_state(state)
    self._start(json.loads(state)["last_seen_indices"]["0"] + 1)

  def start_prefetch(self) -> None:
    """Begins to read; see `grain.DataLoaderIterator`."""
    self._records.start_prefetch()
