# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What a previous run has not read of the epoch in which it stopped.

A state says how each source's rows were made and how many were read. Rows are
planned from that again, without reading a token; the tokens of the epoch that
are in none of them remain, whatever the packing and the order.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import json
from typing import Any

from absl import logging
import numpy as np

from chomp_data import fingerprints
from chomp_data import row_kinds
from chomp_data import schema
from chomp_data import stores
from chomp_data.index import intervals
from chomp_data.order import shuffle_options
from chomp_data.order import shuffled
from chomp_data.phased import phased_source
from chomp_data.sources import document_columns
from chomp_data.sources import row_source
from chomp_data.stores import concatenated
from chomp_data.stores import remainder
from chomp_data.stores import side_index

# From this number of rows on, progress is shown while they are planned.
_MANY_ROWS = 1 << 18
# The fingerprint has the width of windows of that run: do not narrow it here.
_ANY_CACHE = 2**62
_SAME_VERSION = "Use the version of chomp_data that wrote it."


class PreviousRun:
  """The rows of each source that a previous run has read."""

  def __init__(
    self, record: Mapping[str, Any], names: Sequence[str], path: str
  ):
    """Looks up the sources of that run.

    Args:
      record: The last state of that run, which has a `resume_state`.
      names: The names of the sources of this run.
      path: Dotted path of the option that names that run.

    Raises:
      ConfigError: If no source of that run has the name of one of this run.
    """
    self._path = path
    saved = record["fingerprint"]
    shared = {name: saved[name] for name in ("seed", "seq_len")}
    self._rows: dict[str, int] = {
      entry["spec"]: entry["row_offset"]
      for entry in record["resume_state"]["datasets"]
    }
    self._sources: dict[str, dict[str, Any]] = {
      name: {**source, **shared}
      for name, source in saved["sources"].items()
      if name in self._rows
    }
    if not self._sources.keys() & set(names):
      raise schema.ConfigError(
        [
          f"`{path}` must be of a run with a source of the same name, got"
          f" {', '.join(self._sources)}, here {', '.join(names)}. Use the same"
          " names."
        ]
      )

  def of(
    self, name: str, rows: Any, opened: Sequence[stores.Store], path: str
  ) -> "PreviousRunSource | None":
    """Returns the rows of a source that the previous run did not read.

    Args:
      name: The name of the source.
      rows: The options of its rows.
      opened: Its stores in the first epoch.
      path: Dotted path of the options.

    Returns:
      The remaining rows, or None if the source starts from its beginning.

    Raises:
      ConfigError: If the remaining tokens cannot be determined.
    """
    saved = self._sources.get(name)
    if saved is None:
      logging.info(
        "%s: %r starts from its beginning: that run did not have it.",
        self._path,
        name,
      )
      return None
    if "simulated_epochs" in saved:
      raise schema.ConfigError(
        [
          f"`{self._path}` must be of a run without simulated_epochs, got one"
          f" that reads selected documents of {name!r}. Leave it out, or give"
          " the source another name: it then starts from its beginning."
        ]
      )
    kind = row_kinds.of(type(rows))
    if kind is None or not kind.each_token_once:
      packed = " or ".join(map(repr, row_kinds.passes_over_tokens()))
      raise schema.ConfigError(
        [
          f"`{path}.kind` must be {packed} with start_after, which counts every"
          " token once, got one that gives tokens several times. Give the"
          " source another name: it starts from its beginning."
        ]
      )
    remaining_rows = PreviousRunSource(
      name, saved, self._rows[name], opened, self._path
    )
    return None if remaining_rows.remaining is None else remaining_rows


