# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writing a store as ArrayRecord files: a record is the ids of a document.

Any reader of ArrayRecord reads them, `grain.sources.ArrayRecordDataSource` for
one: `np.frombuffer(record, '<u2')`, or '<u4' of more than 65,536 ids. A JSON
file beside them holds the options that the records omit, so that `store` needs
no section `array_record`.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import functools
import json
import os
import pathlib
from typing import Any

from array_record.python import array_record_module  # pyright: ignore
import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.storage import opening
from chomp_data.storage import publish
from chomp_data.storage import relative_names
from chomp_data.stores import base
from chomp_data.stores import copying
from chomp_data.stores.array_record import record_store
from chomp_data.stores.zarr import manifest
from chomp_data.stores.zarr import store_writer
from chomp_data.stores.zarr import tree_hash

FILE = "array_record.json"
DEFAULT_FILE_BYTES = 1 << 30

# One record a group, as Grain asks for: others are then not decoded with it.
_OPTIONS = "group_size:1,zstd:1"


def write(
  store: base.Store,
  path: str | os.PathLike[str],
  *,
  file_bytes: int = DEFAULT_FILE_BYTES,
  overwrite: bool = False,
  drop_columns: bool = False,
  progress: Callable[[int], object] = lambda num_tokens: None,
) -> None:
  """Writes what a store holds as ArrayRecord files, published at the end.

  Ids and metadata of documents (--meta_key) are omitted: records have none.

  Args:
    store: The store, of any kind.
    path: The directory to create.
    file_bytes: Bytes of tokens that begin another file.
    overwrite: Whether such a directory there may be replaced.
    drop_columns: Whether columns of the store are left out.
    progress: Called with the number of tokens of each batch.

  Raises:
    StoreError: If the store has labels or columns or is damaged, or there is
      something at the path.
  """
  # Checked before it is a `Path`, for which a URL is a relative path.
  opening.open_local(path)
  path = pathlib.Path(path)
  check = functools.partial(check_destination, overwrite=overwrite)
  with publish.new_directory(path, check) as staging:
    write_files(
      store,
      staging,
      file_bytes=file_bytes,
      drop_columns=drop_columns,
      progress=progress,
    )


