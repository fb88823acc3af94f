# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny real stores for tests."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import os
import pathlib
from typing import Any

from array_record.python import array_record_module  # pyright: ignore
import numpy as np

from chomp_data import stores


def make_store(
  path: str | os.PathLike[str],
  documents: Iterable[np.ndarray | Sequence[int]],
  *,
  ids: Sequence[str] | None = None,
  vocab_size: int = 256,
  pad_id: int | None = 0,
  eos_id: int | None = 1,
  bos_id: int | None = None,
  adds_bos: bool = False,
  adds_eos: bool = False,
  compression: str = "none",
  chunk: int = 256,
  chunks_per_shard: int = 8,
  levels: Sequence[float] | None = None,
  label_levels: Iterable[np.ndarray | Sequence[int]] | None = None,
  weights: Iterable[float] | None = None,
  pairs: bool = False,
  columns: Mapping[str, stores.Column] | None = None,
  column_values: Mapping[str, Iterable[Any]] | None = None,
) -> stores.Store:
  """Writes a store with chunks so small that spans cross them.

  Args:
    path: The directory to create.
    documents: Token ids of each document.
    ids: Document ids; by default '0', '1', ...
    vocab_size: Token ids are below it.
    pad_id: Padding, or None.
    eos_id: End of a document, or None.
    bos_id: Begin of a document, or None.
    adds_bos: Whether to say that documents start with `bos_id`.
    adds_eos: Whether to say that documents end with `eos_id`.
    compression: 'none' or 'zstd'.
    chunk: Elements of a chunk.
    chunks_per_shard: Chunks of a file.
    levels: Weights of the levels of tokens, or None where all are trained on.
    label_levels: With `levels`, of each document the levels of its tokens.
    weights: Weights of documents, or None.
    pairs: Whether documents 2k and 2k + 1 are preference pair k.
    columns: What is stored beside tokens and documents, by name.
    column_values: By column, of each document its values.

  Returns:
    The store, opened.
  """
  # A test that wants a vocabulary of one or two ids need not name them.
  pad_id, eos_id, bos_id = (
    None if token is None or token >= vocab_size else token
    for token in (pad_id, eos_id, bos_id)
  )
  return stores.write_store(
    path,
    documents,
    ids=ids,
    tokenizer_info=stores.TokenizerInfo(
      kind="custom",
      sha256=hashlib.sha256(f"test {vocab_size}".encode()).hexdigest(),
      vocab_size=vocab_size,
      pad_id=pad_id,
      eos_id=eos_id,
      bos_id=bos_id,
      adds_bos=adds_bos,
      adds_eos=adds_eos,
    ),
    compression=compression,
    chunk=chunk,
    chunks_per_shard=chunks_per_shard,
    levels=levels,
    label_levels=label_levels,
    weights=weights,
    pairs=pairs,
    columns=columns,
    column_values=column_values,
  )


def make_array_records(
  path: str | os.PathLike[str],
  documents: Iterable[np.ndarray | Sequence[int]],
  *,
  dtype: str = "uint16",
  files: int = 2,
  group_size: int = 1,
  compression: str = "uncompressed",
) -> str:
  """Writes documents as ArrayRecord files, the first of them in the first file.

  Args:
    path: The directory to create.
    documents: Token ids of each document.
    dtype: 'uint16', 'uint32' or 'int32'.
    files: How many; those that documents do not reach are empty.
    group_size: Records stored together.
    compression: As ArrayRecord writes it: 'uncompressed', 'zstd', 'brotli' or
      'snappy'.

  Returns:
    The directory.
  """
  directory = pathlib.Path(path)
  directory.mkdir(parents=True)
  little = np.dtype(dtype).newbyteorder("<")
  records = [np.asarray(tokens, little).tobytes() for tokens in documents]
  per_file = -(-len(records) // files)
  for i in range(files):
    writer = array_record_module.ArrayRecordWriter(
      str(directory / f"documents-{i:05}-of-{files:05}.array_record"),
      f"group_size:{group_size},{compression}",
    )
    for record in records[i * per_file : (i + 1) * per_file]:
      writer.write(record)
    writer.close()
  return str(directory)


def open_array_records(
  path: str | os.PathLike[str],
  dtype: str = "uint16",
  *,
  cache_bytes: int = 1 << 20,
  index_dir: str | os.PathLike[str] | None = None,
  **options: Any,
) -> stores.Store:
  """Opens what `make_array_records` wrote, with the vocabulary of `make_store`.

  Args:
    path: As `stores.open_array_records`.
    dtype: Of the records.
    cache_bytes: Most decoded bytes that are kept.
    index_dir: Where to keep the index; by default beside the corpus.
    **options: Fields of `ArrayRecordOptions`, by default 256 ids with padding
      0 and end 1.
  """
  values = {"vocab_size": 256, "pad_id": 0, "eos_id": 1, **options}
  return stores.open_array_records(
    path,
    stores.ArrayRecordOptions(token_dtype=dtype, **values),
    cache_bytes=cache_bytes,
    index_dir=index_dir,
  )
