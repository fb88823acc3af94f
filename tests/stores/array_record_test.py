# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""ArrayRecord corpora give the rows of the equal store, or a clear error."""

import itertools
import logging
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import threading

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import stores
from chomp_data.stores import base as store_base
from chomp_data.stores.array_record import record_files
from chomp_data.testing import stores as testing_stores
from tests import laws
from tests.stores import copies_test

LENGTHS = [5, 0, 700, 3, 4000, 1, 90, 0, 1200, 33, 0]
FORMS = [("uint16", 1), ("uint32", 3), ("int32", 64)]


def documents_of(lengths, seed=0, vocab_size=256):
  rng = np.random.default_rng(seed)
  return [rng.integers(0, vocab_size, n) for n in lengths]


read_all = copies_test.held
open_corpus = testing_stores.open_array_records


@pytest.fixture
def make(tmp_path):
  """Writes documents as a corpus; returns it opened."""
  number = itertools.count()

  def build(documents, dtype="uint16", cache_bytes=1 << 20, **form):
    path = tmp_path / f"corpus{next(number)}"
    testing_stores.make_array_records(path, documents, dtype=dtype, **form)
    return open_corpus(path, dtype, cache_bytes=cache_bytes)

  return build


@pytest.fixture(scope="module", params=FORMS, ids=lambda form: form[0])
def pair(request, tmp_path_factory):
  """A corpus of three files and the store of the same documents."""
  directory = tmp_path_factory.mktemp("pair")
  documents = documents_of(LENGTHS)
  dtype, group_size = request.param
  testing_stores.make_array_records(
    directory / "corpus",
    documents,
    dtype=dtype,
    files=3,
    group_size=group_size,
    compression="zstd" if group_size > 1 else "uncompressed",
  )
  corpus = open_corpus(directory / "corpus", dtype, cache_bytes=1 << 12)
  return corpus, testing_stores.make_store(directory / "store", documents)


@pytest.fixture
def log(caplog):
  """Returns the messages logged since the last call."""
  caplog.set_level(logging.INFO, "absl")

  def messages():
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found

  return messages


def index_of(path):
  """Returns the one index of a corpus."""
  (found,) = pathlib.Path(f"{path}.index").glob("array_record-*")
  return found


def lists_of(documents):
  return [document.tolist() for document in documents]


# --- the same as the equal store -------------------------------------------


def test_documents_are_those_of_the_equal_store(pair):
  corpus, store = pair
  assert corpus.num_documents == store.num_documents == len(LENGTHS)
  assert corpus.num_tokens == store.num_tokens == sum(LENGTHS)
  assert corpus.opened.tokenizer.vocab_size == store.opened.tokenizer.vocab_size
  assert corpus.opened.chunk_tokens == 256 * 1024
  assert read_all(corpus) == read_all(store)
  wanted = np.asarray([10, 0, 4, 4, 1])
  for got, expected in zip(
    corpus.bounds(wanted), store.bounds(wanted), strict=True
  ):
    assert got.tolist() == expected.tolist()
  for batch in (1, 4, 100):
    parts = list(corpus.iter_lengths(batch))
    assert [first for first, _ in parts] == list(range(0, 11, batch))
    assert np.concatenate([part for _, part in parts]).tolist() == LENGTHS


def test_whatever_a_store_tells_a_corpus_tells(pair):
  for name, value in vars(stores.Store).items():
    # Who made the ids, nobody said.
    if name.startswith("_") or name == "tokenizer_identity":
      continue
    if isinstance(value, property):
      assert getattr(pair[0], name) is not None, name


def spans_within(size):
  start = st.integers(0, size)
  return st.lists(
    start.flatmap(
      lambda s: st.tuples(
        st.just(s), st.integers(0, size - s) | st.integers(0, min(9, size - s))
      )
    ),
    max_size=12,
  )


@hypothesis.given(spans=spans_within(sum(LENGTHS)))
def test_any_spans_are_those_of_the_equal_store(pair, spans):
  corpus, store = pair
  starts = np.asarray([start for start, _ in spans], np.int64)
  lengths = np.asarray([length for _, length in spans], np.int64)
  assert (
    corpus.read_tokens(starts, lengths).tolist()
    == store.read_tokens(starts, lengths).tolist()
  )


