# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Validation of options and arguments, by declared rules.

Options are dataclasses whose fields have rules. They are checked on creation,
in Python as in a config: one error lists every wrong field with its dotted
path, its value and the fix. `arguments` checks the arguments of a function or
method by the same rules.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import difflib
import functools
import inspect
import math
import numbers
import os
import re
from typing import Any
from typing import ParamSpec
from typing import TypeVar

from chomp_data import errors
from chomp_data.index import integers

_T = TypeVar("_T")
_Parameters = ParamSpec("_Parameters")
_RULE = "rule"
_KINDS = "kinds"
_FIX = "fix"
_UNLESS = "unless"
_NESTED = "nested"

# The indentation of a field in the section `Attributes:` of a docstring.
_ATTRIBUTE = re.compile(r"  (\w+): +(.*)")

# Limit of sizes and counts, whose products must fit in int64. Seeds may be
# larger.
MAX_COUNT = 2**48

# The most characters of a wrong value in a message.
_MOST_SHOWN = 400


ConfigError = errors.ConfigError

# Names of fields in other programs, and the fields here.
OTHER_NAMES = {
  "dataset_path": "config.data.sources.<name>.store",
  "max_length": "config.data.seq_len",
  "num_workers": "config.data.worker_count",
  "packing": "config.data.sources.<name>.rows.kind",
  "packing_mode": "config.data.sources.<name>.rows.kind",
  "sequence_length": "config.data.seq_len",
}


@dataclasses.dataclass(frozen=True)
class Rule:
  """The values that a field accepts.

  Attributes:
    text: Completes "must be ...".
    convert: Returns the converted value; raises TypeError or ValueError.
    names: Values to suggest for a misspelled one.
  """

  text: str
  convert: Callable[[Any], Any]
  names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Option:
  """One field that a section of a config may have.

  Attributes:
    name: Name of the field.
    rule: The values that it accepts.
    default: Its default value; `dataclasses.MISSING` if it is required.
    kinds: The field is valid only if the section's `kind` is one of these;
      None is valid for all kinds.
    sentence: Its description.
    fix: The advice for a wrong value; None advises to leave it out.
    unless: The field that may be set in its place; one of both must be.
  """

  name: str
  rule: Rule
  default: Any
  kinds: tuple[str, ...] | None = None
  sentence: str = ""
  fix: str | None = None
  unless: str | None = None

  @property
  def is_required(self) -> bool:
    """Whether it has no default."""
    return self.default is dataclasses.MISSING

  def problem(self, path: str, value: Any) -> str:
    """Returns the error for a wrong value in the section at a path."""
    fix = self.fix
    if fix is None and self.is_required:
      fix = "Set it to such a value."
    elif fix is None:
      fix = f"Correct it, or leave it out for the default {self.default!r}."
    return bad_value(f"{path}.{self.name}", self.rule, value, fix)


