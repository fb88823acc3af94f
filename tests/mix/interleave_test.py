# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Interleave: the closed form takes the rows of a greedy loop with counters."""

import collections
import dataclasses
import fractions

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.mix import interleave
from chomp_data.mix import least_consumed
from tests.mix import greedy
from tests.mix import unit_lists

KEY = greedy.KEY
F = fractions.Fraction
Stage = interleave.Stage
located = greedy.located


def mix_of(lengths, stages, **kwargs):
  """Returns a mix of listed lengths, or endless ones for a number."""
  sequences = {
    name: unit_lists.ConstantUnits(own)
    if isinstance(own, int)
    else unit_lists.ArrayUnits(np.asarray(own), kwargs.pop("cycles", 1))
    for name, own in lengths.items()
  }
  if not isinstance(stages, list):
    stages = [Stage(0, stages)]
  return interleave.Interleave(sequences, stages, KEY, **kwargs)


def one_stage(lengths, weights, exhaustion="first_exhausted"):
  """Returns a case of rows that repeat, long before any is exhausted."""
  sources = {
    name: {"units": own, "exhausted_at": 10**6 * len(own)}
    for name, own in lengths.items()
  }
  return {
    "sources": sources,
    "stages": [Stage(0, weights)],
    "exhaustion": exhaustion,
  }


# The seeds' examples.


def test_the_seeds_80k_and_1m_rows_at_90_to_10_give_88_9k_samples():
  mix = interleave.Interleave(
    {
      "a": unit_lists.ConstantUnits(1, 80_000),
      "b": unit_lists.ConstantUnits(1, 1_000_000),
    },
    [Stage(0, {"a": F("0.9"), "b": F("0.1")})],
    KEY,
    exhaustion="first_exhausted",
  )
  # 79,999 / 9 is the level of the last row of a; b has 8,889 rows below it.
  assert mix.num_positions == 80_000 + 8_889
  rows, _ = mix.consumed(mix.num_positions)
  assert rows.tolist() == [80_000, 8_889]
  assert located(mix, [mix.num_positions - 1]) == [("a", 79_999)]


def test_the_seeds_rule_takes_the_source_with_the_fewest_tokens():
  mix = mix_of(
    {"a": [4, 4, 4], "b": [2, 2, 2, 2], "c": [1, 1, 1]},
    dict.fromkeys("abc", F(1)),
  )
  taken = located(mix, range(10))
  # One of each at first; then b and c share while a has 4 tokens.
  assert {source for source, _ in taken[:3]} == {"a", "b", "c"}
  assert taken[3] == ("c", 1)
  assert sorted(taken[4:6]) == [("b", 1), ("c", 2)]
  # All of c is taken: it leaves, and a and b are level at 4 tokens.
  assert sorted(taken[6:8]) == [("a", 1), ("b", 2)]
  assert taken[8:] == [("b", 3), ("a", 2)]
  assert mix.num_positions == 10


# The greedy rule.


@hypothesis.given(greedy.cases())
def test_the_closed_form_takes_the_rows_of_the_greedy_loop(case):
  taken = greedy.Greedy(case).run(400)
  mix = greedy.closed_form(case)
  if len(taken) < 400:
    assert mix.num_positions == len(taken)
  else:
    assert mix.num_positions is None or mix.num_positions >= 400
  assert located(mix, range(len(taken))) == taken


@hypothesis.given(
  greedy.cases(most_stages=8),
  st.sampled_from([1, 3, 20]),
  st.sampled_from([1, 5, 64]),
  st.randoms(use_true_random=False),
)
def test_it_does_so_however_little_is_walked_and_in_any_order(
  case, walk, block, random
):
  taken = greedy.Greedy(case).run(250)
  positions = list(range(len(taken)))
  random.shuffle(positions)
  with pytest.MonkeyPatch.context() as patch:
    # Nearly every row is then found by a search for its level.
    patch.setattr(least_consumed, "WALK", walk)
    patch.setattr(interleave, "BLOCK", block)
    mix = greedy.closed_form(case)
    assert located(mix, positions) == [taken[p] for p in positions]
    for p in positions[:20]:
      assert mix.position_of(*taken[p]) == p
    mix = greedy.closed_form(case)
    for p in [*positions[:5], len(taken)]:
      check_consumed(mix, case, taken, p)


def check_consumed(mix, case, taken, position):
  rows, sums = mix.consumed(position)
  for i, name in enumerate(mix.names):
    own = case["sources"][name]["units"]
    count = sum(source == name for source, _ in taken[:position])
    assert rows[i] == count
    assert sums[i] == sum(own[k % len(own)] for k in range(count))


