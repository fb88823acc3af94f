# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Prints the page of all options: docs/options.md is what it says.

    python -m chomp_data.commands.options_page > docs/options.md

Options, rules, defaults and sentences are those of the dataclasses.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import re
import textwrap
from typing import Any

from chomp_data import row_kinds
from chomp_data import schema
from chomp_data.config import options
from chomp_data.prepare import option_fields
from chomp_data.prepare import options as prepare_options
from chomp_data.reference import train_options

_HEAD = """\
# Options

Every option of a config, with its rule and default. Any of them can be set on
the command line, whether or not the config's file names it:

    --config.data.seed=3
    --config.data.epochs=None
    --config.data.mix.weights="{'web': 0.9, 'code': 0.1}"
    --config.data.sources.web.shuffle.kind=full

Lists, mappings and None are written as in Python, and `--config.x.y` alone is
True. The options of a section depend on its `kind`: when a `kind` is set on the
command line, options of the file that do not apply to it are removed, and the
log lists them. An unknown path is an error that lists the known ones. The
fields of batches are on the page [formats](formats.md).

`sources.<name>.shuffle` also has short forms: True is kind 'full', False is
'none', and a whole number is kind 'era' with this `era_length`. None leaves an
option at its default, unless its rule accepts None.

The flags of `ml_collections.config_flags` set only fields that a config has.
The last statement of the shipped configs adds all others, without a value, so
that a binary of your own can set them, too:

    config.data = chomp_data.with_placeholders(config.data)

This page is made by `python -m chomp_data.commands.options_page`.
"""

_NAME = "<name>"
_WIDTH = 79
_RUNS = {
  "rows": "rows of one length",
  "length": "`buckets.kind='length'`",
  "resolution": "`buckets.kind='resolution'`",
}

# Of a section: row of a table -> the kinds that have it.
_Items = dict[str, list[str]]


def page() -> str:
  """Returns the page as Markdown."""
  sections: dict[str, _Items] = {}
  for run, kind in options.KINDS.items():
    for rows in [None] if kind.rows else row_kinds.ROW_KINDS:
      data: dict[str, Any] = {"sources": {_NAME: {"rows": {"kind": rows}}}}
      if kind.section is not None:
        data["buckets"] = {"kind": run}
      known = options.known(data)
      for names, option in known.leaves(("config", "data")):
        path = ".".join(names[:-1])
        name = _RUNS.get(run, f"`buckets.kind={run!r}`")
        if rows is not None and "rows" in names:
          name = f"`rows.kind={rows!r}`"
        kinds = sections.setdefault(path, {}).setdefault(_row(option), [])
        kinds += [name] * (name not in kinds)
  lines = [_HEAD]
  for path, items in sections.items():
    lines += [f"## `{path}`", ""]
    lines += _by_kind(items) if path.endswith(".rows") else _grouped(items)
  lines += _prepare_flags()
  lines += ["# Options of chomp-train", ""]
  for name, cls in train_options.SECTIONS.items():
    lines += [f"## `config.{name}`", ""]
    lines += _table(map(_row, schema.options_of(cls).values()))
  return "\n".join(lines).rstrip() + "\n"


def _prepare_flags() -> list[str]:
  """Returns the section of the flags of chomp-prepare."""
  lines = ["# Options of chomp-prepare", ""]
  flags = [
    flag
    for section in prepare_options.SECTIONS
    for flag in option_fields.flags_of(section)
  ]
  rows = []
  for flag in flags:
    option = flag.option
    rule = option.rule
    text = _cell(option.sentence)
    if rule is not option_fields.ANY:
      text += f" *Must be {_cell(rule.text)}.*"
    rows.append(f"| **`--{flag.name}`** | {_default(option)} | {text} |")
  return [*lines, *_table(rows)]


def _by_kind(items: _Items) -> list[str]:
  """Returns a table of all options for each kind."""
  lines = []
  for kind in dict.fromkeys(kind for kinds in items.values() for kind in kinds):
    lines += [f"### {kind}", ""]
    lines += _table(row for row, kinds in items.items() if kind in kinds)
  return lines


def _grouped(items: _Items) -> list[str]:
  """Returns a section's items, by the kinds that have them."""
  every = {kind for kinds in items.values() for kind in kinds}
  lines = []
  groups = dict.fromkeys(tuple(kinds) for kinds in items.values())
  for kinds in sorted(groups, key=lambda kinds: -len(kinds)):
    if every - set(kinds) or every < set(_RUNS.values()) or len(every) == 1:
      lines += [_filled(f"With {_listed(kinds)}:"), ""]
    lines += _table(
      row for row, kinds_of_row in items.items() if tuple(kinds_of_row) == kinds
    )
  return lines


def _listed(kinds: Sequence[str]) -> str:
  *first, last = kinds
  return f"{', '.join(first)} or {last}" if first else last


def _row(option: schema.Option) -> str:
  """Returns a row of a table: name, default, sentence and rule."""
  only = ""
  if option.kinds is not None:
    only = f"; only with kind {_listed([repr(kind) for kind in option.kinds])}"
  text = f"{_cell(option.sentence)} *Must be {_cell(option.rule.text)}{only}.*"
  return f"| **`{option.name}`** | {_default(option)} | {text} |"


def _default(option: Any) -> str:
  if option.default is dataclasses.MISSING:
    return "no default"
  return f"`{option.default!r}`"


def _table(rows: Iterable[str]) -> list[str]:
  return ["| option | default | meaning |", "|---|---|---|", *rows, ""]


def _cell(text: str) -> str:
  """Returns text without marks of Markdown."""
  return re.sub(r"([|*])", r"\\\1", text)


def _filled(text: str) -> str:
  return textwrap.fill(
    text,
    _WIDTH,
    break_long_words=False,
    break_on_hyphens=False,
  )


if __name__ == "__main__":
  print(page(), end="")
