# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Counts as they were: what may differ, and what to do about the rest."""

import json
import pathlib

from tests.counts import measuring

PATH = pathlib.Path(__file__).parent / "baseline.json"
UPDATE = "python -m tests.counts.make"

# A count's last words: (share, number) that it may be above what it was. Of
# others, none.
_ALLOWED = {
  "bytes of a state": (0.03, 32),
  "bytes of a pickled reader": (0.03, 64),
  "bytes held": (0.15, 32_768),
  # 280 kB, as before 4 MB of it went: it depends on the tests before.
  "most bytes held": (0.05, 262_144),
}
# Below this part of what it was, a count has a new baseline.
_BETTER = 0.5


def read() -> dict[str, measuring.Counts]:
  """Returns the counts of each kind of run."""
  return json.loads(PATH.read_text())


def write(counts: dict[str, measuring.Counts]) -> None:
  """Keeps the counts of each kind of run."""
  PATH.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")


def differences(
  kind: str, found: measuring.Counts, before: measuring.Counts
) -> list[str]:
  """Returns a line for each count that is worse, or far better, than before.

  Args:
    kind: The kind of run.
    found: Its counts.
    before: What they were.
  """
  lines = [
    f"{kind}: {name} is not compared. {_told(name in found)}"
    for name in sorted(set(found) ^ set(before))
  ]
  for name in sorted(set(found) & set(before)):
    now, was = found[name], before[name]
    share, number = _ALLOWED.get(name.rpartition(": ")[2], (0, 0))
    most = was + max(int(was * share), number)
    if now > most:
      lines.append(
        f"{kind}: {name} must be at most {most:,}, got {now:,} (was {was:,})."
        f" Find what grew. If it is meant, run `{UPDATE}`, and CHANGELOG.md"
        " says why."
      )
    elif now + number < _BETTER * was:
      lines.append(
        f"{kind}: {name} is far better, {now:,} (was {was:,}). Keep it so: run"
        f" `{UPDATE}`."
      )
  return lines


def _told(is_new: bool) -> str:
  if is_new:
    return f"It is new: run `{UPDATE}`."
  return f"Nothing counts it any more: mend that, or run `{UPDATE}`."
