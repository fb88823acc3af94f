# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Fill in the middle: some packed documents are rearranged.

A piece of a document is cut in two places, and its middle comes last, so that a
model learns to predict it from both sides. Three sentinels mark the parts:

    in order                BOS p p p m m s s s EOS _ _ _
    prefix first (PSM)      BOS PRE p p p SUF s s s MID m m EOS
    suffix first (SPM)      BOS PRE SUF s s s MID p p p m m EOS

Every piece reserves positions for them (_ is padding), so that one packing
serves all epochs. What becomes of a piece is a hash of the seed, document,
piece and epoch.

Sources: M. Bavarian et al., "Efficient training of language models to fill in
the middle", 2022; Megatron-LM's FIM dataset.
"""

import dataclasses

import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.index import hashing
from chomp_data.pack import documents as documents_lib
from chomp_data.rows import row_layout
from chomp_data.rows import spans as spans_lib

# Positions that a piece reserves, one for each sentinel.
RESERVED = 3
# Tokens of a piece, with BOS and EOS; shorter pieces stay in order.
MIN_TOKENS = 4

# The parts that sentinels begin, in the order of their numbers in spans.
PARTS = ("prefix", "suffix", "middle")
_PREFIX, _SUFFIX, _MIDDLE = range(
  spans_lib.SENTINEL, spans_lib.SENTINEL + len(PARTS)
)
_TOKEN_ID = schema.integer(0, 2**31 - 1)
_SHARE = schema.number(0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FimOptions(schema.Options):
  """The section `rows.fim`: documents that are rearranged.

  Attributes:
    rate: Fraction of pieces that are rearranged, among those that contain the
      end of their document: of a document longer than a row the last piece.
    spm_rate: Fraction of rearranged pieces whose suffix is first (SPM); in the
      others the prefix is first (PSM).
    prefix_id: Id of the sentinel before the prefix.
    suffix_id: Id of the sentinel before the suffix.
    middle_id: Id of the sentinel before the middle.
    cut: Where pieces are split: 'token' is between two tokens.
    train_sentinels: Whether sentinels are trained on as labels.
  """

  rate: float = schema.option(0.5, _SHARE)
  spm_rate: float = schema.option(0.5, _SHARE)
  prefix_id: int = schema.required(_TOKEN_ID)
  suffix_id: int = schema.required(_TOKEN_ID)
  middle_id: int = schema.required(_TOKEN_ID)
  cut: str = schema.option("token", schema.choice(("token",)))
  train_sentinels: bool = schema.option(True, schema.boolean())

  @property
  def sentinel_ids(self) -> tuple[int, ...]:
    """Ids of the sentinels of `PARTS`."""
    return self.prefix_id, self.suffix_id, self.middle_id

  def problems(
    self,
    path: str,
    seq_len: int,
    packing_algorithm: str,
    trailing_filler_in_segment: bool,
  ) -> list[str]:
    """Returns what is wrong between these fields and other options of rows."""
    problems = []
    if len(set(self.sentinel_ids)) < RESERVED:
      problems.append(
        f"`{path}.prefix_id`, suffix_id and middle_id must be three different"
        f" ids, got {self.sentinel_ids}. Correct them."
      )
    if packing_algorithm != "ffd":
      problems.append(
        f"`{path}` must be None with packing_algorithm {packing_algorithm!r},"
        f" got {self}: it cuts documents to fill rows, and a piece"
        f" needs {RESERVED} positions more. Unset it, or use 'ffd'."
      )
    if trailing_filler_in_segment:
      problems.append(
        f"`{path.removesuffix('.fim')}.trailing_filler_in_segment` must be"
        f" False with `{path}`, got True: the padding after a piece is in no"
        " segment. Unset it."
      )
    if seq_len < RESERVED + MIN_TOKENS:
      problems.append(
        f"`config.data.seq_len` must be at least {RESERVED + MIN_TOKENS} with"
        f" `{path}`, got {seq_len}: every piece reserves {RESERVED} positions."
        " Raise it."
      )
    return problems


class FillInTheMiddle:
  """Rearranges the pieces of a source."""

  def __init__(
    self,
    options: FimOptions,
    documents: documents_lib.Documents,
    layout: row_layout.RowLayout,
    *,
    key: int,
    path: str,
  ):
    """Checks the options against the store; reads no token.

    Args:
      options: Which pieces are rearranged.
      documents: The packed documents.
      layout: The layout of their rows.
      key: The key of all choices.
      path: Dotted path of the options, for messages.

    Raises:
      ConfigError: If the documents cannot be rearranged.
    """
    problems = _store_problems(options, documents.store, layout, path)
    if problems:
      raise schema.ConfigError(problems)
    self._options = options
    self._documents = documents
    self._key = key
    tokenizer = documents.store.opened.tokenizer
    self._has_bos: bool = tokenizer.adds_bos
    self._has_eos: bool = tokenizer.adds_eos

  def rearranged(
    self, spans: spans_lib.Spans, epoch: np.ndarray
  ) -> spans_lib.Spans:
    """Returns the plan with some of its pieces rearranged.

    Args:
      spans: Pieces in order, each with `RESERVED` positions after it.
      epoch: int64[num_rows], the epoch of each row.
    """
    if not len(spans):
      return spans
    count, _ = spans.stored()
    zero = np.zeros_like(count)
    before, after = (
      zero if added is None else added
      for added in (spans.added_before, spans.added_after)
    )
    # Stored tokens that stay first or last: a BOS, an EOS.
    first, last = self._stored_marks(spans, count)
    choice, form, *cuts = self._draws(spans, epoch)
    cut = (after == spans_lib.EOS) | (last > 0)
    cut &= (spans.length >= MIN_TOKENS) & _below(choice, self._options.rate)
    # Parts are [begin, end) of the piece's stored tokens.
    places = np.maximum(count - first - last, 0) + 1
    low, high = first + np.sort(
      [(draw % places.astype(np.uint64)).astype(np.int64) for draw in cuts],
      axis=0,
    )
    end = count - last
    prefix_end = np.where(_below(form, self._options.spm_rate), first, low)
    # A stored EOS is a part of its own, unless it follows the middle.
    middle_end = np.where(high == end, count, high)
    parts = [
      # begin, end, added before, added after, whether there is such a part
      (zero, np.where(cut, first, count), before, np.where(cut, 0, after),
       ~cut | (before > 0) | (first > 0)),
      (first, prefix_end, zero + _PREFIX, zero, cut),
      (high, end, zero + _SUFFIX, zero, cut),
      (prefix_end, middle_end, zero + _MIDDLE, after, cut),
      (end, count, zero, zero, cut & (last > 0) & (high < end)),
    ]  # fmt: skip
    begin, end, before, after, used = (
      np.stack(values, axis=1) for values in zip(*parts, strict=True)
    )
    length = (end - begin + (before > 0) + (after > 0)) * used
    column = spans.column[:, None] + np.cumsum(length, axis=1) - length
    piece, part = np.nonzero(used)
    offset = begin[piece, part]
    spans = spans.take(piece, spans.row[piece], spans.num_rows)
    return dataclasses.replace(
      spans,
      start=spans.start + offset,
      offset=spans.offset + offset,
      length=length[piece, part],
      column=column[piece, part],
      added_before=before[piece, part].astype(np.int8),
      added_after=after[piece, part].astype(np.int8),
    )

  def _stored_marks(
    self, spans: spans_lib.Spans, count: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns whether pieces hold a BOS and an EOS of the store, int64[N]."""
    first, last = np.zeros((2, len(spans)), np.int64)
    if self._has_bos or self._has_eos:
      begins, ends = self._documents.at_ends(spans.document)
      stored = self._documents.store.bounds(spans.document)[1]
      if self._has_bos:
        first[:] = begins & (spans.start == 0) & (count > 0)
      if self._has_eos:
        last[:] = ends & (spans.start + count == stored) & (count > 0)
    return first, last

  def _draws(
    self, spans: spans_lib.Spans, epoch: np.ndarray
  ) -> list[np.ndarray]:
    """Returns four random numbers per piece, uint64[N] each."""
    keys = hashing.fold(self._key, epoch[spans.row])
    keys = hashing.fold(hashing.fold(keys, spans.document), spans.start)
    return [hashing.fold(keys, np.asarray(draw)) for draw in range(4)]


