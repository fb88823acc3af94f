# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated epochs: a slow reference, written from the definition only.

The definition: each source is restricted to documents taken in the order of
hash(source, document) until they hold t / T of its tokens (T = target_tokens,
t = run_tokens), so that a run of t tokens repeats every source as often as a
run of T tokens would. A smaller t / T selects a subset. The selection is one
hash threshold and is made before packing. A source left with less than one row
is an error that gives the smallest valid t.

Everything is exact: Python integers and `Fraction`, no floats. Hash values,
the packing and the order of ties are arguments.

Open points of the definition, and what is done here:

1. "until they hold t / T": the document that crosses the share is taken, so
   the selection holds at least t / T and less than t / T plus one document.
2. Equal hashes: "one hash threshold" cannot separate them, so all documents
   at or below the last taken hash are selected.
3. Documents without tokens are selected iff the threshold covers them. At
   t = T, empty documents after the last document with tokens are therefore
   NOT selected, though "everything" could be meant. A source without any
   token selects nothing.
4. With a split, "its tokens" are those of the split: its documents alone are
   given.
5. Whether token counts include added BOS and EOS, what a packer drops
   (`long_documents`) or a tombstone removes: give the counts that are meant.
   The bound below assumes that a pass takes exactly the given counts.
6. The hash has no seed in the definition, and "source" may be a name or a
   store; hash values are arguments, so nothing is assumed.
7. "A run of t tokens": tokens that rows hold without filler. It ends with the
   step that reaches t.
8. "Less than one row": fewer than seq_len selected tokens.
9. "The numbers of passes agree to within the longest document and one row per
   source" has no unit. See `agreement`, which returns a bound that is proved
   there. The literal one, in tokens of the selected source, can fail where a
   source is passed over more than once, because the extra tokens of the
   crossing document are then met in every pass.
10. Sources repeat for ever here; exhaustion policies and changes of weights
    (stages) are not modelled.
"""

from fractions import Fraction


def check_tokens(target_tokens, run_tokens):
  """Raises ValueError unless 1 <= run_tokens <= target_tokens."""
  if not 1 <= run_tokens <= target_tokens:
    raise ValueError("run_tokens must be in 1 .. target_tokens")


def select_documents(token_counts, hashes, target_tokens, run_tokens):
  """Which documents of one source are selected.

  Args:
    token_counts: N ints, tokens of each document.
    hashes: N ints, hash(source, document) of each document.
    target_tokens: int T.
    run_tokens: int t, 1 <= t <= T.

  Returns:
    list of N bools, True for selected documents.
  """
  check_tokens(target_tokens, run_tokens)
  counts = [int(count) for count in token_counts]
  hashes = [int(value) for value in hashes]
  if len(counts) != len(hashes):
    raise ValueError("one hash for each document is needed")
  # held / total >= t / T, without division.
  wanted = run_tokens * sum(counts)
  held = 0
  threshold = None
  for d in sorted(range(len(counts)), key=lambda d: hashes[d]):
    if held * target_tokens >= wanted:
      break
    threshold = hashes[d]
    held += counts[d]
  return [threshold is not None and value <= threshold for value in hashes]


def hash_threshold(hashes, selected):
  """The largest hash of a selected document (int), None if none is selected.

  The selection is exactly the documents whose hash is at most this number.
  """
  found = [int(hashes[d]) for d in range(len(selected)) if selected[d]]
  return max(found) if found else None


def agreement(
  result, token_counts, target_tokens, run_tokens, longest_row, *, batch_rows=1
):
  """How closely the numbers of passes of two runs agree, with a bound.

  The bound (for distinct hashes, and passes that take exactly the given token
  counts). With weights w that sum to 1 and r_j the longest row of source j, a
  merge by least consumed that has taken V tokens in all has taken c_i of
  source i, where

      w_i V - sum of r_j over j != i  <=  c_i  <=  w_i V + r_i.

  V itself is at least the length of the run and exceeds it by less than
  batch_rows longest rows. So c_i is within E = sum_j r_j + batch_rows max_j
  r_j of w_i times the length. The selection holds n' = n t / T + x tokens,
  0 <= x < longest document. Then for passes c / n and c' / n':

      |c' - c n' / n| <= E + E t / T + (c / n) longest document,

  which is the difference in passes times n', in tokens.

  Args:
    result: dict: "selected" (for each source, list of bools), "full" and
      "simulated" (dicts with "passes", a Fraction per source).
    token_counts: for each source, a list of ints (tokens of documents).
    target_tokens, run_tokens: int T and t.
    longest_row: for each source, the most tokens that a row holds (int).
    batch_rows: rows of a step.

  Returns:
    list of a dict per source: "difference_tokens" (Fraction: difference in
    passes times selected tokens), "proved_bound" (Fraction, in tokens).
  """
  error = sum(longest_row) + batch_rows * max(longest_row)
  answer = []
  for s in range(len(token_counts)):
    counts = [int(n) for n in token_counts[s]]
    longest = max(counts)
    held = sum(
      counts[d] for d in range(len(counts)) if result["selected"][s][d]
    )
    full = result["full"]["passes"][s]
    simulated = result["simulated"]["passes"][s]
    answer.append(
      {
        "difference_tokens": abs(simulated - full) * held,
        "proved_bound": (
          error + Fraction(error * run_tokens, target_tokens) + full * longest
        ),
      }
    )
  return answer


def is_valid(token_counts, hashes, target_tokens, run_tokens, seq_len):
  """True iff every source keeps at least one row.

  Args:
    token_counts, hashes: for each source, lists of ints.
    target_tokens, run_tokens: int T and t.
    seq_len: int, tokens of a row.
  """
  for counts, own_hashes in zip(token_counts, hashes, strict=True):
    mask = select_documents(counts, own_hashes, target_tokens, run_tokens)
    if sum(int(counts[d]) for d in range(len(mask)) if mask[d]) < seq_len:
      return False
  return True


def smallest_run_tokens(token_counts, hashes, target_tokens, seq_len):
  """The smallest valid t (int); None if none is valid.

  A selection changes only next to t = T * (tokens of a prefix, in the order
  of hashes) / (all tokens), so only such t and t = 1 are tried, in order.
  """
  candidates = {1, target_tokens}
  for s in range(len(token_counts)):
    counts = [int(n) for n in token_counts[s]]
    total = sum(counts)
    held = 0
    for d in sorted(range(len(counts)), key=lambda d: (int(hashes[s][d]), d)):
      held += counts[d]
      if total:
        near = held * target_tokens // total
        candidates.update([near - 1, near, near + 1, near + 2])
  for t in sorted(candidates):
    if 1 <= t <= target_tokens and is_valid(
      token_counts, hashes, target_tokens, t, seq_len
    ):
      return t
  return None
