# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Documents and spans that are gone, against a slow reference.

The reference marks positions one by one in batches of the run that nothing is
gone of, by the text of the docs: it knows spans, and no intervals.
"""

import functools
import json

import grain
import jax
import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.loading import state as state_lib
from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import training
from chomp_data.testing import stores as testing_stores
from tests.plans import conftest
from tests.sources import labelled

SEQ_LEN = 16
ROWS = {
  "sequential": {"kind": "sequential", "add_bos": True, "add_eos": True},
  "ffd": {"kind": "bin", "packing_buffer_docs": 7, "add_eos": True},
  "exact": {
    "kind": "bin",
    "packing_buffer_docs": 7,
    "packing_algorithm": "exact",
    "add_bos": True,
  },
  "windows": {"kind": "windows", "stride": 5},
  "splice": {"kind": "splice", "content_length": 6},
  "multi_splice": {
    "kind": "multi_splice",
    "num_docs": 6,
    "content_length": 9,
    "eos_before_document": True,
    "trailing_filler_in_segment": False,
  },
  "rolled": {
    "kind": "multi_splice",
    "num_docs": 6,
    "content_start_mode": "cyclic_roll",
    "content_length": 9,
  },
}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
  """By name (path, lengths): one with levels and weights, and one without."""
  root = tmp_path_factory.mktemp("gone")
  rng = np.random.default_rng(0)
  out = {}
  for seed, (name, table) in enumerate((("a", labelled.LEVELS), ("b", None))):
    make_store = functools.partial(testing_stores.make_store, root / name)
    lengths = np.exp(rng.normal(2.6, 0.8, 40)).astype(int).tolist()
    lengths[::13] = [0] * len(lengths[::13])
    labelled.make(
      make_store,
      lengths,
      seed,
      table=table,
      weights=table is not None,
      chunk=64,
      bos_id=2,
    )
    out[name] = (str(root / name), lengths)
  return out


def run_of(corpora, rows, names=("b",), **fields):
  data = {
    "seq_len": SEQ_LEN,
    "global_batch_size": 4,
    "seed": 2,
    "epochs": 2,
    "document_id": True,
    # So that batches have `attention_mask`.
    "mask_boundary_loss": False,
    "lookahead": rows in ("sequential", "ffd", "exact"),
    "sources": {
      name: {
        "store": corpora[name][0],
        "rows": dict(ROWS[rows]),
        "shuffle": {"kind": "full"},
      }
      for name in names
    },
    **fields,
  }
  return data


def drawn(rng, lengths, share=0.4):
  """Returns entries: whole documents and spans of some, none twice."""
  out = []
  for document, length in enumerate(lengths):
    if rng.random() > share:
      continue
    if not length or rng.random() < 0.4:
      out.append((document, None, None))
      continue
    count = min(int(rng.integers(1, 4)), (length + 1) // 2)
    edges = np.sort(rng.choice(length + 1, 2 * count, replace=False)).tolist()
    for low, high in zip(edges[::2], edges[1::2], strict=True):
      if high == length and rng.random() < 0.5:
        out.append((document, low, None))
      elif not low and rng.random() < 0.5:
        out.append((document, None, high))
      else:
        out.append((document, low, high - low))
  return out


def written(path, entries):
  """Writes (source, document, start, length), ids and numbers by turns."""
  lines = []
  for i, (source, document, start, length) in enumerate(entries):
    own = {"source": source, "document": str(document) if i % 2 else document}
    own |= {} if start is None else {"start": start}
    own |= {} if length is None else {"length": length}
    lines.append(json.dumps(own))
  path.write_text("\n".join(lines) + "\n")
  return str(path)


def is_gone(entries, source, document, token, length):
  """Whether a token is gone; that of a document without any is None."""
  for own, number, start, count in entries:
    if (own, number) != (source, document):
      continue
    begin = start or 0
    end = length if count is None else begin + count
    if token is None or begin <= token < end:
      return True
  return False


def cells_of(pipe, spans, row):
  """Returns (span, document, token or None) of positions of a row."""
  cells, own = {}, spans.rows(row, row + 1)
  for i in range(len(own)):
    number, document = int(own.source[i]), int(own.document[i])
    name = pipe.source_names[number]
    store = pipe.sources[name].store
    length = int(store.bounds(np.asarray([document]))[1][0])
    bos = own.added_before is not None and bool(own.added_before[i])
    eos = own.added_after is not None and bool(own.added_after[i])
    count = int(own.length[i])
    for k in range(count):
      token = int(own.start[i]) + k - bos
      if bos and not k:
        token = 0
      if eos and k == count - 1:
        token = length - 1
      # Added tokens of a document without any have no neighbour.
      token = token if length else None
      cells[int(own.column[i]) + k] = (i, (name, document, length), token)
  return cells, own


def marked(pipe, spans, batch, entries, filler):
  """Returns a batch with what is gone of it, position by position."""
  out = {name: np.array(value) for name, value in batch.items()}
  lost_of, width = {}, out["tokens"].shape[1]
  for row in range(spans.num_rows):
    cells, own = cells_of(pipe, spans, row)

    def gone(document, token):
      name, number, length = document
      return is_gone(entries, name, number, token, length)

    lost = {c for c, (_, document, t) in cells.items() if gone(document, t)}
    by_span = {}
    for column, (i, _, _) in cells.items():
      by_span.setdefault(i, set()).add(column)
    for i in range(len(own) - 1):
      same = all(
        getattr(own, f)[i] == getattr(own, f)[i + 1]
        for f in ("document", "segment")
      )
      follows = own.start[i] + own.length[i] == own.start[i + 1]
      if (
        same and not follows and (by_span[i] <= lost or by_span[i + 1] <= lost)
      ):
        lost |= by_span[i] | by_span[i + 1]
    lost_of[row] = lost
    if not cells:
      continue
    end = max(cells)
    follows_gone = False
    if end == width - 1 and own.following is not None:
      _, document, _ = cells[end]
      last = int(own.start[-1] + own.stored()[0][-1])
      if own.following[-1] == 1:
        follows_gone = gone(document, last)
      elif own.following[-1] == 2:
        follows_gone = gone(document, last - 1 if document[2] else None)
    for column in range(width):
      if column in lost:
        out["tokens"][row, column] = filler
        out["segment_ids"][row, column] = 0
        out["attention_mask"][row, column] = False
      if column > end and end in lost:
        out["segment_ids"][row, column] = 0
      dead = column in lost or column + 1 in lost
      if column == width - 1:
        dead |= follows_gone
      if dead:
        out["loss_mask"][row, column] = False
        if "loss_weight" in out:
          out["loss_weight"][row, column] = 0
      if column in lost and "label_weight" in out:
        out["label_weight"][row, column] = 0
    if "next_token" in out and (end in lost or follows_gone):
      out["next_token"][row] = filler
    slots = {}
    for column, (_, document, _) in sorted(cells.items()):
      slots.setdefault(document[1], []).append(column)
    for slot, document in enumerate(out["document_id"][row].tolist()):
      if document >= 0 and set(slots[document]) <= lost:
        out["document_id"][row, slot] = -1
  return out, lost_of


def assert_marked(pipe, plain, files, steps):
  """Compares a run with the reference at all steps, and its accounts."""
  counts = {name: [0, 0] for name in pipe.source_names}
  some = False
  for step in range(steps):
    entries = [e for at, own in files for e in own if at <= step]
    spans = plain.plan(step)
    wanted, lost = marked(
      plain, spans, plain.canonical(step), entries, filler=0
    )
    batch = pipe.canonical(step)
    assert batch.keys() == wanted.keys()
    for name in batch:
      assert np.array_equal(batch[name], wanted[name]), (step, name)
    some |= any(lost.values())
    own = pipe.plan(step)
    assert np.array_equal(own.row_source(), spans.row_source())
    found = {row: set() for row in lost}
    for i in range(len(own)):
      if own.masked is not None and own.masked[i]:
        low = int(own.column[i])
        found[int(own.row[i])] |= set(range(low, low + int(own.length[i])))
    assert found == lost
    for name, account in pipe.accounts.at(step).items():
      assert [account.tokens, account.loss_tokens] == counts[name], step
    if pipe.run_options.kind == "rows":
      assert pipe.accounts.resume_state(step) == plain.accounts.resume_state(
        step
      )
    for row, source in enumerate(batch["source_id"].tolist()):
      if source >= 0:
        total = counts[pipe.source_names[source]]
        total[0] += int(batch["attention_mask"][row].sum())
        # Accounts leave out what lookahead adds.
        total[1] += int(batch["loss_mask"][row, :-1].sum())
  assert some


@pytest.mark.parametrize("rows", ROWS)
def test_what_is_gone_is_filler_and_all_else_stays(corpora, tmp_path, rows):
  check(corpora, tmp_path, rows, ("b",))


def check(corpora, tmp_path, rows, names, seed=0):
  """Compares runs with random tombstones from two steps on."""
  rng = np.random.default_rng([seed, list(ROWS).index(rows)])
  data = run_of(corpora, rows, names)
  plain = pipeline.build(data)
  files = []
  for at in (2, 6):
    own = [
      (name, *entry) for name in names for entry in drawn(rng, corpora[name][1])
    ]
    if rows == "splice":
      # One document is read: parts of it, and later its end.
      span = (3, 2) if at == 2 else (7, None)
      spans = plain.plan(0, 8)
      own = [
        (name, int(spans.document[spans.source == number][0]), *span)
        for number, name in enumerate(plain.source_names)
      ]
    files.append((at, own))
  data["tombstones"] = tuple(
    (at, written(tmp_path / f"{at}.jsonl", own)) for at, own in files
  )
  pipe = pipeline.build(data)
  assert "removed from data step 2 on" in pipe.describe()
  assert_marked(pipe, plain, files, min(plain.num_steps, 14))
  # Several steps at once, and rows that were read ahead, are the same.
  source = pipeline.batch_source(pipe)
  for step in range(min(plain.num_steps, 14)):
    for name, value in source[step].items():
      assert np.array_equal(value, pipe.canonical(step)[name])


def test_what_is_gone_of_buckets_is_filler(text, text_stores, tmp_path):
  rng = np.random.default_rng(0)
  # A format that has `attention_mask`.
  text = {**text, "batch_format": "chomp"}
  plain = pipeline.build(text)
  files = [
    (
      at,
      [
        (name, *entry)
        for name, (_, documents) in text_stores.items()
        for entry in drawn(rng, [len(own) for own in documents])
      ],
    )
    for at in (0, 5)
  ]
  text["tombstones"] = tuple(
    (at, written(tmp_path / f"{at}.jsonl", own)) for at, own in files
  )
  assert_marked(pipeline.build(text), plain, files, 12)


def test_a_state_whose_counts_were_altered_is_refused(corpora, tmp_path):
  """Restoring such runs at every step: tests/catalogue."""
  data = run_of(corpora, "exact", skip=((4, 4), (8, 9)))
  data["sources"]["b"]["shuffle"] = {"kind": "block"}
  rng = np.random.default_rng(3)
  entries = [("b", *entry) for entry in drawn(rng, corpora["b"][1])]
  data["tombstones"] = ((3, written(tmp_path / "a.jsonl", entries)),)
  with iterators.make_iterator(data, step=6) as it:
    record = json.loads(it.get_state())
  assert record["gone"]["b"]["tokens"] > 0
  record["accounts"]["b"]["tokens"] += 1
  record.pop("digest")
  altered = state_lib.encode(
    record.pop("step"),
    record.pop("fingerprint"),
    record.pop("topology"),
    record,
  )
  with iterators.make_iterator(data) as again:
    again.set_state(altered)
    next(again)
    with pytest.raises(state_lib.StateError, match=r"accounts\.b\.tokens"):
      again.begin_save()()


class Masked(grain.transforms.Map):
  """Takes documents out by hand, where a source has rows of one document."""

  fingerprint = None

  def __init__(self, documents):
    self.documents = documents

  def map(self, element):
    out = dict(element)
    lost = np.zeros(element["tokens"].shape, np.bool_)
    for slot in range(element["document_id"].shape[1]):
      own = np.isin(element["document_id"][:, slot], self.documents)
      lost |= own[:, None] & (element["segment_ids"] == slot + 1)
    out["tokens"] = np.where(lost, 0, element["tokens"])
    out["segment_ids"] = np.where(lost, 0, element["segment_ids"])
    out["loss_mask"] = element["loss_mask"] & ~lost
    out["document_id"] = np.where(
      np.isin(element["document_id"], self.documents),
      -1,
      element["document_id"],
    )
    return out


@pytest.mark.slow
def test_training_goes_on_as_if_tokens_were_masked_by_hand(corpora, tmp_path):
  """From the checkpoint before: parameters are equal, bit for bit."""
  documents, first, last = [3, 7, 11, 12, 20, 31], 4, 9
  data = run_of(corpora, "ffd", lookahead=False, mask_boundary_loss=True)
  trainer = training.Trainer(
    decoder_lib.DecoderConfig(
      vocab_size=256,
      max_positions=SEQ_LEN,
      d_model=8,
      num_layers=1,
      num_heads=2,
      mlp_dim=16,
    ),
    training.OptimizerOptions(warmup_steps=2, learning_rate=1e-2),
    num_steps=last,
    mesh=jax.sharding.Mesh(np.asarray(jax.devices()[:1]), ("data",)),
  )
  entries = [("b", document, None, None) for document in documents]
  file = written(tmp_path / "gone.jsonl", entries)
  edited = {**data, "tombstones": ((first, file),)}

  def trained(state, it, steps):
    told = 0
    for _ in range(steps):
      state, metrics = trainer.step(state, next(it))
      told += int(metrics["tokens"])
    return state, told

  it = iterators.make_iterator(data, trainer.batch_sharding)
  start, _ = trained(trainer.init(0), it, first)
  # Steps take the memory of the state that they are given.
  start, saved = jax.device_get(start), it.get_state()
  ends = []
  for config, operations in (
    (edited, []),
    (data, [Masked(documents)]),
    (data, []),
  ):
    own = iterators.make_iterator(
      config, trainer.batch_sharding, operations=operations
    )
    own.set_state(saved, allow_changes=("operations",))
    state = jax.device_put(
      start, jax.tree.map(lambda x: x.sharding, trainer.init(0))
    )
    state, told = trained(state, own, last - first)
    ends.append((jax.tree.leaves(jax.device_get(state)), told))
    own.close()
  it.close()
  (gone, count), (masked, by_hand), (plain, _) = ends
  assert count == by_hand
  assert all(np.array_equal(a, b) for a, b in zip(gone, masked, strict=True))
  assert not all(np.array_equal(a, b) for a, b in zip(gone, plain, strict=True))
  # And the trainer's own count is that of the accounts.
  accounts = pipeline.build(edited).accounts
  trained_tokens = [accounts.at(at)["b"].loss_tokens for at in (first, last)]
  assert trained_tokens[1] - trained_tokens[0] == count


def test_what_is_gone_is_told_by_content(corpora, tmp_path):
  def state_of(step, *files):
    it = iterators.make_iterator(
      run_of(corpora, "exact", tombstones=tuple(files))
    )
    it.seek(step)
    return it.get_state(), it

  ids = tmp_path / "ids.jsonl"
  ids.write_text(
    '{"source": "b", "document": "4", "start": 0, "length": 1}\n'
    '{"source": "b", "document": 3}\n\n'
  )
  numbers = tmp_path / "numbers.jsonl"
  numbers.write_text(
    '{"source": "b", "document": 3}\n'
    '{"source": "b", "document": 4, "length": 1}\n'
  )
  other = tmp_path / "other.jsonl"
  other.write_text('{"source": "b", "document": 3}')
  saved, _ = state_of(8, (5, str(ids)))
  state_of(0, (5, str(numbers)))[1].set_state(saved)
  for files in ([(5, str(other))], []):
    with pytest.raises(
      state_lib.StateError,
      match=r"tombstones\.5: .* step 8 or later, or go back to .* of step 5 or",
    ):
      state_of(0, *files)[1].set_state(saved)
  early, _ = state_of(5)
  state_of(0, (5, str(ids)))[1].set_state(early)
  state_of(0, (5, str(ids)), (9, str(other)))[1].set_state(saved)


LINES = [
  ("{", "the line must be a JSON object"),
  ("[1]", "the line must be a JSON object"),
  ('{"source": "c", "document": 1}', "`source` must be one of 'b', got 'c'"),
  ('{"document": 1}', "`source` must be one of"),
  ('{"source": "b"}', "`document` must be an id in quotes or a whole"),
  ('{"source": "b", "document": true}', "`document` must be an id"),
  ('{"source": "b", "document": 40}', "must be of the 40 documents"),
  ('{"source": "b", "document": "x"}', "must be of the 40 documents"),
  ('{"source": "b", "document": -1}', "must be of the 40 documents"),
  ('{"source": "b", "document": 1, "start": -1}', "`start` must be"),
  ('{"source": "b", "document": 1, "length": 0}', "`length` must be"),
  ('{"source": "b", "document": 1, "start": 99}', "must lie in the"),
  ('{"source": "b", "document": 1, "length": 99}', "must lie in the"),
  ('{"source": "b", "document": 1, "end": 5}', "`line.end` is not a known"),
  ('{"source": "b", "document": 7}', "must not be removed twice"),
  ('{"source": "b", "document": 7, "start": 1}', "must not be removed twice"),
  ('{"source": "b", "document": 0}\n{"source": "b", "document": 0}', "twice"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "wrong"), LINES)
def test_a_wrong_line_is_named_with_its_file(corpora, tmp_path, line, wrong):
  file = tmp_path / "gone.jsonl"
  file.write_text('{"source": "b", "document": 7, "length": 2}\n' + line)
  data = run_of(corpora, "exact", tombstones=((2, str(file)),))
  with pytest.raises(schema.ConfigError) as error:
    pipeline.build(data)
  (problem,) = error.value.problems
  number = 2 + line.count("\n")
  assert problem.startswith(f"{file}:{number}: ")
  assert wrong in problem


def test_an_id_of_two_documents_is_refused(tmp_path):
  testing_stores.make_store(
    tmp_path / "s", [[5, 6, 7]] * 4, ids=["x", "y", "x", "z"]
  )
  file = written(tmp_path / "gone.jsonl", [("s", 1, None, None)])
  data = {
    "seq_len": 4,
    "global_batch_size": 1,
    "sources": {
      "s": {"store": str(tmp_path / "s"), "rows": {"kind": "sequential"}}
    },
    "tombstones": ((0, file),),
  }
  pipeline.build(data)
  (tmp_path / "gone.jsonl").write_text('{"source": "s", "document": "x"}')
  with pytest.raises(schema.ConfigError, match=r":1: .* 2 in 's': \[0, 2\]"):
    pipeline.build(data)


def test_other_wrong_tombstones_name_their_field(corpora, tmp_path, pictures):
  def build(files):
    pipeline.build(run_of(corpora, "exact", tombstones=files))

  file = str(tmp_path / "gone.jsonl")
  with pytest.raises(schema.ConfigError, match=r"tombstones\[0\]` must be a"):
    build(((2, file),))
  written(tmp_path / "gone.jsonl", [])
  build(((2, file), (5, file)))
  for wrong in (((2, file), (2, file)), ((5, file), (2, file))):
    with pytest.raises(schema.ConfigError, match=r"tombstones` .* that rise"):
      build(wrong)
  for wrong in (file, ((file, 2),), ((-1, file),), ((1,),)):
    with pytest.raises(
      schema.ConfigError, match=r"data\.tombstones` must be a"
    ):
      build(wrong)
  pictures = conftest.changed(pictures, tombstones=((2, file),))
  with pytest.raises(schema.ConfigError, match="None for samples that are ar"):
    pipeline.build(pictures)
