# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""All sections of a config are checked together, whatever is wrong in one."""

import pytest

import chomp_data
from chomp_data.config import options

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


def test_no_tombstones_may_be_said_of_arrays():
  read = options.read({**ARRAYS, "tombstones": []})
  assert read.kind == "resolution"
  assert read == options.read(ARRAYS)


def test_names_of_sources_may_be_numbers():
  read = options.read({**ROWS, "sources": {3: {"store": "x"}}})
  assert list(read.sources) == ["3"]
