"""The commands of docs/answers.md run, on stores of the names they give."""

import dataclasses
import json
import pathlib
import re
import shlex

import pytest

from chomp_data import stores
from chomp_data.audit import difference
from tests import in_process

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "answers.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = [
  shlex.split(line)
  for block in BLOCKS
  for line in block.replace("\\\n", " ").splitlines()
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_of_the_page_runs(words, stdlib_store, tmp_path):
  command, *flags = words
  held_out = tmp_path / "held_out"
  stores.write_store(
    held_out,
    [[5, 6, 7]],
    ids=["none of them"],
    tokenizer_info=stores.open_store(stdlib_store).tokenizer_info,
  )
  flags = [str(held_out) if own == "data/held_out" else own for own in flags]
  done = in_process.run_tool(
    command.removeprefix("chomp-"),
    *flags,
    f"--config.data.sources.stdlib.store={stdlib_store}",
  )
  assert done.returncode == ("packed:runlocal" in words)
  if "--format=json" in flags:
    for line in done.stdout.splitlines():
      assert all(f"`{name}`" in PAGE for name in json.loads(line))


def test_the_record_of_a_difference_has_the_fields_of_the_page():
  (block,) = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)
  shown = json.loads(block)
  fields = [own.name for own in dataclasses.fields(difference.Difference)]
  assert list(shown) == fields
  for own in shown["sources"]["notes"].values():
    assert list(own) == [
      field.name for field in dataclasses.fields(difference.Given)
    ]
