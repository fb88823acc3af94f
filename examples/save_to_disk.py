# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes samples as Hugging Face's `save_to_disk` does, without its library.

    state.json         the files, in order
    dataset_info.json  nothing: columns are told by the files' own schema
    data-00000-of-00001.arrow, ...

Arrays are columns of nested lists. pyarrow is needed (the extra `arrow`).
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import json
import math
import os
import pathlib
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.storage import publish
from chomp_data.stores.array_record import record_files
from chomp_data.stores.samples import arrow_columns

# Samples of a record batch: `datasets` writes as many.
BATCH_ROWS = 1_000

_Samples = Iterable[tuple[Mapping[str, np.ndarray], Mapping[str, Any]]]


def save_to_disk(
  path: str | os.PathLike[str],
  samples: _Samples,
  *,
  samples_per_file: int = 8_000,
) -> int:
  """Writes a directory that `datasets.load_from_disk` opens.

  Args:
    path: The directory to create; it must be empty or not exist.
    samples: Arrays by field, and numbers or texts by name; the same of each in
      every sample. An array's number of dimensions and dtype are those of the
      first sample; numbers that are whole in the first 1,000 samples must be
      whole in all.
    samples_per_file: The most in one file.

  Returns:
    How many samples were written.

  Raises:
    PrepareError: If there is no sample, or samples that make no columns; the
      message says which.
    StoreError: If pyarrow is not installed, there is something at the path, or
      another process writes there.
  """
  place = pathlib.Path(path)
  with publish.new_directory(place) as staged:
    staged.mkdir()
    counts, schema = [], None
    source = iter(samples)
    while first := list(itertools.islice(source, 1)):
      file_samples = itertools.chain(
        first, itertools.islice(source, samples_per_file - 1)
      )
      file = staged / f"part-{len(counts):05d}"
      count, schema = _write_file(file, file_samples, sum(counts), schema)
      counts.append(count)
    if not counts:
      raise errors.PrepareError(
        f"{place} must hold samples, got none to write."
      )
    names = [
      f"data-{i:05d}-of-{len(counts):05d}.arrow" for i in range(len(counts))
    ]
    for i, name in enumerate(names):
      (staged / f"part-{i:05d}").rename(staged / name)
    state = {
      "_data_files": [{"filename": name} for name in names],
      "_fingerprint": "chomp_data",
      "_format_columns": None,
      "_format_kwargs": {},
      "_format_type": None,
      "_output_all_columns": False,
      "_split": None,
    }
    (staged / "state.json").write_text(json.dumps(state, indent=2))
    (staged / "dataset_info.json").write_text(json.dumps({}))
  return sum(counts)


def _write_file(
  path: pathlib.Path, samples: _Samples, number: int, schema: Any
) -> tuple[int, Any]:
  """Writes one stream of record batches.

  Args:
    path: The file.
    samples: What it holds.
    number: Of the first sample, for messages.
    schema: Of the columns, or None for that of the first batch.

  Returns:
    How many samples it holds, and the schema.
  """
  arrow = arrow_columns.pyarrow()
  count, writer = 0, None
  source = iter(samples)
  while rows := list(itertools.islice(source, BATCH_ROWS)):
    try:
      batch = _record_batch(arrow, rows)
      schema = schema or batch.schema
      if not batch.schema.equals(schema):
        batch = batch.cast(schema)
    except (arrow.ArrowException, KeyError, TypeError, ValueError) as error:
      if writer is not None:
        writer.close()
      raise errors.PrepareError(
        f"samples {number + count} .. {number + count + len(rows) - 1} must"
        " have the columns and types of the first ones, got"
        f" {type(error).__name__}: {record_files.first_line(error)}."
        " Write them alike."
      ) from error
    if writer is None:
      writer = arrow.ipc.new_stream(str(path), schema)
    writer.write_batch(batch)
    count += len(rows)
  if writer is not None:
    writer.close()
  return count, schema


def _record_batch(arrow: Any, samples: Sequence[Any]) -> Any:
  """Returns pyarrow.RecordBatch of samples."""
  arrays, values = samples[0]
  columns = {
    name: _lists(arrow, [fields[name] for fields, _ in samples])
    for name in arrays
  }
  for name in values:
    columns[name] = arrow.array([values[name] for _, values in samples])
  return arrow.RecordBatch.from_pydict(columns)


def _lists(arrow: Any, arrays: Sequence[np.ndarray]) -> Any:
  """Returns pyarrow.ListArray, nested as deep as arrays have dimensions."""
  ndims = {array.ndim for array in arrays}
  if len(ndims) > 1:
    raise ValueError(f"arrays of {min(ndims)} and of {max(ndims)} axes")
  nested = arrow.array(np.concatenate([array.reshape(-1) for array in arrays]))
  for depth in reversed(range(arrays[0].ndim)):
    lengths = [
      np.full(math.prod(array.shape[:depth]), array.shape[depth], np.int32)
      for array in arrays
    ]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    nested = arrow.ListArray.from_arrays(
      arrow.array(offsets.astype(np.int32)), nested
    )
  return nested
