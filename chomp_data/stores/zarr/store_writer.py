# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writing a store: arrays chunk by chunk, the manifest last, then publishing.

Memory is bounded by a few chunks, whatever the corpus. The bytes written
depend on the documents and the options only.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import itertools
import numbers
import os
import pathlib
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.storage import opening
from chomp_data.storage import publish
from chomp_data.stores import columns as columns_lib
from chomp_data.stores import labels
from chomp_data.stores import vocabulary
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import array_writer
from chomp_data.stores.zarr import chunk_tables
from chomp_data.stores.zarr import document_arrays
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import zarr_store


def _is_listed(value: Any) -> Any:
  if isinstance(value, str | bytes | Mapping) or not isinstance(
    value, Iterable
  ):
    raise TypeError
  return value


def _real(value: Any) -> Any:
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise TypeError
  return value


_LISTED = schema.Rule("a list, or another iterable", _is_listed)
_COUNT = schema.integer(1)


def _columns(value: Any) -> dict[str, columns_lib.Column]:
  if not isinstance(value, Mapping):
    raise TypeError
  for name, column in value.items():
    if not isinstance(column, columns_lib.Column) or (
      columns_lib.name_problem(name)
    ):
      raise ValueError
  return dict(value)


_NUMBER = schema.Rule("a number", _real)
_WRITER_RULES = {
  "columns": schema.optional(
    schema.Rule(
      "a mapping of names to `Column`s, whose names are letters, digits and"
      " underscores and not those of fields of batches",
      _columns,
    )
  ),
  "levels": schema.optional(schema.sequence(_NUMBER)),
  "tokenizer_info": schema.instance(
    "a `TokenizerInfo`", vocabulary.TokenizerInfo
  ),
  "tokenizer_file": schema.optional(schema.instance("bytes", bytes)),
  "compression": schema.choice(array_layout.COMPRESSIONS),
  "chunk": _COUNT,
  "chunks_per_shard": _COUNT,
}


