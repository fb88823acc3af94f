# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A Grain source as a store: the batches of a store of the same documents."""

from concurrent import futures
import logging
import pathlib
import pickle
import subprocess
import sys
import threading
import time

import grain
import numpy as np
import pytest

import chomp_data
from chomp_data import schema
from chomp_data import stores
from chomp_data.loading import workers
from chomp_data.testing import stores as testing_stores
from tests.catalogue import runs
from tests.golden import cases
from tests.golden import corpora
from tests.golden import measuring

LENGTHS = [4, 0, 9, 30, 1, 16, 2, 7, 11, 3]
DOCUMENTS = [
  np.arange(n, dtype=np.int32) % 200 + 3 + i for i, n in enumerate(LENGTHS)
]


class Source:
  """Elements of a list; counts which are read."""

  def __init__(self, elements):
    self._elements = elements
    self.read = []

  def __len__(self):
    return len(self._elements)

  def __getitem__(self, index):
    self.read.append(index)
    return self._elements[index]


class BatchedSource(Source):
  """Elements that are read by one call."""

  def __getitems__(self, indices):
    self.read.append(list(indices))
    return [self._elements[index] for index in indices]


def store_of(elements=DOCUMENTS, lengths=LENGTHS, source=Source, **options):
  options = {
    "vocab_size": 256, "fingerprint": "v1", "pad_id": 0, "eos_id": 1, **options
  }  # fmt: skip
  return stores.from_source(source(elements), lengths, **options)


def config_of(store, run=None, shuffle=None, **rows):
  source = {
    "store": store,
    "rows": {"kind": "bin", **rows},
    "shuffle": shuffle or {"kind": "none"},
  }
  return {
    "seq_len": 16, "global_batch_size": 2, "epochs": 2, **(run or {}),
    "sources": {"text": source},
  }  # fmt: skip


# What batches hold.


_CORPORA = {"web", "code", "books", "notes", "ended", "many"}


def _may_be_sources(data):
  if not cases.stores_of(data) <= _CORPORA:
    return False
  # Of a `dataset_mix` paths are named, and states hold hashes of stores.
  if any(data.get(n) for n in ("dataset_mix", "start_after", "tombstones")):
    return False
  # Documents are drawn by the hash of the store.
  rows = [own.get("rows", {}) for own in data["sources"].values()]
  return all(own.get("doc_select_mode") != "random" for own in rows)


OF_DOCUMENTS = [
  name for name, own in cases.CASES.items() if _may_be_sources(own.data)
]


