# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The ArrayRecord files of a corpus, and reading their records.

A record is read by ranges, with one thread and a buffer that reads ahead: a
record costs 1 us in a range and 4 us alone, where the library's `read([i])`
takes 200 us and grows with the file. A file that is cut or grown opens as one
of no records; only `ok()` distinguishes it from an empty one.
"""

import collections
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import fnmatch
import glob
import itertools
import os
import pathlib
import re
import threading
from typing import Any

from array_record.python import array_record_module  # pyright: ignore

from chomp_data import errors
from chomp_data.storage import checksums
from chomp_data.storage import opening
from chomp_data.storage import publish
from chomp_data.stores import json_values
from chomp_data.stores import modification_guard
from chomp_data.stores import side_index

# The names of such files in a directory.
PATTERNS = ("*.array_record*", "*.arrayrecord*")
RESTORE = "Restore the file from a copy, or write it again."

# Bytes at the ends of a file that identify it among files of the same size: in
# its last 64 KiB ArrayRecord says where its list of records is, just before.
HEAD_BYTES = 1 << 16
TAIL_BYTES = 1 << 17

# An open reader holds a descriptor, and about 14 bytes a group of records
# (measured): 110 MiB, or what one larger file takes.
MAX_OPEN = 256
MAX_OPEN_GROUPS = 1 << 23

_OPTIONS = "readahead_buffer_size:1M,max_parallelism:0"
_BUFFER_BYTES = 1 << 15

_MAGIC = re.compile(r"[*?\[]")
_GROUP_SIZE = re.compile(r"group_size:(\d+)")
_SHARD = re.compile(r"(.*)-(\d+)-of-(\d+)(.*)")


# What `Corpus.key` returns.
Key = list[tuple[str, int, int, int, int]]


@dataclasses.dataclass(frozen=True)
class Corpus:
  """The files of a corpus, in the order of their documents.

  Attributes:
    root: The directory that names are relative to.
    names: Of the files, with slashes, sorted.
    home: What an index is put beside: the directory, or the one file.
  """

  root: pathlib.Path
  names: tuple[str, ...]
  home: pathlib.Path

  def path(self, file: int) -> pathlib.Path:
    """Returns a file's path."""
    return self.root / self.names[file]

  def stamps(self) -> dict[int, tuple[str | int, ...]]:
    """Returns (name, bytes, modification time in ns) of files, by number.

    Of all files where they are few, else of some, evenly apart.

    Raises:
      StoreError: If a file cannot be found.
    """
    return {
      i: _stamp(self.root, self.names[i])
      for i in modification_guard.sample(self.names)
    }

  def key(self) -> list[list[str | int]]:
    """Returns what identifies these files, without reading them whole.

    Returns:
      (name, size in bytes, modification time in ns, crc32c of the first 64
      and of the last 128 KiB) of every file.

    Raises:
      StoreError: If a file cannot be read.
    """
    return [file_key(self.root, name) for name in self.names]

  def check_unharmed(
    self,
    files: Sequence[Sequence[str | int]],
    before: Any,
    index: pathlib.Path,
  ) -> None:
    """Distinguishes damage from another corpus, where files changed.

    A file that was replaced has another modification time. If no file holds
    anything new, and one holds what another did, contents were swapped between
    files.

    Args:
      files: `key()` of the files now.
      before: `key()` of the files when an index was built; None for an index
        that is not of files. As its header has it, of whatever type.
      index: Its directory, for messages.

    Raises:
      StoreError: If a file of the same name, size and time has other ends,
        files were swapped or copied over each other, or `before` is no such
        key.
    """
    indexed = {
      name: tuple(entry) for name, *entry in decoded_key(before, index)
    }
    now = {str(name): tuple(entry) for name, *entry in files}
    # Removing a file may renumber the rest.
    is_same_content = set(now) == set(indexed) and (
      set(map(content_of, now.values()))
      <= set(map(content_of, indexed.values()))
    )
    for name, entry in now.items():
      if name not in indexed or entry == indexed[name]:
        continue
      others = [other for other in indexed if indexed[other] == entry]
      # A copy need not keep the time.
      if not others and content_of(entry) != content_of(indexed[name]):
        others = [
          n for n in indexed if content_of(indexed[n]) == content_of(entry)
        ]
      if others and is_same_content:
        raise self._harmed(name, f"got what was in {others[0]}", index)
      if not others and entry[:2] == indexed[name][:2]:
        raise self._harmed(
          name, "got other bytes at the same size and time", index
        )

  def is_copy_of(
    self,
    files: Sequence[Sequence[str | int]],
    before: Any,
    index: pathlib.Path,
  ) -> bool:
    """Returns whether files differ from indexed ones in times alone.

    Args:
      files: `key()` of the files now.
      before: As in `check_unharmed`.
      index: Likewise.
    """
    indexed = decoded_key(before, index)
    return [(name, *content_of(tuple(entry))) for name, *entry in files] == [
      (name, *content_of(tuple(entry))) for name, *entry in indexed
    ]

  def _harmed(
    self, name: str, what: str, index: pathlib.Path
  ) -> errors.StoreError:
    return errors.StoreError(
      f"{self.root / name} must hold what it did when it was indexed, {what}."
      f" {RESTORE} If it is right as it is, remove {index}."
    )


