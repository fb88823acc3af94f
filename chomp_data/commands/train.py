# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Trains the reference decoder on a config's input; resumes when run again.

    %s --config=splice_multi --workdir=runs/x
    %s --config=... --workdir=... --config.train.num_steps=50

Each Orbax checkpoint holds model and input, so a killed run continues with the
next batch. --restore_step=N continues from an older checkpoint, and --fall_back
skips damaged ones. SIGTERM and Ctrl-C save a checkpoint first (a second signal
does not) and exit with 143 and 130. On several hosts, start it once per host
with --distributed.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import json
import math
import os
import signal
import socket
import time
from typing import Any

from absl import app
from absl import flags
from absl import logging
from etils import epath
import jax
from jax.experimental import multihost_utils
import orbax.checkpoint as ocp

import chomp_data
from chomp_data import cli
from chomp_data import iterators
from chomp_data import schema
from chomp_data.audit import coverage
from chomp_data.audit import job
from chomp_data.integrations import prometheus
from chomp_data.loading import certificate
from chomp_data.loading import checkpoint
from chomp_data.loading import reads
from chomp_data.loading import saved_states
from chomp_data.loading import state as state_lib
from chomp_data.reference import curves
from chomp_data.reference import evaluation
from chomp_data.reference import held_out
from chomp_data.reference import report
from chomp_data.reference import span_losses
from chomp_data.reference import train_options
from chomp_data.reference import training
from chomp_data.reference import window_log
from chomp_data.reference import workdir as workdir_lib
from chomp_data.splice import source as splice_source
from chomp_data.storage import opening
from chomp_data.testing import batch_hashes

_CONFIG = cli.define_config()
_WORKDIR = cli.define_workdir(
  "Directory or URL of checkpoints and metrics.json."
)
_BATCH_HASHES = cli.define_text(
  "batch_hashes",
  None,
  "A file to which one JSON line {step, sha256} per step is written.",
)
_DATASET_MIX = cli.define_dataset_mix()
_ALLOW_INPUT_CHANGE = flags.DEFINE_multi_string(
  "allow_input_change",
  [],
  "A field of config.data that may differ from the checkpoint; with"
  " global_batch_size the run continues at the same row.",
)
_METRICS_PORT = flags.DEFINE_integer(
  "metrics_port",
  None,
  "Serve Prometheus metrics on this port (process i on port + i), on all"
  " interfaces; 0 is any free port, which is logged.",
  0,
  65_535,
)
_RESTORE_STEP = flags.DEFINE_integer(
  "restore_step",
  None,
  "Continue from the checkpoint of this step instead of the newest. Later ones"
  " are moved aside when the run saves its first checkpoint.",
  0,
)
_FALL_BACK = flags.DEFINE_bool(
  "fall_back",
  False,
  "If the checkpoint is damaged, continue from the newest intact one.",
)
_DISTRIBUTED = flags.DEFINE_bool(
  "distributed",
  False,
  "Run in several processes; addresses come from the cluster.",
)
_COORDINATOR = cli.define_text(
  "coordinator_address", None, "host:port of process 0; implies --distributed."
)
_NUM_PROCESSES = flags.DEFINE_integer(
  "num_processes", None, "Number of processes, if no cluster sets it.", 1
)
_PROCESS_ID = flags.DEFINE_integer(
  "process_id",
  None,
  "Number of this process, from 0, if no cluster sets it.",
  0,
)

# Both save first; a second one ends the run at once.
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


# Of the curves, what Prometheus is told.
_METRICS = ("train/loss", "train/tokens_per_second", "train/wait_share")

# What a run goes on writing.
_FILES = ("metrics.json", curves.FILE)
_REPORT = "report.txt"


