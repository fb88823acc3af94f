# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What MaxText asks for, from a config that looks like its own.

Real MaxText trains in `maxtext_train_test.py`.
"""

import json
import sys
import types

import jax
import numpy as np
import pytest

from chomp_data import errors
from chomp_data import pipeline
from chomp_data.config import files
from chomp_data.integrations import maxtext
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as stores_lib

FILE = """
import ml_collections

def get_config(arg="store"):
  return ml_collections.ConfigDict({{"data": {{
    "seq_len": 32, "global_batch_size": 4, "seed": 3, "epochs": 2,
    "sources": {{"text": {{
      "store": r"{root}/" + arg,
      "rows": {{"kind": "bin"}}, "shuffle": {{"kind": "full"}},
    }}}},
  }}}})
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
  root = tmp_path_factory.mktemp("corpus")
  rng = np.random.default_rng(0)
  lengths = rng.integers(20, 400, size=12)
  documents = [rng.integers(3, 250, size=length) for length in lengths]
  stores_lib.make_store(root / "store", documents, vocab_size=256)
  path = root / "own.py"
  path.write_text(FILE.format(root=root))
  return path


@pytest.fixture
def config(file, tmp_path, monkeypatch):
  """Fields of MaxText's config that are looked at, with its defaults."""
  shardings = types.ModuleType("maxtext.utils.sharding")
  spec = jax.sharding.PartitionSpec("data")
  shardings.get_input_data_sharding = lambda config, mesh, rules=None: (
    jax.sharding.NamedSharding(mesh, spec)
  )
  utils = types.ModuleType("maxtext.utils")
  utils.sharding = shardings
  monkeypatch.setitem(sys.modules, "maxtext", types.ModuleType("maxtext"))
  monkeypatch.setitem(sys.modules, "maxtext.utils", utils)
  return types.SimpleNamespace(
    dataset_type="grain",
    grain_train_files=f"{file}:store data.seed=5",
    grain_eval_files=f"{file} data.epochs=1",
    colocated_python_data_input=False,
    packing=True,
    enable_diloco=False,
    enable_rampup_batch_size=False,
    enable_emergency_checkpoint=False,
    enable_multi_tier_checkpointing=False,
    expansion_factor_real_data=-1.0,
    enable_checkpointing=True,
    checkpoint_dir=str(tmp_path / "checkpoints"),
    load_full_state_path="",
    steps=10,
    eval_interval=-1,
    eval_steps=-1,
    max_target_length=32,
    vocab_size=32_000,
    global_batch_size_to_load=4,
    global_batch_size_to_train_on=4,
    global_batch_size_to_load_eval=4,
    global_batch_size_to_eval_on=4,
    logical_axis_rules_for_eval=(),
  )


@pytest.fixture
def mesh():
  return jax.sharding.Mesh(np.asarray(jax.devices()[:1]), ("data",))


def plan_of(file, seed):
  options = [f"data.seed={seed}", "data.batch_format=maxtext"]
  return pipeline.build(files.load_config(str(file), options).data)


def test_train_and_eval_give_the_six_fields_of_their_plans(config, mesh, file):
  config.eval_interval = 2
  train, held_out = maxtext.make_iterators(config, mesh)
  own = plan_of(file, seed=5)
  for step in range(3):
    batch = next(train)
    assert set(batch) == {
      f"{side}{suffix}"
      for side in ("inputs", "targets")
      for suffix in ("", "_position", "_segmentation")
    }
    assert batch_hashes.batch_sha256(batch) == batch_hashes.batch_sha256(
      own.batch(step)
    )
  first = batch_hashes.batch_sha256(next(held_out))
  steps = 1 + sum(1 for _ in held_out)
  held_out.reset()
  assert batch_hashes.batch_sha256(next(held_out)) == first
  assert steps == own.num_steps // 2
  train.close()
  held_out.close()


def test_without_an_interval_there_is_no_eval(config, mesh):
  config.grain_eval_files = ""
  _, held_out = maxtext.make_iterators(config, mesh)
  assert held_out is None


