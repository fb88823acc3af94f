# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Parses mixtures written in one line: `"pathA:0.9 pathB:0.1"`."""

from collections.abc import Mapping
import dataclasses
import math
import re
from typing import Any

from absl import logging

from chomp_data import row_kinds
from chomp_data.stores import kinds as store_kinds

_ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# A weight followed by a comma or semicolon instead of a space.
_NO_SPACE = re.compile(r":([0-9.]+(?:[eE][+-]?[0-9]+)?)[,;]")

# A URL that ends in a number, which may be a port or a weight.
_HOST_AND_NUMBER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/:]*:[0-9]+")


@dataclasses.dataclass(frozen=True)
class Entry:
  """One part of a mix.

  Attributes:
    path: Of a store; may hold colons. Paths that are read as one source
      are separated by `|`.
    weight: Its weight as written, a positive decimal number.
    alias: The source's name.
  """

  path: str
  weight: str
  alias: str

  @property
  def store(self) -> str | tuple[str, ...]:
    """The path, or the paths of several stores."""
    paths = tuple(self.path.split("|"))
    return paths if len(paths) > 1 else self.path

  def __str__(self) -> str:
    return f"{self.alias} = {self.path}, weight {self.weight}"


def parse(text: str) -> list[Entry]:
  """Parses a mix.

      "data/a:0.9 wiki=/mnt/b:0.1"
      -> path data/a, weight 0.9, alias a; path /mnt/b, alias wiki

  The last colon splits path and weight, so paths may hold colons. Stores that
  are read as one source are separated by `|`: "web=data/a|data/b:0.9". One path
  alone may leave its weight out.

  What stands before the first `=` names the source, and must be letters,
  digits and underscores; with a `/` in it, it is part of the path. So
  `year=2020/a` is the path 2020/a, and `./year=2020/a` the path as it stands.
  Without an alias the path's last part names the source, numbered where that
  name is another's.

  Args:
    text: Entries, separated by white space.

  Raises:
    ValueError: If an entry is wrong; the message names it.
  """
  words = text.split()
  if not words:
    raise ValueError(
      "a mix must hold a path, got an empty string. Write for instance"
      " 'data/a:0.9 data/b:0.1'."
    )
  parts = []
  taken: set[str] = set()
  for word in words:
    if _NO_SPACE.search(word):
      apart = " ".join(_NO_SPACE.sub(r":\1 ", text).split())
      raise ValueError(
        f"entries of a mix must be separated by spaces only, got {word!r}."
        f" Write {apart!r}."
      )
    alias, rest = _split_alias(word)
    path, weight = _split_weight(word, rest, alone=len(words) == 1)
    if not path:
      raise ValueError(
        f"an entry of a mix must name a path, got {word!r}. Write path:weight."
      )
    if alias in taken:
      raise ValueError(
        f"an alias of a mix must be used once, got {alias!r} twice. Choose"
        " another."
      )
    # Explicit aliases first, so that no derived name takes one of them.
    taken |= {alias} - {""}
    parts.append((path, weight, alias))
  entries = []
  for path, weight, alias in parts:
    name = alias or _alias(path, taken)
    taken.add(name)
    entries.append(Entry(path, weight, name))
  return entries


def _split_alias(word: str) -> tuple[str, str]:
  """Returns (alias, rest) of an entry; the alias is empty without one."""
  before, equals, after = word.partition("=")
  if not equals or "/" in before:
    return "", word
  if not _ALIAS.fullmatch(before):
    raise ValueError(
      "an alias of a mix must be letters, digits and underscores, no digit"
      f" first, got {before!r} in {word!r}. Choose another; a path that holds"
      " = may start with ./."
    )
  return before, after


def _split_weight(word: str, rest: str, alone: bool) -> tuple[str, str]:
  """Returns (path, weight) of what follows the alias of an entry."""
  path, colon, weight = rest.rpartition(":")
  if alone and _HOST_AND_NUMBER.fullmatch(rest):
    raise ValueError(
      f"a mix of one must say whether {weight} is a port or a weight, got"
      f" {word!r}. Write the weight after it, {word}:1, or a path before it,"
      f" {word.removesuffix(':' + weight)}/path:{weight}."
    )
  if colon and _is_weight(weight):
    return path, weight
  is_path = not colon or "/" in weight
  if alone and is_path:
    return rest, "1"
  head = word if is_path else word.removesuffix(":" + weight)
  raise ValueError(
    "an entry of a mix must end in `:weight`, a finite number above 0, got"
    f" {word!r}. Write for instance {head}:0.5."
  )


