# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packed windows in memory: the rows of those in use, side by side.

A plan touches the windows of one shuffle window again and again. Their rows
lie in one set of arrays, so a plan is a few gathers whatever the number of
windows.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from concurrent import futures
import dataclasses
import threading
from typing import Any

import numpy as np

from chomp_data.index import memo
from chomp_data.index import ragged
from chomp_data.pack import documents as documents_lib
from chomp_data.pack import packing
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import row_labels
from chomp_data.stores import heartbeat

# Pieces kept beside those that a plan needs, about 50 bytes each.
_KEPT_PIECES = 1 << 20
_ENDS_KEPT = 4
# Windows of which the units of rows are kept, 8 bytes a row.
UNITS_CACHED = 64

# Packs one window: (its documents' tokens, window, epoch of the order) -> rows.
Pack = Callable[[np.ndarray, int, int], packing.Rows]


def packed_ahead(
  pack: Callable[[np.ndarray], Any],
  windows: Iterator[tuple[np.ndarray, list[np.ndarray]]],
  threads: int,
) -> Iterator[tuple[np.ndarray, list[Any]]]:
  """Packs windows in their order, several at once.

  Args:
    pack: Packs one, by the tokens of its documents. It runs in a thread, and
      should let go of the interpreter's lock.
    windows: Yields some windows and the tokens of the documents of each, in
      the caller's thread.
    threads: How many pack; 1 is the caller's alone.

  Yields:
    The same windows, and each packed.
  """

  def packed(
    own: np.ndarray, kept: list[np.ndarray]
  ) -> tuple[np.ndarray, list[Any]]:
    found = []
    for each in kept:
      # Whoever waits for some windows is told of each.
      heartbeat.beat()
      found.append(pack(each))
    return own, found

  if threads == 1:
    for own, kept in windows:
      yield packed(own, kept)
    return
  ahead: collections.deque[futures.Future[Any]] = collections.deque()
  with futures.ThreadPoolExecutor(threads, "packing") as pool:
    try:
      for own, kept in windows:
        ahead.append(pool.submit(packed, own, kept))
        if len(ahead) > 2 * threads:
          yield ahead.popleft().result()
      while ahead:
        yield ahead.popleft().result()
    finally:
      for left in ahead:
        left.cancel()


# What documents pack into rows, by windows: documents, and pieces of them.
_Window = tuple[documents_lib.Contents, packing.Rows]


@dataclasses.dataclass(frozen=True)
class _Joined:
  """Windows in use, side by side.

  Attributes:
    numbers: int64[W], which windows, ascending.
    base: int64[W], the first row of each.
    contents: Their documents.
    rows: Their rows; slots are entries of `contents`.
  """

  numbers: np.ndarray
  base: np.ndarray
  contents: documents_lib.Contents
  rows: packing.Rows


