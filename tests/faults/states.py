# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""States: altered, and of another run."""

from collections.abc import Iterator
import contextlib
import functools
import pathlib
import random
from typing import Any
from unittest import mock

import numpy as np

from chomp_data import errors
from chomp_data import iterators
from chomp_data.loading import state as state_lib
from chomp_data.plans import accounts
from tests.faults import harness
from tests.loading import conftest
from tests.loading import state_test


@contextlib.contextmanager
def _unchecked() -> Iterator[None]:
  """No digest, no fingerprint, no accounts: each finds most of it alone."""
  with (
    mock.patch.object(state_lib, "digest_of", return_value="0" * 64),
    mock.patch.object(state_lib, "located", return_value=[]),
    mock.patch.object(accounts.Accounts, "restore", return_value=[]),
  ):
    yield


CHECKS = harness.Guard("checks of states", _unchecked)


def _restored(data: dict[str, Any], state: bytes, expected: Any) -> str:
  """Returns what comes of a state that must be refused, or do no harm."""
  try:
    with iterators.make_iterator(data) as iterator:
      iterator.set_state(state)
      batch = next(iterator)
  except errors.StateError:
    return harness.REFUSED
  except Exception as error:
    return f"{harness.UNCLEAR}: {error!r}"
  same = batch.keys() == expected.keys() and all(
    np.array_equal(batch[name], expected[name]) for name in batch
  )
  return harness.UNHARMED if same else harness.SILENT


def flips(
  rng: random.Random, directory: pathlib.Path
) -> Iterator[harness.Case]:
  """Yields cases that flip a bit of a state."""
  data = conftest.config(conftest.write_store(directory / "store"))
  with iterators.make_iterator(data) as iterator:
    for _ in range(11):
      next(iterator)
    state = iterator.get_state()
    expected = next(iterator)

  def case() -> str:
    changed = bytearray(state)
    # Most of a state names the run; some of the flips are of its step.
    begin = rng.choice((0, state.index(b'"step":') + 8))
    at = rng.randrange(begin, begin + 2 if begin else len(state))
    changed[at] ^= 1 << rng.randrange(8)
    found = _restored(data, bytes(changed), expected)
    return found if found in harness.GOOD else f"{found}: byte {at}"

  while True:
    yield case


def others(
  rng: random.Random, directory: pathlib.Path
) -> Iterator[harness.Case]:
  """Yields cases that restore a state in another run than its own."""
  data = conftest.config(conftest.write_store(directory / "store"))
  with iterators.make_iterator(data) as iterator:
    for _ in range(5):
      next(iterator)
    state = iterator.get_state()

  def case(path: str, value: Any) -> str:
    found = _restored(state_test.changed(data, path, value), state, {})
    return found if found in harness.GOOD else f"{found}: {path}"

  changes = list(state_test.CHANGES)
  rng.shuffle(changes)
  for path, value in changes:
    yield functools.partial(case, path, value)


FAULTS = (
  harness.Fault(
    "state-bits",
    "one bit of a state: it is refused, or means the same",
    flips,
    CHECKS,
    few=60,
    many=2_000,
  ),
  harness.Fault(
    "other-runs",
    "a state in a run with one option changed: it is refused",
    others,
    CHECKS,
    few=12,
    many=len(state_test.CHANGES),
  ),
)
