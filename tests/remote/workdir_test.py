# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A work directory in a bucket: a checkpoint is there whole or not at all."""

import functools
import itertools
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
import pytest

from chomp_data import errors
from chomp_data.audit import job
from chomp_data.loading import saved_states
from chomp_data.loading import state as state_lib
from chomp_data.reference import mirror
from chomp_data.reference import workdir
from chomp_data.storage import opening
from chomp_data.storage import requests
from chomp_data.testing import stores as testing_stores
from tests import forks
from tests import in_process
from tests.reference import workdir_test as local
from tests.tools import verify_run_test

ROOT = pathlib.Path(__file__).parents[2]


root = verify_run_test.root


@pytest.fixture
def verified_run(root):
  """What trains to a step in a work directory, and the flags to verify it."""
  train = functools.partial(verify_run_test.train, root)
  return train, [f"--config={root}/run.py"]


@pytest.fixture
def small_blocks(monkeypatch):
  monkeypatch.setattr(mirror, "BLOCK_BYTES", 10)


def content(step):
  """Files of a step: empty ones, of one block, of several, and below."""
  return {
    "_METADATA": b"%d" % step,
    "model/d/long": b"%d" % step * 25,
    "model/d/even": b"0123456789" * 2,
    "empty": b"",
  }


def made(directory, step):
  for name, data in content(step).items():
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(data)
  return directory


def fetched(kept, step, directory):
  kept.fetch(step, directory)
  return {
    file.relative_to(directory).as_posix(): file.read_bytes()
    for file in directory.rglob("*")
    if file.is_file()
  }


def steps_at(url):
  return sorted(
    {int(name.split("/")[0]) for name in opening.open_storage(url).names()}
  )


@pytest.mark.usefixtures("small_blocks")
def test_what_is_sent_comes_back_and_old_steps_go(bucket, tmp_path):
  url = f"{bucket.root}/checkpoints"
  kept = mirror.Mirror(url, keep=2)
  assert kept.steps() == []
  for step in (8, 9, 10, 11):
    kept.send(step, made(tmp_path / f"{step}", step))
    assert kept.steps()[-1] == step
    found = fetched(mirror.Mirror(url, 2), step, tmp_path / f"{step}-back")
    assert found == content(step)
  assert steps_at(url) == [10, 11]
  assert fetched(kept, 10, tmp_path / "before") == content(10)


def test_a_job_in_a_bucket_is_as_far_as_its_newest_whole_checkpoint(
  s3_bucket, tmp_path
):
  assert job.read(s3_bucket.root) is None
  kept = mirror.Mirror(f"{s3_bucket.root}/checkpoints", keep=2)
  for step in (3, 20):
    directory = tmp_path / str(step)
    (directory / "input").mkdir(parents=True)
    (directory / "input" / "input.json").write_bytes(
      state_lib.encode(step, {"seed": 1}, {})
    )
    kept.send(step, directory)
    found = job.read(s3_bucket.root)
    assert found == job.JobState(step, None, {"seed": 1}, saved_step=step)


def test_a_run_in_a_bucket_is_verified_unless_its_inputs_were_swapped(
  s3_bucket, verified_run, tmp_path
):
  train, flags = verified_run
  train(tmp_path / "job", 20)
  for name, steps in (("kept", (10, 20)), ("swapped", (20, 10))):
    url = f"{s3_bucket.root}/{name}"
    for step, of in zip((10, 20), steps, strict=True):
      directory = tmp_path / name / str(step)
      shutil.copytree(tmp_path / "job" / str(step), directory)
      shutil.rmtree(directory / "input")
      shutil.copytree(tmp_path / "job" / str(of) / "input", directory / "input")
      mirror.Mirror(f"{url}/checkpoints", None).send(step, directory)
    done = in_process.run_tool("verify_run", *flags, f"--checkpoint={url}")
    if name == "kept":
      assert (done.returncode, done.stderr) == (0, "")
    else:
      assert done.returncode == 2
      assert "saved in checkpoint 10, in s3://" in done.stderr


