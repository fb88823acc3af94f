# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The config surface: one error for all bad fields, and what is composed."""

import jax
import ml_collections
import numpy as np
import pytest

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data import schema
from chomp_data import stores
from chomp_data.testing import stores as testing_stores


@pytest.fixture(scope="module")
def store_path(tmp_path_factory):
  path = tmp_path_factory.mktemp("corpus") / "store"
  documents = [np.arange(n) % 250 for n in (200, 90, 300, 15, 60)]
  testing_stores.make_store(path, documents, vocab_size=256, pad_id=0)
  return str(path)


@pytest.fixture
def config(store_path):
  return ml_collections.ConfigDict(
    {
      "seq_len": 32,
      "global_batch_size": 4,
      "epochs": 1,
      "sources": {
        "text": {
          "store": store_path,
          "rows": {"kind": "multi_splice", "num_docs": 3},
        }
      },
    }
  )


def test_several_bad_fields_are_listed_in_one_error_before_data_is_read():
  with pytest.raises(schema.ConfigError) as caught:
    pipeline.build(
      {
        "seq_len": 1,
        "global_batch_size": 0,
        "sede": 3,
        "sources": {
          "text": {
            "store": "/nowhere",
            "rows": {
              "kind": "multi_splice",
              "content_length": 1,
              "content_strid": 2,
              "balance_tau": 1.2,
            },
            "shuffle": {"kind": "sometimes"},
          }
        },
      }
    )
  problems = caught.value.problems
  for path, value in [
    ("config.data.seq_len", "got 1"),
    ("config.data.global_batch_size", "got 0"),
    ("config.data.sede", "Did you mean `seed`"),
    ("config.data.sources.text.rows.content_length", "got 1"),
    ("config.data.sources.text.rows.content_strid", "`content_stride`"),
    ("config.data.sources.text.rows.balance_tau", "got 1.2"),
    ("config.data.sources.text.shuffle.kind", "got 'sometimes'"),
  ]:
    assert [p for p in problems if f"`{path}`" in p and value in p], path
  assert len(problems) == 7


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"sources": None}, r"config\.data\.sources.*got None"),
    ({"sources": {}}, "chomp-prepare"),
    ({"seq_len": "long"}, r"seq_len.*got 'long'"),
    ({"seq_len": True}, r"seq_len.*got True"),
    ({"seed": 2**63}, r"seed.*got 9223372036854775808"),
    ({"epochs": 0}, r"epochs.*got 0"),
    ({"batch_format": "numpy"}, r"'canonical', 'maxtext'.*got 'numpy'"),
    ({"remainder": "keep"}, r"'drop', 'pad'.*got 'keep'"),
    ({"mix": {"kind": "heavy"}}, r"mix\.kind.*'weighted'.*'heavy'"),
    ({"timeout_s": float("inf")}, r"timeout_s.*got inf"),
    ({"global_batch_size": 10**6}, r"at most the run's rows.*1000000"),
  ],
)
def test_bad_top_level_fields(config, changes, message):
  data = {**config.to_dict(), **changes}
  with pytest.raises(schema.ConfigError, match=message):
    pipeline.build(data)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"rows": {"kind": "bins"}}, r"rows\.kind.*got 'bins'"),
    ({"store": 3}, r"\.store.*got 3"),
    ({"stor": "x"}, r"Did you mean `store`"),
    (
      {
        "rows": {
          "kind": "splice",
          "restrict_to_training_subset": True,
          "initial_batch_size": 1,
          "max_train_batches": 1,
        },
        "shuffle": {"kind": "full"},
      },
      r"restrict_to_training_subset.*unshuffled",
    ),
  ],
)
def test_bad_source_fields(config, changes, message):
  data = config.to_dict()
  data["sources"]["text"].update(changes)
  with pytest.raises(schema.ConfigError, match=message):
    pipeline.build(data)


def test_all_stores_that_are_not_there_are_named_with_their_field(config):
  data = config.to_dict()
  rows = {"kind": "sequential"}
  data["sources"] |= {
    name: {"store": f"/no/{name}", "rows": rows} for name in ("a", "b")
  }
  with pytest.raises(stores.StoreError) as caught:
    pipeline.build(data)
  lines = sorted(str(caught.value).splitlines())
  assert [line.partition(" must ")[0] for line in lines] == [
    f"config.data.sources.{name}.store: /no/{name}" for name in ("a", "b")
  ]
  # With options that do not fit a store, they are in one error.
  data["sources"]["text"]["rows"] |= {"doc_weights": {"none": 2.0}}
  with pytest.raises(schema.ConfigError) as caught:
    pipeline.build(data)
  assert len(caught.value.problems) == 3
  assert sum("/no/" in own for own in caught.value.problems) == 2


def test_pipelines_sources_and_stores_print_what_they_are(config, store_path):
  pipe = pipeline.build(config)
  assert repr(pipe).startswith(
    f"Pipeline({pipe.num_steps} steps, 32: [4, 32], sources text, fingerprint "
  )
  source = pipe.sources["text"]
  assert repr(source).startswith("SpliceSource('text', ")
  assert repr(source.store) == (
    f"ZarrStore({store_path!r}, hash={source.store.hash[:16]!r})"
  )


@pytest.mark.parametrize("shuffle", ["", [], 1.5, "full"])
def test_a_shuffle_that_is_no_section_is_refused(config, shuffle):
  data = config.to_dict()
  data["sources"]["text"]["shuffle"] = shuffle
  with pytest.raises(schema.ConfigError, match=r"text\.shuffle.*a section"):
    pipeline.build(data)


def test_a_whole_config_in_place_of_its_section_is_told(config):
  with pytest.raises(schema.ConfigError, match=r"Pass its field `data`\.$"):
    pipeline.build({"data": config, "model": {}})


def test_what_is_no_sharding_is_told(config):
  mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
  with pytest.raises(TypeError, match=r"`sharding` must be .*, got Mesh"):
    iterators.make_iterator(config, mesh)  # pyright: ignore


def test_narrowed_windows_of_many_sources_are_one_warning(config, caplog):
  source = config.sources.text
  source.shuffle = {"kind": "block", "io_block_size": 1, "window_blocks": 64}
  names = ("first", "second", "third")
  config.sources = {name: source.to_dict() for name in names}
  config.mix = {"weights": dict.fromkeys(names, 1.0)}
  config.shuffle_cache_bytes = 1
  pipeline.build(config)
  (line,) = [text for text in caplog.messages if "narrowed" in text]
  assert line.startswith("config.data.sources.first.shuffle: windows of 64")
  assert line.endswith("So were those of 2 more sources.")
