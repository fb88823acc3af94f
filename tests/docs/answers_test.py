"""The commands of docs/answers.md run, on stores of the names they give."""

import json
import pathlib
import re
import shlex

import pytest

from tests import in_process

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "answers.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = [
  shlex.split(line)
  for block in BLOCKS
  for line in block.replace("\\\n", " ").splitlines()
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_of_the_page_runs(words, stdlib_store):
  command, *flags = words
  done = in_process.run_tool(
    command.removeprefix("chomp-"),
    *flags,
    f"--config.data.sources.stdlib.store={stdlib_store}",
    check=True,
  )
  if "--format=json" in flags:
    found = json.loads(done.stdout)
    assert all(f"`{name}`" in PAGE for name in found)
