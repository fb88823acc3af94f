# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated epochs: a short run repeats its sources as a long one would.

    hash(source, document)   08  19  27  40 | 5b  77  a3  f0
    tokens                   30  50  10  30 | 60  20  70  30    t / T = 0.4

Documents are taken in the order of their hashes until they hold t / T of the
tokens that rows consume. They are all those with a hash up to a threshold, so
that a smaller t / T selects a subset.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import hashlib
from typing import Any

import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.index import hashing
from chomp_data.pack import packing
from chomp_data.pack import packing_options
from chomp_data.phased import phased_source
from chomp_data.sources import document_columns
from chomp_data.sources import row_source
from chomp_data.stores import remainder

# Part of the key of the side index: raise it when selections change.
_VERSION = 1
# Documents whose lengths are read at once.
PASS_DOCUMENTS = 1 << 20
# Hashes are grouped by their first bits; one group at a time is sorted.
_GROUP_BITS = 16
_SHIFT = np.uint64(64 - _GROUP_BITS)

# Yields the hashes of documents, and the tokens that rows consume of each.
_Documents = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]


@dataclasses.dataclass(frozen=True)
class SimulatedEpochs(schema.Options):
  """The section `simulated_epochs`: fewer documents for a shorter run.

  Attributes:
    target_tokens: Tokens of the run whose epochs are simulated.
    run_tokens: Tokens of this run. Each source is restricted to documents with
      run_tokens / target_tokens of its tokens.
  """

  target_tokens: int = schema.required(schema.integer(1, 2**62))
  run_tokens: int = schema.required(schema.integer(1, 2**62))

  def problems(self, path: str) -> list[str]:
    """Returns what is wrong between these fields."""
    if self.run_tokens <= self.target_tokens:
      return []
    return [
      f"`{path}.run_tokens` must be at most target_tokens, got"
      f" {self.run_tokens} and {self.target_tokens}. Exchange them, or leave"
      " the section out: a run of all tokens needs none."
    ]


class SelectedSource(phased_source.RemainderSource):
  """Rows of the selected documents of a store."""

  def __init__(self, pieces: row_source.RowSource):
    """Wraps rows over a `remainder.SelectedStore`."""
    super().__init__(pieces)
    assert isinstance(pieces.store, remainder.SelectedStore)
    self._selected = pieces.store

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines this source's rows, as JSON values."""
    return {**super().fingerprint, **self._selected.fingerprint}

  def describe(self) -> str:
    """Returns the summary of the rows and of the selection."""
    return f"{super().describe()}\n  {self._selected.describe()}"


