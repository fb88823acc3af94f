# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Balance is a placement: steps hold the same rows, for any shards."""

import json
import pathlib

import hypothesis
from hypothesis import strategies as st
import jax
import numpy as np
import pytest

import chomp_data
from chomp_data import iterators
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.plans import balance
from chomp_data.plans import plan as plan_lib
from chomp_data.rows import row_costs
from chomp_data.testing import stores as testing_stores
from tests import laws
from tests.loading import processes

SEQ_LEN = 32
ROWS = {
  "ffd": {"kind": "bin", "packing_buffer_docs": 40},
  "exact": {
    "kind": "bin", "packing_algorithm": "exact", "packing_buffer_docs": 40,
    "trailing_filler_in_segment": True,
  },
  "sequential": {"kind": "sequential", "add_eos": True},
  "splice": {"kind": "multi_splice", "num_docs": 5, "epoch_length": 90},
}  # fmt: skip


@pytest.fixture(scope="module", name="stores")
def fixture_stores(tmp_path_factory):
  """Two stores of documents that are longer and shorter than rows."""
  rng = np.random.default_rng(0)
  paths = []
  for number in range(2):
    lengths = np.clip(np.exp(rng.normal(2, 1.1, 160)), 2, 90).astype(np.int64)
    paths.append(str(tmp_path_factory.mktemp("balance") / f"store_{number}"))
    documents = [rng.integers(3, 250, n) for n in lengths]
    testing_stores.make_store(paths[-1], documents)
  return paths


def config(stores, rows=("ffd",), size=16, lanes=None, **data):
  shuffle = {"kind": "full"}
  if lanes:
    shuffle = {"kind": "block", "lanes": lanes}
  return {
    "seq_len": SEQ_LEN,
    "global_batch_size": size,
    "epochs": 2,
    "document_id": True,
    "sources": {
      f"{kind}_{i}": {
        "store": stores[i],
        "rows": ROWS[kind],
        "shuffle": shuffle if kind != "sequential" else {"kind": "full"},
      }
      for i, kind in enumerate(rows)
    },
    **({"mix": {"kind": "weighted"}} if len(rows) > 1 else {}),
    **data,
  }


def costs_of(batch):
  """The sum of squared segment lengths of each row, from its fields."""
  return np.asarray(
    [
      sum(int(n) ** 2 for n in np.unique(own[own > 0], return_counts=True)[1])
      for own in np.asarray(batch["segment_ids"])
    ]
  )


def read(pipe, shards, held, steps, stride=1):
  """Batches of processes that hold so many shards each, put together."""
  size = pipe.global_batch_size
  of_shard, counts = size // shards, {b.name: shards for b in pipe.buckets}
  parts = []
  for first in range(0, shards, held):
    rows = np.arange(first * of_shard, (first + held) * of_shard)
    local = plan_lib.LocalRows({b.name: rows for b in pipe.buckets}, counts)
    source = pipeline.batch_source(pipe, local).for_workers(stride)
    parts.append([source[step] for step in steps])
  return [
    {name: np.concatenate([p[name] for p in own]) for name in own[0]}
    for own in zip(*parts, strict=True)
  ]


def gone(stores, rows):
  """Returns a list of a third of the documents."""
  path = pathlib.Path(stores[0]).parent / f"{'_'.join(rows)}.jsonl"
  path.write_text(
    "".join(
      json.dumps({"source": f"{kind}_{i}", "document": document}) + "\n"
      for i, kind in enumerate(rows)
      for document in range(0, 160, 3)
    )
  )
  return str(path)


