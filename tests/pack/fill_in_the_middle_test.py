# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Fill in the middle: pieces are rearranged, and nothing else changes.

A *piece* is compared as (row, document, first token, tokens) of the plan, with
the tokens that its segment holds in the batch.
"""

import collections
import functools
import json
import re

import numpy as np
import pytest
import rich.console

import chomp_data
from chomp_data import stores as chomp_data_stores
from chomp_data.audit import document_lists
from chomp_data.commands.html import gathering
from chomp_data.commands.inspecting import records
from chomp_data.commands.inspecting import terminal
from chomp_data.config import flags
from chomp_data.config import options
from chomp_data.rows import spans as spans_lib
from chomp_data.testing import stores as testing_stores
from tests.pack import pairs_test
from tests.sources import labelled

SEQ_LEN, BOS, EOS, IDS = 32, 2, 1, (253, 254, 255)
FIM = dict(zip(("prefix_id", "suffix_id", "middle_id"), IDS, strict=True))
ADDED = {"add_bos": True, "add_eos": True}


@pytest.fixture(scope="module")
def documents():
  """Tokens of documents: many short, some empty, some longer than a row."""
  rng = np.random.default_rng(0)
  lengths = rng.integers(0, 30, 240)
  lengths[::17] = rng.integers(40, 120, len(lengths[::17]))
  return [rng.integers(3, 250, n) for n in lengths]


@pytest.fixture(scope="module")
def stores(tmp_path_factory, documents):
  """Paths of a bare store and of one whose documents have BOS and EOS."""
  root = tmp_path_factory.mktemp("fim")
  ended = [np.asarray([BOS, *own, EOS]) for own in documents]
  testing_stores.make_store(root / "bare", documents, bos_id=BOS)
  testing_stores.make_store(
    root / "ended", ended, bos_id=BOS, adds_bos=True, adds_eos=True
  )
  return {"bare": str(root / "bare"), "ended": str(root / "ended")}


@pytest.fixture
def data(stores):
  def make(store="bare", rows=ADDED, run=None, **fim):
    if store != "bare":
      rows = {}
    return {
      "seq_len": SEQ_LEN,
      "global_batch_size": 4,
      "seed": 1,
      "epochs": 4,
      "remainder": "pad",
      "device_fields": "never",
      **(run or {}),
      "sources": {
        "a": {
          "store": stores[store],
          "rows": {
            "kind": "bin",
            "packing_buffer_docs": 40,
            "fim": {**FIM, **fim},
            **rows,
          },
        }
      },
    }

  return make


def plans(pipe):
  """Yields (step, batch, spans) of a run."""
  for step in range(pipe.num_steps):
    yield step, pipe.canonical(step), pipe.plan(step)


def pieces(spans):
  """Yields (row, segment, document, first token, stored tokens, spans)."""
  keys = list(zip(spans.row.tolist(), spans.segment.tolist(), strict=True))
  for row, segment in dict.fromkeys(keys):
    pick = np.flatnonzero((spans.row == row) & (spans.segment == segment))
    piece = spans.take(pick, np.zeros_like(pick), 1)
    (document,) = set(piece.document.tolist())
    first, count = int(piece.start.min()), int(piece.stored()[0].sum())
    yield row, segment, document, first, count, piece


def rearranged(piece):
  return piece.sentinels() is not None


def can_be_rearranged(piece, pipe, document, first, count):
  store = pipe.sources["a"].store
  whole = int(store.bounds(np.asarray([document]))[1][0])
  sentinels = 0 if piece.sentinels() is None else int(piece.sentinels().sum())
  tokens = int(piece.length.sum()) - sentinels
  added = pipe.sources["a"].layout.eos_id is not None
  ends = (piece.added_after == spans_lib.EOS).any() if added else (
    first + count == whole
  )  # fmt: skip
  return bool(ends) and tokens >= 4


def test_the_rearranged_share_is_the_rate_within_chance(data):
  rate = 0.3
  pipe = chomp_data.build(data(run={"epochs": 12}, rate=rate, spm_rate=0.25))
  able = changed = suffix_first = 0
  cuts = []
  for _, _, spans in plans(pipe):
    for _, _, document, first, count, piece in pieces(spans):
      able += can_be_rearranged(piece, pipe, document, first, count)
      if rearranged(piece):
        changed += 1
        at = np.flatnonzero(piece.added_before >= spans_lib.SENTINEL)
        stored = piece.stored()[0][at]
        suffix_first += stored[0] == 0
        cuts.append(stored[1] / max(count, 1))
  assert able > 2_000
  # Four standard deviations.
  assert abs(changed - able * rate) <= 4 * (able * rate * (1 - rate)) ** 0.5
  if changed > 200:
    # Some prefixes of PSM are empty too: about 2 in (tokens + 1).
    assert 0.25 * changed < suffix_first < 0.45 * changed
    # Suffixes are a third of a piece on average.
    assert abs(np.mean(cuts) - 1 / 3) < 0.03


def test_one_packing_serves_all_epochs_and_choices_differ(data):
  def packed(pipe):
    found = collections.defaultdict(dict)
    rows = len(pipe.sources["a"])
    for epoch in range(3):
      spans = pipe.sources["a"].plan(
        np.arange(epoch * rows, (epoch + 1) * rows)
      )
      for row, segment, document, first, count, piece in pieces(spans):
        key = row, segment, document, first, count, int(piece.column.min())
        lengths = tuple(piece.stored()[0].tolist())
        found[epoch][key] = None if not rearranged(piece) else lengths[-3:]
    return found

  rows = {**ADDED, "shuffle_rows": False}
  found = packed(chomp_data.build(data(rows=rows)))
  never = packed(chomp_data.build(data(rows=rows, rate=0.0)))
  assert set(found[0]) == set(found[1]) == set(found[2]) == set(never[0])
  assert not any(never[0].values())
  keys = [key for key in found[0] if key[4] > 10]
  for one, two in ((0, 1), (1, 2), (0, 2)):
    changed = [(found[one][key], found[two][key]) for key in keys]
    flipped = sum((a is None) != (b is None) for a, b in changed)
    both = [(a, b) for a, b in changed if a is not None and b is not None]
    # About half of the pieces, which are all rearranged half of the time.
    assert 0.25 < flipped / len(changed) < 0.65
    assert len(both) > 10
    assert sum(a == b for a, b in both) < 0.2 * len(both)


def test_a_mix_counts_original_tokens(data):
  """With sentinels as without, in sums as in plans."""
  plain = chomp_data.build(data(rate=0.0)).sources["a"]
  rows = chomp_data.build(data()).sources["a"]
  epochs = rows.epochs.size(0), rows.epochs.size(1)
  assert epochs == (plain.epochs.size(0), plain.epochs.size(1))
  for unit in ("tokens", "loss_tokens", "rows"):
    for epoch in (0, 1):
      at = np.arange(epochs[epoch])
      wanted = plain.units(epoch, at, unit)
      np.testing.assert_array_equal(rows.units(epoch, at, unit), wanted)
      planned = chomp_data.RowSource.units(rows, epoch, at, unit)
      np.testing.assert_array_equal(planned, wanted)
      blocks = rows.block_units(epoch, unit, None)
      if blocks is not None:
        assert blocks.units.sum() == wanted.sum()


def test_a_removed_last_token_of_a_piece_leaves_the_next_piece(data, tmp_path):
  """Also where both cuts are before the first token of the next piece."""
  path = tmp_path / "long"
  testing_stores.make_store(path, [np.arange(10, 27)] * 60)
  file = tmp_path / "gone.jsonl"
  # Rows hold 13 tokens and 3 sentinels: token 12 is the first piece's last one.
  file.write_text("".join(
    json.dumps({"source": "a", "document": i, "start": 12, "length": 1}) + "\n"
    for i in range(60)
  ))  # fmt: skip
  run = {"seq_len": 16, "global_batch_size": 1}
  config = data(rows={"add_eos": True}, rate=1.0, run=run)
  config["sources"]["a"]["store"] = str(path)
  plain = chomp_data.build(config)
  pipe = chomp_data.build({**config, "tombstones": ((0, str(file)),)})
  empty = 0
  for step, batch, spans in plans(plain):
    other = pipe.canonical(step)
    for row, segment, _, first, *_, piece in pieces(spans):
      if first != 13:
        continue
      at = batch["segment_ids"][row] == segment
      for name in ("tokens", "segment_ids", "positions", "loss_mask"):
        np.testing.assert_array_equal(
          other[name][row, at], batch[name][row, at]
        )
      middle = piece.added_after == spans_lib.EOS
      empty += ((piece.stored()[0] == 0) & middle & (piece.start == 13)).sum()
  assert empty


def test_parts_of_a_document_have_all_its_trained_tokens(tmp_path, data):
  """Also an EOS that follows a middle outside of the part that ends with it.

  A token that opens its piece after a sentinel is trained on, and so counts in
  its part; a piece of n tokens counts n - 1.
  """
  path, rng = tmp_path / "short", np.random.default_rng(0)
  lengths = rng.integers(3, 12, 80)
  testing_stores.make_store(path, [np.arange(10, 10 + n) for n in lengths])
  config = data(rows={"add_eos": True}, rate=1.0, run={"global_batch_size": 4})
  config["sources"]["a"]["store"] = str(path)
  pipe = chomp_data.build(config)
  opened = 0
  for _, _, spans in plans(pipe):
    opens = (spans.added_before >= spans_lib.SENTINEL) & ~spans.joined()
    opened += (opens & (spans.stored()[0] == 0)).sum()
  assert opened
  loss_tokens = pipe.accounts.at(pipe.num_steps)["a"].loss_tokens
  for cut in (1, 2, -1):
    total = 0
    for of_tail in (False, True):
      lines = []
      for i, length in enumerate(lengths.tolist()):
        at = cut % length
        start, count = (at, length - at) if of_tail else (0, at)
        lines.append(
          {"source": "a", "document": i, "start": start, "length": count}
        )
      file = tmp_path / "lines.jsonl"
      file.write_text("".join(json.dumps(line) + "\n" for line in lines))
      answer = document_lists.answer(pipe, str(file), pipe.num_steps, 0)
      total += answer.summary["trained_tokens"]
    assert total == loss_tokens + opened


@pytest.mark.parametrize("store", ["bare", "ended"])
def test_what_a_phase_leaves_is_rearranged_where_documents_end(
  data, tmp_path, store
):
  config = data(store, rate=1.0)
  pipe = chomp_data.build(config)
  times = collections.Counter()
  with chomp_data.make_iterator(pipe) as iterator:
    for step in range(9):
      next(iterator)
      for *_, document, first, count, _ in pieces(pipe.plan(step)):
        times.update((document, first + i) for i in range(count))
    (tmp_path / "input.json").write_bytes(iterator.get_state())
  rest = chomp_data.build(
    {**config, "epochs": 1, "start_after": str(tmp_path), "seq_len": 24}
  )
  changed = 0
  for _, _, spans in plans(rest):
    for *_, document, first, count, piece in pieces(spans):
      times.update((document, first + i) for i in range(count))
      wanted = can_be_rearranged(piece, rest, document, first, count)
      assert rearranged(piece) == wanted
      changed += wanted
  assert changed > 50
  assert set(times.values()) == {1}
  assert len(times) == pipe.sources["a"].store.num_tokens


def test_weights_of_other_sources_leave_sentinels_out(data, tmp_path):
  corpus = labelled.make(
    functools.partial(testing_stores.make_store, tmp_path / "w"),
    [20, 30, 15, 12] * 5,
    weights=True,
  )
  config = data(train_sentinels=False, run={"epochs": None})
  config["sources"]["b"] = {
    "store": corpus.path, "rows": {"kind": "bin", "add_eos": True},
  }  # fmt: skip
  pipe = chomp_data.build(config)
  compared = 0
  for step in range(20):
    batch = pipe.canonical(step)
    rows = batch["source_id"] == pipe.source_names.index("a")
    mask = batch["loss_mask"][rows]
    np.testing.assert_array_equal(batch["loss_weight"][rows], mask * 1.0)
    label = np.isin(batch["tokens"][rows], IDS)[:, 1:]
    assert not mask[:, :-1][label].any()
    compared += label.sum()
  assert compared > 20


def test_columns_move_with_their_tokens(data, documents, tmp_path):
  """Each value is that of its token; sentinels and added tokens have none."""
  columns = {
    "same": chomp_data_stores.Column(dtype="uint16"),
    "number": chomp_data_stores.Column(dtype="int32", per="document"),
    "next": chomp_data_stores.Column(dtype="uint16", align="target"),
  }
  testing_stores.make_store(
    tmp_path / "c",
    documents,
    bos_id=BOS,
    columns=columns,
    column_values={
      "same": [np.asarray(own, np.uint16) for own in documents],
      "number": list(np.arange(len(documents), dtype=np.int32)),
      "next": [np.asarray(own, np.uint16) for own in documents],
    },
  )
  run = {"columns": ("same", "number"), "document_id": True}
  config = data(run=run, rate=1.0)
  config["sources"]["a"]["store"] = str(tmp_path / "c")
  pipe = chomp_data.build(config)
  for step in range(0, pipe.num_steps, 5):
    batch = pipe.canonical(step)
    tokens = batch["tokens"]
    stored = (batch["segment_ids"] > 0) & ~np.isin(tokens, (BOS, EOS, *IDS))
    np.testing.assert_array_equal(batch["same"], np.where(stored, tokens, 0))
    document = batch["document_id"]
    np.testing.assert_array_equal(batch["number"], np.maximum(document, 0))
  config["columns"] = ("next",)
  with pytest.raises(chomp_data.ConfigError, match=r"targets with.* rows\.fim"):
    chomp_data.build(config)


def test_a_view_names_the_parts(data):
  pipe = chomp_data.build(data(rate=1.0, run={"global_batch_size": 2}))
  console = rich.console.Console(record=True, width=200)
  terminal.print_step(console, pipe, 0, range(2), plan_only=False)
  text = console.export_text()
  for own in records.json_rows(pipe, 0, plan_only=True):
    for span in own["spans"]:
      assert ("part" in span) == ("sentinels" in span)
      last = span["column"] + span["length"] - 1
      if "part" in span:
        assert f"columns {span['column']}..{last} <- document" in text
        assert f"<{span['part']}>" in text
  assert text.count("prefix: ") == text.count("<prefix>") > 0
  shown = gathering.gathered(pipe, range(1))["steps"][0]["spans"]
  assert shown["flags"] is not None


def test_another_kind_on_the_command_line_leaves_it_out():
  config = chomp_data.load_config("fill_in_the_middle")
  source = "data.sources.code.rows"
  flags.apply(config, [f"{source}.kind=sequential"], {})
  assert options.read(config.data).sources["code"].rows.add_eos
  config = chomp_data.load_config("fill_in_the_middle")
  flags.apply(config, [f"{source}.fim.rate=0.25"], {})
  assert options.read(config.data).sources["code"].rows.fim.rate == 0.25
  flags.apply(config, [f"{source}.fim=None"], {})
  assert options.read(config.data).sources["code"].rows.fim is None


@pytest.mark.parametrize(
  ("change", "rows", "run", "text"),
  [
    ({"rate": 1.5}, {}, {}, r"rows\.fim\.rate` must be a number in \[0, 1\]"),
    ({"cut": "byte"}, {}, {}, r"rows\.fim\.cut` must be one of 'token', got"),
    ({"prefix": 3}, {}, {}, r"fim\.prefix` is not a known field.*prefix"),
    ({"prefix_id": 254}, {}, {}, r"three different ids, got \(254, 254, 255\)"),
    ({"prefix_id": 256}, {}, {}, r"fim\.prefix_id` must be below .* 256"),
    ({"middle_id": 1}, {}, {}, r"middle_id` must be another id than the EO"),
    ({"suffix_id": 0}, {}, {}, r"suffix_id` must be another id than pad"),
    ({}, {"add_eos": False}, {}, r"add_eos` must be True with.*got False"),
    ({}, {"packing_algorithm": "exact"}, {}, r"rows\.fim` must be None with"),
    ({}, {"trailing_filler_in_segment": True}, {}, r"must be False with `conf"),
    ({}, {"kind": "sequential", "packing_buffer_docs": None}, {},
     r"rows\.fim` must be left out where.*Set kind to 'bin', or remove it"),
    ({}, {"kind": "windows", "packing_buffer_docs": None, "add_bos": None,
          "add_eos": None}, {}, r"rows\.fim` must be left out where"),
    ({}, {}, {"mask_boundary_loss": False}, r"boundary_loss` must be True"),
    ({}, {}, {"seq_len": 6}, r"seq_len` must be at least 7 with.*got 6"),
  ],
)  # fmt: skip
def test_what_cannot_be_is_an_error(data, change, rows, run, text):
  config = data(run=run, **change)
  for name, value in rows.items():
    section = config["sources"]["a"]["rows"]
    section[name] = value
    if value is None:
      del section[name]
  with pytest.raises(chomp_data.ConfigError, match=text):
    chomp_data.build(config)


def test_missing_ids_and_other_sections_are_errors(data, stores):
  config = data()
  rows = config["sources"]["a"]["rows"]
  rows["fim"] = {"rate": 0.5}
  with pytest.raises(chomp_data.ConfigError, match=r"prefix_id` must be s"):
    chomp_data.build(config)
  rows["fim"] = 0.5
  with pytest.raises(chomp_data.ConfigError, match=r"fim` must be a section"):
    chomp_data.build(config)
  with pytest.raises(chomp_data.ConfigError, match="fim` must be a section"):
    chomp_data.BinOptions(fim=0.5)
  config["buckets"] = {"kind": "length", "lengths": (8, 16)}
  with pytest.raises(chomp_data.ConfigError, match="fim"):
    chomp_data.build(config)


@pytest.mark.parametrize(
  ("weights", "table"), [(True, None), (False, labelled.LEVELS)]
)
def test_labels_are_refused(data, tmp_path, weights, table):
  corpus = labelled.make(
    functools.partial(testing_stores.make_store, tmp_path / "l"),
    [20, 30, 15, 12] * 5,
    table=table,
    weights=weights,
    bos_id=BOS,
  )
  config = data()
  config["sources"]["a"]["store"] = corpus.path
  with pytest.raises(chomp_data.ConfigError, match="of labels or weights, got"):
    chomp_data.build(config)


def test_preference_pairs_are_refused(data, tmp_path):
  store = pairs_test.write(tmp_path / "pairs", [(4, 8, 8)] * 9)
  config = data(prefix_id=1_000, suffix_id=1_001, middle_id=1_002)
  config["sources"]["a"]["store"] = store.path
  with pytest.raises(chomp_data.ConfigError, match="of preference pairs, got"):
    chomp_data.build(config)


def test_a_fingerprint_names_it_where_it_is_set(data):
  config = data()
  section = config["sources"]["a"]["rows"]
  rows = chomp_data.build(config).sources["a"].fingerprint["rows"]
  assert rows["fim"] == {
    "rate": 0.5, "spm_rate": 0.5, **FIM, "cut": "token",
    "train_sentinels": True,
  }  # fmt: skip
  with chomp_data.make_iterator(config) as iterator:
    next(iterator)
    state = iterator.get_state()
  section["fim"] = None
  fingerprint = chomp_data.build(config).sources["a"].fingerprint
  assert "fim" not in fingerprint["rows"]
  with (
    chomp_data.make_iterator(config) as iterator,
    pytest.raises(chomp_data.StateError, match="fim"),
  ):
    iterator.set_state(state)


@pytest.mark.parametrize("long_documents", ["cut", "truncate", "drop"])
def test_the_log_says_how_much_can_be_rearranged(data, long_documents):
  rows = {**ADDED, "long_documents": long_documents}
  pipe = chomp_data.build(data(rows=rows, run={"epochs": 1}, rate=0.25))
  (line,) = (
    line for line in pipe.describe().splitlines() if "fim: rate" in line
  )
  most = re.fullmatch(
    r"  fim: rate 0.25 of the pieces with their document's end, which hold (at"
    r" most )?([\d.]+)% of the tokens",
    line,
  )
  assert most is not None
  assert bool(most[1]) == (long_documents == "cut")
  # In order, all of a piece is one span.
  pipe = chomp_data.build(data(rows=rows, run={"epochs": 1}, rate=0.0))
  ended = total = 0
  for step in range(pipe.num_steps):
    spans = pipe.plan(step)
    total += spans.length.sum()
    ended += spans.length[spans.added_after == spans_lib.EOS].sum()
  share = 100 * ended / total
  if long_documents == "cut":
    assert share - 0.1 <= float(most[2]) < 100
  else:
    assert float(most[2]) == pytest.approx(share, abs=0.06)


def test_the_log_says_that_little_can_be_rearranged(tmp_path, data):
  """Of documents of 100 rows the ends are at most a hundredth."""
  capacity = SEQ_LEN - 3
  documents = [np.full(100 * capacity, 9)] * 6
  testing_stores.make_store(tmp_path / "long", documents)
  config = data(rows={"add_eos": True})
  config["sources"]["a"]["store"] = str(tmp_path / "long")
  assert "which hold at most 1.0% of" in chomp_data.build(config).describe()
