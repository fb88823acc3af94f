# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What is added from outside: one class or function, and one entry."""

import dataclasses
import hashlib
import pathlib

import numpy as np
import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data import row_kinds
from chomp_data import schema
from chomp_data import stores
from chomp_data.audit import coverage
from chomp_data.loading import reads
from chomp_data.mix import exhaustion
from chomp_data.prepare import readers
from chomp_data.prepare import run
from chomp_data.prepare import tokenizers
from chomp_data.prepare.reading import base
from chomp_data.prepare.tokenizers import base as tokenizer_base
from chomp_data.prepare.tokenizers import kinds
from chomp_data.reference import evaluation
from chomp_data.reference import window_log
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import mix_units
from chomp_data.splice import source as splice_source
from chomp_data.stores import vocabulary
from chomp_data.testing import stores as testing_stores
from chomp_data.transforms import formats

SEQ_LEN = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadOptions:
  """The first tokens of every document, one a row."""

  skip: int = schema.option(0, schema.integer(0))

  def problems(self, path, seq_len):
    del path, seq_len
    return []


class HeadSource(chomp_data.RowSource):
  """Has what `RowSource` requires, and nothing else."""

  document_slots = 1

  def __init__(self, store, options, *, seq_len, seed, name, path):
    del seed, path
    self.name, self.store, self.skip = name, store, options.skip
    filler_id = store.opened.tokenizer.pad_id or 0
    self.layout = row_layout.RowLayout(seq_len=seq_len, filler_id=filler_id)
    _, lengths = store.bounds(np.arange(store.num_documents))
    # A span has at least one token.
    self.documents = np.flatnonzero(lengths > self.skip)

  def __len__(self):
    return len(self.documents)

  def plan(self, rows):
    document = self.documents[rows % len(self)]
    first, length = self.store.bounds(document)
    return spans_lib.Spans(
      num_rows=len(rows),
      row=np.arange(len(rows)),
      source=np.zeros(len(rows), np.int32),
      document=document,
      start=np.full(len(rows), self.skip),
      offset=first + self.skip,
      length=np.minimum(length - self.skip, self.seq_len),
      column=np.zeros(len(rows), np.int64),
      segment=np.ones(len(rows), np.int32),
    )

  @property
  def fingerprint(self):
    return {"store": self.store.hash, "kind": "head", "skip": self.skip}


@pytest.fixture
def head(monkeypatch):
  monkeypatch.setitem(
    row_kinds.ROW_KINDS, "head", row_kinds.RowKind(HeadOptions, HeadSource)
  )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  rng = np.random.default_rng(0)
  return testing_stores.make_store(
    tmp_path_factory.mktemp("store") / "text",
    [rng.integers(3, 60, n) for n in (40, 9, 25, 30, 12, 33)],
    ids=[f"{i}.txt" for i in range(6)],
    vocab_size=64,
  )


def data(store, rows, names=("a",), **changes):
  return {
    "seq_len": SEQ_LEN,
    "global_batch_size": 2,
    "seed": 1,
    "sources": {
      name: {"store": str(store.path), "rows": rows} for name in names
    },
    **changes,
  }


def test_a_row_source_has_twelve_methods_to_override_at_most():
  members = {
    name: getattr(member, "fget", member)
    for name, member in vars(chomp_data.RowSource).items()
    if callable(member) or isinstance(member, property)
  }
  free = {
    name
    for name, member in members.items()
    if not getattr(member, "__final__", False) and name not in dir(object)
  } | {"__len__"}
  assert len(free) <= 12, free
  assert chomp_data.RowSource.__abstractmethods__ == {
    "__len__", "plan", "fingerprint"
  }  # fmt: skip


def test_a_mix_is_no_row_source():
  assert not issubclass(chomp_data.MixtureSource, chomp_data.RowSource)


def test_a_row_kind_is_a_class_and_an_entry(head, store):
  pipe = pipeline.build(data(store, {"kind": "head", "skip": 2}, epochs=2))
  assert pipe.num_steps == 6
  batch = pipe.batch(0)
  first = store.bounds(np.arange(2))[0] + 2
  wanted = store.read_tokens(first, np.asarray([SEQ_LEN, 7]))
  kept = batch["tokens"][batch["segment_ids"] > 0][: len(wanted)]
  assert batch["tokens"][0].tolist() == wanted[:SEQ_LEN].tolist()
  assert batch["tokens"][1, :7].tolist() == wanted[SEQ_LEN:].tolist()
  assert len(kept) == len(wanted)
  assert pipe.accounts.at(3)["a"].tokens == int(pipe.plan(0, 3).length.sum())
  assert len(splice_source.validation_of(pipe.sources["a"]))


