"""One input shard to one part of a store: a pure function of its pieces.

A part is three files, named by a key of everything that decides them: tokens,
lengths (tokens, bytes of the id, bytes of what is kept besides) and texts (id
and meta of each document in turn), then a JSON row of counts, written last.
An engine only calls `make_part`; a part that is there is not made again.
"""

from collections.abc import Iterator
import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

import google_crc32c
import numpy as np

from chomp_data import errors
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare import skips
from chomp_data.prepare import tokenizers
from chomp_data.prepare.reading import base
from chomp_data.stores import vocabulary
from chomp_data.stores.zarr import manifest as manifest_lib

_KINDS = ("tokens", "lengths", "texts")
_BATCH_TEXTS = 1_024
_BATCH_CHARACTERS = 4 * 2**20
_READ_TOKENS = 4 * 2**20
_READ_BYTES = 2**22
_VERSION = 4


@dataclasses.dataclass(frozen=True)
class PartOptions:
  """What decides a part, besides its files.

  Attributes:
    tokenizer: Which tokenizer.
    tokenizer_hash: Of its info, so that a changed file is noticed.
    read: How documents are found.
    on_error: 'fail', or 'skip' what no document can be made of.
  """

  tokenizer: tokenizers.TokenizerSpec
  tokenizer_hash: str
  read: records.ReadOptions
  on_error: str = "fail"


@dataclasses.dataclass(frozen=True)
class PartTask:
  """A part to make.

  Attributes:
    pieces: The input shard.
    options: How.
    directory: Where parts go.
  """

  pieces: tuple[base.InputPiece, ...]
  options: PartOptions
  directory: str

  @property
  def key(self) -> str:
    """Names the part: a hash of its pieces and options."""
    identity = {
      "version": _VERSION,
      "pieces": [dataclasses.astuple(piece) for piece in self.pieces],
      "options": dataclasses.asdict(self.options),
    }
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]

  def path(self, kind: str) -> pathlib.Path:
    """Returns one of the part's files."""
    return pathlib.Path(self.directory, f"{self.key}.{kind}")


@dataclasses.dataclass(frozen=True)
class PartRow:
  """What is in a part.

  Attributes:
    num_documents: Documents that have a token.
    num_tokens: Their tokens.
    num_empty: Documents left out because they have none.
    crc32c: Of each of the files.
    skipped: What was left out, the fields of `skips.Skips`.
  """

  num_documents: int
  num_tokens: int
  num_empty: int
  crc32c: dict[str, int]
  skipped: dict[str, Any]