class PackedWindows:
  """Plans rows of packed windows; several threads may."""

  def __init__(self, documents: documents_lib.Documents, pack: Pack):
    """Packs nothing yet.

    Args:
      documents: Whose windows are packed.
      pack: Packs one.
    """
    self._documents = documents
    self._pack = pack
    self._lock = threading.Lock()
    self._ends = memo.Memo(_ENDS_KEPT)
    self._units = memo.Memo(UNITS_CACHED)
    self._clear(0)

  def __getstate__(self) -> dict[str, Any]:
    return {"_documents": self._documents, "_pack": self._pack}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__init__(state["_documents"], state["_pack"])

  def plan(
    self, window: np.ndarray, row: np.ndarray, order: int
  ) -> spans_lib.Spans:
    """Plans rows.

    Args:
      window: int64[N], each row's window.
      row: int64[N], the row within its window.
      order: The epoch whose order of documents is meant.
    """
    with self._lock:
      joined = self._with(np.unique(window), order)
    where = joined.base[np.searchsorted(joined.numbers, window)] + row
    return self._spans(joined.contents, joined.rows, where)

  def units(
    self, window: np.ndarray, row: np.ndarray, order: int, trained: bool
  ) -> np.ndarray:
    """Returns what rows consume, int64[N]; no span is made.

    Args:
      window: int64[N], each row's window.
      row: int64[N], the row within its window.
      order: The epoch whose order of documents is meant.
      trained: Whether trained tokens are meant, of a store that trains on all.
    """
    out = np.empty(len(row), np.int64)
    for number in np.flatnonzero(np.bincount(window)).tolist():
      pick = np.flatnonzero(window == number)
      tokens, pieces = self._units.get(
        (order, number), lambda own=number: self._units_of(own, order)
      )
      out[pick] = tokens[row[pick]]
      if trained:
        out[pick] -= pieces[row[pick]]
    return out

  def _units_of(self, window: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens and the pieces of each row, int32[num_rows]."""
    contents = self._documents.contents(np.asarray([window]), order)
    rows = self._pack(contents.kept, window, order)
    ends = np.concatenate([[0], np.cumsum(rows.length)])[rows.first]
    return np.diff(ends).astype(np.int32), np.diff(rows.first).astype(np.int32)

  def trained_ends(self, key: Mapping[str, Any], order: int) -> np.ndarray:
    """Returns int64[num_windows], the trained tokens of windows 0 .. w.

    Packs every window once, and keeps the sums.

    Args:
      key: What decides packing, `Documents.key()` apart, as JSON values.
      order: The epoch whose order of documents is meant.
    """
    documents = self._documents

    def build() -> dict[str, np.ndarray]:
      counts = np.zeros(documents.order.num_windows, np.int64)
      with documents_lib.progress(
        documents.order.num_documents, f"{documents.name}: trained"
      ) as bar:
        for window in range(len(counts)):
          number = np.asarray([window])
          contents = documents.contents(number, order)
          rows = self._pack(contents.kept, window, order)
          spans = self._spans(contents, rows, np.arange(rows.num_rows))
          trained = row_labels.trained_targets(spans, documents.store)
          counts[window] = trained.sum()
          bar.update(int(documents.order.window_sizes(number)[0]))
      return {"trained_ends": np.cumsum(counts)}

    return self._ends.get(
      order,
      lambda: documents.derived("trained", key, build)["trained_ends"],
    )

  def _clear(self, order: int) -> None:
    self._order = order
    self._held: dict[int, _Window] = {}
    self._joined: _Joined | None = None

  def _with(self, needed: np.ndarray, order: int) -> _Joined:
    """Returns the windows in use, those that are needed among them."""
    if order != self._order:
      self._clear(order)
    held = self._held
    missing = [w for w in needed.tolist() if w not in held]
    if missing or self._joined is None:
      # Those in use move to the end of the order of eviction.
      for window in needed.tolist():
        if window in held:
          held[window] = held.pop(window)
      # Where loading fails, what is held and what is joined would differ.
      self._joined = None
      self._load(missing, order)
      pieces = sum(len(rows.slot) for _, rows in held.values())
      for window in list(held)[: -len(needed) or None]:
        if pieces <= _KEPT_PIECES:
          break
        pieces -= len(held.pop(window)[1].slot)
      self._joined = self._side_by_side()
    return self._joined

  def _load(self, windows: list[int], order: int) -> None:
    if not windows:
      return
    contents = self._documents.contents(np.asarray(windows), order)
    edges = np.searchsorted(contents.window, np.arange(len(windows) + 1))
    for i, window in enumerate(windows):
      heartbeat.beat()
      own = contents.part(edges[i], edges[i + 1])
      self._held[window] = own, self._pack(own.kept, window, order)

  def _spans(
    self,
    contents: documents_lib.Contents,
    rows: packing.Rows,
    which: np.ndarray,
  ) -> spans_lib.Spans:
    """Returns some packed rows, int64[N], as the rows of a plan."""
    low = rows.first[which]
    count = rows.first[which + 1] - low
    row, nth = ragged.elements(count)
    pick = low[row] + nth
    start = rows.start[pick]
    return self._documents.spans_of(
      contents,
      rows.slot[pick],
      start,
      start + rows.length[pick],
      row=row,
      column=rows.column[pick],
      segment=nth + 1,
      num_rows=len(which),
    )

  def _side_by_side(self) -> _Joined:
    # Plans of no row need no window, but a plan must come out.
    numbers = sorted(self._held) or self._any_window()
    held = [self._held[number] for number in numbers]
    num_rows = np.asarray([rows.num_rows for _, rows in held], np.int64)
    return _Joined(
      numbers=np.asarray(numbers, np.int64),
      base=np.cumsum(num_rows) - num_rows,
      contents=documents_lib.joined([own for own, _ in held]),
      rows=packing.joined(
        [rows for _, rows in held], [len(own.kept) for own, _ in held]
      ),
    )

  def _any_window(self) -> list[int]:
    self._load([0], self._order)
    return [0]