def test_what_a_run_asks_of_a_kind_is_in_its_entry(
  head, store, monkeypatch, caplog
):
  simulated = {"simulated_epochs": {"target_tokens": 200, "run_tokens": 100}}
  config = data(store, {"kind": "head"}, epochs=None, lookahead=True)
  with pytest.raises(schema.ConfigError, match=r"'sequential' or 'bin' with"):
    pipeline.build({**config, **simulated})
  pipeline.build(config)
  assert "`config.data.lookahead` has no effect" not in caplog.text
  entry = row_kinds.RowKind(
    HeadOptions, HeadSource, each_token_once=True, ends_row=True
  )
  monkeypatch.setitem(row_kinds.ROW_KINDS, "head", entry)
  pipeline.build({**config, **simulated})
  assert "`config.data.lookahead` has no effect" in caplog.text


@pytest.mark.parametrize("kind", ["none", "full", "era", "block"])
def test_an_added_row_kind_is_shuffled_and_mixed(head, store, kind):
  shuffle = {"kind": kind, **({"era_length": 4} if kind == "era" else {})}
  config = data(store, {"kind": "head"}, names=("a", "b"), mix={}, epochs=3)
  for source in config["sources"].values():
    source["shuffle"] = shuffle
  config["train_on_eos"] = False
  pipe = pipeline.build(config)
  spans = pipe.plan(0, pipe.num_steps)
  taken = np.bincount(spans.source, spans.length)
  accounts = pipe.accounts.at(pipe.num_steps)
  assert [accounts[n].tokens for n in ("a", "b")] == taken.tolist()
  assert abs(taken[0] - taken[1]) <= SEQ_LEN


def test_an_added_row_kind_is_logged_evaluated_and_reported(head, store):
  config = data(store, {"kind": "head"}, train_on_eos=False, epochs=None)
  with chomp_data.make_iterator(config) as batches:
    for _ in range(12):
      next(batches)
    pipe = batches.pipeline
    (line,) = reads.lines(batches.reads)
  assert line.startswith("reads of a: ")
  assert window_log.WindowLog(pipe).take(12).sources["a"]["rows"] == 24
  rows = splice_source.validation_of(pipe.sources["a"])
  assert all(
    batch["loss_mask"].any() for batch in evaluation.batches_of(rows, 2)
  )
  report = coverage.report(pipe, coverage.coverage(pipe, 12))
  assert "coverage of a: 6 documents" in report


def two_exhausted(given, order):
  """Ends the mix when a second source is exhausted."""
  coming = sorted((own for own in given if own.last is not None), key=order)
  over = [own for own in given if own.exhausted]
  return [*over, *coming][1] if len(over) + len(coming) > 1 else None


def test_a_policy_is_a_function_and_an_entry(head, store, monkeypatch):
  monkeypatch.setitem(
    exhaustion.EXHAUSTIONS,
    "two_exhausted",
    exhaustion.Exhaustion(two_exhausted),
  )

  def rows(policy):
    pipe = pipeline.build(
      data(
        store,
        {"kind": "head"},
        names=("a", "b", "c"),
        mix={
          "kind": "weighted",
          "weights": {"a": 4, "b": 2, "c": 1},
          "exhaustion": policy,
        },
        epochs=1,
        global_batch_size=1,
      )
    )
    assert pipe.fingerprint["mix"]["exhaustion"] == policy
    return pipe.accounts.rows(pipe.num_steps)

  assert rows("first_exhausted")["a"] == 6
  assert rows("all_exhausted")["c"] == 6
  taken = rows("two_exhausted")
  assert taken["b"] == 6
  assert taken["a"] > 6 > taken["c"]


