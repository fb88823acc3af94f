"""Typed options: dataclasses whose fields state the rule they must obey.

A section of a config becomes an options dataclass; whatever is wrong with it
is collected, so that one error can list every bad field by its dotted path
with its value and what to do.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import difflib
import functools
import inspect
import math
import numbers
import re
from typing import Any
from typing import TypeVar

from chomp_data import errors

_T = TypeVar("_T")
_RULE = "rule"
_KINDS = "kinds"

# The indentation of a field in the section `Attributes:` of a docstring.
_ATTRIBUTE = re.compile(r"  (\w+): +(.*)")

# Sizes and counts stay far inside int64 products; seeds may use all of it.
MAX_COUNT = 2**48

# Characters of a wrong value in a message.
_MOST_SHOWN = 400


ConfigError = errors.ConfigError


@dataclasses.dataclass(frozen=True)
class Rule:
  """What a field accepts.

  Attributes:
    text: Completes "must be ...".
    convert: Returns the value to keep; raises TypeError or ValueError.
  """

  text: str
  convert: Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Option:
  """One field that a section of a config may have.

  Attributes:
    name: Of the field.
    rule: What it accepts.
    default: Its value where it is left out; MISSING of `dataclasses` where
      it has none.
    kinds: The section's `kind` must be one of these, or the field has no
      meaning and must be left out; None has a meaning for all of them.
    sentence: What it means.
  """

  name: str
  rule: Rule
  default: Any
  kinds: tuple[str, ...] | None = None
  sentence: str = ""


@dataclasses.dataclass(frozen=True)
class Section:
  """What a config may have at one path.

  Attributes:
    options: Its fields, by name.
    sections: What lies deeper, by name.
  """

  options: Mapping[str, Option]
  sections: Mapping[str, "Section"] = dataclasses.field(default_factory=dict)


def option(
  default: Any, rule: Rule, kinds: tuple[str, ...] | None = None
) -> Any:
  """Declares a dataclass field with a default and a rule.

  Args:
    default: Its value where it is left out.
    rule: What it accepts.
    kinds: Of the dataclass's field `kind`: for others the field must have its
      default; `kind_problems` tells. None is all.
  """
  return dataclasses.field(
    default=default, metadata={_RULE: rule, _KINDS: kinds}
  )


def required(rule: Rule) -> Any:
  """Declares a dataclass field without a default."""
  return dataclasses.field(metadata={_RULE: rule})


@functools.cache
def options_of(cls: type) -> Mapping[str, Option]:
  """Returns the fields of an options dataclass, in order.

  Their sentences are those of the classes' docstrings, under `Attributes:`.
  """
  sentences = {}
  for base in reversed(cls.__mro__):
    sentences |= _sentences(base.__dict__.get("__doc__") or "")
  return {
    field.name: Option(
      field.name,
      field.metadata[_RULE],
      field.default,
      field.metadata.get(_KINDS),
      sentences.get(field.name, ""),
    )
    for field in dataclasses.fields(cls)
  }


def _sentences(docstring: str) -> dict[str, str]:
  """Returns what a class's docstring says of its attributes, by name."""
  _, _, text = inspect.cleandoc(docstring).partition("\nAttributes:\n")
  found: dict[str, str] = {}
  name = ""
  for line in text.split("\n"):
    if not line.startswith("  "):
      break
    if match := _ATTRIBUTE.fullmatch(line):
      name, found[match[1]] = match[1], match[2]
    else:
      found[name] += f" {line.strip()}"
  return found


def kind_problems(path: str, options: Any) -> list[str]:
  """Returns which fields have no meaning for the `kind` of their options."""
  return [
    f"`{path}.{own.name}` must be {own.default} where kind is"
    f" {options.kind!r}, got {getattr(options, own.name)}. Unset it, or set"
    f" kind to {own.kinds[0]!r}."
    for own in options_of(type(options)).values()
    if own.kinds is not None
    and options.kind not in own.kinds
    and getattr(options, own.name) != own.default
  ]


def integer(minimum: int = 0, maximum: int = MAX_COUNT) -> Rule:
  """Accepts whole numbers of a range."""

  def convert(value):
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
      raise TypeError
    value = int(value)
    if not minimum <= value <= maximum:
      raise ValueError
    return value

  if maximum == MAX_COUNT:
    return Rule(f"a whole number of at least {minimum}", convert)
  return Rule(f"a whole number of {minimum} .. {maximum}", convert)


def number(minimum: float = 0.0, maximum: float = math.inf) -> Rule:
  """Accepts finite numbers of a closed range."""

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


def text() -> Rule:
  """Accepts strings that are not empty and can be written."""

  def convert(value):
    if not isinstance(value, str):
      raise TypeError
    if not value or not _is_text(value):
      raise ValueError
    return value

  return Rule("text that is not empty", convert)