class PreviousRunSource:
  """A source of a previous run, up to the row at which that run stopped.

  Attributes:
    remaining: The unread rest of its epoch; None if the epoch was completed.
    after: What determines the rest, as JSON values.
  """

  def __init__(
    self,
    name: str,
    saved: Mapping[str, Any],
    rows: int,
    opened: Sequence[stores.Store],
    path: str,
  ):
    """Computes the unread rest of the epoch, or opens it from a cache on disk.

    Args:
      name: The name of the source.
      saved: Its part of the previous run's fingerprint.
      rows: How many of its rows were read, over all epochs.
      opened: The stores of the source now, those of the previous run first.
      path: Dotted path of the option that names the previous run.

    Raises:
      ConfigError: If the previous run's rows are of no kind that gives every
        token once, or of other stores.
    """
    self._name, self._path = name, path
    self._opened = list(opened)
    saved = {key: v for key, v in saved.items() if key != "max_epochs"}
    self._source = self._ordered(saved)
    self._whole = stores.as_one(self._opened)
    epochs, indices = self._source.epochs.locate(np.asarray([rows], np.int64))
    epoch, self._num_read = int(epochs[0]), int(indices[0])
    self._first_row = rows - self._num_read
    self._phase = phased_source.phase_at(self._source, epoch)
    self.remaining: remainder.RemainderStore | None = None
    self.after: dict[str, Any] = {}
    # A phase that had read no row leaves what the phase before it had left.
    continues = isinstance(self._phase.rows, phased_source.RemainderSource)
    if not self._num_read and not continues:
      logging.info(
        "%s: %r starts from its beginning: row %d ended an epoch of the earlier"
        " run.",
        path,
        name,
        rows,
      )
      return
    pieces = document_columns.load_or_build(
      self._whole,
      "remaining",
      {"after": json.loads(json.dumps(saved)), "rows": rows},
      self._remaining_pieces,
      0 if self._is_in_order() else self._num_read,
    )
    remaining = remainder.RemainderStore(self._whole, pieces)
    # The last rows may hold only added tokens, such as EOS.
    if remaining.num_tokens:
      self.remaining = remaining
      self.after = {
        "rows": rows,
        "source": saved,
        "rest": remaining.pieces.digest,
      }

  def _ordered(self, saved: Mapping[str, Any]) -> phased_source.Ordered:
    """Returns the source that has a fingerprint, in its order."""
    first = {k: v for k, v in saved.items() if k not in ("joined", "after")}
    by_epoch = {0: first} | {
      int(epoch): {**first, **changes}
      for epoch, changes in saved.get("joined", {}).items()
    }
    source = phased_source.of_joining_stores(
      {
        epoch: self._checked(fingerprint)
        for epoch, fingerprint in by_epoch.items()
      },
      self._path,
    )
    previous_run = saved.get("after")
    if previous_run is None:
      return source
    store = source.phases[0][1].store
    members = None
    if isinstance(store, concatenated.ConcatenatedStore):
      members = store.members
    previous = PreviousRunSource(
      self._name,
      previous_run["source"],
      previous_run["rows"],
      members or self._opened[:1],
      self._path,
    )
    remaining = previous.remaining
    if remaining is None or remaining.pieces.digest != previous_run["rest"]:
      raise self._error(
        "be of a run whose start_after can be planned again",
        f"one after row {previous_run['rows']} of another, of which other"
        " tokens remain now",
        _SAME_VERSION,
      )
    pieces = phased_source.RemainderSource(self._rows(first, remaining))
    return phased_source.continued(
      source, self._shuffled(first, pieces), previous_run
    )

  def _checked(self, saved: Mapping[str, Any]) -> shuffled.ShuffledSource:
    """Returns the source of one phase, whose fingerprint must be the same."""
    rows = self._rows(saved, self._store(saved))
    source = self._shuffled(saved, rows)
    fingerprint = json.loads(json.dumps(source.fingerprint))
    section = f"sources.{self._name}"
    for path, was, now in fingerprints.compared(saved, fingerprint, section):
      raise self._error(
        "be of a run that can be planned again",
        f"one in which {path} is {was}, here {now}",
        _SAME_VERSION,
      )
    return source

  def _store(self, saved: Mapping[str, Any]) -> stores.Store:
    """Returns the store that a fingerprint names, of the first stores open."""
    hashes = [store.hash for store in self._opened]
    for count in range(1, len(hashes) + 1):
      if concatenated.hash_of(hashes[:count]) == saved.get("store"):
        return stores.as_one(self._opened[:count])
    raise self._error(
      "be of a run over the same stores, or the first of them",
      f"one over the store of hash {saved.get('store')}, now"
      f" {', '.join(f'{s.path} of {s.hash}' for s in self._opened)}",
      "Give a source of other data another name: it then starts from its"
      " beginning.",
    )

  def _rows(
    self, saved: Mapping[str, Any], store: stores.Store
  ) -> row_source.RowSource:
    """Returns the unordered rows that a fingerprint names, over a store."""
    kind = saved.get("kind")
    packed = row_kinds.passes_over_tokens()
    if kind not in packed:
      raise self._error(
        f"be of a run with rows of kind {' or '.join(map(repr, packed))}, which"
        " give every token of an epoch once",
        f"rows of kind {kind!r}",
        "Give the source another name: it then starts from its beginning.",
      )
    section = {"kind": kind, **saved["rows"]}
    options, problems = row_kinds.section(section, saved["seq_len"]).read(
      section, "rows"
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
    """Returns rows in the order that a fingerprint names."""
    options, problems = schema.read(
      shuffle_options.ShuffleOptions, saved["shuffle"], "shuffle"
    )
    self._check(problems)
    assert options is not None
    return shuffled.ShuffledSource(
      rows, options, saved["seed"], cache_bytes=_ANY_CACHE
    )

  def _remaining_pieces(self) -> dict[str, np.ndarray]:
    """Returns the pieces of the epoch that were not read, as columns."""
    rows, end = self._phase.rows, self._phase.store.num_tokens
    begins, ends = np.zeros(1, np.int64), np.asarray([end], np.int64)
    if isinstance(rows, phased_source.RemainderSource):
      begins, ends = rows.remaining.pieces.intervals()
    # Stores that joined later are unread too.
    offered = intervals.merged(
      np.append(begins, end), np.append(ends, self._whole.num_tokens)
    )
    unread = intervals.difference(offered, self._read_tokens())
    return remainder.pieces(self._whole, *unread)

  def _is_in_order(self) -> bool:
    """Returns whether the epoch's rows are the store's tokens in order."""
    options = self._phase.rows.options
    return self._phase.options.kind == "none" and getattr(
      options, "in_stored_order", False
    )

  def _read_tokens(self) -> intervals.Intervals:
    """Returns the tokens of the epoch that were read."""
    end = self._first_row + self._num_read
    if not self._num_read:
      return np.empty(0, np.int64), np.empty(0, np.int64)
    if self._is_in_order():
      # The last row read ends where the unread tokens begin.
      spans = self._source.plan(np.asarray([end - 1]))
      last_token = int((spans.offset + spans.stored()[0]).max())
      return np.zeros(1, np.int64), np.asarray([last_token], np.int64)
    parts = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    with side_index.progress(
      self._num_read,
      f"{self._name}: rows of the earlier run",
      "rows",
      self._num_read >= _MANY_ROWS,
    ) as bar:
      for spans in row_source.planned_blocks(
        self._source, self._first_row, end
      ):
        parts.append(
          intervals.merged(spans.offset, spans.offset + spans.stored()[0])
        )
        bar.update(spans.num_rows)
    return intervals.merged(*map(np.concatenate, zip(*parts, strict=True)))

  def _check(self, problems: Sequence[str]) -> None:
    if problems:
      raise self._error(
        "be of a run that can be planned again",
        f"options of {self._name!r} that are wrong here: {problems[0]}",
        _SAME_VERSION,
      )

  def _error(self, rule: str, got: str, fix: str) -> schema.ConfigError:
    return schema.ConfigError(
      [
        f"`{self._path}` must {rule}, got {got} for source {self._name!r}."
        f" {fix}"
      ]
    )
