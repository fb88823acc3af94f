# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that a run read exactly what its plan says.

    %s --config=packed --checkpoint=runs/x
    %s --config=packed --checkpoint=runs/x --step=1000:2000 --format=json
    %s --config=packed --step=0:1000

Each checkpoint certifies, as sums of hashes, which spans were in which rows of
which steps since the run began, over all processes and resumes. This command
computes the sums again from the config's plan; it reads tokens only if the run
was set to certify them. The exit status is 0 if all steps agree; 1 if they
differ, with the two checkpoints between which they diverged; 2 if some steps
are certified by no checkpoint, or a checkpoint is damaged. Without --checkpoint
the sums of --step are printed.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import json
import sys

from absl import app
import tqdm

from chomp_data import cli
from chomp_data import errors
from chomp_data import pipeline
from chomp_data.audit import verifying
from chomp_data.loading import certificate
from chomp_data.loading import saved_states

_CONFIG = cli.define_config()
_CHECKPOINT = cli.define_text(
  "checkpoint", None, "A job's work directory, or one of its checkpoints."
)
_STEP = cli.define_step(
  ": with --checkpoint only these, as far as checkpoints lie in them"
)
_FORMAT = cli.define_format()
_DATASET_MIX = cli.define_dataset_mix()

# Exit statuses. That of an error is the last one too.
_AGREE, _DIFFER, _UNKNOWN = range(3)

# Seconds before progress is shown, and between lines of it in a log.
_SOON_S, _LOG_S = 2.0, 30.0


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], object]]:
  """Yields what is told how many more steps are done."""
  interval = 0.5 if sys.stderr.isatty() else _LOG_S
  with tqdm.tqdm(
    total=total, unit="step", delay=_SOON_S, mininterval=interval
  ) as bar:
    yield bar.update


def main(argv: Sequence[str]) -> int:
  """Prints whether they agree; returns the exit status."""
  cli.refuse_arguments(argv[1:])
  steps = None if _STEP.value is None else cli.steps_of(_STEP.value)
  directory = _CHECKPOINT.value
  if steps is None and not directory:
    raise app.UsageError("--checkpoint must be given, or --step, got neither.")
  pipe = pipeline.build(cli.config(_CONFIG, _DATASET_MIX).get("data"))
  if not directory:
    assert steps is not None
    tokens = pipe.run_options.data.certificate == "tokens"
    with _progress(len(steps)) as done:
      sums = verifying.sums(pipe, steps, tokens, done)
    segment = certificate.Segment(steps.start, steps.stop, "", sums)
    record = {k: v for k, v in segment.record().items() if k != "input"}
    print(json.dumps(record) if _FORMAT.value == "json" else segment)
    return 0
  states = saved_states.every(directory)
  if not states:
    raise errors.StateError(
      f"{directory} must hold a checkpoint of an input, got none. Give the work"
      " directory of a job, or one of its checkpoints."
    )
  with _progress(verifying.num_steps(states, steps)) as done:
    verified = verifying.verified(pipe, states, steps, done)
  if _FORMAT.value == "json":
    print(json.dumps(verified.record()))
  else:
    print(verified.line())
  if not verified.agrees:
    return _DIFFER
  return _UNKNOWN if verified.unknown else _AGREE