class StoreWriter:
  """Writes a store into a staging directory, which the caller publishes.

  A context manager: its files are closed at the end, complete or not.
  """

  @schema.arguments(
    staging=schema.path(),
    has_meta=schema.boolean(),
    has_weights=schema.boolean(),
    pairs=schema.boolean(),
    **_WRITER_RULES,
  )
  def __init__(
    self,
    staging: str | os.PathLike[str],
    tokenizer_info: vocabulary.TokenizerInfo,
    *,
    tokenizer_file: bytes | None = None,
    compression: str = "none",
    chunk: int = array_layout.DEFAULT_CHUNK,
    chunks_per_shard: int = array_layout.DEFAULT_CHUNKS_PER_SHARD,
    has_meta: bool = False,
    levels: Sequence[float] | None = None,
    has_weights: bool = False,
    pairs: bool = False,
    columns: Mapping[str, columns_lib.Column] | None = None,
  ):
    """Creates the staging directory.

    Args:
      staging: A directory that does not exist.
      tokenizer_info: The tokenizer of the tokens.
      tokenizer_file: Its file, for the kinds that have one.
      compression: 'none' or 'zstd'.
      chunk: Elements of a chunk.
      chunks_per_shard: Chunks of a file.
      has_meta: Whether a string is kept of each document besides its id.
      levels: Weights of the levels of tokens, the first ones 0.0 and 1.0, or
        None where all tokens are trained on alike.
      has_weights: Whether documents have weights.
      pairs: Whether documents 2k and 2k + 1 are the chosen and the rejected
        answer of preference pair k.
      columns: By name, what is stored beside tokens and documents.

    Raises:
      TypeError: If an argument is of a wrong type.
      ConfigError: If one is out of range.
      StoreError: If tokenizer, file or levels do not fit.
    """
    _check_tokenizer(tokenizer_info, tokenizer_file)
    self._levels = _checked_levels(levels)
    self._pairs = pairs
    self._staging = pathlib.Path(staging)
    self._tokenizer = tokenizer_info
    self._tokenizer_file = tokenizer_file
    self._staging.mkdir(parents=True)
    columns = columns or {}
    names = manifest_lib.array_names(
      has_meta, levels is not None, has_weights, columns
    )
    dtypes = manifest_lib.dtypes(self.token_dtype.name, columns)
    self._documents = document_arrays.DocumentArrays(
      names, self.token_dtype, columns
    )
    self._arrays = {
      name: array_writer.ArrayWriter(
        self._staging / name,
        array_layout.ArrayLayout(
          dtypes[name], 0, chunk, chunk * chunks_per_shard, compression
        ),
      )
      for name in names
    }
    for name, array in self._arrays.items():
      if name in manifest_lib.OFFSETS:
        array.append(np.zeros(1, np.int64))

  @property
  def token_dtype(self) -> np.dtype:
    """The dtype that tokens are stored in."""
    name = manifest_lib.token_dtype(self._tokenizer.vocab_size)
    return np.dtype(name).newbyteorder("<")

  @property
  def columns(self) -> Mapping[str, columns_lib.Column]:
    """What is stored beside tokens and documents, by name."""
    return self._documents.columns

  def __enter__(self) -> "StoreWriter":
    return self

  def __exit__(self, *unused: object) -> None:
    for array in self._arrays.values():
      array.close()

  def append(
    self,
    tokens: np.ndarray,
    lengths: np.ndarray,
    ids: Sequence[str],
    meta: Sequence[str] | None = None,
    label_levels: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    columns: Mapping[str, Any] | None = None,
  ) -> None:
    """Appends documents.

    Args:
      tokens: Integers [sum of lengths], of the documents one after the other.
      lengths: int64[N], in tokens; 0 is a document of no token.
      ids: N document ids.
      meta: N strings, where the store keeps them.
      label_levels: uint8[tokens], the level of each, where there are levels.
      weights: float32[N], of 0 or more, where documents have them.
      columns: By column, [sum of lengths, *shape] per token, [N] per document.

    Raises:
      StoreError: If a token is not below the vocabulary size, the lengths do
        not add up, or labels or columns are not those that the store was made
        for.
    """
    if tokens.dtype.kind not in "iu" or tokens.ndim != 1:
      raise errors.StoreError(
        "`tokens` must be integers of one dimension, got"
        f" {tokens.dtype}{list(tokens.shape)}. Convert them."
      )
    lengths = np.asarray(lengths, np.int64)
    if len(lengths) != len(ids) or int(lengths.sum()) != len(tokens):
      raise errors.StoreError(
        f"`lengths` must be those of {len(ids)} ids and {len(tokens)} tokens,"
        f" got {len(lengths)} lengths of {int(lengths.sum())} tokens."
      )
    vocab_size = self._tokenizer.vocab_size
    if len(tokens):
      low, high = int(tokens.min()), int(tokens.max())
      if low < 0 or high >= vocab_size:
        raise errors.StoreError(
          f"`tokens` must be in 0 .. {vocab_size - 1}, the tokenizer's ids, got"
          f" {low if low < 0 else high}. Give the tokenizer that made them."
        )
    wanted = len(ids) if "meta_bytes" in self._arrays else None
    if (None if meta is None else len(meta)) != wanted:
      raise errors.StoreError(
        f"`meta` must be {wanted} strings, one for each document where the"
        f" store keeps them, got {meta and len(meta)}. Give one for each."
      )
    runs = None
    if self._levels:
      token_levels = self._checked_labels(label_levels, len(tokens))
      is_first = np.append(True, token_levels[1:] != token_levels[:-1])
      starts = np.flatnonzero(is_first[: len(tokens)])
      runs = starts, token_levels[starts]
    elif label_levels is not None:
      raise errors.StoreError(
        "`label_levels` must not be given to a store without `levels`. Give"
        " both, or none."
      )
    if "document_weights" in self._arrays or weights is not None:
      weights = self._checked_weights(weights, len(ids))
    added = self._documents.add(
      tokens, lengths, ids, meta, runs, weights, columns
    )
    for name, values in added.items():
      self._arrays[name].append(values)

  def finish(
    self,
    *,
    num_empty_skipped: int = 0,
    prepared: Mapping[str, Any] | None = None,
  ) -> manifest_lib.Manifest:
    """Writes what is left, and the manifest.

    Args:
      num_empty_skipped: Documents of the input left out because empty.
      prepared: How the store was made, JSON values.

    Returns:
      The manifest of the complete staging directory.

    Raises:
      StoreError: If the last document of a store of pairs has no other half.
    """
    if self._pairs and self._documents.num_documents % 2:
      raise errors.StoreError(
        "`documents` must be an even number where they are preference pairs,"
        f" got {self._documents.num_documents}. Give both halves of each pair."
      )
    if self._levels:
      num_trained = np.asarray([self._documents.num_trained], np.int64)
      self._arrays["label_sums"].append(num_trained)
    arrays = {name: array.finish() for name, array in self._arrays.items()}
    manifest = manifest_lib.Manifest(
      num_documents=self._documents.num_documents,
      num_tokens=arrays["tokens"].layout.size,
      num_empty_skipped=num_empty_skipped,
      tokenizer=self._tokenizer,
      arrays=arrays,
      prepared=prepared or {},
      levels=self._levels,
      pairs=self._pairs,
      columns=self.columns,
    )
    return finish_store(self._staging, manifest, self._tokenizer_file)

  def _checked_labels(
    self, levels: np.ndarray | None, count: int
  ) -> np.ndarray:
    if levels is None or levels.dtype != np.uint8 or levels.shape != (count,):
      got = "none" if levels is None else f"{levels.dtype}{[*levels.shape]}"
      raise errors.StoreError(
        f"`label_levels` must be uint8[{count}], a level for each token, got"
        f" {got}. Give one for each."
      )
    if count and int(levels.max()) >= len(self._levels):
      raise errors.StoreError(
        f"`label_levels` must be below {len(self._levels)}, the number of"
        f" levels, got {levels.max()}. Name its weight in `levels`."
      )
    return levels

  def _checked_weights(
    self, weights: np.ndarray | None, count: int
  ) -> np.ndarray:
    has_weights = "document_weights" in self._arrays
    checked = None if weights is None else np.asarray(weights, np.float32)
    shape = None if checked is None else checked.shape
    if checked is None or shape != ((count,) if has_weights else None):
      raise errors.StoreError(
        f"`weights` must be {count if has_weights else None} numbers, one for"
        f" each document where the store keeps them, got {weights}. Give one"
        " for each."
      )
    if not (np.isfinite(checked) & (checked >= 0)).all():
      raise errors.StoreError(
        f"`weights` must be finite and 0 or more, got {weights}. Correct them."
      )
    return checked


