# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Edits of a running job's plan: steps that are skipped, other batch sizes.

Their numbers are data steps, which `index/steps.py` defines.
"""

from collections.abc import Sequence
import itertools
import re
from typing import Any

from chomp_data import schema
from chomp_data.bucket import options as bucket_options
from chomp_data.index import steps as steps_lib

# Entries of a fingerprint by the data step that they begin at.
FIELDS = ("batch_size_schedule", "skip", "tombstones")


# Such an entry by its dotted path, or a stage of a mix or of buckets.
_ENTRY = re.compile(rf"(?:{'|'.join(FIELDS)}|(?:mix|buckets)\.stages)\.(\d+)")

# In the entry of a source whose first epoch is what another run left.
_START = re.compile(r"\.after(\.|$)")


def _pairs(value: Any, second: schema.Rule) -> tuple[tuple[int, Any], ...]:
  """Returns checked pairs of a data step and another value."""
  if not isinstance(value, list | tuple):
    raise TypeError
  step, pairs = schema.integer(), []
  for pair in value:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
      raise TypeError
    pairs.append((step.convert(pair[0]), second.convert(pair[1])))
  return tuple(pairs)


def _some(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
  if not pairs:
    raise ValueError
  return pairs


SKIP = schema.Rule(
  "a list of (first, last), whole numbers of at least 0",
  lambda value: _pairs(value, schema.integer()),
)
SCHEDULE = schema.Rule(
  "a list of at least one (from_step, rows), whole numbers, rows of 1 .."
  f" {bucket_options.MAX_SIDE}",
  lambda value: _some(
    _pairs(value, schema.integer(1, bucket_options.MAX_SIDE))
  ),
)
TOMBSTONES = schema.Rule(
  "a list of (from_step, path of a file), steps whole",
  lambda value: _pairs(value, schema.text()),
)


def steps(
  sizes: steps_lib.Sizes, skip: Sequence[tuple[int, int]]
) -> steps_lib.Steps:
  """Returns the steps of a run.

  Args:
    sizes: (from data step, rows of a step).
    skip: (first, last) data steps, both included, as in `config.data.skip`.
  """
  return steps_lib.Steps(sizes, [(first, last + 1) for first, last in skip])


def skip_of(steps: steps_lib.Steps) -> tuple[tuple[int, int], ...]:
  """Returns the (first, last) data steps of `config.data.skip`."""
  return tuple((first, end - 1) for first, end in steps.skip)


def skip_problems(path: str, skip: Sequence[tuple[int, int]]) -> list[str]:
  """Returns which ranges do not rise.

  Args:
    path: Dotted path of the ranges.
    skip: (first, last) data steps.
  """
  problems = [
    f"`{path}` must have ranges of which none ends before it begins, got"
    f" {pair}. Write (first, last), both are left out."
    for pair in skip
    if pair[1] < pair[0]
  ]
  for one, other in itertools.pairwise(skip):
    if other[0] <= one[1]:
      problems.append(
        f"`{path}` must have ranges that rise and do not overlap, got {one}"
        f" before {other}. Put them in order, each step once."
      )
  return problems


def schedule_problems(path: str, sizes: Sequence[tuple[int, int]]) -> list[str]:
  """Returns what is wrong between entries of a schedule.

  Args:
    path: Dotted path of the schedule.
    sizes: (from data step, rows of a step).
  """
  if sizes[0][0]:
    return [
      f"`{path}` must begin at step 0, got {sizes[0][0]}. Say what the first"
      " steps have."
    ]
  return rising_problems(path, sizes)


def rising_problems(path: str, entries: Sequence[tuple[int, Any]]) -> list[str]:
  """Returns which entries do not rise.

  Args:
    path: Dotted path of the entries.
    entries: Of a data step each.
  """
  return [
    f"`{path}` must have steps that rise, got {one} before {other}. Put entries"
    " in order, each step once."
    for (one, _), (other, _) in itertools.pairwise(entries)
    if other <= one
  ]


def fingerprint(steps: steps_lib.Steps) -> dict[str, Any]:
  """Returns what later sizes and skips decide, as JSON values.

  Without edits, there are no such values.
  """
  fields: dict[str, Any] = {}
  if steps.sizes[1:]:
    fields["batch_size_schedule"] = {
      str(at): size for at, size in steps.sizes[1:]
    }
  if steps.skip:
    fields["skip"] = {str(first): last for first, last in skip_of(steps)}
  return fields


def way_back(fingerprint: Any, path: str, step: int, in_command: bool) -> str:
  """Returns advice on how to accept an edit of past steps, for an error.

  Args:
    fingerprint: The state's.
    path: What differs: a stage, an entry of one of `FIELDS`, or another field.
    step: The state's.
    in_command: Whether to name flags of a command, and not Python arguments.
  """
  field, _, rest = path.partition(".")
  if field == "global_batch_size":
    allowed = "allow_changes=('global_batch_size',)"
    if in_command:
      allowed = "--allow_input_change=global_batch_size"
    return (
      f". Allow this change by name ({allowed}) to continue at the same row"
    )
  if field == "sources" and _START.search(rest):
    return (
      ". A run goes on from where it began: name that checkpoint, step and"
      " all, in start_after"
    )
  entry = _ENTRY.fullmatch(path)
  if entry is None:
    return ""
  at, saved_steps = int(entry[1]), steps_of(fingerprint)
  ways = []
  if field != "skip":
    next_step = saved_steps.data_step(step)
    ways.append(f"let the change begin at data step {next_step} or later")
  if last_step := saved_steps.before(at):
    flag = " (--restore_step)" * in_command
    ways.append(f"go back to a checkpoint of step {last_step} or before{flag}")
  else:
    ways.append("start a new run")
  return (
    f". It changes data step {at}, before this checkpoint: {', or '.join(ways)}"
  )


def steps_of(fingerprint: Any) -> steps_lib.Steps:
  """Returns the steps that a fingerprint describes."""
  sizes = {0: fingerprint.get("global_batch_size") or 1}
  later = fingerprint.get("batch_size_schedule") or {}
  sizes |= {int(at): size for at, size in later.items()}
  skip = fingerprint.get("skip") or {}
  return steps(
    sorted(sizes.items()),
    sorted((int(first), last) for first, last in skip.items()),
  )
