# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""An order certificate: sums of what a run has handed out, as it goes on.

A segment is a stretch of steps under one input, and its sums modulo 2**128
over global rows, each once; see `plans.digests`. A state holds the run's
segments. Where several processes share batches, each has its part of a
segment, and sums of parts are the segment's, under any topology. An input that
changes, or a step that is gone to, begins a new one.

    state 0 .. 700    {first: 0, last: 700, rows: 5600, plan: 8a04..., ...}
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import re
import reprlib
from typing import Any
from typing import Self

from absl import logging

from chomp_data import errors
from chomp_data import schema
from chomp_data.loading import state
from chomp_data.plans import certifying

# What a state calls it.
FIELD = "certificate"

# Of the digest of a fingerprint.
DIGITS = 16
# Digits that a log shows.
_SHOWN = 12

_SUM = re.compile("[0-9a-f]{32}")
# Characters of a bad value that an error shows.
_LONGEST = 60


@dataclasses.dataclass(frozen=True)
class Segment:
  """What steps first .. last - 1 handed out.

  Attributes:
    first: The first step.
    last: The step after the last.
    input: The digest of the fingerprint that they were read under.
    sums: The sums of their rows; of tokens where that was asked for.
    part: Which process of how many has counted these; None is all of them.
  """

  first: int
  last: int
  input: str
  sums: certifying.Sums = certifying.NO_ROWS
  part: tuple[int, int] | None = None

  def record(self) -> dict[str, Any]:
    """Returns JSON values."""
    out: dict[str, Any] = {
      "first": self.first,
      "last": self.last,
      "input": self.input,
      "rows": self.sums.rows,
      "plan": _hexadecimal(self.sums.plan),
    }
    if self.sums.tokens is not None:
      out["tokens"] = _hexadecimal(self.sums.tokens)
    if self.part is not None:
      out["part"] = list(self.part)
    return out

  @classmethod
  def of(cls, record: Any) -> Self:
    """Returns the segment that `record` gave.

    Raises:
      ValueError: If it is none; the text says what must be where.
    """
    if not isinstance(record, Mapping):
      raise ValueError(f"a segment must be an object, got {_shown(record)}")
    part = record.get("part")
    whole = isinstance(part, list) and len(part) == 2
    if part is not None and not (
      whole and _is_count(part[0]) and _is_count(part[1]) and part[0] < part[1]
    ):
      raise ValueError(
        f"`part` must be [process, processes], got {_shown(part)}"
      )
    for name in ("first", "last", "rows"):
      if not _is_count(record.get(name)):
        raise ValueError(
          f"`{name}` must be a whole number of at least 0, got"
          f" {_shown(record.get(name))}"
        )
    if not isinstance(record.get("input"), str):
      raise ValueError(
        f"`input` must be a string, got {_shown(record.get('input'))}"
      )
    first, last = record["first"], record["last"]
    if first >= last:
      raise ValueError(f"`first` must be below `last`, got {first} and {last}")
    tokens = record.get("tokens")
    return cls(
      first=first,
      last=last,
      input=record["input"],
      sums=certifying.Sums(
        record["rows"],
        _sum_of(record, "plan"),
        None if tokens is None else _sum_of(record, "tokens"),
      ),
      part=None if part is None else (part[0], part[1]),
    )

  def extended(self, last: int, sums: certifying.Sums) -> Self:
    """Returns it with the steps up to another one."""
    return dataclasses.replace(self, last=last, sums=self.sums + sums)

  def is_continued_by(self, other: Self) -> bool:
    """Returns whether another segment begins where this one ends, alike."""
    same = (self.last, self.input) == (other.first, other.input)
    alike = (self.sums.tokens is None) == (other.sums.tokens is None)
    return same and alike and self.part is None and other.part is None

  def __str__(self) -> str:
    tokens = ""
    if self.sums.tokens is not None:
      tokens = f", tokens {_hexadecimal(self.sums.tokens)[:_SHOWN]}"
    shown = _hexadecimal(self.sums.plan)[:_SHOWN]
    return f"steps {self.first} .. {self.last - 1}: plan {shown}{tokens}"


