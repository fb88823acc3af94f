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
than a block of `tree_hash`.
"""

from collections.abc import Mapping
import dataclasses
import functools
import hashlib
import json
import math
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.stores import relative_names
from chomp_data.stores import vocabulary
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import chunk_tables

FORMAT = "chomp_data store"
SCHEMA = 2
SCHEMAS = (1, 2)
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
  """

  layout: array_layout.ArrayLayout
  sha256: str
  num_bytes: int
  crc32c: np.ndarray | None = None


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
    files: By path relative to the store, with slashes: tables of chunks and
      the tokenizer's file; in schema 1 all but the manifest.
    prepared: How the store was made, as JSON values; not in `hash`.
    levels: Weights of the levels of tokens, where the store has labels.
    schema: One of `SCHEMAS`.
  """

  num_documents: int
  num_tokens: int
  num_empty_skipped: int
  tokenizer: vocabulary.TokenizerInfo
  arrays: Mapping[str, ArrayEntry]
  files: Mapping[str, FileEntry]
  prepared: Mapping[str, Any]
  levels: tuple[float, ...] = ()
  schema: int = SCHEMA

  @property
  def num_bytes(self) -> int:
    """Bytes of the store on disk, but for the manifest and zarr's metadata."""
    arrays = sum(entry.num_bytes for entry in self.arrays.values())
    own = self.files.items()
    return arrays + sum(e.size for name, e in own if "/c/" not in name)

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
  return hashlib.sha256(_canonical(identity)).hexdigest()


