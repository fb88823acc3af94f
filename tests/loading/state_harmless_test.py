# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What is no change of a run is no reason to refuse its state."""

import copy
import functools
import json
import os
import pathlib
import shutil

import jax
import ml_collections
import numpy as np
import pytest

from chomp_data import iterators
from chomp_data.loading import state as state_lib
from chomp_data.testing import batch_hashes

# Steps of the run before its state, one more than a stage begins at.
STEP = 5


@pytest.fixture
def mixed(data, other_path):
  """A run of two sources, with a stage before its state and edits."""
  text = data["sources"]["text"]
  rows = {"kind": "bin", "packing_buffer_docs": 4}
  more = {"store": other_path, "rows": rows, "shuffle": {"kind": "none"}}
  return {
    "seq_len": 32,
    "batch_size_schedule": ((0, 8), (2, 4)),
    "skip": ((1, 1),),
    "seed": 3,
    "sources": {"text": text, "more": more},
    "mix": {
      "stages": [(0, {"text": 0.5, "more": 0.25}), (4, {"text": 1, "more": 3})]
    },
  }


def put(path, value, data, tmp_path):
  out = copy.deepcopy(data)
  *parents, last = path.split(".")
  section = out
  for name in parents:
    section = section.setdefault(name, {})
  section[last] = value(data, tmp_path) if callable(value) else value
  return out


def change(path, value):
  return functools.partial(put, path, value)


def store_at(make):
  """Another path to the store of `text`."""

  def place(data, tmp_path):
    return make(pathlib.Path(data["sources"]["text"]["store"]), tmp_path)

  return change("sources.text.store", place)


def linked(store, tmp_path):
  (tmp_path / "linked").symlink_to(store)
  return str(tmp_path / "linked")


def backwards(value):
  if not isinstance(value, dict):
    return value
  return {k: backwards(v) for k, v in reversed(value.items())}


def with_defaults(data, tmp_path):
  del tmp_path
  out = copy.deepcopy(data)
  out["sources"]["text"]["rows"] |= {
    "filler": "pad",
    "content_stride": 1,
    "min_copy_len": 2,
    "doc_weights": None,
  }
  return {**out, "remainder": "drop", "lookahead": False, "tombstones": ()}


def gone_later(data, tmp_path):
  path = tmp_path / "gone.jsonl"
  path.write_text('{"source": "text", "document": 3}\n')
  return {**data, "tombstones": ((9, str(path)),)}


def with_source_later(data, tmp_path):
  del tmp_path
  out = copy.deepcopy(data)
  out["sources"]["late"] = {**out["sources"]["more"], "max_epochs": 2}
  out["mix"]["stages"].append((8, {"late": 1, "more": 1}))
  return out


ANY = {
  "a link to the store": store_at(linked),
  "a copy of the store": store_at(
    lambda store, tmp_path: str(shutil.copytree(store, tmp_path / "copy"))
  ),
  "a relative path": store_at(lambda store, _: os.path.relpath(store)),
  "a path that ends in a slash": store_at(lambda store, _: f"{store}/"),
  "a path with a detour": store_at(
    lambda store, _: f"{store.parent}/../{store.parent.name}/{store.name}"
  ),
  "a tuple of one store": store_at(lambda store, _: (str(store),)),
  "keys in another order": lambda data, _: backwards(data),
  "a ConfigDict": lambda data, _: ml_collections.ConfigDict(data),
  "lists as tuples": lambda data, _: json.loads(json.dumps(data)),
  "defaults that are said": with_defaults,
  "a worker": change("worker_count", 1),
  "four workers": change("worker_count", 4),
  "more batches ready": change("prefetch", 7),
  "a shorter wait": change("timeout_s", 5.0),
  "another end of processes": change("on_peer_failure", "exit"),
  "more time for it": change("peer_failure_grace_s", 60.0),
  "balance": lambda data, _: {**data, "balance": "attention",
                              "balance_shards": 2},
  "less memory of blocks": change("shuffle_cache_bytes", 1 << 20),
  "a skip later on": lambda data, _: {
    **data, "skip": (*data.get("skip", ()), (8, 9))
  },
  "documents gone later on": gone_later,
}  # fmt: skip
ALONE = {
  "more epochs as sizes": lambda data, _: {
    **{k: v for k, v in data.items() if k != "global_batch_size"},
    "batch_size_schedule": ((0, 8), (7, 16)),
  },
  "a mix of it alone": lambda data, _: {
    **data, "mix": {"stages": [(0, {"text": 3})]}
  },
  "no limit of its own": change("sources.text.max_epochs", None),
  "a weight that shares nothing": change("sources.text.weight", 0.3),
}  # fmt: skip
MIXED = {
  "weights in proportion": change(
    "mix.stages",
    [(0, {"text": 2, "more": 1}), (4, {"more": 0.75, "text": 0.25})],
  ),
  "weights as pairs": change(
    "mix.stages",
    [(0, (("text", 0.5), ("more", 0.25))), (4, (("more", 3), ("text", 1)))],
  ),
  "a stage later on": lambda data, _: put(
    "mix.stages", [*data["mix"]["stages"], (7, {"text": 1})], data, None
  ),
  "a source later on": with_source_later,
  "a size later on": change("batch_size_schedule", ((0, 8), (2, 4), (9, 2))),
}  # fmt: skip


@functools.cache
def _state_of(text):
  data = json.loads(text)
  with iterators.make_iterator(data, step=STEP) as it:
    return it.get_state(), batch_hashes.batch_sha256(next(it))


def state_of(data):
  """Returns a state, and the hash of the batch after it."""
  return _state_of(json.dumps(data))


def accepted(data, state, wanted, **options):
  with iterators.make_iterator(data, **options) as it:
    it.set_state(state)
    assert it.step == STEP
    if not data.get("worker_count") and it.shards is None:
      assert batch_hashes.batch_sha256(next(it)) == wanted


@pytest.mark.parametrize("name", [*ANY, *ALONE])
def test_no_change_of_one_source_is_refused(data, tmp_path, name):
  state, wanted = state_of(data)
  accepted({**ANY, **ALONE}[name](data, tmp_path), state, wanted)


# Each of ANY is tried on one source above.
@pytest.mark.parametrize(
  "name", [*MIXED, *(pytest.param(own, marks=pytest.mark.slow) for own in ANY)]
)
def test_no_change_of_a_mix_is_refused(mixed, tmp_path, name):
  state, wanted = state_of(mixed)
  accepted({**ANY, **MIXED}[name](mixed, tmp_path), state, wanted)


def test_a_state_may_be_written_otherwise_elsewhere_and_by_others(data, mixed):
  """Other keys' order, white space, fields of later versions, processes."""
  for own in (data, mixed):
    state, wanted = state_of(own)
    record = state_lib.decode(state)
    topology = {"process_count": 64, "worker_count": 3}
    with iterators.make_iterator(own) as it:
      for state_of_others in (
        written(backwards(record)),
        json.dumps(json.loads(state)).encode(),
        written({**record, "of_a_later_version": [1]}),
        written({**record, "topology": topology}),
      ):
        it.set_state(state_of_others)
        assert it.step == STEP
        assert batch_hashes.batch_sha256(next(it)) == wanted
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:1]), ("data",))
    spec = jax.sharding.PartitionSpec("data")
    sharding = jax.sharding.NamedSharding(mesh, spec)
    accepted(own, state, wanted, sharding=sharding)


def written(record):
  return json.dumps({**record, "digest": state_lib.digest(record)}).encode()
