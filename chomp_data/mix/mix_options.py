# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options of a mix of sources: `config.data.mix`."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fractions
import functools
import math
import numbers
from typing import Any

from chomp_data import schema
from chomp_data.mix import exhaustion as policies
from chomp_data.mix import interleave
from chomp_data.sources import mix_units

# The unit that each kind balances in a run of rows, unless `unit` is set.
MIX_KINDS = {"token_balanced": "tokens", "weighted": "rows"}

# More epochs than this in a run, or in a stage, are reported to the user.
MANY_EPOCHS = 2.0

# With the rows of a step and the tokens of a row, these still fit into int64.
_MOST_STEPS = 2**40
_MOST_OFFSET = 2**56

# (source, weight) pairs in order of names.
Weights = tuple[tuple[str, float], ...]
# (from_step, weights) pairs.
Stages = Sequence[tuple[int, Weights]]
# The same with exact weights, of sources or of buckets, by name.
ExactStages = Sequence[tuple[int, Mapping[str, fractions.Fraction]]]


def _weights(value: Any) -> Weights:
  """Returns (name, weight) pairs in order of names, weights of any value."""
  items = value.items() if isinstance(value, Mapping) else value
  if isinstance(items, str) or not hasattr(items, "__iter__"):
    raise TypeError
  weight_by_name = {}
  for name, weight in items:
    if (
      not isinstance(name, str)
      or name in weight_by_name
      or isinstance(weight, bool)
      or not isinstance(weight, numbers.Real)
    ):
      raise TypeError
    weight_by_name[name] = weight
  if not weight_by_name:
    raise ValueError
  return tuple(sorted(weight_by_name.items()))


def _stages(value: Any) -> tuple[tuple[int, Weights], ...]:
  if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
    raise TypeError
  stages = []
  for stage in value:
    step, weights = stage
    if isinstance(step, bool) or not isinstance(step, numbers.Integral):
      raise TypeError
    stages.append((int(step), _weights(weights)))
  return tuple(stages)


def _is_weight(weight: float) -> bool:
  try:
    return math.isfinite(weight) and weight > 0
  except OverflowError:  # A whole number beyond what a float holds.
    return False


def is_zero(weight: Any) -> bool:
  """Whether a source of this weight has no rows before a stage names it.

  Args:
    weight: `sources.<name>.weight`, also of a config that is not checked yet.
  """
  is_number = isinstance(weight, numbers.Real) and not isinstance(weight, bool)
  return is_number and weight == 0


def _weight(value: Any) -> float:
  """Returns the weight of a source: 0 where only stages weigh it."""
  ((_, weight),) = _weights({"source": value})
  if not is_zero(weight) and not _is_weight(weight):
    raise ValueError
  return weight


def exact_stages(
  stages: Stages,
) -> list[tuple[int, dict[str, fractions.Fraction]]]:
  """Returns stages with exact weights."""
  return [
    (step, {name: exact(weight) for name, weight in weights})
    for step, weights in stages
  ]


def weight_problems(path: str, weights: Weights) -> list[str]:
  """Returns a line for each weight that is not a finite number above 0.

  Args:
    path: Dotted path of the weights.
    weights: As `WEIGHTS` has converted them.
  """
  return [
    f"`{path}[{name!r}]` must be a finite number above 0, got {weight!r}."
    " Correct it, or leave the entry out."
    for name, weight in weights
    if not _is_weight(weight)
  ]


def stage_problems(path: str, stages: Stages) -> list[str]:
  """Returns a line for each stage that is out of order or has wrong weights.

  Args:
    path: Dotted path of the stages.
    stages: As `STAGES` has converted them.
  """
  problems = []
  for i, (step, weights) in enumerate(stages):
    before = stages[i - 1][0] if i else -1
    if not 0 <= step <= _MOST_STEPS:
      problems.append(
        f"`{path}[{i}]` must begin at a step of 0 .. {_MOST_STEPS}, got"
        f" {step}. Correct it."
      )
    elif step <= before:
      problems.append(
        f"`{path}[{i}]` must begin after step {before}, where the stage before"
        f" it begins, got step {step}. Put stages in order of their steps."
      )
    problems += weight_problems(f"{path}[{i}]", weights)
  return problems


