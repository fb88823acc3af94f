# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps that are skipped and other batch sizes: resuming and errors.

What edited runs hold and count: edits_together_test, and tests/catalogue.
"""

import collections
import itertools
import logging

import grain
import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.audit import visits
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


def keys(batch):
  """Returns what each row of a batch holds."""
  return [
    tuple((name, batch[name][i].tobytes()) for name in sorted(batch))
    for i in range(len(batch["tokens"]))
  ]


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


@pytest.mark.parametrize("kind", ["rows", "text"])
def test_a_skip_leaves_steps_out_and_moves_nothing(request, paths, kind):
  """Nor what random transforms draw. What is counted: edits_together_test."""
  if kind == "rows":
    data = run_of(paths, "exact", "block", True)
  else:
    data = request.getfixturevalue(kind)
  operations = [Noise()]
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
  assert "[6, 16] from step 3" in pipeline.build(explicit).describe()
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
