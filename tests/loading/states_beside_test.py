# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""States beside checkpoints: from which step on a run has an input."""

import errno
import json
import os

import pytest

from chomp_data import errors
from chomp_data.loading import saved_states
from chomp_data.loading import state


def state_of(step, seed):
  return state.encode(step, {"seed": seed}, {})


def files_of(place):
  return {path.name: path.read_bytes() for path in place.iterdir()}


@pytest.fixture
def place(tmp_path):
  """A run that has had another input from step 700 on."""
  place = tmp_path / "input"
  saved_states.write_beside(place, state_of(0, seed=1))
  saved_states.write_beside(place, state_of(700, seed=2))
  return place


@pytest.mark.parametrize(
  ("step", "seed", "names"),
  [
    (0, 1, {"0.json"}),
    (300, 1, {"0.json"}),
    (300, 3, {"0.json", "300.json"}),
    (700, 1, {"0.json"}),
    (700, 3, {"0.json", "700.json"}),
    (900, 2, {"0.json", "700.json"}),
    (900, 1, {"0.json", "700.json", "900.json"}),
  ],
)
def test_a_state_is_saved_where_the_input_changes(place, step, seed, names):
  saved_states.write_beside(place, state_of(step, seed))
  assert set(files_of(place)) == names
  record = state.decode(saved_states.read_beside(place, step + 1))
  assert record["fingerprint"] == {"seed": seed}


def test_a_damaged_earlier_state_leaves_later_ones(place):
  (place / "0.json").write_bytes(b"{}")
  before = files_of(place)
  with pytest.raises(errors.StateError):
    saved_states.write_beside(place, state_of(300, seed=1))
  assert files_of(place) == before


def test_a_full_disk_leaves_later_states(place, monkeypatch):
  before = files_of(place)

  def full(descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(os, "fsync", full)
  with pytest.raises(OSError, match="No space left"):
    saved_states.write_beside(place, state_of(300, seed=3))
  assert files_of(place) == before


@pytest.mark.parametrize("damage", ["no JSON", "another digest"])
@pytest.mark.parametrize(
  "use",
  [
    lambda place: saved_states.read_beside(place, 901),
    lambda place: saved_states.write_beside(place, state_of(900, seed=2)),
  ],
  ids=["read", "write"],
)
def test_an_error_of_a_damaged_state_names_it_and_the_way_on(
  place, use, damage
):
  path = place / "700.json"
  if damage == "no JSON":
    path.write_bytes(path.read_bytes()[:40])
  else:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"step": 701}))
  with pytest.raises(
    errors.StateError,
    match=rf"{path} must be .*copy of it, or remove it .*step before 700;",
  ) as caught:
    use(place)
  assert isinstance(caught.value.__cause__, errors.StateError)