def write_files(
  store: base.Store,
  staging: pathlib.Path,
  *,
  file_bytes: int = DEFAULT_FILE_BYTES,
  prepared: Mapping[str, Any] | None = None,
  drop_columns: bool = False,
  progress: Callable[[int], object] = lambda num_tokens: None,
) -> None:
  """Writes the files to a directory that does not exist.

  Args:
    store: As in `write`.
    staging: The directory.
    file_bytes: As in `write`.
    prepared: How the store was made, JSON values.
    drop_columns: As in `write`.
    progress: As in `write`.
  """
  if store.opened.pairs:
    raise errors.StoreError(
      f"{store.path} must hold documents to be written as ArrayRecord, which"
      " has no place for preference pairs, got pairs. Keep it in zarr."
    )
  if store.labels.has_runs or store.labels.has_weights:
    raise errors.StoreError(
      f"{store.path} must be without labels and weights to be written as"
      " ArrayRecord, which has no place for them, got some. Keep it in zarr."
    )
  if store.opened.columns and not drop_columns:
    raise errors.StoreError(
      f"{store.path} must be without columns to be written as ArrayRecord,"
      f" which has no place for them, got {', '.join(store.opened.columns)}."
      " Keep it in zarr, or drop them with --drop_columns."
    )
  info = store.opened.tokenizer
  dtype = np.dtype(manifest.token_dtype(info.vocab_size)).newbyteorder("<")
  first = _first_documents(store, max(1, file_bytes // dtype.itemsize))
  staging.mkdir(parents=True)
  files = _Files(staging, first)
  try:
    for batch in copying.document_batches(store):
      data = batch.tokens.astype(dtype, copy=False).tobytes()
      ends = (np.cumsum(batch.lengths) * dtype.itemsize).tolist()
      begins = [0, *ends[:-1]]
      for i, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        files.write(batch.first + i, data[begin:end])
      progress(len(batch.tokens))
  finally:
    files.close()
  options = {
    "token_dtype": dtype.name,
    "vocab_size": info.vocab_size,
    "pad_id": info.pad_id,
    "eos_id": info.eos_id,
    "bos_id": info.bos_id,
    "adds_bos": info.adds_bos,
    "adds_eos": info.adds_eos,
    "tokenizer": f"{info.kind} {info.sha256}",
  }
  beside = {"options": options, "prepared": dict(prepared or {})}
  text = f"{json.dumps(beside, indent=1)}\n"
  publish.write_file(staging / FILE, text.encode())


def options_beside(
  path: pathlib.Path,
) -> record_store.ArrayRecordOptions | None:
  """Returns the options beside files that `write` wrote, or None.

  Raises:
    StoreError: If it is damaged.
  """
  file = path / FILE
  if not file.is_file():
    return None
  try:
    values: Any = json.loads(publish.read_file(file))["options"]
    options, problems = schema.read(
      record_store.ArrayRecordOptions, values, "array_record"
    )
  except (OSError, ValueError, KeyError, TypeError) as error:
    options, problems = None, [repr(error)]
  if options is None:
    raise errors.StoreError(
      f"{file} must say what the records are, got {' '.join(problems)} Restore"
      " it, or write the records again."
    )
  return options


def prepared_at(path: pathlib.Path) -> dict[str, Any] | None:
  """Returns how such a directory was made, or None where none is there."""
  if options_beside(path) is None:
    return None
  prepared = json.loads(publish.read_file(path / FILE)).get("prepared")
  if not isinstance(prepared, dict):
    raise errors.StoreError(
      f"{path / FILE} must say how the records were made, got"
      f" {relative_names.brief(prepared)}. Restore it, or write the records"
      " again."
    )
  return prepared


def array_hashes(store: base.Store) -> dict[str, str]:
  """Returns the hashes that `tokens` and `offsets` of a store have in zarr."""
  tokens, offsets = tree_hash.TreeHash(), tree_hash.TreeHash()
  dtype = np.dtype(manifest.token_dtype(store.opened.tokenizer.vocab_size))
  end = 0
  offsets.update(np.zeros(1, np.int64).data)
  for batch in copying.document_batches(store):
    tokens.update(np.ascontiguousarray(batch.tokens, dtype).data)
    ends = end + np.cumsum(batch.lengths, dtype=np.int64)
    offsets.update(ends.data)
    end = int(ends[-1]) if len(ends) else end
  return {"tokens": tokens.hexdigest(), "offsets": offsets.hexdigest()}


def check_destination(path: pathlib.Path, overwrite: bool) -> None:
  """Checks that records may be put at a path.

  Args:
    path: The destination.
    overwrite: Whether what `write` wrote there may be replaced.

  Raises:
    StoreError: If there is something else.
  """
  opening.open_local(path)
  names = os.listdir(path) if path.is_dir() else []
  ours = FILE in names and all(
    name == FILE or name.endswith(".array_record") for name in names
  )
  if not (overwrite and ours):
    store_writer.check_destination(path, overwrite)


class _Files:
  """Writes the files, one after the other."""

  def __init__(self, directory: pathlib.Path, first: list[int]):
    self._directory = directory
    self._first = first
    self._next = 0
    self._writer: Any = None

  def write(self, document: int, data: bytes) -> None:
    """Writes a document to its file."""
    with _reporting():
      self._at(document).write(data)

  def _at(self, document: int) -> Any:
    """Returns the writer of a document's file."""
    while self._next < len(self._first) and (
      document >= self._first[self._next]
    ):
      self.close()
      of = len(self._first)
      name = f"documents-{self._next:05}-of-{of:05}.array_record"
      self._writer = array_record_module.ArrayRecordWriter(
        str(self._directory / name), _OPTIONS
      )
      self._next += 1
    return self._writer

  def close(self) -> None:
    """Closes the file that is open."""
    if self._writer is not None:
      writer, self._writer = self._writer, None
      with _reporting():
        writer.close()


@contextlib.contextmanager
def _reporting() -> Iterator[None]:
  """Raises StoreError for the library's errors, such as of a full disk."""
  try:
    yield
  except RuntimeError as error:
    raise errors.StoreError(
      f"ArrayRecord must be written whole, got: {error}. Make room there, and"
      " run the same command again."
    ) from error


def _first_documents(store: base.Store, file_tokens: int) -> list[int]:
  """Returns the first document of each file: there is one at least."""
  return list(_begins(store, file_tokens)) or [0]


def _begins(store: base.Store, file_tokens: int) -> Iterator[int]:
  before, last = 0, -1
  for first, lengths in store.iter_lengths():
    starts = before + np.cumsum(lengths) - lengths
    file = starts // file_tokens
    is_new = np.diff(file, prepend=last) > 0
    yield from (first + np.flatnonzero(is_new)).tolist()
    before += int(lengths.sum())
    last = int(file[-1])
