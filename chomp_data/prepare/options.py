# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The options of a preparation: what they may be, and a store's identity."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import hashlib
import json
import os
from typing import Any

from chomp_data import errors
from chomp_data import schema
from chomp_data.prepare import chats
from chomp_data.prepare import duplicates as duplicates_lib
from chomp_data.prepare import engines
from chomp_data.prepare import file_list
from chomp_data.prepare import filters
from chomp_data.prepare import inputs as inputs_lib
from chomp_data.prepare import option_fields
from chomp_data.prepare import parts
from chomp_data.prepare import records
from chomp_data.prepare import run_tokenizer
from chomp_data.prepare import tokenizers
from chomp_data.prepare.reading import base
from chomp_data.prepare.tokenizers import training
from chomp_data.storage import claims
from chomp_data.storage import opening
from chomp_data.storage import publish
from chomp_data.stores.array_record import record_writer
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import destination

ON_ERROR = ("fail", "skip")
RECORDS = "array_record"
# Part of what array_record.json holds, in this order.
_FIRST = (
  "text_key",
  "id_key",
  "encoding_errors",
  "compression",
  "chunk",
  "shard_bytes",
  "format",
)
FORMATS = ("zarr", RECORDS)

_CHOOSE = "Choose one."
# Options whose flags may be given in any order.
_UNORDERED = ("column", "document_column")


@dataclasses.dataclass(frozen=True)
class Options(records.DocumentOptions):
  """What to prepare, and how; and what `DocumentOptions` has.

  Attributes:
    inputs: A file, a directory, or a glob in quotes, as 'corpus/**/*.txt',
      where ** recurses.
    output: The directory to create, or s3://, gs:// or az://; required without
      --preview.
    exclude: A pattern of files to leave out, as '*/tests/*', matched against
      their path below the input and against their whole path.
    tokenizer: Which tokenizer; None is the byte tokenizer for texts, and none
      for token ids, which need one.
    train: A tokenizer to train on the inputs instead, or None.
    id_required: Whether a document must have an id.
    duplicates: What happens to documents with the same text as an earlier one,
      of which the same is trained on: 'drop' leaves them out and counts them,
      at the cost of reading all inputs twice; for up to 10^9 documents.
    engine: What runs the workers: 'pool' uses processes of this machine, 'beam'
      uses Apache Beam, whose own flags follow after `--`.
    engine_flags: Flags of the engine's own.
    workers: Processes that tokenize; 0 and 1 use this one.
    format: 'zarr', or 'array_record' with one record of token ids per document,
      which stock Grain and others can read too.
    compression: 'none' is read through memory maps; 'zstd' takes about half the
      bytes.
    on_error: What happens to files that are not text and lines that are not
      documents: 'fail' ends the run, 'skip' leaves them out and counts them in
      the summary and in the store's manifest.
    overwrite: Replace a store with other inputs or options at --output.
    chunk: Elements of a chunk.
    shard_bytes: Bytes of input files that make one part.
  """

  inputs: tuple[str, ...] = option_fields.option(
    dataclasses.MISSING, flag="input"
  )
  output: str = option_fields.option(dataclasses.MISSING)
  exclude: tuple[str, ...] = option_fields.option(())
  tokenizer: tokenizers.TokenizerSpec | None = option_fields.option(  # noqa: RUF009
    None, flag=None
  )
  train: run_tokenizer.TrainOptions | None = option_fields.option(  # noqa: RUF009
    None, flag=None
  )
  id_required: bool = option_fields.option(False, flag=None)
  duplicates: str = option_fields.option(
    "keep",
    schema.choice(duplicates_lib.DUPLICATES),
    fix=_CHOOSE,
    identity=option_fields.CHANGED,
  )
  engine: str = option_fields.option(
    "pool", schema.choice(engines.ENGINES), fix=_CHOOSE
  )
  engine_flags: tuple[str, ...] = option_fields.option((), flag=None)
  workers: int = option_fields.option(
    0, schema.integer(), fix="Give the number of processes."
  )
  format: str = option_fields.option(
    "zarr",
    schema.choice(FORMATS),
    fix=_CHOOSE,
    identity=option_fields.CHANGED,
  )
  compression: str = option_fields.option(
    "none",
    schema.choice(array_layout.COMPRESSIONS),
    fix=_CHOOSE,
    identity=option_fields.ALWAYS,
  )
  on_error: str = option_fields.option(
    "fail",
    schema.choice(ON_ERROR),
    fix=_CHOOSE,
    identity=option_fields.CHANGED,
  )
  overwrite: bool = option_fields.option(False)
  chunk: int = option_fields.option(
    array_layout.DEFAULT_CHUNK, flag=None, identity=option_fields.ALWAYS
  )
  shard_bytes: int = option_fields.option(
    inputs_lib.SHARD_BYTES, flag=None, identity=option_fields.ALWAYS
  )

  @property
  def tokenizer_spec(self) -> tokenizers.TokenizerSpec:
    """The tokenizer, also where none was named."""
    return self.tokenizer or tokenizers.TokenizerSpec()

  def read_options(
    self, tokenizer: tokenizers.Tokenizer | None = None
  ) -> records.ReadOptions:
    """Returns how documents are read, for a tokenizer or before there is one.

    Special tokens of a tokenizer that is to be trained are known.
    """
    names = [f.name for f in dataclasses.fields(records.DocumentOptions)]
    values = {name: getattr(self, name) for name in names}
    tokens: tuple[tuple[str, str], ...] = ()
    special: tuple[str, ...] = ()
    vocab_size = None
    if tokenizer is not None:
      if self.ids_key is not None:
        vocab_size = tokenizer.info.vocab_size
      tokens = tokenizers.special_texts(tokenizer)
      special = tokenizers.all_special_texts(tokenizer)
    elif self.train is not None:
      tokens = training.SPECIAL_TEXTS
    values["chat"] = dataclasses.replace(
      self.chat, tokens=tokens, special=special
    )
    return records.ReadOptions(
      **values,
      raw=tokenizer is not None and tokenizer.takes_bytes,
      filter_sha256=filters.digest(self.filter) if self.filter else "",
      vocab_size=vocab_size,
    )


