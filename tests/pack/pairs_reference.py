# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packed preference pairs: a slow reference, from the definition only.

The definition: document 2k is the chosen and 2k + 1 the rejected answer of
pair k, each with its prompt; only what follows the prompt is trained on. A
pair is packed as one unit that is never cut. The p-th pair of a row (from 0)
has segments 2p + 1 (chosen) and 2p + 2 (rejected); `pair_mask` bool[B, P]
marks the pairs that exist, at most P = pair_slots in a row. Pairs longer than
a row are dropped and counted, or lose the start of their prompt, the same
tokens on both sides. A tombstone for either half removes both. A loss is
averaged over the pairs of the global batch.

The packing (a list of rows, each a list of pair numbers) is an argument. DPO
is not defined there; it is the usual one, with sums over answer tokens:

    margin = beta ((log pi(chosen) - log ref(chosen))
                   - (log pi(rejected) - log ref(rejected)))
    loss = mean over pairs of -log sigmoid(margin)

Open points of the definition, and what is done here:

1. Where the halves lie: chosen, then at once rejected, then the next pair, from
   column 0, filler only at the end of the row. The definition fixes only the
   segments.
2. Positions restart at 0 in each segment (`reset_positions=True`), or are
   columns. Those of padding are columns.
3. BOS and EOS added at read time (`bos_id`, `eos_id`) are part of each half and
   count towards its length. BOS is never a label; EOS is one.
4. An answer's first token is trained on where a token (prompt or BOS) stands
   before it in its half, else not. An answer without tokens trains nothing
   (except EOS).
5. truncate_prompt removes the fewest tokens that make the pair fit: the excess
   over S, halved, rounded up. One position may then stay empty. Added BOS is
   kept. At least one token of the prompt stays. A pair that does not fit then
   is dropped and counted.
6. Both halves share one list of prompt tokens. Templates whose renderings of
   the two prompts differ are not modelled.
7. The positions of a removed pair (`removed_documents`) are padding (segment
   0), its `pair_mask` is False, and other pairs keep segments, columns and
   slots. The definition only says that both halves are removed.
