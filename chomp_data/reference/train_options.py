# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The sections of a config that chomp-train reads beside `config.data`."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from absl import logging

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.reference import decoder as decoder_lib
from chomp_data.reference import held_out
from chomp_data.reference import training


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(schema.Options):
  """The fields of `config.train`.

  Attributes:
    num_steps: Steps of the run; None is all steps of the input.
    log_every_steps: Steps from one line of progress to the next.
    document_loss_every_steps: Steps from one table of losses by document to
      the next.
    seed: Seed of the model's first parameters.
    span_losses: Whether the run's directory gets the loss of every span of
      every step, in 8 bytes each, for `chomp-losses`.
    parameter_sharding: Whether every device holds all parameters
      ('replicated'), or each a part of them ('fsdp').
  """

  num_steps: int | None = schema.option(
    None, schema.optional(schema.integer(1))
  )
  log_every_steps: int = schema.option(25, schema.integer(1))
  document_loss_every_steps: int = schema.option(100, schema.integer(1))
  span_losses: bool = schema.option(False, schema.boolean())
  seed: int = schema.option(0, schema.integer(0, 2**32 - 1))
  parameter_sharding: str = schema.option(
    "replicated", schema.choice(training.PARAMETER_SHARDINGS)
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointOptions(schema.Options):
  """The fields of `config.checkpoint`.

  Attributes:
    every_steps: Steps from one checkpoint to the next; the last step always
      has one.
    keep: How many of the newest checkpoints are kept; None keeps all.
  """

  every_steps: int = schema.option(100, schema.integer(1))
  keep: int | None = schema.option(2, schema.optional(schema.integer(1)))


# What a config has beside `data`.
SECTIONS: dict[str, type] = {
  "model": decoder_lib.DecoderConfig,
  "optimizer": training.OptimizerOptions,
  "train": TrainOptions,
  "checkpoint": CheckpointOptions,
  "evaluation": held_out.EvaluationOptions,
}


@dataclasses.dataclass(frozen=True)
class RunOptions:
  """A whole run, checked.

  Attributes:
    pipe: Its input.
    num_steps: Its steps.
    model: The decoder.
    optimizer: The optimizer.
    train: The loop.
    checkpoint: The checkpoints.
    evaluation: What is measured beside the loss.
  """

  pipe: pipeline.Pipeline
  num_steps: int
  model: decoder_lib.DecoderConfig
  optimizer: training.OptimizerOptions
  train: TrainOptions
  checkpoint: CheckpointOptions
  evaluation: held_out.EvaluationOptions

  def record(self) -> dict[str, Any]:
    """Returns what a checkpoint says of its run, as JSON values."""
    return {
      "model": dataclasses.asdict(self.model),
      "optimizer": dataclasses.asdict(self.optimizer),
      "num_steps": self.num_steps,
      "seed": self.train.seed,
    }


def read(config: Any) -> RunOptions:
  """Checks a whole config, its data included.

  Args:
    config: A ConfigDict or a mapping with the sections `data`, `model`,
      `optimizer`, `train`, `checkpoint` and `evaluation`; all but `data` may be
      absent.

  Returns:
    The run.

  Raises:
    ConfigError: If fields are wrong; all of them are listed.
    StoreError: If a store cannot be opened.
  """
  config = config.to_dict() if hasattr(config, "to_dict") else config
  problems: list[str] = []
  pipe = build_input(config, problems)
  if pipe is not None and (wrong := _kind_problems(pipe)):
    problems += wrong
    pipe = None
  # Sizes that the input knows; 1 stands in where the input is wrong.
  sizes = {
    "vocab_size": pipe.vocab_size if pipe else 1,
    "max_positions": pipe.seq_len if pipe else 1,
  }
  parts = read_sections(config, SECTIONS, problems, {"model": sizes})
  if parts["model"]:
    problems += parts["model"].problems("config.model")
  if pipe and parts["model"] and parts["train"]:
    problems += _input_problems(pipe, parts["model"])
    problems += step_problems(pipe, parts["train"].num_steps)
  if problems or pipe is None:
    raise schema.ConfigError(problems)
  num_steps = parts["train"].num_steps or pipe.num_steps
  return RunOptions(pipe=pipe, num_steps=int(num_steps or 0), **parts)


def build_input(
  config: Mapping[str, Any], problems: list[str]
) -> pipeline.Pipeline | None:
  """Returns the input of a config, or None and adds what is wrong with it.

  Raises:
    StoreError: If a store cannot be opened.
  """
  try:
    return pipeline.build(config.get("data"))
  except schema.ConfigError as error:
    problems += error.problems
    return None


def read_sections(
  config: Mapping[str, Any],
  sections: Mapping[str, type],
  problems: list[str],
  defaults: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
  """Reads what a config has beside `data`.

  Args:
    config: The sections by name; those that are absent have their defaults.
    sections: The class of each section.
    problems: Gets what is wrong, unknown sections too.
    defaults: Values of fields that are not set, by section.

  Returns:
    The options of each section, None where they are wrong.
  """
  known = ("data", *sections)
  problems += [
    schema.unknown_key("config", str(name), known)
    for name in config
    if name not in known
  ]
  parts = {}
  for name, cls in sections.items():
    section = config.get(name) or {}
    if isinstance(section, Mapping):
      section = {**(defaults or {}).get(name, {}), **section}
    parts[name], wrong = schema.read(cls, section, f"config.{name}")
    problems += wrong
  return parts


def _kind_problems(pipe: pipeline.Pipeline) -> list[str]:
  """Returns what the decoder cannot be trained on."""
  if not pipe.sources:
    return [
      "`config.data.buckets.kind` must be 'length' for the reference trainer,"
      " whose decoder reads tokens, got 'resolution'. Train on arrays with"
      " examples/train_buckets.py."
    ]
  problems = [
    f"`config.data.sources.{name}` must be documents for the reference"
    " trainer, whose loss trains on all answers alike, got preference pairs."
    " Train with examples/dpo.py."
    for name, source in pipe.sources.items()
    if source.store.opened.pairs
  ]
  layout = pipe.run_options.sequence_layout
  if layout is not None and not layout.is_contiguous:
    problems.append(
      "`config.data.sequence_layout.kind` must be 'contiguous' for the"
      " reference trainer, whose decoder reads columns in order, got"
      f" {layout.kind!r}. Unset the section."
    )
  if pipe.run_options.data.batch_format != "canonical":
    problems.append(
      "`config.data.batch_format` must be 'canonical' for the reference"
      f" trainer, got {pipe.run_options.data.batch_format!r}. Unset it."
    )
  return problems


def _input_problems(
  pipe: pipeline.Pipeline, model: decoder_lib.DecoderConfig
) -> list[str]:
  """Returns where the model is too small for the input."""
  longest = "`config.data.seq_len`"
  if pipe.run_options.kind != "rows":
    longest = "the longest of `config.data.buckets.lengths`"
  return [
    f"`config.model.{name}` must be at least {what}, got {value} < {least}."
    " Raise it, or leave it out."
    for name, least, what in (
      ("vocab_size", pipe.vocab_size, "the stores' vocabulary"),
      ("max_positions", pipe.seq_len, longest),
    )
    if (value := getattr(model, name)) < least
  ]


def step_problems(pipe: pipeline.Pipeline, num_steps: int | None) -> list[str]:
  """Returns where the input has too few steps; logs what they leave out."""
  if num_steps is None:
    return [
      "`config.train.num_steps` must be set where the input is endless, got"
      " None. Set it, or `config.data.epochs`."
    ] * (pipe.num_steps is None)
  if pipe.num_steps is not None and num_steps > pipe.num_steps:
    return [
      "`config.train.num_steps` must be at most the input's steps, got"
      f" {num_steps} > {pipe.num_steps}. Lower it, or raise"
      " `config.data.epochs`."
    ]
  questions, max_epochs = pipe.accounts.questions, pipe.run_options.max_epochs
  for line in [
    *questions.unserved(num_steps),
    *questions.repeat_warnings(num_steps, max_epochs),
  ]:
    logging.warning("%s", line)
  return []
