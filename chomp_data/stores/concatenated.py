# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Several stores as one: the documents of the first, then of the second, ...

Nothing is copied. Tokens and documents of the first stores have the numbers
that they have without the last ones, so a store that is appended moves nothing.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import json
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.index import columns as index_columns
from chomp_data.storage import chunk_cache
from chomp_data.stores import base
from chomp_data.stores import columns as columns_lib
from chomp_data.stores import labels as labels_lib
from chomp_data.stores import span_reads
from chomp_data.stores import texts

_FORMAT = "chomp_data concatenated"
_SCHEMA = 1


class ConcatenatedStore(base.Store):
  """Stores of one tokenizer, one after the other. Made by `as_one`.

  Its `path` is that of the first store: indexes lie beside that one.

  Attributes:
    members: The stores.
  """

  def __init__(self, members: Sequence[base.Store]):
    """Opens nothing; see `as_one`."""
    super().__init__(members[0].path)
    self.members: tuple[base.Store, ...] = tuple(members)

  def _open(self) -> base.Opened:
    members = [store.opened for store in self.members]
    documents = _Documents(self.members)
    tokens = _Tokens(self.members)
    metas = [opened.meta for opened in members if opened.meta is not None]
    has_weights = any(opened.weights is not None for opened in members)
    return base.Opened(
      hash=hash_of([store.hash for store in self.members]),
      tokenizer=dataclasses.replace(
        members[0].tokenizer,
        vocab_size=max(opened.tokenizer.vocab_size for opened in members),
      ),
      tokenizer_identity=next(
        filter(None, (opened.tokenizer_identity for opened in members)), None
      ),
      num_tokens=tokens.parts.total,
      token_dtype=max(
        (opened.token_dtype for opened in members),
        key=lambda dtype: dtype.itemsize,
      ),
      documents=documents,
      tokens=tokens,
      ids=_Texts([opened.ids for opened in members], documents.parts),
      meta=(
        _Texts(metas, documents.parts) if len(metas) == len(members) else None
      ),
      labels=(
        _labels(members, tokens.parts)
        if any(opened.labels is not None for opened in members)
        else None
      ),
      weights=_weights(members, documents.parts) if has_weights else None,
      columns=_columns(self.members, tokens.parts, documents.parts),
      tokenizer_file=members[0].tokenizer_file,
      # Documents that need EOS, and that have it.
      chats={
        name: sum(opened.chats.get(name, 0) for opened in members)
        for name in ("needs_eos", "has_eos")
      },
      chunk_tokens=members[0].chunk_tokens,
      file_bytes=sum(opened.stored_bytes for opened in members),
      is_mapped=all(opened.is_mapped for opened in members),
      is_remote=any(opened.is_remote for opened in members),
      pairs=members[0].pairs,
    )


def as_one(members: Sequence[base.Store]) -> base.Store:
  """Returns stores as one; a single one as it is.

  Args:
    members: In the order of their documents, at least one.

  Raises:
    StoreError: If tokenizers are known to differ, or only some stores hold
      preference pairs.
  """
  if len(members) == 1:
    return members[0]
  for other in members[1:]:
    _check_alike(members[0], other)
  store = ConcatenatedStore(members)
  _ = store.hash
  return store


def hash_of(hashes: Sequence[str]) -> str:
  """Returns the identity of stores one after the other.

  Args:
    hashes: The hashes of the stores; the hash of a single store is unchanged.
  """
  if len(hashes) == 1:
    return hashes[0]
  identity = {"format": _FORMAT, "schema": _SCHEMA, "stores": list(hashes)}
  text = json.dumps(identity, sort_keys=True).encode()
  return hashlib.sha256(text).hexdigest()


def _check_alike(one: base.Store, other: base.Store) -> None:
  if one.opened.pairs != other.opened.pairs:
    pairs, documents = (one, other) if one.opened.pairs else (other, one)
    raise errors.StoreError(
      f"{other.path} must hold preference pairs where {one.path} does, and only"
      f" there, got pairs in {pairs.path} and single documents in"
      f" {documents.path}. Use them in different runs."
    )
  identities = [store.opened.tokenizer_identity for store in (one, other)]
  first, second = identities
  differ = first and second and first[0] == second[0] and first != second
  rules = [
    dataclasses.replace(
      store.opened.tokenizer, kind="", sha256="", vocab_size=0
    )
    for store in (one, other)
  ]
  if differ or rules[0] != rules[1]:
    raise errors.StoreError(
      f"{other.path} must be of the tokenizer of {one.path} to be read as one"
      f" source, got {_shown(other)} and {_shown(one)}. Prepare both with one"
      " tokenizer, or make them two sources of a mix."
    )


