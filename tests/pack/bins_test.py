# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The bin packer: whole documents in rows, packed window by window."""

import collections
import concurrent.futures
import dataclasses
import itertools
import pathlib
import pickle
import shutil
import sys
import threading

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

import chomp_data
from chomp_data import schema
from chomp_data.index import memo
from chomp_data.kernels import compiled
from chomp_data.pack import bins
from chomp_data.pack import epoch_starts
from chomp_data.pack import packing
from chomp_data.pack import window_packing
from chomp_data.sources import row_source
from chomp_data.storage import publish
from chomp_data.stores import side_index
from chomp_data.threads import background
from tests.pack import packed

PAD, EOS, BOS = 0, 1, 2


def make(store, seq_len, seed=0, **options):
  return chomp_data.BinSource(
    store, chomp_data.BinOptions(**options), seq_len=seq_len, seed=seed
  )


def documents_in(rows):
  return [list(dict.fromkeys(d for d, _ in row)) for row in rows]


# --- worked examples -------------------------------------------------------

LENGTHS = [3, 5, 2, 4, 2]


def in_order(source, epoch=0):
  return documents_in(
    packed.cells_of(source.plan(packed.rows_of(source, epoch)))
  )


def test_seed_003_first_fit_decreasing_fills_rows(make_store):
  source = make(make_store(packed.documents_of(LENGTHS)), 8, shuffle_rows=False)
  assert in_order(source) == [[0, 1], [2, 3, 4]]
  batch = packed.read(source, range(2))
  assert batch["segment_ids"].tolist() == [
    [1, 1, 1, 2, 2, 2, 2, 2],
    [1, 1, 2, 2, 2, 2, 3, 3],
  ]
  assert batch["positions"][0].tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
  assert batch["tokens"][0].tolist() == [3, 4, 5, 6, 7, 8, 9, 10]


def test_seed_003_pad_positions_have_the_pad_token_and_segment_0(make_store):
  source = make(make_store(packed.documents_of([3, 3])), 4)
  batch = packed.read(source, range(2))
  assert batch["tokens"][:, 3].tolist() == [PAD, PAD]
  assert batch["segment_ids"].tolist() == [[1, 1, 1, 0]] * 2
  assert batch["loss_mask"].tolist() == [[1, 1, 0, 0]] * 2


def test_seed_003_documents_of_a_row_can_be_bounded(make_store):
  store = make_store(packed.documents_of([1] * 8))
  for bound, rows in ((None, 1), (8, 1), (3, 3), (1, 8)):
    source = make(store, 8, packing_max_docs_per_bin=bound)
    assert len(source) == rows
    assert source.document_slots == (bound or 8)


def test_exact_rows_cut_what_does_not_fit(make_store):
  source = make(
    make_store(packed.documents_of([3, 3, 3])),
    5,
    packing_algorithm="exact",
    shuffle_rows=False,
  )
  batch = packed.read(source, range(2))
  assert batch["tokens"].tolist() == [[3, 4, 5, 9, 10], [6, 7, 8, 11, PAD]]
  # The cut document goes on in the other row: its label is known.
  assert batch["next_token"].tolist() == [11, PAD]
  assert batch["loss_mask"].tolist() == [[1, 1, 0, 1, 1], [1, 1, 0, 0, 0]]
  assert "1 of the first 3 documents cut" in source.describe()


def test_long_documents_by_policy(make_store):
  store = make_store(packed.documents_of([9, 2, 0, 4]))
  for policy, rows, lost in (
    ("cut", [[0], [0], [3], [0, 1]], 0),
    ("truncate", [[0], [3], [1]], 5),
    ("drop", [[3], [1]], 9),
  ):
    source = make(store, 4, long_documents=policy, shuffle_rows=False)
    assert in_order(source) == rows
    report = source.report()
    assert (report.empty, report.long, report.lost) == (1, 1, lost)
    assert report.tokens == 15 - lost
    assert report.utilisation == (15 - lost) / (4 * len(rows))
    assert report.padding == pytest.approx(1 - report.utilisation)
    assert ("tokens lost" in source.describe()) == (lost > 0)


def test_windows_of_nothing_have_no_row(make_store):
  store = make_store([[], [], *packed.documents_of([3, 2]), [], [], *[[7, 8]]])
  for algorithm in ("ffd", "exact"):
    source = make(store, 4, packing_buffer_docs=2, packing_algorithm=algorithm)
    assert source.blocks(0)[1] == 0
    assert sorted(in_order(source)) == sorted(
      [[2], [3], [6]] if algorithm == "ffd" else in_order(source)
    )
    assert packed.read(source, np.empty(0, np.int64))["tokens"].shape == (0, 4)
    assert source.report().empty == 4
    assert "4 empty, skipped" in source.describe()


