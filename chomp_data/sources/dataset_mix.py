"""Mixes written in one line: `"pathA:0.9 pathB:0.1"` (seed 004)."""

import dataclasses
import math
import re

_ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclasses.dataclass(frozen=True)
class Entry:
  """One part of a mix.

  Attributes:
    path: Of a store; may hold colons.
    weight: Its weight as written, a positive decimal number.
    alias: The source's name.
  """

  path: str
  weight: str
  alias: str


def parse(text: str) -> list[Entry]:
  """Parses a mix.

      "data/a:0.9 wiki=gs://bucket/b:0.1"
      -> path data/a, weight 0.9, alias a; path gs://bucket/b, alias wiki

  The last colon splits path and weight, so paths may hold colons. One path
  alone may leave its weight out. `alias=` names the source; otherwise its
  path's last part does, numbered where two agree.

  Args:
    text: Entries apart by white space.

  Raises:
    ValueError: If an entry is wrong; the message names it.
  """
  words = text.split()
  if not words:
    raise ValueError(
      "a mix must hold a path, got an empty string. Write for instance"
      " 'data/a:0.9 data/b:0.1'."
    )
  entries: list[Entry] = []
  for word in words:
    head, weight = _split(word, alone=len(words) == 1)
    name, path = "", head
    before, equals, after = head.partition("=")
    if equals and _ALIAS.fullmatch(before):
      name, path = before, after
    if not path:
      raise ValueError(
        f"an entry of a mix must name a path, got {word!r}. Write path:weight."
      )
    taken = {entry.alias for entry in entries}
    if name in taken:
      raise ValueError(
        f"an alias of a mix must be used once, got {name!r} twice. Choose"
        " another."
      )
    entries.append(Entry(path, weight, name or _alias(path, taken)))
  return entries


def _split(word: str, alone: bool) -> tuple[str, str]:
  path, colon, weight = word.rpartition(":")
  if colon and _is_weight(weight):
    return path, weight
  if alone and (not colon or "/" in weight):
    return word, "1"
  raise ValueError(
    f"an entry of a mix must end in `:weight`, a finite number above 0, got"
    f" {word!r}. Write for instance {word.rstrip(':')}:0.5."
  )


def _is_weight(text: str) -> bool:
  try:
    # Not a Fraction, which takes 1e-999999999 at its word.
    return 0 < float(text) < math.inf
  except ValueError:
    return False


def _alias(path: str, taken: set[str]) -> str:
  last = path.rstrip("/").rsplit("/", 1)[-1]
  # Names are parts of dotted paths of fields.
  base = re.sub(r"[^A-Za-z0-9_]", "_", last) or "source"
  name, number = base, 2
  while name in taken:
    name, number = f"{base}_{number}", number + 1
  return name
