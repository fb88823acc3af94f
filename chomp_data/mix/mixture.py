# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Several sources as one: rows merged by least consumed (seeds 001, 004).

Position n of the mix is a (source, row) by `mix/interleave.py`; each
source gives its own rows in its own order. The rows of a global batch are
permuted, so that no process always gets rows of the same source; rows of
sources with lanes then go to the parts of the batch that their lanes are for.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import fractions
import itertools
from typing import Any

from absl import logging
import numpy as np

from chomp_data import schema
from chomp_data.index import hashing
from chomp_data.index import integers
from chomp_data.index import permutation
from chomp_data.index import steps as steps_lib
from chomp_data.mix import interleave
from chomp_data.mix import mix_options
from chomp_data.mix import placing
from chomp_data.mix import resuming
from chomp_data.mix.mix_options import MixOptions
from chomp_data.phased import phased_source
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import mix_units
from chomp_data.sources import row_labels
from chomp_data.sources import row_reading
from chomp_data.sources import row_source
from chomp_data.sources import shared_options
from chomp_data.sources import source_units

# Rows of batches that are placed at once.
_PLACED_ROWS = 2**17

# Where a run has no end, rows up to here have numbers.
_ENDLESS = 2**62


@dataclasses.dataclass(frozen=True)
class Consumed:
  """What a run has consumed of a source before a step.

  Attributes:
    rows: Rows, those before the start of the run included.
    units: What they consumed, in the unit that is balanced.
    epochs: Passes over the source, the last one as a fraction.
  """

  rows: int
  units: int
  epochs: float


def _parts(value: Any) -> dict[str, row_source.RowSource]:
  if not isinstance(value, Mapping):
    raise TypeError
  parts = dict(value)
  for name, part in parts.items():
    if not isinstance(name, str):
      raise TypeError
    row_source.SOURCE.convert(part)
  if not parts:
    raise ValueError
  return parts


_PARTS = schema.Rule("a mapping of names to at least one `RowSource`", _parts)