def test_rows_that_maxtext_loads_and_does_not_train_on_are_of_no_document(
  config, mesh, file
):
  """With per_device_batch_size below 1 it trains on the first rows alone."""
  config.global_batch_size_to_load = 6
  train, _ = maxtext.make_iterators(config, mesh)
  own = plan_of(file, seed=5)
  for step in range(own.num_steps):
    batch, wanted = next(train), own.batch(step)
    for name, value in batch.items():
      assert value.shape == (6, 32)
      np.testing.assert_array_equal(value[:4], wanted[name])
      assert not value[4:].any()
  assert train.batches.step == own.num_steps
  rows = json.loads(train.batches.get_state())["accounts"]["text"]["rows"]
  assert rows == 4 * own.num_steps


def test_an_error_of_the_input_is_no_exception_that_maxtext_catches(
  config, mesh, monkeypatch
):
  train, _ = maxtext.make_iterators(config, mesh)
  next(train)

  def broken(self):
    raise errors.StoreError("tokens/c/3: chunk 26 must have crc32c")

  with monkeypatch.context() as patched:
    patched.setattr(type(train.batches), "__next__", broken)
    with pytest.raises(maxtext.InputFailed, match="chunk 26") as caught:
      next(train)
  assert not isinstance(caught.value, Exception)
  assert isinstance(caught.value.__cause__, errors.StoreError)


@pytest.mark.parametrize(
  ("changed", "message"),
  [
    ({"dataset_type": "hf"}, r"`dataset_type` .* 'grain' .* got 'hf'"),
    ({"colocated_python_data_input": True}, r"must be False .* controller"),
    ({"enable_rampup_batch_size": True}, r"`enable_rampup_batch_size` .*lost"),
    ({"enable_diloco": True}, r"`enable_diloco`"),
    ({"packing": False}, r"`packing` .* True .*across documents; got False"),
    ({"enable_emergency_checkpoint": True}, r"does not save the input"),
    ({"enable_multi_tier_checkpointing": True}, r"does not save the input"),
    ({"expansion_factor_real_data": 2.0}, r"`expansion_factor_real_data`"),
    ({"steps": 10_000}, r"`steps` .* at most \d+, .*own\.py.*, got 10000"),
    ({"max_target_length": 64}, r"`data\.seq_len` .*64, got 32\. .*len=64'"),
    (
      {"global_batch_size_to_train_on": 8, "global_batch_size_to_load": 8},
      r"`data\.global_batch_size` .*global_batch_size_to_train_on, 8, got 4",
    ),
    (
      {
        "grain_train_files": (
          "FILE data.sequence_layout.kind=striped"
          " data.sequence_layout.shards=2"
        ),
      },
      r"`data\.sequence_layout` .* unset with MaxText, got 'striped'",
    ),
    ({"vocab_size": 100}, r"`vocab_size` .* at least 256, .* got 100"),
    (
      {"eval_interval": 2, "eval_steps": 1_000},
      r"`eval_steps` .* at most \d+, .* got 1000",
    ),
    (
      {"eval_interval": 2, "grain_eval_files": "FILE data.epochs=None"},
      r"`eval_steps` .* above 0 .* got -1",
    ),
    ({"grain_train_files": "FILE data.sead=3"}, r"sead` is not a known field"),
    ({"grain_train_files": "nope.py"}, r"config file, got nope\.py"),
  ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_training(
  config, mesh, file, changed, message
):
  for name, value in changed.items():
    value = (
      value.replace("FILE", str(file)) if isinstance(value, str) else value
    )
    setattr(config, name, value)
  with pytest.raises(errors.ConfigError, match=message):
    maxtext.make_iterators(config, mesh)


def test_several_shapes_of_batches_are_refused(config, mesh, file):
  buckets = {"kind": "length", "lengths": [64, 128], "tokens_per_batch": 128}
  config.grain_train_files = (
    f'{file} "data.buckets={buckets}" data.remainder=pad'
  )
  with pytest.raises(
    errors.ConfigError, match=r"batches of one shape, got .*64.*128"
  ):
    maxtext.make_iterators(config, mesh)


def test_a_checkpoint_without_its_input_is_refused(config, mesh, tmp_path):
  """MaxText would go on with the model, and from the first batch."""
  root = tmp_path / "checkpoints"
  for step, items in ((3, ["items", "iter"]), (10, ["items"])):
    for item in items:
      (root / str(step) / item).mkdir(parents=True)
  with pytest.raises(
    errors.ConfigError, match=r"`iter`, got none in .*checkpoints/10\."
  ):
    maxtext.make_iterators(config, mesh)
  (root / "10" / "iter").mkdir()
  maxtext.make_iterators(config, mesh)
