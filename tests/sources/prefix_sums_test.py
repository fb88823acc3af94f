# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Units of rows: prefix sums equal sums over planned rows, in every order."""

import dataclasses

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

import chomp_data
from chomp_data.sources import mix_units
from chomp_data.sources import prefix_sums
from chomp_data.sources import row_source
from tests.sources import labelled

SHUFFLES = [
  {"kind": "none"},
  {"kind": "full"},
  {"kind": "full", "perm_type": "linear"},
  {"kind": "era", "era_length": 7},
  {"kind": "block", "io_block_size": 4, "window_blocks": 3},
]
EPOCHS = 3


def slow_units(source, unit, rows):
  """Counts the positions of batches, one row after the other."""
  if unit == "rows":
    return [1] * len(rows)
  spans = source.plan(np.asarray(rows))
  batch = source.rows.read(spans, ("attention_mask",))
  name = "attention_mask" if unit == "tokens" else "loss_mask"
  return batch[name].sum(axis=1).tolist()


def shuffled(rows, options):
  if isinstance(rows, chomp_data.BinSource):
    options = {k: v for k, v in options.items() if k != "io_block_size"}
  return chomp_data.ShuffledSource(
    rows, chomp_data.ShuffleOptions(**options), 3
  )


def sequential(store, seq_len=16, **options):
  options = chomp_data.SequentialOptions(**options)
  return chomp_data.SequentialSource(
    store, options, seq_len=seq_len, name="text"
  )


def bins(store, seq_len=16, **options):
  options = chomp_data.BinOptions(**{"packing_buffer_docs": 6, **options})
  return chomp_data.BinSource(store, options, seq_len=seq_len, name="text")


def splices(store, seq_len=16, **options):
  options = chomp_data.MultiSpliceOptions(
    **{"num_docs": 3, "content_length": seq_len - 3, **options}
  )
  return chomp_data.SpliceSource(store, options, seq_len=seq_len, name="text")


DOCUMENT_ORDERS = st.sampled_from(["none", "block", "full"])
ROWS = st.one_of(
  st.tuples(
    st.just(sequential),
    st.fixed_dictionaries(
      {
        "shuffle_documents": DOCUMENT_ORDERS,
        "tail": st.sampled_from(["pad", "drop"]),
        "add_eos": st.booleans(),
      }
    ),
  ),
  st.tuples(
    st.just(bins),
    st.fixed_dictionaries(
      {
        "shuffle_documents": DOCUMENT_ORDERS,
        "packing_buffer_docs": st.integers(1, 8),
        "packing_algorithm": st.sampled_from(["ffd", "exact"]),
        "long_documents": st.sampled_from(["cut", "truncate"]),
        "add_eos": st.booleans(),
        "shuffle_rows": st.booleans(),
      }
    ),
  ),
  st.tuples(
    st.just(splices),
    st.fixed_dictionaries(
      {
        "content_length": st.integers(2, 8),
        "offset_jitter": st.integers(0, 2),
        "shuffle_content": st.booleans(),
        "epoch_length": st.one_of(st.none(), st.integers(5, 60)),
        "alpha": st.sampled_from([0, 0.8]),
        "balance_tau": st.sampled_from([0.5, 1.0]),
        "curriculum_every": st.sampled_from([None, 3, 20]),
        "content_length_schedule": st.sampled_from([None, [(9, 4), (31, 8)]]),
      }
    ),
  ),
)


@pytest.fixture(scope="module")
def corpora(make_store):
  """Stores of short documents, empty ones and all of one token among them.

  The last three say which tokens are trained on.
  """
  rng = np.random.default_rng(0)
  labels = [
    labelled.make(make_store, lengths, table=table, weights=weights).store
    for lengths, table, weights in (
      ([9, 0, 30, 1, 12, 25, 3, 0, 18], (0.0, 1.0), False),
      ([3, 14] * 15, labelled.LEVELS, True),
      ([3, 9, 20] * 7, None, True),
    )
  ]
  return [
    make_store([rng.integers(3, 250, n) for n in lengths])
    for lengths in (
      [9, 0, 30, 1, 12, 25, 3, 0, 18],
      rng.integers(0, 40, 30),
      # Rows at the begin and the end of an epoch train on nothing.
      [1] * 20 + [20, 25, 30] + [1] * 20,
    )
  ] + labels