@hypothesis.given(greedy.cases())
def test_rows_that_are_not_taken_have_no_position(case):
  mix = greedy.closed_form(case)
  end = mix.num_positions
  hypothesis.assume(end is not None and end < 10**5)
  taken = located(mix, range(end))
  for name in mix.names:
    count = sum(source == name for source, _ in taken)
    assert mix.position_of(name, count) is None
    assert mix.position_of(name, count + 10**6) is None


# Balance and order.


@hypothesis.given(
  st.dictionaries(
    st.sampled_from(greedy.NAMES),
    st.tuples(
      st.lists(st.integers(0, 3_000), min_size=1, max_size=9).filter(any),
      greedy.WEIGHTS,
    ),
    min_size=2,
  )
)
def test_no_two_sources_ever_differ_by_more_than_the_longest_row(drawn):
  lengths = {name: own for name, (own, _) in drawn.items()}
  weights = {name: weight for name, (_, weight) in drawn.items()}
  mix = greedy.closed_form(one_stage(lengths, weights))
  bound = max(F(max(own)) / weights[name] for name, own in lengths.items())
  levels = dict.fromkeys(lengths, F(0))
  for name, row in located(mix, range(300)):
    levels[name] += lengths[name][row % len(lengths[name])] / weights[name]
    assert max(levels.values()) - min(levels.values()) <= bound


@hypothesis.given(greedy.cases(), st.integers(1, 300), greedy.WEIGHTS)
def test_a_stage_appended_changes_nothing_before_it(case, position, weight):
  before = greedy.closed_form(case)
  end = before.num_positions
  last = case["stages"][-1].from_position
  position = last + (position if end is None else min(position, end - last))
  hypothesis.assume(position > last)
  name = next(iter(case["sources"]))
  stages = [*case["stages"], Stage(position, {name: weight})]
  after = greedy.closed_form(case, stages=stages)
  assert located(after, range(position)) == located(before, range(position))


@hypothesis.given(
  greedy.cases(),
  st.lists(st.integers(1, 200), min_size=1, max_size=20, unique=True),
  st.fractions(F(1, 9), 9).filter(bool),
)
def test_equal_weights_in_any_scale_change_no_order(case, positions, scale):
  before = greedy.closed_form(case)
  stages = {stage.from_position: stage.weights for stage in case["stages"]}
  for position in positions:
    at = max(p for p in stages if p <= position)
    own = {name: scale * weight for name, weight in stages[at].items()}
    stages.setdefault(position, own)
  stages = [Stage(p, stages[p]) for p in sorted(stages)]
  after = greedy.closed_form(case, stages=stages)
  end = before.num_positions
  assert after.num_positions == end
  most = 400 if end is None else min(end, 400)
  assert located(after, range(most)) == located(before, range(most))


@hypothesis.given(greedy.cases(), st.randoms(use_true_random=False))
def test_the_order_in_which_sources_are_listed_decides_nothing(case, random):
  names = list(case["sources"])
  random.shuffle(names)
  shuffled = {
    **case,
    "sources": {name: case["sources"][name] for name in names},
    "stages": [
      Stage(stage.from_position, dict(reversed(stage.weights.items())))
      for stage in case["stages"]
    ],
  }
  one, other = greedy.closed_form(case), greedy.closed_form(shuffled)
  end = one.num_positions
  positions = range(300 if end is None else min(end, 300))
  assert located(one, positions) == located(other, positions)


@hypothesis.given(greedy.cases(exhaustions=["drop"], most_stages=1))
def test_a_source_more_leaves_the_others_in_their_order_among_themselves(case):
  weights = case["stages"][0].weights
  hypothesis.assume(len(weights) > 1)
  mix = greedy.closed_form(case)
  taken = located(mix, range(mix.num_positions))
  gone = min(weights)
  rest = {name: w for name, w in weights.items() if name != gone}
  fewer = greedy.closed_form(case, stages=[Stage(0, rest)])
  assert located(fewer, range(fewer.num_positions)) == [
    (name, row) for name, row in taken if name != gone
  ]


# Stages.


def test_a_source_that_joins_starts_at_the_level_of_the_others():
  weights = {"a": F(1), "b": F(1)}
  mix = mix_of(
    {"a": 3, "b": 5, "c": 4},
    [Stage(0, weights), Stage(10**6, {**weights, "c": F(1)})],
  )
  before, _ = mix.consumed(10**6)
  rows, _ = mix.consumed(10**6 + 47_000)
  # 20, 12 and 15 rows of each 47: no catching up of a million positions.
  assert np.abs(rows - before - [20_000, 12_000, 15_000]).max() <= 2


def test_a_source_that_returns_goes_on_with_its_next_row_at_the_level():
  both, one = {"a": F(1), "b": F(1)}, {"a": F(1)}
  stages = [Stage(0, both), Stage(100, one), Stage(10_100, both)]
  mix = mix_of({"a": 1, "b": 1}, stages)
  taken = located(mix, range(10_200))
  assert [row for source, row in taken if source == "b"] == list(range(100))
  assert {source for source, _ in taken[100:10_100]} == {"a"}
  assert sum(source == "b" for source, _ in taken[10_100:]) == 50


