# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The house: imports point down, in a room too."""

import ast
import functools
import graphlib
import pathlib
import re

import pytest

from chomp_data import row_kinds

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "chomp_data"

# From the bottom up: a room may import its own level and those before it.
LEVELS = [
  {
    "version",
    "errors",
    "fingerprints",
    "schema",
    "index",
    "kernels",
    "threads",
  },
  {"rows", "storage"},
  {"stores"},
  {"prepare"},
  {"sources"},
  {"order"},
  # `pack`, `splice`, and any other room of a kind of rows.
  {
    kind.source.__module__.split(".")[1]
    for kind in row_kinds.ROW_KINDS.values()
  },
  {"row_kinds"},
  {"phased"},
  {"mix"},
  {"bucket"},
  {"transforms"},
  {"config"},
  {"plans"},
  {"loading"},
  {"planning"},
  {"joining"},
  {"pipeline"},
  {"process_input"},
  {"iterators"},
  {"audit"},
  {"reference"},
  {"testing"},
  {"integrations"},
  {"cli"},
  {"commands"},
]
LEVEL = {room: i for i, rooms in enumerate(LEVELS) for room in rooms}

MODULES = sorted(PACKAGE.rglob("*.py"))


@functools.cache
def read(path):
  """Returns what a module says of itself, and the names that it imports."""
  tree = ast.parse(path.read_text())
  imports = []
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      imports += [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
      imports += [f"{node.module}.{alias.name}" for alias in node.names]
  return ast.get_docstring(tree), imports


def imports_of(path):
  return read(path)[1]


def room_of(path):
  return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_imports_point_down():
  up = []
  for path in MODULES:
    own = room_of(path)
    for name in imports_of(path) if own != "__init__" else ():
      if name.startswith("chomp_data."):
        other = name.split(".")[1]
        if LEVEL[other] > LEVEL[own]:
          up.append(f"{path}: {own} imports {name}")
  assert not up


def parts_of(path):
  """The dotted name of a module, in parts; a package's is its `__init__`."""
  return path.relative_to(ROOT).with_suffix("").parts


ALL_PARTS = {parts_of(path) for path in MODULES}


def module_at(name):
  """The module that an import takes a name from, in parts."""
  parts = tuple(name.split("."))
  while parts not in ALL_PARTS:
    if (*parts, "__init__") in ALL_PARTS:
      return (*parts, "__init__")
    parts = parts[:-1]
  return parts


@functools.cache
def imported():
  """Every import there is: in a function and for types, it is a cycle too."""
  return {
    parts_of(path): {
      module_at(name)
      for name in imports_of(path)
      if name.startswith("chomp_data.")
    }
    for path in MODULES
  }


@pytest.mark.parametrize(
  "room",
  sorted(path[:-1] for path in ALL_PARTS if path[-1] == "__init__"),
  ids=".".join,
)
def test_files_and_rooms_of_a_room_import_in_no_circle(room):
  depth = len(room)
  graph = {}
  for module, others in imported().items():
    if module[:depth] == room:
      others = {m[depth] for m in others if m[:depth] == room}
      graph.setdefault(module[depth], set()).update(others - {module[depth]})
  graphlib.TopologicalSorter(graph).prepare()  # Its error names the circle.


@pytest.mark.parametrize("room", ["index", "rows"])
def test_integer_maps_and_arrays_need_only_numpy(room):
  standard = {
      "abc", "bisect", "collections", "dataclasses", "decimal", "fractions",
      "functools", "hashlib", "heapq", "itertools", "math", "typing",
  }  # fmt: skip
  for path in (PACKAGE / room).rglob("*.py"):
    for name in imports_of(path):
      top = name.split(".")[0]
      assert top in {"numpy", "chomp_data", *standard}, f"{path}: {name}"


def test_only_the_pipeline_reads_configs():
  for path in MODULES:
    if room_of(path) not in ("config", "reference", "cli"):
      names = imports_of(path)
      assert not any(n.startswith("ml_collections") for n in names), path


def test_modules_say_what_they_are_for():
  assert not [path for path in MODULES if not read(path)[0]]


def test_private_names_of_the_map_exist():
  """`room/module._name` or `Class._name` in WORKSPACE.md."""
  text = (ROOT / "WORKSPACE.md").read_text()
  named = re.findall(r"`([\w/]+)\.(_\w+)", text)
  assert named
  modules = {path: path.read_text() for path in MODULES}
  for owner, name in named:
    of_class = re.compile(rf"^class {owner}\b", re.M)
    assert any(
      re.search(rf"\b{name}\b", code)
      for path, code in modules.items()
      if path.match(f"{owner}.py") or of_class.search(code)
    ), f"WORKSPACE.md names `{owner}.{name}`, which is not in the package"
