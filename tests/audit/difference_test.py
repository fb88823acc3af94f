# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""diff: where two runs first differ is where their batches do."""

import copy
import json
from typing import NamedTuple
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.audit import difference as difference_lib
from chomp_data.audit import steps as steps_lib
from chomp_data.config import files
from chomp_data.loading import state
from chomp_data.stores import samples_array_record
from chomp_data.testing import stores as testing_stores
from tests import in_process
from tests import laws
from tests.audit import small_runs

MOST = 30  # steps compared slowly


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
  return small_runs.make_stores(tmp_path_factory.mktemp("difference"))


def edited(draw, data, paths):
  """Returns a config of about the same run."""
  data = copy.deepcopy(data)
  name = draw(st.sampled_from(sorted(data["sources"])))
  edits = ["none", "seed", "epochs", "store", "format", "skip"]
  if "buckets" in data:
    edits += ["weights", "add_eos"]
    edits += ["buckets"] * ("stages" in data["buckets"])
  else:
    edits += ["rows", "shuffle"]
    edits += ["batch"] * ("global_batch_size" in data)
    edits += ["weights", "stage", "mix"] * ("mix" in data)
  edit = draw(st.sampled_from(edits))
  source, mix = data["sources"][name], data.get("mix", {})
  if edit == "seed":
    data["seed"] += 1
  elif edit == "skip":
    first = draw(st.integers(0, 20))
    data["skip"] = ((first, first + 1),)
  elif edit == "epochs":
    data["epochs"] = draw(st.sampled_from((1, 2, None)))
  elif edit == "store":
    source["store"] = paths["other"]
  elif edit == "format":
    data["lookahead"] = True
  elif edit == "add_eos":
    source["rows"]["add_eos"] = not source["rows"]["add_eos"]
  elif edit == "batch":
    data["global_batch_size"] += 1
  elif edit == "rows":
    source["rows"] = small_runs.ROWS[draw(st.sampled_from(("ffd", "windows")))]
  elif edit == "shuffle":
    source["shuffle"] = {"kind": draw(st.sampled_from(("none", "full")))}
  elif edit == "mix":
    mix["unit"] = draw(st.sampled_from(("tokens", "rows")))
  elif edit == "buckets":
    data["buckets"]["stages"][1] = (
      draw(st.integers(1, 20)),
      {"8": 1, "16": 1, "32": draw(st.integers(1, 3))},
    )
  elif edit == "weights":
    weights = mix["weights"] if "weights" in mix else mix["stages"][-1][1]
    key = draw(st.sampled_from(sorted(weights)))
    weights[key] += draw(st.sampled_from((0, 1, weights[key])))
  elif edit == "stage":
    last, weights = mix["stages"][-1]
    mix["stages"].append((last + draw(st.integers(1, 20)), {name: 1}))
  return data


@st.composite
def pairs(draw, paths):
  data = draw(small_runs.of_any(paths))
  return data, edited(draw, data, paths)


@pytest.mark.parametrize("step", [0, 5])
def test_few_rows_are_planned_where_runs_part_soon(paths, step, monkeypatch):
  data = {
    "seq_len": 16,
    "global_batch_size": 4,
    "seed": 0,
    "sources": {name: {"store": paths[name]} for name in ("web", "code")},
  }
  stages = [(0, {"web": 1, "code": 1})], [(0, {"web": 1, "code": 1})]
  stages[1].append((step, {"web": 1, "code": 9}))
  runs = [
    pipeline.build(data | {"mix": {"stages": own[-1:] if step == 0 else own}})
    for own in stages
  ]
  planned = []
  plan = pipeline.Pipeline.plan

  def counted(run, first, count=1):
    planned.append(count)
    return plan(run, first, count)

  monkeypatch.setattr(pipeline.Pipeline, "plan", counted)
  found = steps_lib.first_difference(*runs, range(10**6))
  assert found == step
  assert max(planned) <= max(1, 4 * step)


