# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""From options to a published store; a run that was killed is continued.

    OUTPUT.partial/plan        which pieces the inputs are read in
    OUTPUT.partial/parts       tokens of groups of pieces
    OUTPUT.partial/shards      which shard files are complete
    OUTPUT.partial/store       the store that is assembled

It is a directory or, of an output in a bucket, in that bucket; there shard
files are written to the output at once. Each file is named by all that decides
it: names, sizes and versions of inputs, the tokenizer and the options.
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

from absl import logging

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import chats
from chomp_data.prepare import detect
from chomp_data.prepare import duplicates
from chomp_data.prepare import engines
from chomp_data.prepare import file_list
from chomp_data.prepare import id_checks
from chomp_data.prepare import input_plan
from chomp_data.prepare import inputs
from chomp_data.prepare import labelled
from chomp_data.prepare import lazy
from chomp_data.prepare import options as options_lib
from chomp_data.prepare import part_files
from chomp_data.prepare import parts
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare import rejections
from chomp_data.prepare import run_tokenizer
from chomp_data.prepare import shards
from chomp_data.prepare import tokenizers
from chomp_data.prepare.reading import base
from chomp_data.storage import opening
from chomp_data.storage import paths
from chomp_data.storage import publish
from chomp_data.stores.array_record import record_writer
from chomp_data.stores.zarr import destination
from chomp_data.stores.zarr import manifest as manifest_lib
from chomp_data.stores.zarr import store_writer
from chomp_data.stores.zarr import zarr_store

Options = options_lib.Options

# What a manifest's `prepared` records of a run in addition to its options.
_RESULTS = ("skipped", "without_id", "repeated_ids", "chats")

_TABLES_OF_TEXT = (".csv", ".tsv")


@dataclasses.dataclass(frozen=True)
class Progress:
  """How far a run is.

  Attributes:
    stage: 'plan' (kinds of files, and their pieces), 'count' (lines) and 'hash'
      (for duplicates), where there is need; 'train' where a tokenizer is
      trained; 'encode', then 'write', or 'compare' where only the versions of
      files are not those that a store was made of.
    done_bytes: Bytes of input files that are done, or of the store's that are
      written.
    total_bytes: Bytes of all of them.
    documents: Documents that are read or encoded.
  """

  stage: str
  done_bytes: int
  total_bytes: int
  documents: int


Report = Callable[[Progress], None]


@dataclasses.dataclass(frozen=True)
class _Run:
  """What the rounds of a run share.

  Attributes:
    options: What is asked for.
    work: The directory or URL of what is done so far.
    engine: Calls functions.
    report: Called with the progress.
  """

  options: Options
  work: str
  engine: engines.Engine
  report: Report

  def call(
    self,
    stage: str,
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    *,
    documents: int = 0,
  ) -> Iterator[Any]:
    """Yields what a function returns for each task, in order.

    Args:
      stage: Of the progress.
      function: Pure, and importable by name.
      tasks: What it is called with; each has a `size` in bytes.
      documents: Documents that were done before.
    """
    total, done_bytes = sum(task.size for task in tasks), 0
    # A task that is done is yielded after its worker has begun another one, so
    # that sums may go back: progress never does.
    most_bytes = most_documents = 0

    def on_progress(task_bytes: int, task_documents: int) -> None:
      nonlocal most_bytes, most_documents
      most_bytes = max(most_bytes, min(done_bytes + task_bytes, total))
      most_documents = max(most_documents, documents + task_documents)
      if total:
        self.report(Progress(stage, most_bytes, total, most_documents))

    # Results that came before those of earlier tasks.
    early: dict[int, Any] = {}
    next_number = 0
    if tasks:
      on_progress(0, 0)
    for number, result in self.engine.run(function, tasks, on_progress):
      early[number] = result
      done_bytes += tasks[number].size
      if isinstance(result, part_files.PartRow):
        documents += result.num_documents
      on_progress(0, 0)
      while next_number in early:
        yield early.pop(next_number)
        next_number += 1


