"""Stores and side indexes as they were written, in one small file."""

import pathlib
import tarfile

from tests.golden import cases
from tests.golden import corpora
from tests.golden import measuring

PATH = measuring.HERE / "stores.tar.xz"


def names() -> list[str]:
  """Returns the corpora that are kept."""
  kept = [cases.CASES[name].data["sources"] for name in cases.KEPT]
  return sorted({own["store"] for found in kept for own in found.values()})


def write(root: pathlib.Path) -> None:
  """Writes the corpora, and the side indexes that reading leaves."""
  for name in names():
    corpora.write(root, name)
  for name in cases.KEPT:
    case = cases.CASES[name]
    measuring.batches(case.at(root), case.far)


def files(root: pathlib.Path) -> dict[str, pathlib.Path]:
  """Returns the files under a directory by their path from it."""
  found = sorted(path for path in root.rglob("*") if path.is_file())
  return {path.relative_to(root).as_posix(): path for path in found}


def pack(root: pathlib.Path) -> None:
  """Makes the archive of a directory; the same files give the same bytes."""

  def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = corpora.TIME
    return info

  with tarfile.open(PATH, "w:xz", preset=9) as packed:
    for name, path in files(root).items():
      packed.add(path, name, filter=plain)


def unpack(root: pathlib.Path) -> None:
  """Lays the archive's files under a directory."""
  with tarfile.open(PATH) as packed:
    packed.extractall(root, filter="data")
