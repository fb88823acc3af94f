"""Options of a mix: every bad one is named, with its value and what to do."""

import fractions
import math

import ml_collections
import numpy as np
import pytest

from chomp_data import options as options_lib
from chomp_data import schema
from chomp_data.sources import mix_options

F = fractions.Fraction
PATH = "config.data.mix"


def read(**fields):
  options, problems = schema.read(mix_options.MixOptions, fields, PATH)
  if problems:
    raise schema.ConfigError(problems)
  return options


def problems(own_weights=("a", "b"), **fields):
  if not isinstance(own_weights, dict):
    own_weights = dict.fromkeys(own_weights)
  return read(**fields).problems(PATH, own_weights)


def test_the_kind_decides_the_unit_unless_one_is_given():
  assert read().balanced_unit == "tokens"
  assert read(kind="weighted").balanced_unit == "rows"
  assert read(kind="weighted", unit="loss_tokens").balanced_unit == (
    "loss_tokens"
  )


def test_weights_are_exact_as_they_are_written():
  stages = read(weights={"b": 0.1, "a": 1 / 3}).all_stages({"a": None})
  assert stages == [(0, {"a": F("0.3333333333333333"), "b": F(1, 10)})]
  assert mix_options.exact(np.float64(0.1)) == F(1, 10)
  assert mix_options.exact(np.float32(0.1)) == F(1, 10)


def test_weights_are_equal_unless_given():
  assert read().all_stages({"a": None, "b": None}) == [(0, {"a": 1, "b": 1})]
  own = {"a": 0.2, "b": None}
  assert read().all_stages(own) == [(0, {"a": F(1, 5), "b": 1})]


def test_stages_follow_the_weights_or_begin_themselves():
  weights, later = {"a": 1}, {"a": 1, "b": 3}
  after = read(weights=weights, stages=[(9, later)])
  assert after.all_stages({}) == [(0, {"a": 1}), (9, {"a": 1, "b": 3})]
  alone = read(stages=[(0, weights), (9, later)])
  assert alone.all_stages({}) == after.all_stages({})
  own = {"a": 2, "b": None}
  assert read(stages=[(9, later)]).all_stages(own)[0] == (0, {"a": 2, "b": 1})


@pytest.mark.parametrize(
  "weights",
  [{"b": 1, "a": 2}, [("b", 1), ("a", 2)], (("a", 2), ("b", 1))],
)
def test_weights_are_a_mapping_or_pairs_in_any_order(weights):
  assert read(weights=weights).weights == (("a", 2), ("b", 1))


def test_a_config_dict_may_hold_weights_and_stages():
  section = ml_collections.ConfigDict(
    {
      "weights": ml_collections.ConfigDict({"a": 0.5, "b": 0.5}),
      "stages": ((3, (("a", 0.5), ("b", 0.5))),),
    }
  )
  options = read(**section.to_dict())
  assert options.all_stages({}) == [
    (0, {"a": F(1, 2), "b": F(1, 2)}),
    (3, {"a": F(1, 2), "b": F(1, 2)}),
  ]


BAD_WEIGHTS = [
  {"a": 0},
  {"a": 0.0},
  {"a": -0.1},
  {"a": math.nan},
  {"a": math.inf},
  {"a": -math.inf},
  {"a": "1"},
  {"a": True},
  {"a": None},
  {"a": 1j},
  {},
  [],
  [("a", 1), ("a", 2)],
  [("a", 1, 2)],
  ["a"],
  "ab",
  {1: 1},
  3,
]


@pytest.mark.parametrize("weights", BAD_WEIGHTS)
def test_bad_weights_are_refused_with_their_value(weights):
  for fields in (
    {"weights": weights},
    {"stages": [(0, {"a": 1}), (4, weights)]},
  ):
    (name,) = fields
    with pytest.raises(schema.ConfigError) as caught:
      read(**fields)
    assert f"`{PATH}.{name}` must be" in str(caught.value)
    assert "finite numbers above 0" in str(caught.value)
    assert repr(weights) in str(caught.value)


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf, "1", True])
def test_a_bad_weight_of_a_source_is_refused_with_its_path(weight):
  with pytest.raises(schema.ConfigError) as caught:
    options_lib.read(
      {
        "seq_len": 8,
        "global_batch_size": 2,
        "sources": {
          "a": {
            "store": "x",
            "rows": {"kind": "sequential"},
            "weight": weight,
          }
        },
      }
    )
  (problem,) = caught.value.problems
  assert "`config.data.sources.a.weight` must be a finite number" in problem
  assert repr(weight) in problem


@pytest.mark.parametrize(
  "stages",
  [
    [(5, {"a": 1}), (5, {"a": 2})],
    [(5, {"a": 1}), (3, {"a": 2})],
    [(-1, {"a": 1})],
    [(1.0, {"a": 1})],
    [(True, {"a": 1})],
    [("0", {"a": 1})],
    [(1,)],
    [5],
    {0: {"a": 1}},
    "ab",
    7,
  ],
)
def test_stages_out_of_order_or_of_another_form_are_refused(stages):
  with pytest.raises(schema.ConfigError) as caught:
    read(stages=stages)
  assert f"`{PATH}.stages` must be a list of (from_step" in str(caught.value)
  assert repr(stages) in str(caught.value)


@pytest.mark.parametrize(
  ("field", "value"),
  [
    ("kind", "tokens"),
    ("unit", "bytes"),
    ("exhaustion", "stop"),
    ("exhaustion", None),
  ],
)
def test_an_unknown_choice_lists_the_known_ones(field, value):
  with pytest.raises(schema.ConfigError) as caught:
    read(**{field: value})
  rule = str(caught.value)
  assert f"`{PATH}.{field}` must be" in rule
  assert repr(value) in rule
  for known in {
    "kind": mix_options.MIX_KINDS,
    "unit": ("tokens", "rows", "loss_tokens"),
    "exhaustion": (
      "drop",
      "first_exhausted",
      "all_exhausted",
      "all_exhausted_without_replacement",
    ),
  }[field]:
    assert repr(known) in rule