def prepare(
  options: Options, report: Report = lambda _: None
) -> tuple[stores.Store, bool]:
  """Makes a store, unless it is there already.

  Args:
    options: What and how.
    report: Called as tasks are done.

  Returns:
    (the store, whether anything was written).

  Raises:
    PrepareError: If options or inputs are wrong.
    StoreError: If the output cannot be written to.
    OSError: If the disk is full, for instance; nothing is published then.
  """
  files = options_lib.check(options)
  with (
    destination.locked(options.output) as output,
    contextlib.ExitStack() as stack,
  ):
    make_engine = engines.ENGINES[options.engine]
    engine = make_engine(
      options.workers, options.engine_flags, paths.join(output.work, "engine")
    )
    stack.enter_context(contextlib.closing(engine))
    prepared = options_lib.identity(options, files)
    writer = json.dumps(options_lib.comparable(prepared), sort_keys=True)
    claim = output.claimed(hashlib.sha256(writer.encode()).hexdigest())
    # Where there is a store, nothing is written before it is known that another
    # one is asked for.
    holds_store = output.holds_store()
    if not holds_store:
      stack.enter_context(claim)
    # What is not replaced is only compared, so there is nothing to resume.
    resumes = options.overwrite or not holds_store
    run = _Run(options, output.work if resumes else "", engine, report)
    plan = _planned(run, files)
    # The plan knows their versions, and which are refused.
    refused = (file for file, _ in plan.refused_files())
    listed = itertools.chain(plan.read_files(), refused)
    prepared["inputs"] = options_lib.inputs_identity(listed)
    store = _existing(run, plan, output, prepared)
    if store is not None:
      # A run may have been killed after its store was published.
      output.tidy()
      return store, False
    if holds_store:
      stack.enter_context(claim)
      run = dataclasses.replace(run, work=output.work)
    _make(run, plan, output, prepared)
    output.tidy()
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
  files = options_lib.check(options, has_output=False)
  # A whole file is one piece, so that no records are counted.
  options = dataclasses.replace(options, shard_bytes=sys.maxsize)
  plan = _planned(_Run(options, "", engines.Pool(0), lambda _: None), files)
  tokenizer = tokenizers.make_tokenizer(options.tokenizer_spec)
  read = options.read_options(tokenizer)
  rejected = rejections.Rejections(raises=options.on_error != "skip")
  documents = duplicates.documents_of(plan.pieces, read, rejected)
  for document in itertools.islice(documents, count):
    yield document, labelled.encode(tokenizer, [document], read)


def _planned(run: _Run, files: file_list.FileList) -> input_plan.Plan:
  """Returns the pieces of all files, and which files are refused.

  Raises:
    PrepareError: If a file is refused and these are not skipped, if none can
      be opened, or if there are only tables of text.
  """
  planned = input_plan.plan_files(
    files,
    run.options.shard_bytes,
    run.options.read_options(),
    run.work,
    functools.partial(run.call, "plan"),
  )
  plan = input_plan.Plan(files, planned)
  if run.options.on_error != "skip":
    errors.PrepareError.raise_if([str(e) for e in plan.refused.values()])
  _check_tables_of_text(plan)
  return plan


def _check_tables_of_text(plan: input_plan.Plan) -> None:
  """Warns of CSV files, which are text: each is one document.

  Raises:
    PrepareError: If there is nothing else, so that rows must be meant.
  """
  tables = [
    file.path
    for file in plan.read_files()
    if file.kind == "text" and file.path.lower().endswith(_TABLES_OF_TEXT)
  ]
  if not tables:
    return
  advice = (
    "For a document a row, convert it to Parquet, as pandas does:"
    " read_csv(...).to_parquet(...)."
  )
  if len(tables) == len(plan.files) - len(plan.refused):
    raise errors.PrepareError(
      f"`--input` must hold documents, got only tables of text: {tables[0]}"
      f"{f' and {len(tables) - 1:,} more' if len(tables) > 1 else ''}. {advice}"
      " For a file a document, rename it to .txt."
    )
  logging.warning(
    "%s (of %d such files) is read as text, one document. %s Or leave it out:"
    " --exclude='*%s'.",
    tables[0],
    len(tables),
    advice,
    os.path.splitext(tables[0])[1],
  )