def tokenizer_hash(info: vocabulary.TokenizerInfo) -> str:
  """Returns SHA-256 as hex of all that a store keeps of a tokenizer."""
  text = json.dumps(dataclasses.asdict(info), sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def find_part(task: PartTask) -> PartRow | None:
  """Returns the row of a part that is complete and undamaged, else None."""
  try:
    row = PartRow(**json.loads(task.path("json").read_bytes()))
    found = {kind: _file_crc(task.path(kind)) for kind in _KINDS}
    return row if found == dict(row.crc32c) else None
  except (OSError, ValueError, TypeError):
    return None


def make_part(task: PartTask) -> PartRow:
  """Makes a part, whatever was there.

  Args:
    task: Which.

  Returns:
    Its row.

  Raises:
    PrepareError: If an input cannot be read or encoded.
  """
  options = task.options
  tokenizer = tokenizers.make_tokenizer(options.tokenizer)
  if tokenizer_hash(tokenizer.info) != options.tokenizer_hash:
    raise errors.PrepareError(
      f"{options.tokenizer.source} must not change while documents are"
      " encoded. Run again."
    )
  dtype = np.dtype(manifest_lib.token_dtype(tokenizer.info.vocab_size))
  num_documents = num_tokens = num_empty = 0
  skipped = skips.Skips()
  files = [_CheckedFile(task.path(kind)) for kind in _KINDS]
  try:
    tokens_file, lengths_file, texts_file = files
    for documents, encoded in _encoded(task, tokenizer, skipped):
      _check_ids(encoded, tokenizer.info.vocab_size, documents)
      tokens = encoded.tokens.astype(dtype.newbyteorder("<"), copy=False)
      tokens_file.write(tokens.tobytes())
      kept = np.flatnonzero(encoded.lengths).tolist()
      lengths = np.empty((len(kept), 3), "<i8")
      texts = []
      for row, i in enumerate(kept):
        meta = documents[i].meta.encode()
        texts += [documents[i].name.encode(), meta]
        lengths[row] = encoded.lengths[i], len(texts[-2]), len(meta)
      lengths_file.write(lengths.tobytes())
      texts_file.write(b"".join(texts))
      num_documents += len(kept)
      num_tokens += int(lengths[:, 0].sum())
      num_empty += len(documents) - len(kept)
  finally:
    for file in files:
      file.close()
  row = PartRow(
    num_documents,
    num_tokens,
    num_empty,
    {kind: file.crc for kind, file in zip(_KINDS, files, strict=True)},
    dataclasses.asdict(skipped),
  )
  temporary = task.path("json.tmp")
  with open(temporary, "w") as file:
    json.dump(dataclasses.asdict(row), file)
    file.flush()
    os.fsync(file.fileno())
  os.replace(temporary, task.path("json"))
  return row


def read_part(
  task: PartTask, row: PartRow, dtype: np.dtype
) -> Iterator[tuple[np.ndarray, np.ndarray, list[str], list[str]]]:
  """Yields (tokens, lengths, ids, meta) of documents, some at a time.

  Args:
    task: Which part.
    row: Its row.
    dtype: Of its tokens.

  Raises:
    PrepareError: If its files are not those that were written.
  """
  for kind in _KINDS:
    # All of it first: nothing of an altered part may reach the store.
    if _file_crc(task.path(kind)) != row.crc32c.get(kind):
      raise errors.PrepareError(
        f"{task.path(kind)} must be as it was written, got other bytes. Remove"
        f" {pathlib.Path(task.directory).parent} and run again."
      )
  lengths = np.fromfile(task.path("lengths"), "<i8").reshape(-1, 3)
  with (
    open(task.path("tokens"), "rb") as tokens_file,
    open(task.path("texts"), "rb") as texts_file,
  ):
    for first, last in _document_blocks(lengths[:, 0]):
      here = lengths[first:last]
      tokens = tokens_file.read(int(here[:, 0].sum()) * dtype.itemsize)
      data = texts_file.read(int(here[:, 1:].sum()))
      ends = np.cumsum(here[:, 1:]).tolist()
      texts = [
        data[low:high].decode()
        for low, high in zip([0, *ends[:-1]], ends, strict=True)
      ]
      yield np.frombuffer(tokens, dtype), here[:, 0], texts[::2], texts[1::2]


def _file_crc(path: pathlib.Path) -> int | None:
  """Returns a file's crc32c, or None where it cannot be read."""
  crc = 0
  try:
    with open(path, "rb") as file:
      while block := file.read(_READ_BYTES):
        crc = google_crc32c.extend(crc, block)
  except OSError:
    return None
  return crc


def _document_blocks(lengths: np.ndarray) -> Iterator[tuple[int, int]]:
  """Yields ranges of documents of about `_READ_TOKENS` tokens."""
  ends = np.cumsum(lengths)
  first = 0
  while first < len(lengths):
    before = int(ends[first - 1]) if first else 0
    last = int(np.searchsorted(ends, before + _READ_TOKENS, side="right"))
    last = max(last, first + 1)
    yield first, last
    first = last


def _encoded(
  task: PartTask, tokenizer: tokenizers.Tokenizer, skipped: skips.Skips
) -> Iterator[tuple[list[records.Document], tokenizers.Encoded]]:
  """Yields (documents, token ids) of batches of documents.

  Args:
    task: Which part.
    tokenizer: Of its options.
    skipped: Counts what is left out.
  """
  batch: list[records.Document] = []
  characters = 0
  counted = skipped if task.options.on_error == "skip" else None
  for document in readers.documents_of(
    task.pieces, task.options.read, counted, skipped
  ):
    batch.append(document)
    characters += len(document.text)
    if len(batch) >= _BATCH_TEXTS or characters >= _BATCH_CHARACTERS:
      yield batch, tokenizer.encode_batch([own.text for own in batch])
      batch, characters = [], 0
  if batch:
    yield batch, tokenizer.encode_batch([own.text for own in batch])


def _check_ids(
  encoded: tokenizers.Encoded,
  vocab_size: int,
  documents: list[records.Document],
) -> None:
  tokens = encoded.tokens
  if len(tokens) and int(tokens.max()) >= vocab_size:
    place = int(tokens.argmax())
    ends = np.cumsum(encoded.lengths)
    name = documents[int(np.searchsorted(ends, place, side="right"))].name
    raise errors.PrepareError(
      f"token ids must be below the vocabulary size {vocab_size}, got"
      f" {tokens.max()} in document {name!r}. The tokenizer contradicts"
      " itself: use another."
    )


class _CheckedFile:
  """A new file, and the crc32c of what is written to it."""

  def __init__(self, path: pathlib.Path):
    self.crc = 0
    self._file = open(path, "wb")  # noqa: SIM115

  def write(self, data: bytes) -> None:
    self._file.write(data)
    self.crc = google_crc32c.extend(self.crc, data)

  def close(self) -> None:
    try:
      self._file.flush()
      os.fsync(self._file.fileno())
    finally:
      self._file.close()