def _resume_state(value: Any) -> tuple[tuple[str, int, int | None], ...]:
  """Returns (spec, row offset, token offset or None) of `resume_state`."""
  if isinstance(value, tuple):  # Converted before.
    names = ("spec", "row_offset", "token_offset")
    entries = [dict(zip(names, offset, strict=True)) for offset in value]
    value = {"datasets": entries}
  if not isinstance(value, Mapping) or set(value) != {"datasets"}:
    raise TypeError
  offsets = {}
  for entry in value["datasets"]:
    keys = {"spec", "row_offset", "token_offset"}
    if not isinstance(entry, Mapping) or not {"spec"} <= set(entry) <= keys:
      raise TypeError
    spec = entry["spec"]
    rows, tokens = entry.get("row_offset", 0), entry.get("token_offset")
    if not isinstance(spec, str) or spec in offsets:
      raise TypeError
    for count in (rows, 0 if tokens is None else tokens):
      if isinstance(count, bool) or not isinstance(count, numbers.Integral):
        raise TypeError
      if not 0 <= int(count) <= _MOST_OFFSET:
        raise ValueError
    offsets[spec] = (spec, int(rows), None if tokens is None else int(tokens))
  return tuple(offsets.values())


_WEIGHTS_TEXT = (
  "a mapping (or a list of pairs) of distinct source names to finite numbers"
  " above 0"
)


def _unless_none(rule: schema.Rule) -> schema.Rule:
  """Accepts None too, and [None], which a flag that unsets a tuple passes."""
  rule = schema.optional(rule)

  def convert(value: Any) -> Any:
    # A NumPy array in a comparison would answer for each of its elements.
    alone = isinstance(value, Sequence) and len(value) == 1
    return None if alone and value[0] is None else rule.convert(value)

  return schema.Rule(rule.text, convert)


WEIGHTS = _unless_none(schema.Rule(_WEIGHTS_TEXT, _weights))
WEIGHT = schema.optional(schema.Rule("0 or a finite number above 0", _weight))
STAGES = _unless_none(
  schema.Rule(
    "a list of (from_step, weights), steps whole, rising and at most"
    f" {_MOST_STEPS}, weights {_WEIGHTS_TEXT}",
    _stages,
  )
)
_STATE = schema.optional(
  schema.Rule(
    "{'datasets': [{'spec': name, 'row_offset': rows, 'token_offset':"
    f" tokens}}, ...]}} with whole numbers of 0 .. {_MOST_OFFSET}",
    _resume_state,
  )
)