def decoded_key(value: Any, index: pathlib.Path) -> Key:
  """Returns a `Corpus.key()` from the header of an index, empty if it has none.

  Args:
    value: As the header has it, of whatever type.
    index: The directory of the index, for messages.

  Raises:
    StoreError: If it is no such key.
  """
  try:
    return json_values.decode(Key | None, value, "key.files") or []
  except ValueError as error:
    raise errors.StoreError(
      f"{index / side_index.HEADER} must say of which files it is, got one"
      f" where {error}. Remove {index}: it is built again."
    ) from None


def find(path: str | os.PathLike[str]) -> Corpus:
  """Finds the files of a corpus.

  Args:
    path: A directory, whose `*.array_record*` and `*.arrayrecord*` files are
      taken; one file; or a glob.

  Returns:
    The files, at least one.

  Raises:
    StoreError: If there is none, or a directory's files are named
      `-00000-of-00008` and not all of them are there.
  """
  opening.open_local(path)
  text = os.fspath(path)
  location = pathlib.Path(text)
  magic = _MAGIC.search(text)
  if location.is_dir():
    corpus = Corpus(location, _listed(location), location)
    _check_shards(corpus)
  elif location.exists() or magic is None:
    corpus = Corpus(location.parent, (location.name,), location)
  else:
    # Names are relative to the part of the path without a pattern.
    root = pathlib.Path(text[: magic.start()].rpartition("/")[0] + "/")
    root = root if text[: magic.start()].count("/") else pathlib.Path()
    paths = sorted(glob.glob(text, recursive=True))
    names = [os.path.relpath(path, root) for path in paths]
    # Not directories, such as those of indexes.
    files = tuple(name for name in names if not (root / name).is_dir())
    corpus = Corpus(root, files, root)
  if not corpus.names:
    raise errors.StoreError(
      f"{text} must hold ArrayRecord files ({', '.join(PATTERNS)}), got none."
      " Correct the path."
    )
  return corpus


class Readers:
  """Open readers of a corpus, opened at first use, within a bound."""

  def __init__(self, corpus: Corpus, max_open: int = MAX_OPEN):
    """Opens nothing yet."""
    self._corpus = corpus
    self._max_open = max_open
    self._lock = threading.Lock()
    self._open: collections.OrderedDict[int, Reader] = collections.OrderedDict()

  def __len__(self) -> int:
    return len(self._open)

  def get(self, file: int) -> "Reader":
    """Returns the reader of a file, which threads may share.

    Raises:
      StoreError: If the file is not a complete ArrayRecord file.
    """
    with self._lock:
      reader = self._open.get(file)
      if reader is None:
        reader = Reader(self._corpus.path(file))
        self._open[file] = reader
        groups = sum(other.num_groups for other in self._open.values())
        while len(self._open) > 1 and (
          len(self._open) > self._max_open or groups > MAX_OPEN_GROUPS
        ):
          # Not closed here: another thread may be reading from it.
          groups -= self._open.popitem(last=False)[1].num_groups
      else:
        self._open.move_to_end(file)
      return reader


