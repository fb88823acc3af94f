# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/api.md from the code: `python -m tests.docs.api_page`.

Signatures are those of the source, and sentences those of docstrings.
"""

import ast
import dataclasses
import functools
import inspect
import pathlib
import re
import textwrap
from typing import Any

import chomp_data
from chomp_data import row_kinds
from chomp_data import schema
from chomp_data.plans import plan

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "api.md"

_PROPERTIES = (property, functools.cached_property)
_WIDTH = 79

# Classes whose objects are returned by a function: users call no constructor.
_RETURNED = {
  "Pipeline": "build",
  "InputIterator": "make_iterator",
  "Store": "open_store",
  "SampleStore": "open_samples",
}
# Classes whose members are in tables below.
_CONTRACTS = ("RowSource", "Epochs")

_KINDS = row_kinds.ROW_KINDS


def _public(*classes: type) -> tuple[str, ...]:
  """Returns the names of classes that users may import, each once."""
  names = dict.fromkeys(cls.__name__ for cls in classes)
  return tuple(name for name in names if name in chomp_data.__all__)


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
    " ([components](training.md#components-for-stock-grain)). One of your"
    " own is a `RowSource` with the methods below.",
    (
      "RowSource", "Epochs", "Spans",
      *_public(*(kind.source for kind in _KINDS.values())),
      "ShuffledSource", "GridSource", "MixtureSource",
    ),
  ),
  (
    "Options",
    "The fields of a config's sections `rows`, `shuffle` and `mix`, as keyword"
    " arguments. Each with its rule and default: "
    + "".join(f"[`{name}`](options.md#rowskind{name}), " for name in _KINDS)
    + "[`fim`](options.md#configdatasourcesnamerowsfim),"
    " [shuffle](options.md#configdatasourcesnameshuffle),"
    " [mix](options.md#configdatamix).",
    (
      *_public(*(kind.options for kind in _KINDS.values())),
      "FimOptions", "ShuffleOptions", "MixOptions",
    ),
  ),
  (
    "Samplers",
    "The orders for a stock `grain.DataLoader`:"
    " [components](training.md#components-for-stock-grain).",
    (
      "NoShuffleSampler", "FullShuffleSampler", "EraShuffleSampler",
      "BlockShuffleSampler",
    ),
  ),
  (
    "Errors",
    "All of them say what is wrong and what to do. They are in"
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
    for name in names:
      parts += _entry(name, getattr(chomp_data, name))
  parts.append("## Members\n")
  for owner in (chomp_data.Pipeline, chomp_data.InputIterator):
    parts.append(f"`{owner.__name__}`:\n")
    members = _members(owner)
    methods = _named(owner, members, [name for name, _ in members])
    parts.append(_table([*_attributes(owner), *methods]))
  parts.append(
    "`Plan` (`Pipeline.run_plan`) says what each step holds; `read` is the only"
    " method that reads tokens:\n"
  )
  members = _members(plan.Plan)
  methods = _named(plan.Plan, members, [name for name, _ in members])
  parts.append(_table([*_attributes(plan.Plan), *methods]))
  for owner in (chomp_data.RowSource, chomp_data.Epochs):
    parts += _contract(owner)
  return "\n".join(parts)


def _entry(name: str, value: Any) -> list[str]:
  """Returns the signature of a name, and what its arguments are."""
  parts = []
  if isinstance(value, type):
    if issubclass(value, Exception) or name in (*_RETURNED, *_CONTRACTS):
      return []
    if issubclass(value, schema.Options):
      return []  # docs/options.md has their fields.
    if dataclasses.is_dataclass(value):
      fields = _attributes(value)
      parameters = inspect.signature(value).parameters
      shown = [
        key if p.default is p.empty else f"{key}={p.default!r}"
        for key, p in parameters.items()
      ]
      text = _call(name, shown, "")
      return [f"### {name}\n", text, _sentence(value) + "\n", _table(fields)]
    function, docstring = value.__init__, value.__init__.__doc__
  else:
    function, docstring = value, value.__doc__
  parameters, returns = _source_signature(function)
  if isinstance(value, type):
    returns = ""
  parts += [f"### {name}\n", _call(name, parameters, returns)]
  parts.append(_sentence(value) + "\n")
  for title in ("Args", "Returns", "Raises"):
    entries = _docstring_section(docstring or "", title)
    if entries:
      parts.append(_listed(title, entries))
  return parts


def _source_signature(function: Any) -> tuple[list[str], str]:
  """Returns the parameters and the type that a function returns, as written."""
  function = inspect.unwrap(function)
  source = textwrap.dedent(inspect.getsource(function))
  node = ast.parse(source).body[0]
  assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
  arguments, out = node.args, []
  positional = [*arguments.posonlyargs, *arguments.args]
  defaults = [None] * (len(positional) - len(arguments.defaults))
  for own, default in zip(
    positional, [*defaults, *arguments.defaults], strict=True
  ):
    if own.arg != "self":
      out.append(_parameter(own, default))
  if arguments.kwonlyargs:
    out.append("*")
  out += map(_parameter, arguments.kwonlyargs, arguments.kw_defaults)
  if arguments.kwarg:
    out.append("**" + _parameter(arguments.kwarg, None))
  returns = "" if node.returns is None else _type(node.returns)
  return out, returns


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
  text = argument.arg
  if argument.annotation is not None:
    text += f": {_type(argument.annotation)}"
  if default is not None:
    equals = "=" if argument.annotation is None else " = "
    text += f"{equals}{ast.unparse(default)}"
  return text


def _type(node: ast.expr) -> str:
  """Returns an annotation without the package's own module names."""
  text = ast.unparse(node).strip("'")
  # Modules of other packages stay; those of this package are not public.
  return re.sub(
    r"(?<![\w.])(?!(?:jax|np|os|ml_collections)\b)[a-z_]+\.(?=[A-Z])", "", text
  )