@pytest.mark.usefixtures("small_blocks")
def test_what_fails_for_a_while_is_sent_and_fetched_again(
  bucket, tmp_path, monkeypatch
):
  monkeypatch.setattr(requests, "RETRY_DELAYS_S", (0.01,) * 9)
  kept = mirror.Mirror(f"{bucket.root}/checkpoints", None)
  bucket.fault = lambda request: None if request.number % 3 else 503
  kept.send(1, made(tmp_path / "1", 1))
  assert kept.steps() == [1]
  assert fetched(kept, 1, tmp_path / "back") == content(1)


def test_of_two_runs_the_second_loses_and_the_first_stays(bucket, tmp_path):
  url = f"{bucket.root}/checkpoints"
  mirror.Mirror(url, 1).send(5, made(tmp_path / "a", 5))
  with pytest.raises(errors.StoreError, match=f"{url}/5/.*another run writes"):
    mirror.Mirror(url, 1).send(5, made(tmp_path / "b", 6))
  kept = mirror.Mirror(url, 1)
  assert fetched(kept, 5, tmp_path / "back") == content(5)


def test_a_step_that_lost_or_changed_an_object_is_an_error(bucket, tmp_path):
  url = f"{bucket.root}/checkpoints"
  kept = mirror.Mirror(url, None)
  kept.send(5, made(tmp_path / "5", 5))
  place = opening.open_storage(url)
  (name,) = (own for own in place.names() if own.endswith("_METADATA"))
  place.put(name, b"6")
  with pytest.raises(errors.StoreError, match=f"{url}/5 must .*{name}"):
    kept.fetch(5, tmp_path / "changed")
  place.delete([name])
  with pytest.raises(errors.StoreError, match=f"{url}/5 must .*no object"):
    kept.fetch(5, tmp_path / "lost")


def test_checkpoints_that_orbax_wrote_to_the_bucket_are_not_passed_over(
  bucket,
):
  url = f"{bucket.root}/checkpoints"
  opening.open_storage(url).put("100/commit_success.txt", b"done")
  with pytest.raises(errors.StoreError, match=f"{url} must .*by itself"):
    mirror.Mirror(url, None).steps()


def test_checkpoints_in_a_bucket_are_looked_through_and_set_aside(
  s3_bucket, caplog
):
  url = f"{s3_bucket.root}/run"
  kept = workdir.Workdir(url, None)
  for step in (10, 20, 30):
    local.save(kept, step)
  kept.close()
  place = opening.open_storage(url)
  (own,) = (
    own
    for own in place.names()
    if re.fullmatch(r"checkpoints/30/\w+/model/_METADATA", own)
  )
  data = bytearray(place.get(own))
  data[9] ^= 4
  place.put(own, bytes(data))
  with pytest.raises(
    errors.StateError,
    match=rf"{url}/checkpoints/30 must be whole, got .*other bytes.*"
    r"--fall_back goes .*--restore_step=20 .*\(there are steps 10, 20\)",
  ):
    local.choose(url)
  with pytest.raises(errors.StateError, match=r"must be a step of .*, got 25"):
    local.choose(url, step=25)
  kept = workdir.Workdir(url, None)
  with caplog.at_level("WARNING", "absl"):
    assert kept.choose(fall_back=True) == 20
  assert f"skipped the checkpoint at {url}/checkpoints/30" in caplog.text
  assert local.restored(kept, 20)["b"]["c"][0] == 20
  local.save(kept, 25)
  assert f"set aside as {url}/checkpoints/30/set_aside.json" in caplog.text
  kept.close()
  assert local.choose(url) == 25
  before = place.names()
  assert "checkpoints/30/set_aside.json" in before
  kept = workdir.Workdir(url, None)
  kept.choose()
  local.save(kept, 30)
  kept.close()
  assert local.choose(url) == 30
  assert "checkpoints/30/set_aside.json" not in place.names()


