"""A training binary of your own, in 20 lines: batches in, losses out.

    python examples/own_trainer.py --config=configs/splice_multi.py:runlocal

On a TPU pod, run the same file on every host: uncomment the first line of
`main`, and `jax.devices()` is the whole pod. Each host then reads only the
rows that its own devices hold; nothing else changes.
"""

from absl import app
from etils import epath
import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
from ml_collections import config_flags
import numpy as np

import chomp_data

_CONFIG = config_flags.DEFINE_config_file("config")


def main(_):
  # jax.distributed.initialize()
  mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("data",))
  batches = chomp_data.make_iterator(
    _CONFIG.value.data, NamedSharding(mesh, PartitionSpec("data"))
  )
  state = epath.Path("/tmp/own_trainer_input.json")
  if state.exists():
    batches.set_state(state.read_bytes())
  embedding = jax.numpy.zeros((65_536,))  # A unigram model.

  @jax.jit
  def train_step(embedding, batch):
    def loss(embedding):
      logits = jax.nn.log_softmax(embedding)[batch["tokens"][:, 1:]]
      mask = batch["loss_mask"][:, :-1]
      return -(logits * mask).sum() / jax.numpy.maximum(mask.sum(), 1)

    value, gradient = jax.value_and_grad(loss)(embedding)
    return embedding - 100 * gradient, value

  for _ in range(5):
    embedding, value = train_step(embedding, next(batches))
    print(f"step {batches.step}: loss {value:.3f}")
  state.write_bytes(batches.get_state())
  batches.close()


if __name__ == "__main__":
  app.run(main)
