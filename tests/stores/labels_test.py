"""Labels of a store: runs within spans and sums, against single tokens."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import stores
from chomp_data.stores import labels as labels_lib
from tests import laws

WEIGHTS = np.asarray([0, 1, 0.5, 3], np.float32)


def runs_of(levels, weights=WEIGHTS):
  """Returns the runs of tokens of levels, as stores keep them."""
  levels = np.asarray(levels, np.uint8)
  starts = np.flatnonzero(np.diff(levels, prepend=255))
  sums = np.concatenate([[0], np.cumsum(weights[levels] > 0)])
  return labels_lib.LabelRuns(
    starts=labels_lib.Held(starts),
    levels=labels_lib.Held(levels[starts]),
    sums=labels_lib.Held(sums[[*starts, len(levels)]]),
    num_runs=len(starts),
    num_tokens=len(levels),
    weights=weights,
    path="store",
  )


@laws.examples(100)
@hypothesis.given(
  levels=st.lists(st.sampled_from([0, 0, 0, 1, 1, 1, 2, 3]), max_size=40),
  held=st.sampled_from([0, 100]),
  data=st.data(),
)
def test_runs_and_sums_are_those_of_single_tokens(levels, held, data):
  size = len(levels)
  with pytest.MonkeyPatch.context() as patch:
    # With 0 nothing is in memory: runs are looked up where they lie.
    patch.setattr(labels_lib, "_HELD", held)
    runs = runs_of(levels)
  spans = data.draw(
    st.lists(st.tuples(st.integers(0, size), st.integers(0, size)), max_size=6)
  )
  starts = np.asarray([min(own) for own in spans], np.int64)
  lengths = np.asarray([max(own) for own in spans], np.int64) - starts
  span, begin, stop, level = runs.within(starts, lengths)
  found = [[] for _ in spans]
  for i in range(len(span)):
    assert begin[i] == len(found[span[i]])
    assert stop[i] > begin[i]
    # A run goes on to its end, or the span's.
    assert not found[span[i]] or found[span[i]][-1] != level[i]
    found[span[i]] += [int(level[i])] * int(stop[i] - begin[i])
  assert np.all(np.diff(span) >= 0)
  assert found == [
    levels[start : start + length]
    for start, length in zip(starts, lengths, strict=True)
  ]
  assert level.dtype == np.uint8
  before = [
    sum(WEIGHTS[own] > 0 for own in levels[:p]) for p in range(size + 1)
  ]
  np.testing.assert_array_equal(runs.before(np.arange(size + 1)), before)


def test_positions_and_spans_must_be_of_the_store():
  runs = runs_of([0, 1, 1])
  with pytest.raises(IndexError, match="start 2, length 2"):
    runs.within(np.asarray([2]), np.asarray([2]))
  for position in (-1, 4):
    with pytest.raises(IndexError, match=f"start {position}"):
      runs.before(np.asarray([position]))


def test_a_level_that_the_table_lacks_is_an_error():
  runs = runs_of([0, 1, 3, 1], WEIGHTS)
  altered = labels_lib.LabelRuns(
    starts=runs._starts,
    levels=runs._levels,
    sums=runs._sums,
    num_runs=4,
    num_tokens=4,
    weights=WEIGHTS[:2],
    path="here",
  )
  with pytest.raises(stores.StoreError, match=r"/label_levels .*below 2.* 3"):
    altered.within(np.asarray([0]), np.asarray([4]))
  with pytest.raises(stores.StoreError, match="below 2"):
    altered.before(np.asarray([2]))


def test_starts_that_fall_are_an_error():
  with pytest.raises(stores.StoreError, match="label_starts must not decrease"):
    labels_lib.LabelRuns(
      starts=labels_lib.Held(np.asarray([0, 3, 2])),
      levels=labels_lib.Held(np.asarray([0, 1, 0], np.uint8)),
      sums=labels_lib.Held(np.asarray([0, 0, 1, 1])),
      num_runs=3,
      num_tokens=5,
      weights=WEIGHTS,
      path="here",
    )
