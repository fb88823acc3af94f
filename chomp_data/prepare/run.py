# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""From options to a published store; interrupted runs go on where they were.

Parts lie in `OUTPUT.partial` until the store is published; of a URL in a local
directory, or there where workers may be on other machines. What was done is
recognised by the files' names, sizes and times, the tokenizer and the options.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import pathlib
import shutil
import sys
from typing import Any

from chomp_data import errors
from chomp_data import schema
from chomp_data import stores
from chomp_data.prepare import chats
from chomp_data.prepare import cleaning
from chomp_data.prepare import duplicates
from chomp_data.prepare import engines
from chomp_data.prepare import filters
from chomp_data.prepare import id_checks
from chomp_data.prepare import inputs
from chomp_data.prepare import labelled
from chomp_data.prepare import own_tokenizer
from chomp_data.prepare import part_files
from chomp_data.prepare import parts
from chomp_data.prepare import readers
from chomp_data.prepare import recognition
from chomp_data.prepare import records
from chomp_data.prepare import shards
from chomp_data.prepare import skips
from chomp_data.prepare import tokenizers
from chomp_data.prepare import work_files
from chomp_data.prepare.reading import base
from chomp_data.prepare.tokenizers import training
from chomp_data.stores import claims
from chomp_data.stores import places
from chomp_data.stores import publish
from chomp_data.stores.array_record import record_writer
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import destination
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import store_writer
from chomp_data.stores.zarr import zarr_store

ON_ERROR = ("fail", "skip")
_RECORDS = "array_record"
FORMATS = ("zarr", _RECORDS)

# What a manifest's `prepared` says of a run besides its options.
_RESULTS = ("skipped", "without_id", "repeated_ids", "chats")

# `inputs` is a field of the options, too.
_SHARD_BYTES = inputs.SHARD_BYTES
_Refused = list[tuple[base.InputFile, errors.BadInput]]


@dataclasses.dataclass(frozen=True)
class Options:
  """What to prepare, and how; see tools/prepare.py for each.

  Attributes:
    inputs: Globs, directories and paths.
    output: The directory to create, or a URL, see `places`.
    exclude: Patterns of files that are left out.
    tokenizer: Which tokenizer.
    train: A tokenizer to train on the inputs instead, or None.
    text_key: The key of the text in JSONL.
    id_key: The key of the id in JSONL.
    id_required: Whether a document must have such a key.
    meta_key: The key in JSONL of what is kept of a document besides its id,
      or None.
    meta_keys: The keys of several such values in its place.
    meta_default: What is kept where a document has no such key; None is an
      error.
    max_document_bytes: The most bytes of a line, of a text file, and of a text
      in a table; memory grows with it.
    filter: The import path of a function that says which documents are kept,
      see `filters`; the manifest's `prepared` counts the others.
    duplicates: 'keep', or 'drop' all but the first of documents of the same
      text; the manifest's `prepared` counts them.
    messages_key: The key of a chat's messages, in the place of a text.
    chat: How they become documents.
    prompt_key: With `completion_key`, the key of what is not trained on, in
      the place of a text.
    completion_key: The key of what is trained on after it.
    weight_key: The key of a document's weight, or None.
    engine: One of `engines.ENGINES`.
    engine_flags: Flags of the engine's own.
    workers: Processes; 0 and 1 stay in this one.
    format: 'zarr', or 'array_record' for records that others read, too.
    compression: 'none' or 'zstd'; of zarr.
    encoding_errors: 'strict' or 'replace'.
    on_error: 'fail', or 'skip' files and lines that no document can be made
      of; the manifest's `prepared` counts them under 'skipped'.
    overwrite: Whether another store at `output` may be replaced.
    chunk: Elements of a chunk.
    shard_bytes: Bytes of input files that make one part.
  """

  inputs: tuple[str, ...]
  output: str
  exclude: tuple[str, ...] = ()
  tokenizer: tokenizers.TokenizerSpec = dataclasses.field(
    default_factory=tokenizers.TokenizerSpec
  )
  train: own_tokenizer.TrainOptions | None = None
  text_key: str = "text"
  id_key: str = "id"
  id_required: bool = False
  meta_key: str | None = None
  meta_keys: tuple[str, ...] = ()
  meta_default: str | None = None
  max_document_bytes: int = records.MAX_DOCUMENT_BYTES
  filter: str | None = None
  duplicates: str = "keep"
  messages_key: str | None = None
  chat: chats.ChatOptions = dataclasses.field(default_factory=chats.ChatOptions)
  prompt_key: str | None = None
  completion_key: str | None = None
  weight_key: str | None = None
  engine: str = "pool"
  engine_flags: tuple[str, ...] = ()
  workers: int = 0
  format: str = "zarr"
  compression: str = "none"
  encoding_errors: str = "strict"
  on_error: str = "fail"
  overwrite: bool = False
  chunk: int = array_layout.DEFAULT_CHUNK
  shard_bytes: int = _SHARD_BYTES


