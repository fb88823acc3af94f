# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A damaged or wrong ArrayRecord corpus is a clear error, and never silent."""

import os
import pathlib
import pickle
import shutil

import numpy as np
import pytest

from chomp_data import stores
from chomp_data.errors import ConfigError
from chomp_data.errors import StoreError
from chomp_data.storage import publish
from chomp_data.testing import stores as testing_stores
from tests.stores import array_record_test
from tests.stores import copies_test

open_corpus = testing_stores.open_array_records
make = array_record_test.make
documents_of = array_record_test.documents_of
lists_of = array_record_test.lists_of
read_all = copies_test.held


def test_other_contents_of_the_same_size_time_and_ends_are_refused(make):
  # Uncompressed, the last records do not end in the first or last 64 KiB.
  documents = documents_of([200_000] * 3)
  corpus = make(documents, files=1)
  (file,) = pathlib.Path(corpus.path).iterdir()
  time = file.stat().st_mtime_ns
  other = [document.copy() for document in documents]
  other[1][100_000] ^= 1
  shutil.rmtree(corpus.path)
  testing_stores.make_array_records(corpus.path, other, files=1)
  os.utime(file, ns=(time, time))
  again = open_corpus(corpus.path)
  assert again.hash == corpus.hash
  assert stores.read_document(again, 0).tolist() == documents[0].tolist()
  with pytest.raises(stores.StoreError, match=rf"{file}: record 1 must be of"):
    stores.read_document(again, 1)
  # As the message says: without the index, it is another corpus.
  shutil.rmtree(f"{corpus.path}.index")
  assert open_corpus(corpus.path).hash != corpus.hash


def test_other_records_of_the_same_size_are_damage_unless_they_are_new(make):
  documents = documents_of([200_000] * 3)
  corpus = make(documents, files=1)
  (file,) = pathlib.Path(corpus.path).iterdir()
  before = file.stat()
  whole = np.concatenate(documents)
  other = np.split(whole, [200_000, 400_010])
  shutil.rmtree(corpus.path)
  testing_stores.make_array_records(corpus.path, other, files=1)
  os.utime(file, ns=(before.st_mtime_ns, before.st_mtime_ns))
  assert file.stat().st_size == before.st_size
  with pytest.raises(stores.StoreError, match=f"{file}: record 1 must be of"):
    read_all(open_corpus(corpus.path))
  os.utime(file)
  again = open_corpus(corpus.path)
  assert read_all(again) == lists_of(other)
  assert again.hash != corpus.hash


def test_files_of_an_index_are_not_read_to_open_them(make, monkeypatch):
  documents = documents_of([30] * 8)
  corpus = make(documents, files=4)
  opened, open_file = [], publish.open_file
  monkeypatch.setattr(
    publish, "open_file", lambda path: opened.append(path) or open_file(path)
  )
  again = open_corpus(corpus.path)
  assert again.hash == corpus.hash
  assert not [path for path in opened if ".array_record" in str(path)]
  assert read_all(again) == lists_of(documents)
  # Another time may be another file: its ends are read, and it is indexed.
  (first, *_) = sorted(pathlib.Path(corpus.path).iterdir())
  os.utime(first)
  assert open_corpus(corpus.path).hash == corpus.hash
  assert [path for path in opened if ".array_record" in str(path)]


def test_a_file_replaced_under_an_open_corpus_is_refused(make):
  corpus = make(documents_of([4, 5, 6]), files=1)
  (file,) = pathlib.Path(corpus.path).iterdir()
  shutil.rmtree(corpus.path)
  testing_stores.make_array_records(corpus.path, documents_of([4, 5]), files=1)
  with pytest.raises(stores.StoreError, match=f"{file}: must have 3 records"):
    stores.read_document(corpus, 0)


def test_a_file_that_vanished_is_named(make):
  corpus = make(documents_of([4, 5, 6]), files=2)
  file = sorted(pathlib.Path(corpus.path).iterdir())[1]
  file.unlink()
  with pytest.raises(stores.StoreError, match=str(file)):
    stores.read_document(corpus, 2)
  # The numbers in names tell that one is missing.
  with pytest.raises(stores.StoreError, match=f"{file} must exist"):
    open_corpus(corpus.path)
  with pytest.raises(stores.StoreError, match=f"{file} must exist"):
    _ = pickle.loads(pickle.dumps(corpus)).num_documents


def test_a_wrong_token_dtype_is_refused(make, tmp_path):
  path = tmp_path / "corpus"
  testing_stores.make_array_records(path, [[1, 2], [1, 2, 3]], files=1)
  file = path / "documents-00000-of-00001.array_record"
  with pytest.raises(
    stores.StoreError, match=rf"{file}: record 1 must .*uint32.* got 6 bytes"
  ):
    open_corpus(path, "uint32")
  shutil.rmtree(path)
  testing_stores.make_array_records(path, [[1], [5, 2]], files=1)
  with pytest.raises(stores.StoreError, match=rf"{file}.*record 0 .*uint32"):
    open_corpus(path, "uint32")


