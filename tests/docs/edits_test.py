"""The block of docs/edits.md runs, and the flags that it names are there."""

import pathlib
import re

from chomp_data.commands import train
from chomp_data.config import options

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "edits.md"


def test_its_block_runs(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
  assert len(blocks) == 1
  exec(compile(blocks[0], str(PAGE), "exec"), {})


def test_the_flags_it_names_are_there():
  text = PAGE.read_text()
  assert "--allow_input_change=global_batch_size" in text
  assert train._ALLOW_INPUT_CHANGE.name == "allow_input_change"
  known = options.known({}).options
  for name in re.findall(r"config\.data\.(\w+) =", text):
    assert name in known