class Reader:
  """One open file.

  Attributes:
    path: The file.
    num_records: Its records.
    group_size: Records that are stored, and read, together.
  """

  def __init__(self, path: pathlib.Path):
    """Opens a file.

    Raises:
      StoreError: If it is not a complete ArrayRecord file.
    """
    self.path = path
    try:
      # The library does not say why a file cannot be opened; the system does.
      with open(path, "rb"):
        pass
      self._reader = array_record_module.ArrayRecordReader(
        str(path), _OPTIONS, file_reader_buffer_size=_BUFFER_BYTES
      )
      self.num_records: int = self._reader.num_records()
      complete = self._reader.ok()
      options = self._reader.writer_options_string() if complete else ""
    except (OSError, RuntimeError, ValueError, IndexError) as error:
      raise errors.StoreError(
        f"{path} must be a readable ArrayRecord file, got {first_line(error)}."
        f" {RESTORE}"
      ) from error
    if not complete:
      raise errors.StoreError(
        f"{path} must be a complete ArrayRecord file, got one without a valid"
        f" end: it was cut, altered, or never closed. {RESTORE}"
      )
    group = _GROUP_SIZE.search(options or "")
    self.group_size: int = max(1, int(group[1])) if group else 1

  @property
  def num_groups(self) -> int:
    """Groups of records, whose positions the reader holds."""
    return -(-self.num_records // self.group_size)

  def read(self, first: int, last: int) -> list[bytes]:
    """Returns records first .. last - 1, at least one.

    Raises:
      StoreError: If they cannot be read.
    """
    try:
      records = self._reader.read(first, last)
    except (OSError, RuntimeError, ValueError, IndexError) as error:
      raise errors.StoreError(
        f"{self.path}: records {first} .. {last - 1} must be readable, got"
        f" {first_line(error)}. {RESTORE}"
      ) from error
    if len(records) != last - first or not self._reader.ok():
      raise errors.StoreError(
        f"{self.path}: records {first} .. {last - 1} must be readable, got"
        f" {len(records)} of them. {RESTORE}"
      )
    return records


def first_line(error: Exception) -> str:
  """Returns the beginning of an error's text, for a message."""
  return str(error).split("\n", 1)[0][:200].rstrip(".")


def are_at(path: pathlib.Path) -> bool:
  """Whether a directory has such files, or a file or glob such a name."""
  if path.is_dir():
    return bool(_listed(path))
  is_there = path.exists() or bool(glob.glob(str(path)))
  return is_there and _is_named_so(path.name)


def _is_named_so(name: str) -> bool:
  return any(fnmatch.fnmatchcase(name, pattern) for pattern in PATTERNS)


def _listed(directory: pathlib.Path) -> tuple[str, ...]:
  """Returns names of files in a directory, mostly without a stat of each."""
  try:
    with os.scandir(directory) as entries:
      names = [
        entry.name
        for entry in entries
        if _is_named_so(entry.name) and not entry.is_dir()
      ]
  except OSError as error:
    raise errors.StoreError(
      f"{directory} must be readable, got {error}. Correct its permissions."
    ) from error
  return tuple(sorted(names))


def _check_shards(corpus: Corpus) -> None:
  """Checks that numbered files are all there, from 0 or from 1."""
  by_series: dict[tuple[str, str, str], dict[int, str]] = {}
  for name in corpus.names:
    match = _SHARD.fullmatch(name)
    if match:
      series = match[1], match[3], match[4]
      by_series.setdefault(series, {})[int(match[2])] = match[2]
  for (start, of, end), numbers in by_series.items():
    first = 0 if 0 in numbers or max(numbers) < int(of) else 1
    # Counted up to what is there: a name may claim any number of files.
    wrong = next(i for i in itertools.count(first) if i not in numbers)
    if wrong == first + int(of) == first + len(numbers):
      continue
    rule = "must exist"
    if wrong >= first + int(of):
      wrong, rule = max(numbers), "must not exist"
    width = len(next(iter(numbers.values())))
    raise errors.StoreError(
      f"{corpus.root / f'{start}-{wrong:0{width}}-of-{of}{end}'} {rule} beside"
      f" the others of {of}, got {len(numbers)} of them. Correct the files, or"
      " name those that are meant by a glob."
    )


def content_of(entry: tuple[str | int, ...]) -> tuple[str | int, ...]:
  """Returns size and checksums of a file's key without its name."""
  size, _, *ends = entry
  return size, *ends


def _stamp(root: pathlib.Path, name: str) -> tuple[str | int, ...]:
  with _reading(root / name):
    status = os.stat(root / name)
  return name, status.st_size, status.st_mtime_ns


def file_key(root: pathlib.Path, name: str) -> list[str | int]:
  """Returns what `Corpus.key` has of a file; raises StoreError as that does."""
  with _reading(root / name), publish.open_file(root / name) as file:
    status = os.fstat(file.fileno())
    head = file.read(HEAD_BYTES)
    file.seek(max(0, status.st_size - TAIL_BYTES))
    tail = file.read(TAIL_BYTES)
  ends = [checksums.crc32c(head), checksums.crc32c(tail)]
  return [name, status.st_size, status.st_mtime_ns, *ends]


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[None]:
  """Raises StoreError for errors of the file system."""
  try:
    yield
  except OSError as error:
    raise errors.StoreError(
      f"{path} must be readable, got {error}. Restore it, or correct the path."
    ) from error
