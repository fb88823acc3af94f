# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What MaxText asks for, from a config that looks like its own.

Real MaxText trains in `maxtext_train_test.py`.
"""

import json
import pathlib
import sys
import types
from unittest import mock

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
    local_checkpoint_directory=str(tmp_path / "local"),
    load_full_state_path="",
    global_batch_size_to_load_start=None,
    global_batch_size_to_load_increment=None,
    rampup_samples_per_increment_to_load=None,
    global_rampup_samples=500,
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
    (
      {
        "enable_rampup_batch_size": True,
        "global_batch_size_to_load_start": 1,
        "global_batch_size_to_load_increment": 1,
        "rampup_samples_per_increment_to_load": 10 / 3,
      },
      r"`enable_rampup_batch_size` .*lost .*"
      r"schedule=\[\(0, 1\), \(4, 2\), \(6, 3\), \(8, 4\)\]",
    ),
    (
      {
        "enable_rampup_batch_size": True,
        "global_batch_size_to_load_start": 1,
        "global_batch_size_to_load_increment": 8,
      },
      r"schedule=\[\(0, 1\), \(500, 4\)\]",
    ),
    (
      {
        "grain_train_files": (
          "FILE data.global_batch_size=None"
          " 'data.batch_size_schedule=((0, 2), (3, 4))'"
        ),
        "global_batch_size_to_load": 8,
      },
      r"`data\.batch_size_schedule` .* unset .* got 8 and 4",
    ),
    (
      {"grain_train_files": "FILE 'data.keep_fields=(\"source_id\",)'"},
      r"`data\.keep_fields` .*two axes .*'source_id'",
    ),
    ({"enable_diloco": True}, r"`enable_diloco`"),
    ({"packing": False}, r"`packing` .* True .*across documents; got False"),
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


def test_batches_of_a_schedule_have_its_sizes(config, mesh, file):
  schedule = "'data.batch_size_schedule=((0, 2), (3, 3), (5, 4))'"
  options = f"data.global_batch_size=None {schedule}"
  config.grain_train_files = f"{file} data.seed=5 {options}"
  train, _ = maxtext.make_iterators(config, mesh)
  sizes, rows = [], []
  for _ in range(7):
    batch = next(train)
    sizes.append(len(batch["inputs"]))
    rows.append(np.asarray(batch["inputs"]))
  assert sizes == [2, 2, 2, 3, 3, 4, 4]
  # The rows are those of the run without a schedule, in their order.
  plain = plan_of(file, seed=5)
  in_order = np.concatenate([plain.batch(i)["inputs"] for i in range(5)])
  np.testing.assert_array_equal(np.concatenate(rows), in_order)
  config.eval_interval, config.eval_steps = 2, 1
  config.grain_eval_files = config.grain_train_files
  with pytest.raises(
    errors.ConfigError, match=r"grain_eval_files` .*one shape"
  ):
    maxtext.make_iterators(config, mesh)


@pytest.fixture(params=["emergency_checkpoint", "multi_tier_checkpointing"])
def beside(config, request):
  """A config whose checkpoints hold no input, and where they are."""
  setattr(config, f"enable_{request.param}", True)
  if request.param == "emergency_checkpoint":
    return config, pathlib.Path(config.checkpoint_dir)
  return config, pathlib.Path(config.local_checkpoint_directory)


def saved_inputs(config):
  directory = pathlib.Path(config.checkpoint_dir).parent / "input"
  return sorted(path.name for path in directory.iterdir())


def test_a_run_resumes_at_the_step_that_maxtext_restores(beside, mesh, file):
  config, checkpoints = beside
  planned = [
    batch_hashes.batch_sha256(plan_of(file, seed=5).batch(i)) for i in range(12)
  ]
  train, _ = maxtext.make_iterators(config, mesh)
  for step in range(6):
    assert batch_hashes.batch_sha256(next(train)) == planned[step]
  assert saved_inputs(config) == ["0.json"]
  # Killed before, at and after a batch that follows a checkpoint.
  for saved in (3, 0, 4, 4, 7):
    (checkpoints / str(saved)).mkdir(parents=True, exist_ok=True)
    again, _ = maxtext.make_iterators(config, mesh)
    again.resume(saved)
    for step in range(saved + 1, saved + 4):
      assert batch_hashes.batch_sha256(next(again)) == planned[step]
    accounts = json.loads(again.batches.get_state())["accounts"]
    expected = plan_of(file, seed=5).accounts.record(saved + 4)["accounts"]
    assert accounts == expected
    assert saved_inputs(config) == ["0.json"]


def test_another_input_than_that_of_the_run_is_refused(beside, mesh, file):
  config, _ = beside
  with pytest.raises(errors.StateError, match=r"before step 5, got none\."):
    maxtext.make_iterators(config, mesh)[0].resume(4)
  train, _ = maxtext.make_iterators(config, mesh)
  next(train)
  config.grain_train_files = f"{file} data.seed=6"
  other, _ = maxtext.make_iterators(config, mesh)
  with pytest.raises(errors.StateError, match="seed: state has 5, config has"):
    other.resume(4)


def test_a_change_that_is_no_other_run_is_saved_once(beside, mesh, file):
  """Sizes of later steps: from its step on, and for earlier checkpoints."""
  config, _ = beside
  options = "data.global_batch_size=None"
  sizes = [(0, 4)]
  config.grain_train_files = (
    f'{file} data.seed=5 {options} "data.batch_size_schedule={sizes}"'
  )
  train, _ = maxtext.make_iterators(config, mesh)
  for _ in range(6):
    next(train)

  def resumed(step, sizes):
    config.grain_train_files = (
      f'{file} data.seed=5 {options} "data.batch_size_schedule={sizes}"'
    )
    config.global_batch_size_to_load = sizes[-1][1]
    config.global_batch_size_to_train_on = sizes[-1][1]
    again, _ = maxtext.make_iterators(config, mesh)
    again.resume(step)
    return len(next(again)["inputs"])

  assert resumed(4, [(0, 4), (5, 2)]) == 2
  assert saved_inputs(config) == ["0.json", "5.json"]
  assert resumed(6, [(0, 4), (5, 2), (8, 1)]) == 2
  assert saved_inputs(config) == ["0.json", "5.json", "7.json"]
  with pytest.raises(errors.StateError, match="batch_size_schedule"):
    resumed(6, [(0, 4), (6, 2)])
  # An older checkpoint: what was saved of later steps is of steps that the
  # run now repeats.
  assert resumed(4, [(0, 4), (6, 2)]) == 4
  assert saved_inputs(config) == ["0.json", "5.json"]
  assert resumed(3, [(0, 4)]) == 4
  assert saved_inputs(config) == ["0.json"]


@pytest.mark.parametrize(
  ("local", "persistent"), [(3, None), (None, 3), (3, 2), (2, 3)]
)
def test_a_model_that_is_resumed_without_its_input_is_an_error(
  beside, mesh, local, persistent
):
  config, _ = beside
  for directory, step in (
    (config.local_checkpoint_directory, local),
    (config.checkpoint_dir, persistent),
  ):
    if step is not None:
      pathlib.Path(directory, str(step)).mkdir(parents=True)
  train, _ = maxtext.make_iterators(config, mesh)
  with pytest.raises(maxtext.InputFailed, match=r"call `resume` .* step 3,"):
    next(train)


def test_directories_of_processes_on_gpus_are_no_checkpoints(
  config, mesh, monkeypatch
):
  """MaxText makes them before it asks for batches."""
  config.enable_emergency_checkpoint = True
  place = pathlib.Path(config.local_checkpoint_directory, "0")
  place.mkdir(parents=True)
  sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  monkeypatch.setattr(
    sys.modules["maxtext.utils"].sharding,
    "get_input_data_sharding",
    lambda config, mesh, rules=None: sharding,
  )
  gpus = np.array([types.SimpleNamespace(platform="gpu")])
  mesh_of_gpus = mock.Mock(spec=jax.sharding.Mesh, devices=gpus)
  next(maxtext.make_iterators(config, mesh_of_gpus)[0])
  (place / "7").mkdir()
  train, _ = maxtext.make_iterators(config, mesh_of_gpus)
  with pytest.raises(maxtext.InputFailed, match=r"call `resume` .* step 7,"):
    next(train)


def test_without_checkpoints_no_input_is_saved(beside, mesh):
  config, checkpoints = beside
  config.enable_checkpointing = False
  (checkpoints / "3").mkdir(parents=True)
  train, _ = maxtext.make_iterators(config, mesh)
  next(train)
  assert not (pathlib.Path(config.checkpoint_dir).parent / "input").exists()


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
