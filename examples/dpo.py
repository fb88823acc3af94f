# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Direct preference optimization (DPO) on packed preference pairs.

    python examples/dpo.py --write_pairs=data/preferences.jsonl
    chomp-prepare --input=data/preferences.jsonl \\
      --prompt_key=prompt --chosen_key=chosen --rejected_key=rejected \\
      --tokenizer=byte --output=data/preferences
    python examples/dpo.py --config=configs/preference_pairs.py

The first command writes toy pairs: which letter comes after another, answered
politely (chosen) and curtly (rejected). A small model learns both answers; a
copy of it is the reference, from which DPO moves it towards the chosen ones.
The weights of a pretrained model go where `Model` is made.

What the reference gives each answer is computed once, and stored beside a copy
of the documents as the column `reference`: DPO then needs no second model.

`answer_log_probs` and `dpo_loss` are all that a trainer of its own needs.
"""

import json
import pathlib
import random

from absl import app
from absl import flags
from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import chomp_data
from chomp_data import cli
from chomp_data import stores

_CONFIG = cli.define_config("configs/preference_pairs.py")
_WRITE_PAIRS = flags.DEFINE_string(
  "write_pairs", None, "Where to write toy pairs, instead of training."
)

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def write_pairs(path, count=2_000):
  """Writes pairs of answers to one question as JSON lines."""
  chance = random.Random(0)
  with open(path, "w") as file:
    for number in range(count):
      i = chance.randrange(len(LETTERS) - 1)
      pair = {
        "id": f"pair-{number}",
        "prompt": f"After {LETTERS[i]}?\n",
        "chosen": f"It is {LETTERS[i + 1]}, please.",
        "rejected": f"{LETTERS[i + 1]}!",
      }
      file.write(json.dumps(pair) + "\n")


class Block(nnx.Module):
  def __init__(self, width, rngs):
    self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(2)])
    self.attention = nnx.MultiHeadAttention(4, width, decode=False, rngs=rngs)
    self.wide = nnx.Linear(width, 4 * width, rngs=rngs)
    self.narrow = nnx.Linear(4 * width, width, rngs=rngs)

  def __call__(self, x, mask):
    x = x + self.attention(self.norms[0](x), mask=mask)
    return x + self.narrow(nnx.gelu(self.wide(self.norms[1](x))))


class Model(nnx.Module):
  """A small decoder; segments of a row do not see each other."""

  def __init__(self, vocab_size, seq_len, rngs, width=64, layers=2):
    self.tokens = nnx.Embed(vocab_size, width, rngs=rngs)
    self.positions = nnx.Embed(seq_len, width, rngs=rngs)
    self.blocks = nnx.List([Block(width, rngs) for _ in range(layers)])
    self.head = nnx.Linear(width, vocab_size, rngs=rngs)

  def __call__(self, tokens, segment_ids, positions):
    same = segment_ids[:, :, None] == segment_ids[:, None, :]
    mask = jnp.tril(same)[:, None]
    x = self.tokens(tokens) + self.positions(positions)
    for block in self.blocks:
      x = block(x, mask)
    return self.head(x)


def token_log_probs(logits, batch):
  """Returns [B, S], log p of the next token where it is trained on, else 0."""
  # No answer goes on after its row, so what rolls into the last column is 0.
  targets = jnp.roll(batch["tokens"], -1, axis=1)[..., None]
  log_probs = jnp.take_along_axis(jax.nn.log_softmax(logits), targets, axis=-1)
  return jnp.where(batch["loss_mask"], log_probs[..., 0], 0)


def answer_log_probs(logits, batch):
  """Returns [B, P, 2], log p of the chosen and the rejected answers."""
  slots = batch["pair_mask"].shape[1]

  def sums(values, segment_ids):
    return jax.ops.segment_sum(values, segment_ids, 1 + 2 * slots)

  by_segment = jax.vmap(sums)(
    token_log_probs(logits, batch), batch["segment_ids"]
  )
  return by_segment[:, 1:].reshape(-1, slots, 2)


def dpo_loss(policy, reference, pair_mask, beta):
  """Returns the mean loss over the pairs of a batch, and their margins.

  Args:
    policy: [B, P, 2], `answer_log_probs` of the model.
    reference: [B, P, 2], of the reference.
    pair_mask: bool[B, P].
    beta: How much a difference counts.

  Returns:
    The loss, and [B, P], how far the chosen answer is preferred.
  """
  ratios = policy - reference
  margins = beta * (ratios[..., 0] - ratios[..., 1])
  losses = jnp.where(pair_mask, -jax.nn.log_sigmoid(margins), 0)
  return losses.sum() / jnp.maximum(pair_mask.sum(), 1), margins


def logits_of(model, batch):
  return model(batch["tokens"], batch["segment_ids"], batch["positions"])


@nnx.jit
def reference_step(model, optimizer, batch):
  """Trains on both answers alike, by the token."""

  def loss_of(model):
    log_probs = token_log_probs(logits_of(model, batch), batch)
    return -log_probs.sum() / batch["loss_mask"].sum()

  loss, gradients = nnx.value_and_grad(loss_of)(model)
  optimizer.update(model, gradients)
  return loss


@nnx.jit
def log_probs_of(model, batch):
  return answer_log_probs(logits_of(model, batch), batch)


def reference_of(data, model):
  """Returns float32[documents], what a model gives each answer of a run.

  Answers are those of rows: with the EOS and after the prompt that they have
  there. Pairs that rows leave out have 0.
  """
  # Each row once, and which documents are in it.
  data = data.copy_and_resolve_references()
  data.update(epochs=1, remainder="pad", document_id=True)
  pipe = chomp_data.build(data)
  (source,) = pipe.sources.values()
  values = np.zeros(source.store.num_documents, np.float32)
  for step in range(pipe.num_steps or 0):
    batch = pipe.batch(step)
    of_pairs = np.asarray(log_probs_of(model, batch))
    documents = batch["document_id"].reshape(of_pairs.shape)
    values[documents[documents >= 0]] = of_pairs[documents >= 0]
  return values


def write_with_reference(store, values, path):
  """Copies a store of pairs with `values` as the column `reference`."""
  documents = range(store.num_documents)

  def levels(document):
    first, length = store.bounds(np.asarray([document]))
    _, begin, end, level = store.labels.runs(first, length)
    return np.repeat(level, end - begin)

  info = store.opened.tokenizer
  file = store.opened.tokenizer_file
  return stores.write_store(
    path,
    (stores.read_document(store, document) for document in documents),
    ids=(store.document_ids([document])[0] for document in documents),
    tokenizer_info=info,
    tokenizer_file=None if file is None else file(),
    levels=store.labels.levels.tolist(),
    label_levels=map(levels, documents),
    pairs=True,
    columns={"reference": stores.Column(dtype="float32", per="document")},
    column_values={"reference": values.tolist()},
    overwrite=True,
  )


@nnx.jit
def dpo_step(model, optimizer, batch, beta):
  """Trains on the pairs; returns the loss and how many are preferred."""
  # Two documents a pair: the chosen answer, then the rejected one.
  before = batch["reference"].reshape(*batch["pair_mask"].shape, 2)

  def loss_of(model):
    after = answer_log_probs(logits_of(model, batch), batch)
    return dpo_loss(after, before, batch["pair_mask"], beta)

  (loss, margins), gradients = nnx.value_and_grad(loss_of, has_aux=True)(model)
  optimizer.update(model, gradients)
  return loss, ((margins > 0) & batch["pair_mask"]).sum()


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  if _WRITE_PAIRS.value:
    path = pathlib.Path(_WRITE_PAIRS.value)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_pairs(path)
    print(f"{path}: 2,000 pairs")
    return
  config = cli.config(_CONFIG)
  dpo, num_steps = config.dpo, config.train.num_steps
  pipe = chomp_data.build(config.data)
  model = Model(pipe.vocab_size, pipe.seq_len, nnx.Rngs(0))
  optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
  loss = jnp.nan
  with chomp_data.make_iterator(pipe) as batches:
    for _, batch in zip(range(dpo.reference_steps), batches, strict=False):
      loss = reference_step(model, optimizer, batch)
  print(f"reference: loss {loss:.3f} a token")
  (source,) = pipe.sources.values()
  with_reference = write_with_reference(
    source.store, reference_of(config.data, model), dpo.reference_store
  )
  (section,) = config.data.sources.values()
  section.store = with_reference.path
  config.data.columns = ("reference",)
  optimizer = nnx.Optimizer(model, optax.adam(1e-5), wrt=nnx.Param)
  with chomp_data.make_iterator(config.data) as batches:
    for step, batch in zip(range(1, num_steps + 1), batches, strict=False):
      loss, preferred = dpo_step(model, optimizer, batch, dpo.beta)
      if step % 30 == 1 or step == num_steps:
        num_pairs = int(batch["pair_mask"].sum())
        print(
          f"step {step}: loss {loss:.3f}, {int(preferred)} of"
          f" {num_pairs} chosen answers preferred"
        )


if __name__ == "__main__":
  cli.run(main)
