# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The loss counts what is trained on; steps learn, on any number of devices."""

import functools

from flax import nnx
import jax
import numpy as np
import pytest

from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import training
from tests.loading import processes

_VOCAB, _SEQ_LEN, _ROWS = 19, 12, 8

_CONFIG = decoder_lib.DecoderConfig(
  vocab_size=_VOCAB,
  max_positions=_SEQ_LEN,
  d_model=16,
  num_layers=1,
  num_heads=2,
  mlp_dim=24,
)


def _batch(seed: int = 0) -> dict[str, np.ndarray]:
  """Rows of one document each, at columns 0 .. 3, with filler around it."""
  rng = np.random.default_rng(seed)
  columns = np.arange(_SEQ_LEN)
  begin = (np.arange(_ROWS) % 4)[:, None]
  end = begin + 7
  inside = (columns >= begin) & (columns < end)
  tokens = rng.integers(1, _VOCAB, (_ROWS, _SEQ_LEN), np.int32)
  return {
    "tokens": np.where(inside, tokens, 0).astype(np.int32),
    "segment_ids": (columns >= begin).astype(np.int32),
    "positions": np.tile(columns.astype(np.int32), (_ROWS, 1)),
    "loss_mask": inside & (columns < end - 1),
  }


def make_mesh(num_devices: int) -> jax.sharding.Mesh:
  return jax.sharding.Mesh(np.asarray(jax.devices()[:num_devices]), ("data",))


def make_trainer(**options) -> training.Trainer:
  return training.Trainer(
    _CONFIG,
    training.OptimizerOptions(warmup_steps=2, learning_rate=1e-2),
    num_steps=12,
    **options,
  )


@pytest.fixture(scope="module")
def trainer() -> training.Trainer:
  return make_trainer(mesh=make_mesh(1))


def stepped(trainer: training.Trainer, state, batch):
  """Takes a step on a batch that is placed as an iterator places it."""
  return trainer.step(state, jax.device_put(batch, trainer.batch_sharding))


def run(trainer: training.Trainer, num_steps: int, num_batches: int = 2):
  state = trainer.init(0)
  losses, rates = [], []
  for step in range(num_steps):
    state, metrics = stepped(trainer, state, _batch(step % num_batches))
    losses.append(float(metrics["loss"]))
    rates.append(float(metrics["learning_rate"]))
  return state, losses, rates


@pytest.fixture(scope="module")
def model(trainer) -> decoder_lib.Decoder:
  return trainer.model(trainer.init(0))


@pytest.fixture(scope="module")
def loss_and_grads(model):
  graph, params = nnx.split(model)

  def loss(params, batch):
    return training.loss_and_metrics(nnx.merge(graph, params), batch)

  both = jax.jit(jax.value_and_grad(loss, has_aux=True))
  return functools.partial(both, params)


@pytest.fixture(scope="module")
def logits_of(model):
  graph, params = nnx.split(model)
  logits = jax.jit(lambda params, *fields: nnx.merge(graph, params)(*fields))
  return lambda batch: logits(
    params, batch["tokens"], batch["segment_ids"], batch["positions"]
  )


def test_the_loss_is_the_mean_over_trained_columns_against_next_tokens(
  logits_of, loss_and_grads
):
  batch = _batch()
  (loss, metrics), _ = loss_and_grads(batch)
  logits = np.asarray(logits_of(batch), np.float64)
  log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  total, count = 0.0, 0
  for row, column in zip(*np.nonzero(batch["loss_mask"]), strict=True):
    total -= log_probs[row, column, batch["tokens"][row, column + 1]]
    count += 1
  np.testing.assert_allclose(float(loss), total / count, rtol=1e-5)
  assert int(metrics["tokens"]) == count == _ROWS * 6
  assert int(metrics["all_masked"]) == 0


def test_the_last_column_counts_only_where_next_token_gives_its_target(
  logits_of,
):
  batch = _batch()
  batch["loss_mask"][:] = True
  logits = logits_of(batch)
  nll, mask = training.token_nll(logits, batch)
  assert int(mask.sum()) == _ROWS * (_SEQ_LEN - 1)
  assert np.all(np.asarray(nll)[:, -1] == 0.0)
  batch["next_token"] = np.full(_ROWS, 5, np.int32)
  nll, mask = training.token_nll(logits, batch)
  assert bool(mask.all())
  expected = -jax.nn.log_softmax(logits[:, -1])[:, 5]
  np.testing.assert_allclose(nll[:, -1], expected, rtol=1e-5)


def test_an_all_masked_batch_has_loss_0_finite_gradients_and_is_counted(
  loss_and_grads,
):
  batch = _batch()
  batch["loss_mask"][:] = False
  (value, metrics), grads = loss_and_grads(batch)
  assert float(value) == 0.0
  assert int(metrics["all_masked"]) == 1
  assert all(np.all(np.asarray(leaf) == 0.0) for leaf in jax.tree.leaves(grads))