def test_a_source_that_is_weighed_must_be_declared():
  for fields in (
    {"weights": {"a": 1, "b": 1, "wiki": 1}},
    {"stages": [(0, {"a": 1, "b": 1}), (4, {"a": 1, "wiki": 1})]},
    {"stages": [(4, {"a": 1, "wiki": 1})]},
  ):
    (found,) = problems(**fields)
    assert "must name declared sources, got 'wiki'; declared are a, b" in found
  assert "`config.data.mix.stages[0]`" in found


def test_a_declared_source_must_be_weighed_at_some_time():
  (found,) = problems(weights={"a": 1})
  assert "`config.data.mix.weights` must weigh every declared" in found
  assert "got none for b" in found
  (found,) = problems(stages=[(0, {"a": 1}), (2, {"a": 2})])
  assert "`config.data.mix.stages` must weigh every declared" in found
  assert not problems(weights={"a": 1}, stages=[(9, {"b": 1})])
  assert not problems(stages=[(9, {"b": 1})])


def test_weights_are_given_in_one_place():
  first = [(0, {"a": 1, "b": 1})]
  (found,) = problems(weights={"a": 1, "b": 1}, stages=first)
  assert "`config.data.mix.weights` must be None where stages begin" in found
  own = {"a": 0.5, "b": None}
  (found,) = problems(own, weights={"a": 1, "b": 1})
  assert "beside sources.<name>.weight, got both (of a)" in found
  (found,) = problems(own, stages=first)
  assert "`config.data.mix.stages` must not be set beside" in found
  assert not problems(own, stages=[(4, {"a": 1, "b": 1})])


def state(*entries):
  return {"datasets": [dict(entry) for entry in entries]}


def test_a_resume_state_is_read_as_the_seed_writes_it():
  given = state(
    {"spec": "a", "row_offset": 123, "token_offset": 456},
    {"spec": "b", "row_offset": 7},
    {"spec": "c", "row_offset": 8, "token_offset": None},
    {"spec": "d"},
  )
  assert read(resume_state=given).resume_state == (
    ("a", 123, 456),
    ("b", 7, None),
    ("c", 8, None),
    ("d", 0, None),
  )


@pytest.mark.parametrize(
  "given",
  [
    {},
    {"datasets": None},
    {"datasets": [], "step": 3},
    {"datasets": ["a"]},
    [{"spec": "a"}],
    state({"row_offset": 1}),
    state({"spec": 3}),
    state({"spec": "a", "rows": 1}),
    state({"spec": "a"}, {"spec": "a"}),
    state({"spec": "a", "row_offset": -1}),
    state({"spec": "a", "row_offset": None}),
    state({"spec": "a", "row_offset": 1.0}),
    state({"spec": "a", "token_offset": True}),
    state({"spec": "a", "token_offset": -2}),
  ],
)
def test_a_resume_state_of_another_form_is_refused(given):
  with pytest.raises(schema.ConfigError) as caught:
    read(resume_state=given)
  assert f"`{PATH}.resume_state` must be {{'datasets'" in str(caught.value)
  assert repr(given) in str(caught.value)


def run(text, sources=("a",), **fields):
  """Reads a run with a mix in one line."""
  return options_lib.read(
    {
      "seq_len": 8,
      "global_batch_size": 2,
      "dataset_mix": text,
      "sources": {
        name: {
          "store": f"stores/{name}",
          "rows": {"kind": "bin", "packing_buffer_docs": i + 1},
          "weight": 3.0,
        }
        for i, name in enumerate(sources)
      },
      **fields,
    }
  )


def test_a_mix_in_one_line_takes_the_place_of_the_sources():
  found = run("x/wiki:0.9 code=gs://bucket/b:0.1")
  assert {n: own.store for n, own in found.sources.items()} == {
    "wiki": "x/wiki",
    "code": "gs://bucket/b",
  }
  # Seed 004, which writes mixes so, weighs rows.
  assert found.mix.balanced_unit == "rows"
  assert found.mix.all_stages({}) == [(0, {"code": F(1, 10), "wiki": F(9, 10)})]
  assert run("x:1", mix={"kind": "token_balanced"}).mix.unit is None


def test_a_mix_in_one_line_takes_rows_by_alias_else_of_the_first_source():
  found = run("x/b:1 x/other:1", sources=("a", "b"))
  buffers = {n: s.rows.packing_buffer_docs for n, s in found.sources.items()}
  assert buffers == {"b": 2, "other": 1}


def test_one_path_alone_is_a_mix_of_one():
  found = run("x/wiki")
  assert list(found.sources) == ["wiki"]
  assert found.mix.all_stages({}) == [(0, {"wiki": 1})]


@pytest.mark.parametrize(
  ("text", "mix", "message"),
  [
    ("a:0 b:1", {}, r"`config.data.dataset_mix`: .* above 0, got 'a:0'"),
    ("a:1 b:1", {"weights": {"a": 1}}, r"beside `config.data.mix.weights`"),
    ("a:1", {"stages": [(0, {"a": 1})]}, r"beside `config.data.mix.stages`"),
    ("a:1", 3, r"`config.data.mix` must be a section"),
  ],
)
def test_a_wrong_mix_in_one_line_is_refused_with_its_path(text, mix, message):
  with pytest.raises(schema.ConfigError, match=message):
    run(text, mix=mix)
