# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of pairs, their loss and its gradient are those of a slow reference.

The reference was written from the definition by somebody who had not seen the
package (`pairs_reference`). The loss is that of `examples/dpo.py`, in float64.
"""

import functools
import json

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import chomp_data
from chomp_data.testing import stores as testing_stores
from tests import in_process
from tests.pack import pairs_reference

example = in_process.imported("examples.dpo")

BOS, EOS, VOCAB = 2, 1, 61
BETA = 0.3


def drawn(seed, count):
  """Returns pairs of (prompt, chosen, rejected) tokens, some of them long."""
  rng = np.random.default_rng(seed)

  def tokens(most, least=1):
    return rng.integers(3, VOCAB, rng.integers(least, most)).tolist()

  pairs = [(tokens(12, 0), tokens(14), tokens(14)) for _ in range(count)]
  pairs[1::9] = [(tokens(30, 12), *two) for _, *two in pairs[1::9]]
  # One that no cut of its prompt makes fit.
  pairs[5] = tokens(3), tokens(40, 30), tokens(40, 30)
  # Those that would fit without any prompt, with BOS, and with EOS too.
  pairs[6] = tokens(4, 3), tokens(24, 23), tokens(24, 23)
  pairs[7] = tokens(4, 3), tokens(23, 22), tokens(23, 22)
  return pairs


def write(path, pairs):
  halves = [
    (prompt, answer) for prompt, *answers in pairs for answer in answers
  ]
  return testing_stores.make_store(
    path,
    [[*prompt, *answer] for prompt, answer in halves],
    levels=(0.0, 1.0),
    label_levels=[
      [0] * len(prompt) + [1] * len(answer) for prompt, answer in halves
    ],
    vocab_size=VOCAB,
    bos_id=BOS,
    pairs=True,
    chunk=64,
  )


def build(store, run=None, **rows):
  return chomp_data.build(
    {
      "seed": 4,
      "seq_len": 48,
      "global_batch_size": 5,
      "epochs": 2,
      "remainder": "pad",
      **(run or {}),
      "sources": {
        "text": {
          "store": store.path,
          "rows": {"kind": "bin", "packing_buffer_docs": 32, **rows},
          "shuffle": {"kind": "block"},
        }
      },
    }
  )


def packing_of(spans):
  """Returns the numbers of the pairs of each row, in order."""
  rows = [[] for _ in range(spans.num_rows)]
  for row, document in zip(
    spans.row.tolist(), spans.document.tolist(), strict=True
  ):
    if document % 2 == 0:
      rows[row].append(document // 2)
  return rows


@pytest.mark.parametrize(
  ("seed", "rows"),
  enumerate(
    [
      {},
      {"add_eos": True, "pair_slots": 2},
      {"add_bos": True, "long_pairs": "truncate_prompt"},
      {
        "add_bos": True,
        "add_eos": True,
        "long_pairs": "truncate_prompt",
        "shuffle_documents": "full",
      },
      {"shuffle_documents": "block", "reset_positions": False},
    ]
  ),
)
def test_batches_are_those_of_the_reference(tmp_path, rows, seed):
  pairs = drawn(seed, 120)
  store = write(tmp_path / "store", pairs)
  removed = [7, 30, 31, 120] if seed else []
  file = tmp_path / "removed.jsonl"
  file.write_text(
    "".join(
      f"{json.dumps({'source': 'text', 'document': document})}\n"
      for document in removed
    )
  )
  pipe = build(store, {"tombstones": ((0, str(file)),)}, **rows)
  added = {
    "bos_id": BOS if rows.get("add_bos") else None,
    "eos_id": EOS if rows.get("add_eos") else None,
  }
  fit = pairs_reference.fit_pairs(
    pairs,
    48,
    long_pairs=rows.get("long_pairs", "drop"),
    **added,
  )
  report = pipe.sources["text"].report()
  assert report.dropped == len(fit["dropped"]) > 0
  assert report.lost == sum(2 * lost for lost in fit["cut"]) + sum(
    sum(pairs_reference.half_lengths(pairs[k], **added)) for k in fit["dropped"]
  )
  slots = rows.get("pair_slots", 64)
  epoch = []
  for step in range(pipe.num_steps):
    spans, batch = pipe.plan(step), pipe.batch(step)
    packing = packing_of(spans)
    epoch += packing
    wanted = pairs_reference.pack_rows(
      fit["pairs"],
      packing,
      48,
      slots,
      reset_positions=rows.get("reset_positions", True),
      removed_documents=removed,
      **added,
    )
    for name in ("tokens", "segment_ids", "loss_mask", "pair_mask"):
      np.testing.assert_array_equal(batch[name], wanted[name], name)
    real = wanted["segment_ids"] > 0
    np.testing.assert_array_equal(
      batch["positions"][real], wanted["positions"][real]
    )
  source = pipe.sources["text"]
  for number in range(2):
    first = source.epochs.start(number)
    rows_of_epoch = np.arange(first, source.epochs.start(number + 1))
    pairs_reference.check_packing(
      fit["pairs"],
      packing_of(source.plan(rows_of_epoch)),
      48,
      slots,
      **added,
    )


@pytest.fixture
def x64():
  jax.config.update("jax_enable_x64", True)
  yield
  jax.config.update("jax_enable_x64", False)


def attention(query, key, value, *, mask, **_):
  """Attention whose softmax is float64, where JAX's own is float32."""
  scores = jnp.einsum("...qhd,...khd->...hqk", query, key)
  scores = scores / np.sqrt(query.shape[-1])
  weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))
  return jnp.einsum("...hqk,...khd->...qhd", weights, value)


