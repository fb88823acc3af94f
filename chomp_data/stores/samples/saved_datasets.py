# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Directories that `save_to_disk` of Hugging Face's datasets wrote.

`state.json` names the Arrow files, in order; a directory of several splits has
`dataset_dict.json` instead, which names them.
"""

from collections.abc import Container
import contextlib
import json
import os
from typing import Any

from chomp_data import errors
from chomp_data.storage import opening
from chomp_data.storage import relative_names
from chomp_data.stores.array_record import record_files

STATE = "state.json"
SPLITS = "dataset_dict.json"
# A directory without any of these is no such one.
NAMES = (STATE, SPLITS)


def is_saved(folder: str, names: Container[str]) -> bool:
  """Returns whether a directory was written by `save_to_disk`.

  Args:
    folder: Its path or URL.
    names: Of its files, at least those of `NAMES` that are there.

  Raises:
    StoreError: If it holds several splits.
  """
  if SPLITS in names:
    splits = []
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
      splits = [str(name) for name in _json(folder, SPLITS)["splits"]]
    splits = splits or ["?"]
    raise errors.StoreError(
      f"{folder} must be one split of a dataset, got a directory of the splits"
      f" {', '.join(splits)}. Name one, as {os.path.join(folder, splits[0])}."
    )
  return STATE in names


def data_files(folder: str, names: Container[str]) -> list[str]:
  """Returns the names of the Arrow files of a directory, in order.

  Args:
    folder: Its path or URL.
    names: Of its files.

  Raises:
    StoreError: If `state.json` is damaged, or names others than files beside
      it.
  """
  state = os.path.join(folder, STATE)
  try:
    values = _json(folder, STATE)
    files = [entry["filename"] for entry in values["_data_files"]]
    indices = values.get("_indices_data_files")
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
    raise errors.StoreError(
      f"{state} must name the dataset's files, got"
      f" {record_files.first_line(error)}. Save the dataset again."
    ) from error
  if indices:
    raise errors.StoreError(
      f"{folder} must hold its rows in order, got a selection of them by"
      " another file. Save `flatten_indices()` of it."
    )
  for name in files:
    if not relative_names.is_part(name):
      raise errors.StoreError(
        f"{state} must name files beside it, got"
        f" {relative_names.brief(name)}. Save the dataset again."
      )
    if name not in names:
      raise errors.StoreError(
        f"{os.path.join(folder, name)} must exist, as {STATE} says. Restore it,"
        " or save the dataset again."
      )
  if not files:
    raise errors.StoreError(
      f"{state} must name the files of the dataset, got none. Save a dataset"
      " that is not empty."
    )
  if len(set(files)) < len(files):
    # 'data-00000-of' and 'data-00001-of' differ in one bit.
    raise errors.StoreError(
      f"{state} must name each file once, got {', '.join(files)}."
      f" {record_files.RESTORE}"
    )
  return files


def _json(folder: str, name: str) -> Any:
  return json.loads(opening.open_storage(folder).get(name, check=json.loads))