@dataclasses.dataclass(frozen=True)
class _Encoded:
  """The parts of a store.

  Attributes:
    tokenizer: The tokenizer.
    tasks: Of each part, in order.
    keys: The name of each part.
    rows: What is in each.
    rejected: All that was left out.
  """

  tokenizer: tokenizers.Tokenizer
  tasks: Sequence[parts.PartTask]
  keys: Sequence[str]
  rows: Sequence[part_files.PartRow]
  rejected: rejections.Rejections

  @property
  def num_documents(self) -> int:
    """Documents that have a token."""
    return sum(row.num_documents for row in self.rows)

  @property
  def directory(self) -> str:
    """The directory or URL of parts."""
    return self.tasks[0].directory


def _make(
  run: _Run,
  plan: input_plan.Plan,
  output: destination.Destination,
  prepared: Mapping[str, Any],
) -> None:
  """Writes the parts of a store, joins them, and publishes it."""
  options = run.options
  encoded = _encode(run, plan)
  prepared = {**prepared, **_results(options, encoded)}
  assemble_store(run, encoded, prepared, output)
  if options.format == options_lib.RECORDS:
    _publish_records(output, options, prepared)
  else:
    output.publish(output.staged, options.overwrite)


def _encode(run: _Run, plan: input_plan.Plan) -> _Encoded:
  """Writes the parts of a store, but for those that are there."""
  options, work = run.options, run.work
  pieces = input_plan.number(
    plan.pieces, work, functools.partial(run.call, "count")
  )
  spec = _tokenizer(run, pieces)
  tokenizer = tokenizers.make_tokenizer(spec)
  if options.train is None:
    run_tokenizer.check_unchanged(
      work, tokenizer.info, spec.source, overwrite=options.overwrite
    )
  tasks = _tasks(run, spec, pieces)
  rows = list(run.call("encode", parts.part_of, tasks))
  rejected = _rejected(plan, rows)
  if not any(row.num_documents for row in rows):
    num_files = len(plan.files) - len(plan.refused)
    raise errors.PrepareError(
      f"`--input` must hold a document that is not empty, got {num_files}"
      f" files without one{_left_out(rejected)}. Give other files."
    )
  _check_id_key(options, pieces, rejected, rows)
  keys = [task.key for task in tasks]
  return _Encoded(tokenizer, tasks, keys, rows, rejected)


def _results(options: Options, encoded: _Encoded) -> dict[str, Any]:
  """Returns what a manifest records of a run in addition to its options.

  What there is none of is left out, so that manifests stay the same, to the
  byte.
  """
  results: dict[str, Any] = {}
  rejected = encoded.rejected
  cleans = options.filter is not None or options.duplicates == "drop"
  if options.on_error == "skip" or cleans:
    results["skipped"] = rejected.left_out()
  if rejected.unnamed:
    results["without_id"] = rejected.unnamed
  if options.messages_key is not None or rejected.chats:
    chat = encoded.tasks[0].options.read.chat
    results["chats"] = chats.summary(chat, rejected.chats)
  if repeated := id_checks.repeated(
    encoded.directory, encoded.keys, encoded.rows
  ):
    results["repeated_ids"] = repeated
  return results


def _publish_records(
  output: destination.Destination,
  options: Options,
  prepared: Mapping[str, Any],
) -> None:
  """Writes the store that is complete as records, and publishes those."""
  staging = pathlib.Path(output.work, "records")
  with contextlib.suppress(FileNotFoundError):
    shutil.rmtree(staging)
  store = zarr_store.open_zarr(output.staged)
  record_writer.write_files(store, staging, prepared=prepared)
  record_writer.check_destination(output.local, options.overwrite)
  publish.publish(staging, output.local)


def _tokenizer(
  run: _Run, pieces: Sequence[base.InputPiece]
) -> tokenizers.TokenizerSpec:
  """Returns the tokenizer that is asked for, trained if need be."""
  options = run.options
  if options.train is None:
    return options.tokenizer_spec
  return run_tokenizer.train(
    options.train,
    pieces,
    options.read_options(),
    options.on_error,
    run.work,
    lambda *progress: run.report(Progress("train", *progress)),
  )


