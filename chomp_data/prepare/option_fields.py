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
from typing import get_type_hints

from chomp_data import schema

# When an option is part of a store's identity: always, if it differs from its
# default (so that manifests without it stay the same), or never; or a function
# of the options that says whether it is.
ALWAYS, CHANGED, NEVER = "always", "changed", "never"
When = str | Callable[[Any], bool]

ANY = schema.Rule("a value of its type", lambda value: value)

_FLAG, _IDENTITY, _PARSE, _COMMAS = "flag", "identity", "parse", "commas"
_KEY, _DIGEST = "key", "digest"


@dataclasses.dataclass(frozen=True)
class Flag:
  """A flag of the command.

  Attributes:
    name: What follows `--`.
    field: The field of the options that it sets.
    kind: The type of its value: `str`, `int`, `bool`, or `tuple` of texts.
    option: Its default, rule and sentence.
    parse: Returns the field's value from the flag's; None if they are the same.
    commas: Whether texts are given in one flag, with commas between them, and
      not each by the flag again.
  """

  name: str
  field: str
  kind: type
  option: schema.Option
  parse: Callable[[str], Any] | None
  commas: bool


def option(
  default: Any,
  rule: schema.Rule = ANY,
  *,
  flag: str | None = "",
  fix: str = "Correct it.",
  identity: When = NEVER,
  key: str | None = None,
  digest: Callable[[Any], str] | None = None,
  parse: Callable[[str], Any] | None = None,
  commas: bool = False,
) -> Any:
  """Declares a field of options.

  Args:
    default: Its default value; `dataclasses.MISSING` if it is required.
    rule: The values that it accepts in addition to its default.
    flag: The name of its flag; '' is the field's, None has no flag.
    fix: What to do about a wrong value.
    identity: `ALWAYS`, `CHANGED`, `NEVER` or a function.
    key: Its key in identities; None is the field's name.
    digest: Returns its value in identities; None is the value itself.
    parse: Returns its value from the flag's; None if they are the same.
    commas: As in `Flag`.
  """
  field = schema.required(rule)
  if default is not dataclasses.MISSING:
    field = schema.option(default, rule, fix=fix)
  metadata = {"fix": fix, **field.metadata, _FLAG: flag, _IDENTITY: identity}
  metadata |= {_PARSE: parse, _COMMAS: commas, _KEY: key, _DIGEST: digest}
  return dataclasses.field(default=default, metadata=metadata)


@functools.cache
def flags_of(options: type) -> tuple[Flag, ...]:
  """Returns the flags of an options dataclass, in the order of its fields."""
  hints = get_type_hints(options)
  declared = schema.options_of(options)
  flags: list[Flag] = []
  for field in dataclasses.fields(options):
    if field.metadata[_FLAG] is None:
      continue
    text = str(hints[field.name])
    kind = tuple if text.startswith("tuple") else str
    kind = {"bool": bool, "int": int}.get(
      _without_none(hints[field.name]), kind
    )
    if field.metadata[_PARSE] is not None:
      kind = str
    flags.append(
      Flag(
        field.metadata[_FLAG] or field.name,
        field.name,
        kind,
        declared[field.name],
        field.metadata[_PARSE],
        field.metadata[_COMMAS],
      )
    )
  return tuple(flags)


def problems(options: Any) -> list[str]:
  """Returns a sentence for each flag whose value its rule does not accept."""
  wrong: list[str] = []
  for flag in flags_of(type(options)):
    value = getattr(options, flag.field)
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
    value, when = getattr(options, field.name), field.metadata[_IDENTITY]
    if not (
      when(options)
      if callable(when)
      else when == ALWAYS or (when == CHANGED and value != field.default)
    ):
      continue
    digest = field.metadata[_DIGEST]
    if dataclasses.is_dataclass(value):
      values |= identity(value)
    else:
      # As a manifest returns it: JSON has no tuples.
      text = json.dumps(value if digest is None else digest(value))
      values[field.metadata[_KEY] or field.name] = json.loads(text)
  return values


def _without_none(hint: Any) -> str:
  """Returns the name of a type, of an optional one without None."""
  arguments = [kind for kind in get_args(hint) if kind is not type(None)]
  (kind,) = arguments if len(arguments) == 1 else [hint]
  return getattr(kind, "__name__", "")