class Run:
  """One run: its trainer, input and checkpoints."""

  def __init__(self, options: train_options.RunOptions, workdir: str):
    """Prepares; nothing is read or compiled.

    Args:
      options: The run.
      workdir: A directory or URL.
    """
    self.options: train_options.RunOptions = options
    self.trainer: training.Trainer = training.Trainer(
      options.model,
      options.optimizer,
      num_steps=options.num_steps,
      mesh=training.data_mesh(),
      parameter_sharding=options.train.parameter_sharding,
    )
    self.input: iterators.InputIterator = chomp_data.make_iterator(
      options.pipe, self.trainer.batch_sharding
    )
    self.run_directory: workdir_lib.Workdir = workdir_lib.Workdir(
      workdir, options.checkpoint.keep, files=_FILES
    )
    self.workdir: epath.Path = self.run_directory.directory
    writes = jax.process_index() == 0
    self.curves: curves.Curves = curves.Curves(
      os.fspath(self.workdir) if writes else None
    )
    self.metrics: prometheus.Metrics = prometheus.Metrics(self.input)
    self._watch(options.pipe)
    self.last_window: window_log.Window | None = None
    self.stopped_by: signal.Signals | None = None
    # What inspect_batches --follow reads.
    self.job: job.Report = job.Report(self.run_directory.path, writes=writes)

  def _watch(self, pipe: chomp_data.Pipeline) -> None:
    """Makes what logs and evaluates a run; it is of the run's pipeline."""
    self.pipe: chomp_data.Pipeline = pipe
    self.log: window_log.WindowLog = window_log.WindowLog(pipe)
    self.span_losses: span_losses.Writer = span_losses.Writer(
      pipe,
      opening.open_storage(self.run_directory.path),
      jax.process_index() == 0 and self.options.train.span_losses,
    )
    self.evaluation: held_out.Evaluation = held_out.Evaluation(
      pipe, self.options.evaluation, self.trainer.batch_sharding
    )

  def restore_or_init(self) -> training.TrainState:
    """Returns a checkpoint's state, or a new run's.

    Raises:
      ConfigError: If the checkpoint holds another model.
      StateError: If it is damaged, or of another input.
    """
    manager = self.run_directory.manager
    step = self.run_directory.choose(_RESTORE_STEP.value, _FALL_BACK.value)
    if step is None:
      self.input.start_prefetch()
      logging.info("starting at step 0")
      return self.trainer.init(self.options.train.seed)
    # The input first: it names what differs by the fields of config.data.
    saved = manager.restore(
      step,
      args=ocp.args.Composite(
        run=ocp.args.JsonRestore(),
        input=checkpoint.InputRestore(
          self.input, tuple(_ALLOW_INPUT_CHANGE.value), step=step
        ),
      ),
    )
    if self.input.pipeline is not self.pipe:
      self._watch(self.input.pipeline)
    # A store that joins later than at the start makes epochs of other sizes.
    most = self.pipe.num_steps
    if most is not None and most < self.options.num_steps:
      self.options = dataclasses.replace(self.options, num_steps=most)
    self._check_same_run(saved["run"])
    try:
      restored = manager.restore(
        step,
        args=ocp.args.Composite(
          model=ocp.args.StandardRestore(self.trainer.abstract_state())
        ),
      )
    except Exception as error:
      # Of a checkpoint that has no checksums of its files.
      problem = f"a model that Orbax cannot restore ({error!r:.500})"
      raise self.run_directory.damaged(step, problem) from error
    logging.info("resumed at step %d", step)
    return restored["model"]

  def save(self, step: int, state: training.TrainState) -> None:
    """Starts to write a checkpoint, unless the step has one."""
    self.span_losses.flush()
    self.run_directory.save(
      step,
      state,
      input=checkpoint.InputSave(self.input),
      run=ocp.args.JsonSave(self.options.record()),
    )

  def train(
    self,
    state: training.TrainState,
    stopping: Callable[[int], bool],
    hashes: Any,
  ) -> training.TrainState:
    """Takes the steps that are left, or stops early with a checkpoint.

    Args:
      state: The state at the input's step.
      stopping: Whether to stop after a step.
      hashes: A file for --batch_hashes, or None.

    Returns:
      The state; `input.step` says how far it is.
    """
    options, total = self.options.train, self.options.num_steps
    first = self.input.step
    shapes: set[tuple[int, ...]] = set()
    for part in (self.log, self.curves, self.span_losses):
      part.begin(first)
    self.job.at(first)
    while (step := self.input.step) < total:
      batch = next(self.input)
      if not shapes:
        # For the first batch workers start and rows are packed.
        waited = self.input.waits.seconds
        self.log.leave_out(waited, waited)
      if hashes is not None:
        _write_hash(hashes, step, batch)
      began = time.perf_counter()
      state, metrics = self.trainer.step(state, batch)
      shape = batch["tokens"].shape
      if shape not in shapes:
        # Each bucket has one shape, and its first batch compiles: the call
        # returns when that is done, before the step is.
        seconds = time.perf_counter() - began
        self.log.leave_out(seconds)
        logging.info(
          "step %d: compiled for batches of shape %s in %.1f s",
          step,
          shape,
          seconds,
        )
      shapes.add(shape)
      self.span_losses.add(
        self.log.add(metrics, math.prod(shape), self.input.shards)
      )
      step += 1
      self.job.at(step)
      stop = stopping(step)
      saves = step % self.options.checkpoint.every_steps == 0
      logs = step % options.log_every_steps == 0
      if stop or saves or logs or step == total:
        self.span_losses.add(self.log.flush())
      if stop or saves or step == total:
        self.save(step, state)
      if logs or step == total:
        self._log_window(step)
      if self.options.evaluation.is_due(step, total):
        began = time.perf_counter()
        self._evaluate(step, state)
        self.log.leave_out(time.perf_counter() - began)
      if step % options.document_loss_every_steps == 0 and step < total:
        lines = report.document_lines(self.pipe, self.log.take_documents())
        _log_lines(f"loss by document up to step {step}", lines)
      if stop:
        break
    self.run_directory.finish()
    return state

  def finish(self, state: training.TrainState) -> None:
    """Evaluates, and reports for people and for programs."""
    # More than num_steps where the checkpoint is of a longer run.
    step = self.input.step
    model = self.trainer.model(state)
    scores = {
      name: evaluation.score(
        model,
        evaluation.batches_of(
          splice_source.validation_of(source), self.pipe.global_batch_size
        ),
        self.trainer.batch_sharding,
      )
      for name, source in self.pipe.sources.items()
    }
    if jax.process_index() != 0:
      return
    losses = self.log.take_documents()
    read = coverage.coverage(self.pipe, step)
    window = self.last_window or self.log.take(step)
    history = report.points(os.fspath(self.workdir))
    sources = report.sources(self.pipe, window.sources, read, history)
    pictured = report.draw(
      os.fspath(self.workdir / report.PICTURE), sources, history
    )
    saved = saved_states.find(os.fspath(self.workdir)) or {}
    values = {
      "step": step,
      "evaluation": {
        name: {"validation grid": score.record()}
        for name, score in scores.items()
      },
      "coverage_entropy": {one.source: one.entropy for one in read},
      certificate.FIELD: certificate.records(certificate.of_state(saved)),
    }
    if self.last_window is not None:
      values |= window.record()
      values["loss_by_document"] = report.document_records(self.pipe, losses)
    report.write_json(self.workdir / "metrics.json", values)
    lines = [coverage.report(self.pipe, read), *reads.lines(self.input.reads)]
    if losses:
      texts = report.document_lines(self.pipe, losses)
      lines.append("\n  ".join(["loss by document, latest steps", *texts]))
    (self.workdir / _REPORT).write_text("\n".join([*lines, ""]))
    self.run_directory.finish()
    place = self.run_directory.path
    print(
      f"Trained {_counted(step, 'step')}.",
      *report.lines(sources, history),
      *([f"Picture: {place}/{report.PICTURE}"] * pictured),
      f"Documents: {place}/{_REPORT}; as JSON: {place}/metrics.json",
      sep="\n",
    )

  def _check_same_run(self, saved: dict[str, Any]) -> None:
    changed = state_lib.differences(saved, self.options.record())
    model = [line for line in changed if line.startswith("model.")]
    if model:
      raise schema.ConfigError(
        [
          f"`config.{line}. Use the model that"
          f" {self.run_directory.checkpoints} holds, or another --workdir."
          for line in (
            line.replace(":", "` must not change:", 1) for line in model
          )
        ]
      )
    for line in changed:
      logging.warning("the checkpoint's run was another: %s", line)

  def _log_window(self, step: int) -> None:
    if not self.log.steps:
      return
    window = self.log.take(step, self.input.waits.seconds)
    self.last_window = window
    logging.info("step %d/%d: %s", step, self.options.num_steps, window)
    points = window.curves(self.input)
    self.curves.add(step, points)
    self.metrics.tell({name: points[name] for name in _METRICS}, window.sources)
    lines = window.bucket_lines()
    if self.pipe.accounts.questions.stages:
      lines = window_log.source_table(window.sources) + lines
    _log_lines(f"by source up to step {step}", lines)

  def _evaluate(self, step: int, state: training.TrainState) -> None:
    points = self.evaluation.measure(self.trainer.model(state))
    self.curves.add(step, points)
    shown = [f"{name} {value:.4f}" for name, value in points.items()]
    _log_lines(f"evaluation at step {step}", shown)


