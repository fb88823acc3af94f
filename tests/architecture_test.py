"""The house: imports point down, in a room too."""

import ast
import graphlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "chomp_data"

# From the bottom up: a room may import its own level and those before it.
LEVELS = [
  {"version", "errors", "schema", "ops", "kernels"},
  {"index"},
  {"stores"},
  {"prepare"},
  {"sources"},
  {"transforms"},
  {"config"},
  {"plans"},
  {"loading"},
  {"planning"},
  {"joining"},
  {"pipeline"},
  {"audit"},
  {"reference"},
  {"testing"},
  {"integrations"},
  {"cli"},
  {"commands"},
]
LEVEL = {room: i for i, rooms in enumerate(LEVELS) for room in rooms}

MODULES = sorted(PACKAGE.rglob("*.py"))


def imports_of(path):
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      yield from ((alias.name, node) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
      for alias in node.names:
        yield f"{node.module}.{alias.name}", node


def room_of(path):
  return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.name))
def test_imports_point_down(path):
  own = room_of(path)
  if own == "__init__":
    return
  for name, _ in imports_of(path):
    if name.startswith("chomp_data."):
      other = name.split(".")[1]
      assert LEVEL[other] <= LEVEL[own], f"{path}: {own} imports {name}"


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


# Every import there is: in a function and for types, it is a cycle too.
IMPORTED = {
  parts_of(path): {
    module_at(name)
    for name, _ in imports_of(path)
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
  for module, imported in IMPORTED.items():
    if module[:depth] == room:
      others = {m[depth] for m in imported if m[:depth] == room}
      graph.setdefault(module[depth], set()).update(others - {module[depth]})
  graphlib.TopologicalSorter(graph).prepare()  # Its error names the circle.


@pytest.mark.parametrize("room", ["index", "ops"])
def test_integer_maps_and_arrays_need_only_numpy(room):
  standard = {
      "abc", "bisect", "collections", "dataclasses", "decimal", "fractions",
      "functools", "hashlib", "heapq", "itertools", "math", "typing",
  }  # fmt: skip
  for path in (PACKAGE / room).rglob("*.py"):
    for name, _ in imports_of(path):
      top = name.split(".")[0]
      assert top in {"numpy", "chomp_data", *standard}, f"{path}: {name}"


def test_only_the_pipeline_reads_configs():
  for path in MODULES:
    if room_of(path) not in ("config", "reference", "cli"):
      names = [name for name, _ in imports_of(path)]
      assert not any(n.startswith("ml_collections") for n in names), path


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.name))
def test_modules_say_what_they_are_for(path):
  assert ast.get_docstring(ast.parse(path.read_text())), path
