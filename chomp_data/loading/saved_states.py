"""Finding the input's state of a run: in a work directory or a checkpoint."""

from collections.abc import Iterable
import functools
import pathlib
from typing import Any

from chomp_data import errors
from chomp_data.loading import state as state_lib
from chomp_data.stores import places

# Where an input's state lies in a work directory: <step>/<item>/input.json, in
# it or in a directory of checkpoints; and in one step, or in its item.
_STATES = ("*/*/input.json", "*/*/*/input.json")
_STATES_OF_ONE = ("input.json", "*/input.json")
# The last object of a checkpoint in a bucket.
COMPLETE = "complete.json"


def find(workdir: str) -> dict[str, Any] | None:
  """Returns the record of a run's newest state, or None before it has one.

  Args:
    workdir: The run's work directory, or of one step of its checkpoints, or of
      its input in there; or a URL of one of them.

  Raises:
    StateError: If there is no such directory, or the state is damaged.
    StoreError: If the bucket cannot be read.
  """
  if places.is_url(workdir):
    return _newest_in_bucket(workdir)
  place = pathlib.Path(workdir)
  if not place.is_dir():
    raise errors.StateError(
      f"the work directory of a job must exist, got {workdir}. Give the"
      " --workdir of its trainer."
    )
  one = _only_state(place)
  if one is not None:
    return state_lib.decode(one.read_bytes())
  return _newest_state(place)


def is_one(workdir: str) -> bool:
  """Returns whether a local directory is of one checkpoint, or its item."""
  return _only_state(pathlib.Path(workdir)) is not None


def _only_state(place: pathlib.Path) -> pathlib.Path | None:
  for pattern in _STATES_OF_ONE:
    found = list(place.glob(pattern))
    if len(found) == 1:
      return found[0]
  return None


def _newest_state(place: pathlib.Path) -> dict[str, Any] | None:
  """Returns the record of the newest checkpoint's state."""
  found: list[tuple[int, pathlib.Path]] = []
  for pattern in _STATES:
    for path in place.glob(pattern):
      number = path.parent.parent.name.rpartition("_")[2]
      # Others are still being written.
      if number.isdecimal():
        found.append((int(number), path))
  for _, path in sorted(found, key=lambda own: -own[0]):
    try:
      return state_lib.decode(path.read_bytes())
    except FileNotFoundError:
      continue  # It was removed meanwhile: there is a newer one.
  return None


def whole_steps(names: Iterable[str]) -> dict[int, str]:
  """Returns where whole checkpoints are, by step.

      checkpoints/12/complete.json -> {12: checkpoints/12}

  Args:
    names: Of objects; a work directory may hold others.
  """
  found = {}
  for name in names:
    folder, _, last = name.rpartition("/")
    number = folder.rpartition("/")[2]
    if last == COMPLETE and number.isascii() and number.isdecimal():
      found[int(number)] = folder
  return found


def _newest_in_bucket(url: str) -> dict[str, Any] | None:
  names = places.at(url).names()
  steps = whole_steps(names)
  if not steps:
    return None
  newest = f"{steps[max(steps)]}/"
  found = [
    name
    for name in names
    if name.startswith(newest) and name.endswith("/input.json")
  ]
  return _state_in_bucket(url, found[0]) if found else None


@functools.lru_cache(maxsize=1)
def _state_in_bucket(url: str, name: str) -> dict[str, Any]:
  return state_lib.decode(places.at(url).read(name))
