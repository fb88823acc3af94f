"""Options of the packers, sequential and bin (seed 003).

Names are the seed's own where it has them. Lengths are in tokens.
"""

import dataclasses

from chomp_data import schema
from chomp_data.index.pack import packing
from chomp_data.sources import shared_options as options_lib

# Documents of a block: about one chunk of a store of web text.
DEFAULT_BLOCK = 128

DOCUMENT_ORDERS = ("none", "block", "full")
_COUNT = schema.integer(1)
_TOKEN_ID = schema.optional(schema.integer(0, 2**32 - 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackingOptions(options_lib.FillerOptions):
  """What both packers share.

  Attributes:
    add_bos: Whether each document gets a BOS first; refused where the store
      has them.
    add_eos: Whether each document gets an EOS last; refused likewise.
    bos_token_id: Overrides the tokenizer's.
    trailing_filler_in_segment: Filler of packed rows is in no segment.
    reset_positions: Whether positions restart at each document's first column.
    shuffle_documents: 'none' packs documents as they are stored, 'block'
      moves blocks of documents and shuffles them by windows, 'full' permutes
      them all, which costs a pass over all lengths.
    reshuffle_documents: Whether each epoch has an order of its own.
    document_block: Documents of a block that moves as one, or None for about
      128.
    document_slots: Most documents of a row that `document_id` names.
  """

  add_bos: bool = schema.option(False, schema.boolean())
  add_eos: bool = schema.option(False, schema.boolean())
  bos_token_id: int | None = schema.option(None, _TOKEN_ID)
  trailing_filler_in_segment: bool = schema.option(False, schema.boolean())
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
    tail: What becomes of the tokens after the last whole row of an epoch:
      'pad' keeps them in a row with filler, 'drop' leaves them out.
  """

  tail: str = schema.option("pad", schema.choice(("pad", "drop")))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinOptions(PackingOptions):
  """`rows.kind='bin'`: whole documents packed into rows by windows.

  Attributes:
    packing_algorithm: 'ffd' is First-Fit-Decreasing and cuts no document that
      fits a row; 'exact' gives each window exactly ceil(tokens / seq_len)
      rows and cuts the few documents that then fit nowhere.
    packing_buffer_docs: Documents packed together, a window.
    packing_max_docs_per_bin: Most documents of a row, or None; only with
      'ffd'.
    long_documents: What becomes of documents longer than a row: 'cut' into
      rows and a rest, 'truncate' to one row, or 'drop'.
    shuffle_rows: Whether a window's rows are in a seeded order, new in every
      epoch; First-Fit-Decreasing leaves them longest document first.
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

  def problems(self, path: str, seq_len: int) -> list[str]:
    """Returns what is wrong between these fields."""
    found = super().problems(path, seq_len)
    if (
      self.packing_algorithm == "exact"
      and self.packing_max_docs_per_bin is not None
    ):
      found.append(
        f"`{path}.packing_max_docs_per_bin` must be None with"
        " packing_algorithm 'exact', got"
        f" {self.packing_max_docs_per_bin}: a number of rows that is fixed by"
        " tokens cannot also bound documents. Unset it, or use 'ffd'."
      )
    block, window = self.document_block, self.packing_buffer_docs
    if block is not None and window % block:
      found.append(
        f"`{path}.document_block` must divide packing_buffer_docs, got"
        f" {block} and {window}. Change one, or unset document_block."
      )
    return found

  def window_block(self) -> int:
    """Returns the documents of a block, a divisor of the window."""
    window = self.packing_buffer_docs
    if self.document_block is not None:
      return self.document_block
    block = next(d for d in range(DEFAULT_BLOCK, 0, -1) if window % d == 0)
    # Sums over tiny blocks cost memory: such windows move whole.
    return block if block >= DEFAULT_BLOCK // 8 else window
