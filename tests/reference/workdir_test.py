# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints are looked through, older ones taken on request, none mixed."""

import json
import pathlib
import shutil
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from chomp_data import errors
from chomp_data.loading import checkpoint
from chomp_data.loading import state as state_lib
from chomp_data.loading import watching
from chomp_data.reference import checkpoint_sums
from chomp_data.reference import workdir
from tests.golden import corpora


class Input:
  """What `InputSave` asks of an iterator."""

  def __init__(self, step):
    self.step = step

  def begin_save(self):
    return lambda: state_lib.encode(self.step, {"seed": 1}, {})


def model_of(step):
  weights = np.arange(300, dtype=np.float32).reshape(20, 15) + step
  return {"w": jnp.asarray(weights), "b": {"c": jnp.full(7, step)}}


def save(kept, step):
  kept.save(
    step,
    model_of(step),
    input=checkpoint.InputSave(Input(step)),
    run=ocp.args.JsonSave({"step": step}),
  )
  kept.finish()


def restored(kept, step):
  like = jax.tree.map(ocp.utils.to_shape_dtype_struct, model_of(0))
  args = ocp.args.StandardRestore(like)
  return kept.manager.restore(step, args=ocp.args.Composite(model=args))[
    "model"
  ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """A work directory of checkpoints 10, 20 and 30."""
  path = tmp_path_factory.mktemp("whole")
  kept = workdir.Workdir(str(path), None)
  for step in (10, 20, 30):
    save(kept, step)
  kept.close()
  return path


@pytest.fixture
def path(whole, tmp_path):
  return shutil.copytree(whole, tmp_path / "run")


def choose(path, **options):
  kept = workdir.Workdir(str(path), None)
  try:
    return kept.choose(**options)
  finally:
    kept.close()


def files_of(step):
  return sorted(own for own in step.rglob("*") if own.is_file())


def flip(file, offset):
  data = bytearray(file.read_bytes())
  data[offset // 8] ^= 1 << offset % 8
  file.write_bytes(data)


def test_the_newest_checkpoint_is_taken_or_the_one_that_is_asked_for(path):
  assert choose(path) == 30
  assert choose(path, step=10) == 10
  assert choose(path, fall_back=True) == 30
  assert choose(path.with_name("none")) is None
  with pytest.raises(
    errors.StateError,
    match=r"`--restore_step` must .*, got 15\. There are steps 10, 20, 30\.",
  ):
    choose(path, step=15)
  with pytest.raises(errors.StateError, match=r"got 0\. There is no check"):
    choose(path.with_name("none"), step=0)


@pytest.mark.parametrize(
  ("gone", "got"),
  [
    ("model", "no model"),
    ("input", "no input"),
    ("run", "no run"),
    ("input/input.json", "no file input/input.json"),
    ("model/_METADATA", "no file model/_METADATA"),
    ("model/manifest.ocdbt", "no file model/manifest.ocdbt"),
    ("sums", "no file sums/sums.json"),
    ("_CHECKPOINT_METADATA", "no _CHECKPOINT_METADATA that can be read"),
  ],
)
def test_what_is_missing_is_told_with_what_to_do(path, gone, got):
  place = path / "checkpoints" / "30" / gone
  shutil.rmtree(place) if place.is_dir() else place.unlink()
  with pytest.raises(errors.StateError) as caught:
    choose(path)
  assert (
    f"the checkpoint at {path}/checkpoints/30 must be whole, got {got}"
    in (str(caught.value))
  )
  assert str(caught.value).endswith(
    " --fall_back goes on from the newest whole one before, --restore_step=20"
    " goes on from another (there are steps 10, 20)."
  )
  assert choose(path, step=20) == 20
  assert choose(path, fall_back=True) == 20


def test_what_is_skipped_is_said_and_why(path, caplog):
  for step, name in ((30, "model"), (20, "input")):
    shutil.rmtree(path / "checkpoints" / str(step) / name)
  with caplog.at_level("WARNING", "absl"):
    assert choose(path, fall_back=True) == 10
  assert [own.getMessage() for own in caplog.records] == [
    f"skipped the checkpoint at {path}/checkpoints/30: it has no model",
    f"skipped the checkpoint at {path}/checkpoints/20: it has no input",
    "fell back to the checkpoint of step 10, from 30: what came after it is"
    " trained again",
  ]
  shutil.rmtree(path / "checkpoints" / "10" / "run")
  with pytest.raises(errors.StateError, match=r"got none of steps 10, 20, 30"):
    choose(path, fall_back=True)
  for step in (20, 30):
    shutil.rmtree(path / "checkpoints" / str(step))
  with pytest.raises(errors.StateError, match=r"There is no other: bring a"):
    choose(path)


def test_no_bit_that_flips_comes_through(path):
  """80 bits over all files of a checkpoint, and a byte cut off of each."""
  files = files_of(path / "checkpoints" / "30")
  sizes = np.asarray([own.stat().st_size for own in files])
  kept = workdir.Workdir(str(path), None)
  loud = 0
  for number in corpora.below(1, 80, int(sizes.sum()) * 8):
    which = int(np.searchsorted(np.cumsum(sizes) * 8, number, "right"))
    file = files[which]
    offset = int(number - (np.cumsum(sizes)[which] - sizes[which]) * 8)
    before = file.read_bytes()
    flip(file, offset)
    try:
      assert kept.choose() == 30
      problem = None
    except errors.StateError as error:
      problem = error
    if problem is None:
      # What Orbax says of times, and of who wrote it, decides nothing.
      assert file.name in ("_CHECKPOINT_METADATA", "commit_success.txt")
      jax.tree.map(
        np.testing.assert_array_equal, restored(kept, 30), model_of(30)
      )
    loud += problem is not None
    file.write_bytes(before)
  assert loud > 60
  assert kept.choose() == 30
  for file in files:
    if file.parent.parent.name == "30" and file.parent.name != "sums":
      before = file.read_bytes()
      file.write_bytes(before[:-1])
      with pytest.raises(errors.StateError, match="bytes in"):
        kept.choose()
      file.write_bytes(before)
  kept.close()


def test_an_input_of_another_step_is_refused_though_it_is_whole(path):
  """Of a checkpoint whose items are of two others, sums included."""
  steps = path / "checkpoints"
  shutil.rmtree(steps / "30")
  shutil.copytree(steps / "20", steps / "30")
  with pytest.raises(errors.StateError, match="at step 30, got step 20"):
    choose(path)


def test_a_checkpoint_without_checksums_is_trusted_as_found(path, caplog):
  """As earlier versions have saved it."""
  step = path / "checkpoints" / "30"
  shutil.rmtree(step / "sums")
  metadata = json.loads((step / "_CHECKPOINT_METADATA").read_text())
  del metadata["item_handlers"]["sums"]
  (step / "_CHECKPOINT_METADATA").write_text(json.dumps(metadata))
  with caplog.at_level("WARNING", "absl"):
    assert choose(path) == 30
  assert "checkpoints/30 has no checksums" in caplog.text
  (step / "input" / "input.json").write_text("{}")
  with pytest.raises(errors.StateError, match="must be whole, got input state"):
    choose(path)


def test_later_checkpoints_are_set_aside_as_the_first_one_is_saved(
  path, caplog
):
  kept = workdir.Workdir(str(path), None)
  assert kept.choose(10) == 10
  assert kept.manager.all_steps() == [10, 20, 30]
  with caplog.at_level("WARNING", "absl"):
    # Orbax alone would save nothing here, and say nothing.
    save(kept, 15)
  assert "checkpoints of steps 20, 30 are of the run as it was" in caplog.text
  assert f"set aside as {path}/set_aside/1" in caplog.text
  save(kept, 20)
  kept.close()
  assert choose(path) == 20
  kept = workdir.Workdir(str(path), 2)
  assert kept.choose(15) == 15
  save(kept, 17)
  save(kept, 18)
  assert kept.manager.all_steps() == [17, 18]
  kept.close()
  found = {
    own.parent.relative_to(path).as_posix()
    for own in path.glob("set_aside/*/*/_CHECKPOINT_METADATA")
  }
  assert found == {f"set_aside/{own}" for own in ("1/20", "1/30", "2/20")}
  place = path / "set_aside" / "1" / "30"
  assert checkpoint_sums.problem(place, workdir.ITEMS) is None


def test_a_run_that_went_back_and_saved_nothing_left_all_in_place(path):
  kept = workdir.Workdir(str(path), None)
  kept.choose(10)
  kept.close()
  assert choose(path) == 30
  assert not (path / "set_aside").exists()


def test_sums_that_are_not_the_last_item_are_refused(tmp_path):
  """They would be of files that are not yet as they stay."""
  handler = checkpoint_sums.SumsHandler()
  step = pathlib.Path(tmp_path, "30")
  for name in ("sums", "train.orbax-checkpoint-tmp"):
    (step / name).mkdir(parents=True)
  with pytest.raises(RuntimeError, match="unfinished train"):
    handler.finalize(ocp.path.step.epath.Path(step / "sums"))


class Unanswered:
  """A coordination service that process 0 has told nothing."""

  def blocking_key_value_get(self, key, timeout_ms):
    time.sleep(min(timeout_ms / 1_000, 60))
    raise TimeoutError(key)


def test_a_first_process_that_died_is_told_soon(monkeypatch):
  cause = "process 0 died, or lost its network."
  watch = types.SimpleNamespace(cause_of=lambda process: cause)
  monkeypatch.setattr(watching, "client", Unanswered)
  monkeypatch.setattr(watching, "this_process", lambda: watch)
  monkeypatch.setattr(jax, "process_index", lambda: 1)
  began = time.monotonic()
  with pytest.raises(errors.InputError, match="process 0 died"):
    workdir.from_first_process(dict)
  assert time.monotonic() - began < 30


def test_a_first_process_that_lives_is_waited_for(monkeypatch):
  asked = []

  def get(key, timeout_ms):
    asked.append(key)
    if len(asked) < 3:
      raise TimeoutError(key)
    return '{"step": 7}'

  client = types.SimpleNamespace(blocking_key_value_get=get)
  watch = types.SimpleNamespace(cause_of=lambda process: None)
  monkeypatch.setattr(watching, "client", lambda: client)
  monkeypatch.setattr(watching, "this_process", lambda: watch)
  monkeypatch.setattr(jax, "process_index", lambda: 1)
  monkeypatch.setattr(workdir, "ASK_INTERVAL_S", 0.01)
  assert workdir.from_first_process(dict) == {"step": 7}
  monkeypatch.setattr(workdir, "LONGEST_WAIT_S", 0.1)
  asked.clear()
  client.blocking_key_value_get = lambda *_: get("never", asked.clear())
  with pytest.raises(errors.InputError, match=r"for 0\.1 s"):
    workdir.from_first_process(dict)
