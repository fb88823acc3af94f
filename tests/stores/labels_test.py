# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Labels of a store: runs within spans and sums, against single tokens."""

import pathlib
import pickle

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import stores
from chomp_data.index import columns
from chomp_data.stores import labels as labels_lib
from chomp_data.testing import stores as testing_stores
from tests import laws
from tests.sources import labelled

WEIGHTS = np.asarray([0, 1, 0.5, 3], np.float32)


def runs_of(levels, weights=WEIGHTS):
  """Returns the runs of tokens of levels, as stores keep them."""
  levels = np.asarray(levels, np.uint8)
  starts = np.flatnonzero(np.diff(levels, prepend=255))
  sums = np.concatenate([[0], np.cumsum(weights[levels] > 0)])
  return labels_lib.LabelRuns(
    weights,
    starts=columns.ArrayColumn(starts),
    levels=columns.ArrayColumn(levels[starts]),
    sums=columns.ArrayColumn(sums[[*starts, len(levels)]]),
    num_runs=len(starts),
    num_tokens=len(levels),
  )


@laws.examples(100)
@hypothesis.given(
  levels=st.lists(st.sampled_from([0, 0, 0, 1, 1, 1, 2, 3]), max_size=40),
  held=st.sampled_from([1, 2, 5, 100]),
  most=st.sampled_from([0, 1 << 27]),
  data=st.data(),
)
def test_runs_and_sums_are_those_of_single_tokens(levels, held, most, data):
  size = len(levels)
  with pytest.MonkeyPatch.context() as patch:
    # Some starts are in memory, or none: the others are searched for.
    patch.setattr(labels_lib, "CACHED_RUNS", held)
    patch.setattr(labels_lib, "MAX_SAMPLED_RUNS", most)
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


LENGTHS = [9, 0, 30, 1, 12, 25, 3, 0, 180, 2]


@pytest.fixture(params=["none", "zstd"])
def corpus(request, tmp_path):
  """A store on disk whose arrays of labels have many chunks."""

  def make_store(**options):
    return testing_stores.make_store(tmp_path / "store", **options)

  return labelled.make(
    make_store,
    LENGTHS,
    weights=True,
    compression=request.param,
    chunk=8,
    chunks_per_shard=4,
  )


@pytest.mark.parametrize("held", [3, 1 << 20])
def test_labels_of_a_store_are_those_that_were_written(
  corpus, held, monkeypatch
):
  monkeypatch.setattr(labels_lib, "CACHED_RUNS", held)
  levels = np.concatenate(corpus.levels)
  # In another process, too: what is opened stays here.
  for store in (corpus.store, pickle.loads(pickle.dumps(corpus.store))):
    assert store.labels.has_runs
    assert store.labels.has_weights
    assert store.labels.levels.tolist() == list(labelled.LEVELS)
    span, begin, stop, level = store.labels.runs(*store.bounds(np.arange(10)))
    for document, own in enumerate(corpus.levels):
      pick = span == document
      found = np.repeat(level[pick], (stop - begin)[pick])
      assert found.tolist() == own.tolist()
    np.testing.assert_array_equal(
      store.labels.trained_before(np.arange(len(levels) + 1)),
      np.concatenate([[0], np.cumsum(levels > 0)]),
    )
    documents = np.asarray([9, 0, 3, 3])
    wanted = np.asarray(corpus.weights, np.float32)[documents]
    np.testing.assert_array_equal(
      store.labels.document_weights(documents), wanted
    )
    with pytest.raises(IndexError, match=r"0 \.\. 9.*got 10"):
      store.labels.document_weights(np.asarray([10]))
  assert not corpus.store.counters.spans  # No token was read.


@pytest.mark.parametrize(
  "name", ["label_starts", "label_levels", "label_sums", "document_weights"]
)
def test_labels_that_were_altered_are_an_error(corpus, name):
  (file, *_) = sorted(pathlib.Path(corpus.path, name).glob("c/*"))
  data = bytearray(file.read_bytes())
  data[3] ^= 1
  file.write_bytes(data)
  store = stores.open_store(corpus.path)
  every = np.arange(store.num_tokens + 1)

  def ask():
    store.labels.runs(every[:1], every[-1:])
    store.labels.trained_before(every)
    store.labels.document_weights(np.arange(10))

  with pytest.raises(stores.StoreError, match=name):
    ask()
  with pytest.raises(stores.StoreError, match=name):
    stores.verify_store(corpus.path)


def test_a_store_without_labels_trains_on_everything(tmp_path):
  store = testing_stores.make_store(tmp_path / "store", [[3, 4], [], [5]])
  assert not store.labels.has_runs
  assert not store.labels.has_weights
  assert store.labels.trains_on_all
  assert store.labels.levels.tolist() == [0, 1]
  found = store.labels.runs(np.asarray([0, 1, 1]), np.asarray([2, 0, 2]))
  assert [own.tolist() for own in found] == [[0, 2], [0, 0], [2, 2], [1, 1]]
  assert store.labels.trained_before(np.arange(4)).tolist() == [0, 1, 2, 3]
  assert store.labels.document_weights(np.arange(3)).tolist() == [1, 1, 1]
  with pytest.raises(IndexError, match="start 2, length 2"):
    store.labels.runs(np.asarray([2]), np.asarray([2]))


@pytest.mark.parametrize(
  ("weights", "levels", "all_trained"),
  [([1.0, 0.5], None, True), ([1.0, 0.0], None, False), (None, (0, 1), False)],
)
def test_what_trains_on_all_is_known(tmp_path, weights, levels, all_trained):
  store = testing_stores.make_store(
    tmp_path / "store",
    [[3, 4], [5]],
    weights=weights,
    levels=levels,
    label_levels=None if levels is None else [[1, 1], [1]],
  )
  assert store.labels.trains_on_all == all_trained
