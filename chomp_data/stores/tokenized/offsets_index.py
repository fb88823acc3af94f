# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The index of a tokenized corpus: where documents begin, and its identity.

Such corpora say where documents are, but not in a way that is checked, nor in
one that random access is cheap in. So one pass over what they say makes int64
offsets, 8 bytes a document, kept and checked by `side_index`. Tokens are not
passed over: of a corpus of up to 2**24 all are hashed, of a larger one 4,096
spans of 4,096 tokens, evenly apart, its begin and its end among them.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import os
import pathlib
import time
from typing import Any

from absl import logging
import numpy as np

from chomp_data import errors
from chomp_data.storage import paths
from chomp_data.stores import base
from chomp_data.stores import documents
from chomp_data.stores import external
from chomp_data.stores import modification_guard
from chomp_data.stores import side_index
from chomp_data.stores import texts
from chomp_data.stores.array_record import files_index
from chomp_data.stores.array_record import record_files

_SCHEMA = 1
_SPANS = 4_096
_SPAN_TOKENS = 4_096
_SPANS_TOGETHER = 256

# Files that are looked at again after every read.
_GUARDED_FILES = 64

# Called with the name of a file before it is read at first; raises StoreError
# if it is not the one that was indexed.
FileCheck = Callable[[str], object]


def open_corpus(
  corpus: files_index.Files,
  options: external.TokenOptions,
  tokens: Callable[[np.ndarray, FileCheck], base.Tokens],
  *,
  dtype: np.dtype,
  ends: Callable[[], Iterable[np.ndarray]],
  key: Mapping[str, Any],
  build: bool,
  chunk_tokens: int,
  sampled: Callable[[np.ndarray, FileCheck], base.Tokens] | None = None,
  marks: Sequence[int] = (),
  is_mapped: bool = False,
  checks_files: bool = False,
  is_same: Callable[[str], bool],
) -> base.Opened:
  """Opens a corpus by its index, which is built at the first time.

  Args:
    corpus: Its files.
    options: What they do not say.
    tokens: Returns its tokens, given how many there are before documents
      (before each of `marks`, and in all), and what to call with the name of a
      file before it is read at first.
    dtype: Their dtype as stored.
    ends: Yields where documents end, int64[n] in order, in parts.
    key: What documents depend on besides the files, as JSON values.
    build: Whether the index may be built.
    chunk_tokens: As in `base.Opened`.
    sampled: As `tokens`, to read small spans here and there; None is that.
    marks: Numbers of documents, ascending.
    is_mapped: As in `base.Opened`.
    checks_files: Whether tokens call that. Of many files few are then looked at
      to open them.
    is_same: Whether the corpus still is of a hash, by opening it again.

  Raises:
    StoreError: If the corpus is damaged, or not the one that was indexed.
  """
  name = options.section
  is_local = isinstance(corpus, record_files.Corpus)
  stamps: dict[str, modification_guard.Stamp | None] = {}
  if is_local:
    # Of chunks and of shards there may be thousands.
    few = [name for name in corpus.names if "/c/" not in name][:_GUARDED_FILES]
    paths_of_few = [str(corpus.root / name) for name in few]
    stamps = {path: modification_guard.stamp(path) for path in paths_of_few}
  key = {"schema": _SCHEMA, "vocab_size": options.vocab_size, **key}
  files = None
  if checks_files:
    files = files_index.unchanged(corpus, name, key, None)
  arrays = files_index.load_or_build(
    corpus,
    name,
    key,
    None,
    build,
    lambda: _built(corpus, sampled or tokens, ends(), marks),
    files=files,
  )
  offsets = arrays["offsets"]
  num_documents = len(offsets) - 1
  before = offsets.gather(np.asarray([*marks, num_documents], np.int64))
  num_tokens = int(before[-1])
  content = arrays["content"].read().tobytes().hex()
  identity = external.identity_hash(
    options, _SCHEMA, num_documents, num_tokens, content
  )
  check: FileCheck = _unchecked
  if files is not None and isinstance(corpus, record_files.Corpus):
    check = _file_check(
      corpus, files, lambda: is_same(identity), offsets.path.parent
    )
  guard = None
  if is_local:
    guard = modification_guard.ModificationGuard(
      stamps, lambda _: is_same(identity)
    )
  return base.Opened(
    hash=identity,
    tokenizer=options.tokenizer_info,
    tokenizer_identity=options.tokenizer_identity,
    num_tokens=num_tokens,
    token_dtype=dtype,
    documents=documents.StoredOffsets(
      offsets, num_documents, os.fspath(corpus.home)
    ),
    tokens=tokens(before, check),
    # The files have no ids.
    ids=texts.NumberedTexts(
      [paths.name_of(corpus.home)], np.asarray([0, num_documents])
    ),
    guard=guard,
    chunk_tokens=chunk_tokens,
    is_mapped=is_mapped,
    is_remote=not is_local,
  )


