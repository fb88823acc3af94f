# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a document's loss depends on: gradients of a toy attention model.

Each format is read as its trainers read it. The toy has one head of causal
attention and no mask but what the format gives it.
"""

import functools

import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from chomp_data.transforms import formats
from chomp_data.transforms import masks
from tests import laws
from tests.transforms import row_strategies as rows_lib

# Long, and of the reference trainer or other libraries: see `make test-slow`.
pytestmark = pytest.mark.slow

SEQ_LEN, NUM_ROWS, WIDTH = 12, 4, 8
# Formats whose models attend across the documents of a row.
WITHOUT_SEGMENTS = ("chomp", "huggingface")
WITH_SEGMENTS = [n for n in formats.FORMATS if n not in WITHOUT_SEGMENTS]

ROWS = rows_lib.packed_rows(num_rows=NUM_ROWS, seq_len=SEQ_LEN, lookahead=True)


def as_trainers_read(batch, name):
  """Returns what a trainer of the format attends to, positions and targets.

  Returns:
    `visible` bool[B, S, S] without causality, `positions`, `targets`
    int32[B, S] and `weight` bool[B, S] of each column's prediction.
  """
  transform = formats.FORMATS[name].transform
  batch = batch if transform is None else transform().map(batch)
  columns = np.broadcast_to(np.arange(SEQ_LEN), (NUM_ROWS, SEQ_LEN))
  if name in ("chomp", "huggingface"):
    # A stream: padding is hidden, other documents are not.
    visible = np.repeat(batch["attention_mask"][:, None], SEQ_LEN, axis=1)
    ignored = np.full((NUM_ROWS, 1), formats.IGNORED_LABEL)
    labels = np.concatenate([batch["labels"][:, 1:], ignored], axis=1)
    weight = labels != formats.IGNORED_LABEL
    return visible, columns, np.where(weight, labels, 0), weight
  if name == "maxtext":
    segment_ids, positions = (
      batch["inputs_segmentation"],
      batch["inputs_position"],
    )
    targets, weight = batch["targets"], batch["targets_segmentation"] != 0
  elif name == "axlearn":
    segment_ids, positions = (
      batch["input_segment_ids"],
      batch["input_positions"],
    )
    weight = batch["target_labels"] >= 0
    targets = np.where(weight, batch["target_labels"], 0)
  elif name in ("canonical", "levanter"):
    segment_ids, positions = batch["segment_ids"], batch["positions"]
    targets = np.roll(batch["tokens"], -1, axis=1)
    if name == "canonical":
      targets[:, -1] = batch["next_token"]
    weight = batch["loss_mask" if name == "canonical" else "loss_weight"] != 0
  else:
    raise NotImplementedError(
      f"say here how a trainer of {name!r} reads its batch"
    )
  visible = segment_ids[:, :, None] == segment_ids[:, None, :]
  return visible, positions, targets, weight


@functools.cache
def toy():
  keys = jax.random.split(jax.random.key(0), 6)
  square = [jax.random.normal(key, (WIDTH, WIDTH)) for key in keys[:3]]
  head = jax.random.normal(keys[3], (WIDTH, rows_lib.VOCAB_SIZE))
  table = jax.random.normal(keys[4], (rows_lib.VOCAB_SIZE, WIDTH))
  places = jax.random.normal(keys[5], (SEQ_LEN, WIDTH))
  return (*square, head), table, places


@jax.jit
def gradient(embedded, visible, targets, weight):
  """Returns d sum(weighted loss) / d embedded, float32[B, S, D]."""
  (query, key, value, head), _, _ = toy()

  def loss(embedded):
    mask = visible & jnp.tri(SEQ_LEN, dtype=bool) | jnp.eye(SEQ_LEN, dtype=bool)
    scores = (embedded @ query) @ jnp.swapaxes(embedded @ key, 1, 2)
    attention = jax.nn.softmax(
      jnp.where(mask, scores / WIDTH**0.5, -jnp.inf), axis=-1
    )
    logits = (embedded + attention @ (embedded @ value)) @ head
    log_probs = jax.nn.log_softmax(logits)
    picked = jnp.take_along_axis(log_probs, targets[..., None], axis=-1)
    return -jnp.sum(jnp.where(weight, picked[..., 0], 0.0))

  return jax.grad(loss)(embedded)


def gradient_by_column(batch, name, chosen, visible=None):
  """Returns |gradient| of the loss on chosen targets by column, [B, S].

  Args:
    batch: Canonical fields.
    name: The format to go through.
    chosen: bool[B, S], columns whose token is a label that counts; the last
      one also stands for `next_token`, which its document continues with.
    visible: bool[B, S, S] instead of what the format gives.
  """
  given, positions, targets, weight = as_trainers_read(batch, name)
  chosen_target = np.concatenate([chosen[:, 1:], chosen[:, -1:]], axis=1)
  _, table, places = toy()
  embedded = table[batch["tokens"]] + places[positions]
  gradients = gradient(
    embedded,
    given if visible is None else visible,
    targets,
    weight & chosen_target,
  )
  assert jnp.isfinite(gradients).all()
  return np.abs(gradients).sum(-1)


@pytest.mark.parametrize("name", WITH_SEGMENTS)
@laws.examples(60)
@hypothesis.given(case=ROWS, segment=st.integers(1, 4), eos=st.booleans())
def test_the_loss_of_a_document_depends_on_nothing_else_in_its_row(
  name, case, segment, eos
):
  batch = masks.MaskBoundaryLoss().map(case.batch)
  batch = masks.TrainOnEos(eos, rows_lib.EOS_IDS).map(batch)
  batch = masks.ResetPositions().map(batch)
  document = batch["segment_ids"] == segment
  found = gradient_by_column(batch, name, document)
  assert (found[~document] == 0.0).all()


@pytest.mark.parametrize("name", formats.FORMATS)
@laws.examples(60)
@hypothesis.given(case=ROWS, boundary=st.booleans())
def test_no_loss_depends_on_padding(name, case, boundary):
  batch = masks.MaskBoundaryLoss(boundary).map(case.batch)
  found = gradient_by_column(batch, name, np.ones_like(batch["loss_mask"]))
  assert (found[~batch["attention_mask"]] == 0.0).all()


def two_documents(boundary=True):
  """Rows of document A in columns 0..4 and B in 5..10, and one filler."""
  segment_ids = np.asarray([[1] * 5 + [2] * 6 + [0]] * NUM_ROWS, np.int32)
  random = np.random.default_rng(3)
  shape = segment_ids.shape
  batch = {
    "tokens": random.integers(0, rows_lib.VOCAB_SIZE, shape, np.int32),
    "segment_ids": segment_ids,
    "positions": np.zeros(shape, np.int32),
    "loss_mask": np.zeros(shape, np.bool_),
    "attention_mask": segment_ids > 0,
    "next_token": np.zeros(NUM_ROWS, np.int32),
    "source_id": np.zeros(NUM_ROWS, np.int32),
  }
  batch["loss_mask"][:, [0, 1, 2, 3, 5, 6, 7, 8, 9]] = True
  batch = masks.MaskBoundaryLoss(boundary).map(batch)
  return masks.ResetPositions().map(batch), segment_ids == 2


@pytest.mark.parametrize("name", WITH_SEGMENTS)
def test_without_segments_in_attention_document_b_takes_from_a(name):
  batch, document_b = two_documents()
  everything = np.ones((NUM_ROWS, SEQ_LEN, SEQ_LEN), np.bool_)
  found = gradient_by_column(batch, name, document_b, visible=everything)
  assert (found[:, :5] > 0).all()


def test_seed_003_stream_attention_of_chomp_reaches_across_documents():
  batch, document_b = two_documents()
  labels = formats.ChompFormat().map(batch)["labels"]
  assert (labels[:, 5] == formats.IGNORED_LABEL).all()
  np.testing.assert_array_equal(labels[:, 6:11], batch["tokens"][:, 6:11])
  found = gradient_by_column(batch, "chomp", document_b)
  assert (found[:, :5] > 0).all()
