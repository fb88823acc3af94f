# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The training step: a masked next-token loss, AdamW, data parallelism.

The target of column i is the token of column i + 1, counted only where
`loss_mask` is True, and as much as `loss_weight` says where a batch has it.
Losses are in nats a trained token. State and step work on
one device or on a mesh; the batch axis is sharded over the mesh axis 'data'.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import NamedTuple

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from chomp_data import schema
from chomp_data.reference import decoder as decoder_lib

Batch = Mapping[str, Any]

# State shards: the whole on every device, or cut over the mesh.
PARAMETER_SHARDINGS = ("replicated", "fsdp")

_AXIS = "data"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerOptions(schema.Options):
  """The fields of `config.optimizer`.

  Attributes:
    learning_rate: Learning rate of AdamW at the end of the warm-up.
    warmup_steps: Steps in which the learning rate rises from 0, linearly.
    final_fraction: Learning rate of the last step as a fraction of
      `learning_rate`, reached along a cosine.
    weight_decay: Weight decay of AdamW, on matrices only.
    b1: Decay of AdamW's first moment.
    b2: Decay of AdamW's second moment.
    clip_norm: Greatest global norm of a gradient; greater ones are scaled
      down.
  """

  learning_rate: float = schema.option(3e-3, schema.number(0))
  warmup_steps: int = schema.option(30, schema.integer(0))
  final_fraction: float = schema.option(0.1, schema.number(0, 1))
  weight_decay: float = schema.option(0.01, schema.number(0))
  b1: float = schema.option(0.9, schema.number(0, 1))
  b2: float = schema.option(0.98, schema.number(0, 1))
  clip_norm: float = schema.option(1.0, schema.number(0))


class TrainState(NamedTuple):
  """What a step changes; a pytree of arrays.

  Attributes:
    step: int32[], steps done.
    params: Parameters of the decoder, nested dictionaries.
    opt_state: State of the optimizer.
  """

  step: jax.Array
  params: Any
  opt_state: Any


def token_nll(logits: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array]:
  """Returns each trained column's negative log likelihood.

  Args:
    logits: float32[B, S, V].
    batch: Canonical fields; `next_token` int32[B] gives the last column a
      target, without it that column is not trained on.

  Returns:
    float32[B, S] in nats, 0 where not trained on, and the mask, bool[B, S].
  """
  tokens, mask = batch["tokens"], batch["loss_mask"]
  if "next_token" in batch:
    last = batch["next_token"][:, None]
  else:
    last = jnp.zeros_like(tokens[:, :1])
    mask = mask & (jnp.arange(tokens.shape[1]) < tokens.shape[1] - 1)
  targets = jnp.concatenate([tokens[:, 1:], last], axis=1)
  nll = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
  return jnp.where(mask, nll, 0.0), mask


def token_weight(batch: Batch, mask: jax.Array) -> jax.Array:
  """Returns what each column weighs: 0 or 1, unless the batch says more.

  Args:
    batch: Canonical fields.
    mask: bool[B, S], the trained columns.

  Returns:
    `mask`, or where the batch has weights float32[B, S].
  """
  return mask * batch["loss_weight"] if "loss_weight" in batch else mask