@dataclasses.dataclass(frozen=True)
class Progress:
  """How far a run is.

  Attributes:
    stage: 'count' (lines) and 'hash' (for duplicates), where there is need;
      'train' where a tokenizer is trained; 'encode', then 'write'.
    done_bytes: Bytes of input files that are read or encoded, or of the
      store's that are written.
    total_bytes: Bytes of all of them.
    documents: Documents that are read or encoded.
  """

  stage: str
  done_bytes: int
  total_bytes: int
  documents: int


def prepare(
  options: Options, report: Callable[[Progress], None] = lambda _: None
) -> tuple[stores.Store, bool]:
  """Makes a store, unless it is there already.

  Args:
    options: What and how.
    report: Called as parts are done.

  Returns:
    (the store, whether anything was written).

  Raises:
    PrepareError: If options or inputs are wrong.
    StoreError: If the output cannot be written to.
    OSError: If the disk is full, for instance; nothing is published then.
  """
  files, refused = _check(options)
  prepared = _identity(options, [*files, *(f for f, _ in refused)])
  with (
    destination.at(options.output) as output,
    contextlib.ExitStack() as stack,
  ):
    store = _existing(output, options, prepared)
    partial = publish.beside(output.local, ".partial")
    work = str(partial)
    if output.is_url and options.engine in engines.FAR:
      work = _far_work(output)
    if store is not None:
      # What a run left that was killed once its store was published.
      _remove(output, partial)
      output.tidy()
      return store, False
    identity = json.dumps(prepared, sort_keys=True).encode()
    stack.enter_context(output.claimed(hashlib.sha256(identity).hexdigest()))
    make_engine = engines.ENGINES[options.engine]
    engine = stack.enter_context(
      contextlib.closing(
        make_engine(
          options.workers, options.engine_flags, places.join(work, "engine")
        )
      )
    )
    pieces = _pieces(options, files, engine, report)
    spec = _tokenizer(options, pieces, work, report)
    tokenizer = tokenizers.make_tokenizer(spec)
    if options.train is None:
      own_tokenizer.check_unchanged(
        work, tokenizer.info, spec.source, anew=options.overwrite
      )
    tasks = _tasks(options, spec, pieces, work, engine, report)
    rows = _make_parts(tasks, engine, report)
    skipped = _skipped(refused, rows)
    if not any(row.num_documents for row in rows):
      raise errors.PrepareError(
        f"`--input` must hold a document that is not empty, got {len(files)}"
        f" files without one{_left_out(skipped)}. Give other files."
      )
    _check_id_key(options, pieces, skipped, rows)
    cleans = options.filter is not None or options.duplicates == "drop"
    if options.on_error == "skip" or cleans:
      prepared = {**prepared, "skipped": skipped.left_out()}
    # Where there are none, manifests stay as they were, to the byte.
    if skipped.unnamed:
      prepared = {**prepared, "without_id": skipped.unnamed}
    if options.messages_key is not None:
      prepared = {
        **prepared,
        "chats": chats.summary(tasks[0].options.read.chat, skipped.chats),
      }
    keys = [task.key for task in tasks]
    if again := id_checks.repeated(tasks[0].directory, keys, rows):
      prepared = {**prepared, "repeated_ids": again}
    if places.is_url(work):
      # Shard files are written where they belong, and the manifest last.
      output.check(options.overwrite)
      if options.overwrite:
        output.clear()
      _remove_directory(partial / "store")
    _assemble(
      tasks, rows, options, tokenizer, prepared, partial, work, output.path,
      engine, report,
    )  # fmt: skip
    if options.format == _RECORDS:
      _publish_records(partial, output.local, options, prepared)
    else:
      output.publish(
        partial / "store", options.overwrite and not places.is_url(work)
      )
    _remove(output, partial)
  return stores.open_store(output.path), True


