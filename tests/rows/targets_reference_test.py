# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Targets and layouts are those of a slow reference.

The reference was written from the definition by somebody who had not seen the
package (`targets_reference`). Here the spans of plans are put into its words.
"""

import numpy as np
import pytest

import chomp_data
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import targets
from chomp_data.transforms import sequence_layout
from tests.rows import targets_reference
from tests.rows import targets_test

SEQ_LEN, DEPTH = targets_test.SEQ_LEN, targets_test.DEPTH
ROWS = targets_test.ROWS
corpora = targets_test.corpora


def described(pipe, corpora, step, removed):
  """Yields, for each row of a step, its spans in the reference's words."""
  spans = pipe.plan(step).live()
  for row in range(spans.num_rows):
    out = []
    for i in np.flatnonzero(spans.row == row).tolist():
      source, document = pipe.source_names[spans.source[i]], spans.document[i]
      corpus, rows = corpora[source], pipe.sources[source]
      (first,), (length,) = corpus.store.bounds(np.asarray([document]))
      stored = corpus.store.read_tokens(
        np.asarray([first]), np.asarray([length])
      )
      bos, eos = rows.layout.bos_id is not None, rows.layout.eos_id is not None
      # Added tokens are as the token beside them.
      numbers = [*[0] * bos, *range(length), *[length - 1] * eos]
      tokens = [rows.layout.bos_id] * bos + stored.tolist()
      tokens += [rows.layout.eos_id] * eos
      labels = [corpus.label(int(document), number) for number in numbers]
      before = spans.added_before
      is_first = before is not None and before[i] == spans_lib.BOS
      start = int(spans.start[i]) + bos * (not is_first)
      if getattr(rows.options, "long_documents", None) == "truncate":
        # What is cut off is no part of a run.
        end = start + int(spans.length[i])
        tokens, labels, numbers = tokens[:end], labels[:end], numbers[:end]
      out.append(
        targets_reference.Span(
          # Each occurrence has a name of its own.
          document=(source, int(document), i),
          start=start,
          length=int(spans.length[i]),
          column=int(spans.column[i]),
          segment=int(spans.segment[i]),
          trained=[bool(trained) for trained, _ in labels],
          weight=[float(weight) for _, weight in labels],
          removed={
            at
            for at, number in enumerate(numbers)
            if (source, int(document), number) in removed
          },
          tokens=tokens,
        )
      )
    yield out


def compare(data, corpora, removed=frozenset(), most=12):
  """Compares steps; returns how many targets exist, and how many past rows."""
  pipe = chomp_data.build({**data, "num_targets": DEPTH})
  bare = chomp_data.build(data)
  exist = past_row = 0
  for step in range(min(pipe.num_steps, most)):
    batch, without = pipe.batch(step), bare.batch(step)
    for name, value in without.items():
      np.testing.assert_array_equal(batch[name], value, name)
    width = batch["tokens"].shape[1]
    every = described(pipe, corpora, step, removed if step else ())
    for row, spans in enumerate(every):
      wanted = targets_reference.targets(spans, width, DEPTH, 0)
      for depth in range(1, DEPTH + 1):
        value, mask, weight = targets.names(depth)
        assert batch[value][row].tolist() == wanted[value], (step, row, value)
        assert batch[mask][row].tolist() == wanted[mask], (step, row, mask)
        assert (weight in batch) == ("loss_weight" in batch)
        if weight in batch and spans:
          assert batch[weight][row].tolist() == wanted[weight]
        exist += sum(wanted[mask])
        past_row += wanted[mask][-1]
    assert targets.names(DEPTH + 1)[0] not in batch
  return exist, past_row


def compare_also_removed(data, corpora, tmp_path, most=12):
  found = compare(data, corpora, most=most)
  path, removed = targets_test.removed_from(
    tmp_path / "gone.jsonl", data["sources"]
  )
  compare({**data, "tombstones": ((1, path),)}, corpora, removed)
  return found


@pytest.mark.parametrize("name", ["chats", "text"])
@pytest.mark.parametrize("rows", ROWS)
def test_targets_are_those_of_the_reference(corpora, rows, name, tmp_path):
  data = targets_test.config(corpora, [ROWS[rows]], (name,))
  # Rolled copies that end near the end of their document are rare.
  most = 400 if rows == "roll" else 12
  exist, past_row = compare_also_removed(data, corpora, tmp_path, most)
  assert exist
  assert past_row or rows == "truncate"


@pytest.mark.parametrize("kinds", [("ffd", "roll"), ("sequential", "windows")])
def test_targets_of_mixes_are_those_of_the_reference(corpora, kinds, tmp_path):
  data = targets_test.config(
    corpora, [ROWS[kind] for kind in kinds], ("chats", "text")
  )
  compare_also_removed(data, corpora, tmp_path)


def test_targets_in_buckets_are_those_of_the_reference(corpora, tmp_path):
  data = targets_test.in_lengths(corpora, add_bos=True, add_eos=True)
  pipe = chomp_data.build({**data, "num_targets": DEPTH})
  assert len({pipe.bucket_of(step)[1] for step in range(12)}) > 1
  compare_also_removed(data, corpora, tmp_path)


@pytest.mark.parametrize(
  "kind", ["contiguous", "dual_chunk_swap", "zigzag", "striped"]
)
def test_layouts_are_those_of_the_reference(kind):
  for shards in (1, 2, 3, 4, 8):
    for seq_len in (48, 96):
      layout = sequence_layout.SequenceLayout(kind=kind, shards=shards)
      name = "dual_chunk_swap" if kind == "zigzag" else kind
      wanted = targets_reference.layout_permutation(name, shards, seq_len)
      assert layout.order(seq_len).tolist() == wanted
