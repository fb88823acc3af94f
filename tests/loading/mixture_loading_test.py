# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Mixtures through every layer: workers, processes, states, stages."""

import collections
import json

import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.loading import state as state_lib
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores

BLOCK = {"kind": "block", "window_blocks": 2}
# Layouts differ: the filler of `bins` is EOS.
ROWS = {
  "bins": (
    {
      "kind": "bin",
      "packing_buffer_docs": 4,
      "add_eos": True,
      "filler": "eos",
    },
    BLOCK,
  ),
  "splice": (
    {"kind": "multi_splice", "num_docs": 5, "content_length": 20},
    {"kind": "full"},
  ),
  "stream": ({"kind": "sequential"}, {**BLOCK, "io_block_size": 4}),
}
STAGES = [
  (0, {"bins": 2, "stream": 1}),
  (5, {"bins": 1, "stream": 1, "splice": 0.5}),
  (17, {"stream": 1, "splice": 2}),
  (23, {"bins": 1, "stream": 3}),
]
# Steps looked at where a run has no end.
STEPS = 30


@pytest.fixture(scope="session")
def paths(tmp_path_factory):
  rng = np.random.default_rng(0)
  root = tmp_path_factory.mktemp("mix")
  out = {}
  for name, mean in (("bins", 30), ("splice", 60), ("stream", 90)):
    lengths = rng.integers(1, 2 * mean, size=30)
    documents = [rng.integers(3, 250, size=n) for n in lengths]
    testing_stores.make_store(root / name, documents)
    out[name] = str(root / name)
  return out


def config(paths, names=tuple(ROWS), max_epochs=None, **changes):
  sources = {
    name: {
      "store": paths[name],
      "rows": ROWS[name][0],
      "shuffle": ROWS[name][1],
    }
    for name in names
  }
  for name, epochs in (max_epochs or {}).items():
    sources[name]["max_epochs"] = epochs
  return {
    "seq_len": 32,
    "global_batch_size": 8,
    "seed": 3,
    "epochs": 1,
    "document_id": True,
    "lookahead": True,
    "mix": {},
    "sources": sources,
    **changes,
  }


def hashes(iterator, count):
  return [
    batch_hashes.batch_sha256(batch)
    for batch, _ in zip(iterator, range(count), strict=False)
  ]


def num_steps(pipe):
  return STEPS if pipe.num_steps is None else pipe.num_steps


def every_batch(pipe):
  steps = range(num_steps(pipe))
  return [batch_hashes.batch_sha256(pipe.batch(step)) for step in steps]


def documents_seen(pipe, steps):
  """Counts (source, document, start, length, column) over steps."""
  spans = pipe.plan(0, steps)
  values = (
    spans.source,
    spans.document,
    spans.start,
    spans.length,
    spans.column,
  )
  return collections.Counter(zip(*(v.tolist() for v in values), strict=True))


def test_the_last_batch_is_padded_and_no_row_is_lost(paths):
  data = config(paths, remainder="pad", lookahead=False)
  pipe = pipeline.build(data)
  rows = sum(len(own) for own in pipe.sources.values())
  real = rows % 8
  assert real
  assert pipe.num_steps == rows // 8 + 1
  last = pipe.batch(pipe.num_steps - 1)
  assert (last["source_id"] >= 0).tolist() == [True] * real + [False] * (
    8 - real
  )
  # As the first source has it, whichever rows a process holds.
  filler = pipe.sources["bins"].layout.filler_id
  assert (last["tokens"][real:] == filler).all()
  assert not last["loss_mask"][real:].any()
  assert not last["segment_ids"][real:].any()
  assert (last["document_id"][real:] == -1).all()
  expected = collections.Counter()
  for number, own in enumerate(pipe.run_plan.ordered.values()):
    spans = own.plan(np.arange(len(own)))
    values = (spans.document, spans.start, spans.length, spans.column)
    expected.update(
      (number, *span)
      for span in zip(*(v.tolist() for v in values), strict=True)
    )
  assert documents_seen(pipe, pipe.num_steps) == expected


def resumed(data, record, **changes):
  """Returns a new run that starts from a record's offsets."""
  mix = {**data["mix"], **changes, "resume_state": record["resume_state"]}
  return pipeline.build({**data, "mix": mix})