class Certificate:
  """The segments of a run so far. One thread adds to it; others may look."""

  def __init__(
    self,
    step: int,
    part: tuple[int, int] | None = None,
    tokens: bool = False,
  ):
    """Begins a segment.

    Args:
      step: Its first step.
      part: Of which process of how many sums will be; None is all.
      tokens: Whether tokens are summed too.
    """
    self._part = part
    self._no_rows = certifying.Sums.zero(tokens)
    self.begin(step)

  def begin(self, step: int, before: Sequence[Segment] = ()) -> None:
    """Forgets what was handed out: the next step is another one.

    Args:
      step: The next one.
      before: What is known of the steps before it.
    """
    last = Segment(step, step, "", self._no_rows, self._part)
    # Replaced as a whole: what others see is of one step.
    self._segments = [*before, last]

  def add(self, sums: certifying.Sums) -> None:
    """Counts the next step."""
    *before, last = self._segments
    self._segments = [*before, last.extended(last.last + 1, sums)]

  def now(self, input_digest: str) -> tuple[int, list[Segment]]:
    """Returns the next step, and the segments before it.

    Args:
      input_digest: Of the fingerprint that the last one is read under.
    """
    *before, last = self._segments
    last = dataclasses.replace(last, input=input_digest)
    return last.last, _merged([*before, last])

  def segments(self, input_digest: str) -> list[Segment]:
    """Returns the segments so far; see `now`."""
    return self.now(input_digest)[1]

  def resume(self, segments: Sequence[Segment], step: int) -> None:
    """Continues from a state.

    Args:
      segments: Of the state; none of an old one.
      step: The state's.
    """
    # A part that another process has counted says nothing here.
    before = [
      segment
      for segment in segments
      if segment.part is None or segment.part == self._part
    ]
    self.begin(step, before)

  def regroup(
    self, step: int, part: tuple[int, int] | None, digest: str
  ) -> None:
    """Goes on with other processes from a step on; see `__init__`.

    Args:
      step: The next one.
      part: Of which process of how many sums will be from here on.
      digest: Of the fingerprint up to here.
    """
    before = self.segments(digest)
    self._part = part
    self.begin(step, before)


def of_state(record: Mapping[str, Any]) -> list[Segment]:
  """Returns the segments of a state; none of one that is older than them.

  Args:
    record: The state's, decoded.

  Raises:
    StateError: If they are not what `records` returns.
  """
  saved = record.get(FIELD)
  try:
    if not isinstance(saved, list | None):
      raise ValueError(f"it must be a list, got {_shown(saved)}")
    return [Segment.of(entry) for entry in saved or ()]
  except ValueError as error:
    raise errors.StateError(
      f"`{FIELD}` of the state of step {record['step']} must be a list of"
      f" segments, got one in which {error}. Take another checkpoint."
    ) from error


def input_digest(fingerprint: Mapping[str, Any]) -> str:
  """Returns what segments name an input by, from a state's fingerprint."""
  return state.digest(fingerprint)[:DIGITS]


def records(segments: Iterable[Segment]) -> list[dict[str, Any]]:
  """Returns segments as JSON values."""
  return [segment.record() for segment in segments]


def log(step: int, segments: Iterable[Segment]) -> None:
  """Tells people what was handed out before a step."""
  text = "; ".join(map(str, segments))
  logging.info("certificate at step %d: %s", step, text or "nothing yet")


def joined(
  processes: Mapping[int, Sequence[Segment]],
  rows: Mapping[tuple[int, int], int | None],
) -> tuple[list[Segment], list[str]]:
  """Returns the segments of a run from the parts of its processes.

  Args:
    processes: What each process of the run has.
    rows: Of (first, last), how many rows these steps have, where it is known.

  Returns:
    Segments, without those of which a part is missing; and a line for each
    thing that processes tell differently.
  """
  problems: list[str] = []
  whole: dict[tuple[int, int, str], tuple[int, Segment]] = {}
  parts: dict[tuple[int, int, str, int], dict[int, Segment]] = {}
  for process, of_process in sorted(processes.items()):
    for segment in of_process:
      key = segment.first, segment.last, segment.input
      if segment.part is None:
        first, other = whole.setdefault(key, (process, segment))
        if other != segment:
          problems.append(
            f"process {process} goes on from {segment}, process {first} from"
            f" {other}"
          )
      else:
        index, count = segment.part
        parts.setdefault((*key, count), {})[index] = segment
  segments = [segment for _, segment in whole.values()]
  for (first, last, digest, count), by_index in parts.items():
    if len(by_index) < count:
      continue
    sums = certifying.Sums.zero(tokens=True)
    for segment in by_index.values():
      sums += segment.sums
    segments.append(Segment(first, last, digest, sums))
    known = rows.get((first, last))
    if known is not None and known != sums.rows:
      problems.append(
        f"steps {first} .. {last - 1} have {known} rows, and processes have"
        f" counted {sums.rows}"
      )
  segments.sort(key=lambda segment: (segment.first, segment.last))
  return _merged(segments), problems


def _merged(segments: Iterable[Segment]) -> list[Segment]:
  """Returns segments without empty ones, and those that go on as one."""
  out: list[Segment] = []
  for segment in segments:
    if segment.first == segment.last:
      continue
    if out and out[-1].is_continued_by(segment):
      segment = out.pop().extended(segment.last, segment.sums)
    out.append(segment)
  return out


def _hexadecimal(total: int) -> str:
  return f"{total:032x}"


def _sum_of(record: Mapping[str, Any], name: str) -> int:
  text = record.get(name)
  if not isinstance(text, str) or not _SUM.fullmatch(text):
    raise ValueError(
      f"`{name}` must be 32 hexadecimal digits, got {_shown(text)}"
    )
  return int(text, 16)


def _is_count(value: Any) -> bool:
  number = isinstance(value, int) and not isinstance(value, bool)
  return number and 0 <= value <= schema.MAX_COUNT


def _shown(value: Any) -> str:
  """Returns a value for a message, in one short line."""
  text = reprlib.repr(value)
  return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
