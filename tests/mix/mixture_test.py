# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Mixtures: the stream is that of a greedy loop with counters, over stores."""

import collections

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.index import hashing
from chomp_data.mix import interleave
from chomp_data.mix import least_consumed
from chomp_data.mix import resuming
from chomp_data.plans import plan as plan_lib
from chomp_data.sources import prefix_sums
from chomp_data.testing import stores as testing_stores
from tests import laws
from tests.mix import greedy
from tests.mix import unit_lists as units_index

SEQ_LEN = 16
FIELDS = ("tokens", "segment_ids", "positions", "loss_mask")
BLOCK = {"kind": "block", "window_blocks": 2}
# The documents of each source, and what its rows are made of.
SOURCES = {
  "bins": ([3, 40, 9, 0, 25, 1, 18, 33, 2, 7], {"kind": "bin"}, BLOCK),
  "exact": (
    [5] * 30,
    {
      "kind": "bin",
      "packing_algorithm": "exact",
      "packing_buffer_docs": 4,
      "shuffle_documents": "full",
    },
    {"kind": "full"},
  ),
  "stream": ([70, 11, 90], {"kind": "sequential"}, {"kind": "full"}),
  "splice": (
    [30, 50, 12],
    {
      "kind": "multi_splice",
      "num_docs": 2,
      "content_length": 9,
      "epoch_length": 13,
      "offset_jitter": 1,
      "shuffle_content": True,
      "curriculum_every": 7,
    },
    {"kind": "era", "era_length": 5},
  ),
}
SHUFFLES = {
  "none": {"kind": "none"},
  "full": {"kind": "full"},
  "era": {"kind": "era", "era_length": 6},
  "block": {"kind": "block", "window_blocks": 2, "io_block_size": 3},
}


@pytest.fixture(scope="module")
def paths(make_store):
  rng = np.random.default_rng(0)
  return {
    name: str(make_store([rng.integers(3, 250, n) for n in lengths]).path)
    for name, (lengths, _, _) in SOURCES.items()
  }


def config(paths, names=tuple(SOURCES), mix=None, shuffles=None, **changes):
  """Returns `config.data` of a mix of the named sources."""
  sources = {}
  for name in names:
    _, rows, shuffle = SOURCES[name]
    shuffle = dict((shuffles or {}).get(name, shuffle))
    if rows["kind"] == "bin":
      shuffle.pop("io_block_size", None)
    sources[name] = {"store": paths[name], "rows": rows, "shuffle": shuffle}
  return {
    "seq_len": SEQ_LEN,
    "global_batch_size": 4,
    "seed": 7,
    "sources": sources,
    "mix": mix or {},
    **changes,
  }


class Greedy(greedy.Greedy):
  """Greedy loop that reads rows of the sources in their own orders.

  Knows nothing of a merge: it counts what the rows hold.
  """

  def __init__(self, pipe, data):
    self.parts = pipe.run_plan.ordered
    self.mix = pipe.run_plan.merge.options
    size = data["global_batch_size"]
    weights = dict.fromkeys(data["sources"])
    self.stages = [
      interleave.Stage(step * size, own)
      for step, own in self.mix.all_stages(weights)
    ]
    self.exhaustion = self.mix.exhaustion
    self.key = hashing.fold_key(data["seed"], "mix")
    repeats = self.exhaustion in ("first_exhausted", "all_exhausted")
    self.limits, self.ends = {}, {}
    for name, part in self.parts.items():
      own = data["sources"][name].get("max_epochs")
      epochs = own or data.get("epochs")
      if self.exhaustion == "all_exhausted_without_replacement":
        epochs = epochs or 1
      limit = own if repeats else epochs
      # Passes count after a ramp.
      ramp = part.rows.epochs.ramp
      assert ramp == (name == "splice")
      self.limits[name] = (
        None if limit is None else part.epochs.start(ramp + limit)
      )
      self.ends[name] = part.epochs.start(ramp + (epochs or 1))
    self.units = {name: [] for name in self.parts}
    self.next = dict.fromkeys(self.parts, 0)
    self.rows = []

  def used(self, name, row):
    own = self.units[name]
    while len(own) <= row:
      part = self.parts[name]
      rows = np.arange(len(own), len(own) + 64)
      fields = part.rows.read(part.plan(rows), ("attention_mask",))
      counts = {
        "tokens": fields["attention_mask"].sum(axis=1).tolist(),
        "loss_tokens": fields["loss_mask"].sum(axis=1).tolist(),
        "rows": [1] * len(rows),
      }
      own += counts[self.mix.balanced_unit]
    return own[row]


