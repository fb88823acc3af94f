# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a run: it is trained once, and does not change.

The directory of the run's work holds the tokenizer that was trained, named by a
digest of all that decides it, and which tokenizer its parts were encoded with.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import itertools
import json

from chomp_data import errors
from chomp_data import schema
from chomp_data.prepare import option_fields
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare import rejections
from chomp_data.prepare import scratch
from chomp_data.prepare import tokenizers
from chomp_data.prepare.reading import base
from chomp_data.prepare.tokenizers import training
from chomp_data.storage import opening
from chomp_data.storage import paths
from chomp_data.stores import json_values
from chomp_data.stores import vocabulary

# More text changes a vocabulary little, and one process reads all of it.
TRAIN_BYTES = 2**30
_BEGUN = "tokenizer"
PROGRESS_BYTES = 2**20


@dataclasses.dataclass(frozen=True)
class TrainOptions:
  """A tokenizer to train.

  Attributes:
    algorithm: Train a tokenizer on the inputs instead: byte-level BPE; the
      store keeps its tokenizer.json.
    vocab_size: Tokens of the tokenizer that is trained, as 32768.
    train_bytes: About how many bytes of the inputs are read; of more, evenly
      spaced pieces are.
  """

  algorithm: str = option_fields.option(
    dataclasses.MISSING,
    schema.choice(training.ALGORITHMS),
    fix="Choose one.",
    flag="train_tokenizer",
  )
  vocab_size: int = option_fields.option(
    dataclasses.MISSING,
    dataclasses.replace(
      schema.integer(training.LEAST_VOCAB_SIZE),
      text=(
        f"at least {training.LEAST_VOCAB_SIZE}, the bytes and"
        f" {len(training.SPECIAL)} special tokens"
      ),
    ),
    fix="Give the size of the tokenizer that is trained, as 32768.",
  )
  train_bytes: int = option_fields.option(TRAIN_BYTES, flag=None)


@dataclasses.dataclass(frozen=True)
class _PartialWork:
  """The tokenizer that a store was begun with.

  Attributes:
    source: Its path or URL, or 'byte'.
    info: Its entry in the store's manifest.
  """

  source: str
  info: vocabulary.TokenizerInfo


def train(
  options: TrainOptions,
  pieces: Sequence[base.InputPiece],
  read: records.ReadOptions,
  on_error: str,
  work: str,
  on_progress: Callable[[int, int, int], None] = lambda *_: None,
) -> tokenizers.TokenizerSpec:
  """Trains a tokenizer, unless a run before this one did.

  Args:
    options: Which.
    pieces: The inputs, numbered.
    read: How they are read.
    on_error: 'fail', or 'skip' what no document can be made of.
    work: The directory or URL of what is done so far.
    on_progress: Called now and then with bytes read, bytes to read and
      documents.

  Returns:
    The tokenizer.

  Raises:
    PrepareError: If an input cannot be read.
  """
  key = scratch.digest(itertools.chain([options, read, on_error], pieces))
  name = f"{key}.tokenizer.json"
  storage = opening.open_storage(work)
  if storage.head(name) is None:
    texts = _texts(options, pieces, read, on_error, on_progress)
    storage.put(name, training.train_bpe(texts, options.vocab_size))
  return tokenizers.TokenizerSpec(paths.join(work, name))


def check_unchanged(
  work: str,
  info: vocabulary.TokenizerInfo,
  source: str,
  *,
  overwrite: bool,
) -> None:
  """Saves the tokenizer that a store is begun with, or compares it.

  Args:
    work: The directory or URL of what is done so far.
    info: What the store will say of the tokenizer.
    source: Where it came from.
    overwrite: Whether a store that was begun with another is begun again.

  Raises:
    PrepareError: If the store was begun with another.
  """
  storage = opening.open_storage(work)
  begun = None
  if not overwrite:
    with contextlib.suppress(OSError, ValueError):
      data = storage.get(_BEGUN, check=json.loads)
      begun = json_values.parse(_PartialWork, data, _BEGUN)
  if begun is None:
    storage.put(_BEGUN, json_values.encode(_PartialWork(source, info)))
    return
  if begun.info != info:
    raise errors.PrepareError(
      "`--tokenizer` must be as it was when the store was begun,"
      f" {begun.source} of SHA-256 {begun.info.sha256[:16]} with"
      f" {_special(begun.info)}, got {source} of {info.sha256[:16]} with"
      f" {_special(info)}. Give that one again, or remove {work}"
      " (or say --overwrite) to begin anew."
    )


def _special(info: vocabulary.TokenizerInfo) -> str:
  names = ("pad_id", "eos_id", "bos_id")
  return ", ".join(f"{name} {getattr(info, name)}" for name in names)


def _texts(
  options: TrainOptions,
  pieces: Sequence[base.InputPiece],
  read: records.ReadOptions,
  on_error: str,
  on_progress: Callable[[int, int, int], None],
) -> Iterator[str]:
  """Yields the texts to train on."""
  total = sum(piece.size for piece in pieces)
  count, left = len(pieces), None
  if total > options.train_bytes:
    count = max(1, count * options.train_bytes // total)
    # Compressed pieces may be of any size.
    left = options.train_bytes // count
  rejected = rejections.Rejections(raises=on_error != "skip")
  done = reported = documents = 0
  total = min(total, options.train_bytes)
  on_progress(done, total, documents)
  for i in range(count):
    read_bytes = 0
    for document in readers.documents(
      pieces[i * len(pieces) // count], read, rejected
    ):
      text = document.text
      yield text.decode() if isinstance(text, bytes) else text
      read_bytes += len(text)
      documents += 1
      if done + read_bytes >= reported + PROGRESS_BYTES:
        reported = done + read_bytes
        on_progress(min(reported, total), total, documents)
      if left is not None and read_bytes >= left:
        break
    done += read_bytes
  on_progress(total, total, documents)
