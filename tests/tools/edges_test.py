# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What is asked wrongly of a tool is answered in one clear line."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.config import files
from chomp_data.loading import state
from chomp_data.testing import stores as testing_stores
from tests import in_process

CONFIG = """
import ml_collections
def get_config(arg=None):
  if arg:
    raise RuntimeError(f"no such {arg}")
  return ml_collections.ConfigDict({
    "data": {
      "seq_len": 16, "global_batch_size": 3, "epochs": 4,
      "sources": {"web": {
        "store": STORE,
        "rows": {"kind": "sequential", "add_eos": False},
        "shuffle": {"kind": "none"},
      }},
    },
    "model": {"num_layers": 1, "d_model": 16, "num_heads": 2, "mlp_dim": 16},
    "train": {"num_steps": 1},
  })
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  root = tmp_path_factory.mktemp("edges")
  rng = np.random.default_rng(0)
  texts = [rng.integers(2, 250, n) for n in (20, 7, 33, 5, 0, 12, 40)]
  testing_stores.make_store(
    root / "web", texts, ids=[f"w/{i}" for i in range(7)]
  )
  (root / "run.py").write_text(CONFIG.replace("STORE", repr(str(root / "web"))))
  (root / "file").write_text("")
  return root


def line_of(done, status=1):
  """The one line that a tool ends in."""
  assert done.returncode == status, done.stderr
  assert "Traceback" not in done.stderr
  (line,) = [own for own in done.stderr.splitlines() if "error" in own]
  assert line.startswith("error: ")
  assert line == done.stderr.splitlines()[-1]
  return line


def given(tool, config, tmp_path):
  """The flags without which a tool asks for something else."""
  more = {
    "train": [f"--workdir={tmp_path}/work"],
    "losses": [f"--workdir={tmp_path}", "--step=0"],
    "trace": ["--step=0"],
    "simulate": ["--steps=1"],
    "inspect_batches": [],
  }
  if tool == "diff":
    return [config, config, "--steps=1"]
  return [f"--config={config}", *more[tool]]


def saved(directory, config, step, *options):
  """A job's work directory with the checkpoint of a config's input."""
  pipe = pipeline.build(files.load_config(str(config), options).data)
  item = directory / "checkpoints" / str(step) / "input"
  item.mkdir(parents=True)
  (item / "input.json").write_bytes(state.encode(step, pipe.fingerprint, {}))
  return directory


# What is wrong: the tools that meet it and the flags of it, and what is said.
NO_STORE = ["--config.data.sources.web.store=/no/store"]
CASES = {
  "config": (
    {tool: [] for tool in ("train", "losses", "diff")},
    r"`--config` must name a config file, got .*no\.py, which is none\.",
  ),
  "store": (
    dict.fromkeys(("train", "inspect_batches", "diff"), NO_STORE),
    r"config.data.sources.web.store: /no/store must be a directory",
  ),
  "step": (
    {
      "inspect_batches": ["--step=10"],
      "trace": ["--step=10"],
      "losses": ["--step=10"],
      "simulate": ["--steps=11"],
      "diff": ["--steps=11"],
    },
    r"must be (below|at most) the (run's )?10 steps( of the longer run)?, got",
  ),
  "range": (
    {
      "inspect_batches": ["--step=9:11"],
      "losses": ["--step=9:11"],
    },
    r"`--step` must be below the run's 10 steps, got step 10. Lower it",
  ),
  "reversed": (
    {tool: ["--step=3:2"] for tool in ("inspect_batches", "losses")},
    r"--step must be A:B with A below B, got '3:2'",
  ),
  "negative": (
    {tool: ["--step=-1"] for tool in ("inspect_batches", "losses")},
    r"--step must be a step or A:B, got '-1'",
  ),
  "document": (
    {
      "inspect_batches": ["--document=web/none"],
      "trace": ["--document=web/none"],
    },
    r"`document` must be the id of a document of source 'web', got 'web/none'",
  ),
  "job": (
    {
      "inspect_batches": ["--checkpoint=EMPTY"],
      "trace": ["--checkpoint=EMPTY"],
      "simulate": ["--checkpoint=EMPTY"],
      "diff": ["EMPTY"],
    },
    r"must be .* a job or hold a checkpoint of|be a config, or hold a checkp",
  ),
  "missing job": (
    {
      "inspect_batches": ["--checkpoint=/no/job"],
      "trace": ["--checkpoint=/no/job"],
      "simulate": ["--checkpoint=/no/job"],
      "losses": ["--workdir=/no/job"],
    },
    r"the work directory of a job must exist, got /no/job. Give",
  ),
  "other job": (
    {
      "inspect_batches": ["--checkpoint=OTHER"],
      "trace": ["--checkpoint=OTHER"],
      "simulate": ["--checkpoint=OTHER"],
      "losses": ["--workdir=OTHER"],
      "diff": ["OTHER"],
    },
    r"(?s)seed: (state|checkpoint) has 5, config has 0.*Give the config",
  ),
  "other running job": (
    {"inspect_batches": ["--follow=OTHER"]},
    r"(?s)the config must be that of the job's checkpoint of step 4, got.*seed:"
    " state has 5, config has 0",
  ),
}


@pytest.mark.parametrize(
  ("case", "tool"), [(name, own) for name in CASES for own in CASES[name][0]]
)
def test_what_is_asked_wrongly_is_one_clear_error(case, tool, root, tmp_path):
  by_tool, message = CASES[case]
  config = f"{root}/no.py" if case == "config" else f"{root}/run.py"
  (tmp_path / "empty").mkdir()
  saved(tmp_path / "other", f"{root}/run.py", 4, "data.seed=5")
  more = [
    flag.replace("EMPTY", f"{tmp_path}/empty").replace(
      "OTHER", f"{tmp_path}/other"
    )
    for flag in by_tool[tool]
  ]
  flags = given(tool, config, tmp_path)
  if case in ("job", "other job") and tool == "diff":
    flags = flags[1:]
  if case == "document":
    flags = flags[:1]
  done = in_process.run_tool(tool, *flags, *more)
  assert done.returncode == (2 if tool == "diff" else 1), done.stderr
  assert done.stdout == ""
  errors = done.stderr[done.stderr.index("error: ") :]
  assert re.search(message, errors), done.stderr
  assert "Traceback" not in done.stderr
  lines = errors.splitlines()
  # Fields that differ are told a line each.
  assert len(lines) == (3 if "other" in case else 1), errors


@pytest.mark.parametrize("tool", ["train", "diff"])
def test_a_config_that_raises_says_where(tool, root, tmp_path):
  status = 2 if tool == "diff" else 1
  name = f"{root}/run.py:arg"
  line = line_of(
    in_process.run_tool(tool, *given(tool, name, tmp_path)), status
  )
  assert "`--config` must name a config file that loads, got" in line
  assert "raises (line 5) RuntimeError: no such arg. Correct it." in line
  (tmp_path / "broken.py").write_text("def get_config(:\n")
  name = f"{tmp_path}/broken.py"
  line = line_of(
    in_process.run_tool(tool, *given(tool, name, tmp_path)), status
  )
  assert "SyntaxError: invalid syntax (broken.py, line 1)" in line


@pytest.mark.parametrize(
  ("tool", "flag"),
  [
    ("inspect_batches", "html"),
    ("inspect_batches", "output"),
    ("simulate", "plot"),
    ("losses", "replay"),
    ("train", "batch_hashes"),
  ],
)
def test_a_file_that_cannot_be_written_is_told_before(
  tool, flag, root, tmp_path
):
  flags = given(tool, f"{root}/run.py", tmp_path)
  for path, fix in (
    (tmp_path / "no" / "x.png", "Make the directory"),
    (tmp_path, "Name a file in it."),
  ):
    done = in_process.run_tool(tool, *flags, f"--{flag}={path}")
    line = line_of(done)
    assert f"`--{flag}` must be a file in a directory that" in line
    assert f"got {path}. {fix}" in line
  assert not (tmp_path / "work").exists()


def test_a_work_directory_that_is_a_file_is_told(root):
  done = in_process.run_tool(
    "train", f"--config={root}/run.py", f"--workdir={root}/file"
  )
  line = line_of(done)
  assert "the work directory must be one that is there or can be" in line
  assert f"got {root}/file" in line


def test_an_output_that_cannot_be_made_is_told(root, tmp_path):
  (tmp_path / "a.txt").write_text("text")
  done = in_process.run_tool(
    "prepare", f"--input={tmp_path}/a.txt", f"--output={root}/file/store"
  )
  line = line_of(done)
  assert f"{root}/file/store must be in a directory that can be made" in line
  assert line.endswith("Write elsewhere, or have it allowed.")


@pytest.mark.parametrize(
  ("tool", "flags"),
  [
    # In the middle of what it prints, and with what Python flushes at the end.
    ("inspect_batches", ["--count=10", "--format=json"]),
    pytest.param(
      "simulate", ["--steps=3", "--format=json"], marks=pytest.mark.slow
    ),
  ],
)
def test_a_reader_that_had_enough_is_no_error(tool, flags, root):
  read, write = os.pipe()
  os.close(read)
  command = [f"{in_process.ROOT}/tools/{tool}.py", f"--config={root}/run.py"]
  done = subprocess.run(
    [sys.executable, *command, *flags],
    stdout=write,
    stderr=subprocess.PIPE,
    text=True,
  )
  os.close(write)
  # Grain tells so of each older jaxlib.
  lines = done.stderr.splitlines()
  assert [
    line for line in lines if "Grain multiprocess worker" not in line
  ] == []
  assert done.returncode == 1


@pytest.mark.parametrize(
  ("tool", "flag"),
  [
    ("inspect_batches", "--rows=0"),
    ("trace", "--from_step=-1"),
    ("losses", "--most=0"),
    ("diff", "--steps=0"),
    ("train", "--num_processes=0"),
  ],
)
def test_a_number_below_the_least_is_told(tool, flag, root, tmp_path):
  flags = given(tool, f"{root}/run.py", tmp_path)
  done = in_process.run_tool(tool, *flags, flag)
  line = line_of(done, 2 if tool == "diff" else 1)
  assert re.search(rf"flag {flag}: .* is not a (positive|non-neg)", line)


@pytest.mark.parametrize(
  ("tool", "flag", "message"),
  [
    ("trace", f"--step={10**20}", r"`--step` must be below \d+, the most"),
    ("trace", f"--step=1:{10**20}", r"`--step` must be below \d+, the most"),
    ("inspect_batches", f"--step={10**20}", r"`--step` must be below \d+, the"),
    ("simulate", f"--steps={10**20}", r"`--steps` must be at most \d+, got 1"),
    ("simulate", "--price_per_gb=nan", r"price_per_gb=nan: must be a finite"),
    ("simulate", "--price_per_gb=inf", r"price_per_gb=inf: must be a finite"),
    ("simulate", "--checkpoint=", r"flag --checkpoint=: must not be empty"),
    ("simulate", "--config=", r"flag --config=: must not be empty. Give it"),
    ("inspect_batches", "--html=", r"flag --html=: must not be empty"),
  ],
)
def test_values_that_no_run_can_use_are_refused(tool, flag, message, root):
  endless = [f"--config={root}/run.py", "--config.data.epochs=None"]
  done = in_process.run_tool(tool, *endless, flag)
  assert re.search(message, line_of(done))


def test_a_flag_of_the_program_itself_is_not_suggested(root):
  done = in_process.run_tool("diff", f"--config={root}/run.py")
  line = line_of(done, 2)
  assert "Unknown command line flag 'config'" in line
  assert "config_set" not in line


@pytest.mark.parametrize("flag", ["count", "first", "tokens"])
def test_a_negative_number_of_a_subcommand_is_told(flag, root, capsys):
  stores = in_process.imported("chomp_data.commands.stores")
  for value in ("-1", "x"):
    with pytest.raises(SystemExit) as ended:
      stores.main(["head", f"{root}/web", f"--{flag}={value}"])
    assert ended.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    rule = f"--{flag}: must be a whole number of at least 0, got '{value}'"
    assert error.endswith(rule)
