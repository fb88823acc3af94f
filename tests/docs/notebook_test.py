# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The tutorial notebook runs, and holds the outputs of a run."""

import json
import re

import pytest

from tests.docs import notebook
from tests.docs import pages

# What a reader downloads, with its pictures.
MAX_BYTES = 300_000


def cells(content):
  return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def kinds(cell):
  return [output["output_type"] for output in cell["outputs"]]


def printed(content):
  texts = [
    "".join(output["text"])
    for cell in cells(content)
    for output in cell["outputs"]
    if "text" in output
  ]
  return "\n".join(texts)


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_it_says(tmp_path):
  content = notebook.executed(tmp_path)
  saved = json.loads(notebook.NOTEBOOK.read_text())
  for cell, saved_cell in zip(cells(content), cells(saved), strict=True):
    assert kinds(cell) == kinds(saved_cell), cell["source"]
  text = printed(content)
  assert "steps 20 to 24 are the same on both meshes" in text
  (share,) = re.findall(r"\{'docstrings': ([\d.]+), 'functions'", text)
  assert float(share) == pytest.approx(0.5, abs=0.05)
  assert (tmp_path / "notebook" / "step.html").stat().st_size > 10_000


def test_the_notebook_is_small_and_its_outputs_are_of_one_run():
  assert notebook.NOTEBOOK.stat().st_size < MAX_BYTES
  content = json.loads(notebook.NOTEBOOK.read_text())
  counts = [cell["execution_count"] for cell in cells(content)]
  assert counts == list(range(1, len(counts) + 1)), (
    "run python -m tests.docs.notebook"
  )
  pictures = [kind for cell in cells(content) for kind in kinds(cell)]
  assert pictures.count("display_data") == 2
  assert "Error" not in printed(content)


def test_links_of_the_notebook_lead_to_pages():
  content = json.loads(notebook.NOTEBOOK.read_text())
  for cell in content["cells"]:
    for link in re.findall(r"\]\((\w+\.md)", "".join(cell["source"])):
      assert (pages.DOCS / link).exists(), link
