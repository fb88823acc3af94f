# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tombstones: documents and spans that are removed from a data step on.

A file has one JSON object per line:

    {"source": "web", "document": "a/b.txt#7"}
    {"source": "web", "document": 42, "start": 100, "length": 20}

`document` is an id or a number. `start` and `length` are in tokens of the
document; without them the whole document is removed. Of a preference pair both
halves are removed, whatever of one half is.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import hashlib
import itertools
import json
import pathlib
from typing import Any

import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import tombstones as tombstones_lib

_FIELDS = ("source", "document", "start", "length")

# The most lines of a file that one error lists.
_MAX_ERROR_LINES = 20

# By source, int64[N, 3]: document, start and length, ascending.
_SpansBySource = dict[str, np.ndarray]

# By source number, the tokens that are removed from a data step on, with those
# of all levels before, and int64[N], the documents that are removed as a whole.
_Level = dict[int, tuple[tombstones_lib.RemovedTokens, np.ndarray]]


class Tombstones:
  """Which tokens are removed at each data step of a run."""

  def __init__(
    self,
    files: Sequence[tuple[int, str]] = (),
    by_name: Mapping[str, stores.Store] | None = None,
    path: str = "tombstones",
  ):
    """Reads the files and looks up their documents; reads no tokens.

    Args:
      files: (first data step, path of the file), ascending.
      by_name: The store of each source, in the order of their numbers.
      path: Dotted path of the files, for messages.

    Raises:
      ConfigError: If a file or a line of it is wrong.
    """
    self._steps: list[int] = [at for at, _ in files]
    self._levels: list[_Level] = []
    self._digests: dict[str, str] = {}
    self._lines: list[str] = []
    by_name = by_name or {}
    numbers = {name: i for i, name in enumerate(by_name)}
    so_far: _SpansBySource = {}
    for number, (at, file) in enumerate(files):
      file_spans = _read(file, by_name, f"{path}[{number}]")
      self._digests[str(at)] = _digest(file_spans)
      counts = ", ".join(
        f"{len(spans)} of {n}" for n, spans in file_spans.items()
      )
      self._lines.append(
        f"  removed from data step {at} on: {counts or 'nothing'} ({file})"
      )
      for name, spans in file_spans.items():
        previous = so_far.get(name, np.empty((0, 3), np.int64))
        so_far[name] = _merged(np.concatenate([previous, spans]))
      self._levels.append(
        {numbers[n]: _removed(v, by_name[n]) for n, v in so_far.items()}
      )

  @property
  def first_step(self) -> int | None:
    """The first data step at which tokens are removed; None if never."""
    return self._steps[0] if self._steps else None

  def times(self, source: int, document: int) -> tuple[int | None, int | None]:
    """Returns from which data steps on a document is removed.

    Args:
      source: The number of the source.
      document: The number of the document.

    Returns:
      (first data step at which one of its tokens is removed, first data step
      at which all are); None if never.
    """
    first_removed = all_removed = None
    for at, level in zip(self._steps, self._levels, strict=True):
      if source not in level:
        continue
      ranges, documents = level[source]
      is_removed = bool(np.isin(document, documents))
      if first_removed is None and (
        is_removed or np.isin(document, ranges.document)
      ):
        first_removed = at
      if all_removed is None and is_removed:
        all_removed = at
    return first_removed, all_removed

  @property
  def fingerprint_field(self) -> dict[str, Any]:
    """Digests of the files by first data step, as a field of a fingerprint."""
    return {"tombstones": self._digests} if self._digests else {}

  def describe(self) -> list[str]:
    """Returns a line for each file."""
    return list(self._lines)

  def mask(
    self, spans: spans_lib.Spans, data_steps: np.ndarray
  ) -> spans_lib.Spans:
    """Returns a plan in which removed tokens are masked.

    Args:
      spans: A plan.
      data_steps: int64[num_rows], the data step of each row, ascending.

    Returns:
      The plan with each removed range as a separate span, marked in
      `Spans.masked`.
    """
    if not self._steps or not len(data_steps):
      return spans
    if data_steps[-1] < self._steps[0]:
      return spans
    level = np.searchsorted(self._steps, data_steps, side="right")
    edges = [0, *(np.flatnonzero(np.diff(level)) + 1).tolist(), len(level)]
    parts = []
    for low, high in itertools.pairwise(edges):
      part = spans if high - low == len(level) else spans.rows(low, high)
      if level[low]:
        removed = self._levels[int(level[low]) - 1]
        part = tombstones_lib.masked(
          part, {number: ranges for number, (ranges, _) in removed.items()}
        )
      parts.append(part)
    return parts[0] if len(parts) == 1 else spans_lib.concatenated(parts)


