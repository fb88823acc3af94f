# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The index of packed windows: built once, and not trusted blindly."""

import os
import pathlib
import pickle
import shutil

import numpy as np
import pytest

import chomp_data
from chomp_data import stores
from chomp_data.pack import packing
from chomp_data.pack import window_packing
from chomp_data.sources import mix_units
from chomp_data.stores import side_index
from tests.pack import packed

LENGTHS = [3, 5, 2, 4] * 8


def make(store, seq_len=8, seed=0, name="bin", **options):
  return chomp_data.BinSource(
    store,
    chomp_data.BinOptions(**{"packing_buffer_docs": 8, **options}),
    seq_len=seq_len,
    seed=seed,
    name=name,
  )


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


def index_of(store, name="ffd"):
  """Returns the directory of the one index of a store and a packing."""
  (directory,) = pathlib.Path(f"{store.path}.index").glob(f"{name}-*")
  return directory


def test_an_index_is_built_once(make_store, windows_packed):
  store = make_store(packed.documents_of(LENGTHS))
  first = make(store)
  assert windows_packed == [8] * 4
  rows = np.arange(2 * len(first))
  expected = packed.read(first, rows)
  for _ in range(2):
    again = make(stores.open_store(store.path))
    packed.check_fields(packed.read(again, rows), expected)
  copy = pickle.loads(pickle.dumps(first))
  packed.check_fields(packed.read(copy, rows), expected)
  # What rows look like is not what was packed where.
  make(store, seed=9, filler="eos", shuffle_rows=False)
  assert len(windows_packed) == 4


FULL = {"shuffle_documents": "full"}


@pytest.mark.parametrize(
  ("options", "change"),
  [
    ({}, {"seq_len": 9}),
    ({}, {"packing_buffer_docs": 4}),
    ({}, {"packing_max_docs_per_bin": 1}),
    ({}, {"add_eos": True}),
    ({}, {"add_bos": True}),
    ({"add_bos": True}, {"add_bos": False, "add_eos": True}),
    ({"seq_len": 4}, {"long_documents": "drop"}),
    ({"seq_len": 4}, {"long_documents": "truncate"}),
    ({}, {"shuffle_documents": "block"}),
    ({}, FULL),
    (FULL, {"shuffle_documents": "block"}),
    (FULL, {"seed": 1}),
    (FULL, {"name": "other"}),
    (
      {"shuffle_documents": "block", "document_block": 2},
      {"document_block": 4},
    ),
  ],
  ids=str,
)
def test_an_index_of_other_options_is_not_used(
  make_store, windows_packed, options, change
):
  documents = packed.documents_of(LENGTHS)
  store = make_store(documents)
  make(store, **options)
  del windows_packed[:]
  source = make(store, **{**options, **change})
  assert windows_packed
  # As where there was no other before.
  fresh = make(make_store(documents), **{**options, **change})
  rows = packed.rows_of(fresh)
  packed.check_fields(packed.read(source, rows), packed.read(fresh, rows))


def test_an_index_of_another_store_at_the_same_path_is_not_used(
  make_store, windows_packed
):
  one = make_store(packed.documents_of([3, 5, 2, 4]))
  make(one)
  other = make_store(packed.documents_of([5, 3, 4, 2]))
  expected = packed.read(make(other), [0, 1])
  shutil.rmtree(one.path)
  os.rename(other.path, one.path)
  del windows_packed[:]
  source = make(stores.open_store(one.path))
  assert len(windows_packed) == 1
  packed.check_fields(packed.read(source, [0, 1]), expected)


def test_each_epoch_of_shuffled_documents_has_an_index(
  make_store, windows_packed
):
  store = make_store(packed.documents_of(LENGTHS))
  make(store, **FULL).epochs.first_row(np.asarray([3]))
  assert len(windows_packed) == 12
  make(store, **FULL).epochs.first_row(np.asarray([3]))
  assert len(windows_packed) == 12
  # Without an order of its own for each there is one.
  make(store, reshuffle_documents=False, **FULL).epochs.first_row(
    np.asarray([3])
  )
  assert len(windows_packed) == 12


@pytest.mark.parametrize("name", ["rows", "piece_ends", "bins", "header"])
def test_a_damaged_index_is_built_again(make_store, windows_packed, name):
  store = make_store(packed.documents_of(LENGTHS))
  expected = packed.read(make(store), np.arange(14))
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
    source = make(store)
    assert len(windows_packed) == 4
    packed.check_fields(packed.read(source, np.arange(14)), expected)
    assert file.read_bytes() == data


