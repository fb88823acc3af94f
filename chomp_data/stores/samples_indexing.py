"""What indexes of records and samples, of any format, are built with."""

from collections.abc import Collection
import pathlib
from typing import Any

import tqdm

from chomp_data.stores import errors
from chomp_data.stores import side_index

# Below this a pass takes a second or less.
_QUIET_BYTES = 256 << 20


def check_may_build(path: pathlib.Path, build: bool) -> None:
  """Raises StoreError where an index must be there and is not."""
  if not build:
    raise errors.StoreError(
      f"{path} must have the files that this run began with, got files that no"
      " index fits. Put them back, or start again."
    )


def side_of(
  path: pathlib.Path,
  index: int,
  name: str,
  value: Any,
  known: Collection[str] = (),
) -> int:
  """Returns a height or width; raises StoreError where it is none."""
  is_whole = isinstance(value, int) and not isinstance(value, bool)
  if not is_whole or not 0 < value < 2**31:
    raise errors.StoreError(
      f"{path}: sample {index} must have a positive integer as `{name}`, got"
      f" {value!r}{_others(known)}. Write it, or say which field holds it."
    )
  return value


def _others(known: Collection[str]) -> str:
  return f" (it has {', '.join(known)})" if known else ""


def progress(path: pathlib.Path, num_bytes: int) -> tqdm.tqdm:
  """Returns a bar of bytes that are indexed, silent where that is quick."""
  shown = num_bytes >= _QUIET_BYTES
  return side_index.progress(num_bytes, f"indexing {path.name}", "B", shown)
