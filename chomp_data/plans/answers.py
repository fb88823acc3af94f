# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The answers to questions about a plan, of either kind."""

from collections.abc import Mapping

from chomp_data.mix import mix_options
from chomp_data.mix import mixture
from chomp_data.plans import batches_plan
from chomp_data.plans import batches_questions
from chomp_data.plans import consumption
from chomp_data.plans import plan as plan_lib
from chomp_data.plans import questions
from chomp_data.plans import rows_plan
from chomp_data.plans import rows_questions


def of(plan: plan_lib.Plan) -> questions.Questions:
  """Returns what answers questions about a plan."""
  if isinstance(plan, rows_plan.RowsPlan):
    return rows_questions.RowsQuestions(plan)
  assert isinstance(plan, batches_plan.BatchesPlan)
  return batches_questions.BatchesQuestions(plan)


def repeats(
  plan: plan_lib.Plan, num_steps: int, max_epochs: Mapping[str, int | None]
) -> list[str]:
  """Returns a sentence for each source that is repeated more than intended.

  Args:
    plan: The run.
    num_steps: At most the number of steps of the run.
    max_epochs: The configured passes by source; None if without end.

  Returns:
    Sentences; none if to compute them takes long.
  """
  rows = plan.steps.first_row(plan.steps.data_step(num_steps))
  mix = plan.mix
  # Places of batches are computed from whole epochs.
  if isinstance(mix, mixture.MixtureSource) and mix.is_long(rows):
    return []
  lines = []
  for name, count in consumption.by_source(
    consumption.consumed(plan, num_steps)
  ).items():
    passes = of(plan).passes(name, count)
    if passes > max(mix_options.MANY_PASSES, max_epochs[name] or 1):
      lines.append(
        f"{num_steps} steps give source {name!r} {passes:.1f} times over."
        " Take fewer steps, lower its weight, or add data."
      )
  return lines
