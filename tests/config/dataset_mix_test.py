# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Mixes in one line, seed 004: "pathA:0.9 pathB:0.1"."""

import hypothesis
from hypothesis import strategies as st
import pytest

from chomp_data.config import dataset_mix


def parsed(text):
  return [(e.path, e.weight, e.alias) for e in dataset_mix.parse(text)]


def test_the_seeds_mix():
  assert parsed("pathA:0.9 pathB:0.1") == [
    ("pathA", "0.9", "pathA"),
    ("pathB", "0.1", "pathB"),
  ]


PATHS = st.from_regex(
  r"((gs|s3|file)://)?[a-z0-9_.:-]{0,6}(/[a-z0-9_.-]{1,6}){1,3}", fullmatch=True
)
WEIGHTS = st.one_of(
  st.integers(1, 10**9).map(str),
  st.floats(1e-300, 1e300).map(str),
  st.sampled_from(["0.90", ".5", "5.", "1e-3", "2E+2"]),
)
ALIASES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)


@hypothesis.given(
  st.lists(st.tuples(PATHS, WEIGHTS), min_size=1, max_size=5),
  st.lists(ALIASES, min_size=5, max_size=5, unique=True),
  st.sampled_from([" ", "  ", "\n", " \t "]),
)
def test_what_is_written_is_parsed_in_its_order(entries, aliases, space):
  aliases = aliases[: len(entries)]
  named = [
    (path, weight, alias)
    for (path, weight), alias in zip(entries, aliases, strict=True)
  ]
  text = space.join(f"{alias}={path}:{weight}" for path, weight, alias in named)
  assert parsed(space + text + space) == named


@hypothesis.given(
  st.lists(st.tuples(PATHS, WEIGHTS), min_size=1, max_size=8),
)
def test_sources_without_an_alias_have_names_of_their_own(entries):
  found = parsed(" ".join(f"{path}:{weight}" for path, weight in entries))
  assert [own[:2] for own in found] == entries
  names = [alias for _, _, alias in found]
  assert len(set(names)) == len(names)
  # Names are parts of dotted paths of fields.
  assert all(name.replace("_", "a").isalnum() for name in names)


@pytest.mark.parametrize(
  ("text", "path", "weight", "alias"),
  [
    ("gs://bucket/corpus:0.9", "gs://bucket/corpus", "0.9", "corpus"),
    ("gs://host:80/corpus:1", "gs://host:80/corpus", "1", "corpus"),
    ("gs://bucket/corpus", "gs://bucket/corpus", "1", "corpus"),
    ("data/wiki", "data/wiki", "1", "wiki"),
    ("data/wiki/", "data/wiki/", "1", "wiki"),
    ("data/wiki.v2-en:2", "data/wiki.v2-en", "2", "wiki_v2_en"),
    ("data/2024:2", "data/2024", "2", "2024"),
    ("/:2", "/", "2", "source"),
    ("web=gs://bucket/corpus:3", "gs://bucket/corpus", "3", "web"),
    ("web=data/wiki", "data/wiki", "1", "web"),
    ("data/part=7:3", "data/part=7", "3", "part_7"),
  ],
)
def test_the_last_colon_splits_and_the_last_part_names(
  text, path, weight, alias
):
  assert parsed(text) == [(path, weight, alias)]


def test_names_that_agree_are_numbered():
  found = parsed("a/x:1 b/x/:1 c/x_2:1 d/x:1")
  assert [alias for *_, alias in found] == ["x", "x_2", "x_2_2", "x_3"]


def test_one_store_may_be_named_twice():
  found = parsed("a/x:1 y=a/x:2")
  assert found == [("a/x", "1", "x"), ("a/x", "2", "y")]


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_mix_is_refused(text):
  with pytest.raises(ValueError, match="must hold a path, got an empty"):
    dataset_mix.parse(text)


@pytest.mark.parametrize(
  "entry",
  [
    "a",
    "a:",
    "a:b",
    "a:0",
    "a:-1",
    "a:nan",
    "a:inf",
    "a:1/2",
    "a:0x1",
    "a:1e400",
    "a:1e-400",
    "a:1e999999999",
    "a:1e-999999999",
    "gs://bucket/a",
  ],
)
def test_a_weight_that_is_none_is_refused_with_its_entry(entry):
  with pytest.raises(ValueError, match="finite number above 0") as caught:
    dataset_mix.parse(f"b:0.5 {entry}")
  assert repr(entry) in str(caught.value)


