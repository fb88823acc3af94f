# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Accounts at any step: equal to a slow count, and found without replay."""

import itertools

import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.loading import batches
from chomp_data.loading import certificate
from chomp_data.loading import state as state_lib
from chomp_data.order import shuffled
from chomp_data.plans import rows_questions
from chomp_data.plans import totals
from chomp_data.sources import document_columns
from chomp_data.sources import mix_units
from chomp_data.testing import stores as testing_stores

SEQ_LEN = 16
BATCH = 8
FAR = 10**6
SHUFFLES = {
  "none": {"kind": "none"},
  "block": {"kind": "block", "window_blocks": 2},
  "full": {"kind": "full"},
  "era": {"kind": "era", "era_length": 20},
}
ROWS = {
  "sequential": {"kind": "sequential"},
  "ffd": {"kind": "bin", "packing_buffer_docs": 8, "add_eos": True},
  "exact": {
    "kind": "bin",
    "packing_buffer_docs": 8,
    "packing_algorithm": "exact",
  },
}
RESHUFFLED = {
  "kind": "sequential",
  "shuffle_documents": "block",
  "document_block": 4,
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
  rng = np.random.default_rng(0)
  path = tmp_path_factory.mktemp("accounts") / "text"
  lengths = rng.integers(0, 40, 400)
  documents = [rng.integers(3, 250, size=n) for n in lengths]
  testing_stores.make_store(path, documents)
  return str(path)


@pytest.fixture(autouse=True)
def _many_edges(monkeypatch):
  monkeypatch.setattr(mix_units, "BLOCK_ROWS", 40)


def build(path, rows, shuffle, **changes):
  shuffle = SHUFFLES[shuffle]
  if shuffle["kind"] == "block" and rows["kind"] == "sequential":
    shuffle = {**shuffle, "io_block_size": 12}
  return pipeline.build(
    {
      "seq_len": SEQ_LEN,
      "global_batch_size": BATCH,
      "epochs": None,
      "sources": {"text": {"store": path, "rows": rows, "shuffle": shuffle}},
      **changes,
    }
  )


class Counted:
  """Counts the rows of a run of one source that are planned."""

  def __init__(self, pipe):
    self.source = pipe.run_plan.ordered["text"]
    self.planned = 0
    self._plan = self.source.plan
    self.source.plan = self._counted

  def __len__(self):
    return len(self.source)

  def _counted(self, rows):
    self.planned += len(rows)
    return self._plan(rows)


def trained(pipe, first, last):
  """Counts positions that rows train on, from their batches."""
  source = pipe.run_plan.ordered["text"]
  spans = shuffled.ShuffledSource.plan(source, np.arange(first, last))
  return source.rows.read(spans)["loss_mask"].sum(axis=1)


def test_where_epochs_are_alike_a_far_step_plans_one_or_two(path):
  pipe = build(path, ROWS["sequential"], "full")
  own = Counted(pipe)
  far = pipe.accounts.at(FAR)["text"]
  assert own.planned <= 3 * len(own)
  whole = trained(pipe, 0, len(own)).sum()
  epoch, index = divmod(FAR * BATCH, len(own))
  first = epoch * len(own)
  partial = trained(pipe, first, first + index).sum()
  assert far.loss_tokens == epoch * whole + partial
  # The next steps go on from there.
  own.planned = 0
  after = pipe.accounts.at(FAR + 3)["text"]
  assert own.planned == 3 * BATCH
  row = FAR * BATCH
  own_sum = trained(pipe, row, row + 3 * BATCH).sum()
  assert after.loss_tokens - far.loss_tokens == own_sum


# Where whole epochs are passed over: by what sources know of rows, or planned.
PASSED_OVER = {
  "windows": {"kind": "windows"},
  "slide": {
    "kind": "multi_splice",
    "num_docs": 50,
    "content_start_mode": "slide_within",
    "shuffle_offsets": True,
    "epoch_length": 130,
  },
  "rolled": {
    "kind": "multi_splice",
    "num_docs": 5,
    "content_length": 12,
    "content_start_mode": "cyclic_roll",
  },
  "curriculum": {
    "kind": "multi_splice",
    "num_docs": 9,
    "content_length": 4,
    "content_length_schedule": ((70, 12),),
    "epoch_length": 50,
  },
  "exact": {
    **ROWS["exact"], "shuffle_documents": "block", "document_block": 4,
  },
  "reshuffled": RESHUFFLED,
}  # fmt: skip


@pytest.mark.parametrize(
  ("rows", "shuffle"),
  zip(PASSED_OVER, itertools.cycle(SHUFFLES), strict=False),
)
def test_what_is_passed_over_is_what_rows_of_plans_hold(
  path, rows, shuffle, monkeypatch
):
  monkeypatch.setattr(rows_questions, "MANY_ROWS", 31)
  pipe = build(path, PASSED_OVER[rows], shuffle)
  source = pipe.run_plan.ordered["text"]
  steps = 3 * source.epochs.size(source.epochs.ramp) // BATCH + 20
  spans = source.plan(np.arange(steps * BATCH))
  tokens = np.cumsum([0, *spans.row_sums(spans.length)])
  trained_on = np.cumsum([0, *spans.row_sums(spans.length - 1)])
  for step in (1, steps // 5, steps // 2, steps - 1, steps):
    account = build(path, PASSED_OVER[rows], shuffle).accounts.at(step)["text"]
    row = step * BATCH
    assert (account.tokens, account.loss_tokens) == (
      tokens[row],
      trained_on[row],
    )


def test_sums_are_the_same_kept_beside_the_store(path, monkeypatch):
  for rows in ROWS:
    for shuffle in ("none", "block"):
      wanted = build(path, ROWS[rows], shuffle).accounts.at(77)
      with monkeypatch.context() as patch:
        patch.setattr(document_columns, "MIN_ON_DISK", 0)
        for _ in range(2):  # Built, then opened.
          assert build(path, ROWS[rows], shuffle).accounts.at(77) == wanted


@pytest.mark.parametrize(
  ("documents", "shuffle"), [("block", "era"), ("full", "block")]
)
def test_whole_epochs_of_a_reshuffled_stream_are_not_planned(
  path, documents, shuffle
):
  rows = {**RESHUFFLED, "shuffle_documents": documents}
  pipe = build(path, rows, shuffle)
  own = Counted(pipe)
  steps = 5 * len(own) // BATCH + 3
  found = pipe.accounts.at(steps)["text"].loss_tokens
  assert own.planned < len(own)
  assert found == trained(pipe, 0, steps * BATCH).sum()


@pytest.mark.parametrize("rows", ["sequential", "ffd"])
def test_a_state_of_before_accounts_leaves_what_is_known(path, rows):
  """A state that tells no sums: those that follow from the plan are there."""
  pipe = build(path, ROWS[rows], "block")
  wanted = pipe.accounts.at(90)
  assert pipe.accounts.restore({}, 80) == []
  assert pipe.accounts.at(90) == wanted


def test_what_must_be_planned_is_not_told_after_a_state_of_before(path):
  accounts = build(path, RESHUFFLED, "none").accounts
  assert accounts.restore({}, 80) == []
  own = accounts.at(90)["text"]
  assert own.loss_tokens is None
  stream = build(path, ROWS["sequential"], "none").accounts
  assert own.tokens == stream.at(90)["text"].tokens


@pytest.mark.parametrize("rows", ["exact", "reshuffled"])
def test_what_takes_minutes_to_count_is_told_by_no_state(
  path, rows, monkeypatch
):
  rows = PASSED_OVER[rows]
  whole = build(path, rows, "none").accounts
  monkeypatch.setattr(totals, "MAX_STATE_ROWS", 80 * BATCH)
  pipe = build(path, rows, "none")
  own = Counted(pipe)
  told = pipe.accounts.record(80)["accounts"]["text"]
  assert told["loss_tokens"] == whole.at(80)["text"].loss_tokens
  new = build(path, rows, "none")
  told = new.accounts.record(90)["accounts"]["text"]
  assert told["loss_tokens"] is None
  assert told["tokens"] == whole.at(90)["text"].tokens
  # Whoever asks for it has it, and so has a run that goes on from a state.
  assert build(path, rows, "none").accounts.at(90) == whole.at(90)
  own.planned = 0
  assert pipe.accounts.record(90) == whole.record(90)
  assert own.planned <= 20 * BATCH
  again = build(path, rows, "none")
  assert again.accounts.restore(whole.record(90), 90) == []
  assert again.accounts.record(95) == whole.record(95)


def with_certificate(state, other):
  """Returns a state with the certificate of another one."""
  record = state_lib.decode(other)
  field = {certificate.FIELD: record[certificate.FIELD]}
  return state_lib.with_fields(state, field)


@pytest.mark.parametrize("own", [True, False])
def test_states_after_a_seek_tell_the_same_at_once_and_later(
  path, own, monkeypatch
):
  monkeypatch.setattr(totals, "MAX_STATE_ROWS", 80 * BATCH)
  if not own:
    monkeypatch.setattr(batches.BatchSource, "count_into", lambda *_: False)
  for rows in ("slide", "exact", "reshuffled"):
    pipe = build(path, PASSED_OVER[rows], "none")
    with iterators.make_iterator(pipe, step=100) as it:
      never_read = it.get_state()
      it.seek(99)
      next(it)
      at_once = it.get_state()
      assert at_once == with_certificate(never_read, at_once)
      assert it.get_state() == at_once
      for _ in range(3):
        next(it)
      later = it.get_state()
    with iterators.make_iterator(pipe) as it:
      it.set_state(at_once)
      for _ in range(3):
        next(it)
      assert it.get_state() == later


def test_offsets_plan_nothing_and_count_no_trained_token(path):
  pipe = build(path, RESHUFFLED, "block")
  own = Counted(pipe)
  found = pipe.accounts.resume_state(900)["datasets"]
  assert own.planned == 0
  assert [entry["row_offset"] for entry in found] == [900 * BATCH]
  assert found[0]["token_offset"] == pipe.accounts.at(900)["text"].tokens
  record = pipe.accounts.record(20)
  assert record["resume_state"] == pipe.accounts.resume_state(20)


@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_a_step_beyond_the_run_is_refused(path, remainder):
  pipe = build(path, ROWS["ffd"], "none", epochs=1, remainder=remainder)
  steps = pipe.num_steps
  rows = len(pipe.sources["text"])
  given = pipe.accounts.resume_state(steps)["datasets"][0]["row_offset"]
  assert given == (rows if remainder == "pad" else steps * BATCH)
  for step in (steps + 1, 10**9, -1):
    for ask in (
      pipe.accounts.resume_state,
      pipe.accounts.at,
      pipe.accounts.rows,
    ):
      with pytest.raises(IndexError, match=rf"0 \.\. {steps}, got {step}\."):
        ask(step)
