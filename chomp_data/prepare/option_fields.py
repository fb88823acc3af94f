# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Declarations of the options of a preparation: each is declared once.

    @dataclasses.dataclass(frozen=True)
    class Words:
      \"\"\"Which words.

      Attributes:
        case: What becomes of letters.
      \"\"\"

      case: str = option("keep", schema.choice(("keep", "lower")))

    flags_of(Words)[0].name           "case": --case of the command
    problems(Words("up"))             ["`--case` must be one of 'keep', ..."]
    identity(Words("lower"))          {"case": "lower"}, in the manifest

The flags of the command, its help, the checks, docs/options.md and the options
in a manifest follow from a field's default, rule and sentence.
"""

from collections.abc import Callable
import dataclasses
import functools
import json
from typing import Any
from typing import get_args
from typing import get_origin
from typing import get_type_hints

from chomp_data import schema

# When an option is part of a store's identity: always, if it differs from its
# default (so that manifests without it stay the same), or never; or a function
# of the options that says whether it is.
ALWAYS, CHANGED, NEVER = "always", "changed", "never"
When = str | Callable[[Any], bool]

ANY = schema.Rule("a value of its type", lambda value: value)

_DECLARED = "declared"


@dataclasses.dataclass(frozen=True)
class Declaration:
  """How an option is given, and how a manifest records it.

  Attributes:
    flag: The name of its flag; '' is the field's, None has no flag.
    identity: `ALWAYS`, `CHANGED`, `NEVER` or a function.
    key: Its key in identities; None is the field's name.
    digest: Returns its value in identities; None is the value itself.
    parse: Returns its value from the flag's; None if they are the same.
    commas: Whether texts are given in one flag, with commas between them, and
      not each by the flag again.
  """

  flag: str | None = ""
  identity: When = NEVER
  key: str | None = None
  digest: Callable[[Any], str] | None = None
  parse: Callable[[str], Any] | None = None
  commas: bool = False


@dataclasses.dataclass(frozen=True)
class Flag:
  """A flag of the command.

  Attributes:
    name: What follows `--`.
    kind: The type of its value: `str`, `int`, `bool`, or `tuple` of texts.
    option: The field that it sets, its default, rule and sentence.
    declared: How it is given.
  """

  name: str
  kind: type
  option: schema.Option
  declared: Declaration


def option(
  default: Any,
  rule: schema.Rule = ANY,
  *,
  fix: str = "Correct it.",
  **declared: Any,
) -> Any:
  """Declares a field of options.

  Args:
    default: Its default value; `dataclasses.MISSING` if it is required.
    rule: The values that it accepts in addition to its default.
    fix: What to do about a wrong value.
    **declared: Of `Declaration`.
  """
  field = schema.option(default, rule, fix=fix)
  metadata = {**field.metadata, _DECLARED: Declaration(**declared)}
  return dataclasses.field(default=default, metadata=metadata)


@functools.cache
def flags_of(options: type) -> tuple[Flag, ...]:
  """Returns the flags of an options dataclass, in the order of its fields."""
  hints = get_type_hints(options)
  flags: list[Flag] = []
  for field in dataclasses.fields(options):
    declared: Declaration = field.metadata[_DECLARED]
    if declared.flag is None:
      continue
    hint = hints[field.name]
    kinds = {get_origin(hint) or hint, *get_args(hint)} & {bool, int, tuple}
    kind = kinds.pop() if kinds and declared.parse is None else str
    option = schema.options_of(options)[field.name]
    flags.append(Flag(declared.flag or field.name, kind, option, declared))
  return tuple(flags)


def problems(options: Any) -> list[str]:
  """Returns a sentence for each flag whose value its rule does not accept."""
  wrong: list[str] = []
  for flag in flags_of(type(options)):
    value = getattr(options, flag.option.name)
    if value == flag.option.default:
      continue
    try:
      flag.option.rule.convert(value)
    except (TypeError, ValueError):
      fix = flag.option.fix or ""
      problem = schema.bad_value(f"--{flag.name}", flag.option.rule, value, fix)
      if value == "":
        problem = f"`--{flag.name}` must not be empty, got ''. {fix}"
      wrong.append(problem)
  return wrong


def identity(options: Any) -> dict[str, Any]:
  """Returns the options that decide a store's contents, JSON values.

  Those of an option that has options itself are among them.
  """
  values: dict[str, Any] = {}
  for field in dataclasses.fields(options):
    value = getattr(options, field.name)
    declared: Declaration = field.metadata[_DECLARED]
    when = declared.identity
    if not (
      when(options)
      if callable(when)
      else when == ALWAYS or (when == CHANGED and value != field.default)
    ):
      continue
    if dataclasses.is_dataclass(value):
      values |= identity(value)
    else:
      # As a manifest returns it: JSON has no tuples.
      value = value if declared.digest is None else declared.digest(value)
      values[declared.key or field.name] = json.loads(json.dumps(value))
  return values
