# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A store's manifest: what it holds, and its identity.

`manifest.json` is canonical JSON (sorted keys, one space of indent, ASCII) and
is written last. `hash` is the store's identity: SHA-256 of what its documents,
ids and tokenizer are, without paths, times, chunking or compression. `digest`
covers every other value, and the file must be byte for byte what the values
serialise to, so that any changed byte is refused.

Schema 2 keeps what grows with the chunks in tables beside the arrays
(`chunk_tables`), so that the manifest of any store is small. Schema 1 has it
all in the manifest, with the SHA-256 of every file; such stores are read for
ever, and no longer written. Both have the same `hash` where no array is larger
than a block of `tree_hash`. Schema 3 is schema 2 with `columns`.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import json
import math
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.storage import relative_names
from chomp_data.stores import columns as columns_lib
from chomp_data.stores import json_values
from chomp_data.stores import vocabulary
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import chunk_tables

FORMAT = "chomp_data store"
SCHEMA = 2
# Of stores with columns, and of no others.
COLUMNS_SCHEMA = 3
SCHEMAS = (1, SCHEMA, COLUMNS_SCHEMA)
FILE = "manifest.json"
RESTORE = "Restore the store from a copy, or prepare it again with --overwrite."
ARRAYS = ("id_bytes", "id_offsets", "offsets", "tokens")
# Only where something is kept of each document besides its id.
META_ARRAYS = ("meta_bytes", "meta_offsets")
# Only where some tokens are not trained on, or not as much as others: where a
# run of tokens of one level begins, its level, and how many tokens of levels
# above 0 are before it (and at the end, in all).
LABEL_ARRAYS = ("label_levels", "label_starts", "label_sums")
# Only where documents have weights.
WEIGHT_ARRAYS = ("document_weights",)
OPTIONAL_ARRAYS = (META_ARRAYS, LABEL_ARRAYS, WEIGHT_ARRAYS)
DTYPES = {
  "offsets": "int64",
  "id_bytes": "uint8",
  "id_offsets": "int64",
  "meta_bytes": "uint8",
  "meta_offsets": "int64",
  "label_starts": "int64",
  "label_levels": "uint8",
  "label_sums": "int64",
  "document_weights": "float32",
}
# What offsets point into.
OFFSETS = {
  "offsets": "tokens",
  "id_offsets": "id_bytes",
  "meta_offsets": "meta_bytes",
}
# The weights that every table of levels begins with.
FIRST_LEVELS = (0.0, 1.0)
MAX_LEVELS = 2**8

_MAX_SIZE = 2**62
_MAX_CHUNK = 2**30
_MAX_CHUNKS_PER_SHARD = 2**20


@dataclasses.dataclass(frozen=True)
class ArrayEntry:
  """One array: its layout and its checksum.

  Attributes:
    layout: Shape on disk.
    sha256: Hex, `tree_hash` of the values, padding excluded; in schema 1 their
      SHA-256.
    num_bytes: Of its shard files together.
    crc32c: uint32[num_chunks], of the decoded chunks, padding included; None
      where tables have them.
    stored_bytes: uint64[num_chunks], of each as it is stored; None likewise.
  """

  layout: array_layout.ArrayLayout
  sha256: str
  num_bytes: int
  crc32c: np.ndarray | None = None
  stored_bytes: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class FileEntry:
  """One file: its size in bytes and its SHA-256 as hex."""

  size: int
  sha256: str