def test_a_unit_of_rows_is_a_function_and_an_entry(head, store, monkeypatch):
  monkeypatch.setitem(
    mix_units.UNITS,
    "squares",
    mix_units.Unit(lambda spans: spans.row_sums(spans.length**2 // SEQ_LEN)),
  )
  pipe = pipeline.build(
    data(
      store,
      {"kind": "sequential", "tail": "pad"},
      names=("a", "b"),
      mix={"unit": "squares", "weights": {"a": 3, "b": 1}},
      epochs=4,
    )
  )
  step = pipe.num_steps // 4
  spans = pipe.plan(0, step)
  rows = spans.row_sums(spans.length**2 // SEQ_LEN)
  given = np.bincount(spans.row_source(), rows)
  assert pipe.accounts.questions.consumed(step)["a"].units == given[0]
  assert abs(given[0] / 3 - given[1]) <= SEQ_LEN


def test_a_unit_of_buckets_is_a_function_and_an_entry(store, monkeypatch):
  config = data(store, {}, names=("a", "b"), mix={"unit": "squares"}, epochs=4)
  config["remainder"] = "pad"
  del config["seq_len"], config["global_batch_size"]
  config["buckets"] = {
    "kind": "length",
    "lengths": [8, 16],
    "tokens_per_batch": 32,
  }
  for source in config["sources"].values():
    del source["rows"]
  with pytest.raises(schema.ConfigError, match="squares"):
    pipeline.build(config)
  monkeypatch.setitem(
    mix_units.UNITS,
    "squares",
    mix_units.Unit(
      of_bucket={"length": lambda bucket, _: bucket.shape[0] ** 2}
    ),
  )
  pipe = pipeline.build(config)
  assert pipe.fingerprint["mix"]["unit"] == "squares"
  shares = pipe.accounts.questions.consumed(pipe.num_steps // 2)
  assert shares["a"].units % 64 == 0 < shares["a"].units


class Paragraphs(base.InputKind):
  """Text files of which each paragraph is a document."""

  def compression(self, name):
    return "none" if name.endswith(".par") else None

  def split(self, file, opened, part_bytes, options):
    del opened, part_bytes, options
    return [base.InputPiece(file, 0, file.size, 1, file.size)]

  def read(self, piece, options):
    texts = pathlib.Path(piece.file.path).read_text().split("\n\n")
    for number, text in enumerate(texts, piece.first):
      yield number, {options.text_key: text}


def test_a_kind_of_inputs_is_a_class_and_an_entry(tmp_path, monkeypatch):
  (tmp_path / "x.par").write_text("one\n\ntwo\n\nthree")
  options = run.Options((str(tmp_path / "x.par"),), str(tmp_path / "out"))
  own = {"paragraphs": Paragraphs(), **readers.INPUT_KINDS}
  monkeypatch.setattr(readers, "INPUT_KINDS", own)
  made, _ = run.prepare(options)
  assert made.document_ids(np.arange(3)) == ["x.par:1", "x.par:2", "x.par:3"]
  assert made.num_tokens == len("onetwothree")


class Characters:
  """A file of characters; their places are their ids."""

  takes_bytes = False

  def __init__(self, file, spec):
    self.file = file
    self.letters = file.decode().removeprefix("letters ")
    digest = hashlib.sha256(file).hexdigest()
    self.info = stores.TokenizerInfo("letters", digest, len(self.letters))

  def encode_batch(self, texts):
    ids = [[self.letters.index(c) for c in text] for text in texts]
    return tokenizer_base.joined(ids, np.dtype(np.uint16))

  def decode(self, ids):
    return "".join(self.letters[i] for i in ids)


def test_a_kind_of_tokenizers_is_a_class_and_two_entries(tmp_path, monkeypatch):
  (tmp_path / "x.txt").write_text("caba")
  (tmp_path / "own").write_text("letters abc")
  own = {"letters": (lambda data: data.startswith(b"letters "), Characters)}
  monkeypatch.setattr(kinds, "FILES", {**own, **kinds.FILES})
  monkeypatch.setitem(
    vocabulary.TOKENIZER_FILES, "letters", "tokenizer.letters"
  )
  made, _ = run.prepare(
    run.Options(
      (str(tmp_path / "x.txt"),),
      str(tmp_path / "out"),
      tokenizer=tokenizers.TokenizerSpec(str(tmp_path / "own")),
    )
  )
  assert stores.read_document(made, 0).tolist() == [2, 0, 1, 0]
  (tmp_path / "own").unlink()
  loaded = tokenizers.load_tokenizer(stores.open_store(tmp_path / "out"))
  assert loaded.decode(stores.read_document(made, 0)) == "caba"


def test_a_batch_format_is_a_transform_and_an_entry(store, monkeypatch):
  class Doubled(formats.grain.transforms.Map):
    def map(self, batch):
      return {**batch, "tokens": batch["tokens"] * 2}

  rows = {"kind": "sequential"}
  plain = pipeline.build(data(store, rows)).batch(0)
  monkeypatch.setitem(formats.FORMATS, "doubled", formats.Format(Doubled))
  pipe = pipeline.build(data(store, rows, batch_format="doubled"))
  np.testing.assert_array_equal(pipe.batch(0)["tokens"], plain["tokens"] * 2)
