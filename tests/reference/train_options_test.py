# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A run's config is checked whole before anything is trained."""

import numpy as np
import pytest

from chomp_data import schema
from chomp_data.reference import train_options
from chomp_data.testing import stores as testing_stores


@pytest.fixture(scope="module")
def store_path(tmp_path_factory):
  path = tmp_path_factory.mktemp("corpus") / "store"
  testing_stores.make_store(path, [np.arange(3, 90)], vocab_size=100)
  return str(path)


def _config(store_path: str, **sections):
  return {
    "data": {
      "seq_len": 16,
      "global_batch_size": 2,
      "epochs": 1,
      "sources": {"text": {"store": store_path, "rows": {"kind": "splice"}}},
    },
    **sections,
  }


def test_sizes_that_the_input_knows_need_not_be_given(store_path):
  run = train_options.read(_config(store_path))
  assert run.model.vocab_size == 100
  assert run.model.max_positions == 16
  assert run.num_steps == run.pipe.num_steps
  assert run.record()["model"]["d_model"] == 128


def test_bad_fields_of_all_sections_are_listed_at_once(store_path):
  config = _config(
    store_path,
    model={"d_model": 10, "num_heads": 4},
    optimizer={"learning_rate": float("nan")},
    train={"num_step": 3},
    checkpoint={"keep": 0},
    modell={},
  )
  config["data"]["seq_len"] = 1
  with pytest.raises(schema.ConfigError) as caught:
    train_options.read(config)
  text = str(caught.value)
  for name in (
    "config.modell",
    "config.data.seq_len",
    "config.model.d_model",
    "config.optimizer.learning_rate",
    "config.train.num_step",
    "config.checkpoint.keep",
  ):
    assert f"`{name}`" in text
  assert "Did you mean `num_steps`?" in text


@pytest.mark.parametrize(
  ("sections", "data", "message"),
  [
    ({"model": {"vocab_size": 50}}, {}, "vocabulary, got 50 < 100"),
    ({"model": {"max_positions": 8}}, {}, "seq_len`, got 8 < 16"),
    ({"train": {"num_steps": 10**6}}, {}, "input's steps, got 1000000 >"),
    ({}, {"epochs": None}, "must be set where the input is endless, got None"),
    ({}, {"batch_format": "maxtext"}, "reference trainer, got 'maxtext'"),
  ],
)
def test_sections_that_do_not_fit_the_input_are_refused(
  store_path, sections, data, message
):
  config = _config(store_path, **sections)
  config["data"].update(data)
  with pytest.raises(schema.ConfigError, match=message):
    train_options.read(config)