def preview(
  options: Options, count: int
) -> Iterator[tuple[records.Document, labelled.Labelled]]:
  """Yields the first documents and their tokens; writes nothing.

  Args:
    options: As for `prepare`, without an output.
    count: How many documents at most.

  Raises:
    PrepareError: If options or inputs are wrong.
  """
  if options.train is not None or options.duplicates != "keep":
    raise errors.PrepareError(
      "`--preview` must not be given with --train_tokenizer or"
      " --duplicates=drop, which read all inputs first, got one of them. Leave"
      " it out."
    )
  files, refused = _check(options, has_output=False)
  tokenizer = tokenizers.make_tokenizer(options.tokenizer)
  read = _document_options(options, tokenizer)
  skipped = _skipped(refused, ()) if options.on_error == "skip" else None
  # A whole file is one piece: none has to be counted.
  pieces = [
    piece for file in files for piece in readers.split(file, sys.maxsize)
  ]
  documents = readers.documents_of(pieces, read, skipped)
  for document in itertools.islice(documents, count):
    yield document, labelled.encode(tokenizer, [document], read)


def _publish_records(
  partial: pathlib.Path,
  output: pathlib.Path,
  options: Options,
  prepared: Mapping[str, Any],
) -> None:
  """Writes the store that is done as records, and publishes those."""
  staging = partial / "records"
  _remove_directory(staging)
  record_writer.write_files(
    zarr_store.open_zarr(partial / "store"), staging, prepared=prepared
  )
  record_writer.check_destination(output, options.overwrite)
  publish.publish(staging, output)


def _check(
  options: Options, *, has_output: bool = True
) -> tuple[list[base.InputFile], _Refused]:
  """Returns the files, or raises all problems at once.

  Returns:
    The files to read, and those that are left out.
  """
  problems = []
  for name, choices in (
    ("format", FORMATS),
    ("engine", engines.ENGINES),
    ("compression", array_layout.COMPRESSIONS),
    ("encoding_errors", records.ENCODING_ERRORS),
    ("on_error", ON_ERROR),
    ("duplicates", duplicates.DUPLICATES),
  ):
    value = getattr(options, name)
    if value not in choices:
      rule = schema.choice(choices)
      problems.append(schema.bad_value(f"--{name}", rule, value, "Choose one."))
  if options.format == _RECORDS and options.compression != "none":
    problems.append(
      "`--compression` must be none with --format=array_record, which has its"
      f" own, got {options.compression!r}. Leave it out."
    )
  for name in ("meta_key", "meta_keys"):
    value = getattr(options, name)
    if options.format == _RECORDS and value:
      problems.append(
        f"`--{name}` must not be given with --format=array_record, whose"
        f" records are token ids only, got {value!r}. Leave it out."
      )
  for name in ("text_key", "id_key", "output"):
    if not getattr(options, name) and (has_output or name != "output"):
      problems.append(f"`--{name}` must not be empty, got ''. Give one.")
  if options.meta_key == "":
    problems.append("`--meta_key` must not be empty, got ''. Give one.")
  keys = options.meta_keys
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
  if options.meta_default is not None and options.meta_key is None and not keys:
    problems.append(
      "`--meta_default` must not be given without --meta_key or --meta_keys,"
      f" got {options.meta_default!r}. Name the key."
    )
  if options.max_document_bytes < 1:
    problems.append(
      "`--max_document_bytes` must be at least 1, got"
      f" {options.max_document_bytes}. Give the most bytes of a document."
    )
  problems += _label_problems(options)
  if options.workers < 0:
    problems.append(
      f"`--workers` must be at least 0, got {options.workers}. Give the number"
      " of processes."
    )
  if not options.inputs:
    problems.append("`--input` must be given, got none. Name some text.")
  files, refused = None, []
  try:
    _check_tokenizer(options)
  except (errors.PrepareError, errors.StoreError) as error:
    problems.append(str(error))
  try:
    files, refused = recognition.recognise(
      inputs.discover(
        options.inputs,
        options.exclude,
        _own_paths(options.output) if has_output else [],
      ),
      _read_options(options, raw=False),
    )
    if options.on_error != "skip":
      errors.PrepareError.raise_if([str(error) for _, error in refused])
    recognition.check_tables_of_text(files)
  except (errors.PrepareError, errors.StoreError) as error:
    problems.append(str(error))
  try:
    if not has_output:
      pass
    elif options.format == _RECORDS:
      publish.check_local(options.output)
      record_writer.check_destination(pathlib.Path(options.output), True)
    else:
      destination.Destination(options.output).check(overwrite=True)
  except stores.StoreError as error:
    problems.append(str(error))
  if problems or files is None:
    raise errors.PrepareError("\n".join(problems))
  return files, refused


