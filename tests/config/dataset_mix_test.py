# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Mixes in one line, seed 004: "pathA:0.9 pathB:0.1"."""

import re

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
  ("text", "entries"),
  [
    # The last colon splits, and the last part names.
    ("gs://bucket/corpus:0.9", [("gs://bucket/corpus", "0.9", "corpus")]),
    ("gs://host:80/corpus:1", [("gs://host:80/corpus", "1", "corpus")]),
    ("gs://bucket/corpus", [("gs://bucket/corpus", "1", "corpus")]),
    ("data/wiki/", [("data/wiki/", "1", "wiki")]),
    ("data/wiki.v2-en:2", [("data/wiki.v2-en", "2", "wiki_v2_en")]),
    ("data/2024:2", [("data/2024", "2", "2024")]),
    ("/:2", [("/", "2", "source")]),
    ("web=gs://bucket/corpus:3", [("gs://bucket/corpus", "3", "web")]),
    ("web=data/wiki", [("data/wiki", "1", "web")]),
    ("a/x:1 y=a/x:2", [("a/x", "1", "x"), ("a/x", "2", "y")]),
    # Before an equals sign, without a slash, is an alias.
    ("year=2020/a:1", [("2020/a", "1", "year")]),
    ("./year=2020/a:1", [("./year=2020/a", "1", "a")]),
    ("data/year=2020/a:1", [("data/year=2020/a", "1", "a")]),
    ("x=data/year=2020/a:1", [("data/year=2020/a", "1", "x")]),
    ("gs://b/k=v:1", [("gs://b/k=v", "1", "k_v")]),
    # A number after a host is a weight beside others, or if no port looks so.
    ("s3://h:9000:1", [("s3://h:9000", "1", "h_9000")]),
    ("s3://h/a:9000", [("s3://h/a", "9000", "a")]),
    ("s3://h:0.5", [("s3://h", "0.5", "h")]),
    ("s3://h:9000 b:1", [("s3://h", "9000", "h"), ("b", "1", "b")]),
  ],
)  # fmt: skip
def test_a_line_is_paths_weights_and_aliases(text, entries):
  assert parsed(text) == entries


@pytest.mark.parametrize(
  ("text", "aliases"),
  [
    ("a/x:1 b/x/:1 c/x_2:1 d/x:1", ["x", "x_2", "x_2_2", "x_3"]),
    # Aliases that are written come before names of paths.
    ("a/x:1 x=b:1", ["x_2", "x"]),
    ("a/x:1 b/x:1 x=c:1 x_3=d:1", ["x_2", "x_4", "x", "x_3"]),
  ],
)
def test_names_that_agree_are_numbered(text, aliases):
  assert [alias for *_, alias in parsed(text)] == aliases


@pytest.mark.parametrize(
  ("text", "messages"),
  [
    *(
      (text, ["must hold a path, got an empty"]) for text in ("", " ", "\n\t")
    ),
    *(
      (f"b:0.5 {entry}", ["finite number above 0", repr(entry)])
      for entry in (
        "a", "a:", "a:b", "a:0", "a:-1", "a:nan", "a:inf", "a:1/2", "a:0x1",
        "a:1e400", "a:1e-400", "a:1e999999999", "a:1e-999999999",
        "gs://bucket/a",
      )
    ),
    *((text, ["must end in `:weight`"]) for text in ("a:0", "c:a")),
    *(
      (f"b:0.5 {entry}", ["must name a path", repr(entry)])
      for entry in (":0.5", "a=:0.5")
    ),
    ("x=a:1 x=b:1", ["used once, got 'x' twice"]),
    *(
      (f"{text}", ["9000 is a port or a weight", f"{text}:1, or a path"])
      for text in ("s3://h:9000", "x=s3://h:9000")
    ),
    *(
      (
        f"b:1 {name}=data/a:1",
        ["letters, digits and under", f"got {name!r} in '{name}=data/a:1'"],
      )
      for name in ("", "my-data", "2020", "a.b")
    ),
  ],
)  # fmt: skip
def test_a_wrong_line_is_refused_with_its_entry(text, messages):
  with pytest.raises(ValueError, match=re.escape(messages[0])) as caught:
    dataset_mix.parse(text)
  assert all(message in str(caught.value) for message in messages)


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


@pytest.mark.parametrize(
  ("text", "entry"),
  [
    ("a:0", "a:0.5"),
    ("x=data/a:-1 b:1", "x=data/a:0.5"),
    ("gs://bucket/a b:1", "gs://bucket/a:0.5"),
    ("a: b:1", "a:0.5"),
  ],
)
def test_the_advice_has_no_weight_that_is_wrong(text, entry):
  with pytest.raises(ValueError, match="must end in `:weight`") as caught:
    dataset_mix.parse(text)
  assert str(caught.value).endswith(f"Write for instance {entry}.")
  # What it advises parses.
  dataset_mix.parse(f"{entry} other:1")