def test_a_bucket_whose_first_checkpoint_was_cut_short_begins_anew(
  s3_bucket,
):
  url = f"{s3_bucket.root}/run"
  kept = workdir.Workdir(url, None)
  local.save(kept, 10)
  kept.close()
  place = opening.open_storage(url)
  ends = ("/commit_success.txt", "/_CHECKPOINT_METADATA")
  assert any(own.endswith(ends) for own in place.names())
  place.delete(["checkpoints/10/complete.json"])
  assert local.choose(url) is None


def assert_state_at(*urls, step):
  for url in urls:
    saved_states.state_in_bucket.cache_clear()
    record = saved_states.find(url)
    assert record is not None
    assert record["step"] == step


def test_the_state_of_one_checkpoint_is_read_at_its_url(s3_bucket):
  url = f"{s3_bucket.root}/run/checkpoints/12"
  place = opening.open_storage(url)
  place.put("a/input/input.json", state_lib.encode(12, {}, {}))
  assert saved_states.find(url) is None  # It is not whole.
  place.put("complete.json", b"{}")
  assert_state_at(url, f"{url}/a/input", f"{s3_bucket.root}/run", step=12)
  # Of another checkpoint.
  record = state_lib.with_fields(
    state_lib.encode(13, {}, {}), {saved_states.SAVED_IN: 13}
  )
  place.put("a/input/input.json", record)
  place.put(f"a/{saved_states.METADATA}", b"{}")
  for where in (url, f"{s3_bucket.root}/run"):
    saved_states.state_in_bucket.cache_clear()
    with pytest.raises(errors.StateError, match="saved in checkpoint 13"):
      saved_states.find(where)


def test_files_below_an_item_are_no_states_of_a_checkpoint(s3_bucket):
  url = f"{s3_bucket.root}/run/checkpoints/12"
  place = opening.open_storage(url)
  place.put("complete.json", b"{}")
  place.put("a/assets/data/input.json", b"of another program")
  for where in (url, f"{s3_bucket.root}/run"):
    assert saved_states.find(where) is None
  place.put("a/input/input.json", state_lib.encode(12, {}, {}))
  place.put("a/input/data/input.json", b"of another program")
  assert_state_at(url, f"{url}/a/input", f"{s3_bucket.root}/run", step=12)


def test_other_files_are_sent_as_they_change_and_go_as_they_go(
  bucket, tmp_path
):
  url = f"{bucket.root}/run"
  here, there = tmp_path / "here", tmp_path / "there"
  (here / "checkpoints").mkdir(parents=True)
  (here / "checkpoints" / "1").write_text("apart")
  (here / "events").write_text("1")
  files = mirror.Files(url, here, "checkpoints")
  files.send()
  (here / "curves").write_text("a point\n")
  bucket.clear()
  files.send()
  assert {own.name.split("/")[-1] for own in bucket.requests} == {"curves"}
  (here / "events").unlink()
  files.send()
  there.mkdir()
  mirror.Files(url, there, "checkpoints").fetch(["curves", "none"])
  assert (there / "curves").read_text() == "a point\n"
  assert opening.open_storage(url).names() == ["curves"]


def send_until(url, step, directory, environment, nth):
  """Sends a step, and kills its process before a request."""
  os.environ.update(environment)
  count = itertools.count()
  call = requests.Retries.call

  def dying(self, *args):
    if next(count) == nth:
      os.kill(os.getpid(), signal.SIGKILL)
    return call(self, *args)

  requests.Retries.call = dying
  mirror.BLOCK_BYTES = 10
  mirror.MAX_TRANSFERS = 2
  mirror.Mirror(url, keep=1).send(step, directory)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.usefixtures("small_blocks")