@pytest.mark.parametrize("unit", mix_units.of_kind("rows"))
@hypothesis.given(
  corpus=st.integers(0, 5),
  rows=ROWS,
  shuffle=st.sampled_from(SHUFFLES),
  seq_len=st.integers(11, 16),
  data=st.data(),
)
def test_sums_equal_those_of_batches_in_every_order(
  corpora, corpus, rows, shuffle, unit, seq_len, data
):
  make, options = rows
  source = shuffled(make(corpora[corpus], seq_len, **options), shuffle)
  end = source.epochs.total(EPOCHS)
  hypothesis.assume(0 < end < 2_000)
  own = slow_units(source, unit, range(end))
  expected = np.concatenate([[0], np.cumsum(own)])
  with pytest.MonkeyPatch.context() as patch:
    # Several edges an epoch, several blocks between edges.
    patch.setattr(mix_units, "BLOCK_ROWS", 7)
    patch.setattr(row_source, "PLANNED_ROWS", 5)
    sums = prefix_sums.SourceUnits(source, unit, EPOCHS)
    assert sums.num_rows == end
    asked = data.draw(st.lists(st.integers(0, end), max_size=20))
    for some in (np.asarray(asked, np.int64), np.arange(end + 1)):
      np.testing.assert_array_equal(sums.before(some), expected[some])
    epochs = range(source.epochs.ramp + EPOCHS + 1)
    ends = expected[[source.epochs.start(e) for e in epochs]]
    drawn = data.draw(st.lists(st.integers(-2, int(ends[-1]) + 9), max_size=20))
    for most in (*drawn, *ends.tolist(), *(ends + 1).tolist()):
      assert sums.rows_below(most) == np.count_nonzero(expected[:-1] < most)


@pytest.mark.parametrize("unit", mix_units.of_kind("rows"))
@pytest.mark.parametrize("make", [sequential, bins, splices])
def test_searching_first_gives_what_summing_first_does(corpora, make, unit):
  source = shuffled(make(corpora[4]), {"kind": "full"})
  one, other = (prefix_sums.SourceUnits(source, unit, None) for _ in range(2))
  end = source.epochs.start(2)
  sums = one.before(np.arange(end + 1))
  for most in [*range(int(sums[-1]), 0, -37), 1]:
    assert other.rows_below(most) == np.count_nonzero(sums[:-1] < most)


def test_rows_without_an_end_go_on_through_all_epochs(corpora):
  source = shuffled(sequential(corpora[1]), {"kind": "full"})
  sums = prefix_sums.SourceUnits(source, "tokens", None)
  assert sums.num_rows is None
  tokens = corpora[1].num_tokens
  far = 10**9
  row = source.epochs.start(far)
  assert sums.before(np.asarray([row])).tolist() == [far * tokens]
  assert sums.rows_below(far * tokens + 1) == row + 1
  assert sums.rows_below(far * tokens) == row


@dataclasses.dataclass
class Counted:
  """Passes everything on, and counts the rows that are planned."""

  source: chomp_data.ShuffledSource
  planned: int = 0

  def __getattr__(self, name):
    return getattr(self.source, name)

  def plan(self, rows):
    self.planned += len(rows)
    return self.source.plan(rows)


FIXED = {"shuffle_documents": "block", "reshuffle_documents": False}


@pytest.mark.parametrize(
  ("make", "options", "kind", "unit"),
  [
    (sequential, {}, "full", "tokens"),
    (sequential, {"shuffle_documents": "full"}, "block", "tokens"),
    (sequential, {}, "none", "loss_tokens"),
    (sequential, {"add_eos": True}, "block", "loss_tokens"),
    (sequential, FIXED, "era", "loss_tokens"),
    (bins, {}, "none", "tokens"),
    (bins, {"packing_algorithm": "exact"}, "block", "tokens"),
    (bins, {}, "block", "loss_tokens"),
    (bins, FIXED, "none", "loss_tokens"),
    (bins, {"packing_algorithm": "exact"}, "block", "loss_tokens"),
  ],
)
def test_where_sums_are_known_no_epoch_is_passed_over(
  make_store, monkeypatch, make, options, kind, unit
):
  # Labels matter where they are counted.
  table = (0.0, 1.0) if unit == "loss_tokens" else None
  monkeypatch.setattr(mix_units, "BLOCK_ROWS", 48)
  store = labelled.make(make_store, [20] * 3_000, table=table).store
  shuffle = {"kind": kind}
  if kind == "block" and make is sequential:
    shuffle = {**shuffle, "io_block_size": 12, "window_blocks": 4}
  if kind == "era":
    shuffle["era_length"] = 12
  source = Counted(shuffled(make(store, **options), shuffle))
  sums = prefix_sums.SourceUnits(source, unit, None)
  assert sums.planned() is None
  row = source.epochs.start(50) + 1_234
  below = int(sums.before(np.asarray([row]))[0])
  found = sums.rows_below(below + 1)
  # Rows that consume nothing may follow.
  assert row < found < row + 9
  assert sums.before(np.asarray([found - 1])).tolist() == [below]
  # A window of 6 documents, or of 8 times as many, and nothing else.
  assert source.planned <= 8 * 6 * 2


