# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options of runs in buckets: their shapes, orders and mix."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import numbers
from typing import Any
from typing import ClassVar

from chomp_data import schema
from chomp_data.bucket import pieces
from chomp_data.mix import mix_options
from chomp_data.rows import buckets as buckets_lib
from chomp_data.sources import mix_units
from chomp_data.sources import shared_options
from chomp_data.stores import samples

Bucket = buckets_lib.Bucket

UNBUCKETED = ("error", "drop")

# Fields of every batch of arrays.
_BATCH_FIELDS = ("height", "width", "dataset_id", "sample_id")

# Larger sides and batches are mistakes in the config.
MAX_SIDE = 2**24
_MAX_POSITIONS = 2**34


def _rising(value: Any) -> tuple[int, ...]:
  """Returns whole numbers of at least 2, each above the one before."""
  if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
    raise TypeError
  side = schema.integer(2, MAX_SIDE)
  lengths = tuple(side.convert(length) for length in value)
  if not lengths or any(a >= b for a, b in itertools.pairwise(lengths)):
    raise ValueError
  return lengths


def _sizes(value: Any) -> tuple[tuple[int, int], ...]:
  """Returns distinct (height, width) pairs."""
  if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
    raise TypeError
  side = schema.integer(1, MAX_SIDE)
  sizes = []
  for pair in value:
    height, width = pair
    sizes.append((side.convert(height), side.convert(width)))
  if not sizes or len(set(sizes)) < len(sizes):
    raise ValueError
  return tuple(sizes)


def _names(value: Any) -> tuple[str, ...]:
  if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
    raise TypeError
  names = tuple(schema.text().convert(name) for name in value)
  if len(set(names)) < len(names):
    raise ValueError
  return names


def _fields(value: Any) -> tuple[tuple[str, Any], ...]:
  """Returns pairs (name, shape and dtype, or None if the data has them)."""
  if isinstance(value, Mapping):
    items = list(value.items())
  else:
    # A list of pairs is what a mapping becomes here.
    items = [(pair, None) if isinstance(pair, str) else pair for pair in value]
  if isinstance(value, str) or not items:
    raise TypeError
  fields = {}
  for name, section in items:
    name = schema.text().convert(name)
    if name in fields:
      raise ValueError
    if section is None or isinstance(section, samples.ArrayField):
      fields[name] = section
    elif set(section) <= {"shape", "dtype"}:
      fields[name] = samples.ArrayField(**section)
    else:
      raise ValueError
  return tuple(fields.items())


def _batch_sizes(value: Any) -> tuple[tuple[str, int], ...]:
  """Returns (bucket, rows) pairs in order of buckets."""
  items = value.items() if isinstance(value, Mapping) else value
  if isinstance(items, str):
    raise TypeError
  rows = schema.integer(1, MAX_SIDE)
  sizes = {}
  for name, count in items:
    if not isinstance(name, str) or name in sizes:
      raise TypeError
    sizes[name] = rows.convert(count)
  return tuple(sorted(sizes.items()))


def _stages(value: Any) -> Any:
  """Returns (step, weights) pairs; buckets may be written as numbers."""
  if isinstance(value, str | Mapping):
    raise TypeError
  stages = []
  for step, weights in value:
    items = weights.items() if isinstance(weights, Mapping) else weights
    named = [
      (str(n) if isinstance(n, numbers.Integral) else n, w) for n, w in items
    ]
    stages.append((step, named))
  return mix_options.STAGES.convert(stages) or None


