# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options on the command line: `--config.<path>=<value>` sets any of them.

Known options come from the dataclasses of options, not from the config's file;
a value is parsed by the rule of its option.
"""

import ast
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
import warnings

from absl import logging
import ml_collections
from ml_collections import config_dict

from chomp_data import schema
from chomp_data.config import options

_Path = tuple[str, ...]

# Texts that absl accepts as booleans.
_BOOLEANS = {"true": True, "t": True, "1": True}
_BOOLEANS |= {"false": False, "f": False, "0": False}


def apply(
  config: ml_collections.ConfigDict,
  settings: Sequence[str],
  sections: Mapping[str, type],
) -> None:
  """Sets options of a config; references to them follow.

      data.seed=3  data.mix.weights={'a': 0.9, 'b': 0.1}  data.epochs=None

  A whole section is set by a mapping, or by None. When a `kind` is set,
  options of the file that do not apply to it are removed, and the log lists
  them.

  Args:
    config: Changed in place.
    settings: `path=value`; paths begin at the config's top, and the last value
      of a path counts.
    sections: Dataclasses of the sections beside `data`, by name. In sections
      of the file that are not among them anything can be set.

  Raises:
    ConfigError: If paths or values are wrong; all of them are listed.
  """
  values: dict[_Path, str] = {}
  for one in settings:
    path, _, text = one.partition("=")
    values[tuple(path.split("."))] = text
  problems: list[str] = []
  known = _known(config, sections)
  with config.unlocked(), config.ignore_type():
    for path in values:
      _expand(config, known, path)
    before = _stated(known, _plain(config))
    # These decide which other options exist; outer ones first.
    deciding = [
      path
      for path in values
      if path[-1] == "kind" or isinstance(known.at(path), schema.Section)
    ]
    for path in sorted(deciding, key=len):
      problems += _set(config, known, path, values[path])
      known = _known(config, sections)
    if deciding:
      after = _stated(known, _plain(config))
      lost = [path for path in before if before[path] > after.get(path, -1)]
      _leave_out(config, lost, list(values))
    for path in values:
      if path not in deciding:
        problems += _set(config, known, path, values[path])
  if problems:
    raise schema.ConfigError(problems)


def _known(
  config: ml_collections.ConfigDict, sections: Mapping[str, type]
) -> schema.Section:
  """Returns every option that a config may have."""
  data = options.known(_plain(config).get("data"))
  others = {name: schema.Section(cls) for name, cls in sections.items()}
  return schema.Section(None, {"data": data, **others})


def _plain(section: Any) -> dict[str, Any]:
  """Returns a section as dictionaries; placeholders are None."""
  if isinstance(section, ml_collections.ConfigDict):
    items = section.items(preserve_field_references=True)
  else:
    items = section.items()
  out = {}
  for name, value in items:
    if isinstance(value, config_dict.FieldReference):
      try:
        value = value.get()
      except config_dict.RequiredValueError:
        value = None
    is_section = isinstance(value, Mapping | ml_collections.ConfigDict)
    out[name] = _plain(value) if is_section else value
  return out


def _expand(
  config: ml_collections.ConfigDict, known: schema.Section, path: _Path
) -> None:
  """Replaces the short forms of sections along a path by the sections."""
  section: Any = config
  for name in path:
    if not isinstance(section, ml_collections.ConfigDict):
      return
    if name not in known.sections or name not in section:
      return
    known = known.sections[name]
    full = known.in_full(section[name])
    if full is not section[name]:
      with section.ignore_type():
        section[name] = ml_collections.ConfigDict(full)
    section = section[name]


def _stated(
  known: schema.Section, values: Mapping[str, Any]
) -> dict[_Path, bool]:
  """Returns the known options of a config, and whether they apply.

  An option does not apply if it belongs to another `kind`.
  """
  stated = {}
  for path, option in known.leaves():
    section: Any = values
    for name in path[:-1]:
      section = section.get(name) if isinstance(section, Mapping) else None
    if not isinstance(section, Mapping) or path[-1] not in section:
      continue
    kind = section.get("kind")
    declared = known.at((*path[:-1], "kind"))
    if kind is None and isinstance(declared, schema.Option):
      kind = declared.default
    stated[path] = option.kinds is None or kind in option.kinds
  return stated


def _leave_out(
  config: ml_collections.ConfigDict,
  paths: Sequence[_Path],
  set_paths: Sequence[_Path],
) -> None:
  """Removes options that do not apply to a kind set on the command line."""
  removed = []
  for path in paths:
    if any(other[: len(path)] == path for other in set_paths):
      continue  # An error where the options are read.
    section: Any = config
    for name in path[:-1]:
      section = section.get(name) or {}
    if path[-1] not in section:
      continue  # Its section was replaced.
    if _plain(section)[path[-1]] is not None:
      removed.append(f"config.{'.'.join(path)}")
    del section[path[-1]]
  if removed:
    kinds = [_flag(path) for path in set_paths if path[-1] == "kind"]
    logging.warning(
      "%s: removed options of the file that do not apply to it: %s.",
      ", ".join(kinds),
      ", ".join(removed),
    )


def _set(
  config: ml_collections.ConfigDict,
  known: schema.Section,
  path: _Path,
  text: str,
) -> list[str]:
  """Sets one option or section; returns what is wrong with it."""
  try:
    target = _find(known, _plain(config), path)
    value = _value(target, path, text)
    section: Any = config
    for name in path[:-1]:
      if not isinstance(section.get(name), ml_collections.ConfigDict):
        section[name] = ml_collections.ConfigDict()
      section = section[name]
    with section.ignore_type():
      if isinstance(target, schema.Section) and isinstance(value, Mapping):
        value = ml_collections.ConfigDict(value)
      section[path[-1]] = value
  except schema.ConfigError as error:
    return error.problems
  except ValueError as error:  # Of a ConfigDict, whose names hold no dots.
    return [f"`{_flag(path)}`: {error}"]
  return []


def _find(
  known: schema.Section, held: Mapping[str, Any], path: _Path
) -> schema.Option | schema.Section | None:
  """Returns the declaration at a path; None for fields only the file has.

  Raises:
    ConfigError: If there is none; the message lists the known fields.
  """
  for i, name in enumerate(path):
    value = held.get(name)
    below = i + 1 < len(path)
    if name in known.options and not below:
      return known.options[name]
    if name in known.options and not isinstance(value, Mapping):
      where, names, name = path[: i + 1], [], path[i + 1]
    elif name in known.sections:
      known = known.sections[name]
      held = value if isinstance(value, Mapping) else {}
      continue
    elif name in held and name not in known.others:
      return None
    else:
      where = path[:i]
      names = [*known.options, *known.sections]
    raise schema.ConfigError(
      [schema.unknown_key(_flag(where), name, names, names)]
    )
  return known


def _value(
  target: schema.Option | schema.Section | None, path: _Path, text: str
) -> Any:
  """Parses the text of an option or section.

  Raises:
    ConfigError: If its rule accepts no reading of the text.
  """
  if target is None:
    return _literal(text)
  if isinstance(target, schema.Section):
    reading = target.in_full(_literal(text))
    if reading is None or isinstance(reading, Mapping):
      return reading
    rule = "a mapping, as Python writes it, or None: it is a section"
    names = ", ".join([*target.options, *target.sections])
    fix = f"Set one of its fields: {names}."
  else:
    for reading in readings(text):
      try:
        target.rule.convert(reading)
      except (TypeError, ValueError, OverflowError):
        continue
      return reading
    rule, fix = target.rule.text, "Correct it."
  got = _literal(text)
  raise schema.ConfigError([schema.bad_value(_flag(path), rule, got, fix)])


def _literal(text: str) -> Any:
  """Returns the Python literal that a text is, or else the text."""
  if text in ("true", "false"):
    return text == "true"
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")  # Of escapes in a path.
      return ast.literal_eval(text.strip())
  except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
    return text


def readings(text: str) -> list[Any]:
  """Returns the values that a text may stand for, most likely first."""
  literal = _literal(text)
  if literal is None:
    return [None]
  values = [literal, text]
  if isinstance(literal, Mapping):
    # Names may hold dots, which those of a ConfigDict may not.
    values.insert(0, tuple(literal.items()))
  if text.lower() in _BOOLEANS:
    values.append(_BOOLEANS[text.lower()])
  return [*values, (literal,)]


def _flag(path: _Path) -> str:
  return ".".join(("--config", *path))