@laws.examples(20, deadline=None)
@hypothesis.given(data=st.data())
def test_a_step_holds_the_same_rows_for_any_shards_and_processes(stores, data):
  rows = data.draw(
    st.lists(st.sampled_from(sorted(ROWS)), min_size=1, max_size=2)
  )
  packed = all(kind in ("ffd", "exact") for kind in rows)
  lanes = data.draw(st.sampled_from([None, 2])) if packed else None
  options = {"remainder": data.draw(st.sampled_from(["drop", "pad"]))}
  if data.draw(st.booleans(), "edits"):
    options |= {"skip": ((2, 3),), "tombstones": ((1, gone(stores, rows)),)}
  pipe = pipeline.build(
    config(stores, rows, 16, lanes, balance="attention", **options)
  )
  shards = data.draw(st.sampled_from([1, 2, 4, 8, 16]))
  held = data.draw(st.sampled_from([own for own in (1, 2, 4) if own <= shards]))
  stride = data.draw(st.integers(1, 2))
  steps = range(data.draw(st.integers(0, 1)), pipe.num_steps, stride)
  counts = {"32": shards}
  moved = 0
  for step, batch in zip(
    steps, read(pipe, shards, held, steps, stride), strict=True
  ):
    order = pipe.row_order(step, counts)
    assert np.sort(order).tolist() == list(range(16))
    moved += int((order != np.arange(16)).any())
    for name, value in pipe.canonical(step).items():
      np.testing.assert_array_equal(batch[name], value[order], err_msg=name)
  assert (moved > 0) == (1 < shards < 16)


def test_costs_of_a_plan_are_those_of_its_batches(stores):
  pipe = pipeline.build(config(stores, ("exact", "splice")))
  trailing = np.asarray([True, True])
  for step in range(3):
    spans = pipe.plan(step)
    found = row_costs.attention(spans, SEQ_LEN, trailing[spans.source])
    np.testing.assert_array_equal(found, costs_of(pipe.canonical(step)))


def test_shards_cost_alike_only_where_balance_says_so(stores):
  def slowest(**data):
    pipe = pipeline.build(config(stores, ("ffd", "sequential"), 64, **data))
    source = pipeline.batch_source(pipe, plan_lib.LocalRows(shards={"32": 8}))
    found = []
    for step in range(pipe.num_steps):
      sums = costs_of(source[step]).reshape(8, 8).sum(axis=1)
      found.append(sums.max() / sums.mean())
    return np.mean(found)

  assert slowest() > 1.2
  assert slowest(balance="attention") < 1.02


