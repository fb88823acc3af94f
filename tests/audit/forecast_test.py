# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""simulate: what it says of a run is what the run's batches hold."""

import json
from unittest import mock

import pytest

from chomp_data import pipeline
from chomp_data.audit import forecast as forecast_lib
from chomp_data.plans import answers
from tests import in_process
from tests.audit import small_runs


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
  return small_runs.make_stores(tmp_path_factory.mktemp("forecast"))


def simulate(*args, check=True):
  return in_process.run_tool("simulate", *args, check=check)


@pytest.fixture
def flags(paths):
  return [
    "--config=configs/pretrain_mix.py:runlocal",
    *(
      f"--config.data.sources.{name}.store={paths[own]}"
      for name, own in zip(
        ("stdlib", "packages", "notes"), small_runs.NAMES, strict=True
      )
    ),
    "--config.data.seq_len=16",
  ]


def test_what_is_printed_says_stages_epochs_and_ends(flags):
  done = simulate(*flags, "--config.data.epochs=3")
  found = json.loads(
    simulate(*flags, "--config.data.epochs=3", "--format=json").stdout
  )
  assert [own["step"] for own in found["marks"]] == [0, 3]
  assert "step 3: stage" in done.stdout
  notes = found["sources"]["notes"]
  assert len(notes["begins"]) == 2
  steps = ", ".join(map(str, notes["begins"]))
  assert f"notes begins again at steps {steps}\n" in done.stdout
  ends = {name: own["ends"] for name, own in found["sources"].items()}
  assert f"stdlib has ended before step {ends['stdlib']}" in done.stdout
  # Its last rows fill no batch.
  assert ends["notes"] is None
  assert f"padding {found['padding']:,} positions" in done.stdout
  # The sketch: notes come from step 3 on, alone after the others' ends.
  (line,) = [own for own in done.stdout.splitlines() if "| 100% at" in own]
  assert line.startswith("notes    |   ")


def test_prices_are_of_what_is_fetched(flags):
  asked = [*flags, "--steps=40", "--format=json"]
  assert json.loads(simulate(*asked).stdout)["price"] is None
  done = simulate(*asked, "--price_per_request=2", "--price_per_gb=1e9")
  found = json.loads(done.stdout)
  reads = found["reads"].values()
  assert found["price"] == {
    "requests": 2.0 * sum(own["requests"] for own in reads),
    "bytes": pytest.approx(sum(own["bytes"] for own in reads)),
    "total": pytest.approx(
      sum(2 * own["requests"] + own["bytes"] for own in reads)
    ),
  }
  assert all(own["bytes"] > 0 for own in reads)


def test_a_plot_is_drawn(flags, tmp_path):
  path = tmp_path / "shares.svg"
  simulate(*flags, "--config.data.epochs=3", f"--plot={path}")
  assert path.read_bytes().startswith(b"<?xml")


def test_arrays_have_rows_and_no_tokens(tmp_path):
  directory = tmp_path / "pictures"
  in_process.run_tool(
    "examples/prepare_images.py",
    f"--output={directory}",
    "--count=digits=24,plots=24",
    "--format=array_record",
    check=True,
  )
  done = simulate(
    "--config=configs/resolution_buckets.py:runlocal",
    *(
      f"--config.data.sources.{name}.store={directory}/array_record/{name}"
      for name in ("digits", "plots")
    ),
    "--steps=5",
    "--format=json",
  )
  found = json.loads(done.stdout)
  assert found["rows"] > 0
  assert found["tokens"] is found["padding"] is None


@pytest.mark.parametrize(
  ("args", "problem"),
  [
    (["--steps=0"], "--steps"),
    (["--config.data.epochs=None"], "`--steps` must be given for a run"),
    (["--steps=1000000"], "`--steps` must be at most the run's"),
    (["--plot=shares.txt"], "`--plot` must end in .png or .svg"),
    (["more"], "Unexpected arguments: more"),
  ],
)
def test_what_is_no_question_is_one_clear_error(flags, args, problem):
  done = simulate(*flags, "--config.data.epochs=1", *args, check=False)
  assert done.returncode == 1
  assert problem in done.stderr
  assert "Traceback" not in done.stderr


def test_a_curriculum_is_not_asked_about_each_of_many_epochs(paths):
  pipe = pipeline.build(
    {
      "epochs": None,
      "remainder": "pad",
      "sources": {"web": {"store": paths["web"]}},
      "buckets": {
        "kind": "length",
        "lengths": (8, 16, 48),
        "tokens_per_batch": 48,
        # The last bucket comes so rarely that no pass ends.
        "stages": [(0, {"8": 1_000, "16": 1_000, "48": 1})],
      },
    }
  )
  questions = answers.of(pipe.run_plan)
  ask = questions.epoch_begins
  with (
    mock.patch.object(answers, "of", return_value=questions),
    mock.patch.object(questions, "epoch_begins", side_effect=ask) as asked,
  ):
    found = forecast_lib.forecast(pipe, 400).sources["web"]
  assert found.epochs > 40
  assert asked.call_count <= len(found.begins) + 1
