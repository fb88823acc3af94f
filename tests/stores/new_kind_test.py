# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A kind of stores is one file and one entry: this file, and the fixture."""

import dataclasses
import hashlib

import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data import schema
from chomp_data import stores
from chomp_data.storage import chunk_cache
from chomp_data.stores import base
from chomp_data.stores import documents as documents_lib
from chomp_data.stores import kinds
from chomp_data.stores import span_reads
from chomp_data.stores import texts
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores

# --- the file ----------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class NpyOptions:
  """What an array of tokens does not say: where documents end, and more."""

  vocab_size: int = schema.required(schema.integer(1, 2**31))
  end_id: int = schema.required(schema.integer(0, 2**31))

  def problems(self, path):
    if self.end_id < self.vocab_size:
      return []
    return [f"`{path}.end_id` must be below {self.vocab_size}. Correct it."]


class NpyTokens:
  """Tokens of a .npy file."""

  def __init__(self, values):
    self._values = values
    self.counters = chunk_cache.Counters()

  def copy_spans(self, starts, lengths, out, positions):
    span_reads.check_spans(
      starts, lengths, len(self._values), positions, len(out)
    )
    self.counters.spans += len(starts)
    for start, length, to in zip(starts, lengths, positions, strict=True):
      out[to : to + length] = self._values[start : start + length]

  def prefetch(self, starts, lengths):
    span_reads.check_spans(starts, lengths, len(self._values))

  def set_cache_bytes(self, cache_bytes):
    pass


class NpyOffsets:
  """Each document ends with `end_id`."""

  def __init__(self, ends):
    self._offsets = np.concatenate([[0], ends])

  def gather(self, positions):
    return self._offsets[positions]

  def read(self, start, stop):
    return self._offsets[start:stop]


class NpyIds(texts.Texts):
  """'#<number>'."""

  def __init__(self, num_documents):
    self._num_documents = num_documents

  def __len__(self):
    return self._num_documents

  def take(self, documents):
    return [f"#{document}" for document in documents]


class NpyStore(base.Store):
  def __init__(self, path, options, cache_bytes=0):
    super().__init__(path, cache_bytes)
    self.options = options

  def _open(self):
    values = np.load(self._path)
    ends = np.flatnonzero(values == self.options.end_id) + 1
    tokenizer = stores.TokenizerInfo(
      kind="custom",
      sha256=hashlib.sha256(b"of the test").hexdigest(),
      vocab_size=self.options.vocab_size,
      pad_id=0,
      eos_id=self.options.end_id,
      adds_eos=True,
    )
    return base.Opened(
      hash=hashlib.sha256(values.tobytes()).hexdigest(),
      tokenizer=tokenizer,
      tokenizer_identity=("sha256", tokenizer.sha256),
      num_tokens=len(values),
      token_dtype=values.dtype,
      documents=documents_lib.StoredOffsets(
        NpyOffsets(ends), len(ends), self._path
      ),
      tokens=NpyTokens(values),
      ids=NpyIds(len(ends)),
    )


# --- the entry ---------------------------------------------------------------


@pytest.fixture
def npy_kind(monkeypatch):
  kind = kinds.StoreKind(
    open=NpyStore,
    is_at=lambda path: path.suffix == ".npy",
    options=NpyOptions,
    advice="an array. Read it with `npy` beside the path.",
  )
  monkeypatch.setitem(kinds.STORE_KINDS, "npy", kind)


DOCUMENTS = [[5, 6, 7, 2], [8, 2], [9, 10, 11, 12, 13, 14, 2], [2], [15, 2]] * 9
OPTIONS = {"vocab_size": 100, "end_id": 2}


@pytest.fixture
def path(npy_kind, tmp_path):
  file = tmp_path / "tokens.npy"
  np.save(file, np.concatenate(DOCUMENTS).astype(np.uint16))
  return str(file)


def config(path, **sections):
  source = {
    "store": path,
    "rows": {"kind": "bin", "packing_buffer_docs": 7},
    "shuffle": {"kind": "block"},
    **sections,
  }
  return {
    "seed": 3,
    "seq_len": 16,
    "global_batch_size": 2,
    "epochs": 2,
    "sources": {"text": source},
  }


