"""Arrow files and streams: a document a row. A piece is record batches.

Directories that `save_to_disk` of Hugging Face's datasets wrote hold streams.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import json
import os
from typing import Any

from chomp_data import errors
from chomp_data.prepare import records
from chomp_data.prepare.reading import base
from chomp_data.prepare.reading import tables

_FILE = b"ARROW1"
_STREAM = b"\xff\xff\xff\xff"
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"


class Arrow(base.InputKind):
  """Arrow's own files, of both formats."""

  def compression(self, name: str) -> str | None:
    """Compression is the format's own affair."""
    return "none" if name.endswith((".arrow", ".feather")) else None

  def begins(self, head: bytes) -> bool:
    """Returns whether a file begins as either format does."""
    return head.startswith((_FILE, _STREAM))

  def check(self, file: base.InputFile, options: records.ReadOptions) -> None:
    """Checks the columns."""
    with _batches(file) as batches:
      tables.check_columns(file.path, batches.schema, options)

  def split(
    self, file: base.InputFile, part_bytes: int
  ) -> list[base.InputPiece]:
    """Splits record batches; of a stream their heads are read."""
    rows, sizes = [], []
    with _batches(file) as batches:
      while (batch := batches.next()) is not None:
        rows.append(batch.num_rows)
        sizes.append(batch.nbytes)
    return base.pieces_of_units(file, rows, sizes, part_bytes)

  def read(
    self, piece: base.InputPiece, options: records.ReadOptions
  ) -> Iterator[base.Numbered]:
    """Yields the rows of record batches."""
    number = piece.first or 0
    with _batches(piece.file) as batches:
      batches.skip(piece.begin)
      for _ in range(piece.begin, piece.end):
        if (batch := batches.next()) is None:
          break
        yield from tables.numbered(batch, number, options, piece.file.path)
        number += batch.num_rows


class _Batches:
  """The record batches of a memory-mapped file, one after the other."""

  def __init__(self, file: base.InputFile):
    self._file = file
    self._arrow = tables.pyarrow(file.path)
    self._next = 0
    base.check_readable(file)
    try:
      self._mapped = self._arrow.memory_map(file.path)
      if self._mapped.read(len(_FILE)) == _FILE:
        self._opened: Any = self._arrow.ipc.open_file(self._mapped)
      else:
        # Without its end a stream reads as a shorter one.
        end = max(0, self._mapped.size() - len(_STREAM_END))
        self._mapped.seek(end)
        if self._mapped.read() != _STREAM_END:
          raise EOFError("a stream without its end")
        self._mapped.seek(0)
        self._opened = self._arrow.ipc.open_stream(self._mapped)
      self._is_file = hasattr(self._opened, "num_record_batches")
    except (self._arrow.ArrowException, OSError, EOFError) as error:
      raise tables.unreadable(file.path, "Arrow", error) from None
    self.schema: Any = self._opened.schema

  def skip(self, count: int) -> None:
    """Goes on after so many batches."""
    if self._is_file:
      self._next = count
      return
    for _ in range(count):
      self.next()

  def next(self) -> Any:
    """Returns the next batch, or None."""
    try:
      if not self._is_file:
        return self._opened.read_next_batch()
      if self._next >= self._opened.num_record_batches:
        return None
      self._next += 1
      return self._opened.get_batch(self._next - 1)
    except StopIteration:
      return None
    except (self._arrow.ArrowException, OSError) as error:
      raise tables.unreadable(self._file.path, "Arrow", error) from None

  def close(self) -> None:
    self._mapped.close()


def _batches(file: base.InputFile) -> contextlib.closing[_Batches]:
  return contextlib.closing(_Batches(file))


def saved_files(folder: str, names: Sequence[str]) -> list[str] | None:
  """Returns the names of the files of a directory of `save_to_disk`.

  Args:
    folder: The directory.
    names: Of all that is in it.

  Returns:
    The files that hold rows, or None if it is no such directory.

  Raises:
    PrepareError: If it holds splits, or a file is missing.
  """
  if "dataset_dict.json" in names:
    splits = _json(folder, "dataset_dict.json").get("splits", [])
    raise errors.PrepareError(
      f"`--input` must name one split of {folder}, got a directory of the"
      f" splits {', '.join(map(str, splits))}. Give, for instance,"
      f" --input={os.path.join(folder, str(splits[0] if splits else ''))}."
    )
  if "state.json" not in names or "dataset_info.json" not in names:
    return None
  listed = _json(folder, "state.json").get("_data_files")
  if listed is None:
    return None
  files = [str(entry["filename"]) for entry in listed]
  missing = sorted(set(files) - set(names))
  if missing:
    raise errors.PrepareError(
      f"{folder} must hold the files that its state.json names, got no"
      f" {missing[0]}. Restore it, or save the dataset again."
    )
  return files


def _json(folder: str, name: str) -> dict[str, Any]:
  try:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
      found = json.load(file)
  except (OSError, ValueError) as error:
    raise errors.PrepareError(
      f"{os.path.join(folder, name)} must be readable, got {error}. Restore it,"
      " or leave its directory out with --exclude."
    ) from None
  return found if isinstance(found, dict) else {}
