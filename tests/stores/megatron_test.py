# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Megatron corpora: pinned to files that Megatron's own builders wrote."""

import os
import pathlib
import shutil

import numpy as np
import pytest

from chomp_data import stores
from chomp_data.kernels import compiled
from chomp_data.storage import checked_file
from chomp_data.stores.tokenized import mapped_tokens
from chomp_data.stores.tokenized import megatron_store
from tests.stores import copies_test

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "megatron"
held = copies_test.held
OPTIONS = {"eos_id": 0, "adds_eos": True}


def documents(vocab_size):
  """What was written, as fixtures/README.md says."""
  rng = np.random.default_rng(7)
  return [
    np.append(rng.integers(1, vocab_size, n), 0) for n in (5, 1, 40, 0, 300, 17)
  ]


@pytest.fixture
def corpus(tmp_path):
  """Returns the path of a copy of a fixture: an index is put beside it."""

  def copy(name):
    for suffix in (".bin", ".idx"):
      shutil.copy(FIXTURES / f"{name}{suffix}", tmp_path)
    return tmp_path / name

  return copy


def opened(path, vocab_size=100_000, **options):
  options = {**OPTIONS, "vocab_size": vocab_size, **options}
  return stores.open_store(
    path, megatron=megatron_store.MegatronOptions(**options)
  )


@pytest.mark.parametrize(
  ("name", "vocab_size", "dtype"),
  [
    ("uint16_document", 50_000, "uint16"),
    ("uint16_sentence", 50_000, "uint16"),
    ("int32_document", 100_000, "int32"),
    ("int32_modes", 100_000, "int32"),
    ("legacy_document", 100_000, "int32"),
  ],
)
@pytest.mark.parametrize("suffix", ["", ".bin", ".idx"])
def test_what_megatron_wrote_is_what_is_read(
  corpus, name, vocab_size, dtype, suffix
):
  store = opened(f"{corpus(name)}{suffix}", vocab_size)
  assert held(store) == [d.tolist() for d in documents(vocab_size)]
  assert store.opened.token_dtype == np.dtype(dtype)
  assert store.num_tokens == sum(map(len, documents(vocab_size)))
  assert store.document_ids([5, 0]) == [f"{name}:5", f"{name}:0"]
  assert store.opened.ids.find([f"{name}:3", "other"]) == {
    f"{name}:3": [3],
    "other": [],
  }
  assert store.opened.tokenizer.adds_eos


def test_sequences_are_documents_on_request(corpus):
  store = opened(corpus("uint16_sentence"), 50_000, boundaries="sequences")
  lengths = np.concatenate([own for _, own in store.iter_lengths()])
  expected = []
  for document in documents(50_000):
    cut = len(document) // 2
    expected += [cut, len(document) - cut] if cut else [len(document)]
  assert lengths.tolist() == expected
  assert store.hash != opened(corpus("uint16_sentence"), 50_000).hash


def test_both_formats_of_the_same_documents_have_one_identity(corpus):
  hashes = {
    opened(corpus(name)).hash
    for name in ("int32_document", "legacy_document", "int32_modes")
  }
  assert len(hashes) == 1


def test_other_bytes_of_the_same_size_and_time_are_an_error(corpus):
  path = corpus("int32_document")
  _ = opened(path)
  for suffix in (".bin", ".idx"):
    file = pathlib.Path(f"{path}{suffix}")
    before = file.read_bytes()
    stat = file.stat()
    changed = bytearray(before)
    changed[len(changed) // 2] ^= 1
    file.write_bytes(changed)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(stores.StoreError, match="when it was indexed"):
      opened(path)
    file.write_bytes(before)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
  assert opened(path).num_documents == 6


@pytest.mark.parametrize("name", ["uint16_document", "legacy_document"])
def test_a_bit_of_the_index_changes_an_error_or_nothing_at_all(corpus, name):
  vocab_size = 50_000 if name.startswith("uint16") else 100_000
  path = corpus(name)
  file = pathlib.Path(f"{path}.idx")
  before = file.read_bytes()
  expected = opened(path, vocab_size)
  documents_before, hash_before = held(expected), expected.hash
  missed = 0
  for at in range(0, len(before), 3):
    changed = bytearray(before)
    changed[at] ^= 4
    file.write_bytes(changed)
    os.utime(file, ns=(at + 1, at + 1))
    try:
      store = opened(path, vocab_size)
    except stores.StoreError:
      continue
    missed += 1
    assert (held(store) == documents_before) == (store.hash == hash_before)
  # Marks between documents may move to another sequence.
  assert missed < len(before) // 30


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda p: os.truncate(f"{p}.bin", 100), "1476 bytes, got 100"),
    (lambda p: os.truncate(f"{p}.idx", 100), "162 bytes"),
    (lambda p: os.truncate(f"{p}.idx", 20), "header"),
    (lambda p: os.truncate(f"{p}.idx", 0), "must begin with MMIDIDX"),
    (lambda p: os.remove(f"{p}.idx"), "idx must be a file of a Megatron"),
    (lambda p: os.remove(f"{p}.bin"), "bin must be a file of a Megatron"),
  ],
)
def test_damaged_files_are_named(corpus, change, message):
  path = corpus("int32_document")
  change(path)
  with pytest.raises(stores.StoreError, match=message):
    opened(path)