@laws.examples(60)
@hypothesis.given(data=st.data())
def test_any_corpus_reads_back(tmp_path_factory, data):
  lengths = data.draw(st.lists(st.integers(0, 40), max_size=30))
  documents = documents_of(lengths)
  path = tmp_path_factory.mktemp("any") / "corpus"
  testing_stores.make_array_records(
    path,
    documents,
    files=data.draw(st.integers(1, 4)),
    group_size=data.draw(st.integers(1, 5)),
  )
  corpus = open_corpus(path, cache_bytes=data.draw(st.integers(0, 2000)))
  whole = np.concatenate([np.zeros(0, int), *documents])
  spans = data.draw(spans_within(len(whole)))
  starts = np.asarray([start for start, _ in spans], np.int64)
  sizes = np.asarray([length for _, length in spans], np.int64)
  corpus.prefetch(starts, sizes)
  expected = [whole[s : s + n] for s, n in spans]
  got = corpus.read_tokens(starts, sizes).tolist()
  assert got == np.concatenate([whole[:0], *expected]).tolist()
  assert read_all(corpus) == lists_of(documents)
  shutil.rmtree(path.parent)


@pytest.mark.parametrize(
  "span", [(-1, 2, 0), (5, -1, 0), (6030, 3, 0), (0, 4, 5), (0, 4, -1)]
)
def test_a_span_out_of_bounds_is_refused(pair, span):
  start, length, position = (np.asarray([value]) for value in span)
  for store in pair:
    out = np.zeros(8, np.int32)
    with pytest.raises(IndexError, match="span 0 must be within"):
      store.copy_tokens(start, length, out, position)
    assert not out.any()


def test_empty_corpora_open(make):
  for documents in ([], [[]], [[], []]):
    corpus = make(documents)
    assert (corpus.num_documents, corpus.num_tokens) == (len(documents), 0)
    assert read_all(corpus) == [[] for _ in documents]
    assert corpus.read_tokens(np.zeros(0, int), np.zeros(0, int)).tolist() == []
    corpus.prefetch(np.zeros(2, int), np.zeros(2, int))


def test_offsets_of_many_pages_are_right(make):
  # A page of offsets is 131,072 documents.
  lengths = np.random.default_rng(0).integers(0, 4, 150_000)
  documents = np.split(np.arange(lengths.sum()) % 251, np.cumsum(lengths)[:-1])
  corpus = make(documents, files=3, group_size=1000, cache_bytes=1 << 14)
  spans = np.asarray([0, 131_000, 196_600, corpus.num_tokens - 9])
  got = corpus.read_tokens(spans, np.full(4, 9)).reshape(4, 9)
  assert got.tolist() == ((spans[:, None] + np.arange(9)) % 251).tolist()
  wanted = np.asarray([131_070, 131_071, 131_072, 149_999])
  assert corpus.bounds(wanted)[1].tolist() == lengths[wanted].tolist()
  assert corpus.document_ids([149_999])[0].endswith(
    "-00002-of-00003.array_record:49999"
  )


# --- identity ---------------------------------------------------------------


def test_the_hash_is_of_content_and_not_of_files(make, tmp_path):
  documents = documents_of([4, 0, 9, 2])
  corpus = make(documents)
  same = [
    make(documents, files=3),
    make(documents, files=1, group_size=4, compression="zstd"),
  ]
  assert {store.hash for store in same} == {corpus.hash}
  moved = shutil.copytree(corpus.path, tmp_path / "moved")
  for i, file in enumerate(sorted(moved.iterdir())):
    file.rename(moved / f"{i}.arrayrecord")
  assert open_corpus(moved).hash == corpus.hash


