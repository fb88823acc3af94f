# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A row kind whose spans are not in the order of their document: fill in the
middle, as a sketch of some fifty lines that shows what `Spans` allows."""

import dataclasses
import json

import numpy as np
import pytest

import chomp_data
from chomp_data import row_kinds
from chomp_data.audit import verifying
from chomp_data.index import hashing
from chomp_data.kernels import compiled
from chomp_data.pack import bins
from chomp_data.pack import packing_options
from chomp_data.rows import spans as spans_lib
from chomp_data.testing import stores as testing_stores
from tests.audit import visits_test

SEQ_LEN, PIECES = 40, 4
BOS, EOS, IDS = 1, 2, (90, 91, 92)
PREFIX, SUFFIX, MIDDLE = range(spans_lib.SENTINEL, spans_lib.SENTINEL + 3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RearrangedOptions(packing_options.BinOptions):
  """Those of packing."""


class RearrangedSource(bins.BinSource):
  """Rows of packed pieces; some pieces are prefix, suffix, middle."""

  kind = "rearranged"
  option_classes = (RearrangedOptions,)

  def __init__(self, store, options, *, seq_len, seed, name, path):
    # Each piece reserves three positions, whether it is rearranged or not.
    packed = seq_len - 3 * PIECES
    super().__init__(
      store, options, seq_len=packed, seed=seed, name=name, path=path
    )
    self.key = hashing.fold_key(seed, name, "rearranged")
    self.layout = dataclasses.replace(
      self.layout, seq_len=seq_len, sentinel_ids=IDS
    )

  @property
  def repeating_units(self):
    return {"tokens": 0, "loss_tokens": 0}

  def plan(self, rows):
    spans = super().plan(rows)
    if not len(spans):
      return spans
    hashes = hashing.fold(self.key, self.epochs.locate(rows)[0][spans.row])
    hashes = hashing.fold(hashing.fold(hashes, spans.document), spans.start)
    hashes = (hashes >> np.uint64(1)).astype(np.int64)
    n, (before, after) = spans.stored()[0], added(spans)
    cut = (after > 0) & (n >= 4) & (hashes % 4 > 0)
    low, high = np.sort(
      [hashes // 4 % 61 % (n + 1), hashes // 256 % (n + 1)], 0
    )
    # Suffix first: the prefix comes with the middle.
    first = np.where(hashes % 4 == 1, 0, low)
    zero = np.zeros_like(n)
    # A part is [begin, end) of the piece's tokens in the store.
    begin = np.stack([zero, zero, high, first])
    end = np.stack([zero, np.where(cut, first, n), n, high])
    ahead = np.stack([
      np.where(cut, before, 0),
      np.where(cut, PREFIX, before),
      zero + SUFFIX,
      zero + MIDDLE,
    ])  # fmt: skip
    behind = np.stack([zero, np.where(cut, 0, after), zero, after])
    used = np.stack([cut & (before > 0), cut | True, cut, cut]).T
    begin, end, ahead, behind = (
      value.T for value in (begin, end, ahead, behind)
    )
    length = (end - begin + (ahead > 0) + (behind > 0)) * used
    room = spans.column + 3 * (spans.segment - 1)
    column = room[:, None] + np.cumsum(length, axis=1) - length
    piece, part = np.nonzero(used)
    spans = spans.take(piece, spans.row[piece], spans.num_rows)
    return dataclasses.replace(
      spans,
      start=spans.start + begin[piece, part],
      offset=spans.offset + begin[piece, part],
      length=length[piece, part],
      column=column[piece, part],
      added_before=ahead[piece, part].astype(np.int8),
      added_after=behind[piece, part].astype(np.int8),
    )


def added(spans):
  return (
    np.zeros(len(spans), np.int8) if value is None else value
    for value in (spans.added_before, spans.added_after)
  )


@pytest.fixture(scope="module")
def documents():
  rng = np.random.default_rng(0)
  return [rng.integers(3, 80, n) for n in rng.integers(1, 60, 40)]


@pytest.fixture
def data(monkeypatch, tmp_path, documents):
  kind = row_kinds.RowKind(RearrangedOptions, RearrangedSource)
  monkeypatch.setitem(row_kinds.ROW_KINDS, "rearranged", kind)
  testing_stores.make_store(
    tmp_path / "text",
    documents,
    ids=[str(i) for i in range(len(documents))],
    vocab_size=100,
  )
  rows = {
    "kind": "rearranged",
    "packing_max_docs_per_bin": PIECES,
    "packing_buffer_docs": 8,
    "reset_positions": True,
    "add_bos": True,
    "add_eos": True,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "trailing_filler_in_segment": False,
  }
  return {
    "seq_len": SEQ_LEN,
    "global_batch_size": 4,
    "seed": 1,
    "epochs": 2,
    "device_fields": "never",
    "sources": {"a": {"store": str(tmp_path / "text"), "rows": rows}},
  }


def in_order(tokens):
  """Returns the tokens of a piece in their order, and its form."""
  parts, at = {}, None
  for token in tokens:
    if token in IDS:
      at = IDS.index(token)
    parts.setdefault(at, []).extend([] if token in IDS else [token])
  if set(parts) <= {None}:
    return parts[None], "plain"
  assert list(parts) in ([None, 0, 1, 2], [0, 1, 2])
  head, prefix, suffix, middle = (parts.get(i, []) for i in (None, 0, 1, 2))
  assert middle.pop() == EOS
  form = "prefix" if prefix else "suffix"
  return [*head, *prefix, *middle, *suffix, EOS], form


def pieces_of(pipe, step, documents):
  """Yields each piece of a step: its form, and its positions."""
  batch, spans = pipe.canonical(step), pipe.plan(step)
  for row in range(pipe.global_batch_size):
    of_row = spans.rows(row, row + 1)
    ids = batch["segment_ids"][row]
    assert sorted(set(ids) - {0}) == list(range(1, ids.max() + 1))
    assert not batch["loss_mask"][row][ids == 0].any()
    for segment in range(1, ids.max() + 1):
      at = np.flatnonzero(ids == segment)
      assert (np.diff(at) == 1).all()
      assert batch["positions"][row, at].tolist() == list(range(len(at)))
      # Each position but the last has its target in the piece.
      assert batch["loss_mask"][row, at[:-1]].all()
      assert not batch["loss_mask"][row, at[-1]]
      tokens, form = in_order(batch["tokens"][row, at].tolist())
      pick = np.flatnonzero(of_row.segment == segment)
      mine = of_row.take(pick, np.zeros_like(pick), 1)
      document = documents[mine.document[0]].tolist()
      before, after = added(mine)
      begin, count = mine.start.min(), mine.stored()[0].sum()
      assert tokens == [
        *[BOS] * int((before == spans_lib.BOS).sum()),
        *document[begin : begin + count],
        *[EOS] * int((after == spans_lib.EOS).sum()),
      ]
      yield form, mine


@pytest.mark.parametrize("fast", [False, True])
def test_rows_hold_every_token_once_in_one_of_the_forms(data, documents, fast):
  pipe = chomp_data.build({**data, "global_batch_size": 1})
  forms, seen = [], np.zeros(len(documents), np.int64)
  with compiled.allowed(fast):
    for step in range(pipe.num_steps):
      for form, mine in pieces_of(pipe, step, documents):
        forms.append(form)
        np.add.at(seen, mine.document, mine.stored()[0])
  assert {form: forms.count(form) > 5 for form in forms} == {
    "plain": True, "prefix": True, "suffix": True
  }  # fmt: skip
  assert seen.tolist() == [2 * len(tokens) for tokens in documents]


def test_it_restores_at_every_step_and_devices_make_the_same_fields(data):
  pipe = chomp_data.build(data)
  wanted = [pipe.batch(step) for step in range(pipe.num_steps)]
  for fields in ("never", "always"):
    section = {**data, "device_fields": fields}
    with chomp_data.make_iterator(section) as iterator:
      for step in range(pipe.num_steps):
        iterator.seek(step)
        batch = next(iterator)
        assert sorted(batch) == sorted(wanted[step])
        for name, value in wanted[step].items():
          np.testing.assert_array_equal(np.asarray(batch[name]), value)


def test_certificates_traces_and_accounts_hold(data):
  pipe = chomp_data.build(data)
  with chomp_data.make_iterator(data) as iterator:
    for _ in range(5):
      next(iterator)
    state = json.loads(iterator.get_state())
  assert verifying.verified(pipe, [state]).agrees
  visits_test.check(pipe, 4)
  counted = np.zeros(2, np.int64)
  for step in range(pipe.num_steps):
    account = pipe.accounts.at(step)["a"]
    assert [account.tokens, account.loss_tokens] == counted.tolist()
    spans = pipe.plan(step)
    before, after = added(spans)
    tokens = spans.stored()[0].sum()
    tokens += (before == spans_lib.BOS).sum() + (after == spans_lib.EOS).sum()
    pieces = set(zip(spans.row.tolist(), spans.segment.tolist(), strict=True))
    counted += tokens, tokens - len(pieces)


def test_a_piece_with_a_removed_token_is_not_rearranged(
  data, documents, tmp_path
):
  file = tmp_path / "gone.jsonl"
  document = next(i for i, tokens in enumerate(documents) if len(tokens) == 19)
  file.write_text(json.dumps(
    {"source": "a", "document": str(document), "start": 7, "length": 2}
  ))  # fmt: skip
  plain = chomp_data.build(data)
  pipe = chomp_data.build({**data, "tombstones": ((0, str(file)),)})
  rows, sentinels = 0, 0
  for step in range(pipe.num_steps):
    one, two = plain.canonical(step), pipe.canonical(step)
    spans = plain.plan(step)
    changed = set()
    for row in np.unique(spans.row[spans.document == document]).tolist():
      rows += 1
      segment = spans.segment[
        (spans.row == row) & (spans.document == document)
      ][0]
      at = np.flatnonzero(one["segment_ids"][row] == segment)
      sentinels += np.isin(one["tokens"][row, at], IDS).sum()
      tokens = [BOS, *documents[document].tolist(), EOS]
      tokens[8:10] = [two["tokens"][row, at[8]]] * 2
      assert two["tokens"][row, at[: len(tokens)]].tolist() == tokens
      changed.add(row)
    same = [row for row in range(4) if row not in changed]
    for name, value in one.items():
      np.testing.assert_array_equal(two[name][same], value[same])
  assert rows == 2
  assert sentinels