def row_bytes(fields, i):
  return b"".join(np.ascontiguousarray(fields[f][i]).tobytes() for f in FIELDS)


def rows_of_step(pipe, step):
  """Returns (source, all fields as bytes) of each row of a batch."""
  batch = pipe.batch(step)
  names = [*pipe.source_names, None]
  return [
    (names[number], row_bytes(batch, i))
    for i, number in enumerate(batch["source_id"].tolist())
  ]


def own_rows(pipe, name, rows):
  """Returns the same of rows of one source, in its own order."""
  part = pipe.run_plan.ordered[name]
  fields = part.rows.read(part.plan(np.asarray(rows, np.int64)))
  return [(name, row_bytes(fields, i)) for i in range(len(rows))]


def check_equals_greedy(data, most=160):
  """Compares a run with the greedy loop, step by step."""
  pipe = pipeline.build(data)
  taken = Greedy(pipe, data).run(most)
  size = data["global_batch_size"]
  if len(taken) < most:
    assert pipe.run_plan.merge.end == len(taken)
    assert len(pipe.run_plan.merge) == len(taken)
  else:
    end = pipe.run_plan.merge.end
    assert end is None or end >= most
  expected = {}
  for name in pipe.source_names:
    rows = [row for own, row in taken if own == name]
    # Each row once, in the source's own order.
    assert rows == list(range(len(rows)))
    for row, content in zip(rows, own_rows(pipe, name, rows), strict=True):
      expected[name, row] = content
  whole = len(taken) // size
  padded = len(taken) < most and len(taken) % size and pipe.num_steps > whole
  for step in range(whole + bool(padded)):
    wanted = [expected[t] for t in taken[step * size : (step + 1) * size]]
    found = [row for row in rows_of_step(pipe, step) if row[0] is not None]
    assert sorted(found) == sorted(wanted)
    given = collections.Counter(name for name, _ in taken[: step * size])
    assert {n: given[n] for n in pipe.source_names} == {
      name: own.rows
      for name, own in pipe.accounts.questions.consumed(step).items()
    }
  return taken


WEIGHTS = st.sampled_from([1, 2, 3, 0.5, 0.333, 0.9, 0.1, 1 / 3])


@st.composite
def runs(draw):
  """Draws what a mix can be, but for where its stores are."""
  names = draw(st.permutations(list(SOURCES)))[: draw(st.integers(1, 4))]
  stages = []
  for step in [0, *sorted(draw(st.sets(st.integers(1, 30), max_size=3)))]:
    chosen = draw(st.sets(st.sampled_from(names), min_size=1))
    stages.append((step, {n: draw(WEIGHTS) for n in sorted(chosen)}))
  weighed = {n for _, weights in stages for n in weights}
  # A source that no stage weighs is an error: it joins the first one.
  stages[0][1].update(dict.fromkeys(set(names) - weighed, 1))
  mix = {
    "kind": draw(st.sampled_from(["token_balanced", "weighted"])),
    "unit": draw(st.sampled_from([None, "tokens", "rows", "loss_tokens"])),
    "stages": stages,
    "exhaustion": draw(
      st.sampled_from(
        [
          "drop",
          "first_exhausted",
          "all_exhausted",
          "all_exhausted_without_replacement",
        ]
      )
    ),
  }
  shuffles = {n: draw(st.sampled_from(list(SHUFFLES.values()))) for n in names}
  return {
    "names": names,
    "mix": mix,
    "shuffles": shuffles,
    "epochs": draw(st.sampled_from([None, 1, 2])),
    "remainder": draw(st.sampled_from(["drop", "pad"])),
    "global_batch_size": draw(st.integers(1, 7)),
    "max_epochs": draw(
      st.dictionaries(st.sampled_from(names), st.integers(1, 3), max_size=2)
    ),
  }


@laws.examples(30)
@hypothesis.given(runs())
def test_the_stream_equals_a_greedy_loop_over_real_stores(paths, run):
  max_epochs = run.pop("max_epochs")
  data = config(paths, **run)
  for name, epochs in max_epochs.items():
    data["sources"][name]["max_epochs"] = epochs
  try:
    with pytest.MonkeyPatch.context() as patch:
      # Several blocks of positions a run.
      patch.setattr(interleave, "BLOCK", 64)
      patch.setattr(least_consumed, "WALK", 16)
      check_equals_greedy(data)
  except schema.ConfigError as error:
    # Runs that end before a batch.
    if "must be at most the run's rows" not in str(error):
      raise
    hypothesis.reject()


