# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps that are skipped and other batch sizes, against a slow reference.

The reference is the run in batches of one row, which has no batch to permute:
the rows of a data step are those in its sums of sizes, in any order where
sources are mixed, and in this one where there is one.
"""

import collections
import itertools
import logging

import grain
import jax
import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.audit import visits
from chomp_data.loading import batches
from chomp_data.loading import state as state_lib
from chomp_data.testing import stores as testing_stores
from tests.plans import conftest

SEQ_LEN = 16
ROWS = {
  "sequential": {"kind": "sequential", "add_eos": True},
  "ffd": {"kind": "bin", "packing_buffer_docs": 8, "add_bos": True},
  "exact": {
    "kind": "bin",
    "packing_buffer_docs": 8,
    "packing_algorithm": "exact",
  },
  "windows": {"kind": "windows", "stride": 5},
  "multi_splice": {"kind": "multi_splice", "num_docs": 5, "content_length": 9},
}
SHUFFLES = ("none", "block", "full")


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
  rng = np.random.default_rng(1)
  out = {}
  for name in ("a", "b"):
    path = tmp_path_factory.mktemp("edits") / name
    lengths = rng.integers(0, 30, 90)
    lengths[:5] = rng.integers(20, 40, 5)
    documents = [rng.integers(3, 250, size=n) for n in lengths]
    testing_stores.make_store(path, documents, bos_id=2)
    out[name] = str(path)
  return out


def run_of(paths, rows, shuffle, mixed, **fields):
  sources = {}
  for name in ("a", "b")[: 1 + mixed]:
    own = {"kind": shuffle}
    if shuffle == "block" and ROWS[rows]["kind"] != "bin":
      own["io_block_size"] = 12
    sources[name] = {
      "store": paths[name],
      "rows": dict(ROWS[rows]),
      "shuffle": own,
    }
  fields.setdefault("global_batch_size", 4)
  if fields.get("batch_size_schedule"):
    del fields["global_batch_size"]
  return {
    "seq_len": SEQ_LEN,
    "seed": 2,
    "epochs": 2,
    "document_id": True,
    "batch_format": "canonical",
    "sources": sources,
    **fields,
  }


def firsts(sizes, steps):
  """Returns the first row of each data step, by adding them up."""
  out, row = [], 0
  for step in range(steps):
    out.append(row)
    row += [size for at, size in sizes if at <= step][-1]
  return out


def keys(batch):
  """Returns what each row of a batch holds."""
  return [
    tuple((name, batch[name][i].tobytes()) for name in sorted(batch))
    for i in range(len(batch["tokens"]))
  ]


def counted(pipe, batches):
  """Counts rows, tokens and trained tokens of batches by source."""
  out = {name: [0, 0, 0] for name in pipe.source_names}
  for batch in batches:
    for i, source in enumerate(batch["source_id"].tolist()):
      if source < 0:
        continue
      own = out[pipe.source_names[source]]
      own[0] += 1
      own[1] += int(batch["attention_mask"][i].sum())
      own[2] += int(batch["loss_mask"][i].sum())
  return out


@pytest.mark.parametrize(
  ("rows", "mixed", "shuffle", "remainder"),
  [
    ("ffd", True, "block", "pad"),
    pytest.param("exact", False, "full", "drop", marks=pytest.mark.slow),
    pytest.param("windows", True, "full", "drop", marks=pytest.mark.slow),
    pytest.param("sequential", False, "block", "pad", marks=pytest.mark.slow),
    pytest.param("multi_splice", True, "none", "pad", marks=pytest.mark.slow),
  ],
)
def test_steps_hold_the_rows_that_sums_of_sizes_say(
  paths, rows, mixed, shuffle, remainder
):
  """Compares an edited run with sums of sizes over single rows."""
  sizes, skip, stage = ((0, 3), (4, 5), (9, 2)), ((1, 1), (7, 11)), 8
  # A mask of what is no filler: what accounts count.
  fields = {
    "remainder": remainder, "mask_boundary_loss": False,
  }  # fmt: skip
  edited = run_of(
    paths, rows, shuffle, mixed, skip=skip, batch_size_schedule=sizes, **fields
  )
  single = run_of(paths, rows, shuffle, mixed, global_batch_size=1, **fields)
  if mixed:
    stages = ({"a": 1, "b": 2}, {"a": 3, "b": 1})
    begin = firsts(sizes, stage + 1)[stage]
    edited["mix"] = {"stages": ((0, stages[0]), (stage, stages[1]))}
    single["mix"] = {"stages": ((0, stages[0]), (begin, stages[1]))}
  one = pipeline.build(single)
  end = one.num_steps
  begins = firsts(sizes, end + 1)
  whole = [
    step
    for step, begin in enumerate(begins[:-1])
    if (begins[step + 1] <= end if remainder == "drop" else begin < end)
  ]
  run = [
    step for step in whole if not any(low <= step <= high for low, high in skip)
  ]
  pipe = pipeline.build(edited)
  assert pipe.num_steps == len(run)
  rows_of = [one.canonical(row) for row in range(end)]
  told, given_out = [], []
  for step, data in enumerate(run):
    batch = pipe.canonical(step)
    wanted = range(begins[data], min(begins[data + 1], end))
    size = begins[data + 1] - begins[data]
    assert len(batch["tokens"]) == size
    found = keys(batch)
    if remainder == "pad":
      filler = size - len(wanted)
      assert (batch["source_id"] < 0).sum() == filler
      found = found[: len(wanted)]
    expected = [keys(rows_of[row])[0] for row in wanted]
    if mixed:
      assert collections.Counter(found) == collections.Counter(expected)
    else:
      assert found == expected
    spans = pipe.plan(step)
    assert spans.num_rows == size
    accounts = pipe.accounts.at(step)
    counts = counted(pipe, given_out)
    for name, own in accounts.items():
      found = [own.rows, own.tokens, own.loss_tokens]
      assert found == counts[name], (step, name)
    # What is taken is what is behind: skipped rows too.
    taken = counted(pipe, rows_of[: min(begins[data], end)])
    for entry in pipe.accounts.resume_state(step)["datasets"]:
      assert entry["row_offset"] == taken[entry["spec"]][0]
      assert entry["token_offset"] == taken[entry["spec"]][1]
    given_out += [rows_of[row] for row in wanted]
    told.append(batch)
  # Several steps at once are the same, whatever their sizes.
  spans = pipe.plan(0, len(run))
  assert spans.num_rows == sum(len(own["tokens"]) for own in told)
  # And so are batches that were read ahead, by one process or two.
  loader = grain.DataLoader(
    data_source=pipeline.batch_source(pipe),
    sampler=batches.StepSampler(0, len(run)),
    shard_options=grain.sharding.NoSharding(),
  )
  halves = [
    pipeline.batch_source(
      pipe, {b.name: np.arange(i, b.batch_size, 2) for b in pipe.buckets}
    )
    for i in range(2)
  ]
  for step, (batch, read) in enumerate(zip(told, loader, strict=True)):
    for name, value in read.items():
      assert np.array_equal(value, batch[name]), (step, name)
      for i in range(2):
        own = halves[i][step][name]
        assert np.array_equal(own, batch[name][i::2]), (step, name)


def batches_of(it):
  return [{n: np.asarray(v) for n, v in batch.items()} for batch in it]


def assert_equal(found, wanted):
  assert len(found) == len(wanted)
  for step, (one, other) in enumerate(zip(found, wanted, strict=True)):
    assert one.keys() == other.keys()
    for name in one:
      assert np.array_equal(one[name], other[name]), (step, name)


class Noise(grain.transforms.RandomMap):
  """Draws of each step's own generator."""

  def random_map(self, element, rng):
    noise = rng.random(len(element["source_id"]), np.float32)
    return {**element, "noise": noise}


