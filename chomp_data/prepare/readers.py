"""The documents of one input file.

Lines are numbered from 1. A line of white space is no document.
"""

from collections.abc import Generator
from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import gzip
import json
import math
import os
from typing import Any
from typing import IO
from typing import NamedTuple
import zlib

import zstandard

from chomp_data import errors
from chomp_data.prepare import inputs
from chomp_data.prepare import skips

ENCODING_ERRORS = ("strict", "replace")

_BLOCK = 1 << 20
_MISSING: Any = object()
_MOST_KEYS = 20


@dataclasses.dataclass(frozen=True)
class ReadOptions:
  """How documents are found in files.

  Attributes:
    text_key: The key of the text in a JSONL line; dots lead into objects, here
      and below, unless the line has the key as it is.
    id_key: The key of the document's id, where a line has it.
    encoding_errors: 'strict' or 'replace' (U+FFFD for what is no UTF-8).
    raw: Whether text files are taken as bytes, without decoding; they must be
      UTF-8 even so, unless encoding errors are replaced.
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
  file: inputs.InputFile,
  options: ReadOptions,
  skipped: skips.Skips | None = None,
) -> Iterator[Document]:
  """Yields a file's documents.

  Args:
    file: What to read.
    options: How.
    skipped: Counts the lines and files that no document can be made of, which
      are left out; with None they are errors. A damaged archive is left out
      whole.

  Raises:
    BadInput: If a line or the file holds something else than documents.
    PrepareError: If the file cannot be read, or changed since it was found.
  """
  if skipped is None or _is_whole(file, skipped):
    for number, data in _pieces(file):
      try:
        document = _document(file, number, data, options)
      except errors.BadInput as error:
        if skipped is None:
          raise
        skipped.add(file.name, number, error)
      else:
        yield document
  stat = os.stat(file.path)
  if (stat.st_size, stat.st_mtime_ns) != (file.size, file.mtime_ns):
    raise errors.PrepareError(
      f"{file.path} must not change while it is read, got {stat.st_size} bytes"
      f" after {file.size}. Run again when it is complete."
    )


def _is_whole(file: inputs.InputFile, skipped: skips.Skips) -> bool:
  """Whether a file can be decompressed to its end; counts it if not."""
  if file.compression != "none":
    try:
      for _ in blocks(file):
        pass
    except errors.BadInput as error:
      skipped.add(file.name, None, error)
      return False
  return True


def _pieces(file: inputs.InputFile) -> Iterator[tuple[int | None, bytes]]:
  """Yields (number, bytes) of lines; of a text file all, and no number."""
  if file.kind == "text":
    yield None, b"".join(blocks(file))
    return
  for number, line in enumerate(_lines(blocks(file)), 1):
    if line.strip():
      yield number, line


def _document(
  file: inputs.InputFile, number: int | None, data: bytes, options: ReadOptions
) -> Document:
  if number is None:
    text = _decoded(data, options, file.path)
    meta = _meta(None, options, file.path)
    return Document(file.name, data if options.raw else text, meta)
  where = f"{file.path}:{number}"
  text = _decoded(data, options, where)
  if number == 1:
    text = text.removeprefix("\ufeff")
  try:
    record = json.loads(text)
  except (ValueError, RecursionError) as error:
    raise errors.BadInput(
      where, f"must be a JSON object, got {error}.", "Correct the line."
    ) from None
  if not isinstance(record, dict):
    raise errors.BadInput(
      where,
      f"must be a JSON object, got a {type(record).__name__}.",
      "Correct the line.",
    )
  value = _value(record, options.text_key)
  if value is _MISSING:
    raise errors.BadInput(
      where,
      f"must have the key {options.text_key!r}, got {_keys(record)}.",
      "Name the key of the text with --text_key.",
    )
  if not isinstance(value, str):
    raise errors.BadInput(
      where,
      f"must have a string under {options.text_key!r}, got a"
      f" {type(value).__name__}.",
      "Correct the line, or --text_key.",
    )
  return Document(
    _document_id(file, number, record, options),
    _scalar_text(value, options, where),
    _meta(record, options, where),
  )


def _value(record: dict[str, Any], key: str) -> Any:
  """Returns what lies under a key, or `_MISSING`.

  {"a.b": 1, "a": {"b": 2, "c": 3}}
  a.b -> 1      a key of the record itself comes first
  a.c -> 3      else dots lead into objects
  """
  if key in record:
    return record[key]
  value: Any = record
  for part in key.split("."):
    if not isinstance(value, dict) or part not in value:
      return _MISSING
    value = value[part]
  return value


def _keys(record: dict[str, Any]) -> str:
  """Names the keys of a record and of its objects, for messages."""
  names = []
  for key, value in sorted(record.items()):
    names.append(key)
    if isinstance(value, dict):
      names += [f"{key}.{inner}" for inner in sorted(value)]
  more = len(names) - _MOST_KEYS
  return f"{names[:_MOST_KEYS]}{f' and {more} more' if more > 0 else ''}"


def _meta(
  record: dict[str, Any] | None, options: ReadOptions, where: str
) -> str:
  """Returns what is kept of a document; `record` is None for a text file."""
  key = options.meta_key
  if key is None:
    return ""
  value = _MISSING if record is None else _value(record, key)
  if value is _MISSING or value is None:
    if options.meta_default is None:
      found = "a text file" if record is None else _keys(record)
      raise errors.BadInput(
        where,
        f"must have a value under {key!r}, got {found}.",
        "Correct --meta_key, or say with --meta_default what stands for a"
        " missing one.",
      )
    return options.meta_default
  number = isinstance(value, int | float) and not isinstance(value, bool)
  if number and math.isfinite(value):
    return str(value)
  if not isinstance(value, str):
    raise errors.BadInput(
      where,
      f"must have a string or a finite number under {key!r}, got"
      f" {value if number else f'a {type(value).__name__}'}.",
      "Correct the line, or --meta_key.",
    )
  return _scalar_text(value, options, where)


def _document_id(
  file: inputs.InputFile,
  number: int,
  record: dict[str, Any],
  options: ReadOptions,
) -> str:
  value = _value(record, options.id_key)
  if value is _MISSING or value is None:
    return f"{file.name}:{number}"
  where = f"{file.path}:{number}"
  if isinstance(value, bool) or not isinstance(value, str | int):
    raise errors.BadInput(
      where,
      f"must have a string or integer under {options.id_key!r}, got a"
      f" {type(value).__name__}.",
      "Correct the line, or --id_key.",
    )
  return _scalar_text(str(value), options, where)


def _decoded(data: bytes, options: ReadOptions, where: str) -> str:
  try:
    return data.decode("utf-8", options.encoding_errors)
  except UnicodeDecodeError as error:
    raise not_utf8(where, data[error.start], error.start) from None


def not_utf8(where: str, byte: int, offset: int) -> errors.BadInput:
  """Returns the error of a byte that is no UTF-8."""
  return errors.BadInput(
    where,
    f"must be UTF-8, got byte {byte:#04x} at offset {offset}.",
    "Convert it, or replace with --encoding_errors=replace.",
  )


def _scalar_text(text: str, options: ReadOptions, where: str) -> str:
  """Returns text without lone surrogates, which JSON can spell."""
  try:
    text.encode()
  except UnicodeEncodeError as error:
    if options.encoding_errors == "strict":
      raise errors.BadInput(
        where,
        f"must be valid Unicode, got {text[error.start]!r} at character"
        f" {error.start}.",
        "Correct it, or replace with --encoding_errors=replace.",
      ) from None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
  return text


def blocks(
  file: inputs.InputFile, block: int | None = None
) -> Generator[bytes, None, None]:
  """Yields the decompressed bytes of a file.

  Args:
    file: Which.
    block: Bytes that are read at once, or None for many.

  Raises:
    BadInput: If it cannot be decompressed.
    PrepareError: If it cannot be read.
  """
  block = block or _BLOCK
  try:
    with open(file.path, "rb") as raw:
      if file.compression == "zst":
        yield from _zstd_blocks(raw, block)
        return
      with gzip.open(raw) if file.compression == "gz" else raw as stream:
        while data := stream.read(block):
          yield data
  except (gzip.BadGzipFile, EOFError, zlib.error, zstandard.ZstdError) as error:
    raise errors.BadInput(
      file.path,
      f"must be a whole .{file.compression} archive, got {error}.",
      "Correct it, or leave it out with --exclude.",
    ) from None
  except OSError as error:
    raise errors.PrepareError(
      f"{file.path} must be readable, got {error}. Correct it, or leave it out"
      " with --exclude."
    ) from None


def _zstd_blocks(raw: IO[bytes], size: int) -> Iterator[bytes]:
  """Yields decompressed bytes; a cut frame is an error, not an end."""
  frame = None
  while block := raw.read(size):
    while block:
      if frame is None:
        frame = zstandard.ZstdDecompressor().decompressobj()
      if data := frame.decompress(block):
        yield data
      block = frame.unused_data if frame.eof else b""
      frame = None if frame.eof else frame
  if frame is not None:
    raise EOFError("a zstd frame without its end")


def _lines(data: Iterable[bytes]) -> Iterator[bytes]:
  """Yields the lines of a file, without their ends."""
  rest: list[bytes] = []
  for block in data:
    first, *others = block.split(b"\n")
    rest.append(first)
    if others:
      yield b"".join(rest)
      yield from others[:-1]
      rest = [others[-1]]
  if last := b"".join(rest):
    yield last
