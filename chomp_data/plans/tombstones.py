# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Documents and spans that are gone from a data step on.

A file has one JSON object a line:

    {"source": "web", "document": "a/b.txt#7"}
    {"source": "web", "document": 42, "start": 100, "length": 20}

`document` is an id, or a number; `start` and `length` are of its tokens, and
without them all of it is gone.
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
from chomp_data.rows import tombstones as gone_lib

_FIELDS = ("source", "document", "start", "length")

# Lines of a file of which an error tells.
_MOST_TOLD = 20

# By source, int64[N, 3]: document, start and length, ascending.
_Spans = dict[str, np.ndarray]


class Tombstones:
  """What is gone at each data step of a run."""

  def __init__(
    self,
    files: Sequence[tuple[int, str]] = (),
    by_name: Mapping[str, stores.Store] | None = None,
    path: str = "tombstones",
  ):
    """Reads files, and finds their documents; reads no token.

    Args:
      files: (from data step, file), rising.
      by_name: The store of each source, in the order of their numbers.
      path: Dotted path of the files, for messages.

    Raises:
      ConfigError: If a file or a line of it is wrong.
    """
    self._steps: list[int] = [at for at, _ in files]
    # What is gone from each step on, by number of the source: all so far.
    self._levels: list[dict[int, gone_lib.Gone]] = []
    # Documents of which all is gone.
    self._complete: list[dict[int, np.ndarray]] = []
    self._digests: dict[str, str] = {}
    self._told: list[str] = []
    by_name = by_name or {}
    numbers = {name: i for i, name in enumerate(by_name)}
    so_far: _Spans = {}
    for number, (at, file) in enumerate(files):
      own = _read(file, by_name, f"{path}[{number}]")
      self._digests[str(at)] = _digest(own)
      told = ", ".join(f"{len(spans)} of {n}" for n, spans in own.items())
      self._told.append(
        f"  gone from data step {at} on: {told or 'nothing'} ({file})"
      )
      for name, spans in own.items():
        known = so_far.get(name, np.empty((0, 3), np.int64))
        so_far[name] = _sorted(np.concatenate([known, spans]))
      self._levels.append(
        {numbers[n]: _gone(v, by_name[n]) for n, v in so_far.items()}
      )
      self._complete.append(
        {numbers[n]: _complete(v, by_name[n]) for n, v in so_far.items()}
      )

  @property
  def first_step(self) -> int | None:
    """The first data step at which something is gone; None is never."""
    return self._steps[0] if self._steps else None

  def times(self, source: int, document: int) -> tuple[int | None, int | None]:
    """Returns from which data steps on something, and all, of one is gone.

    Args:
      source: The source's number.
      document: Its number.

    Returns:
      (first step at which a token is gone, first at which all are); None is
      never.
    """
    touched = whole = None
    for at, level, complete in zip(
      self._steps, self._levels, self._complete, strict=True
    ):
      own = level.get(source)
      if own is None:
        continue
      all_gone = bool(np.isin(document, complete[source]))
      if touched is None and (all_gone or np.isin(document, own.document)):
        touched = at
      if whole is None and all_gone:
        whole = at
    return touched, whole

  @property
  def fingerprint_field(self) -> dict[str, Any]:
    """What is gone from which step on, as a field of a fingerprint."""
    return {"tombstones": self._digests} if self._digests else {}

  def describe(self) -> list[str]:
    """Returns a line for each file."""
    return list(self._told)

  def without(
    self, spans: spans_lib.Spans, data_steps: np.ndarray
  ) -> spans_lib.Spans:
    """Returns a plan with what is gone marked; see `ops.tombstones`.

    Args:
      spans: A plan.
      data_steps: int64[num_rows], the step of each row, ascending.
    """
    if not self._steps or not len(data_steps):
      return spans
    if data_steps[-1] < self._steps[0]:
      return spans
    level = np.searchsorted(self._steps, data_steps, side="right")
    edges = [0, *(np.flatnonzero(np.diff(level)) + 1).tolist(), len(level)]
    parts = []
    for low, high in itertools.pairwise(edges):
      own = spans if high - low == len(level) else spans.rows(low, high)
      if level[low]:
        own = gone_lib.without(own, self._levels[int(level[low]) - 1])
      parts.append(own)
    return parts[0] if len(parts) == 1 else spans_lib.concatenated(parts)


