# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which files are read, in which order, grouped into input shards.

A file's name is its path below the directory that was given, or below the
part of a glob that has no wildcard; so is an object's. Files are sorted by
name, and their pieces grouped by bytes, never by the number of workers, so that
the order of documents is a function of the files alone.
"""

import array
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import fnmatch
import glob
import json
import os

from absl import logging

from chomp_data import errors
from chomp_data.prepare import file_list
from chomp_data.prepare import lazy
from chomp_data.prepare import readers
from chomp_data.prepare import scratch
from chomp_data.prepare.reading import base
from chomp_data.storage import opening
from chomp_data.storage import paths
from chomp_data.storage import storage
from chomp_data.stores.samples import saved_datasets

SHARD_BYTES = 32 * 2**20

# Beside the state of a saved dataset; a state alone may be a document.
_DATASET_INFO = "dataset_info.json"


def discover(
  patterns: Sequence[str], excludes: Sequence[str], skip: Sequence[str] = ()
) -> file_list.FileList:
  """Finds the files of globs, directories and paths.

  Of a bucket only listings are read, a request for 1,000 objects.

  Args:
    patterns: Globs (`**` recurses), directories (read whole, without hidden
      entries and `__pycache__`) and paths; or URLs of all of these, see
      `opening`.
    excludes: Patterns of names or whole paths that are left out.
    skip: Absolute paths without links, or URLs, whose files are never input:
      where output goes.

  Returns:
    The files, each once, sorted by name; of the kinds that their names say.

  Raises:
    PrepareError: If a pattern matches no file, or a link leads nowhere.
    StoreError: If objects cannot be listed.
  """
  problems: list[str] = []
  rows: list[bytes] = []
  for number, pattern in enumerate(patterns):
    matches = 0
    is_remote = opening.open_object(pattern)[0].is_remote
    files_of = _objects if is_remote else _local_files
    for path, name, info in files_of(pattern, excludes):
      matches += 1
      if _is_excluded(path, name, excludes):
        continue
      real_path = path if is_remote else os.path.realpath(path)
      if _is_skipped(real_path, skip):
        continue
      if info is not None:
        size, version = info
      elif os.path.exists(path):
        stat = os.stat(path)
        size, version = stat.st_size, stat.st_mtime_ns
      else:
        problems.append(
          f"`--input` must lead to files, got the broken link {path}. Mend it,"
          " or leave it out with --exclude."
        )
        continue
      link = "" if path == real_path else path
      order = f"{number:06}"
      file = name, str(size), json.dumps(version)
      rows.append(file_list.pack(real_path, link, order, *file))
    if not matches:
      fix = "and quote it so that the shell leaves it alone"
      if is_remote:
        fix = "or see that the bucket exists and may be listed"
      problems.append(
        f"`--input` must match a file, got {pattern!r}, which matches none."
        f" Correct it, {fix}."
      )
  errors.PrepareError.raise_if(problems)
  if patterns and not rows:
    raise errors.PrepareError(
      "`--exclude` must leave a file, got none left. Exclude less."
    )
  return _once(rows)


def group(
  pieces: Sequence[base.InputPiece], shard_bytes: int = SHARD_BYTES
) -> Sequence[tuple[base.InputPiece, ...]]:
  """Groups pieces into input shards of about `shard_bytes`, in order."""
  edges, size = array.array("q", [0]), 0
  for end, piece in enumerate(pieces, 1):
    size += piece.size
    if size >= shard_bytes or end == len(pieces):
      edges.append(end)
      size = 0
  return lazy.LazySequence(
    lambda i: tuple(pieces[edges[i] : edges[i + 1]]), len(edges) - 1
  )


# Of an object its size and ETag.
_Info = tuple[int, int | str | None]
# (path or URL, name, what the listing of a bucket says of it).
_Match = tuple[str, str, _Info | None]


def _local_files(pattern: str, excludes: Sequence[str]) -> Iterator[_Match]:
  """Yields the files that a pattern matches, also those that are excluded."""
  root, matches = pattern, []
  if os.path.isdir(pattern):
    matches = _files_below(pattern, excludes)
  elif os.path.isfile(pattern):
    root, matches = os.path.dirname(pattern), [pattern]
  elif glob.has_magic(pattern):
    while glob.has_magic(root):
      root = os.path.dirname(root)
    matches = filter(_is_input, glob.iglob(pattern, recursive=True))
  for match in matches:
    yield *_path_and_name(match, root), None


def _path_and_name(match: str, root: str) -> tuple[str, str]:
  """Returns the absolute path of a file, and its path below a directory."""
  path = os.path.abspath(match)
  name = os.path.relpath(path, root or ".").replace(os.sep, "/")
  # Bytes that are no UTF-8 are written as \xNN.
  return path, os.fsencode(name).decode("utf-8", "backslashreplace")


def _files_below(directory: str, excludes: Sequence[str]) -> Iterator[str]:
  """Yields the files of a directory that is read whole.

  Links to other directories are not followed, which is logged.
  """

  def is_excluded(path: str) -> bool:
    return _is_excluded(*_path_and_name(path, directory), excludes)

  links = []
  here = os.path.join(os.path.realpath(directory), "")
  for folder, folders, names in os.walk(directory, onerror=_unreadable):
    folders[:] = sorted(f for f in folders if not _is_left_out(f))
    for path in (os.path.join(folder, name) for name in folders):
      if not os.path.islink(path) or is_excluded(path):
        continue
      if not os.path.join(os.path.realpath(path), "").startswith(here):
        links.append(path)
    # Of a saved dataset, only the files that it lists.
    saved = _saved_files(folder, names, is_excluded)
    for name in saved or sorted(names):
      path = os.path.join(folder, name)
      if not name.startswith(".") and _is_input(path):
        yield path
  if links:
    logging.warning(
      "%s (of %d such links) leads to a directory that is not below %s. Its"
      " files are left out; to read them, give it as --input, too.",
      links[0],
      len(links),
      directory,
    )


def _saved_files(
  folder: str, names: Sequence[str], is_excluded: Callable[[str], bool]
) -> list[str] | None:
  """Returns the files that a saved dataset lists; None of other directories.

  Args:
    folder: The directory's path or URL.
    names: Of its files.
    is_excluded: Whether the file at a path or URL is.

  Raises:
    PrepareError: If it holds splits, or what it says of its files is wrong;
      not where all files are excluded.
  """
  there = frozenset(names)
  try:
    if saved_datasets.is_saved(folder, there) and _DATASET_INFO in there:
      return saved_datasets.data_files(folder, there)
  except errors.StoreError as error:
    read_names = (name for name in names if not name.startswith("."))
    if not all(is_excluded(paths.join(folder, name)) for name in read_names):
      where = folder if paths.is_url(folder) else os.path.abspath(folder)
      raise errors.PrepareError(
        f"{error} To read only what is beside it, leave it out:"
        f" --exclude='{glob.escape(where)}/*'."
      ) from error
  return None


def _objects(url: str, excludes: Sequence[str]) -> Iterator[_Match]:
  """Yields the objects that a URL matches, also those that are excluded."""
  parts = url.split("/")
  count = next((i for i, p in enumerate(parts) if glob.has_magic(p)), None)
  if count is not None and count < 3:
    raise errors.PrepareError(
      f"`--input` must name its bucket, got {url!r}. Use wildcards behind it"
      " only."
    )
  root = opening.open_storage(
    url.rstrip("/") if count is None else "/".join(parts[:count])
  )
  # A name that ends in a slash is a directory's.
  listing = (info for info in root.list() if info.name and info.name[-1] != "/")
  if count is not None:
    for info in listing:
      if expand_globs(parts[count:], info.name.split("/")):
        yield root.url(info.name), info.name, (info.size, info.etag)
    return
  # There may be millions.
  objects = [
    file_list.pack(info.name, str(info.size), json.dumps(info.etag))
    for info in listing
  ]
  if objects:
    for name, info in _objects_below(root, objects, excludes):
      yield root.url(name), name, info
    return
  bucket, name = opening.open_object(url)
  if name and (info := bucket.head(name)) is not None:
    yield url, url.rpartition("/")[2], (info.size, info.etag)


def _objects_below(
  root: storage.Storage, objects: list[bytes], excludes: Sequence[str]
) -> Iterator[tuple[str, _Info]]:
  """Yields those objects of a directory that are read if it is read whole.

  Args:
    root: The directory.
    objects: Packed name, size and ETag of each; the list is emptied meanwhile.
    excludes: Patterns of names or whole URLs.
  """
  # Of directories that may be saved datasets, the names of files.
  inside: dict[str, list[str]] = {}
  for row in objects:
    folder, _, last = file_list.unpack(row)[0].rpartition("/")
    if last in saved_datasets.NAMES and not _is_below_left_out(folder):
      inside[folder] = []
  for row in objects if inside else ():
    folder, _, last = file_list.unpack(row)[0].rpartition("/")
    if folder in inside:
      inside[folder].append(last)

  def is_excluded(url: str) -> bool:
    return _is_excluded(url, url.removeprefix(root.url("")), excludes)

  def files_of(folder: str) -> list[str]:
    where = root.url(folder) if folder else root.path
    names = inside[folder]
    return _saved_files(where, names, is_excluded) or names

  inside = dict(
    zip(inside, scratch.mapped(files_of, list(inside)), strict=True)
  )
  while objects:
    name, size, etag = file_list.unpack(objects.pop())
    folder, _, last = name.rpartition("/")
    if last.startswith(".") or _is_below_left_out(folder):
      continue
    if last in inside.get(folder, (last,)):
      yield name, (int(size), json.loads(etag))


def _once(rows: list[bytes]) -> file_list.FileList:
  """Returns each file once, however many links lead to it, sorted by name.

  A glob follows links to directories, so a link to a folder above would give
  every file many times. The path without links is retained, else the first.

  Args:
    rows: Packed path without links, path if it has any, number of the pattern,
      name, size and version; replaced meanwhile.
  """
  rows.sort()
  num_files, last_path = 0, None
  for row in rows:
    real_path, link, _, name, size, version = file_list.unpack(row)
    if real_path == last_path:
      continue
    last_path, path = real_path, link or real_path
    kind = readers.by_name(path)
    rows[num_files] = file_list.pack(name, path, size, version, *kind)
    num_files += 1
  del rows[num_files:]
  rows.sort()
  return file_list.FileList(rows)


def _unreadable(error: OSError) -> None:
  raise errors.PrepareError(
    f"`--input` must be readable, got {error.filename}: {error.strerror}."
    " Allow it to be read, or leave it out with --exclude."
  ) from error


def _is_input(path: str) -> bool:
  """Returns whether a path is a file, or a link that leads nowhere."""
  return os.path.isfile(path) or (
    os.path.islink(path) and not os.path.exists(path)
  )


def _is_left_out(folder: str) -> bool:
  """Returns whether a directory in one that is read whole is not read."""
  return folder.startswith(".") or folder == "__pycache__"


def _is_below_left_out(folder: str) -> bool:
  return any(map(_is_left_out, folder.split("/")))


def expand_globs(patterns: Sequence[str], names: Sequence[str]) -> bool:
  """Returns whether a path matches as in `glob.glob`, both split at slashes."""
  if not patterns or not names:
    return not patterns and not names
  if patterns[0] == "**":
    # A last `**` is any path, else it is any directories, or none.
    if len(patterns) == 1:
      return not any(name.startswith(".") for name in names)
    return expand_globs(patterns[1:], names) or (
      not names[0].startswith(".") and expand_globs(patterns, names[1:])
    )
  if names[0].startswith(".") and not patterns[0].startswith("."):
    return False
  if not glob.has_magic(patterns[0]):
    is_same = patterns[0] == names[0]
  else:
    is_same = fnmatch.fnmatchcase(names[0], patterns[0])
  return is_same and expand_globs(patterns[1:], names[1:])


def _is_excluded(path: str, name: str, excludes: Sequence[str]) -> bool:
  return any(
    fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(path, pattern)
    for pattern in excludes
  )


def _is_skipped(path: str, skip: Sequence[str]) -> bool:
  return any(path == one or path.startswith(one + os.sep) for one in skip)
