# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which of the files that were found are inputs, and of which kind.

A file is recognised by its name and by its beginning. JSON lines go by their
name; tables and records by theirs, or by how they begin. Text may have any
other name, or none (LICENSE), unless the name says that it is something else;
it is UTF-8 without NUL and with few control characters. Whatever is none of
these is refused, and said what it seems to be.
"""

import codecs
from collections.abc import Sequence
import contextlib
import dataclasses
import json
import os

from absl import logging

from chomp_data import errors
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare.reading import base
from chomp_data.prepare.reading import byte_blocks

_HEAD = 2**16

# What data of a kind begins with. Asked only of what is no text: a text may
# begin with some of them.
_BEGINS = (
  (b"PAR1", "Parquet"),
  (b"\x1f\x8b", "gzip"),
  (b"\x28\xb5\x2f\xfd", "zstd"),
  (b"BZh", "bzip2"),
  (b"\xfd7zXZ\x00", "xz"),
  (b"7z\xbc\xaf\x27\x1c", "7z"),
  (b"PK\x03\x04", "zip"),
  (b"ARROW1", "Arrow"),
  (b"\xff\xff\xff\xff", "Arrow"),
  (b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f", "ArrayRecord"),
  (b"Obj\x01", "Avro"),
  (b"\x93NUMPY", "a NumPy array"),
  (b"\x89HDF", "HDF5"),
  (b"SQLite format 3\x00", "SQLite"),
  (b"\x80\x02", "a pickle"),
  (b"\x80\x03", "a pickle"),
  (b"\x80\x04", "a pickle"),
  (b"\x80\x05", "a pickle"),
  (b"\x89PNG", "PNG"),
  (b"\xff\xd8\xff", "JPEG"),
  (b"GIF8", "GIF"),
  (b"%PDF-", "PDF"),
  (b"\x7fELF", "ELF"),
  (b"\xff\xfe", "UTF-16"),
  (b"\xfe\xff", "UTF-16"),
)

# By name never text, whatever they hold.
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

_ROWS_OF_TEXT = (".csv", ".tsv")

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


def recognise(
  files: Sequence[base.InputFile], options: records.ReadOptions
) -> tuple[list[base.InputFile], list[tuple[base.InputFile, errors.BadInput]]]:
  """Tells what can be read from all else.

  Args:
    files: From `inputs.discover`.
    options: How documents are found.

  Returns:
    The files that can be read, and the others with what is wrong.

  Raises:
    PrepareError: If a file cannot be opened.
  """
  known, refused = [], []
  for file in files:
    try:
      known.append(_recognised(file, options))
    except errors.BadInput as error:
      refused.append((file, error))
  return known, refused


def check_tables_of_text(files: Sequence[base.InputFile]) -> None:
  """Warns of CSV files, which are text: each is one document.

  Raises:
    PrepareError: If there is nothing else, so that rows must be meant.
  """
  found = [
    file.path
    for file in files
    if file.kind == "text" and file.path.lower().endswith(_ROWS_OF_TEXT)
  ]
  if not found:
    return
  advice = (
    "For a document a row, convert it to Parquet, as pandas does:"
    " read_csv(...).to_parquet(...)."
  )
  if len(found) == len(files):
    raise errors.PrepareError(
      f"`--input` must hold documents, got only tables of text: {found[0]}"
      f"{f' and {len(found) - 1:,} more' if len(found) > 1 else ''}. {advice}"
      " For a file a document, rename it to .txt."
    )
  logging.warning(
    "%s (of %d such files) is read as text, one document. %s Or leave it out:"
    " --exclude='*%s'.",
    found[0],
    len(found),
    advice,
    os.path.splitext(found[0])[1],
  )


def _recognised(
  file: base.InputFile, options: records.ReadOptions
) -> base.InputFile:
  """Returns a file with its kind, or raises BadInput if it cannot be read."""
  if file.kind in ("text", "jsonl"):
    with contextlib.closing(byte_blocks.blocks(file, _HEAD, until=0)) as stream:
      head = next(stream, b"")[:_HEAD]
    kind = _kind_by_content(file, head)
    if kind is None:
      _check_text(file, head, options)
    else:
      file = dataclasses.replace(file, kind=kind)
  readers.INPUT_KINDS[file.kind].check(file, options)
  return file


def _kind_by_content(file: base.InputFile, head: bytes) -> str | None:
  """Returns the kind that a file is by its beginning, whatever its name."""
  is_text = _looks_like_text(head) and _invalid_utf8(head) is None
  if file.kind == "jsonl" or is_text:
    return None
  kinds = readers.INPUT_KINDS.items()
  return next((kind for kind, own in kinds if own.begins(head)), None)


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
    for begin, what in _BEGINS:
      if head.startswith(begin):
        return what
    if _is_sentencepiece(head):
      return "a SentencePiece model"
  name = os.path.basename(file.path).lower()
  by_name = _NAMES.get(os.path.splitext(name)[1], "")
  if file.kind == "text" and by_name:
    return f"{by_name}{_BY_NAME if is_text else ''}"
  if file.kind == "jsonl":
    # What else is wrong is wrong in a line, which its reader names.
    return _json_document(head) if _is_plain_json(name) else ""
  if not is_text:
    return "binary data"
  return "JSON lines" if "." not in name and _begins_with_object(head) else ""


def _is_plain_json(name: str) -> bool:
  """Whether a name leaves open if it is JSON or JSON lines."""
  return name.removesuffix(".gz").removesuffix(".zst").endswith(".json")


def _invalid_utf8(head: bytes) -> int | None:
  """Returns the offset of the first byte that is no UTF-8, or None."""
  try:
    # A character may be cut at the end of the head.
    codecs.getincrementaldecoder("utf-8")().decode(head, len(head) < _HEAD)
  except UnicodeDecodeError as error:
    return error.start
  return None


def _looks_like_text(head: bytes) -> bool:
  controls = len(head) - len(head.translate(None, _CONTROLS))
  return b"\0" not in head and controls <= _MOST_CONTROLS * len(head)


def _is_sentencepiece(head: bytes) -> bool:
  """Whether a file begins with a message of pieces: string, then float."""
  if len(head) < 5 or head[0] != 0x0A or head[2] != 0x0A:
    return False
  return head[4 + head[3] :][:1] == b"\x15"


def _json_document(head: bytes) -> str:
  """Returns which JSON a file holds that is not an object a line, or ''."""
  text = head.removeprefix(codecs.BOM_UTF8).lstrip()
  if text.startswith(b"["):
    return "a JSON array"
  # An object follows a first line that is merely damaged.
  rest = text.partition(b"\n")[2].lstrip()
  is_split = text.startswith(b"{") and rest and not rest.startswith(b"{")
  if is_split and not _begins_with_object(head):
    return "JSON over several lines"
  return ""


def _begins_with_object(head: bytes) -> bool:
  """Whether the first line is a JSON object."""
  line = head.removeprefix(codecs.BOM_UTF8).lstrip().partition(b"\n")[0]
  try:
    return isinstance(json.loads(line), dict)
  except (ValueError, RecursionError):
    return False