def _label_problems(options: Options) -> list[str]:
  """Returns what is wrong with options of what is trained on."""
  problems = [
    f"`--{name}` must not be empty, got ''. Give one."
    for name in ("messages_key", "prompt_key", "completion_key", "weight_key")
    if getattr(options, name) == ""
  ]
  prompt, completion = options.prompt_key, options.completion_key
  if (prompt is None) != (completion is None):
    problems.append(
      "`--prompt_key` and `--completion_key` must be given together, got"
      f" {prompt!r} and {completion!r}. Give both."
    )
  if options.messages_key is not None and prompt is not None:
    problems.append(
      "`--prompt_key` must not be given with --messages_key, got"
      f" {prompt!r}. Leave one of them out."
    )
  asked = [
    name
    for name in ("messages_key", "prompt_key", "weight_key")
    if getattr(options, name) is not None
  ]
  if asked and options.format == _RECORDS:
    problems.append(
      f"`--{asked[0]}` must not be given with --format=array_record, whose"
      " records have no place for labels and weights, got"
      f" {getattr(options, asked[0])!r}. Leave one of them out."
    )
  return problems + chats.problems(options.chat, options.messages_key)


def _check_tokenizer(options: Options) -> None:
  if options.train is None:
    tokenizers.make_tokenizer(options.tokenizer)
    return
  if options.tokenizer != tokenizers.TokenizerSpec():
    raise errors.PrepareError(
      "`--tokenizer` must not be given with --train_tokenizer, nor its special"
      f" tokens, got {options.tokenizer}. Leave one of them out."
    )
  training.checked(options.train.algorithm, options.train.vocab_size)


def _tokenizer(
  options: Options,
  pieces: list[base.InputPiece],
  work: str,
  report: Callable[[Progress], None],
) -> tokenizers.TokenizerSpec:
  """Returns the tokenizer that is asked for, trained if need be."""
  if options.train is None:
    return options.tokenizer
  read = _read_options(options, raw=False, tokens=training.SPECIAL_TEXTS)
  return own_tokenizer.train(
    options.train, pieces, read, options.on_error, work,
    lambda *told: report(Progress("train", *told)),
  )  # fmt: skip


def _check_id_key(
  options: Options,
  pieces: Sequence[base.InputPiece],
  skipped: skips.Skips,
  rows: Sequence[part_files.PartRow],
) -> None:
  """Raises PrepareError where an id is asked for that no document has."""
  documents = sum(row.num_documents + row.num_empty for row in rows)
  documents += skipped.reasons.get(duplicates.REASON, 0)
  if not options.id_required or skipped.unnamed < documents:
    return
  # What the keys are is said where a text is looked for under this one.
  read = dataclasses.replace(
    _read_options(options, raw=False),
    text_key=options.id_key,
    messages_key=None,
    prompt_key=None,
    completion_key=None,
    duplicates=None,
  )
  got = "none"
  try:
    readers.INPUT_KINDS[pieces[0].file.kind].check(pieces[0].file, read)
    next(readers.documents(pieces[0], read), None)
  except errors.BadInput as error:
    got = f"{error.args[0]}: {error.problem.rstrip('.')}"
  raise errors.PrepareError(
    f"`--id_key` must be a key that a document has, got {options.id_key!r}, as"
    f" none has an id there. {got}. Correct it, or leave it out: documents"
    " without an id are called by their places."
  )