def float64(seed):
  """Returns a model that computes in float64, in its two parts.

  Its parameters are drawn here: JAX would compile a program for each shape.
  """
  model = nnx.eval_shape(
    lambda: example.Model(VOCAB, 48, nnx.Rngs(0), width=16, layers=1)
  )
  for embedding in (model.tokens, model.positions):
    embedding.dtype = jnp.float64
  for block in model.blocks:
    block.attention.attention_fn = attention
  graph, state = nnx.split(model)
  rng = np.random.default_rng(seed)
  return graph, jax.tree.map(lambda x: rng.normal(0, 0.3, x.shape), state)


def padded(batch_pairs):
  """Returns a batch of padded halves, with the fields that a loss takes."""
  pad = pairs_reference.pad_pairs(batch_pairs)
  count, _, length = pad["tokens"].shape
  flat = {name: value.reshape(2 * count, length) for name, value in pad.items()}
  return flat


def padded_log_probs(logits, batch):
  """Returns [N, 2], sums over the answers of padded halves."""
  return example.token_log_probs(logits, batch).sum(axis=1).reshape(-1, 2)


@pytest.mark.slow
def test_loss_and_gradient_are_those_of_padded_pairs(tmp_path, x64):
  """Of a transformer, over all batches of an epoch, in float64."""
  pairs = drawn(5, 30)
  pipe = build(
    write(tmp_path / "store", pairs), {"epochs": 1}, long_pairs="drop"
  )
  (graph, state), (_, reference_state) = map(float64, range(2))
  batches = [pipe.batch(step) for step in range(pipe.num_steps)]
  held = [
    [k for row in packing_of(pipe.plan(step)) for k in row]
    for step in range(pipe.num_steps)
  ]
  most = max(map(len, held))
  # Padded alike, to one shape: what is compiled once serves all batches.
  every = padded(pairs)

  @jax.jit
  def packed(state, reference_state, batch):
    def loss_of(state):
      after, before = (
        example.answer_log_probs(example.logits_of(one, batch), batch)
        for one in (nnx.merge(graph, state), nnx.merge(graph, reference_state))
      )
      return example.dpo_loss(after, before, batch["pair_mask"], BETA)[0]

    return jax.value_and_grad(loss_of)(state)

  @jax.jit
  def unpacked(state, reference_state, wide, weights):
    def loss_of(state):
      after, before = (
        padded_log_probs(example.logits_of(one, wide), wide)
        for one in (nnx.merge(graph, state), nnx.merge(graph, reference_state))
      )
      margins = BETA * ((after - before) @ jnp.asarray([1.0, -1.0]))
      return -(jax.nn.log_sigmoid(margins) * weights).sum() / weights.sum()

    return jax.value_and_grad(loss_of)(state)

  states = state, reference_state
  compared = 0
  for batch, numbers in zip(batches, held, strict=True):
    # A batch with fewer pairs repeats its first one, without weight.
    pick = [*numbers, *numbers[:1] * (most - len(numbers))]
    halves = np.stack([2 * np.asarray(pick), 2 * np.asarray(pick) + 1], 1)
    wide = {name: value[halves.ravel()] for name, value in every.items()}
    weights = (np.arange(most) < len(numbers)).astype(np.float64)
    one, gradient = packed(*states, batch)
    other, wanted = unpacked(*states, wide, weights)
    assert one.dtype == jnp.float64
    assert abs(one - other) < 1e-12
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-12),
      gradient,
      wanted,
    )
    assert max(np.abs(x).max() for x in jax.tree.leaves(wanted)) > 1e-4
    compared += len(numbers)
  assert compared > 20


def test_the_loss_of_the_example_is_that_of_the_reference(tmp_path, x64):
  pairs = drawn(6, 60)
  pipe = build(write(tmp_path / "store", pairs), {"epochs": 1})
  rng = np.random.default_rng(0)
  for step in range(2):
    batch = pipe.batch(step)
    logits = rng.normal(size=(*batch["tokens"].shape, VOCAB))
    reference = rng.normal(size=(*batch["pair_mask"].shape, 2))

    def loss_of(logits, batch=batch, reference=reference):
      after = example.answer_log_probs(logits, batch)
      return example.dpo_loss(after, reference, batch["pair_mask"], BETA)[0]

    log_probs = pairs_reference.token_log_probs(logits, batch["tokens"])
    wanted = pairs_reference.dpo_packed(
      log_probs,
      reference,
      batch["loss_mask"],
      batch["segment_ids"],
      batch["pair_mask"],
      BETA,
    )
    loss, gradient = jax.value_and_grad(loss_of)(jnp.asarray(logits))
    assert abs(loss - wanted["loss"]) < 1e-12
    np.testing.assert_allclose(
      gradient,
      pairs_reference.logits_gradient(
        logits, batch["tokens"], wanted["gradient"]
      ),
      rtol=0,
      atol=1e-12,
    )