@pytest.mark.parametrize("kind", ["rows", "text", "pictures"])
def test_a_skip_leaves_steps_out_and_moves_nothing(request, paths, kind):
  """Nor what random transforms draw. What is counted: edits_together_test."""
  if kind == "rows":
    data = run_of(paths, "exact", "block", True)
  else:
    data = request.getfixturevalue(kind)
  operations = [] if kind == "pictures" else [Noise()]
  wanted = batches_of(iterators.make_iterator(data, operations=operations))
  kept = [i for i in range(len(wanted)) if i > 8 or 2 <= i <= 4]
  skipped = {**data, "skip": ((0, 1), (5, 8))}
  with iterators.make_iterator(skipped, operations=operations) as it:
    assert_equal(batches_of(it), [wanted[i] for i in kept])
  pipe = pipeline.build(skipped)
  assert pipe.num_steps == len(kept)
  assert [pipe.run_plan.steps.data_step(i) for i in range(len(kept))] == kept
  assert "skip: data steps 0 .. 1, 5 .. 8" in pipe.describe()


@pytest.mark.parametrize("kind", ["rows", "text"])
def test_a_skip_may_reach_over_the_end(request, paths, kind):
  if kind == "rows":
    data = run_of(paths, "sequential", "none", False, global_batch_size=7)
  else:
    data = request.getfixturevalue(kind)
  plain = pipeline.build(data)
  end = plain.num_steps
  skip = ((end - 2, end), (end + 2, end + 9))
  pipe = pipeline.build({**data, "skip": skip})
  assert pipe.num_steps == end - 2
  for name in pipe.source_names:
    counts = visits.exposures(pipe, name, 0, end - 2)
    assert np.array_equal(counts, visits.exposures(plain, name, 0, end - 2))
  if kind == "rows":
    last = plain.accounts.at(end)["a"]
    assert last.epochs < 2, "rows are left that fill no step"
    assert pipe.accounts.at(end - 2)["a"].epochs == last.epochs
    assert pipe.accounts.resume_state(end - 2) == plain.accounts.resume_state(
      end
    )


