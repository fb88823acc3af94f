# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Fill in the middle is that of a slow reference.

The reference was written from the definition by somebody who had not seen the
package (`fim_reference`). It is given the pieces of a row, and what the plan
chose for them; each field of the batch must be its own.
"""

import json

import numpy as np
import pytest

import chomp_data
from chomp_data.kernels import compiled
from chomp_data.rows import spans as spans_lib
from chomp_data.rows import targets
from chomp_data.testing import stores as testing_stores
from tests.rows import fim_reference

SEQ_LEN, DEPTH, BOS, EOS, IDS = 40, 3, 2, 1, (90, 91, 92)
FIM = dict(zip(("prefix_id", "suffix_id", "middle_id"), IDS, strict=True))
# What the store holds of BOS and EOS, and options of rows.
CASES = {
  "added": (False, False, {"add_bos": True, "add_eos": True}),
  "truncated": (
    False, False,
    {"add_bos": True, "add_eos": True, "long_documents": "truncate"},
  ),
  "added_eos": (False, False, {"add_eos": True}),
  "stored": (True, True, {}),
  "stored_eos": (False, True, {"add_bos": True}),
  "stored_bos": (True, False, {"add_eos": True}),
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  root = tmp_path_factory.mktemp("fim_reference")
  rng = np.random.default_rng(5)
  texts = [rng.integers(3, 90, n) for n in rng.integers(0, 60, 150)]
  for name, (bos, eos, _) in CASES.items():
    testing_stores.make_store(
      root / name,
      [[BOS] * bos + own.tolist() + [EOS] * eos for own in texts],
      vocab_size=100,
      bos_id=BOS,
      adds_bos=bos,
      adds_eos=eos,
    )
  lines = [
    {"source": "a", "document": i, "start": 2, "length": 1 + i % 3}
    for i in range(3, 150, 11)
    if len(texts[i]) > 6
  ]
  (root / "gone.jsonl").write_text("\n".join(map(json.dumps, lines)))
  return root


def described(pipe, name, step, removed):
  """Yields, for each row of a step, its pieces in the reference's words.

  With each comes what the plan chose: the form and the cut points, or None.
  """
  stored_bos, stored_eos, rows = CASES[name]
  spans, store = pipe.plan(step), pipe.sources["a"].store
  for row in range(spans.num_rows):
    of_row, out = spans.rows(row, row + 1), []
    for segment in range(1, int(of_row.segment.max(initial=0)) + 1):
      pick = np.flatnonzero(of_row.segment == segment)
      piece = of_row.take(pick, np.zeros_like(pick), 1)
      document = int(piece.document[0])
      begin, whole = (int(own[0]) for own in store.bounds(piece.document[:1]))
      first, count = int(piece.start.min()), int(piece.stored()[0].sum())
      tokens = store.read_tokens(
        np.asarray([begin + first]), np.asarray([count])
      ).tolist()
      gone = [(document, first + i) in removed for i in range(count)]
      is_first, is_last = first == 0, first + count == whole
      bos = (
        is_first
        and "add_bos" in rows
        and bool((piece.added_before == spans_lib.BOS).any())
      )
      eos = "add_eos" in rows and bool((piece.added_after > 0).any())
      # An added token is removed with the one beside it.
      flags = gone[:1] * bos + gone + (gone[-1:] or [False]) * eos
      made = fim_reference.Piece(
        document=document,
        piece=first,
        tokens=[BOS] * bos + tokens + [EOS] * eos,
        starts_with_bos=bos or (stored_bos and is_first),
        ends_with_eos=eos or (stored_eos and is_last),
        removed=flags,
      )
      out.append((made, chosen(piece)))
    yield out


def chosen(piece):
  if piece.sentinels() is None:
    return None
  at = np.flatnonzero(piece.added_before >= spans_lib.SENTINEL)
  prefix, suffix, _ = piece.stored()[0][at].tolist()
  # The prefix of SPM comes with the middle: where it ends cannot be seen.
  form = "psm" if piece.start[at[2]] == piece.start[at[0]] + prefix else "spm"
  return form, prefix, suffix


@pytest.mark.parametrize(
  ("gone", "fast", "train"),
  [(False, False, True), (True, True, False)],
  ids=["numpy", "gone, numba, sentinels untrained"],
)
@pytest.mark.parametrize("name", CASES)
def test_batches_are_those_of_the_reference(root, name, gone, fast, train):
  rows = {
    "kind": "bin", "packing_buffer_docs": 30, **CASES[name][2],
    "fim": {**FIM, "rate": 0.7, "train_sentinels": train},
  }  # fmt: skip
  data = {
    "seed": 5,
    "seq_len": SEQ_LEN,
    "global_batch_size": 4,
    "epochs": 3,
    "num_targets": DEPTH,
    "train_on_eos": train,
    "sources": {"a": {"store": str(root / name), "rows": rows}},
    **({"tombstones": ((0, str(root / "gone.jsonl")),)} if gone else {}),
  }
  removed = set()
  if gone:
    for line in (root / "gone.jsonl").read_text().splitlines():
      own = json.loads(line)
      removed |= {(own["document"], own["start"] + i)
                  for i in range(own["length"])}  # fmt: skip
  pipe = chomp_data.build(data)
  compared = changed = 0
  for step in range(0, pipe.num_steps, 3):
    with compiled.allowed(fast):
      batch = pipe.batch(step)
    for row, pairs in enumerate(described(pipe, name, step, removed)):
      choices = {(own.document, own.piece): each for own, each in pairs}

      def choose(piece, body, choices=choices):
        choice = choices[piece.document, piece.piece]
        if choice is None:
          return None
        form, prefix, suffix = choice
        return form, prefix, body - suffix

      wanted = fim_reference.fim_row(
        [own for own, _ in pairs],
        SEQ_LEN,
        IDS,
        choose,
        train_sentinels=train,
        train_on_eos=train,
        num_targets=DEPTH,
      )
      # The reference never asks for a choice where there is none.
      assert wanted["rearranged"].tolist() == [
        own is not None for _, own in pairs
      ]
      live = wanted["segment_ids"] > 0
      for field in ("tokens", "segment_ids", "loss_mask"):
        assert batch[field][row].tolist() == wanted[field].tolist(), field
      np.testing.assert_array_equal(
        batch["positions"][row][live], wanted["positions"][live]
      )
      for depth in range(1, DEPTH + 1):
        value, mask, _ = targets.names(depth)
        for field, column in ((value, "targets"), (mask, "target_mask")):
          assert (
            batch[field][row].tolist() == wanted[column][depth - 1].tolist()
          ), (step, row, field)
      restored = fim_reference.invert_row(
        batch["tokens"][row], batch["segment_ids"][row], IDS
      )
      assert restored == [
        [t for t, own in zip(made.tokens, made.removed, strict=True) if not own]
        for made, _ in pairs
      ]
      compared += live.sum()
      changed += wanted["rearranged"].sum()
  assert compared > 3_000
  assert changed > 40
