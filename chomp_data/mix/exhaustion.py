# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a mix does when a source is exhausted: one entry for each policy.

To add a policy, add an `Exhaustion` to `EXHAUSTIONS`; no other code uses their
names. Names are those of Hugging Face's stopping strategies, and 'drop'.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Source:
  """The state of one source where a stage begins, for a policy.

  Attributes:
    weighted: Whether it has a weight in this stage, not only in a later one.
    exhausted: Whether all of its rows were consumed at least once.
    last: The row that exhausts it in this stage; None if no row does.
  """

  weighted: bool
  exhausted: bool
  last: tuple[int, int] | None


# Returns the place of the last row of a source in the order of the stage.
Order = Callable[[Source], Any]


@dataclasses.dataclass(frozen=True)
class Exhaustion:
  """One policy.

  Attributes:
    ends: Returns the source whose exhaustion ends the mix, of those with a
      weight in this stage or a later one; None if the mix does not end in this
      stage. If that source is exhausted already, the mix ends at once. Sources
      repeat until the end. If `ends` is None, sources do not repeat: each drops
      out, and the mix ends with the last one.
    passes: Passes over each source if neither it nor the run sets any; None is
      without end.
    canonical: The name in fingerprints, if another policy gives the same rows.
  """

  ends: Callable[[Sequence[Source], Order], Source | None] | None = None
  passes: int | None = None
  canonical: str | None = None

  @property
  def repeats(self) -> bool:
    """Whether exhausted sources repeat."""
    return self.ends is not None


def _first(sources: Sequence[Source], order: Order) -> Source | None:
  """Returns the source of the stage that is exhausted first."""
  here = [source for source in sources if source.weighted]
  exhausted = [source for source in here if source.exhausted]
  upcoming = [source for source in here if source.last is not None]
  return exhausted[0] if exhausted else min(upcoming, key=order, default=None)


def _all(sources: Sequence[Source], order: Order) -> Source | None:
  """Returns the source of this or a later stage that is exhausted last."""
  if any(not source.exhausted and source.last is None for source in sources):
    return None
  upcoming = [source for source in sources if source.last is not None]
  return max(upcoming, key=order, default=sources[0])


EXHAUSTIONS: dict[str, Exhaustion] = {
  "drop": Exhaustion(),
  "first_exhausted": Exhaustion(_first),
  "all_exhausted": Exhaustion(_all),
  "all_exhausted_without_replacement": Exhaustion(passes=1, canonical="drop"),
}
