# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Several stores as one: the documents of the first, then of the second, ...

Nothing is copied. Tokens and documents of the first stores have the numbers
that they have without the last ones, so a store that is appended moves nothing.
"""

from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import json
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data.stores import base
from chomp_data.stores import labels
from chomp_data.stores import span_reads
from chomp_data.stores import vocabulary

_FORMAT = "chomp_data concatenated"
_SCHEMA = 1


class ConcatenatedStore(base.Store["_Opened"]):
  """Stores of one tokenizer, one after the other. Made by `as_one`.

  Its `path` is that of the first store: indexes lie beside that one.

  Attributes:
    members: The stores.
  """

  def __init__(self, members: Sequence[base.Store]):
    """Opens nothing; see `as_one`."""
    super().__init__(members[0].path)
    self.members: tuple[base.Store, ...] = tuple(members)

  def _open(self) -> "_Opened":
    return _Opened(self.members)

  @property
  def tokenizer_identity(self) -> tuple[str, str] | None:
    """What tells the tokenizer from others; see `base.Store`."""
    known = [own.tokenizer_identity for own in self.members]
    return next((own for own in known if own is not None), None)

  @property
  def chunk_tokens(self) -> int:
    """Tokens of a chunk of the first store."""
    return self.members[0].chunk_tokens

  @property
  def stored_bytes(self) -> int:
    """Bytes of the tokens of all stores; see `base.Store`."""
    return sum(own.stored_bytes for own in self.members)

  @property
  def chats(self) -> dict[str, Any]:
    """Documents that need EOS, and that have it; see `base.Store`."""
    return {
      name: sum(own.chats.get(name, 0) for own in self.members)
      for name in ("needs_eos", "has_eos")
    }

  @property
  def has_meta(self) -> bool:
    """Whether each document has a string besides its id."""
    return all(own.has_meta for own in self.members)

  def document_meta(self, documents: Sequence[int] | np.ndarray) -> list[str]:
    """Returns what was kept of documents; see `base.Store`."""
    if not self.has_meta:
      return super().document_meta(documents)
    own = self._opened.documents.apart(self._existing(documents))
    out = [""] * len(documents)
    for member, pick, local in own:
      found = self.members[member].document_meta(local)
      for i, value in zip(pick.tolist(), found, strict=True):
        out[i] = value
    return out

  def find_documents(self, ids: Sequence[str]) -> dict[str, list[int]]:
    """Finds documents by id; see `base.Store`."""
    found: dict[str, list[int]] = {name: [] for name in ids}
    firsts = self._opened.documents.starts.tolist()
    for first, member in zip(firsts, self.members, strict=False):
      for name, documents in member.find_documents(ids).items():
        found[name] += [first + document for document in documents]
    return found

  def tokenizer_file(self) -> bytes:
    """Returns the tokenizer's file; see `base.Store`."""
    return self.members[0].tokenizer_file()

  @property
  def has_labels(self) -> bool:
    """Whether some tokens may not be trained on; see `base.Store`."""
    return any(own.has_labels for own in self.members)

  @property
  def has_document_weights(self) -> bool:
    """Whether documents may weigh other than 1; see `base.Store`."""
    return any(own.has_document_weights for own in self.members)

  @property
  def levels(self) -> np.ndarray:
    """float32[L], the weights of the levels of all stores."""
    return self._levels[0]

  @functools.cached_property
  def _levels(self) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the levels of all, and what each store's are among them."""
    table = labels.LEVELS.tolist()
    numbers = []
    for member in self.members:
      for level in member.levels.tolist():
        if level not in table:
          table.append(level)
      own = [table.index(level) for level in member.levels.tolist()]
      numbers.append(np.asarray(own, np.uint8))
    return np.asarray(table, np.float32), numbers

  def label_runs(
    self, starts: np.ndarray, lengths: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the levels of tokens in spans; see `base.Store`."""
    span_reads.check_spans(starts, lengths, self.num_tokens)
    # Where spans would be, one after the other: it tells them apart.
    places = np.cumsum(lengths) - lengths
    bounds = self._opened.token_starts
    part, first, length, place = span_reads.split_at(
      bounds, starts, lengths, places
    )
    found = []
    for member in np.unique(part).tolist():
      pick = np.flatnonzero(part == member)
      span, begin, stop, level = self.members[member].label_runs(
        first[pick], length[pick]
      )
      at = place[pick][span]
      found.append((at + begin, at + stop, self._levels[1][member][level]))
    if not found:
      none = np.zeros(0, np.int64)
      return none, none, none, np.zeros(0, np.uint8)
    begin, stop, level = map(np.concatenate, zip(*found, strict=True))
    order = np.argsort(begin, kind="stable")
    begin, stop, level = begin[order], stop[order], level[order]
    full = np.flatnonzero(lengths)
    span = full[np.searchsorted(places[full], begin, "right") - 1]
    return span, begin - places[span], stop - places[span], level

  def trained_before(self, positions: np.ndarray) -> np.ndarray:
    """Returns how many tokens below positions are trained on."""
    span_reads.check_spans(positions, positions * 0, self.num_tokens)
    out = np.empty(len(positions), np.int64)
    bounds = self._opened.token_starts
    ends = np.asarray([own.num_tokens for own in self.members], np.int64)
    trained = [
      int(own.trained_before(ends[i : i + 1])[0])
      for i, own in enumerate(self.members)
    ]
    before = np.concatenate([[0], np.cumsum(trained)])
    member = np.searchsorted(bounds[:-1], positions, "right") - 1
    for number in np.unique(member).tolist():
      pick = member == number
      own = self.members[number].trained_before(
        positions[pick] - bounds[number]
      )
      out[pick] = before[number] + own
    return out

  def prefetch_labels(
    self, starts: np.ndarray, lengths: np.ndarray, documents: np.ndarray
  ) -> None:
    """Asks object stores for labels and weights; see `base.Store`."""
    none = np.zeros(0, np.int64)
    part, first, length, _ = span_reads.split_at(
      self._opened.token_starts, starts, lengths, starts
    )
    for member in np.unique(part).tolist():
      pick = part == member
      self.members[member].prefetch_labels(first[pick], length[pick], none)
    for member, _, local in self._opened.documents.apart(documents):
      self.members[member].prefetch_labels(none, none, local)

  def document_weights(self, documents: np.ndarray) -> np.ndarray:
    """Returns what multiplies the levels of documents' tokens."""
    documents = self._existing(documents)
    out = np.empty(len(documents), np.float32)
    for member, pick, local in self._opened.documents.apart(documents):
      out[pick] = self.members[member].document_weights(local)
    return out


def as_one(members: Sequence[base.Store]) -> base.Store:
  """Returns stores as one; a single one as it is.

  Args:
    members: In the order of their documents, at least one.

  Raises:
    StoreError: If tokenizers are known to differ.
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
    hashes: Of the stores; that of a single one is its own.
  """
  if len(hashes) == 1:
    return hashes[0]
  identity = {"format": _FORMAT, "schema": _SCHEMA, "stores": list(hashes)}
  text = json.dumps(identity, sort_keys=True).encode()
  return hashlib.sha256(text).hexdigest()


def _check_alike(one: base.Store, other: base.Store) -> None:
  known, found = one.tokenizer_identity, other.tokenizer_identity
  differ = known and found and known[0] == found[0] and known != found
  rules = [
    (dataclasses.replace(own.tokenizer_info, kind="", sha256="", vocab_size=0))
    for own in (one, other)
  ]
  if differ or rules[0] != rules[1]:
    raise errors.StoreError(
      f"{other.path} must be of the tokenizer of {one.path} to be read as one"
      f" source, got {_shown(other)} and {_shown(one)}. Prepare both with one"
      " tokenizer, or make them two sources of a mix."
    )


def _shown(store: base.Store) -> str:
  info = store.tokenizer_info
  _, value = store.tokenizer_identity or ("", "an unknown one")
  return (
    f"{value[:16]} (pad {info.pad_id}, BOS {info.bos_id}, EOS {info.eos_id},"
    f" adds BOS {info.adds_bos}, adds EOS {info.adds_eos})"
  )


class _Parts:
  """Which store numbers through all of them belong to."""

  def __init__(self, sizes: Sequence[int]):
    self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

  def apart(
    self, numbers: np.ndarray
  ) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Returns (store, which of the numbers, their own numbers) by store."""
    # The last one of those that begin at a number: others there are empty.
    member = np.searchsorted(self.starts, numbers, "right") - 1
    member = np.minimum(member, len(self.starts) - 2)
    found = []
    for i in np.unique(member).tolist():
      pick = np.flatnonzero(member == i)
      found.append((i, pick, numbers[pick] - self.starts[i]))
    return found


class _Opened:
  """What a process holds of stores as one; see `base.Opened`."""

  def __init__(self, members: Sequence[base.Store]):
    self._members = members
    self.hash = hash_of([own.hash for own in members])
    self.documents = _Parts([own.num_documents for own in members])
    self.token_starts = _Parts([own.num_tokens for own in members]).starts
    self.num_documents = int(self.documents.starts[-1])
    self.num_tokens = int(self.token_starts[-1])
    self.token_dtype = max(
      (own.token_dtype for own in members), key=lambda own: own.itemsize
    )
    info = members[0].tokenizer_info
    self.tokenizer_info: vocabulary.TokenizerInfo = dataclasses.replace(
      info, vocab_size=max(own.vocab_size for own in members)
    )
    self.offsets = _Offsets(members, self.documents, self.token_starts)
    self.tokens = _Tokens(members, self.token_starts)

  def ids(self, documents: np.ndarray) -> list[str]:
    """Returns the ids that the stores give their documents."""
    out = [""] * len(documents)
    for member, pick, local in self.documents.apart(documents):
      found = self._members[member].document_ids(local)
      for i, name in zip(pick.tolist(), found, strict=True):
        out[i] = name
    return out


class _Offsets:
  """The first tokens of documents; see `base.Offsets`."""

  def __init__(
    self, members: Sequence[base.Store], documents: _Parts, tokens: np.ndarray
  ):
    self._offsets = [own._opened.offsets for own in members]
    self._documents = documents
    self._tokens = tokens

  def gather(self, positions: np.ndarray) -> np.ndarray:
    """Returns offsets[positions], fresh."""
    out = np.empty(len(positions), np.int64)
    for member, pick, local in self._documents.apart(positions):
      out[pick] = self._offsets[member].gather(local) + self._tokens[member]
    return out

  def read(self, start: int, stop: int) -> np.ndarray:
    """Returns offsets[start:stop]."""
    parts = []
    bounds = self._documents.starts.tolist()
    last = len(self._offsets) - 1
    for member, first in enumerate(bounds[:-1]):
      # Where a store ends the next one begins; the last has an end of its own.
      low = max(start, first)
      high = min(stop, bounds[member + 1] + (member == last))
      if low < high:
        own = self._offsets[member].read(low - first, high - first)
        parts.append(own + self._tokens[member])
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


class _Tokens:
  """The tokens of all stores; see `base.Tokens`."""

  def __init__(self, members: Sequence[base.Store], starts: np.ndarray):
    self._members = members
    self._starts = starts

  @property
  def is_mapped(self) -> bool:
    """See `base.Store.is_mapped`."""
    return all(own.is_mapped for own in self._members)

  @property
  def counters(self) -> span_reads.Counters:
    """What was read of all stores; a span that crosses two counts twice."""
    return sum((own.counters for own in self._members), span_reads.Counters())

  def copy_spans(
    self,
    starts: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray,
  ) -> None:
    """Copies spans; see `base.Store.copy_tokens`."""
    starts, lengths = np.asarray(starts), np.asarray(lengths)
    positions = np.asarray(positions)
    size = int(self._starts[-1])
    span_reads.check_spans(starts, lengths, size, positions, len(out))
    for store, first, length, position in self._apart(
      starts, lengths, positions
    ):
      store.copy_tokens(first, length, out, position)

  def prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> bool:
    """Reads ahead; see `base.Store.prefetch`."""
    span_reads.check_spans(starts, lengths, int(self._starts[-1]))
    more = [
      store.prefetch(first, length)
      for store, first, length, _ in self._apart(starts, lengths, starts)
    ]
    # Local stores never ask for more, and need not hold others back.
    return any(more)

  def set_cache_bytes(self, cache_bytes: int) -> None:
    """Shares the bytes by tokens; see `base.Store.set_cache_bytes`."""
    total = max(1, int(self._starts[-1]))
    for store in self._members:
      store.set_cache_bytes(cache_bytes * store.num_tokens // total)

  def _apart(
    self, starts: np.ndarray, lengths: np.ndarray, positions: np.ndarray
  ) -> list[Any]:
    """Returns (store, starts, lengths, positions) of the spans of each."""
    part, first, length, position = span_reads.split_at(
      self._starts, starts, lengths, positions
    )
    found = []
    for member in np.unique(part).tolist():
      pick = part == member
      own = self._members[member]
      found.append((own, first[pick], length[pick], position[pick]))
    return found
