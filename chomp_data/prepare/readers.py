# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""From files to documents: pieces of files, and the documents of each.

`INPUT_KINDS` says which kinds of inputs there are; the first whose name a file
has is its kind.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import os
from typing import Any

from chomp_data import errors
from chomp_data.prepare import filters
from chomp_data.prepare import records
from chomp_data.prepare import rejections
from chomp_data.prepare.reading import array_record
from chomp_data.prepare.reading import arrow
from chomp_data.prepare.reading import base
from chomp_data.prepare.reading import byte_blocks
from chomp_data.prepare.reading import json_lines
from chomp_data.prepare.reading import parquet
from chomp_data.prepare.reading import text

INPUT_KINDS: dict[str, base.InputKind] = {
  "jsonl": json_lines.JsonLines(),
  "parquet": parquet.Parquet(),
  "arrow": arrow.Arrow(),
  "array_record": array_record.ArrayRecord(),
  "text": text.Text(),  # Any name may be text: it comes last.
}


def by_name(path: str) -> tuple[str, str]:
  """Returns the kind and the compression that a file's name says."""
  for kind, reader in INPUT_KINDS.items():
    compression = reader.compression(os.path.basename(path).lower())
    if compression is not None:
      return kind, compression
  raise AssertionError("Any name may be text.")


def count(piece: base.InputPiece) -> int:
  """Returns how many numbers the records of a piece take."""
  return INPUT_KINDS[piece.file.kind].count(piece)


def documents(
  piece: base.InputPiece,
  options: records.ReadOptions,
  rejected: rejections.Rejections | None = None,
) -> Iterator[records.Document]:
  """Yields the documents of a piece.

  Args:
    piece: What to read.
    options: How.
    rejected: Counts the records and files that no document can be made of,
      those that `options.filter` leaves out, and documents without an id. By
      default the former are errors. Of a truncated archive the documents before
      its end are yielded; a damaged one is left out whole.

  Raises:
    BadInput: If a record or the file holds something else than documents.
    PrepareError: If the file cannot be read, or changed since it was listed.
  """
  file = piece.file
  rejected = rejected or rejections.Rejections(raises=True)
  if rejected.raises or _is_undamaged(file, rejected):
    for at, record in _records(piece, options, rejected):
      suffix = "" if at is None else f":{at}"
      where = file.path + suffix
      try:
        if isinstance(record, errors.BadInput):
          raise record
        of_record = list(
          records.documents(record, file.name + suffix, where, options)
        )
      except errors.BadInput as error:
        rejected.add(file.name, at, error)
        continue
      if options.filter is not None:
        of_record = _passing_filter(of_record, options, record, where, rejected)
      for document in of_record:
        # The name of a text file is its id.
        rejected.unnamed += not document.has_id and at is not None
        yield document
  base.check_unchanged(file)


def _passing_filter(
  documents: Sequence[records.Document],
  options: records.ReadOptions,
  record: Mapping[str, Any],
  where: str,
  rejected: rejections.Rejections,
) -> list[records.Document]:
  """Returns the documents of a record that a filter keeps, pairs as a whole."""
  assert options.filter is not None
  reasons = [
    filters.reason_to_leave_out(options.filter, document.text, record, where)
    for document in documents
  ]
  left_out = [reason for reason in reasons if reason is not None]
  if options.has_pairs and left_out:
    rejected.count(left_out[0])
    return []
  for reason in left_out:
    rejected.count(reason)
  return [
    document
    for document, reason in zip(documents, reasons, strict=True)
    if reason is None
  ]


def _records(
  piece: base.InputPiece,
  options: records.ReadOptions,
  rejected: rejections.Rejections,
) -> Iterator[base.Numbered]:
  """Yields the records of a piece, those of a truncated archive until its end.

  Such an archive is counted as rejected.
  """
  file = piece.file
  try:
    yield from INPUT_KINDS[file.kind].read(piece, options)
  except errors.BadInput as error:
    if error.reason != byte_blocks.TRUNCATED:
      raise
    rejected.add(file.name, None, error)


def _is_undamaged(
  file: base.InputFile, rejected: rejections.Rejections
) -> bool:
  """Whether a file can be decompressed until it ends; counts it if not.

  One that is only truncated can. Of a damaged one no line is known to be right:
  the checksum is at the end.
  """
  if file.compression != "none":
    try:
      for _ in byte_blocks.blocks(file):
        pass
    except errors.BadInput as error:
      if error.reason != byte_blocks.TRUNCATED:
        rejected.add(file.name, None, error)
        return False
  return True
