# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Supervised fine-tuning in one file: a model learns the answers of chats.

    python examples/sft.py --write_chats=data/chats.jsonl
    chomp-prepare --input=data/chats.jsonl --messages_key=messages \\
      --tokenizer=byte --output=data/chats
    chomp-inspect --config=configs/sft.py --rows=2
    python examples/sft.py --config=configs/sft.py

The first command writes toy chats: which letter comes after another. Now and
then the assistant says that it does not know, with "weight": 0: the model sees
it and is not trained to say it. The weights of a pretrained model go where
`Model` is made.
"""

import json
import pathlib
import random

from absl import app
from absl import flags
from flax import nnx
import jax.numpy as jnp
import numpy as np
import optax

import chomp_data
from chomp_data import cli
from chomp_data.prepare import tokenizers

_CONFIG = cli.define_config("configs/sft.py")
_WRITE_CHATS = flags.DEFINE_string(
  "write_chats", None, "Where to write toy chats, instead of training."
)
_STEPS = flags.DEFINE_integer("steps", None, "Steps, or those of the config.")

LETTERS = "abcdefghijklmnopqrstuvwxyz"
UNSURE = "No idea."


def question(letter):
  return f"What comes after {letter}?"


def write_chats(path, count=2_000):
  """Writes chats of one to three questions as JSON lines."""
  chance = random.Random(0)
  with open(path, "w") as file:
    for number in range(count):
      messages = []
      for _ in range(chance.randint(1, 3)):
        i = chance.randrange(len(LETTERS) - 1)
        answer = {"role": "assistant", "content": f"{LETTERS[i + 1]}."}
        if chance.random() < 0.2:
          answer = {"role": "assistant", "content": UNSURE, "weight": 0}
        asked = {"role": "user", "content": question(LETTERS[i])}
        messages += [asked, answer]
      chat = {"id": f"chat-{number}", "messages": messages}
      file.write(json.dumps(chat) + "\n")


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
  """A small decoder; documents of a row do not see each other."""

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


def loss_of(model, batch):
  """Returns the mean loss of what is trained on, by weight."""
  tokens = batch["tokens"]
  logits = model(tokens, batch["segment_ids"], batch["positions"])
  last = batch["next_token"][:, None]  # of `lookahead`
  targets = jnp.concatenate([tokens[:, 1:], last], axis=1)
  nll = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
  # There where a source has weights, of messages or documents.
  weight = batch.get("loss_weight", batch["loss_mask"].astype(nll.dtype))
  return (nll * weight).sum() / jnp.maximum(weight.sum(), 1e-6)


@nnx.jit
def train_step(model, optimizer, batch):
  loss, gradients = nnx.value_and_grad(loss_of)(model, batch)
  optimizer.update(model, gradients)
  return loss


def answer(model, tokenizer, text, seq_len):
  """Returns what the model says after a question, up to its end."""
  prompt = f"user:\n{text}\n\nassistant:\n"
  ids = tokenizer.encode_batch([prompt]).tokens.tolist()
  said = []
  call = nnx.jit(type(model).__call__)
  while len(said) < 10 and len(ids) + len(said) < seq_len:
    row = np.zeros((1, seq_len), np.int32)
    row[0, : len(ids) + len(said)] = [*ids, *said]
    columns = np.arange(seq_len, dtype=np.int32)[None]
    logits = call(model, row, np.ones_like(row), columns)
    token = int(logits[0, len(ids) + len(said) - 1].argmax())
    if token == tokenizer.info.eos_id:
      break
    said.append(token)
  # The end of an answer is an EOS, or a blank line where more turns follow.
  text = tokenizer.decode(np.asarray(said, np.int64))
  return text.partition("\n\n")[0]


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  if _WRITE_CHATS.value:
    path = pathlib.Path(_WRITE_CHATS.value)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_chats(path)
    print(f"{path}: 2,000 chats")
    return
  config = cli.config(_CONFIG)
  pipe = chomp_data.build(config.data)
  model = Model(pipe.vocab_size, pipe.seq_len, nnx.Rngs(0))
  optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
  steps = _STEPS.value or config.train.num_steps
  with chomp_data.make_iterator(pipe) as batches:
    for _, batch in zip(range(steps), batches, strict=False):
      loss = train_step(model, optimizer, batch)
      if batches.step % 20 == 0 or batches.step == steps:
        share = float(batch["loss_mask"].mean())
        print(f"step {batches.step}: loss {loss:.3f}, {share:.0%} trained on")
  tokenizer = tokenizers.load_tokenizer(pipe.sources["chats"].store)
  for letter in "bkx":
    said = answer(model, tokenizer, question(letter), pipe.seq_len)
    print(f"{question(letter)} {said}")


if __name__ == "__main__":
  cli.run(main)