def test_each_size_is_one_static_shape(paths):
  data = run_of(
    paths, "exact", "none", False, batch_size_schedule=((0, 2), (3, 4), (6, 2))
  )
  pipe = pipeline.build(data)
  assert [str(own) for own in pipe.buckets] == [
    f"2x{SEQ_LEN}: [2, {SEQ_LEN}]",
    f"4x{SEQ_LEN}: [4, {SEQ_LEN}]",
  ]
  compiled = []

  @jax.jit
  def step(tokens):
    compiled.append(tokens.shape)
    return tokens.sum()

  with iterators.make_iterator(pipe) as it:
    for batch in it:
      step(batch["tokens"])
  assert compiled == [(2, SEQ_LEN), (4, SEQ_LEN)]
  assert "[2, 16], [4, 16] from step 3, [2, 16] from step 6" in pipe.describe()


@pytest.mark.parametrize("mixed", [False, True], ids=["alone", "mixed"])
def test_a_resume_with_another_batch_size_goes_on_at_the_same_row(
  paths, mixed, caplog
):
  def data(size):
    # Devices have no 64-bit numbers: keys would differ.
    return run_of(
      paths, "exact", "full", mixed, global_batch_size=size, document_id=False
    )

  single = pipeline.build(data(1))
  rows = [keys(single.batch(row))[0] for row in range(single.num_steps)]
  caplog.set_level(logging.INFO, logger="absl")
  seen, state, schedule = [], None, []
  for size, steps in ((4, 3), (6, 2), (6, 2), (3, 4), (8, 1)):
    changed = bool(schedule) and schedule[-1][1] != size
    it = iterators.make_iterator(data(size))
    if state is not None:
      if changed:
        with pytest.raises(
          state_lib.StateError,
          match=r"global_batch_size: .*allow_changes=\('global_batch_size',\)",
        ) as refused:
          it.set_state(state)
        flag = "--allow_input_change=global_batch_size"
        assert flag in refused.value.in_command
      it.set_state(state, ("global_batch_size",) if changed else False)
      told = (
        f"steps have {size} rows from step {it.step} on, and"
        f" {schedule[-1][1]} before: the run continues at row"
        f" {len(seen)}; no row is lost or repeated"
      )
      assert (told in caplog.messages) == changed
    if changed or not schedule:
      schedule.append((it.step, size))
    with it:
      for _ in range(steps):
        batch = {n: np.asarray(v) for n, v in next(it).items()}
        assert len(batch["tokens"]) == size
        seen += keys(batch)
      state = it.get_state()
    if len(schedule) > 1:
      line = f"config.data.batch_size_schedule = {tuple(schedule)}"
      assert line in caplog.messages
  wanted = rows[: len(seen)]
  if mixed:
    assert collections.Counter(seen) == collections.Counter(wanted)
  else:
    assert seen == wanted
  # The line that was logged is the run, and needs no state.
  explicit = {**data(1), "batch_size_schedule": tuple(schedule)}
  del explicit["global_batch_size"]
  whole = iterators.make_iterator(explicit)
  found = [
    key
    for batch in itertools.islice(batches_of(whole), 12)
    for key in keys(batch)
  ]
  assert found == seen
  whole.set_state(state)
  # A run that was changed once more is another one.
  with pytest.raises(state_lib.StateError):
    iterators.make_iterator(data(5)).set_state(state)


