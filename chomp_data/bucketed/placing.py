"""Rows of a process by bucket, and batches of every bucket on devices."""

from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any

from absl import logging
import grain
import jax
import numpy as np

from chomp_data import schema
from chomp_data.bucketed import pipeline as pipeline_lib
from chomp_data.bucketed import sections
from chomp_data.loading import placement
from chomp_data.transforms import applying


class BucketPlacer:
  """Puts process-local batches of any bucket on devices as global arrays."""

  def __init__(
    self,
    sharding: placement.ShardingTree,
    rows: Mapping[str, np.ndarray],
    buckets: Sequence[sections.Bucket],
  ):
    """Remembers where rows are, by their number.

    Args:
      sharding: As in `placement.field_sharding`.
      rows: By bucket, int64[R], rows of its global batch in local batches.
      buckets: The buckets.

    Raises:
      ConfigError: If as many rows here are of different global batches.
    """
    self._placers: dict[int, placement.Placer] = {}
    known: dict[int, sections.Bucket] = {}
    for bucket in buckets:
      own = rows[bucket.name]
      other = known.setdefault(len(own), bucket)
      if other.batch_size != bucket.batch_size or not np.array_equal(
        rows[other.name], own
      ):
        raise schema.ConfigError(
          [
            "`sharding` must give a process more rows of larger batches, got"
            f" {len(own)} rows of both {other} and {bucket}. Shard the batch"
            " axis evenly."
          ]
        )
      self._placers[len(own)] = placement.Placer(
        sharding, own, bucket.batch_size
      )

  def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """Places a batch; see `placement.Placer`."""
    count = len(next(iter(batch.values())))
    return self._placers[count](batch)


def process_rows(
  pipe: pipeline_lib.BucketPipeline,
  sharding: placement.ShardingTree,
  transforms: Sequence[grain.transforms.Map] = (),
) -> dict[str, np.ndarray]:
  """Returns the rows of each bucket's batches that this process holds.

  Args:
    pipe: The run.
    sharding: As in `placement.field_sharding`.
    transforms: More transforms over batches, after the pipeline's.

  Returns:
    By bucket, int64[R], ascending.

  Raises:
    ConfigError: If fields do not divide over the sharding, or it lacks one, or
      datasets give different fields; every such bucket is named.
    StoreError: If the first sample of a bucket does not fit its size.
  """
  rows, problems, shown = {}, [], []
  for number, bucket in enumerate(pipe.buckets):
    fields = _fields(pipe, number, transforms, problems)
    shapes = {
      name: (bucket.batch_size, *shape) for name, (shape, _) in fields.items()
    }
    found = _uneven(pipe, bucket, shapes, sharding)
    if found:
      problems += found
      continue
    rows[bucket.name] = placement.process_rows(shapes, sharding)
    shown.append(f"{bucket} ({len(rows[bucket.name])} rows here)")
  if problems:
    # What is wrong in every bucket alike is told once.
    raise schema.ConfigError(list(dict.fromkeys(problems)))
  logging.info("static shapes that will come: %s", "; ".join(shown))
  return rows


def _uneven(
  pipe: pipeline_lib.BucketPipeline,
  bucket: sections.Bucket,
  shapes: Mapping[str, tuple[int, ...]],
  sharding: placement.ShardingTree,
) -> list[str]:
  """Returns why fields of a bucket do not divide over their shardings.

  Args:
    pipe: The run.
    bucket: The bucket.
    shapes: Global shape of each field.
    sharding: As in `placement.field_sharding`.

  Returns:
    One sentence for each cause; many fields may share it.
  """
  problems: dict[Any, str] = {}
  for name, shape in shapes.items():
    try:
      own = placement.field_sharding(sharding, name, len(shape))
    except schema.ConfigError as error:
      problems.update(dict.fromkeys(error.problems, error.problems[0]))
      continue
    try:
      own.shard_shape(shape)
    except (ValueError, IndexError) as error:
      wrong = _uneven_axes(own, shape)
      for axis, count in wrong:
        if axis:
          problems.setdefault(
            (axis, count, shape[axis]),
            f"axis {axis} of `{name}` must divide over the sharding, got"
            f" {shape[axis]} of bucket {bucket.name} over {count} devices of"
            f" {_named(own)}. Use sizes that are multiples of {count}, or leave"
            " that axis whole.",
          )
        else:
          problems.setdefault(
            axis,
            f"`{_rows_field(pipe, bucket)}` must give batches that divide over"
            f" the sharding, got {shape[0]} rows of bucket {bucket.name} over"
            f" {count} devices of {_named(own)}. Use a multiple of {count}, or"
            " a smaller mesh.",
          )
      if not wrong:
        reason = f" ({error})" * isinstance(error, ValueError)
        problems.setdefault(
          name,
          f"`sharding` must fit field {name!r} of {len(shape)} axes, got"
          f" {_named(own)}{reason}. Correct it.",
        )
  return list(problems.values())


def _uneven_axes(
  sharding: jax.sharding.Sharding, shape: Sequence[int]
) -> list[tuple[int, int]]:
  """Returns axes that do not divide, and the devices that each is cut for."""
  if not isinstance(sharding, jax.sharding.NamedSharding):
    return []
  sizes, found = dict(sharding.mesh.shape), []
  for axis, (side, names) in enumerate(zip(shape, sharding.spec, strict=False)):
    names = (names,) if isinstance(names, str) else names
    if isinstance(names, tuple):
      count = math.prod(sizes[name] for name in names)
      if side % count:
        found.append((axis, count))
  return found


def _rows_field(
  pipe: pipeline_lib.BucketPipeline, bucket: sections.Bucket
) -> str:
  """Returns the field of the config that says how many rows a bucket has."""
  if len(bucket.shape) == 1:
    return "config.data.buckets.tokens_per_batch"
  if bucket.batch_size == getattr(pipe.options, "global_batch_size", None):
    return "config.data.global_batch_size"
  return "config.data.buckets.batch_sizes"


def _fields(
  pipe: pipeline_lib.BucketPipeline,
  bucket: int,
  transforms: Sequence[grain.transforms.Map],
  problems: list[str],
) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
  """Returns shape (without rows) and dtype of a bucket's fields."""
  found: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
  first = ""
  for number, name in enumerate(pipe.source_names):
    example: Any = pipe.example(number, bucket)
    if example is None:
      continue
    example = applying.applied(example, transforms)
    own = {
      field: (np.shape(value)[1:], np.asarray(value).dtype)
      for field, value in example.items()
    }
    if not found:
      found, first = own, name
    elif own != found:
      differ = sorted(
        field for field in own | found if own.get(field) != found.get(field)
      )[0]
      problems.append(
        f"bucket {pipe.buckets[bucket].name} must have the same fields in every"
        f" dataset, got `{differ}` {_told(found.get(differ))} in {first!r} and"
        f" {_told(own.get(differ))} in {name!r}. Prepare them alike, or give"
        " `config.data.buckets.fields` a shape and a dtype."
      )
  return found


def _told(field: tuple[tuple[int, ...], np.dtype] | None) -> str:
  return "absent" if field is None else f"{field[1]}{list(field[0])}"


def _named(sharding: Any) -> str:
  if isinstance(sharding, jax.sharding.NamedSharding):
    return f"{sharding.spec} of mesh {dict(sharding.mesh.shape)}"
  return str(sharding)
