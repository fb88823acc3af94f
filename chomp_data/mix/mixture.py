# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Several sources as one: rows merged by least consumed.

`interleave` maps each position of the mix to a source and one of its rows; the
rows of each source come in its own order. Then the rows of a global batch are
permuted, so that no process always gets rows of the same source, and rows of
sources with lanes are placed in the parts of the batch for their lanes.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import fractions
import functools
from typing import Any

from absl import logging
import numpy as np

from chomp_data import schema
from chomp_data.index import hashing
from chomp_data.index import integers
from chomp_data.index import permutation
from chomp_data.index import ragged
from chomp_data.index import steps as steps_lib
from chomp_data.mix import interleave
from chomp_data.mix import mix_options
from chomp_data.mix import placing
from chomp_data.mix import resuming
from chomp_data.mix.mix_options import MixOptions
from chomp_data.rows import spans as spans_lib
from chomp_data.sources import mix_units
from chomp_data.sources import prefix_sums
from chomp_data.sources import row_labels
from chomp_data.sources import row_reading
from chomp_data.sources import row_source
from chomp_data.sources import shared_options

# About how many rows of batches are placed together.
_PLACED_ROWS = 2**17

# The limit of row numbers in a run without an end.
_ENDLESS = 2**62


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
  is furthest behind its share. `make_iterator` also permutes the rows of each
  global batch, which `mix[i]` does not: batches of consecutive rows hold the
  same rows as those of a run, in another order. `plan` uses the order of a run.

  Attributes:
    name: "mix".
    options: The options of the mix.
    parts: The sources by name, in the order of their numbers.
    stages: (from_step, weights of sources by name).
    document_slots: The most spans of a row.
  """

  @schema.arguments(
    parts=_PARTS,
    options=schema.options_rule(MixOptions),
    seed=shared_options.SEED,
    global_batch_size=schema.optional(schema.integer(1)),
    epochs=schema.optional(schema.integer(1)),
    steps=schema.optional(schema.instance("`Steps` of a run", steps_lib.Steps)),
    source_weights=schema.optional(schema.mapping()),
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
    source_weights: Mapping[str, float | None] | None = None,
    max_epochs: Mapping[str, int | None] | None = None,
    path: str = "mix",
  ):
    """Merges sources, and computes where the mix ends.

    Args:
      parts: Row sources by name, all of the same `seq_len`, in their orders.
      options: The options of the mix.
      seed: The run's seed, which decides ties and the order within batches.
      global_batch_size: Rows of a step. Required if `options.stages` change
        the weights at a step.
      epochs: Passes over each source that has no `max_epochs`; None is without
        end, and such a mix has no length.
      steps: Which rows each step has, instead of `global_batch_size`. Only for
        runs whose options were checked.
      source_weights: Weights of single sources, if the options have none.
      max_epochs: Passes over single sources.
      path: Dotted path of the options, for messages.

    Raises:
      TypeError: If an argument is of a wrong type.
      ConfigError: If options do not fit the sources or each other, or the
        stages fail.
    """
    self.name = "mix"
    self._path = path
    source_weights = dict.fromkeys(parts) | dict(source_weights or {})
    if steps is None:
      steps = _steps_of(parts, options, source_weights, global_batch_size, path)
    self.options = options
    self._steps = steps
    self._seed, self._epochs = seed, epochs
    self.stages: list[tuple[int, dict[str, fractions.Fraction]]] = (
      options.all_stages(source_weights)
    )
    names = mix_options.in_order_of_joining(parts, self.stages)
    self.parts: dict[str, row_source.RowSource] = {
      name: parts[name] for name in names
    }
    self._names = names
    self._lanes = placing.Lanes(self.parts, path)
    self._layout = self.parts[names[0]].layout
    self.document_slots: int = max(p.document_slots for p in parts.values())
    self._one_layout = all(
      part.layout == self._layout for part in self.parts.values()
    )
    self._check_pairs()
    self._check_trained()
    epochs = options.passes(epochs)
    limits = {n: (max_epochs or {}).get(n) or epochs for n in names}
    repeats = options.policy.repeats
    # Passes are part of the fingerprint only if they change rows.
    self._epochs_fields = {
      name: {"max_epochs": most}
      if most is not None and (repeats or most != epochs)
      else {}
      for name in names
      for most in [(max_epochs or {}).get(name)]
    }
    self._units = {
      name: prefix_sums.SourceUnits(
        part,
        options.balanced_unit,
        (max_epochs or {}).get(name) if repeats else limits[name],
      )
      for name, part in self.parts.items()
    }
    for name, units in self._units.items():
      if units.is_long():
        logging.warning("%s: %s: %s.", path, name, units.planned())
    exhausted_at = {
      name: part.epochs.total(limits[name] or 1) if repeats else None
      for name, part in self.parts.items()
    }
    self._start = self._starts()
    unknown = [entry["spec"] for entry in self.foreign_specs()]
    if unknown:
      logging.warning(
        "%s.resume_state: no source is called %s (there are %s): offsets of"
        " these are stored in states, and no source starts at them.",
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
    self._alone = np.asarray([len(weights) == 1 for _, weights in self.stages])
    for step, _ in self.stages:
      if self._end is not None and steps.first_row(step) >= self._end:
        logging.warning(
          "%s: the stage from step %d on is never reached: the run ends after"
          " %d rows.",
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
    """Returns rows of the merge with all fields that formats and masks need.

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
      [part.store for part in self.parts.values()],
      self.document_slots,
    )

  def __getitem__(self, index: int) -> dict[str, np.ndarray]:
    """Returns row `index` of the merge: the fields of `batch`, without N."""
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
    """The number of rows of the mix; None if it has no end."""
    return self._end

  @property
  def seq_len(self) -> int:
    """Positions of a row."""
    return self._layout.seq_len

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows in the order of a run, without reading tokens.

    Args:
      rows: int64[N], rows of the run.
    """
    return self._planned(self._positions(integers.array("rows", rows)))

  def _planned(self, positions: np.ndarray) -> spans_lib.Spans:
    """Plans rows at positions of the merge; those of a source together."""
    number, row = self._merge.locate(positions)
    parts = list(self.parts.values())
    plans, picks = [], []
    for i, pick in ragged.by_value(number):
      plans.append(parts[i].plan(row[pick]))
      picks.append(pick)
    if not plans:
      return parts[-1].plan(row)
    merged = plans[0] if len(plans) == 1 else spans_lib.merged(plans, picks)
    return dataclasses.replace(merged, source=number[merged.row])

  def read(
    self,
    spans: spans_lib.Spans,
    extra: Collection[str] = (),
    columns: spans_lib.ColumnRanges | None = None,
  ) -> dict[str, np.ndarray]:
    """Reads planned rows and places their tokens.

    Args:
      spans: The plan of the rows.
      extra: Optional fields to return, of `OPTIONAL_FIELDS`.
      columns: (first, last + 1) of the columns whose tokens are read; None is
        all.
    """
    return row_reading.read_apart(
      dict(enumerate(self.parts.values())),
      spans,
      self._one_layout,
      lambda sources, part: row_reading.read(sources, part, extra, columns),
    )

  def prefetch(self, spans: spans_lib.Spans) -> bool:
    """Fetches the data of a plan ahead of reading it.

    Returns whether it helps to plan further ahead.
    """
    more = []
    for number, part in enumerate(self.parts.values()):
      pick = np.flatnonzero(spans.source == number)
      if pick.size:
        part_spans = spans.take(pick, spans.row[pick], spans.num_rows)
        more.append(part.prefetch(part_spans))
    # Local stores never need more; remote ones beside them still may.
    return any(more)

  def read_group(self, row: int) -> tuple[int, int]:
    """Returns (first, last + 1) of the rows that are best read together."""
    return row_source.group_of(row)

  def consumed(self, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns what sources have consumed before a row of the mix.

    Args:
      row: The row; rows beyond the end consume nothing.

    Returns:
      int64[S], rows, including those before the start of the run, and int64[S],
      what they consumed in the unit that is balanced.
    """
    return self._merge.consumed(self._limited(row))

  def rows_before(self, row: int) -> dict[str, int]:
    """Returns how many rows of each source are before a row of the mix."""
    rows = self._merge.rows_at(row).tolist()
    return dict(zip(self.parts, rows, strict=True))

  def num_rows(self, source: str) -> int | None:
    """Returns the number of rows of a source; None if it has no end."""
    return self._units[source].num_rows

  def position_of(self, source: str, row: int) -> int | None:
    """Returns the position of a source's row before batches are permuted.

    None if it is not in this run, or was in the run that this one continues.

    Args:
      source: The name of the source.
      row: The row in the source's own order, at least 0.
    """
    position = self._merge.position_of(source, row)
    if position is None or (self._end is not None and position >= self._end):
      return None
    return position

  def start_row(self, name: str) -> int:
    """Returns a source's first row of this run."""
    return self._start.get(name, (0, 0))[0]

  def rows_of(self, name: str, rows: np.ndarray) -> np.ndarray:
    """Returns which rows of the run are rows of a source; inverts `plan`.

    Args:
      name: The name of the source.
      rows: int64[N], in its own order, ascending, from `start_row` on.

    Returns:
      int64[M], in the same order; M < N if the last rows are not in the run.
    """
    positions = self._merge.positions_of(name, rows)
    if self._lanes.parts > 1:
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
      if spec not in self.parts
    ]

  def unserved(self, num_steps: int) -> list[str]:
    """Returns a sentence for each weight whose share is less than one row.

    Each stage that begins within the run is examined.

    Args:
      num_steps: Data steps of the run.
    """
    end = self._limited(self._steps.first_row(num_steps))
    return mix_options.unserved_lines(
      self._path,
      self.stages,
      self._merge.unserved(end),
      num_steps,
      self._steps.step_of_row,
    )

  @property
  def fingerprint(self) -> dict[str, Any]:
    """What determines rows: the mix and its sources, as JSON values."""
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
        for name, part in self.parts.items()
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
      total_weight = sum(weights.values())
      shares = ", ".join(
        f"{name} {float(weight / total_weight):.4g}"
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
      [*lines, *(part.describe() for part in self.parts.values())]
    )

  def _check_pairs(self) -> None:
    """Raises ConfigError unless all sources have as many slots of pairs."""
    slots = {name: part.layout.pair_slots for name, part in self.parts.items()}
    if len(set(slots.values())) == 1:
      return
    pairs = [name for name, number in slots.items() if number]
    if len(pairs) < len(slots):
      problem = (
        f"`{self._path}` must be of preference pairs only or of none, got pairs"
        f" in {', '.join(pairs)} alone. Train on them in different runs."
      )
    else:
      problem = (
        f"`{self._path}` must be of sources with the same rows.pair_slots, got"
        f" {slots}. Set them alike."
      )
    raise schema.ConfigError([problem])

  def _check_trained(self) -> None:
    """Raises ConfigError if a source has none of the balanced `loss_tokens`."""
    unit = self.options.balanced_unit
    if unit != "loss_tokens":
      return
    problems = [
      f"`{self._path}.unit` must be another where no token of a source is"
      f" trained on, got {unit!r} with {name!r}, of {part.store.path}. Balance"
      " 'tokens', or leave the source out."
      for name, part in self.parts.items()
      if not row_labels.trains_on_any(part.store)
    ]
    if problems:
      raise schema.ConfigError(problems)

  def _positions(self, rows: np.ndarray) -> np.ndarray:
    """Returns the positions in the merge of rows of the run."""
    if self._lanes.parts > 1:
      return self._placed(rows)
    return self._permuted(rows, permutation.permute)

  def _placed(self, rows: np.ndarray, back: bool = False) -> np.ndarray:
    """Maps rows of the run to positions of the merge, placed by lanes.

    Each step keeps its rows; only their places in the batch change, so that
    each part of the batch has the rows of its lanes.

    Args:
      rows: int64[N], rows of the run; positions of the merge if `back`.
      back: Whether to map positions of the merge to rows of the run.
    """
    placed = np.empty_like(rows)
    step_of_row = self._steps.steps_of_rows(rows)
    steps = np.unique(step_of_row)
    count = max(1, _PLACED_ROWS // max(self._steps.distinct_sizes))
    for low in range(0, len(steps), count):
      together = steps[low : low + count]
      pick = np.flatnonzero(
        (step_of_row >= together[0]) & (step_of_row <= together[-1])
      )
      step_index = np.searchsorted(together, step_of_row[pick])
      placed[pick] = self._placed_in(together, step_index, rows[pick], back)
    return placed

  def _placed_in(
    self,
    steps: np.ndarray,
    step_index: np.ndarray,
    rows: np.ndarray,
    back: bool,
  ) -> np.ndarray:
    """Returns `_placed` of rows; `step_index` is that of each in `steps`."""
    first, size = self._rows_of_steps(steps)
    batch_starts = np.cumsum(size) - size
    batch = np.repeat(np.arange(len(steps)), size)
    shift = first - batch_starts
    position = self._permuted(
      np.arange(len(batch)) + shift[batch], permutation.permute
    )
    number, row = self._merge.locate(position)
    # Sources with more weight are placed first, so that rows without room in
    # their part are of the others, and most chunks are read by one reader.
    late = self._weight_ranks[self._stages_of(steps)][batch, number]
    wanted = self._lanes.wanted(number, row)
    slot = placing.slots(batch, size, wanted, self._lanes.parts, late)
    placed = np.empty_like(position)
    if back:
      placed[position - shift[batch]] = first[batch] + slot
    else:
      placed[batch_starts[batch] + slot] = position
    return placed[rows - shift[step_index]]

  @functools.cached_property
  def _weight_ranks(self) -> np.ndarray:
    """The rank of each source by descending weight, int64[stages, S]."""
    return placing.ranks([weights for _, weights in self.stages], self._names)

  def _rows_of_steps(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first row and the number of rows of data steps."""
    first, size = self._steps.first_rows(steps), self._steps.sizes_of(steps)
    if self._end is not None:
      size = np.minimum(size, self._end - first)
    return first, size

  def _stages_of(self, steps: np.ndarray) -> np.ndarray:
    """Returns the number of the stage of each data step, int64[N]."""
    starts = [step for step, _ in self.stages]
    return np.searchsorted(starts, steps, side="right") - 1

  def _permuted(
    self, rows: np.ndarray, permute: Callable[..., np.ndarray]
  ) -> np.ndarray:
    """Returns rows permuted within their batches by `permute`."""
    if len(self.parts) == 1 or self._steps.distinct_sizes == (1,):
      return rows
    step = self._steps.steps_of_rows(rows)
    first, size = self._rows_of_steps(step)
    keys = hashing.fold(self._batch_key, step)
    permuted = first + permute(rows - first, size, keys)
    # Decided by stage, so that a stage added later does not move rows before.
    if not self._alone.any():
      return permuted
    return np.where(self._alone[self._stages_of(step)], rows, permuted)

  def _limited(self, row: int) -> int:
    """Returns a row, or the end of the mix if that is before it."""
    return row if self._end is None else min(row, self._end)

  def _starts(self) -> dict[str, tuple[int, int]]:
    """Returns (rows, units) at which sources start, from `resume_state`."""
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
      mix_units.UNITS[self.options.balanced_unit].per_row or self.seq_len,
    )
    if level:
      logging.info(
        "%s.resume_state: sources continue at equal levels; their offsets"
        " are not of a run with these weights.",
        self._path,
      )
    return starts


def _steps_of(
  parts: Mapping[str, row_source.RowSource],
  options: MixOptions,
  source_weights: Mapping[str, float | None],
  global_batch_size: int | None,
  path: str,
) -> steps_lib.Steps:
  """Checks a mix made without a config, and returns which rows steps have.

  Raises:
    ConfigError: If arguments do not fit each other; all of them are listed.
  """
  problems = options.problems(path, source_weights)
  problems += mix_options.weight_problems(
    "source_weights",
    tuple(
      (name, weight)
      for name, weight in source_weights.items()
      if weight is not None and not mix_options.is_zero(weight)
    ),
  )
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
