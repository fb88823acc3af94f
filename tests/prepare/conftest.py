# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Corpora for the tests of prepare."""

import json
import pathlib

import pytest

from chomp_data.prepare import run

TEXTS = {
  "b.txt": "second file\n",
  "a.txt": "première ligne\nzweite Zeile\n",
  "empty.txt": "",
  "deep/er/c.txt": "日本語 🎉",
  "deep/.hidden": "never read",
  "lines.jsonl": "",
}


@pytest.fixture
def corpus(tmp_path):
  """A directory of text files and JSONL, as a path."""
  root = tmp_path / "corpus"
  for name, text in TEXTS.items():
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
  lines = [
    {"text": "one"},
    {"text": "two", "id": "the second"},
    {"text": "", "id": 3},
    {"text": "four", "id": 4, "more": [1]},
  ]
  (root / "lines.jsonl").write_text(
    "\n".join(map(json.dumps, lines)) + "\n\n" + '{"text": "no newline"}'
  )
  return root


@pytest.fixture
def prepare(tmp_path):
  """Prepares a store with small shards, so that there are several parts."""

  def call(*inputs, output="out", report=lambda _: None, **changes):
    options = {"shard_bytes": 64, "chunk": 32, **changes}
    return run.prepare(
      run.Options(
        inputs=tuple(map(str, inputs)),
        output=str(pathlib.Path(tmp_path, output)),
        **options,
      ),
      report,
    )

  return call
