"""Trains a small convolutional classifier on pictures of several sizes.

    make prepare-images
    python examples/train_buckets.py --config=configs/resolution_buckets.py \\
      --workdir=runs/pictures

Each batch is of one dataset and one size, so the step is compiled once for
each size, and a mean over pixels lets one model read all of them. A checkpoint
holds model, optimizer and input: run it again, and it goes on.
"""

from collections.abc import Sequence
import pathlib
import sys
from typing import Any

from absl import app
from absl import flags
from flax import nnx
import jax
import jax.numpy as jnp
from ml_collections import config_flags
import numpy as np
import optax
import orbax.checkpoint as ocp
import tqdm

import chomp_data
from chomp_data import cli
from chomp_data import schema
from chomp_data import stores
from chomp_data.loading import checkpoint
from chomp_data.loading import state as state_lib

_CONFIG = config_flags.DEFINE_config_file("config", None, "The experiment.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Where checkpoints go.")


class Classifier(nnx.Module):
  """Strided convolutions, a mean over what is left, and a linear layer."""

  def __init__(self, widths: Sequence[int], num_labels: int, rngs: nnx.Rngs):
    """Initialises parameters.

    Args:
      widths: Channels after each convolution of stride 2.
      num_labels: Classes.
      rngs: Streams of randomness; `params` is used.
    """
    layers = []
    for before, after in zip([3, *widths[:-1]], widths, strict=True):
      layers.append(nnx.Conv(before, after, (3, 3), strides=2, rngs=rngs))
    self.layers = nnx.List(layers)
    self.head = nnx.Linear(widths[-1], num_labels, rngs=rngs)

  def __call__(self, pixels: jax.Array) -> jax.Array:
    """Returns logits float32[B, labels] of pixels uint8[B, H, W, 3]."""
    out = pixels.astype(jnp.float32) / 127.5 - 1
    for layer in self.layers:
      out = nnx.relu(layer(out))
    return self.head(out.mean(axis=(1, 2)))


class Trainer:
  """Steps of one run; the batch axis is sharded over all devices."""

  def __init__(self, model: Any, learning_rate: float):
    """Initialises; `model` is `config.model`."""
    self.mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("data",))
    self.batch_sharding = self._sharding("data")
    self._optimizer = optax.adam(learning_rate)
    self._graph, params = nnx.split(
      Classifier(model.widths, model.num_labels, nnx.Rngs(0))
    )
    # Placed as the step returns it, so that no bucket compiles twice.
    placed = jax.device_put(params, self._sharding())
    self.state = (placed, jax.jit(self._optimizer.init)(placed))
    self.state = jax.device_put(self.state, self._sharding())
    self.step = jax.jit(
      self._step, donate_argnums=0, out_shardings=self._sharding()
    )

  def _sharding(self, *axes: str) -> jax.sharding.NamedSharding:
    spec = jax.sharding.PartitionSpec(*axes)
    return jax.sharding.NamedSharding(self.mesh, spec)

  def _step(self, state, batch):
    params, moments = state

    def loss(params):
      logits = nnx.merge(self._graph, params)(batch["pixels"])
      nll = optax.softmax_cross_entropy_with_integer_labels(
        logits, batch["label"]
      )
      real = batch["dataset_id"] >= 0  # Filler of a last batch is not learnt.
      right = (logits.argmax(axis=1) == batch["label"]) & real
      count = jnp.maximum(real.sum(), 1)
      return jnp.where(real, nll, 0).sum() / count, right.sum() / count

    (value, right), grads = jax.value_and_grad(loss, has_aux=True)(params)
    updates, moments = self._optimizer.update(grads, moments, params)
    params = optax.apply_updates(params, updates)
    return (params, moments), {"loss": value, "right": right}


def train(config: Any, workdir: pathlib.Path) -> None:
  """Takes the steps that are left, and tells how each dataset goes."""
  pipe = chomp_data.build(config.data)
  print(pipe.describe())
  trainer = Trainer(config.model, config.optimizer.learning_rate)
  total = min(config.train.num_steps, pipe.num_steps or sys.maxsize)
  manager = ocp.CheckpointManager(
    workdir.resolve() / "checkpoints",
    options=ocp.CheckpointManagerOptions(max_to_keep=2),
  )
  with chomp_data.make_iterator(pipe, trainer.batch_sharding) as it, manager:
    if manager.latest_step() is not None:
      restored = manager.restore(
        manager.latest_step(),
        args=ocp.args.Composite(
          input=checkpoint.InputRestore(it),
          model=ocp.args.StandardRestore(trainer.state),
        ),
      )
      trainer.state = restored["model"]
      print(f"resumed at step {it.step}")
    sums: dict[str, list[float]] = {}
    for step in tqdm.trange(it.step, total, disable=None):
      trainer.state, metrics = trainer.step(trainer.state, next(it))
      found = jax.device_get(metrics)
      own = sums.setdefault(pipe.bucket_of(step)[0], [0, 0.0, 0.0])
      for i, value in enumerate((1, found["loss"], found["right"])):
        own[i] += float(value)
      if (step + 1) % config.train.log_every_steps == 0 or step + 1 == total:
        for name, (count, loss, right) in sorted(sums.items()):
          print(
            f"step {step + 1}: {name}: {int(count)} batches, loss"
            f" {loss / count:.3f}, {right / count:.1%} right"
          )
        sums.clear()
    if it.step not in manager.all_steps():
      manager.save(
        it.step,
        args=ocp.args.Composite(
          input=checkpoint.InputSave(it),
          model=ocp.args.StandardSave(trainer.state),
        ),
      )
    print(f"histogram: {pipe.accounts.histogram(it.step)}")
    print(f"compiled: {trainer.step._cache_size()} shapes")  # pyright: ignore


def main(argv: Sequence[str]) -> None:
  """Trains."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  if not _WORKDIR.value:
    raise app.UsageError("--config and --workdir must be given.")
  try:
    train(cli.config(_CONFIG), pathlib.Path(_WORKDIR.value))
  except (schema.ConfigError, stores.StoreError, state_lib.StateError) as error:
    sys.exit(f"error: {error}")


if __name__ == "__main__":
  cli.run(main)
