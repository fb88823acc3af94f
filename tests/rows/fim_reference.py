# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Fill in the middle: a slow reference, written from the definition only.

The definition: a *piece* (the part of a document that a row holds) is the unit
of rearrangement. Every piece reserves three positions, so one packing serves
all epochs; positions that are not used are padding after the piece (segment
0). Only pieces that contain their document's EOS are rearranged; BOS stays
first and EOS last; pieces shorter than 4 tokens, and pieces with a removed
token, are left unchanged. With PRE, SUF, MID the three sentinels:

    PSM:  [BOS] PRE prefix SUF suffix MID middle EOS
    SPM:  [BOS] PRE SUF suffix MID prefix middle EOS

where the body (the piece without BOS and EOS) is prefix + middle + suffix.
Whether a piece is rearranged, its form and its two cut points are hashes of
(seed, document, piece, epoch): a function, given as an argument. Sentinels
are trained on as labels unless `train_sentinels=False`.

Open points of the definition, and what is done here:

1. "Shorter than 4 tokens": the piece with its BOS and EOS is counted.
2. Cut points a <= b are places between the tokens of the body, 0 <= a <= b <=
   n; prefix = body[:a], middle = body[a:b], suffix = body[b:]. Whether parts
   may be empty is left to the function `choose`.
3. "BOS stays first" is read as before PRE. A BOS that the store holds counts
   only if the piece says so (`starts_with_bos`).
4. The rate is that of pieces that can be rearranged (`can_rearrange`), since
   `choose` is only asked for these. The definition could also mean all pieces.
5. Segments count pieces from 1 in the order of the row. Positions restart at
   0 in each segment and count sentinels. Those of padding are its columns.
6. The position of a removed token becomes padding (pad_id, segment 0), and no
   label is predicted from it or at it. The definition only says that such a
   piece is not rearranged, and that masks of targets are False for a removed
   token.
7. Targets end with the piece. A piece always ends at least three positions
   before the next one or the end of the row unless it is rearranged, and then
   it contains EOS; so no row has a piece that ends in the last column and
   goes on ("lookahead"). With several targets the definition says that a
   target may lie "past the end of the row"; a piece that goes on but stops
   before the last column is read as having no such target.
8. Targets at depth d follow the row as arranged (sentinels included), not the
   original order. The value is real wherever the token exists, with
   train_sentinels=False also for a sentinel, whose mask is then False.
9. train_sentinels=False: a sentinel is no label. The token after a sentinel
   is still trained on.
10. `mask_boundary_loss=False` is not modelled (labels never cross segments).
11. If a document's own text holds a sentinel id, the row does not say what was
    rearranged, and `invert_row` cannot invert it (ValueError).