@dataclasses.dataclass(frozen=True)
class CommandOptions:
  """What only the command has.

  Attributes:
    preview: Write nothing; print the tokens of this many documents, with +
      before those that are trained on.
  """

  preview: int | None = option_fields.option(
    None, schema.integer(1), fix="Give the number of documents."
  )


# The dataclasses whose fields are flags of the command.
SECTIONS: tuple[type, ...] = (
  CommandOptions,
  Options,
  tokenizers.TokenizerSpec,
  run_tokenizer.TrainOptions,
  chats.ChatOptions,
)


def check(options: Options, *, has_output: bool = True) -> file_list.FileList:
  """Checks options, and finds the files to read.

  Returns:
    The files, as `inputs.discover` lists them.

  Raises:
    PrepareError: If something is wrong; all of it is named.
  """
  if has_output and not options.output:
    raise errors.PrepareError(
      "`--output` must be given, got none. Name the directory to create, or"
      " look at documents first with --preview=5."
    )
  problems = option_fields.problems(options) + _contradictions(options)
  problems += option_fields.problems(options.tokenizer_spec)
  problems += _key_problems(options) + _ids_problems(options)
  if options.train is not None:
    problems += option_fields.problems(options.train)
  if not options.inputs:
    problems.append("`--input` must be given, got none. Name some text.")

  def check_output() -> None:
    if options.format == RECORDS:
      local = publish.target(opening.open_local(options.output))
      record_writer.check_destination(local, True)
    else:
      destination.open_destination(options.output).check(overwrite=True)

  files = file_list.FileList([])

  def discover() -> None:
    nonlocal files
    skip: list[str] = []
    with contextlib.suppress(errors.StoreError):  # `check_output` raises it.
      skip = _paths_of(options.output) if has_output else []
    files = inputs_lib.discover(options.inputs, options.exclude, skip)

  checks = [lambda: _check_tokenizer(options), discover]
  for run_check in [*checks, check_output] if has_output else checks:
    try:
      run_check()
    except (errors.PrepareError, errors.StoreError) as error:
      problems.append(str(error))
  errors.PrepareError.raise_if(problems)
  return files


def identity(
  options: Options, files: Iterable[base.InputFile]
) -> dict[str, Any]:
  """Returns what a second run must have in common to have nothing to do.

  Args:
    options: What is asked for.
    files: All, with their versions: first those that are read.
  """
  if options.train is None:
    info = tokenizers.make_tokenizer(options.tokenizer_spec).info
    tokenizer: Any = parts.tokenizer_hash(info)
  else:
    # The same inputs train the same tokenizer, so it need not be trained.
    tokenizer = {"trained": dataclasses.asdict(options.train)}
  of_options = option_fields.identity(options)
  values = {
    "inputs": inputs_identity(files),
    "tokenizer": tokenizer,
    **{name: of_options[name] for name in _FIRST if name in of_options},
    **of_options,
  }
  if options.filter is not None:
    values["filter_sha256"] = filters.digest(options.filter)
  return values


def inputs_identity(files: Iterable[base.InputFile]) -> dict[str, Any]:
  """Returns how many files there are, their bytes, and the SHA-256 of a list.

  The list is JSON, [[name, size, version], ...], hashed file by file.
  """
  digest, separator = hashlib.sha256(b"["), b""
  num_files = num_bytes = 0
  for file in files:
    row = json.dumps([file.name, file.size, file.version]).encode()
    digest.update(separator + row)
    separator = b", "
    num_files += 1
    num_bytes += file.size
  digest.update(b"]")
  return {
    "files": num_files,
    "bytes": num_bytes,
    "sha256": digest.hexdigest(),
  }


def comparable(prepared: Mapping[str, Any]) -> dict[str, Any]:
  """Returns an identity without the order of flags that has no meaning."""
  unordered = {
    name: sorted(prepared[name]) for name in _UNORDERED if name in prepared
  }
  return {**prepared, **unordered}