def test_a_run_killed_at_any_request_leaves_whole_checkpoints(bucket, tmp_path):
  env = {
    name: value
    for name, value in os.environ.items()
    if name.startswith(("AWS_", "STORAGE_", "GOOGLE_"))
  }
  for step in (1, 2, 3):
    made(tmp_path / f"{step}", step)
  newest = []
  for nth in itertools.count():
    url = f"{bucket.root}/{nth}"
    kept = mirror.Mirror(url, keep=1)
    kept.send(1, tmp_path / "1")
    status = forks.call(send_until, url, 2, tmp_path / "2", env, nth)
    if status == 0:
      break
    assert status == -signal.SIGKILL
    newest.append(kept.steps()[-1])
    found = fetched(kept, newest[-1], tmp_path / f"back{nth}")
    assert found == content(newest[-1])
    # Whoever goes on leaves nothing of the one that was killed.
    if newest[-1] == 1:
      kept.send(2, tmp_path / "2")
    kept.send(3, tmp_path / "3")
    assert steps_at(url) == [3]
    assert fetched(kept, 3, tmp_path / f"end{nth}") == content(3)
  assert len(newest) > 10
  assert newest == sorted(newest)
  assert set(newest) == {1, 2}


_CONFIG = """
import ml_collections


def get_config():
  return ml_collections.ConfigDict({
    "data": {
      "seq_len": 16,
      "global_batch_size": 4,
      "seed": 5,
      "sources": {"text": {
        "store": STORE,
        "rows": {"kind": "windows"},
        "shuffle": {"kind": "full"},
      }},
    },
    "model": {"d_model": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 16},
    "train": {"num_steps": 60, "span_losses": True},
    "checkpoint": {"every_steps": 10, "keep": 2},
  })
"""


@pytest.fixture
def config(tmp_path):
  rng = np.random.default_rng(0)
  store = tmp_path / "store"
  documents = [rng.integers(3, 60, size=n) for n in (900, 700)]
  testing_stores.make_store(store, documents, vocab_size=64)
  path = tmp_path / "config.py"
  path.write_text(_CONFIG.replace("STORE", repr(str(store))))
  return path


def train(config, workdir, hashes, *flags):
  done = in_process.run_tool(
    "train",
    f"--config={config}",
    f"--workdir={workdir}",
    f"--batch_hashes={hashes}",
    *flags,
  )
  return done


