# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Recomputes from the plan what a run's certificate says it handed out.

Sums of stretches of steps add up, so one pass over the plan, cut where kept
checkpoints are, tells between which two of them a run and its plan parted.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
from typing import Any

from chomp_data import errors
from chomp_data import pipeline
from chomp_data.audit import job
from chomp_data.index import steps as steps_lib
from chomp_data.loading import certificate
from chomp_data.plans import certifying
from chomp_data.plans import ledger
from chomp_data.plans import plan as plan_lib

# Rows planned at once.
_ROWS = 4_096

Done = Callable[[int], object]


@dataclasses.dataclass(frozen=True)
class Stretch:
  """Steps between two checkpoints.

  Attributes:
    saved: What was handed out in them.
    planned: What the plan says; None: it has not so many steps.
  """

  saved: certificate.Segment
  planned: certificate.Segment | None

  @property
  def agrees(self) -> bool:
    """Whether that is the same."""
    return self.saved == self.planned

  def record(self) -> dict[str, Any]:
    """Returns JSON values."""
    planned = self.planned
    return {
      "agrees": self.agrees,
      "saved": self.saved.record(),
      "planned": None if planned is None else planned.record(),
    }


@dataclasses.dataclass(frozen=True)
class Verified:
  """What a checkpoint certifies, held against a plan.

  Attributes:
    fields: Where the run's fingerprint differs from the checkpoint's.
    stretches: Of all steps that are certified, in order.
    unknown: What the checkpoint does not certify, a sentence each. Where there
      is such a thing, a run that agrees otherwise cannot be verified.
  """

  fields: list[str]
  stretches: list[Stretch]
  unknown: list[str]

  @property
  def agrees(self) -> bool:
    """Whether all that was handed out is what the plan says."""
    return not self.fields and all(stretch.agrees for stretch in self.stretches)

  @property
  def parted(self) -> tuple[int, int] | None:
    """Returns between which two steps the run and the plan first parted."""
    for stretch in self.stretches:
      if not stretch.agrees:
        return stretch.saved.first, stretch.saved.last
    return None

  def record(self) -> dict[str, Any]:
    """Returns JSON values."""
    return {
      "agrees": self.agrees,
      "parted": self.parted,
      "fields": self.fields,
      "unknown": self.unknown,
      "stretches": [stretch.record() for stretch in self.stretches],
    }

  def line(self) -> str:
    """Returns what agrees, and where it does not, for people."""
    parted, lines = self.parted, list(self.unknown)
    known = [stretch.saved for stretch in self.stretches]
    if known:
      rows = sum(segment.sums.rows for segment in known)
      steps = ", ".join(
        f"{first} .. {last - 1}"
        for first, last in steps_lib.join_adjacent(
          [(segment.first, segment.last) for segment in known]
        )
      )
      summary = f"steps {steps}, {rows:,} rows"
      if parted is None:
        lines.insert(0, f"what was handed out is what the plan says: {summary}")
      else:
        first, last = parted
        lines.insert(
          0,
          f"what was handed out is not what the plan says: of {summary}, they"
          f" parted between steps {first} and {last}{self._changed(first)}",
        )
    return "; ".join([*lines, *self.fields]) + "."

  def _changed(self, first: int) -> str:
    """Returns where the input was changed that steps from one on were of."""
    by_first = {
      stretch.saved.first: stretch.saved for stretch in self.stretches
    }
    changed = by_first[first].input
    if changed == self.stretches[-1].saved.input:
      return ""
    last = max(
      segment.last for segment in by_first.values() if segment.input == changed
    )
    return f" (the input was changed at step {last})"


def verified(
  pipe: pipeline.Pipeline,
  states: Sequence[Mapping[str, Any]],
  steps: range | None = None,
  done: Done = lambda count: None,
) -> Verified:
  """Holds what a run's newest state certifies against the plan.

  Args:
    pipe: The run as its config says.
    states: The records of states that the run has kept, the newest last.
    steps: Only stretches between checkpoints that lie in them; None is all.
    done: Told how many more steps were summed.

  Raises:
    StateError: If the newest state certifies nothing, or none of `steps`; if a
      certificate is malformed.
    StoreError: If a store cannot be opened.
  """
  newest = states[-1]
  step, fingerprint = newest["step"], newest["fingerprint"]
  saved_segments = [_segments(state) for state in states]
  segments = saved_segments[-1]
  if not segments:
    raise errors.StateError(
      f"the state of step {step} must have a certificate, got none: it was"
      " saved before there were any, or before the first step. Take a later"
      " checkpoint."
    )
  run = pipeline.continued(pipe, fingerprint, step, resize=True)
  fields = job.differences(run, fingerprint, step)
  asked = range(step) if steps is None else steps
  stretches: list[Stretch] = []
  unknown: list[str] = []

  def uncertified(first: int, last: int, how: str) -> None:
    if first < last and first < asked.stop and last > asked.start:
      unknown.append(f"steps {first} .. {last - 1} are {how}")

  at = 0
  for whole in segments:
    uncertified(at, whole.first, "not certified")
    at = whole.last
    if whole.part is not None:
      part, parts = whole.part
      uncertified(
        whole.first,
        whole.last,
        f"certified in part, of process {part} of {parts}",
      )
      continue
    for part in _between_checkpoints(whole, saved_segments):
      if part.first >= asked.start and part.last <= asked.stop:
        stretches.append(Stretch(part, _planned(run, part, done)))
  digests = {certificate.input_digest(state["fingerprint"]) for state in states}
  last = segments[-1]
  if last.input not in digests:
    uncertified(
      last.first, last.last, "of an input whose fingerprint no checkpoint has"
    )
  if not stretches:
    details = "".join(f"; {line}" for line in unknown)
    raise errors.StateError(
      f"steps {asked.start} .. {asked.stop - 1} must have a stretch between"
      f" kept checkpoints that is certified whole, got none{details}. Ask"
      " for more steps, or take another checkpoint."
    )
  return Verified(fields, stretches, unknown)


