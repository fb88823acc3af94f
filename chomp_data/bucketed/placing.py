"""Rows of a process by bucket, and batches of every bucket on devices."""

from collections.abc import Mapping
from collections.abc import Sequence
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
    ConfigError: If batches do not divide over the sharding, or datasets give
      different fields; every such bucket is named.
  """
  rows, problems, shown = {}, [], []
  for number, bucket in enumerate(pipe.buckets):
    fields = _fields(pipe, number, transforms, problems)
    shapes = {
      name: (bucket.batch_size, *shape) for name, (shape, _) in fields.items()
    }
    try:
      rows[bucket.name] = placement.process_rows(shapes, sharding)
    except schema.ConfigError:
      where = "tokens_per_batch" if len(bucket.shape) == 1 else "batch_sizes"
      problems.append(
        f"`config.data.buckets.{where}` must give batches that divide over the"
        f" sharding, got {bucket.batch_size} rows of bucket {bucket.name} over"
        f" {_named(sharding)}. Use a multiple of the mesh axes that rows are"
        " sharded over, or a smaller mesh."
      )
      continue
    shown.append(f"{bucket} ({len(rows[bucket.name])} rows here)")
  if problems:
    raise schema.ConfigError(problems)
  logging.info("static shapes that will come: %s", "; ".join(shown))
  return rows


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