def parts(spans: spans_lib.Spans) -> list[str | None]:
  """Returns the part of a rearranged document that each span begins, or None.

  It is 'prefix', 'suffix' or 'middle'.
  """
  names: list[str | None] = [None] * len(spans)
  if spans.added_before is not None:
    number = spans.added_before.astype(np.int64) - spans_lib.SENTINEL
    known = (number >= 0) & (number < len(PARTS))
    for i in np.flatnonzero(known).tolist():
      names[i] = PARTS[number[i]]
  return names


def _below(draws: np.ndarray, share: float) -> np.ndarray:
  """Returns which of uint64 random numbers are in the lowest `share`."""
  return (draws >> np.uint64(11)) * 2.0**-53 < share


def _store_problems(
  options: FimOptions,
  store: stores.Store,
  layout: row_layout.RowLayout,
  path: str,
) -> list[str]:
  """Returns why the documents of a store cannot be rearranged."""
  tokenizer, problems = store.opened.tokenizer, []
  special = {
    "padding": layout.filler_id,
    "the BOS": tokenizer.bos_id if layout.bos_id is None else layout.bos_id,
    "the EOS": tokenizer.eos_id if layout.eos_id is None else layout.eos_id,
  }
  for name in ("prefix_id", "suffix_id", "middle_id"):
    value = getattr(options, name)
    rule = None
    if value >= tokenizer.vocab_size:
      rule = f"below the vocabulary size {tokenizer.vocab_size} of {store.path}"
    for other, token_id in special.items():
      if value == token_id:
        rule = f"another id than {other} of rows"
    if rule is not None:
      problems.append(
        schema.bad_value(f"{path}.{name}", rule, value, "Correct it.")
      )
  if layout.eos_id is None and not tokenizer.adds_eos:
    problems.append(
      f"`{path.removesuffix('.fim')}.add_eos` must be True with `{path}`,"
      f" because the documents of {store.path} do not end with an EOS, got"
      " False: a model would not learn where a middle ends. Set it."
    )
  for kind, has in (
    ("preference pairs", store.opened.pairs),
    ("labels or weights", store.labels.has_runs or store.labels.has_weights),
  ):
    if has:
      problems.append(
        f"`{path}` must be None for a store of {kind}, got {store.path}: they"
        " are of tokens in their order. Unset it."
      )
  return problems
