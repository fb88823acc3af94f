# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Detects which files are inputs, and of which kind.

A file's name and first bytes decide. JSON lines are detected by name; tables
and records by name, or by their first bytes. Text may have any other name, or
none (LICENSE), unless the name is that of another format; it is UTF-8 without
NUL and with few control characters. Anything else is refused, with what it
seems to be.
"""

import codecs
import dataclasses
import json
import os
import re
from typing import Any

from chomp_data import errors
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare.reading import base
from chomp_data.prepare.reading import byte_blocks

HEAD_BYTES = 2**16

# The first bytes of formats. Text may begin with some of them, so only files
# that are not text are compared.
_MAGIC = (
  (rb"PAR1", "Parquet"),
  (rb"\x1f\x8b", "gzip"),
  (rb"\x28\xb5\x2f\xfd", "zstd"),
  (rb"BZh", "bzip2"),
  (rb"\xfd7zXZ\x00", "xz"),
  (rb"7z\xbc\xaf\x27\x1c", "7z"),
  (rb"PK\x03\x04", "zip"),
  (rb"ARROW1|\xff\xff\xff\xff", "Arrow"),
  (rb"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f", "ArrayRecord"),
  (rb"Obj\x01", "Avro"),
  (rb"\x93NUMPY", "a NumPy array"),
  (rb"\x89HDF", "HDF5"),
  (rb"SQLite format 3\x00", "SQLite"),
  (rb"\x80[\x02-\x05]", "a pickle"),
  (rb"\x89PNG", "PNG"),
  (rb"\xff\xd8\xff", "JPEG"),
  (rb"GIF8", "GIF"),
  (rb"%PDF-", "PDF"),
  (rb"\x7fELF", "ELF"),
  (rb"\xff\xfe|\xfe\xff", "UTF-16"),
)  # fmt: skip

# Files of these names are never text, whatever they hold.
_NAMES = {
  ".orc": "ORC", ".avro": "Avro", ".tfrecord": "TFRecord",
  ".bin": "binary data", ".model": "a model",
  ".pt": "a model", ".pth": "a model", ".ckpt": "a model", ".onnx": "a model",
  ".gguf": "a model", ".safetensors": "a model", ".npy": "a NumPy array",
  ".npz": "NumPy arrays", ".pkl": "a pickle", ".pickle": "a pickle",
  ".h5": "HDF5", ".hdf5": "HDF5", ".db": "a database", ".sqlite": "SQLite",
  ".pdf": "PDF", ".gz": "gzip", ".tgz": "gzip", ".zst": "zstd",
  ".bz2": "bzip2", ".xz": "xz", ".7z": "7z", ".zip": "zip", ".jar": "zip",
  ".whl": "zip", ".docx": "zip", ".xlsx": "zip", ".tar": "tar",
  ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".gif": "GIF",
  ".webp": "WebP", ".mp3": "sound", ".wav": "sound", ".mp4": "video",
  ".pyc": "byte code", ".class": "byte code", ".so": "a program",
  ".exe": "a program", ".dll": "a program",
}  # fmt: skip

_BY_NAME = " by its name"
_PACKED = "Unpack it: only JSON lines are read packed (.jsonl.gz, .jsonl.zst)."
_ADVICE = {
  "Parquet": "Give it a name that ends in .parquet.",
  "Arrow": "Give it a name that ends in .arrow.",
  "ArrayRecord": "Give it a name that ends in .array_record.",
  "UTF-16": "Convert it to UTF-8.",
  "JSON lines": "Give it a name that ends in .jsonl.",
  "a JSON array": "Write an object a line, as `jq -c '.[]'` does.",
  "JSON over several lines": "Write an object a line, as `jq -c .` does.",
  **dict.fromkeys(("gzip", "zstd", "bzip2", "xz", "7z", "zip", "tar"), _PACKED),
}
_LEAVE_OUT = (
  "Leave it out with --exclude, or all that cannot be read with"
  " --on_error=skip."
)

# Besides white space: bell, backspace and escape are in logs of terminals.
_CONTROLS = bytes(
  c for c in (*range(32), 127) if c not in b"\a\b\t\n\v\f\r\x1b"
)
_MOST_CONTROLS = 0.1


@dataclasses.dataclass(frozen=True)
class PlannedFile:
  """A file that was looked at.

  Attributes:
    file: With its kind, and the version that it has.
    ranges: Of each piece the begin, end, first record and size, as
      `base.InputPiece` has them; none if the file is refused.
    problem: Why it is refused, the arguments of `errors.BadInput`.
  """

  file: base.InputFile
  ranges: tuple[tuple[int, int, int | None, int], ...] = ()
  problem: tuple[str, ...] = ()

  @property
  def pieces(self) -> list[base.InputPiece]:
    """Its pieces, in order."""
    return [base.InputPiece(self.file, *edges) for edges in self.ranges]

  @property
  def error(self) -> errors.BadInput | None:
    """Why it is refused, or None."""
    return errors.BadInput(*self.problem) if self.problem else None


def look(
  file: base.InputFile, part_bytes: int, options: records.ReadOptions
) -> PlannedFile:
  """Detects the kind of a file, checks and splits it.

  Args:
    file: From `inputs.discover`.
    part_bytes: About how many bytes of it a piece is.
    options: How documents are read.

  Raises:
    PrepareError: If it cannot be opened, or has changed since it was listed.
    StoreError: If an object cannot be read.
  """
  pieces, problem = [], ()
  with base.ends_of(file) as opened:
    try:
      kind = file.kind
      if kind in ("text", "jsonl"):
        kind = _detected(file, opened, options)
        file = dataclasses.replace(file, kind=kind)
      kinds = readers.INPUT_KINDS
      pieces = kinds[kind].split(file, opened, part_bytes, options)
    except errors.BadInput as error:
      problem = error.args
    file = base.with_version(file, opened)
  ranges = tuple((p.begin, p.end, p.first, p.size) for p in pieces)
  return PlannedFile(file, ranges, problem)


def _detected(
  file: base.InputFile, opened: Any, options: records.ReadOptions
) -> str:
  """Returns the kind of a file whose name says text or JSON lines."""
  head = next(byte_blocks.unpacked(file, opened, HEAD_BYTES), b"")[:HEAD_BYTES]
  opened.seek(0)
  is_text = _looks_like_text(head) and _invalid_utf8(head) is None
  if file.kind == "text" and not is_text:
    for kind, reader in readers.INPUT_KINDS.items():
      if head.startswith(reader.marks):
        return kind
  _check_text(file, head, options)
  return file.kind


def _check_text(
  file: base.InputFile, head: bytes, options: records.ReadOptions
) -> None:
  """Raises BadInput unless a file is text, or JSON lines by its name."""
  invalid = _invalid_utf8(head)
  what = _seems(file, head, invalid is None)
  if what:
    advice = _ADVICE.get(what.removesuffix(_BY_NAME))
    raise errors.BadInput(
      file.path,
      "must be UTF-8 text, JSON lines (.jsonl, .ndjson, .json; also .gz and"
      f" .zst of these), Parquet, Arrow or ArrayRecord, got {what}.",
      f"{advice} Or leave it out: --exclude, --on_error=skip."
      if advice
      else _LEAVE_OUT,
      "no input",
    )
  strict = file.kind == "text" and options.encoding_errors == "strict"
  if strict and invalid is not None:
    raise records.not_utf8(file.path, head[invalid], invalid)


def _seems(file: base.InputFile, head: bytes, is_utf8: bool) -> str:
  """Returns what a file seems to be that cannot be read, else ''."""
  is_text = _looks_like_text(head)
  if not (is_text and is_utf8) or head.startswith(b"%PDF-"):
    for magic, what in _MAGIC:
      if re.match(magic, head):
        return what
    if _is_sentencepiece(head):
      return "a SentencePiece model"
  name = os.path.basename(file.path).lower()
  by_name = _NAMES.get(os.path.splitext(name)[1], "")
  if file.kind == "text" and by_name:
    return f"{by_name}{_BY_NAME if is_text else ''}"
  if file.kind == "jsonl":
    # Anything else that is wrong is wrong in a line; the reader names it.
    return _json_document(head) if _is_plain_json(name) else ""
  if not is_text:
    return "binary data"
  return "JSON lines" if "." not in name and _begins_with_object(head) else ""


def _is_plain_json(name: str) -> bool:
  """Returns whether a name may be of JSON as well as of JSON lines."""
  return name.removesuffix(".gz").removesuffix(".zst").endswith(".json")


def _invalid_utf8(head: bytes) -> int | None:
  """Returns the offset of the first byte that is no UTF-8, or None."""
  try:
    # A character may be cut at the end of the head.
    codecs.getincrementaldecoder("utf-8")().decode(head, len(head) < HEAD_BYTES)
  except UnicodeDecodeError as error:
    return error.start
  return None


def _looks_like_text(head: bytes) -> bool:
  """Returns whether bytes have no NUL and few control characters."""
  controls = len(head) - len(head.translate(None, _CONTROLS))
  return b"\0" not in head and controls <= _MOST_CONTROLS * len(head)


def _is_sentencepiece(head: bytes) -> bool:
  """Returns whether a file begins with a piece: a string, then a float."""
  if len(head) < 5 or head[0] != 0x0A or head[2] != 0x0A:
    return False
  return head[4 + head[3] :][:1] == b"\x15"


def _json_document(head: bytes) -> str:
  """Returns which JSON a file holds that is not an object a line, or ''."""
  text = head.removeprefix(codecs.BOM_UTF8).lstrip()
  if text.startswith(b"["):
    return "a JSON array"
  # After a first line that is merely damaged comes an object.
  rest = text.partition(b"\n")[2].lstrip()
  is_split = text.startswith(b"{") and rest and not rest.startswith(b"{")
  if is_split and not _begins_with_object(head):
    return "JSON over several lines"
  return ""


def _begins_with_object(head: bytes) -> bool:
  """Returns whether the first line is a JSON object."""
  line = head.removeprefix(codecs.BOM_UTF8).lstrip().partition(b"\n")[0]
  try:
    value: Any = json.loads(line)
  except (ValueError, RecursionError):
    return False
  return isinstance(value, dict)
