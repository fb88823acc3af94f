"""simulate: what it says of a run is what the run's batches hold."""

import itertools
import json
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.audit import forecast as forecast_lib
from chomp_data.plans import token_sums
from tests import in_process
from tests import laws
from tests.audit import small_runs

MOST = 40  # steps counted slowly


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
  return small_runs.make_stores(tmp_path_factory.mktemp("forecast"))


def built(data):
  """Returns the run; draws that no run is are passed over."""
  try:
    return pipeline.build(data)
  except schema.ConfigError:
    hypothesis.reject()
    raise


def counted(pipe, steps):
  """Counts what batches hold, row by row; nothing of it is from accounts."""
  out = {
    name: {"rows": 0, "tokens": 0, "loss_tokens": 0, "by_step": []}
    for name in pipe.source_names
  }
  positions = 0
  for step in range(steps):
    batch, spans = pipe.canonical(step), pipe.plan(step)
    positions += batch["tokens"].size
    length = np.zeros(len(batch["tokens"]), int)
    for row, own in zip(spans.row, spans.length, strict=True):
      length[row] += own
    for number, own in enumerate(out.values()):
      rows = batch["source_id"] == number
      own["rows"] += int(rows.sum())
      own["tokens"] += int(length[rows].sum())
      own["loss_tokens"] += int(batch["loss_mask"][rows].sum())
      own["by_step"].append(own["rows"])
  return out, positions


@laws.examples(60, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(st.data())
def test_a_forecast_equals_a_count_of_batches(paths, data):
  pipe = built(data.draw(small_runs.of_any(paths)))
  most = min(pipe.num_steps or MOST, MOST)
  steps = data.draw(st.integers(1, most))
  # From there on sums are of whole epochs.
  near = data.draw(st.sampled_from((1, 4_096)))
  with mock.patch.object(token_sums, "_NEAR", near):
    found = forecast_lib.forecast(pipe, steps)
  slow, positions = counted(pipe, steps)
  for name, own in slow.items():
    source = found.sources[name]
    assert (source.rows, source.tokens, source.loss_tokens) == (
      own["rows"], own["tokens"], own["loss_tokens"],
    )  # fmt: skip
    # An epoch begins at the step before which less was given, but not after.
    at = [pipe.accounts.at(step)[name].epochs for step in range(steps + 1)]
    if not pipe.in_buckets:
      assert (
        list(source.begins)
        == [
          step
          for step, (low, high) in enumerate(itertools.pairwise(at))
          for epoch in range(1, int(high) + 1)
          if low <= epoch < high
        ][:8]
      )
    if source.ends is not None:
      gives = np.diff([0, *own["by_step"]])
      assert not gives[source.ends :].any()
      assert gives[source.ends - 1]
  for field in ("rows", "tokens", "loss_tokens"):
    whole = sum(own[field] for own in slow.values())
    assert getattr(found, field) == whole
  assert found.positions == positions
  assert found.padding == positions - found.tokens


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


def test_arrays_have_rows_and_no_tokens(tmp_path):
  directory = tmp_path / "pictures"
  in_process.run_tool(
    "prepare_images",
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
    (["more"], "Unexpected arguments: more"),
  ],
)
def test_what_is_no_question_is_one_clear_error(flags, args, problem):
  done = simulate(*flags, "--config.data.epochs=1", *args, check=False)
  assert done.returncode == 1
  assert problem in done.stderr
  assert "Traceback" not in done.stderr