@pytest.mark.parametrize("group_size", [1, 3])
def test_an_id_beyond_the_vocabulary_is_named(tmp_path, group_size):
  path = tmp_path / "corpus"
  # More than the records of the pass's first part.
  rest = [[9]] * 50
  documents = [[1], *rest, [], [3], [5], [0, 255], [254, 9, 255], *rest]
  testing_stores.make_array_records(
    path, documents, files=2, group_size=group_size
  )
  file = path / "documents-00001-of-00002.array_record"
  match = rf"{file}: ids of record 1 must be in 0 .. 254, got 255"
  for vocab_size in (255, 256, 255):
    # Before there is an index, and against the index.
    if vocab_size == 256:
      assert open_corpus(path, vocab_size=256).num_tokens == 108
    else:
      with pytest.raises(stores.StoreError, match=match):
        open_corpus(path, vocab_size=vocab_size)


def test_a_negative_id_is_named(tmp_path):
  path = tmp_path / "corpus"
  documents = [[1], [3, 250, -7]]
  testing_stores.make_array_records(path, documents, dtype="int32", files=1)
  with pytest.raises(stores.StoreError, match=r"00001\.array.*record 1 .*-7"):
    open_corpus(path, "int32")


@pytest.mark.parametrize(
  ("changes", "error", "match"),
  [
    (
      {"vocab_size": 2**16 + 1},
      StoreError,
      r"vocab_size` must be at most 65536",
    ),
    ({"token_dtype": "int64"}, ConfigError, r"token_dtype` must .*got 'int64'"),
    ({"vocab_size": 0}, ConfigError, r"vocab_size` must be .*got 0"),
    ({"pad_id": 256}, StoreError, r"pad_id` must be below `vocab_size` 256"),
    ({"eos_id": None, "adds_eos": True}, StoreError, r"eos_id` must be set"),
    ({"adds_bos": 1}, ConfigError, r"adds_bos` must be True or False, got 1"),
  ],
)
def test_wrong_options_are_named(tmp_path, changes, error, match):
  values = {"token_dtype": "uint16", "vocab_size": 256, "eos_id": 1, **changes}
  with pytest.raises(error, match=match):
    stores.open_array_records(
      tmp_path / "none", stores.ArrayRecordOptions(**values)
    )


def test_ids_of_a_full_uint16_vocabulary_are_right(tmp_path):
  path = testing_stores.make_array_records(tmp_path / "c", [[65_535, 0]])
  corpus = open_corpus(path, vocab_size=2**16)
  assert stores.read_document(corpus, 0).tolist() == [65_535, 0]


def test_places_without_a_corpus_are_refused(tmp_path):
  (tmp_path / "empty").mkdir()
  (tmp_path / "text.array_record").write_text("no records at all")
  (tmp_path / "nothing.array_record").write_bytes(b"")
  for path, match in (
    (tmp_path / "empty", r"must hold ArrayRecord files .*got none"),
    (tmp_path / "missing", r"missing must be readable"),
    (f"{tmp_path}/*.arrayrecord", r"must hold ArrayRecord files .*got none"),
    (tmp_path / "text.array_record", r"text.array_record must be a complete"),
    (tmp_path / "nothing.array_record", r"nothing.array_record must be a comp"),
    ("gs://bucket/corpus", r"local directory, got 'gs://bucket/corpus'"),
  ):
    with pytest.raises(stores.StoreError, match=match):
      open_corpus(path)


@pytest.mark.parametrize(
  ("numbers", "missing"),
  [
    ([0, 1, 2], None),
    ([1, 2, 3], None),
    ([0, 2], "00001-of-00003"),
    ([1, 2], "00000-of-00003"),
    ([2, 3], "00001-of-00003"),
    ([0, 1, 2, 3], "00003-of-00003 must not"),
    ([0, 1, 2, 7], "00007-of-00003 must not"),
  ],
)
def test_numbered_files_must_be_all_there(make, tmp_path, numbers, missing):
  path = pathlib.Path(make([[1]], files=1).path)
  (file,) = path.iterdir()
  for i in numbers:
    shutil.copy(file, path / f"x.array_record-{i:05}-of-00003")
  if missing is None:
    assert open_corpus(path).num_documents == 4
  else:
    with pytest.raises(stores.StoreError, match=f"x.array_record-{missing}"):
      open_corpus(path)
    assert open_corpus(f"{path}/x*").num_documents == len(numbers)


def test_a_name_may_claim_any_number_of_files(tmp_path):
  path = pathlib.Path(testing_stores.make_array_records(tmp_path / "c", [[1]]))
  for file in path.iterdir():
    file.rename(path / file.name.replace("00002", "99999999999"))
  with pytest.raises(stores.StoreError, match="00002-of-99999999999"):
    open_corpus(path)