def _zero_problems(
  source_weights: Mapping[str, float | None], stages: Stages
) -> list[str]:
  """Returns a line for sources of weight 0 that no stage names, or if all are.

  Args:
    source_weights: `sources.<name>.weight` of every source.
    stages: As `STAGES` has converted them.
  """
  zero = sorted(n for n, weight in source_weights.items() if is_zero(weight))
  in_stages = {name for _, weights in stages for name, _ in weights}
  idle = [name for name in zero if name not in in_stages]
  if idle:
    return [
      "sources.<name>.weight may be 0 only where a stage of `mix.stages` names"
      f" the source, got 0 for {', '.join(idle)}, which none names. Append a"
      " stage that does, or give a weight above 0."
    ]
  if zero and len(zero) == len(source_weights):
    return [
      "sources.<name>.weight must be above 0 for some source, got 0 for"
      f" {', '.join(zero)}. Give a weight to those of step 0."
    ]
  return []


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixFields(schema.Options):
  """Options of every mix, of rows or of buckets.

  Attributes:
    kind: Whether weights are shares of tokens ('token_balanced') or of rows
      ('weighted'), unless `unit` says otherwise.
    weights: Share of each source, by name; None uses `sources.<name>.weight`.
    stages: Weights by data step, as pairs (from_step, weights), each until the
      next begins; a source that a stage does not name has no rows in it. The
      first may begin at step 0, instead of `weights`.
    exhaustion: What happens when a source has completed its passes: 'drop'
      continues with the others; the other values are the stopping strategies of
      Hugging Face's `interleave_datasets`.
    allow_tokenizer_differences: Whether sources whose tokens were made by
      different tokenizers may be mixed.
  """

  kind: str = schema.option("token_balanced", schema.choice(MIX_KINDS))
  weights: tuple[Any, ...] | None = schema.option(None, WEIGHTS)
  stages: tuple[Any, ...] | None = schema.option(None, STAGES)
  exhaustion: str = schema.option("drop", schema.choice(policies.EXHAUSTIONS))
  allow_tokenizer_differences: bool = schema.option(False, schema.boolean())

  @property
  def policy(self) -> policies.Exhaustion:
    """The policy that `exhaustion` names."""
    return policies.EXHAUSTIONS[self.exhaustion]

  @property
  def canonical_exhaustion(self) -> str:
    """The name of the policy, the same for policies that give the same rows."""
    return self.policy.canonical or self.exhaustion

  def passes(self, epochs: int | None) -> int | None:
    """Returns the passes over each source: the run's, or else the policy's.

    Args:
      epochs: The run's `epochs`.
    """
    return epochs or self.policy.passes

  def all_stages(
    self, source_weights: Mapping[str, float | None]
  ) -> list[tuple[int, dict[str, fractions.Fraction]]]:
    """Returns every stage from step 0 on, with exact weights.

    Args:
      source_weights: `sources.<name>.weight` of every source. One of weight 0
        has no rows before a stage that names it.
    """
    first = dict(self.weights) if self.weights else None
    stages: list[tuple[int, Weights]] = list(self.stages or ())
    if not stages or stages[0][0] > 0:
      if first is None:
        first = {
          name: 1 if weight is None else weight
          for name, weight in source_weights.items()
          if not is_zero(weight)
        }
      stages.insert(0, (0, tuple(first.items())))
    return exact_stages(stages)

  def problems(
    self, path: str, source_weights: Mapping[str, float | None]
  ) -> list[str]:
    """Returns a line for each conflict between weights, stages and sources.

    Args:
      path: Dotted path of the section.
      source_weights: `sources.<name>.weight` of every source.
    """
    later: list[tuple[int, Weights]] = list(self.stages or ())
    problems = weight_problems(f"{path}.weights", self.weights or ())
    problems += stage_problems(f"{path}.stages", later)
    starts = bool(later) and later[0][0] == 0
    if self.weights is not None and starts:
      problems.append(
        f"`{path}.weights` must be None where stages begin at step 0, got"
        f" {dict(self.weights)}. Unset one of them."
      )
    weighted = [n for n, weight in source_weights.items() if weight is not None]
    if weighted and (self.weights is not None or starts):
      problems.append(
        f"`{path}.{'stages' if starts else 'weights'}` must not be set beside"
        f" sources.<name>.weight, got both (of {', '.join(sorted(weighted))})."
        " Keep one."
      )
    problems += _zero_problems(source_weights, later)
    stages = [("weights", self.weights or ())]
    stages += [
      (f"stages[{i}]", weights) for i, (_, weights) in enumerate(later)
    ]
    for name, weights in stages:
      unknown = sorted({source for source, _ in weights} - set(source_weights))
      if unknown:
        problems.append(
          f"`{path}.{name}` must name declared sources, got"
          f" {', '.join(map(repr, unknown))}; declared are"
          f" {', '.join(sorted(source_weights))}. Declare it under"
          " config.data.sources, or correct the name."
          + "".join(
            schema.did_you_mean(name_, source_weights) for name_ in unknown
          )
        )
    if (self.weights is not None or starts) and not problems:
      used = {source for _, weights in stages for source, _ in weights}
      idle = sorted(set(source_weights) - used)
      if idle:
        problems.append(
          f"`{path}.{'stages' if starts else 'weights'}` must weigh every"
          f" declared source in some stage, got none for {', '.join(idle)}."
          " Give it a weight, or remove it from config.data.sources."
        )
    return problems


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixOptions(MixFields):
  """How several sources share a run of rows.

  Attributes:
    unit: The unit that weights are shares of: 'tokens', 'rows' or 'loss_tokens'
      (tokens that are trained on). None is tokens for 'token_balanced' and rows
      for 'weighted'.
    resume_state: How far an earlier run read each source, as returned by its
      `resume_state`; this run continues from there. Entries of unknown sources
      are stored again and have no effect.
  """

  unit: str | None = schema.option(
    None, schema.optional(mix_units.rule("rows"))
  )
  resume_state: tuple[Any, ...] | None = schema.option(None, _STATE)

  @property
  def balanced_unit(self) -> str:
    """The unit that is balanced."""
    return self.unit or MIX_KINDS[self.kind]


