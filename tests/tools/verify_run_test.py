# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""tools/verify_run.py: what was handed out is the plan, or where it is not."""

import json

import numpy as np
import orbax.checkpoint as ocp
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.audit import verifying
from chomp_data.config import files
from chomp_data.loading import checkpoint
from chomp_data.loading import state
from chomp_data.testing import stores as testing_stores
from tests import in_process

CONFIG = """
import ml_collections
def get_config(arg=None):
  return ml_collections.ConfigDict({
    "data": {
      "seq_len": 16, "global_batch_size": 2, "seed": 5,
      "sources": {"web": {
        "store": STORES, "rows": {"kind": "sequential", "add_eos": False},
        "shuffle": {"kind": "full"},
      }},
    },
  })
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  path = tmp_path_factory.mktemp("verified")
  rng = np.random.default_rng(0)
  texts = [rng.integers(2, 250, n) for n in (20, 70, 33, 5, 12, 40)]
  for name, own in (("a", texts), ("b", texts[::-1])):
    testing_stores.make_store(path / name, own)
  for name, order in (("run", "ab"), ("swapped", "ba")):
    stores = tuple(str(path / own) for own in order)
    text = CONFIG.replace("STORES", repr(stores))
    (path / f"{name}.py").write_text(text)
  return path


def data(root, name="run"):
  return files.load_config(str(root / f"{name}.py")).data


def train(root, workdir, until, **changes):
  """Hands out steps and saves every tenth; goes on where it was."""
  own = {**data(root).to_dict(), **changes}
  options = ocp.CheckpointManagerOptions(max_to_keep=None)
  with (
    iterators.make_iterator(own) as it,
    ocp.CheckpointManager(workdir, options=options) as manager,
  ):
    if manager.latest_step() is not None:
      args = checkpoint.InputRestore(it, allow_changes=True)
      manager.restore(
        manager.latest_step(), args=ocp.args.Composite(input=args)
      )
    while it.step < until:
      next(it)
      if it.step % 10 == 0:
        args = ocp.args.Composite(input=checkpoint.InputSave(it))
        manager.save(it.step, args=args)
    manager.wait_until_finished()


def verify(root, workdir=None, *flags, config="run"):
  """Returns the exit status and the record."""
  if workdir is not None:
    flags = (*flags, f"--checkpoint={workdir}")
  done = in_process.run_tool(
    "verify_run", f"--config={root / config}.py", "--format=json", *flags
  )
  assert done.stdout, done.stderr
  return done.returncode, json.loads(done.stdout)


def line(root, *flags, config="run"):
  """Returns what is printed for people."""
  done = in_process.run_tool(
    "verify_run", f"--config={root / config}.py", *flags
  )
  return done.stdout + done.stderr


def ends(found):
  return [
    (own["saved"]["first"], own["saved"]["last"]) for own in found["stretches"]
  ]


def test_a_run_that_was_resumed_is_the_plan(root, tmp_path):
  for until in (15, 20, 40):
    train(root, tmp_path, until)
  status, found = verify(root, tmp_path)
  assert (status, found["agrees"], found["parted"]) == (0, True, None)
  assert ends(found) == [(0, 10), (10, 20), (20, 30), (30, 40)]
  _, some = verify(root, tmp_path, "--step=10:35")
  assert ends(some) == [(10, 20), (20, 30)]
  _, alone = verify(root, None, "--step=10:20")
  assert alone["plan"] == found["stretches"][1]["planned"]["plan"]
  # One checkpoint tells of all of its run.
  _, one = verify(root, tmp_path / "30")
  assert ends(one) == [(0, 30)]


def test_stores_in_another_order_are_found_out(root, tmp_path):
  train(root, tmp_path, 20)
  status, found = verify(root, tmp_path, config="swapped")
  assert (status, found["agrees"], found["parted"]) == (1, False, [0, 10])
  (field,) = found["fields"]
  assert field.startswith("sources.web.store: state has ")
  told = line(root, f"--checkpoint={tmp_path}", config="swapped")
  assert "they parted between steps 0 and 10; sources.web.store" in told


def test_another_plan_of_the_same_name_is_found_between_checkpoints(
  root, tmp_path
):
  train(root, tmp_path, 20)
  train(root, tmp_path, 50, seed=6)
  other = "--config.data.seed=6"
  status, found = verify(root, tmp_path, other)
  assert (status, found["parted"], found["fields"]) == (1, [0, 10], [])
  agree = [own["agrees"] for own in found["stretches"]]
  assert agree == [False, False, True, True, True]
  told = line(root, other, f"--checkpoint={tmp_path}")
  assert "between steps 0 and 10 (the input was changed at step 20)" in told
  # As of code that changes an order, and no fingerprint.
  digest = state.digest(pipeline.build(data(root)).fingerprint)[:16]
  for path in tmp_path.glob("*/input/input.json"):
    record = state.decode(path.read_bytes())
    record["fingerprint"]["seed"] = 5
    plans = [int(own["plan"], 16) for own in record["certificate"]]
    record["certificate"] = [
      {
        "first": 0,
        "last": record["step"],
        "input": digest,
        "rows": 2 * record["step"],
        "plan": f"{sum(plans) % 2**128:032x}",
      }
    ]
    record["digest"] = state.digest(record)
    path.write_text(json.dumps(record))
  status, found = verify(root, tmp_path)
  assert (status, found["parted"], found["fields"]) == (1, [20, 30], [])


def test_allowed_changes_begin_segments_and_agree(root, tmp_path):
  train(root, tmp_path, 20)
  train(root, tmp_path, 40, global_batch_size=4)
  status, found = verify(root, tmp_path, "--config.data.global_batch_size=4")
  assert (status, found["agrees"]) == (0, True)
  rows = [own["saved"]["rows"] for own in found["stretches"]]
  assert rows == [20, 20, 40, 40]
  assert len({own["saved"]["input"] for own in found["stretches"]}) == 2


def test_steps_before_there_were_certificates_are_told(root, tmp_path):
  train(root, tmp_path, 20)
  for step in (10, 20):
    path = tmp_path / str(step) / "input" / "input.json"
    record = state.decode(path.read_bytes())
    del record["certificate"]
    record["digest"] = state.digest(record)
    path.write_text(json.dumps(record))
  told = line(root, f"--checkpoint={tmp_path}")
  assert "must have a certificate, got none" in told
  train(root, tmp_path, 30, certificate="tokens")
  status, found = verify(root, tmp_path)
  assert (status, found["agrees"]) == (2, True)
  assert found["unknown"] == ["steps 0 .. 19 are not certified"]
  (last,) = found["stretches"]
  assert last["saved"]["tokens"] == last["planned"]["tokens"]
  # The others can be verified alone.
  status, found = verify(root, tmp_path, "--step=20:30")
  assert (status, found["unknown"]) == (0, [])


def test_steps_between_no_checkpoints_are_no_proof(root, tmp_path):
  train(root, tmp_path / "job", 10)
  done = in_process.run_tool(
    "verify_run",
    f"--config={root}/run.py",
    f"--checkpoint={tmp_path}/job",
    "--step=2:5",
  )
  assert done.returncode == 2
  assert "steps 2 .. 4 must have a stretch between kept" in done.stderr


def test_an_unexpected_error_does_not_read_as_a_difference(
  root, tmp_path, monkeypatch
):
  def fail(*_, **options):
    raise KeyError("a bug")

  train(root, tmp_path, 10)
  monkeypatch.setattr(verifying, "verified", fail)
  done = in_process.run_tool(
    "verify_run", f"--config={root}/run.py", f"--checkpoint={tmp_path}"
  )
  assert done.returncode == 2
  assert "KeyError: 'a bug'" in done.stderr
