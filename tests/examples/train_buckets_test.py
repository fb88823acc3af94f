# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The classifier of pictures trains, resumes, and compiles each size once."""

import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import pytest

from chomp_data import schema
from chomp_data.stores import samples_array_record
from configs import resolution_buckets
from examples import drawings
from examples import train_buckets
from tests import in_process

ROOT = pathlib.Path(__file__).parents[2]


def run(tmp_path, stores, *args, config="resolution_buckets"):
  done = started(tmp_path, stores, *args, config=config)
  assert done.returncode == 0, done.stderr[-3000:]
  assert not done.stdout
  return done.stderr


def command(tmp_path, stores, *args, config="resolution_buckets"):
  return [
    "examples/train_buckets.py",
    f"--config={ROOT}/configs/{config}.py:runlocal",
    f"--workdir={tmp_path / 'run'}",
    *(
      f"--config.data.sources.{name}.store={path}"
      for name, path in stores.items()
    ),
    *args,
  ]


def started(tmp_path, stores, *args, config="resolution_buckets"):
  return in_process.run_tool(*command(tmp_path, stores, *args, config=config))


def told(tmp_path, stores, *args, config="resolution_buckets"):
  """Returns the last line of a run that fails with one clear error."""
  done = started(tmp_path, stores, *args, config=config)
  assert done.returncode == 1, done.stdout
  assert "Traceback" not in done.stderr, done.stderr[-3000:]
  return done.stderr[done.stderr.index("error: ") :]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
  """Two datasets of pictures, by name."""
  stores = {n: tmp_path_factory.mktemp("drawn") / n for n in drawings.DATASETS}
  for name, path in stores.items():
    samples_array_record.write_samples(path, drawings.samples(name, 80))
  return stores


@pytest.mark.slow
def test_the_example_trains_and_resumes(tmp_path, drawn):
  stores = drawn
  first = run(tmp_path, stores, "--config.train.num_steps=6")
  assert "4 static shapes (resolution), by pixels" in first
  assert "resumed" not in first
  out = run(tmp_path, stores)
  assert "resumed at step 6" in out
  assert re.search(r"step 12/12: digits: \d+ batches, loss [\d.]+", out)
  # Of libraries warnings only.
  assert "checkpoint_manager.py" not in out
  histogram = re.search(r"histogram: (.*)", out)[1]
  assert "'digits'" in histogram
  assert "'64x64'" in histogram
  compiled = int(re.search(r"; compiled (\d+) shapes", out)[1])
  assert 1 <= compiled <= 4
  other = told(tmp_path, stores, "--config.model.widths=(8,)")
  assert "`config.model` must be {" in other
  assert "[8, 16]" in other
  assert "another --workdir" in other


def checkpoints(tmp_path):
  """Returns the steps that have a checkpoint, rising."""
  found = (tmp_path / "run" / "checkpoints").glob("[0-9]*")
  return sorted(int(own.name) for own in found if own.name.isdecimal())


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(tmp_path, drawn):
  args = command(
    tmp_path,
    drawn,
    "--config.train.num_steps=100000",
    "--config.checkpoint.every_steps=4",
  )
  with subprocess.Popen(
    [sys.executable, *args], cwd=ROOT, stderr=subprocess.DEVNULL
  ) as process:
    try:
      deadline = time.monotonic() + 100
      while not checkpoints(tmp_path) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.1)
    finally:
      process.kill()
  steps = checkpoints(tmp_path)
  assert steps
  assert all(step % 4 == 0 for step in steps)
  last = steps[-1]
  out = run(tmp_path, drawn, f"--config.train.num_steps={last + 3}")
  assert f"resumed at step {last}\n" in out
  assert f"finished {last + 3} steps" in out
  assert checkpoints(tmp_path)[-1] == last + 3


@pytest.mark.slow
def test_a_mix_in_one_line_takes_the_place_of_the_configs(tmp_path, drawn):
  out = run(
    tmp_path,
    drawn,
    "--config.train.num_steps=2",
    f"--dataset_mix=digits={drawn['digits']}:1",
  )
  assert "takes the place of mix.weights" in out
  assert "'plots'" not in out


def test_stores_that_cannot_be_opened_are_told_together(tmp_path, drawn):
  stores = {name: tmp_path / name for name in drawn}
  out = told(tmp_path, stores)
  for name, path in stores.items():
    assert f"config.data.sources.{name}.store: {path} " in out


