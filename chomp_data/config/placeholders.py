# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Placeholders, so that stock `ml_collections` flags can set every option.

`config_flags` only sets fields that a config has. A config states what is
special about its run, so it lacks most of them. Placeholders add them without a
value: None, which leaves an option at its default.
"""

from collections.abc import Mapping
from typing import Any

import ml_collections
from ml_collections import config_dict

from chomp_data import schema
from chomp_data.config import options

# Their values keep their type on the command line; others are read as Python.
_TYPED = (bool, int, float, str)


class _Field(config_dict.FieldReference):
  """A field to which any value may be assigned later."""

  def set(self, value: Any, type_safe: bool = True) -> None:
    """Assigns a value; a dict becomes a ConfigDict, which can be frozen."""
    if isinstance(value, dict):
      value = ml_collections.ConfigDict(value, allow_dotted_keys=True)
    super().set(value, type_safe)


def _section(value: Any) -> Any:
  if isinstance(value, ml_collections.ConfigDict):
    return value
  return schema.mapping().convert(value)


@schema.arguments(
  data=schema.Rule("the section `config.data`, with its fields", _section)
)
def with_placeholders(
  data: Mapping[str, Any] | ml_collections.ConfigDict,
) -> ml_collections.ConfigDict:
  """Returns `config.data` with a field for every option that it may have.

      config.data = chomp_data.with_placeholders(config.data)

  The last statement of a config file, so that `ml_collections.config_flags` of
  any binary can set every option of `config.data`. Options that the config does
  not state are None and keep their defaults; `rows.num_docs`, for which None
  has a meaning, has its default. A field that refers to another keeps its type.
  Short forms of sections, such as `shuffle=True`, become sections. Sources are
  those of the config: `dataset_mix` names others on the command line.

  Args:
    data: `config.data`, complete but for what the command line is to set. A
      ConfigDict is changed in place.
  """
  config: Any = data
  if isinstance(config, ml_collections.FrozenConfigDict):
    config = config.as_configdict()
  elif not isinstance(config, ml_collections.ConfigDict):
    config = ml_collections.ConfigDict(config)
  with config.unlocked():
    _fill(config, options.known(options.plain(config)))
  return config


def _fill(section: ml_collections.ConfigDict, known: schema.Section) -> None:
  """Adds the options and sections that a section does not have."""
  fields = dict(section.items(preserve_field_references=True))
  for name, option in known.options.items():
    value = fields.get(name)
    if isinstance(value, config_dict.FieldReference):
      continue
    if value is None and schema.takes_none(option.rule):
      # None would have another meaning than the default.
      value = None if name in fields else option.default
    elif isinstance(value, _TYPED) and not schema.takes_none(option.rule):
      converted = _converted(option.rule, value)
      if type(converted) is not type(value):
        del section[name]
        section[name] = converted
      continue
    _put(section, name, value)
  for name in known.others:
    if name not in fields:
      _put(section, name, None)
  for name, inner in known.sections.items():
    value = inner.in_full(section.get(name))
    if value is None or isinstance(value, dict):
      value = ml_collections.ConfigDict(value)
    if isinstance(value, ml_collections.ConfigDict):
      _fill(value, inner)
    if inner.options and not isinstance(
      fields.get(name), config_dict.FieldReference
    ):
      _put(section, name, value)


def _converted(rule: schema.Rule, value: Any) -> Any:
  """Returns a value in the type of its option: 600 seconds as 600.0."""
  try:
    converted = rule.convert(value)
  except (TypeError, ValueError, OverflowError):
    return value  # The error is raised where options are read.
  return converted if isinstance(converted, _TYPED) else value


def _put(section: ml_collections.ConfigDict, name: str, value: Any) -> None:
  """Sets a field, whatever the type of its previous value."""
  if name in section:
    del section[name]
  section[name] = _Field(value, field_type=object)