def _check_id_key(
  options: Options,
  pieces: Sequence[base.InputPiece],
  rejected: rejections.Rejections,
  rows: Sequence[part_files.PartRow],
) -> None:
  """Raises PrepareError where an id is asked for that no document has."""
  documents = sum(row.num_documents + row.num_empty for row in rows)
  halves = 2 if options.has_pairs else 1
  documents += halves * rejected.reasons.get(duplicates.REASON, 0)
  if not options.id_required or rejected.unnamed < documents:
    return
  # The error of a text that is looked for under this key lists the keys.
  read = records.ReadOptions(
    raw=False,
    text_key=options.id_key,
    encoding_errors=options.encoding_errors,
  )
  got = "none"
  try:
    planned = detect.look(pieces[0].file, sys.maxsize, read)
    if planned.error is not None:
      raise planned.error
    next(readers.documents(pieces[0], read), None)
  except errors.BadInput as error:
    got = f"{error.args[0]}: {error.problem.rstrip('.')}"
  raise errors.PrepareError(
    f"`--id_key` must be a key that a document has, got {options.id_key!r}, as"
    f" none has an id there. {got}. Correct it, or leave it out: documents"
    " without an id are called by their places."
  )


def _rejected(
  plan: input_plan.Plan, rows: Sequence[part_files.PartRow]
) -> rejections.Rejections:
  """Returns all that was left out: files first, then by the order of parts."""
  rejected = rejections.Rejections()
  for file, error in plan.refused_files():
    rejected.add(file.name, None, error)
  for row in rows:
    rejected.join(rejections.Rejections(**row.skipped))
  return rejected


def _left_out(rejected: rejections.Rejections) -> str:
  """Returns a clause of an error: how much was left out, and why."""
  if not rejected.reasons:
    return ""
  counts = [f"{count:,} {why}" for why, count in rejected.reasons.items()]
  first = "".join(
    f"; the first is {problem.removesuffix('.')}"
    for problem in rejected.first[:1]
  )
  return f" (left out: {', '.join(counts)}{first})"


def _existing(
  run: _Run,
  plan: input_plan.Plan,
  output: destination.Destination,
  prepared: Mapping[str, Any],
) -> stores.Store | None:
  """Returns the store at the output if it is the one that is asked for."""
  options = run.options
  stored: dict[str, Any] | None = None
  store: stores.Store | None = None
  try:
    if options.format == options_lib.RECORDS:
      stored = record_writer.prepared_at(output.local)
      store = None if stored is None else stores.open_store(output.path)
    elif output.holds_store():
      zarr = zarr_store.open_zarr(output.path)
      store, stored = zarr, dict(zarr.manifest.prepared)
  except errors.AccessError:
    raise  # The content of the output is unknown.
  except stores.StoreError as error:
    if options.overwrite:
      return None
    raise stores.StoreError(
      f"{error} Or replace it with --overwrite."
    ) from error
  if stored is None or store is None:
    return None
  for name in _RESULTS:
    stored.pop(name, None)
  stored = options_lib.comparable(stored)
  prepared = options_lib.comparable(prepared)
  if stored == prepared:
    return store
  if options.overwrite:
    return None
  if _has_other_versions(stored, prepared):
    logging.warning(
      "Files of --input have other modification times or versions than when %s"
      " was written. They are read again, to compare contents.",
      output.path,
    )
    run = dataclasses.replace(run, work=output.work)
    if _has_contents(run, store, _encode(run, plan)):
      return store
    output.tidy()
  differences = [
    f"{key}: {stored.get(key)!r} there, {prepared.get(key)!r} asked for"
    for key in {**prepared, **stored}
    if stored.get(key) != prepared.get(key)
  ]
  raise stores.StoreError(
    f"{output.path} must be a store of the same inputs and options, got one"
    f" that differs in {'; '.join(differences) or 'its other options'}. Choose"
    " another --output, or replace it with --overwrite."
  )


def _has_other_versions(
  stored: Mapping[str, Any], prepared: Mapping[str, Any]
) -> bool:
  """Returns whether all is the same but for names and versions of inputs."""
  files, inputs_digest = prepared["inputs"], prepared["inputs"]["sha256"]
  stored_files = stored.get("inputs")
  return (
    isinstance(stored_files, dict)
    and files == {**stored_files, "sha256": inputs_digest}
    and stored == {**prepared, "inputs": stored_files}
  )