def _is_weight(text: str) -> bool:
  try:
    # Not a Fraction, which takes 1e-999999999 at its word.
    return 0 < float(text) < math.inf
  except ValueError:
    return False


def _alias(path: str, taken: set[str]) -> str:
  last = path.split("|")[0].rstrip("/").rsplit("/", 1)[-1]
  # Names are parts of dotted paths of fields.
  base = re.sub(r"[^A-Za-z0-9_]", "_", last) or "source"
  name, number = base, 2
  while name in taken:
    name, number = f"{base}_{number}", number + 1
  return name


def replaced(
  text: str, sources: Mapping[str, Any], mix: Any, root: str
) -> tuple[Mapping[str, Any], Any, list[str]]:
  """Replaces sources and weights by the entries of a mix.

  An entry whose alias is a declared source is that source at another path. Any
  other takes rows, shuffle, without its seed, and the section of its kind of
  stores (as `array_record`) of the source `default`, else of the declared
  sources where they have the same. What weighs sources elsewhere in the config
  is dropped, and said.

  Args:
    text: The mix.
    sources: The section `sources`.
    mix: The section `mix`, or None.
    root: Dotted path of the section that holds them.

  Returns:
    The new sections, and what is wrong; sections that are no mappings are left
    to whoever reads them.
  """
  path = f"{root}.dataset_mix"
  try:
    entries = parse(text)
  except ValueError as error:
    return sources, mix, [f"`{path}`: {error}"]
  declared = all(isinstance(entry, Mapping) for entry in sources.values())
  if not sources or not declared or not isinstance(mix, Mapping | None):
    return sources, mix, []
  others = [entry.alias for entry in entries if entry.alias not in sources]
  template = _template(sources)
  if others and template is None:
    return (
      sources,
      mix,
      [
        f"`{path}` must name declared sources where their rows or shuffle"
        f" differ ({', '.join(sources)}), got {', '.join(others)}. Write"
        f" <name>=path:weight, or declare `{root}.sources.default` with the"
        " rows and shuffle of the others."
      ],
    )
  out = {}
  for entry in entries:
    source = {**sources.get(entry.alias, template or {}), "store": entry.store}
    out[entry.alias] = {k: v for k, v in source.items() if k != "weight"}
  mix_section = dict(mix or {})
  weighed = [
    f"mix.{n}" for n in ("weights", "stages") if _is_set(mix_section.get(n))
  ]
  weighed += [
    f"sources.{name}.weight"
    for name, source in sources.items()
    if _is_set(source.get("weight"))
  ]
  if weighed:
    logging.info("%s: takes the place of %s.", path, ", ".join(weighed))
  mix_section["weights"] = {
    entry.alias: float(entry.weight) for entry in entries
  }
  return out, {**mix_section, "stages": None}, []


def _template(sources: Mapping[str, Mapping[str, Any]]) -> dict | None:
  """Returns rows and shuffle of entries that name no declared source.

  And the options of their kind of stores, where those are of all templates.
  """
  declared = list(sources.values())
  if "default" in sources:
    declared = [sources["default"]]
  templates = []
  for source in declared:
    template = {k: source[k] for k in ("rows", "shuffle") if k in source}
    if isinstance(template.get("shuffle"), Mapping):
      shuffle = dict(template["shuffle"])
      # The seed of a template is not shared.
      shuffle.pop("seed", None)
      template["shuffle"] = shuffle
    templates.append(template)
  if any(
    _in_full(template) != _in_full(templates[0]) for template in templates
  ):
    return None
  for name in store_kinds.sections():
    said = [source.get(name) for source in declared]
    if said[0] is not None and all(value == said[0] for value in said):
      templates[0][name] = said[0]
  return templates[0]


def _in_full(template: Mapping[str, Any]) -> list[Any]:
  """Returns rows and shuffle of a template with the kinds that are defaults."""
  kinds = {"rows": row_kinds.DEFAULT_KIND, "shuffle": "none"}
  out = []
  for name, kind in kinds.items():
    section = template.get(name)
    if section is None or isinstance(section, Mapping):
      section = {"kind": kind, **(section or {})}
    out.append(section)
  return out


def _is_set(value: Any) -> bool:
  # A flag that unsets a tuple leaves (None,).
  return value is not None and not (type(value) is tuple and value == (None,))
