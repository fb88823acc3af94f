# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Names say what they hold: none is one of a few empty words.

The package, its tools, examples and benchmarks are looked at; tests are not.
"""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = ("chomp_data", "tools", "examples", "benchmarks")
EMPTY = {"own", "found", "told", "kept", "given"}
# In states of stock Grain samplers.
ALLOWED = {"own_seed"}


def is_empty(name):
  """Returns whether one of the words of a name is empty."""
  words = name.lower().split("_")
  return name not in ALLOWED and not EMPTY.isdisjoint(words)


def names(tree):
  """Yields (line, name) of what a module binds, uses and passes."""
  for node in ast.walk(tree):
    if isinstance(node, ast.Name):
      yield node.lineno, node.id
    elif isinstance(node, ast.arg):
      yield node.lineno, node.arg
    elif isinstance(node, ast.Attribute):
      yield node.lineno, node.attr
    elif isinstance(
      node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ):
      yield node.lineno, node.name
    elif isinstance(node, ast.keyword) and node.arg is not None:
      yield node.value.lineno, node.arg
    elif isinstance(node, ast.alias):
      yield node.lineno, node.asname or node.name


def test_no_name_is_an_empty_word():
  paths = [path for name in FOLDERS for path in (ROOT / name).rglob("*.py")]
  found = [
    f"{path.relative_to(ROOT)}:{line} {name}"
    for path in sorted(paths)
    for line, name in names(ast.parse(path.read_text()))
    if is_empty(name)
  ]
  assert len(paths) > len(FOLDERS)
  assert not found


@pytest.mark.parametrize(
  "source",
  [
    "own = 1",
    "OWN_ROWS = 1",
    "def f(told): ...",
    "x._kept",
    "f(given=1)",
    "class Found: ...",
  ],
)
def test_each_kind_of_name_is_looked_at(source):
  assert any(is_empty(name) for _, name in names(ast.parse(source)))