def select(
  store: stores.Store,
  simulated: SimulatedEpochs,
  rows: packing_options.AddedTokenOptions,
  *,
  seq_len: int,
  name: str,
  path: str,
) -> stores.Store:
  """Returns the documents of a store that a run reads of a source.

  Args:
    store: All its documents.
    simulated: The options.
    rows: The options of its rows: added and dropped tokens count as rows
      consume them.
    seq_len: Positions of a row, which the selection must fill; 1 in buckets.
    name: The name of the source, a part of the hash.
    path: Dotted path of the section, for messages.

  Returns:
    A `SelectedStore`; `store` itself if not even all of its documents fill a
    row, which its rows report.

  Raises:
    ConfigError: If the selection holds fewer, or documents are pairs.
  """
  if store.opened.pairs:
    raise schema.ConfigError(
      [
        f"`{path}` must be None for the preference pairs of source {name!r},"
        " whose halves are never selected apart, got a section. Leave it out."
      ]
    )
  key = hashing.fold_key("simulated_epochs", name)
  # Rows of some kinds add no tokens.
  added = getattr(rows, "add_bos", False) + getattr(rows, "add_eos", False)
  long_documents = getattr(rows, "long_documents", "cut")
  longest = seq_len - getattr(rows, "reserved", 0)  # that a row holds whole

  def documents() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for first, stored in store.iter_lengths(PASS_DOCUMENTS):
      hashes = hashing.fold(key, np.arange(first, first + len(stored)))
      lengths = np.where(stored > 0, stored + added, 0)
      yield hashes, packing.packed_lengths(lengths, longest, long_documents)

  def build() -> Iterator[dict[str, np.ndarray]]:
    sums = np.zeros(1 << _GROUP_BITS, np.int64)
    for hashes, tokens in documents():
      np.add.at(sums, (hashes >> _SHIFT).astype(np.int64), tokens)
    total = int(sums.sum())
    threshold = 0  # Selects nothing: the rows of the store report it.
    if total >= seq_len:
      wanted = -(-total * simulated.run_tokens // simulated.target_tokens)
      threshold, before, last = _crossing(documents, sums, wanted)
      if before + last < seq_len:
        _, before_row, _ = _crossing(documents, sums, seq_len)
        smallest = before_row * simulated.target_tokens // total + 1
        raise schema.ConfigError(
          [
            f"`{path}.run_tokens` must be at least {smallest} so that source"
            f" {name!r} keeps a row of {seq_len} tokens, got"
            f" {simulated.run_tokens}, which leaves {before + last} of {total}"
            " tokens. Raise it, or lower target_tokens."
          ]
        )
    yield from _intervals(store, key, threshold)

  table = document_columns.load_or_build_parts(
    store,
    "simulated_epochs",
    {
      "version": _VERSION,
      "source": name,
      "run_tokens": simulated.run_tokens,
      "target_tokens": simulated.target_tokens,
      "added": added,
      "long_documents": [longest, long_documents],
      "seq_len": seq_len,
    },
    build,
    store.num_documents,
  )
  selected = remainder.SelectedStore(store, table)
  return selected if selected.num_tokens else store


def _crossing(
  documents: _Documents, sums: np.ndarray, wanted: int
) -> tuple[int, int, int]:
  """Returns where documents in the order of hashes hold some tokens.

  Args:
    documents: All of them.
    sums: int64[2**_GROUP_BITS], the tokens of each group of hashes.
    wanted: From 1 to the tokens of all documents.

  Returns:
    The hash of the first document with which they hold `wanted` tokens, the
    tokens of those before it, and its own.
  """
  ends = np.cumsum(sums)
  group = int(np.searchsorted(ends, wanted))
  parts = []
  for hashes, tokens in documents():
    pick = (hashes >> _SHIFT) == group
    parts.append((hashes[pick], tokens[pick]))
  hashes, tokens = map(np.concatenate, zip(*parts, strict=True))
  order = np.argsort(hashes)
  held = ends[group] - sums[group] + np.cumsum(tokens[order])
  crossing = int(np.searchsorted(held, wanted))
  last = int(tokens[order[crossing]])
  return int(hashes[order[crossing]]), int(held[crossing]) - last, last


def _intervals(
  store: stores.Store, key: int, threshold: int
) -> Iterator[dict[str, np.ndarray]]:
  """Yields the intervals of documents up to a hash, as `RemainderStore` has.

  Documents without tokens are in none.
  """
  num_documents = num_tokens = 0
  for first, stored in store.iter_lengths(PASS_DOCUMENTS):
    hashes = hashing.fold(key, np.arange(first, first + len(stored)))
    selected = (hashes <= np.uint64(threshold)) & (stored > 0)
    edges = first + np.flatnonzero(
      np.diff(selected, prepend=False, append=False)
    )
    opens, ends = edges[::2], edges[1::2]
    sizes = ends - opens
    last_begin, last_length = store.bounds(ends - 1)
    yield {
      "begin": store.bounds(opens)[0],
      "end": last_begin + last_length,
      "document": opens,
      "piece": num_documents + np.cumsum(sizes) - sizes,
    }
    num_documents += int(sizes.sum())
    num_tokens += int(stored[selected].sum())
  digest = hashlib.sha256(f"{key} {threshold}".encode()).digest()
  yield {
    "threshold": np.frombuffer(threshold.to_bytes(8, "big"), np.uint8),
    "digest": np.frombuffer(digest, np.uint8),
    "totals": np.asarray([num_documents, num_tokens], np.int64),
  }