def test_the_hash_tells_different_corpora_apart(make):
  one, two = documents_of([4, 9])
  changed = two.copy()
  changed[3] ^= 1
  hashes = [
    make(documents, dtype).hash
    for documents, dtype in (
      ([one, two], "uint16"),
      ([one, two], "int32"),
      ([two, one], "uint16"),
      ([one, changed], "uint16"),
      ([one, two[:1], two[1:]], "uint16"),
      ([one, two, []], "uint16"),
      ([np.concatenate([one, two[:1]]), two[1:]], "uint16"),
    )
  ]
  corpus = make([one, two])
  for change in ({"vocab_size": 300}, {"eos_id": None}, {"tokenizer": "a"}):
    hashes.append(open_corpus(corpus.path, **change).hash)
  assert len(set(hashes)) == len(hashes)
  assert hashes[0] == corpus.hash


def test_options_are_the_tokenizer_of_the_store(tmp_path):
  testing_stores.make_array_records(tmp_path / "corpus", [[2]])
  options = stores.ArrayRecordOptions(
    token_dtype="uint16",
    vocab_size=256,
    eos_id=1,
    bos_id=3,
    adds_bos=True,
    tokenizer="bytes",
  )
  info = stores.open_store(
    tmp_path / "corpus", array_record=options
  ).opened.tokenizer
  assert (info.pad_id, info.eos_id, info.bos_id) == (None, 1, 3)
  assert (info.adds_bos, info.adds_eos) == (True, False)
  assert info.kind == "custom"


def test_document_ids_name_file_and_record(make):
  corpus = make(documents_of([1, 2, 3, 0, 5]), files=2)
  first, second = corpus.files
  assert corpus.document_ids([0, 2, 4, 3]) == [
    f"{first}:0", f"{first}:2", f"{second}:1", f"{second}:0"
  ]  # fmt: skip
  wrong = [
    f"{second}:2", f"{first}:01", f"{first}:-1", f"{first}:x", "x:0", "", "0",
    f"{first}:\u0663",
  ]  # fmt: skip
  ids = [corpus.document_ids([i])[0] for i in range(5)]
  assert corpus.opened.ids.find([*ids, *wrong]) == {
    **{name: [i] for i, name in enumerate(ids)},
    **{name: [] for name in wrong},
  }
  with pytest.raises(IndexError, match="got 5"):
    corpus.document_ids([5])[0]


def test_a_file_and_a_glob_open_as_their_documents(make):
  documents = documents_of([1, 2, 3, 4, 5, 6])
  path = pathlib.Path(make(documents, files=3).path)
  names = sorted(file.name for file in path.glob("*.array_record"))
  one = open_corpus(path / names[1])
  assert read_all(one) == lists_of(documents[2:4])
  assert one.document_ids([0])[0] == f"{names[1]}:0"
  some = open_corpus(f"{path}/documents-0000[02]*")
  assert read_all(some) == lists_of(documents[:2] + documents[4:])
  every = open_corpus(f"{path.parent}/*/*-00002-of-*")
  assert every.document_ids([1])[0] == f"{path.name}/{names[2]}:1"


def test_what_a_corpus_has_not_is_said(make):
  corpus = make([[1]])
  assert corpus.opened.token_dtype == np.dtype("<u2")
  assert not hasattr(corpus, "manifest")
  assert corpus.opened.tokenizer_identity is None
  named = open_corpus(corpus.path, tokenizer="gpt")
  assert named.opened.tokenizer_identity == ("name", "gpt")
  with pytest.raises(stores.StoreError, match="tokenizer"):
    store_base.tokenizer_file(corpus)


# --- the index --------------------------------------------------------------


def test_a_second_open_builds_nothing(make, log):
  documents = documents_of([30, 0, 20])
  corpus = make(documents)
  assert any("indexed 3 documents of 50 tokens" in line for line in log())
  made = index_of(corpus.path).stat()
  again = open_corpus(corpus.path)
  assert read_all(again) == lists_of(documents)
  assert again.hash == corpus.hash
  assert not any("index" in line for line in log())
  assert index_of(corpus.path).stat() == made