@dataclasses.dataclass(frozen=True)
class Manifest:
  """What a store holds.

  Attributes:
    num_documents: Documents, those of no token included.
    num_tokens: Tokens of all documents.
    num_empty_skipped: Documents of the input left out because empty.
    tokenizer: The tokenizer of the tokens.
    arrays: By name, `ARRAYS` and perhaps some of `OPTIONAL_ARRAYS`.
    prepared: How the store was made, as JSON values; not in `hash`.
    files: By path relative to the store, with slashes: tables of chunks and
      the tokenizer's file; in schema 1 all but the manifest.
    levels: Weights of the levels of tokens, where the store has labels.
    schema: One of `SCHEMAS`.
    pairs: Whether documents 2k and 2k + 1 are the chosen and the rejected
      answer of preference pair k.
    columns: By name, what is stored beside tokens and documents.
  """

  num_documents: int
  num_tokens: int
  num_empty_skipped: int
  tokenizer: vocabulary.TokenizerInfo
  arrays: Mapping[str, ArrayEntry]
  prepared: Mapping[str, Any]
  files: Mapping[str, FileEntry] = dataclasses.field(default_factory=dict)
  levels: tuple[float, ...] = ()
  schema: int = SCHEMA
  pairs: bool = False
  columns: Mapping[str, columns_lib.Column] = dataclasses.field(
    default_factory=dict
  )

  @property
  def num_bytes(self) -> int:
    """Bytes of the store on disk, but for the manifest and zarr's metadata."""
    arrays = sum(entry.num_bytes for entry in self.arrays.values())
    return arrays + sum(
      entry.size for name, entry in self.files.items() if "/c/" not in name
    )

  @property
  def tokenizer_file(self) -> str | None:
    """The tokenizer's file in the store, where it has one."""
    return vocabulary.TOKENIZER_FILES[self.tokenizer.kind]

  @property
  def token_dtype(self) -> np.dtype:
    """uint16 or uint32, as stored."""
    return self.arrays["tokens"].layout.numpy_dtype

  @functools.cached_property
  def hash(self) -> str:
    """The store's identity, SHA-256 as hex."""
    return content_hash(self)


def array_names(
  has_meta: bool,
  has_labels: bool,
  has_weights: bool,
  columns: Iterable[str] = (),
) -> tuple[str, ...]:
  """Returns the arrays of a store that keeps these of its documents."""
  names = (*ARRAYS, *map(columns_lib.array_name, columns))
  for has_group, group in zip(
    (has_meta, has_labels, has_weights), OPTIONAL_ARRAYS, strict=True
  ):
    names += group if has_group else ()
  return names


def dtypes(
  token_dtype: str, columns: Mapping[str, columns_lib.Column]
) -> dict[str, str]:
  """Returns the dtypes of the arrays that a store may have."""
  return {
    **DTYPES,
    "tokens": token_dtype,
    **{
      columns_lib.array_name(n): column.dtype for n, column in columns.items()
    },
  }


def are_levels(weights: Sequence[float]) -> bool:
  """Returns whether weights are those of a table of levels."""
  return (
    tuple(weights[:2]) == FIRST_LEVELS
    and all(0 <= weight < math.inf for weight in weights)
    and len(set(weights)) == len(weights) <= MAX_LEVELS
  )


def token_dtype(vocab_size: int) -> str:
  """Returns the dtype that tokens of a vocabulary are stored in."""
  return "uint16" if vocab_size <= 2**16 else "uint32"


def content_hash(manifest: Manifest) -> str:
  """Returns SHA-256 as hex of what the store means; see the module."""
  identity = {
    "format": FORMAT,
    # Of the identity: stores of both schemas may be the same.
    "schema": 1,
    "num_documents": manifest.num_documents,
    "num_tokens": manifest.num_tokens,
    "tokenizer": dataclasses.asdict(manifest.tokenizer),
    "arrays": {
      name: [entry.layout.dtype, entry.layout.size, entry.sha256]
      for name, entry in manifest.arrays.items()
    },
  }
  if manifest.levels:
    identity["levels"] = list(manifest.levels)
  if manifest.pairs:
    identity["pairs"] = True
  if manifest.columns:
    identity["columns"] = _columns_json(manifest)
  return hashlib.sha256(canonical_json(identity)).hexdigest()


