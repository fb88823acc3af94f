# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs that start after another: every token of an epoch once between them.

Every token of a store has an id of its own, so that what batches hold tells
which tokens were handed out: nothing of plans is asked.
"""

import itertools
import json

import jax
import numpy as np
import pytest

import chomp_data
from chomp_data import errors
from chomp_data import fingerprints
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.audit import coverage
from chomp_data.loading import state as state_lib
from chomp_data.order import shuffled
from chomp_data.sources import document_columns
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores

KINDS = {
  "stream": {"kind": "sequential"},
  "blocks": {
    "kind": "sequential",
    "shuffle_documents": "block",
    "document_block": 4,
  },
  "all": {"kind": "sequential", "shuffle_documents": "full"},
  "ffd": {"kind": "bin", "packing_buffer_docs": 8},
  "exact": {
    "kind": "bin",
    "packing_algorithm": "exact",
    "packing_buffer_docs": 8,
    "shuffle_documents": "block",
    "document_block": 2,
  },
}
SHUFFLES = {
  "none": {"kind": "none"},
  "full": {"kind": "full"},
  "era": {"kind": "era", "era_length": 4},
  "block": {"kind": "block", "window_blocks": 2},
}
ORDERS = list(itertools.product(KINDS, SHUFFLES))
# Those of `make test`: each kind and shuffle before another one, and after one.
FEW = (2, 7, 9, 15, 16, 17)
BOS, EOS = 2, 1


def write(path, count, first, seed=0, **options):
  """Documents of tokens first, first + 1, ...: some empty, some long."""
  rng = np.random.default_rng(seed)
  lengths = rng.integers(0, 60, count)
  lengths[[0, count // 2]] = 0, 90
  ends = first + np.cumsum(lengths)
  documents = [
    np.arange(*own) for own in zip(ends - lengths, ends, strict=True)
  ]
  testing_stores.make_store(
    path, documents, vocab_size=8_192, bos_id=BOS, **options
  )
  return documents


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
  root = tmp_path_factory.mktemp("corpora")
  documents = {
    "a": write(root / "a", 30, 10),
    "b": write(root / "b", 23, 3_000, seed=1),
    "c": write(root / "c", 9, 5_000, seed=2),
  }
  paths = {name: str(root / name) for name in documents}
  tokens = {name: np.concatenate(own) for name, own in documents.items()}
  return paths, documents, tokens


def source(store, kind="stream", shuffle="none", **rows):
  return {
    "store": store,
    "rows": {**KINDS[kind], **rows},
    "shuffle": SHUFFLES[shuffle],
  }


def config(sources, seq_len, after=None, epochs=1, **fields):
  return {
    "seq_len": seq_len,
    "global_batch_size": 3,
    "seed": 5,
    "epochs": epochs,
    "remainder": "pad",
    "start_after": None if after is None else str(after),
    "sources": sources,
    **fields,
  }


def saved(pipe, step, directory):
  """A checkpoint of a run before a step."""
  directory.mkdir(parents=True)
  with chomp_data.make_iterator(pipe, step=step) as iterator:
    (directory / "input.json").write_bytes(iterator.get_state())
  return directory


def handed_out(pipe, first, last):
  """The tokens of steps, those of filler and added ones left out."""
  found = [
    pipe.batch(step)["tokens"].reshape(-1) for step in range(first, last)
  ]
  tokens = np.concatenate([np.empty(0, np.int32), *found])
  return tokens[tokens >= 10]


def assert_once(found, tokens, times=1):
  np.testing.assert_array_equal(np.sort(found), np.repeat(tokens, times))


def check_law(corpora, directory, before, after, seq_lens, cut, epoch=0):
  paths, _, tokens = corpora
  one = pipeline.build(
    config({"a": source(paths["a"], *before)}, seq_lens[0], epochs=3)
  )
  rows = one.run_plan.ordered["a"]
  ends = rows.epochs.start(epoch), rows.epochs.start(epoch + 1)
  step = max(1, int(ends[0] + cut * (ends[1] - ends[0])) // 3)
  place = saved(one, step, directory)
  other = pipeline.build(
    config({"a": source(paths["a"], *after)}, seq_lens[1], place)
  )
  found = [handed_out(one, 0, step), handed_out(other, 0, other.num_steps)]
  assert_once(np.concatenate(found), tokens["a"], epoch + 1)


@pytest.mark.parametrize(
  ("number", "before"),
  [
    pytest.param(
      number, before, marks=() if number in FEW else pytest.mark.slow
    )
    for number, before in enumerate(ORDERS)
  ],
)
def test_each_token_once_over_two_phases(corpora, tmp_path, number, before):
  after = ORDERS[(7 * number + 3) % len(ORDERS)]
  check_law(corpora, tmp_path / "0", before, after, (16, 40), 0.4)
  check_law(corpora, tmp_path / "1", before, before, (24, 8), 0.6, epoch=1)


def mixed(corpora, number, after=None, names="ab", epochs=1):
  paths, _, _ = corpora
  order = [ORDERS[(number * 11 + 5 * i) % len(ORDERS)] for i in range(3)]
  sources = {n: source(paths[n], *order[i]) for i, n in enumerate(names)}
  weights = {n: 1 + (number + i) % 3 for i, n in enumerate(names)}
  mix = {"kind": "token_balanced", "weights": weights, "exhaustion": "drop"}
  return pipeline.build(
    config(sources, 12 + 10 * number, after, epochs, mix=mix)
  )


def test_phases_after_phases_of_mixes_give_whole_epochs(corpora, tmp_path):
  # 'c' joins, and begins anew; so does 'b', whose epoch ends on the way.
  tokens = np.sort(np.concatenate([corpora[2][n] for n in "abc"]))
  found, place = [], None
  for number, names in enumerate(["ab", "ab", "abc", "cab"]):
    run = mixed(corpora, number, place, names, 1 if number else 2)
    steps = run.num_steps
    if number < 3:
      steps = steps // 3
      place = saved(run, steps, tmp_path / str(number))
    found.append(handed_out(run, 0, steps))
  _, counts = np.unique(np.concatenate(found), return_counts=True)
  assert len(counts) == len(tokens)
  times = [set(counts[np.isin(tokens, corpora[2][n])].tolist()) for n in "abc"]
  assert times == [{1}, {2}, {1}]


@pytest.mark.parametrize("kind", ["stream", "exact"])
def test_a_phase_that_read_no_row_leaves_what_it_was_left(
  corpora, tmp_path, kind
):
  """Its source rested until a later stage."""
  paths, _, tokens = corpora
  one = pipeline.build(
    config({n: source(paths[n], "ffd", "full") for n in "ab"}, 16)
  )
  place = saved(one, 5, tmp_path / "one")
  sources = {n: source(paths[n], kind) for n in "ab"}
  stages = [(0, {"a": 1}), (4, {"a": 1, "b": 1})]
  two = pipeline.build(config(sources, 24, place, mix={"stages": stages}))
  assert not two.accounts.at(2)["b"].rows
  place = saved(two, 2, tmp_path / "two")
  three = pipeline.build(
    config({n: source(paths[n], "ffd") for n in "ab"}, 40, place)
  )
  found = (
    handed_out(one, 0, 5),
    handed_out(two, 0, 2),
    handed_out(three, 0, three.num_steps),
  )
  whole = np.sort(np.concatenate([tokens[n] for n in "ab"]))
  assert_once(np.concatenate(found), whole)


def test_a_second_epoch_is_of_all_documents(corpora, tmp_path):
  paths, _, tokens = corpora
  one = pipeline.build(config({"a": source(paths["a"], "ffd")}, 16))
  place = saved(one, 5, tmp_path / "one")
  for kind in KINDS:
    other = pipeline.build(
      config({"a": source(paths["a"], kind, "full")}, 40, place, epochs=3)
    )
    found = handed_out(one, 0, 5), handed_out(other, 0, other.num_steps)
    assert_once(np.concatenate(found), tokens["a"], 3)


def test_where_an_epoch_ended_a_source_begins_anew(corpora, tmp_path):
  paths = corpora[0]
  entry = {"a": source(paths["a"], "blocks", "full")}
  one = pipeline.build(config(entry, 16))
  place = saved(one, one.num_steps, tmp_path / "one")
  other = pipeline.build(config(entry, 40, place))
  assert other.fingerprint == pipeline.build(config(entry, 40)).fingerprint


def test_stores_that_are_appended_have_not_been_begun(corpora, tmp_path):
  paths, _, tokens = corpora
  one = pipeline.build(config({"a": source(paths["a"], "exact", "full")}, 16))
  place = saved(one, 7, tmp_path / "one")
  both = [paths["a"], paths["b"]]
  other = pipeline.build(config({"a": source(both, "ffd")}, 40, place))
  found = handed_out(one, 0, 7), handed_out(other, 0, other.num_steps)
  whole = np.concatenate([tokens["a"], tokens["b"]])
  assert_once(np.concatenate(found), whole)
  # One that joins later is no part of the first epoch.
  entry = {**source(both, "ffd"), "joined": [0, 2]}
  other = pipeline.build(config({"a": entry}, 40, place, epochs=3))
  found = handed_out(one, 0, 7), handed_out(other, 0, other.num_steps)
  times = np.isin(whole, tokens["a"]) * 2 + 1
  assert_once(np.concatenate(found), np.repeat(whole, times))
  # And a run may begin after one whose stores had grown.
  step = (other.run_plan.ordered["a"].epochs.start(2) + 9) // 3
  later = pipeline.build(
    config({"a": source(both)}, 20, saved(other, step, tmp_path / "other"))
  )
  found = (*found[:1], handed_out(other, 0, step))
  found = (*found, handed_out(later, 0, later.num_steps))
  assert_once(np.concatenate(found), np.repeat(whole, times))


def test_skipped_rows_are_taken(corpora, tmp_path):
  paths, _, tokens = corpora
  entry = {"a": source(paths["a"])}
  one = pipeline.build(config(entry, 16, skip=[(2, 3)]))
  place = saved(one, 4, tmp_path / "one")
  other = pipeline.build(config(entry, 40, place))
  found = handed_out(one, 0, 4), handed_out(other, 0, other.num_steps)
  whole = pipeline.build(config(entry, 16))
  skipped = handed_out(whole, 2, 4)
  left = np.setdiff1d(tokens["a"], skipped)
  assert_once(np.concatenate(found), left)


def test_added_tokens_stand_where_documents_begin_and_end(corpora, tmp_path):
  paths, documents, _ = corpora
  one = pipeline.build(config({"a": source(paths["a"], "ffd", "full")}, 16))
  place = saved(one, 6, tmp_path / "one")
  gone = set(handed_out(one, 0, 6).tolist())
  entry = source(paths["a"], "ffd", add_bos=True, add_eos=True)
  other = pipeline.build(config({"a": entry}, 200, place))
  begun, ended = set(), set()
  for step in range(other.num_steps):
    tokens = other.batch(step)["tokens"]
    segment = other.batch(step)["segment_ids"]
    for row, column in np.argwhere((tokens == BOS) & (segment > 0)):
      begun.add(int(tokens[row, column + 1]))
    for row, column in np.argwhere((tokens == EOS) & (segment > 0)):
      ended.add(int(tokens[row, column - 1]))
  some = [own for own in documents["a"] if len(own)]
  assert begun == {int(own[0]) for own in some} - gone
  assert ended == {int(own[-1]) for own in some} - gone


def test_each_piece_of_a_document_is_named_at_its_segment(corpora, tmp_path):
  """Of what remains of a document, two pieces may be neighbours in a row."""
  paths, documents, _ = corpora
  one = pipeline.build(config({"a": source(paths["a"], "ffd", "full")}, 8))
  place = saved(one, 8, tmp_path / "one")
  other = pipeline.build(
    config({"a": source(paths["a"])}, 64, place, document_id=True)
  )
  owner = {
    token: number
    for number, own in enumerate(documents["a"])
    for token in own.tolist()
  }
  neighbours = 0
  for step in range(other.num_steps):
    batch = other.batch(step)
    for row in range(len(batch["tokens"])):
      tokens, segments = batch["tokens"][row], batch["segment_ids"][row]
      wanted = [
        owner[int(tokens[segments == segment][0])]
        for segment in range(1, segments.max() + 1)
      ]
      assert batch["document_id"][row, : len(wanted)].tolist() == wanted
      assert (batch["document_id"][row, len(wanted) :] == -1).all()
      neighbours += sum(a == b for a, b in itertools.pairwise(wanted))
  assert neighbours


def test_rows_with_several_pieces_of_a_document_count_once(corpora, tmp_path):
  """Also where another document is between them."""
  paths, documents, _ = corpora
  one = pipeline.build(config({"a": source(paths["a"], "ffd", "full")}, 8))
  place = saved(one, 8, tmp_path / "one")
  other = pipeline.build(config({"a": source(paths["a"], "exact")}, 128, place))
  rows = np.concatenate(
    [other.batch(step)["tokens"] for step in range(other.num_steps)]
  )
  (found,) = coverage.coverage(other, other.num_steps)
  counts = dict(zip(found.document.tolist(), found.rows.tolist(), strict=True))
  for number, own in enumerate(documents["a"]):
    held = np.isin(rows, own).any(axis=1).sum()
    assert counts.get(number, 0) == held, number


def test_a_state_of_a_phase_is_that_of_its_start_wherever_it_is(
  corpora, tmp_path
):
  paths = corpora[0]
  one = pipeline.build(config({"a": source(paths["a"], "ffd", "full")}, 16))
  place = saved(one, 4, tmp_path / "one")
  data = config(
    {"a": source(paths["a"], "exact", "block")}, 24, place, epochs=2
  )
  with chomp_data.make_iterator(data) as iterator:
    hashes, states = [], []
    for batch in iterator:
      hashes.append(batch_hashes.batch_sha256(jax.device_get(batch)))
      states.append(iterator.get_state())
  # It is no other start's, and no run's without a start.
  elsewhere = saved(one, 5, tmp_path / "later")
  for wrong in (str(elsewhere), None):
    other = chomp_data.make_iterator(data | {"start_after": wrong})
    with other, pytest.raises(errors.StateError, match=r"a\.after.*name that"):
      other.set_state(states[2])
  # The checkpoint may have been copied: its path decides nothing.
  copied = tmp_path / "copied"
  place.rename(copied)
  with chomp_data.make_iterator(data | {"start_after": str(copied)}) as moved:
    moved.set_state(states[0])
    batch = jax.device_get(next(moved))
    assert batch_hashes.batch_sha256(batch) == hashes[1]


def test_what_remains_of_many_rows_is_kept_beside_the_store(
  corpora, tmp_path, monkeypatch
):
  path = str(tmp_path / "a")
  write(path, 30, 10)
  one = pipeline.build(config({"a": source(path, "ffd", "full")}, 16))
  place = saved(one, 4, tmp_path / "one")
  data = config({"a": source(path, "exact")}, 24, place)
  in_memory = pipeline.build(data)
  monkeypatch.setattr(document_columns, "MIN_ON_DISK", 2)
  kept = pipeline.build(data)
  assert list((tmp_path / "a.index").glob("remaining-*"))
  assert kept.fingerprint == in_memory.fingerprint
  for step in range(kept.num_steps):
    assert batch_hashes.batch_sha256(kept.batch(step)) == (
      batch_hashes.batch_sha256(in_memory.batch(step))
    )
  # The rows of the earlier run are not planned again.
  planned = []
  plan = shuffled.ShuffledSource.plan
  monkeypatch.setattr(
    shuffled.ShuffledSource,
    "plan",
    lambda own, rows: planned.append(len(rows)) or plan(own, rows),
  )
  pipeline.build(data)
  assert not planned


def test_rows_in_order_are_known_from_the_last_one(
  corpora, tmp_path, monkeypatch
):
  paths, _, _ = corpora
  one = pipeline.build(config({"a": source(paths["a"])}, 16))
  place = saved(one, 12, tmp_path / "one")
  planned = []
  plan = shuffled.ShuffledSource.plan
  monkeypatch.setattr(
    shuffled.ShuffledSource,
    "plan",
    lambda own, rows: planned.append(len(rows)) or plan(own, rows),
  )
  pipeline.build(config({"a": source(paths["a"], "exact")}, 40, place))
  assert planned == [1]


def test_a_tail_that_is_dropped_is_no_epoch(corpora, tmp_path):
  paths = corpora[0]
  one = pipeline.build(config({"a": source(paths["a"])}, 16))
  place = saved(one, one.num_steps - 1, tmp_path / "one")
  entry = {"a": source(paths["a"], tail="drop")}
  other = pipeline.build(config(entry, 64, place))
  anew = pipeline.build(config(entry, 64))
  assert other.fingerprint == anew.fingerprint


def refused(data, match, error=schema.ConfigError):
  with pytest.raises(error, match=match):
    pipeline.build(data)


def test_what_cannot_go_on_is_refused(corpora, tmp_path):
  paths = corpora[0]
  entry = {"a": source(paths["a"])}
  one = pipeline.build(config(entry, 16))
  place = saved(one, 3, tmp_path / "one")
  splice = {"kind": "splice", "content_length": 8}
  spliced = {"a": {"store": paths["a"], "rows": splice}}
  refused(config(spliced, 16, place), r"sources\.a\.rows\.kind.*another name")
  before = saved(pipeline.build(config(spliced, 16)), 2, tmp_path / "spliced")
  refused(config(entry, 16, before), "'splice' for source 'a'")
  refused(config({"a": source(paths["b"])}, 16, place), "over the same stores")
  refused(config({"z": source(paths["a"])}, 16, place), "same name, got a,")
  (tmp_path / "none").mkdir()
  refused(config(entry, 16, tmp_path / "none"), "got no checkpoint")
  refused(
    config(entry, 16, tmp_path / "nowhere"), "must exist", errors.StateError
  )
  offsets = {"datasets": [{"spec": "a", "row_offset": 3}]}
  refused(
    config(entry, 16, place, mix={"resume_state": offsets}),
    r"start_after` must be None beside mix\.resume_state",
  )
  buckets = {
    "buckets": {"kind": "length", "seq_lens": [16, 32], "tokens_per_batch": 64},
    "sources": {"a": {"store": paths["a"]}},
    "start_after": str(place),
  }
  refused(buckets, r"start_after` must be None with `config\.data\.buckets`")


def test_a_state_that_plans_otherwise_now_is_refused(corpora, tmp_path):
  paths = corpora[0]
  entry = {"a": source(paths["a"], "exact")}
  one = pipeline.build(config(entry, 16))
  place = saved(one, 3, tmp_path / "one")
  record = state_lib.decode((place / "input.json").read_bytes())
  record["fingerprint"]["sources"]["a"]["packing_version"] = 9
  (place / "input.json").write_bytes(
    state_lib.encode(record.pop("step"), record.pop("fingerprint"), {}, record)
  )
  refused(config(entry, 16, place), "packing_version is 9, here 1")
  assert json.loads((place / "input.json").read_text())["schema"] == 1


def test_an_option_that_older_states_lack_has_its_default(
  corpora, tmp_path, monkeypatch
):
  """As if `tail` of the section `rows` were newer than the state."""
  paths = corpora[0]
  entry = {"a": source(paths["a"])}
  place = saved(pipeline.build(config(entry, 16)), 3, tmp_path / "one")
  expected = pipeline.build(config(entry, 16, place))
  record = state_lib.decode((place / "input.json").read_bytes())
  tail = record["fingerprint"]["sources"]["a"]["rows"].pop("tail")
  (place / "input.json").write_bytes(
    state_lib.encode(record.pop("step"), record.pop("fingerprint"), {}, record)
  )
  refused(
    config(entry, 16, place),
    rf"sources\.a\.rows\.tail is '\(absent\)', here '{tail}'",
  )
  defaults = fingerprints.DEFAULTS
  monkeypatch.setitem(defaults, r"sources\..+\.rows\.tail", tail)
  pipe = pipeline.build(config(entry, 16, place))
  assert pipe.num_steps == expected.num_steps
  batches = [
    handed_out(run, 0, run.num_steps).tolist() for run in (pipe, expected)
  ]
  assert batches[0] == batches[1]