@dataclasses.dataclass(frozen=True)
class Section:
  """The fields and sections that a config may have at one path.

  It is the declaration from which a config is read and checked, and from which
  defaults, help, docs/options.md and command-line flags follow.

  Attributes:
    cls: The options dataclass of its fields; None if a wrong `kind` leaves them
      unknown.
    sections: Nested sections, by name.
    kind: The field `kind`, if its value selects `cls`.
    others: Fields that it has with another `kind` only. They may be None. A
      pair (rule, fix) is the error for another value, with `{path}` for the
      path of the section; without one such a field is unknown.
    expanded: Expands a short form to a section; returns None for other values.
      None if there is no short form.
    check: Returns what is wrong between the fields, of (options, path).
    join: Returns the result of (options, sections by name, values); None
      returns the options.
    is_optional: Whether the result is None where a config lacks the section.
    is_required: Whether it must have an entry.
    rule: Completes "must be ..." for a value that is no section.
    fix: The advice for such a value.
  """

  cls: type | None
  sections: Mapping[str, "Section"] = dataclasses.field(default_factory=dict)
  kind: Option | None = None
  others: Mapping[str, tuple[str, str] | None] = dataclasses.field(
    default_factory=dict
  )
  expanded: Callable[[Any], dict[str, Any] | None] | None = None
  check: Callable[[Any, str], list[str]] | None = None
  join: Callable[[Any, dict[str, Any], Mapping[str, Any]], Any] | None = None
  is_optional: bool = False
  is_required: bool = False
  rule: str = "a section with fields"
  fix: str = "Give it fields."

  @property
  def options(self) -> Mapping[str, Option]:
    """Its fields, by name."""
    options = {} if self.cls is None else options_of(self.cls)
    return options if self.kind is None else {"kind": self.kind, **options}

  def leaves(
    self, path: tuple[str, ...] = ()
  ) -> Iterator[tuple[tuple[str, ...], Option]]:
    """Yields (path, option) of every field, nested ones included."""
    for name, option in self.options.items():
      yield (*path, name), option
    for name, section in self.sections.items():
      yield from section.leaves((*path, name))

  def at(self, path: Sequence[str]) -> "Option | Section | None":
    """Returns the field or section at a path, or None if there is none."""
    section = self
    for i, name in enumerate(path):
      if name not in section.sections:
        is_last = i + 1 == len(path)
        return section.options.get(name) if is_last else None
      section = section.sections[name]
    return section

  def in_full(self, value: Any) -> Any:
    """Returns a value, or the section that it is a short form of."""
    full = None if self.expanded is None else self.expanded(value)
    return value if full is None else full

  def stated(self, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a config states of the section, short forms expanded.

    None leaves an option at its default, unless its rule accepts None. A
    section that has all of its fields, all None, is one of placeholders
    (`config/placeholders`), and is left out.
    """
    out = {}
    for name, value in values.items():
      section, option = self.sections.get(name), self.options.get(name)
      if section is not None:
        value = section.in_full(value)
        if isinstance(value, Mapping):
          if section.is_placeholder(value):
            continue
          value = section.stated(value)
      elif (name in self.others and _is_unset(value)) or (
        value is None and option and not takes_none(option.rule)
      ):
        continue
      out[name] = value
    return out

  def is_placeholder(self, values: Mapping[str, Any]) -> bool:
    """Returns whether values are all fields of the section, all None."""
    return (
      bool(self.options)
      and values.keys() >= self.options.keys()
      and all(value is None for value in values.values())
    )

  def read(self, values: Any, path: str) -> tuple[Any, list[str]]:
    """Reads the section of a config.

    Args:
      values: A mapping of names to values; None if the config lacks it.
      path: Dotted path of the section, for messages.

    Returns:
      Its options, or None if something is wrong, and the errors.
    """
    if values is None and self.is_optional:
      return None, []
    if values is None and not self.is_required:
      values = {}
    if not isinstance(values, Mapping) or (self.is_required and not values):
      return None, [bad_value(path, self.rule, values, self.fix)]
    if self.kind is not None and self.cls is None:
      kind = values.get("kind")
      misspelled = [] if "kind" in values else map(str, values)
      return None, [
        bad_value(f"{path}.kind", self.kind.rule, kind, "Choose one."),
        *(
          unknown_key(path, name, ["kind"])
          for name in misspelled
          if did_you_mean(name, ["kind"])
        ),
      ]
    options, problems = None, []
    if self.cls is not None:
      options, problems = self._fields(self.cls, values, path)
    if options is not None and self.check is not None:
      problems += self.check(options, path)
    sections = {}
    for name, section in self.sections.items():
      sections[name], wrong = section.read(values.get(name), f"{path}.{name}")
      problems += wrong
    if problems:
      return None, problems
    join = self.join
    return options if join is None else join(options, sections, values), []

  def _fields(
    self, cls: type, values: Mapping[str, Any], path: str
  ) -> tuple[Any, list[str]]:
    """Returns the options of the fields, or None, and what is wrong."""
    names = [*self.options, *self.sections]
    problems, unknown = [], []
    for name, value in values.items():
      if refusal := self.others.get(name):
        rule, fix = refusal[0].format(path=path), refusal[1]
        problems.append(bad_value(f"{path}.{name}", rule, value, fix))
      elif name not in names:
        unknown.append(str(name))
    for name in unknown:
      # Only the last error lists the known fields.
      listed = names if name == unknown[-1] else []
      problems.append(unknown_key(path, name, names, listed))
    converted, wrong = _converted(cls, values, path)
    problems += wrong
    for name, option in options_of(cls).items():
      if option.is_required and name not in values:
        problems.append(f"`{path}.{name}` must be set, to {option.rule.text}.")
      elif option.unless and all(
        values.get(field) is None for field in (name, option.unless)
      ):
        rule = option.rule.text.removesuffix(", or None")
        problems.append(
          f"`{path}.{name}` must be set, to {rule}; or {option.unless}, to"
          " several."
        )
    return (None if problems else cls(**converted)), problems


@dataclasses.dataclass(frozen=True)
class Options:
  """Base of options dataclasses; checks and converts fields on creation.

  Raises:
    ConfigError: If fields are wrong; all of them are listed.
  """

  def __post_init__(self) -> None:
    """Checks and converts the fields."""
    path = type(self).__name__
    values, problems = _converted(
      type(self),
      {f.name: getattr(self, f.name) for f in dataclasses.fields(self)},
      path,
    )
    for name, section in nested_of(type(self)).items():
      value = getattr(self, name)
      if not isinstance(value, section.cls or ()):
        values[name], wrong = section.read(value, f"{path}.{name}")
        problems += wrong
    if problems:
      raise ConfigError(problems)
    for name, value in values.items():
      object.__setattr__(self, name, value)


def option(
  default: Any,
  rule: Rule,
  kinds: tuple[str, ...] | None = None,
  fix: str | None = None,
  unless: str | None = None,
) -> Any:
  """Declares a dataclass field with a default and a rule.

  Args:
    default: Its default value.
    rule: The values that it accepts.
    kinds: The values of the field `kind` for which it is valid; for others it
      must have its default, as `kind_problems` checks. None is all.
    fix: The advice for a wrong value; None advises to leave it out.
    unless: The field that may be set in its place; a config must set one of
      both.
  """
  declared = {_RULE: rule, _KINDS: kinds, _FIX: fix, _UNLESS: unless}
  return dataclasses.field(default=default, metadata=declared)


def required(rule: Rule) -> Any:
  """Declares a dataclass field without a default."""
  return dataclasses.field(metadata={_RULE: rule})


def nested(cls: type) -> Any:
  """Declares a dataclass field that is a section of its own, or None."""
  return dataclasses.field(default=None, metadata={_NESTED: cls})


@functools.cache
def nested_of(cls: type) -> "Mapping[str, Section]":
  """Returns the fields of an options dataclass that are sections, by name."""
  return {
    field.name: Section(field.metadata[_NESTED], is_optional=True)
    for field in dataclasses.fields(cls)
    if _NESTED in field.metadata
  }


@functools.cache
def options_of(cls: type) -> Mapping[str, Option]:
  """Returns the fields of an options dataclass, in order.

  Sentences are parsed from `Attributes:` in the docstrings of the classes.
  """
  sentences = {}
  for base in reversed(cls.__mro__):
    sentences |= attribute_sentences(base.__dict__.get("__doc__") or "")
  return {
    field.name: Option(
      field.name,
      field.metadata[_RULE],
      field.default,
      field.metadata.get(_KINDS),
      sentences.get(field.name, ""),
      field.metadata.get(_FIX),
      field.metadata.get(_UNLESS),
    )
    for field in dataclasses.fields(cls)
    if _RULE in field.metadata
  }


def attribute_sentences(docstring: str) -> dict[str, str]:
  """Returns the descriptions of attributes in a class's docstring, by name."""
  _, _, text = inspect.cleandoc(docstring).partition("\nAttributes:\n")
  sentences: dict[str, str] = {}
  name = ""
  for line in text.split("\n"):
    if not line.startswith("  "):
      break
    if match := _ATTRIBUTE.fullmatch(line):
      name, sentences[match[1]] = match[1], match[2]
    else:
      sentences[name] += f" {line.strip()}"
  return sentences


def kind_problems(path: str, options: Any) -> list[str]:
  """Returns an error for each field that is not valid for the `kind`."""
  return [
    f"`{path}.{option.name}` must be {option.default} where kind is"
    f" {options.kind!r}, got {getattr(options, option.name)}. Unset it, or set"
    f" kind to {option.kinds[0]!r}."
    for option in options_of(type(options)).values()
    if option.kinds is not None
    and options.kind not in option.kinds
    and getattr(options, option.name) != option.default
  ]


def integer(minimum: int = 0, maximum: int = MAX_COUNT) -> Rule:
  """Accepts whole numbers in a closed range."""

  def convert(value):
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
      raise TypeError
    value = int(value)
    if not minimum <= value <= maximum:
      raise ValueError
    return value

  if maximum == MAX_COUNT:
    return Rule(f"a whole number of at least {minimum}", convert)
  if maximum > MAX_COUNT:
    power = (maximum + 1).bit_length() - 1
    return Rule(
      f"a whole number of at least {minimum} and below 2**{power}", convert
    )
  return Rule(f"a whole number of {minimum} .. {maximum}", convert)


def whole_numbers(*axes: int) -> Rule:
  """Accepts whole numbers of at least 0, returned as an int64 array.

  Args:
    *axes: How many axes the array may have.
  """

  def convert(value):
    array = integers.array("values", value, axes)
    if array.size and array.min() < 0:
      raise ValueError
    return array

  return Rule(
    "whole numbers of at least 0, a list or int64 array of"
    f" {' or '.join(map(str, axes))} axes",
    convert,
  )


WHOLE = Rule("a whole number", lambda value: integers.whole("value", value))


def number(minimum: float = 0.0, maximum: float = math.inf) -> Rule:
  """Accepts finite numbers in a closed range."""

  def convert(value):
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
      raise TypeError
    value = float(value)
    if not math.isfinite(value) or not minimum <= value <= maximum:
      raise ValueError
    return value

  if maximum == math.inf:
    return Rule(f"a finite number of at least {minimum:g}", convert)
  return Rule(f"a number in [{minimum:g}, {maximum:g}]", convert)


def boolean() -> Rule:
  """Accepts True and False."""

  def convert(value):
    if not isinstance(value, bool):
      raise TypeError
    return value

  return Rule("True or False", convert)


def text(*, empty: bool = False) -> Rule:
  """Accepts strings that can be encoded, and empty ones if `empty`."""

  def convert(value):
    if not isinstance(value, str):
      raise TypeError
    if not (value or empty) or not _is_text(value):
      raise ValueError
    return value

  return Rule("text" if empty else "text that is not empty", convert)


def sequence(rule: Rule) -> Rule:
  """Accepts sequences whose items a rule accepts, returned as a tuple."""

  def convert(value):
    if isinstance(value, str | bytes | Mapping) or not isinstance(
      value, Iterable
    ):
      raise TypeError
    return tuple(rule.convert(item) for item in value)

  return Rule(f"a list of which each is {rule.text}", convert, rule.names)


def mapping() -> Rule:
  """Accepts mappings by names of text."""

  def convert(value):
    if not isinstance(value, Mapping):
      raise TypeError
    if not all(isinstance(name, str) for name in value):
      raise TypeError
    return value

  return Rule("a mapping by names of text", convert)


def function() -> Rule:
  """Accepts callables."""
  return having("a function", "__call__")


def name_among(name: str, value: Any, names: Collection[str]) -> str:
  """Returns an argument that must be one of some names.

  Raises:
    TypeError: If it is not text.
    ConfigError: If there is no such name; the message lists the names.
  """
  return argument(name, choice(names), value)


def choice(choices: Collection[str]) -> Rule:
  """Accepts one of some names."""

  def convert(value):
    if not isinstance(value, str):
      raise TypeError
    if value not in choices:
      raise ValueError
    return value

  return Rule(
    "one of " + ", ".join(repr(c) for c in choices), convert, tuple(choices)
  )


def path() -> Rule:
  """Accepts paths and URLs, as text or as `os.PathLike`."""

  def convert(value):
    value = os.fspath(value)
    if not isinstance(value, str):
      raise TypeError
    if not value:
      raise ValueError
    return value  # Opening it raises if it cannot be encoded.

  return Rule("a path that is not empty", convert)


def instance(description: str, *types: type) -> Rule:
  """Accepts objects of some classes.

  Args:
    description: The description of the objects, for messages.
    *types: The classes.
  """

  def convert(value):
    if not isinstance(value, types):
      raise TypeError
    return value

  return Rule(description, convert)


def having(description: str, *names: str) -> Rule:
  """Accepts objects of any class with some attributes.

  Args:
    description: The description of the objects, for messages.
    *names: The attributes.
  """

  def convert(value):
    # A class has the attributes of its instances.
    if isinstance(value, type) or not all(hasattr(value, n) for n in names):
      raise TypeError
    return value

  return Rule(description, convert)


def options_rule(*classes: type) -> Rule:
  """Accepts options of some classes."""
  names = [cls.__name__ for cls in classes]
  return instance(
    f"{' or '.join(names)}, as {names[0]}(field=value, ...)", *classes
  )


def optional(rule: Rule) -> Rule:
  """Accepts None and the values of a rule."""
  return dataclasses.replace(
    rule,
    text=rule.text + ", or None",
    convert=lambda value: None if value is None else rule.convert(value),
  )


def takes_none(rule: Rule) -> bool:
  """Returns whether a rule accepts None."""
  try:
    return rule.convert(None) is None
  except (TypeError, ValueError):
    return False


def either(first: Rule, second: Rule) -> Rule:
  """Accepts the values of either of two rules."""

  def convert(value):
    try:
      return first.convert(value)
    except (TypeError, ValueError):
      return second.convert(value)

  names = first.names + second.names
  return Rule(f"{first.text}, or {second.text}", convert, names)


def weights() -> Rule:
  """Accepts weights by name: a mapping, or a list of (name, weight) pairs."""

  def convert(value):
    items = value.items() if isinstance(value, Mapping) else value
    if isinstance(items, str):
      raise TypeError
    by_name = {}
    for name, weight in items:
      if not isinstance(name, str) or name in by_name:
        raise ValueError
      by_name[name] = number(0).convert(weight)
    return tuple(sorted(by_name.items()))

  return Rule(
    "a mapping (or a list of pairs) of distinct names to finite numbers of"
    " at least 0",
    convert,
  )


def bad_value(path: str, rule: str | Rule, value: Any, fix: str) -> str:
  """Returns the error for one wrong field.

  Args:
    path: Dotted path of the field.
    rule: The values that it accepts.
    value: Its value.
    fix: The advice, if no known name is similar to the value.
  """
  try:
    got = repr(value)
  except Exception:  # Of any class; whole numbers of many digits: ValueError.
    got = f"one of type {type(value).__name__} that cannot be printed"
  if len(got) > _MOST_SHOWN:
    got = f"{got[:_MOST_SHOWN]} ... ({len(got)} characters)"
  if isinstance(rule, Rule):
    fix = did_you_mean(value, rule.names) or f" {fix}"
    rule = rule.text
  else:
    fix = f" {fix}"
  return f"`{path}` must be {rule}, got {got}.{fix}"


def did_you_mean(name: Any, known: Iterable[str]) -> str:
  """Returns ' Did you mean `x`?' with the known name most similar to a name.

  Args:
    name: The unknown name.
    known: The known names.

  Returns:
    The question, or '' if no known name is similar.
  """
  if not isinstance(name, str):
    return ""
  by_lower = {known_name.lower(): known_name for known_name in known}
  near = difflib.get_close_matches(name.lower(), by_lower, n=1)
  return f" Did you mean `{by_lower[near[0]]}`?" if near else ""


def argument(name: str, rule: Rule, value: Any) -> Any:
  """Returns an argument as converted by its rule.

  Raises:
    TypeError: If it is of a wrong type.
    ConfigError: If its value is wrong.
  """
  try:
    return rule.convert(value)
  except (errors.ConfigError, errors.StoreError):
    raise  # Their message is more specific.
  except TypeError:
    raise TypeError(bad_value(name, rule, value, "Correct it.")) from None
  except (ValueError, OverflowError):
    raise ConfigError([bad_value(name, rule, value, "Correct it.")]) from None


def arguments(
  **rules: Rule,
) -> Callable[[Callable[_Parameters, _T]], Callable[_Parameters, _T]]:
  """Returns a decorator that checks and converts arguments by rules.

  Adds a few microseconds per call, so it is not for functions that are called
  for every batch.

  Args:
    **rules: Rules by name of the parameter; defaults are not checked.
  """

  def decorate(
    function: Callable[_Parameters, _T],
  ) -> Callable[_Parameters, _T]:
    positional = tuple(inspect.signature(function).parameters)
    unknown = rules.keys() - set(positional)
    assert not unknown, unknown
    unchecked: Callable[..., Any] = function

    @functools.wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
      values = [
        argument(name, rules[name], value) if name in rules else value
        for name, value in zip(positional, args, strict=False)
      ]
      values += args[len(positional) :]
      for name, value in named.items():
        if name in rules:
          named[name] = argument(name, rules[name], value)
      return unchecked(*values, **named)

    return checked

  return decorate


def _converted(
  cls: type, section: Mapping[Any, Any], path: str
) -> tuple[dict[str, Any], list[str]]:
  """Returns the converted known fields of a section, and their errors."""
  values, problems = {}, []
  for name, option in options_of(cls).items():
    if name not in section:
      continue
    try:
      values[name] = option.rule.convert(section[name])
    except (TypeError, ValueError, OverflowError):
      problems.append(option.problem(path, section[name]))
  return values, problems


def read(cls: type[_T], section: Any, path: str) -> tuple[_T | None, list[str]]:
  """Reads one section of a config, as `Section(cls).read` does."""
  return Section(cls).read(section, path)


def section_by_kind(
  classes: Mapping[str, type],
  values: Any,
  sentence: str,
  default: Any = dataclasses.MISSING,
) -> Section:
  """Returns a section whose field `kind` selects the class of its fields.

  Args:
    classes: The options dataclasses, by kind.
    values: The values of the section, which may be wrong.
    sentence: The description of the field `kind`.
    default: The kind of a section that has none.
  """
  kind = kind_of(values, default)
  cls, kinds = classes.get(kind), {}
  for other, other_cls in classes.items():
    for name in (*options_of(other_cls), *nested_of(other_cls)):
      kinds.setdefault(name, []).append(repr(other))
  sections = {} if cls is None else nested_of(cls)
  names = {} if cls is None else {**options_of(cls), **sections}
  others = {
    name: (
      f"left out where `{{path}}.kind` is {kind!r}",
      f"Set kind to {' or '.join(kinds[name])}, or remove it.",
    )
    for name in sorted(kinds.keys() - names)
  }
  rule = choice(tuple(classes))
  option = Option("kind", rule, default, sentence=sentence)
  return Section(
    cls,
    sections,
    kind=option,
    others=others,
    join=lambda options, nested, _: dataclasses.replace(options, **nested),
  )


def kind_of(section: Any, default: Any = dataclasses.MISSING) -> str:
  """Returns the `kind` of a section; '' where it is wrong or not set."""
  kind = section
  if section is not None:
    kind = section.get("kind") if isinstance(section, Mapping) else ""
  if kind is None and default is not dataclasses.MISSING:
    kind = default
  return kind if isinstance(kind, str) else ""


def _is_unset(value: Any) -> bool:
  """Returns whether a value is None, or a section of which all fields are."""
  if isinstance(value, Mapping):
    return all(field is None for field in value.values())
  return value is None


def problems_of(options: Any, path: str) -> list[str]:
  """Returns what is wrong between the fields of options: a `Section.check`."""
  return options.problems(path)


def name_problems(path: str, section: Mapping[Any, Any]) -> list[str]:
  """Returns an error for each name of a section that cannot be encoded."""
  return [
    bad_value(path, "entries by names of text", name, "Give it another name.")
    for name in section
    if not _is_text(str(name))
  ]


def unknown_key(
  path: str, name: str, known: Sequence[str], listed: Sequence[str] = ()
) -> str:
  """Returns the error for a field that does not exist.

  Args:
    path: Dotted path of the section.
    name: The field.
    known: Known fields, for the suggestion.
    listed: Fields to list in the error.
  """
  guess = did_you_mean(name, known)
  if name in OTHER_NAMES:
    guess = f" Set `{OTHER_NAMES[name]}`."
  guess = guess or " Remove it."
  fields = f" Known fields: {', '.join(sorted(set(listed)))}." if listed else ""
  return f"`{path}.{name}` is not a known field.{guess}{fields}"


def _is_text(value: str) -> bool:
  """Returns whether a string can be encoded; lone surrogates cannot."""
  try:
    value.encode()
  except UnicodeEncodeError:
    return False
  return True
