# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Directories that `save_to_disk` of Hugging Face's datasets wrote."""

from collections.abc import Sequence
import json
import os
from typing import Any

from chomp_data import errors
from chomp_data.storage import opening
from chomp_data.storage import relative_names

_STATE = "state.json"
_SPLITS = "dataset_dict.json"
# A directory without any of these is no such one.
NAMES = (_STATE, _SPLITS)


def files_of(folder: str, names: Sequence[str]) -> list[str] | None:
  """Returns the names of the files of a directory of `save_to_disk`.

  Returns:
    The files that hold rows, or None if it is no such directory.

  Raises:
    PrepareError: If it holds splits, or a file is missing.
  """
  if _SPLITS in names:
    splits = _json(folder, _SPLITS).get("splits")
    splits = splits if isinstance(splits, list) else []
    raise errors.PrepareError(
      f"`--input` must name one split of {folder}, got a directory of the"
      f" splits {', '.join(map(str, splits))}. Give, for instance,"
      f" --input={os.path.join(folder, str(splits[0] if splits else ''))}."
    )
  if _STATE not in names or "dataset_info.json" not in names:
    return None
  listed = _json(folder, _STATE).get("_data_files")
  if listed is None:
    return None
  try:
    files = [entry["filename"] for entry in listed]
  except (KeyError, TypeError) as error:
    raise _bad_names(folder, listed) from error
  if not all(map(relative_names.is_part, files)):
    raise _bad_names(folder, files)
  missing = sorted(set(files) - set(names))
  if missing:
    raise errors.PrepareError(
      f"{folder} must hold the files that its state.json names, got no"
      f" {missing[0]}. Restore it, or save the dataset again."
    )
  return files


def _bad_names(folder: str, listed: Any) -> errors.PrepareError:
  return errors.PrepareError(
    f"{os.path.join(folder, 'state.json')} must name files beside it, got"
    f" {relative_names.brief(listed)}. Save the dataset again."
  )


def _json(folder: str, name: str) -> dict[str, Any]:
  try:
    values = json.loads(
      opening.open_storage(folder).get(name, check=json.loads)
    )
  except (OSError, ValueError) as error:
    raise errors.PrepareError(
      f"{os.path.join(folder, name)} must be readable, got {error}. Restore it,"
      " or leave its directory out with --exclude."
    ) from None
  return values if isinstance(values, dict) else {}
