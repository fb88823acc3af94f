"""A training binary of your own, in 50 lines: batches in, losses out.

    python examples/own_trainer.py --config=configs/splice_multi.py:runlocal

On a TPU pod run the same file on every host, with the first line of `main`
uncommented: `jax.devices()` is then the whole pod, and each host reads only
the rows that its own devices hold. Nothing else changes.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

import chomp_data
from chomp_data import cli

_CONFIG = cli.define_config("configs/splice_multi.py:runlocal")


@jax.jit
def train_step(weights, batch):
  """One step of a bigram model: logits[i] = weights[token i]."""

  def loss(weights):
    logits = jax.nn.log_softmax(weights)[batch["tokens"][:, :-1]]
    target = batch["tokens"][:, 1:, None]
    nll = -jnp.take_along_axis(logits, target, axis=2)[..., 0]
    mask = batch["loss_mask"][:, :-1]
    return (nll * mask).sum() / jnp.maximum(mask.sum(), 1)

  value, gradient = jax.value_and_grad(loss)(weights)
  return weights - 40 * gradient, value


def main(_):
  # jax.distributed.initialize()
  mesh = jax.sharding.Mesh(jax.devices(), ("data",))
  sharding = NamedSharding(mesh, PartitionSpec("data"))
  pipe = chomp_data.build(cli.config(_CONFIG).data)
  weights = jnp.zeros((pipe.vocab_size, pipe.vocab_size))
  with chomp_data.make_iterator(pipe, sharding) as batches:
    for _, batch in zip(range(20), batches, strict=False):
      weights, loss = train_step(weights, batch)
      print(f"step {batches.step}: loss {loss:.3f}")


if __name__ == "__main__":
  cli.run(main)
