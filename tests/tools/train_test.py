# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""tools/train.py: a run that is stopped and resumed is the run itself."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import orbax.checkpoint as ocp
import pytest

from chomp_data.testing import stores as testing_stores
from tests import in_process

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_NUM_STEPS = 160

_CONFIG = """
import ml_collections


def get_config():
  return ml_collections.ConfigDict({
    "data": {
      "seq_len": 32,
      "global_batch_size": 4,
      "seed": 5,
      "document_id": True,
      "sources": {
        "text": {
          "store": STORE,
          "rows": {
            "kind": "multi_splice",
            "num_docs": 3,
            "content_length": 16,
            "offset_jitter": 2,
          },
          "shuffle": {"kind": "full"},
        }
      },
    },
    "model": {"d_model": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 16},
    "optimizer": {"warmup_steps": 4},
    "train": {"num_steps": STEPS, "log_every_steps": 20},
    "checkpoint": {"every_steps": 40, "keep": 2},
  })
"""


class _Corpus:
  """A config file, and runs of it: in this process, or in one to be killed."""

  def __init__(self, directory: pathlib.Path):
    self.directory = directory
    rng = np.random.default_rng(0)
    store = directory / "store"
    testing_stores.make_store(
      store,
      [rng.integers(3, 60, size=n) for n in (120, 90, 150, 80)],
      ids=["a.txt", "b.txt", "c.txt", "d.txt"],
      vocab_size=64,
    )
    self._config = directory / "config.py"
    text = _CONFIG.replace("STORE", repr(str(store)))
    self._config.write_text(text.replace("STEPS", str(_NUM_STEPS)))

  def verified(self, name: str) -> list[str]:
    """Returns the flags that verify a run."""
    workdir = self.directory / name
    return [f"--config={self._config}", f"--checkpoint={workdir}"]

  def _command(self, name: str, *arguments: str) -> list[str]:
    return [
      "tools/train.py",
      f"--config={self._config}",
      f"--workdir={self.directory / name}",
      f"--batch_hashes={self.hashes_path(name)}",
      *arguments,
    ]

  def start(self, name: str, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
      [sys.executable, *self._command(name, *arguments)],
      cwd=_ROOT,
      env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(_ROOT)},
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )

  def run(self, name: str, *arguments: str) -> tuple[int, str, str]:
    """Returns exit status, standard output and standard error."""
    done = in_process.run_tool(*self._command(name, *arguments))
    return done.returncode, done.stdout, done.stderr

  def follow(self, name: str) -> list[str]:
    """Returns the command that shows the step that a run is at."""
    return [
      "tools/inspect_batches.py",
      f"--config={self._config}",
      f"--follow={self.directory / name}",
    ]

  def hashes_path(self, name: str) -> pathlib.Path:
    return self.directory / f"{name}.jsonl"

  def hashes(self, name: str) -> list[dict]:
    path = self.hashes_path(name)
    if not path.exists():
      return []
    # A run that is still going may be in the middle of its last line.
    text = path.read_text()
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [json.loads(line) for line in lines]

  def saved_steps(self, name: str) -> list[int]:
    """Returns the steps of whole checkpoints, ascending."""
    saved = (self.directory / name / "checkpoints").glob("[0-9]*")
    return sorted(int(path.name) for path in saved if path.name.isdigit())

  def state(self, name: str) -> list[np.ndarray]:
    """Returns every array of the model and optimizer at the last step."""
    path = self.directory / name / "checkpoints" / str(_NUM_STEPS) / "model"
    with ocp.StandardCheckpointer() as checkpointer:
      return _leaves(checkpointer.restore(path))


