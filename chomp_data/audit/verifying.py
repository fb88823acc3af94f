"""Recomputes from the plan what a run's certificate says it handed out.

Sums of stretches of steps add up, so one pass over the plan, cut where kept
checkpoints are, tells between which two of them a run and its plan parted.
"""

from collections.abc import Callable

from chomp_data import pipeline
from chomp_data.plans import certifying
from chomp_data.plans import order_sums

# Rows planned at once.
_ROWS = 4_096


def sums(
  pipe: pipeline.Pipeline,
  steps: range,
  tokens: bool = False,
  done: Callable[[int], object] = lambda count: None,
) -> certifying.Sums:
  """Returns what the plan hands out in some steps.

  Args:
    pipe: The run.
    steps: Which follow each other.
    tokens: Whether tokens, which are read, are summed too.
    done: Told how many more steps were summed.

  Raises:
    IndexError: If a step is not of the run.
  """
  plan = pipe._plan
  if steps:
    plan.check_steps(steps.start, len(steps))
  certifier = certifying.Certifier(plan)
  rows = total = values = 0
  step = steps.start
  while step < steps.stop:
    size = plan.buckets[plan.at(step)[1]].batch_size
    _, last = plan.group(step, max(1, _ROWS // size))
    own = range(step, min(last, steps.stop))
    planned = plan.planned(step, len(own))
    rows += len(own) * certifier.num_rows(planned.bucket)
    total += sum(certifier.planned(planned, own))
    if tokens:
      values += sum(certifier.values(plan.read(planned), planned, own))
    done(len(own))
    step = own.stop
  return certifying.Sums(
    rows,
    total % order_sums.MODULUS,
    values % order_sums.MODULUS if tokens else None,
  )
