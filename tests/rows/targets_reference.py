# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A slow reference for next-token targets, masks, weights and layouts.

Everything is done one column at a time in plain Python, so that the code can
be read next to the definition. Points where the definition leaves a choice
are marked `AMBIGUOUS` in the comments, each with the choice made here.
"""

import dataclasses
import struct
from typing import Any


@dataclasses.dataclass
class Span:
  """A piece of one document that lies in consecutive columns of a row.

  Attributes:
    document: what tells documents apart; any value that can be compared.
    start: position, in the document's tokens, of the span's first token.
    length: how many tokens and columns the span has.
    column: the canonical column of the span's first token.
    segment: the segment number, 1 or more.
    trained: for each token of the document, whether it is trained on; None
      says that all are.
    weight: for each token of the document, its weight; None says that the
      document has none.
    removed: the positions of the document's tokens that are removed.
    tokens: all tokens of the document, with the BOS and EOS that rows add.
  """

  document: Any
  start: int
  length: int
  column: int
  segment: int
  trained: list | None
  weight: list | None
  removed: set
  tokens: list


# AMBIGUOUS 1 (segments). The definition speaks of a run of one document"s
# tokens, and names segments only to say that padding may share one. Chosen:
# the segment number decides nothing here. The same document's next token in
# the next column goes on with the run even under another segment number.
#
# AMBIGUOUS 2 (a document that occurs twice). Chosen: `document` names one
# occurrence; a caller whose row holds the end of one occurrence and the
# start of another gives them different names. With one name, the row's first
# columns holding the token that comes after the last column's is a seam.
#
# AMBIGUOUS 3 (a span that is cut before the row's last column). The document
# has more tokens, but the next column is padding, another document, or
# another part of this one. Chosen: the run ends there, and no token past it
# exists. Looking past the row is only for the run in the last column. So the
# end of a row that was cut and then rolled into the middle has no targets.
#
# AMBIGUOUS 4 (removed tokens). Chosen: a removed token is no real token of the
# row, so it ends the run: neither it nor a token after it is a target of a
# column before it. Whether a token between is untrained does not matter.
#
# AMBIGUOUS 5 (lists for each token). Chosen: `trained`, `weight`, `removed`
# and `start` all count in `tokens`, BOS and EOS included. Lists of another
# length than `tokens` are a ValueError.
#
# AMBIGUOUS 6 (weights). Chosen: the weight arrays are there when at least
# one span of the row has a weight list; a span without one then weighs 1.0.
# A weight of 0 leaves the mask True. Weights are rounded to float32.
#
# AMBIGUOUS 7 (bad input). Chosen: ValueError for columns out of the row,
# columns held twice, spans out of order, positions out of the document, a
# segment below 1, a length below 1, and a depth count below 1.


def _check(spans, S):
  """Raises ValueError where the spans do not describe a row."""
  used = 0
  for span in spans:
    if span.length < 1:
      raise ValueError("a span has no tokens")
    if span.segment < 1:
      raise ValueError("a segment number is below 1")
    if span.column < used:
      raise ValueError("spans overlap or are out of column order")
    used = span.column + span.length
    if used > S:
      raise ValueError("a span goes past the end of the row")
    if span.start < 0 or span.start + span.length > len(span.tokens):
      raise ValueError("a span goes past its document")
    for name in ("trained", "weight"):
      values = getattr(span, name)
      if values is not None and len(values) != len(span.tokens):
        raise ValueError(f"{name} is not one value for each token")


def _held(spans, S):
  """Lists, for each column, its (span, position in the document) or None."""
  held = []
  for column in range(S):
    holder = None
    for span in spans:
      if span.column <= column < span.column + span.length:
        holder = (span, span.start + column - span.column)
    held.append(holder)
  return held


def _row_holds(held, document, position):
  """Says whether any column of the row holds this token."""
  for place in held:
    if place is not None:
      span, here = place
      if span.document == document and here == position:
        return True
  return False


def _find(held, column, depth):
  """Finds the token `depth` places after a column, as (span, position).

  It walks one token at a time and gives None as soon as the run ends. The
  span says which lists (tokens, trained, weight, removed) hold for it.
  """
  if held[column] is None:
    return None
  span, position = held[column]
  S = len(held)
  for step in range(1, depth + 1):
    position += 1
    if position >= len(span.tokens) or position in span.removed:
      return None
    ahead = column + step
    if ahead < S:
      if held[ahead] is None:
        return None
      next_span, next_position = held[ahead]
      if next_span.document != span.document or next_position != position:
        return None
      span = next_span
    else:
      # Past the row's end: the document goes on, unless this very token lies
      # in another column of the row, which is the seam of a cyclic roll.
      # AMBIGUOUS 8: chosen to ask this of every token past the end, not only
      # of the first; a row that was only rolled gives the same either way.
      if _row_holds(held, span.document, position):
        return None
  return span, position


def _float32(value):
  """Rounds a number to the nearest float32."""
  return struct.unpack("<f", struct.pack("<f", value))[0]


def targets(spans, S, depth_count, pad_id):
  """Builds the target arrays of one row, as lists of S values.

  Args:
    spans: the row's spans, in canonical column order.
    S: how many columns the row has.
    depth_count: how many tokens ahead to look; 1 is next-token targets.
    pad_id: the value of a target that does not exist.

  Returns:
    `targets` and `target_mask`, and with weights `target_weight`, for depth
    1; the same names with `_2`, `_3` and so on for the depths after it.
  """
  if depth_count < 1:
    raise ValueError("depth_count is below 1")
  _check(spans, S)
  held = _held(spans, S)
  weighted = False
  for span in spans:
    if span.weight is not None:
      weighted = True
  result = {}
  for depth in range(1, depth_count + 1):
    suffix = "" if depth == 1 else f"_{depth}"
    values = []
    masks = []
    weights = []
    for column in range(S):
      value = pad_id
      mask = False
      weight = 0.0
      target = _find(held, column, depth)
      if target is not None:
        span, position = target
        value = span.tokens[position]
        mask = True
        if span.trained is not None and not span.trained[position]:
          mask = False
        if mask:
          weight = 1.0
          if span.weight is not None:
            weight = _float32(span.weight[position])
      values.append(value)
      masks.append(mask)
      weights.append(weight)
    result["targets" + suffix] = values
    result["target_mask" + suffix] = masks
    if weighted:
      result["target_weight" + suffix] = weights
  return result


def layout_permutation(kind, shards, S):
  """Lists, for each placed column, the canonical column that it holds.

  Args:
    kind: "contiguous", "dual_chunk_swap" or "striped".
    shards: how many shards split the row; each has S / shards columns, and
      the placed columns are those of shard 0, then of shard 1, and so on.
    S: how many columns the row has.
  """
  if shards < 1:
    raise ValueError("shards is below 1")
  placed = []
  if kind == "contiguous":
    # AMBIGUOUS 9: "(2n, n)" names two divisors for three layouts. Chosen:
    # they are those of dual_chunk_swap and striped; contiguous is the
    # identity for any S.
    for column in range(S):
      placed.append(column)
  elif kind == "dual_chunk_swap":
    if S % (2 * shards) != 0:
      raise ValueError(f"{S} columns do not split into {2 * shards} chunks")
    size = S // (2 * shards)
    for shard in range(shards):
      for chunk in (shard, 2 * shards - 1 - shard):
        for offset in range(size):
          placed.append(chunk * size + offset)
  elif kind == "striped":
    if S % shards != 0:
      raise ValueError(f"{S} columns do not split into {shards} shards")
    for shard in range(shards):
      column = shard
      while column < S:
        placed.append(column)
        column += shards
  else:
    raise ValueError(f"no layout is called {kind!r}")
  return placed
