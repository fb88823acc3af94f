# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Values of JSON are of the types that the reader states, or an error."""

import dataclasses
import json
from typing import Any
from typing import NamedTuple

import hypothesis
from hypothesis import strategies as st
import pytest

from chomp_data.stores import json_values


class Pair(NamedTuple):
  name: str
  sizes: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Inner:
  count: int
  share: float
  label: str | None


@dataclasses.dataclass(frozen=True)
class Outer:
  inner: Inner
  pairs: tuple[Pair, ...]
  pair: Pair | None
  both: tuple[int, str]
  by_name: dict[str, list[bool]]
  anything: Any


PAIRS = st.builds(Pair, st.text(), st.lists(st.integers()).map(tuple))
OUTER = st.builds(
  Outer,
  st.builds(
    Inner,
    st.integers(),
    st.floats(-1e300, 1e300),
    st.none() | st.text(),
  ),
  st.lists(PAIRS, max_size=3).map(tuple),
  st.none() | PAIRS,
  st.tuples(st.integers(), st.text()),
  st.dictionaries(st.text(), st.lists(st.booleans(), max_size=3), max_size=3),
  st.none() | st.lists(st.integers()),
)

VALUE = Outer(
  Inner(1, 0.5, None), (Pair("a", (1,)),), None, (1, "b"), {"c": [True]}, [1]
)


@hypothesis.given(OUTER)
def test_what_was_encoded_is_decoded(value):
  assert json_values.parse(Outer, json_values.encode(value), "x") == value


@pytest.mark.parametrize(
  ("path", "value", "named"),
  [
    (["inner", "count"], "1", r"x\.inner\.count"),
    (["inner", "count"], True, r"x\.inner\.count"),
    (["inner", "count"], 1.0, r"x\.inner\.count"),
    (["inner", "share"], float("nan"), r"x\.inner\.share"),
    (["inner", "share"], float("inf"), r"x\.inner\.share"),
    (["inner", "share"], 10**400, r"x\.inner\.share"),
    (["inner", "label"], 5, r"x\.inner\.label"),
    (["inner", "other"], 5, r"x\.inner"),
    (["inner"], [1, 2, 3], r"x\.inner"),
    (["pairs", 0], ["a"], r"x\.pairs\[0\]"),
    (["pairs", 0, 1, 0], None, r"x\.pairs\[0\]\[1\]\[0\]"),
    (["pairs"], {"a": 1}, r"x\.pairs"),
    (["both"], [1, "b", 2], r"x\.both"),
    (["by_name", "c", 0], 1, r"x\.by_name\.c\[0\]"),
    (["pair"], 5, r"x\.pair"),
  ],
)
def test_another_type_is_an_error_that_names_the_field(path, value, named):
  tree = json.loads(json_values.encode(VALUE))
  place = tree
  for key in path[:-1]:
    place = place[key]
  place[path[-1]] = value
  with pytest.raises(ValueError, match=f"`{named}.* must be"):
    json_values.parse(Outer, json.dumps(tree).encode(), "x")


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 10**6, b"\xff"])
def test_what_is_no_json_is_an_error(data):
  with pytest.raises(ValueError, match="`x` must be JSON"):
    json_values.parse(int, data, "x")


def test_objects_without_a_form_in_json_are_not_encoded():
  with pytest.raises(TypeError, match="set is no value of JSON"):
    json_values.encode([{1}])
