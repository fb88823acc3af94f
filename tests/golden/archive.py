"""Stores and side indexes as they were written, in one small file."""

from collections.abc import Sequence
import lzma
import pathlib
import tarfile

from tests.golden import cases
from tests.golden import corpora
from tests.golden import measuring

PATH = measuring.HERE / "stores.tar.xz"


# Offsets are int64, and nearly regular.
_FILTERS = (
  {"id": lzma.FILTER_DELTA, "dist": 8},
  {"id": lzma.FILTER_LZMA2, "preset": 9},
)


def corpora_of(names: Sequence[str]) -> list[str]:
  """Returns the corpora of cases."""
  sources = [cases.CASES[name].data["sources"] for name in names]
  return sorted({own["store"] for found in sources for own in found.values()})


def write(root: pathlib.Path, names: Sequence[str] = cases.KEPT) -> None:
  """Writes the corpora of cases, and the side indexes that reading leaves."""
  for name in corpora_of(names):
    corpora.write(root, name)
  for name in names:
    case = cases.CASES[name]
    measuring.batches(case.at(root), case.far)
    measuring.accounts(case.at(root), case.far)


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

  with lzma.open(PATH, "w", filters=_FILTERS) as file, tarfile.open(
    fileobj=file, mode="w"
  ) as packed:  # fmt: skip
    for name, path in files(root).items():
      packed.add(path, name, filter=plain)


def unpack(root: pathlib.Path) -> None:
  """Lays the archive's files under a directory."""
  with tarfile.open(PATH) as packed:
    packed.extractall(root, filter="data")