def finish_store(
  staging: str | os.PathLike[str],
  manifest: manifest_lib.Manifest,
  tokenizer_file: bytes | None,
) -> manifest_lib.Manifest:
  """Writes all that is not in shard files, the manifest last.

  Args:
    staging: The directory of the store.
    manifest: Of the store, without files; its arrays have sums of chunks.
    tokenizer_file: The tokenizer's file, for the kinds that have one.

  Returns:
    The manifest as it was written.
  """
  # Put on disk when the store is published.
  directory = opening.open_storage(staging, durable=False)
  files: dict[str, bytes] = {}
  for name, entry in manifest.arrays.items():
    directory.put(f"{name}/zarr.json", entry.layout.zarr_json())
    files |= chunk_tables.encode(
      name, entry.layout, entry.crc32c, entry.stored_bytes
    )
  if tokenizer_file is not None:
    files[str(manifest.tokenizer_file)] = tokenizer_file
  manifest = dataclasses.replace(
    manifest,
    files={
      name: manifest_lib.FileEntry(len(data), hashlib.sha256(data).hexdigest())
      for name, data in files.items()
    },
    schema=(
      manifest_lib.COLUMNS_SCHEMA if manifest.columns else manifest_lib.SCHEMA
    ),
  )
  for name, data in files.items():
    directory.put(name, data)
  directory.put(manifest_lib.FILE, manifest_lib.serialize(manifest))
  return manifest


