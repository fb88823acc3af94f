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
# Uses that are left, by file: shrink this, and add none.
LEFT = {
  "arguments_test.py": {"_input"},
  "loading/agreement_test.py": {
    "_end",
    "_hear",
    "_member",
    "_peers",
    "_shared_key",
  },
  "loading/device_fields_test.py": {
    "_cache_size",
    "_input",
    "_programs",
    "_run",
  },
  "loading/device_fields_worker.py": {
    "_cache_size",
    "_input",
    "_programs",
    "_run",
  },
  "loading/distributed_worker.py": {"_input", "_plan", "_rows"},
  "loading/feed_test.py": {"_input", "_plan"},
  "loading/lanes_loading_test.py": {"_placed", "_positions"},
  "loading/private_grain_test.py": {"_iterator"},
  "loading/reassign_test.py": {"_failure"},
  "loading/state_test.py": {"_worker_reads"},
  "reference/workdir_test.py": {"_problem"},
}


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
        }
  return found


def test_no_test_uses_a_private_name_of_another_module():
  found = {}
  for path in sorted(TESTS.rglob("*.py")):
    if names := private_uses(ast.parse(path.read_text())):
      found[path.relative_to(TESTS).as_posix()] = names
  added = {
    path: names - LEFT.get(path, set())
    for path, names in found.items()
    if names - LEFT.get(path, set())
  }
  assert not added


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
