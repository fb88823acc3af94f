# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Every config: builds, round-trips through JSON, and gives a batch."""

import importlib
import json
import pathlib

import ml_collections
import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.config import options
from chomp_data.reference import train_options
from chomp_data.stores import samples_array_record
from chomp_data.testing import stores as testing_stores
from examples import drawings

ROOT = pathlib.Path(__file__).parents[1]
NAMES = sorted(p.stem for p in (ROOT / "configs").glob("*.py"))
BUCKETED = ["length_buckets", "resolution_buckets"]
# Its store is an object: of Python's library, and nothing that JSON has.
OF_OBJECTS = ["from_grain_source"]
IN_ROWS = [name for name in NAMES if name not in BUCKETED + OF_OBJECTS]


@pytest.fixture(scope="session")
def pictures_store(tmp_path_factory):
  """Pictures enough for a batch of every size, as a path."""
  path = tmp_path_factory.mktemp("pictures") / "digits"
  samples_array_record.write_samples(path, drawings.samples("digits", 450))
  return str(path)


@pytest.fixture(scope="session")
def chats_store(tmp_path_factory):
  """Documents that fit in rows, as a path; longer chats are dropped."""
  path = tmp_path_factory.mktemp("chats") / "chats"
  documents = [[65 + i % 26] * (20 + i % 40) for i in range(2_000)]
  return testing_stores.make_store(path, documents).path


@pytest.fixture(scope="session")
def pairs_store(tmp_path_factory):
  """Preference pairs that fit in rows, as a path."""
  path = tmp_path_factory.mktemp("pairs") / "pairs"
  documents = [[65 + i % 26] * (5 + i % 40) for i in range(2_000)]
  levels = [[0] + [1] * (len(document) - 1) for document in documents]
  return testing_stores.make_store(
    path, documents, pairs=True, levels=(0.0, 1.0), label_levels=levels
  ).path


def get(name, arg, store):
  config = importlib.import_module(f"configs.{name}").get_config(arg)
  for source in config.data.sources.values():
    source.store = store
  return config


@pytest.mark.parametrize("arg", [None, "runlocal"])
@pytest.mark.parametrize("name", IN_ROWS)
def test_a_config_gives_a_batch_and_round_trips_through_json(
  name, arg, stdlib_store, chats_store, pairs_store
):
  special = {"sft": chats_store, "preference_pairs": pairs_store}
  config = get(name, arg, special.get(name, stdlib_store))
  pipe = pipeline.build(config.data)
  batch = pipe.batch(0)
  shape = (config.data.global_batch_size, config.data.seq_len)
  assert batch["tokens"].shape == shape
  assert batch["loss_mask"].any()
  again = ml_collections.ConfigDict(json.loads(config.to_json()))
  assert again.to_json() == config.to_json()
  assert pipeline.build(again.data).fingerprint == pipe.fingerprint


def test_columns_over_devices_are_those_of_one(stdlib_store):
  sharded = get("context_parallel", "sharded,runlocal", stdlib_store)
  whole = get("context_parallel", "runlocal", stdlib_store)
  pipe, plain = pipeline.build(sharded.data), pipeline.build(whole.data)
  (layout,) = pipe.layout
  order = layout.layout.order(pipe.seq_len)
  for name in ("tokens", "targets", "targets_2", "target_mask_2"):
    found, wanted = pipe.batch(1)[name], plain.batch(1)[name]
    assert (found == wanted[:, order]).all()


@pytest.mark.parametrize("arg", [None, "runlocal"])
@pytest.mark.parametrize("name", OF_OBJECTS)
def test_a_config_of_an_open_store_gives_a_batch(name, arg):
  module = importlib.import_module(f"configs.{name}")
  data = module.get_config(arg).data
  pipe = pipeline.build(data)
  batch = pipe.batch(0)
  assert batch["tokens"].shape == (data.global_batch_size, data.seq_len)
  assert batch["loss_mask"].any()
  again = pipeline.build(module.get_config(arg).data)
  assert again.fingerprint == pipe.fingerprint


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


@pytest.mark.parametrize("name", NAMES)
def test_a_config_states_no_default(name, monkeypatch):
  # What it states itself, without placeholders for all else.
  monkeypatch.setattr(chomp_data, "with_placeholders", lambda data: data)
  config = importlib.import_module(f"configs.{name}").get_config()
  known = options.known(config.data.to_dict())
  stated = list(stated_defaults(known, config.data.to_dict(), "data"))
  if name != "resolution_buckets":
    for section, cls in train_options.SECTIONS.items():
      of_class = schema.Section(cls)
      held = config.to_dict().get(section, {})
      stated += stated_defaults(of_class, held, section)
  assert stated == []


def stated_defaults(known, held, path):
  for name, value in held.items():
    if name in known.options:
      if value == known.options[name].default:
        yield f"{path}.{name}"
    else:
      yield from stated_defaults(known.sections[name], value, f"{path}.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_a_config_says_how_to_run_it(name):
  text = (ROOT / "configs" / f"{name}.py").read_text()
  tool = {
    "preference_pairs": "examples/dpo.py",
    "resolution_buckets": "examples/train_buckets.py",
  }.get(name, "chomp-train")
  assert f"{tool} --config=configs/{name}.py" in text
