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

1. "until they hold t / T": the document that crosses the share is taken
   (`crossing="include"`), so the selection holds at least t / T and less than
   t / T plus one document. `crossing="exclude"` stops before it.
2. Equal hashes: "one hash threshold" cannot separate them, so all documents
   at or below the last taken hash are selected (`ties="threshold"`).
   `ties="index"` takes equal hashes in order of document number and may take
   only some of them.
3. Documents without tokens are selected iff the threshold covers them. At
   t = T, empty documents after the last document with tokens are therefore
   NOT selected, though "everything" could be meant. A source without any
   token selects nothing.
4. With a split, "its tokens" may be those of the split or of the whole source
   (`share_of="eligible"` or `"all"`); `eligible` marks the split's documents.
5. Whether token counts include added BOS and EOS, what a packer drops
   (`long_documents`) or a tombstone removes: give the counts that are meant.
   The bound below assumes that a pass takes exactly the given counts.
6. The hash has no seed in the definition, and "source" may be a name or a
   store; hash values are arguments, so nothing is assumed.
7. "A run of t tokens": tokens that rows hold without filler (default), or
   positions (`run_cost`). It ends with the row (or with `batch_rows`, the
   step) that reaches t.
8. "Less than one row": fewer than seq_len selected tokens (default). A bin
   packer makes a row of any document, so `enough` can say otherwise.
9. "The numbers of passes agree to within the longest document and one row per
   source" has no unit. See `agreement`: the literal bound in tokens of the
   selected source, and a bound that is proved there, are both returned. The
   literal one can fail where a source is passed over more than once, because
   the extra tokens of the crossing document are then met in every pass.
10. Sources repeat for ever here; exhaustion policies and changes of weights
    (stages) are not modelled.
"""

from fractions import Fraction


def check_tokens(target_tokens, run_tokens):
  """Raises ValueError unless 1 <= run_tokens <= target_tokens."""
  if not 1 <= run_tokens <= target_tokens:
    raise ValueError("run_tokens must be in 1 .. target_tokens")


def select_documents(
  token_counts,
  hashes,
  target_tokens,
  run_tokens,
  *,
  eligible=None,
  share_of="eligible",
  crossing="include",
  ties="threshold",
):
  """Which documents of one source are selected.

  Args:
    token_counts: N ints, tokens of each document.
    hashes: N ints, hash(source, document) of each document.
    target_tokens: int T.
    run_tokens: int t, 1 <= t <= T.
    eligible: None (all), or N bools: documents that the split leaves.
    share_of: "eligible": t / T of the tokens of eligible documents, in their
      order. "all": the threshold is that of the whole source, then the
      documents that are not eligible are taken out.
    crossing: "include" or "exclude" (note 1).
    ties: "threshold" or "index" (note 2).

  Returns:
    list of N bools, True for selected documents.
  """
  check_tokens(target_tokens, run_tokens)
  if share_of not in ("eligible", "all"):
    raise ValueError("share_of")
  if crossing not in ("include", "exclude"):
    raise ValueError("crossing")
  if ties not in ("threshold", "index"):
    raise ValueError("ties")
  counts = [int(count) for count in token_counts]
  hashes = [int(value) for value in hashes]
  if len(counts) != len(hashes):
    raise ValueError("one hash for each document is needed")
  if eligible is None:
    eligible = [True] * len(counts)
  if share_of == "eligible":
    scope = [d for d in range(len(counts)) if eligible[d]]
  else:
    scope = list(range(len(counts)))

  total = sum(counts[d] for d in scope)
  # held / total >= t / T, without division.
  wanted = run_tokens * total
  held = 0
  taken = []
  for d in sorted(scope, key=lambda d: (hashes[d], d)):
    if held * target_tokens >= wanted:
      break
    if crossing == "exclude" and (held + counts[d]) * target_tokens > wanted:
      break
    taken.append(d)
    held += counts[d]

  selected = [False] * len(counts)
  for d in taken:
    selected[d] = True
  if ties == "threshold" and taken:
    threshold = hashes[taken[-1]]
    for d in scope:
      if hashes[d] <= threshold:
        selected[d] = True
  for d in range(len(counts)):
    if not eligible[d]:
      selected[d] = False
  return selected


def hash_threshold(hashes, selected):
  """The largest hash of a selected document (int), None if none is selected.

  With `ties="threshold"`, `share_of="eligible"` and no split, the selection is
  exactly the documents whose hash is at most this number.
  """
  found = [int(hashes[d]) for d in range(len(selected)) if selected[d]]
  return max(found) if found else None


def agreement(
  result, token_counts, target_tokens, run_tokens, longest_row, *, batch_rows=1
):
  """How closely the numbers of passes of two runs agree, with bounds.

  The proved bound (for unit="tokens", run_cost=None, crossing="include",
  distinct hashes, and passes that take exactly the given token counts). With
  weights w that sum to 1 and r_j the longest row of source j, a merge by least
  consumed that has taken V tokens in all has taken c_i of source i, where

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
    list of a dict per source: "full", "simulated", "difference" (Fractions,
    in passes), "selected_tokens" (int), "difference_tokens" (Fraction:
    difference times selected tokens), "literal_bound" (int, in tokens: longest
    document + one row of every source), "proved_bound" (Fraction, in tokens).
  """
  rows = sum(longest_row)
  error = rows + batch_rows * max(longest_row)
  answer = []
  for s in range(len(token_counts)):
    counts = [int(n) for n in token_counts[s]]
    longest = max(counts)
    held = sum(
      counts[d] for d in range(len(counts)) if result["selected"][s][d]
    )
    full = result["full"]["passes"][s]
    simulated = result["simulated"]["passes"][s]
    difference = abs(simulated - full)
    answer.append(
      {
        "full": full,
        "simulated": simulated,
        "difference": difference,
        "selected_tokens": held,
        "difference_tokens": difference * held,
        "literal_bound": longest + rows,
        "proved_bound": (
          error + Fraction(error * run_tokens, target_tokens) + full * longest
        ),
      }
    )
  return answer


def is_valid(
  token_counts,
  hashes,
  target_tokens,
  run_tokens,
  seq_len,
  *,
  enough=None,
  select=None,
):
  """True iff every source keeps at least one row.

  Args:
    token_counts, hashes: for each source, lists of ints.
    target_tokens, run_tokens: int T and t.
    seq_len: int, tokens of a row.
    enough: function (source, list of selected document numbers) -> bool. None:
      their tokens are at least seq_len.
    select: dict of keyword arguments of `select_documents`, or None.
  """
  for s in range(len(token_counts)):
    mask = select_documents(
      token_counts[s], hashes[s], target_tokens, run_tokens, **(select or {})
    )
    documents = [d for d in range(len(mask)) if mask[d]]
    if enough is None:
      good = sum(int(token_counts[s][d]) for d in documents) >= seq_len
    else:
      good = enough(s, documents)
    if not good:
      return False
  return True


def smallest_run_tokens(
  token_counts, hashes, target_tokens, seq_len, *, enough=None, select=None
):
  """The smallest valid t (int); None if none is valid.

  A selection changes only next to t = T * (tokens of a prefix, in the order
  of hashes) / (all tokens), so only such t and t = 1 are tried, in order.
  `select` must not name `eligible` here (leave these documents out instead).
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
      token_counts,
      hashes,
      target_tokens,
      t,
      seq_len,
      enough=enough,
      select=select,
    ):
      return t
  return None