def _skipped(
  refused: _Refused, rows: Sequence[part_files.PartRow]
) -> skips.Skips:
  """Returns all that was left out: files first, then by the order of parts."""
  skipped = skips.Skips()
  for file, error in refused:
    skipped.add(file.name, None, error)
  for row in rows:
    skipped.join(skips.Skips(**row.skipped))
  return skipped


def _left_out(skipped: skips.Skips) -> str:
  if not skipped.reasons:
    return ""
  counts = [f"{count:,} {why}" for why, count in skipped.reasons.items()]
  first = "".join(
    f"; the first is {problem.removesuffix('.')}"
    for problem in skipped.first[:1]
  )
  return f" (left out: {', '.join(counts)}{first})"


def _own_paths(output: str) -> list[str]:
  if places.is_url(output):
    path = output.rstrip("/")
    return [path, f"{path}.partial", claims.place_of(path)]
  path = os.path.abspath(output)
  return [path, *(f"{path}.{kind}" for kind in ("partial", "old", "lock"))]


def _identity(options: Options, files: list[base.InputFile]) -> dict[str, Any]:
  """Returns what a second run must have in common to have nothing to do."""
  if options.train is None:
    info = tokenizers.make_tokenizer(options.tokenizer).info
    tokenizer: Any = parts.tokenizer_hash(info)
  else:
    # The same inputs give the same one, so it need not be trained to know.
    tokenizer = {"trained": dataclasses.asdict(options.train)}
  listing = json.dumps([[f.name, f.size, f.version] for f in files])
  identity = {
    "inputs": {
      "files": len(files),
      "bytes": sum(file.size for file in files),
      "sha256": hashlib.sha256(listing.encode()).hexdigest(),
    },
    "tokenizer": tokenizer,
    "text_key": options.text_key,
    "id_key": options.id_key,
    "encoding_errors": options.encoding_errors,
    "compression": options.compression,
    "chunk": options.chunk,
    "shard_bytes": options.shard_bytes,
  }
  if options.format != "zarr":
    identity["format"] = options.format
  if options.on_error != "fail":
    identity["on_error"] = options.on_error
  if options.meta_key is not None:
    # Stores without it stay as they were, to the byte.
    identity["meta_key"] = options.meta_key
    identity["meta_default"] = options.meta_default
  if options.meta_keys:
    identity["meta_keys"] = list(options.meta_keys)
    identity["meta_default"] = options.meta_default
  if options.max_document_bytes != records.MAX_DOCUMENT_BYTES:
    identity["max_document_bytes"] = options.max_document_bytes
  if options.filter is not None:
    identity["filter"] = options.filter
    identity["filter_sha256"] = filters.digest(options.filter)
  if options.duplicates != "keep":
    identity["duplicates"] = options.duplicates
  for name in ("messages_key", "prompt_key", "completion_key", "weight_key"):
    if (key := getattr(options, name)) is not None:
      identity[name] = key
  if options.messages_key is not None:
    identity |= chats.identity(options.chat)
  return identity


def _existing(
  output: destination.Destination,
  options: Options,
  prepared: Mapping[str, Any],
) -> stores.Store | None:
  """Returns the store at the output if it is the one that is asked for."""
  found: dict[str, Any] | None = None
  store: stores.Store | None = None
  try:
    if options.format == _RECORDS:
      found = record_writer.prepared_at(output.local)
      store = None if found is None else stores.open_store(output.path)
    elif output.holds_store():
      own = zarr_store.open_zarr(output.path)
      store, found = own, dict(own.manifest.prepared)
  except errors.AccessError:
    raise  # What is there is not known.
  except stores.StoreError as error:
    if options.overwrite:
      return None
    raise stores.StoreError(
      f"{error} Or replace it with --overwrite."
    ) from error
  if found is None:
    return None
  # Results, not options.
  for name in _RESULTS:
    found.pop(name, None)
  if found == prepared:
    return store
  if options.overwrite:
    return None
  differences = [
    f"{key}: {found.get(key)!r} there, {prepared.get(key)!r} asked for"
    for key in {**prepared, **found}
    if found.get(key) != prepared.get(key)
  ]
  raise stores.StoreError(
    f"{output.path} must be a store of the same inputs and options, got one"
    f" that differs in {'; '.join(differences) or 'its other options'}. Choose"
    " another --output, or replace it with --overwrite."
  )


