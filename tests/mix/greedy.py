# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The greedy rule by counters, one row after the other: what a mix must equal.

It shares nothing with the closed form but the hash of a tie.
"""

import fractions

from hypothesis import strategies as st
import numpy as np

from chomp_data.index import hashing
from chomp_data.mix import exhaustion as policies
from chomp_data.mix import interleave
from tests.mix import unit_lists

KEY = hashing.fold_key(0, "mix")
NAMES = ["wiki", "code", "books", "web"]
FINITE = ("drop", "all_exhausted_without_replacement")
F = fractions.Fraction


class Greedy:
  """Takes one row after the other, with a counter for each source.

  A case holds `sources` (units of the rows of a cycle, and `exhausted_at`),
  `stages` and `exhaustion`.
  """

  def __init__(self, case):
    self.sources = case["sources"]
    self.stages = case["stages"]
    self.exhaustion = case["exhaustion"]
    self.ends = {n: own["exhausted_at"] for n, own in self.sources.items()}
    none = dict.fromkeys(self.ends)
    self.limits = self.ends if self.exhaustion in FINITE else none
    self.key = KEY
    self.next = dict.fromkeys(self.ends, 0)
    self.rows = []

  def used(self, name, row):
    lengths = self.sources[name]["units"]
    return lengths[row % len(lengths)]

  def has(self, name):
    limit = self.limits[name]
    return limit is None or self.next[name] < limit

  def tie(self, name):
    first = self.next[name]
    while first and self.used(name, first - 1) == 0:
      first -= 1
    own = hashing.fold_key(self.key, "tie", name)
    return int(hashing.fold(own, np.asarray([first]))[0])

  def run(self, most):
    """Returns up to `most` pairs of a source and its row."""
    counts, weights = {}, {}
    number, done = -1, False
    while len(self.rows) < most and not done:
      following = self.stages[number + 1 : number + 2]
      if following and following[0].from_position == len(self.rows):
        number += 1
        counts = self.carried(counts, weights, following[0].weights)
        weights = following[0].weights
      live = [name for name in weights if self.has(name)]
      if self.all_exhausted(self.stages[number:]) or not live:
        break
      name = min(live, key=lambda n: (counts[n] / weights[n], self.tie(n), n))
      row = self.next[name]
      self.rows.append((name, row))
      counts[name] += self.used(name, row)
      self.next[name] += 1
      if self.exhaustion == "first_exhausted":
        done = self.next[name] == self.ends[name]
    return self.rows

  def carried(self, counts, old, new):
    live = {n: counts[n] / old[n] for n in old if self.has(n)}
    least = min(live.values(), default=0)
    return {n: counts[n] - old[n] * least if n in live else F(0) for n in new}

  def all_exhausted(self, stages):
    if self.exhaustion != "all_exhausted":
      return False
    needed = {name for stage in stages for name in stage.weights}
    return all(self.next[n] >= self.ends[n] for n in needed)


def sequences_of(case):
  """Returns the units of a case's sources; they repeat unless `drop`."""
  out = {}
  for name, source in case["sources"].items():
    own = np.asarray(source["units"], np.int64)
    cycles = source["exhausted_at"] // len(own)
    is_finite = case["exhaustion"] in FINITE
    out[name] = unit_lists.ArrayUnits(own, cycles if is_finite else None)
  return out


def closed_form(case, **changes):
  """Returns the mix of a case."""
  ats = {name: own["exhausted_at"] for name, own in case["sources"].items()}
  arguments = {
    "sequences": sequences_of(case),
    "stages": case["stages"],
    "key": KEY,
    "exhaustion": case["exhaustion"],
    "exhausted_at": ats,
  }
  return interleave.Interleave(**{**arguments, **changes})


def located(mix, positions):
  """Returns pairs of a source and its row."""
  sources, rows = mix.locate(np.asarray(positions, np.int64))
  return [
    (mix.names[s], r) for s, r in zip(sources, rows.tolist(), strict=True)
  ]


WEIGHTS = st.one_of(
  st.sampled_from([F(1), F(2), F(3), F("0.5"), F("0.333"), F("0.9")]),
  st.fractions(F(1, 50), F(50), max_denominator=97),
  st.sampled_from([F(1, 10**6), F(10**6), F(str(1 / 3)), F(str(2 / 7))]),
)
LENGTHS = st.sampled_from([
  st.just(1),
  st.integers(0, 2),
  st.integers(0, 40),
  st.sampled_from([0, 7]),
  st.sampled_from([0, 1, 10**6, 2**41]),
])  # fmt: skip


@st.composite
def cases(draw, exhaustions=tuple(policies.EXHAUSTIONS), most_stages=5):
  """Draws sources of all lengths, and stages that they join and leave."""
  names = draw(st.permutations(NAMES))[: draw(st.integers(1, 4))]
  exhaustion = draw(st.sampled_from(exhaustions))
  lengths = draw(LENGTHS)
  sources = {}
  for name in names:
    own = draw(st.lists(lengths, min_size=1, max_size=12))
    if exhaustion not in FINITE and not any(own):
      own[-1] = 1
    cycles = draw(st.integers(1, 3))
    sources[name] = {"units": own, "exhausted_at": cycles * len(own)}
  changes = draw(
    st.lists(st.integers(1, 60), max_size=most_stages - 1, unique=True)
  )
  stages = []
  for position in [0, *sorted(changes)]:
    chosen = draw(st.sets(st.sampled_from(names), min_size=1))
    weights = {name: draw(WEIGHTS) for name in sorted(chosen)}
    if stages and draw(st.booleans()):
      # Only who takes part changes, so that overshoots meet again.
      weights = {**weights, **stages[-1].weights}
    stages.append(interleave.Stage(position, weights))
  return {"sources": sources, "stages": stages, "exhaustion": exhaustion}
