# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Shows which documents are in a step, and in which steps a document is.

    %s --config=packed --step=1200:1210
    %s --config=packed --document=stdlib/#42 --from_step=1200
    %s --config=packed --exposures --step=0:100000
    %s --config=packed --documents=leaked.jsonl --from_step=5000
    %s --overlap pretrain_mix data/held_out

The plan is inverted, not replayed, and no tokens are read: a document is found
in under a second at any point of a run. A document is named by source and id
(`web/part-3.jsonl:17`) or number (`web/#42`); the `exposure` of a span is 1 +
the number of earlier spans of its document in the run.

--documents answers for a list of documents at once: how often each is read, in
which steps, and its share of the trained tokens. --tombstones=OUT writes the
file that removes them from --from_step on.

--overlap compares two configs, or a config and a store: it prints the documents
that both contain, by id or by tokens, and exits with 1 if there are any.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import json
import os
from typing import Any

from absl import app
from absl import flags
import numpy as np

from chomp_data import cli
from chomp_data import pipeline
from chomp_data import schema
from chomp_data import stores
from chomp_data.audit import document_lists
from chomp_data.audit import job
from chomp_data.audit import naming
from chomp_data.audit import overlap as overlap_lib
from chomp_data.audit import steps as steps_lib
from chomp_data.audit import tracing
from chomp_data.audit import visits
from chomp_data.storage import opening

_CONFIG = cli.define_config()
_STEP = cli.define_step(": what is in them")
_DOCUMENT = cli.define_text(
  "document", None, "NAME/ID or NAME/#NUMBER: the steps that a document is in."
)
_DOCUMENTS = cli.define_text(
  "documents",
  None,
  "A file with one document per line: their share of the run.",
)
_STEPS = flags.DEFINE_integer(
  "steps", None, "How many steps --documents counts; by default all.", 1
)
_TOMBSTONES = cli.define_text(
  "tombstones",
  None,
  "A file to write: tombstones that remove the --documents.",
)
_EXPOSURES = flags.DEFINE_bool(
  "exposures", False, "How often each document is in the steps of --step."
)
_FROM_STEP = flags.DEFINE_integer(
  "from_step",
  None,
  "The first step for --document and --tombstones, and the step up to which"
  " --documents counts; 0.",
  0,
)
_COUNT = flags.DEFINE_integer(
  "count",
  10,
  "Most visits that --document shows, or documents that --documents shows.",
  1,
)
_CHECKPOINT = cli.define_checkpoint(", and --from_step defaults to its step")
_OVERLAP = flags.DEFINE_bool(
  "overlap", False, "Compare two configs, or a config and a store."
)
_BY = flags.DEFINE_enum(
  "by",
  "any",
  overlap_lib.WAYS,
  "What --overlap compares documents by: id, tokens, or either.",
)
_FORMAT = cli.define_format()
_DATASET_MIX = cli.define_dataset_mix()

# Documents in a table of --overlap.
_SHOWN = 20


def _print(
  records: Iterable[Mapping[str, Any]], title: str, columns: Sequence[str]
) -> None:
  """Prints objects: a line each in JSON, else a table of some fields."""
  if _FORMAT.value == "json":
    for record in records:
      print(json.dumps(record))
    return
  records = list(records)
  columns = [*columns]
  for name in ("sentinels", "part", "gone"):
    columns += [name] * any(name in record for record in records)
  cells = ([record.get(name) for name in columns] for record in records)
  console = cli.console()
  console.print(title, highlight=False, markup=False, soft_wrap=True)
  console.print(
    cli.table(
      dict.fromkeys(columns, False),
      ([None if c is None else str(c) for c in row] for row in cells),
    )
  )


def _show_steps(pipe: pipeline.Pipeline, steps: range) -> None:
  _print(
    tracing.step_records(pipe, steps.start, steps.stop),
    f"steps {steps.start}..{steps.stop - 1}",
    (
      "step", "data_step", "row", "source", "document", "id", "start",
      "length", "column",
    ),
  )  # fmt: skip


