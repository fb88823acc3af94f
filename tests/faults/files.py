# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Files of stores: bits that flip; files that are cut, swapped and lost."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import functools
import itertools
import pathlib
import random
from unittest import mock

from chomp_data import stores
from chomp_data.storage import checksums
from tests.faults import harness
from tests.stores import faults_test


@contextlib.contextmanager
def _without_checksums() -> Iterator[None]:
  with mock.patch.object(checksums, "crc32c", return_value=0):
    yield


CHECKSUMS = harness.Guard("checksums", _without_checksums)


def _originals(directory: pathlib.Path) -> list[faults_test.Original]:
  """Writes a store of each kind."""
  return [
    faults_test.written(kind, directory / kind.replace(" ", "-"))
    for kind in faults_test.KINDS
    # TensorStore reads it, which has checksums of its own.
    if kind != "zarr zstd" or checksums.crc32c(b"x")
  ]


def _outcome(original: faults_test.Original, how: str) -> str:
  try:
    store = original.opened(how)
    contents = faults_test.read_all(original.kind, store)
  except stores.StoreError as error:
    if str(original.path) in str(error):
      return harness.REFUSED
    return f"{harness.UNCLEAR}: {error}"
  except Exception as error:
    return f"{harness.UNCLEAR}: {original.kind}: {error!r}"
  if faults_test.same(contents, original.contents):
    return harness.UNHARMED
  return f"{harness.SILENT}: {original.kind}"


def _cases(
  damage: Callable[[random.Random, faults_test.Original], str],
  rng: random.Random,
  directory: pathlib.Path,
) -> Iterator[harness.Case]:
  """Yields cases that damage a store, and say how where that does harm."""
  originals = _originals(directory)

  def case(number: int) -> str:
    original = originals[number % len(originals)]
    how = damage(rng, original)
    try:
      found = _outcome(original, rng.choice(("open", "pickle")))
    finally:
      original.restore()
    return found if found in harness.GOOD else f"{found} {how}"

  for number in itertools.count():
    yield functools.partial(case, number)


def _flip(rng: random.Random, original: faults_test.Original) -> str:
  """Flips a bit of a file, which keeps its time."""
  file, (data, time) = rng.choice(list(original.files.items()))
  # Where files end is what says where everything is.
  begin = rng.choice((0, max(0, len(data) - faults_test.END)))
  at = rng.randrange(begin, len(data))
  changed = bytearray(data)
  changed[at] ^= 1 << rng.randrange(8)
  faults_test.put(file, changed, time)
  return f"{file.name} {at}"


def _swap(rng: random.Random, original: faults_test.Original) -> str:
  """Cuts, grows, loses, swaps or copies over a whole file."""
  files = original.files
  file = rng.choice(list(files))
  data, time = files[file]
  time = rng.choice((time, None))
  what = rng.choice(("cut", "grown", "lost", "swapped", "copied over"))
  pairs = faults_test.pairs(original)
  if what == "cut":
    faults_test.put(file, data[: rng.randrange(len(data))], time)
  elif what == "grown":
    faults_test.put(file, data + b"\1", time)
  elif what == "lost":
    file.unlink()
  else:
    file, other = rng.choice(pairs)
    faults_test.put(file, files[other][0], time and files[file][1])
    if what == "swapped":
      faults_test.put(other, files[file][0], time and files[other][1])
  return f"{what} {file.name}"


FAULTS = (
  harness.Fault(
    "flipped-bits",
    "one bit of a file of a store: an error that names it, or what was there",
    functools.partial(_cases, _flip),
    CHECKSUMS,
    few=40,
    many=5_000,
  ),
  harness.Fault(
    "files",
    "a file cut, grown, lost, swapped with or copied over another",
    functools.partial(_cases, _swap),
    CHECKSUMS,
    few=40,
    many=1_000,
  ),
)
