# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The profiles reach every law."""

import ast
import pathlib

import hypothesis
import pytest

from tests import laws

ROOT = pathlib.Path(__file__).parent


def test_no_law_fixes_how_many_examples_it_is_tried_on():
  fixed = []
  for path in sorted(ROOT.rglob("*.py")):
    if path.name in ("laws.py", "conftest.py"):
      continue
    text = path.read_text()
    if "max_examples" not in text:
      continue  # Parsing takes long.
    for node in ast.walk(ast.parse(text)):
      if isinstance(node, ast.keyword) and node.arg == "max_examples":
        fixed.append(f"{path.relative_to(ROOT)}:{node.value.lineno}")
  assert not fixed, f"use laws.examples, which the profiles lengthen: {fixed}"


@pytest.mark.parametrize(
  ("profile", "factor"),
  [("quick", 0.25), ("default", 1), ("full", 10), ("nightly", 50)],
)
def test_a_profile_multiplies_the_examples_of_a_law(profile, factor):
  before = hypothesis.settings.get_current_profile_name()
  hypothesis.settings.load_profile(profile)
  try:
    assert laws.examples(60).max_examples == 60 * factor
    # Of a law that says nothing.
    assert hypothesis.settings().max_examples == 100 * factor
    own = laws.examples(1, suppress_health_check=[])
    assert own.max_examples == max(1, int(factor))
    assert own.deadline is None
  finally:
    hypothesis.settings.load_profile(before)
