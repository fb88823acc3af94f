"""A store's manifest: what it holds, file by file, and its identity.

`manifest.json` is canonical JSON (sorted keys, one space of indent, ASCII) and
is written last. `hash` is the store's identity: SHA-256 of what its documents,
ids and tokenizer are, without paths, times, chunking or compression. `digest`
covers every other value, and the file must be byte for byte what the values
serialise to, so that any changed byte is refused.
"""

from collections.abc import Mapping
import dataclasses
import hashlib
import json
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.stores import vocabulary
from chomp_data.stores.zarr import array_layout

FORMAT = "chomp_data store"
SCHEMA = 1
FILE = "manifest.json"
RESTORE = "Restore the store from a copy, or prepare it again with --overwrite."
ARRAYS = ("id_bytes", "id_offsets", "offsets", "tokens")
# Only where something is kept of each document besides its id.
META_ARRAYS = ("meta_bytes", "meta_offsets")
# What offsets point into.
OFFSETS = {
  "offsets": "tokens",
  "id_offsets": "id_bytes",
  "meta_offsets": "meta_bytes",
}

_MAX_SIZE = 2**62
_MAX_CHUNK = 2**30
_MAX_CHUNKS_PER_SHARD = 2**20


@dataclasses.dataclass(frozen=True)
class ArrayEntry:
  """One array: its layout and its checksums.

  Attributes:
    layout: Shape on disk.
    sha256: Hex, of the values as little-endian bytes, padding excluded.
    crc32c: uint32[num_chunks], of the decoded chunks, padding included.
  """

  layout: array_layout.ArrayLayout
  sha256: str
  crc32c: np.ndarray


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
    arrays: By name, `ARRAYS` and perhaps `META_ARRAYS`.
    files: By path relative to the store, with slashes; all but the manifest.
    prepared: How the store was made, as JSON values; not in `hash`.
  """

  num_documents: int
  num_tokens: int
  num_empty_skipped: int
  tokenizer: vocabulary.TokenizerInfo
  arrays: Mapping[str, ArrayEntry]
  files: Mapping[str, FileEntry]
  prepared: Mapping[str, Any]

  @property
  def token_dtype(self) -> np.dtype:
    """uint16 or uint32, as stored."""
    return self.arrays["tokens"].layout.numpy_dtype

  @property
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
    "schema": SCHEMA,
    "num_documents": manifest.num_documents,
    "num_tokens": manifest.num_tokens,
    "tokenizer": dataclasses.asdict(manifest.tokenizer),
    "arrays": {
      name: [entry.layout.dtype, entry.layout.size, entry.sha256]
      for name, entry in manifest.arrays.items()
    },
  }
  return hashlib.sha256(_canonical(identity)).hexdigest()


def serialize(manifest: Manifest) -> bytes:
  """Returns the bytes of `manifest.json`."""
  values: dict[str, Any] = {
    "format": FORMAT,
    "schema": SCHEMA,
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
        "crc32c": entry.crc32c.astype(">u4").tobytes().hex(),
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
  if type(schema) is not int or schema != SCHEMA:
    raise errors.StoreError(
      f"{path} must have schema {SCHEMA}, got {_brief(schema)}. Read a newer"
      " store with a newer chomp_data, or prepare it again."
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
  "dtype", "size", "chunk", "shard", "compression", "sha256", "crc32c",
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
    self.fields("the manifest", values, _FIELDS)
    if not isinstance(values["prepared"], dict):
      self.fail("prepared", "an object", values["prepared"])
    self.sha256("hash", values["hash"])
    found = values["arrays"]
    names = ARRAYS
    if isinstance(found, dict) and set(META_ARRAYS) & set(found):
      names = (*ARRAYS, *META_ARRAYS)
    found = self.fields("arrays", found, names)
    manifest = Manifest(
      **{
        name: self.integer(name, values[name], 0, _MAX_SIZE)
        for name in ("num_documents", "num_tokens", "num_empty_skipped")
      },
      tokenizer=self.tokenizer(values["tokenizer"]),
      arrays={name: self.array(name, found[name]) for name in names},
      files=self.files(values["files"]),
      prepared=values["prepared"],
    )
    self.consistent(manifest, values)
    return manifest

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

  def array(self, name: str, value: Any) -> ArrayEntry:
    name = f"arrays.{name}"
    value = self.fields(name, value, _ARRAY_FIELDS)
    self.choice(f"{name}.dtype", value["dtype"], array_layout.DTYPES)
    self.choice(
      f"{name}.compression", value["compression"], array_layout.COMPRESSIONS
    )
    self.integer(f"{name}.size", value["size"], 0, _MAX_SIZE)
    chunk = self.integer(f"{name}.chunk", value["chunk"], 1, _MAX_CHUNK)
    shard = self.integer(f"{name}.shard", value["shard"], 1, _MAX_SIZE)
    if shard % chunk or shard // chunk > _MAX_CHUNKS_PER_SHARD:
      self.fail(f"{name}.shard", f"some chunks of {chunk}", shard)
    self.sha256(f"{name}.sha256", value["sha256"])
    shape = array_layout.ArrayLayout(
      **{
        field.name: value[field.name]
        for field in dataclasses.fields(array_layout.ArrayLayout)
      }
    )
    table = value["crc32c"]
    digits = 8 * shape.num_chunks
    # The length is compared first: nothing is allocated by a claimed size.
    if not isinstance(table, str) or len(table) != digits:
      self.fail(f"{name}.crc32c", f"{digits} hex digits", table)
    try:
      crcs = np.frombuffer(bytes.fromhex(table), ">u4").astype(np.uint32)
    except ValueError:
      self.fail(f"{name}.crc32c", f"{digits} hex digits", table)
    if len(crcs) != shape.num_chunks:
      self.fail(f"{name}.crc32c", f"{digits} hex digits", table)
    return ArrayEntry(shape, value["sha256"], crcs)

  def files(self, value: Any) -> dict[str, FileEntry]:
    if not isinstance(value, dict):
      self.fail("files", "an object", value)
    found = {}
    for name, entry in value.items():
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
    for name, shape in sizes.items():
      if name in OFFSETS:
        wanted[f"arrays.{name}.dtype"] = (shape.dtype, "int64")
        wanted[f"arrays.{name}.size"] = (shape.size, offsets)
      elif name != "tokens":
        wanted[f"arrays.{name}.dtype"] = (shape.dtype, "uint8")
    for name, (found, expected) in wanted.items():
      if found != expected:
        self.fail(name, expected, found)
    kept = vocabulary.TOKENIZER_FILES[manifest.tokenizer.kind]
    names = len(sizes) + (kept is not None)
    names += sum(shape.num_shards for shape in sizes.values())
    if len(manifest.files) != names:
      self.fail("files", f"{names} files", len(manifest.files))
    expected = [
      f"{name}/{file}" for name in sizes for file in sizes[name].files()
    ]
    if kept is not None:
      expected.append(kept)
    for name in expected:
      if name not in manifest.files:
        self.fail("files", f"one that lists {name}", sorted(manifest.files))
    if kept is not None:
      found = manifest.files[kept].sha256
      if found != manifest.tokenizer.sha256:
        self.fail(f"files.{kept}", manifest.tokenizer.sha256, found)