def num_steps(
  states: Sequence[Mapping[str, Any]], steps: range | None = None
) -> int:
  """Returns how many steps `verified` looks at, at most."""
  checked = range(states[-1]["step"])
  if steps is not None:
    checked = range(
      max(checked.start, steps.start), min(checked.stop, steps.stop)
    )
  return len(checked)


def sums(
  pipe: pipeline.Pipeline,
  steps: range,
  tokens: bool = False,
  done: Done = lambda count: None,
) -> certifying.Sums:
  """Returns what the plan hands out in some steps.

  Args:
    pipe: The run.
    steps: Which follow each other.
    tokens: Whether tokens, which are read, are summed too.
    done: Told how many more steps were summed.

  Raises:
    IndexError: If a step is not of the run.
  """
  plan = pipe.run_plan
  if steps:
    plan_lib.check_steps(plan, steps.start, len(steps))
  certifier = certifying.Certifier(plan)
  total = certifying.Sums.zero(tokens)
  for group in ledger.groups(plan, steps.start, steps.stop, _ROWS):
    planned = plan.planned(group.start, len(group))
    total += certifying.Sums(
      len(group) * certifier.num_rows(planned.bucket),
      sum(certifier.planned(planned, group)),
      sum(certifier.values(plan.read(planned), planned, group))
      if tokens
      else None,
    )
    done(len(group))
  return total


def _segments(record: Mapping[str, Any]) -> list[certificate.Segment]:
  """Returns the segments of a state, each step of which is in one at most.

  Raises:
    StateError: If they are malformed, overlap, or do not end at its step.
  """
  segments, step = certificate.of_state(record), record["step"]
  rule = None
  for one, other in itertools.pairwise(segments):
    if other.first < one.last:
      rule = (
        "segments that follow each other, got one that ends at step"
        f" {one.last} before one that begins at step {other.first}"
      )
  if segments and segments[-1].last != step:
    rule = f"segments up to that step, got some up to step {segments[-1].last}"
  if rule is not None:
    raise errors.StateError(
      f"the certificate of the state of step {step} must have {rule}. Take"
      " another checkpoint."
    )
  return segments


def _between_checkpoints(
  whole: certificate.Segment, saved: Sequence[Sequence[certificate.Segment]]
) -> list[certificate.Segment]:
  """Returns a segment, cut at the checkpoints that were kept.

  Args:
    whole: The segment.
    saved: The segments of each checkpoint.

  Raises:
    StateError: If checkpoints have other sums of the same steps.
  """
  ends = {whole.last: whole}
  for segment in itertools.chain.from_iterable(saved):
    same = (segment.first, segment.input, segment.part) == (
      whole.first,
      whole.input,
      None,
    )
    alike = (segment.sums.tokens is None) == (whole.sums.tokens is None)
    if not same or not alike or segment.last > whole.last:
      continue
    if ends.setdefault(segment.last, segment) != segment:
      raise errors.StateError(
        "checkpoints of one run must have the same sums of steps"
        f" {segment.first} .. {segment.last - 1}, got"
        f" {ends[segment.last]} and {segment}. Give one of the checkpoints."
      )
  out: list[certificate.Segment] = []
  first = whole.first
  before = certifying.Sums.zero(whole.sums.tokens is not None)
  for last, segment in sorted(ends.items()):
    out.append(
      dataclasses.replace(segment, first=first, sums=segment.sums - before)
    )
    first, before = last, segment.sums
  return out


def _planned(
  run: pipeline.Pipeline, saved: certificate.Segment, done: Done
) -> certificate.Segment | None:
  """Returns what the plan says of the steps of a segment."""
  if saved.last > plan_lib.step_limit(run.run_plan):
    return None
  steps, tokens = range(saved.first, saved.last), saved.sums.tokens is not None
  return dataclasses.replace(saved, sums=sums(run, steps, tokens, done))