# Cached, because stages repeat weights; by type, because 1 and 1.0 have
# different texts.
@functools.lru_cache(maxsize=4_096, typed=True)
def exact(weight: float) -> fractions.Fraction:
  """Returns a weight exactly as its decimal text says."""
  return fractions.Fraction(str(weight))


def shares_at(
  stages: Sequence[tuple[int, Mapping[str, fractions.Fraction | int]]],
  step: int,
  ended: Mapping[str, bool],
) -> dict[str, float]:
  """Returns the share of each source by weight in the stage of a step.

  Args:
    stages: (from_step, weights), from step 0 on.
    step: At least 0.
    ended: Whether each source has no rows left; its share is 0.
  """
  _, weights = max(
    (stage for stage in stages if stage[0] <= step), key=lambda stage: stage[0]
  )
  weights_left = {
    name: 0 if has_ended else weights.get(name, 0)
    for name, has_ended in ended.items()
  }
  total_weight = sum(weights_left.values())
  return {
    name: float(weight / total_weight) for name, weight in weights_left.items()
  }


def unserved_lines(
  path: str,
  stages: Sequence[tuple[int, Mapping[str, Any]]],
  unserved: Iterable[interleave.Unserved],
  num_steps: int,
  step_of_row: Callable[[int], int] | None = None,
) -> list[str]:
  """Returns a sentence for each weight whose share is less than one row.

  Args:
    path: Dotted path of the mix.
    stages: (from_step, weights), from step 0 on.
    unserved: Such weights of the merge in a run of `num_steps`.
    num_steps: Data steps of the run.
    step_of_row: Returns the step of a position; None if positions are steps,
      each of one batch.
  """
  noun = "batch" if step_of_row is None else "row"
  lines = []
  for weight in unserved:
    first = stages[weight.stage][0]
    last = min([num_steps, *(at for at, _ in stages[weight.stage + 1 :][:1])])
    when = "never comes"
    if weight.following is not None and step_of_row is None:
      when = f"is at step {weight.following}"
    elif weight.following is not None and step_of_row is not None:
      step = step_of_row(weight.following)
      when = f"is row {weight.following} of the mix, in step {step}"
    lines.append(
      f"`{path}`: the weight of {weight.source!r} amounts to {weight.share:.2g}"
      f" {noun} in {last - first} steps of the stage from step {first} on,"
      f" which have {('none', 'one')[weight.num_rows]} of it: its next {when}."
      " Raise its weight, or leave it out."
    )
  return lines


def in_order_of_joining(
  parts: Mapping[str, Any], stages: list[tuple[int, dict[str, Any]]]
) -> list[str]:
  """Returns names sorted by the stage in which each source joins.

  A source that joins later gets the next number, whatever the config's order.
  """
  joined = {name: len(stages) for name in parts}
  for i, (_, weights) in reversed(list(enumerate(stages))):
    for name in weights:
      joined[name] = i
  return sorted(parts, key=lambda name: (joined[name], name))