class Span(NamedTuple):
  """What a batch holds of a document, whatever its number."""

  row: int
  column: int
  name: str
  identity: str
  start: int
  length: int
  stored: int


def handed_out(pipe, step):
  """The rows of a step, and its spans."""
  spans = pipe.plan(step)
  return spans.num_rows, [
    Span(
      int(spans.row[i]),
      int(spans.column[i]),
      name := pipe.source_names[spans.source[i]],
      pipe.sources[name].store.document_ids([int(spans.document[i])])[0],
      int(spans.start[i]),
      int(spans.length[i]),
      int(stored),
    )
    for i, stored in enumerate(spans.stored()[0])
  ]


@pytest.fixture(scope="module")
def stores(paths, tmp_path_factory):
  """The stores, and one with some of the documents of 'web', and others."""
  rng = np.random.default_rng(0)
  lengths = rng.integers(0, 40, 30)
  documents = [rng.integers(3, 250, size=n) for n in lengths]
  path = tmp_path_factory.mktemp("difference") / "other"
  ids = [str(i) for i in range(20)] + [f"new {i}" for i in range(10)]
  testing_stores.make_store(path, documents, ids=ids)
  return {**paths, "other": str(path)}


@laws.examples(60, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(st.data())
def test_the_first_step_is_that_of_a_brute_force(stores, data):
  both = data.draw(pairs(stores))
  try:
    a, b = (pipeline.build(own) for own in both)
  except schema.ConfigError:
    hypothesis.reject()
  ends = [own.num_steps or MOST for own in (a, b)]
  steps = min(MOST, max(ends))
  with mock.patch.object(
    steps_lib, "BLOCK_ROWS", data.draw(st.sampled_from((12, 65_536)))
  ):
    found = difference_lib.difference(a, b, steps)
  by_step = [
    [handed_out(run, step) for step in range(min(end, steps))]
    for run, end in zip((a, b), ends, strict=True)
  ]
  first = next(
    (i for i in range(steps) if by_step[0][i : i + 1] != by_step[1][i : i + 1]),
    None,
  )
  hypothesis.event(f"{min(first, 2) if first is not None else None}")
  assert found.first_step == first
  if first is None:
    assert not found.sources
    # The same spans of other tokens, or with other labels.
    told = [own.split(":")[0].split(".")[-1] for own in found.fields]
    assert found.is_empty or set(told) <= {"lookahead", "store"}
    return
  assert found.fields
  for name in {*a.source_names, *b.source_names}:
    given = [
      [span for _, spans in own for span in spans if span.name == name]
      for own in by_step
    ]
    ids = [{own.identity for own in spans if own.stored} for spans in given]
    counts = [sum(own.length for own in spans) for spans in given]
    if name not in found.sources:
      assert counts[0] == counts[1]
      assert ids[0] == ids[1]
      continue
    for i, (side, run) in enumerate(zip("ab", (a, b), strict=True)):
      told = found.sources[name][side]
      if name not in run.source_names:
        assert told is None
        continue
      only = ids[i] - ids[1 - i]
      assert (told.tokens, told.documents, told.only_here) == (
        counts[i], len(ids[i]), len(only),
      )  # fmt: skip
      assert set(told.ids) <= only
      assert len(told.ids) == min(len(only), 10)


def test_samples_of_arrays_have_their_numbers_in_the_store(tmp_path):
  samples = [
    ({"x": np.zeros((1, 1), np.uint8)}, {"height": side, "width": side})
    for side in (4, 2, 4, 2, 2, 4, 4, 2) * 4
  ]
  samples_array_record.write_samples(tmp_path / "photos", samples)
  data = {
    "seed": 0,
    "epochs": 1,
    "global_batch_size": 2,
    "sources": {"photos": {"store": str(tmp_path / "photos")}},
    "mix": {"weights": {"photos": 1}},
    "buckets": {
      "kind": "resolution",
      "sizes": ((2, 2), (4, 4)),
      "fields": ("x",),
    },
  }
  runs = [pipeline.build({**data, "seed": seed}) for seed in (0, 1)]
  found = difference_lib.difference(*runs, 3).sources["photos"]
  for run, summary in zip(runs, found.values(), strict=True):
    samples = [run.batch(step)["sample_id"].tolist() for step in range(3)]
    named = {f"#{number}" for step in samples for number in step}
    assert len(named) == summary.documents == 6
    assert summary.ids
    assert set(summary.ids) <= named


@pytest.fixture
def flags(paths):
  return [
    *(
      f"--config.data.sources.{name}.store={paths[own]}"
      for name, own in zip(
        ("stdlib", "packages", "notes"), small_runs.NAMES, strict=True
      )
    ),
    "--config.data.seq_len=16",
  ]


def diff(*args):
  return in_process.run_tool("diff", *args)


MIX = "configs/pretrain_mix.py:runlocal"


def test_a_run_equals_itself_and_nothing_is_printed(flags):
  with mock.patch.object(pipeline.Pipeline, "plan") as planned:
    done = diff(MIX, "pretrain_mix:runlocal", *flags, "--steps=1000000")
  assert (done.returncode, done.stdout) == (0, "")
  planned.assert_not_called()


CHANGED = """
from configs import pretrain_mix


def get_config(arg):
  config = pretrain_mix.get_config("runlocal")
  config.data.mix.stages = (
    *config.data.mix.stages, (int(arg), (("stdlib", 0.9), ("notes", 0.1))),
  )
  return config
"""


def test_a_stage_more_differs_where_it_begins_and_nowhere_before(
  flags, tmp_path
):
  (tmp_path / "changed.py").write_text(CHANGED)
  changed = f"{tmp_path / 'changed.py'}:40"
  done = diff(MIX, changed, *flags, "--steps=60", "--format=json")
  assert done.returncode == 1
  found = json.loads(done.stdout)
  # The order of a stage with other weights may be the same for a batch.
  assert 40 <= found["first_step"] <= 42
  (line,) = found["fields"]
  assert line.startswith("mix.stages.40: A has '(absent)', B has notes")
  notes = found["sources"]["notes"]
  assert notes["a"]["tokens"] > notes["b"]["tokens"]
  shown = diff(MIX, changed, *flags, "--steps=60").stdout
  assert f"step {found['first_step']} is the first that differs\n" in shown
  assert line in shown
  assert diff(MIX, changed, *flags, "--steps=40").returncode == 0


@pytest.mark.slow
def test_a_checkpoint_is_compared_by_what_it_says(flags, tmp_path):
  (tmp_path / "changed.py").write_text(CHANGED)
  changed = f"{tmp_path / 'changed.py'}:40"
  work = str(tmp_path / "job")
  in_process.run_tool(
    "train", f"--config={MIX}", f"--workdir={work}", *flags, check=True
  )
  newest = f"{work}/checkpoints/6"
  for own in (work, newest, f"{newest}/input"):
    assert diff(own, MIX, *flags, "--steps=1000").returncode == 0
  assert diff(newest, f"{work}/checkpoints/3").returncode == 0
  done = diff(newest, changed, *flags, "--steps=60", "--format=json")
  assert done.returncode == 1
  asked = diff(MIX, changed, *flags, "--steps=60", "--format=json")
  assert json.loads(done.stdout) == json.loads(asked.stdout)
  # Edits of the job's future, and back again.
  gone = tmp_path / "gone.jsonl"
  gone.write_text('{"source": "stdlib", "document": 0}\n')
  for edit, field, first in (
    ("skip=((8, 9),)", "skip.8", 8),
    (f"tombstones=((7, {str(gone)!r}),)", "tombstones.7", None),
  ):
    done = diff(
      newest, MIX, *flags, f"--config.data.{edit}", "--steps=30",
      "--format=json",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert any(line.startswith(field) for line in found["fields"])
    assert found["first_step"] == first or (
      first is None and found["first_step"] >= 7
    )
  other = diff(newest, MIX, *flags, "--config.data.seed=5", "--steps=9")
  assert other.returncode == 2
  assert "seed: checkpoint has 0, config has 5" in other.stderr


def test_a_mix_is_of_the_second_side_of_one_config_and_of_both_of_two(
  flags, paths
):
  def mix(share):
    entries = zip(
      ("stdlib", "packages", "notes"), small_runs.NAMES, share, strict=True
    )
    return "--dataset_mix=" + " ".join(
      f"{name}={paths[own]}:{weight}" for name, own, weight in entries
    )

  asked = ["--steps=30", "--format=json", *flags]
  done = diff(MIX, mix((1, 1, 8)), *asked)
  assert done.returncode == 1, done.stderr
  found = json.loads(done.stdout)
  options = [own.removeprefix("--config.") for own in flags]
  pipe = pipeline.build(files.load_config(MIX, options).data)
  before = {n: own.rows for n, own in pipe.accounts.at(30).items()}
  rows = {n: own["a"]["rows"] for n, own in found["sources"].items()}
  assert rows.items() <= before.items()
  assert found["sources"]["notes"]["b"]["rows"] > 0.7 * 30 * 8
  shown = diff(MIX, mix((1, 1, 8)), "--steps=30", *flags).stdout
  assert f"only {MIX} --dataset_mix: " in shown
  # Of two it is in both, as options are: no stage is left that differs.
  assert diff(MIX, MIX, mix((1, 1, 8)), *asked).returncode == 0


@pytest.fixture
def checkpoints(flags, tmp_path):
  """Two jobs of a run, of which the other skips a step ahead."""
  options = [own.removeprefix("--config.") for own in flags]
  for name, more in (("one", []), ("other", ["data.skip=((8, 9),)"])):
    pipe = pipeline.build(files.load_config(MIX, [*options, *more]).data)
    item = tmp_path / name / "5" / "input"
    item.mkdir(parents=True)
    (item / "input.json").write_bytes(state.encode(5, pipe.fingerprint, {}))
  return str(tmp_path / "one"), str(tmp_path / "other")


def test_two_checkpoints_are_compared_with_the_stores_of_a_config(
  flags, checkpoints
):
  asked = [*flags, "--steps=30", "--format=json"]
  done = diff(*checkpoints, *asked, f"--stores_of={MIX}")
  assert done.returncode == 1, done.stderr
  found = json.loads(done.stdout)
  assert found["first_step"] == 8
  assert any(own.startswith("skip.8") for own in found["fields"])
  one = checkpoints[0]
  assert diff(one, f"{one}/5", *asked, f"--stores_of={MIX}").returncode == 0
  without = diff(*checkpoints, *asked)
  assert without.returncode == 2
  assert "`--stores_of` must name a config for two checkpoints" in (
    without.stderr
  )
  assert "skip.8: A has '(absent)', B has" in without.stderr
  beside = diff(one, MIX, *asked, f"--stores_of={MIX}")
  assert beside.returncode == 2
  assert f"--stores_of must come with two checkpoints, got {MIX}" in (
    beside.stderr
  )


@pytest.mark.parametrize(
  ("args", "problem"),
  [
    ([MIX], "two configs or checkpoints must be given"),
    (["tests", "--dataset_mix=a:1"], "two configs or checkpoints must be give"),
    ([MIX, MIX], "`--steps` must be given where a run has no end"),
    (
      [MIX, MIX, "--config.data.epochs=1", "--steps=100000"],
      "`--steps` must be at most the",
    ),
    ([MIX, "no_such", "--steps=9"], "which is none"),
    ([MIX, "configs", "--steps=9"], "must be a config, or hold a checkpoint"),
    ([MIX, MIX, "--steps=9", "--config.data.seed=x"], "config.data.seed`"),
    ([MIX, MIX, "--stpes=9"], "stpes"),
  ],
)
def test_what_cannot_be_compared_is_one_clear_error(flags, args, problem):
  done = diff(*args, *flags)
  assert (done.returncode, done.stdout) == (2, "")
  assert problem in done.stderr
  assert "Traceback" not in done.stderr
