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
from chomp_data.index import intervals
from chomp_data.pack import pairs
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
  """Which tokens are removed at each data step of a run.

  Attributes:
    steps: The data steps from which on more tokens are removed, ascending.
  """

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
    self.steps: list[int] = [at for at, _ in files]
    self._levels: list[_Level] = []
    self._digests: dict[str, str] = {}
    self._lines: list[str] = []
    by_name = by_name or {}
    numbers = {name: i for i, name in enumerate(by_name)}
    so_far: _SpansBySource = {}
    for number, (at, file) in enumerate(files):
      file_spans = spans_of(read_lines(file, by_name, f"{path}[{number}]"))
      for name, spans in file_spans.items():
        if by_name[name].opened.pairs:
          file_spans[name] = _whole_pairs(spans, by_name[name])
      self._digests[str(at)] = _digest(file_spans)
      counts = ", ".join(
        f"{len(spans)} of {n}" for n, spans in file_spans.items()
      )
      self._lines.append(
        f"  removed from data step {at} on: {counts or 'nothing'} ({file})"
      )
      for name, spans in file_spans.items():
        previous = so_far.get(name, np.empty((0, 3), np.int64))
        so_far[name] = intervals.merged_spans(np.concatenate([previous, spans]))
      self._levels.append(
        {numbers[n]: _removed(v, by_name[n]) for n, v in so_far.items()}
      )

  @property
  def first_step(self) -> int | None:
    """The first data step at which tokens are removed; None if never."""
    return self.steps[0] if self.steps else None

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
    for at, level in zip(self.steps, self._levels, strict=True):
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

  def first_part(self, source: int, documents: np.ndarray) -> int | None:
    """Returns the first data step at which parts of documents are removed.

    Args:
      source: The number of the source.
      documents: int64[N], their numbers.

    Returns:
      The data step; None if at most whole documents are removed.
    """
    for at, level in zip(self.steps, self._levels, strict=True):
      if (
        source in level and np.isin(level[source][0].document, documents).any()
      ):
        return at
    return None

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
    if not self.steps or not len(data_steps):
      return spans
    if data_steps[-1] < self.steps[0]:
      return spans
    level = np.searchsorted(self.steps, data_steps, side="right")
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


@dataclasses.dataclass(frozen=True)
class Line:
  """A line of a file that names a document.

  Attributes:
    number: Its number in the file, from 1.
    source: The name of the source.
    document: The number of the document.
    identity: The id of the document in a list; None for a sample of arrays.
    start: The first token.
    length: How many tokens.
    is_whole: Whether these are all tokens of the document.
    other: Other fields of the line.
  """

  number: int
  source: str
  document: int
  identity: str | None
  start: int
  length: int
  is_whole: bool
  other: Mapping[str, Any]


def spans_of(lines: Sequence[Line]) -> _SpansBySource:
  """Returns int64[N, 3] by source: document, start and length, ascending."""
  spans: dict[str, list[tuple[int, int, int]]] = {}
  for line in lines:
    span = line.document, line.start, line.length
    spans.setdefault(line.source, []).append(span)
  return {name: np.asarray(sorted(rows)) for name, rows in spans.items()}