def _log_lines(title: str, lines: Iterable[str]) -> None:
  """Logs lines below a title where there are any, on process 0."""
  texts = list(lines)
  if texts and jax.process_index() == 0:
    logging.info("%s", "\n  ".join([f"{title}:", *texts]))


def _counted(count: int, noun: str, ending: str = "s") -> str:
  return f"{count} {noun}{'' if count == 1 else ending}"


def _append_lines(path: str):
  """Opens a file of lines to append; a line that a kill cut short goes."""
  with open(path, "a+b") as file:
    file.seek(0)
    file.truncate(file.read().rfind(b"\n") + 1)
  return open(path, "a")


def _write_hash(file, step: int, batch) -> None:
  if jax.process_count() > 1:
    batch = multihost_utils.process_allgather(batch, tiled=True)
  if jax.process_index() == 0:
    line = {"step": step, "sha256": batch_hashes.batch_sha256(batch)}
    file.write(json.dumps(line) + "\n")
    file.flush()


@contextlib.contextmanager
def _stop_on_signals(run: Run) -> Iterator[Callable[[int], bool]]:
  """Yields whether a step is the last one before a preemption."""
  if jax.process_count() > 1:
    # All processes must stop after the same step: JAX agrees on one.
    yield run.run_directory.manager.reached_preemption
    return
  before = {number: signal.getsignal(number) for number in _STOP_SIGNALS}

  def restore() -> None:
    for number, handler in before.items():
      signal.signal(number, handler)

  def stop(number: int, _: object) -> None:
    run.stopped_by = signal.Signals(number)
    restore()

  for number in _STOP_SIGNALS:
    signal.signal(number, stop)
  try:
    yield lambda step: run.stopped_by is not None
  finally:
    restore()