def _shown(store: base.Store) -> str:
  info = store.opened.tokenizer
  _, value = store.opened.tokenizer_identity or ("", "an unknown one")
  return (
    f"{value[:16]} (pad {info.pad_id}, BOS {info.bos_id}, EOS {info.eos_id},"
    f" adds BOS {info.adds_bos}, adds EOS {info.adds_eos})"
  )


class _Parts:
  """Which store numbers through all of them belong to."""

  def __init__(self, sizes: Sequence[int]):
    self.starts: np.ndarray = np.concatenate([[0], np.cumsum(sizes)]).astype(
      np.int64
    )
    self.total: int = int(self.starts[-1])

  def split(self, numbers: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (store, which of the numbers are its) by store."""
    # The last one of those that begin at a number: others there are empty.
    member = np.searchsorted(self.starts, numbers, "right") - 1
    member = np.minimum(member, len(self.starts) - 2)
    for i in np.unique(member).tolist():
      yield i, np.flatnonzero(member == i)

  def split_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    positions: np.ndarray,
    out_size: int | None = None,
  ) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Yields (store, starts, lengths, positions) of the spans of each store.

    Raises:
      IndexError: If a span is not within all stores, or with `out_size` not
        within an output of so many elements.
    """
    span_reads.check_spans(
      starts,
      lengths,
      self.total,
      None if out_size is None else positions,
      out_size or 0,
    )
    part, first, length, position = span_reads.split_at(
      self.starts, starts, lengths, positions
    )
    for i in np.unique(part).tolist():
      pick = part == i
      yield i, first[pick], length[pick], position[pick]


class _Documents:
  """Where documents are; see `documents.Documents`."""

  def __init__(self, members: Sequence[base.Store]):
    self.parts: _Parts = _Parts([store.num_documents for store in members])
    self._tokens = _Parts([store.num_tokens for store in members]).starts
    self._members = [store.opened.documents for store in members]

  def __len__(self) -> int:
    return self.parts.total

  def bounds(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first token, length) of documents."""
    starts = np.empty(len(documents), np.int64)
    lengths = np.empty(len(documents), np.int64)
    for i, pick in self.parts.split(documents):
      starts[pick], lengths[pick] = self._members[i].bounds(
        documents[pick] - self.parts.starts[i]
      )
      starts[pick] += self._tokens[i]
    return starts, lengths

  def lengths(self, first: int, stop: int) -> np.ndarray:
    """Returns lengths of consecutive documents."""
    lengths = [np.zeros(0, np.int64)]
    bounds = self.parts.starts.tolist()
    for member, begin, end in zip(
      self._members, bounds[:-1], bounds[1:], strict=True
    ):
      low, high = max(first, begin), min(stop, end)
      if low < high:
        lengths.append(member.lengths(low - begin, high - begin))
    return np.concatenate(lengths)


class _Texts(texts.Texts):
  """The strings that stores give their documents."""

  def __init__(self, members: Sequence[texts.Texts], parts: _Parts):
    self._members = members
    self._parts = parts

  def __len__(self) -> int:
    return self._parts.total

  def take(self, documents: np.ndarray) -> list[str]:
    """Returns the strings of documents."""
    out = [""] * len(documents)
    for i, pick in self._parts.split(documents):
      strings = self._members[i].take(documents[pick] - self._parts.starts[i])
      for place, string in zip(pick.tolist(), strings, strict=True):
        out[place] = string
    return out

  def find(self, names: Sequence[str]) -> dict[str, list[int]]:
    """Returns the documents of each string, ascending."""
    all_documents: dict[str, list[int]] = {name: [] for name in names}
    for begin, member in zip(
      self._parts.starts.tolist(), self._members, strict=False
    ):
      for name, documents in member.find(names).items():
        all_documents[name] += [begin + document for document in documents]
    return all_documents


class _Joined:
  """An array of all stores, one after the other; some may not have it."""

  def __init__(self, members: Sequence[Any], parts: _Parts):
    """Reads nothing.

    Args:
      members: The arrays of the stores; None of one that has none.
      parts: Where each array begins among all values.
    """
    self._members = members
    self.parts: _Parts = parts

  def copy_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    """Copies spans of the stores that have the array."""
    for i, first, length, position in self.parts.split_spans(
      starts, lengths, positions, len(out)
    ):
      if self._members[i] is not None:
        self._copy(self._members[i], first, length, out, position)

  def _copy(self, member: Any, *span: np.ndarray) -> None:
    member.copy_spans(*span)

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> bool:
    """Requests spans of the stores that have the array."""
    more = [
      self._members[i].prefetch(first, length)
      for i, first, length, _ in self.parts.split_spans(starts, lengths, starts)
      if self._members[i] is not None
    ]
    # Local stores never ask for more, and need not hold others back.
    return any(more)


class _Tokens(_Joined):
  """The tokens of all stores; see `base.Tokens`."""

  def __init__(self, members: Sequence[base.Store]):
    super().__init__(members, _Parts([store.num_tokens for store in members]))

  def _copy(self, member: base.Store, *span: np.ndarray) -> None:
    # By the store, which looks whether it was replaced.
    member.copy_tokens(*span)

  @property
  def counters(self) -> chunk_cache.Counters:
    """What was read of all stores; a span that crosses two counts twice."""
    return sum(
      (store.counters for store in self._members), chunk_cache.Counters()
    )

  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Bounds the cached chunks; members share the bytes by their tokens."""
    total = max(1, self.parts.total)
    for store in self._members:
      store.set_cache(cache_bytes * store.num_tokens // total)


class _Values(_Joined):
  """Numbers of all stores, read at positions; see `labels.Values`."""

  def __init__(
    self,
    members: Sequence[labels_lib.Values],
    parts: _Parts,
    dtype: type,
    convert: Callable[[int, np.ndarray], np.ndarray] = lambda i, values: values,
  ):
    """Reads nothing.

    Args:
      members: The arrays of the stores.
      parts: Where each array begins among all values.
      dtype: Of the values.
      convert: Returns the values of store i as values of the whole.
    """
    super().__init__(members, parts)
    self._dtype = dtype
    self._convert = convert

  def gather(self, positions: np.ndarray) -> np.ndarray:
    """Returns the values at positions."""
    out = np.empty(len(positions), self._dtype)
    for i, pick in self.parts.split(positions):
      local = positions[pick] - self.parts.starts[i]
      out[pick] = self._convert(i, self._members[i].gather(local))
    return out


def _columns(
  members: Sequence[base.Store], tokens: _Parts, documents: _Parts
) -> dict[str, columns_lib.StoredColumn]:
  """Returns the columns that some of the stores have.

  Raises:
    StoreError: If two stores have different ones of a name.
  """
  columns_lib.check_alike(
    [(store.path, store.opened.columns) for store in members], complete=False
  )
  names = dict.fromkeys(
    name for store in members for name in store.opened.columns
  )
  return {name: _column(members, name, tokens, documents) for name in names}


def _column(
  members: Sequence[base.Store], name: str, tokens: _Parts, documents: _Parts
) -> columns_lib.StoredColumn:
  """Returns a column that some of the stores have."""
  stored = [store.opened.columns.get(name) for store in members]
  column = next(values.column for values in stored if values is not None)
  parts = tokens if column.per == columns_lib.TOKEN else documents
  return columns_lib.StoredColumn(
    column,
    _Joined(
      [None if values is None else values.elements for values in stored],
      _Parts((np.diff(parts.starts) * column.width).tolist()),
    ),
    lacking=tuple(
      path
      for store, values in zip(members, stored, strict=True)
      for path in ((store.path,) if values is None else values.lacking)
    ),
  )


def _weights(members: Sequence[base.Opened], parts: _Parts) -> _Values:
  """Returns the weights of the documents of all stores."""
  return _Values(
    [
      opened.weights
      or index_columns.ArrayColumn(
        np.broadcast_to(np.float32(1), len(opened.documents))
      )
      for opened in members
    ],
    parts,
    np.float32,
  )


def _labels(
  members: Sequence[base.Opened], tokens: _Parts
) -> labels_lib.LabelRuns:
  """Returns the runs of all stores, among the levels of all."""
  runs = [
    opened.labels or labels_lib.AllTrained(opened.num_tokens)
    for opened in members
  ]
  parts = _Parts([member.num_runs for member in runs])
  table = list(
    dict.fromkeys(
      level for member in runs for level in member.level_weights.tolist()
    )
  )
  numbers = [
    np.asarray(
      [table.index(level) for level in member.level_weights.tolist()], np.uint8
    )
    for member in runs
  ]

  @functools.cache
  def trained() -> np.ndarray:
    """Returns the trained tokens before each store, and of all."""
    ends = [
      member.sums.gather(np.asarray([member.num_runs])) for member in runs
    ]
    return np.cumsum([0, *(int(end[0]) for end in ends)])

  return labels_lib.LabelRuns(
    np.asarray(table, np.float32),
    starts=_Values(
      [member.starts for member in runs],
      parts,
      np.int64,
      lambda i, starts: starts + tokens.starts[i],
    ),
    levels=_Values(
      [member.levels for member in runs],
      parts,
      np.uint8,
      lambda i, levels: numbers[i][levels],
    ),
    sums=_Values(
      [member.sums for member in runs],
      parts,
      np.int64,
      lambda i, sums: sums + trained()[i],
    ),
    num_runs=parts.total,
    num_tokens=tokens.total,
  )
