# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options of a mix: every bad one is named, with its value and what to do."""

import fractions
import math

import ml_collections
import numpy as np
import pytest

from chomp_data import schema
from chomp_data.config import dataset_mix
from chomp_data.config import options as options_lib
from chomp_data.mix import mix_options

F = fractions.Fraction
PATH = "config.data.mix"


def read(**fields):
  options, problems = schema.read(mix_options.MixOptions, fields, PATH)
  if problems:
    raise schema.ConfigError(problems)
  return options


def problems(source_weights=("a", "b"), **fields):
  if not isinstance(source_weights, dict):
    source_weights = dict.fromkeys(source_weights)
  return read(**fields).problems(PATH, source_weights)


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


@pytest.mark.parametrize(
  "weight", [0, 0.0, -0.1, math.nan, math.inf, -math.inf]
)
def test_a_weight_that_is_not_above_0_is_named_alone(weight):
  stages = [(0, {"a": 1}), (4, {"b": 2, "a": weight})]
  for fields, name in (
    ({"weights": {"b": 1, "a": weight}}, "weights['a']"),
    ({"stages": stages}, "stages[1]['a']"),
  ):
    (problem,) = read(**fields).problems(PATH, {"a": None, "b": None})
    rule = f"`{PATH}.{name}` must be a finite number above 0, got {weight!r}."
    assert problem.startswith(rule)
    assert "'b'" not in problem


def test_a_source_of_weight_0_waits_for_the_stage_that_names_it():
  weights = {"a": 0.7, "b": 0}
  stages = [(9, {"a": 1, "b": 3})]
  options = read(stages=stages)
  assert options.problems(PATH, weights) == []
  assert options.all_stages(weights) == [
    (0, {"a": F(7, 10)}),
    (9, stages[0][1]),
  ]


def test_a_source_of_weight_0_needs_a_stage_and_another_source():
  (problem,) = problems({"a": 0.7, "b": 0, "c": 0.0}, stages=[(9, {"b": 1})])
  assert "0 only where a stage of `mix.stages` names the source" in problem
  assert "got 0 for c, which none names" in problem
  (problem,) = problems({"a": 0, "b": 0}, stages=[(9, {"a": 1, "b": 1})])
  assert "must be above 0 for some source, got 0 for a, b." in problem
  with pytest.raises(schema.ConfigError, match="got 0 for a, which none names"):
    options_lib.read(
      {
        "seq_len": 8,
        "global_batch_size": 2,
        "sources": {"a": {"store": "x", "weight": 0}},
      }
    )


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf, "1", True])
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
  assert (
    "`config.data.sources.a.weight` must be 0 or a finite number" in problem
  )
  assert repr(weight) in problem