def _read(
  file: str, by_name: Mapping[str, stores.Store], path: str
) -> _SpansBySource:
  """Returns the spans that a file removes.

  Raises:
    ConfigError: If the file or lines of it are wrong.
  """
  try:
    text = pathlib.Path(file).read_bytes().decode()
  except (OSError, UnicodeDecodeError) as error:
    raise schema.ConfigError(
      [
        f"`{path}` must be a file of JSON lines, got {file!r} ({error})."
        " Correct its path."
      ]
    ) from error
  problems: list[str] = []
  entries: dict[str, list[_Entry]] = {name: [] for name in by_name}
  for number, line in enumerate(text.splitlines(), 1):
    if not line.strip():
      continue
    try:
      entry = _entry(line, number, by_name)
    except ValueError as error:
      problems.append(f"{file}:{number}: {error}")
    else:
      entries[entry.source].append(entry)
  spans_by_source: _SpansBySource = {}
  for name, source_entries in entries.items():
    if source_entries:
      spans, wrong = _resolved(source_entries, by_name[name])
      problems += [f"{file}:{line}: {text}" for line, text in wrong]
      if by_name[name].opened.pairs:
        spans = _whole_pairs(spans, by_name[name])
      spans_by_source[name] = spans
  if problems:
    more = len(problems) - _MAX_ERROR_LINES
    if more > 0:
      problems = [*problems[:_MAX_ERROR_LINES], f"{file}: {more} more lines"]
    raise schema.ConfigError(problems)
  return spans_by_source


@dataclasses.dataclass(frozen=True)
class _Entry:
  """One line of a file.

  Attributes:
    line: Its number, from 1.
    source: The name of the source.
    document: The id or number of the document.
    start: The first removed token.
    length: How many tokens are removed; None removes all from `start` on.
  """

  line: int
  source: str
  document: str | int
  start: int
  length: int | None


def _entry(
  line: str, number: int, by_name: Mapping[str, stores.Store]
) -> _Entry:
  """Parses a line.

  Raises:
    ValueError: If it is wrong. `_read` puts file and line before the text.
  """
  try:
    value = json.loads(line)
  except (ValueError, RecursionError) as error:
    raise ValueError(
      f"the line must be a JSON object, got {line[:60]!r}. Write one per line."
    ) from error
  if not isinstance(value, dict):
    raise ValueError(f"the line must be a JSON object, got {line[:60]!r}.")
  for name in value:
    if name not in _FIELDS:
      raise ValueError(schema.unknown_key("line", name, _FIELDS, _FIELDS))
  source, document = value.get("source"), value.get("document")
  if not isinstance(source, str) or source not in by_name:
    names = ", ".join(map(repr, by_name))
    near = schema.did_you_mean(source, by_name)
    raise ValueError(f"`source` must be one of {names}, got {source!r}.{near}")
  if isinstance(document, bool) or not isinstance(document, str | int):
    raise ValueError(
      f"`document` must be an id in quotes or a whole number, got {document!r}."
    )
  count = schema.integer(), schema.integer(1)
  spans: list[int | None] = []
  for name, rule in zip(("start", "length"), count, strict=True):
    field_value = value.get(name)
    try:
      spans.append(None if field_value is None else rule.convert(field_value))
    except (TypeError, ValueError) as error:
      raise ValueError(
        f"`{name}` must be {rule.text}, got {field_value!r}."
      ) from error
  return _Entry(number, source, document, spans[0] or 0, spans[1])