@pytest.mark.parametrize(
  ("unit", "step"), [("tokens", 7), ("rows", 77), ("loss_tokens", 77)]
)
def test_a_new_run_goes_on_where_the_old_one_was(paths, unit, step):
  data = config(
    paths,
    epochs=None,
    global_batch_size=1,
    mix={"unit": unit, "weights": {"bins": 2, "splice": 1, "stream": 0.7}},
  )
  old = pipeline.build(data)
  new = resumed(data, old.accounts.record(step))
  for now in range(20):
    one, other = old.batch(step + now), new.batch(now)
    for field, value in one.items():
      np.testing.assert_array_equal(value, other[field], field)
  assert new.accounts.record(9) == old.accounts.record(step + 9)
  assert new.accounts.questions.consumed(9) == old.accounts.questions.consumed(
    step + 9
  )


def test_unknown_specs_are_preserved_and_left_alone(paths, caplog):
  data = config(paths, epochs=None)
  record = {
    "resume_state": {
      "datasets": [
        {"spec": "retired", "row_offset": 123, "token_offset": 456},
        {"spec": "stream", "row_offset": 5, "token_offset": 160},
        {"spec": "older", "row_offset": 9},
      ]
    }
  }
  with caplog.at_level("WARNING"):
    new = resumed(data, record)
  assert "no source is called retired, older" in caplog.text
  assert "stream: starts at row 5" in new.describe()
  with iterators.make_iterator(new) as it:
    next(it)
    found = json.loads(it.get_state())["resume_state"]["datasets"]
  assert found[-2:] == [
    {"spec": "retired", "row_offset": 123, "token_offset": 456},
    {"spec": "older", "row_offset": 9, "token_offset": 0},
  ]
  own = {entry["spec"]: entry for entry in found[:-2]}
  assert own.keys() == ROWS.keys()
  consumed = new.accounts.questions.consumed(1)
  for name, entry in own.items():
    assert entry["row_offset"] == consumed[name].rows
    assert entry["token_offset"] == consumed[name].units


def test_missing_token_offsets_are_derived_from_rows(paths):
  data = config(paths, epochs=None)
  record = pipeline.build(data).accounts.record(11)
  whole = resumed(data, record)
  for missing in ({}, {"token_offset": None}):
    bare = [
      {"spec": own["spec"], "row_offset": own["row_offset"], **missing}
      for own in record["resume_state"]["datasets"]
    ]
    derived = resumed(data, {"resume_state": {"datasets": bare}})
    assert derived.fingerprint == whole.fingerprint


def test_an_offset_beyond_what_a_source_gives_is_refused(paths):
  data = config(paths)
  rows = len(pipeline.build(data).sources["stream"])
  offsets = [{"spec": "stream", "row_offset": rows + 1}]
  with pytest.raises(schema.ConfigError, match=f"at most {rows} rows") as own:
    resumed(data, {"resume_state": {"datasets": offsets}})
  assert "config.data.mix" in str(own.value)
  assert str(rows + 1) in str(own.value)


def state_at(data, step):
  with iterators.make_iterator(data, step=step) as it:
    return it.get_state()


def staged(paths, stages, **changes):
  names = sorted({n for _, weights in stages for n in weights})
  return config(paths, names, epochs=None, mix={"stages": stages}, **changes)


FUTURES = {
  "appended": [*STAGES[:2], (12, {"bins": 1, "splice": 1})],
  "with a new source": [STAGES[0], (9, {"bins": 1, "splice": 1})],
  "from this step on": [STAGES[0], (8, {"bins": 5, "stream": 1})],
  "dropped": STAGES[:1],
}


@pytest.mark.parametrize("what", FUTURES)
def test_a_state_goes_on_under_another_future(paths, what):
  stages = FUTURES[what]
  now = [*STAGES[:1], (10, {"bins": 1, "stream": 2})]
  if what == "appended":
    now = STAGES[:2]
  state = state_at(staged(paths, now), 8)
  data = staged(paths, stages)
  pipe = pipeline.build(data)
  with iterators.make_iterator(pipe) as it:
    it.set_state(state)
    assert hashes(it, 6) == [
      batch_hashes.batch_sha256(pipe.batch(step)) for step in range(8, 14)
    ]


