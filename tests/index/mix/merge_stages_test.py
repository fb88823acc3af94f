# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Begins of stages that are kept are those that are worked out."""

import collections
import contextlib
import fractions
import pickle

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data.index.mix import interleave
from chomp_data.index.mix import merge_stages
from chomp_data.index.mix import standings
from chomp_data.index.mix import unit_sums
from tests import laws
from tests.index.mix import greedy
from tests.index.mix import walked

KEY = greedy.KEY


class Kept(merge_stages.Keeper):
  """Keeps begins in memory, of sources that are told apart by their units."""

  def __init__(self, identities=None):
    self.identities = collections.defaultdict(str, identities or {})
    self.kept = []

  def identity(self, source):
    return self.identities[source]

  def found(self, lines):
    return [own for own in self.kept if own.lines.startswith(lines)]

  def keep(self, kept):
    self.kept.append(pickle.loads(pickle.dumps(kept)))


@pytest.fixture
def worked_out(monkeypatch):
  return walked.stages(monkeypatch)


@contextlib.contextmanager
def often():
  """Within it begins are kept after each stage, and numbers of every third."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(merge_stages, "KEPT_AFTER", 1)
    patch.setattr(standings, "EVERY", 3)
    yield


def begin(mix, index):
  """Returns all that is known of a stage, overshoots as fractions."""
  stage = mix._chain.stage(index)
  if stage is None:
    return None
  merge = stage.merge
  lanes = [mix.names[source] for source in stage.lanes.tolist()]
  ahead = [fractions.Fraction(n, merge._parts) for n in merge._overshoots]
  return (
    (stage.position, stage.until, stage.ends),
    dict(zip(mix.names, stage.rows.tolist(), strict=True)),
    dict(zip(lanes, ahead, strict=True)),
  )


def begins(mix):
  """Returns what is known of every stage."""
  return [begin(mix, index) for index in range(len(mix._chain))]


def whole(mix, most=200):
  end = mix.num_positions
  return greedy.located(mix, range(most if end is None else min(most, end)))


LONG = greedy.cases(most_stages=14)


@hypothesis.given(LONG)
@laws.examples(60)
def test_begins_that_were_kept_are_those_that_are_worked_out(case):
  plain, keeper = greedy.closed_form(case), Kept()
  expected = begins(plain)
  with often():
    begins(greedy.closed_form(case, keeper=keeper))
    again = greedy.closed_form(case, keeper=keeper)
    assert begins(again) == expected
    assert whole(again) == whole(plain)
    copy = pickle.loads(pickle.dumps(again))
    backwards = [begin(copy, i) for i in reversed(range(len(expected)))]
    assert backwards[::-1] == expected


@hypothesis.given(LONG, LONG, st.data())
@laws.examples(80)
def test_stages_that_change_change_no_begin_that_was_kept_before_them(
  case, other, data
):
  at = data.draw(st.integers(0, len(case["stages"])), "stages that stay")
  stages = case["stages"][:at]
  last = stages[-1].from_position if stages else -1
  stages = [
    *stages,
    *(own for own in other["stages"] if own.from_position > last),
  ]
  if stages[0].from_position:
    stages[0] = interleave.Stage(0, stages[0].weights)
  sources = {**other["sources"], **case["sources"]}
  changed = {**case, "stages": stages, "sources": sources}
  if case["exhaustion"] not in greedy.FINITE:
    hypothesis.assume(all(any(own["units"]) for own in sources.values()))
  plain, keeper = greedy.closed_form(changed), Kept()
  with often():
    before = greedy.closed_form(case, keeper=keeper)
    before._chain.stage(len(case["stages"]) - 1)
    again = greedy.closed_form(changed, keeper=keeper)
    assert begins(again) == begins(plain)
    assert whole(again) == whole(plain)


def chain(count, keeper=None, names="abc", **changes):
  """Returns a mix of `count` stages of 40 rows, weights new in each."""
  rng = np.random.default_rng(0)
  sequences = {
    name: unit_sums.ArrayUnits(rng.integers(1, 99, 500), None)
    for name in "abcd"
  }
  arguments = {
    "sequences": {name: sequences[name] for name in names},
    "stages": [
      interleave.Stage(
        40 * i,
        {
          name: fractions.Fraction(100 + 7 * (i * k) % 83, 100)
          for k, name in enumerate("abc", 1)
        },
      )
      for i in range(count)
    ],
    "key": KEY,
    "keeper": keeper,
  }
  return interleave.Interleave(**{**arguments, **changes})


def test_a_chain_that_was_kept_works_out_nothing_again(worked_out):
  keeper = Kept()
  rows = np.arange(40 * 299, 40 * 300)
  expected = chain(300, keeper).locate(rows)
  assert len(worked_out) == 299
  worked_out.clear()
  again = chain(300, keeper)
  np.testing.assert_array_equal(again.locate(rows), expected)
  copy = pickle.loads(pickle.dumps(again))
  np.testing.assert_array_equal(copy.locate(rows), expected)
  assert not worked_out


def test_begins_are_those_of_the_walk_in_any_order():
  expected = begins(chain(300))
  chain(300, keeper := Kept())._chain.stage(299)
  mix = chain(300, keeper)
  order = np.random.default_rng(0).permutation(300).tolist()
  assert [begin(mix, i) for i in order] == [expected[i] for i in order]


def test_a_copy_knows_the_begins_that_the_original_knew(worked_out):
  mix = chain(300)
  rows = np.arange(40 * 299, 40 * 300)
  expected = mix.locate(rows)
  worked_out.clear()
  copy = pickle.loads(pickle.dumps(mix))
  np.testing.assert_array_equal(copy.locate(rows), expected)
  assert not worked_out


def test_a_chain_goes_on_from_what_was_kept_of_the_stages_before(worked_out):
  keeper = Kept()
  chain(200, keeper).locate(np.asarray([40 * 199]))
  kept = len(keeper.kept[-1].standings)
  assert kept == 200
  worked_out.clear()
  # More stages, and a source that joins in them and is numbered first.
  stages = [
    *chain(200)._chain._stages,
    *(interleave.Stage(40 * i, {"d": 1, "b": 2}) for i in range(200, 240)),
  ]
  longer = {"stages": stages, "names": "dcba"}
  mix = chain(240, keeper, **longer)
  plain = chain(240, **longer)
  assert begins(mix) == begins(plain)
  assert sorted(worked_out) == sorted([*range(199, 239), *range(239)])


@pytest.mark.parametrize(
  "weights", [{"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 4}], ids=str
)
def test_a_changed_stage_is_worked_out_and_those_after_it(worked_out, weights):
  keeper = Kept()
  stages = list(chain(200)._chain._stages)
  stages[150] = interleave.Stage(40 * 150, {"a": 1, "b": 2, "c": 3})
  chain(200, keeper, stages=stages)._chain.stage(199)
  worked_out.clear()
  stages[150] = interleave.Stage(40 * 150, weights)
  begins(chain(200, keeper, stages=stages))
  assert worked_out == list(range(150, 199))


def test_a_source_that_joins_late_starts_where_it_does_in_this_run(worked_out):
  keeper = Kept()
  stages = [
    *chain(150)._chain._stages,
    *(interleave.Stage(40 * i, {"d": 1, "b": 2}) for i in range(150, 200)),
  ]

  def mix(row, keeper):
    start = {"d": (row, 10 * row)}
    return chain(200, keeper, names="abcd", stages=stages, start=start)

  mix(7, keeper)._chain.stage(199)
  worked_out.clear()
  again = begins(mix(9, keeper))
  assert worked_out == list(range(150, 199))
  assert again == begins(mix(9, None))


@pytest.mark.parametrize(
  ("changes", "others"),
  [
    ({}, {"key": KEY + 1}),
    ({}, {"start": {"a": (3, 70)}}),
    ({}, {"exhausted_at": {"a": 10**6}, "exhaustion": "first_exhausted"}),
    (
      {"exhausted_at": {"a": 10**7}, "exhaustion": "first_exhausted"},
      {"exhausted_at": {"a": 10**6}, "exhaustion": "first_exhausted"},
    ),
  ],
  ids=str,
)
def test_another_order_takes_nothing_that_was_kept(worked_out, changes, others):
  keeper = Kept()
  chain(100, keeper, **changes)._chain.stage(99)
  worked_out.clear()
  found = begins(chain(100, keeper, **others))
  assert worked_out == list(range(99))
  assert found == begins(chain(100, **others))


def test_a_last_row_alone_makes_another_order():
  """Two runs may be exhausted at one row and offer others after it."""

  def mix(cycles, keeper):
    sequences = {
      "a": unit_sums.ArrayUnits(np.ones(10, np.int64), cycles),
      "b": unit_sums.ArrayUnits(np.ones(10, np.int64), None),
    }
    return interleave.Interleave(
      sequences,
      [merge_stages.Stage(20 * i, {"a": 1, "b": 1}) for i in range(6)],
      KEY,
      exhaustion="all_exhausted",
      exhausted_at={"a": 10, "b": 200},
      keeper=keeper,
    )

  keeper = Kept()
  with often():
    assert mix(None, keeper)._chain.stage(5).rows.tolist() == [50, 50]
    assert keeper.kept
    assert mix(1, keeper)._chain.stage(5).rows.tolist() == [10, 90]


def test_rows_that_end_elsewhere_take_nothing_that_was_kept(worked_out):
  keeper = Kept()

  def mix(cycles, keeper):
    units = np.arange(1, 500)
    sequences = {n: unit_sums.ArrayUnits(units, cycles) for n in "abc"}
    return chain(100, keeper, sequences=sequences)

  mix(9, keeper)._chain.stage(99)
  worked_out.clear()
  found = begins(mix(3, keeper))
  assert worked_out == list(range(len(found) - found.count(None) - 1))
  assert found == begins(mix(3, None))


@pytest.mark.parametrize("later", [{"d": 50}, {"d": 5}, {}], ids=str)
def test_an_end_that_waits_for_later_sources_is_kept_with_these(later):
  keeper = Kept()

  def mix(exhausted_at, keeper):
    names = ["a", "b", *exhausted_at]
    stages = [interleave.Stage(100 * i, {"a": 1, "b": 1}) for i in range(3)]
    stages.append(interleave.Stage(300, dict.fromkeys(names, 1)))
    sequences = {name: unit_sums.ConstantUnits(1) for name in names}
    return interleave.Interleave(
      sequences,
      stages,
      KEY,
      exhaustion="all_exhausted",
      exhausted_at={"a": 10, "b": 10, **exhausted_at},
      start=dict.fromkeys(exhausted_at, (5, 5)),
      keeper=keeper,
    )

  with often():
    assert mix({"d": 50}, keeper).num_positions > 300
    assert len(keeper.kept[-1].standings) == 4
    end = mix(later, None).num_positions
    assert mix(later, keeper).num_positions == end
    assert (end > 300) == (later == {"d": 50})


def test_a_source_that_is_another_takes_nothing_that_was_kept(worked_out):
  chain(100, keeper := Kept({"b": "one"})).locate(np.asarray([40 * 99]))
  worked_out.clear()
  keeper.identities["b"] = "another"
  chain(100, keeper).locate(np.asarray([40 * 99]))
  assert worked_out == list(range(99))


def test_an_end_that_waits_for_a_source_to_return_is_kept_with_it():
  keeper = Kept()

  def mix(last, keeper):
    names = ["ab", "a", "a", last]
    stages = [
      interleave.Stage(100 * i, dict.fromkeys(own, 1))
      for i, own in enumerate(names)
    ]
    return interleave.Interleave(
      {name: unit_sums.ConstantUnits(1) for name in "ab"},
      stages,
      KEY,
      exhaustion="all_exhausted",
      exhausted_at={"a": 120, "b": 70},
      keeper=keeper,
    )

  with often():
    assert mix("b", keeper).num_positions == 320
    assert len(keeper.kept[-1].standings) == 4
    assert mix("a", keeper).num_positions == 170


def test_short_chains_are_not_kept():
  chain(60, keeper := Kept()).locate(np.asarray([40 * 59]))
  assert not keeper.kept
