"""Interleave: the closed form takes the rows of a greedy loop with counters."""

import fractions

import hypothesis
from hypothesis import strategies as st
import numpy as np

from chomp_data.index import hashing
from chomp_data.index import interleave
from chomp_data.index import units

KEY = hashing.fold_key(0, "mix")
NAMES = ["wiki", "code", "books", "web"]
F = fractions.Fraction
Stage = interleave.Stage


class Slow:
  """Takes one row after the other, with a counter for each source."""

  def __init__(self, case):
    self.case = case
    self.sources = case["sources"]
    self.next = dict.fromkeys(self.sources, 0)
    self.rows = []
    # By position: units beyond the start of a stage, over the weight.
    self.levels = []
    self.done = False

  def used(self, name, row):
    lengths = self.sources[name]["units"]
    return lengths[row % len(lengths)]

  def has(self, name):
    source = self.sources[name]
    limit = source["exhausted_at"] if source["finite"] else None
    return limit is None or self.next[name] < limit

  def tie(self, name, key):
    first = self.next[name]
    while first and self.used(name, first - 1) == 0:
      first -= 1
    own = hashing.fold_key(key, "tie", name)
    return int(hashing.fold(own, np.asarray([first]))[0])

  def run(self, most, key=KEY):
    stages = self.case["stages"]
    counts = {}
    weights = {}
    while len(self.rows) < most and not self.done:
      position = len(self.rows)
      for number, stage in enumerate(stages):
        if stage.from_position == position:
          current = number
          counts = self.carried(counts, weights, stage.weights)
          weights = stage.weights
      if self.at_end(stages[current:], weights):
        break
      live = [name for name in weights if self.has(name)]
      if not live:
        break
      name = min(
        live, key=lambda n: (F(counts[n]) / weights[n], self.tie(n, key), n)
      )
      row = self.next[name]
      self.rows.append((name, row))
      counts[name] += self.used(name, row)
      self.next[name] = row + 1
      self.levels.append({n: F(counts[n]) / weights[n] for n in weights})
      if self.case["exhaustion"] == "first_exhausted":
        self.done = row + 1 == self.sources[name]["exhausted_at"]
    return self.rows

  def carried(self, counts, old, new):
    live = {n: F(counts[n]) / old[n] for n in old if self.has(n)}
    least = min(live.values(), default=0)
    return {n: counts[n] - old[n] * least if n in live else F(0) for n in new}

  def at_end(self, stages, weights):
    if self.case["exhaustion"] != "all_exhausted":
      return False
    needed = {name for stage in stages for name in stage.weights}
    ats = self.sources
    return all(self.next[n] >= ats[n]["exhausted_at"] for n in needed)


def fast(case, **kwargs):
  sequences = {
    name: units.ArrayUnits(
      np.asarray(source["units"]),
      source["exhausted_at"] // len(source["units"])
      if source["finite"]
      else None,
    )
    for name, source in case["sources"].items()
  }
  ats = {name: s["exhausted_at"] for name, s in case["sources"].items()}
  arguments = {
    "sequences": sequences,
    "stages": case["stages"],
    "key": KEY,
    "exhaustion": case["exhaustion"],
    "exhausted_at": ats,
  }
  return interleave.Interleave(**{**arguments, **kwargs})


def located(mix, positions):
  sources, rows = mix.locate(np.asarray(positions, np.int64))
  return [
    (mix.names[s], r) for s, r in zip(sources, rows.tolist(), strict=True)
  ]


WEIGHTS = st.one_of(
  st.sampled_from([F(1), F(2), F(3), F("0.5"), F("0.333"), F("0.9")]),
  st.fractions(F(1, 50), F(50), max_denominator=97),
  st.sampled_from([F(1, 10**6), F(10**6), F(str(1 / 3)), F(str(2 / 7))]),
)


@st.composite
def cases(draw):
  names = draw(st.permutations(NAMES))[: draw(st.integers(1, 4))]
  exhaustion = draw(st.sampled_from(interleave.EXHAUSTIONS))
  lengths = draw(
    st.sampled_from([
      st.integers(0, 2), st.integers(0, 40), st.just(1), st.sampled_from([0, 7])
    ])
  )  # fmt: skip
  sources = {}
  for name in names:
    own = draw(st.lists(lengths, min_size=1, max_size=12))
    finite = exhaustion in ("drop", "all_exhausted_without_replacement")
    if not finite and not any(own):
      own[-1] = 1
    cycles = draw(st.integers(1, 3))
    sources[name] = {
      "units": own,
      "finite": finite,
      "exhausted_at": cycles * len(own),
    }
  changes = draw(st.lists(st.integers(1, 60), max_size=4, unique=True))
  stages = []
  for position in [0, *sorted(changes)]:
    chosen = draw(st.sets(st.sampled_from(names), min_size=1))
    if stages and draw(st.integers(0, 3)) == 0:
      weights = dict(stages[-1].weights)
    else:
      weights = {name: draw(WEIGHTS) for name in sorted(chosen)}
    stages.append(Stage(position, weights))
  return {"sources": sources, "stages": stages, "exhaustion": exhaustion}


@hypothesis.settings(max_examples=1_000)
@hypothesis.given(cases())
def test_the_closed_form_takes_the_rows_of_the_greedy_loop(case):
  slow = Slow(case).run(400)
  mix = fast(case)
  if len(slow) < 400:
    assert mix.num_positions == len(slow)
  else:
    assert mix.num_positions is None or mix.num_positions >= 400
  assert located(mix, range(len(slow))) == slow
