# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Labels of rows one position at a time, to compare what sources read with.

Written from the meaning of labels alone: a token has the level of its run, an
added EOS that of its document's last token, an added BOS that of the first. A
position trains on the next token of the same span, if that one's level weighs
more than 0 and its document too; the weight is the product of both.
"""

import dataclasses

import numpy as np

LEVELS = (0.0, 1.0, 0.25, 3.0)


@dataclasses.dataclass
class Corpus:
  """A store and what was written to it.

  Attributes:
    store: Opened.
    levels: Of each document the levels of its tokens, or None for all 1.
    weights: Of each document, or None for 1.
    table: Weights of the levels.
  """

  store: object
  levels: list | None
  weights: list | None
  table: tuple

  @property
  def path(self):
    return str(self.store.path)

  def label(self, document, token):
    """Returns (whether it is trained on, weight) of a token, -1 the last."""
    level = 1 if self.levels is None else int(self.levels[document][token])
    weight = np.float32(self.table[level])
    weight *= np.float32(1 if self.weights is None else self.weights[document])
    return bool(weight > 0), weight


def make(
  make_store, lengths, seed=0, *, table=LEVELS, weights=False, **options
):
  """Writes documents of some lengths with levels in runs of a few tokens.

  Args:
    make_store: `testing_stores.make_store`, or without its path.
    lengths: Tokens of each document.
    seed: Of tokens, levels and weights.
    table: Weights of the levels; None: no labels.
    weights: Whether documents have weights.
    **options: More for `make_store`.
  """
  rng = np.random.default_rng(seed)
  documents = [rng.integers(3, 250, n) for n in lengths]
  levels = None
  if table is not None:
    levels = []
    for size in lengths:
      drawn = rng.integers(0, len(table), size)
      # Half of what is drawn is level 0, as prompts are.
      drawn[rng.random(size) < 0.5] = 0
      own = np.repeat(drawn, rng.integers(1, 7, size))[:size]
      levels.append(own.astype(np.uint8))
  kept = None
  if weights:
    kept = [round(w, 2) for w in rng.uniform(0.1, 2, len(documents)).tolist()]
    kept[3::5] = [0.0] * len(kept[3::5])
  store = make_store(
    documents=documents,
    levels=table,
    label_levels=levels,
    weights=kept,
    **options,
  )
  return Corpus(store, levels, kept, table or (0.0, 1.0))


def expected(corpora, spans, seq_len):
  """Returns what rows of spans are trained on, position by position.

  Args:
    corpora: By number of source.
    spans: A plan.
    seq_len: Positions of a row.

  Returns:
    `loss_mask` bool[rows, seq_len] and `loss_weight` float32 of that shape,
    without and, under the names with `_ahead`, with what follows the last
    column; and `label_weight`, what positions' own tokens weigh.
  """
  shape = (spans.num_rows, seq_len)
  mask, weight = np.zeros(shape, np.bool_), np.zeros(shape, np.float32)
  labels = np.zeros(shape, np.float32)
  after_mask = np.zeros(spans.num_rows, np.bool_)
  after_weight = np.zeros(spans.num_rows, np.float32)

  def has(array, i):
    return array is not None and bool(array[i])

  for i in range(len(spans)):
    corpus = corpora[int(spans.source[i])]
    document, row = int(spans.document[i]), int(spans.row[i])
    token, cells = int(spans.start[i]), []
    for position in range(int(spans.length[i])):
      if position == 0 and has(spans.added_before, i):
        cells.append(0)
      elif position == spans.length[i] - 1 and has(spans.added_after, i):
        cells.append(-1)
      else:
        cells.append(token)
        token += 1
    column = int(spans.column[i])
    for position, cell in enumerate(cells):
      trained, own = corpus.label(document, cell)
      labels[row, column + position] = own if trained else 0
    for position, cell in enumerate(cells[1:]):
      trained, own = corpus.label(document, cell)
      if trained:
        mask[row, column + position] = True
        weight[row, column + position] = own
    following = 0 if spans.following is None else int(spans.following[i])
    if following and column + len(cells) == seq_len:
      trained, own = corpus.label(document, token if following == 1 else -1)
      if trained:
        after_mask[row], after_weight[row] = True, own
  ahead, ahead_weight = mask.copy(), weight.copy()
  ahead[:, -1], ahead_weight[:, -1] = after_mask, after_weight
  return {
    "loss_mask": mask,
    "loss_weight": weight,
    "loss_mask_ahead": ahead,
    "loss_weight_ahead": ahead_weight,
    "label_weight": labels,
  }
