# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a mix does when a source has given all its rows: one entry each.

To add a policy, put an `Exhaustion` under its name; nothing else names them.
Names are those of Hugging Face's stopping strategies, and 'drop'.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Source:
  """One source where a stage begins, as a policy sees it.

  Attributes:
    weighted: Whether it gives rows in this stage; else only in a later one.
    exhausted: Whether it was given once whole.
    last: The row of this stage that exhausts it; None: no row of it does.
  """

  weighted: bool
  exhausted: bool
  last: tuple[int, int] | None


# Where a row stands in the order of the stage.
Order = Callable[[Source], Any]


@dataclasses.dataclass(frozen=True)
class Exhaustion:
  """One policy.

  Attributes:
    ends: Returns the source whose exhaustion ends the mix, of those that this
      stage or a later one weighs, or None where no end is in sight; at once
      where it is exhausted already. Sources then begin again until the end.
      Without it they do not: each drops out, and the mix ends with the last.
    passes: Passes over each source where neither it nor the run says any;
      None is for ever.
    canonical: The name in fingerprints, where another one gives the same rows.
  """

  ends: Callable[[Sequence[Source], Order], Source | None] | None = None
  passes: int | None = None
  canonical: str | None = None

  @property
  def repeats(self) -> bool:
    """Whether sources begin again."""
    return self.ends is not None


def _first(sources: Sequence[Source], order: Order) -> Source | None:
  """The first source of the stage that is exhausted."""
  here = [own for own in sources if own.weighted]
  over = [own for own in here if own.exhausted]
  coming = [own for own in here if own.last is not None]
  return over[0] if over else min(coming, key=order, default=None)


def _all(sources: Sequence[Source], order: Order) -> Source | None:
  """The last of all sources that this or a later stage weighs."""
  if any(not own.exhausted and own.last is None for own in sources):
    return None
  coming = [own for own in sources if own.last is not None]
  return max(coming, key=order, default=sources[0])


EXHAUSTIONS: dict[str, Exhaustion] = {
  "drop": Exhaustion(),
  "first_exhausted": Exhaustion(_first),
  "all_exhausted": Exhaustion(_all),
  "all_exhausted_without_replacement": Exhaustion(passes=1, canonical="drop"),
}


def named(name: str) -> Exhaustion:
  """Returns a policy.

  Raises:
    ValueError: If there is none of that name.
  """
  if name not in EXHAUSTIONS:
    raise ValueError(
      f"`exhaustion` must be one of {', '.join(EXHAUSTIONS)}, got {name!r}."
      " Choose one."
    )
  return EXHAUSTIONS[name]