def _resolved(
  entries: Sequence[_Entry], store: stores.Store
) -> tuple[np.ndarray, list[tuple[int, str]]]:
  """Looks up the documents that lines name.

  Args:
    entries: Lines of one source.
    store: The store of that source.

  Returns:
    int64[N, 3] of (document, start, length), and (line, error text) of each
    line that is wrong.
  """
  ids = {entry.document for entry in entries if isinstance(entry.document, str)}
  by_id = store.opened.ids.find(sorted(ids)) if ids else {}
  wrong: list[tuple[int, str]] = []
  located: list[tuple[int, _Entry]] = []
  count = store.num_documents
  for entry in entries:
    near = ""
    if isinstance(entry.document, int):
      numbers = [entry.document] if 0 <= entry.document < count else []
    else:
      numbers = by_id[entry.document]
      near = "" if numbers else store.opened.ids.closest(entry.document)
    if len(numbers) == 1:
      located.append((numbers[0], entry))
      continue
    text = (
      f"`document` must be of the {count} documents of {entry.source!r}, got"
      f" {entry.document!r}.{near}"
    )
    if numbers:
      text = (
        f"`document` must name one document, got {entry.document!r}, the id of"
        f" {len(numbers)} in {entry.source!r}: {numbers[:5]}. Name them by"
        " number."
      )
    wrong.append((entry.line, text))
  lengths = store.bounds(np.asarray([n for n, _ in located], np.int64))[1]
  spans: list[tuple[int, int, int, int]] = []
  for (number, entry), num_tokens in zip(
    located, lengths.tolist(), strict=True
  ):
    length = num_tokens - entry.start if entry.length is None else entry.length
    if entry.start + length > num_tokens or (length < 1 and entry.start):
      text = (
        f"`start` and `length` must lie in the {num_tokens} tokens of document"
        f" {entry.document!r}, got {entry.start} and {entry.length}."
      )
      wrong.append((entry.line, text))
    else:
      spans.append((number, entry.start, length, entry.line))
  spans.sort()
  for span, next_span in itertools.pairwise(spans):
    # Two lines that name the same document without tokens overlap too.
    if span[0] == next_span[0] and span[1] + max(span[2], 1) > next_span[1]:
      first, second = sorted((span[3], next_span[3]))
      wrong.append(
        (
          second,
          f"`document` {span[0]} must not be removed twice, got tokens that"
          f" line {first} names. Remove one of them.",
        )
      )
  span_array = np.asarray([entry[:3] for entry in spans], np.int64).reshape(
    -1, 3
  )
  return span_array, sorted(wrong)


def _whole_pairs(spans: np.ndarray, store: stores.Store) -> np.ndarray:
  """Returns int64[N, 3], all tokens of the pairs that have tokens in spans."""
  chosen = 2 * np.unique(spans[:, 0] // 2)
  document = np.stack([chosen, chosen + 1], axis=1).reshape(-1)
  length = store.bounds(document)[1]
  return np.stack([document, np.zeros_like(document), length], axis=1)


def _merged(spans: np.ndarray) -> np.ndarray:
  """Returns int64[N, 3] ascending; adjacent and overlapping spans merged."""
  order = np.lexsort((spans[:, 1], spans[:, 0]))
  document, start, length = spans[order].T
  if not len(document):
    return spans
  # A running maximum of ends must not cross documents, so shift each document
  # past the ends of those before it.
  shift = document * (int((start + length).max()) + 2)
  reach = np.maximum.accumulate(start + length + shift)
  opens = np.ones(len(document), np.bool_)
  opens[1:] = (start + shift)[1:] > reach[:-1]
  first = np.flatnonzero(opens)
  end = (reach - shift)[np.append(first[1:], len(document)) - 1]
  return np.stack([document[first], start[first], end - start[first]], axis=1)


def _removed(
  spans: np.ndarray, store: stores.Store
) -> tuple[tombstones_lib.RemovedTokens, np.ndarray]:
  """Returns the removed tokens, and the documents that are removed entirely."""
  document, start, length = spans.T
  has_tokens = length > 0
  first_position, num_tokens = store.bounds(document)
  first_position = first_position + start
  ranges = tombstones_lib.RemovedTokens(
    document[has_tokens],
    first_position[has_tokens],
    (first_position + length)[has_tokens],
    document[~has_tokens],
  )
  return ranges, document[(start == 0) & (length == num_tokens)]


def _digest(spans_by_source: _SpansBySource) -> str:
  """Returns a hash of the removed tokens, the same however lines split them."""
  digest = hashlib.sha256()
  for name in sorted(spans_by_source):
    digest.update(json.dumps(name).encode())
    digest.update(_merged(spans_by_source[name]).astype("<i8").tobytes())
  return digest.hexdigest()
