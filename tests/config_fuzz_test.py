# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""No config ends in an error from inside: one names the field, or it runs.

Whole configs of every kind, each option of each section written out, with one
to three edits anywhere: other values, fields that are missing or unknown, and
what no section is.
"""

import copy
import dataclasses
import decimal
import fractions
import re

import hypothesis
from hypothesis import strategies as st
import ml_collections
import numpy as np
import pytest

import chomp_data
from chomp_data import row_kinds
from chomp_data import schema
from chomp_data import stores
from chomp_data.bucket import array_dataset
from chomp_data.bucket import document_dataset
from chomp_data.bucket import options as sections
from chomp_data.config import options as options_lib
from chomp_data.stores import samples_array_record
from chomp_data.testing import stores as testing_stores
from examples import save_to_disk
from tests import laws

# What a slip, a flag or another program may leave in the place of a value.
VALUES = [
  None, True, False, 0, 1, -1, 3, 2**31, 2**53, 2**63, -(2**70), 10**400, 0.0,
  0.5, -1.5, 1e300, float("nan"), float("inf"),
  complex(1, 1), fractions.Fraction(1, 3), decimal.Decimal("0.5"),
  decimal.Decimal("sNaN"), "", "a", "full", "multi_splice", "height", "8x8",
  "height/0", "../..", "../" * 2_000, "a\0b", "x" * 100_000, "\ud800",
  "~", "/dev/null", "gs://bucket/store", "no:0.5 such:0.5", b"bytes",
  (), (None,), [], [1], [[]], [None], (3, 4), [(4, 6)], ["pixels"],
  [("a", 1.0)], [(0, {"a": 1.0})], [[0, [["a", -1]]]], {}, {"a": 1},
  {"a": None}, {None: 1}, {"kind": "bin"}, {1: {2: 3}}, {"\ud800": 1},
  {"pixels": {"shape": (2**53, 2**53), "dtype": "uint8"}},
  {"pixels": {"shape": ["height", 10**400]}}, {"pixels": {"dtype": "O"}},
  {"pixels": {"dtype": "uint8,uint8"}}, {"pixels": {"shape": np.arange(2)}},
  {"datasets": [{"spec": "\ud800", "row_offset": 2**53}]}, {"datasets": 3},
  np.arange(2), np.arange(4).reshape(2, 2), np.zeros(0), np.array(3),
  np.array("a"), np.int32(7), np.float32(0.5), np.str_("text"), np.bool_(True),
  np.array([None, "a"]), object(), set(), {1, 2}, range(3), iter([1]), int,
  NotImplemented, bytearray(b"x"), memoryview(b"x"), slice(3),
]  # fmt: skip


def filled(cls, **given):
  """Returns a section of every field of some options."""
  defaults = {
    field.name: field.default
    for field in dataclasses.fields(cls)
    if field.default is not dataclasses.MISSING
  }
  return {**defaults, **given}


def source(store, rows=None, **given):
  return {
    "store": store,
    "rows": {} if rows is None else rows,
    "shuffle": filled(chomp_data.ShuffleOptions),
    "weight": None,
    "max_epochs": None,
    **given,
  }


def rows(kind, **given):
  return {"kind": kind, **filled(row_kinds.ROW_KINDS[kind].options, **given)}


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
  """One `config.data` of each kind, over small real stores, by name."""
  root = tmp_path_factory.mktemp("stores")
  lengths = np.random.default_rng(0).integers(0, 90, 40)
  documents = [np.arange(n) % 250 for n in lengths]
  testing_stores.make_store(root / "zarr", documents)
  testing_stores.make_array_records(root / "records", documents)
  own = [
    ({"pixels": np.full((h, w, 3), h, np.uint8)}, {"height": h, "width": w})
    for h, w in [(4, 6), (8, 8)] * 12
  ]
  samples_array_record.write_samples(root / "samples", own)
  save_to_disk.save_to_disk(root / "arrow", own)
  run = {"seq_len": 32, "global_batch_size": 4}
  data = filled(options_lib.RowFields, **run)
  zarr, records = str(root / "zarr"), str(root / "records")
  array_record = filled(
    stores.ArrayRecordOptions, token_dtype="uint16", vocab_size=256, pad_id=0
  )
  order = filled(sections.OrderOptions)
  in_bucket = filled(document_dataset.DocumentOptions)
  return {
    "text": {**data, "sources": {"a": source(zarr, rows("multi_splice"))}},
    "splice": {**data, "sources": {"a": source(zarr, rows("splice"))}},
    "windows": {**data, "sources": {"a": source(zarr, rows("windows"))}},
    "mix": {
      **data,
      "sources": {
        "a": source(zarr, rows("sequential"), weight=0.5),
        "b": source(records, rows("bin"), array_record=array_record),
      },
      "mix": filled(chomp_data.MixOptions),
    },
    "length": {
      **filled(options_lib.TextFields),
      "buckets": filled(
        sections.LengthBuckets,
        kind="length",
        lengths=(8, 16),
        tokens_per_batch=64,
      ),
      "sources": {
        "a": source(zarr, in_bucket, shuffle=order),
        "b": source(
          records, in_bucket, shuffle=order, array_record=array_record
        ),
      },
      "mix": filled(sections.BucketMixOptions),
    },
    "resolution": {
      **filled(options_lib.ArrayFields, global_batch_size=4),
      "buckets": filled(
        sections.ResolutionBuckets,
        kind="resolution",
        sizes=((4, 6), (8, 8)),
        fields={"pixels": {"shape": ("height", "width", 3), "dtype": "uint8"}},
      ),
      "sources": {
        name: source(
          str(root / store), filled(array_dataset.SampleOptions), shuffle=order
        )
        for name, store in (("a", "samples"), ("b", "arrow"))
      },
      "mix": filled(sections.BucketMixOptions),
    },
  }


def places(data, path=()):
  """Yields (path, whether there is a section) of all values, outer first."""
  for name, value in data.items():
    yield (*path, name), isinstance(value, dict)
    if isinstance(value, dict):
      yield from places(value, (*path, name))


def edited(data, path, value):
  """Returns a config with another value, or without one, at a path."""
  data = copy.copy(data)
  name, *rest = path
  if not rest:
    if value is REMOVED:
      data.pop(name, None)
    else:
      data[name] = value
  elif isinstance(data.get(name), dict):
    data[name] = edited(data[name], rest, value)
  return data


REMOVED = object()


def problem_of(data):
  """Builds a config and a batch; returns the text of its error, or None."""
  try:
    chomp_data.build(data).batch(0)
  except (schema.ConfigError, stores.StoreError) as error:
    return str(error)
  return None


def test_configs_as_they_are_written_out_are_right(configs):
  for data in configs.values():
    assert problem_of(data) is None


SLIPS = st.sampled_from([REMOVED, *VALUES])
# Half of them nested or drawn at random.
JUNK = SLIPS | st.recursive(
  SLIPS | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4),
  lambda inner: (
    st.lists(inner, max_size=2)
    | st.dictionaries(st.text(max_size=3), inner, max_size=2)
  ),
  max_leaves=4,
)


@laws.examples(60)
@hypothesis.given(data=st.data())
def test_no_config_ends_in_an_error_from_inside(configs, data):
  config = configs[data.draw(st.sampled_from(sorted(configs)))]
  known = list(places(config))
  # Fields are many, sections few.
  kinds = st.sampled_from([path for path, own in known if own])
  kinds |= st.sampled_from([path for path, _ in known])
  for _ in range(data.draw(st.integers(1, 3))):
    *section, name = data.draw(kinds)
    if not data.draw(st.integers(0, 9)):
      name = data.draw(st.sampled_from(["c", "", "\ud800", "a.b", 3, None]))
    config = edited(config, (*section, name), data.draw(JUNK))
  if data.draw(st.booleans()):
    try:
      config = ml_collections.ConfigDict(config)
    except (AttributeError, TypeError, ValueError, KeyError):
      hypothesis.reject()  # It never gets to us.
  problem = problem_of(config)
  if problem is not None:
    assert "config.data" in problem


@pytest.mark.parametrize("data", [None, 3, [], np.arange(2), "config"])
def test_what_is_no_config_is_refused(data):
  with pytest.raises(schema.ConfigError, match=r"`config\.data` must be a"):
    chomp_data.build(data)


@pytest.mark.parametrize(
  ("kind", "path", "value", "match"),
  [
    ("text", "sources.\ud800", {}, r"sources` must be entries by names"),
    ("length", "sources.\ud800", {}, r"sources` must be entries by names"),
    ("text", "sources.a.store", "a\0b", r"a\.store: .*got 'a\\x00b'.*null"),
    ("text", "sources.a.store", "\ud800", r"a\.store: .*be one that can be"),
    ("mix", "sources.b.store", "x" * 10**5, r"b\.store: .*File name too long"),
    ("length", "sources.a.rows", np.arange(2), r"a\.rows` must be a section"),
    ("length", "sources.a.shuffle", np.zeros(0), r"a\.shuffle` must be a sect"),
    ("text", "seed", 10**5_000, r"seed` must be .*got one of type int that"),
    ("text", "seed", "x" * 10**5, r"got 'xxx.* \.\.\. \(100002 characters\)"),
    (
      "resolution",
      "buckets.fields.pixels.shape",
      (2**53, 2**53),
      r"sample 0 must have `pixels` of shape \(9007199254740992, 90.* got \(4,",
    ),
  ],
  ids=range(10),
)  # fmt: skip
def test_what_once_ended_inside_names_its_field(
  configs, kind, path, value, match
):
  problem = problem_of(edited(configs[kind], path.split("."), value))
  assert problem is not None
  assert re.search(match, problem)


@pytest.mark.parametrize("stages", [(), [], None])
def test_a_curriculum_without_stages_is_none(configs, stages):
  data = edited(configs["length"], ("buckets", "stages"), stages)
  assert (
    chomp_data.build(data).fingerprint
    == chomp_data.build(configs["length"]).fingerprint
  )