def choice(choices: Collection[str]) -> Rule:
  """Accepts one of some names."""

  def convert(value):
    if not isinstance(value, str) or value not in choices:
      raise ValueError
    return value

  return Rule("one of " + ", ".join(repr(c) for c in choices), convert)


def optional(rule: Rule) -> Rule:
  """Accepts None beside what the rule accepts."""
  return Rule(
    rule.text + ", or None",
    lambda value: None if value is None else rule.convert(value),
  )


def either(first: Rule, second: Rule) -> Rule:
  """Accepts what one of two rules accepts."""

  def convert(value):
    try:
      return first.convert(value)
    except (TypeError, ValueError):
      return second.convert(value)

  return Rule(f"{first.text}, or {second.text}", convert)


def weights() -> Rule:
  """Accepts weights by name: a mapping, or a list of (name, weight) pairs."""

  def convert(value):
    items = value.items() if isinstance(value, Mapping) else value
    if isinstance(items, str):
      raise TypeError
    out = {}
    for name, weight in items:
      if not isinstance(name, str) or name in out:
        raise ValueError
      out[name] = number(0).convert(weight)
    return tuple(sorted(out.items()))

  return Rule(
    "a mapping (or a list of pairs) of distinct names to finite numbers of"
    " at least 0",
    convert,
  )


def bad_value(path: str, rule: str, value: Any, fix: str) -> str:
  """Returns the sentence for one bad field."""
  try:
    got = repr(value)
  except ValueError:  # Python prints whole numbers up to some thousand digits.
    got = f"one of type {type(value).__name__} that cannot be printed"
  if len(got) > _MOST_SHOWN:
    got = f"{got[:_MOST_SHOWN]} ... ({len(got)} characters)"
  return f"`{path}` must be {rule}, got {got}. {fix}"


def read(
  cls: type[_T], section: Any, path: str, elsewhere: Sequence[str] = ()
) -> tuple[_T | None, list[str]]:
  """Reads one section of a config into an options dataclass.

  Args:
    cls: A dataclass whose fields come from `option` or `required`.
    section: A mapping of field names to values.
    path: Dotted path of the section, for messages.
    elsewhere: Fields of the section that are read somewhere else.

  Returns:
    The options, or None where a field is wrong, and the problems found.
  """
  if not isinstance(section, Mapping):
    return None, [
      bad_value(path, "a section with fields", section, "Give it fields.")
    ]
  known = {f.name: f for f in dataclasses.fields(cls)}  # pyright: ignore
  problems, values = [], {}
  names = [*known, *elsewhere]
  unknown = [str(name) for name in section if name not in names]
  for name in unknown:
    # The list of fields is long: once is enough.
    listed = names if name == unknown[-1] else []
    problems.append(unknown_key(path, name, names, listed))
  for name, value in section.items():
    if name not in known:
      continue
    rule = known[name].metadata[_RULE]
    try:
      values[name] = rule.convert(value)
    except (TypeError, ValueError, OverflowError):
      problems.append(
        bad_value(f"{path}.{name}", rule.text, value, _fix(known[name]))
      )
  for name, field in known.items():
    missing = field.default is dataclasses.MISSING
    if missing and name not in section:
      rule = field.metadata[_RULE]
      problems.append(f"`{path}.{name}` must be set, to {rule.text}.")
  if problems:
    return None, problems
  return cls(**values), []


def name_problems(path: str, section: Mapping[Any, Any]) -> list[str]:
  """Returns which names of a section's entries are no text."""
  return [
    bad_value(path, "entries by names of text", name, "Give it another name.")
    for name in section
    if not _is_text(str(name))
  ]


def unknown_key(
  path: str, name: str, known: Sequence[str], listed: Sequence[str] = ()
) -> str:
  """Returns the sentence for a field that does not exist.

  Args:
    path: Dotted path of the section.
    name: The field.
    known: Fields that exist, to guess which was meant.
    listed: Fields to list in the sentence.
  """
  near = difflib.get_close_matches(name, known, n=1)
  guess = f" Did you mean `{near[0]}`?" if near else " Remove it."
  fields = f" Known fields: {', '.join(sorted(set(listed)))}." if listed else ""
  return f"`{path}.{name}` is not a known field.{guess}{fields}"


def _is_text(value: str) -> bool:
  """Whether a string can be written: halves of surrogate pairs cannot."""
  try:
    value.encode()
  except UnicodeEncodeError:
    return False
  return True


def _fix(field: dataclasses.Field) -> str:
  if field.default is dataclasses.MISSING:
    return "Set it to such a value."
  return f"Correct it, or leave it out for the default {field.default!r}."
