"""Tools end in one clear line, whatever is wrong with flags or config."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
CONFIG = f"--config={ROOT}/configs/splice_multi.py:runlocal"


@pytest.mark.parametrize("tool", ["train", "inspect_batches"])
@pytest.mark.parametrize(
  ("flags", "message"),
  [
    (["--config=configs/nope.py"], "configs/nope.py"),
    ([CONFIG, "--config.data.sources.stdlib.rows.alfa=0.5"], "rows.alfa"),
    ([CONFIG, "--config.data.seq_len=long"], "seq_len"),
    (
      [CONFIG, "--config.data.sources.stdlib.store=/no/store"],
      "error: config.data.sources.stdlib.store: /no/store must be a directory",
    ),
    ([CONFIG, "surplus"], "surplus"),
    (
      [CONFIG, "--dataset_mix=data/a:0.9, data/b:0.1"],
      "separated by spaces only",
    ),
  ],
)
def test_a_bad_flag_is_an_error_without_a_traceback(
  tool, flags, message, tmp_path
):
  workdir = [f"--workdir={tmp_path}"] if tool == "train" else []
  ran = subprocess.run(
    [sys.executable, str(ROOT / "tools" / f"{tool}.py"), *flags, *workdir],
    capture_output=True,
    text=True,
    check=False,
  )
  assert ran.returncode != 0
  assert "Traceback" not in ran.stderr
  assert message in ran.stderr


@pytest.mark.parametrize("tool", ["train", "inspect_batches", "prepare"])
def test_help_says_how_to_run_it(tool):
  ran = subprocess.run(
    [sys.executable, str(ROOT / "tools" / f"{tool}.py"), "--help"],
    capture_output=True,
    text=True,
    check=False,
  )
  assert f"python tools/{tool}.py --" in ran.stdout
