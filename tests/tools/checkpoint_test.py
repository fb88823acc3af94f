# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tools that take --checkpoint answer of the run as a job went on with it."""

import json
import shutil

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.audit import forecast
from chomp_data.audit import visits
from chomp_data.config import files
from chomp_data.loading import state
from chomp_data.testing import stores as testing_stores
from tests import in_process

CONFIG = """
import ml_collections
def get_config(arg=None):
  return ml_collections.ConfigDict({
    "data": {
      "seq_len": 16, "global_batch_size": 2, "epochs": 40,
      "sources": {"web": {
        "store": STORE,
        "rows": {"kind": "sequential", "add_eos": False},
        "shuffle": {"kind": "none"},
      }},
    },
  })
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
  """A config, the run as its job went on, and the job at step 25."""
  root = tmp_path_factory.mktemp("job")
  rng = np.random.default_rng(0)
  texts = [rng.integers(2, 250, n) for n in (20, 7, 33, 5, 12, 40)]
  testing_stores.make_store(root / "web", texts)
  config = root / "run.py"
  config.write_text(CONFIG.replace("STORE", repr(str(root / "web"))))
  # It has other sizes before; a config of the last one continues it.
  grown = ["data.global_batch_size=None"]
  grown += ["data.batch_size_schedule=((0, 5), (12, 2))"]
  pipe = pipeline.build(files.load_config(str(config), grown).data)
  item = root / "job" / "checkpoints" / "20" / "input"
  item.mkdir(parents=True)
  (item / "input.json").write_bytes(
    state.encode(20, {**pipe.fingerprint, "operations": ["own()"]}, {})
  )
  (root / "job" / "job.json").write_text(
    json.dumps({"step": 25, "status": "finished", "host": "-", "pid": 1})
  )
  return config, pipe, root / "job"


def records(tool, config, *flags):
  ran = in_process.run_tool(
    tool, f"--config={config}", "--format=json", *flags, check=True
  )
  return [json.loads(line) for line in ran.stdout.splitlines()]


def starts(pipe, step):
  """Where the spans of a step begin, by row."""
  spans = pipe.plan(step)
  return [
    spans.start[spans.row == row].tolist() for row in range(spans.num_rows)
  ]


@pytest.mark.parametrize(
  ("of", "step"),
  [("", 25), ("checkpoints/20", 20), ("checkpoints/20/input", 20)],
)
def test_a_step_is_shown_as_the_job_had_it(job, of, step):
  config, pipe, directory = job
  at = f"--checkpoint={directory / of}"
  asked = [([], [step])]
  if not of:
    asked += [
      (["--step=0", "--count=2"], [0, 1]),
      (["--step=10:14"], [10, 11, 12, 13]),
    ]
  for flags, steps in asked:
    rows = records("inspect_batches", config, "--plan_only", at, *flags)
    shown = [(own["step"], own["row"]) for own in rows]
    assert shown == [
      (one, row) for one in steps for row in range(pipe.plan(one).num_rows)
    ]
    assert [[span["start"] for span in own["spans"]] for own in rows] == [
      start for one in steps for start in starts(pipe, one)
    ]


@pytest.mark.parametrize("tool", ["trace", "inspect_batches"])
def test_the_config_of_a_job_from_before_its_size_changed_will_do(job, tool):
  """The sizes before and after the change are those of the state."""
  config, pipe, directory = job
  flags = ["--plan_only"] if tool == "inspect_batches" else []
  asked = [f"--checkpoint={directory}/checkpoints/20", "--step=10:14", *flags]
  first = records(tool, config, *asked, "--config.data.global_batch_size=5")
  assert first == records(tool, config, *asked)
  assert {own["step"]: own["row"] + 1 for own in first} == {
    step: pipe.plan(step).num_rows for step in range(10, 14)
  }
  ran = in_process.run_tool(
    tool, f"--config={config}", "--config.data.global_batch_size=4", *asked
  )
  assert ran.returncode == 1
  assert "options that the job was last resumed with." in ran.stderr


def test_a_job_that_is_through_shows_its_last_step(job, tmp_path):
  config, _, _ = job
  last = pipeline.build(files.load_config(str(config)).data).num_steps - 1
  (tmp_path / "job.json").write_text(
    json.dumps({"step": last + 1, "status": "finished", "host": "-", "pid": 1})
  )
  rows = records("inspect_batches", config, f"--checkpoint={tmp_path}")
  assert {own["step"] for own in rows} == {last}


def test_a_job_that_could_not_begin_again_is_where_it_was(job, tmp_path):
  config, _, directory = job
  shutil.copytree(directory, tmp_path / "job")
  (tmp_path / "job" / "job.json").write_text(
    json.dumps({"step": 0, "status": "failed", "host": "-", "pid": 1})
  )
  rows = records(
    "inspect_batches", config, "--plan_only", f"--checkpoint={tmp_path}/job"
  )
  assert {own["step"] for own in rows} == {20}


@pytest.mark.slow
def test_what_a_job_was_allowed_to_change_is_known_before_it_saves(
  job, tmp_path
):
  config, _, _ = job
  for size, steps in ((2, 2), (4, 4)):
    in_process.run_tool(
      "train",
      f"--config={config}",
      f"--workdir={tmp_path}",
      f"--config.data.global_batch_size={size}",
      f"--config.train.num_steps={steps}",
      "--config.model.d_model=16",
      "--config.model.num_heads=2",
      "--allow_input_change=global_batch_size",
      check=True,
    )
  shutil.rmtree(tmp_path / "checkpoints" / "4")
  asked = [f"--checkpoint={tmp_path}", "--step=1:4", "--plan_only"]
  asked += ["--format=json", f"--config={config}"]
  ran = in_process.run_tool(
    "inspect_batches", *asked, "--config.data.global_batch_size=4"
  )
  steps = [json.loads(line)["step"] for line in ran.stdout.splitlines()]
  assert steps == [1] * 2 + [2] * 4 + [3] * 4, ran.stderr
  ran = in_process.run_tool(
    "inspect_batches", *asked, "--config.data.global_batch_size=3"
  )
  assert ran.returncode == 1
  assert "the config must be that of the job's checkpoint" in ran.stderr


def test_a_range_of_steps_comes_without_a_count(job):
  ran = in_process.run_tool(
    "inspect_batches", f"--config={job[0]}", "--step=3:5", "--count=2"
  )
  assert ran.returncode == 1
  assert ran.stderr == (
    "error: --count must not come with --step=A:B, got --step=3:5 and"
    " --count=2. Leave one of them out. See --help.\n"
  )


def test_spans_and_exposures_are_those_of_the_job(job):
  config, pipe, directory = job
  at = f"--checkpoint={directory}"
  rows = records("trace", config, "--step=11:14", at)
  assert [own["start"] for own in rows] == [
    own for step in (11, 12, 13) for row in starts(pipe, step) for own in row
  ]
  counts = records("trace", config, "--step=0:14", "--exposures", at)
  assert [own["exposures"] for own in counts] == (
    visits.exposures(pipe, "web", 0, 14).tolist()
  )


@pytest.mark.parametrize(("flags", "steps"), [([], 25), (["--steps=40"], 40)])
def test_what_the_job_consumes_is_told(job, flags, steps):
  config, pipe, directory = job
  at = f"--checkpoint={directory}"
  (found,) = records("simulate", config, at, *flags)
  expected = forecast.forecast(pipe, steps)
  assert (found["steps"], found["rows"], found["tokens"]) == (
    steps, expected.rows, expected.tokens,
  )  # fmt: skip
