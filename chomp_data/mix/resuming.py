# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where the sources of a mix start when a run resumes another run's offsets.

`resume_state` holds the rows and tokens that the other run had read of each
source.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import fractions

import numpy as np

from chomp_data.sources import prefix_sums


def resumed(
  sums: Mapping[str, prefix_sums.SourceUnits],
  offsets: Iterable[tuple[str, int, int | None]],
  weights: Mapping[str, fractions.Fraction | int],
  longest: int,
) -> tuple[dict[str, tuple[int, int]], bool]:
  """Returns (rows, units) consumed of sources, from another run's offsets.

  The units per weight of sources that have rows left never differ by more than
  one row. Where they do, the offsets are of other weights, or a source joined
  late: a source that was not read then starts at the level of the others, or,
  if that is not enough, all sources start at the same level.

  Args:
    sums: Prefix sums of each source, all in the unit that is balanced.
    offsets: (source, rows, tokens or None); unknown sources are ignored.
    weights: The weights of the first stage.
    longest: The most units that a row consumes.

  Returns:
    (rows, units) by source, and whether all start at the same level.
  """
  starts: dict[str, tuple[int, int]] = {}
  # Sources that have rows left.
  unfinished = set()
  for name, rows, tokens in offsets:
    if name in sums:
      num_rows = sums[name].num_rows
      if num_rows is None or rows < num_rows:
        unfinished.add(name)
      units = tokens if sums[name].unit == "tokens" else None
      if units is None:
        units = int(sums[name].before(np.asarray([rows]))[0])
      starts[name] = (rows, units)
  bound = longest / min(weights.values())
  begun = {name: start for name, start in starts.items() if any(start)}
  for candidates in (starts, begun):
    levels = [
      candidates[name][1] / weights[name]
      for name in weights
      if name in candidates and name in unfinished
    ]
    if not levels or max(levels) - min(levels) <= bound:
      return candidates, False
  return {name: (rows, 0) for name, (rows, _) in starts.items()}, True


def impossible(
  sums: Mapping[str, prefix_sums.SourceUnits],
  offsets: Iterable[tuple[str, int, int | None]],
) -> list[str]:
  """Returns a sentence for each offset that no run can have.

  Args:
    sums: Prefix sums of each source.
    offsets: (source, rows, tokens or None); unknown sources are ignored.
  """
  problems = []
  for name, rows, tokens in offsets:
    if name not in sums:
      continue
    offered = sums[name].num_rows
    if offered is not None and rows > offered:
      problems.append(
        f"must hold offsets that a run can have, got row_offset {rows} of"
        f" {name!r}, which gives at most {offered} rows. Raise its epochs, or"
        " take the state of a run over the same store."
      )
    elif tokens is not None and tokens > (
      most_tokens := sums[name].most_tokens(rows, tokens)
    ):
      problems.append(
        f"must hold offsets that a run can have, got token_offset {tokens} of"
        f" {name!r} with row_offset {rows}: that number of its rows holds at"
        f" most {most_tokens} tokens. Take both from one state, or leave"
        " token_offset out."
      )
  return problems