def _show_exposures(pipe: pipeline.Pipeline, steps: range) -> None:
  for name in pipe.source_names:
    counts = visits.exposures(pipe, name, steps.start, steps.stop)
    if _FORMAT.value == "json":
      for record in tracing.exposure_records(pipe, name, counts):
        print(json.dumps(record))
      continue
    values, documents = np.unique(counts, return_counts=True)
    _print(
      (
        {"exposures": n, "documents": count}
        for n, count in zip(values.tolist(), documents.tolist(), strict=True)
      ),
      f"{name}: {int(counts.sum())} spans in steps"
      f" {steps.start}..{steps.stop - 1}",
      ("exposures", "documents"),
    )


def _show_document(pipe: pipeline.Pipeline, at: int) -> None:
  name = _DOCUMENT.value or ""
  step = at
  source, document = naming.find_document(pipe, name)
  if _FROM_STEP.value is not None:
    step = _FROM_STEP.value
    steps_lib.check(pipe, step, "--from_step")
  title = ""
  if _FORMAT.value != "json":
    trail = visits.Visits(pipe, source, document)
    count = trail.count_before(step)
    last = next(trail.previous_visits(step), None) if count else None
    title = f"{name}: document {document} of {source}"
    if source in pipe.sources:
      store = pipe.sources[source].store
      length = int(store.bounds(np.asarray([document]))[1][0])
      title += f", {store.document_ids([document])[0]!r}, {length} tokens"
    title += f"\n{count} spans before step {step}"
    if last is not None:
      title += f", the last in step {last.step}"
    again = next(trail.next_visits(step), None) is not None
    title += f"; from step {step} on{':' if again else ' never'}"
  _print(
    tracing.visit_records(pipe, source, document, step, _COUNT.value),
    title,
    ("step", "data_step", "row", "start", "length", "column", "exposure"),
  )


def _show_documents(pipe: pipeline.Pipeline, file: str, at: int) -> None:
  step = at
  if _FROM_STEP.value is not None:
    step = _FROM_STEP.value
    steps_lib.check(pipe, step, "--from_step")
  asked = _STEPS.value
  if asked is None and pipe.num_steps is None:
    asked = at or None  # What the job has read.
  steps = steps_lib.num_steps(pipe, steps=asked)
  if step > steps:
    raise schema.ConfigError(
      [
        f"`--from_step` must be at most the {steps} steps that are looked at,"
        f" got {step}. Raise --steps."
      ]
    )
  path = cli.output_file(_TOMBSTONES)
  if path is not None:
    document_lists.check_tombstones(pipe, file, os.fspath(path), step)
  listed = document_lists.answer(pipe, file, steps, step)
  summary = dict(listed.summary)
  if path is not None:
    summary["tombstones"] = document_lists.write_tombstones(
      pipe, listed, os.fspath(path), step
    )
  if _FORMAT.value == "json":
    for record in (*listed.records, {"summary": summary}):
      print(json.dumps(record))
    return
  console, before = cli.console(), f"before step {step}"
  title = f"{file}: {summary['documents']} documents in steps 0..{steps - 1}"
  rows = [
    [
      name,
      *(sums[field] for field in ("documents", "never_seen", "exposures",
          "exposures_before", "trained_tokens")),
      *(
        None if share is None else f"{share:.4%}"
        for share in (sums["trained_share"], sums["trained_share_before"])
      ),
    ]
    for name, sums in (*summary["sources"].items(), ("all", summary))
  ]  # fmt: skip
  numbers = ("documents", "never seen", "exposures", before, "trained tokens",
             "share", f"share {before}")  # fmt: skip
  columns = {"source": False, **dict.fromkeys(numbers, True)}
  console.print(cli.table(columns, rows, title))
  edges = summary["edges"]
  ranges = [f"{low}..{high - 1}" for low, high in itertools.pairwise(edges)]
  counts = zip(ranges, summary["histogram"], strict=True)
  console.print(
    cli.table({"steps": False, "exposures": True}, list(map(list, counts)))
  )
  most = sorted(listed.records, key=lambda record: -record["exposures"])
  _print(
    most[: _COUNT.value],
    "documents that are read most:",
    (
      "line", "source", "document", "id", "exposures", "exposures_before",
      "trained_tokens", "first_step", "last_step",
    ),
  )  # fmt: skip
  if path is not None:
    print(f"config.data.tombstones = {summary['tombstones']}")