def _call(name: str, parameters: list[str], returns: str) -> str:
  """Returns a signature as a block of Python."""
  end = f") -> {returns}" if returns else ")"
  line = f"{name}({', '.join(parameters)}{end}"
  if len(line) > _WIDTH:
    line = "\n".join(
      [f"{name}(", *(f"  {parameter}," for parameter in parameters), end]
    )
  return f"```python\n{line}\n```\n"


def _cell(text: str) -> str:
  return text.replace("|", "\\|")


def _docstring_section(docstring: str, title: str) -> list[tuple[str, str]]:
  """Returns the entries of a section of a docstring: (name, text)."""
  text = inspect.cleandoc(docstring)
  found = re.search(rf"^{title}:\n((?:  .*\n?|\n)+)", text, re.M)
  if found is None:
    return []
  lines = textwrap.dedent(found[1]).strip("\n").split("\n")
  entries: list[tuple[str, str]] = []
  for line in lines:
    named = re.match(r"(\*{0,2}\w+): (.*)", line)
    if named:
      entries.append((named[1], named[2]))
    elif entries:
      name, sentence = entries[-1]
      entries[-1] = name, f"{sentence} {line.strip()}".strip()
    else:
      entries.append(("", line.strip()))
  return entries


def _listed(title: str, entries: list[tuple[str, str]]) -> str:
  lines = [f"- `{name}`: {text}" for name, text in entries if name]
  texts = [text for name, text in entries if not name]
  heading = {"Args": "Arguments"}.get(title, title)
  parts = ["\n".join(lines), ""] if lines else []
  return "\n".join([" ".join([f"{heading}:", *texts]), "", *parts])


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
    ("must implement", _named(owner, members, must)),
    ("may override", _named(owner, members, others)),
    ("inherits", _named(owner, members, once)),
  )
  parts = []
  for text, rows in tables:
    if rows:
      parts += [f"A subclass of `{owner.__name__}` {text}:\n", _table(rows)]
  return parts


def _named(owner, members, names):
  return [
    (_short(owner, name), text) for name, text in members if name in names
  ]


def _short(owner: type, name: str) -> str:
  """Returns a method with the names and defaults of its parameters."""
  member = vars(owner)[name]
  if isinstance(member, _PROPERTIES):
    return name
  parameters, _ = _source_signature(member)
  names = [re.sub(r": .*?(?= = |$)", "", own) for own in parameters]
  return f"{name}({', '.join(own.replace(' = ', '=') for own in names)})"


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
  lines = [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in rows]
  return "\n".join(["| | |", "|---|---|", *lines, ""])


def _sentence(value: object) -> str:
  """Returns the first paragraph of a docstring as one line."""
  text = (inspect.getdoc(value) or "").split("\n\n")[0]
  return " ".join(text.split())


if __name__ == "__main__":
  PAGE.write_text(page())
