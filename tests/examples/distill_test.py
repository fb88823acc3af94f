# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The student learns the teacher from columns alone."""

import re

import pytest

from tests import in_process


@pytest.mark.slow
def test_a_student_comes_close_to_its_teacher(tmp_path):
  done = in_process.run_tool(
    "examples/distill.py", f"--workdir={tmp_path}", "--steps=150"
  )
  assert not done.returncode, done.stderr[-3000:]
  first, last = map(
    float, re.search(r"teacher ([\d.]+) -> ([\d.]+)", done.stdout).groups()
  )
  assert first > 1.5
  assert last < 0.15