def _unchecked(name: str) -> None:
  """Checks no file: all were looked at, or are read by their versions."""
  del name


def _file_check(
  corpus: record_files.Corpus,
  files: record_files.Key,
  is_same: Callable[[], bool],
  index: pathlib.Path,
) -> FileCheck:
  """Returns a check of a file against what it was when it was indexed."""
  entries = {name: tuple(entry) for name, *entry in files}

  def check(name: str) -> None:
    _, *now = record_files.file_key(corpus.root, name)
    content = record_files.content_of(tuple(now))
    if tuple(now) == entries[name] or (
      content == record_files.content_of(entries[name]) and is_same()
    ):
      return
    raise errors.StoreError(
      f"{corpus.root / name} must hold what it did when it was indexed, got"
      f" another size, time or other bytes. {record_files.RESTORE} If it is"
      f" right as it is, remove {index}."
    )

  return check


def _built(
  corpus: files_index.Files,
  opened: Callable[[np.ndarray, FileCheck], base.Tokens],
  ends: Iterable[np.ndarray],
  marks: Sequence[int],
) -> side_index.Parts:
  """Yields the arrays of the index, in parts."""
  began = time.monotonic()
  logging.info("%s: indexing its documents", corpus.home)
  content = hashlib.sha256()
  num_documents = num_tokens = 0
  before = {0: 0}
  first = np.zeros(1, np.int64)
  yield {"offsets": first}
  content.update(first.tobytes())
  for part in ends:
    yield {"offsets": part}
    content.update(part.tobytes())
    within = (
      m for m in marks if num_documents < m <= num_documents + len(part)
    )
    before |= {m: int(part[m - num_documents - 1]) for m in within}
    num_documents += len(part)
    num_tokens = int(part[-1]) if len(part) else num_tokens
  tokens = opened(
    np.asarray([*(before[m] for m in marks), num_tokens]), _unchecked
  )
  spans = _sampled(num_tokens)
  for low in range(0, len(spans), _SPANS_TOGETHER):
    starts, lengths = spans[low : low + _SPANS_TOGETHER].T
    tokens.prefetch(starts, lengths)
    positions = np.cumsum(lengths) - lengths
    out = np.empty(int(lengths.sum()), np.int32)
    tokens.copy_spans(starts, lengths, out, positions)
    content.update(out.astype("<i4", copy=False).data)
  yield {"content": np.frombuffer(content.digest(), np.uint8)}
  logging.info(
    "%s: indexed %d documents of %d tokens in %.1f s",
    corpus.home,
    num_documents,
    num_tokens,
    time.monotonic() - began,
  )


def _sampled(num_tokens: int) -> np.ndarray:
  """Returns (start, length) of the spans that identify a corpus."""
  if num_tokens <= _SPANS * _SPAN_TOKENS:
    starts = np.arange(0, num_tokens, _SPAN_TOKENS)
  else:
    last = num_tokens - _SPAN_TOKENS
    starts = np.asarray([last * i // (_SPANS - 1) for i in range(_SPANS)])
  return np.stack([starts, np.minimum(_SPAN_TOKENS, num_tokens - starts)], 1)
