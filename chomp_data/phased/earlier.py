# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What an earlier run has not handed out of a source's epoch.

A state says how each source's rows were made and how many were taken. That is
a pure plan, so what they held is planned again, no token is read, and the
rest of the epoch is known to the token, whatever the packing and the order.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import json
from typing import Any

from absl import logging
import numpy as np

from chomp_data import row_kinds
from chomp_data import schema
from chomp_data import stores
from chomp_data.index import intervals
from chomp_data.order import shuffle_options
from chomp_data.order import shuffled
from chomp_data.pack import sequential
from chomp_data.phased import growing
from chomp_data.phased import rest as rest_lib
from chomp_data.phased import source_trail
from chomp_data.sources import row_source
from chomp_data.splice import selecting
from chomp_data.stores import concatenated
from chomp_data.stores import remaining
from chomp_data.stores import side_index

# Kinds that give every token once an epoch.
PACKED = ("sequential", "bin")
# Rows planned at once.
_BLOCK = 65_536
# From so many on a pass over them is told, and its result kept on disk.
_MANY_ROWS = 1 << 18
# Windows of blocks are told by a state as they are: nothing narrows them.
_ANY_CACHE = 2**62


class Earlier:
  """A source of an earlier run, as far as that run came.

  Attributes:
    rest: What remains of its epoch; None where the next one begins.
    after: What decides that, as JSON values.
  """

  def __init__(
    self,
    name: str,
    saved: Mapping[str, Any],
    rows: int,
    opened: Sequence[stores.Store],
    path: str,
  ):
    """Plans what remains, or opens what was planned before.

    Args:
      name: The source's name.
      saved: Its part of the earlier run's fingerprint.
      rows: Its rows that were taken, counted through epochs.
      opened: The stores of the source now, those of the earlier run first.
      path: Dotted path of the option that names the earlier run.

    Raises:
      ConfigError: If the earlier run's rows are of no kind that gives every
        token once, or of other stores.
    """
    self._name, self._path = name, path
    self._opened = list(opened)
    saved = {k: v for k, v in saved.items() if k != "max_epochs"}
    whole = stores.as_one(self._opened)
    source = self._ordered(saved)
    epoch, index = source.locate(np.asarray([rows], np.int64))
    self._source, self._whole = source, whole
    self._epoch, self._index = int(epoch[0]), int(index[0])
    key = {"after": json.loads(json.dumps(saved)), "rows": rows}
    self.rest: remaining.Remaining | None = None
    self.after: dict[str, Any] = {}
    if not self._index:
      logging.info(
        "%s: %r begins anew: row %d ended an epoch of the earlier run.",
        path,
        name,
        rows,
      )
      return
    planned = 0 if self._in_order() else self._index
    kept = selecting.kept(whole, "remaining", key, self._remaining, planned)
    rest = remaining.Remaining(whole, kept)
    if not rest.num_tokens:
      # Its last rows hold only tokens that were added.
      return
    self.rest = rest
    self.after = {"rows": rows, "source": saved, "rest": rest.digest}

  def _ordered(self, saved: Mapping[str, Any]) -> source_trail.Ordered:
    """Returns the source of a fingerprint, in its order."""
    whole = {k: v for k, v in saved.items() if k not in ("joined", "after")}
    joined = {
      int(epoch): {**whole, **own}
      for epoch, own in saved.get("joined", {}).items()
    }
    starts = {0: self._phase(whole, self._store(whole))} | {
      epoch: self._phase(own, self._store(own))
      for epoch, own in sorted(joined.items())
    }
    after = saved.get("after")
    if after is not None:
      first = starts[0].store
      members = getattr(first, "members", (first,))
      before = Earlier(
        self._name, after["source"], after["rows"], members, self._path
      )
      if before.rest is None or before.rest.digest != after["rest"]:
        raise self._error(
          "be of a run whose own start can be told again",
          f"one after row {after['rows']} of another, of which something else"
          " remains now",
          "Use the version of chomp_data that wrote it.",
        )
      packed = self._rows(whole, before.rest)
      own = self._shuffled(whole, rest_lib.RestSource(packed))
      starts = {1: starts[0], **starts, 0: own}
    epochs = sorted(starts)
    phases = [starts[epoch] for epoch in epochs]
    if len(phases) == 1:
      return phases[0]
    return growing.GrowingSource(phases, epochs, self._path)

  def _store(self, saved: Mapping[str, Any]) -> stores.Store:
    """Returns the store of a fingerprint: the first of those of now."""
    hashes = [own.hash for own in self._opened]
    for count in range(1, len(hashes) + 1):
      if concatenated.hash_of(hashes[:count]) == saved.get("store"):
        return stores.as_one(self._opened[:count])
    raise self._error(
      "be of a run over the same stores, or the first of them",
      f"one over the store of hash {saved.get('store')}, now"
      f" {', '.join(f'{own.path} of {own.hash}' for own in self._opened)}",
      "Give a source of other data another name: it begins anew.",
    )

  def _phase(
    self, saved: Mapping[str, Any], store: stores.Store
  ) -> shuffled.ShuffledSource:
    source = self._shuffled(saved, self._rows(saved, store))
    told = json.loads(json.dumps(source.fingerprint))
    differ = [own for own in sorted(saved) if told.get(own) != saved[own]]
    if differ:
      raise self._error(
        "be of a run that can be planned again",
        f"one in which sources.{self._name}.{differ[0]} is"
        f" {saved[differ[0]]!r}, here {told.get(differ[0])!r}",
        "Use the version of chomp_data that wrote it.",
      )
    return source

  def _rows(
    self, saved: Mapping[str, Any], store: stores.Store
  ) -> row_source.RowSource:
    kind = saved.get("kind")
    if kind not in PACKED:
      raise self._error(
        f"be of a run with rows of kind {' or '.join(map(repr, PACKED))}, which"
        " give every token of an epoch once",
        f"rows of kind {kind!r}",
        "Give the source another name: it begins anew.",
      )
    options, problems = row_kinds.read(
      "rows", {"kind": kind, **saved["rows"]}, saved["seq_len"]
    )
    self._check(problems)
    return row_kinds.make(
      options,
      store,
      seq_len=saved["seq_len"],
      seed=saved["seed"],
      name=self._name,
      path=self._path,
    )

  def _shuffled(
    self, saved: Mapping[str, Any], rows: row_source.RowSource
  ) -> shuffled.ShuffledSource:
    options, problems = schema.read(
      shuffle_options.ShuffleOptions, saved["shuffle"], "shuffle"
    )
    self._check(problems)
    assert options is not None
    return shuffled.ShuffledSource(
      rows, options, saved["seed"], cache_bytes=_ANY_CACHE
    )

  def _check(self, problems: Sequence[str]) -> None:
    if problems:
      raise self._error(
        "be of a run that can be planned again",
        f"options of {self._name!r} that are wrong here: {problems[0]}",
        "Use the version of chomp_data that wrote it.",
      )

  def _remaining(self) -> dict[str, np.ndarray]:
    """Returns the pieces of the epoch that were not handed out."""
    phase = _phase_at(self._source, self._epoch)
    own = phase.store.num_tokens
    offered = np.zeros(1, np.int64), np.asarray([own], np.int64)
    if isinstance(phase.rows, rest_lib.RestSource):
      offered = phase.rows.rest.intervals()
    # Stores that are new have not been begun either.
    total = self._whole.num_tokens
    offered = intervals.merged(
      np.append(offered[0], own), np.append(offered[1], total)
    )
    left = intervals.difference(offered, self._taken(phase))
    return remaining.pieces(self._whole, *left)

  def _in_order(self) -> bool:
    """Returns whether the epoch's rows are the store's tokens in order."""
    phase = _phase_at(self._source, self._epoch)
    packed = getattr(phase.rows, "packed", phase.rows)
    return (
      phase.options.kind == "none"
      and isinstance(packed, sequential.SequentialSource)
      and packed.options.shuffle_documents == "none"
    )

  def _taken(self, phase: shuffled.ShuffledSource) -> intervals.Intervals:
    """Returns the tokens of the epoch that were handed out."""
    first = self._source.first_row_of(self._epoch)
    if self._in_order():
      # The rows before the last one hold all that comes before it.
      spans = self._source.plan(np.asarray([first + self._index - 1]))
      end = int((spans.offset + spans.stored()[0]).max())
      return np.zeros(1, np.int64), np.asarray([end], np.int64)
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    with side_index.progress(
      self._index,
      f"{self._name}: rows of the earlier run",
      "rows",
      self._index >= _MANY_ROWS,
    ) as bar:
      for low in range(0, self._index, _BLOCK):
        high = min(low + _BLOCK, self._index)
        spans = self._source.plan(first + np.arange(low, high))
        found.append(
          intervals.merged(spans.offset, spans.offset + spans.stored()[0])
        )
        bar.update(high - low)
    return intervals.merged(*map(np.concatenate, zip(*found, strict=True)))

  def _error(self, rule: str, got: str, fix: str) -> schema.ConfigError:
    return schema.ConfigError(
      [
        f"`{self._path}` must {rule}, got {got} for source {self._name!r}."
        f" {fix}"
      ]
    )


def _phase_at(
  source: source_trail.Ordered, epoch: int
) -> shuffled.ShuffledSource:
  """Returns the phase of a source that an epoch is of."""
  if not isinstance(source, growing.GrowingSource):
    return source
  return [own for begin, own in source.starts() if begin <= epoch][-1]