def _read_options(
  options: Options,
  *,
  raw: bool,
  tokens: tuple[tuple[str, str], ...] = (),
  special: tuple[str, ...] = (),
) -> records.ReadOptions:
  names = {field.name for field in dataclasses.fields(records.ReadOptions)}
  own = {"raw", "chat", "filter_sha256", "duplicates"}
  return records.ReadOptions(
    **{name: getattr(options, name) for name in names - own},
    raw=raw,
    chat=dataclasses.replace(options.chat, tokens=tokens, special=special),
    filter_sha256=filters.digest(options.filter) if options.filter else "",
  )


def _document_options(
  options: Options, tokenizer: tokenizers.Tokenizer
) -> records.ReadOptions:
  return _read_options(
    options,
    raw=tokenizer.takes_bytes,
    tokens=tokenizers.special_texts(tokenizer),
    special=tokenizers.all_special_texts(tokenizer),
  )


def _pieces(
  options: Options,
  files: list[base.InputFile],
  engine: engines.Engine,
  report: Callable[[Progress], None],
) -> list[base.InputPiece]:
  pieces = [
    piece
    for file in files
    for piece in readers.split(file, options.shard_bytes)
  ]
  return readers.number(
    pieces,
    lambda asked: _results(engine, report, "count", readers.count, asked),
  )


def _tasks(
  options: Options,
  spec: tokenizers.TokenizerSpec,
  pieces: list[base.InputPiece],
  work: str,
  engine: engines.Engine,
  report: Callable[[Progress], None],
) -> list[parts.PartTask]:
  directory = places.join(work, "parts")
  if os.path.exists(spec.source):
    # Workers of an engine may be in another directory, or on another machine.
    source = os.path.abspath(spec.source)
    if places.is_url(work):
      file = pathlib.Path(source).read_bytes()
      name = f"{hashlib.sha256(file).hexdigest()}.tokenizer"
      places.at(work).write(name, file)
      source = places.join(work, name)
    spec = dataclasses.replace(spec, source=source)
  if not places.is_url(work):
    os.makedirs(directory, exist_ok=True)
  tokenizer = tokenizers.make_tokenizer(spec)
  groups = inputs.group(pieces, options.shard_bytes)
  read = _document_options(options, tokenizer)
  if options.duplicates == "drop":
    read = cleaning.without_duplicates(
      groups,
      read,
      options.on_error,
      work,
      functools.partial(_results, engine, report, "hash"),
    )
  part_options = parts.PartOptions(
    tokenizer=spec,
    tokenizer_hash=parts.tokenizer_hash(tokenizer.info),
    read=read,
    on_error=options.on_error,
  )
  return [parts.PartTask(group, part_options, directory) for group in groups]


def _results(
  engine: engines.Engine,
  report: Callable[[Progress], None],
  stage: str,
  function: Callable[[Any], Any],
  tasks: Sequence[Any],
) -> list[Any]:
  """Returns what a function makes of each task, in order."""
  total = sum(task.size for task in tasks)
  done = most = documents = 0

  def tell(reached: int, counted: int) -> None:
    nonlocal most, documents
    most = max(most, min(done + reached, total))
    documents = max(documents, counted)
    if total:
      report(Progress(stage, most, total, documents))

  results = {}
  for number, result in engine.run(function, tasks, tell):
    results[number] = result
    done += tasks[number].size
    tell(0, 0)
  return [results[i] for i in range(len(tasks))]


