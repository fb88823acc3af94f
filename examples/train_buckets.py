# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional classifier on pictures of several sizes.

    make prepare-images
    python examples/train_buckets.py --config=configs/resolution_buckets.py \\
      --workdir=runs/pictures

Each batch is of one dataset and one size, so the step is compiled once for
each size, and a mean over pixels lets one model read all of them. A checkpoint
holds model, optimizer and input: run it again, and it goes on, also where it
was killed.
"""

from collections.abc import Sequence
import dataclasses
import pathlib
import sys
from typing import Any

from absl import app
from absl import flags
from absl import logging
from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import tqdm

import chomp_data
from chomp_data import cli
from chomp_data import pipeline
from chomp_data import process_input
from chomp_data import schema
from chomp_data import stores
from chomp_data.loading import checkpoint
from chomp_data.loading import feed
from chomp_data.loading import state as state_lib

_CONFIG = cli.define_config()
_WORKDIR = flags.DEFINE_string("workdir", None, "Where checkpoints go.")
_DATASET_MIX = cli.define_dataset_mix()


def _channels(value: Any) -> tuple[int, ...]:
  if isinstance(value, str) or not isinstance(value, Sequence) or not value:
    raise ValueError
  return tuple(schema.integer(1, 65_536).convert(own) for own in value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
  """The fields of `config.model`.

  Attributes:
    widths: Channels after each convolution of stride 2.
    num_labels: Classes; labels are below it.
  """

  widths: tuple[int, ...] = schema.required(
    schema.Rule("a list of one or more whole numbers of 1 .. 65536", _channels)
  )
  num_labels: int = schema.required(schema.integer(1, 2**20))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerOptions:
  """The fields of `config.optimizer`.

  Attributes:
    learning_rate: Of Adam.
  """

  learning_rate: float = schema.option(2e-3, schema.number(1e-12, 1e3))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
  """The fields of `config.train`.

  Attributes:
    num_steps: Steps of the run, or None for all steps of the input.
    log_every_steps: Steps between progress lines.
    checkpoint_every_steps: Steps between checkpoints; the last step has one.
  """

  num_steps: int | None = schema.option(
    None, schema.optional(schema.integer(1))
  )
  log_every_steps: int = schema.option(100, schema.integer(1))
  checkpoint_every_steps: int = schema.option(100, schema.integer(1))


_SECTIONS: dict[str, type] = {
  "model": ModelOptions,
  "optimizer": OptimizerOptions,
  "train": TrainOptions,
}


@dataclasses.dataclass(frozen=True)
class RunOptions:
  """A whole run, checked.

  Attributes:
    pipe: Its input.
    num_steps: Its steps.
    model: The classifier.
    optimizer: The optimizer.
    train: The loop.
  """

  pipe: pipeline.Pipeline
  num_steps: int
  model: ModelOptions
  optimizer: OptimizerOptions
  train: TrainOptions


def read(config: Any) -> RunOptions:
  """Checks a whole config, its data included.

  Args:
    config: A ConfigDict with the sections `data`, `model`, `optimizer` and
      `train`; the last two may be absent.

  Raises:
    ConfigError: If fields are wrong; all of them are listed.
    StoreError: If a store cannot be opened.
  """
  problems, pipe, parts, unopened = [], None, {}, None
  try:
    pipe = chomp_data.build(config.get("data"))
  except schema.ConfigError as error:
    problems += error.problems
  except stores.StoreError as error:
    unopened = error
  sections = config.to_dict()
  known = ("data", *_SECTIONS)
  problems += [
    schema.unknown_key("config", str(name), known)
    for name in sections
    if name not in known
  ]
  if pipe is not None and pipe.sources:
    raise schema.ConfigError(
      [
        "`config.data.buckets.kind` must be 'resolution' for this trainer,"
        " which reads pictures, got rows of text. Train on text with"
        " chomp-train."
      ]
    )
  for name, cls in _SECTIONS.items():
    parts[name], found = schema.read(
      cls, sections.get(name) or {}, f"config.{name}"
    )
    problems += found
  if pipe is not None and not problems:
    problems += _field_problems(pipe) + _step_problems(pipe, parts["train"])
  if unopened is not None:
    if not problems:
      raise unopened
    problems += str(unopened).splitlines()
  if problems or pipe is None:
    raise schema.ConfigError(problems)
  num_steps = parts["train"].num_steps or pipe.num_steps
  return RunOptions(pipe=pipe, num_steps=int(num_steps or 0), **parts)


def _field_problems(pipe: pipeline.Pipeline) -> list[str]:
  """Returns what samples lack to be pictures with labels."""
  # The first sample of the first group that is not empty.
  examples = (
    process_input.examples(pipe, number) for number in range(len(pipe.buckets))
  )
  batch = next((own for found in examples for own in found.values()), {})
  problems = []
  pixels, label = batch.get("pixels"), batch.get("label")
  if pixels is None or pixels.ndim != 4 or pixels.shape[-1] != 3:
    shape = None if pixels is None else pixels.shape[1:]
    problems.append(
      "`config.data.buckets.fields` must name `pixels` of shape (height, width,"
      f" 3) for this trainer, got {shape}. Add them."
    )
  if label is None or label.dtype != np.int32:
    kind = None if label is None else label.dtype
    problems.append(
      "`config.data.buckets.metadata` must name `label`, a whole number, for"
      f" this trainer, got {kind}. Add it."
    )
  return problems


def _step_problems(pipe: pipeline.Pipeline, train: TrainOptions) -> list[str]:
  """Returns where the input does not fit the steps of the run."""
  if train.num_steps is None:
    return [
      "`config.train.num_steps` must be set where the input is endless, got"
      " None. Set it, or `config.data.epochs`."
    ] * (pipe.num_steps is None)
  if pipe.num_steps is not None and train.num_steps > pipe.num_steps:
    return [
      "`config.train.num_steps` must be at most the input's steps, got"
      f" {train.num_steps} > {pipe.num_steps}. Lower it, or raise"
      " `config.data.epochs`."
    ]
  for line in pipe.accounts.questions.unserved(train.num_steps):
    logging.warning("%s", line)
  return []


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

  def __init__(self, model: ModelOptions, learning_rate: float):
    """Initialises parameters and moments."""
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

    label = batch["label"]
    (value, right), grads = jax.value_and_grad(loss, has_aux=True)(params)
    updates, moments = self._optimizer.update(grads, moments, params)
    params = optax.apply_updates(params, updates)
    return (params, moments), {
      "loss": value,
      "right": right,
      "labels": jnp.stack([label.min(), label.max()]),
    }


def _check_labels(options: RunOptions, step: int, labels: np.ndarray) -> None:
  """Raises ConfigError where a step has labels that the model has not.

  Args:
    options: The run.
    step: The step, for the message.
    labels: int32[2], the least and the greatest.
  """
  most = options.model.num_labels
  wrong = [label for label in labels.tolist() if not 0 <= label < most]
  if wrong:
    raise schema.ConfigError(
      [
        "`config.model.num_labels` must be above every label, and labels 0 or"
        f" more, got {most} and label {wrong[-1]} of dataset"
        f" {options.pipe.bucket_of(step)[0]!r} at step {step}. Raise it, or"
        " correct the labels."
      ]
    )


def train(options: RunOptions, workdir: pathlib.Path) -> None:
  """Takes the steps that are left, and tells how each dataset goes.

  Args:
    options: The run.
    workdir: Where checkpoints go, and come from.

  Raises:
    ConfigError: If a label is not of the model, or the checkpoint of another.
    StateError: If the checkpoint is of another input.
  """
  pipe, total = options.pipe, options.num_steps
  logging.info("%s", pipe.describe())
  trainer = Trainer(options.model, options.optimizer.learning_rate)
  manager = ocp.CheckpointManager(
    workdir.resolve() / "checkpoints",
    options=ocp.CheckpointManagerOptions(max_to_keep=2),
  )
  with chomp_data.make_iterator(pipe, trainer.batch_sharding) as it, manager:
    if manager.latest_step() is not None:
      _restore(manager, it, trainer, options.model)
      logging.info("resumed at step %d", it.step)
    sums: dict[str, list[float]] = {}
    # disable=None: no bar where stderr is not a terminal.
    bar = tqdm.trange(it.step, total, disable=None)
    for step in bar:
      trainer.state, metrics = trainer.step(trainer.state, next(it))
      found = jax.device_get(metrics)
      _check_labels(options, step, found["labels"])
      own = sums.setdefault(str(pipe.bucket_of(step)[0]), [0, 0.0, 0.0])
      for i, value in enumerate((1, found["loss"], found["right"])):
        own[i] += float(value)
      if (step + 1) % options.train.log_every_steps == 0 or step + 1 == total:
        with bar.external_write_mode(sys.stderr):
          for name, (count, loss, right) in sorted(sums.items()):
            logging.info(
              "step %d/%d: %s: %d batches, loss %.3f, %.1f%% right",
              step + 1,
              total,
              name,
              count,
              loss / count,
              right / count * 100,
            )
        sums.clear()
      if (step + 1) % options.train.checkpoint_every_steps == 0:
        _save(manager, it, trainer, options.model)
    _save(manager, it, trainer, options.model)
    logging.info("histogram: %s", pipe.accounts.histogram(it.step))
    shapes = trainer.step._cache_size()  # pyright: ignore
    logging.info("finished %d steps; %d shapes were compiled", it.step, shapes)


def _save(
  manager: ocp.CheckpointManager, it: Any, trainer: Trainer, model: ModelOptions
) -> None:
  """Starts to write a checkpoint, unless the step has one."""
  if it.step in manager.all_steps():
    return
  manager.save(
    it.step,
    args=ocp.args.Composite(
      input=checkpoint.InputSave(it),
      model=ocp.args.StandardSave(trainer.state),
      options=ocp.args.JsonSave(_record(model)),
    ),
  )


def _record(model: ModelOptions) -> dict[str, Any]:
  """Returns what a checkpoint says of its model, as JSON values."""
  return {"widths": list(model.widths), "num_labels": model.num_labels}


def _restore(
  manager: ocp.CheckpointManager, it: Any, trainer: Trainer, model: ModelOptions
) -> None:
  """Puts input and model where the newest checkpoint was."""
  step = manager.latest_step()
  try:
    saved = manager.restore(
      step,
      args=ocp.args.Composite(
        input=checkpoint.InputRestore(it), options=ocp.args.JsonRestore()
      ),
    )["options"]
  except KeyError as error:
    raise state_lib.StateError(
      f"the checkpoint of step {step} must hold model, input and options, got"
      f" {error}. Use another --workdir."
    ) from error
  if saved != _record(model):
    raise schema.ConfigError(
      [
        f"`config.model` must be {saved}, as in the checkpoint of step {step},"
        f" got {_record(model)}. Use that model, or another --workdir."
      ]
    )
  restored = manager.restore(
    step,
    args=ocp.args.Composite(model=ocp.args.StandardRestore(trainer.state)),
  )
  trainer.state = restored["model"]


def main(argv: Sequence[str]) -> None:
  """Trains."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  if not _WORKDIR.value:
    raise app.UsageError("--config and --workdir must be given.")
  config = cli.config(_CONFIG, _DATASET_MIX, _SECTIONS)
  cli.log_project_messages(__file__)
  try:
    train(read(config), pathlib.Path(_WORKDIR.value))
  except (
    schema.ConfigError,
    stores.StoreError,
    state_lib.StateError,
    feed.InputError,
    OSError,
  ) as error:
    sys.exit(f"error: {error}")


if __name__ == "__main__":
  cli.run(main)