@pytest.mark.slow
def test_labels_beyond_the_model_are_one_clear_line(tmp_path, drawn):
  last = told(tmp_path, drawn, "--config.model.num_labels=3")
  assert "`config.model.num_labels` must be above every label" in last
  assert "got 3 and label" in last
  assert not list((tmp_path / "run" / "checkpoints").glob("[0-9]*"))


def test_files_that_cannot_be_written_are_one_clear_line(tmp_path, drawn):
  (tmp_path / "run").write_text("a file, no directory")
  assert str(tmp_path / "run") in told(tmp_path, drawn)


def test_a_config_of_text_is_one_clear_line(tmp_path, stdlib_store):
  stores = {"stdlib": stdlib_store, "notes": stdlib_store}
  last = told(tmp_path, stores, config="length_buckets")
  assert "`config.data.buckets.kind` must be 'resolution'" in last


def config_of(drawn, **fields):
  """Returns the shipped config with other fields, by their path with '__'."""
  config = resolution_buckets.get_config("runlocal")
  for name, path in drawn.items():
    config.data.sources[name].store = str(path)
  with config.unlocked(), config.ignore_type():
    for path, value in fields.items():
      *parents, name = path.split("__")
      section = config
      for parent in parents:
        section = section[parent]
      section[name] = value
  return config


def test_the_shipped_config_is_read(drawn):
  _, parts = train_buckets.read(config_of(drawn))
  assert parts["train"].num_steps == 12
  assert parts["model"].widths == (8, 16)
  data = {"train__num_steps": None, "data__epochs": 1}
  pipe, parts = train_buckets.read(config_of(drawn, **data))
  assert parts["train"].num_steps is None
  assert pipe.num_steps > 0


def test_a_weight_that_the_run_would_hardly_see_is_said(drawn, caplog):
  weights = (("digits", 1.0), ("plots", 1e-6))
  train_buckets.read(config_of(drawn, data__mix__weights=weights))
  assert "the weight of 'plots' amounts to 1e-05 batch in 12" in caplog.text


@pytest.mark.parametrize(
  ("fields", "words"),
  [
    ({"model__widths": ()}, ["`config.model.widths` must be", "got ()"]),
    ({"model__widths": (8, 0)}, ["`config.model.widths` must be"]),
    ({"model__num_labels": 0}, ["`config.model.num_labels` must be"]),
    ({"model__depth": 3}, ["`config.model.depth` is not a known field"]),
    ({"model": {}}, ["config.model.widths", "config.model.num_labels"]),
    (
      {"optimizer": {"learning_rate": "x"}},
      ["`config.optimizer.learning_rate`"],
    ),
    (
      {"checkpoint": {"every_steps": 0}},
      ["`config.checkpoint.every_steps` must"],
    ),
    ({"train__log_every_steps": 0}, ["`config.train.log_every_steps` must"]),
    ({"train__num_steps": None}, ["must be set where the input is endless"]),
    ({"train__num_steps": 999, "data__epochs": 1}, ["at most the input's"]),
    ({"more": 3}, ["`config.more` is not a known field"]),
    ({"data__buckets__metadata": ()}, ["must name `label`", "got None"]),
    (
      {"data__buckets__fields": (("pixels", {"shape": ("height", "width")}),)},
      ["must have `pixels` of shape (32, 32)", "got (32, 32, 3)"],
    ),
  ],
)
def test_bad_configs_are_one_clear_error(drawn, fields, words):
  with pytest.raises(ValueError, match=re.escape(words[0])) as error:
    train_buckets.read(config_of(drawn, **fields))
  for word in words:
    assert word in str(error.value)


def test_arrays_that_are_no_pictures_are_one_clear_error(tmp_path):
  values = {"height": 4, "width": 4, "label": 0.5}
  own = [({"pixels": np.zeros((4, 4, 1), np.uint8)}, values)] * 8
  samples_array_record.write_samples(tmp_path / "data", own)
  config = config_of(
    dict.fromkeys(drawings.DATASETS, tmp_path / "data"),
    data__buckets__fields=("pixels",),
    data__buckets__sizes=None,
    data__buckets__batch_sizes=(),
  )
  with pytest.raises(schema.ConfigError) as error:
    train_buckets.read(config)
  for word in ("`pixels` of shape (height, width, 3)", "got (4, 4, 1)"):
    assert word in str(error.value)
  assert "must name `label`, a whole number" in str(error.value)
