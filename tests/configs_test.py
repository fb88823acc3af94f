"""Every config: builds, round-trips through JSON, and gives a batch."""

import dataclasses
import importlib
import json
import pathlib

import ml_collections
import pytest

from chomp_data import options
from chomp_data import pipeline
from chomp_data import sources

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
def test_every_option_is_listed_so_that_flags_can_change_it(name):
  data = importlib.import_module(f"configs.{name}").get_config().data
  own = {f.name for f in dataclasses.fields(options.DataOptions)}
  mixed = len(data.sources) > 1
  assert set(data) == own | {"sources"} | ({"mix"} if mixed else set())
  if mixed:
    mix = sources.MixOptions
    assert set(data.mix) == {f.name for f in dataclasses.fields(mix)}
  for source in data.sources.values():
    of_mix = {"weight", "max_epochs"} if mixed else set()
    assert set(source) == {"store", "rows", "shuffle"} | of_mix
    rows = options.ROW_KINDS[source.rows.kind]
    assert set(source.rows) == {f.name for f in dataclasses.fields(rows)} | {
      "kind"
    }
    shuffle = sources.ShuffleOptions
    assert set(source.shuffle) == {f.name for f in dataclasses.fields(shuffle)}


@pytest.mark.parametrize("name", NAMES)
def test_a_config_says_how_to_run_it(name):
  text = (ROOT / "configs" / f"{name}.py").read_text()
  assert f"tools/train.py --config=configs/{name}.py" in text