def _refused(
  options: Any, names: Sequence[str], why: str, fix: str
) -> list[str]:
  """Returns a sentence for each option that is set and must not be."""
  return [
    f"`--{name}` must not be given {why}, got {value!r}. {fix}"
    for name in names
    if (value := getattr(options, name)) not in (None, False, ())
  ]


_EITHER = "Leave one of them out."


def _contradictions(options: Options) -> list[str]:
  """Returns what is wrong with options of formats and of values to keep."""
  problems: list[str] = []
  keys = options.meta_keys
  if options.format == RECORDS:
    if options.compression != "none":
      problems.append(
        "`--compression` must be none with --format=array_record, which has its"
        f" own, got {options.compression!r}. Leave it out."
      )
    why = "with --format=array_record, whose records"
    names = ("meta_key", "meta_keys")
    only = f"{why} are token ids only"
    problems += _refused(options, names, only, "Leave it out.")
    names = ("messages_key", "prompt_key", "chosen_key", "weight_key")
    why += " have no place for labels and weights"
    problems += _refused(options, names, why, _EITHER)
  if not all(keys) or len(set(keys)) < len(keys):
    problems.append(
      "`--meta_keys` must be distinct names that are not empty, got"
      f" {','.join(keys)!r}. Correct them."
    )
  if options.meta_key is not None and keys:
    problems.append(
      "`--meta_key` and `--meta_keys` must not both be given, got"
      f" {options.meta_key!r} and {','.join(keys)!r}. List all in --meta_keys."
    )
  if not options.has_meta and options.meta_default is not None:
    why = "without --meta_key or --meta_keys"
    problems += _refused(options, ["meta_default"], why, "Name the key.")
  return problems


def _key_problems(options: Options) -> list[str]:
  """Returns what is wrong with keys of what is trained on."""
  problems: list[str] = []
  has_pairs = options.chosen_key is not None or options.rejected_key is not None
  names = "prompt_key", "completion_key"
  if has_pairs:
    names = "chosen_key", "rejected_key"
    others = ("messages_key", "completion_key")
    problems += _refused(options, others, "with --chosen_key", _EITHER)
    if options.chat.turns != "all":
      problems.append(
        "`--turns` must be left out with --chosen_key, which trains on what"
        f" follows the prompt, got {options.chat.turns!r}. Leave it out."
      )
  first, second = (getattr(options, name) for name in names)
  if (first is None) != (second is None):
    problems.append(
      f"`--{names[0]}` and `--{names[1]}` must be given together, got"
      f" {first!r} and {second!r}. Give both."
    )
  if options.messages_key is not None:
    why = "with --messages_key"
    problems += _refused(options, ["prompt_key"], why, _EITHER)
  return problems + chats.problems(options.chat, options.has_chats)


def _ids_problems(options: Options) -> list[str]:
  """Returns what is wrong with options of token ids and columns."""
  try:
    columns = options.columns
  except errors.PrepareError as error:
    return [str(error)]
  problems: list[str] = []
  if columns and options.format == RECORDS:
    problems.append(
      "`--format` must be zarr with columns, for which records of ArrayRecord"
      f" have no place, got {', '.join(columns)}. Leave one of them out."
    )
  fix = "Give them, or leave it out."
  if options.tokenizer_spec.vocab_size is None:
    names = ("pad_id", "eos_id", "bos_id", "adds_eos", "adds_bos")
    why = "without --ids_key and --vocab_size"
    problems += _refused(options.tokenizer_spec, names, why, fix)
  if options.ids_key is None:
    return problems + _refused(options, ["column"], "without --ids_key", fix)
  if options.tokenizer is None:
    problems.append(no_tokenizer_of_ids("neither"))
  names = ("messages_key", "prompt_key", "chosen_key", "filter")
  why = "with --ids_key, whose documents have no text"
  if options.train is not None:
    problems.append(f"`--train_tokenizer` must not be given {why}. {_EITHER}")
  return problems + _refused(options, names, why, _EITHER)


def no_tokenizer_of_ids(got: str) -> str:
  """Returns the error where --ids_key has no tokenizer, or two."""
  return (
    "`--tokenizer` or `--vocab_size` must be given with --ids_key, the"
    f" tokenizer of the ids or how many there are, got {got}. Give one of them."
  )


def _check_tokenizer(options: Options) -> None:
  if options.train is None:
    tokenizers.make_tokenizer(options.tokenizer_spec)
    return
  if options.tokenizer_spec != tokenizers.TokenizerSpec():
    raise errors.PrepareError(
      "`--tokenizer` must not be given with --train_tokenizer, nor its special"
      f" tokens, got {options.tokenizer}. Leave one of them out."
    )


def _paths_of(output: str) -> list[str]:
  """Returns the output, and what a run writes beside it."""
  if opening.open_storage(output).is_remote:
    path = output.rstrip("/")
    return [path, f"{path}.partial", claims.claim_url(path)]
  path = os.path.realpath(output)
  return [path, *(f"{path}.{kind}" for kind in ("partial", "old", "lock"))]
