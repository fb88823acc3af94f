# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Checksums of a checkpoint's files, saved in it and compared before a restore.

    {"files": {"model/d/1f...": [83886080, 2853152], ...}, "digest": "9c..."}

Orbax compares none: of bits that flip in a model's arrays some come through as
other numbers. An item of this kind is saved beside the others, holds size and
CRC-32C of each of their files, and is of the checkpoint from the moment on that
this is whole.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import json
import pathlib

from etils import epath
import orbax.checkpoint as ocp

from chomp_data.loading import saved_states
from chomp_data.loading import state as state_lib
from chomp_data.storage import checksums
from chomp_data.storage import publish
from chomp_data.storage import relative_names

# Orbax finalizes items in the order of their names as a first save has them:
# this comes after those of a trainer, whose files are then as they stay.
ITEM = "sums"

_FILE = "sums.json"


class SumsHandler(ocp.CheckpointHandler):
  """Writes checksums of the items beside it as the checkpoint is finished."""

  def save(self, directory: epath.Path, args: "SumsSave") -> None:
    """Returns at once: other items are still being written."""

  def finalize(self, directory: epath.Path) -> None:
    """Writes the checksums; one process does, once all have written.

    Raises:
      RuntimeError: If another item is not finished.
    """
    step = pathlib.Path(directory.parent)
    this_item = directory.name
    items = sorted(
      path
      for path in step.iterdir()
      if path.is_dir() and path.name != this_item
    )
    unfinished = [
      path.name
      for path in items
      if not ocp.utils.is_checkpoint_finalized(epath.Path(path))
    ]
    if unfinished:
      raise RuntimeError(
        f"item {ITEM!r} must come after all others, got unfinished"
        f" {', '.join(unfinished)}. Name items so that it is the last."
      )
    files = {
      path.relative_to(step).as_posix(): list(checksums.of_file(path))
      for item in items
      for path in sorted(item.rglob("*"))
      if path.is_file()
    }
    record = {"files": files}
    text = json.dumps({**record, "digest": state_lib.digest(record)}, indent=1)
    publish.write_file(directory / _FILE, text.encode())

  def restore(self, directory: epath.Path, args: "SumsRestore") -> None:
    """Does nothing: `problems` compares before anything is restored."""

  def close(self) -> None:
    """Does nothing: no resource is held."""


@ocp.args.register_with_handler(SumsHandler, for_save=True)
@dataclasses.dataclass
class SumsSave(ocp.args.CheckpointArgs):
  """Saves checksums of all other items."""


@ocp.args.register_with_handler(SumsHandler, for_restore=True)
@dataclasses.dataclass
class SumsRestore(ocp.args.CheckpointArgs):
  """Restores nothing."""


def problem(step: pathlib.Path, items: Sequence[str]) -> str | None:
  """Returns why a checkpoint cannot be restored from, or None.

  Args:
    step: The directory of the checkpoint.
    items: What it must hold.
  """
  try:
    metadata = json.loads((step / saved_states.METADATA).read_bytes())
    handlers = metadata["item_handlers"]
    # One without it is of an earlier version.
    summed = ITEM in handlers or (step / ITEM).exists()
  except (OSError, ValueError, KeyError, TypeError) as error:
    return f"no {saved_states.METADATA} that can be read ({error})"
  missing = [name for name in items if not (step / name).is_dir()]
  if missing:
    return f"no {' and no '.join(missing)}"
  return next(compare_files(step), None) if summed else None


def has_sums(step: pathlib.Path) -> bool:
  """Whether a checkpoint has checksums of its files."""
  return (step / ITEM).exists()


def compare_files(step: pathlib.Path) -> Iterator[str]:
  """Yields what is not as it was saved."""
  name = f"{ITEM}/{_FILE}"
  try:
    record = json.loads((step / name).read_bytes())
    digest = record.pop("digest")
    files = {
      file: (int(size), int(crc32c))
      for file, (size, crc32c) in record["files"].items()
    }
    paths = {
      file: relative_names.path_below(step, file, step / name) for file in files
    }
  except FileNotFoundError:
    yield f"no file {name}"
    return
  except (
    OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError,
    RecursionError,
  ) as error:  # fmt: skip
    yield f"no checksums in {name} ({error!r})"
    return
  if digest != state_lib.digest(record):
    yield f"checksums in {name} that do not match their digest"
    return
  for file, (size, crc32c) in files.items():
    if not paths[file].is_file():
      yield f"no file {file}"
      continue
    try:
      now = checksums.of_file(paths[file])
    except OSError as error:
      yield f"{file}, which cannot be read ({error.strerror})"
      continue
    if now[0] != size:
      yield f"{now[0]:,} bytes in {file}, saved were {size:,}"
    elif now != (size, crc32c):
      yield f"other bytes in {file} than were saved (CRC-32C)"