# --- laws ------------------------------------------------------------------


@st.composite
def corpora(draw):
  """Draws (lengths of documents, seq_len, documents of a window)."""
  longest = draw(st.sampled_from((1, 3, 9, 30)))
  lengths = draw(st.lists(st.integers(0, longest), min_size=1, max_size=20))
  hypothesis.assume(sum(lengths) >= 2)
  seq_len = draw(st.integers(2, min(sum(lengths), 12)))
  return lengths, seq_len, draw(st.integers(1, len(lengths) + 1))


@st.composite
def options_for(draw, window):
  algorithm = draw(st.sampled_from(("ffd", "exact")))
  divisors = [d for d in range(1, window + 1) if window % d == 0]
  bound = st.none() | st.integers(1, 5)
  return {
    "packing_algorithm": algorithm,
    "packing_buffer_docs": window,
    "packing_max_docs_per_bin": draw(bound) if algorithm == "ffd" else None,
    "long_documents": draw(st.sampled_from(packing.LONG_POLICIES)),
    "add_bos": draw(st.booleans()),
    "add_eos": draw(st.booleans()),
    "shuffle_documents": draw(st.sampled_from(("none", "block", "full"))),
    "reshuffle_documents": draw(st.booleans()),
    "document_block": draw(st.none() | st.sampled_from(divisors)),
    "shuffle_rows": draw(st.booleans()),
    "reset_positions": draw(st.booleans()),
    "filler": draw(st.sampled_from(("pad", "eos"))),
  }


def kept_of(full, seq_len, policy):
  """Returns the part of each document that is packed."""
  return [
    tokens[:seq_len]
    if policy == "truncate"
    else tokens
    if policy == "cut" or len(tokens) <= seq_len
    else []
    for tokens in full
  ]


@hypothesis.given(data=st.data(), corpus=corpora(), seed=st.integers(0, 3))
def test_every_epoch_holds_every_token_once(make_store, corpus, seed, data):
  lengths, seq_len, window = corpus
  options = data.draw(options_for(window))
  documents = packed.documents_of(lengths)
  store = make_store(documents)
  try:
    source = make(store, seq_len, seed, **options)
  except schema.ConfigError:
    layout = make(store, 2, seed, **{**options, "long_documents": "cut"}).layout
    kept = kept_of(
      packed.with_added(documents, layout), seq_len, options["long_documents"]
    )
    assert sum(map(len, kept)) < seq_len
    return
  full = packed.with_added(documents, source.layout)
  kept = kept_of(full, seq_len, options["long_documents"])
  batches = []
  for epoch in range(3):
    rows = packed.rows_of(source, epoch)
    spans = source.plan(rows)
    batch = source.read(spans, row_source.OPTIONAL_FIELDS)
    found = packed.cells_of(spans)
    assert collections.Counter(c for row in found for c in row) == {
      (d, i): 1 for d, tokens in enumerate(kept) for i in range(len(tokens))
    }
    assert all(1 <= len(row) <= seq_len for row in found)
    bound = options["packing_max_docs_per_bin"]
    if bound is not None:
      assert max(map(len, documents_in(found))) <= bound
    packed.check_fields(batch, packed.fields_of(found, kept, source.layout))
    check_windows(source, epoch, found, kept)
    epochs, index = source.epochs.locate(rows)
    assert (epochs == epoch).all()
    assert index.tolist() == list(range(len(rows)))
    batches.append(batch)
  # Any rows, from any epochs, in any order and more than once.
  every = {n: np.concatenate([b[n] for b in batches]) for n in batches[0]}
  number = st.integers(0, len(every["tokens"]) - 1)
  rows = np.asarray(data.draw(st.lists(number, max_size=8)), np.int64)
  fresh = make(store, seq_len, seed, **options)
  if data.draw(st.booleans()):
    # 'exact' reads what is kept, as 'ffd' always does.
    for epoch in range(3 if source.options.orders_differ else 1):
      fresh.packing.in_order(epoch).build_index()
  packed.check_fields(
    packed.read(fresh, rows), {k: v[rows] for k, v in every.items()}
  )


