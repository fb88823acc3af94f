"""One Orbax CheckpointManager for model and input; Grain's own handler too."""

import grain
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from chomp_data import pipeline
from chomp_data.loading import checkpoint
from chomp_data.loading import state as state_lib
from chomp_data.testing import batches as testing_batches


def rest(iterator):
  return [testing_batches.batch_sha256(batch) for batch in iterator]


def test_model_and_input_share_one_manager(data, tmp_path):
  model = {"w": jnp.arange(4.0)}
  with pipeline.make_iterator(data) as it:
    for _ in range(5):
      next(it)
    with ocp.CheckpointManager(tmp_path / "c") as manager:
      manager.save(
        5,
        args=ocp.args.Composite(
          model=ocp.args.StandardSave(model),
          input=checkpoint.InputSave(it),
        ),
      )
      # Later batches must not leak into a save that is still under way.
      wanted = rest(it)
      manager.wait_until_finished()
  with (
    pipeline.make_iterator({**data, "worker_count": 2}) as it,
    ocp.CheckpointManager(tmp_path / "c") as manager,
  ):
    restored = manager.restore(
      5,
      args=ocp.args.Composite(
        model=ocp.args.StandardRestore(
          jax.tree.map(ocp.utils.to_shape_dtype_struct, model)
        ),
        input=checkpoint.InputRestore(it),
      ),
    )
    np.testing.assert_array_equal(restored.model["w"], model["w"])
    assert it.step == 5
    assert rest(it) == wanted


def test_a_checkpoint_of_another_config_is_refused(data, tmp_path):
  with ocp.CheckpointManager(tmp_path / "c") as manager:
    manager.save(
      0,
      args=ocp.args.Composite(
        input=checkpoint.InputSave(pipeline.make_iterator(data))
      ),
    )
    manager.wait_until_finished()
    other = pipeline.make_iterator({**data, "seed": 4})
    with pytest.raises(
      state_lib.StateError, match=r"seed: state has 3, config has 4"
    ):
      manager.restore(
        0,
        args=ocp.args.Composite(input=checkpoint.InputRestore(other)),
      )


def test_an_altered_checkpoint_file_is_refused(data, tmp_path):
  with ocp.CheckpointManager(tmp_path / "c") as manager:
    manager.save(
      0,
      args=ocp.args.Composite(
        input=checkpoint.InputSave(pipeline.make_iterator(data))
      ),
    )
    manager.wait_until_finished()
    path = tmp_path / "c" / "0" / "input" / "input.json"
    path.write_text(path.read_text().replace('"step": 0', '"step": 1'))
    with pytest.raises(state_lib.StateError, match="digest"):
      manager.restore(
        0,
        args=ocp.args.Composite(
          input=checkpoint.InputRestore(pipeline.make_iterator(data))
        ),
      )


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("worker_count", [0, 2])
def test_stock_grain_checkpoints_work(data, tmp_path, ours, worker_count):
  """With our iterator, and with the plain `grain.DataLoader`'s own."""

  def iterator():
    changed = {**data, "worker_count": worker_count}
    if ours:
      return pipeline.make_iterator(changed)
    return iter(pipeline.build(changed).data_loader())

  with ocp.CheckpointManager(tmp_path / "c") as manager:
    it = iterator()
    for _ in range(7):
      next(it)
    manager.save(
      7,
      args=ocp.args.Composite(input=grain.checkpoint.CheckpointSave(it)),
    )
    wanted = rest(it)
    manager.wait_until_finished()
    it = iterator()
    manager.restore(
      7,
      args=ocp.args.Composite(input=grain.checkpoint.CheckpointRestore(it)),
    )
    assert rest(it) == wanted
  assert len(wanted) == 19