def train(options: train_options.RunOptions, workdir: str) -> int:
  """Runs what is left of a run; returns the exit status."""
  run = Run(options, workdir)
  logging.info("%s", run.pipe.describe())
  logging.info(
    "model: %s parameters on %s of %s (%s)",
    f"{run.trainer.num_parameters:,}",
    _counted(jax.device_count(), "device"),
    _counted(jax.process_count(), "process", "es"),
    jax.default_backend(),
  )
  with contextlib.ExitStack() as stack:
    stack.callback(run.run_directory.close)
    stack.callback(run.curves.close)
    stack.callback(run.metrics.close)
    # It tells other processes of an error here.
    stack.enter_context(run.input)
    stack.enter_context(run.job)
    if _METRICS_PORT.value is not None:
      logging.info(
        "metrics for Prometheus at http://%s:%d/metrics",
        socket.gethostname(),
        run.metrics.serve(_METRICS_PORT.value),
      )
    stopping = stack.enter_context(_stop_on_signals(run))
    hashes = None
    if _BATCH_HASHES.value:
      hashes = stack.enter_context(_append_lines(_BATCH_HASHES.value))
    state = run.restore_or_init()
    run.job.input = state_lib.digest(run.pipe.fingerprint)
    options = run.options
    if run.input.step >= options.num_steps:
      logging.info(
        "the run was finished before, at step %d (config.train.num_steps is"
        " %d; set more to train on): evaluating",
        run.input.step,
        options.num_steps,
      )
    state = run.train(state, stopping, hashes)
    if run.input.step < options.num_steps:
      # What a shell reports of a process that the signal ended.
      number = run.stopped_by or signal.SIGTERM
      run.job.status = "stopped"
      logging.info(
        "stopped by %s at step %d, saved; the same command resumes",
        number.name,
        run.input.step,
      )
      return 128 + number
    run.finish(state)
  logging.info(
    "finished %s; compiled %s",
    _counted(run.input.step, "step"),
    _counted(run.trainer.num_compiled, "shape"),
  )
  return 0


def main(argv: Sequence[str]) -> int:
  """Trains."""
  cli.refuse_arguments(argv[1:])
  workdir = _WORKDIR.value
  if not workdir:
    raise app.UsageError(
      "`--workdir` must be given: checkpoints and metrics go there."
    )
  config = cli.config(_CONFIG, _DATASET_MIX, train_options.SECTIONS)
  cli.output_file(_BATCH_HASHES)
  cli.log_project_messages(__file__)
  if _DISTRIBUTED.value or _COORDINATOR.value:
    jax.distributed.initialize(
      _COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value
    )
  return train(train_options.read(config), workdir)
