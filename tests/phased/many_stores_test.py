# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Several stores as one source, and stores that join a running job."""

import json
import pickle

import jax
import numpy as np
import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data import schema
from chomp_data import stores
from chomp_data.loading import state as state_lib
from chomp_data.plans import consumption
from chomp_data.sources import mix_units
from chomp_data.sources import prefix_sums
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores

KINDS = {
  "sequential": {"kind": "sequential", "shuffle_documents": "block"},
  "bin": {"kind": "bin", "packing_buffer_docs": 16},
  "windows": {"kind": "windows"},
  "splice": {"kind": "splice", "content_length": 16},
  "multi_splice": {"kind": "multi_splice", "num_docs": 4},
}
SHUFFLES = {
  "none": {"kind": "none"},
  "full": {"kind": "full"},
  "era": {"kind": "era", "era_length": 8},
  "block": {"kind": "block", "window_blocks": 2},
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
  root = tmp_path_factory.mktemp("stores")
  rng = np.random.default_rng(0)
  for name, count in (("a", 30), ("b", 17), ("c", 5)):
    documents = [rng.integers(2, 250, n) for n in rng.integers(0, 90, count)]
    documents[3] = rng.integers(2, 250, 60)
    testing_stores.make_store(
      root / name, documents, ids=[f"{name}{i}" for i in range(count)]
    )
  return [str(root / name) for name in "abc"]


def config(store, rows="sequential", shuffle="block", joined=None, **fields):
  shuffle = dict(SHUFFLES[shuffle])
  if rows == "bin" and shuffle["kind"] == "block":
    shuffle = {"kind": "block"}
  source = {"store": store, "rows": KINDS[rows], "shuffle": shuffle}
  if joined is not None:
    source["joined"] = joined
  return {
    "seq_len": 32,
    "global_batch_size": 4,
    "epochs": None,
    "seed": 3,
    "sources": {"web": source},
    **fields,
  }


def hashed(batch):
  return batch_hashes.batch_sha256(batch)


def rows_of(pipe, first, last):
  batch = pipe.run_plan.rows.batch(np.arange(first, last))
  return {name: own for name, own in batch.items() if name != "document_id"}


def assert_equal(one, other):
  assert one.keys() == other.keys()
  for name, value in one.items():
    np.testing.assert_array_equal(value, other[name], name)


# --- one store of several ----------------------------------------------------


def test_documents_follow_each_other(paths):
  members = [stores.open_store(path) for path in paths]
  store = stores.as_one(members)
  expected = [
    (member.document_ids([i])[0], stores.read_document(member, i).tolist())
    for member in members
    for i in range(member.num_documents)
  ]
  found = [
    (store.document_ids([i])[0], stores.read_document(store, i).tolist())
    for i in range(store.num_documents)
  ]
  assert found == expected
  lengths = np.concatenate([own for _, own in store.iter_lengths(7)])
  assert lengths.tolist() == [len(tokens) for _, tokens in expected]
  assert store.opened.ids.find(["b3", "c0", "x"]) == {
    "b3": [33],
    "c0": [47],
    "x": [],
  }
  tokens = np.concatenate([tokens for _, tokens in expected]).astype(int)
  assert store.read_tokens([0], [store.num_tokens]).tolist() == tokens.tolist()
  rng = np.random.default_rng(1)
  starts = rng.integers(0, len(tokens), 50)
  ends = rng.integers(starts, len(tokens) + 1)
  assert store.read_tokens(starts, ends - starts).tolist() == [
    token
    for start, end in zip(starts, ends, strict=True)
    for token in tokens[start:end].tolist()
  ]
  assert store.labels.trained_before(
    np.asarray([0, 5, len(tokens)])
  ).tolist() == [
    0,
    5,
    len(tokens),
  ]
  assert (
    stores.read_document(pickle.loads(pickle.dumps(store)), 31).tolist()
    == (expected[31][1])
  )


def test_the_hash_is_of_the_stores_in_their_order(paths):
  a, b, c = (stores.open_store(path) for path in paths)
  assert stores.as_one([a]).hash == a.hash
  found = [
    stores.as_one(own).hash for own in ([a, b], [b, a], [a, b, c], [a, c])
  ]
  assert len({a.hash, b.hash, c.hash, *found}) == 7


def test_stores_of_other_tokenizers_are_refused(tmp_path, paths):
  testing_stores.make_store(tmp_path / "x", [[1, 2]], vocab_size=99)
  with pytest.raises(stores.StoreError, match="must be of the tokenizer"):
    pipeline.build(config([paths[0], str(tmp_path / "x")]))


@pytest.mark.parametrize("rows", KINDS)
def test_a_run_of_many_stores_is_one_of_the_merged_store(paths, tmp_path, rows):
  opened = stores.as_one([stores.open_store(path) for path in paths])
  count = opened.num_documents
  testing_stores.make_store(
    tmp_path / "all",
    [stores.read_document(opened, i) for i in range(count)],
    ids=opened.document_ids(np.arange(count)),
  )
  many = pipeline.build(config(paths, rows))
  one = pipeline.build(config(str(tmp_path / "all"), rows))
  for step in range(10):
    assert hashed(many.batch(step)) == hashed(one.batch(step))


def test_a_mix_in_one_line_names_stores_with_a_bar(paths):
  a, b, c = paths
  data = config(a, dataset_mix=f"web={a}|{b}:0.7 rest={c}:0.3")
  told = config([a, b], mix={"weights": {"web": 0.7, "rest": 0.3}})
  told["sources"]["rest"] = {**told["sources"]["web"], "store": c}
  one, other = pipeline.build(data), pipeline.build(told)
  assert one.fingerprint == other.fingerprint


def test_bad_lists_of_stores_are_one_error(paths):
  with pytest.raises(schema.ConfigError, match="distinct ones"):
    pipeline.build(config([paths[0], paths[0]]))
  with pytest.raises(schema.ConfigError, match="2 epochs, one for each"):
    pipeline.build(config(paths[:2], joined=(0,)))
  with pytest.raises(schema.ConfigError, match="rising from 0"):
    pipeline.build(config(paths[:2], joined=(1, 0)))


# --- joining -----------------------------------------------------------------


@pytest.mark.parametrize(
  ("rows", "shuffle"),
  [
    ("sequential", "era"), ("bin", "block"), ("windows", "full"),
    ("splice", "none"), ("multi_splice", "block"),
  ],
)  # fmt: skip
def test_rows_before_a_store_joins_stay_and_those_after_hold_all(
  paths, rows, shuffle
):
  one = pipeline.build(config(paths[0], rows, shuffle))
  two = pipeline.build(config(paths[:2], rows, shuffle))
  all_three = pipeline.build(config(paths, rows, shuffle))
  grown = pipeline.build(config(paths, rows, shuffle, (0, 2, 3)))
  first = [pipe.run_plan.rows.epochs.start for pipe in (one, two, all_three)]
  at = grown.run_plan.rows.epochs.start
  assert_equal(rows_of(grown, 0, at(2)), rows_of(one, 0, first[0](2)))
  assert_equal(
    rows_of(grown, at(2), at(3)), rows_of(two, first[1](2), first[1](3))
  )
  assert_equal(
    rows_of(grown, at(3), at(5)), rows_of(all_three, first[2](3), first[2](5))
  )
  rows_at = np.arange(at(5))
  epoch, index = grown.run_plan.rows.epochs.locate(rows_at)
  starts = grown.run_plan.rows.epochs.first_row(np.arange(6))
  np.testing.assert_array_equal(starts[epoch] + index, rows_at)
  # Across phases as well, in any order.
  order = np.random.default_rng(0).permutation(at(5))
  whole = grown.run_plan.rows.batch(rows_at)
  mixed = grown.run_plan.rows.batch(order)
  for name, value in mixed.items():
    np.testing.assert_array_equal(value, whole[name][order], name)


@pytest.mark.parametrize(
  ("rows", "shuffle", "unit"),
  [
    ("sequential", "full", "loss_tokens"), ("sequential", "era", "tokens"),
    ("bin", "block", "loss_tokens"), ("multi_splice", "none", "tokens"),
  ],
)  # fmt: skip
def test_sums_of_a_source_that_grows_are_those_of_its_plans(
  paths, rows, shuffle, unit
):
  source = pipeline.build(config(paths, rows, shuffle, (0, 1, 3))).run_plan.rows
  count = source.epochs.start(4) + 7
  spans = source.plan(np.arange(count))
  each = mix_units.planned_units(spans, unit)
  sums = np.concatenate([[0], np.cumsum(each)])
  units = prefix_sums.SourceUnits(source, unit, None)
  np.testing.assert_array_equal(units.before(np.arange(count + 1)), sums)
  for wanted in np.linspace(1, sums[-1], 20).astype(int).tolist():
    assert units.rows_below(wanted) == np.searchsorted(sums, wanted)
  # Epochs after the last store joined consume the same: none is summed again.
  if unit in source.repeating_units:
    assert source.repeating_units[unit] == 3
    before, after = sums[source.epochs.first_row(np.arange(3, 5))].tolist()
    far = source.epochs.first_row(np.asarray([10**9]))
    assert units.before(far).tolist() == [
      before + (10**9 - 3) * (after - before)
    ]


@pytest.mark.parametrize("exhaustion", ["drop", "first_exhausted"])
def test_a_run_of_epochs_ends_with_the_stores_it_then_has(paths, exhaustion):
  alone = config(paths[:2], joined=(0, 2))
  alone["epochs"] = 3
  pipe = pipeline.build(alone)
  assert pipe.run_plan.num_rows == pipe.run_plan.rows.epochs.start(3)
  assert pipe.run_plan.num_rows == (
    pipeline.build({**alone, "sources": config(paths[0])["sources"],
                    "epochs": 2}).run_plan.num_rows
    + pipeline.build({**alone, "sources": config(paths[:2])["sources"],
                      "epochs": 1}).run_plan.num_rows
  )  # fmt: skip
  mixed = dict(alone)
  own = {**alone["sources"]["web"], "store": paths[2], "joined": None}
  mixed["sources"] = {**alone["sources"], "rest": own}
  mixed["mix"] = {"exhaustion": exhaustion}
  pipe = pipeline.build(mixed)
  for step in range(pipe.num_steps):
    pipe.plan(step)
  taken = consumption.consumed(pipe.run_plan, pipe.num_steps)
  assert sum(own["32"] for own in taken.values()) == 4 * pipe.num_steps


def iterated(data, count, state=None):
  """Returns hashes of steps, the state after them, and the iterator's run."""
  pipe = pipeline.build(data)
  with chomp_data.make_iterator(pipe) as batches:
    if state is not None:
      batches.set_state(state)
    begun = batches.step
    found = {
      begun + i: hashed(jax.device_get(next(batches))) for i in range(count)
    }
    return found, batches.get_state(), batches.pipeline


@pytest.mark.parametrize("mixed", [False, True])
def test_an_appended_store_joins_at_the_next_epoch(paths, mixed):
  def data(store, **fields):
    out = config(store, **fields)
    if mixed:
      own = {**out["sources"]["web"], "store": paths[2]}
      out["sources"]["other"] = own
      out["mix"] = {"weights": {"web": 0.6, "other": 0.4}}
    return out

  alone, _, _ = iterated(data(paths[0]), 40)
  plain = pipeline.build(data(paths[0]))
  begun, state, pipe = iterated(data(paths[0]), 17)
  assert all(alone[step] == own for step, own in begun.items())
  own = plain.run_plan.ordered["web"]
  taken = consumption.consumed(plain.run_plan, 17)["web"]["32"]
  epoch = int(own.epochs.locate(np.asarray([taken]))[0][0]) + 1
  after, later, pipe = iterated(data(paths[:2]), 60, state)
  assert pipe.run_options.sources["web"].joined == (0, epoch)
  # Up to the epoch nothing moved.
  for step, found in after.items():
    if step < 40 and consumption.consumed(plain.run_plan, step + 1)["web"][
      "32"
    ] <= (own.epochs.start(epoch)):
      assert alone[step] == found
  assert any(alone.get(step, found) != found for step, found in after.items())
  # What the state tells is what a config can tell, and one that does not goes
  # on with it.
  told = data(paths[:2])
  told["sources"]["web"]["joined"] = (0, epoch)
  whole, _, _ = iterated(told, 77)
  assert {**begun, **after} == whole
  again, _, _ = iterated(data(paths[:2]), 10, later)
  told_again, _, _ = iterated(told, 10, later)
  assert again == told_again
  # Another one joins later.
  _, _, pipe = iterated(data(paths), 1, later)
  assert pipe.run_options.sources["web"].joined[:2] == (0, epoch)
  assert pipe.run_options.sources["web"].joined[2] > epoch


def test_a_store_that_has_not_joined_yet_can_be_left_out_again(paths):
  _, state, _ = iterated(config(paths[0]), 3)
  _, state, pipe = iterated(config(paths[:2]), 2, state)
  assert pipe.run_options.sources["web"].joined == (0, 1)
  record = json.loads(state)
  assert list(record["fingerprint"]["sources"]["web"]["joined"]) == ["1"]
  back, _, _ = iterated(config(paths[0]), 3, state)
  alone, _, _ = iterated(config(paths[0]), 8)
  assert back == {step: alone[step] for step in back}


def test_stores_that_a_run_has_read_cannot_be_taken_away(paths):
  _, state, _ = iterated(config(paths[:2]), 3)
  for store in (paths[0], [paths[1], paths[0]], [paths[0], paths[2]]):
    with pytest.raises(state_lib.StateError, match=r"sources\.web\.store"):
      iterated(config(store), 1, state)


def test_a_state_of_before_the_join_is_taken_by_the_same_iterator(paths):
  _, early, _ = iterated(config(paths[0]), 3)
  _, late, _ = iterated(config(paths[0]), 20)
  pipe = pipeline.build(config(paths[:2]))
  with chomp_data.make_iterator(pipe) as batches:
    batches.set_state(late)
    joined = batches.pipeline.run_options.sources["web"].joined
    batches.set_state(early)
    assert batches.step == 3
    assert batches.pipeline.run_options.sources["web"].joined == joined


def test_rows_that_count_from_the_start_of_a_run_refuse_to_grow(paths):
  data = config(paths[:2], "multi_splice", joined=(0, 1))
  data["sources"]["web"]["rows"] = {
    "kind": "multi_splice",
    "num_docs": 4,
    "curriculum_every": 5,
  }
  with pytest.raises(schema.ConfigError, match="curriculum_every"):
    pipeline.build(data)
