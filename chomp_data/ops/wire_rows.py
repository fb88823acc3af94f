# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows on their way to devices, and the canonical fields made of them.

Most fields of a row are patterns of few bits a position. So tokens travel as
the store holds them, patterns as bits, and what rows have one of as numbers:
all of a row in one array of 16-bit words, of a width that no row exceeds.

    bits of each kind | numbers, 2 words each | tokens | weights, 2 words each

`Writer` is NumPy's; `decode` is written over an array namespace, NumPy's or
JAX's, and gives the same bits by either.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import numpy as np

from chomp_data.ops import aligned
from chomp_data.ops import row_layout
from chomp_data.ops.spans import Spans

# Bits of a word, and the most that one holds.
_BITS = 16
_MOST = 2**_BITS - 1

# What rows have one number of: the source, whether the row is one of the run
# (1) and its positions begin again with each segment (2).
_SOURCE, _FLAGS = "source_id", "flags"
_OF_RUN, _RESTARTS = 1, 2


@dataclasses.dataclass(frozen=True)
class Wire:
  """How the rows of one static shape travel.

  Attributes:
    seq_len: Positions of a row.
    wide: Whether tokens need 32 bits.
    restarts: Whether positions may begin again with each segment.
    gone: Whether spans may be gone.
    extra: Which optional fields come too: 'attention_mask', 'next_token',
      'loss_weight', 'label_weight'.
    document_slots: Documents of `document_id`; 0 is without it.
    mixed: Whether sources lay their rows out in different ways.
  """

  seq_len: int
  wide: bool = False
  restarts: bool = False
  gone: bool = False
  extra: frozenset[str] = frozenset()
  document_slots: int = 0
  mixed: bool = False

  @property
  def bits(self) -> tuple[str, ...]:
    """Kinds of bits: one each of every position.

    'opens' where a segment begins, 'segment' where its number is not 0,
    'inside' in segments that are gone too, 'trained' as `loss_mask`, 'real'
    as `attention_mask`.
    """
    names = ["opens", "segment", "trained"]
    if self.gone and self.restarts:
      names.append("inside")
    if "attention_mask" in self.extra:
      names.append("real")
    return tuple(names)

  @property
  def numbers(self) -> tuple[str, ...]:
    """What rows have one number of; documents come after them."""
    ahead = ("next_token", "next_weight") * ("next_token" in self.extra)
    return (_SOURCE, _FLAGS, *ahead)

  @property
  def weighs(self) -> bool:
    """Whether what tokens weigh as targets travels with them."""
    return not self.extra.isdisjoint(("loss_weight", "label_weight"))

  def place_of(self, bits: str) -> slice:
    """Returns the words of a kind of bits."""
    words = -(-self.seq_len // _BITS)
    first = self.bits.index(bits) * words
    return slice(first, first + words)

  @property
  def first_number(self) -> int:
    """Words of a row before its numbers."""
    return len(self.bits) * -(-self.seq_len // _BITS)

  @property
  def head(self) -> int:
    """Words of a row before those that go by columns."""
    return self.first_number + 2 * (len(self.numbers) + self.document_slots)

  @property
  def widths(self) -> tuple[int, ...]:
    """Words of a column in each part that goes by columns."""
    return (1 + self.wide, *(2,) * self.weighs)

  @property
  def words(self) -> int:
    """Words of a row."""
    return self.head + self.seq_len * sum(self.widths)


def is_wide(ids: list[int | None]) -> bool:
  """Returns whether some token ids do not fit a word."""
  return any(own is not None and not 0 <= own <= _MOST for own in ids)


class Writer:
  """Rows that are made ready to travel.

  Attributes:
    rows: uint16[num_rows, wire.words], fresh: JAX may alias what it is given.
  """

  def __init__(self, wire: Wire, num_rows: int):
    """Begins with rows of which nothing is written."""
    self._wire = wire
    self.rows: np.ndarray = aligned.empty((num_rows, wire.words), np.uint16)

  def patterns(self, spans: Spans, trailing: bool) -> None:
    """Writes the bits that spans say.

    Args:
      spans: The plan of the rows.
      trailing: Whether filler right of a row's last span is of its segment.

    Raises:
      ValueError: If segments are not numbered one after the other.
    """
    wire = self._wire
    for name, grid in _patterns(spans, trailing, wire).items():
      self.rows[:, wire.place_of(name)] = _packed(grid)

  def labels(self, trained: np.ndarray) -> None:
    """Leaves out targets, bool[num_rows, seq_len], that are not trained on."""
    after = np.ones(trained.shape, np.bool_)
    after[:, :-1] = trained[:, 1:]
    self.rows[:, self._wire.place_of("trained")] &= _packed(after)

  def following(self, token: np.ndarray, weight: np.ndarray) -> None:
    """Writes what follows the last column.

    Args:
      token: int32[num_rows].
      weight: float32[num_rows], what it weighs as a target; 0 is not trained
        on, or nothing.
    """
    self.numbers(next_token=token, next_weight=weight)
    word, bit = divmod(self._wire.seq_len - 1, _BITS)
    word += self._wire.place_of("trained").start
    self.rows[:, word] |= (weight > 0).astype(np.uint16) << np.uint16(bit)

  def numbers(self, **values: np.ndarray) -> None:
    """Writes what rows have one number of, int32 or float32[num_rows]."""
    for name, own in values.items():
      place = self._wire.first_number + 2 * self._wire.numbers.index(name)
      self.rows[:, place : place + 2] = _words(own)

  def of_run(self, source: np.ndarray, restarts: bool) -> None:
    """Writes whose rows they are.

    Args:
      source: int32[num_rows], `source_id`.
      restarts: Whether positions begin again with each segment.
    """
    flags = np.full(len(source), _OF_RUN + _RESTARTS * restarts, np.int32)
    self.numbers(**{_SOURCE: source, _FLAGS: flags})

  def documents(self, documents: np.ndarray) -> None:
    """Writes `document_id`, int[num_rows, document_slots]."""
    words = _words(documents.astype(np.int32))
    self.rows[:, self._wire.head - words.shape[1] : self._wire.head] = words

  def tokens(self, tokens: np.ndarray) -> None:
    """Writes tokens, int32[num_rows, seq_len]."""
    first, count = self._wire.head, self._wire.seq_len
    if self._wire.wide:
      self.rows[:, first : first + 2 * count] = _words(tokens)
    else:
      # Ids that fit are cut as they are copied.
      own = self.rows[:, first : first + count]
      np.copyto(own, tokens, casting="unsafe")

  def weights(self, weight: np.ndarray) -> None:
    """Writes what tokens weigh as targets, float32[num_rows, seq_len]."""
    self.rows[:, self._wire.words - 2 * self._wire.seq_len :] = _words(weight)


def _patterns(
  spans: Spans, trailing: bool, wire: Wire
) -> dict[str, np.ndarray]:
  """Returns the bits of rows that spans say, bool[num_rows, seq_len] each."""
  seq_len, size = wire.seq_len, spans.num_rows * wire.seq_len
  row, begin = spans.row, spans.row * seq_len + spans.column
  end = begin + spans.length
  new_row, last = np.ones((2, len(spans)), np.bool_)
  new_row[1:] = last[:-1] = row[1:] != row[:-1]
  opening = new_row.copy()
  opening[1:] |= spans.segment[1:] != spans.segment[:-1]
  number = np.cumsum(opening)
  if len(spans):
    first = np.flatnonzero(new_row)
    number -= np.repeat(number[first] - 1, np.diff(first, append=len(spans)))
  if not np.array_equal(number, spans.segment):
    _refuse(spans, int(np.flatnonzero(number != spans.segment)[0]))
  segment_end = np.where(last & trailing, (row + 1) * seq_len, end)
  opens = np.zeros(size, np.bool_)
  opens[begin[opening]] = True
  found = {
    "opens": opens,
    "inside": row_layout.covered(begin, segment_end, size),
  }
  found["segment"] = found["inside"]
  if spans.gone is not None:
    live = np.flatnonzero(~spans.gone)
    begin, end, segment_end = begin[live], end[live], segment_end[live]
    found["segment"] = row_layout.covered(begin, segment_end, size)
  if "real" in wire.bits:
    found["real"] = row_layout.covered(begin, end, size)
  # The last position of a span has no next one; the others have.
  found["trained"] = row_layout.covered(begin, end, size, inner=True)
  shape = (spans.num_rows, seq_len)
  return {name: found[name].reshape(shape) for name in wire.bits}


def _refuse(spans: Spans, wrong: int) -> None:
  """Raises ValueError: a span's segment is not the next one."""
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


def window(wire: Wire, rows: np.ndarray, start: int, width: int) -> np.ndarray:
  """Returns rows as they travel with tokens of some columns only.

  Args:
    wire: How rows travel.
    rows: uint16[R, wire.words].
    start: The first column.
    width: How many.
  """
  parts, place = [rows[:, : wire.head]], wire.head
  for own in wire.widths:
    first = place + own * start
    parts.append(rows[:, first : first + own * width])
    place += own * wire.seq_len
  return np.concatenate(parts, axis=1)


@dataclasses.dataclass(frozen=True)
class Namespace:
  """The array functions that fields are made with.

  Attributes:
    xp: NumPy or jax.numpy.
    running_max: The largest value so far, along the last axis.
    columns: Columns start .. start + width - 1 of an array, given it, start
      and width.
    integer: The widest integers that there are.
  """

  xp: Any
  running_max: Callable[[Any], Any]
  columns: Callable[[Any, Any, int], Any]
  integer: Any


NUMPY = Namespace(
  np,
  lambda values: np.maximum.accumulate(values, axis=-1),
  lambda values, start, width: values[:, start : start + width],
  np.int64,
)


def decode(
  wire: Wire, rows: Any, space: Namespace, start: Any = 0
) -> dict[str, Any]:
  """Returns the canonical fields of rows.

  Args:
    wire: How rows travel.
    rows: uint16[R, words], all columns of rows or a window of them.
    space: What makes them.
    start: The first column of the window.

  Returns:
    The fields that `RowSource.read` makes of these rows, `source_id`, and
    `document_id` where it travels. Fields by column are of the window; in its
    first and last column only those of a row's own are right.
  """
  xp = space.xp
  words = -(-wire.seq_len // _BITS)
  width = (rows.shape[1] - wire.head) // sum(wire.widths)
  column = start + xp.arange(width, dtype=xp.int32)

  def of_window(values: Any) -> Any:
    whole = width == values.shape[1]
    return values if whole else space.columns(values, start, width)

  grids = {
    name: rows[:, wire.place_of(name)].astype(xp.int32) for name in wire.bits
  }
  place = (xp.arange(wire.seq_len, dtype=xp.int32) % _BITS)[None]

  def spread(values: Any) -> Any:
    return xp.repeat(values, _BITS, axis=1)[:, : wire.seq_len]

  def marked(name: str) -> Any:
    return of_window((spread(grids[name]) >> place) & 1 != 0)

  opens = grids["opens"]
  # Of each word what was opened before it, and in it up to each position.
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
  numbers = _joined(xp, rows[:, wire.first_number : wire.head])
  of_row = {name: numbers[:, i] for i, name in enumerate(wire.numbers)}
  if wire.restarts:
    first = _BITS * xp.arange(words, dtype=xp.int32)
    last = xp.where(opens > 0, first + _top(xp, opens), 0)
    last = space.running_max(last)
    # That of the words before: those of a word itself come from its bits.
    last = xp.concatenate([xp.zeros_like(last[:, :1]), last[:, :-1]], axis=1)
    own = spread(xp.broadcast_to(first, last.shape)) + _top(xp, so_far)
    origin = of_window(xp.where(so_far > 0, own, spread(last)))
    inside = marked("inside") if "inside" in wire.bits else in_segment
    begins = inside & (of_row[_FLAGS] & _RESTARTS != 0)[:, None]
    fields["positions"] = column - xp.where(begins, origin, 0)
  fields["tokens"] = tokens_of(wire, rows, xp)
  if "attention_mask" in wire.extra:
    fields["attention_mask"] = marked("real")
  if "next_token" in wire.extra:
    fields["next_token"] = of_row["next_token"]
  if wire.weighs:
    weight = _joined(xp, rows[:, rows.shape[1] - 2 * width :])
    weight = weight.view(xp.float32)
    if "label_weight" in wire.extra:
      fields["label_weight"] = weight
    if "loss_weight" in wire.extra:
      after = xp.zeros_like(weight[:, :1])
      if "next_token" in wire.extra:
        after = of_row["next_weight"].view(xp.float32)[:, None]
      weight = xp.concatenate([weight[:, 1:], after], axis=1)
      fields["loss_weight"] = weight * fields["loss_mask"]
  fields[_SOURCE] = of_row[_SOURCE]
  if wire.document_slots:
    documents = numbers[:, len(wire.numbers) :]
    fields["document_id"] = documents.astype(space.integer)
  return fields


def tokens_of(wire: Wire, rows: Any, xp: Any) -> Any:
  """Returns the tokens of rows, int32[R, columns]; see `decode`."""
  columns = (rows.shape[1] - wire.head) // sum(wire.widths)
  tokens = rows[:, wire.head : wire.head + wire.widths[0] * columns]
  return _joined(xp, tokens) if wire.wide else tokens.astype(xp.int32)


def of_run(wire: Wire, rows: Any, xp: Any) -> Any:
  """Returns bool[R]: which rows are of the run, and not of zeros."""
  place = wire.first_number + 2 * wire.numbers.index(_FLAGS)
  return rows[:, place] & xp.uint16(_OF_RUN) != 0


def _words(values: np.ndarray) -> np.ndarray:
  """Returns values of 32 bits as words [R, 2 * N], the low ones first."""
  values = np.ascontiguousarray(values).reshape(len(values), -1)
  return values.view("<u2")


def _joined(xp: Any, words: Any) -> Any:
  """Returns int32[R, N] of words [R, 2 * N]."""
  low, high = (words[:, i::2].astype(xp.uint32) for i in (0, 1))
  return (low | (high << xp.uint32(_BITS))).astype(xp.int32)


def _top(xp: Any, word: Any) -> Any:
  """Returns the place of the highest bit of words, -1 where there is none."""
  for shift in (1, 2, 4, 8):
    word = word | (word >> shift)
  return xp.bitwise_count(word).astype(xp.int32) - 1
