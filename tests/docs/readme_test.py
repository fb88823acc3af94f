"""The README's Python blocks run, one after the other, as they stand."""

import pathlib
import re

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.testing import stores as stores_lib

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def blocks():
  text = (ROOT / "README.md").read_text()
  return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_every_python_block_of_the_readme_runs(
  blocks, stdlib_store, tmp_path, monkeypatch
):
  (tmp_path / "data").mkdir()
  (tmp_path / "data" / "stdlib").symlink_to(stdlib_store)
  monkeypatch.chdir(tmp_path)
  own, save, get_config, grain_block = (
    next(b for b in blocks if needle in b)
    for needle in ("make_iterator", "InputSave", "get_config", "MapDataset")
  )
  assert len(blocks) == 7
  names: dict = {}
  exec(get_config, names)
  config = ml_collections.ConfigDict(names["get_config"]())
  config.data.epochs = 1
  steps = []

  def train_step(state, batch):
    steps.append(batch["tokens"].shape)
    return state, {}

  names |= {
    "config": config,
    "sharding": jax.sharding.SingleDeviceSharding(jax.devices()[0]),
    "train_step": train_step,
    "state": {"w": jnp.zeros(3)},
  }
  exec(own, names)
  assert len(steps) > 100
  assert set(steps) == {(16, 256)}
  exec(save.replace("/tmp/checkpoints", str(tmp_path / "checkpoints")), names)
  assert names["batches"].step == len(steps)
  names["manager"].close()
  exec(grain_block, names)
  assert names["dataset"][0]["tokens"].shape == (8, 2048)


def test_the_readmes_mix_and_array_records_make_batches(
  blocks, stdlib_store, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  names: dict = {}
  for needle in ("array_record", '"stages"'):
    exec(next(block for block in blocks if needle in block), names)
  documents = np.split(np.arange(9_000) % 50_000, range(500, 9_000, 500))
  stores_lib.make_array_records(tmp_path / "corpus", documents)
  packed = {"rows": {"kind": "bin"}, "shuffle": {"kind": "block"}}
  data = {
    "seq_len": 64,
    "global_batch_size": 4,
    "sources": {
      "web": names["source"],
      "code": {"store": stdlib_store, **packed},
      "math": {"store": stdlib_store, **packed},
    },
    # The records were made with no tokenizer at all.
    "mix": {**names["mix"], "allow_tokenizer_differences": True},
  }
  pipe = pipeline.build(data)
  assert pipe.source_names == ["code", "web", "math"]
  before = np.concatenate([pipe.batch(i)["source_id"] for i in range(50)])
  assert set(before) == {0, 1}
  assert np.mean(before == 1) == pytest.approx(0.7, abs=0.02)
  after = [pipe.batch(200_000 + i)["source_id"] for i in range(50)]
  assert np.mean(np.concatenate(after) == 2) == pytest.approx(0.2, abs=0.02)


def test_the_readmes_buckets_make_batches(
  blocks, stdlib_store, tmp_path, monkeypatch
):
  (tmp_path / "data").mkdir()
  for name in ("web", "code"):
    (tmp_path / "data" / name).symlink_to(stdlib_store)
  monkeypatch.chdir(tmp_path)
  names: dict = {}
  exec(next(block for block in blocks if '"buckets"' in block), names)
  # Less than the corpus is for, so that each bucket fills a batch.
  names["data"]["buckets"]["tokens_per_batch"] = 4_096
  names["data"]["remainder"] = "pad"
  pipe = pipeline.build(names["data"])
  shapes = [pipe.batch(i)["tokens"].shape for i in [*range(20), 2_001]]
  assert set(shapes) == {(8, 512), (4, 1_024), (2, 2_048)}
  assert abs(sum(shape == (8, 512) for shape in shapes[:20]) - 10) <= 2


def test_the_example_of_the_page_on_buckets_makes_batches(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  text = (ROOT / "docs" / "buckets.md").read_text()
  (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
  names: dict = {}
  exec(block, names)
  pipe = pipeline.build(names["data"])
  found = {
    pipe.bucket_of(step)[1]: pipe.batch(step)["latent"].shape
    for step in range(20)
  }
  assert found == {"512x512": (16, 64, 64, 4), "512x768": (8, 64, 96, 4)}
  assert pipe.batch(0)["label"].tolist() == [3] * len(pipe.batch(0)["label"])
