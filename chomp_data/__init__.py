"""chomp_data: a run's whole input as one pure function, plan(step) -> spans.

Names are handed on lazily, so that a spawned loader worker that unpickles a
row source does not import jax and ml_collections on the way.
"""

import importlib
from typing import TYPE_CHECKING

from chomp_data.version import __version__ as __version__

if TYPE_CHECKING:
  from chomp_data.pipeline import build as build
  from chomp_data.pipeline import make_iterator as make_iterator
  from chomp_data.pipeline import Pipeline as Pipeline
  from chomp_data.stores import open_store as open_store

_LAZY = {
  "Pipeline": "chomp_data.pipeline",
  "build": "chomp_data.pipeline",
  "make_iterator": "chomp_data.pipeline",
  "open_store": "chomp_data.stores",
}


def __getattr__(name: str):
  if name in _LAZY:
    return getattr(importlib.import_module(_LAZY[name]), name)
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
  return sorted([*globals(), *_LAZY])
