# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A training binary with checkpoints: a bigram model on any config.

    python examples/own_trainer.py --config=configs/splice_multi.py \
      --workdir=/tmp/bigram

Stopped and started again, it continues from its last checkpoint. On a TPU pod
start it on every host, with the first line of `main` uncommented: each host
then reads only the rows of its own devices.
"""

import os

from absl import app
from absl import flags
import jax
import jax.numpy as jnp
from ml_collections import config_flags
import orbax.checkpoint as ocp

import chomp_data

_CONFIG = config_flags.DEFINE_config_file("config")
_WORKDIR = flags.DEFINE_string("workdir", None, "Checkpoints.", required=True)
_STEPS = flags.DEFINE_integer("steps", 100, "Batches to train on.")


@jax.jit
def train_step(model, batch):
  """One step of a bigram model: the logits after token i are weights[i]."""

  def mean_loss(model):
    logits = jax.nn.log_softmax(model["weights"])[batch["tokens"][:, :-1]]
    target = batch["tokens"][:, 1:, None]
    loss = -jnp.take_along_axis(logits, target, axis=2)[..., 0]
    mask = batch["loss_mask"][:, :-1]
    return (loss * mask).sum() / jnp.maximum(mask.sum(), 1)

  loss, gradient = jax.value_and_grad(mean_loss)(model)
  return jax.tree.map(lambda w, g: w - 40 * g, model, gradient), loss


def main(_):
  # jax.distributed.initialize()
  mesh = jax.sharding.Mesh(jax.devices(), ("data",))
  sharding = jax.sharding.NamedSharding(mesh, jax.P("data"))
  pipe = chomp_data.build(_CONFIG.value.data)
  model = {"weights": jnp.zeros((pipe.vocab_size, pipe.vocab_size))}
  model = jax.device_put(model, jax.sharding.NamedSharding(mesh, jax.P()))
  manager = ocp.CheckpointManager(os.path.abspath(_WORKDIR.value))
  with chomp_data.make_iterator(pipe, sharding) as batches:
    if manager.latest_step() is not None:
      restore = ocp.args.Composite(
        model=ocp.args.StandardRestore(model),
        input=chomp_data.InputRestore(batches),
      )
      model = manager.restore(manager.latest_step(), args=restore)["model"]
    while batches.step < _STEPS.value:
      step = batches.step  # of the next batch
      model, loss = train_step(model, next(batches))
      print(f"step {step}: loss {loss:.3f}")
      if batches.step % 50 == 0 or batches.step == _STEPS.value:
        save = ocp.args.Composite(
          model=ocp.args.StandardSave(model),
          input=chomp_data.InputSave(batches),
        )
        manager.save(batches.step, args=save)
    manager.wait_until_finished()


if __name__ == "__main__":
  flags.mark_flag_as_required("config")
  app.run(main)