def _read(file: str, by_name: Mapping[str, stores.Store], path: str) -> _Spans:
  """Returns what a file names, each part of a document once.

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
  out: _Spans = {}
  for name, own in entries.items():
    if own:
      found, wrong = _found(own, by_name[name])
      problems += [f"{file}:{line}: {text}" for line, text in wrong]
      out[name] = found
  if problems:
    more = len(problems) - _MOST_TOLD
    if more > 0:
      problems = [*problems[:_MOST_TOLD], f"{file}: {more} more lines"]
    raise schema.ConfigError(problems)
  return out


@dataclasses.dataclass(frozen=True)
class _Entry:
  """One line: a document and which tokens of it; None is all that follow."""

  line: int
  source: str
  document: str | int
  start: int
  length: int | None


def _entry(
  line: str, number: int, by_name: Mapping[str, stores.Store]
) -> _Entry:
  """Returns what a line says.

  Raises:
    ValueError: If it is wrong; the text completes a sentence.
  """
  try:
    value = json.loads(line)
  except (ValueError, RecursionError) as error:
    raise ValueError(
      f"the line must be a JSON object, got {line[:60]!r}. Write one a line."
    ) from error
  if not isinstance(value, dict):
    raise ValueError(f"the line must be a JSON object, got {line[:60]!r}.")
  for name in value:
    if name not in _FIELDS:
      raise ValueError(schema.unknown_key("line", name, _FIELDS, _FIELDS))
  source, document = value.get("source"), value.get("document")
  if not isinstance(source, str) or source not in by_name:
    known = ", ".join(map(repr, by_name))
    near = schema.did_you_mean(source, by_name)
    raise ValueError(f"`source` must be one of {known}, got {source!r}.{near}")
  if isinstance(document, bool) or not isinstance(document, str | int):
    raise ValueError(
      f"`document` must be an id in quotes or a whole number, got {document!r}."
    )
  count = schema.integer(), schema.integer(1)
  spans: list[int | None] = []
  for name, rule in zip(("start", "length"), count, strict=True):
    own = value.get(name)
    try:
      spans.append(None if own is None else rule.convert(own))
    except (TypeError, ValueError) as error:
      raise ValueError(f"`{name}` must be {rule.text}, got {own!r}.") from error
  return _Entry(number, source, document, spans[0] or 0, spans[1])


def _found(
  entries: Sequence[_Entry], store: stores.Store
) -> tuple[np.ndarray, list[tuple[int, str]]]:
  """Returns int64[N, 3] of one source, and (line, what is wrong)."""
  ids = {own.document for own in entries if isinstance(own.document, str)}
  by_id = store.find_documents(sorted(ids)) if ids else {}
  wrong: list[tuple[int, str]] = []
  known: list[tuple[int, _Entry]] = []
  count = store.num_documents
  for own in entries:
    if isinstance(own.document, int):
      numbers = [own.document] if 0 <= own.document < count else []
    else:
      numbers = by_id[own.document]
    if len(numbers) == 1:
      known.append((numbers[0], own))
    elif numbers:
      wrong.append(
        (
          own.line,
          f"`document` must name one document, got {own.document!r}, the id of"
          f" {len(numbers)} in {own.source!r}: {numbers[:5]}. Name them by"
          " number.",
        )
      )
    else:
      wrong.append(
        (
          own.line,
          f"`document` must be of the {count} documents of {own.source!r}, got"
          f" {own.document!r}."
          + (
            ""
            if isinstance(own.document, int)
            else store.closest_id(own.document)
          ),
        )
      )
  lengths = store.bounds(np.asarray([n for n, _ in known], np.int64))[1]
  spans: list[tuple[int, int, int, int]] = []
  for (number, own), whole in zip(known, lengths.tolist(), strict=True):
    length = whole - own.start if own.length is None else own.length
    if own.start + length > whole or (length < 1 and own.start):
      wrong.append(
        (
          own.line,
          f"`start` and `length` must lie in the {whole} tokens of document"
          f" {own.document!r}, got {own.start} and {own.length}.",
        )
      )
    else:
      spans.append((number, own.start, length, own.line))
  spans.sort()
  for one, other in itertools.pairwise(spans):
    # Of a document without tokens, two lines are the same too.
    if one[0] == other[0] and one[1] + max(one[2], 1) > other[1]:
      first, second = sorted((one[3], other[3]))
      wrong.append(
        (
          second,
          f"`document` {one[0]} must not be gone twice, got tokens that line"
          f" {first} names. Remove one of them.",
        )
      )
  found = np.asarray([own[:3] for own in spans], np.int64).reshape(-1, 3)
  return found, sorted(wrong)


def _sorted(spans: np.ndarray) -> np.ndarray:
  """Returns int64[N, 3] ascending, what overlaps or touches as one."""
  order = np.lexsort((spans[:, 1], spans[:, 0]))
  document, start, length = spans[order].T
  if not len(document):
    return spans
  # Ends rise within a document only: shift each past those before it.
  shift = document * (int((start + length).max()) + 2)
  reach = np.maximum.accumulate(start + length + shift)
  opens = np.ones(len(document), np.bool_)
  opens[1:] = (start + shift)[1:] > reach[:-1]
  first = np.flatnonzero(opens)
  end = (reach - shift)[np.append(first[1:], len(document)) - 1]
  return np.stack([document[first], start[first], end - start[first]], axis=1)


def _gone(spans: np.ndarray, store: stores.Store) -> gone_lib.Gone:
  document, start, length = _sorted(spans).T
  some = length > 0
  begin = store.bounds(document)[0] + start
  return gone_lib.Gone(
    document[some], begin[some], (begin + length)[some], document[~some]
  )


def _complete(spans: np.ndarray, store: stores.Store) -> np.ndarray:
  document, start, length = spans.T
  return document[(start == 0) & (length == store.bounds(document)[1])]


def _digest(own: _Spans) -> str:
  """Returns what is gone as a hash, however its lines say it."""
  digest = hashlib.sha256()
  for name in sorted(own):
    digest.update(json.dumps(name).encode())
    digest.update(_sorted(own[name]).astype("<i8").tobytes())
  return digest.hexdigest()