8. A batch without any pair has loss 0 (the mean would be undefined).
9. The log-probability of an answer is the sum over its tokens, not the mean.
"""

import numpy as np


def half_lengths(pair, *, bos_id=None, eos_id=None):
  """Tokens of the two halves, as placed.

  Args:
    pair: (prompt, chosen, rejected), three lists of ints.
    bos_id, eos_id: int ids added at read time, or None.

  Returns:
    (chosen, rejected), two ints.
  """
  prompt, chosen, rejected = pair
  extra = int(bos_id is not None) + int(eos_id is not None) + len(prompt)
  return extra + len(chosen), extra + len(rejected)


def fit_pairs(pairs, seq_len, *, long_pairs="drop", bos_id=None, eos_id=None):
  """Drops or truncates pairs longer than a row.

  Args:
    pairs: list of (prompt, chosen, rejected), lists of ints.
    seq_len: int S.
    long_pairs: "drop" or "truncate_prompt".
    bos_id, eos_id: int ids added at read time, or None.

  Returns:
    dict: "pairs" (list as long as the input: the pair to be placed, or None if
    it is dropped), "dropped" (list of pair numbers), "cut" (list of ints, one
    a pair: prompt tokens that each half lost).
  """
  if long_pairs not in ("drop", "truncate_prompt"):
    raise ValueError("long_pairs")
  placed = []
  dropped = []
  cut = []
  for number, pair in enumerate(pairs):
    prompt, chosen, rejected = [list(part) for part in pair]
    excess = sum(half_lengths(pair, bos_id=bos_id, eos_id=eos_id)) - seq_len
    if excess <= 0:
      placed.append((prompt, chosen, rejected))
      cut.append(0)
      continue
    lost = (excess + 1) // 2
    if long_pairs == "drop" or len(prompt) - lost < 1:
      placed.append(None)
      dropped.append(number)
      cut.append(0)
      continue
    placed.append((prompt[lost:], chosen, rejected))
    cut.append(lost)
  return {"pairs": placed, "dropped": dropped, "cut": cut}


def half(prompt, answer, *, bos_id=None, eos_id=None):
  """One half: its tokens, and which of them are labels.

  Returns:
    (tokens, label): lists of n ints and n bools. label[0] is always False: no
    token stands before it.
  """
  tokens = []
  label = []
  if bos_id is not None:
    tokens.append(int(bos_id))
    label.append(False)
  for token in prompt:
    tokens.append(int(token))
    label.append(False)
  for token in answer:
    tokens.append(int(token))
    label.append(True)
  if eos_id is not None:
    tokens.append(int(eos_id))
    label.append(True)
  if label:
    label[0] = False
  return tokens, label


def is_removed(number, removed_documents):
  """True iff document 2 number or 2 number + 1 is among removed_documents."""
  return 2 * number in removed_documents or 2 * number + 1 in removed_documents


def pack_rows(
  pairs,
  packing,
  seq_len,
  pair_slots=64,
  *,
  pad_id=0,
  bos_id=None,
  eos_id=None,
  reset_positions=True,
  removed_documents=(),
):
  """Places pairs in rows.

  Args:
    pairs: list of (prompt, chosen, rejected), lists of ints, or None (as
      `fit_pairs` returns them).
    packing: list of B rows, each a list of pair numbers, in order.
    seq_len: int S.
    pair_slots: int P.
    pad_id: int, id of padding.
    bos_id, eos_id: see note 3.
    reset_positions: see note 2.
    removed_documents: numbers of documents with a tombstone.

  Returns:
    dict of arrays: "tokens", "segment_ids", "positions" int32[B, S];
    "loss_mask" bool[B, S] (True at i where the token at i + 1, of the same
    half, is trained on); "pair_mask" bool[B, P].
  """
  rows = len(packing)
  tokens = np.full((rows, seq_len), pad_id, np.int32)
  segments = np.zeros((rows, seq_len), np.int32)
  positions = np.tile(np.arange(seq_len, dtype=np.int32), (rows, 1))
  loss_mask = np.zeros((rows, seq_len), bool)
  pair_mask = np.zeros((rows, pair_slots), bool)
  for row, numbers in enumerate(packing):
    if len(numbers) > pair_slots:
      raise ValueError(f"row {row} has more pairs than slots")
    column = 0
    for p, number in enumerate(numbers):
      if pairs[number] is None:
        raise ValueError(f"pair {number} is dropped")
      prompt, chosen, rejected = pairs[number]
      removed_pair = is_removed(number, removed_documents)
      pair_mask[row, p] = not removed_pair
      for side, answer in enumerate((chosen, rejected)):
        ids, label = half(prompt, answer, bos_id=bos_id, eos_id=eos_id)
        if column + len(ids) > seq_len:
          raise ValueError(f"row {row} is too long")
        for k in range(len(ids)):
          c = column + k
          if removed_pair:
            continue
          tokens[row, c] = ids[k]
          segments[row, c] = 2 * p + 1 + side
          positions[row, c] = k if reset_positions else c
          if k + 1 < len(ids) and label[k + 1]:
            loss_mask[row, c] = True
        column += len(ids)
  return {
    "tokens": tokens,
    "segment_ids": segments,
    "positions": positions,
    "loss_mask": loss_mask,
    "pair_mask": pair_mask,
  }


def pad_pairs(pairs):
  """The usual batch of padded pairs: one half a row.

  Args:
    pairs: list of N (prompt, chosen, rejected), lists of ints.

  Returns:
    dict of arrays, [N, 2, L] with chosen at 0 and rejected at 1: "tokens",
    "segment_ids" (1, 0 = padding), "positions" int32; "loss_mask" bool.
  """
  halves = [
    [half(prompt, answer) for answer in (chosen, rejected)]
    for prompt, chosen, rejected in pairs
  ]
  shape = (len(pairs), 2, max(len(ids) for two in halves for ids, _ in two))
  tokens = np.zeros(shape, np.int32)
  segments = np.zeros(shape, np.int32)
  positions = np.zeros(shape, np.int32)
  loss_mask = np.zeros(shape, bool)
  for n, two in enumerate(halves):
    for side, (ids, label) in enumerate(two):
      for k in range(len(ids)):
        tokens[n, side, k] = ids[k]
        segments[n, side, k] = 1
        positions[n, side, k] = k
        if k + 1 < len(ids):
          loss_mask[n, side, k] = label[k + 1]
  return {
    "tokens": tokens,
    "segment_ids": segments,
    "positions": positions,
    "loss_mask": loss_mask,
  }


def check_packing(
  pairs, packing, seq_len, pair_slots=64, *, bos_id=None, eos_id=None
):
  """Raises ValueError unless the packing of one epoch is valid.

  Every pair that is not None occurs exactly once, the others never; no row
  holds more than seq_len tokens or pair_slots pairs.
  """
  seen = {}
  for row, numbers in enumerate(packing):
    if len(numbers) > pair_slots:
      raise ValueError(f"row {row} has more pairs than slots")
    held = 0
    for number in numbers:
      seen[number] = seen.get(number, 0) + 1
      if pairs[number] is None:
        raise ValueError(f"pair {number} is dropped")
      held += sum(half_lengths(pairs[number], bos_id=bos_id, eos_id=eos_id))
    if held > seq_len:
      raise ValueError(f"row {row} is too long")
  for number, pair in enumerate(pairs):
    if pair is not None and seen.get(number, 0) != 1:
      raise ValueError(f"pair {number} occurs {seen.get(number, 0)} times")


def token_log_probs(logits, tokens):
  """log p(token at i + 1) by the logits at i.

  Args:
    logits: float64[..., S, V].
    tokens: int[..., S].

  Returns:
    float64[..., S]; 0 in the last column, which has no next token here.
  """
  logits = np.asarray(logits, np.float64)
  tokens = np.asarray(tokens)
  answer = np.zeros(tokens.shape, np.float64)
  for index in np.ndindex(tokens.shape):
    if index[-1] + 1 == tokens.shape[-1]:
      continue
    line = logits[index]
    top = line.max()
    following = tokens[(*index[:-1], index[-1] + 1)]
    answer[index] = line[following] - top - np.log(np.exp(line - top).sum())
  return answer


def logits_gradient(logits, tokens, gradient):
  """Gradient by the logits, from the gradient by `token_log_probs`.

  Args:
    logits: float64[..., S, V].
    tokens: int[..., S].
    gradient: float64[..., S].

  Returns:
    float64[..., S, V].
  """
  logits = np.asarray(logits, np.float64)
  tokens = np.asarray(tokens)
  answer = np.zeros(logits.shape, np.float64)
  for index in np.ndindex(tokens.shape):
    if index[-1] + 1 == tokens.shape[-1]:
      continue
    line = np.exp(logits[index] - logits[index].max())
    answer[index] = -gradient[index] * line / line.sum()
    following = tokens[(*index[:-1], index[-1] + 1)]
    answer[index][following] += gradient[index]
  return answer


def segment_sums(values, loss_mask, segment_ids, pair_slots):
  """Sums over the trained positions of each half.

  Args:
    values: float64[B, S].
    loss_mask: bool[B, S].
    segment_ids: int[B, S]; 2p + 1 and 2p + 2 are the halves of slot p.
    pair_slots: int P.

  Returns:
    float64[B, P, 2], chosen at 0 and rejected at 1.
  """
  values = np.asarray(values, np.float64)
  rows, columns = values.shape
  sums = np.zeros((rows, 2 * pair_slots), np.float64)
  for row in range(rows):
    for i in range(columns):
      if loss_mask[row, i]:
        sums[row, int(segment_ids[row, i]) - 1] += values[row, i]
  return sums.reshape(rows, pair_slots, 2)


def log_sigmoid(x):
  """log(1 / (1 + exp(-x))) of a float, without overflow."""
  if x >= 0:
    return -np.log1p(np.exp(-x))
  return x - np.log1p(np.exp(x))


def sigmoid(x):
  """1 / (1 + exp(-x)) of a float, without overflow."""
  if x >= 0:
    return 1 / (1 + np.exp(-x))
  return np.exp(x) / (1 + np.exp(x))


def dpo_packed(log_probs, reference, loss_mask, segment_ids, pair_mask, beta):
  """DPO loss of packed rows (one global batch), by segment sums.

  Args:
    log_probs: float64[B, S], of the policy; at i: that of the token at i + 1.
    reference: float64[B, P, 2], sums over the answers, one a half (from
      columns per document).
    loss_mask: bool[B, S].
    segment_ids: int[B, S].
    pair_mask: bool[B, P].
    beta: float.

  Returns:
    dict: "loss" (float), "gradient" float64[B, S] (of the loss, by log_probs).
  """
  pair_mask = np.asarray(pair_mask)
  rows, slots = pair_mask.shape
  policy = segment_sums(log_probs, loss_mask, segment_ids, slots)
  reference = np.asarray(reference, np.float64)
  pairs = int(pair_mask.sum())
  loss = 0.0
  gradient = np.zeros(np.shape(log_probs), np.float64)
  for row in range(rows):
    for p in range(slots):
      if not pair_mask[row, p]:
        continue
      ratio = policy[row, p] - reference[row, p]
      margin = beta * (ratio[0] - ratio[1])
      loss -= log_sigmoid(margin) / pairs
      slope = -beta * sigmoid(-margin) / pairs
      for i in range(gradient.shape[1]):
        if loss_mask[row, i] and segment_ids[row, i] == 2 * p + 1:
          gradient[row, i] = slope
        if loss_mask[row, i] and segment_ids[row, i] == 2 * p + 2:
          gradient[row, i] = -slope
  return {"loss": float(loss), "gradient": gradient}
