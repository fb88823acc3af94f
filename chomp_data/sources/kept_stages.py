# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Begins of a mix's stages, kept on disk for other processes and later runs.

Each stage begins where the one before it stopped, so that the last of thousands
is found by way of all others: of 5,000 stages of a thousand rows in 2 CPU s,
of longer ones in minutes. What a process has found lies beside the store of
the mix's first source, as packings lie beside theirs.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import hashlib
import json
import os
from typing import Any

from absl import logging
import numpy as np

from chomp_data import errors
from chomp_data.index.mix import merge_stages
from chomp_data.index.mix import standings
from chomp_data.sources import row_source
from chomp_data.stores import side_index

_NAME = "stages"

# Indexes of runs that begin alike and go on otherwise: each is read at builds.
_MOST_OTHERS = 7


class KeptStages(merge_stages.Keeper):
  """Begins of the stages of a mix in the side index of a store."""

  def __init__(self, sources: Mapping[str, row_source.RowSource], unit: str):
    """Keeps the arguments.

    Args:
      sources: In the order of joining: those that are appended change no
        place.
      unit: What the mix balances.
    """
    self._sources = sources
    self._unit = unit
    self._may_keep = True

  @property
  def _path(self) -> str | os.PathLike[str]:
    return next(iter(self._sources.values())).store.path

  def identity(self, source: str) -> str:
    """Returns a line of all that the units of a source's rows depend on."""
    fingerprint = self._sources[source].fingerprint
    told = [row_source.FINGERPRINT_SCHEMA, self._unit, fingerprint]
    return _digest(json.dumps(told, sort_keys=True).encode())

  def found(self, lines: bytes) -> Iterator[merge_stages.Kept]:
    """Yields what was kept whose first two lines are these."""
    first = _digest(lines)
    for _, key in list(side_index.known(self._path, _NAME)):
      if key.get("first") != first:
        continue
      arrays = side_index.find(self._path, _NAME, key)
      kept = None if arrays is None else _of_arrays(key, arrays)
      if kept is not None:
        yield kept

  def keep(self, kept: merge_stages.Kept) -> None:
    """Keeps begins beside the store, in place of fewer of the same stages.

    Of stages that only begin alike, those with most are left. Another process
    that keeps the same just now is left to it.
    """
    if not self._may_keep:
      return
    dropped, others = [], []
    for own in self.found(_first_two(kept.lines)):
      if own.lines.startswith(kept.lines):
        return
      alike = kept.lines.startswith(own.lines)
      (dropped if alike else others).append(own)
    others.sort(key=lambda own: len(own.standings))
    dropped += others[:-_MOST_OTHERS]
    try:
      side_index.load_or_build(
        self._path,
        _NAME,
        _key(kept),
        lambda: [_arrays(kept)],
        wait=False,
        share=False,
      )
    except side_index.BusyError:
      return
    except errors.StoreError as error:
      # Nor later: it is said once.
      self._may_keep = False
      logging.info("begins of stages are not kept: %s", error)
      return
    for own in dropped:
      side_index.drop(self._path, _NAME, _key(own))


def _digest(text: bytes) -> str:
  return hashlib.sha256(text).hexdigest()


def _first_two(lines: bytes) -> bytes:
  return b"".join(lines.splitlines(keepends=True)[:2])


def _key(kept: merge_stages.Kept) -> dict[str, Any]:
  return {
    "first": _digest(_first_two(kept.lines)),
    "lines": _digest(kept.lines),
    "sources": list(kept.names),
  }


def _arrays(kept: merge_stages.Kept) -> dict[str, np.ndarray]:
  """Returns begins as arrays; of long numbers their bytes, one by one."""
  own, names = kept.standings, kept.names
  numbers = [
    number
    for overshoots in own.overshoots.values()
    for number in (
      overshoots.parts,
      *(overshoots.ahead.get(i, 0) for i in range(len(names))),
    )
  ]
  sizes = [(number.bit_length() + 7) // 8 for number in numbers]
  data = [
    number.to_bytes(size, "little")
    for number, size in zip(numbers, sizes, strict=True)
  ]
  return {
    "lines": np.frombuffer(kept.lines, np.uint8),
    "rows": own.rows.ravel(),
    "units": own.units.ravel(),
    "stages": np.asarray(list(own.overshoots), np.int64),
    "sizes": np.asarray(sizes, np.int64),
    "numbers": np.frombuffer(b"".join(data), np.uint8),
  }


def _of_arrays(
  key: Mapping[str, Any], arrays: Mapping[str, side_index.SideArray]
) -> merge_stages.Kept | None:
  """Returns the begins of `_arrays`; None if it has written something else."""
  try:
    names = key["sources"]
    lines, rows, units, stages, sizes, numbers = (
      arrays[name].read()
      for name in ("lines", "rows", "units", "stages", "sizes", "numbers")
    )
    text, data = lines.tobytes(), numbers.tobytes()
    shape = text.count(b"\n"), len(names)
    ends = np.cumsum(sizes)
    if int(ends[-1]) != len(data):
      raise ValueError("numbers are cut off")
    found = [
      int.from_bytes(data[end - size : end], "little")
      for size, end in zip(sizes.tolist(), ends.tolist(), strict=True)
    ]
    each = len(names) + 1
    overshoots = {
      stage: standings.Overshoots(
        {source: own for source, own in enumerate(ahead) if own}, parts
      )
      for i, stage in enumerate(stages.tolist())
      for parts, *ahead in [found[i * each : (i + 1) * each]]
    }
    return merge_stages.Kept(
      text,
      names,
      standings.Standings(
        rows.reshape(shape), units.reshape(shape), overshoots
      ),
    )
  except (KeyError, ValueError, IndexError) as error:
    logging.warning("kept begins of stages cannot be used: %s", error)
    return None