_BUCKET_STAGES = schema.optional(
  schema.Rule(
    "a list of (from_step, weights), steps whole and rising from 0, weights a"
    " mapping (or a list of pairs) of distinct buckets to finite numbers above"
    " 0",
    _stages,
  )
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthBuckets(schema.Options):
  """`buckets.kind='length'`: rows of one document, in a few lengths.

  Attributes:
    lengths: Length of the rows of each bucket in tokens, rising.
    tokens_per_batch: Tokens of every batch, padding included, over all
      processes: rows times length.
    assign: How documents are assigned to buckets: 'least_waste' uses the
      smallest bucket that fits, and cuts documents that fit in none;
      'powers_of_two' cuts documents into pieces that fill their buckets.
    stages: How often each bucket is used, as pairs (from_step, weights by
      bucket), each until the next begins; None uses buckets as often as they
      fill batches.
  """

  lengths: tuple[int, ...] = schema.required(
    schema.Rule("a list of rising whole numbers of at least 2", _rising)
  )
  tokens_per_batch: int = schema.required(schema.integer(2, _MAX_POSITIONS))
  assign: str = schema.option("least_waste", schema.choice(pieces.ASSIGNS))
  stages: tuple[Any, ...] | None = schema.option(None, _BUCKET_STAGES)

  def fingerprint(self) -> dict[str, Any]:
    """Returns which of these fields determine batches, as JSON values."""
    return {"assign": self.assign}

  def buckets(self) -> tuple[Bucket, ...]:
    """Returns the buckets, shortest first."""
    return tuple(
      Bucket(str(length), self.tokens_per_batch // length, (length,))
      for length in self.lengths
    )

  def problems(self, path: str) -> list[str]:
    """Returns what is wrong between these fields."""
    wrong = [n for n in self.lengths if self.tokens_per_batch % n]
    problems = [
      f"`{path}.tokens_per_batch` must be a multiple of every length, so that"
      f" all batches hold as many tokens, got {self.tokens_per_batch} with"
      f" {', '.join(map(str, wrong))}. Change one of them."
    ] * bool(wrong)
    uneven = [n for n in self.lengths if n & (n - 1)]
    if self.assign == "powers_of_two" and uneven:
      problems.append(
        f"`{path}.lengths` must be powers of two with assign 'powers_of_two',"
        f" got {', '.join(map(str, uneven))}. Change them, or use"
        " 'least_waste'."
      )
    return problems + _unknown_buckets(
      path, self.stages, map(str, self.lengths)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResolutionBuckets(schema.Options):
  """`buckets.kind='resolution'`: precomputed arrays of a few sizes.

  Attributes:
    sizes: (height, width) of each bucket; None uses the sizes that occur in the
      data.
    fields: Which arrays of a sample batches hold, by name; shape and dtype
      are required where the data does not have them.
    metadata: Which numbers of a sample batches hold, by name.
    unbucketed: What happens to a sample whose size is not that of a bucket:
      'error', or 'drop' to leave it out.
    patch_size: Height and width of a patch, which counts as one token for
      `mix.unit='tokens'`.
    batch_sizes: Samples per step by bucket ('48x32'), where it is not
      `global_batch_size`.
    stages: How often each bucket is used, as pairs (from_step, weights by
      bucket), each until the next begins; None uses buckets as often as they
      fill batches.
  """

  sizes: tuple[tuple[int, int], ...] | None = schema.option(
    None,
    schema.optional(
      schema.Rule("a list of distinct (height, width) pairs", _sizes)
    ),
  )
  fields: tuple[tuple[str, Any], ...] = schema.required(
    schema.Rule(
      "a list of distinct names of arrays, or a mapping of names to"
      " {'shape': (sides, 'height' or 'width/8' among them), 'dtype': name},"
      " where the data does not have them, or None",
      _fields,
    )
  )
  metadata: tuple[str, ...] = schema.option(
    (), schema.Rule("a list of distinct names", _names)
  )
  unbucketed: str = schema.option("error", schema.choice(UNBUCKETED))
  patch_size: int = schema.option(1, schema.integer(1, MAX_SIDE))
  batch_sizes: tuple[tuple[str, int], ...] = schema.option(
    (),
    schema.Rule(
      "a mapping (or a list of pairs) of buckets ('48x32') to whole numbers of"
      " at least 1",
      _batch_sizes,
    ),
  )
  stages: tuple[Any, ...] | None = schema.option(None, _BUCKET_STAGES)

  def fingerprint(self) -> dict[str, Any]:
    """Returns which of these fields determine batches, as JSON values."""
    return {
      "fields": list(self.array_fields()),
      "metadata": list(self.metadata),
      "patch_size": self.patch_size,
    }

  def buckets(
    self, sizes: Sequence[tuple[int, int]], batch_size: int
  ) -> tuple[Bucket, ...]:
    """Returns the buckets of sizes, in their order."""
    batch_sizes = dict(self.batch_sizes)
    return tuple(
      Bucket(name, batch_sizes.get(name, batch_size), size)
      for size in sizes
      for name in [buckets_lib.size_name(*size)]
    )

  def array_fields(self) -> dict[str, samples.ArrayField | None]:
    """Returns the arrays to read, as `open_samples` takes them."""
    return dict(self.fields)

  def problems(self, path: str) -> list[str]:
    """Returns what is wrong between these fields."""
    names = [*self.array_fields(), *self.metadata]
    wrong = [
      name
      for name in dict.fromkeys(names)
      if name in _BATCH_FIELDS or names.count(name) > 1
    ]
    problems = [
      f"`{path}.fields` and `metadata` must name nothing twice, and nothing"
      f" that batches have anyway ({', '.join(_BATCH_FIELDS)}), got"
      f" {', '.join(map(repr, wrong))}. Leave it out."
    ] * bool(wrong)
    if self.sizes is None:
      return problems  # Buckets are known when samples are.
    known = [buckets_lib.size_name(*size) for size in self.sizes]
    return problems + unknown_buckets_of(self, path, known)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OrderOptions(schema.Options):
  """`shuffle` of a source in buckets: it is permuted in every epoch.

  Attributes:
    seed: Seed of this order; None derives one from the run's seed.
  """

  seed: int | None = schema.option(None, schema.optional(shared_options.SEED))

  # What is said of a value that is neither a section nor a short form.
  rule: ClassVar[str] = "a section with fields, or True (with defaults)"
  fix: ClassVar[str] = "Give it fields, or True."

  @staticmethod
  def expanded(value: Any) -> dict[str, Any] | None:
    """Returns the section that a short form means: True has defaults."""
    return {} if value is True else None

  def problems(self, path: str, has_blocks: bool) -> list[str]:
    """Returns what is wrong between these fields: nothing."""
    del path, has_blocks
    return []


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketMixOptions(mix_options.MixFields):
  """How several sources share a bucketed run.

  Attributes:
    unit: The unit that weights are shares of: 'samples', 'pixels' (height times
      width) or 'tokens' (of text, without padding; of arrays, patches of
      `buckets.patch_size`). None is tokens for lengths, and samples for
      resolutions and kind 'weighted'.
  """

  unit: str | None = schema.option(
    None, schema.optional(mix_units.rule("resolution", "length"))
  )


def unknown_buckets_of(
  options: ResolutionBuckets, path: str, known: Sequence[str]
) -> list[str]:
  """Returns a message for each list of options with unknown buckets."""
  unknown = [name for name, _ in options.batch_sizes if name not in known]
  return [
    f"`{path}.batch_sizes` must name buckets, got"
    f" {', '.join(map(repr, unknown))}; there are {', '.join(known)}. Correct"
    " them."
  ] * bool(unknown) + _unknown_buckets(path, options.stages, known)


def _unknown_buckets(path: str, stages: Any, known: Any) -> list[str]:
  known, problems = list(known), []
  stages = list(stages or ())
  for i, (_, weights) in enumerate(stages):
    unknown = [name for name, _ in weights if name not in known]
    if unknown:
      problems.append(
        f"`{path}.stages[{i}]` must name buckets, got"
        f" {', '.join(map(repr, unknown))}; there are {', '.join(known)}."
        " Correct it."
      )
  used = {name for _, weights in stages for name, _ in weights}
  idle = [name for name in known if name not in used]
  if stages and idle and not problems:
    problems.append(
      f"`{path}.stages` must weigh every bucket in some stage, got none for"
      f" {', '.join(idle)}. Give it a weight, or leave the bucket out."
    )
  if stages and stages[0][0]:
    problems.append(
      f"`{path}.stages` must begin at step 0, got {stages[0][0]}. Say which"
      " buckets come first."
    )
  return problems
