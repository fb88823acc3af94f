# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Preference pairs as the units that a packer places.

Documents 2k and 2k + 1 of a store are the chosen and the rejected answer of
pair k. A pair is packed as one document that is never cut: orders, windows and
pieces count pairs, and only spans are of documents again.

    pairs (3, 2) and (1, 2) in a row of 10
    documents    0 0 0 1 1 2 3 3 - -
    segment_ids  1 1 1 2 2 3 4 4 0 0
"""

from collections.abc import Iterator
import dataclasses
from typing import Any

import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.pack import documents as documents_lib
from chomp_data.pack.packing_options import BinOptions
from chomp_data.rows import spans as spans_lib
from chomp_data.stores import remainder

# Options of rows that only a store of pairs has.
FIELDS = ("pair_slots", "long_pairs")


def problems(options: BinOptions, store: stores.Store, path: str) -> list[str]:
  """Returns which options do not fit what a store holds.

  Args:
    options: Of the rows.
    store: Their store.
    path: Dotted path of the options, for messages.
  """
  defaults = {n: o.default for n, o in schema.options_of(BinOptions).items()}
  if not store.opened.pairs:
    return [
      f"`{path}.{name}` must be left out for {store.path}, which holds no"
      f" preference pairs, got {getattr(options, name)!r}. Unset it."
      for name in FIELDS
      if getattr(options, name) != defaults[name]
    ]
  if isinstance(store, remainder.RemainderStore):
    return [
      "`config.data.start_after` must be None for the preference pairs of"
      f" {store.path}, got a run: what it has left may be parts of pairs. Unset"
      " it."
    ]
  if options.long_pairs == "truncate_prompt" and not store.labels.has_runs:
    return [
      f"`{path}.long_pairs` must be 'drop' for {store.path}, whose pairs have"
      " no labels that say where prompts end, got 'truncate_prompt'. Unset it,"
      " or prepare the store with its prompts."
    ]
  return [
    f"`{path}.{name}` must be {defaults[name]!r} for the preference pairs of"
    f" {store.path}, which are never cut, got {getattr(options, name)!r}."
    f" {fix}"
    for name, fix in (
      ("packing_algorithm", "Unset it."),
      ("long_documents", "Unset it, and set long_pairs."),
    )
    if getattr(options, name) != defaults[name]
  ]


def most_pairs(options: BinOptions) -> int:
  """Returns the most pairs of a row."""
  limit = options.packing_max_docs_per_bin
  return options.pair_slots if limit is None else min(options.pair_slots, limit)


class PairDocuments(documents_lib.Documents):
  """The pairs of a store, in the orders in which they are packed.

  A pair with a half of no token is skipped.
  """

  spans_per_piece = 2
  counts_dropped = True

  def key(self) -> dict[str, Any]:
    """Returns what determines lengths and sums, as JSON values."""
    key = super().key()
    key["long_pairs"] = key.pop("long_documents")
    return key

  def units(self, documents: np.ndarray) -> np.ndarray:
    """Returns the pairs of documents int64[N]."""
    return documents // 2

  def bounds(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns first token and length of pairs."""
    first_token, length = self.store.bounds(halves(documents))
    return first_token[::2], _pair_lengths(length)

  def iter_lengths(self, batch: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the lengths of all pairs."""
    for first, lengths in self.store.iter_lengths(2 * batch):
      yield first // 2, _pair_lengths(lengths)

  def _added(self, document: np.ndarray) -> tuple[int, int]:
    del document
    return 2 * self._bos, 2 * self._eos

  def _fitted(self, document: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns lengths without the tokens that `long_pairs` leaves out."""
    long = np.flatnonzero(lengths > self._seq_len)
    if not len(long):
      return lengths
    fitted = lengths.copy()
    fitted[long] = 0
    if self._long == "truncate_prompt":
      # The same tokens of both prompts; one token of each remains, so that
      # what follows it is a target.
      cut = -((self._seq_len - lengths[long]) // 2)
      fits = cut < self._prompt_lengths(document[long])
      fitted[long] = np.where(fits, lengths[long] - 2 * cut, 0)
    return fitted

  def _prompt_lengths(self, pairs: np.ndarray) -> np.ndarray:
    """Returns how many tokens of each half come before a trained one.

    Args:
      pairs: int64[N], whose halves have tokens.

    Returns:
      int64[N], the smaller number of the two halves.
    """
    labels = self.store.labels
    span, begin, stop, level = labels.runs(*self.store.bounds(halves(pairs)))
    del span
    opens = begin == 0
    is_trained = labels.levels[level[opens]] > 0
    return np.where(is_trained, 0, stop[opens]).reshape(-1, 2).min(axis=1)

  def spans_of(
    self,
    contents: documents_lib.Contents,
    which: np.ndarray | slice,
    begin: np.ndarray,
    end: np.ndarray,
    *,
    row: np.ndarray,
    column: np.ndarray,
    segment: np.ndarray,
    num_rows: int,
  ) -> spans_lib.Spans:
    """Returns the two spans of each pair, segments 2p + 1 and 2p + 2."""
    document = halves(contents.document[which])
    first_token, stored = self.store.bounds(document)
    added = self._bos + self._eos
    offered = contents.stored[which] + 2 * added
    cut = np.repeat((offered - (end - begin)) // 2, 2)
    length = stored - cut + added
    spans = spans_lib.of_parts(
      document=document,
      first_token=first_token + cut,
      stored=stored - cut,
      whole=length,
      begin=np.zeros_like(length),
      end=length,
      bos=self._bos,
      eos=self._eos,
      row=np.repeat(row, 2),
      column=np.stack([column, column + length[::2]], axis=1).reshape(-1),
      segment=np.stack([2 * segment - 1, 2 * segment], axis=1).reshape(-1),
      num_rows=num_rows,
    )
    return dataclasses.replace(spans, start=spans.start + cut)


def halves(pairs: np.ndarray) -> np.ndarray:
  """Returns int64[2 N], the documents of pairs int64[N]."""
  return np.stack([2 * pairs, 2 * pairs + 1], axis=1).reshape(-1)


def _pair_lengths(lengths: np.ndarray) -> np.ndarray:
  """Returns the tokens of pairs; 0 where a half has none.

  lengths [3, 2, 0, 4] -> [5, 0]
  """
  chosen, rejected = lengths[::2], lengths[1::2]
  return np.where(np.minimum(chosen, rejected) > 0, chosen + rejected, 0)
