# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How people name a document: `web/part-3.jsonl:17` by id, `web/#42` by number.

The source comes before the first slash; ids may hold slashes themselves.
"""

import numpy as np

from chomp_data import pipeline
from chomp_data import schema
from chomp_data.plans import answers
from chomp_data.rows import spans as spans_lib

# Ids that are shown of a source where one is unknown.
_SHOWN = 3


def find_document(pipe: pipeline.Pipeline, text: str) -> tuple[str, int]:
  """Returns the source and the number of a document that is named.

      web/part-3.jsonl:17    the document of that id in source web
      web/#42                its document 42, from 0; samples have numbers only

  An id is looked up in one pass over the ids of the source: 0.2 s for 10**6.

  Args:
    pipe: The run.
    text: The name.

  Returns:
    The source's name, and the document's number in the store that the source
    reads, of all its stores one after the other.

  Raises:
    ConfigError: If the name has no slash, the source is unknown, or it has
      none, or several, of the id, or no such number.
  """
  source, slash, name = text.partition("/")
  if not slash or not name:
    raise schema.ConfigError(
      [
        "`document` must be a source and an id (web/a.txt) or a number"
        f" (web/#42), got {text!r}. Put the source and a slash before it:"
        f" {', '.join(f'{name}/...' for name in pipe.source_names)}."
      ]
    )
  if source not in pipe.source_names:
    raise schema.ConfigError(
      [
        "`document` must begin with a source of the run, got"
        f" {source!r} in {text!r}. Known: {', '.join(pipe.source_names)}."
        + schema.did_you_mean(source, pipe.source_names)
      ]
    )
  count = answers.of(pipe.run_plan).num_documents(source)
  if name[0] == "#" and name[1:].isdecimal():
    number = int(name[1:])
    if number >= count:
      raise schema.ConfigError(
        [
          f"`document` must be a number in 0 .. {count - 1} of source"
          f" {source!r}, got {number} in {text!r}. Lower it."
        ]
      )
    return source, number
  if source not in pipe.sources:
    raise schema.ConfigError(
      [
        f"`document` must name a sample of source {source!r} by its number, got"
        f" {text!r}. Write {source}/#0 .. {source}/#{count - 1}: arrays have no"
        " ids."
      ]
    )
  store = pipe.sources[source].store
  numbers = store.opened.ids.find([name])[name]
  if not numbers:
    ids = store.document_ids(range(min(_SHOWN, count)))
    shown = ", ".join(f"{source}/{identity}" for identity in ids)
    raise schema.ConfigError(
      [
        f"`document` must be the id of a document of source {source!r}, got"
        f" {text!r}, which none of its {count} documents has. Its first are"
        f" {shown}; by number it is {source}/#0 and so on."
        + store.opened.ids.closest(name)
      ]
    )
  if len(numbers) > 1:
    shown = ", ".join(f"{source}/#{number}" for number in numbers[:_SHOWN])
    more = ", ..." * (len(numbers) > _SHOWN)
    raise schema.ConfigError(
      [
        f"`document` must be the id of one document, got {text!r}, which"
        f" {len(numbers)} documents have. Name one by its number:"
        f" {shown}{more}."
      ]
    )
  return source, numbers[0]


def ids_of(pipe: pipeline.Pipeline, spans: spans_lib.Spans) -> np.ndarray:
  """Returns the ids of the documents of spans, object[N].

  Args:
    pipe: The run.
    spans: Of its plan.
  """
  ids = np.empty(len(spans), object)
  for number, source in enumerate(pipe.sources.values()):
    of_source = np.flatnonzero(spans.source == number)
    ids[of_source] = source.store.document_ids(spans.document[of_source])
  return ids