@schema.arguments(
  path=schema.path(),
  documents=_LISTED,
  ids=schema.optional(_LISTED),
  meta=schema.optional(_LISTED),
  overwrite=schema.boolean(),
  prepared=schema.optional(schema.mapping()),
  label_levels=schema.optional(_LISTED),
  weights=schema.optional(_LISTED),
  pairs=schema.boolean(),
  columns=_WRITER_RULES["columns"],
  column_values=schema.optional(schema.mapping()),
)
def write_store(
  path: str | os.PathLike[str],
  documents: Iterable[np.ndarray | Sequence[int]],
  *,
  tokenizer_info: vocabulary.TokenizerInfo,
  ids: Iterable[str] | None = None,
  meta: Iterable[str] | None = None,
  tokenizer_file: bytes | None = None,
  compression: str = "none",
  chunk: int = array_layout.DEFAULT_CHUNK,
  chunks_per_shard: int = array_layout.DEFAULT_CHUNKS_PER_SHARD,
  overwrite: bool = False,
  prepared: Mapping[str, Any] | None = None,
  levels: Sequence[float] | None = None,
  label_levels: Iterable[np.ndarray | Sequence[int]] | None = None,
  weights: Iterable[float] | None = None,
  pairs: bool = False,
  columns: Mapping[str, columns_lib.Column] | None = None,
  column_values: Mapping[str, Iterable[Any]] | None = None,
) -> zarr_store.ZarrStore:
  """Writes documents to a new store, published at the end or not at all.

  Args:
    path: The directory to create.
    documents: Token ids, integers [length]; drawn one by one.
    tokenizer_info: The tokenizer that made them.
    ids: As many document ids; by default '0', '1', ...
    meta: As many strings to keep beside the ids, or None for none.
    tokenizer_file: Its file, for the kinds that have one.
    compression: 'none' or 'zstd'.
    chunk: Elements of a chunk.
    chunks_per_shard: Chunks of a file.
    overwrite: Whether a store at `path` may be replaced.
    prepared: How the store was made, JSON values.
    levels: Weights of the levels of tokens, the first ones 0.0 (not trained
      on) and 1.0, or None where all tokens are trained on alike.
    label_levels: With `levels`, of each document the levels of its tokens.
    weights: As many weights of documents, or None for none.
    pairs: Whether documents 2k and 2k + 1 are the chosen and the rejected
      answer of preference pair k.
    columns: By name, what is stored beside tokens and documents.
    column_values: By column, of each document the values of its tokens,
      [length, *shape], or its value.

  Returns:
    The store, opened.

  Raises:
    TypeError: If an argument is of a wrong type.
    ConfigError: If one is out of range.
    StoreError: If there is something at `path`, another writer is at it, or
      documents and tokenizer do not fit.
  """
  opening.open_local(path)
  with (
    publish.new_directory(
      pathlib.Path(path),
      functools.partial(check_destination, overwrite=overwrite),
    ) as staging,
    StoreWriter(
      staging,
      tokenizer_info,
      tokenizer_file=tokenizer_file,
      compression=compression,
      chunk=chunk,
      chunks_per_shard=chunks_per_shard,
      has_meta=meta is not None,
      levels=levels,
      has_weights=weights is not None,
      pairs=pairs,
      columns=columns,
    ) as writer,
  ):
    beside = {
      "ids": ids,
      "meta": meta,
      "label_levels": label_levels,
      "weights": weights,
    }
    _append_all(writer, documents, beside, column_values or {})
    writer.finish(prepared=prepared)
  return zarr_store.open_zarr(path)


def check_destination(path: pathlib.Path, overwrite: bool) -> None:
  """Checks that a store may be put at a path.

  Args:
    path: The destination.
    overwrite: Whether a store there may be replaced.

  Raises:
    StoreError: If there is a file, another directory with something in it, or
      a store and not `overwrite`.
  """
  if not os.path.lexists(path):
    return
  if not path.is_dir():
    raise errors.StoreError(
      f"{path} must be a directory or not exist, got a file. Choose another"
      " output."
    )
  entries = sorted(os.listdir(path))
  others = [name for name in entries if not is_of_store(name)]
  if entries and (manifest_lib.FILE not in entries or others):
    raise errors.StoreError(
      f"{path} must be empty, a store, or not exist, got a directory that"
      f" holds {(others or entries)[0]!r}. Choose another output, or empty it."
    )
  if entries and not overwrite:
    raise errors.StoreError(
      f"{path} must not exist, got a store there. Choose another output, or"
      " overwrite it (overwrite=True, --overwrite)."
    )


