"""Every config: builds, round-trips through JSON, and gives a batch."""

import importlib
import json
import pathlib

import ml_collections
import pytest

from chomp_data import pipeline

ROOT = pathlib.Path(__file__).parents[1]
NAMES = sorted(p.stem for p in (ROOT / "configs").glob("*.py"))


def get(name, arg, store):
  config = importlib.import_module(f"configs.{name}").get_config(arg)
  for source in config.data.sources.values():
    source.store = store
  return config


@pytest.mark.parametrize("arg", [None, "runlocal"])
@pytest.mark.parametrize("name", NAMES)
def test_a_config_gives_a_batch_and_round_trips_through_json(
    name, arg, stdlib_store
):
  config = get(name, arg, stdlib_store)
  pipe = pipeline.build(config.data)
  batch = pipe.batch(0)
  shape = (config.data.global_batch_size, config.data.seq_len)
  assert batch["tokens"].shape == shape
  assert batch["loss_mask"].any()
  again = ml_collections.ConfigDict(json.loads(config.to_json()))
  assert again.to_json() == config.to_json()
  assert pipeline.build(again.data).fingerprint == pipe.fingerprint


@pytest.mark.parametrize("name", NAMES)
def test_runlocal_is_smaller(name):
  module = importlib.import_module(f"configs.{name}")
  small, full = module.get_config("runlocal"), module.get_config()
  assert small.train.num_steps < full.train.num_steps
  with pytest.raises(ValueError, match="'runlocul'"):
    module.get_config("runlocul")


@pytest.mark.parametrize("name", NAMES)
def test_a_config_says_how_to_run_it(name):
  text = (ROOT / "configs" / f"{name}.py").read_text()
  assert f"tools/train.py --config=configs/{name}.py" in text