@pytest.mark.parametrize(
  "stages",
  [
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
def test_stages_of_another_form_are_refused(stages):
  with pytest.raises(schema.ConfigError) as caught:
    read(stages=stages)
  assert f"`{PATH}.stages` must be a list of (from_step" in str(caught.value)
  assert repr(stages) in str(caught.value)


@pytest.mark.parametrize(
  ("steps", "rule"),
  [
    ((5, 5), "[1]` must begin after step 5, where the stage before it"),
    ((5, 3), "[1]` must begin after step 5, where the stage before it"),
    ((0, 9, 7), "[2]` must begin after step 9, where the stage before it"),
    ((-1,), "[0]` must begin at a step of 0 .. "),
    ((0, 2**40 + 1), "[1]` must begin at a step of 0 .. "),
  ],
)
def test_a_stage_out_of_order_is_named_with_its_step(steps, rule):
  stages = [(step, {"a": 1}) for step in steps]
  (problem,) = read(stages=stages).problems(PATH, {"a": None})
  assert problem.startswith(f"`{PATH}.stages{rule}")
  assert f"got {'step ' if 'after' in rule else ''}{steps[-1]}." in problem


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


@pytest.mark.parametrize("count", [2**56 + 1, 2**62, 2**80])
def test_an_offset_that_sums_could_not_hold_is_refused(count):
  most = state({"spec": "a", "row_offset": 2**56, "token_offset": 2**56})
  assert read(resume_state=most).resume_state == (("a", 2**56, 2**56),)
  for field in ("row_offset", "token_offset"):
    with pytest.raises(schema.ConfigError, match=rf"0 \.\. {2**56}, or None"):
      read(resume_state=state({"spec": "a", field: count}))


def test_a_stage_begins_at_a_step_that_a_run_could_reach():
  stages = [(0, {"a": 1}), (2**40, {"b": 1})]
  assert [step for step, _ in read(stages=stages).stages] == [0, 2**40]
  for step in (2**40 + 1, 2**55, 10**30):
    options = read(stages=[(0, {"a": 1}), (step, {"b": 1})])
    (problem,) = options.problems(PATH, {"a": None, "b": None})
    assert f"0 .. {2**40}, got {step}." in problem


@pytest.mark.parametrize("field", ["weights", "stages"])
def test_a_flag_unsets_weights_and_stages(field):
  """A flag of a tuple that is given None arrives as (None,)."""
  assert getattr(read(**{field: (None,)}), field) is None
  with pytest.raises(schema.ConfigError, match="or None, got"):
    read(**{field: (None, None)})


def section(name, number, **changes):
  return {
    "store": f"stores/{name}",
    "rows": {"kind": "bin", "packing_buffer_docs": number},
    "shuffle": {"kind": "full", "seed": number},
    "weight": 3.0,
    "max_epochs": number,
    **changes,
  }


def run(text, sources=("a",), declared=None, **fields):
  """Reads a run with a mix in one line."""
  if declared is None:
    declared = {name: section(name, i + 1) for i, name in enumerate(sources)}
  return options_lib.read(
    {
      "seq_len": 8,
      "global_batch_size": 2,
      "dataset_mix": text,
      "sources": declared,
      **fields,
    }
  )


def test_a_mix_in_one_line_takes_the_place_of_the_sources():
  found = run("x/wiki:0.9 code=gs://bucket/b:0.1")
  assert {n: own.store for n, own in found.sources.items()} == {
    "wiki": "x/wiki",
    "code": "gs://bucket/b",
  }
  # As any other mix: the line says weights only.
  assert found.mix.balanced_unit == "tokens"
  assert found.mix.all_stages({}) == [(0, {"code": F(1, 10), "wiki": F(9, 10)})]
  assert run("x:1", mix={"kind": "weighted"}).mix.balanced_unit == "rows"
  assert found.data.mix_entries[1].alias == "code"


def taken(found):
  """Returns what tells the sections of sources apart, by name."""
  return {
    name: (own.rows.packing_buffer_docs, own.shuffle.seed, own.max_epochs)
    for name, own in found.sources.items()
  }


def test_an_entry_of_a_declared_alias_is_that_source_at_another_path():
  found = run("x/b:1 a=x/other:1", sources=("a", "b"))
  assert taken(found) == {"b": (2, 2, 2), "a": (1, 1, 1)}


def test_any_other_entry_takes_rows_and_shuffle_of_the_only_source():
  assert taken(run("x/b:1 x/a:1")) == {"b": (1, None, None), "a": (1, 1, 1)}
  found = run("x/b:1", declared={"a": section("a", 1)})
  assert found.sources["b"].shuffle.kind == "full"


def test_any_other_entry_takes_rows_and_shuffle_of_default():
  # The order of names decides nothing: a comes before default.
  declared = {n: section(n, i) for i, n in enumerate(["a", "default"], 1)}
  found = run("x/b:1 x/a:1", declared=declared)
  assert taken(found) == {"b": (2, None, None), "a": (1, 1, 1)}
  # A template needs no store of its own.
  del declared["default"]["store"]
  assert taken(run("x/b:1", declared=declared)) == {"b": (2, None, None)}
  assert taken(run("default=x:1", declared=declared)) == {"default": (2, 2, 2)}


def test_sources_that_differ_only_in_store_seed_and_weight_are_one_template():
  declared = {
    "a": section("a", 3, shuffle={"kind": "full", "seed": 1}),
    "b": section("b", 3, shuffle={"kind": "full"}, weight=None),
  }
  assert taken(run("x/c:1", declared=declared)) == {"c": (3, None, None)}


def test_sources_that_differ_leave_no_rows_for_another_alias():
  with pytest.raises(schema.ConfigError) as caught:
    run("x/b:1 x/other:1 x/more:1", sources=("a", "b"))
  (problem,) = caught.value.problems
  assert "`config.data.dataset_mix` must name declared sources" in problem
  assert "differ (a, b), got other, more." in problem
  assert "`config.data.sources.default`" in problem


def test_one_path_alone_is_a_mix_of_one():
  found = run("x/wiki")
  assert list(found.sources) == ["wiki"]
  assert found.mix.all_stages({}) == [(0, {"wiki": 1})]


@pytest.mark.parametrize(
  ("mix", "said"),
  [
    ({"weights": {"a": 1}}, "mix.weights, sources.a.weight"),
    ({"stages": [(0, {"a": 1}), (3, {"z": 1})]}, "mix.stages, sources.a.w"),
    ({"stages": (None,), "weights": (None,)}, "of sources.a.weight."),
    ({}, "of sources.a.weight."),
  ],
)
def test_a_mix_in_one_line_replaces_other_weights_and_says_so(
  mix, said, caplog
):
  with caplog.at_level("INFO", "absl"):
    found = run("a:2 b:1", mix=mix)
  assert found.mix.all_stages({}) == [(0, {"a": 2, "b": 1})]
  assert all(own.weight is None for own in found.sources.values())
  (line,) = caplog.messages
  assert line.startswith("config.data.dataset_mix: takes the place of ")
  assert said in line


def test_a_mix_in_one_line_that_replaces_nothing_is_silent(caplog):
  with caplog.at_level("INFO", "absl"):
    run("a:2", declared={"a": section("a", 1, weight=None)})
  assert not caplog.messages


@pytest.mark.parametrize(
  ("text", "mix", "message"),
  [
    ("a:0 b:1", {}, r"`config.data.dataset_mix`: .* above 0, got 'a:0'"),
    ("a:1", 3, r"`config.data.mix` must be a section"),
  ],
)
def test_a_wrong_mix_in_one_line_is_refused_with_its_path(text, mix, message):
  with pytest.raises(schema.ConfigError, match=message):
    run(text, mix=mix)


RECORDS = {"token_dtype": "uint16", "vocab_size": 9}


@pytest.mark.parametrize("others", [{}, {"array_record": RECORDS}])
def test_an_entry_takes_the_array_record_of_its_template(others):
  rows = {"kind": "bin"}
  sources = {
    "default": {"store": "", "rows": rows, "array_record": RECORDS},
    "b": {"store": "x", "rows": rows, **others},
  }
  found, _, problems = dataset_mix.replaced("data/a:1", sources, None, "data")
  assert not problems
  assert found["a"] == {
    "store": "data/a",
    "rows": rows,
    "array_record": RECORDS,
  }
  # Without a template by name, what all of them have.
  sources["c"] = sources.pop("default")
  found, _, problems = dataset_mix.replaced("data/a:1", sources, None, "data")
  assert not problems
  assert ("array_record" in found["a"]) == bool(others)
