# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tools end in one clear line, whatever is wrong with flags or config."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from chomp_data import cli
from chomp_data import errors
from tests import in_process

ROOT = pathlib.Path(__file__).parents[1]
CONFIG = f"--config={ROOT}/configs/splice_multi.py:runlocal"


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
def test_a_bad_flag_is_an_error_without_a_traceback(flags, message):
  ran = in_process.run_tool("inspect_batches", *flags)
  assert ran.returncode != 0
  assert "Traceback" not in ran.stderr
  assert message in ran.stderr


@pytest.mark.parametrize(
  ("flags", "value"),
  [
    (["--config.data.global_batch_size=0x3", CONFIG], 3),
    ([CONFIG, "--config.data.global_batch_size", "3"], 3),
    ([CONFIG, "-config.data.global_batch_size=3"], 3),
    ([CONFIG, "--config.data.lookahead"], 8),
    ([CONFIG, "--config.data.lookahead", "--noconfig.data.train_on_eos"], 8),
    ([CONFIG, "--config.model.dtype=bfloat16"], 8),
  ],
)
def test_an_option_is_set_however_a_flag_is_written(
  flags, value, stdlib_store, tmp_path
):
  file = tmp_path / "flags"
  store = "--config.data.sources.stdlib.store"
  file.write_text(f"{store}={stdlib_store}\n--format=json\n")
  ran = in_process.run_tool(
    "inspect_batches", *flags, f"--flagfile={file}", check=True
  )
  assert len(ran.stdout.splitlines()) == value


def test_what_a_new_kind_leaves_out_is_told(stdlib_store):
  source = "--config.data.sources.stdlib"
  ran = in_process.run_tool(
    "inspect_batches",
    f"--config={ROOT}/configs/packed.py:runlocal",
    f"{source}.store={stdlib_store}",
    f"{source}.shuffle.kind=full",
    "--plan_only",
    check=True,
  )
  (line,) = [own for own in ran.stderr.splitlines() if "removed options" in own]
  assert f"{source}.shuffle.kind: removed options of the file" in line
  assert line.endswith("config.data.sources.stdlib.shuffle.window_blocks.")


def test_a_process_of_its_own_ends_in_the_same_line(tmp_path):
  flags = [CONFIG, "--config.data.global_batch_size=0"]
  here = in_process.run_tool("train", *flags, f"--workdir={tmp_path}")
  there = subprocess.run(
    [sys.executable, *here.args], capture_output=True, text=True
  )
  assert here.returncode == there.returncode == 1
  last = [done.stderr.strip().splitlines()[-1] for done in (here, there)]
  assert last[0] == last[1]
  assert last[0].startswith(
    "error: `--config.data.global_batch_size` must be a whole number of 1 .."
  )


@pytest.mark.parametrize("tool", ["train", "inspect_batches", "prepare"])
def test_help_says_how_to_run_it(tool):
  ran = in_process.run_tool(tool, "--help")
  assert f"tools/{tool}.py --" in ran.stdout
  assert "%s" not in ran.stdout
  if tool != "prepare":
    assert "docs/options.md" in ran.stdout


@pytest.mark.parametrize("tool", ["train", "inspect_batches"])
def test_a_config_that_comes_along_is_named_without_a_path(tool, tmp_path):
  flags = ["--config=packed:runlocal", "--config.data.sources.stdlib.store=/no"]
  flags += [f"--workdir={tmp_path}"] if tool == "train" else []
  ran = in_process.run_tool(tool, *flags)
  assert ran.returncode == 1
  assert "sources.stdlib.store: /no must be a directory" in ran.stderr


@pytest.mark.parametrize("tool", ["train", "inspect_batches"])
def test_help_and_errors_list_the_configs_that_come_along(tool, tmp_path):
  helped = in_process.run_tool(tool, "--help").stdout
  workdir = [f"--workdir={tmp_path}"] if tool == "train" else []
  refused = in_process.run_tool(tool, "--config=pakced", *workdir).stderr
  names = sorted(path.stem for path in (ROOT / "configs").glob("*.py"))
  for text in helped, refused:
    assert ", ".join(names) in " ".join(text.split())


def test_a_file_of_ones_own_comes_before_a_config_that_comes_along(tmp_path):
  own = tmp_path / "packed"
  own.write_text("def get_config():\n  raise ValueError('own')\n")
  ran = in_process.run_tool("inspect_batches", "--config=packed", cwd=tmp_path)
  assert ran.returncode == 1
  assert "its file packed raises (line 2) ValueError: own." in ran.stderr


def test_a_mix_in_one_line_needs_no_config(stdlib_store):
  mix = f"--dataset_mix=one={stdlib_store}:3 two={stdlib_store}:1"
  ran = in_process.run_tool(
    "inspect_batches",
    mix,
    "--config.data.sources.stdlib.rows.packing_buffer_docs=16",
    "--format=json",
    "--plan_only",
  )
  assert ran.returncode == 0, ran.stderr
  rows = [json.loads(line) for line in ran.stdout.splitlines()]
  assert {row["source"] for row in rows} == {"one", "two"}
  # As with the config that it is.
  given = in_process.run_tool(
    "inspect_batches", "--config=packed", *ran.args[-4:]
  )
  assert given.stdout == ran.stdout
  assert in_process.run_tool("inspect_batches").returncode != 0


def test_an_option_of_a_source_of_a_mix_says_where_its_options_are():
  done = in_process.run_tool(
    "inspect_batches",
    "--dataset_mix=there",
    "--config.data.sources.there.rows.packing_algorithm=exact",
  )
  assert done.returncode == 1
  assert "set those of `config.data.sources.stdlib`" in done.stderr


@pytest.mark.parametrize("flag", ["--help", "--helpfull"])
def test_help_is_no_failure(flag):
  assert in_process.run_tool("inspect_batches", flag).returncode == 0


def test_a_refused_state_names_flags_on_the_command_line():
  error = errors.StateError("Pass `allow_changes`.", "Pass `--allow_change`.")
  assert str(error) == "Pass `allow_changes`."
  with pytest.raises(SystemExit) as ended, cli.failures_in_one_line():
    raise error
  assert ended.value.code == "error: Pass `--allow_change`."


def test_an_option_of_the_config_as_a_flag_is_told_how_to_write_it():
  done = in_process.run_tool("inspect_batches", "--seq_len=256", check=False)
  assert done.returncode == 1
  assert "Unknown command line flag 'seq_len'" in done.stderr
  assert "write --config.data.seq_len=VALUE" in done.stderr


def test_a_mix_in_one_line_says_whose_options_it_has():
  done = in_process.run_tool("inspect_batches", "--dataset_mix=no", check=False)
  assert "other options are those of configs/packed.py" in done.stderr


def test_help_that_nobody_reads_to_the_end_is_no_error():
  reader, writer = os.pipe()
  os.close(reader)
  done = subprocess.run(
    [sys.executable, "tools/inspect_batches.py", "--help"],
    cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
  )  # fmt: skip
  os.close(writer)
  assert "Traceback" not in done.stderr
  assert "BrokenPipe" not in done.stderr