# --- what follows ------------------------------------------------------------


def test_a_store_of_a_new_kind_is_read_as_any_other(path):
  store = stores.open_store(path, npy=NpyOptions(**OPTIONS))
  assert store.num_documents == 45
  documents = [stores.read_document(store, i).tolist() for i in range(45)]
  assert documents == DOCUMENTS
  assert store.opened.ids.find(["#44", "none"]) == {"#44": [44], "none": []}
  assert store.opened.meta is None
  with pytest.raises(stores.StoreError, match="--meta_key"):
    stores.document_meta(store, [0])
  with pytest.raises(stores.StoreError, match=r"file of its tokenizer.*custom"):
    base.tokenizer_file(store)
  with pytest.raises(IndexError, match=r"0 \.\. 44.* got 45"):
    store.document_ids([45])
  assert repr(store) == f"NpyStore({path!r}, hash={store.hash[:16]!r})"


def test_a_whole_run_reads_a_new_kind(path, tmp_path):
  data = config(path, npy=OPTIONS)
  pipe = pipeline.build(data)
  batches = [pipe.batch(step) for step in range(pipe.num_steps)]
  assert len(batches) > 5
  # The same tokens as a store of tools/prepare.py give the same batches.
  testing_stores.make_store(tmp_path / "store", DOCUMENTS, vocab_size=100)
  iterator = iterators.make_iterator(data)
  digests = [batch_hashes.batch_sha256(batch) for batch in batches]
  found = [batch_hashes.batch_sha256(next(iterator)) for _ in range(4)]
  state = iterator.get_state()
  found += [batch_hashes.batch_sha256(batch) for batch in iterator]
  assert found == digests
  restored = iterators.make_iterator(data)
  restored.set_state(state)
  assert [batch_hashes.batch_sha256(own) for own in restored] == digests[4:]
  same = pipeline.build(config(str(tmp_path / "store")))
  assert digests == [
    batch_hashes.batch_sha256(same.batch(step))
    for step in range(same.num_steps)
  ]


@pytest.mark.parametrize(
  ("sections", "message"),
  [
    (
      {"npy": {"vocab_size": 100}},
      r"`config\.data\.sources\.text\.npy\.end_id` must",
    ),
    (
      {"npy": {**OPTIONS, "end_id": 100}},
      r"`config\.data\.sources\.text\.npy\.end_id` must be below 100",
    ),
    (
      {
        "npy": OPTIONS,
        "array_record": {"token_dtype": "uint16", "vocab_size": 100},
      },
      r"`config\.data\.sources\.text` must be of one kind .*array_record and"
      r" npy",
    ),
    ({"nyp": OPTIONS}, r"`config\.data\.sources\.text\.nyp`.*npy"),
  ],
)
def test_options_of_a_new_kind_are_checked_with_the_config(
  path, sections, message
):
  with pytest.raises(schema.ConfigError, match=message):
    pipeline.build(config(path, **sections))


def test_a_path_without_its_options_says_how_it_is_opened(path):
  with pytest.raises(stores.StoreError, match=r"got an array.*`npy`"):
    stores.open_store(path)


def test_a_kind_without_options_is_known_by_its_path(
  path, monkeypatch, tmp_path
):
  def opened(path, cache_bytes):
    return NpyStore(path, NpyOptions(**OPTIONS), cache_bytes)

  kind = kinds.StoreKind(opened, lambda path: path.suffix == ".npy")
  monkeypatch.setitem(kinds.STORE_KINDS, "npy", kind)
  assert stores.open_store(path).num_documents == 45
  assert pipeline.build(config(path)).batch(0)["tokens"].shape == (2, 16)


@pytest.mark.parametrize(
  "options", [{"npz": 1}, {"npy": 1, "array_record": 2}, {"zarr": 1}]
)
def test_options_of_no_kind_or_of_several_are_refused(path, options):
  with pytest.raises(TypeError, match=f"got {', '.join(options)}"):
    stores.open_store(path, **options)