def _has_contents(run: _Run, store: stores.Store, encoded: _Encoded) -> bool:
  """Returns whether a store holds exactly the documents of some parts."""
  arrays = _arrays(run.options, encoded, store="", shard_rows="")
  entries = {
    name: manifest_lib.ArrayEntry(
      layout,
      shards.joined_digests(run.call("compare", shards.hash_shard, tasks)),
      0,
    )
    for name, (layout, tasks) in arrays.items()
  }
  if not isinstance(store, stores.ZarrStore):
    return record_writer.array_hashes(store) == {
      name: entries[name].sha256 for name in ("tokens", "offsets")
    }
  manifest = dataclasses.replace(
    store.manifest,
    num_documents=encoded.num_documents,
    num_tokens=entries["tokens"].layout.size,
    tokenizer=encoded.tokenizer.info,
    arrays=entries,
    levels=shards.levels_of(encoded.rows),
    pairs=run.options.has_pairs,
    columns=run.options.columns,
  )
  return manifest_lib.content_hash(manifest) == store.hash


def _tasks(
  run: _Run, spec: tokenizers.TokenizerSpec, pieces: Sequence[base.InputPiece]
) -> Sequence[parts.PartTask]:
  """Returns what is encoded, having looked for duplicates if need be."""
  options, work = run.options, run.work
  directory = paths.join(work, "parts")
  if os.path.exists(spec.source):
    # Workers of an engine may be in another directory, or on another machine.
    source = os.path.abspath(spec.source)
    storage = opening.open_storage(work)
    if storage.directory is None:
      file = pathlib.Path(source).read_bytes()
      name = f"{hashlib.sha256(file).hexdigest()}.tokenizer"
      storage.put(name, file)
      source = storage.url(name)
    spec = dataclasses.replace(spec, source=source)
  tokenizer = tokenizers.make_tokenizer(spec)
  groups = inputs.group(pieces, options.shard_bytes)
  read = options.read_options(tokenizer)
  if options.duplicates == "drop":
    read = duplicates.without_duplicates(
      groups,
      read,
      options.on_error,
      work,
      functools.partial(run.call, "hash"),
    )
  part_options = parts.PartOptions(
    tokenizer=spec,
    tokenizer_hash=parts.tokenizer_hash(tokenizer.info),
    read=read,
    on_error=options.on_error,
  )
  return lazy.LazySequence(
    lambda i: parts.PartTask(groups[i], part_options, directory), len(groups)
  )


def _arrays(
  options: Options, encoded: _Encoded, *, store: str, shard_rows: str
) -> shards.Arrays:
  """Returns the shard files of a store; see `shards.tasks`."""
  return shards.tasks(
    encoded.keys,
    encoded.rows,
    token_dtype=manifest_lib.token_dtype(encoded.tokenizer.info.vocab_size),
    columns=options.columns,
    chunk=options.chunk,
    compression=options.compression,
    parts=encoded.directory,
    store=store,
    shard_rows=shard_rows,
  )


def assemble_store(
  run: _Run,
  encoded: _Encoded,
  prepared: Mapping[str, Any],
  output: destination.Destination,
) -> None:
  """Joins parts into a complete store, not yet published."""
  options = run.options
  output.begin(options.overwrite)
  arrays = _arrays(
    options,
    encoded,
    store=output.shards,
    shard_rows=paths.join(output.work, "shards"),
  )
  tasks = lazy.chained([shard_tasks for _, shard_tasks in arrays.values()])
  # A run with other options may have been killed.
  files = {task.file for task in tasks}
  for folder, _, names in os.walk(output.staged):
    for name in names:
      file = pathlib.Path(folder, name)
      if file.relative_to(output.staged).as_posix() not in files:
        file.unlink()
  num_documents = encoded.num_documents
  written = iter(
    list(run.call("write", shards.write_shard, tasks, documents=num_documents))
  )
  entries = {
    name: shards.finished(
      layout, list(itertools.islice(written, len(shard_tasks)))
    )
    for name, (layout, shard_tasks) in arrays.items()
  }
  manifest = manifest_lib.Manifest(
    num_documents=num_documents,
    num_tokens=entries["tokens"].layout.size,
    num_empty_skipped=sum(row.num_empty for row in encoded.rows),
    tokenizer=encoded.tokenizer.info,
    arrays=entries,
    prepared=prepared,
    levels=shards.levels_of(encoded.rows),
    pairs=options.has_pairs,
    columns=options.columns,
  )
  store_writer.finish_store(output.staged, manifest, encoded.tokenizer.file)
