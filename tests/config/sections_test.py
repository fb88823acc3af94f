# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""All sections of a config are checked together, whatever is wrong in one."""

import re

import numpy as np
import pytest

import chomp_data
from chomp_data.config import options
from chomp_data.testing import stores as testing_stores

ROWS = {"seq_len": 8, "global_batch_size": 2, "sources": {"a": {"store": "x"}}}
LENGTHS = {
  "buckets": {"kind": "length", "lengths": [8], "tokens_per_batch": 16},
  "sources": {"a": {"store": "x"}},
}
ARRAYS = {
  "buckets": {"kind": "resolution", "fields": ["image"]},
  "global_batch_size": 2,
  "sources": {"a": {"store": "x"}},
}


def problems(data):
  with pytest.raises(chomp_data.ConfigError) as error:
    options.read(data)
  return error.value.problems


def test_one_error_lists_what_is_wrong_in_every_section():
  all_problems = problems(
    {
      "seq_len": 1,
      "mix": {"weights": {"b": 1.0}, "kind": "x"},
      "sources": {
        "a": {"store": "x", "rows": {"kind": "bin", "alpha": 1}},
        "b": {"weight": -1, "shuffle": {"kind": "era"}},
        "c": 3,
      },
    }
  )
  paths = [problem.split("`")[1] for problem in all_problems]
  assert sorted(paths) == sorted(
    f"config.data.{name}"
    for name in (
      "seq_len",
      "global_batch_size",
      "mix.kind",
      "sources.a.rows.alpha",
      "sources.b.store",
      "sources.b.weight",
      "sources.b.shuffle.era_length",
      "sources.c",
    )
  )


@pytest.mark.parametrize(
  ("data", "problem"),
  [
    (
      {**LENGTHS, "buckets": {**LENGTHS["buckets"], "sizes": [(8, 8)]}},
      "`config.data.buckets.sizes` must be left out where"
      " `config.data.buckets.kind` is 'length', got [(8, 8)]. Set kind to"
      " 'resolution', or remove it.",
    ),
    (
      {**ROWS, "buckets": 3},
      "`config.data.buckets` must be a section with fields, got 3. Give it"
      " fields.",
    ),
    (
      {**ROWS, "buckets": {"lengths": [8]}},
      "`config.data.buckets.kind` must be one of 'length', 'resolution', got"
      " None. Choose one.",
    ),
    (
      {**ARRAYS, "tombstones": [(0, "f.jsonl")]},
      "`config.data.tombstones` must be None for samples that are arrays, got"
      " [(0, 'f.jsonl')]. Leave it out: skip steps, or begin anew.",
    ),
  ],
)
def test_what_another_kind_of_run_has_is_refused(data, problem):
  assert problems(data) == [problem]


class WithoutText:
  """A value that cannot be printed."""

  def __repr__(self):
    raise RuntimeError("no text")


@pytest.mark.parametrize(
  ("fields", "problem"),
  [
    (
      {"seed": WithoutText()},
      r"`config.data.seed` .* got one of type",
    ),
    ({"dataset_mix": np.array([1, 2])}, r"`config.data.dataset_mix` must be"),
    (
      {"buckets": {"kindd": "length"}},
      r"`config.data.buckets.kindd` is not a known field. Did you mean `kind`",
    ),
  ],
)
def test_a_value_of_any_type_is_an_error_that_names_its_field(fields, problem):
  assert any(re.match(problem, one) for one in problems({**ROWS, **fields}))


def test_a_previous_run_that_is_missing_is_named_by_its_option(tmp_path):
  path = testing_stores.make_store(tmp_path / "a", [np.arange(20)]).path
  config = {
    "seq_len": 8,
    "global_batch_size": 1,
    "sources": {"a": {"store": str(path)}},
    "start_after": f"{tmp_path}/none",
  }
  with pytest.raises(
    chomp_data.StateError, match=r"`config.data.start_after`: "
  ):
    chomp_data.build(config)


def test_no_tombstones_may_be_said_of_arrays():
  read = options.read({**ARRAYS, "tombstones": []})
  assert read.kind == "resolution"
  assert read == options.read(ARRAYS)


def test_names_of_sources_may_be_numbers():
  read = options.read({**ROWS, "sources": {3: {"store": "x"}}})
  assert list(read.sources) == ["3"]