def _leaves(tree) -> list[np.ndarray]:
  if isinstance(tree, dict):
    return [leaf for key in sorted(tree) for leaf in _leaves(tree[key])]
  if isinstance(tree, (list, tuple)):
    return [leaf for item in tree for leaf in _leaves(item)]
  return [] if tree is None else [np.asarray(tree)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  return _Corpus(tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def finished(corpus):
  """A run that was never interrupted: its streams."""
  status, out, err = corpus.run("whole")
  assert status == 0, err
  return out, err


def test_a_run_reports_for_people_and_for_programs(corpus, finished):
  out, err = finished
  assert "[text] multi_splice: num_docs=3" in err
  assert re.search(r"step 100/160: loss \d\.\d+, .* waiting for data", err)
  assert "loss by document up to step 100" in err
  assert "With one document in each row, 100.0% of the positions" in out
  assert re.search(r"text +[\d,]+ +100.00% +100.00% .* 3 +50.0%\n", out)
  report = (corpus.directory / "whole/report.txt").read_text()
  assert "coverage of text: 3 documents" in report
  assert "loss by document, latest steps\n" in report
  picture = (corpus.directory / "whole/summary.png").read_bytes()
  assert picture.startswith(b"\x89PNG")
  metrics = json.loads((corpus.directory / "whole/metrics.json").read_text())
  assert metrics["step"] == _NUM_STEPS
  assert metrics["loss"] > 0
  assert {d["document"] for d in metrics["loss_by_document"]} == {0, 1, 2}
  assert metrics["evaluation"]["text"]["validation grid"]["perplexity"] > 1
  entropy = metrics["coverage_entropy"]["text"]
  assert f"entropy of shares {entropy:.3f} of at most 1.099 nats" in report


def test_a_finished_job_is_followed_to_its_end(corpus, finished):
  del finished
  arguments = corpus.follow("whole")
  ran = in_process.run_tool(*arguments)
  assert ran.returncode == 0
  assert ran.stderr == f"job finished at step {_NUM_STEPS}\n"
  assert f"step {_NUM_STEPS} row 0 of 4: text" in ran.stdout
  ran = in_process.run_tool(*arguments, "--config.data.seed=6")
  assert ran.returncode == 1
  assert "the config must be that of the job's checkpoint of" in ran.stderr
  assert "seed: state has 5, config has 6" in ran.stderr


def test_a_finished_run_run_again_only_evaluates(corpus, finished):
  before = json.loads((corpus.directory / "whole/metrics.json").read_text())
  status, out, err = corpus.run("whole")
  assert status == 0, err
  assert f"finished before, at step {_NUM_STEPS} (config.train" in err
  assert f"Trained {_NUM_STEPS} steps." in out
  assert [line["step"] for line in corpus.hashes("whole")] == [
    *range(_NUM_STEPS)
  ]
  after = json.loads((corpus.directory / "whole/metrics.json").read_text())
  assert after == before


@pytest.mark.parametrize(
  ("number", "status"),
  [
    pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
    pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
    (signal.SIGKILL, -9),
  ],
  ids=["SIGTERM", "SIGINT", "SIGKILL"],
)
def test_a_run_stopped_at_any_time_resumes_as_if_it_had_not_been(
  corpus, finished, number, status
):
  name = number.name
  process = corpus.start(name)
  try:
    while len(corpus.hashes(name)) < 45 or not corpus.saved_steps(name):
      assert process.poll() is None, process.communicate()[1]
      time.sleep(0.002)
    process.send_signal(number)
    _, err = process.communicate(timeout=100)
  finally:
    process.kill()
  stopped_at = corpus.hashes(name)[-1]["step"] + 1
  assert stopped_at < _NUM_STEPS
  assert process.returncode == status, err
  saved = corpus.saved_steps(name)[-1]
  if number != signal.SIGKILL:
    assert saved == stopped_at
    assert f"stopped by {name} at step {stopped_at}, saved" in err
  resumed_status, _, err = corpus.run(name)
  assert resumed_status == 0, err
  assert f"resumed at step {saved}\n" in err
  expected = {line["step"]: line["sha256"] for line in corpus.hashes("whole")}
  got = corpus.hashes(name)
  assert {line["step"] for line in got} == set(expected)
  assert all(line["sha256"] == expected[line["step"]] for line in got)
  whole, state = corpus.state("whole"), corpus.state(name)
  assert len(whole) == len(state) > 10
  for expected_leaf, leaf in zip(whole, state, strict=True):
    np.testing.assert_array_equal(leaf, expected_leaf)


def test_a_checkpoint_of_another_model_or_input_is_refused(corpus, finished):
  status, _, err = corpus.run("whole", "--config.model.d_model=32")
  assert status == 1
  assert "`config.model.d_model` must not change: state has 16, config" in err
  status, _, err = corpus.run("whole", "--config.data.seed=6")
  assert status == 1
  assert "seed: state has 5, config has 6" in err
  assert "Traceback" not in err


def test_a_damaged_checkpoint_is_refused_and_the_one_before_goes_on(
  corpus, finished
):
  run = shutil.copytree(corpus.directory / "whole", corpus.directory / "back")
  newest = run / "checkpoints" / "160"
  (manifest,) = newest.glob("model/manifest.ocdbt")
  data = bytearray(manifest.read_bytes())
  data[20] ^= 1
  manifest.write_bytes(data)
  status, _, err = corpus.run("back")
  assert status == 1
  assert f"the checkpoint at {newest} must be whole, got other bytes in" in err
  assert "--fall_back goes on from the newest whole one before" in err
  assert "(there is step 120)" in err
  # Of an earlier version there are no checksums: then Orbax finds it.
  shutil.rmtree(newest / "sums")
  (newest / "model" / "_METADATA").unlink()
  about = newest / "_CHECKPOINT_METADATA"
  about.write_text(about.read_text().replace('"sums"', '"other"'))
  status, _, err = corpus.run("back")
  assert status == 1
  assert f"{newest} must be whole, got a model that Orbax cannot restore" in err
  assert "Traceback" not in err
  status, _, err = corpus.run("back", "--restore_step=100")
  assert status == 1
  assert "got 100. There are steps 120, 160." in err
  status, _, err = corpus.run("back", "--restore_step=120")
  assert status == 0, err
  assert "resumed at step 120" in err
  assert f"set aside as {run}/set_aside/1" in err
  whole, back = corpus.hashes("whole"), corpus.hashes("back")
  assert back == whole[120:]
  assert corpus.saved_steps("back") == [120, 160]
  for one, other in zip(
    corpus.state("whole"), corpus.state("back"), strict=True
  ):
    np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_two_processes_train_on_the_batches_of_one(corpus):
  short = "--config.train.num_steps=16", "--config.checkpoint.every_steps=8"
  status, _, err = corpus.run("one", *short)
  assert status == 0, err
  with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
  processes = [
    corpus.start(
      "two",
      *short,
      f"--coordinator_address=127.0.0.1:{port}",
      "--num_processes=2",
      f"--process_id={index}",
    )
    for index in range(2)
  ]
  try:
    outputs = [process.communicate(timeout=200) for process in processes]
  finally:
    for process in processes:
      process.kill()
  assert [process.returncode for process in processes] == [0, 0], outputs
  assert len(corpus.hashes("one")) == 16
  assert corpus.hashes("two") == corpus.hashes("one")
  one, two = (
    json.loads((corpus.directory / name / "metrics.json").read_text())
    for name in ("one", "two")
  )
  assert abs(two["loss"] - one["loss"]) < 1e-2
  assert two["certificate"] == one["certificate"]
  assert one["certificate"][0]["last"] == 16
  assert f"plan {one['certificate'][0]['plan'][:12]}" in outputs[0][1]
  for name in ("one", "two"):
    done = in_process.run_tool("verify_run", *corpus.verified(name))
    assert (done.returncode, done.stderr) == (0, "")
    assert "says: steps 0 .. 15, 64 rows." in done.stdout
  reports = ["Trained 16 steps." in out for out, _ in outputs]
  assert reports == [True, False]


def test_a_run_without_a_workdir_is_a_usage_error():
  done = in_process.run_tool("train")
  assert done.returncode == 1
  assert "`--workdir` must be given" in done.stdout + done.stderr