def test_a_large_index_is_checked_where_it_is_read(make_store, monkeypatch):
  monkeypatch.setattr(side_index, "CHECKED_AT_OPEN", 0)
  store = make_store(packed.documents_of(LENGTHS))
  make(store)
  file = index_of(store) / "bins.bin"
  data = bytearray(file.read_bytes())
  data[40] ^= 1
  file.write_bytes(data)
  source = make(store)
  with pytest.raises(stores.StoreError, match=r"bins\.bin: page 0 must have"):
    source.plan(np.arange(1))
  shutil.rmtree(file.parent)
  assert len(packed.read(make(store), [0])["tokens"]) == 1


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
  store = make_store(packed.documents_of([3, 5, 2, 4] * 2))
  with monkeypatch.context() as patch:
    patch.setattr(
      packing, "first_fit_decreasing", lambda length, *_: packed_as(len(length))
    )
    make(store, packing_buffer_docs=4)
  # Its checksums hold, since a faulty packer wrote it.
  source = make(store, packing_buffer_docs=4)
  with pytest.raises(
    stores.StoreError, match=r"window 0 must pack 4 pieces into \d+ rows of 8"
  ):
    source.plan(np.arange(1))


def test_exact_rows_need_no_index(make_store, windows_packed):
  store = make_store(packed.documents_of(LENGTHS))
  source = make(
    store,
    packing_algorithm="exact",
    shuffle_documents="block",
  )
  source.epochs.first_row(np.asarray([50]))
  assert not windows_packed
  assert not os.path.exists(f"{store.path}.index")
  # And the first rows pack their own windows alone.
  source.plan(np.arange(1))
  assert len(windows_packed) == 1
  assert not os.path.exists(f"{store.path}.index")


def test_a_kept_packing_of_exact_rows_is_read(make_store, windows_packed):
  store = make_store(packed.documents_of([*LENGTHS, 0, 6, 6, 6, 6, 0]))
  exact = {"packing_algorithm": "exact"}
  source = make(store, **exact)
  expected = packed.read(source, np.arange(len(source)))
  report = source.report()
  counts = np.bincount(source.plan(np.arange(len(source))).document)
  assert counts.max() > 1
  source.packing.in_order(0).build_index()
  del windows_packed[:]
  again = make(stores.open_store(store.path), **exact)
  packed.check_fields(packed.read(again, np.arange(len(source))), expected)
  assert again.report() == report
  tokens, trained = (
    again.block_units(0, unit, 4_096).units.sum()
    for unit in ("tokens", "loss_tokens")
  )
  assert tokens - trained == counts.sum()
  assert not windows_packed


@pytest.mark.parametrize("name", ["rows", "piece_ends", "bins"])
def test_a_packing_of_other_exact_rows_is_refused(
  make_store, monkeypatch, name
):
  exact = {"packing_algorithm": "exact", "packing_buffer_docs": 5}
  other, store = (
    make_store(packed.documents_of(lengths))
    for lengths in ([5, 5, 5, 5, 4, 2, 2, 3, 1, 8], [1, 2, 2, 5, 3, 5, 8, 9, 9])
  )
  for own in (other, store):
    make(own, **exact).packing.in_order(0).build_index()
  source = make(store, **exact)
  given = make(other, **exact).packing.in_order(0).build_index()
  mixed = {**source.packing.in_order(0).build_index(), name: given[name]}
  monkeypatch.setattr(side_index, "find", lambda *_: mixed)
  source = make(store, **exact)
  with pytest.raises(
    stores.StoreError, match=r"window \d must pack \d+ pieces"
  ):
    source.plan(np.arange(len(source)))


def in_threads(monkeypatch, count):
  """Lets so many threads pack two windows each, however few there are."""
  monkeypatch.setattr(window_packing, "COMPILED_DOCUMENTS", 0)
  monkeypatch.setattr(window_packing, "WINDOWS", 2)
  monkeypatch.setattr(window_packing, "num_threads", lambda: count)


def files_of(store, name="ffd"):
  files = index_of(store, name).iterdir()
  return {file.name: file.read_bytes() for file in files}


@pytest.mark.parametrize(
  ("algorithm", "threads", "order"),
  [
    ("ffd", 2, "none"), ("ffd", 5, "full"), ("exact", 2, "block"),
    ("exact", 5, "none"),
  ],
)  # fmt: skip
def test_threads_pack_the_same_bytes(
  make_store, tmp_path, monkeypatch, threads, order, algorithm
):
  documents = packed.documents_of([*LENGTHS, 0, 21, 8, 0, 0])
  options = {"shuffle_documents": order, "packing_algorithm": algorithm}
  if algorithm == "ffd":
    options["packing_max_docs_per_bin"] = 3
  store = make_store(documents)
  make(store, **options).packing.in_order(0).build_index()
  expected = files_of(store, algorithm)
  shutil.rmtree(index_of(store, algorithm))
  in_threads(monkeypatch, threads)
  make(stores.open_store(store.path), **options).packing.in_order(
    0
  ).build_index()
  assert files_of(store, algorithm) == expected


