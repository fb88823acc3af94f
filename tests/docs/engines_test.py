"""The commands of docs/engines.md: ours parse, and Beam knows its flags."""

import pathlib
import re
import shlex

import pytest

from chomp_data.prepare import engines

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "engines.md"


def commands():
  text = PAGE.read_text().replace("\\\n", " ")
  return [
    shlex.split(line)[1:]
    for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    for line in block.splitlines()
    if line.startswith("chomp-prepare")
  ]


def test_flags_before_the_dashes_are_those_of_the_command():
  from chomp_data.commands import prepare

  names = set(prepare.flags.FLAGS)
  assert len(commands()) == 5
  for command in commands():
    own = command[: command.index("--")] if "--" in command else command
    assert {flag.partition("=")[0][2:] for flag in own} <= names, command
  engine = {f.partition("=")[2] for c in commands() for f in c if "engine" in f}
  assert engine <= set(engines.ENGINES)


def test_flags_after_the_dashes_are_those_of_beam(tmp_path):
  pytest.importorskip("apache_beam", reason="make test-beam runs it")
  found = [c[c.index("--") + 1 :] for c in commands() if "--" in c]
  assert len(found) == 3
  for flags in found:
    engines.ENGINES["beam"](2, flags, tmp_path)
