# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional classifier on pictures of several sizes.

    make prepare-images
    python examples/train_buckets.py --config=configs/resolution_buckets.py \\
      --workdir=runs/pictures

Each batch is of one dataset and one size, so the step is compiled once for
each size, and a mean over pixels lets one model read all of them. A checkpoint
holds model, optimizer and input: run it again, and it continues, also where it
was killed.
"""

from collections.abc import Sequence
import dataclasses
import functools
import os
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

import chomp_data
from chomp_data import cli
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.reference import train_options
from chomp_data.reference import training

_CONFIG = cli.define_config()
_WORKDIR = flags.DEFINE_string("workdir", None, "Where checkpoints go.")
_DATASET_MIX = cli.define_dataset_mix()


def _channels(value: Any) -> tuple[int, ...]:
  channels = schema.sequence(schema.integer(1, 65_536)).convert(value)
  if not channels:
    raise ValueError
  return channels


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
class TrainOptions(schema.Options):
  """The fields of `config.train`.

  Attributes:
    num_steps: Steps of the run; None is all steps of the input.
    log_every_steps: Steps from one line of progress to the next.
    seed: Seed of the model's first parameters.
  """

  num_steps: int | None = schema.option(
    None, schema.optional(schema.integer(1))
  )
  log_every_steps: int = schema.option(25, schema.integer(1))
  seed: int = schema.option(0, schema.integer(0, 2**32 - 1))


_SECTIONS: dict[str, type] = {
  "model": ModelOptions,
  "optimizer": training.OptimizerOptions,
  "train": TrainOptions,
  "checkpoint": train_options.CheckpointOptions,
}


def read(config: Any) -> tuple[pipeline.Pipeline, dict[str, Any]]:
  """Checks a whole config; returns its input, and its sections by name."""
  config, problems = config.to_dict(), []
  pipe = train_options.build_input(config, problems)
  parts = train_options.read_sections(config, _SECTIONS, problems)
  if pipe is not None and pipe.sources:
    problems.append(
      "`config.data.buckets.kind` must be 'resolution' for this trainer, which"
      " reads pictures, got rows of text. Train on text with chomp-train."
    )
  elif pipe is not None:
    batch = pipe.batch(0)
    pixels, label = batch.get("pixels"), batch.get("label")
    if pixels is None or pixels.ndim != 4 or pixels.shape[-1] != 3:
      shape = None if pixels is None else pixels.shape[1:]
      problems.append(
        "`config.data.buckets.fields` must name `pixels` of shape (height,"
        f" width, 3) for this trainer, got {shape}. Add them."
      )
    if label is None or label.dtype != np.int32:
      problems.append(
        "`config.data.buckets.metadata` must name `label`, a whole number, for"
        f" this trainer, got {None if label is None else label.dtype}. Add it."
      )
    if parts["train"]:
      problems += train_options.step_problems(pipe, parts["train"].num_steps)
  if problems or pipe is None:
    raise schema.ConfigError(problems)
  return pipe, parts


class Classifier(nnx.Module):
  """Strided convolutions, a mean over what is left, and a linear layer."""

  def __init__(self, widths: Sequence[int], num_labels: int, rngs: nnx.Rngs):
    self.layers = nnx.List(
      nnx.Conv(before, after, (3, 3), strides=2, rngs=rngs)
      for before, after in zip([3, *widths], widths, strict=False)
    )
    self.head = nnx.Linear(widths[-1], num_labels, rngs=rngs)

  def __call__(self, pixels: jax.Array) -> jax.Array:
    """Returns logits float32[B, labels] of pixels uint8[B, H, W, 3]."""
    out = pixels.astype(jnp.float32) / 127.5 - 1
    for layer in self.layers:
      out = nnx.relu(layer(out))
    return self.head(out.mean(axis=(1, 2)))


def train_step(graph, optimizer, state, batch):
  """Returns the state after a batch, and sums over it to log."""
  params, moments = state
  label = batch["label"]
  real = batch["dataset_id"] >= 0  # Padding of a last batch is not learnt.

  def mean_loss(params):
    logits = nnx.merge(graph, params)(batch["pixels"])
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, label)
    right = (logits.argmax(axis=1) == label) & real
    count = jnp.maximum(real.sum(), 1)
    return jnp.where(real, nll, 0).sum() / count, right.sum() / count

  (loss, right), grads = jax.value_and_grad(mean_loss, has_aux=True)(params)
  updates, moments = optimizer.update(grads, moments, params)
  params = optax.apply_updates(params, updates)
  sums = jnp.stack([jnp.ones(()), loss, right])
  return (params, moments), (sums, jnp.stack([label.min(), label.max()]))


def train(pipe: pipeline.Pipeline, parts: dict[str, Any], workdir: str) -> None:
  """Takes the steps that are left, and logs how each dataset goes.

  Args:
    pipe: The input.
    parts: The sections of the config.
    workdir: Where checkpoints go, and come from.

  Raises:
    ConfigError: If a label is not of the model, or the checkpoint of another.
    StateError: If the checkpoint is of another input.
  """
  logging.info("%s", pipe.describe())
  model, options = parts["model"], parts["train"]
  total = int(options.num_steps or pipe.num_steps or 0)
  mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("data",))
  replicated = jax.sharding.NamedSharding(mesh, jax.P())
  graph, params = nnx.split(
    Classifier(model.widths, model.num_labels, nnx.Rngs(options.seed))
  )
  optimizer, _ = training.make_optimizer(parts["optimizer"], total)
  # Placed as the step returns it, so that no bucket compiles twice.
  state = jax.device_put((params, optimizer.init(params)), replicated)
  step_of = jax.jit(
    functools.partial(train_step, graph, optimizer),
    donate_argnums=0,
    out_shardings=replicated,
  )
  manager = ocp.CheckpointManager(
    os.path.abspath(os.path.join(workdir, "checkpoints")),
    options=ocp.CheckpointManagerOptions(max_to_keep=parts["checkpoint"].keep),
  )
  sharding = jax.sharding.NamedSharding(mesh, jax.P("data"))
  with chomp_data.make_iterator(pipe, sharding) as batches, manager:
    if manager.latest_step() is not None:
      state = _restore(manager, batches, state, model)
      logging.info("resumed at step %d", batches.step)
    sums: dict[str, np.ndarray] = {}
    shapes = set()
    while (step := batches.step) < total:
      batch = next(batches)
      state, (values, labels) = step_of(state, batch)
      dataset = str(pipe.bucket_of(step)[0])
      _check_labels(labels, model.num_labels, f"{dataset!r} at step {step}")
      sums[dataset] = sums.get(dataset, 0) + np.asarray(values)
      shapes.add(batch["pixels"].shape)
      step += 1
      if step % options.log_every_steps == 0 or step == total:
        for name, (count, loss, right) in sorted(sums.items()):
          logging.info(
            "step %d/%d: %s: %d batches, loss %.3f, %.1f%% right",
            *(step, total, name, count, loss / count, right / count * 100),
          )
        sums.clear()
      if step % parts["checkpoint"].every_steps == 0 or step == total:
        args = ocp.args.Composite(
          input=chomp_data.InputSave(batches),
          model=ocp.args.StandardSave(state),
          options=ocp.args.JsonSave(_record(model)),
        )
        manager.save(step, args=args)
    logging.info("histogram: %s", pipe.accounts.histogram(batches.step))
  logging.info("finished %d steps; compiled %d shapes", total, len(shapes))


def _check_labels(labels: jax.Array, num_labels: int, place: str) -> None:
  """Raises ConfigError where the least or greatest label is not below."""
  wrong = [one for one in labels.tolist() if not 0 <= one < num_labels]
  if wrong:
    raise schema.ConfigError(
      [
        "`config.model.num_labels` must be above every label, and labels 0 or"
        f" more, got {num_labels} and label {wrong[-1]} of dataset {place}."
        " Raise it, or correct the labels."
      ]
    )


def _record(model: ModelOptions) -> dict[str, Any]:
  """Returns what a checkpoint says of its model, as JSON values."""
  return {
    "widths": list(model.widths),
    "num_labels": model.num_labels,
    "optimizer": "adamw",
  }


def _restore(
  manager: ocp.CheckpointManager, batches: Any, state: Any, model: ModelOptions
) -> Any:
  """Moves the input to the newest checkpoint; returns the state of that."""
  step = manager.latest_step()
  args = ocp.args.Composite(
    input=chomp_data.InputRestore(batches), options=ocp.args.JsonRestore()
  )
  saved = manager.restore(step, args=args)["options"]
  if saved != _record(model):
    raise schema.ConfigError(
      [
        f"`config.model` must be {saved}, as in the checkpoint of step {step},"
        f" got {_record(model)}. Use that model, or another --workdir."
      ]
    )
  args = ocp.args.Composite(model=ocp.args.StandardRestore(state))
  return manager.restore(step, args=args)["model"]


def main(argv: Sequence[str]) -> None:
  """Trains."""
  cli.refuse_arguments(argv[1:])
  if not _WORKDIR.value:
    raise app.UsageError("`--workdir` must be given: checkpoints go there.")
  config = cli.config(_CONFIG, _DATASET_MIX, _SECTIONS)
  cli.log_project_messages(__file__)
  train(*read(config), _WORKDIR.value)


if __name__ == "__main__":
  cli.run(main)