def serialize(manifest: Manifest) -> bytes:
  """Returns the bytes of `manifest.json`, of the newest schema."""
  values: dict[str, Any] = {
    "format": FORMAT,
    "schema": COLUMNS_SCHEMA if manifest.columns else SCHEMA,
    "levels": list(manifest.levels),
    "num_documents": manifest.num_documents,
    "num_tokens": manifest.num_tokens,
    "num_empty_skipped": manifest.num_empty_skipped,
    "vocab_size": manifest.tokenizer.vocab_size,
    "token_dtype": manifest.arrays["tokens"].layout.dtype,
    "tokenizer": dataclasses.asdict(manifest.tokenizer),
    "arrays": {
      name: {
        **dataclasses.asdict(entry.layout),
        "sha256": entry.sha256,
        "num_bytes": entry.num_bytes,
      }
      for name, entry in manifest.arrays.items()
    },
    "files": {
      name: dataclasses.asdict(entry) for name, entry in manifest.files.items()
    },
    "prepared": dict(manifest.prepared),
    "hash": manifest.hash,
  }
  if manifest.pairs:
    values["pairs"] = True
  if manifest.columns:
    values["columns"] = _columns_json(manifest)
  return canonical_json(values | {"digest": json_digest(values)})


def parse(data: bytes, path: str) -> Manifest:
  """Parses and checks the bytes of `manifest.json`.

  Args:
    data: The file's content.
    path: The file, for messages.

  Raises:
    StoreError: If it is not a manifest, is of a newer schema, was altered, or
      contradicts itself.
  """
  try:
    values = json.loads(data)
  except (ValueError, RecursionError) as error:
    raise errors.StoreError(
      f"{path} must be JSON, got {relative_names.brief(error)}. {RESTORE}"
    ) from None
  if not isinstance(values, dict) or values.get("format") != FORMAT:
    raise errors.StoreError(
      f"{path} must have format {FORMAT!r}, got another file. Give the"
      " directory that chomp-prepare wrote."
    )
  schema = values.get("schema")
  if type(schema) is not int or schema not in SCHEMAS:
    raise errors.StoreError(
      f"{path} must have a schema of {', '.join(map(str, SCHEMAS))}, got"
      f" {relative_names.brief(schema)}. Read a newer store with a newer"
      " chomp_data, or prepare it again."
    )
  digest = values.pop("digest", None)
  expected = json_digest(values)
  if digest != expected or data != canonical_json(values | {"digest": digest}):
    raise errors.StoreError(
      f"{path} must be as it was written, with digest {expected}, got"
      f" {relative_names.brief(digest)} or other bytes. {RESTORE}"
    )
  try:
    manifest = _decoded(values, path)
    _check(manifest, values, data)
  except errors.StoreError:
    raise
  except ValueError as error:
    raise errors.StoreError(
      f"{path} must say what a store holds, got: {error}. {RESTORE}"
    ) from None
  return manifest


def canonical_json(values: Any) -> bytes:
  return (json.dumps(values, indent=1, sort_keys=True) + "\n").encode()


def json_digest(values: Mapping[str, Any]) -> str:
  return hashlib.sha256(canonical_json(values)).hexdigest()


def _columns_json(manifest: Manifest) -> dict[str, Any]:
  return {name: column.json for name, column in manifest.columns.items()}


def _decoded(values: dict[str, Any], path: str) -> Manifest:
  """Returns a manifest of values whose digest is right.

  Raises:
    ValueError: If a value is missing or of another type; the message names it.
    StoreError: If a file is outside of the store.
  """

  def field(name: str, kind: Any, default: Any = None) -> Any:
    return json_values.decode(kind, values.get(name, default), name)

  files = field("files", dict[str, FileEntry])
  for name in files:
    relative_names.check(name, path)
  return Manifest(
    num_documents=field("num_documents", int),
    num_tokens=field("num_tokens", int),
    num_empty_skipped=field("num_empty_skipped", int),
    tokenizer=field("tokenizer", vocabulary.TokenizerInfo),
    arrays={
      name: _decoded_array(name, entry, values["schema"], files)
      for name, entry in field("arrays", dict[str, dict[str, Any]]).items()
    },
    files=files,
    prepared=field("prepared", dict[str, Any]),
    levels=field("levels", tuple[float, ...], []),
    schema=values["schema"],
    pairs=field("pairs", bool, False),
    columns=_decoded_columns(values.get("columns", {})),
  )


