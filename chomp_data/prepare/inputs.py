# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which files are read, in which order, grouped into input shards.

A file's name is its path below the directory that was given, or below the
part of a glob that has no wildcard; so is an object's. Files are sorted by
name, and their pieces grouped by bytes, never by the number of workers, so that
the order of documents is a function of the files alone.
"""

from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import fnmatch
import glob
import os

from chomp_data import errors
from chomp_data.prepare import readers
from chomp_data.prepare.reading import arrow
from chomp_data.prepare.reading import base
from chomp_data.stores import object_files
from chomp_data.stores import places

SHARD_BYTES = 32 * 2**20

# Objects whose size is asked for at once.
_TOGETHER = 32


def discover(
  patterns: Sequence[str], excludes: Sequence[str], skip: Sequence[str] = ()
) -> list[base.InputFile]:
  """Finds the files of globs, directories and paths.

  Args:
    patterns: Globs (`**` recurses), directories (read whole, without hidden
      entries and `__pycache__`) and paths; or URLs of all of these, see
      `places`.
    excludes: Patterns of names or whole paths that are left out.
    skip: Absolute paths whose files are never input: where output goes.

  Returns:
    The files, each once, sorted by name.

  Raises:
    PrepareError: If a pattern matches no file, or a link leads nowhere.
    StoreError: If objects cannot be listed.
  """
  problems = []
  found: dict[str, base.InputFile] = {}
  for pattern in patterns:
    matches = 0
    objects: dict[str, str] = {}
    for path, root in _matches(pattern):
      matches += 1
      if places.is_url(path):
        name = path[len(root) + 1 :]
      else:
        path = os.path.abspath(path)
        name = _readable(os.path.relpath(path, root).replace(os.sep, "/"))
      if path in found or _skipped(path, name, excludes, skip):
        continue
      if places.is_url(path):
        objects[path] = name
        continue
      if not os.path.exists(path):
        problems.append(
          f"`--input` must lead to files, got the broken link {path}. Mend it,"
          " or leave it out with --exclude."
        )
        continue
      stat = os.stat(path)
      found[path] = base.InputFile(
        name, path, stat.st_size, stat.st_mtime_ns, *readers.by_name(path)
      )
    found.update(_found(objects))
    if not matches:
      fix = "and quote it so that the shell leaves it alone"
      if places.is_url(pattern):
        fix = "or see that the bucket exists and may be listed"
      problems.append(
        f"`--input` must match a file, got {pattern!r}, which matches none."
        f" Correct it, {fix}."
      )
  errors.PrepareError.raise_if(problems)
  if patterns and not found:
    raise errors.PrepareError(
      "`--exclude` must leave a file, got none left. Exclude less."
    )
  return sorted(_once(found), key=lambda file: (file.name, file.path))


def group(
  pieces: Sequence[base.InputPiece], shard_bytes: int = SHARD_BYTES
) -> list[tuple[base.InputPiece, ...]]:
  """Groups pieces into input shards of about `shard_bytes`, in order."""
  shards: list[tuple[base.InputPiece, ...]] = []
  shard: list[base.InputPiece] = []
  size = 0
  for piece in pieces:
    shard.append(piece)
    size += piece.size
    if size >= shard_bytes:
      shards.append(tuple(shard))
      shard, size = [], 0
  return [*shards, tuple(shard)] if shard else shards


def _once(found: dict[str, base.InputFile]) -> Iterator[base.InputFile]:
  """Yields each file once, however many links lead to it.

  A glob follows links to directories, so a link to a folder above would give
  every file many times. The path without links is kept, else the first.
  """
  real = {
    path: path if places.is_url(path) else os.path.realpath(path)
    for path in found
  }
  seen = set()
  for path in sorted(found, key=lambda path: (path != real[path], path)):
    if real[path] not in seen:
      seen.add(real[path])
      yield found[path]


def _unreadable(error: OSError) -> None:
  raise errors.PrepareError(
    f"`--input` must be readable, got {error.filename}: {error.strerror}."
    " Allow it to be read, or leave it out with --exclude."
  ) from error


def _is_input(path: str) -> bool:
  """Whether a path is a file, or a link that leads nowhere."""
  return os.path.isfile(path) or (
    os.path.islink(path) and not os.path.exists(path)
  )


def _matches(pattern: str) -> Iterator[tuple[str, str]]:
  """Yields (file, the directory that it is named below)."""
  if places.is_url(pattern):
    yield from _matching_objects(pattern)
  elif os.path.isdir(pattern):
    for folder, folders, names in os.walk(pattern, onerror=_unreadable):
      folders[:] = sorted(f for f in folders if not _is_left_out(f))
      # Of a saved dataset, only what it says that it holds.
      for name in arrow.saved_files(folder, names) or sorted(names):
        path = os.path.join(folder, name)
        if not name.startswith(".") and _is_input(path):
          yield path, pattern
  elif os.path.isfile(pattern):
    yield pattern, os.path.dirname(pattern) or "."
  elif glob.has_magic(pattern):
    root = pattern
    while glob.has_magic(root):
      root = os.path.dirname(root)
    for path in glob.iglob(pattern, recursive=True):
      if _is_input(path):
        yield path, root or "."


def _is_left_out(folder: str) -> bool:
  """Whether a directory in one that is read whole is hidden, or a cache."""
  return folder.startswith(".") or folder == "__pycache__"


def _matching_objects(url: str) -> Iterator[tuple[str, str]]:
  """Yields (URL of an object, the URL that it is named below)."""
  parts = url.split("/")
  count = next((i for i, p in enumerate(parts) if glob.has_magic(p)), None)
  if count is not None and count < 3:
    raise errors.PrepareError(
      f"`--input` must name its bucket, got {url!r}. Use wildcards behind it"
      " only."
    )
  root = url.rstrip("/") if count is None else "/".join(parts[:count])
  own = places.at(root)
  # A name that ends in a slash stands for a directory.
  names = [name for name in own.names() if name and not name.endswith("/")]
  if count is not None:
    for name in names:
      if _globs(parts[count:], name.split("/")):
        yield f"{own.path}/{name}", own.path
  elif names:
    folders: dict[str, list[str]] = {}
    for name in names:
      folder, _, last = name.rpartition("/")
      folders.setdefault(folder, []).append(last)
    for folder, inside in folders.items():
      if any(_is_left_out(part) for part in folder.split("/")):
        continue
      where = places.join(own.path, folder) if folder else own.path
      for name in arrow.saved_files(where, inside) or inside:
        if not name.startswith("."):
          yield f"{where}/{name}", own.path
  else:
    place, name = object_files.place_of(url)
    if name and place.version(name) is not None:
      yield url, url.rpartition("/")[0]


def _globs(patterns: Sequence[str], names: Sequence[str]) -> bool:
  """Whether a path matches, as of `glob.glob`, both split at slashes."""
  if not patterns or not names:
    return not patterns and not names
  if patterns[0] == "**":
    # A last `**` is any path, else it is any directories, or none.
    if len(patterns) == 1:
      return not any(name.startswith(".") for name in names)
    return _globs(patterns[1:], names) or (
      not names[0].startswith(".") and _globs(patterns, names[1:])
    )
  if names[0].startswith(".") and not patterns[0].startswith("."):
    return False
  if not glob.has_magic(patterns[0]):
    is_same = patterns[0] == names[0]
  else:
    is_same = fnmatch.fnmatchcase(names[0], patterns[0])
  return is_same and _globs(patterns[1:], names[1:])


def _found(objects: dict[str, str]) -> Iterator[tuple[str, base.InputFile]]:
  """Yields objects with their sizes and versions; many are asked for at once.

  Args:
    objects: Their names by URL.
  """

  def find(url: str) -> base.InputFile | None:
    place, key = object_files.place_of(url)
    own = place.find(key)
    if own is None:
      return None  # It was deleted since it was listed.
    return base.InputFile(
      objects[url], url, own.size, own.version, *readers.by_name(url)
    )

  with futures.ThreadPoolExecutor(_TOGETHER) as pool:
    for url, file in zip(objects, pool.map(find, objects), strict=True):
      if file is not None:
        yield url, file


def _skipped(
  path: str, name: str, excludes: Sequence[str], skip: Sequence[str]
) -> bool:
  return any(
    fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(path, pattern)
    for pattern in excludes
  ) or any(path == one or path.startswith(one + os.sep) for one in skip)


def _readable(name: str) -> str:
  """Returns a file name as Unicode: bytes that are no UTF-8 as \\xNN."""
  return os.fsencode(name).decode("utf-8", "backslashreplace")