# The advice for what changes a data step, in a state of step 8.
LATER = ", before this checkpoint: let the change begin at data step 8 or later"
BACK = LATER + ", or go back to a checkpoint of step {0} or before\n"
PASTS = {
  "another weight": (
    [(0, {"bins": 3, "stream": 1}), *STAGES[1:3]],
    [
      "mix.stages.0: state has bins 2, stream 1, config has bins 3, stream 1."
      f" It changes data step 0{LATER}, or start a new run\n"
    ],
  ),
  "a stage in the past": (
    [STAGES[0], (3, {"bins": 1, "stream": 1}), *STAGES[1:3]],
    [
      "mix.stages.3: state has '(absent)', config has bins 1, stream 1."
      f" It changes data step 3{BACK.format(3)}"
    ],
  ),
  "a stage moved": (
    [STAGES[0], (6, STAGES[1][1]), STAGES[2]],
    [
      "mix.stages.5: state has bins 1, splice 0.5, stream 1, config has"
      f" '(absent)'. It changes data step 5{BACK.format(5)}",
      "mix.stages.6: state has '(absent)', config has bins 1, splice 0.5,"
      f" stream 1. It changes data step 6{BACK.format(6)}",
    ],
  ),
  "a stage left out": (
    [STAGES[0], STAGES[2]],
    [
      "mix.stages.5: state has bins 1, splice 0.5, stream 1, config has"
      f" '(absent)'. It changes data step 5{BACK.format(5)}",
      "sources.splice: state has one, config has '(absent)'\n",
    ],
  ),
}


@pytest.mark.parametrize("what", PASTS)
def test_a_state_of_another_past_is_refused_with_the_stage(paths, what):
  stages, lines = PASTS[what]
  state = state_at(staged(paths, STAGES[:3]), 8)
  with iterators.make_iterator(staged(paths, stages)) as it:
    with pytest.raises(state_lib.StateError) as caught:
      it.set_state(state)
    text = str(caught.value)
    for line in lines:
      assert line in text
    assert text.count("\n  - ") == len(lines)
    assert "mix.stages.17" not in text
    assert "saved with. `allow_changes`" in text
    back = text.count("go back to a checkpoint")
    assert "--restore_step" not in text
    assert caught.value.in_command.count("(--restore_step)") == back


def test_advice_on_stages_is_in_data_steps(paths):
  """Run step 10 reads data step 13, where three are skipped."""
  skip = ((2, 4),)
  two = [(0, {"bins": 1, "stream": 1})]
  state = state_at(staged(paths, two, skip=skip), 10)

  def resumed_with(at):
    stages = [*two, (at, {"bins": 1, "splice": 1})]
    with iterators.make_iterator(staged(paths, stages, skip=skip)) as it:
      it.set_state(state)

  with pytest.raises(state_lib.StateError) as caught:
    resumed_with(10)
  text = str(caught.value)
  assert (
    "let the change begin at data step 13 or later, or go back to a checkpoint"
    " of step 7 or before\n"
  ) in text
  assert (
    "To add `sources.splice` to a running job, keep the stages that began and"
    " append one to `mix.stages` that weighs it, from data step 13 on or later;"
    " where weights are in `sources.<name>.weight`, set that of"
    " `sources.splice` to 0, so that it has no rows before."
  ) in text
  with pytest.raises(state_lib.StateError):
    resumed_with(12)
  resumed_with(13)


@pytest.mark.parametrize("kind", ["token_balanced", "weighted"])
def test_a_source_of_weight_0_joins_a_run_whose_sources_have_weights(
  paths, kind
):
  """Weights in `sources` need no other form when a stage is appended."""
  weights = {"bins": 0.7, "stream": 0.3}

  def weighed(stages, **weights):
    data = config(paths, tuple(weights), mix={"kind": kind, "stages": stages})
    for name, weight in weights.items():
      data["sources"][name]["weight"] = weight
    return data

  stages = [(8, {"bins": 0.5, "stream": 0.3, "splice": 0.2})]
  before, after = weighed(None, **weights), weighed(stages, **weights, splice=0)
  state = state_at(before, 8)
  pipe = pipeline.build(after)
  with iterators.make_iterator(after) as it:
    it.set_state(state)
    assert hashes(it, 6) == every_batch(pipe)[8:14]
  assert every_batch(pipe)[:8] == every_batch(pipeline.build(before))[:8]
  assert pipe.accounts.at(8)["splice"].rows == 0
  assert pipe.accounts.at(14)["splice"].rows > 0
  # It is the run that `mix.weights` makes.
  other = config(
    paths, mix={"kind": kind, "weights": weights, "stages": stages}
  )
  assert pipeline.build(other).fingerprint == pipe.fingerprint

  with (
    iterators.make_iterator(weighed(stages, **weights, splice=None)) as it,
    pytest.raises(state_lib.StateError) as caught,
  ):
    it.set_state(state)
  assert "set that of `sources.splice` to 0" in str(caught.value)