@pytest.mark.parametrize(
  "name",
  [
    own if own in runs.FEW else pytest.param(own, marks=pytest.mark.slow)
    for own in OF_DOCUMENTS
  ],
)
def test_batches_are_the_golden_ones_of_a_store(name, tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  case = cases.CASES[name]
  data = case.at(tmp_path)
  for number, (source, section) in enumerate(case.data["sources"].items()):
    named = section["store"]
    members = [
      corpora.from_source(own, "tokens" if number % 2 else None)
      for own in ([named] if isinstance(named, str) else named)
    ]
    data["sources"][source]["store"] = members
  golden = measuring.golden(name)
  pipe = chomp_data.build(data)
  assert pipe.num_steps == golden["num_steps"]
  batches = {
    step: measuring.digest(pipe.batch(int(step))) for step in golden["batches"]
  }
  assert batches == golden["batches"]
  accounts = measuring.accounts(pipe)
  for step, record in golden["accounts"].items():
    assert accounts[step]["accounts"] == record["accounts"]


@pytest.mark.parametrize(
  "elements",
  [
    [own.tolist() for own in DOCUMENTS],
    [tuple(own.tolist()) for own in DOCUMENTS],
    [own.astype(np.uint8) for own in DOCUMENTS],
    [own.astype(">i8") for own in DOCUMENTS],
    [np.repeat(own, 2)[::2] for own in DOCUMENTS],
  ],
  ids=["lists", "tuples", "uint8", "big-endian", "strided"],
)
def test_elements_may_be_any_integers(elements, tmp_path):
  store = store_of(elements)
  same = testing_stores.make_store(tmp_path / "store", DOCUMENTS)
  for document, tokens in enumerate(DOCUMENTS):
    np.testing.assert_array_equal(stores.read_document(store, document), tokens)
  assert store.num_tokens == same.num_tokens == sum(LENGTHS)
  assert store.opened.token_dtype == same.opened.token_dtype


def test_a_map_dataset_of_grain_is_a_source():
  dataset = grain.MapDataset.source(Source(DOCUMENTS)).map(lambda own: own + 1)
  store = stores.from_source(
    dataset, LENGTHS, vocab_size=256, fingerprint="v1", pad_id=0
  )
  np.testing.assert_array_equal(
    stores.read_document(store, 3), DOCUMENTS[3] + 1
  )


def test_elements_of_several_batches_are_one_call():
  source = BatchedSource(DOCUMENTS)
  store = stores.from_source(
    source, LENGTHS, vocab_size=256, fingerprint="v1", pad_id=0
  )
  with chomp_data.make_iterator(config_of(store, {"epochs": 1})) as iterator:
    batches = [dict(batch) for batch in iterator]
  assert len(batches) == 3
  # As it starts, an iterator reads one span.
  assert [len(own) for own in source.read[:-1]] == [1]
  assert sorted(source.read[-1]) == [i for i, n in enumerate(LENGTHS) if n]


# Runs.


def test_a_mix_with_a_store_resumes_and_its_state_holds_the_fingerprint(
  tmp_path,
):
  testing_stores.make_store(tmp_path / "store", DOCUMENTS[::-1])

  def data(fingerprint):
    config = config_of(store_of(fingerprint=fingerprint), {"epochs": None})
    other = config_of(str(tmp_path / "store"))["sources"]["text"]
    config["sources"]["other"] = other
    mix = {"weights": {"text": 2, "other": 1}}
    return {**config, "mix": {**mix, "allow_tokenizer_differences": True}}

  with chomp_data.make_iterator(data("v1")) as iterator:
    for _ in range(5):
      next(iterator)
    state = iterator.get_state()
    following = [measuring.digest(next(iterator)) for _ in range(5)]
  with chomp_data.make_iterator(data("v1")) as again:
    again.set_state(state)
    assert [measuring.digest(next(again)) for _ in range(5)] == following
  with (
    chomp_data.make_iterator(data("v2")) as other,
    pytest.raises(chomp_data.StateError, match=r"sources\.text.*store"),
  ):
    other.set_state(state)


def test_two_pipelines_of_one_object_have_caches_of_their_own():
  store = store_of()
  one, two = (chomp_data.build(config_of(store)) for _ in range(2))
  one.batch(0)
  counts = [
    own.sources["text"].store.counters.chunks_fetched for own in (one, two)
  ]
  assert counts[0] > counts[1] == 0


_CONFIG = """
import ml_collections
import numpy as np
from chomp_data import stores


def shifted(tokens):
  return tokens + 3


class Source:
  def __init__(self):
    self.lengths = [4, 0, 9, 30, 1, 16, 2, 7, 11, 3]

  def __len__(self):
    return len(self.lengths)

  def __getitem__(self, index):
    return shifted(np.arange(self.lengths[index]) % 200)


def get_config():
  source = Source()
  store = stores.from_source(
    source, source.lengths, vocab_size=256, fingerprint="v1", pad_id=0
  )
  text = {"store": store, "rows": {"kind": "bin"}, "shuffle": {"kind": "full"}}
  data = {
    "seq_len": 16, "global_batch_size": 2, "epochs": 3,
    "sources": {"text": text},
  }
  return ml_collections.ConfigDict({"data": data})
"""


def test_workers_read_a_source_that_a_config_file_defines(
  tmp_path, monkeypatch
):
  """No worker can import the file by the name that it is loaded as."""
  monkeypatch.setattr(workers, "may_help", lambda *_: True)
  (tmp_path / "own.py").write_text(_CONFIG)
  config = chomp_data.load_config(str(tmp_path / "own.py"))
  data = config.data.to_dict()
  alone = chomp_data.build(data)
  with chomp_data.make_iterator({**data, "worker_count": 1}) as iterator:
    for step, batch in enumerate(iterator):
      assert measuring.digest(batch) == measuring.digest(alone.batch(step))
  assert step == alone.num_steps - 1


def test_threads_that_pickle_at_once_each_send_a_config_file_whole(tmp_path):
  """What is pickled by value is a setting of the process, not of a thread."""
  slow = "  def __getstate__(self):\n    time.sleep(0.2)\n    return {}\n\n"
  slow = _CONFIG.replace("  def __len__", f"{slow}  def __len__")
  (tmp_path / "slow.py").write_text(f"import time\n{slow}")
  config = chomp_data.load_config(str(tmp_path / "slow.py"))
  store = config.data.sources.text.store
  with futures.ThreadPoolExecutor(3) as pool:
    sent = []
    for _ in range(3):
      sent.append(pool.submit(pickle.dumps, store))
      time.sleep(0.05)
  # The function that reads an element, and not only the name of its module.
  assert [b"shifted" in pickled.result() for pickled in sent] == [True] * 3


class Locked(Source):
  """Cannot be pickled."""

  def __init__(self, elements):
    super().__init__(elements)
    self._lock = threading.Lock()


def test_a_source_that_cannot_be_pickled_is_read_by_the_process_alone(
  monkeypatch,
):
  monkeypatch.setattr(workers, "may_help", lambda *_: True)
  store = store_of(source=Locked)
  with chomp_data.make_iterator(config_of(store)) as iterator:
    iterator.seek(1)
    state = iterator.get_state()
    next(iterator)
    iterator.set_state(state)
    assert next(iterator)["loss_mask"].any()
  with (
    chomp_data.make_iterator(config_of(store, {"worker_count": 1})) as iterator,
    pytest.raises(stores.StoreError, match=r"pickled.*Locked.*_thread\.lock"),
  ):
    next(iterator)


# Many documents.


class Unread(Source):
  """A million elements, of which none may be read."""

  def __init__(self, count):
    self._count = count

  def __len__(self):
    return self._count

  def __getitem__(self, index):
    raise AssertionError("an element is read")


def test_indexes_of_many_documents_are_in_the_cache(tmp_path, monkeypatch):
  """And not beside a path, which there is none; lengths stay in their file."""
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  (tmp_path / "here").mkdir()
  monkeypatch.chdir(tmp_path / "here")
  count = 2**18 + 5
  lengths = np.resize(np.asarray([3, 1, 0, 12], np.uint16), count)
  file = tmp_path / "lengths.npy"
  np.save(file, lengths)
  one, other = (
    stores.from_source(
      Unread(count), own, vocab_size=256, fingerprint="many", pad_id=0
    )
    for own in (file, lengths)
  )
  assert one.hash == other.hash
  assert len(pickle.dumps(one)) < 2_000 < len(pickle.dumps(other))
  pipe = chomp_data.build(config_of(one, shuffle={"kind": "full"}))
  assert len(pipe.plan(pipe.num_steps - 1))
  assert list(pathlib.Path.cwd().iterdir()) == []
  assert list((tmp_path / "cache" / "chomp_data" / "index").glob("ffd-*"))


def test_a_pickled_store_refuses_other_lengths(tmp_path):
  file = tmp_path / "lengths.npy"
  np.save(file, LENGTHS)
  data = pickle.dumps(store_of(lengths=file))
  store = pickle.loads(data)
  assert stores.read_document(store, 0).tolist() == DOCUMENTS[0].tolist()
  np.save(file, [3, 1, *LENGTHS[2:]])
  script = "import pickle, sys; pickle.load(sys.stdin.buffer).num_tokens"
  elsewhere = subprocess.run(
    [sys.executable, "-c", script], input=data, capture_output=True
  )
  assert b"<source v1> must be the store of hash" in elsewhere.stderr


# What is refused.


def _replaced(document, element):
  return [element if i == document else own for i, own in enumerate(DOCUMENTS)]


@pytest.mark.parametrize(
  ("elements", "options", "message"),
  [
    (_replaced(3, DOCUMENTS[3][:-1]), {}, "element 3 .* 30 tokens, .* 29"),
    (_replaced(2, [256] * 9), {}, r"element 2 .*255, .* 256 at token 0"),
    (_replaced(2, np.int8([5, -1] + 7 * [0])), {}, "element 2 .*-1 at token 1"),
    (_replaced(0, np.zeros(4)), {}, r"element 0 .* float64\[4\]"),
    (_replaced(0, [True] * 4), {}, r"element 0 .* bool\[4\] \(list\)"),
    (_replaced(0, np.zeros((4, 1), int)), {}, r"element 0 .* int64\[4, 1\]"),
    (_replaced(0, None), {}, "element 0 .*NoneType"),
    (_replaced(0, [[1], [2, 3]]), {}, "element 0 must be int.* inhomogeneous"),
    (_replaced(0, {"a": 1}), {}, "element 0 .* `key` named, .*dict of a"),
    (DOCUMENTS, {"key": "ids"}, "element 0 .* `key` 'ids', got ndarray"),
    ([{"a": 1, "b": 2}] * 10, {"key": "ids"}, "element 0 .*got dict of a, b"),
  ],
)  # fmt: skip
def test_an_element_that_is_not_what_was_said_is_named(
  elements, options, message
):
  store = store_of(elements, **options)
  with pytest.raises(stores.StoreError, match=f"^<source v1>: {message}"):
    store.read_tokens(np.asarray([0]), np.asarray([sum(LENGTHS)]))


def test_a_source_that_returns_too_few_elements_is_refused():
  class Short(BatchedSource):
    def __getitems__(self, indices):
      return super().__getitems__(indices)[1:]

  with pytest.raises(stores.StoreError, match="must return 1 elements, got 0"):
    stores.read_document(store_of(source=Short), 0)


@pytest.mark.parametrize(
  ("arguments", "error", "message"),
  [
    ({"lengths": LENGTHS[:-1]}, ValueError, "10 elements.* got 9"),
    ({"lengths": [*LENGTHS[:-1], -2]}, ValueError, "got -2 of element 9"),
    ({"lengths": [2**62, *LENGTHS[1:]]}, ValueError, "got 4.* of element 0"),
    ({"lengths": np.float32(LENGTHS)}, TypeError, r"float32\[10\]"),
    ({"lengths": [LENGTHS]}, TypeError, r"int64\[1, 10\]"),
    ({"lengths": "no.npy"}, ValueError, r"`lengths`.*'no\.npy'.*No such"),
    ({"lengths": __file__}, ValueError, r"`lengths`.*numpy\.save"),
    ({"source": iter(DOCUMENTS)}, TypeError, "`source` must be a grain Random"),
    ({"source": "text"}, TypeError, "`source`.*'text'"),
    ({"source": Source}, TypeError, "`source`"),
    ({"fingerprint": None}, ValueError, "fingerprint`.*None"),
    ({"fingerprint": ""}, ValueError, "fingerprint` must be text"),
    ({"vocab_size": 0}, ValueError, "vocab_size`.*got 0"),
    ({"adds_eso": True}, ValueError, "adds_eso`.*adds_eos"),
    ({"eos_id": 300}, ValueError, "eos_id`.*256.*300"),
    ({"adds_bos": True}, ValueError, "bos_id` must be"),
    ({"key": 3}, ValueError, "key`.*got 3"),
  ],
)
def test_what_no_store_can_be_of_is_refused(arguments, error, message):
  arguments = {
    "source": DOCUMENTS,
    "lengths": LENGTHS,
    "vocab_size": 256,
    "fingerprint": "v1",
    **arguments,
  }
  with pytest.raises(error, match=message):
    stores.from_source(**arguments)


def test_a_fingerprint_must_be_given():
  with pytest.raises(TypeError, match="'fingerprint'"):
    stores.from_source(DOCUMENTS, LENGTHS, vocab_size=256)


def test_a_config_takes_no_options_beside_an_open_store():
  data = config_of(store_of())
  data["sources"]["text"]["megatron"] = {"vocab_size": 256}
  message = r"`config\.data\.sources\.text\.megatron` must be None beside"
  with pytest.raises(schema.ConfigError, match=message):
    chomp_data.build(data)
  pictures = {
    "global_batch_size": 2,
    "epochs": 1,
    "buckets": {"kind": "resolution"},
    "sources": {"text": {"store": store_of()}},
    "mix": {},
  }
  with pytest.raises(schema.ConfigError, match="must be a path for samples"):
    chomp_data.build(pictures)


def test_the_log_says_once_that_there_are_no_checksums(caplog):
  with caplog.at_level(logging.WARNING):
    for _ in range(3):
      store_of(fingerprint="logged once")
  lines = [own for own in caplog.messages if "logged once" in own]
  assert len(lines) == 1
  assert "no checksums" in lines[0]
