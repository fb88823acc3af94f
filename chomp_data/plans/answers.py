# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The answers to questions about a plan, of either kind."""

from chomp_data.plans import batches_plan
from chomp_data.plans import batches_questions
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