@pytest.mark.parametrize("change", ["grown", "touched", "extra", "renamed"])
def test_a_stale_index_is_built_again(make, log, change):
  corpus = make(documents_of([30, 0, 20]), files=1)
  (file,) = pathlib.Path(corpus.path).iterdir()
  documents = documents_of([30, 0, 20])
  if change == "grown":
    documents = documents_of([30, 0, 20, 7])
    shutil.rmtree(corpus.path)
    testing_stores.make_array_records(corpus.path, documents, files=1)
  elif change == "touched":
    os.utime(file, ns=(0, 1))
  elif change == "extra":
    shutil.copy(file, file.with_name("zz.array_record"))
    documents *= 2
  else:
    file.rename(file.with_name("a.array_record"))
  log()
  again = open_corpus(corpus.path)
  assert any("indexed" in line for line in log())
  assert read_all(again) == lists_of(documents)
  same = change in ("touched", "renamed")
  assert (again.hash == corpus.hash) == same


def test_a_damaged_index_is_built_again(make, log):
  documents = documents_of([30, 0, 20])
  corpus = make(documents)
  rng = np.random.default_rng(0)
  for file in sorted(index_of(corpus.path).iterdir()):
    data = file.read_bytes()
    for offset in range(0, len(data), max(1, len(data) // 12)):
      bad = bytearray(data)
      bad[offset] ^= 1 << rng.integers(8)
      (index_of(corpus.path) / file.name).write_bytes(bad)
      log()
      again = open_corpus(corpus.path)
      assert read_all(again) == lists_of(documents), (file, offset)
      assert again.hash == corpus.hash
      lines = log()
      assert any("is built again" in line for line in lines), (file, offset)
      assert any("indexed" in line for line in lines)
    for damage in (data[:-1], b"", data + b"\0"):
      (index_of(corpus.path) / file.name).write_bytes(damage)
      assert open_corpus(corpus.path).hash == corpus.hash
    (index_of(corpus.path) / file.name).unlink()
    assert open_corpus(corpus.path).hash == corpus.hash
    assert (index_of(corpus.path) / file.name).read_bytes() == data


def test_an_altered_page_of_a_large_index_is_an_error(make, monkeypatch):
  corpus = make(documents_of([30, 0, 20]))
  # Larger ones are checked page by page.
  monkeypatch.setattr("chomp_data.stores.side_index.CHECKED_AT_OPEN", 0)
  for name, words in (("offsets", "<i8"), ("crc32c", "<u4")):
    file = index_of(corpus.path) / f"{name}.bin"
    data = file.read_bytes()
    values = np.frombuffer(data, words).copy()
    values[1] ^= 1
    file.write_bytes(values.tobytes())
    with pytest.raises(stores.StoreError, match=str(file)):
      read_all(open_corpus(corpus.path))
    if name == "offsets":
      with pytest.raises(stores.StoreError, match=str(file)):
        list(open_corpus(corpus.path).iter_lengths())
    file.write_bytes(data)
  read_all(open_corpus(corpus.path))


def test_an_index_goes_elsewhere_where_it_cannot_be_beside(
  make, tmp_path, monkeypatch, log
):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  path = pathlib.Path(make(documents_of([3])).path)
  shutil.rmtree(f"{path}.index")
  pathlib.Path(f"{path}.index").write_text("in the way")
  log()
  corpus = open_corpus(path)
  assert read_all(corpus) == lists_of(documents_of([3]))
  assert any(f"{path}.index" in line for line in log())
  assert list((tmp_path / "cache").rglob("array_record-*/offsets.bin"))
  assert read_all(pickle.loads(pickle.dumps(corpus))) == read_all(corpus)
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
  open_corpus(path, index_dir=tmp_path / "own")
  assert list((tmp_path / "own").rglob("offsets.bin"))


SCRIPT = """
import sys
from absl import logging
from chomp_data import stores
logging.set_verbosity("info")
options = stores.ArrayRecordOptions(token_dtype="uint16", vocab_size=256)
print(stores.open_array_records(sys.argv[1], options).hash)
"""


def test_two_processes_at_once_build_one_index(tmp_path):
  path = tmp_path / "corpus"
  testing_stores.make_array_records(path, documents_of([300] * 40_000), files=4)
  processes = [
    subprocess.Popen(
      [sys.executable, "-c", SCRIPT, str(path)],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for _ in range(2)
  ]
  done = [process.communicate(timeout=60) for process in processes]
  assert [process.returncode for process in processes] == [0, 0], done
  assert done[0][0] == done[1][0] != ""
  built = [err.count("indexed 40000 documents") for _, err in done]
  assert sorted(built) == [0, 1], done
  assert os.listdir(index_of(path).parent) == [index_of(path).name]


# --- processes and memory ---------------------------------------------------


def test_a_pickled_corpus_is_small_and_opens_at_first_use(make):
  corpus = make(documents_of(LENGTHS))
  corpus.set_cache(4096)
  data = pickle.dumps(corpus)
  assert len(data) < 700
  script = (
    "import pickle, sys\n"
    "from chomp_data.stores import base\n"
    "store = pickle.loads(sys.stdin.buffer.read())\n"
    "assert 'opened' not in vars(store)\n"
    "print(store.hash, base.read_document(store, 6).tolist())\n"
    "assert base.cache_bytes([store]) == [4096]\n"
    "assert 'tensorstore' not in sys.modules and 'jax' not in sys.modules\n"
  )
  done = subprocess.run(
    [sys.executable, "-c", script], input=data, capture_output=True, check=True
  )
  expected = f"{corpus.hash} {stores.read_document(corpus, 6).tolist()}\n"
  assert done.stdout.decode() == expected


def test_files_replaced_behind_a_pickle_are_refused(make, log):
  corpus = make(documents_of([4, 5]))
  data = pickle.dumps(corpus)
  shutil.rmtree(corpus.path)
  testing_stores.make_array_records(corpus.path, documents_of([4, 6]))
  log()
  with pytest.raises(stores.StoreError, match=corpus.path):
    _ = pickle.loads(data).num_documents
  assert not any("indexing" in line for line in log())
  # Also where the other files have an index by then.
  other = open_corpus(corpus.path)
  with pytest.raises(stores.StoreError, match=other.hash):
    _ = pickle.loads(data).num_documents


def test_blocks_are_fetched_once_while_they_fit_the_cache(make):
  documents = documents_of([700] * 20)
  corpus = make(documents)
  starts, lengths = np.arange(0, 14_000, 100), np.full(140, 100)
  first = corpus.read_tokens(starts, lengths)
  assert corpus.counters.chunks_fetched == 20
  assert corpus.counters.bytes_fetched == 2 * 14_000
  assert corpus.read_tokens(starts, lengths).tolist() == first.tolist()
  assert corpus.counters.chunks_fetched == 20
  assert corpus.counters.spans == corpus.counters.logical_reads == 280
  assert corpus.counters.cache_hits == corpus.counters.chunk_requests - 20
  corpus.set_cache(0)
  for start in (0, 700, 0, 650):
    corpus.read_tokens(np.asarray([start]), np.asarray([100]))
  # The last span is of both blocks, one of which is the one that is kept.
  assert corpus.counters.chunks_fetched == 20 + 4


def test_what_was_prefetched_is_not_fetched_again(make):
  corpus = make(documents_of([700] * 20), cache_bytes=8 * 1400)
  starts, lengths = np.arange(700, 8400, 700), np.full(11, 600)
  corpus.read_tokens(starts[9:], lengths[9:])
  before = corpus.counters.snapshot()
  corpus.prefetch(starts, lengths)
  ahead = corpus.counters - before
  # Two of the eleven were there, and all that is planned stays.
  assert (ahead.chunks_fetched, ahead.coalesced_ranges) == (6, 11)
  for number, start in enumerate(starts[:8].tolist()):
    fetched = corpus.counters.chunks_fetched
    corpus.read_tokens(np.asarray([start]), np.asarray([600]))
    assert corpus.counters.chunks_fetched - fetched == (number >= 6)
    # A block of another place evicts none that is still to come.
    corpus.read_tokens(np.asarray([13_000]), np.asarray([5]))
  assert (corpus.counters - before).chunks_fetched <= 8 + 8


def test_what_an_earlier_prefetch_left_goes_before_what_is_in_use(make):
  corpus = make(documents_of([700] * 20), cache_bytes=8 * 1400)

  def read(documents):
    before = corpus.counters.chunks_fetched
    starts = np.asarray(documents) * 700
    corpus.read_tokens(starts, np.full(len(starts), 700))
    return corpus.counters.chunks_fetched - before

  corpus.prefetch(np.arange(4) * 700, np.full(4, 700))
  corpus.prefetch(np.arange(4, 8) * 700, np.full(4, 700))
  assert read([4, 5, 6, 7]) == 0
  assert read([10, 11]) == 2
  assert read([4, 5, 6, 7, 10, 11]) == 0


@pytest.mark.parametrize(
  ("group_size", "records"), [(1, 51), (8, 56), (64, 64)]
)
def test_short_documents_are_read_together(make, group_size, records):
  corpus = make(documents_of([10] * 1000), files=1, group_size=group_size)
  corpus.read_tokens(np.asarray([20]), np.asarray([20]))
  assert corpus.counters.chunks_fetched == 1
  assert corpus.counters.bytes_fetched == records * 10 * 2


def test_few_files_are_open_at_once(make):
  documents = documents_of([5] * 12)
  corpus = make(documents, files=6)
  readers = record_files.Readers(corpus.opened.corpus, max_open=2)
  for file in (0, 1, 2, 1, 5, 0):
    assert readers.get(file).num_records == 2
    assert len(readers) <= 2
  assert readers.get(0) is readers.get(0)


def test_threads_read_what_one_reads(make):
  documents = documents_of([50, 700, 0, 3] * 50)
  corpus = make(documents, files=4, cache_bytes=4096)
  whole = np.concatenate(documents)
  wrong = []

  def read(seed):
    rng = np.random.default_rng(seed)
    for _ in range(40):
      starts = rng.integers(0, len(whole) - 300, 8)
      got = corpus.read_tokens(starts, np.full(8, 300)).reshape(8, 300)
      if (got != whole[starts[:, None] + np.arange(300)]).any():
        wrong.append(starts)

  threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not wrong


@pytest.mark.parametrize("most", [250, 30_000, 60_000, 200_000])
@pytest.mark.parametrize("wrote", ["uint16", "uint32", "int32"])
def test_records_of_another_token_dtype_are_refused(tmp_path, wrote, most):
  if wrote == "uint16" and most > 2**16:
    return
  rng = np.random.default_rng(0)
  documents = [rng.integers(3, most, n) for n in (5, 1, 40, 7, 0, 80)]
  testing_stores.make_array_records(tmp_path / "r", documents, dtype=wrote)
  for read in ("uint16", "uint32", "int32"):
    options = stores.ArrayRecordOptions(
      token_dtype=read, vocab_size=most if read != "uint16" else 65_536
    )
    if np.dtype(read).itemsize == np.dtype(wrote).itemsize:
      store = stores.open_store(tmp_path / "r", array_record=options)
      for document, tokens in enumerate(documents):
        np.testing.assert_array_equal(
          stores.read_document(store, document), tokens
        )
      continue
    with pytest.raises(stores.StoreError, match=r"`token_dtype`"):
      stores.open_store(tmp_path / "r", array_record=options)


@pytest.mark.parametrize(
  "documents",
  [
    # A word and the end, of id 0.
    [[n, 0] for n in range(1, 90)],
    [[5, 0, 7, 0], [9, 0]],
    [[0] * 40] * 3,
    [[3, 4, 5, 0, 7, 0] * 9],
    [[n % 250 + 3, n % 5] for n in range(400)],
    [[n % 250 + 3, n % 5] * 4 for n in range(400)],
  ],
)
def test_narrow_records_are_not_taken_for_halves(tmp_path, documents):
  testing_stores.make_array_records(tmp_path / "r", documents)
  store = testing_stores.open_array_records(tmp_path / "r")
  for document, tokens in enumerate(documents):
    np.testing.assert_array_equal(stores.read_document(store, document), tokens)