@pytest.mark.parametrize(
  ("before", "after", "step", "wrong"),
  [
    ({}, {"skip": ((5, 9),)}, 5, None),
    ({}, {"skip": ((5, 9),)}, 6, r"skip\.5: .* checkpoint of step 5 or"),
    ({"skip": ((5, 9),)}, {}, 5, None),
    ({"skip": ((5, 9),)}, {"skip": ((5, 6),)}, 6, r"skip\.5: .* has 9, .* 6"),
    (
      {"skip": ((1, 2),)},
      {"skip": ((1, 2), (5, 6))},
      4,
      r"skip\.5: .* data step 5, .*checkpoint: go back to .* step 3 or before",
    ),
    ({"skip": ((1, 2),)}, {"skip": ((1, 2), (6, 6))}, 4, None),
    ({}, {"batch_size_schedule": ((0, 4), (6, 2))}, 6, None),
    ({}, {"batch_size_schedule": ((0, 4), (6, 2))}, 7, r"\.6: .*step 6 or"),
    ({"batch_size_schedule": ((0, 4), (6, 2))}, {}, 6, None),
    ({}, {"batch_size_schedule": ((0, 4),)}, 7, None),
  ],
)  # fmt: skip
def test_an_edit_of_the_past_is_refused_and_a_later_one_is_none(
  paths, before, after, step, wrong
):
  it = iterators.make_iterator(run_of(paths, "exact", "none", False, **before))
  it.seek(step)
  state = it.get_state()
  again = iterators.make_iterator(
    run_of(paths, "exact", "none", False, **after)
  )
  if wrong is None:
    again.set_state(state)
    assert again.step == step
  else:
    with pytest.raises(state_lib.StateError, match=wrong):
      again.set_state(state)


@pytest.mark.parametrize(
  ("fields", "wrong"),
  [
    ({"skip": ((5, 3),)}, r"data\.skip` must .* \(5, 3\)"),
    ({"skip": ((5, 8), (8, 9))}, r"data\.skip` must .* overlap"),
    ({"skip": ((5, 8), (1, 2))}, r"data\.skip` must .* rise"),
    ({"skip": ((5,),)}, r"data\.skip` must be a list"),
    ({"skip": ((-1, 2),)}, r"data\.skip` must be a list"),
    ({"skip": 5}, r"data\.skip` must be a list"),
    ({"skip": ((0, 10**6),)}, r"data\.skip` must leave a step"),
    ({"batch_size_schedule": ()}, "batch_size_schedule` must"),
    ({"batch_size_schedule": ((1, 4),)}, "must begin at step 0, got 1"),
    ({"batch_size_schedule": ((0, 4), (0, 5))}, "steps that rise"),
    ({"batch_size_schedule": ((0, 4), (5, 5), (3, 2))}, "steps that rise"),
    ({"batch_size_schedule": ((0, 0),)}, "must be a list .* got"),
    (
      {"batch_size_schedule": ((0, 4),), "global_batch_size": 4},
      r"beside batch_size_schedule, got 4 and \(\(0, 4\),\)\. Set it so"
      r" \(--config\.data\.global_batch_size=None\), or leave",
    ),
    ({"global_batch_size": None}, "global_batch_size` must be set"),
    ({"batch_size_schedule": ((0, 10**6),)}, "schedule` must be at most"),
  ],
)
def test_wrong_edits_name_their_field(paths, fields, wrong):
  data = run_of(paths, "exact", "none", False)
  if "batch_size_schedule" in fields:
    del data["global_batch_size"]
  with pytest.raises(schema.ConfigError, match=wrong):
    pipeline.build({**data, **fields})


def test_buckets_refuse_a_schedule(text):
  data = conftest.changed(text, batch_size_schedule=((0, 4),))
  with pytest.raises(schema.ConfigError, match=r"schedule` must be None with"):
    pipeline.build(data)
