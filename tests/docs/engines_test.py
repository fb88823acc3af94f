# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Beam knows the flags of docs/prepare.md, and runs its local command."""

import json

import pytest

from chomp_data import stores
from chomp_data.prepare import engines
from tests.docs import pages

pytest.importorskip("apache_beam", reason="make test-beam runs it")


def commands():
  return [
    line
    for block in pages.blocks("prepare.md", "sh")
    for line in pages.lines(block.text)
    if "--engine=beam" in line
  ]


def test_flags_after_the_dashes_are_those_of_beam(tmp_path):
  found = [own.split(" -- ")[1].split() for own in commands() if " -- " in own]
  assert len(found) == 3
  for flags in found:
    engines.ENGINES["beam"](2, flags, tmp_path)


def test_the_local_command_runs(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "corpus").mkdir()
  text = json.dumps({"text": "some text"})
  (tmp_path / "corpus" / "0.jsonl").write_text(text)
  (own,) = [own for own in commands() if " -- " not in own]
  pages.run_line(own)
  assert stores.open_store("data/corpus").num_documents == 1