def test_weight_0_in_buckets_is_the_run_that_mix_weights_makes(paths):
  weights = {"bins": 0.7, "stream": 0.3}
  stages = [(4, {"bins": 0.5, "splice": 0.5})]

  def built(weights_of_mix, **weights_of_sources):
    sources = {
      name: {"store": str(paths[name])} for name in (*weights, "splice")
    }
    for name, weight in weights_of_sources.items():
      sources[name]["weight"] = weight
    return pipeline.build(
      {
        "buckets": {
          "kind": "length",
          "lengths": (32, 64),
          "tokens_per_batch": 64,
        },
        "epochs": 9,
        "sources": sources,
        "mix": {"weights": weights_of_mix, "stages": stages},
      }
    )

  pipe = built(None, **weights, splice=0)
  assert pipe.fingerprint == built(weights).fingerprint
  assert pipe.accounts.at(4)["splice"].rows == 0
  assert pipe.accounts.at(12)["splice"].rows > 0


ONCE = "all_exhausted_without_replacement"


def as_saved_by(state, **mix):
  """Returns a state with another mix in its fingerprint, as if saved so."""
  record = json.loads(state)
  epochs = mix.pop("epochs", record["fingerprint"]["epochs"])
  record["fingerprint"]["epochs"] = epochs
  record["fingerprint"]["mix"].update(mix)
  del record["digest"]
  return json.dumps({**record, "digest": state_lib.digest(record)}).encode()


def test_policies_of_equal_rows_restore_each_others_states(paths):
  by_policy = {own: config(paths, mix={"exhaustion": own})
               for own in ("drop", ONCE)}  # fmt: skip
  wanted = every_batch(pipeline.build(by_policy[ONCE]))[6:]
  for was, now in (("drop", ONCE), (ONCE, "drop")):
    state = state_at(by_policy[was], 6)
    with iterators.make_iterator(by_policy[now]) as it:
      it.set_state(as_saved_by(state, exhaustion=ONCE))
      it.set_state(state)
      assert hashes(it, 99) == wanted


def test_passes_over_a_source_are_compared(paths):
  data = config(paths, max_epochs={"stream": 2})
  state = state_at(data, 6)
  for passes in (None, 3):
    other = config(paths, max_epochs={"stream": passes})
    with (
      iterators.make_iterator(other) as it,
      pytest.raises(
        state_lib.StateError,
        match=rf"sources.stream.max_epochs: state has 2, config has {passes}",
      ),
    ):
      it.set_state(state)
  with iterators.make_iterator(data) as it:
    it.set_state(state)


@pytest.mark.parametrize("exhaustion", ["drop", "all_exhausted"])
def test_passes_that_are_the_runs_own_are_none_of_a_source(paths, exhaustion):
  mix = {"exhaustion": exhaustion}
  own = pipeline.build(config(paths, mix=mix, max_epochs={"stream": 1}))
  none = pipeline.build(config(paths, mix=mix))
  # Sources that repeat go on for ever unless they have passes of their own.
  repeats = exhaustion == "all_exhausted"
  assert (own.fingerprint != none.fingerprint) == repeats
  assert "max_epochs" not in json.dumps(none.fingerprint)


@pytest.mark.parametrize("default", [None, 2])
def test_a_field_that_a_state_lacks_has_its_default(default):
  one = {"sources": {"a": {"store": "x"}, "b": {"store": "y"}}}
  other = {"sources": {"a": {"store": "x", "max_epochs": default}, "b": {}}}
  lines = [
    "sources.a.max_epochs: state has None, config has 2",
    "sources.b.store: state has 'y', config has '(absent)'",
  ]
  assert state_lib.differences(one, other) == lines[default is None :]


def test_a_source_that_no_stage_brings_says_how_to_add_it(paths):
  data = config(paths, ["bins"], epochs=None)
  with iterators.make_iterator(data) as it:
    next(it)
    saved = it.get_state()
  more = config(paths, ["bins", "stream"], epochs=None)
  with (
    iterators.make_iterator(more) as it,
    pytest.raises(
      state_lib.StateError, match=r"To add `sources\.stream`.*step 1"
    ),
  ):
    it.set_state(saved)
  more["mix"] = {"stages": [(0, {"bins": 1}), (1, {"bins": 1, "stream": 1})]}
  with iterators.make_iterator(more) as it:
    it.set_state(saved)
    assert it.step == 1
