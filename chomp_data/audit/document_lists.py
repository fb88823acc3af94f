# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Lists of documents: how much of a run is of them, and tombstones for them.

A list is a file of tombstones, or a report that says which documents to look
at, such as `chomp-trace --overlap --format=json` prints:

    {"source": "web", "document": 42, "id": "a.txt", "other_id": "test/7"}

`document` is a number or an id; `id` can stand in its place. Fields other than
these, `start` and `length` are kept in the answer. No token is read.
"""

import dataclasses
import itertools
import json
import os
import pathlib
from typing import Any

import numpy as np

from chomp_data import pipeline
from chomp_data import schema
from chomp_data import stores
from chomp_data.index import intervals
from chomp_data.plans import answers
from chomp_data.plans import occurrences
from chomp_data.plans import tombstones
from chomp_data.storage import publish

# Ranges of steps in a histogram.
BINS = 20


@dataclasses.dataclass(frozen=True)
class Answer:
  """What a run holds of the documents of a list.

  Attributes:
    file: The list.
    records: An object per line, in the order of the file.
    summary: Sums over the list, also by source; what several lines name counts
      once.
    parts: By source int64[N, 3], what the lines name together: documents, and
      the start and the length of the part; of a whole document all tokens.
  """

  file: str
  records: list[dict[str, Any]]
  summary: dict[str, Any]
  parts: dict[str, np.ndarray]


def answer(
  pipe: pipeline.Pipeline,
  file: str,
  steps: int,
  from_step: int,
  bins: int = BINS,
) -> Answer:
  """Counts what the first steps of a run hold of the documents of a list.

  Args:
    pipe: The run.
    file: The list.
    steps: How many steps, at most its own.
    from_step: What is before this step is counted apart; at most `steps`.
    bins: The most ranges of steps in a histogram.

  Raises:
    ConfigError: If the file, or lines of it, are wrong.
  """
  by_name = _stores(pipe)
  lines = tombstones.read_lines(file, by_name, "--documents", is_list=True)
  if not lines:
    raise schema.ConfigError(
      [f"`--documents` must have a line per document, got none in {file}."]
    )
  bin_edges = np.unique(np.linspace(0, steps, bins + 1).astype(np.int64))
  edges = np.unique([*bin_edges, from_step])
  accounts = [pipe.accounts.at(step) for step in (0, from_step, steps)]
  trained = {}
  for name in by_name:
    first, before, last = (at[name].loss_tokens for at in accounts)
    if first is not None and before is not None and last is not None:
      trained[name] = last - first, before - first
  records: list[dict[str, Any]] = []
  parts, sources = {}, {}
  for name, store in by_name.items():
    of_source = [line for line in lines if line.source == name]
    if not of_source:
      continue
    named = np.asarray([(x.document, x.start, x.length) for x in of_source])
    parts[name] = intervals.merged_spans(named)
    unique, which = np.unique(
      np.concatenate([named, parts[name]]), axis=0, return_inverse=True
    )
    of_line, of_parts = np.split(which.reshape(-1), [len(named)])
    document, begin, length = unique.T
    end = np.where(_is_whole(unique, store), occurrences.WHOLE, begin + length)
    occurring = occurrences.Occurrences(
      pipe.run_plan, name, occurrences.Parts(document, begin, end)
    )
    ranges = itertools.pairwise(edges.tolist())
    counts = np.asarray([occurring.count(*ends) for ends in ranges])
    exposures, trained_tokens = counts.swapaxes(0, 1)
    is_before = edges[:-1] < from_step
    columns = {
      "exposures": exposures.sum(axis=0),
      "exposures_before": exposures[is_before].sum(axis=0),
      "trained_tokens": trained_tokens.sum(axis=0),
      "trained_tokens_before": trained_tokens[is_before].sum(axis=0),
      "histogram": np.add.reduceat(
        exposures, np.searchsorted(edges, bin_edges[:-1]), axis=0
      ).T,
    }
    first_step, last_step = occurring.first_and_last(0, steps)
    steps_read = {"first_step": first_step, "last_step": last_step}
    for line, at in zip(of_source, of_line.tolist(), strict=True):
      records.append(
        {
          "line": line.number,
          "source": name,
          "document": line.document,
          "id": line.identity,
          "start": None if line.is_whole else line.start,
          "length": None if line.is_whole else line.length,
          **{field: values[at].tolist() for field, values in columns.items()},
          **{
            field: None if values[at] < 0 else int(values[at])
            for field, values in steps_read.items()
          },
          "report": dict(line.other),
        }
      )
    read = document[of_line[last_step[of_line] >= 0]]
    sources[name] = {
      "documents": len(np.unique(document)),
      "never_seen": len(np.setdiff1d(document, read)),
      **{
        field: values[of_parts].sum(axis=0).tolist()
        for field, values in columns.items()
      },
    }
  return Answer(
    file,
    sorted(records, key=lambda record: record["line"]),
    {
      "steps": steps,
      "from_step": from_step,
      "edges": bin_edges.tolist(),
      **_sums(list(sources.values()), trained, list(by_name)),
      "sources": {
        name: _sums([sums], trained, [name]) for name, sums in sources.items()
      },
    },
    parts,
  )


def check_tombstones(
  pipe: pipeline.Pipeline, file: str, path: str, step: int
) -> None:
  """Checks that tombstones for a list can be written to a file.

  Args:
    pipe: The run.
    file: The list.
    path: The file to write.
    step: The step of the run from which on they remove documents.

  Raises:
    ConfigError: If samples are arrays, or the file is the list, that of another
      step, or no regular file.
  """
  problems: list[str] = []
  data_step = pipe.run_plan.steps.data_step(step)
  if not pipe.sources:
    problems.append(
      f"`--tombstones` must be unset for samples that are arrays, got {path}."
    )
  if os.path.realpath(path) == os.path.realpath(file):
    problems.append(
      f"`--tombstones` must be a new file, got {path}, which is the list of"
      " `--documents`. Name another."
    )
  elif os.path.exists(path) and not os.path.isfile(path):
    problems.append(
      f"`--tombstones` must be a new or a regular file, got {path}. Name"
      " another."
    )
  for at, other in _tombstone_files(pipe).items():
    if at != data_step and os.path.realpath(other) == os.path.realpath(path):
      problems.append(
        f"`--tombstones` must be a new file, got {path}, which the run has for"
        f" data step {at}. Name another."
      )
  if problems:
    raise schema.ConfigError(problems)


def write_tombstones(
  pipe: pipeline.Pipeline, listed: Answer, path: str, step: int
) -> tuple[tuple[int, str], ...]:
  """Writes tombstones that remove the documents of a list from a step on.

  Args:
    pipe: The run.
    listed: The answer about the list.
    path: The file to write.
    step: The step of the run.

  Returns:
    What `config.data.tombstones` must be. If the run has a file for the step,
    the new file replaces it, and has its lines too.

  Raises:
    ConfigError: As `check_tombstones` raises it.
  """
  check_tombstones(pipe, listed.file, path, step)
  by_name = _stores(pipe)
  files = _tombstone_files(pipe)
  data_step = pipe.run_plan.steps.data_step(step)
  present = {}
  if data_step in files:
    present = tombstones.spans_of(
      tombstones.read_lines(files[data_step], by_name, "tombstones")
    )
  lines = []
  for name in by_name:
    spans = [part[name] for part in (present, listed.parts) if name in part]
    if not spans:
      continue
    removed = intervals.merged_spans(np.concatenate(spans))
    is_whole = _is_whole(removed, by_name[name]).tolist()
    for (document, start, length), whole in zip(
      removed.tolist(), is_whole, strict=True
    ):
      part = {} if whole else {"start": start, "length": length}
      lines.append(json.dumps({"source": name, "document": document, **part}))
  with publish.staged_file(pathlib.Path(os.path.realpath(path))) as out:
    out.writelines(f"{line}\n".encode() for line in lines)
  return tuple(sorted({**files, data_step: path}.items()))


def _tombstone_files(pipe: pipeline.Pipeline) -> dict[int, str]:
  """Returns the run's files of tombstones, by data step."""
  return dict(getattr(pipe.run_options.data, "tombstones", ()))


