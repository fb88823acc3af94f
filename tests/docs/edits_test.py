"""The block of docs/edits.md runs, and the flags that it names are there."""

import pathlib
import re

from chomp_data.config import options
from tests import in_process

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "edits.md"


def test_its_block_runs(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
  assert len(blocks) == 1
  exec(compile(blocks[0], str(PAGE), "exec"), {})


def test_the_flags_it_names_are_there():
  text = PAGE.read_text()
  assert "--allow_input_change=global_batch_size" in text
  help_text = in_process.run_tool("train", "--help").stdout
  assert "--allow_input_change" in help_text
  known = options.known({}).options
  for name in re.findall(r"config\.data\.(\w+) =", text):
    assert name in known
