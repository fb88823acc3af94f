# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""tools/train.py on mixes: one in a line, and one that gets a stage more."""

import json
import pathlib

import numpy as np
import pytest

from chomp_data.testing import stores as testing_stores
from tests import in_process

_NAMES = ("stdlib", "packages", "notes")

# The argument says how many stages a job has by now, or 'past': another past.
_CONFIG = """
from configs import pretrain_mix

STAGES = (
  (0, (("stdlib", 0.5), ("packages", 0.5))),
  (4, (("stdlib", 0.3), ("packages", 0.4), ("notes", 0.3))),
)


def get_config(arg):
  config = pretrain_mix.get_config("runlocal")
  stages = STAGES[: int(arg)] if arg != "past" else (
    STAGES[0], (2, (("stdlib", 1), ("packages", 3))), STAGES[1],
  )
  config.data.mix.stages = stages
  weighed = {name for _, weights in stages for name, _ in weights}
  for name in list(config.data.sources):
    config.data.sources[name].store = ROOT + "/" + name
    if name not in weighed:
      del config.data.sources[name]
  config.train.log_every_steps = 1
  return config
"""


class _Corpora:
  """Three stores that differ, and runs of the trainer."""

  def __init__(self, directory: pathlib.Path):
    self.directory = directory
    rng = np.random.default_rng(0)
    for i, name in enumerate(_NAMES):
      lengths = [*rng.integers(5, 200, size=30), 700, 900, 600, 800]
      testing_stores.make_store(
        directory / name,
        [rng.integers(3 + 80 * i, 83 + 80 * i, size=n) for n in lengths],
      )
    self.config = directory / "config.py"
    self.config.write_text(_CONFIG.replace("ROOT", repr(str(directory))))

  def path(self, name: str) -> str:
    return str(self.directory / name)

  def run(self, name: str, config, *arguments: str) -> tuple[int, str]:
    """Returns exit status and log."""
    done = in_process.run_tool(
      "train",
      f"--config={config}",
      f"--workdir={self.directory / 'runs' / name}",
      f"--batch_hashes={self.directory / name}.jsonl",
      *arguments,
    )
    return done.returncode, done.stderr

  def hashes(self, name: str) -> list[dict]:
    text = (self.directory / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]

  def metrics(self, name: str) -> dict:
    path = self.directory / "runs" / name / "metrics.json"
    return json.loads(path.read_text())

  def saved_input(self, name: str, step: int) -> dict:
    steps = self.directory / "runs" / name / "checkpoints" / str(step)
    return json.loads((steps / "input" / "input.json").read_text())


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
  return _Corpora(tmp_path_factory.mktemp("train_mix"))


@pytest.mark.slow
def test_a_mix_in_one_line_takes_the_place_of_a_configs_own(corpora):
  notes, stdlib = corpora.path("notes"), corpora.path("stdlib")
  status, log = corpora.run(
    "line",
    "configs/pretrain_mix.py:runlocal",
    f"--dataset_mix={notes}:0.75 more={stdlib}:0.25",
    # Four batches: the config's own first stage and more.
    "--config.train.num_steps=4",
  )
  assert status == 0, log[-3000:]
  assert "config.data.dataset_mix: takes the place of mix.stages." in log
  assert f"dataset_mix: notes = {notes}, weight 0.75\n" in log
  assert f"dataset_mix: more = {stdlib}, weight 0.25\n" in log
  by_source = corpora.metrics("line")["by_source"]
  shares = {n: own["intended_share"] for n, own in by_source.items()}
  assert shares == {"notes": 0.75, "more": 0.25}
  assert corpora.saved_input("line", 4)["dataset_mix"] == [
    {"alias": "notes", "path": notes, "weight": "0.75"},
    {"alias": "more", "path": stdlib, "weight": "0.25"},
  ]


def test_another_alias_where_sources_differ_is_one_line(corpora):
  status, log = corpora.run(
    "differ",
    "configs/splice_in_mix.py:runlocal",
    f"--dataset_mix={corpora.path('notes')}:1",
  )
  assert status == 1
  (line,) = [own for own in log.splitlines() if own.startswith("error: ")]
  assert "must name declared sources where their rows or shuffle differ" in line
  assert "(packages, stdlib), got notes." in line


@pytest.mark.slow
def test_a_running_job_gets_another_stage_and_a_new_source(corpora):
  def run(name, arg, steps):
    return corpora.run(
      name, f"{corpora.config}:{arg}", f"--config.train.num_steps={steps}"
    )

  status, log = run("job", "1", 4)
  assert status == 0, log[-3000:]
  assert "notes" not in corpora.metrics("job")["by_source"]
  status, log = run("job", "past", 8)
  assert status == 1
  assert "mix.stages.2: state has '(absent)', config has packages 3, st" in log
  assert "1 difference (fields" in log
  status, log = run("job", "2", 8)
  assert status == 0, log[-3000:]
  assert "resumed at step 4\n" in log
  status, log = run("whole", "2", 8)
  assert status == 0, log[-3000:]
  # Batch for batch the job that had both stages from the start.
  assert [line["step"] for line in corpora.hashes("job")] == [*range(8)]
  assert corpora.hashes("job") == corpora.hashes("whole")
  assert corpora.metrics("job")["by_source"]["notes"]["rows"] > 0
