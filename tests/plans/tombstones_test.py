"""Documents and spans that are gone, against a slow reference.

The reference marks positions one by one in batches of the run that nothing is
gone of, by the text of the docs: it knows spans, and no intervals.
"""

import json

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.testing import stores as testing_stores
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

    def make_store(name=name, **options):
      return testing_stores.make_store(root / name, **options)

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
    bos = own.bos is not None and bool(own.bos[i])
    eos = own.eos is not None and bool(own.eos[i])
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
  lost_of = {}
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
    if end == SEQ_LEN - 1 and own.following is not None:
      _, document, _ = cells[end]
      last = int(own.start[-1] + own.stored()[0][-1])
      if own.following[-1] == 1:
        follows_gone = gone(document, last)
      elif own.following[-1] == 2:
        follows_gone = gone(document, last - 1 if document[2] else None)
    for column in range(out["tokens"].shape[1]):
      if column in lost:
        out["tokens"][row, column] = filler
        out["segment_ids"][row, column] = 0
        out["attention_mask"][row, column] = False
      if column > end and end in lost:
        out["segment_ids"][row, column] = 0
      dead = column in lost or column + 1 in lost
      if column == out["tokens"].shape[1] - 1:
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
      if own.gone is not None and own.gone[i]:
        low = int(own.column[i])
        found[int(own.row[i])] |= set(range(low, low + int(own.length[i])))
    assert found == lost
    for name, account in pipe.accounts.at(step).items():
      assert [account.tokens, account.loss_tokens] == counts[name], step
    if not pipe.in_buckets:
      assert pipe.resume_state(step) == plain.resume_state(step)
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rows", ROWS)
def test_what_is_gone_of_mixes_is_filler(corpora, tmp_path, rows, seed):
  check(corpora, tmp_path, rows, ("a", "b"), seed)


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
  assert "gone from data step 2 on" in pipe.describe()
  assert_marked(pipe, plain, files, min(plain.num_steps, 14))
  # Several steps at once, and rows that were read ahead, are the same.
  source = pipe.batch_source()
  for step in range(min(plain.num_steps, 14)):
    for name, value in source[step].items():
      assert np.array_equal(value, pipe.canonical(step)[name])
