# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizes an input shard to a part of a store: a pure function of its pieces.

The name of a part (`part_files`) is a digest of everything that decides it. An
engine calls `part_of`, which does not write a part again that is there.
"""

from collections.abc import Iterator
import dataclasses
import hashlib
import json

import numpy as np

from chomp_data import errors
from chomp_data.prepare import duplicates
from chomp_data.prepare import labelled
from chomp_data.prepare import part_files
from chomp_data.prepare import progress
from chomp_data.prepare import records
from chomp_data.prepare import rejections
from chomp_data.prepare import scratch
from chomp_data.prepare import tokenizers
from chomp_data.prepare.reading import base
from chomp_data.stores import columns as columns_lib
from chomp_data.stores import vocabulary
from chomp_data.stores.zarr import manifest as manifest_lib

BATCH_TEXTS = 1_024
_BATCH_CHARACTERS = 4 * 2**20
# Bytes are encoded in no time, and faster where they stay in a core's cache.
_BATCH_BYTES = 2**19
_VERSION = 7


@dataclasses.dataclass(frozen=True)
class PartOptions:
  """What decides a part in addition to its files.

  Attributes:
    tokenizer: Which tokenizer.
    tokenizer_hash: Of its info, so that a changed file is noticed.
    read: How documents are read.
    on_error: 'fail', or 'skip' what no document can be made of.
  """

  tokenizer: tokenizers.TokenizerSpec
  tokenizer_hash: str
  read: records.ReadOptions
  on_error: str = "fail"


@dataclasses.dataclass(frozen=True)
class PartTask:
  """A part to write.

  Attributes:
    pieces: The input shard.
    options: What else decides its contents.
    directory: The directory or URL of parts.
  """

  pieces: tuple[base.InputPiece, ...]
  options: PartOptions
  directory: str

  @property
  def key(self) -> str:
    """Names the part: a hash of its pieces and options."""
    return scratch.digest([_VERSION, self.options, *self.pieces])

  @property
  def size(self) -> int:
    """Bytes of input."""
    return sum(piece.size for piece in self.pieces)


def tokenizer_hash(info: vocabulary.TokenizerInfo) -> str:
  """Returns SHA-256 as hex of all that a store keeps of a tokenizer."""
  text = json.dumps(dataclasses.asdict(info), sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def part_of(task: PartTask) -> part_files.PartRow:
  """Returns the row of a part; writes the part unless it is there undamaged.

  Raises:
    PrepareError: If an input cannot be read or encoded.
  """
  return part_files.find(task.directory, task.key) or make_part(task)


def make_part(task: PartTask) -> part_files.PartRow:
  """Writes a part, replacing one that is there, and returns its row.

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
  if tokenizer.takes_bytes and options.read.ids_key is None:
    dtype = np.dtype(np.uint8)  # No token of a text is a special one.
  num_empty = num_documents = done = 0
  has_meta = options.read.has_meta
  rejected = rejections.Rejections(raises=options.on_error != "skip")
  with part_files.PartWriter(
    task.directory,
    task.key,
    dtype.newbyteorder("<"),
    has_meta=has_meta,
    has_labels=options.read.has_labels,
    has_weights=options.read.weight_key is not None,
    columns=options.read.columns,
  ) as writer:
    for documents, encoded in _encoded(task, tokenizer, rejected):
      _check_ids(encoded, tokenizer.info.vocab_size, documents)
      if options.read.ids_key and tokenizer.file is None:
        _check_ends(encoded, tokenizer.info, documents)
      done += sum(len(document.text) for document in documents)
      lengths, weights = encoded.lengths, encoded.weights
      # A pair keeps a half of no token, so that halves stay together.
      if not options.read.has_pairs and not lengths.all():
        with_tokens = np.flatnonzero(lengths)
        num_empty += len(documents) - len(with_tokens)
        documents = [documents[i] for i in with_tokens.tolist()]
        lengths = lengths[with_tokens]
        weights = None if weights is None else weights[with_tokens]
      num_documents += len(documents)
      writer.add(
        encoded.tokens,
        lengths,
        [document.name for document in documents],
        [document.meta for document in documents] if has_meta else None,
        encoded.labels,
        weights,
        {
          name: np.concatenate(
            [document.columns[name] for document in documents] or [()]
          )
          for name in options.read.columns
        },
      )
      # Text is less than the bytes of its records, or compressed.
      progress.report(min(done, task.size), num_documents)
    return writer.finish(num_empty, dataclasses.asdict(rejected))


def _encoded(
  task: PartTask,
  tokenizer: tokenizers.Tokenizer,
  rejected: rejections.Rejections,
) -> Iterator[tuple[list[records.Document], labelled.Labelled]]:
  """Yields (documents, token ids) of batches of documents."""
  batch: list[records.Document] = []
  characters = 0
  most = _BATCH_BYTES if tokenizer.takes_bytes else _BATCH_CHARACTERS
  token_bytes = columns_lib.bytes_per_token(task.options.read.columns.values())
  most = max(1, most * columns_lib.TOKEN_BYTES // token_bytes)
  for document in duplicates.documents_of(
    task.pieces, task.options.read, rejected
  ):
    batch.append(document)
    characters += len(document.text)
    if len(batch) >= BATCH_TEXTS or characters >= most:
      yield batch, labelled.encode(tokenizer, batch, task.options.read)
      batch, characters = [], 0
  if batch:
    yield batch, labelled.encode(tokenizer, batch, task.options.read)


def _check_ends(
  encoded: labelled.Labelled,
  info: vocabulary.TokenizerInfo,
  documents: list[records.Document],
) -> None:
  """Raises PrepareError where ids lack the BOS or EOS that they should have."""
  ends = np.cumsum(encoded.lengths)
  full = np.flatnonzero(encoded.lengths)
  for kind, places in (
    ("bos", (ends - encoded.lengths)[full]),
    ("eos", ends[full] - 1),
  ):
    if not getattr(info, f"adds_{kind}"):
      continue
    number = getattr(info, f"{kind}_id")
    wrong = np.flatnonzero(encoded.tokens[places] != number)
    if len(wrong):
      name = documents[int(full[wrong[0]])].name
      side = "begin" if kind == "bos" else "end"
      raise errors.PrepareError(
        f"token ids must {side} with --{kind}_id={number}, as --adds_{kind}"
        f" says, got {encoded.tokens[places[wrong[0]]]} in document {name!r}."
        f" Leave --adds_{kind} out, and set `rows.add_{kind}` in the run."
      )


def _check_ids(
  encoded: labelled.Labelled,
  vocab_size: int,
  documents: list[records.Document],
) -> None:
  tokens = encoded.tokens
  if np.iinfo(tokens.dtype).max < vocab_size:
    return
  if len(tokens) and int(tokens.max()) >= vocab_size:
    place = int(tokens.argmax())
    ends = np.cumsum(encoded.lengths)
    name = documents[int(np.searchsorted(ends, place, side="right"))].name
    raise errors.PrepareError(
      f"token ids must be below the vocabulary size {vocab_size}, got"
      f" {tokens.max()} in document {name!r}. The tokenizer contradicts"
      " itself: use another."
    )
