# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Short forms: rows without a kind, `shuffle` as a bool or an int."""

import ml_collections
import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data.config import flags
from chomp_data.config import options
from chomp_data.testing import stores as testing_stores


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  path = tmp_path_factory.mktemp("short") / "store"
  return str(testing_stores.make_store(path, [range(3, 40)] * 9).path)


def config(store, rows=None, shuffle=None, **changes):
  source = {"store": store, "rows": rows, "shuffle": shuffle}
  return {
    "seq_len": 8,
    "global_batch_size": 2,
    "sources": {"a": {n: v for n, v in source.items() if v is not None}},
    **changes,
  }


@pytest.mark.parametrize(
  ("short", "full"),
  [
    (True, {"kind": "full"}),
    (False, {"kind": "none"}),
    (1, {"kind": "era", "era_length": 1}),
    (None, {}),
  ],
)
def test_a_short_shuffle_is_the_section_it_stands_for(store, short, full):
  short, full = (
    pipeline.build(config(store, {"kind": "sequential"}, own)).fingerprint
    for own in (short, full)
  )
  assert short == full


@pytest.mark.parametrize("short", [0, -1, 1.5, "full", [4]])
def test_a_wrong_shuffle_is_rejected(store, short):
  with pytest.raises(chomp_data.ConfigError, match=r"sources\.a\.shuffle"):
    options.read(config(store, {"kind": "bin"}, short))


def test_a_wrong_shuffle_says_which_short_forms_there_are(store):
  data = config(store, {"kind": "bin"}, "blok")
  with pytest.raises(chomp_data.ConfigError) as caught:
    options.read(data)
  (problem,) = caught.value.problems
  assert (
    "must be a section with fields, True (kind 'full'), False (kind 'none') or"
    " a whole number (kind 'era', the rows of an era), got 'blok'. Give it"
    " fields, such as 'kind' ('none', "
  ) in problem
  assert "'block'" in problem
  del data["seq_len"]
  del data["sources"]["a"]["rows"]
  buckets = {"kind": "length", "lengths": (8, 16), "tokens_per_batch": 32}
  with pytest.raises(
    chomp_data.ConfigError,
    match=r"a section with fields, or True \(with defaults\), got 'blok'. Give"
    " it fields, or True.",
  ):
    options.read({**data, "buckets": buckets})


@pytest.mark.parametrize("rows", [None, {}, {"kind": None}, {"tail": "drop"}])
def test_rows_are_sequential_by_default(store, rows):
  named = {**(rows or {}), "kind": "sequential"}
  short, full = (options.read(config(store, own)) for own in (rows, named))
  assert short == full


def test_an_option_of_another_kind_names_the_kind(store):
  with pytest.raises(
    chomp_data.ConfigError,
    match=r"packing_buffer_docs` must be left out where"
    r" `config.data.sources.a.rows.kind` is 'sequential', got 64. Set kind to"
    r" 'bin', or remove it",
  ):
    options.read(config(store, {"packing_buffer_docs": 64}))
  with pytest.raises(
    chomp_data.ConfigError, match=r"a\.rows` must be a section"
  ):
    options.read(config(store, "bin"))


def test_sources_of_equal_meaning_are_one_template_of_dataset_mix(store):
  data = config(store, dataset_mix=f"x={store}:0.5 y={store}:0.5")
  entry = {"store": store}
  data["sources"] = {
    "a": {**entry, "shuffle": True, "rows": {"kind": "sequential"}},
    "b": {**entry, "shuffle": {"kind": "full"}},
  }
  read = options.read(data)
  assert {own.shuffle.kind for own in read.sources.values()} == {"full"}


@pytest.mark.parametrize(
  ("before", "overrides", "wanted"),
  [
    (None, ["shuffle=True"], {"kind": "full"}),
    ({"kind": "full"}, ["shuffle=7"], {"kind": "era", "era_length": 7}),
    (7, ["shuffle.seed=3"], {"kind": "era", "era_length": 7, "seed": 3}),
    (True, ["shuffle.kind=block"], {"kind": "block"}),
    (7, ["shuffle.kind=full"], {"kind": "full"}),
    (7, ["shuffle=False"], {"kind": "none"}),
  ],
)
@pytest.mark.parametrize("filled", [False, True])
def test_short_forms_on_the_command_line(
  store, before, overrides, wanted, filled
):
  data = config(store, {"kind": "bin"}, before)
  whole = chomp_data.with_placeholders(data) if filled else data
  given = ml_collections.ConfigDict({"data": whole})
  flags.apply(given, [f"data.sources.a.{own}" for own in overrides], {})
  read = options.read(given.data)
  again = options.read(config(store, {"kind": "bin"}, wanted))
  assert read.sources["a"].shuffle == again.sources["a"].shuffle


@pytest.mark.parametrize("short", [True, False, 5])
def test_sources_in_buckets_are_always_permuted(short):
  data = {
    "buckets": {"kind": "length", "lengths": [8], "tokens_per_batch": 16},
    "sources": {"a": {"store": "x", "shuffle": short}},
  }
  if short is True:
    assert options.read(data).sources["a"].shuffle.seed is None
    return
  with pytest.raises(chomp_data.ConfigError, match="shuffle` must be a sec"):
    options.read(data)