def _decoded_array(
  name: str,
  values: dict[str, Any],
  schema: int,
  files: Mapping[str, FileEntry],
) -> ArrayEntry:
  """Returns the entry of an array; raises ValueError where it is none."""
  decode, field = json_values.decode, f"arrays.{name}"
  last = "crc32c" if schema == 1 else "num_bytes"
  layout = {n: v for n, v in values.items() if n not in ("sha256", last)}
  layout = decode(array_layout.ArrayLayout, layout, field)
  _check_layout(field, layout)
  sha256 = decode(str, values.get("sha256"), f"{field}.sha256")
  if schema > 1:
    size = decode(int, values.get(last), f"{field}.num_bytes")
    return ArrayEntry(layout, sha256, size)
  table = bytes.fromhex(decode(str, values.get(last), f"{field}.crc32c"))
  _require(f"{field}.crc32c", len(table), 4 * layout.num_chunks)
  size = sum(
    entry.size for file, entry in files.items() if file.startswith(f"{name}/c/")
  )
  crcs = np.frombuffer(table, ">u4").astype(np.uint32)
  return ArrayEntry(layout, sha256, size, crcs)


def _decoded_columns(values: Any) -> dict[str, columns_lib.Column]:
  """Returns columns; raises ValueError where they are none."""
  decode, columns = json_values.decode, {}
  for name, entry in decode(
    dict[str, dict[str, Any]], values, "columns"
  ).items():
    full = {"shape": [], "align": columns_lib.TOKEN, **entry}
    columns[name] = decode(columns_lib.Column, full, f"columns.{name}")
    if problem := columns_lib.name_problem(name):
      raise ValueError(problem)
  return columns


def _check_layout(name: str, layout: array_layout.ArrayLayout) -> None:
  """Raises ValueError where an array cannot be cut as it is said to be."""
  if (
    layout.dtype not in array_layout.DTYPES
    or layout.compression not in array_layout.COMPRESSIONS
    or not 0 <= layout.size <= _MAX_SIZE
    or not 1 <= layout.chunk <= _MAX_CHUNK
    or not layout.chunk <= layout.shard <= layout.chunk * _MAX_CHUNKS_PER_SHARD
    or layout.shard % layout.chunk
  ):
    raise ValueError(f"`{name}` of {layout}")


def _check(manifest: Manifest, values: dict[str, Any], data: bytes) -> None:
  """Raises ValueError where a manifest is not one that a writer makes.

  Its digest is right, so this is no damage. `hash` covers what arrays hold.
  """
  kind = manifest.tokenizer.kind
  if kind not in vocabulary.TOKENIZER_FILES:
    raise ValueError(f"`tokenizer.kind` {kind!r}")
  _require("hash", values.get("hash"), manifest.hash)
  if manifest.schema != 1 and serialize(manifest) != data:
    raise ValueError("other fields, `vocab_size` or `token_dtype`")
  expected = {name for name in [manifest.tokenizer_file] if name is not None}
  for name, entry in manifest.arrays.items():
    if manifest.schema == 1:
      expected |= {f"{name}/{file}" for file in entry.layout.files()}
    else:
      expected.update(chunk_tables.files(name, entry.layout))
  if differing := sorted(expected ^ manifest.files.keys()):
    raise ValueError(
      "`files` must list what the store has, got other"
      f" {relative_names.brief(differing)}"
    )


def _require(name: str, value: Any, expected: Any) -> None:
  if value != expected:
    raise ValueError(
      f"`{name}` must be {relative_names.brief(expected)}, got"
      f" {relative_names.brief(value)}"
    )