def start(config, workdir, hashes, *flags):
  flags = f"--config={config}", f"--workdir={workdir}", *flags
  return subprocess.Popen(
    [sys.executable, "tools/train.py", *flags, f"--batch_hashes={hashes}"],
    cwd=ROOT,
    env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def lines(path):
  text = path.read_text() if path.exists() else ""
  found = text[: text.rfind("\n") + 1].splitlines()
  return [json.loads(line) for line in found]


def same_batches(path, expected):
  """Returns how many batches were taken; asserts that they are the run's."""
  wanted = {line["step"]: line["sha256"] for line in lines(expected)}
  found = lines(path)
  assert {line["step"] for line in found} <= set(wanted)
  assert all(wanted[line["step"]] == line["sha256"] for line in found)
  return len(found)


@pytest.mark.slow
def test_a_run_in_a_bucket_goes_on_on_another_machine(
  bucket, config, tmp_path, staging
):
  url = f"{bucket.root}/run"
  whole = tmp_path / "whole.jsonl"
  assert train(config, tmp_path / "run", whole).returncode == 0
  bucket.fault = lambda request: 503 if request.number % 41 == 3 else None
  hashes = tmp_path / "hashes.jsonl"
  short = train(config, url, hashes, "--config.train.num_steps=25")
  assert short.returncode == 0, short.stderr
  assert steps_at(f"{url}/checkpoints") == [20, 25]
  # Nothing is left there: the next machine has nothing either.
  assert not list(staging.rglob("*"))
  done = train(config, url, hashes)
  assert done.returncode == 0, done.stderr
  assert "resumed at step 25" in done.stderr
  assert same_batches(hashes, whole) == 60
  assert steps_at(f"{url}/checkpoints") == [50, 60]
  record = json.loads(opening.open_storage(url).get("metrics.json"))
  assert record["step"] == 60
  own = json.loads((tmp_path / "run" / "metrics.json").read_text())
  assert record["evaluation"] == own["evaluation"]
  curves = opening.open_storage(url).get("curves.jsonl").splitlines()
  steps = [json.loads(line)["step"] for line in curves]
  assert steps == sorted(steps)
  assert {25, 60} <= set(steps)
  saved = [0, 10, 20, 25, 30, 40, 50, 60]
  assert opening.open_storage(f"{url}/span_losses").names() == [
    f"{first:012d}-{last:012d}.npz" for first, last in itertools.pairwise(saved)
  ]
  told = [
    in_process.run_tool(
      "losses",
      f"--config={config}",
      f"--workdir={place}",
      "--step=26:28",
      "--format=json",
      check=True,
    ).stdout
    for place in (tmp_path / "run", url)
  ]
  here, there = ([json.loads(own) for own in t.splitlines()] for t in told)
  assert len(here) == len(there) > 0
  for one, other in zip(here, there, strict=True):
    # Sums over other files differ in their last digits.
    assert other["id"] == one["id"]
    assert other["excess"] == pytest.approx(one["excess"], rel=1e-6)


@pytest.mark.slow
def test_a_bucket_that_refuses_checkpoints_ends_the_run_with_its_name(
  s3_bucket, config, tmp_path
):
  url = f"{s3_bucket.root}/run"
  s3_bucket.fault = lambda request: (
    403 if request.method in ("PUT", "POST") else None
  )
  done = train(config, url, tmp_path / "hashes.jsonl")
  assert done.returncode == 1
  assert f"error: {url}/" in done.stderr
  assert "credentials that may write" in done.stderr
  assert len(lines(tmp_path / "hashes.jsonl")) == 10


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_with_the_batch_it_would_have_read(
  bucket, config, tmp_path, staging
):
  url = f"{bucket.root}/run"
  whole, hashes = tmp_path / "whole.jsonl", tmp_path / "hashes.jsonl"
  long = ("--config.train.num_steps=2000",)
  bucket.delay_s = lambda request: 0.01
  saved = [0]
  for _ in range(4):
    process = start(config, url, hashes, *long)
    try:
      while True:
        assert process.poll() is None, process.communicate()[1]
        names = opening.open_storage(url).names()
        own = [int(n.split("/")[1]) for n in names if n.endswith("e.json")]
        if max(own, default=0) >= saved[-1] + 30:
          break
        time.sleep(0.01)
    finally:
      process.kill()
      process.communicate()
    saved.append(max(own))
    # Another machine.
    shutil.rmtree(staging)
  bucket.clear()
  taken = lines(hashes)[-1]["step"] + 1
  steps = f"--config.train.num_steps={taken + 20}"
  done = train(config, url, hashes, steps)
  assert done.returncode == 0, done.stderr
  assert train(config, tmp_path / "run", whole, steps).returncode == 0
  assert same_batches(hashes, whole) >= taken + 20
  assert {line["step"] for line in lines(hashes)} == set(range(taken + 20))


@pytest.mark.slow
def test_two_processes_share_no_disk_and_one_goes_on(
  s3_bucket, config, tmp_path
):
  url = f"{s3_bucket.root}/run"
  hashes, whole = tmp_path / "hashes.jsonl", tmp_path / "whole.jsonl"
  assert train(config, tmp_path / "run", whole).returncode == 0
  for steps in (20, 40):
    with socket.socket() as listener:
      listener.bind(("127.0.0.1", 0))
      port = listener.getsockname()[1]
    processes = [
      start(
        config,
        url,
        hashes,
        f"--config.train.num_steps={steps}",
        "--config.train.parameter_sharding=fsdp",
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
    errs = "\n".join(err for _, err in outputs)
    assert [own.returncode for own in processes] == [0, 0], errs
    assert steps_at(f"{url}/checkpoints") == [steps - 10, steps]
  assert all("resumed at step 20" in err for _, err in outputs)
  done = train(config, url, hashes)
  assert done.returncode == 0, done.stderr
  assert "resumed at step 40" in done.stderr
  assert same_batches(hashes, whole) == 60


def test_a_url_of_another_scheme_is_refused(config, tmp_path):
  done = train(config, "http://host/run", tmp_path / "hashes.jsonl")
  assert done.returncode == 1
  assert (
    "gs://BUCKET/PATH or az://CONTAINER/PATH, got 'http://host" in done.stderr
  )
