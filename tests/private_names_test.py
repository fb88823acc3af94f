# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""No test reads or patches a private name of another module."""

import ast
import pathlib

TESTS = pathlib.Path(__file__).parent
# Names that are public though they begin with an underscore.
PUBLIC = {
  "os._exit", "sys._getframe", "inspect._empty",
  "_asdict", "_fields", "_make", "_replace",
}  # fmt: skip


def is_private(name: str) -> bool:
  return name.startswith("_") and not name.startswith("__")


def private_uses(tree: ast.AST) -> set[str]:
  """Returns the private names of other objects that a module uses."""
  found = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute) and is_private(node.attr):
      owner = ast.unparse(node.value)
      if owner in ("self", "cls", "super()"):
        continue
      if not {node.attr, f"{owner}.{node.attr}"} & PUBLIC:
        found.add(node.attr)
    elif isinstance(node, ast.ImportFrom):
      found |= {own.name for own in node.names if is_private(own.name)}
    elif isinstance(node, ast.Call):
      called = ast.unparse(node.func).rpartition(".")[2]
      if called in ("setattr", "getattr", "delattr", "patch", "object"):
        found |= {
          own.value.rpartition(".")[2]
          for own in node.args[:2]
          if isinstance(own, ast.Constant)
          and isinstance(own.value, str)
          and is_private(own.value.rpartition(".")[2])
          and own.value not in PUBLIC
        }
  return found


def test_no_test_uses_a_private_name_of_another_module():
  found = {}
  for path in sorted(TESTS.rglob("*.py")):
    if names := private_uses(ast.parse(path.read_text())):
      found[path.relative_to(TESTS).as_posix()] = names
  assert not found


def test_private_uses_are_seen():
  uses = private_uses(
    ast.parse(
      "import os\n"
      "from a import _b\n"
      "os._exit(0)\n"
      "c._d.e\n"
      "patch.setattr(f, '_g', 1)\n"
      "mock.patch.object(h.I, '_j')\n"
      "class K:\n"
      "  def l(self):\n"
      "    return self._m, super()._n, k._asdict()\n"
    )
  )
  assert uses == {"_b", "_d", "_g", "_j"}