def test_what_is_not_known_is_summed_once_and_as_far_as_asked(make_store):
  rng = np.random.default_rng(0)
  store = make_store(
    [rng.integers(3, 250, n) for n in rng.integers(1, 30, 9_000)]
  )
  source = Counted(shuffled(bins(store), {"kind": "full"}))
  size = source.epochs.start(1)
  assert size > 5_000
  sums = prefix_sums.SourceUnits(source, "tokens", None)
  sums.before(np.arange(100))
  assert source.planned <= 2 * 4_096
  source.planned = 0
  for first in range(0, size - 700, 700):
    sums.before(np.arange(first, first + 701))
  # Once for the edges, once for the tables between them.
  assert source.planned <= 2 * size
  source.planned = 0
  # Epochs consume the same: a far one costs its own sums alone.
  sums.before(np.asarray([source.epochs.start(1_000) + 10]))
  assert source.planned <= size + 2 * 4_096


@pytest.mark.parametrize("tail", ["drop", "pad"])
def test_rows_of_a_thousand_epochs_are_summed_together(
  make_store, monkeypatch, tail
):
  """Where all rows are alike, one epoch is asked for; a tail is its own."""
  asked, blocks = set(), chomp_data.ShuffledSource.block_units

  def counted(source, epoch, unit, rows):
    asked.add(epoch)
    return blocks(source, epoch, unit, rows)

  monkeypatch.setattr(chomp_data.ShuffledSource, "block_units", counted)
  store = make_store([[3] * 21, [4] * 30])
  for rows in (sequential(store, tail=tail), splices(store, num_docs=1)):
    source = shuffled(rows, {"kind": "full"})
    sums = prefix_sums.SourceUnits(source, "tokens", None)
    numbers = np.arange(3, source.epochs.start(1_000), 7)
    own = slow_units(source, "tokens", range(source.epochs.start(5)))
    asked.clear()
    found = sums.before(numbers)
    assert tail == "pad" or len(asked) <= 1
    near = numbers[numbers < len(own)]
    assert found[: len(near)].tolist() == np.cumsum([0, *own])[near].tolist()
    each = [sums.before(one[None])[0] for one in numbers[::100]]
    assert found[::100].tolist() == each


def test_rows_after_a_ramp_cost_no_passes_between(make_store):
  """The ramp's passes are summed, one whole epoch is, and no other."""
  rng = np.random.default_rng(0)
  store = make_store([rng.integers(3, 250, n) for n in (9, 12, 20, 31)])
  rows = splices(
    store,
    num_docs=4,
    content_length=12,
    content_start_mode="slide_within",
    curriculum_every=10,
  )
  source = Counted(shuffled(rows, {"kind": "full"}))
  ramp = source.epochs.start(source.epochs.ramp)
  assert ramp == 30
  whole = int(source.rows.quotas().sum())
  assert source.epochs.total(1) == ramp + whole
  sums = prefix_sums.SourceUnits(source, "tokens", None)
  far = source.epochs.start(source.epochs.ramp + 10**6)
  total = int(sums.before(np.asarray([far]))[0])
  assert source.planned < 2_000
  assert sums.rows_below(total) == far
  own = slow_units(source, "tokens", range(source.epochs.total(1)))
  assert total == sum(own[:ramp]) + 10**6 * sum(own[ramp:])


def test_a_long_pass_is_said_with_its_length(make_store, monkeypatch):
  rng = np.random.default_rng(0)
  store = make_store([rng.integers(3, 250, 12) for _ in range(40)])
  monkeypatch.setattr(prefix_sums, "LONG_PASS", 30)
  for kind in ("full", "era"):
    shuffle = {"kind": kind, **({"era_length": 3} if kind == "era" else {})}
    sums = prefix_sums.SourceUnits(
      shuffled(bins(store), shuffle), "tokens", None
    )
    assert sums.is_long()
    assert "plans all 40 rows of each epoch once" in sums.planned()
  for source, unit in (
    (shuffled(bins(store), {"kind": "full"}), "rows"),
    (shuffled(bins(store), {"kind": "block"}), "tokens"),
    (shuffled(sequential(store), {"kind": "full"}), "tokens"),
  ):
    assert not prefix_sums.SourceUnits(source, unit, None).is_long()
  monkeypatch.setattr(prefix_sums, "LONG_PASS", 41)
  source = shuffled(bins(store), {"kind": "full"})
  sums = prefix_sums.SourceUnits(source, "tokens", None)
  assert not sums.is_long()
  # Short passes are part of a mix's summary all the same.
  assert "plans all 40 rows of each epoch once" in sums.planned()


def test_sums_at_edges_say_about_where_a_row_is_and_look_at_none(
  make_store, monkeypatch
):
  lengths = np.random.default_rng(0).integers(1, 12, 3_000)
  store = make_store([np.arange(1, n + 1) for n in lengths.tolist()])
  rows = bins(store, packing_buffer_docs=200)
  own = shuffled(rows, {"kind": "block", "window_blocks": 2})
  units = prefix_sums.SourceUnits(own, "tokens", None)
  places = np.arange(0, 5 * len(rows), 97)
  sums = units.before(places)

  def refused(*_):
    raise AssertionError("a row is looked at")

  monkeypatch.setattr(chomp_data.BinSource, "units", refused)
  near = np.asarray([units.rows_below(own, near=True) for own in sums.tolist()])
  assert np.abs(near - places).max() <= 10