"""

import dataclasses

import numpy as np

RESERVED = 3
MIN_TOKENS = 4


@dataclasses.dataclass
class Piece:
  """One piece of a document, as it would be placed without rearrangement.

  Attributes:
    document: the document (any value; only passed to the function).
    piece: int, which piece of the document (only passed to the function).
    tokens: list of n ints, with its BOS and EOS.
    starts_with_bos: bool, tokens[0] is the document's BOS.
    ends_with_eos: bool, tokens[-1] is the document's EOS.
    removed: n bools, True for tokens removed by a tombstone.
  """

  document: object
  piece: int
  tokens: list
  starts_with_bos: bool
  ends_with_eos: bool
  removed: list


def can_rearrange(piece):
  """True iff the definition allows this Piece to be rearranged (bool)."""
  return (
    piece.ends_with_eos
    and not any(piece.removed)
    and len(piece.tokens) >= MIN_TOKENS
  )


def arrange(piece, ids, choose):
  """The order in which a piece's tokens are placed.

  Args:
    piece: Piece of n tokens.
    ids: (prefix_id, suffix_id, middle_id), three ints.
    choose: function (piece, tokens of the body) -> None where it is not
      rearranged, or ("psm" or "spm", a, b). Only asked where `can_rearrange`.

  Returns:
    (order, rearranged): order is a list of (token id, index in piece.tokens,
    -1 for a sentinel); n entries, or n + 3 if rearranged (bool).
  """
  plain = [(int(token), i) for i, token in enumerate(piece.tokens)]
  if not can_rearrange(piece):
    return plain, False
  start = plain[:1] if piece.starts_with_bos else []
  body = plain[len(start) : -1]
  end = plain[-1:]
  choice = choose(piece, len(body))
  if choice is None:
    return plain, False
  form, a, b = choice
  if not 0 <= a <= b <= len(body):
    raise ValueError(f"cut points {a}, {b} of {len(body)} tokens")
  prefix, middle, suffix = body[:a], body[a:b], body[b:]
  pre, suf, mid = [[(int(token), -1)] for token in ids]
  if form == "psm":
    return start + pre + prefix + suf + suffix + mid + middle + end, True
  if form == "spm":
    return start + pre + suf + suffix + mid + prefix + middle + end, True
  raise ValueError("form must be 'psm' or 'spm'")


def fim_row(
  pieces,
  seq_len,
  ids,
  choose,
  *,
  pad_id=0,
  train_sentinels=True,
  train_on_eos=True,
  num_targets=1,
):
  """One row of S = seq_len columns.

  Args:
    pieces: list of Piece, in the order of the row.
    seq_len: int S; the pieces and their reserved positions must fit.
    ids, choose: as in `arrange`.
    pad_id: int, the token id of padding.
    train_sentinels, train_on_eos: bool, whether these are labels.
    num_targets: int D, depths of targets.

  Returns:
    dict of arrays: "tokens", "segment_ids", "positions" int32[S]; "loss_mask"
    bool[S] (True at i where the token at i + 1, of the same piece, is trained
    on); "targets" int32[D, S] (the token d = 1 .. D columns later in the same
    piece, pad_id where there is none); "target_mask" bool[D, S]; "rearranged"
    bool[pieces].
  """
  tokens = np.full(seq_len, pad_id, np.int32)
  segments = np.zeros(seq_len, np.int32)
  positions = np.arange(seq_len, dtype=np.int32)
  label = np.zeros(seq_len, bool)  # The token here may be a label.
  group = np.full(seq_len, -1, np.int64)  # Piece of a real token, else -1.
  rearranged = np.zeros(len(pieces), bool)

  column = 0
  for number, piece in enumerate(pieces):
    if not piece.tokens:
      raise ValueError("a piece must hold tokens")
    room = len(piece.tokens) + RESERVED
    if column + room > seq_len:
      raise ValueError("the pieces do not fit in the row")
    order, rearranged[number] = arrange(piece, ids, choose)
    for k, (token, index) in enumerate(order):
      c = column + k
      if index >= 0 and piece.removed[index]:
        continue
      tokens[c] = token
      segments[c] = number + 1
      positions[c] = k
      group[c] = number
      if index < 0:
        label[c] = train_sentinels
      elif piece.ends_with_eos and index == len(piece.tokens) - 1:
        label[c] = train_on_eos
      else:
        label[c] = True
    column += room

  targets = np.full((num_targets, seq_len), pad_id, np.int32)
  target_mask = np.zeros((num_targets, seq_len), bool)
  for depth in range(1, num_targets + 1):
    for i in range(seq_len - depth):
      # An unbroken run: the same piece, and no padding in between.
      if group[i] < 0:
        continue
      if any(group[j] != group[i] for j in range(i, i + depth + 1)):
        continue
      targets[depth - 1, i] = tokens[i + depth]
      target_mask[depth - 1, i] = label[i + depth]
  loss_mask = np.zeros(seq_len, bool)
  for i in range(seq_len - 1):
    if group[i] >= 0 and group[i + 1] == group[i]:
      loss_mask[i] = label[i + 1]
  return {
    "tokens": tokens,
    "segment_ids": segments,
    "positions": positions,
    "loss_mask": loss_mask,
    "targets": targets,
    "target_mask": target_mask,
    "rearranged": rearranged,
  }


def invert_segment(tokens, ids):
  """The original order of one rearranged piece.

  PRE p SUF s MID m is p m s for both forms: in SPM, p is empty and m is prefix
  and middle. What comes before PRE (BOS) stays first, and the last token (EOS)
  stays last.

  Args:
    tokens: list of ints, the tokens of one segment.
    ids: (prefix_id, suffix_id, middle_id).

  Returns:
    list of ints, three fewer. ValueError if the three sentinels do not occur
    exactly once each, in this order, before the last token, with at most one
    token before the first.
  """
  tokens = [int(token) for token in tokens]
  places = []
  for token in ids:
    found = [i for i in range(len(tokens)) if tokens[i] == int(token)]
    if len(found) != 1:
      raise ValueError("each sentinel must occur exactly once")
    places.append(found[0])
  pre, suf, mid = places
  if not pre < suf < mid < len(tokens) - 1 or pre > 1:
    raise ValueError("sentinels out of place")
  prefix = tokens[pre + 1 : suf]
  suffix = tokens[suf + 1 : mid]
  middle = tokens[mid + 1 : -1]
  return tokens[:pre] + prefix + middle + suffix + tokens[-1:]


def invert_row(tokens, segment_ids, ids):
  """The original tokens of every piece of a row.

  Args:
    tokens, segment_ids: int[S].
    ids: (prefix_id, suffix_id, middle_id).

  Returns:
    list of lists of ints, one for each segment 1, 2, ... (positions of removed
    tokens are missing).
  """
  pieces = []
  for segment in range(1, max([0] + [int(s) for s in segment_ids]) + 1):
    held = [
      int(tokens[i])
      for i in range(len(tokens))
      if int(segment_ids[i]) == segment
    ]
    changed = any(token in [int(x) for x in ids] for token in held)
    pieces.append(invert_segment(held, ids) if changed else held)
  return pieces
