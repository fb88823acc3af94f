# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options of the sequential and the bin packer. Lengths are in tokens."""

import dataclasses

from chomp_data import schema
from chomp_data.pack import fill_in_the_middle
from chomp_data.pack import packing
from chomp_data.sources import shared_options as options_lib

# Documents of a block: about one chunk of a store of web text.
DEFAULT_BLOCK = 128

DOCUMENT_ORDERS = ("none", "block", "full")
_COUNT = schema.integer(1)
_TOKEN_ID = schema.optional(schema.integer(0, 2**32 - 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddedTokenOptions(options_lib.FillerOptions):
  """Tokens that are added to the documents of a row.

  Attributes:
    add_bos: Whether to add a begin-of-document token before each document; an
      error if the stored documents already have one.
    add_eos: Whether to add an end-of-document token after each document; an
      error if the stored documents already have one, or if it is False and
      nothing else ends the last answers of chats.
    bos_token_id: Id of the begin-of-document token; None uses the tokenizer's.
  """

  add_bos: bool = schema.option(False, schema.boolean())
  add_eos: bool = schema.option(False, schema.boolean())
  bos_token_id: int | None = schema.option(None, _TOKEN_ID)
  trailing_filler_in_segment: bool = schema.option(False, schema.boolean())


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackingOptions(AddedTokenOptions):
  """Options that both packers have.

  Attributes:
    reset_positions: Whether positions restart from 0 at each document.
    shuffle_documents: The order in which documents are packed: 'none' as
      stored, 'block' permuted in blocks of neighbours, 'full' permuted over the
      whole store, which costs a pass over all lengths.
    reshuffle_documents: Whether `shuffle_documents` uses a new order in each
      epoch.
    document_block: Documents per block of `shuffle_documents='block'`; None is
      about 128.
    document_slots: Most documents of a row that `document_id` holds.
  """

  reset_positions: bool = schema.option(True, schema.boolean())
  shuffle_documents: str = schema.option("none", schema.choice(DOCUMENT_ORDERS))
  reshuffle_documents: bool = schema.option(True, schema.boolean())
  document_block: int | None = schema.option(None, schema.optional(_COUNT))
  document_slots: int = schema.option(64, schema.integer(1, 2**20))

  @property
  def orders_differ(self) -> bool:
    """Whether epochs pack documents in different orders."""
    return self.shuffle_documents != "none" and self.reshuffle_documents

  def problems(self, path: str, seq_len: int) -> list[str]:
    """Returns what is wrong between these fields."""
    del path, seq_len
    return []


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequentialOptions(PackingOptions):
  """`rows.kind='sequential'`: one stream of tokens, cut every seq_len.

  Attributes:
    tail: What happens to the tokens after the last full row of an epoch: 'pad'
      puts them in a padded row, 'drop' leaves them out.
  """

  tail: str = schema.option("pad", schema.choice(("pad", "drop")))

  @property
  def in_stored_order(self) -> bool:
    """Whether rows hold the store's tokens one after the other."""
    return self.shuffle_documents == "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinOptions(PackingOptions):
  """`rows.kind='bin'`: whole documents packed into rows by windows.

  Attributes:
    packing_algorithm: How documents share rows: 'ffd' (first-fit decreasing)
      never cuts a document that fits in a row; 'exact' makes the fewest rows,
      ceil(tokens / seq_len) per window, and cuts the few documents that do not
      fit.
    packing_buffer_docs: Documents per packing window, which are packed
      together.
    packing_max_docs_per_bin: Most documents per row; None sets no limit, and
      'exact' requires None.
    long_documents: What happens to documents longer than a row: 'cut' into
      full rows and a remainder, 'truncate' to one row, or 'drop'.
    shuffle_rows: Whether the rows of a window are in random order, new in each
      epoch; otherwise rows with the longest documents are first.
    pair_slots: Most preference pairs per row, and the width of `pair_mask`.
    long_pairs: What happens to preference pairs longer than a row: 'drop', or
      'truncate_prompt', which removes the start of the prompt, equally in both
      halves, and drops pairs whose prompt is too short.
    fim: Which documents are rearranged for fill-in-the-middle, a section; None
      is none.
  """

  packing_algorithm: str = schema.option("ffd", schema.choice(("ffd", "exact")))
  packing_buffer_docs: int = schema.option(5_120, schema.integer(1, 2**31 - 1))
  packing_max_docs_per_bin: int | None = schema.option(
    None, schema.optional(_COUNT)
  )
  long_documents: str = schema.option(
    "cut", schema.choice(packing.LONG_POLICIES)
  )
  shuffle_rows: bool = schema.option(True, schema.boolean())
  pair_slots: int = schema.option(64, schema.integer(1, 2**16))
  long_pairs: str = schema.option(
    "drop", schema.choice(("drop", "truncate_prompt"))
  )
  fim: fill_in_the_middle.FimOptions | None = schema.nested(  # noqa: RUF009 (a section)
    fill_in_the_middle.FimOptions
  )

  @property
  def reserved(self) -> int:
    """Positions that each piece has after its tokens."""
    return 0 if self.fim is None else fill_in_the_middle.RESERVED

  def problems(self, path: str, seq_len: int) -> list[str]:
    """Returns what is wrong between these fields."""
    problems = super().problems(path, seq_len)
    if (
      self.packing_algorithm == "exact"
      and self.packing_max_docs_per_bin is not None
    ):
      problems.append(
        f"`{path}.packing_max_docs_per_bin` must be None with"
        " packing_algorithm 'exact', got"
        f" {self.packing_max_docs_per_bin}: a number of rows that is fixed by"
        " tokens cannot also bound documents. Unset it, or use 'ffd'."
      )
    block, window = self.document_block, self.packing_buffer_docs
    if block is not None and window % block:
      problems.append(
        f"`{path}.document_block` must divide packing_buffer_docs, got"
        f" {block} and {window}. Change one, or unset document_block."
      )
    if self.fim is not None:
      problems += self.fim.problems(
        f"{path}.fim",
        seq_len,
        self.packing_algorithm,
        self.trailing_filler_in_segment,
      )
    return problems

  def window_block(self) -> int:
    """Returns the number of documents of a block, a divisor of the window."""
    window = self.packing_buffer_docs
    if self.document_block is not None:
      return self.document_block
    block = next(d for d in range(DEFAULT_BLOCK, 0, -1) if window % d == 0)
    # Sums over tiny blocks cost memory: the block is then the whole window.
    return block if block >= DEFAULT_BLOCK // 8 else window
