"""tools/prepare.py: what it prints, and what it returns."""

import os
import pathlib
import subprocess
import sys

import pytest

from chomp_data import stores

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "prepare.py"


def call(*flags):
  return subprocess.run(
    [sys.executable, str(TOOL), *flags],
    capture_output=True,
    text=True,
  )


def test_a_run_prints_its_summary_and_a_second_one_that_it_is_done(
  corpus, tmp_path
):
  flags = [f"--input={corpus}", f"--output={tmp_path / 'out'}"]
  first = call(*flags)
  assert first.returncode == 0, first.stderr
  store = stores.open_store(tmp_path / "out")
  rows = dict(line.split(None, 1) for line in first.stdout.splitlines())
  assert rows["documents"] == "7"
  assert rows["tokens"] == f"{store.num_tokens} (uint16)"
  assert rows["hash"] == store.hash
  assert "empty documents skipped  2" in first.stdout
  assert "shortest, longest        3, 29 tokens" in first.stdout
  before = os.stat(tmp_path / "out" / "manifest.json").st_mtime_ns
  second = call(*flags, "--workers=2")
  assert second.returncode == 0
  assert second.stdout.startswith("nothing to do")
  assert os.stat(tmp_path / "out" / "manifest.json").st_mtime_ns == before


@pytest.mark.parametrize(
  ("flags", "match"),
  [
    (["--output=x"], "--input"),
    (["--input=x"], "--output"),
    (["--input=nowhere/*.txt", "--output=x"], "nowhere"),
    (["--input=x", "--output=x", "stray"], "stray"),
    (["--input=x", "--output=x", "--compression=gzip"], "gzip"),
  ],
)
def test_a_wrong_call_says_what_is_wrong(flags, match):
  done = call(*flags)
  assert done.returncode != 0
  assert match in done.stderr + done.stdout
  assert "Traceback" not in done.stderr


def test_help_explains_every_flag():
  text = call("--help").stdout
  for name in (
    "input", "exclude", "output", "tokenizer", "text_key", "id_key", "workers",
    "compression", "encoding_errors", "pad_token", "eos_token", "bos_token",
    "overwrite",
  ):  # fmt: skip
    assert f"--{name}:" in text or f"--[no]{name}:" in text


@pytest.mark.parametrize("limit", [0, 10, 40, 1_000])
def test_a_file_that_cannot_be_written_publishes_nothing(
  corpus, tmp_path, limit
):
  flags = [f"--input={corpus}", f"--output={tmp_path / 'out'}"]
  # Not by `preexec_fn`: other tests may have started threads in here.
  script = (
    "import resource, runpy, sys\n"
    f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
    "sys.argv = sys.argv[1:]\n"
    "runpy.run_path(sys.argv[0], run_name='__main__')\n"
  )
  done = subprocess.run(
    [sys.executable, "-B", "-c", script, str(TOOL), *flags],
    capture_output=True,
    text=True,
  )
  assert done.returncode == 1
  assert "File too large" in done.stderr
  assert "Traceback" not in done.stderr
  assert not (tmp_path / "out").exists()
  assert call(*flags).returncode == 0
  stores.verify_store(tmp_path / "out")
  assert sorted(os.listdir(tmp_path)) == ["corpus", "out"]
