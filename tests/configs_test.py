"""Every config: builds, round-trips through JSON, and gives a batch."""

import dataclasses
import importlib
import json
import pathlib

import ml_collections
import pytest

from chomp_data import pipeline
from chomp_data import sources
from chomp_data.config import options
from chomp_data.prepare import images
from chomp_data.sources import array_dataset
from chomp_data.sources import document_pieces
from chomp_data.sources import row_kinds
from chomp_data.stores import samples_array_record

ROOT = pathlib.Path(__file__).parents[1]
NAMES = sorted(p.stem for p in (ROOT / "configs").glob("*.py"))
BUCKETED = ["length_buckets", "resolution_buckets"]
ROWS_IN_BUCKETS = {
  "length": document_pieces.DocumentOptions,
  "resolution": array_dataset.SampleOptions,
}
IN_ROWS = [name for name in NAMES if name not in BUCKETED]


@pytest.fixture(scope="session")
def pictures_store(tmp_path_factory):
  """Pictures enough for a batch of every size, as a path."""
  path = tmp_path_factory.mktemp("pictures") / "digits"
  samples_array_record.write_samples(path, images.samples("digits", 450))
  return str(path)


def fields_of(options_class):
  return {field.name for field in dataclasses.fields(options_class)}


def get(name, arg, store):
  config = importlib.import_module(f"configs.{name}").get_config(arg)
  for source in config.data.sources.values():
    source.store = store
  return config


@pytest.mark.parametrize("arg", [None, "runlocal"])
@pytest.mark.parametrize("name", IN_ROWS)
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


@pytest.mark.parametrize("arg", [None, "runlocal"])
@pytest.mark.parametrize("name", BUCKETED)
def test_a_bucketed_config_gives_batches_and_round_trips_through_json(
  name, arg, stdlib_store, pictures_store
):
  resolution = name == "resolution_buckets"
  config = get(name, arg, pictures_store if resolution else stdlib_store)
  pipe = pipeline.build(config.data)
  buckets = {own.name: own for own in pipe.buckets}
  seen = set()
  for step in range(150):
    bucket = buckets[pipe.bucket_of(step)[1]]
    if bucket.name in seen:
      continue
    seen.add(bucket.name)
    batch = pipe.batch(step)
    field = batch["pixels" if resolution else "tokens"]
    rest = (3,) if resolution else ()
    assert field.shape == (bucket.batch_size, *bucket.shape, *rest)
  assert seen == set(buckets)
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


@pytest.mark.parametrize("name", BUCKETED)
def test_every_option_of_a_bucketed_config_is_listed(name):
  data = importlib.import_module(f"configs.{name}").get_config().data
  kind = options.KINDS[data.buckets.kind]
  sections = {"buckets", "mix", "sources"}
  assert set(data) == fields_of(kind.fields) | sections
  assert set(data.buckets) == fields_of(kind.section) | {"kind"}
  assert set(data.mix) == fields_of(options.BucketMixOptions)
  for source in data.sources.values():
    assert set(source) == fields_of(options.SourceFields) | {"rows", "shuffle"}
    assert set(source.rows) == fields_of(ROWS_IN_BUCKETS[data.buckets.kind])
    assert set(source.shuffle) == fields_of(options.OrderOptions)


@pytest.mark.parametrize("name", IN_ROWS)
def test_every_option_is_listed_so_that_flags_can_change_it(name):
  data = importlib.import_module(f"configs.{name}").get_config().data
  own = {f.name for f in dataclasses.fields(options.RowFields)}
  mixed = len(data.sources) > 1
  assert set(data) == own | {"sources"} | ({"mix"} if mixed else set())
  if mixed:
    mix = sources.MixOptions
    assert set(data.mix) == {f.name for f in dataclasses.fields(mix)}
  for source in data.sources.values():
    of_mix = {"weight", "max_epochs"} if mixed else set()
    assert set(source) == {"store", "rows", "shuffle"} | of_mix
    rows = row_kinds.ROW_KINDS[source.rows.kind].options
    assert set(source.rows) == {f.name for f in dataclasses.fields(rows)} | {
      "kind"
    }
    shuffle = sources.ShuffleOptions
    assert set(source.shuffle) == {f.name for f in dataclasses.fields(shuffle)}


@pytest.mark.parametrize("name", NAMES)
def test_a_config_says_how_to_run_it(name):
  text = (ROOT / "configs" / f"{name}.py").read_text()
  tool = "tools/train.py"
  if name == "resolution_buckets":
    tool = "examples/train_buckets.py"
  assert f"{tool} --config=configs/{name}.py" in text
