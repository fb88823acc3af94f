# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Columns are those of a slow reference.

The reference was written from the definition by somebody who had not seen the
package (`columns_reference`). The definition leaves open where a value that is
aligned to targets has none: here, where the next token is not predicted. In a
row that is where a span is cut or its document ends without an added EOS; in
the last column, where the document ends.
"""

import numpy as np
import pytest

import chomp_data
from tests.rows import columns_reference
from tests.rows import columns_test
from tests.rows import targets_test

SEQ_LEN, LENGTHS = columns_test.SEQ_LEN, columns_test.LENGTHS
ROWS = {
  name: targets_test.ROWS[name]
  for name in (
    "sequential",
    "sequential_bare",
    "ffd",
    "windows",
    "splice",
    "roll",
  )
}
MIXES = {
  "sequential and splice": ("sequential", "splice"),
  "ffd and windows": ("ffd", "windows"),
}
root = columns_test.root


def described(pipe, step, removed):
  """Returns the rows of a step in the reference's words."""
  plan = pipe.plan(step)
  rows = [[] for _ in range(plan.num_rows)]
  stored, _ = plan.stored()
  for i in range(len(plan)):
    source = pipe.source_names[plan.source[i]]
    document, start = int(plan.document[i]), int(plan.start[i])
    added = [
      int(values is not None and values[i] > 0)
      for values in (plan.added_before, plan.added_after)
    ]
    gone = {t for s, d, t in removed if (s, d) == (source, document)}
    rows[plan.row[i]].append(
      columns_reference.Span(
        source,
        document,
        start,
        start + int(stored[i]),
        int(plan.column[i]),
        *added,
        frozenset(gone),
      )
    )
  return rows


def slots(spans):
  """Returns the slots of documents in a row, -1 of those that are removed."""
  numbers = columns_reference.slots_of_row(spans)
  for i, span in enumerate(spans):
    tokens = range(span.start, span.end)
    if not tokens:
      # An added token alone is removed with the token beside it.
      tokens = [span.start - 1 if span.after else span.start]
    if all(token in span.removed for token in tokens):
      numbers[i] = -1
  return numbers


def wanted(name, rows, sources, seq_len):
  """Returns a column per token as the reference has it."""
  column = columns_test.COLUMNS[name]

  def made(rows, **options):
    return columns_reference.token_column(
      rows,
      seq_len,
      dict.fromkeys(sources, columns_test.values(name)),
      column.numpy_dtype,
      column.shape,
      align=column.align,
      fill=columns_test.FILLS.get(name, 0),
      **options,
    )

  if column.align == "token":
    return made(rows)
  batch = made(rows, cut="fill", last="eos")
  for row, spans in enumerate(rows):
    if spans:
      eos = sources[spans[0].source].layout.eos_id is not None
      last = made([spans], last="keep" if eos else "fill")[0]
      batch[row, -1] = last[-1]
  return batch


def compare(data, removed=frozenset(), from_step=1, most=8):
  """Compares steps of a run; returns how many values are no fill."""
  pipe = chomp_data.build(data)
  whole = chomp_data.build({**data, "tombstones": ()})
  compared = 0
  for step in range(min(pipe.num_steps, most)):
    batch = pipe.batch(step)
    rows = described(whole, step, removed if step >= from_step else ())
    for name, column in columns_test.COLUMNS.items():
      fill = columns_test.FILLS.get(name, 0)
      if column.per == "token":
        expected = wanted(name, rows, pipe.sources, batch["tokens"].shape[1])
      else:
        expected = columns_reference.document_column(
          rows,
          batch[name].shape[1],
          dict.fromkeys(pipe.sources, columns_test.values(name)),
          column.numpy_dtype,
          [slots(spans) for spans in rows],
          fill=fill,
        )
      np.testing.assert_array_equal(batch[name], expected, (name, step))
      compared += int((expected != np.asarray(fill, expected.dtype)).sum())
  return compared


@pytest.mark.parametrize("name", ROWS)
def test_columns_are_those_of_the_reference(root, name, tmp_path):
  data = columns_test.config(root, [ROWS[name]])
  assert compare(data) > 1_000
  path, removed = targets_test.removed_from(tmp_path / "gone.jsonl", ["chats"])
  assert compare({**data, "tombstones": ((1, path),)}, removed) > 1_000


@pytest.mark.parametrize("name", MIXES)
def test_columns_of_mixes_are_those_of_the_reference(root, name, tmp_path):
  kinds = [ROWS[kind] for kind in MIXES[name]]
  sources = ("chats", "text")
  data = columns_test.config(root, kinds, sources)
  assert compare(data) > 1_000
  path, removed = targets_test.removed_from(tmp_path / "gone.jsonl", sources)
  assert compare({**data, "tombstones": ((1, path),)}, removed) > 1_000


def test_columns_of_buckets_are_those_of_the_reference(root, tmp_path):
  data = columns_test.in_lengths(root, add_eos=True)
  assert compare(data) > 1_000
  path, removed = targets_test.removed_from(
    tmp_path / "gone.jsonl", ["chats", "text"]
  )
  assert compare({**data, "tombstones": ((1, path),)}, removed) > 1_000