def test_text_in_buckets_is_balanced_by_the_lengths_of_its_rows(stores):
  data = config(stores)
  del data["seq_len"], data["global_batch_size"]
  data["sources"] = {"a": {"store": stores[0]}}
  data["buckets"] = {
    "kind": "length", "lengths": (16, 64), "tokens_per_batch": 512
  }  # fmt: skip
  pipe = pipeline.build({**data, "balance": "attention"})
  shards = {own.name: 4 for own in pipe.buckets}
  moved = 0
  places = {own.name: np.arange(own.batch_size // 2) for own in pipe.buckets}
  whole, half = (
    pipeline.batch_source(pipe, plan_lib.LocalRows(rows, shards))
    for rows in (None, places)
  )
  for step in range(pipe.num_steps):
    order = pipe.row_order(step, shards)
    moved += int((np.diff(order) < 0).any())
    found = balance.planned(
      pipe.run_plan, range(step, step + 1), places, shards
    )
    assert found.samples is not None
    half_order = order[: len(order) // 2]
    assert (
      found.samples.tolist()
      == pipe.run_plan.planned(step).samples[half_order].tolist()
    )
    for name, value in pipe.canonical(step).items():
      np.testing.assert_array_equal(whole[step][name], value[order])
      np.testing.assert_array_equal(half[step][name], value[half_order])
  assert moved


def test_arrays_have_no_balance(stores):
  data = config(stores, balance="attention")
  data["buckets"] = {"kind": "resolution", "sizes": ((8, 8),)}
  del data["seq_len"]
  with pytest.raises(schema.ConfigError, match=r"config\.data\.balance"):
    pipeline.build(data)


def test_a_state_knows_nothing_of_balance(stores):
  plain = config(stores, ("ffd", "splice"), 8)
  dealt = {**plain, "balance": "attention", "balance_shards": 4}
  two = {**dealt, "balance_shards": 2}
  runs = pipe, *others = [pipeline.build(own) for own in (plain, dealt, two)]
  assert others[0].fingerprint == pipe.fingerprint
  for step in range(0, pipe.num_steps, 3):
    with iterators.make_iterator(others[0], step=step) as it:
      state = it.get_state()
    for run in runs:
      with iterators.make_iterator(run) as it:
        assert it.get_state() != state or not step
        it.set_state(state)
        order = run.row_order(step)
        expected = pipe.canonical(step)["tokens"][order]
        np.testing.assert_array_equal(next(it)["tokens"], expected)


def test_the_shards_are_those_of_the_sharding_or_as_the_config_says(stores):
  data = config(stores, size=8, balance="attention")
  with iterators.make_iterator(data) as it:
    assert it.shards == {"32": 1}
  with iterators.make_iterator({**data, "balance_shards": 2}) as it:
    assert it.shards == {"32": 2}
    batch = next(it)
  pipe = pipeline.build(data)
  order = pipe.row_order(0, {"32": 2})
  assert order.tolist() != list(range(8))
  for name, value in pipe.canonical(0).items():
    np.testing.assert_array_equal(batch[name], value[order])
  assert pipe.row_order(0).tolist() == list(range(8))
  plain = pipeline.build(config(stores, size=8))
  assert plain.row_order(0, {"32": 2}).tolist() == list(range(8))


@pytest.mark.parametrize(
  ("changed", "match"),
  [
    ({"balance": "attention", "balance_shards": 3}, r"balance_shards.*got 3"),
    ({"balance_shards": 2}, r"balance_shards.*where nothing is.*got 2"),
    ({"balance": "speed"}, r"balance.*'attention'.*'speed'"),
  ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused(stores, changed, match):
  with pytest.raises(schema.ConfigError, match=match):
    pipeline.build(config(stores, size=8, **changed))


def test_lanes_beside_balance_are_a_warning(stores, caplog):
  pipeline.build(config(stores, ("ffd",), 16, 2, balance="attention"))
  assert "sources.ffd_0.shuffle.lanes" in caplog.text


def test_losses_by_span_are_told_by_the_rows_of_the_plan(stores, tmp_path):
  from chomp_data.reference import span_losses
  from chomp_data.storage import opening

  pipe = pipeline.build(config(stores, balance="attention"))
  shards = {"32": 4}
  source = pipeline.batch_source(pipe, plan_lib.LocalRows(shards=shards))
  workdir = opening.open_storage(tmp_path / "run")
  writer = span_losses.Writer(pipe, workdir, writes=True)
  for step in range(3):
    batch = source[step]
    # A token's loss is its number.
    nll = np.where(batch["loss_mask"], batch["tokens"], 0).astype(np.float32)
    metrics = {"token_nll": nll, "token_mask": batch["loss_mask"]}
    writer.add(span_losses.of_step(pipe, step, metrics, shards)[1])
  writer.flush()
  (found,) = span_losses.read(pipe, workdir, 0, 3)
  at = 0
  for step in range(3):
    batch, spans = pipe.canonical(step), pipe.plan(step)
    nll = np.where(batch["loss_mask"], batch["tokens"], 0)
    own = span_losses.by_span(spans, nll, batch["loss_mask"])
    np.testing.assert_allclose(found.loss[at : at + len(spans)], own.loss)
    at += len(spans)


def test_rows_of_filler_on_devices_are_refused_where_they_share_a_shard(stores):
  (told,) = processes.call(
    "tests.loading.balance_test:filler",
    [{"data": config(stores, size=6, balance="attention")}],
    num_devices=8,
  )
  assert told[0] == {"32": 1}
  assert "6 rows" in told[1]


def filler(data):
  """What two devices say of 6 rows in 12, and in 8."""
  mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:2]), ("data",))
  sharding = jax.sharding.NamedSharding(
    mesh, jax.sharding.PartitionSpec("data")
  )
  with iterators.padded_iterator(data, sharding, device_rows=12) as it:
    shards = dict(it.shards)
    assert next(it)["tokens"].shape[0] == 12
  try:
    iterators.padded_iterator(data, sharding, device_rows=8)
  except schema.ConfigError as error:
    return [shards, str(error)]
  return [shards, ""]


@pytest.mark.slow
def test_processes_that_balance_otherwise_are_told(stores):
  data = config(stores, balance="attention")
  arguments = [
    {"data": {**data, "balance_shards": shards}} for shards in (2, 4)
  ]
  found = processes.call("tests.loading.balance_test:disagreement", arguments)
  assert all("balance_shards" in own for own in found), found


def disagreement(data):
  """Returns the error of processes that are to make an iterator."""
  mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("data",))
  sharding = jax.sharding.NamedSharding(
    mesh, jax.sharding.PartitionSpec("data")
  )
  try:
    chomp_data.make_iterator(data, sharding)
  except ValueError as error:
    return str(error)
  return ""