def test_a_step_on_an_all_masked_batch_leaves_a_finite_state(trainer):
  batch = _batch()
  batch["loss_mask"][:] = False
  state, metrics = stepped(trainer, trainer.init(0), batch)
  assert int(metrics["all_masked"]) == 1
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
  # It goes on learning afterwards.
  _, metrics = stepped(trainer, state, _batch())
  assert np.isfinite(float(metrics["loss"]))


def test_losses_by_column_sum_to_the_loss(loss_and_grads):
  batch = _batch()
  (_, metrics), _ = loss_and_grads(batch)
  np.testing.assert_array_equal(metrics["token_mask"], batch["loss_mask"])
  np.testing.assert_allclose(
    np.sum(metrics["token_nll"]) / np.sum(metrics["token_mask"]),
    float(metrics["loss"]),
    rtol=1e-5,
  )


def test_the_learning_rate_warms_up_and_falls_along_a_cosine(trainer):
  state, _, rates = run(trainer, 12)
  np.testing.assert_allclose(rates[:3], [0.0, 0.005, 0.01], rtol=1e-6)
  assert rates[2:] == sorted(rates[2:], reverse=True)
  assert 1e-3 < rates[-1] < 1.3e-3
  assert int(state.step) == 12


def test_weight_decay_leaves_the_scales_of_norms_alone(trainer):
  decayed = training.is_matrix(trainer.init(0).params)
  for path, flag in jax.tree_util.tree_leaves_with_path(decayed):
    assert flag == ("scale" not in jax.tree_util.keystr(path))


def test_an_unknown_parameter_sharding_is_refused():
  with pytest.raises(ValueError, match="got 'both'"):
    make_trainer(mesh=make_mesh(1), parameter_sharding="both")


def steps_on_eight_devices(sharding):
  """Runs in a process that has them; returns what the steps led to."""
  assert len(jax.devices()) == 8
  trainer = make_trainer(mesh=make_mesh(8), parameter_sharding=sharding)
  state, losses, _ = run(trainer, 4)
  leaves = jax.tree.leaves(state)
  return {
    "losses": losses,
    "norms": [float(np.linalg.norm(np.asarray(x))) for x in leaves],
    "cut": sum(not x.sharding.is_fully_replicated for x in leaves),
  }


@pytest.mark.parametrize("sharding", ["fsdp", "replicated"])
@pytest.mark.slow
def test_eight_devices_take_the_same_steps_as_one(trainer, sharding):
  (eight,) = processes.call(
    "tests.reference.training_test:steps_on_eight_devices",
    [{"sharding": sharding}],
    num_devices=8,
  )
  state, losses, _ = run(trainer, 4)
  norms = [np.linalg.norm(np.asarray(leaf)) for leaf in jax.tree.leaves(state)]
  np.testing.assert_allclose(eight["losses"], losses, rtol=1e-4)
  np.testing.assert_allclose(eight["norms"], norms, rtol=1e-3)
  assert bool(eight["cut"]) == (sharding == "fsdp")


def test_weights_make_the_loss_a_weighted_mean_and_are_summed(loss_and_grads):
  batch = _batch()
  plain = loss_and_grads(batch)[0]
  rng = np.random.default_rng(0)
  weight = rng.uniform(0.1, 3, batch["loss_mask"].shape).astype(np.float32)
  batch["loss_weight"] = weight * batch["loss_mask"]
  (loss, metrics), grads = loss_and_grads(batch)
  total = batch["loss_weight"].sum()
  assert float(metrics["weight"]) == pytest.approx(total, rel=1e-5)
  assert int(metrics["tokens"]) == int(plain[1]["tokens"])
  np.testing.assert_allclose(metrics["token_weight"], batch["loss_weight"])
  nll = float(metrics["token_nll"].sum())
  assert nll / total == pytest.approx(float(loss), rel=1e-5)
  # Only their ratios matter, and a constant changes nothing.
  batch["loss_weight"] = 7 * batch["loss_weight"]
  (scaled, _), same = loss_and_grads(batch)
  assert float(scaled) == pytest.approx(float(loss), rel=1e-5)
  for one, other in zip(
    jax.tree.leaves(grads), jax.tree.leaves(same), strict=True
  ):
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)
  batch["loss_weight"] = batch["loss_mask"].astype(np.float32)
  (ones, _), _ = loss_and_grads(batch)
  assert float(ones) == pytest.approx(float(plain[0]), rel=1e-6)


def test_a_column_of_weight_0_is_not_trained_on(loss_and_grads):
  batch = _batch()
  left_out = np.arange(_SEQ_LEN) == 2
  batch["loss_weight"] = (batch["loss_mask"] & ~left_out).astype(np.float32)
  (loss, _), _ = loss_and_grads(batch)
  batch["loss_mask"] = batch["loss_mask"] & ~left_out
  del batch["loss_weight"]
  (expected, _), _ = loss_and_grads(batch)
  assert float(loss) == pytest.approx(float(expected), rel=1e-6)
  batch["loss_weight"] = np.zeros(batch["loss_mask"].shape, np.float32)
  (loss, _), grads = loss_and_grads(batch)
  assert float(loss) == 0
  assert all(np.all(np.asarray(leaf) == 0) for leaf in jax.tree.leaves(grads))
