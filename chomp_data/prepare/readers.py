"""The documents of one input file.

Lines are numbered from 1. A line of white space is no document.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import gzip
import json
import math
import os
from typing import Any
from typing import NamedTuple
import zlib

import zstandard

from chomp_data.prepare import errors
from chomp_data.prepare import inputs

ENCODING_ERRORS = ("strict", "replace")

_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True)
class ReadOptions:
  """How documents are found in files.

  Attributes:
    text_key: The key of the text in a JSONL line.
    id_key: The key of the document's id, where a line has it.
    encoding_errors: 'strict' or 'replace' (U+FFFD for what is no UTF-8).
    raw: Whether text files are taken as bytes, without decoding.
    meta_key: The key of what is kept of a document besides its id, or None.
    meta_default: What is kept where a document has no such key; None is an
      error.
  """

  text_key: str
  id_key: str
  encoding_errors: str
  raw: bool
  meta_key: str | None = None
  meta_default: str | None = None


class Document(NamedTuple):
  """One document of a file.

  Attributes:
    name: Its id.
    text: Its text, bytes where it is not decoded.
    meta: What is kept of it besides, '' without `meta_key`.
  """

  name: str
  text: str | bytes
  meta: str


def documents(
  file: inputs.InputFile, options: ReadOptions
) -> Iterator[Document]:
  """Yields a file's documents.

  Args:
    file: What to read.
    options: How.

  Raises:
    PrepareError: If the file cannot be read, changed since it was found, or
      holds something else than documents.
  """
  if file.kind == "text":
    data = b"".join(_blocks(file))
    text = data if options.raw else _decoded(data, options, file.path)
    yield Document(file.name, text, _meta(None, options, file.path))
  else:
    for number, line in enumerate(_lines(_blocks(file)), 1):
      if line.strip():
        yield _record(file, number, line, options)
  stat = os.stat(file.path)
  if (stat.st_size, stat.st_mtime_ns) != (file.size, file.mtime_ns):
    raise errors.PrepareError(
      f"{file.path} must not change while it is read, got {stat.st_size} bytes"
      f" after {file.size}. Run again when it is complete."
    )


def _record(
  file: inputs.InputFile, number: int, line: bytes, options: ReadOptions
) -> Document:
  where = f"{file.path}:{number}"
  text = _decoded(line, options, where)
  if number == 1:
    text = text.removeprefix("\ufeff")
  try:
    record = json.loads(text)
  except (ValueError, RecursionError) as error:
    raise errors.PrepareError(
      f"{where} must be a JSON object, got {error}. Correct the line."
    ) from None
  if not isinstance(record, dict):
    raise errors.PrepareError(
      f"{where} must be a JSON object, got a {type(record).__name__}. Correct"
      " the line."
    )
  if options.text_key not in record:
    raise errors.PrepareError(
      f"{where} must have the key {options.text_key!r}, got"
      f" {sorted(record)}. Name the key of the text with --text_key."
    )
  value = record[options.text_key]
  if not isinstance(value, str):
    raise errors.PrepareError(
      f"{where} must have a string under {options.text_key!r}, got a"
      f" {type(value).__name__}. Correct the line, or --text_key."
    )
  return Document(
    _document_id(file, number, record, options),
    _scalar_text(value, options, where),
    _meta(record, options, where),
  )


def _meta(
  record: dict[str, Any] | None, options: ReadOptions, where: str
) -> str:
  """Returns what is kept of a document; `record` is None for a text file."""
  key = options.meta_key
  if key is None:
    return ""
  value = (record or {}).get(key)
  if value is None:
    if options.meta_default is None:
      found = "a text file" if record is None else str(sorted(record))
      raise errors.PrepareError(
        f"{where} must have a value under {key!r}, got {found}. Correct"
        " --meta_key, or say with --meta_default what stands for a missing"
        " one."
      )
    return options.meta_default
  number = isinstance(value, int | float) and not isinstance(value, bool)
  if number and math.isfinite(value):
    return str(value)
  if not isinstance(value, str):
    raise errors.PrepareError(
      f"{where} must have a string or a finite number under {key!r}, got"
      f" {value if number else f'a {type(value).__name__}'}. Correct the line,"
      " or --meta_key."
    )
  return _scalar_text(value, options, where)


def _document_id(
  file: inputs.InputFile,
  number: int,
  record: dict[str, Any],
  options: ReadOptions,
) -> str:
  value = record.get(options.id_key)
  if value is None:
    return f"{file.name}:{number}"
  where = f"{file.path}:{number}"
  if isinstance(value, bool) or not isinstance(value, str | int):
    raise errors.PrepareError(
      f"{where} must have a string or integer under {options.id_key!r}, got a"
      f" {type(value).__name__}. Correct the line, or --id_key."
    )
  return _scalar_text(str(value), options, where)


def _decoded(data: bytes, options: ReadOptions, where: str) -> str:
  try:
    return data.decode("utf-8", options.encoding_errors)
  except UnicodeDecodeError as error:
    raise errors.PrepareError(
      f"{where} must be UTF-8, got byte {data[error.start]:#04x} at offset"
      f" {error.start}. Convert it, or replace with"
      " --encoding_errors=replace."
    ) from None


def _scalar_text(text: str, options: ReadOptions, where: str) -> str:
  """Returns text without lone surrogates, which JSON can spell."""
  try:
    text.encode()
  except UnicodeEncodeError as error:
    if options.encoding_errors == "strict":
      raise errors.PrepareError(
        f"{where} must be valid Unicode, got {text[error.start]!r} at"
        f" character {error.start}. Correct it, or replace with"
        " --encoding_errors=replace."
      ) from None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
  return text


def _blocks(file: inputs.InputFile) -> Iterator[bytes]:
  """Yields the decompressed bytes of a file."""
  try:
    with open(file.path, "rb") as raw:
      if file.compression == "zst":
        yield from _zstd_blocks(raw)
        return
      with gzip.open(raw) if file.compression == "gz" else raw as stream:
        while block := stream.read(_BLOCK):
          yield block
  except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
    raise errors.PrepareError(
      f"{file.path} must be readable, got {error}. Correct it, or leave it out"
      " with --exclude."
    ) from None


def _zstd_blocks(raw) -> Iterator[bytes]:
  """Yields decompressed bytes; a cut frame is an error, not an end."""
  frame = None
  while block := raw.read(_BLOCK):
    while block:
      if frame is None:
        frame = zstandard.ZstdDecompressor().decompressobj()
      if data := frame.decompress(block):
        yield data
      block = frame.unused_data if frame.eof else b""
      frame = None if frame.eof else frame
  if frame is not None:
    raise EOFError("a zstd frame without its end")


def _lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
  """Yields the lines of a file, without their ends."""
  rest: list[bytes] = []
  for block in blocks:
    first, *others = block.split(b"\n")
    rest.append(first)
    if others:
      yield b"".join(rest)
      yield from others[:-1]
      rest = [others[-1]]
  if last := b"".join(rest):
    yield last