def test_overshoots_are_carried_to_new_weights():
  # b is 10 tokens ahead when a has had 1, whatever it weighs after that.
  stages = [
    Stage(0, {"a": F(1), "b": F(1)}),
    Stage(2, {"a": F(2), "b": F(1)}),
  ]
  mix = mix_of({"a": 1, "b": 11}, stages)
  taken = located(mix, range(40))
  assert sorted(taken[:2]) == [("a", 0), ("b", 0)]
  second = taken.index(("b", 1))
  # c_a / 2 reaches 10 after 20 rows; then the tie may go either way.
  assert second - 2 in (20, 21)


# The end.


@pytest.mark.parametrize(
  ("exhaustion", "rows"),
  [
    ("drop", [10, 40]),
    ("all_exhausted_without_replacement", [10, 40]),
    # b has 0 .. 9 below the level of a's last row; at it the tie decides.
    ("first_exhausted", [10, 10]),
    ("all_exhausted", [40, 40]),
  ],
)
def test_the_end_by_exhaustion(exhaustion, rows):
  mix = interleave.Interleave(
    {"a": unit_lists.ConstantUnits(3), "b": unit_lists.ConstantUnits(3)},
    [Stage(0, {"a": 1, "b": 1})],
    KEY,
    exhaustion=exhaustion,
    exhausted_at={"a": 10, "b": 40},
  )
  end = mix.num_positions
  assert end is not None
  given, _ = mix.consumed(end)
  assert np.abs(given - rows).max() <= 1
  assert given.max() == max(rows)
  with pytest.raises(IndexError, match=f"0 .. {end}, got {end + 1}"):
    mix.locate(np.asarray([end]))


def test_a_source_that_left_for_good_does_not_hold_up_the_end():
  def end(*weights):
    stages = [Stage(10 * i, dict.fromkeys(w, 1)) for i, w in enumerate(weights)]
    mix = mix_of(
      {"a": 1, "b": 1},
      stages,
      exhaustion="all_exhausted",
      exhausted_at={"a": 1_000, "b": 20},
    )
    return mix.num_positions

  assert end("ab", "b") == 10 + 15
  # One that comes again does, and so does one that is yet to come.
  assert end("ab", "b", "ab") in (1_999 + 5 + 5, 2_000 + 5 + 5)
  assert end("b", "b", "b", "a") == 30 + 1_000


def test_the_first_to_be_exhausted_counts_only_while_it_has_a_weight():
  stages = [Stage(0, {"a": 1, "b": 1}), Stage(10, {"b": 1})]
  mix = mix_of(
    {"a": 1, "b": 1},
    stages,
    exhaustion="first_exhausted",
    exhausted_at={"a": 6, "b": 100},
  )
  assert mix.num_positions == 5 + 100


def test_a_row_that_exhausts_a_source_ends_the_mix_even_as_it_leaves():
  stages = [Stage(0, {"a": 1}), Stage(6, {"b": 1})]
  mix = mix_of(
    {"a": 1, "b": 1},
    stages,
    exhaustion="first_exhausted",
    exhausted_at={"a": 6, "b": 100},
  )
  assert mix.num_positions == 6


# Going on.


def test_a_source_that_has_ended_is_at_no_level_of_the_start():
  mix = mix_of(
    {"a": [2] * 5, "b": 2, "c": 2},
    dict.fromkeys("abc", F(1)),
    start={"a": (5, 10), "b": (500, 1_000)},
  )
  # c is new: at the level of b, and not where a ended.
  found = [name for name, _ in located(mix, range(10))]
  assert sorted(found) == ["b"] * 5 + ["c"] * 5


def test_a_source_that_is_new_at_the_start_begins_at_the_level():
  mix = mix_of(
    {"a": 2, "b": 2, "c": 2},
    dict.fromkeys("abc", F(1)),
    start={"a": (500, 1_000), "b": (501, 1_002)},
  )
  taken = located(mix, range(300))
  assert {source for source, _ in taken[:2]} == {"a", "c"}
  rows, sums = mix.consumed(300)
  assert np.abs(rows - [600, 600, 100]).max() <= 1
  assert sums.tolist() == (2 * rows).tolist()
  assert mix.position_of("a", 500) == taken.index(("a", 500))
  assert mix.position_of("a", 499) is None


def test_a_weight_however_small_is_served_once_and_then_after_its_share():
  mix = mix_of({"a": 1, "b": 1}, {"a": F(1), "b": F(1, 10**9)})
  assert mix.position_of("b", 0) in (0, 1)
  assert mix.position_of("b", 1) in (10**9 + 1, 10**9 + 2)