def check_windows(source, epoch, found, kept):
  """Checks that windows hold what they should, in as many rows."""
  starts = source.blocks(epoch)
  options, size = source.options, source.options.packing_buffer_docs
  assert starts[0] == 0
  assert starts[-1] == len(found)
  assert len(starts) - 1 == -(-len(kept) // size)
  of_documents = {}
  for window, (first, last) in enumerate(itertools.pairwise(starts.tolist())):
    inside = {d for row in documents_in(found[first:last]) for d in row}
    for document in inside:
      assert of_documents.setdefault(document, window) == window
    tokens = sum(len(kept[d]) for d in inside)
    assert len(inside) <= size
    if options.packing_algorithm == "exact":
      assert last - first == -(-tokens // source.seq_len)
    if options.shuffle_documents == "none":
      own = range(window * size, min((window + 1) * size, len(kept)))
      assert inside == {d for d in own if kept[d]}
    if (
      options.packing_algorithm == "ffd" and options.shuffle_documents == "none"
    ):
      lengths = np.asarray([len(kept[d]) for d in sorted(inside)], np.int64)
      pieces = packing.cut_pieces(lengths, source.seq_len)
      bins, num = packing.first_fit_decreasing(
        pieces.length, source.seq_len, options.packing_max_docs_per_bin
      )
      named = [sorted(inside)[slot] for slot in pieces.slot]
      expected = [
        [(named[i], int(pieces.start[i])) for i in np.flatnonzero(bins == b)]
        for b in range(num)
      ]
      heads = [
        [c for i, c in enumerate(row) if i == 0 or c[0] != row[i - 1][0]]
        for row in found[first:last]
      ]
      if options.shuffle_rows:
        expected, heads = sorted(expected), sorted(heads)
      assert heads == expected


def test_rows_of_a_window_are_shuffled_and_epochs_differ(make_store):
  source = make(
    make_store(packed.documents_of([4] * 60)), 4, packing_buffer_docs=20
  )
  first, second = (in_order(source, epoch) for epoch in (0, 1))
  assert first != second
  for epoch in (first, second):
    flat = [d for (d,) in epoch]
    for window in range(3):
      own = flat[20 * window : 20 * window + 20]
      assert own != sorted(own)
      assert sorted(own) == list(range(20 * window, 20 * window + 20))
  plain = make(source.store, 4, packing_buffer_docs=20, shuffle_rows=False)
  assert in_order(plain, 0) == in_order(plain, 1) == [[d] for d in range(60)]


def reshuffled(make_store, **changes):
  """Returns a source whose epochs have different numbers of rows."""
  random = np.random.default_rng(3)
  options = {
    "packing_buffer_docs": 8,
    "shuffle_documents": "full",
    **changes,
  }
  lengths = random.integers(1, 12, 90).tolist()
  return make(make_store(packed.documents_of(lengths)), 12, **options)


@pytest.mark.parametrize("algorithm", ["ffd", "exact"])
def test_epochs_of_different_lengths_follow_each_other(make_store, algorithm):
  source = reshuffled(make_store, packing_algorithm=algorithm)
  sizes = [len(packed.rows_of(source, epoch)) for epoch in range(6)]
  assert len(set(sizes)) > 1
  starts = np.cumsum([0, *sizes])
  assert source.epochs.first_row(np.arange(7)).tolist() == starts.tolist()
  assert len(source) == sizes[0]
  # Asked in another order, of a source that has seen no other epoch.
  other = reshuffled(make_store, packing_algorithm=algorithm)
  rows = np.asarray([starts[5], 0, starts[5] - 1, starts[3], starts[1]])
  epoch, index = other.epochs.locate(rows)
  assert epoch.tolist() == [5, 0, 4, 3, 1]
  assert index.tolist() == [0, 0, sizes[4] - 1, 0, 0]
  assert other.epochs.first_row(np.asarray([4, 2])).tolist() == [
    starts[4],
    starts[2],
  ]
  # A batch across the seam.
  seam = np.arange(starts[1] - 3, starts[1] + 3)
  packed.check_fields(
    packed.read(other, seam),
    {
      name: np.concatenate([before, packed.read(source, seam[3:])[name]])
      for name, before in packed.read(source, seam[:3]).items()
    },
  )


def packings(source, name="ffd"):
  """The indexes of a source's store that are on disk."""
  parent = pathlib.Path(source.store.path)
  return list((parent.parent / f"{parent.name}.index").glob(f"{name}-*"))


def test_the_next_epoch_is_packed_before_it_comes_and_past_ones_go(
  make_store, monkeypatch
):
  source = reshuffled(make_store)
  packed_by = []
  first_fit = packing.first_fit_decreasing

  def recorded(*args, **kwargs):
    packed_by.append(threading.current_thread().name)
    return first_fit(*args, **kwargs)

  monkeypatch.setattr(packing, "first_fit_decreasing", recorded)
  source.prepare(6)
  row, at_two = 0, None
  for epoch in range(6):
    last = int(source.epochs.first_row(np.asarray([epoch + 1]))[0])
    for first in range(row, last, 3):
      spans = source.plan(np.arange(first, min(first + 3, last)))
      at_two = spans if (epoch, first) == (2, row) else at_two
    source.background.wait()
    row = last
  # Twelve windows of each epoch but the first, which is packed at once.
  assert packed_by == ["background packer"] * 12 * 5
  # The first, the last two and none between; of all others their rows.
  assert len(packings(source)) == len(packings(source, "ffd_rows")) == 3
  packed_by.clear()
  again = make(
    source.store, 12, packing_buffer_docs=8, shuffle_documents="full"
  )
  assert again.epochs.first_row(np.arange(6)).tolist() == (
    source.epochs.first_row(np.arange(6)).tolist()
  )
  assert not packed_by
  rows = np.arange(again.epochs.start(2), again.epochs.start(2) + 3)
  np.testing.assert_array_equal(again.plan(rows).document, at_two.document)


def test_a_run_of_one_epoch_and_exact_packings_prepare_nothing(make_store):
  # Without `prepare`, rows are planned and not read.
  for algorithm, epochs in (("ffd", (1,)), ("ffd", ()), ("exact", (None,))):
    source = reshuffled(make_store, packing_algorithm=algorithm)
    for max_epochs in epochs:
      source.prepare(max_epochs)
    source.plan(np.arange(len(source)))
    source.background.wait()
    assert len(packings(source, algorithm)) == (algorithm == "ffd")


def test_an_index_of_exact_is_for_a_full_order_of_rows(make_store, monkeypatch):
  monkeypatch.setattr(bins, "INDEXED_DOCUMENTS", 40)
  options = {"packing_algorithm": "exact"}
  in_turn = reshuffled(make_store, **options)
  in_turn.prepare(None)
  spans = [in_turn.plan(packed.rows_of(in_turn, epoch)) for epoch in range(5)]
  in_turn.background.wait()
  assert not packings(in_turn, "exact")
  packed_by = []
  exact_bins = packing.exact_bins

  def recorded(*args):
    packed_by.append(threading.current_thread().name)
    return exact_bins(*args)

  monkeypatch.setattr(packing, "exact_bins", recorded)
  source = make(in_turn.store, 12, **dataclasses.asdict(in_turn.options))
  order = chomp_data.ShuffledSource(
    source, chomp_data.ShuffleOptions(kind="full"), 0
  )
  source.plan(np.arange(len(source)))
  source.background.wait()
  # Nobody reads, but plans are asked about.
  assert not packings(source, "exact")
  order.prepare(None)
  for epoch in range(5):
    del packed_by[:]
    for _ in range(2):
      order.plan(packed.rows_of(source, epoch))
      source.background.wait()
    # By the reader until the index is there: each window at most once.
    assert packed_by.count("background packer") == 12
    assert len(packed_by) - 12 <= 12
    assert len(packings(source, "exact")) == min(epoch + 1, 2)
  # Another source reads what is there, and plans the same.
  del packed_by[:]
  again = make(source.store, 12, **dataclasses.asdict(source.options))
  for epoch in (3, 4):
    found = again.plan(packed.rows_of(again, epoch))
    np.testing.assert_array_equal(found.start, spans[epoch].start)
    np.testing.assert_array_equal(found.row, spans[epoch].row)
  assert not packed_by


def test_exact_rows_are_not_indexed_where_that_would_take_python_long(
  make_store, monkeypatch
):
  monkeypatch.setattr(bins, "INDEXED_DOCUMENTS", 40)
  source = reshuffled(
    make_store, packing_algorithm="exact", reshuffle_documents=False
  )
  source.prepare(None, full_order=True)
  with compiled.allowed(False):
    source.plan(np.arange(len(source)))
    source.background.wait()
    assert not packings(source, "exact")
    # Who needs all of them packs all of them.
    assert source.block_units(0, "loss_tokens", 4_096) is not None
    assert packings(source, "exact")


def test_two_threads_that_count_epochs_at_once_agree():
  both, first_is_on = threading.Barrier(2), threading.Event()

  def rows_of(epoch):
    # The second comes out of epoch 1 when the first has counted it.
    if epoch == 1 and both.wait(timeout=30):
      first_is_on.wait(timeout=30)
    if epoch == 2:
      first_is_on.set()
    return 10 + epoch

  starts = epoch_starts.EpochStarts(rows_of, 100, "rows")
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    found = list(pool.map(starts.first_row, [np.asarray([3])] * 2))
  assert [own.tolist() for own in found] == [[33], [33]]
  assert starts.first_row(np.arange(6)).tolist() == [0, 10, 21, 33, 46, 60]


def test_nobody_waits_to_pack_ahead_where_another_process_does(make_store):
  source = reshuffled(make_store)
  before = {*packings(source)}
  source.packing.in_order(1).build_index()
  (own,) = {*packings(source)} - before
  shutil.rmtree(own)
  with publish.lock(own), pytest.raises(side_index.BusyError):
    source.packing.in_order(1).build_index(in_background=True)
  assert (
    source.packing.in_order(1).build_index(in_background=True)["bins"].nbytes
  )


def test_a_packing_is_interrupted_where_its_thread_is_stopped(
  make_store, monkeypatch
):
  source = reshuffled(make_store)
  source.plan(np.arange(2))
  before = packings(source)
  begun, stopped = threading.Event(), threading.Event()
  first_fit = packing.first_fit_decreasing

  def waits(*args, **kwargs):
    begun.set()
    assert stopped.wait(30)
    return first_fit(*args, **kwargs)

  monkeypatch.setattr(packing, "first_fit_decreasing", waits)
  monkeypatch.setattr(window_packing, "WINDOWS", 1)
  # What a reader's thread starts is stopped with it.
  reader = background.Thread(
    lambda: (source.background.request(1), stopped.wait(30)), "reader"
  )
  reader.start()
  assert begun.wait(30)
  reader.stop()
  stopped.set()
  assert reader.join(30)
  assert packings(source) == before
  # Another reader begins with it again.
  monkeypatch.setattr(packing, "first_fit_decreasing", first_fit)
  source.background.request(1)
  source.background.wait()
  assert source.packing.in_order(1).find_index()


@pytest.mark.parametrize("algorithm", ["ffd", "exact"])
def test_threads_may_read_rows_of_different_epochs(make_store, algorithm):
  source = reshuffled(make_store, packing_algorithm=algorithm)
  starts = source.epochs.first_row(np.arange(4))
  expected = packed.read(source, np.arange(starts[-1]))["tokens"]
  shared, wrong = reshuffled(make_store, packing_algorithm=algorithm), []

  def work(seed):
    random = np.random.default_rng(seed)
    for _ in range(60):
      first, last = starts[random.integers(0, 3) + np.arange(2)]
      rows = random.integers(first, last, 5)
      try:
        np.testing.assert_array_equal(
          packed.read(shared, rows)["tokens"], expected[rows]
        )
      except Exception as error:
        wrong.append(error)

  interval = sys.getswitchinterval()
  sys.setswitchinterval(1e-5)
  try:
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
      list(pool.map(work, range(3)))
  finally:
    sys.setswitchinterval(interval)
  assert not wrong


def test_a_source_is_sent_without_what_lies_on_disk(make_store):
  source = make(
    make_store(np.full((4_000, 1), 7)), 4, packing_buffer_docs=4_000
  )
  packed.read(source, packed.rows_of(source))
  # One window: a row number and a sum; its assignments are 16,000 bytes.
  assert len(pickle.dumps(source)) < 8_000


def test_windows_that_do_not_fit_in_memory_are_packed_again(
  make_store, monkeypatch
):
  monkeypatch.setattr(window_packing, "CACHE", memo.Memo(2_500))
  source = make(
    make_store(packed.documents_of([3, 5, 2, 4] * 8)), 8, packing_buffer_docs=8
  )
  expected = packed.read(source, np.arange(len(source)))
  fresh = make(source.store, 8, packing_buffer_docs=8)
  for rows in np.random.default_rng(0).integers(0, len(source), (50, 2)):
    found = packed.read(fresh, rows)
    packed.check_fields(found, {k: v[rows] for k, v in expected.items()})


# --- errors ----------------------------------------------------------------


def test_a_policy_that_drops_everything_is_refused(make_store):
  store = make_store(packed.documents_of([5, 7]))
  with pytest.raises(
    schema.ConfigError, match=r"4 with 0 tokens \(12 more in long documents\)"
  ):
    make(store, 4, long_documents="drop")


@pytest.mark.parametrize(
  ("options", "message"),
  [
    (
      {"packing_max_docs_per_bin": 0},
      r"`\w+\.packing_max_docs_per_bin` must be .*at least 1.*got 0",
    ),
    (
      {"packing_buffer_docs": 0},
      r"`\w+\.packing_buffer_docs` must be .*1 .*got 0",
    ),
    (
      {"packing_algorithm": "exact", "packing_max_docs_per_bin": 4},
      r"`\w+\.packing_max_docs_per_bin` must be None with .*'exact', got 4",
    ),
    (
      {"document_block": 3, "packing_buffer_docs": 8},
      r"`rows\.document_block` must divide packing_buffer_docs, got 3 and 8",
    ),
    (
      {"packing_algorithm": "best_fit"},
      r"`\w+\.packing_algorithm` must be .*'ffd', 'exact'.*got 'best_fit'",
    ),
    (
      {"long_documents": "split"},
      r"`\w+\.long_documents` must be .*'truncate'.*got 'split'",
    ),
  ],
  ids=str,
)
def test_options_out_of_range_are_named(make_store, options, message):
  with pytest.raises(schema.ConfigError, match=message):
    make(make_store(packed.documents_of([3, 5])), 4, **options)


def test_what_every_epoch_costs_is_said_at_start(make_store, caplog):
  store = make_store(packed.documents_of([3, 5]))
  for options, costly in (
    ({}, False),
    ({"shuffle_documents": "full"}, True),
    ({"shuffle_documents": "block"}, True),
    ({"shuffle_documents": "full", "reshuffle_documents": False}, False),
    ({"shuffle_documents": "full", "packing_algorithm": "exact"}, True),
    ({"shuffle_documents": "block", "packing_algorithm": "exact"}, False),
  ):
    caplog.clear()
    make(store, 4, **options)
    said = "costs a pass over 2 documents in every epoch" in caplog.text
    assert said == costly, options


def test_fingerprints_tell_whatever_changes_rows(make_store):
  store = make_store(packed.documents_of([3, 5]))
  other = {
    "filler": "eos",
    "trailing_filler_in_segment": True,
    "pad_token_id": 5,
    "eos_token_id": 6,
    "bos_token_id": 7,
    "add_bos": True,
    "add_eos": True,
    "reset_positions": False,
    "shuffle_documents": "full",
    "reshuffle_documents": False,
    "document_block": 2,
    "document_slots": 3,
    "packing_algorithm": "exact",
    "packing_buffer_docs": 2,
    "packing_max_docs_per_bin": 1,
    "long_documents": "drop",
    "shuffle_rows": False,
  }
  # Those of preference pairs: tests/pack/pairs_test.py.
  assert {*other, "fim", "pair_slots", "long_pairs"} == {
    f.name for f in dataclasses.fields(chomp_data.BinOptions)
  }
  prints = {repr(make(store, 3, **{k: v})) for k, v in other.items()}
  prints |= {repr(make(store, 3)), repr(make(store, 3, seed=1))}
  assert len(prints) == len(other) + 2
  assert repr(make(store, 3)) in prints
  ids = {"prefix_id": 9, "suffix_id": 10, "middle_id": 11}
  fims = [None, ids, {**ids, "rate": 0.1}, {**ids, "middle_id": 12}]
  fims.append({**ids, "train_sentinels": False})
  prints = {repr(make(store, 8, add_eos=True, fim=fim)) for fim in fims}
  assert len(prints) == len(fims)


@pytest.mark.parametrize("algorithm", ["ffd", "exact"])
def test_more_epochs_than_can_be_counted_are_refused_at_once(
  make_store, algorithm
):
  source = chomp_data.BinSource(
    make_store([[5] * 40] * 9),
    chomp_data.BinOptions(
      packing_algorithm=algorithm,
      packing_buffer_docs=3,
      shuffle_documents="block",
    ),
    seq_len=16,
  )
  with pytest.raises(schema.ConfigError, match=r"reshuffle_documents.*10000"):
    source.epochs.first_row(np.asarray([10**9]))
  with pytest.raises(schema.ConfigError, match="reshuffle_documents"):
    source.plan(np.asarray([2**62 - 1]))