def read_lines(
  file: str,
  by_name: Mapping[str, stores.Store | int],
  path: str,
  is_list: bool = False,
) -> list[Line]:
  """Returns the lines of a file, those of each source together.

  Args:
    file: Its path.
    by_name: The store of each source; the number of its samples for arrays.
    path: The option that names the file, for messages.
    is_list: Whether it is a list of documents: lines may have other fields,
      among them `id`, which can stand in place of `document`, and name a
      document several times.

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
  for number, line in enumerate(text.split("\n"), 1):
    if not line.strip():
      continue
    try:
      entry = _entry(line, number, by_name, is_list)
    except ValueError as error:
      problems.append(f"{file}:{number}: {error}")
    else:
      entries[entry.source].append(entry)
  lines: list[Line] = []
  for name, source_entries in entries.items():
    if source_entries:
      resolved, wrong = _resolved(source_entries, by_name[name], is_list)
      problems += [f"{file}:{line}: {text}" for line, text in wrong]
      lines += resolved
  if problems:
    more = len(problems) - _MAX_ERROR_LINES
    if more > 0:
      problems = [*problems[:_MAX_ERROR_LINES], f"{file}: {more} more lines"]
    raise schema.ConfigError(problems)
  return lines


@dataclasses.dataclass(frozen=True)
class _Entry:
  """One line of a file.

  Attributes:
    line: Its number, from 1.
    source: The name of the source.
    document: The id or number of the document.
    start: The first token.
    length: How many tokens; None means all from `start` on.
    other: Its other fields.
  """

  line: int
  source: str
  document: str | int
  start: int
  length: int | None
  other: Mapping[str, Any]


def _entry(
  line: str,
  number: int,
  by_name: Mapping[str, stores.Store | int],
  is_list: bool,
) -> _Entry:
  """Parses a line.

  Raises:
    ValueError: If it is wrong. `read_lines` puts file and line before the text.
  """
  try:
    value = json.loads(line)
  except (ValueError, RecursionError) as error:
    raise ValueError(
      f"the line must be a JSON object, got {line[:60]!r}. Write one per line."
    ) from error
  if not isinstance(value, dict):
    raise ValueError(f"the line must be a JSON object, got {line[:60]!r}.")
  other = {name: value[name] for name in value if name not in _FIELDS}
  if other and not is_list:
    unknown = next(iter(other))
    raise ValueError(schema.unknown_key("line", unknown, _FIELDS, _FIELDS))
  source, document = value.get("source"), value.get("document")
  if document is None:
    document = other.get("id")
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
  return _Entry(number, source, document, spans[0] or 0, spans[1], other)


def _resolved(
  entries: Sequence[_Entry], store: stores.Store | int, is_list: bool
) -> tuple[list[Line], list[tuple[int, str]]]:
  """Looks up the documents that lines name.

  Args:
    entries: Lines of one source.
    store: The store of that source, or the number of its samples.
    is_list: As of `read_lines`.

  Returns:
    The lines, and (line, error text) of each line that is wrong.
  """
  ids = {entry.document for entry in entries if isinstance(entry.document, str)}
  by_id = {}
  if ids and not isinstance(store, int):
    by_id = store.opened.ids.find(sorted(ids))
  wrong: list[tuple[int, str]] = []
  located: list[tuple[int, _Entry]] = []
  count = store if isinstance(store, int) else store.num_documents
  for entry in entries:
    near = ""
    if isinstance(entry.document, int):
      numbers = [entry.document] if 0 <= entry.document < count else []
    else:
      numbers = by_id.get(entry.document, [])
      if not numbers and not isinstance(store, int):
        near = store.opened.ids.closest(entry.document)
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
  documents = np.asarray([number for number, _ in located], np.int64)
  lengths = np.zeros_like(documents)
  identities: Sequence[str | None] = [None] * len(documents)
  if not isinstance(store, int):
    lengths = store.bounds(documents)[1]
    if is_list:
      identities = store.document_ids(documents)
  lines: list[Line] = []
  spans: list[tuple[int, int, int, int]] = []
  for (number, entry), num_tokens, identity in zip(
    located, lengths.tolist(), identities, strict=True
  ):
    if entry.other.get("id") not in (None, identity):
      text = (
        f"`id` must be that of document {number} of {entry.source!r}, which is"
        f" {identity!r}, got {entry.other['id']!r}. Name one document."
      )
      wrong.append((entry.line, text))
      continue
    length = num_tokens - entry.start if entry.length is None else entry.length
    if entry.start + length > num_tokens or (length < 1 and entry.start):
      text = (
        f"`start` and `length` must lie in the {num_tokens} tokens of document"
        f" {entry.document!r}, got {entry.start} and {entry.length}."
      )
      wrong.append((entry.line, text))
    else:
      spans.append((number, entry.start, length, entry.line))
      other = {name: v for name, v in entry.other.items() if name != "id"}
      lines.append(
        Line(
          entry.line, entry.source, number, identity, entry.start, length,
          (entry.start, length) == (0, num_tokens), other,
        )
      )  # fmt: skip
  spans.sort()
  for span, next_span in itertools.pairwise([] if is_list else spans):
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
  return lines, sorted(wrong)


def _whole_pairs(spans: np.ndarray, store: stores.Store) -> np.ndarray:
  """Returns int64[N, 3], all tokens of the pairs that have tokens in spans."""
  document = pairs.halves(np.unique(spans[:, 0] // 2))
  length = store.bounds(document)[1]
  return np.stack([document, np.zeros_like(document), length], axis=1)


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
    digest.update(
      intervals.merged_spans(spans_by_source[name]).astype("<i8").tobytes()
    )
  return digest.hexdigest()