def is_of_store(name: str) -> bool:
  """Returns whether a store may have a file of a name."""
  first = name.partition("/")[0]
  return first.startswith(columns_lib.ARRAY_PREFIX) or first in {
    *manifest_lib.array_names(True, True, True),
    *filter(None, vocabulary.TOKENIZER_FILES.values()),
    chunk_tables.FOLDER,
    manifest_lib.FILE,
  }


def _append_all(
  writer: StoreWriter,
  documents: Iterable[np.ndarray | Sequence[int]],
  per_document: Mapping[str, Iterable[Any] | None],
  column_values: Mapping[str, Iterable[Any]],
) -> None:
  """Appends documents one by one, with what there is of each."""
  fields = {name: f"column_values[{name!r}]" for name in column_values}
  beside = {
    name: values for name, values in per_document.items() if values is not None
  } | {fields[name]: values for name, values in column_values.items()}
  of_documents = {
    name
    for name, column in writer.columns.items()
    if column.per == columns_lib.DOCUMENT
  }
  end: Any = object()
  for number, (document, *row) in enumerate(
    itertools.zip_longest(documents, *beside.values(), fillvalue=end)
  ):
    values: dict[str, Any] = dict(zip(beside, row, strict=True))
    for name, value in values.items():
      if (value is end) != (document is end):
        got = f"more than {number}" if document is end else number
        raise errors.StoreError(
          f"`{name}` must be as many as the documents, got {got}. Give one for"
          " each."
        )
    tokens = np.asarray(document)
    if not tokens.size:
      # NumPy takes an empty list for floats.
      tokens = np.empty(0, np.int64)
    levels = values.get("label_levels")
    writer.append(
      tokens,
      np.asarray([tokens.size]),
      [values.get("ids", str(number))],
      [values["meta"]] if "meta" in values else None,
      None if levels is None else np.asarray(levels, np.uint8),
      np.asarray([values["weights"]]) if "weights" in values else None,
      {
        name: [values[field]] if name in of_documents else values[field]
        for name, field in fields.items()
      },
    )


def _checked_levels(levels: Sequence[float] | None) -> tuple[float, ...]:
  if levels is None:
    return ()
  # As they are read, and not -0.0, which is the same and other bytes.
  weights = tuple(labels.weight(weight) for weight in levels)
  if not manifest_lib.are_levels(weights):
    first, most = manifest_lib.FIRST_LEVELS, manifest_lib.MAX_LEVELS
    raise errors.StoreError(
      f"`levels` must be {', '.join(map(str, first))} and other weights of 0 or"
      f" more, {most} at most, each once, got {weights}. Correct them."
    )
  return weights


def _check_tokenizer(
  info: vocabulary.TokenizerInfo, file: bytes | None
) -> None:
  problems = []
  if info.kind not in vocabulary.TOKENIZER_FILES:
    rule = schema.choice(vocabulary.TOKENIZER_FILES)
    problems.append(schema.bad_value("kind", rule, info.kind, "Choose one."))
  if not 1 <= info.vocab_size <= vocabulary.MAX_VOCAB_SIZE:
    problems.append(
      f"`vocab_size` must be in 1 .. {vocabulary.MAX_VOCAB_SIZE}, got"
      f" {info.vocab_size}"
    )
  for name in ("pad_id", "eos_id", "bos_id"):
    value = getattr(info, name)
    if value is not None and not 0 <= value < info.vocab_size:
      problems.append(
        f"`{name}` must be below the vocabulary size {info.vocab_size}, got"
        f" {value}"
      )
  file_name = vocabulary.TOKENIZER_FILES.get(info.kind)
  if (file is not None) != (file_name is not None):
    problems.append(
      "`tokenizer_file` must be given for a kind that has one and no other, got"
      f" {'one' if file is not None else 'none'} for {info.kind!r}"
    )
  elif file is not None and hashlib.sha256(file).hexdigest() != info.sha256:
    problems.append(
      f"`sha256` must be that of `tokenizer_file`, got {info.sha256}"
    )
  if problems:
    raise errors.StoreError(
      "The tokenizer's description is wrong: " + "; ".join(problems) + "."
    )