def _stores(pipe: pipeline.Pipeline) -> dict[str, stores.Store | int]:
  """Returns the store of each source, or the number of its samples."""
  questions = answers.of(pipe.run_plan)
  return {
    name: pipe.sources[name].store
    if name in pipe.sources
    else questions.num_documents(name)
    for name in pipe.source_names
  }


def _is_whole(parts: np.ndarray, store: stores.Store | int) -> np.ndarray:
  """Returns which parts int64[N, 3] are all tokens of their document."""
  document, start, length = parts.T
  if isinstance(store, int):
    return np.ones(len(parts), np.bool_)
  return (start == 0) & (length == store.bounds(document)[1])


def _sums(
  sums: list[dict[str, Any]],
  trained: dict[str, tuple[int, int]],
  names: list[str],
) -> dict[str, Any]:
  """Returns sums over some sources.

  Args:
    sums: Those of each source.
    trained: By source, trained tokens in all steps, and before the step that is
      asked for; unknown ones are left out.
    names: The sources whose trained tokens these are shares of.
  """
  total: dict[str, Any] = {
    field: np.sum([source[field] for source in sums], axis=0).tolist()
    for field in sums[0]
  }
  known = [trained[name] for name in names if name in trained]
  for number, field in enumerate(("", "_before")):
    whole = max(sum(tokens[number] for tokens in known), 1)
    share = total[f"trained_tokens{field}"] / whole
    total[f"trained_share{field}"] = share if len(known) == len(names) else None
  return total