@pytest.mark.parametrize("text", ["a:", "a:0", "a:-1", "a:x", "c:a"])
def test_one_path_alone_is_refused_with_a_wrong_weight(text):
  with pytest.raises(ValueError, match="must end in `:weight`"):
    dataset_mix.parse(text)


@pytest.mark.parametrize("entry", [":0.5", "a=:0.5"])
def test_an_entry_without_a_path_is_refused(entry):
  with pytest.raises(ValueError, match="must name a path") as caught:
    dataset_mix.parse(f"b:0.5 {entry}")
  assert repr(entry) in str(caught.value)


@pytest.mark.parametrize(
  "text",
  ["data/a:0.9, data/b:0.1", "data/a:0.9,data/b:0.1", "data/a:.9; data/b:1e-1"],
)
def test_entries_that_are_not_apart_by_spaces_are_told(text):
  with pytest.raises(ValueError, match="separated by spaces only") as caught:
    dataset_mix.parse(text)
  fix = str(caught.value).partition("Write ")[2]
  assert fix.startswith("'data/a:")
  assert len(dataset_mix.parse(fix.strip("'."))) == 2


def test_an_alias_is_used_once():
  with pytest.raises(ValueError, match="used once, got 'x' twice"):
    dataset_mix.parse("x=a:1 x=b:1")


@pytest.mark.parametrize(
  ("text", "aliases"),
  [
    ("a/x:1 x=b:1", ["x_2", "x"]),
    ("x=b:1 a/x:1", ["x", "x_2"]),
    ("a/x:1 b/x:1 x=c:1 x_3=d:1", ["x_2", "x_4", "x", "x_3"]),
  ],
)
def test_aliases_that_are_written_come_before_names_of_paths(text, aliases):
  assert [alias for *_, alias in parsed(text)] == aliases


@pytest.mark.parametrize(
  ("text", "advice"),
  [
    ("a:0", "Write for instance a:0.5."),
    ("a:1e-999 b:1", "Write for instance a:0.5."),
    ("x=data/a:-1 b:1", "Write for instance x=data/a:0.5."),
    ("gs://bucket/a b:1", "Write for instance gs://bucket/a:0.5."),
    ("a: b:1", "Write for instance a:0.5."),
  ],
)
def test_the_advice_has_no_weight_that_is_wrong(text, advice):
  with pytest.raises(ValueError, match="must end in `:weight`") as caught:
    dataset_mix.parse(text)
  assert str(caught.value).endswith(advice)
  # What it advises parses.
  entry = advice.removeprefix("Write for instance ").removesuffix(".")
  dataset_mix.parse(f"{entry} other:1")


@pytest.mark.parametrize("text", ["s3://h:9000", "x=s3://h:9000"])
def test_a_number_after_a_host_alone_is_a_port_or_a_weight(text):
  with pytest.raises(ValueError, match="9000 is a port or a weight") as caught:
    dataset_mix.parse(text)
  assert f"{text}:1, or a path" in str(caught.value)
  assert parsed("s3://h:9000:1") == [("s3://h:9000", "1", "h_9000")]
  assert parsed("s3://h/a:9000") == [("s3://h/a", "9000", "a")]
  # Beside other entries, and where no port looks so, it is the weight.
  assert parsed("s3://h:0.5") == [("s3://h", "0.5", "h")]
  assert parsed("s3://h:9000 b:1")[0] == ("s3://h", "9000", "h")


@pytest.mark.parametrize(
  ("text", "path", "alias"),
  [
    ("year=2020/a:1", "2020/a", "year"),
    ("./year=2020/a:1", "./year=2020/a", "a"),
    ("data/year=2020/a:1", "data/year=2020/a", "a"),
    ("x=data/year=2020/a:1", "data/year=2020/a", "x"),
    ("gs://b/k=v:1", "gs://b/k=v", "k_v"),
  ],
)
def test_what_stands_before_an_equals_sign_without_a_slash_is_an_alias(
  text, path, alias
):
  assert parsed(text) == [(path, "1", alias)]


@pytest.mark.parametrize("name", ["", "my-data", "2020", "a.b"])
def test_an_alias_that_is_no_identifier_is_refused(name):
  with pytest.raises(ValueError, match="letters, digits and under") as caught:
    dataset_mix.parse(f"b:1 {name}=data/a:1")
  assert f"got {name!r} in '{name}=data/a:1'" in str(caught.value)