def loss_and_metrics(
  model: decoder_lib.Decoder, batch: Batch
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Returns the mean nll of trained columns by weight, and what to log.

  A batch in which no column weighs has loss 0 and zero gradients.

  Args:
    model: The decoder.
    batch: Canonical fields, [B, S].

  Returns:
    The loss, float32[], and metrics: `loss` float32[], `tokens` int32[]
    (trained columns), `all_masked` int32[] (1 where there is none), and of each
    column `token_nll` float32[B, S] by weight and `token_mask` bool[B, S].
    Where the batch has `loss_weight`, `weight` float32[] and `token_weight`
    float32[B, S] come along. `span_losses.of_step` sums columns by document.
  """
  logits = model(batch["tokens"], batch["segment_ids"], batch["positions"])
  nll, mask = token_nll(logits, batch)
  weight, weighted = token_weight(batch, mask), "loss_weight" in batch
  nll = nll * weight
  tokens = jnp.sum(mask, dtype=jnp.int32)
  total = jnp.sum(weight) if weighted else tokens
  loss = jnp.sum(nll) / jnp.where(total > 0, total, 1)
  metrics = {
    "loss": loss,
    "tokens": tokens,
    "all_masked": (tokens == 0).astype(jnp.int32),
    "token_nll": nll,
    "token_mask": mask,
  }
  if weighted:
    metrics["weight"], metrics["token_weight"] = total, weight
  return loss, metrics


class Trainer:
  """Makes and advances the state of one run on a mesh."""

  def __init__(
    self,
    config: decoder_lib.DecoderConfig,
    options: OptimizerOptions,
    *,
    num_steps: int,
    mesh: jax.sharding.Mesh,
    parameter_sharding: str = "replicated",
  ):
    """Binds a config; the first step compiles.

    Args:
      config: The decoder.
      options: The optimizer.
      num_steps: Steps of the whole run; the learning rate follows them.
      mesh: Devices along the axis 'data'.
      parameter_sharding: 'replicated', or 'fsdp': each array is cut over the
        mesh along its longest axis that divides.
    """
    if problems := config.problems("config.model"):
      raise schema.ConfigError(problems)
    if parameter_sharding not in PARAMETER_SHARDINGS:
      raise ValueError(
        f"`parameter_sharding` must be one of {PARAMETER_SHARDINGS}, got"
        f" {parameter_sharding!r}. Use one of them."
      )
    self._config = config
    self._optimizer, self._schedule = make_optimizer(options, num_steps)
    self.mesh = mesh
    self.batch_sharding: jax.sharding.NamedSharding = _sharding(mesh, _AXIS)
    abstract = nnx.eval_shape(
      lambda: decoder_lib.Decoder(config, rngs=nnx.Rngs(0))
    )
    self._graph = nnx.graphdef(abstract)
    shapes = jax.eval_shape(lambda: self._initial_state(0))
    replicated = _sharding(mesh)
    self._state_sharding = jax.tree.map(
      lambda leaf: (
        _longest_axis_sharding(mesh, leaf.shape)
        if parameter_sharding == "fsdp"
        else replicated
      ),
      shapes,
    )
    self._shapes = shapes
    # Metrics are wanted by every process, so they are replicated.
    self._step = jax.jit(
      self._train_step,
      donate_argnums=0,
      out_shardings=(self._state_sharding, replicated),
    )

  @property
  def num_parameters(self) -> int:
    """Scalars of the decoder."""
    leaves = jax.tree.leaves(self._shapes.params)
    return sum(int(np.prod(leaf.shape)) for leaf in leaves)

  @property
  def num_compiled(self) -> int:
    """Steps that were compiled so far: one for each shape of batches."""
    return self._step._cache_size()  # pyright: ignore

  def init(self, seed: int) -> TrainState:
    """Returns the state before the first step."""
    return jax.jit(
      self._initial_state,
      static_argnums=0,
      out_shardings=self._state_sharding,
    )(seed)

  def abstract_state(self) -> TrainState:
    """Returns shapes, dtypes and shardings, to restore a state into."""
    return jax.tree.map(
      lambda leaf, sharding: jax.ShapeDtypeStruct(
        leaf.shape, leaf.dtype, sharding=sharding
      ),
      self._shapes,
      self._state_sharding,
    )

  def step(
    self, state: TrainState, batch: Batch
  ) -> tuple[TrainState, dict[str, jax.Array]]:
    """Takes one step.

    Args:
      state: The state before; its buffers are donated, do not use it again.
      batch: Canonical fields as `jax.Array`s, global batch first.

    Returns:
      The state after, and the metrics of `loss_and_metrics`, `grad_norm` and
      `learning_rate`, on every process whole.
    """
    return self._step(state, dict(batch))

  def model(self, state: TrainState) -> decoder_lib.Decoder:
    """Returns the decoder of a state; it shares the state's buffers."""
    return nnx.merge(self._graph, state.params)

  def _initial_state(self, seed: int) -> TrainState:
    model = decoder_lib.Decoder(self._config, rngs=nnx.Rngs(seed))
    params = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    return TrainState(
      jnp.zeros((), jnp.int32), params, self._optimizer.init(params)
    )

  def _train_step(self, state: TrainState, batch: Batch):
    def loss(params):
      model = nnx.merge(self._graph, params)
      return loss_and_metrics(model, batch)

    (_, metrics), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    updates, opt_state = self._optimizer.update(
      grads, state.opt_state, state.params
    )
    metrics["grad_norm"] = optax.global_norm(grads)
    metrics["learning_rate"] = self._schedule(state.step)
    params = optax.apply_updates(state.params, updates)
    return TrainState(state.step + 1, params, opt_state), metrics


def data_mesh() -> jax.sharding.Mesh:
  """Returns a mesh of all devices of all processes, along 'data'."""
  return jax.sharding.Mesh(np.asarray(jax.devices()), (_AXIS,))


def make_optimizer(
  options: OptimizerOptions, num_steps: int
) -> tuple[optax.GradientTransformation, Callable]:
  """Returns AdamW, and its learning rate by step: a warm-up and a cosine."""
  schedule = optax.warmup_cosine_decay_schedule(
    init_value=0.0,
    peak_value=options.learning_rate,
    warmup_steps=options.warmup_steps,
    # A cosine of no step is not defined: a run may end within its warm-up.
    decay_steps=max(num_steps, options.warmup_steps + 1),
    end_value=options.learning_rate * options.final_fraction,
  )
  return optax.chain(
    optax.clip_by_global_norm(options.clip_norm),
    optax.adamw(
      schedule,
      b1=options.b1,
      b2=options.b2,
      weight_decay=options.weight_decay,
      mask=is_matrix,
    ),
  ), schedule


def is_matrix(params: Any) -> Any:
  """Marks what is decayed: everything but the scales of norms and biases."""
  others = ("['scale']", "['bias']")
  return jax.tree_util.tree_map_with_path(
    lambda path, _: jax.tree_util.keystr(path[-1:]) not in others, params
  )


def _sharding(
  mesh: jax.sharding.Mesh, *axes: str | None
) -> jax.sharding.NamedSharding:
  return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))


def _longest_axis_sharding(mesh: jax.sharding.Mesh, shape: tuple[int, ...]):
  """Returns a sharding of the longest axis that the mesh divides, if any."""
  sizes = [
    (size, -axis) for axis, size in enumerate(shape) if size % mesh.size == 0
  ]
  if not sizes:
    return _sharding(mesh)
  axis = -max(sizes)[1]
  return _sharding(mesh, *[None] * axis, _AXIS)
