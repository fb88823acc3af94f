# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Distils a teacher whose most probable tokens a store holds as columns.

    python examples/distill.py --workdir=runs/distill

The teacher is a table of next-token probabilities. Its documents, and for each
token the 8 most probable next ones with their probabilities, are written to a
store once; the student, a small flax model, never sees the teacher again. The
last line compares what the student learned with what there was to learn.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import pathlib
from typing import Any

from absl import app
from absl import flags
from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import chomp_data
from chomp_data import stores

_WORKDIR = flags.DEFINE_string("workdir", "runs/distill", "Where the store is.")
_STEPS = flags.DEFINE_integer("steps", 200, "Steps of training.", 1)

VOCAB_SIZE, EOS, PAD = 64, 1, 0
TOP = 8
NUM_DOCUMENTS, SEQ_LEN, BATCH_SIZE = 400, 128, 16

COLUMNS = {
  "teacher_ids": stores.Column("uint16", (TOP,), align="target"),
  "teacher_probs": stores.Column("float16", (TOP,), align="target"),
}


def teacher(seed: int = 0) -> np.ndarray:
  """Returns float64[V, V], the probabilities of what follows each token."""
  rng = np.random.default_rng(seed)
  logits = 2.5 * rng.normal(size=(VOCAB_SIZE, VOCAB_SIZE))
  logits[:, PAD] = -np.inf
  probs = np.exp(logits)
  return probs / probs.sum(axis=1, keepdims=True)


def write_store(path: pathlib.Path, seed: int = 0) -> stores.Store:
  """Writes documents of the teacher and its 8 most probable next tokens."""
  probs = teacher()
  top_ids = np.argsort(-probs, axis=1, kind="stable")[:, :TOP]
  top_probs = np.take_along_axis(probs, top_ids, axis=1)
  rng = np.random.default_rng(seed)
  documents = []
  for length in rng.integers(20, 200, NUM_DOCUMENTS):
    tokens = [int(rng.integers(2, VOCAB_SIZE))]
    while len(tokens) < length and tokens[-1] != EOS:
      tokens.append(int(rng.choice(VOCAB_SIZE, p=probs[tokens[-1]])))
    documents.append(np.asarray(tokens))
  return stores.write_store(
    path,
    documents,
    tokenizer_info=stores.TokenizerInfo(
      kind="custom",
      sha256=hashlib.sha256(b"distill").hexdigest(),
      vocab_size=VOCAB_SIZE,
      pad_id=PAD,
      eos_id=EOS,
    ),
    columns=COLUMNS,
    column_values={
      "teacher_ids": [top_ids[tokens] for tokens in documents],
      "teacher_probs": [top_probs[tokens] for tokens in documents],
    },
    overwrite=True,
  )


def input_config(path: pathlib.Path) -> dict[str, Any]:
  """Returns `config.data`: packed rows with both columns."""
  return {
    "seq_len": SEQ_LEN,
    "global_batch_size": BATCH_SIZE,
    "columns": list(COLUMNS),
    "sources": {
      "text": {
        "store": str(path),
        "rows": {"kind": "bin", "add_eos": False},
        "shuffle": {"kind": "block"},
      }
    },
  }


class Student(nnx.Module):
  """Next-token logits from the current token."""

  def __init__(self, rngs: nnx.Rngs, width: int = 64):
    self.embed = nnx.Embed(VOCAB_SIZE, width, rngs=rngs)
    self.hidden = nnx.Linear(width, width, rngs=rngs)
    self.logits = nnx.Linear(width, VOCAB_SIZE, rngs=rngs)

  def __call__(self, tokens: jax.Array) -> jax.Array:
    return self.logits(nnx.relu(self.hidden(self.embed(tokens))))


def divergence(student: Student, batch: Mapping[str, jax.Array]) -> jax.Array:
  """Returns the mean Kullback-Leibler divergence from the teacher, in nats.

  What the teacher gives to all other tokens is one more outcome. Where there is
  no value, the stored probabilities are the fill, 0, which the mask leaves out.
  """
  probs = batch["teacher_probs"].astype(jnp.float32)
  mask = probs.sum(axis=-1) > 0
  log_probs = jax.nn.log_softmax(student(batch["tokens"]))
  top = jnp.take_along_axis(
    log_probs, batch["teacher_ids"].astype(jnp.int32), axis=-1
  )
  rest = jnp.maximum(1 - probs.sum(axis=-1), 1e-3)
  student_rest = jnp.maximum(1 - jnp.exp(top).sum(axis=-1), 1e-6)
  each = jnp.sum(
    jnp.where(probs > 0, probs * (jnp.log(jnp.maximum(probs, 1e-9)) - top), 0),
    axis=-1,
  ) + rest * (jnp.log(rest) - jnp.log(student_rest))
  return jnp.sum(each * mask) / jnp.sum(mask)


def train(path: pathlib.Path, num_steps: int) -> list[float]:
  """Trains a student; returns its divergence from the teacher by step."""
  student = Student(nnx.Rngs(0))
  optimizer = nnx.Optimizer(student, optax.adam(5e-3), wrt=nnx.Param)

  @nnx.jit
  def step(student, optimizer, batch):
    loss, grads = nnx.value_and_grad(divergence)(student, batch)
    optimizer.update(student, grads)
    return loss

  names = ("tokens", *COLUMNS)
  with chomp_data.make_iterator(input_config(path)) as batches:
    return [
      float(step(student, optimizer, {name: batch[name] for name in names}))
      for _, batch in zip(range(num_steps), batches, strict=False)
    ]


def main(argv: Sequence[str]) -> None:
  """Writes the store, trains, and prints the divergence."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  path = pathlib.Path(_WORKDIR.value, "store")
  store = write_store(path)
  losses = train(path, _STEPS.value)
  print(
    f"{store.num_tokens:,} tokens, {len(losses)} steps: divergence from the"
    f" teacher {losses[0]:.3f} -> {losses[-1]:.3f} nats"
  )


if __name__ == "__main__":
  app.run(main)
