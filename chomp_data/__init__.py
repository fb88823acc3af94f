# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""chomp_data: a run's whole input as one pure function, plan(step) -> spans.

All that is public is listed in `__init__.pyi`; docs/api.md says what each name
is. A name is imported when it is first used, so that a spawned loader worker
that unpickles a row source does not import jax and ml_collections on the way.
"""

import ast
import importlib
import pathlib
from typing import Any


def _public() -> dict[str, str]:
  """Returns the module of each public name."""
  stub = pathlib.Path(__file__).with_suffix(".pyi").read_text()
  return {
    alias.name: node.module
    for node in ast.parse(stub).body
    if isinstance(node, ast.ImportFrom) and node.module is not None
    for alias in node.names
  }


_PUBLIC = _public()
__all__ = sorted(_PUBLIC)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
  if name in _PUBLIC:
    return getattr(importlib.import_module(_PUBLIC[name]), name)
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
  return sorted([*globals(), *_PUBLIC])
