# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Config files outside of the tools: the same configs, and errors that tell."""

import json

import pytest

import chomp_data
from chomp_data import errors
from tests import in_process

FILE = """
import ml_collections

def get_config(arg=None):
  config = ml_collections.ConfigDict()
  config.data = {"seq_len": 32, "seed": 1, "sources": {"a": {"store": arg}}}
  config.note = "own"
  return config
"""


@pytest.fixture
def file(tmp_path):
  path = tmp_path / "own.py"
  path.write_text(FILE)
  return path


def test_a_file_is_loaded_with_its_argument_and_options(file):
  config = chomp_data.load_config(
    f"{file}:/data/a:b", ["data.seed=3", "data.lookahead=true", "data.seed=4"]
  )
  assert config.data.sources.a.store == "/data/a:b"
  assert (config.data.seed, config.data.lookahead) == (4, True)
  assert config.note == "own"
  plain = chomp_data.load_config(str(file))
  assert plain.data.seed == 1
  assert plain.data.sources.a.store is None


def test_a_config_that_comes_along_is_that_of_the_tools(stdlib_store):
  options = [
    f"data.sources.stdlib.store={stdlib_store}",
    "data.sources.stdlib.shuffle.kind=full",
    "data.seed=5",
  ]
  config = chomp_data.load_config("packed:runlocal", options)
  wanted = chomp_data.build(config.data).plan(0).document
  ran = in_process.run_tool(
    "inspect_batches",
    "--config=packed:runlocal",
    *(f"--config.{own}" for own in options),
    "--format=json",
    check=True,
  )
  rows = [json.loads(line) for line in ran.stdout.splitlines()]
  shown = [span["document"] for row in rows for span in row["spans"]]
  assert shown == wanted.tolist()


@pytest.mark.parametrize(
  ("name", "overrides", "message"),
  [
    ("nope.py", [], r"config file, got nope\.py, .* block_shuffle, "),
    ("packed", ["data.seq_len=long"], r"data\.seq_len` must .* got 'long'"),
    ("packed", ["data.seq_length=3"], r"seq_length"),
  ],
)
def test_what_is_wrong_is_told(name, overrides, message):
  with pytest.raises(errors.ConfigError, match=message):
    chomp_data.load_config(name, overrides)


@pytest.mark.parametrize("text", ["x = 1", "def get_config(): pass"])
def test_a_file_that_makes_no_config_is_told(tmp_path, text):
  path = tmp_path / "empty.py"
  path.write_text(text)
  with pytest.raises(errors.ConfigError, match=r"get_config` .*empty\.py"):
    chomp_data.load_config(str(path))
  (tmp_path / "notes.txt").write_text("x")
  with pytest.raises(errors.ConfigError, match=r"Python file, got .*notes"):
    chomp_data.load_config(str(tmp_path / "notes.txt"))