class MixtureSource:
  """Rows of several sources, merged: a Grain `RandomAccessDataSource`.

  `mix[i]` is row i of the merge, which always takes a row of the source that
  is furthest behind its share. A run of `make_iterator` permutes the rows of
  each global batch on top of that: `mix[i]` is before this permutation, so
  batches of consecutive rows hold the rows of a run's batches in another
  order. `plan` gives rows in the order of a run.
  """

  @schema.arguments(
    parts=_PARTS,
    options=schema.options_rule(MixOptions),
    seed=shared_options.SEED,
    global_batch_size=schema.optional(schema.integer(1)),
    epochs=schema.optional(schema.integer(1)),
    steps=schema.optional(schema.instance("`Steps` of a run", steps_lib.Steps)),
    own_weights=schema.optional(schema.mapping()),
    max_epochs=schema.optional(schema.mapping()),
    path=schema.text(),
  )
  def __init__(
    self,
    parts: Mapping[str, row_source.RowSource],
    options: MixOptions,
    *,
    seed: int = 0,
    global_batch_size: int | None = None,
    epochs: int | None = None,
    steps: steps_lib.Steps | None = None,
    own_weights: Mapping[str, float | None] | None = None,
    max_epochs: Mapping[str, int | None] | None = None,
    path: str = "mix",
  ):
    """Merges sources; sums what their units need.

    Args:
      parts: Row sources by name, of one `seq_len`, in their orders.
      options: The mix.
      seed: The run's seed, for ties and batches.
      global_batch_size: Rows of a step. Required where `options.stages` change
        the weights at a step; None where they do not.
      epochs: Passes over each source that has no `max_epochs`; None has no
        end, and such a mix has no length.
      steps: Which rows each step has, of a run whose options are checked; in
        place of `global_batch_size`.
      own_weights: Weights of single sources, where the options have none.
      max_epochs: Passes over single sources.
      path: Dotted path of the options, for messages.

    Raises:
      TypeError: If an argument is of a wrong type.
      ConfigError: If options do not fit the sources or each other, or the
        stages fail.
    """
    self.name = "mix"
    self._path = path
    own_weights = dict.fromkeys(parts) | dict(own_weights or {})
    if steps is None:
      steps = _steps_of(parts, options, own_weights, global_batch_size, path)
    self.options = options
    self._steps = steps
    self._seed, self._epochs = seed, epochs
    self.stages: list[tuple[int, dict[str, fractions.Fraction]]] = (
      options.all_stages(own_weights)
    )
    names = mix_options.in_order_of_joining(parts, self.stages)
    self._parts = {name: parts[name] for name in names}
    self._names = names
    self._laned = self._with_lanes()
    self._batch_parts = max(
      (lanes for _, lanes in self._laned.values()), default=1
    )
    self._layout = self._parts[names[0]].layout
    self.document_slots: int = max(p.document_slots for p in parts.values())
    self._one_layout = all(
      part.layout == self._layout for part in self._parts.values()
    )
    self._check_trained()
    epochs = options.passes(epochs)
    limits = {n: (max_epochs or {}).get(n) or epochs for n in names}
    repeats = options.policy.repeats
    # Only where they decide a row.
    self._epochs_fields = {
      name: {"max_epochs": most}
      if most is not None and (repeats or most != epochs)
      else {}
      for name in names
      for most in [(max_epochs or {}).get(name)]
    }
    self._units = {
      name: source_units.SourceUnits(
        part,
        options.balanced_unit,
        (max_epochs or {}).get(name) if repeats else limits[name],
      )
      for name, part in self._parts.items()
    }
    for name, units in self._units.items():
      if units.is_long():
        logging.warning("%s: %s: %s.", path, name, units.planned())
    exhausted_at = {
      name: part.epochs.total(limits[name] or 1) if repeats else None
      for name, part in self._parts.items()
    }
    self._start = self._starts()
    unknown = [entry["spec"] for entry in self.foreign_specs()]
    if unknown:
      logging.warning(
        "%s.resume_state: no source is called %s (there are %s): offsets of"
        " these are kept, and no source starts at them.",
        path,
        ", ".join(unknown),
        ", ".join(names),
      )
    try:
      self._merge = interleave.Interleave(
        self._units,
        [
          interleave.Stage(steps.first_row(step), weights)
          for step, weights in self.stages
        ],
        hashing.fold_key(seed, "mix"),
        exhaustion=options.exhaustion,
        exhausted_at=exhausted_at,
        start=self._start,
      )
      self._end = self._merge.num_positions
    except ValueError as error:
      raise schema.ConfigError([f"`{path}` {error}"]) from error
    self._from_steps = np.asarray([step for step, _ in self.stages])
    self._alone = np.asarray([len(weights) == 1 for _, weights in self.stages])
    for step, _ in self.stages:
      if self._end is not None and steps.first_row(step) >= self._end:
        logging.warning(
          "%s: the stage from step %d on never comes: the run ends after %d"
          " rows.",
          path,
          step,
          self._end,
        )
    self._batch_key = hashing.fold_key(seed, "batch")

  def __len__(self) -> int:
    if self._end is None:
      raise schema.ConfigError(
        [
          "`epochs` must be set for a mix that has a length, got None: this"
          " one has no end. Set `epochs`, or `max_epochs` of its sources."
        ]
      )
    return self._end

  def batch(self, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Returns rows of the merge with all that formats and masks need.

    Args:
      rows: int64[N], positions in the merge, before the permutation within a
        batch.

    Returns:
      The fields of `RowSource.batch`, the same for the rows of all sources;
      `source_id` is the number of a row's source in `source_names`.
    """
    rows = row_source.checked_rows(rows)
    last = int(rows.max(initial=-1))
    if self._end is not None and last >= self._end:
      raise IndexError(
        f"`rows` must be below {self._end}, the length of the mix, got {last}."
      )
    return row_reading.batch_of(
      self,
      self._planned(rows),
      [part.store for part in self._parts.values()],
      self.document_slots,
    )

  def __getitem__(self, index: int) -> dict[str, np.ndarray]:
    """Returns row `index` of the merge: the fields of `batch`, less N."""
    return row_reading.row_of(index, len(self), self.batch)

  def __repr__(self) -> str:
    decides = {
      **self.fingerprint,
      "seed": self._seed,
      "epochs": self._epochs,
      "sizes": self._steps.sizes if len(self.stages) > 1 else None,
    }
    return row_source.described(self, decides)

  @property
  def source_names(self) -> list[str]:
    """The names of the sources, in the order of their `source_id`."""
    return list(self._names)

  @property
  def end(self) -> int | None:
    """Rows of the mix until exhaustion ends the mix; None is without end."""
    return self._end

  @property
  def seq_len(self) -> int:
    """Positions of a row."""
    return self._layout.seq_len

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows; see `RowSource.plan`."""
    return self._planned(self._positions(integers.array("rows", rows)))

  def _planned(self, positions: np.ndarray) -> spans_lib.Spans:
    """Plans rows at positions of the merge, each source's together."""
    number, row = self._merge.locate(positions)
    plans, picks = [], []
    order = np.argsort(number, kind="stable")
    present = np.flatnonzero(np.bincount(number)).tolist()
    edges = np.searchsorted(number[order], [*present, len(self._parts)])
    parts = list(self._parts.values())
    for i, first, last in zip(present, edges[:-1], edges[1:], strict=True):
      pick = order[first:last]
      plans.append(parts[i].plan(row[pick]))
      picks.append(pick)
    if not plans:
      return parts[-1].plan(row)
    whole = plans[0] if len(plans) == 1 else spans_lib.merged(plans, picks)
    return dataclasses.replace(whole, source=number[whole.row])

  def read(
    self,
    spans: spans_lib.Spans,
    extra: Collection[str] = (),
    columns: tuple[int, int] | None = None,
  ) -> dict[str, np.ndarray]:
    """Reads and places planned rows; see `RowSource.read`."""
    return row_reading.read_apart(
      dict(enumerate(self._parts.values())),
      spans,
      self._one_layout,
      extra,
      columns,
    )

  def prefetch(self, spans: spans_lib.Spans) -> bool:
    """Fetches what a plan will need; see `RowSource`."""
    more = []
    for number, part in enumerate(self._parts.values()):
      pick = np.flatnonzero(spans.source == number)
      if pick.size:
        part_spans = spans.take(pick, spans.row[pick], spans.num_rows)
        more.append(part.prefetch(part_spans))
    # Local stores never ask for more, and need not hold others back.
    return any(more)

  def read_group(self, row: int) -> tuple[int, int]:
    """Returns rows first .. last - 1 that are best read together."""
    return row_source.group_of(row)

  def consumed(self, step: int) -> dict[str, Consumed]:
    """Returns what the steps before `step` have consumed, by source.

    Args:
      step: At most the steps of the run.
    """
    rows, units = self._merge.consumed(self._position_of(step))
    out = {}
    for (name, part), row, sums in zip(
      self._parts.items(), rows.tolist(), units.tolist(), strict=True
    ):
      out[name] = Consumed(row, sums, part.epochs.passes(row))
    return out

  def intended(self, step: int) -> dict[str, float]:
    """Returns shares by weight at a step, of sources that have rows left.

    Raises:
      IndexError: If the step is not of the run.
    """
    steps = self._steps
    data_step = steps.data_step(step)
    first = steps.first_row(data_step)
    end = _ENDLESS if self._end is None else self._end
    if not 0 <= first < end:
      last = steps.before(steps.step_of_row(end - 1))
      raise IndexError(
        f"step must be in 0 .. {last}, got {step}. Ask for a step of the run."
      )
    ended = {}
    for name, rows in self.rows_before(first).items():
      most = self._units[name].num_rows
      ended[name] = most is not None and rows >= most
    return mix_options.shares_at(self.stages, data_step, ended)

  def ordered(self) -> dict[str, row_source.RowSource]:
    """Returns the sources of the run in their orders, by name."""
    return dict(self._parts)

  def rows_before(self, row: int) -> dict[str, int]:
    """Returns how many rows of each source come before a row of the mix."""
    rows = self._merge.rows_at(row).tolist()
    return dict(zip(self._parts, rows, strict=True))

  def num_rows(self, source: str) -> int | None:
    """Returns the rows that a source offers, None where they have no end."""
    return self._units[source].num_rows

  def position_of(self, source: str, row: int) -> int | None:
    """Returns where a source's row stands before batches are permuted.

    None: it never comes, or came in a run that this one continues.

    Args:
      source: Its name.
      row: At least 0.
    """
    position = self._merge.position_of(source, row)
    if position is None or (self._end is not None and position >= self._end):
      return None
    return position

  def start_row(self, name: str) -> int:
    """Returns a source's first row of this run."""
    return self._start.get(name, (0, 0))[0]

  def rows_of(self, name: str, rows: np.ndarray) -> np.ndarray:
    """Returns which rows of the run are rows of a source: `plan` back.

    Args:
      name: The source.
      rows: int64[N], of its own order, ascending, from `start_row` on.

    Returns:
      int64[M], in the same order; M < N where rows from one on never come.
    """
    positions = self._merge.positions_of(name, rows)
    if self._laned:
      return self._placed(positions, back=True)
    return self._permuted(positions, permutation.inverse)

  def is_long(self, rows: int) -> bool:
    """Returns whether `rows_before` a row may take longer than a second."""
    return any(units.is_long(rows) for units in self._units.values())

  def foreign_specs(self) -> list[dict[str, Any]]:
    """Returns entries of `resume_state` that name no source."""
    return [
      {"spec": spec, "row_offset": rows, "token_offset": tokens or 0}
      for spec, rows, tokens in self.options.resume_state or ()
      if spec not in self._parts
    ]

  def unserved(self, num_steps: int) -> list[str]:
    """Returns one sentence for each weight that a run would hardly see.

    In each stage that begins within the run; see `Interleave.unserved`.

    Args:
      num_steps: Steps of the run.
    """
    return mix_options.unserved_lines(
      self._path,
      self.stages,
      self._merge.unserved(self._position_of(num_steps)),
      self._steps.data_step(num_steps),
      self._steps.step_of_row,
    )

  @property
  def fingerprint(self) -> dict[str, Any]:
    """The mix and its sources, as JSON values."""
    return {
      "mix": {
        "unit": self.options.balanced_unit,
        "exhaustion": self.options.canonical_exhaustion,
        "stages": {
          str(step): {name: str(weight) for name, weight in weights.items()}
          for step, weights in self.stages
        },
        "start": {name: list(start) for name, start in self._start.items()},
      },
      "sources": {
        name: {**part.fingerprint, **self._epochs_fields[name]}
        for name, part in self._parts.items()
      },
    }

  def describe(self) -> str:
    """Returns the summary of the mix and of every source."""
    end = "endless" if self._end is None else f"{self._end} rows"
    lines = [
      (
        f"[mix] {self.options.kind} by {self.options.balanced_unit},"
        f" {self.options.exhaustion}: {end}"
      )
    ]
    for step, weights in self.stages:
      whole = sum(weights.values())
      shares = ", ".join(
        f"{name} {float(weight / whole):.4g}"
        for name, weight in weights.items()
      )
      lines.append(f"  from step {step}: {shares}")
    for name, units in self._units.items():
      if name in self._start:
        lines.append(f"  {name}: starts at row {self._start[name][0]}")
      planned = units.planned()
      if planned is not None:
        lines.append(f"  {name}: {planned}")
    return "\n".join(
      [*lines, *(part.describe() for part in self._parts.values())]
    )

  def _with_lanes(self) -> dict[int, tuple[phased_source.Ordered, int]]:
    """Returns the sources that have lanes, and how many, by number."""
    laned = {
      number: (part, part.lanes)
      for number, part in enumerate(self._parts.values())
      if isinstance(part, phased_source.Ordered) and part.lanes > 1
    }
    if len({lanes for _, lanes in laned.values()}) > 1:
      shown = ", ".join(
        f"{self._names[i]} {lanes}" for i, (_, lanes) in laned.items()
      )
      raise schema.ConfigError(
        [
          f"`{self._path}` must be of sources with the same shuffle.lanes, got"
          f" parts of a batch: {shown}. Set the same, or None."
        ]
      )
    return laned

  def _check_trained(self) -> None:
    """Refuses to balance trained tokens of which a source has none."""
    unit = self.options.balanced_unit
    if unit != "loss_tokens":
      return
    problems = [
      f"`{self._path}.unit` must be another where no token of a source is"
      f" trained on, got {unit!r} with {name!r}, of {part.store.path}. Balance"
      " 'tokens', or leave the source out."
      for name, part in self._parts.items()
      if not row_labels.trains_on_any(part.store)
    ]
    if problems:
      raise schema.ConfigError(problems)

  def _positions(self, rows: np.ndarray) -> np.ndarray:
    """Returns the merge's positions of rows: permuted within each batch."""
    if self._laned:
      return self._placed(rows)
    return self._permuted(rows, permutation.permute)

  def _placed(self, rows: np.ndarray, back: bool = False) -> np.ndarray:
    """Returns rows permuted in batches whose parts have different lanes.

    What the merge gives a step is not touched: only the slots of a batch are
    chosen, by the lanes of all of its rows. Every second source has its lanes
    the other way round: where one of two sources has a row more in some parts,
    the other has one less in the same.

    Args:
      rows: int64[N], of the run; positions of the merge if `back`.
      back: Whether rows are asked for, not positions.
    """
    out = np.empty_like(rows)
    steps, which = np.unique(
      self._steps.steps_of_rows(rows), return_inverse=True
    )
    order = np.argsort(which, kind="stable")
    sizes = self._steps.sizes_of(steps)
    chunks = np.cumsum(sizes) // _PLACED_ROWS
    for low, high in itertools.pairwise(
      [0, *(np.flatnonzero(np.diff(chunks)) + 1).tolist(), len(steps)]
    ):
      first, last = np.searchsorted(which[order], [low, high])
      picks = order[first:last]
      if len(picks):
        out[picks] = self._placed_in(
          steps[low:high], which[picks] - low, rows[picks], back
        )
    return out

  def _placed_in(
    self, steps: np.ndarray, which: np.ndarray, rows: np.ndarray, back: bool
  ) -> np.ndarray:
    """Returns `_placed` of rows in steps, which of these each is of."""
    first, size = self._steps.first_rows(steps), self._steps.sizes_of(steps)
    if self._end is not None:
      size = np.minimum(size, self._end - first)
    begin = np.cumsum(size) - size
    batch = np.repeat(np.arange(len(steps)), size)
    shift = first - begin
    position = self._permuted(
      np.arange(len(batch)) + shift[batch], permutation.permute
    )
    number, row = self._merge.locate(position)
    wanted = np.full(len(batch), -1)
    for source, (part, parts) in self._laned.items():
      pick = np.flatnonzero(number == source)
      lane = part.lane_of(row[pick])
      wanted[pick] = parts - 1 - lane if source % 2 else lane
    # Rows without room are of the sources with the least weight, so that the
    # chunks of others have one reader.
    late = self._by_weight(steps)[batch, number]
    slot = placing.slots(batch, size, wanted, self._batch_parts, late)
    standing = np.empty_like(position)
    if back:
      standing[position - shift[batch]] = first[batch] + slot
    else:
      standing[begin[batch] + slot] = position
    return standing[rows - shift[which]]

  def _permuted(
    self, rows: np.ndarray, permute: Callable[..., np.ndarray]
  ) -> np.ndarray:
    """Returns rows of the run permuted, or permuted back, in their batches."""
    if len(self._parts) == 1 or self._steps.distinct_sizes == (1,):
      return rows
    step = self._steps.steps_of_rows(rows)
    first, size = self._steps.first_rows(step), self._steps.sizes_of(step)
    index = rows - first
    if self._end is not None:
      size = np.minimum(size, self._end - first)
    keys = hashing.fold(self._batch_key, step)
    permuted = first + permute(index, size, keys)
    # By stage: one that is appended must not move rows before it.
    if not self._alone.any():
      return permuted
    stage = np.searchsorted(self._from_steps, step, side="right") - 1
    return np.where(self._alone[stage], rows, permuted)

  def _by_weight(self, steps: np.ndarray) -> np.ndarray:
    """Returns int64[M, S], the place of each source by its weight at steps."""
    stage = np.searchsorted(self._from_steps, steps, side="right") - 1
    here, which = np.unique(stage, return_inverse=True)
    places = np.empty((len(here), len(self._parts)), np.int64)
    for place, number in zip(places, here.tolist(), strict=True):
      weights = self.stages[number][1]
      order = sorted(
        range(len(place)),
        key=lambda i, by_name=weights: (-by_name.get(self._names[i], 0), i),
      )
      place[order] = np.arange(len(place))
    return places[which]

  def _position_of(self, step: int) -> int:
    position = self._steps.first_row(self._steps.data_step(step))
    return position if self._end is None else min(position, self._end)

  def _starts(self) -> dict[str, tuple[int, int]]:
    """Returns (rows, units) of sources that go on from `resume_state`.

    See `resuming.resumed`.
    """
    offsets = self.options.resume_state or ()
    problems = resuming.impossible(self._units, offsets)
    if problems:
      raise schema.ConfigError(
        [f"`{self._path}.resume_state` {problem}" for problem in problems]
      )
    starts, level = resuming.resumed(
      self._units,
      offsets,
      self.stages[0][1],
      mix_units.UNITS[self.options.balanced_unit].each or self.seq_len,
    )
    if level:
      logging.info(
        "%s.resume_state: sources go on level with each other; their offsets"
        " are not of a run with these weights.",
        self._path,
      )
    return starts


def _steps_of(
  parts: Mapping[str, row_source.RowSource],
  options: MixOptions,
  own_weights: Mapping[str, float | None],
  global_batch_size: int | None,
  path: str,
) -> steps_lib.Steps:
  """Checks a mix that is of no config; returns which rows each step has.

  Raises:
    ConfigError: If arguments do not fit each other; all of them are listed.
  """
  problems = options.problems(path, own_weights)
  lengths = {name: part.seq_len for name, part in parts.items()}
  if len(set(lengths.values())) > 1:
    shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
    problems.append(
      f"`parts` must have rows of the same seq_len, got {shown}. Make all"
      " sources with one."
    )
  in_steps = any(step for step, _ in options.stages or ())
  if in_steps and global_batch_size is None:
    problems.append(
      f"`global_batch_size` must be set where `{path}.stages` begin at steps,"
      " got None. Give the rows of a step."
    )
  if problems:
    raise schema.ConfigError(problems)
  return steps_lib.Steps(((0, global_batch_size or 1),))
