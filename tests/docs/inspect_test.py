"""The commands of docs/inspect.md run, on a store of the name they give."""

import json
import pathlib
import re
import shlex

import pytest

from chomp_data.audit import job
from tests import in_process

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "inspect.md").read_text()
COMMANDS = [
  line
  for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
  for line in block.splitlines()
]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_runs(line, stdlib_store, tmp_path):
  (tmp_path / "runs" / "packed").mkdir(parents=True)
  with job.Report(str(tmp_path / "runs" / "packed")) as report:
    report.at(7)
  command, *flags = shlex.split(line)
  assert command == "chomp-inspect"
  flags = [
    re.sub(r"^(--(?:html|follow)=)", rf"\1{tmp_path}/", f) for f in flags
  ]
  done = in_process.run_tool(
    "inspect_batches",
    *flags,
    f"--config.data.sources.stdlib.store={stdlib_store}",
    check=True,
  )
  if "--format=json" in flags:
    rows = [json.loads(row) for row in done.stdout.splitlines()]
    assert all(f'"{name}"' in PAGE for name in rows[0])
    assert all(f'"{name}"' in PAGE for name in rows[0]["spans"][0])
  for flag in flags:
    if flag.startswith("--html="):
      assert pathlib.Path(flag.removeprefix("--html=")).stat().st_size > 10_000