def _make_parts(
  tasks: list[parts.PartTask],
  engine: engines.Engine,
  report: Callable[[Progress], None],
) -> list[part_files.PartRow]:
  """Returns the rows of all parts, in order, having made those missing."""
  rows: dict[int, part_files.PartRow] = {}
  sizes = [task.size for task in tasks]
  done = documents = most = most_documents = 0

  def tell(under_way: int, counted: int) -> None:
    nonlocal most, most_documents
    # Never back: a part that is done is yielded after its worker is free.
    most = max(most, min(done + under_way, sum(sizes)))
    most_documents = max(most_documents, documents + counted)
    report(Progress("encode", most, sum(sizes), most_documents))

  tell(0, 0)
  # Those that are there, too: checking them is work for all processes.
  for number, row in engine.run(parts.part_of, tasks, tell):
    rows[number] = row
    done += sizes[number]
    documents += row.num_documents
    tell(0, 0)
  return [rows[i] for i in range(len(tasks))]


def _assemble(
  tasks: list[parts.PartTask],
  rows: list[part_files.PartRow],
  options: Options,
  tokenizer: tokenizers.Tokenizer,
  prepared: Mapping[str, Any],
  partial: pathlib.Path,
  work: str,
  output: str,
  engine: engines.Engine,
  report: Callable[[Progress], None],
) -> None:
  """Joins parts into a complete store, not yet published.

  Where the work is at a URL, shard files are written to the output, and the
  rest of the store to a local directory.
  """
  staging, shard_rows = partial / "store", places.join(work, "shards")
  staging.mkdir(parents=True, exist_ok=True)
  if not places.is_url(work):
    os.makedirs(shard_rows, exist_ok=True)
  arrays = shards.tasks(
    [task.key for task in tasks],
    rows,
    token_dtype=manifest_lib.token_dtype(tokenizer.info.vocab_size),
    chunk=options.chunk,
    compression=options.compression,
    parts=places.join(work, "parts"),
    staging=output if places.is_url(work) else str(staging),
    shard_rows=shard_rows,
  )
  written = _write_shards(
    [task for _, own in arrays.values() for task in own],
    staging,
    engine,
    lambda done, total: report(
      Progress("write", done, total, sum(row.num_documents for row in rows))
    ),
  )
  store_writer.finish_store(
    staging,
    {
      name: shards.finished(layout, [written[task.file] for task in own])
      for name, (layout, own) in arrays.items()
    },
    tokenizer.info,
    tokenizer.file,
    num_documents=sum(row.num_documents for row in rows),
    num_empty_skipped=sum(row.num_empty for row in rows),
    prepared=prepared,
    levels=shards.levels_of(rows),
  )


def _write_shards(
  tasks: list[shards.ShardTask],
  staging: pathlib.Path,
  engine: engines.Engine,
  tell: Callable[[int, int], None],
) -> dict[str, shards.ShardRow]:
  """Returns the rows of all shard files, having written those missing."""
  there = set(work_files.names(tasks[0].rows))
  rows = {
    task.file: row
    for task in tasks
    if task.row_name in there and (row := shards.find_shard(task))
  }
  for folder, _, names in os.walk(staging):
    for name in names:
      file = pathlib.Path(folder, name)
      if file.relative_to(staging).as_posix() not in rows:
        file.unlink()
  missing = [task for task in tasks if task.file not in rows]
  total = sum(task.size for task in tasks)
  done = total - sum(task.size for task in missing)
  tell(done, total)
  for number, row in engine.run(shards.write_shard, missing):
    rows[missing[number].file] = row
    done += missing[number].size
    tell(done, total)
  return rows


def _far_work(output: destination.Destination) -> str:
  """Returns where the work of a store at a URL is, if it is at one."""
  return f"{output.path}.partial"


def _remove(output: destination.Destination, partial: pathlib.Path) -> None:
  """Removes what runs of any engine keep until their store is published."""
  _remove_directory(partial)
  if output.is_url:
    work_files.remove(_far_work(output))


def _remove_directory(path: pathlib.Path) -> None:
  with contextlib.suppress(FileNotFoundError):
    shutil.rmtree(path)