@pytest.mark.parametrize(
  ("algorithm", "threads", "fails_at"),
  [
    ("ffd", 1, 1), ("ffd", 3, 5), ("ffd", 1, 7), ("exact", 3, 11),
    ("exact", 1, 7), ("exact", 3, 3),
  ],
)  # fmt: skip
def test_an_interrupted_packing_goes_on(
  make_store, monkeypatch, windows_packed, threads, fails_at, algorithm
):
  """Whatever was kept of it; what was written after that is dropped."""
  store = make_store(packed.documents_of(LENGTHS * 3))

  def pack():
    own = stores.open_store(store.path)
    make(own, packing_algorithm=algorithm).packing.in_order(0).build_index()

  pack()
  expected, total = files_of(store, algorithm), len(windows_packed)
  shutil.rmtree(index_of(store, algorithm))
  in_threads(monkeypatch, threads)
  # Every second time it is asked, so that the last part is not kept.
  clock = iter(range(10**6))
  monkeypatch.setattr(side_index, "RECORD_INTERVAL_S", 1)
  monkeypatch.setattr(side_index.time, "monotonic", lambda: next(clock))
  first_fit = packing.first_fit_decreasing

  def interrupted(*args, **kwargs):
    if len(windows_packed) - total >= fails_at:
      raise KeyboardInterrupt
    return first_fit(*args, **kwargs)

  with monkeypatch.context() as patched:
    patched.setattr(packing, "first_fit_decreasing", interrupted)
    with pytest.raises(KeyboardInterrupt):
      pack()
  del windows_packed[:]
  pack()
  assert files_of(store, algorithm) == expected
  # Parts of two windows, of which the last one, or all, may not be kept.
  ahead = 2 * (2 * threads + 1) if threads > 1 else 0
  assert len(windows_packed) <= total - fails_at + 5 + ahead
  if threads == 1 and fails_at > 5:
    assert len(windows_packed) < total
  own = index_of(store, algorithm)
  assert list(own.parent.iterdir()) == [own]


def kept_sums(store):
  return sorted(pathlib.Path(f"{store.path}.index").glob("row_sums-*"))


@pytest.mark.parametrize("algorithm", ["ffd", "exact"])
def test_what_packed_rows_hold_is_kept_and_packs_no_window_again(
  make_store, monkeypatch, algorithm
):
  sizes = np.random.default_rng(1).integers(0, 20, 60).tolist()
  store = make_store(packed.documents_of(sizes))

  def again():
    return make(
      stores.open_store(store.path),
      packing_algorithm=algorithm,
      shuffle_documents="block",
      reshuffle_documents=False,
      document_block=2,
    )

  source = again()
  epoch, index = 1, np.arange(len(source))
  plan = source.plan(len(source) + index)
  expected = {
    unit: mix_units.planned_units(plan, unit).tolist()
    for unit in ("tokens", "loss_tokens")
  }

  def units(source):
    return {
      unit: source.units(epoch, index, unit).tolist() for unit in expected
    }

  assert units(source) == expected
  # Of 'exact' without a packing there is nothing that would be quicker.
  source.packing.in_order(0).build_index()
  for reader in (again(), again()):
    assert units(reader) == expected
  assert len(kept_sums(store)) == 1

  def refused(*_):
    raise AssertionError("a window is packed")

  monkeypatch.setattr(packing, "cut_pieces", refused)
  assert units(again()) == expected


def test_each_packing_has_sums_of_its_own_rows(make_store):
  store = make_store(packed.documents_of([3, 5, 2, 4, 7, 1] * 20))
  for algorithm in ("ffd", "exact"):
    source = make(store, packing_algorithm=algorithm)
    source.packing.in_order(0).build_index()
    rows = np.arange(len(source))
    expected = mix_units.planned_units(source.plan(rows), "tokens")
    assert source.units(0, rows, "tokens").tolist() == expected.tolist()
  assert len(kept_sums(store)) == 2


def test_orders_that_come_once_keep_no_sums_of_rows(make_store):
  store = make_store(packed.documents_of(LENGTHS))
  source = make(store, **FULL)
  found = source.units(1, np.arange(3), "tokens")
  rows = source.epochs.start(1) + np.arange(3)
  assert (
    found.tolist()
    == mix_units.planned_units(source.plan(rows), "tokens").tolist()
  )
  assert not kept_sums(store)
