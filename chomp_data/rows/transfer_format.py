# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The transfer format of rows, decoded on devices to canonical fields.

Most fields of a row are patterns of a few bits per position. A row is one array
of 16-bit words of fixed length: tokens as in the store, patterns as bits, and
values per row as numbers.

    bits of each kind | numbers, 2 words each | tokens | weights, 2 words each

`Writer` uses NumPy; `decode` takes an array namespace, NumPy's or JAX's, and
returns the same bits with either.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import numpy as np

from chomp_data.index import ragged
from chomp_data.rows import aligned
from chomp_data.rows import row_layout
from chomp_data.rows.spans import Spans

# Bits of a word, and the largest value of a word.
_BITS = 16
_MAX_WORD = 2**_BITS - 1

# Numbers of a row: its source, and flags. Flag 1: the row is part of the run;
# flag 2: its positions restart with each segment.
_SOURCE, _FLAGS = "source_id", "flags"
_OF_RUN, _RESTARTS = 1, 2


@dataclasses.dataclass(frozen=True)
class TransferFormat:
  """The transfer format of the rows of one static shape.

  Attributes:
    seq_len: Positions of a row.
    wide: Whether tokens need 32 bits.
    restarts: Whether positions may restart with each segment.
    masks_spans: Whether spans may be masked.
    extra: The optional fields: 'attention_mask', 'next_token', 'loss_weight',
      'label_weight'.
    document_slots: Documents of `document_id`; 0 if there is no such field.
    mixed: Whether the row layout differs by source.
  """

  seq_len: int
  wide: bool = False
  restarts: bool = False
  masks_spans: bool = False
  extra: frozenset[str] = frozenset()
  document_slots: int = 0
  mixed: bool = False

  @property
  def bits(self) -> tuple[str, ...]:
    """Kinds of bits, each one bit per position.

    'opens': a segment begins; 'segment': the segment id is not 0; 'inside': in
    a segment, also a masked one; 'trained': `loss_mask`; 'real':
    `attention_mask`.
    """
    names = ["opens", "segment", "trained"]
    if self.masks_spans and self.restarts:
      names.append("inside")
    if "attention_mask" in self.extra:
      names.append("real")
    return tuple(names)

  @property
  def numbers(self) -> tuple[str, ...]:
    """The numbers of a row; documents come after them."""
    ahead = ("next_token", "next_weight") * ("next_token" in self.extra)
    return (_SOURCE, _FLAGS, *ahead)

  @property
  def weighs(self) -> bool:
    """Whether rows have the weights of tokens as targets."""
    return not self.extra.isdisjoint(("loss_weight", "label_weight"))

  def place_of(self, bits: str) -> slice:
    """Returns the words of a kind of bits."""
    words = -(-self.seq_len // _BITS)
    first_word = self.bits.index(bits) * words
    return slice(first_word, first_word + words)

  @property
  def first_number(self) -> int:
    """Words of a row before its numbers."""
    return len(self.bits) * -(-self.seq_len // _BITS)

  @property
  def head(self) -> int:
    """Words of a row before those by column."""
    return self.first_number + 2 * (len(self.numbers) + self.document_slots)

  @property
  def widths(self) -> tuple[int, ...]:
    """Words per column of each part by column."""
    return (1 + self.wide, *(2,) * self.weighs)

  @property
  def words(self) -> int:
    """Words of a row."""
    return self.head + self.seq_len * sum(self.widths)


def is_wide(ids: list[int | None]) -> bool:
  """Returns whether some token ids do not fit in 16 bits."""
  return any(i is not None and not 0 <= i <= _MAX_WORD for i in ids)


class Writer:
  """Writes rows in the transfer format.

  Attributes:
    rows: uint16[num_rows, row_format.words]. Never reused, because JAX may
      alias its buffer.
  """

  def __init__(self, row_format: TransferFormat, num_rows: int):
    """Allocates uninitialised rows."""
    self._format = row_format
    self.rows: np.ndarray = aligned.empty(
      (num_rows, row_format.words), np.uint16
    )

  def patterns(self, spans: Spans, trailing: bool) -> None:
    """Writes the bits of spans.

    Args:
      spans: The plan of the rows.
      trailing: Whether padding right of a row's last span is in its segment.

    Raises:
      ValueError: If segments are not numbered consecutively.
    """
    row_format = self._format
    for name, grid in _patterns(spans, trailing, row_format).items():
      self.rows[:, row_format.place_of(name)] = _packed(grid)

  def labels(self, trained: np.ndarray) -> None:
    """Clears the bits of targets that `trained` does not mark.

    Args:
      trained: bool[num_rows, seq_len], by position of the target token.
    """
    after = np.ones(trained.shape, np.bool_)
    after[:, :-1] = trained[:, 1:]
    self.rows[:, self._format.place_of("trained")] &= _packed(after)

  def following(self, token: np.ndarray, weight: np.ndarray) -> None:
    """Writes the token after the last column, and its weight.

    Args:
      token: int32[num_rows].
      weight: float32[num_rows], its weight as a target; 0 if it is not trained
        on, or there is none.
    """
    self.numbers(next_token=token, next_weight=weight)
    word, bit = divmod(self._format.seq_len - 1, _BITS)
    word += self._format.place_of("trained").start
    self.rows[:, word] |= (weight > 0).astype(np.uint16) << np.uint16(bit)

  def numbers(self, **values: np.ndarray) -> None:
    """Writes numbers of rows, int32 or float32[num_rows]."""
    for name, column in values.items():
      place = self._format.first_number + 2 * self._format.numbers.index(name)
      self.rows[:, place : place + 2] = _words(column)

  def of_run(self, source: np.ndarray, restarts: bool) -> None:
    """Writes the source and the flags of rows of the run.

    Args:
      source: int32[num_rows], `source_id`.
      restarts: Whether positions restart with each segment.
    """
    flags = np.full(len(source), _OF_RUN + _RESTARTS * restarts, np.int32)
    self.numbers(**{_SOURCE: source, _FLAGS: flags})

  def documents(self, documents: np.ndarray) -> None:
    """Writes `document_id`, int[num_rows, document_slots]."""
    words = _words(documents.astype(np.int32))
    self.rows[:, self._format.head - words.shape[1] : self._format.head] = words

  def tokens(self, tokens: np.ndarray) -> None:
    """Writes tokens, int32[num_rows, seq_len]."""
    first_word, count = self._format.head, self._format.seq_len
    if self._format.wide:
      self.rows[:, first_word : first_word + 2 * count] = _words(tokens)
    else:
      # Ids that fit in 16 bits are narrowed by the copy.
      words = self.rows[:, first_word : first_word + count]
      np.copyto(words, tokens, casting="unsafe")

  def weights(self, weight: np.ndarray) -> None:
    """Writes weights of tokens as targets, float32[num_rows, seq_len]."""
    self.rows[:, self._format.words - 2 * self._format.seq_len :] = _words(
      weight
    )


def _patterns(
  spans: Spans, trailing: bool, row_format: TransferFormat
) -> dict[str, np.ndarray]:
  """Returns the bits of spans, bool[num_rows, seq_len] by name."""
  seq_len, size = row_format.seq_len, spans.num_rows * row_format.seq_len
  row, begin = spans.row, spans.row * seq_len + spans.column
  end = begin + spans.length
  new_row, is_last = ragged.run_edges(row)
  opening, _ = ragged.run_edges(row, spans.segment)
  expected = np.cumsum(opening)
  if len(spans):
    first_of_row = np.flatnonzero(new_row)
    expected -= np.repeat(
      expected[first_of_row] - 1, np.diff(first_of_row, append=len(spans))
    )
  if not np.array_equal(expected, spans.segment):
    _refuse(spans, int(np.flatnonzero(expected != spans.segment)[0]))
  segment_end = np.where(is_last & trailing, (row + 1) * seq_len, end)
  opens = np.zeros(size, np.bool_)
  opens[begin[opening]] = True
  bits = {
    "opens": opens,
    "inside": row_layout.covered(begin, segment_end, size),
  }
  bits["segment"] = bits["inside"]
  if spans.masked is not None:
    live = np.flatnonzero(~spans.masked)
    begin, end, segment_end = begin[live], end[live], segment_end[live]
    bits["segment"] = row_layout.covered(begin, segment_end, size)
  if "real" in row_format.bits:
    bits["real"] = row_layout.covered(begin, end, size)
  bits["trained"] = row_layout.targets(spans, begin, end, size)
  shape = (spans.num_rows, seq_len)
  return {name: bits[name].reshape(shape) for name in row_format.bits}


def _refuse(spans: Spans, wrong: int) -> None:
  """Raises ValueError for a span whose segment is not the next number."""
  raise ValueError(
    "`segment` must count the segments of a row, 1, 2, 3, ..., for"
    f" `device_fields`, got {spans.segment[wrong]} at column"
    f" {spans.column[wrong]}. Number them so, or set"
    " config.data.device_fields to 'never'."
  )


def _packed(grid: np.ndarray) -> np.ndarray:
  """Returns bool[R, S] as bits of words, uint16[R, ceil(S / 16)]."""
  packed = np.packbits(grid, axis=1, bitorder="little")
  if packed.shape[1] % 2:
    packed = np.pad(packed, ((0, 0), (0, 1)))
  return packed.view("<u2")


def window(
  row_format: TransferFormat, rows: np.ndarray, start: int, width: int
) -> np.ndarray:
  """Returns rows in the transfer format with tokens of some columns only.

  Args:
    row_format: The format of the rows.
    rows: uint16[R, row_format.words].
    start: The first column.
    width: The number of columns.
  """
  parts, place = [rows[:, : row_format.head]], row_format.head
  for words in row_format.widths:
    first_word = place + words * start
    parts.append(rows[:, first_word : first_word + words * width])
    place += words * row_format.seq_len
  return np.concatenate(parts, axis=1)


@dataclasses.dataclass(frozen=True)
class Namespace:
  """The array functions that `decode` uses.

  Attributes:
    xp: NumPy or jax.numpy.
    running_max: The largest value so far, along the last axis.
    columns: (array, start, width) -> columns start .. start + width - 1.
    integer: The widest integer dtype.
  """

  xp: Any
  running_max: Callable[[Any], Any]
  columns: Callable[[Any, Any, int], Any]
  integer: Any


def decode(
  row_format: TransferFormat, rows: Any, space: Namespace, start: Any = 0
) -> dict[str, Any]:
  """Returns the canonical fields of rows.

  Args:
    row_format: The format of the rows.
    rows: uint16[R, words], all columns of rows or a window of them.
    space: The array functions.
    start: The first column of the window.

  Returns:
    The fields of these rows as read on the host, `source_id`, and
    `document_id` if the format has it. Fields by column are of the window;
    its first and last column are valid only where they are those of the row.
  """
  xp = space.xp
  words = -(-row_format.seq_len // _BITS)
  width = (rows.shape[1] - row_format.head) // sum(row_format.widths)
  column = start + xp.arange(width, dtype=xp.int32)

  def of_window(values: Any) -> Any:
    all_columns = width == values.shape[1]
    return values if all_columns else space.columns(values, start, width)

  grids = {
    name: rows[:, row_format.place_of(name)].astype(xp.int32)
    for name in row_format.bits
  }
  place = (xp.arange(row_format.seq_len, dtype=xp.int32) % _BITS)[None]

  def spread(values: Any) -> Any:
    return xp.repeat(values, _BITS, axis=1)[:, : row_format.seq_len]

  def marked(name: str) -> Any:
    return of_window((spread(grids[name]) >> place) & 1 != 0)

  opens = grids["opens"]
  # The number of segments that begin before each word, and in it up to each
  # position.
  count = xp.bitwise_count(opens).astype(xp.int32)
  before = xp.cumsum(count, axis=1, dtype=xp.int32) - count
  so_far = spread(opens) & ((2 << place) - 1)
  number = spread(before) + xp.bitwise_count(so_far).astype(xp.int32)
  in_segment = marked("segment")
  fields = {
    "segment_ids": xp.where(in_segment, of_window(number), 0),
    "positions": xp.broadcast_to(column, in_segment.shape),
    "loss_mask": marked("trained"),
  }
  numbers = _from_words(xp, rows[:, row_format.first_number : row_format.head])
  of_row = {name: numbers[:, i] for i, name in enumerate(row_format.numbers)}
  if row_format.restarts:
    word_begin = _BITS * xp.arange(words, dtype=xp.int32)
    segment_begin = xp.where(opens > 0, word_begin + _top(xp, opens), 0)
    segment_begin = space.running_max(segment_begin)
    # Of earlier words; segments that begin in a word come from its own bits.
    segment_begin = xp.concatenate(
      [xp.zeros_like(segment_begin[:, :1]), segment_begin[:, :-1]], axis=1
    )
    word_origin = spread(
      xp.broadcast_to(word_begin, segment_begin.shape)
    ) + _top(xp, so_far)
    origin = of_window(xp.where(so_far > 0, word_origin, spread(segment_begin)))
    inside = marked("inside") if "inside" in row_format.bits else in_segment
    begins = inside & (of_row[_FLAGS] & _RESTARTS != 0)[:, None]
    fields["positions"] = column - xp.where(begins, origin, 0)
  fields["tokens"] = tokens_of(row_format, rows, xp)
  if "attention_mask" in row_format.extra:
    fields["attention_mask"] = marked("real")
  if "next_token" in row_format.extra:
    fields["next_token"] = of_row["next_token"]
  if row_format.weighs:
    weight = _from_words(xp, rows[:, rows.shape[1] - 2 * width :])
    weight = weight.view(xp.float32)
    if "label_weight" in row_format.extra:
      fields["label_weight"] = weight
    if "loss_weight" in row_format.extra:
      after = xp.zeros_like(weight[:, :1])
      if "next_token" in row_format.extra:
        after = of_row["next_weight"].view(xp.float32)[:, None]
      weight = xp.concatenate([weight[:, 1:], after], axis=1)
      fields["loss_weight"] = weight * fields["loss_mask"]
  fields[_SOURCE] = of_row[_SOURCE]
  if row_format.document_slots:
    documents = numbers[:, len(row_format.numbers) :]
    fields["document_id"] = documents.astype(space.integer)
  return fields


def tokens_of(row_format: TransferFormat, rows: Any, xp: Any) -> Any:
  """Returns the tokens of rows, int32[R, columns]."""
  columns = (rows.shape[1] - row_format.head) // sum(row_format.widths)
  tokens = rows[
    :, row_format.head : row_format.head + row_format.widths[0] * columns
  ]
  return _from_words(xp, tokens) if row_format.wide else tokens.astype(xp.int32)


def of_run(row_format: TransferFormat, rows: Any, xp: Any) -> Any:
  """Returns bool[R], which rows are of the run; padding rows are zeros."""
  place = row_format.first_number + 2 * row_format.numbers.index(_FLAGS)
  return rows[:, place] & xp.uint16(_OF_RUN) != 0


def _words(values: np.ndarray) -> np.ndarray:
  """Returns values of 32 bits as words [R, 2 * N], the low ones first."""
  values = np.ascontiguousarray(values).reshape(len(values), -1)
  return values.view("<u2")


def _from_words(xp: Any, words: Any) -> Any:
  """Returns int32[R, N] of words [R, 2 * N]."""
  low, high = (words[:, i::2].astype(xp.uint32) for i in (0, 1))
  return (low | (high << xp.uint32(_BITS))).astype(xp.int32)


def _top(xp: Any, word: Any) -> Any:
  """Returns the index of the highest set bit of words, -1 for 0."""
  for shift in (1, 2, 4, 8):
    word = word | (word >> shift)
  return xp.bitwise_count(word).astype(xp.int32) - 1