class Listed(units_index.ArrayUnits):
  """Units of rows that are listed, as a source has them."""

  unit = "tokens"


@hypothesis.given(
  greedy.cases(("drop", "all_exhausted_without_replacement"), most_stages=1)
)
def test_offsets_at_any_row_start_a_run_that_goes_on_as_a_greedy_loop(case):
  (stage,) = case["stages"]
  rows = greedy.Greedy(case).run(80)
  longest = max(max(own["units"]) for own in case["sources"].values())
  sums = {
    name: Listed(own["units"], own["exhausted_at"] // len(own["units"]))
    for name, own in case["sources"].items()
  }
  for count in range(len(rows)):
    given = collections.Counter(name for name, _ in rows[:count])
    offsets = [
      (name, given[name], int(sums[name].before(np.asarray([given[name]]))[0]))
      for name in stage.weights
    ]
    start, level = resuming.resumed(sums, offsets, stage.weights, longest)
    assert not level
    after = greedy.closed_form(case, start=start)
    assert greedy.located(after, range(len(rows) - count)) == rows[count:]


def resumed_at(data, pipe, step):
  """Returns a new run that starts from what a run says at a step."""
  mix = {**data["mix"], "resume_state": pipe.accounts.resume_state(step)}
  return pipeline.build({**data, "mix": mix})


@pytest.mark.parametrize("unit", ["rows", "loss_tokens"])
def test_a_run_goes_on_from_its_offsets_after_a_source_has_ended(
  make_store, caplog, unit
):
  rng = np.random.default_rng(1)
  data = {
    "seq_len": 16,
    "global_batch_size": 1,
    "epochs": 1,
    "sources": {
      name: {
        "store": str(
          make_store(
            [rng.integers(3, 250, n) for n in rng.integers(2, 17, rows)]
          ).path
        ),
        "rows": {"kind": "windows"},
        "shuffle": {"kind": "full"},
      }
      for name, rows in (("a", 2), ("b", 30), ("c", 30))
    },
    "mix": {"unit": unit, "weights": {"a": 1, "b": 1, "c": 0.3}},
  }
  pipe = pipeline.build(data)
  assert len(pipe.sources["a"]) == 2
  ended = next(
    n
    for n in range(pipe.num_steps)
    if pipe.run_plan.merge.rows_before(n)["a"] == 2
  )
  assert ended < 12
  for step in (ended - 1, ended, ended + 1, ended + 8, pipe.num_steps - 1):
    caplog.clear()
    new = resumed_at(data, pipe, step)
    assert "offsets are not of a run" not in caplog.text
    assert new.num_steps == pipe.num_steps - step
    for now in range(new.num_steps):
      assert rows_of_step(new, now) == rows_of_step(pipe, step + now)


def test_offsets_that_no_run_can_have_are_refused(make_store):
  short = make_store([[7] * n for n in (3, 5, 4, 6, 2)])
  long = make_store([[8] * 300])
  windows = {"kind": "windows", "min_copy_len": 2}
  data = {
    "seq_len": 16,
    "global_batch_size": 1,
    "epochs": 1,
    "sources": {
      "short": {"store": str(short.path), "rows": windows},
      "long": {"store": str(long.path), "rows": {"kind": "sequential"}},
    },
    "mix": {},
  }

  def start(**offsets):
    state = [
      {"spec": name, "row_offset": rows, "token_offset": tokens}
      for name, (rows, tokens) in offsets.items()
    ]
    mix = {**data["mix"], "resume_state": {"datasets": state}}
    return pipeline.build({**data, "mix": mix})

  for rows, tokens, most in ((5, 999, 80), (5, 31, 30), (0, 1, 0), (2, 13, 12)):
    with pytest.raises(schema.ConfigError) as caught:
      start(short=(rows, tokens), long=(1, 16))
    (problem,) = caught.value.problems
    assert problem.startswith("`config.data.mix.resume_state` must hold")
    assert f"token_offset {tokens} of 'short' with row_offset {rows}" in problem
    assert f"at most {most} tokens" in problem
  with pytest.raises(schema.ConfigError) as caught:
    start(short=(6, 10), long=(2, 33))
  assert len(caught.value.problems) == 2
  assert "row_offset 6 of 'short', which gives at most 5 rows" in str(
    caught.value
  )
  # Of another order of the rows.
  start(short=(2, 5), long=(2, 32))
  data["mix"] = {"unit": "rows"}
  with pytest.raises(schema.ConfigError, match="at most 80 tokens"):
    start(short=(5, 999))


@pytest.mark.parametrize("epochs", [None, 2])
def test_without_replacement_every_row_comes_once_an_epoch(paths, epochs):
  mix = {"exhaustion": "all_exhausted_without_replacement"}
  data = config(paths, ["bins", "stream"], mix, epochs=epochs)
  data["global_batch_size"] = 1
  pipe = pipeline.build(data)
  passes = epochs or 1
  rows = {name: passes * len(own) for name, own in pipe.sources.items()}
  assert pipe.num_steps == sum(rows.values())
  found = [rows_of_step(pipe, step)[0] for step in range(pipe.num_steps)]
  for name, count in rows.items():
    own = [row for row in found if row[0] == name]
    assert own == own_rows(pipe, name, range(count))
  assert f"epochs {passes}" in pipe.describe()
  # It is `drop` with an end.
  drop = pipeline.build({**data, "epochs": passes, "mix": {}})
  assert drop.fingerprint == pipe.fingerprint
  assert drop.num_steps == pipe.num_steps
  # A source of its own epochs has those.
  data["sources"]["stream"]["max_epochs"] = 3
  longer = pipeline.build(data)
  ends = rows["bins"] + 3 * len(pipe.sources["stream"])
  assert longer.num_steps == ends


APPENDED = [
  (0, {"bins": 1, "stream": 1}),
  (9, {"stream": 2}),
  (31, {"bins": 5, "stream": 1, "splice": 1}),
  (61, {"splice": 1, "bins": 1}),
]


@pytest.mark.parametrize("count", [1, 3])
def test_an_appended_stage_changes_nothing_before_it(paths, count):
  """Neither places in a batch nor numbers of sources."""
  begins, pipes = APPENDED[count][0], []
  for stages in (APPENDED[:count], APPENDED):
    names = sorted({n for _, weights in stages for n in weights})
    data = config(paths, names, mix={"stages": stages})
    pipes.append(pipeline.build(data))
  for step in range(begins):
    one, other = (pipe.batch(step) for pipe in pipes)
    for field, value in one.items():
      np.testing.assert_array_equal(value, other[field], f"{field} {step}")


def streams(data, count=60):
  """Returns what each source gives in a run of batches of one row."""
  pipe = pipeline.build({**data, "global_batch_size": 1})
  out = {name: [] for name in pipe.source_names}
  for step in range(count):
    ((name, content),) = rows_of_step(pipe, step)
    out[name].append(content)
  return out


def test_other_sources_leave_a_sources_own_order_untouched(paths):
  names = ["bins", "stream", "splice"]
  base = streams(config(paths, names))
  changed = {
    "reordered": config(paths, names[::-1]),
    "one more": config(paths, [*names, "exact"]),
    "one less": config(paths, names[:2]),
    "others' weights": config(
      paths, names, mix={"weights": {"bins": 3, "stream": 1, "splice": 0.5}}
    ),
  }
  for what, data in changed.items():
    found = streams(data)
    for name in set(found) & set(base):
      both = min(len(found[name]), len(base[name]))
      assert both > 5
      assert found[name][:both] == base[name][:both], what
  # The order of a config decides nothing at all.
  assert streams(changed["reordered"]) == base


def test_a_seed_of_its_own_fixes_a_sources_order_and_no_others(paths):
  def run(own_seed=None, seed=7):
    data = config(paths, ["exact", "stream"], seed=seed)
    shuffle = data["sources"]["stream"]["shuffle"]
    data["sources"]["stream"]["shuffle"] = {**shuffle, "seed": own_seed}
    return streams(data)

  base, own, other = run(), run(own_seed=3), run(own_seed=4)
  assert base["stream"][:12] != own["stream"][:12] != other["stream"][:12]
  assert base["exact"][:12] == own["exact"][:12]
  # Whatever the run's seed, which moves the others.
  again = run(own_seed=3, seed=8)
  assert again["stream"][:12] == own["stream"][:12]
  assert again["exact"][:12] != own["exact"][:12]


def places(data, steps):
  """Returns by step which of its rows each place of a batch has."""
  pipe = pipeline.build(data)
  size = data["global_batch_size"]
  taken = Greedy(pipe, data).run(steps * size)
  out = []
  for step in range(steps):
    mine = taken[step * size : (step + 1) * size]
    wanted = [own_rows(pipe, name, [row])[0] for name, row in mine]
    assert len(set(wanted)) == size
    out.append([wanted.index(row) for row in rows_of_step(pipe, step)])
  return out


def test_rows_of_a_batch_are_permuted_by_seed_and_step_alone(paths):
  data = config(paths, ["bins", "stream"], global_batch_size=6)
  base = places(data, 12)
  assert all(sorted(own) == list(range(6)) for own in base)
  assert len({tuple(own) for own in base}) > 8
  # Other sources are permuted alike; another seed is not.
  assert (
    places(config(paths, ["splice", "exact"], global_batch_size=6), 4)
    == (base[:4])
  )
  assert places({**data, "seed": 8}, 4) != base[:4]


def test_a_weight_that_is_hardly_served_is_said_with_the_rows_it_takes(paths):
  data = config(
    paths,
    ["bins", "stream"],
    mix={"kind": "weighted", "weights": {"bins": 1, "stream": 0.001}},
    global_batch_size=2,
  )
  pipe = pipeline.build(data)
  # Row 0 of both comes first; then 999 rows of bins, its second a tie.
  stands = {"is row 1001", "is row 1002"}
  (problem,) = pipe.accounts.questions.unserved(400)
  assert problem.startswith("`config.data.mix`: the weight of 'stream'")
  # A thousandth of 800 rows.
  assert "amounts to 0.8 row in 400 steps of the stage from step 0" in problem
  assert "which have one of it: its next is row" in problem
  assert any(text in problem for text in stands)
  second = int(problem.split("is row ")[1].split(" ")[0])
  assert pipe.accounts.questions.unserved(second // 2 - 1)
  assert not pipe.accounts.questions.unserved(second // 2 + 1)
  rows = [
    pipe.run_plan.merge.rows_before(n)["stream"] for n in (second, second + 1)
  ]
  assert rows == [1, 2]


def test_a_run_ends_where_its_stage_has_no_row_left(paths, caplog):
  def run(step):
    caplog.clear()
    mix = {"stages": [(0, {"bins": 1}), (step, {"stream": 1})]}
    return pipeline.build(config(paths, ["bins", "stream"], mix=mix, epochs=1))

  pipe = run(2)
  bins, stream = (len(pipe.sources[name]) for name in ("bins", "stream"))
  assert pipe.run_plan.merge.end == 2 * 4 + stream
  assert not [line for line in caplog.messages if "never reached" in line]
  assert run(3).run_plan.merge.end == bins < 3 * 4
  (line,) = [line for line in caplog.messages if "never reached" in line]
  assert (
    f"the stage from step 3 on is never reached: the run ends after {bins}"
    in (line)
  )


@pytest.fixture(scope="module")
def of_tokenizers(tmp_path_factory):
  """Sources by tokenizer: two that differ, and files that say nothing."""
  root = tmp_path_factory.mktemp("tokenizers")
  documents = [[7, 8, 9, 7] * 9] * 30
  rows = {"rows": {"kind": "sequential"}}
  out = {}
  for name, size in (("one", 256), ("same", 256), ("other", 300)):
    testing_stores.make_store(root / name, documents, vocab_size=size)
    out[name] = {"store": str(root / name), **rows}
  records = testing_stores.make_array_records(root / "records", documents)
  told = {"token_dtype": "uint16", "vocab_size": 256, "eos_id": 1}
  for name, more in (
    ("records", {}),
    ("named", {"tokenizer": "gpt"}),
    ("renamed", {"tokenizer": "bert"}),
    ("padded", {"pad_id": 3}),
  ):
    section = {"pad_id": 0, **told, **more}
    out[name] = {"store": records, "array_record": section, **rows}
  return out


@pytest.mark.parametrize(
  ("names", "refused", "unknown"),
  [
    ("one same", None, None),
    ("one same other", "'one' and custom .*300 ids.* of 'other'", None),
    ("one records", None, "records"),
    ("one named", None, None),
    ("named renamed", r"gpt \(256 ids\).* bert \(256 ids\)", None),
    ("one padded", r"pad 0, .* pad 3, .* of 'padded'", None),
  ],
)
def test_sources_of_one_run_are_of_one_tokenizer(
  of_tokenizers, caplog, names, refused, unknown
):
  sources = {name: dict(of_tokenizers[name]) for name in names.split()}
  # In buckets the check is the same one.
  if names == "one same other":
    data = {"buckets": {"kind": "length", "lengths": (64,)}}
    data["buckets"]["tokens_per_batch"] = 256
    for own in sources.values():
      own.pop("rows")
  else:
    data = {"seq_len": 16, "global_batch_size": 2}
  # One that joins by a stage is no other.
  first, *later = sources
  stages = [(0, {first: 1}), (3, dict.fromkeys(later, 1))]
  data = {**data, "sources": sources, "mix": {"stages": stages}}
  if refused:
    with pytest.raises(schema.ConfigError, match=refused) as caught:
      pipeline.build(data)
    assert "`config.data.mix.allow_tokenizer_differences` to" in str(
      caught.value
    )
    data["mix"]["allow_tokenizer_differences"] = True
  pipe = pipeline.build(data)
  assert pipe.describe().count("tokenizer ") == len(sources)
  warned = [line for line in caplog.messages if "which tokenizer" in line]
  assert len(warned) == bool(unknown)
  if unknown:
    assert f"made the tokens of {unknown} is not known" in warned[0]


def test_the_summary_counts_the_rows_that_are_dropped(paths):
  data = config(paths, ["bins", "stream"], epochs=1, global_batch_size=7)
  pipe = pipeline.build(data)
  lost = len(pipe.run_plan.merge) - 7 * pipe.num_steps
  assert lost
  said = f"\n  remainder drop: {lost} rows at the end fill no step\n"
  assert said in pipe.describe()
  padded = pipeline.build({**data, "remainder": "pad"})
  assert "fill no step" not in padded.describe()


def test_a_source_that_is_given_more_often_than_asked_for_is_said(
  paths, caplog
):
  mix = {"exhaustion": "all_exhausted", "weights": {"bins": 1, "stream": 40}}
  data = config(paths, ["bins", "stream"], mix, epochs=1)
  pipe = pipeline.build(data)
  (line,) = [own for own in caplog.messages if "times over" in own]
  passes = pipe.accounts.at(pipe.num_steps)["stream"].epochs
  assert passes > 10
  assert f"steps give source 'stream' {passes:.1f} times over. Take" in line
  questions, asked = pipe.accounts.questions, pipe.run_options.max_epochs
  assert not questions.repeat_warnings(2, asked)
  assert len(questions.repeat_warnings(pipe.num_steps, asked)) == 1
  # What is asked for is no surprise.
  caplog.clear()
  pipeline.build(config(paths, ["bins", "stream"], epochs=5))
  assert "times over" not in caplog.text


# Many sources.


def test_a_group_of_steps_is_bounded_in_the_rows_of_all_processes(paths):
  data = config(paths, mix={"unit": "rows"}, global_batch_size=512)
  pipe = pipeline.build(data)
  local = plan_lib.LocalRows({pipe.buckets[0].name: np.arange(2)})
  source = pipeline.batch_source(pipe, local)
  longest = 0
  for step in range(100):
    source.read(range(step, step + 1))
    longest = max(longest, len(source.together(step, 8)))
  assert longest == 4_096 // 512


def test_token_balance_over_a_full_shuffle_is_said_with_its_cost(
  paths, monkeypatch, caplog
):
  monkeypatch.setattr(prefix_sums, "LONG_PASS", 5)
  shuffles = {name: {"kind": "full"} for name in SOURCES}

  def warnings(names, **mix):
    caplog.clear()
    pipe = pipeline.build(config(paths, names, mix=mix, shuffles=shuffles))
    rows = {name: len(own) for name, own in pipe.sources.items()}
    found = [line for line in caplog.messages if "summing" in line]
    return found, rows

  found, rows = warnings(["bins", "stream"])
  (line,) = found
  assert line.startswith("config.data.mix: bins: summing tokens over rows that")
  assert f"plans all {rows['bins']} rows of each epoch once" in line
  assert not warnings(["bins", "stream"], kind="weighted")[0]
  shuffles["bins"] = BLOCK
  assert not warnings(["bins", "stream"])[0]