def test_ids_beyond_the_vocabulary_are_an_error_at_every_read(corpus):
  path = corpus("int32_document")
  with pytest.raises(stores.StoreError, match="999, got"):
    opened(path, 1_000)
  values = np.fromfile(f"{path}.bin", np.int32)
  values[50] = -7
  values.tofile(f"{path}.bin")
  with pytest.raises(stores.StoreError, match="got -7 at token 50"):
    opened(path)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_ids_of_others_in_an_output_do_not_matter(corpus, is_compiled):
  store = opened(corpus("uint16_document"), 50_000)
  out = np.full(20, 70_000, np.int32)
  with compiled.allowed(is_compiled):
    starts, positions = np.asarray([0, 2, 3]), np.asarray([1, 9, 12])
    store.copy_tokens(starts, np.asarray([3, 0, 5]), out, positions)
  whole = np.concatenate(documents(50_000))
  assert out[1:4].tolist() == whole[:3].tolist()
  assert out[12:17].tolist() == whole[3:8].tolist()
  assert (np.delete(out, [*range(1, 4), *range(12, 17)]) == 70_000).all()


@pytest.mark.parametrize(
  ("dtype", "wrong"),
  [("<u2", 60_000), ("<i4", -7), ("<i4", 50_000), ("<i8", 2**32 + 5)],
)
def test_one_wrong_id_of_a_batch_is_named_with_its_file(tmp_path, dtype, wrong):
  values = np.arange(4_000).astype(dtype)
  values[700] = wrong
  values.tofile(tmp_path / "web.bin")
  unsigned = np.dtype(f"<u{values.itemsize}")
  file = checked_file.CheckedFile(
    tmp_path / "web.bin", unsigned, None, remedy="Restore it."
  )
  tokens = mapped_tokens.MappedTokens(file, 50_000, "i" in dtype)
  lengths = np.full(40, 20)
  out = np.zeros(800, np.int32)
  positions = np.arange(40) * 20
  tokens.copy_spans(np.arange(40) * 21 + 1_000, lengths, out, positions)
  assert out.tolist() == [
    start * 21 + 1_000 + i for start in range(40) for i in range(20)
  ]
  with pytest.raises(
    stores.StoreError,
    match=rf"web\.bin: ids must be in 0 \.\. 49999, got {wrong} at token 700",
  ):
    tokens.copy_spans(np.arange(40) * 20, lengths, out, positions)


def test_floats_and_other_versions_are_refused(corpus):
  path = corpus("int32_document")
  file = pathlib.Path(f"{path}.idx")
  before = file.read_bytes()
  file.write_bytes(before[:17] + b"\x06" + before[18:])
  with pytest.raises(stores.StoreError, match="got code 6"):
    opened(path)
  file.write_bytes(before[:9] + b"\x02" + before[10:])
  with pytest.raises(stores.StoreError, match="got version 2"):
    opened(path)


def test_an_index_without_marks_says_what_to_set(corpus):
  path = corpus("int32_document")
  file = pathlib.Path(f"{path}.idx")
  data = bytearray(file.read_bytes())
  data[26:34] = (1).to_bytes(8, "little")
  file.write_bytes(data[: 34 + 12 * 6 + 8])
  with pytest.raises(stores.StoreError, match="`boundaries` to 'sequences'"):
    opened(path)
  assert held(opened(path, boundaries="sequences")) == [
    d.tolist() for d in documents(100_000)
  ]


def test_a_path_without_its_section_says_how_it_is_read(corpus):
  with pytest.raises(stores.StoreError, match="`megatron` beside the path"):
    stores.open_store(corpus("int32_document"))
  with pytest.raises(stores.StoreError, match="eos_id"):
    opened(corpus("int32_document"), 10, eos_id=10)
