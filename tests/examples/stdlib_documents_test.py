# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The main job: Python code to documents, stores, packed rows, a picture."""

import json

from absl import flags
import numpy as np
import pytest

from chomp_data import pipeline
from configs import python_code
from examples import stdlib_documents
from tests import in_process

_SOURCE = '''
import os

@cached
def first(x):
  """Doubles."""
  return 2 * x

class Short:
  def method(self): ...

class Long:
  """A class that is longer than the limit."""
  limit = 3

  async def work(self):
    return self.limit

if os.name:
  def left_out(): ...
'''


def test_documents_are_functions_short_classes_and_methods_of_long_ones():
  documents = list(stdlib_documents.documents(_SOURCE, class_bytes=50))
  assert documents == [
    (
      "functions",
      "first",
      '@cached\ndef first(x):\n  """Doubles."""\n  return 2 * x',
    ),
    ("classes", "Short", "class Short:\n  def method(self): ..."),
    ("methods", "Long.work", "async def work(self):\n  return self.limit"),
  ]


def test_a_library_is_written_once_a_name_and_without_what_is_no_python(
  tmp_path,
):
  library = tmp_path / "library"
  (library / "tests").mkdir(parents=True)
  (library / "tests/skipped.py").write_text("def f(): ...")
  (library / "broken.py").write_text("def f(:")
  (library / "twice.py").write_text("def f(): return 1\ndef f(): return 2\n")
  counts = stdlib_documents.write(library, tmp_path / "text", class_bytes=50)
  assert counts == {"functions": 1, "methods": 0, "classes": 0}
  lines = (tmp_path / "text/functions.jsonl").read_text().splitlines()
  assert [json.loads(line) for line in lines] == [
    {"id": "twice.py:f", "text": "def f(): return 1"}
  ]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
  """The three stores of `make train`, of a part of the library."""
  root = tmp_path_factory.mktemp("code")
  library = root / "library"
  library.mkdir()
  import email
  import pathlib

  for path in pathlib.Path(email.__file__).parent.glob("*.py"):
    (library / path.name).write_text(path.read_text())
  counts = stdlib_documents.write(library, root / "text", class_bytes=1_500)
  assert min(counts.values()) >= 10
  for kind in stdlib_documents.KINDS:
    tokenizer = (
      ["--train_tokenizer=bpe", "--vocab_size=512"]
      if kind == "functions"
      else [f"--tokenizer={root}/functions/tokenizer.json"]
    )
    in_process.run_tool(
      "prepare",
      f"--input={root}/text/{kind}.jsonl",
      f"--output={root / kind}",
      "--workers=0",
      *tokenizer,
      check=True,
    )
  return root


def test_the_main_job_packs_several_documents_in_a_row(stores):
  config = python_code.get_config()
  for name, source in config.data.sources.items():
    source.store = str(stores / name)
  pipe = pipeline.build(config.data)
  spans = pipe.plan(0, 4)
  rows = 4 * pipe.global_batch_size
  assert len(spans.document) > 2 * rows
  filled = sum((pipe.batch(step)["segment_ids"] > 0).sum() for step in range(4))
  assert filled / (rows * pipe.seq_len) > 0.9


@pytest.mark.slow
def test_the_main_job_ends_with_a_picture_and_one_screen_of_text(
  stores, tmp_path
):
  done = in_process.run_tool(
    "train",
    "--config=configs/python_code.py:runlocal",
    f"--workdir={tmp_path}",
    *(
      f"--config.data.sources.{kind}.store={stores / kind}"
      for kind in stdlib_documents.KINDS
    ),
    check=True,
  )
  lines = done.stdout.splitlines()
  assert len(lines) < 24
  assert lines[0] == "Trained 6 steps."
  rows = {line.split()[0]: line.split() for line in lines[2:5]}
  assert set(rows) == set(stdlib_documents.KINDS)
  shares = [float(row[2].rstrip("%")) for row in rows.values()]
  assert np.isclose(sum(shares), 100, atol=0.2)
  assert rows["classes"][3] == "20.00%"
  picture = (tmp_path / "summary.png").read_bytes()
  assert picture.startswith(b"\x89PNG")


@pytest.fixture(autouse=True, scope="module")
def parsed():
  """Flags of the example are defined as it is imported."""
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()
