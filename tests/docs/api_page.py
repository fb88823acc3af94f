# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/api.md from docstrings: `python -m tests.docs.api_page`."""

import functools
import inspect
import pathlib

import chomp_data
from chomp_data import schema
from chomp_data.plans import plan

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "api.md"

_PROPERTIES = (property, functools.cached_property)

# Title, what to know, names.
SECTIONS = (
  (
    "A run",
    "`config.data` in, batches out. `print` shows what each is.",
    (
      "load_config", "with_placeholders", "build", "make_iterator", "Pipeline",
      "InputIterator",
    ),
  ),
  (
    "Checkpoints",
    "Arguments for Orbax, beside those of the model.",
    ("InputSave", "InputRestore"),
  ),
  (
    "Stores",
    "The command `chomp-prepare` makes them of text.",
    (
      "open_store", "Store", "ArrayRecordOptions", "open_array_records",
      "open_samples", "SampleStore", "write_store", "verify_store",
    ),
  ),
  (
    "Row sources",
    "Rows by number, also in a plain `grain.MapDataset.source`"
    " ([stock_grain.md](stock_grain.md)). One of your"
    " own is a `RowSource` with the methods below.",
    (
      "RowSource", "Epochs", "Spans", "BinSource", "SequentialSource",
      "SpliceSource",
      "ShuffledSource", "GridSource", "MixtureSource",
    ),
  ),
  (
    "Options",
    "The fields of a config's sections `rows`, `shuffle` and `mix`.",
    (
      "BinOptions", "SequentialOptions", "SpliceOptions",
      "MultiSpliceOptions", "WindowOptions", "ShuffleOptions", "MixOptions",
    ),
  ),
  (
    "Samplers",
    "The orders for a stock `grain.DataLoader`:"
    " [stock_grain.md](stock_grain.md).",
    (
      "NoShuffleSampler", "FullShuffleSampler", "EraShuffleSampler",
      "BlockShuffleSampler",
    ),
  ),
  (
    "Errors",
    "All of them say what is wrong and what to do. They stand in"
    " `chomp_data.errors`.",
    (
      "ConfigError", "StoreError", "StateError", "InputError",
      "PrepareError",
    ),
  ),
)  # fmt: skip


def page() -> str:
  """Returns the page."""
  parts = [
    "# Public API\n",
    "All of it is in `chomp_data`, as `chomp_data.build`. What is not named"
    " here may change.\n",
  ]
  for title, text, names in SECTIONS:
    parts.append(f"## {title}\n\n{text}\n")
    parts.append(_table((n, _sentence(getattr(chomp_data, n))) for n in names))
  parts.append("## Members\n")
  for owner in (chomp_data.Pipeline, chomp_data.InputIterator):
    parts.append(f"`{owner.__name__}`:\n")
    parts.append(_table([*_attributes(owner), *_members(owner)]))
  parts.append(
    "`Plan` (`Pipeline.run_plan`) says what each step holds; `read` is the only"
    " method that reads tokens:\n"
  )
  parts.append(_table([*_attributes(plan.Plan), *_members(plan.Plan)]))
  for owner in (chomp_data.RowSource, chomp_data.Epochs):
    parts += _contract(owner)
  return "\n".join(parts)


def _contract(owner: type) -> list[str]:
  """Returns the tables of a class that users derive from."""
  members = _members(owner)
  must = [
    name for name, _ in members if _is(owner, name, "__isabstractmethod__")
  ]
  once = [name for name, _ in members if _is(owner, name, "__final__")]
  others = [n for n, _ in members if n not in must and n not in once]
  tables = (
    ("has the attributes", _attributes(owner)),
    ("must implement", _named(members, must)),
    ("may override", _named(members, others)),
    ("inherits", _named(members, once)),
  )
  parts = []
  for text, rows in tables:
    if rows:
      parts += [f"A subclass of `{owner.__name__}` {text}:\n", _table(rows)]
  return parts


def _named(members, names):
  return [(name, text) for name, text in members if name in names]


def _attributes(owner: type) -> list[tuple[str, str]]:
  """Returns the attributes that the docstring of a class describes."""
  return list(schema.attribute_sentences(owner.__doc__ or "").items())


def _members(owner: type) -> list[tuple[str, str]]:
  """Returns the public methods and properties that a class defines."""
  return [
    (name, _sentence(member))
    for name, member in vars(owner).items()
    if (not name.startswith("_") or name in ("__len__", "__getitem__"))
    and (callable(member) or isinstance(member, _PROPERTIES))
  ]


def _is(owner: type, name: str, mark: str) -> bool:
  """Returns whether a member, or the function of a property, has a mark."""
  member = vars(owner)[name]
  function = member.fget if isinstance(member, property) else member
  return getattr(member, mark, False) or getattr(function, mark, False)


def _table(rows) -> str:
  lines = [f"| `{name}` | {text} |" for name, text in rows]
  return "\n".join(["| | |", "|---|---|", *lines, ""])


def _sentence(value: object) -> str:
  """Returns the first paragraph of a docstring as one line."""
  text = (inspect.getdoc(value) or "").split("\n\n")[0]
  return " ".join(text.split())


if __name__ == "__main__":
  PAGE.write_text(page())
