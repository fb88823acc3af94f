# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
r"""Draws pictures of several sizes, for resolution buckets.

    python examples/prepare_images.py --output=data/images
    python examples/prepare_images.py --output=data/images \
        --count=plots=500 --sizes=32x32,64x48 --format=array_record

Two datasets are written, `digits` (0 to 9 in many fonts) and `plots` (six
kinds), each with pixels, height, width, a label and its name. Each comes in
each format, with the same pictures: as ArrayRecord files, and, where pyarrow
is installed (chomp_data[arrow]), as a directory that Hugging Face's
`datasets.load_from_disk` opens:

    <output>/array_record/digits    <output>/arrow/digits
    <output>/array_record/plots     <output>/arrow/plots

The same flags give the same pictures. `<dataset>.json` beside each dataset says
which; one that is there with other flags is an error.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import importlib.util
import json
import pathlib
import time

from absl import app
from absl import flags
import drawings
import save_to_disk
import tqdm

from chomp_data import cli
from chomp_data import errors
from chomp_data.stores import samples_array_record

_COUNTS = {"digits": 3_000, "plots": 1_000}
_FORMATS = ("array_record", "arrow")

_OUTPUT = flags.DEFINE_string(
  "output", None, "The directory to create datasets in.", required=True
)
_COUNT = flags.DEFINE_multi_string(
  "count",
  [f"{name}={count}" for name, count in _COUNTS.items()],
  "Pictures by dataset, with commas or the flag again; one that is left out"
  " keeps its default, one of 0 is not drawn.",
)
_SIZES = flags.DEFINE_multi_string(
  "sizes",
  [f"{height}x{width}" for height, width in drawings.SIZES],
  "Heights x widths, in pixels; each comes about as often.",
)
_FORMAT = flags.DEFINE_multi_string(
  "format",
  None,
  f"One or more of {', '.join(_FORMATS)}; by default all that can be written.",
)
_SEED = flags.DEFINE_integer("seed", 0, "Of all that is drawn by lot.")
_SAMPLES_PER_FILE = flags.DEFINE_integer(
  "samples_per_file", 2_000, "The most in one file.", lower_bound=1
)


def _entries(holder: flags.FlagHolder) -> list[str]:
  """Returns what a flag lists, over all times that it is given."""
  return [text for value in holder.value for text in value.split(",")]


def _counts() -> dict[str, int]:
  counts, named = dict(_COUNTS), set()
  for entry in _entries(_COUNT):
    name, _, count = entry.partition("=")
    if name not in counts or not count.isdecimal():
      raise errors.PrepareError(
        f"`--count` must be <dataset>=<number> of {', '.join(counts)}, got"
        f" {entry!r}. Correct it."
      )
    if name in named:
      raise errors.PrepareError(
        f"`--count` must say each dataset once, got {name!r} again in"
        f" {entry!r}. Leave one out."
      )
    named.add(name)
    counts[name] = int(count)
  counts = {name: count for name, count in counts.items() if count}
  if not counts:
    raise errors.PrepareError(
      "`--count` must be above 0 for one dataset or more, got 0 for"
      f" {', '.join(_COUNTS)}. Say how many to draw."
    )
  return counts


def _sizes() -> tuple[tuple[int, int], ...]:
  sizes = []
  for entry in _entries(_SIZES):
    height, _, width = entry.partition("x")
    if not height.isdecimal() or not width.isdecimal():
      raise errors.PrepareError(
        f"`--sizes` must be heights x widths, as 32x48, got {entry!r}. Correct"
        " it."
      )
    sizes.append((int(height), int(width)))
  drawings.check_sizes(sizes)
  return tuple(sizes)


def _formats() -> tuple[str, ...]:
  if _FORMAT.value is None:
    has_arrow = importlib.util.find_spec("pyarrow") is not None
    return _FORMATS if has_arrow else _FORMATS[:1]
  names = _entries(_FORMAT)
  for name in names:
    if name not in _FORMATS:
      raise errors.PrepareError(
        f"`--format` must be of {', '.join(_FORMATS)}, got {name!r}. Choose"
        " some."
      )
  return tuple(dict.fromkeys(names))


def _drawn(
  name: str, count: int, sizes: tuple[tuple[int, int], ...], title: str
) -> Iterator[drawings.Sample]:
  """Yields the pictures of a dataset, with a bar on stderr."""
  samples = drawings.samples(name, count, sizes=sizes, seed=_SEED.value)
  # disable=None: no bar where stderr is not a terminal.
  yield from tqdm.tqdm(
    samples, desc=title, total=count, unit="pictures", disable=None
  )


def _made(
  path: pathlib.Path,
  name: str,
  count: int,
  sizes: tuple[tuple[int, int], ...],
) -> bool:
  """Writes a dataset; returns whether there was something to do."""
  options = {"dataset": name, "count": count, "seed": _SEED.value}
  options["sizes"] = [list(size) for size in sizes]
  beside = path.with_name(f"{name}.json")
  if path.exists():
    try:
      stored_options = (
        json.loads(beside.read_bytes()) if beside.exists() else None
      )
    except ValueError:
      stored_options = f"a damaged {beside}"
    if stored_options != options:
      raise errors.PrepareError(
        f"{path} must hold the pictures of these flags or not exist, got"
        f" {stored_options}. Remove it, or choose another output."
      )
    return False
  path.parent.mkdir(parents=True, exist_ok=True)
  samples = _drawn(name, count, sizes, f"{path.parent.name}/{name}")
  # A dataset without its options is an error, never taken for another.
  beside.unlink(missing_ok=True)
  if path.parent.name == "arrow":
    save_to_disk.save_to_disk(
      path, samples, samples_per_file=_SAMPLES_PER_FILE.value
    )
  else:
    samples_array_record.write_samples(
      path, samples, samples_per_file=_SAMPLES_PER_FILE.value
    )
  beside.write_text(json.dumps(options) + "\n")
  return True


def main(argv: Sequence[str]) -> None:
  """Writes the datasets and prints what they are."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  begin = time.monotonic()
  counts, sizes, kinds = _counts(), _sizes(), _formats()
  for kind in kinds:
    for name, count in counts.items():
      path = pathlib.Path(_OUTPUT.value, kind, name)
      if _made(path, name, count, sizes):
        print(f"{path}: {count:,} pictures")
      else:
        print(f"{path}: nothing to do")
  print(f"{'seconds':24} {time.monotonic() - begin:.1f}")


if __name__ == "__main__":
  cli.run(main)
