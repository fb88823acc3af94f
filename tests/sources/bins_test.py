"""The bin packer: whole documents in rows, packed window by window."""

import collections
import dataclasses
import itertools
import os
import pathlib
import pickle
import shutil

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import schema
from chomp_data import sources
from chomp_data import stores
from chomp_data.index import packing
from chomp_data.sources import packed_windows as packed_windows_lib
from chomp_data.stores import side_index
from chomp_data.testing import packed
from chomp_data.testing import stores as testing_stores

PAD, EOS, BOS = 0, 1, 2
EXTRA = ("attention_mask", "next_token")


@pytest.fixture(scope="module", autouse=True)
def quick_disk(tmp_path_factory):
  """Thousands of tiny stores, none of which must outlive a power cut."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(os, "fsync", lambda descriptor: None)
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    yield


@pytest.fixture(scope="module")
def make_store(tmp_path_factory):
  """Writes documents of given lengths or tokens as a real store."""
  root, number = tmp_path_factory.mktemp("stores"), itertools.count()

  def build(documents, **changes):
    return testing_stores.make_store(
      root / str(next(number)), documents, **{"bos_id": BOS, **changes}
    )

  return build


@pytest.fixture
def windows_packed(monkeypatch):
  """Counts the windows that First-Fit-Decreasing packs."""
  calls = []
  first_fit = packing.first_fit_decreasing

  def counted(length, *args, **kwargs):
    calls.append(len(length))
    return first_fit(length, *args, **kwargs)

  monkeypatch.setattr(packing, "first_fit_decreasing", counted)
  return calls


def documents_of(lengths):
  """Returns documents in which no two tokens nearby are equal."""
  tokens = 3 + np.arange(sum(lengths)) % 250
  return np.split(tokens, np.cumsum(lengths)[:-1])


def make(store, seq_len, seed=0, **options):
  return sources.BinSource(
    store, sources.BinOptions(**options), seq_len=seq_len, seed=seed
  )


def rows_of(source, epoch=0):
  first, last = source.first_row(np.asarray([epoch, epoch + 1])).tolist()
  return np.arange(first, last)


def read(source, rows):
  return source.read(source.plan(np.asarray(rows)), EXTRA)


def check_equal(found, expected):
  assert set(found) == set(expected)
  for name, value in expected.items():
    assert found[name].dtype == value.dtype, name
    np.testing.assert_array_equal(found[name], value, err_msg=name)


def documents_in(rows):
  return [list(dict.fromkeys(d for d, _ in row)) for row in rows]


def index_of(store):
  """Returns the directory of the one FFD index of a store."""
  (directory,) = pathlib.Path(f"{store.path}.index").glob("ffd-*")
  return directory


# --- worked examples -------------------------------------------------------

LENGTHS = [3, 5, 2, 4, 2]


def in_order(source, epoch=0):
  return documents_in(packed.cells_of(source.plan(rows_of(source, epoch))))


def test_seed_003_first_fit_decreasing_fills_rows(make_store):
  source = make(make_store(documents_of(LENGTHS)), 8, shuffle_rows=False)
  assert in_order(source) == [[0, 1], [2, 3, 4]]
  batch = read(source, range(2))
  assert batch["segment_ids"].tolist() == [
    [1, 1, 1, 2, 2, 2, 2, 2],
    [1, 1, 2, 2, 2, 2, 3, 3],
  ]
  assert batch["positions"][0].tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
  assert batch["tokens"][0].tolist() == [3, 4, 5, 6, 7, 8, 9, 10]


def test_seed_003_pad_positions_have_the_pad_token_and_segment_0(make_store):
  source = make(make_store(documents_of([3, 3])), 4)
  batch = read(source, range(2))
  assert batch["tokens"][:, 3].tolist() == [PAD, PAD]
  assert batch["segment_ids"].tolist() == [[1, 1, 1, 0]] * 2
  assert batch["loss_mask"].tolist() == [[1, 1, 0, 0]] * 2


def test_seed_003_documents_of_a_row_can_be_bounded(make_store):
  store = make_store(documents_of([1] * 8))
  for bound, rows in ((None, 1), (8, 1), (3, 3), (1, 8)):
    source = make(store, 8, packing_max_docs_per_bin=bound)
    assert len(source) == rows
    assert source.document_slots == (bound or 8)


def test_exact_rows_cut_what_does_not_fit(make_store):
  source = make(
    make_store(documents_of([3, 3, 3])),
    5,
    packing_algorithm="exact",
    shuffle_rows=False,
  )
  batch = read(source, range(2))
  assert batch["tokens"].tolist() == [[3, 4, 5, 9, 10], [6, 7, 8, 11, PAD]]
  # The cut document goes on in the other row: its label is known.
  assert batch["next_token"].tolist() == [11, PAD]
  assert batch["loss_mask"].tolist() == [[1, 1, 0, 1, 1], [1, 1, 0, 0, 0]]
  assert "1 of the first 3 documents cut" in source.describe()


def test_long_documents_by_policy(make_store):
  store = make_store(documents_of([9, 2, 0, 4]))
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


def test_a_truncated_document_has_no_eos_and_no_label_after_its_end(make_store):
  store = make_store(documents_of([4]))
  for policy, tokens, following in (
    ("cut", [[BOS, 3, 4, 5], [6, EOS, PAD, PAD]], [6, PAD]),
    ("truncate", [[BOS, 3, 4, 5]], [PAD]),
  ):
    source = make(
      store,
      4,
      add_bos=True,
      add_eos=True,
      long_documents=policy,
      shuffle_rows=False,
    )
    batch = read(source, np.arange(len(source)))
    assert batch["tokens"].tolist() == tokens
    assert batch["next_token"].tolist() == following
    assert batch["loss_mask"][0].tolist() == [1, 1, 1, policy == "cut"]


def test_windows_are_packed_by_themselves_and_the_last_is_flushed(make_store):
  source = make(
    make_store(documents_of([1, 7, 1, 7, 1])),
    8,
    packing_buffer_docs=2,
    shuffle_rows=False,
  )
  assert in_order(source) == [[0, 1], [2, 3], [4]]
  assert source.block_starts(0).tolist() == [0, 1, 2, 3]


def test_windows_of_nothing_have_no_row(make_store):
  store = make_store([[], [], *documents_of([3, 2]), [], [], *[[7, 8]]])
  for algorithm in ("ffd", "exact"):
    source = make(
      store, 4, packing_buffer_docs=2, packing_algorithm=algorithm
    )
    assert source.block_starts(0)[1] == 0
    assert sorted(in_order(source)) == sorted(
      [[2], [3], [6]] if algorithm == "ffd" else in_order(source)
    )
    assert read(source, np.empty(0, np.int64))["tokens"].shape == (0, 4)
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
@hypothesis.settings(max_examples=1_000)
def test_every_epoch_holds_every_token_once(make_store, corpus, seed, data):
  lengths, seq_len, window = corpus
  options = data.draw(options_for(window))
  documents = documents_of(lengths)
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
    rows = rows_of(source, epoch)
    spans = source.plan(rows)
    batch = source.read(spans, EXTRA)
    found = packed.cells_of(spans)
    assert collections.Counter(c for row in found for c in row) == {
      (d, i): 1 for d, tokens in enumerate(kept) for i in range(len(tokens))
    }
    assert all(1 <= len(row) <= seq_len for row in found)
    bound = options["packing_max_docs_per_bin"]
    if bound is not None:
      assert max(map(len, documents_in(found))) <= bound
    check_equal(batch, packed.fields_of(found, kept, source.layout))
    check_windows(source, epoch, found, kept)
    epochs, index = source.locate(rows)
    assert (epochs == epoch).all()
    assert index.tolist() == list(range(len(rows)))
    batches.append(batch)
  # Any rows, from any epochs, in any order and more than once.
  every = {n: np.concatenate([b[n] for b in batches]) for n in batches[0]}
  number = st.integers(0, len(every["tokens"]) - 1)
  rows = np.asarray(data.draw(st.lists(number, max_size=8)), np.int64)
  fresh = make(store, seq_len, seed, **options)
  check_equal(read(fresh, rows), {k: v[rows] for k, v in every.items()})


def check_windows(source, epoch, found, kept):
  """Checks that windows hold what they should, in as many rows."""
  starts = source.block_starts(epoch)
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
      options.packing_algorithm == "ffd"
      and options.shuffle_documents == "none"
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


@pytest.mark.parametrize("algorithm", ["ffd", "exact"])
@pytest.mark.parametrize("kind", ["none", "block", "full"])
def test_large_corpora_lose_nothing(make_store, algorithm, kind):
  random = np.random.default_rng(0)
  lengths = np.where(
    random.random(900) < 0.05, 0, random.geometric(0.03, 900)
  ).tolist()
  documents = documents_of([*lengths, 1_000, 1])
  source = make(
    make_store(documents),
    64,
    packing_algorithm=algorithm,
    packing_buffer_docs=128,
    add_eos=True,
    shuffle_documents=kind,
  )
  full = packed.with_added(documents, source.layout)
  for epoch in range(2):
    rows = rows_of(source, epoch)
    batch = read(source, rows)
    found = packed.cells_of(source.plan(rows))
    cells = [cell for row in found for cell in row]
    assert len(cells) == len(set(cells)) == sum(map(len, full))
    check_equal(batch, packed.fields_of(found, full, source.layout))
    check_windows(source, epoch, found, full)
  order = random.permutation(len(rows))
  for part in np.array_split(rows[order], 9):
    check_equal(
      read(source, part), {k: v[part - rows[0]] for k, v in batch.items()}
    )


def test_rows_of_a_window_are_shuffled_and_epochs_differ(make_store):
  source = make(
    make_store(documents_of([4] * 60)), 4, packing_buffer_docs=20
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
  return make(make_store(documents_of(lengths)), 12, **options)


@pytest.mark.parametrize("algorithm", ["ffd", "exact"])
def test_epochs_of_different_lengths_follow_each_other(make_store, algorithm):
  source = reshuffled(make_store, packing_algorithm=algorithm)
  sizes = [len(rows_of(source, epoch)) for epoch in range(6)]
  assert len(set(sizes)) > 1
  starts = np.cumsum([0, *sizes])
  assert source.first_row(np.arange(7)).tolist() == starts.tolist()
  assert len(source) == sizes[0]
  # Asked in another order, of a source that has seen no other epoch.
  other = reshuffled(make_store, packing_algorithm=algorithm)
  rows = np.asarray([starts[5], 0, starts[5] - 1, starts[3], starts[1]])
  epoch, index = other.locate(rows)
  assert epoch.tolist() == [5, 0, 4, 3, 1]
  assert index.tolist() == [0, 0, sizes[4] - 1, 0, 0]
  assert other.first_row(np.asarray([4, 2])).tolist() == [starts[4], starts[2]]
  # A batch across the seam.
  seam = np.arange(starts[1] - 3, starts[1] + 3)
  check_equal(
    read(other, seam),
    {
      name: np.concatenate([before, read(source, seam[3:])[name]])
      for name, before in read(source, seam[:3]).items()
    },
  )


def test_a_source_in_another_process_reads_the_same(make_store):
  for algorithm in ("ffd", "exact"):
    source = reshuffled(make_store, packing_algorithm=algorithm)
    rows = np.arange(source.first_row(np.asarray([3]))[0])
    expected = read(source, rows)
    copy = pickle.loads(pickle.dumps(source))
    check_equal(read(copy, rows), expected)
    assert copy.first_row(np.asarray([5])) == source.first_row(np.asarray([5]))


def test_a_window_in_use_is_packed_once(make_store, monkeypatch):
  source = make(
    make_store(documents_of([3, 5, 2, 4] * 8)),
    8,
    packing_algorithm="exact",
    packing_buffer_docs=8,
  )
  calls = []
  exact = packing.exact_rows
  monkeypatch.setattr(
    packing, "exact_rows", lambda *a: calls.append(a) or exact(*a)
  )
  for row in np.random.default_rng(0).integers(0, len(source), 50):
    source.plan(np.asarray([row]))
  assert len(calls) == 4


def test_windows_that_do_not_fit_in_memory_are_packed_again(
  make_store, monkeypatch
):
  monkeypatch.setattr(packed_windows_lib, "_KEPT_PIECES", 20)
  source = make(
    make_store(documents_of([3, 5, 2, 4] * 8)), 8, packing_buffer_docs=8
  )
  expected = read(source, np.arange(len(source)))
  for rows in np.random.default_rng(0).integers(0, len(source), (50, 3)):
    found = read(source, rows)
    check_equal(found, {k: v[rows] for k, v in expected.items()})


def test_rows_of_the_first_epoch_are_a_grain_source(make_store):
  source = make(make_store(documents_of(LENGTHS)), 8, shuffle_rows=False)
  assert source[-1]["document_id"].tolist() == [2, 3, 4, *[-1] * 5]
  with pytest.raises(IndexError, match=r"-2 \.\. 1, got 2"):
    source[2]
  with pytest.raises(IndexError, match="at least 0, got -1"):
    source.plan(np.asarray([0, -1]))


# --- the index on disk -----------------------------------------------------


def test_an_index_is_built_once(make_store, windows_packed):
  store = make_store(documents_of([3, 5, 2, 4] * 8))
  options = {"packing_buffer_docs": 8}
  first = make(store, 8, **options)
  assert windows_packed == [8] * 4
  expected = read(first, np.arange(2 * len(first)))
  for _ in range(2):
    again = make(stores.open_store(store.path), 8, **options)
    check_equal(read(again, np.arange(2 * len(again))), expected)
  read(pickle.loads(pickle.dumps(first)), np.arange(len(first)))
  # What rows look like is not what was packed where.
  make(store, 8, 9, filler="eos", shuffle_rows=False, **options)
  assert len(windows_packed) == 4


@pytest.mark.parametrize(
  "change",
  [
    {"packing_buffer_docs": 4},
    {"packing_max_docs_per_bin": 1},
    {"add_eos": True},
    {"add_bos": True},
    {"long_documents": "drop"},
    {"shuffle_documents": "block"},
    {"shuffle_documents": "full"},
    {"shuffle_documents": "full", "seed": 1},
    {"shuffle_documents": "full", "name": "other"},
  ],
  ids=str,
)
def test_an_index_of_other_options_is_not_used(
  make_store, windows_packed, change
):
  store = make_store(documents_of([3, 5, 2, 4] * 8))
  base = {"packing_buffer_docs": 8}
  for options in (
    {**base, "shuffle_documents": change.get("shuffle_documents", "none")},
    base,
  ):
    if options != {**base, **change}:
      make(store, 8, **options)
  del windows_packed[:]
  given = dict(change)
  place = {k: given.pop(k) for k in ("seed", "name") if k in given}
  source = sources.BinSource(
    store, sources.BinOptions(**{**base, **given}), seq_len=8, **place
  )
  assert windows_packed
  rows = rows_of(source)
  found = packed.cells_of(source.plan(rows))
  check_windows(
    source,
    0,
    found,
    packed.with_added(documents_of([3, 5, 2, 4] * 8), source.layout),
  )


def test_an_index_of_another_store_at_the_same_path_is_not_used(
  make_store, windows_packed
):
  one = make_store(documents_of([3, 5, 2, 4]))
  make(one, 8)
  other = make_store(documents_of([5, 3, 4, 2]))
  shutil.rmtree(one.path)
  os.rename(other.path, one.path)
  del windows_packed[:]
  source = make(stores.open_store(one.path), 8, shuffle_rows=False)
  assert len(windows_packed) == 1
  assert in_order(source) == [[0, 1], [2, 3]]


def test_each_epoch_of_shuffled_documents_has_an_index(
  make_store, windows_packed
):
  source = reshuffled(make_store)
  assert len(windows_packed) == 12
  source.first_row(np.asarray([3]))
  assert len(windows_packed) == 36
  again = make(
    source.store, 12, packing_buffer_docs=8, shuffle_documents="full"
  )
  again.first_row(np.asarray([3]))
  assert len(windows_packed) == 36


@pytest.mark.parametrize("name", ["rows", "piece_ends", "bins", "header"])
def test_a_damaged_index_is_built_again(make_store, windows_packed, name):
  store = make_store(documents_of([3, 5, 2, 4] * 8))
  expected = read(make(store, 8, packing_buffer_docs=8), np.arange(14))
  (file,) = index_of(store).glob(f"{name}.*")
  data = file.read_bytes()
  for damaged in (
    data[:-1],
    b"",
    bytes([data[0] ^ 1]) + data[1:],
    data[:-1] + bytes([data[-1] ^ 128]),
    b"null",
  ):
    file.write_bytes(damaged)
    del windows_packed[:]
    source = make(store, 8, packing_buffer_docs=8)
    assert len(windows_packed) == 4
    check_equal(read(source, np.arange(14)), expected)
    assert file.read_bytes() == data


def test_a_large_index_is_checked_where_it_is_read(make_store, monkeypatch):
  monkeypatch.setattr(side_index, "_CHECKED_AT_OPEN", 0)
  store = make_store(documents_of([3, 5, 2, 4] * 8))
  make(store, 8, packing_buffer_docs=8)
  file = index_of(store) / "bins.bin"
  data = bytearray(file.read_bytes())
  data[40] ^= 1
  file.write_bytes(data)
  source = make(store, 8, packing_buffer_docs=8)
  with pytest.raises(stores.StoreError, match=r"bins\.bin: page 0 must have"):
    source.plan(np.arange(1))
  shutil.rmtree(file.parent)
  assert len(read(make(store, 8, packing_buffer_docs=8), [0])["tokens"]) == 1


@pytest.mark.parametrize(
  "packed_as",
  [
    pytest.param(lambda n: (np.zeros(n, np.int64), 1), id="overfull"),
    pytest.param(lambda n: (np.arange(n), n + 1), id="an empty row"),
    pytest.param(lambda n: (np.arange(n) + 1, n), id="a row too many"),
    pytest.param(lambda n: (np.arange(n - 1), n - 1), id="a piece too few"),
    pytest.param(
      lambda n: (np.full(n, 2**32 - 1), n), id="a row beyond memory"
    ),
  ],
)
def test_an_index_that_cannot_be_right_is_refused(
  make_store, monkeypatch, packed_as
):
  store = make_store(documents_of([3, 5, 2, 4] * 2))
  with monkeypatch.context() as patch:
    patch.setattr(
      packing, "first_fit_decreasing", lambda length, *_: packed_as(len(length))
    )
    make(store, 8, packing_buffer_docs=4)
  # Its checksums hold, since a faulty packer wrote it.
  source = make(store, 8, packing_buffer_docs=4)
  with pytest.raises(
    stores.StoreError, match=r"window 0 must pack 4 pieces into \d+ rows of 8"
  ):
    source.plan(np.arange(1))


def test_a_window_that_cannot_be_read_spoils_no_other(make_store, monkeypatch):
  store = make_store(documents_of([3, 5, 2, 4] * 8))
  source = make(store, 8, packing_buffer_docs=8)
  starts = source.block_starts(0)
  expected = read(source, np.arange(len(source)))
  fresh = make(store, 8, packing_buffer_docs=8)
  fresh.plan(starts[3:4])
  rows_of_bins, calls = packing.rows_of_bins, []

  def fail_once(*args):
    calls.append(args)
    if len(calls) == 2:
      raise stores.StoreError("the disk is gone")
    return rows_of_bins(*args)

  monkeypatch.setattr(packing, "rows_of_bins", fail_once)
  with pytest.raises(stores.StoreError, match="the disk is gone"):
    fresh.plan(starts[[0, 1]])
  for rows in (starts[:1], starts[1:2], starts[:4]):
    check_equal(read(fresh, rows), {k: v[rows] for k, v in expected.items()})


def test_exact_rows_need_no_index(make_store, windows_packed):
  store = make_store(documents_of([3, 5, 2, 4] * 8))
  source = make(
    store,
    8,
    packing_buffer_docs=8,
    packing_algorithm="exact",
    shuffle_documents="block",
  )
  source.first_row(np.asarray([50]))
  assert not windows_packed
  assert not os.path.exists(f"{store.path}.index")


# --- errors ----------------------------------------------------------------


def test_rows_longer_than_what_is_packed_are_refused(make_store):
  store = make_store(documents_of([3, 5]))
  assert len(make(store, 8)) == 1
  with pytest.raises(
    schema.ConfigError, match=r"seq_len` must be at most.*got 9 with 8\."
  ):
    make(store, 9)


def test_a_policy_that_drops_everything_is_refused(make_store):
  store = make_store(documents_of([5, 7]))
  with pytest.raises(
    schema.ConfigError, match=r"got 4 with 0 \(12 more in long documents\)"
  ):
    make(store, 4, long_documents="drop")


@pytest.mark.parametrize(
  ("options", "message"),
  [
    (
      {"packing_max_docs_per_bin": 0},
      r"`rows\.packing_max_docs_per_bin` must be .*at least 1.*got 0",
    ),
    (
      {"packing_buffer_docs": 0},
      r"`rows\.packing_buffer_docs` must be .*1 .*got 0",
    ),
    (
      {"packing_algorithm": "exact", "packing_max_docs_per_bin": 4},
      r"`rows\.packing_max_docs_per_bin` must be None with .*'exact', got 4",
    ),
    (
      {"document_block": 3, "packing_buffer_docs": 8},
      r"`rows\.document_block` must divide packing_buffer_docs, got 3 and 8",
    ),
    (
      {"packing_algorithm": "best_fit"},
      r"`rows\.packing_algorithm` must be .*'ffd', 'exact'.*got 'best_fit'",
    ),
    (
      {"long_documents": "split"},
      r"`rows\.long_documents` must be .*'truncate'.*got 'split'",
    ),
  ],
  ids=str,
)
def test_options_out_of_range_are_named(make_store, options, message):
  with pytest.raises(schema.ConfigError, match=message):
    make(make_store(documents_of([3, 5])), 4, **options)


@pytest.mark.parametrize("kind", ["bos", "eos"])
def test_tokens_that_documents_have_already_are_not_added(make_store, kind):
  store = make_store(documents_of([3, 5]), **{f"adds_{kind}": True})
  make(store, 4)
  with pytest.raises(
    schema.ConfigError, match=f"add_{kind}` must be False.*{kind.upper()} alre"
  ):
    make(store, 4, **{f"add_{kind}": True})


def test_what_every_epoch_costs_is_said_at_start(make_store, caplog):
  store = make_store(documents_of([3, 5]))
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
  store = make_store(documents_of([3, 5]))
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
  assert set(other) == {f.name for f in dataclasses.fields(sources.BinOptions)}
  prints = {repr(make(store, 3, **{k: v})) for k, v in other.items()}
  prints |= {repr(make(store, 3)), repr(make(store, 3, seed=1))}
  assert len(prints) == len(other) + 2
  assert repr(make(store, 3)) in prints