@hypothesis.given(greedy.cases(), st.integers(1, 120))
def test_weights_of_less_than_a_row_are_those_of_a_loop(case, most):
  rows = greedy.Greedy(case).run(most)
  end = len(rows)
  hypothesis.assume(end)
  loop = greedy.Greedy(case)
  expected = []
  begins = [stage.from_position for stage in case["stages"]]
  for i, stage in enumerate(case["stages"]):
    first, last = begins[i], min([end, *begins[i + 1 : i + 2]])
    weights = stage.weights
    if last - first < 2 * len(weights):
      continue
    before, given = (
      collections.Counter(name for name, _ in own)
      for own in (rows[:first], rows[first:last])
    )

    def left(name, before=before):
      limit = loop.limits[name]
      return 10**9 if limit is None else limit - before[name]

    total = sum(loop.used(*own) for own in rows[first:last])
    whole = sum(own for name, own in weights.items() if left(name))
    for name, own in weights.items():
      each = max(loop.used(name, before[name]), 1)
      meant = own / whole * total / each
      if given[name] < 2 and left(name) >= 2 and meant < 1:
        expected.append((i, name, given[name], float(meant)))
  mix = greedy.closed_form(case)
  found = [(u.stage, u.source, u.num_rows, u.share) for u in mix.unserved(end)]
  assert sorted(found) == sorted(expected)


# Errors.

GOOD = {"a": unit_lists.ConstantUnits(1), "b": unit_lists.ConstantUnits(2, 10)}


@pytest.mark.parametrize(
  ("stages", "error", "message"),
  [
    ([(0, {"a": 10**16, "b": 1})], ValueError, "within a factor of 1e.15"),
    (
      [(0, {"a": F(10**300), "b": F(1, 10**300)})],
      ValueError,
      r"got 1.0+e\+300 of 'a' and 1e-300 of 'b'. Leave 'b' out",
    ),
    (
      [(0, {"a": F(1, 10**320), "b": 1})],
      ValueError,
      r"got 1 of 'b' and 1e-320 of 'a'. Leave 'a' out",
    ),
    ([(0, {"a": 1}), (2**62, {"b": 1})], ValueError, "before position 46116"),
  ],
)
def test_bad_stages_are_refused(stages, error, message):
  with pytest.raises(error, match=message):
    interleave.Interleave(GOOD, [Stage(*stage) for stage in stages], KEY)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"exhausted_at": {"a": 0}}, r"\['a'\]` must be at least 1 row, got 0"),
    ({"exhausted_at": {"b": 11}}, "at least 1 row and at most 10, got 11"),
  ],
)
def test_bad_options_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    interleave.Interleave(GOOD, [Stage(0, {"a": 1})], KEY, **changes)


@pytest.mark.parametrize("positions", [[-1], [3, -1], [0, 10]])
def test_positions_outside_are_refused(positions):
  mix = mix_of({"a": [1] * 10}, {"a": F(1)})
  with pytest.raises(IndexError, match=r"0 \.\. 10"):
    mix.locate(np.asarray(positions))
  assert mix.locate(np.zeros(0, np.int64))[0].size == 0


def test_what_lies_beyond_the_end_is_refused():
  mix = mix_of({"a": [1] * 10}, {"a": F(1)})
  with pytest.raises(IndexError, match=r"0 \.\. 10, got 11"):
    mix.consumed(11)


@pytest.mark.parametrize("weight", [F(1), F(1, 10**9), F(10**9)])
def test_a_place_beyond_what_units_count_is_refused(weight):
  stages = [Stage(0, {"a": F(1), "b": weight}), Stage(2**61, {"a": F(1)})]
  mix = mix_of({"a": 64, "b": 64}, stages)
  with pytest.raises(ValueError, match=r"before 2\*\*62 units .* got a place"):
    mix.locate(np.asarray([2**61]))
  assert mix.locate(np.asarray([2**40]))[1][0] > 0


@dataclasses.dataclass(frozen=True)
class Nothing:
  """Rows without end that consume nothing, as a broken source would."""

  num_rows: int | None = None

  def before(self, rows):
    return np.zeros_like(rows)

  def rows_below(self, wanted, near=False):
    raise AssertionError("there is no such row")


def test_rows_that_repeat_and_consume_nothing_are_refused():
  with pytest.raises(ValueError, match=r"\['b'\]` must consume .* in 40 rows"):
    interleave.Interleave(
      {"a": unit_lists.ConstantUnits(1), "b": Nothing()},
      [Stage(0, {"a": 1, "b": 1})],
      KEY,
      exhaustion="all_exhausted",
      exhausted_at={"a": 10, "b": 40},
    )