def serialize(manifest: Manifest) -> bytes:
  """Returns the bytes of `manifest.json`, of the newest schema."""
  values: dict[str, Any] = {
    "format": FORMAT,
    "schema": SCHEMA,
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
  return _canonical(values | {"digest": _digest(values)})


def parse(data: bytes, path: str) -> Manifest:
  """Parses and checks the bytes of `manifest.json`.

  Args:
    data: The file's content.
    path: The file, for messages.

  Returns:
    The manifest, every value checked against the others.

  Raises:
    StoreError: If it is not a manifest, is of a newer schema, was altered, or
      contradicts itself.
  """
  try:
    values = json.loads(data)
  except (ValueError, RecursionError) as error:
    raise errors.StoreError(
      f"{path} must be JSON, got {_brief(error)}. {RESTORE}"
    ) from None
  if not isinstance(values, dict) or values.get("format") != FORMAT:
    raise errors.StoreError(
      f"{path} must have format {FORMAT!r}, got another file. Give the"
      " directory that tools/prepare.py wrote."
    )
  schema = values.get("schema")
  if type(schema) is not int or schema not in SCHEMAS:
    raise errors.StoreError(
      f"{path} must have a schema of {', '.join(map(str, SCHEMAS))}, got"
      f" {_brief(schema)}. Read a newer store with a newer chomp_data, or"
      " prepare it again."
    )
  digest = values.pop("digest", None)
  expected = _digest(values)
  if digest != expected or data != _canonical(values | {"digest": digest}):
    raise errors.StoreError(
      f"{path} must be as it was written, with digest {expected}, got"
      f" {_brief(digest)} or other bytes. {RESTORE}"
    )
  reader = _Reader(path)
  manifest = reader.manifest(values)
  if manifest.hash != values["hash"]:
    reader.fail("hash", manifest.hash, values["hash"])
  return manifest


_FIELDS = {
  "format", "schema", "num_documents", "num_tokens", "num_empty_skipped",
  "vocab_size", "token_dtype", "tokenizer", "arrays", "files", "prepared",
  "hash",
}  # fmt: skip
_ARRAY_FIELDS = {
  "dtype", "size", "chunk", "shard", "compression", "sha256",
}  # fmt: skip


def _canonical(values: Any) -> bytes:
  return (json.dumps(values, indent=1, sort_keys=True) + "\n").encode()


def _digest(values: Mapping[str, Any]) -> str:
  return hashlib.sha256(_canonical(values)).hexdigest()


def _brief(value: Any) -> str:
  text = str(value) if isinstance(value, Exception) else repr(value)
  return text if len(text) <= 80 else text[:77] + "..."


class _Reader:
  """Turns JSON values into a manifest, naming what does not fit."""

  def __init__(self, path: str):
    self.path = path

  def fail(self, name: str, rule: Any, found: Any):
    raise errors.StoreError(
      f"`{name}` of {self.path} must be {rule}, got {_brief(found)}. {RESTORE}"
    )

  def integer(self, name: str, value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
      self.fail(name, f"an integer in {low} .. {high}", value)
    return value

  def choice(self, name: str, value: Any, choices) -> str:
    if not isinstance(value, str) or value not in choices:
      self.fail(name, f"one of {', '.join(choices)}", value)
    return value

  def sha256(self, name: str, value: Any) -> str:
    if (
      not isinstance(value, str)
      or len(value) != 64
      or not set(value) <= set("0123456789abcdef")
    ):
      self.fail(name, "a SHA-256 of 64 hex digits", value)
    return value

  def fields(self, name: str, value: Any, fields) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != set(fields):
      found = sorted(value) if isinstance(value, dict) else value
      self.fail(name, f"an object of {', '.join(sorted(fields))}", found)
    return value

  def manifest(self, values: dict[str, Any]) -> Manifest:
    schema = values["schema"]
    fields = _FIELDS if schema == 1 else _FIELDS | {"levels"}
    self.fields("the manifest", values, fields)
    if not isinstance(values["prepared"], dict):
      self.fail("prepared", "an object", values["prepared"])
    self.sha256("hash", values["hash"])
    found = values["arrays"]
    names = list(ARRAYS)
    if isinstance(found, dict):
      known = OPTIONAL_ARRAYS[:1] if schema == 1 else OPTIONAL_ARRAYS
      names += [n for group in known if set(group) & set(found) for n in group]
    found = self.fields("arrays", found, names)
    files = self.files(values["files"])
    manifest = Manifest(
      **{
        name: self.integer(name, values[name], 0, _MAX_SIZE)
        for name in ("num_documents", "num_tokens", "num_empty_skipped")
      },
      tokenizer=self.tokenizer(values["tokenizer"]),
      arrays={name: self.array(name, found[name], files) for name in names},
      files=files,
      prepared=values["prepared"],
      levels=self.levels(values.get("levels", [])),
      schema=schema,
    )
    self.consistent(manifest, values)
    return manifest

  def levels(self, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not all(
      type(own) is float and 0 <= own < math.inf for own in value
    ):
      self.fail("levels", "weights of 0 or more", value)
    if value and (
      tuple(value[:2]) != FIRST_LEVELS
      or not 2 <= len(value) == len(set(value)) <= MAX_LEVELS
    ):
      self.fail("levels", f"{FIRST_LEVELS} and other weights, each once", value)
    return tuple(value)

  def tokenizer(self, value: Any) -> vocabulary.TokenizerInfo:
    names = [
      field.name for field in dataclasses.fields(vocabulary.TokenizerInfo)
    ]
    value = self.fields("tokenizer", value, names)
    self.choice("tokenizer.kind", value["kind"], vocabulary.TOKENIZER_FILES)
    self.sha256("tokenizer.sha256", value["sha256"])
    size = value["vocab_size"]
    self.integer("tokenizer.vocab_size", size, 1, vocabulary.MAX_VOCAB_SIZE)
    for name in ("pad_id", "eos_id", "bos_id"):
      if value[name] is not None:
        self.integer(f"tokenizer.{name}", value[name], 0, size - 1)
    for name in ("adds_bos", "adds_eos"):
      if type(value[name]) is not bool:
        self.fail(f"tokenizer.{name}", "true or false", value[name])
    return vocabulary.TokenizerInfo(**value)

  def array(
    self, name: str, value: Any, files: Mapping[str, FileEntry]
  ) -> ArrayEntry:
    own = f"arrays.{name}"
    if not isinstance(value, dict) or "crc32c" not in value:
      fields = {*_ARRAY_FIELDS, "num_bytes"}
    else:
      fields = {*_ARRAY_FIELDS, "crc32c"}
    value = self.fields(own, value, fields)
    self.choice(f"{own}.dtype", value["dtype"], array_layout.DTYPES)
    self.choice(
      f"{own}.compression", value["compression"], array_layout.COMPRESSIONS
    )
    self.integer(f"{own}.size", value["size"], 0, _MAX_SIZE)
    chunk = self.integer(f"{own}.chunk", value["chunk"], 1, _MAX_CHUNK)
    shard = self.integer(f"{own}.shard", value["shard"], 1, _MAX_SIZE)
    if shard % chunk or shard // chunk > _MAX_CHUNKS_PER_SHARD:
      self.fail(f"{own}.shard", f"some chunks of {chunk}", shard)
    self.sha256(f"{own}.sha256", value["sha256"])
    shape = array_layout.ArrayLayout(
      **{
        field.name: value[field.name]
        for field in dataclasses.fields(array_layout.ArrayLayout)
      }
    )
    if "crc32c" in fields:
      shards = [files.get(f"{name}/{file}") for file in shape.files()[1:]]
      size = sum(entry.size for entry in shards if entry is not None)
      crcs = self.crcs(f"{own}.crc32c", value["crc32c"], shape.num_chunks)
      return ArrayEntry(shape, value["sha256"], size, crcs)
    size = self.integer(f"{own}.num_bytes", value["num_bytes"], 0, _MAX_SIZE)
    if shape.compression == "none" and size != shape.uncompressed_bytes:
      self.fail(f"{own}.num_bytes", shape.uncompressed_bytes, size)
    return ArrayEntry(shape, value["sha256"], size)

  def crcs(self, name: str, table: Any, num_chunks: int) -> np.ndarray:
    digits = 8 * num_chunks
    # The length is compared first: nothing is allocated by a claimed size.
    if not isinstance(table, str) or len(table) != digits:
      self.fail(name, f"{digits} hex digits", table)
    try:
      crcs = np.frombuffer(bytes.fromhex(table), ">u4").astype(np.uint32)
    except ValueError:
      self.fail(name, f"{digits} hex digits", table)
    if len(crcs) != num_chunks:
      self.fail(name, f"{digits} hex digits", table)
    return crcs

  def files(self, value: Any) -> dict[str, FileEntry]:
    if not isinstance(value, dict):
      self.fail("files", "an object", value)
    found = {}
    for name, entry in value.items():
      relative_names.check(name, self.path)
      entry = self.fields(f"files.{name}", entry, ("size", "sha256"))
      found[name] = FileEntry(
        self.integer(f"files.{name}.size", entry["size"], 0, _MAX_SIZE),
        self.sha256(f"files.{name}.sha256", entry["sha256"]),
      )
    return found

  def consistent(self, manifest: Manifest, values: dict[str, Any]) -> None:
    """Checks that the parts of a manifest agree."""
    sizes = {name: entry.layout for name, entry in manifest.arrays.items()}
    offsets = manifest.num_documents + 1
    wanted = {
      "vocab_size": (values["vocab_size"], manifest.tokenizer.vocab_size),
      "token_dtype": (
        values["token_dtype"],
        token_dtype(manifest.tokenizer.vocab_size),
      ),
      "arrays.tokens.dtype": (sizes["tokens"].dtype, values["token_dtype"]),
      "arrays.tokens.size": (sizes["tokens"].size, manifest.num_tokens),
    }
    sizes_of = dict.fromkeys(OFFSETS, offsets)
    if "label_starts" in sizes:
      runs = sizes["label_starts"].size
      most = manifest.num_tokens
      self.integer("arrays.label_starts.size", runs, min(1, most), most)
      sizes_of |= {"label_levels": runs, "label_sums": runs + 1}
    if "document_weights" in sizes:
      sizes_of["document_weights"] = manifest.num_documents
    for name, shape in sizes.items():
      if name in DTYPES:
        wanted[f"arrays.{name}.dtype"] = (shape.dtype, DTYPES[name])
      if name in sizes_of:
        wanted[f"arrays.{name}.size"] = (shape.size, sizes_of[name])
    for name, entry in manifest.arrays.items():
      in_manifest = entry.crc32c is not None
      wanted[f"arrays.{name}.crc32c"] = (in_manifest, manifest.schema == 1)
    for name, (found, expected) in wanted.items():
      if found != expected:
        self.fail(name, expected, found)
    if ("label_starts" in sizes) != bool(manifest.levels):
      self.fail("levels", "those of the arrays of labels", manifest.levels)
    listed = self.listed(manifest, len(manifest.files))
    for name, size in listed.items():
      if name not in manifest.files:
        self.fail("files", f"one that lists {name}", sorted(manifest.files))
      found = manifest.files[name].size
      if size not in (None, found):
        self.fail(f"files.{name}.size", size, found)
    if len(manifest.files) != len(listed):
      self.fail("files", f"{len(listed)} files", len(manifest.files))
    file = manifest.tokenizer_file
    if file is not None:
      found = manifest.files[file].sha256
      if found != manifest.tokenizer.sha256:
        self.fail(f"files.{file}", manifest.tokenizer.sha256, found)

  def listed(self, manifest: Manifest, most: int) -> dict[str, int | None]:
    """Returns the files that must be listed, and their sizes where known."""
    layouts = {name: entry.layout for name, entry in manifest.arrays.items()}
    names: dict[str, int | None] = {}
    if manifest.tokenizer_file is not None:
      names[manifest.tokenizer_file] = None
    # Counted first: no list is made by a claimed size.
    count = len(names)
    for shape in layouts.values():
      tables = -(-shape.num_chunks // chunk_tables.CHUNKS)
      count += shape.num_shards + 1 if manifest.schema == 1 else tables
    if count != most:
      self.fail("files", f"{count} files", most)
    for name, shape in layouts.items():
      if manifest.schema == 1:
        names |= dict.fromkeys(f"{name}/{file}" for file in shape.files())
      else:
        names |= chunk_tables.files(name, shape)
    return names