def _side(name: str) -> dict[str, overlap_lib.Held]:
  """Returns the documents that a config or a store holds, by source."""
  if os.path.isdir(name) or opening.open_storage(name).is_remote:
    return {name: overlap_lib.Held(stores.open_store(name))}
  config = cli.load(name, flags.FLAGS["config_set"].value or ())
  return overlap_lib.held_by(pipeline.build(config.get("data")))


def _show_overlap(one: str, other: str) -> bool:
  """Prints what two sides share; returns whether they share anything."""
  documents = overlap_lib.overlap(_side(one), _side(other), _BY.value)
  if _FORMAT.value == "json":
    count = 0
    for document in documents:
      print(json.dumps(dataclasses.asdict(document)))
      count += 1
    return bool(count)
  listed = list(itertools.islice(documents, _SHOWN))
  count = len(listed) + sum(1 for _ in documents)
  if not count:
    print(f"{one} and {other} share no document")
    return False
  _print(
    map(dataclasses.asdict, listed),
    f"{count} documents are in {one} and in {other}"
    + f" (the first {_SHOWN}):" * (count > _SHOWN),
    (
      "by", "source", "document", "id", "other_source", "other_document",
      "other_id",
    ),
  )  # fmt: skip
  return True


def main(argv: Sequence[str]) -> int | None:
  """Prints what was asked for.

  Args:
    argv: The program, and with --overlap the two sides.

  Returns:
    1 where --overlap found a document.
  """
  sides = argv[1:]
  asked = [
    flag
    for flag, is_set in (
      ("--step", _STEP.value is not None),
      ("--document", _DOCUMENT.value is not None),
      ("--documents", _DOCUMENTS.value is not None),
      ("--overlap", _OVERLAP.value),
    )
    if is_set
  ]
  if len(asked) != 1:
    flags_set = " and ".join(asked) or "none"
    raise app.UsageError(
      "One of --step, --document, --documents and --overlap must be given, got"
      f" {flags_set}."
    )
  for flag in (_STEPS, _TOMBSTONES):
    if flag.value is not None and asked != ["--documents"]:
      raise app.UsageError(
        f"--{flag.name} must come with --documents, got {asked[0]}."
      )
  if _EXPOSURES.value and asked != ["--step"]:
    raise app.UsageError(f"--exposures must come with --step, got {asked[0]}.")
  if len(sides) != (2 if _OVERLAP.value else 0):
    if _OVERLAP.value:
      raise app.UsageError(
        "--overlap must be given two configs, or a config and a store, got"
        f" {' '.join(sides) or 'none'}."
      )
    cli.refuse_arguments(sides)
  if _OVERLAP.value:
    return int(_show_overlap(*sides))
  pipe = pipeline.build(cli.config(_CONFIG, _DATASET_MIX).get("data"))
  at = 0
  if _CHECKPOINT.value:
    pipe, at = job.continued(pipe, _CHECKPOINT.value)
    at = at if pipe.num_steps is None else min(at, pipe.num_steps)
  if _STEP.value is not None:
    steps = cli.steps_of(_STEP.value)
    steps_lib.check(pipe, steps[-1], "--step")
    show = _show_exposures if _EXPOSURES.value else _show_steps
    show(pipe, steps)
  elif _DOCUMENTS.value is not None:
    _show_documents(pipe, _DOCUMENTS.value, at)
  else:
    _show_document(pipe, at)
  return None
