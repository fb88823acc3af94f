# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""One Orbax CheckpointManager for model and input; Grain's own handler too."""

import json

import grain
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import v1 as ocp_v1
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.loading import checkpoint
from chomp_data.loading import state as state_lib
from chomp_data.testing import batch_hashes
from tests.loading import late


def rest(iterator):
  return [batch_hashes.batch_sha256(batch) for batch in iterator]


def test_training_goes_on_while_what_came_before_a_seek_is_summed(
  data, tmp_path, monkeypatch
):
  may_sum = late.sums(monkeypatch)
  wanted = pipeline.build(data).accounts.record(11)["accounts"]
  with (
    iterators.make_iterator(data, step=10) as it,
    ocp.CheckpointManager(tmp_path / "c") as manager,
  ):
    next(it)
    manager.save(11, args=ocp.args.Composite(input=checkpoint.InputSave(it)))
    next(it)
    may_sum.set()
    manager.wait_until_finished()
  record = json.loads((tmp_path / "c/11/input/input.json").read_text())
  assert record["step"] == record["checkpoint_step"] == 11
  assert record["accounts"] == wanted


def save_two(it, directory, **options):
  """Saves input at steps 2 and 5, as checkpoints 20 and 50."""
  manager = ocp.CheckpointManager(
    directory, options=ocp.CheckpointManagerOptions(**options)
  )
  for last in (2, 5):
    while it.step < last:
      next(it)
    manager.save(
      10 * last, args=ocp.args.Composite(input=checkpoint.InputSave(it))
    )
  manager.wait_until_finished()
  return manager


@pytest.mark.parametrize(
  "options",
  [{}, {"step_prefix": "ckpt"}, {"step_format_fixed_length": 6}],
  ids=["plain", "prefix", "zeros"],
)
def test_an_older_input_in_a_newer_checkpoint_is_refused(
  data, tmp_path, options
):
  def restore(checkpoint_step, **more):
    args = checkpoint.InputRestore(it, **more)
    manager.restore(checkpoint_step, args=ocp.args.Composite(input=args))
    return it.step

  with (
    iterators.make_iterator(data) as it,
    save_two(it, tmp_path / "c", **options) as manager,
  ):
    assert restore(20) == 2
    assert restore(50) == 5
    assert restore(50, step=5) == 5
    with pytest.raises(state_lib.StateError, match="step 50, got step 5"):
      restore(50, step=50)
    older, newer = (
      path / "input" / "input.json"
      for path in sorted(manager.directory.iterdir())
    )
    newer.write_bytes(older.read_bytes())
    with pytest.raises(
      state_lib.StateError, match=r"of step 2, saved in checkpoint 20, in .*50"
    ):
      restore(50)
    assert it.step == 5
    assert restore(50, allow_changes=True) == 2


def test_a_checkpoint_may_lie_in_any_directory(data, tmp_path):
  """Where no step can be told from the name, none is compared."""
  with (
    iterators.make_iterator(data) as it,
    save_two(it, tmp_path / "c") as manager,
  ):
    (manager.directory / "20").rename(tmp_path / "best")
    args = checkpoint.InputRestore(it)
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:
      reader.restore(tmp_path / "best", args=ocp.args.Composite(input=args))
    assert it.step == 2
    # Of a version that did not tell where a state was saved.
    path = manager.directory / "50" / "input" / "input.json"
    record = state_lib.decode(path.read_bytes())
    del record["checkpoint_step"]
    record["digest"] = state_lib.digest(record)
    path.write_text(json.dumps(record))
    manager.restore(50, args=ocp.args.Composite(input=args))
    assert it.step == 5


def test_stock_grain_checkpoints_work(data, tmp_path):
  """With our iterator; with Grain's own: tests/catalogue."""
  with (
    ocp.CheckpointManager(tmp_path / "c") as manager,
    iterators.make_iterator(data) as it,
  ):
    for _ in range(7):
      next(it)
    args = grain.checkpoint.CheckpointSave(it)
    manager.save(7, args=ocp.args.Composite(input=args))
    wanted = rest(it)
    manager.wait_until_finished()
    it.seek(0)
    args = grain.checkpoint.CheckpointRestore(it)
    manager.restore(7, args=ocp.args.Composite(input=args))
    assert rest(it) == wanted
  assert len(wanted) == 19


def test_orbax_v1_saves_and_loads_an_iterator_beside_the_model(data, tmp_path):
  model = {"w": jnp.arange(4.0)}
  with (
    iterators.make_iterator(data) as it,
    ocp_v1.training.Checkpointer(tmp_path / "c") as checkpointer,
  ):
    for _ in range(5):
      next(it)
    saved = checkpointer.save_checkpointables_async(
      4, {"model": model, "iter": it}
    )
    # Later batches must not leak into a save that is still under way.
    wanted = rest(it)
    assert saved.result()
  with (
    iterators.make_iterator({**data, "worker_count": 1}) as it,
    ocp_v1.training.Checkpointer(tmp_path / "c") as checkpointer,
  ):
    restored = checkpointer.load_checkpointables(
      4, {"model": model, "iter": it}
    )
    assert restored["iter"] is it
    np.testing.assert_array_equal(restored["model"]["w"], model["w"])
    assert it.step == 5
    assert rest(it) == wanted


def test_orbax_v1_refuses_the_input_of_another_run_or_checkpoint(
  data, tmp_path
):
  with (
    iterators.make_iterator(data) as it,
    ocp_v1.training.Checkpointer(tmp_path / "c") as checkpointer,
  ):
    for step in (2, 5):
      it.seek(step)
      checkpointer.save_checkpointables(10 * step, {"iter": it})
    other = iterators.make_iterator({**data, "seed": 4})
    with pytest.raises(
      state_lib.StateError, match=r"seed: state has 3, config has 4"
    ):
      checkpointer.load_checkpointables(20, {"iter": other})
    older, newer = (
      path / "iter" / "input.json"
      for path in sorted((tmp_path / "c").iterdir())
    )
    newer.write_bytes(older.read_bytes())
    with pytest.raises(
      state_lib.StateError, match=r"of step 2, saved in checkpoint 20, in .*50"
    ):
      checkpointer.load_checkpointables(50, {"iter": it})
    newer.unlink()
    with pytest.raises(state_lib.StateError, match=r"got no file"):
      checkpointer.load_checkpointables(50, {"iter": it})


def test_an_iterator_that_seeks_counts_as_one_that_was_there(data):
  with iterators.make_iterator(data) as it:
    for _ in range(5):
      next(it)
    wanted = state_lib.decode(it.get_state())
    it.seek(20)
    it.get_state()
    it.seek(5)
    found = state_lib.decode(it.get_state())
    # It certifies what it has handed out, and that is not known any more.
    assert wanted.pop("certificate")[0]["last"] == 5
    assert found.pop("certificate") == []
    assert found == wanted
