"""Files of stores: bits that flip; files that are cut, swapped and lost."""

from collections.abc import Iterator
import contextlib
import functools
import itertools
import pathlib
import pickle
import random
from unittest import mock

from chomp_data import stores
from chomp_data.stores import checksums
from tests.faults import harness
from tests.stores import faults_test


@contextlib.contextmanager
def _without_checksums() -> Iterator[None]:
  with mock.patch.object(checksums, "crc32c", return_value=0):
    yield


CHECKSUMS = harness.Guard("checksums", _without_checksums)


def _originals(directory: pathlib.Path) -> list[faults_test.Original]:
  """Writes a store of each kind, and opens it once as a run does."""
  out = []
  for kind in faults_test.KINDS:
    if kind == "zarr zstd" and not checksums.crc32c(b"x"):
      continue  # TensorStore reads it, which has checksums of its own.
    path = directory / kind.replace(" ", "-")
    faults_test.write(kind, path)
    store = faults_test.opened(kind, path)
    files = {
      file: (file.read_bytes(), file.stat().st_mtime_ns)
      for file in sorted(path.rglob("*"))
      # Nothing of it is read.
      if file.is_file() and file.name != "dataset_info.json"
    }
    contents = faults_test.read_all(kind, store)
    out.append(
      faults_test.Original(kind, path, pickle.dumps(store), files, contents)
    )
  return out


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


def flips(
  rng: random.Random, directory: pathlib.Path
) -> Iterator[harness.Case]:
  """Yields cases that flip a bit of a file, which keeps its time."""
  originals = _originals(directory)

  def case(number: int) -> str:
    original = originals[number % len(originals)]
    file, (data, time) = rng.choice(list(original.files.items()))
    # Where files end is what says where everything is.
    begin = rng.choice((0, max(0, len(data) - faults_test.END)))
    at = rng.randrange(begin, len(data))
    changed = bytearray(data)
    changed[at] ^= 1 << rng.randrange(8)
    faults_test.put(file, changed, time)
    try:
      found = _outcome(original, rng.choice(("open", "pickle")))
    finally:
      original.restore()
    return found if found in harness.GOOD else f"{found} {file.name} {at}"

  for number in itertools.count():
    yield functools.partial(case, number)


def swaps(
  rng: random.Random, directory: pathlib.Path
) -> Iterator[harness.Case]:
  """Yields cases that cut, grow, lose, swap or copy over whole files."""
  originals = _originals(directory)

  def case(number: int) -> str:
    original = originals[number % len(originals)]
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
    try:
      found = _outcome(original, rng.choice(("open", "pickle")))
    finally:
      original.restore()
    return found if found in harness.GOOD else f"{found} {what} {file.name}"

  for number in itertools.count():
    yield functools.partial(case, number)


FAULTS = (
  harness.Fault(
    "flipped-bits",
    "one bit of a file of a store: an error that names it, or what was there",
    flips,
    CHECKSUMS,
    few=40,
    many=5_000,
  ),
  harness.Fault(
    "files",
    "a file cut, grown, lost, swapped with or copied over another",
    swaps,
    CHECKSUMS,
    few=40,
    many=1_000,
  ),
)
