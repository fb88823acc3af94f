# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Where another run was: its offsets, and where sources go on from them.

`resume_state` holds rows and tokens by source. Whether a run can have them is
told here, and which source is ahead of which.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import fractions

import numpy as np

from chomp_data.sources import source_units


def resumed(
  sums: Mapping[str, source_units.SourceUnits],
  offsets: Iterable[tuple[str, int, int | None]],
  weights: Mapping[str, fractions.Fraction | int],
  longest: int,
) -> tuple[dict[str, tuple[int, int]], bool]:
  """Returns (rows, units) of sources that go on where another run was.

  Where sources that have rows left are further apart than these weights ever
  let them be, the offsets are of other weights, or a source joined late: one
  that has given nothing then starts at the level of the others, or all go on
  level.

  Args:
    sums: By source, in one unit.
    offsets: (source, rows, tokens or None); those of no source are left out.
    weights: Of the first stage.
    longest: The most that a row consumes.

  Returns:
    The starts, and whether all go on level.
  """
  out = {}
  going = set()
  for name, rows, tokens in offsets:
    if name in sums:
      most = sums[name].num_rows
      if most is None or rows < most:
        going.add(name)
      told = tokens if sums[name].unit == "tokens" else None
      if told is None:
        told = int(sums[name].before(np.asarray([rows]))[0])
      out[name] = (rows, told)
  bound = longest / min(weights.values())
  for own in (out, {name: taken for name, taken in out.items() if any(taken)}):
    levels = [
      own[name][1] / weights[name]
      for name in weights
      if name in own and name in going
    ]
    if not levels or max(levels) - min(levels) <= bound:
      return own, False
  return {name: (rows, 0) for name, (rows, _) in out.items()}, True


def impossible(
  sums: Mapping[str, source_units.SourceUnits],
  offsets: Iterable[tuple[str, int, int | None]],
) -> list[str]:
  """Returns a sentence for each offset that no run can have.

  Args:
    sums: By source.
    offsets: As in `resumed`.
  """
  found = []
  for name, rows, tokens in offsets:
    own = sums.get(name)
    if own is None:
      continue
    offered = own.num_rows
    if offered is not None and rows > offered:
      found.append(
        f"must hold offsets that a run can have, got row_offset {rows} of"
        f" {name!r}, which gives at most {offered} rows. Raise its epochs, or"
        " take the state of a run over the same store."
      )
    elif tokens is not None and tokens > (
      most := own.most_tokens(rows, tokens)
    ):
      found.append(
        f"must hold offsets that a run can have, got token_offset {tokens} of"
        f" {name!r} with row_offset {rows}: so many of its rows hold at most"
        f" {most} tokens. Take both from one state, or leave token_offset out."
      )
  return found
