"""A bucketed run: a pure function of the step, one static shape a bucket.

    pipe = build(config.data)     # with a section `buckets`
    pipe.bucket_of(91_400)        # ('wiki', '512'); nothing is read
    batches = make_iterator(pipe, sharding)

`build` and `make_iterator` are those of `chomp_data.pipeline`.
"""

from collections.abc import Mapping
import functools
import pickle
from typing import Any

from absl import logging
import grain
import numpy as np

from chomp_data.bucketed import accounts as accounts_lib
from chomp_data.bucketed import batches
from chomp_data.bucketed import composing
from chomp_data.bucketed import mix as mix_lib
from chomp_data.bucketed import options as options_lib
from chomp_data.bucketed import plan as plan_lib
from chomp_data.bucketed import sections
from chomp_data.bucketed import summary
from chomp_data.loading import reads as reads_lib
from chomp_data.loading import run as run_lib
from chomp_data.loading import state
from chomp_data.ops import spans as spans_lib
from chomp_data.sources import fillers
from chomp_data.sources import row_source
from chomp_data.transforms import applying
from chomp_data.transforms import formats
from chomp_data.transforms import masks

FINGERPRINT_SCHEMA = 1


class BucketPipeline(run_lib.Run):
  """The input of a bucketed run.

  Attributes:
    options: The fields of `config.data` beside its sections.
  """

  def __init__(self, run: options_lib.BucketRun):
    """Opens stores and puts samples in buckets; reads no token, and
    of arrays the first of each size.

    Args:
      run: The whole of `config.data`, checked.

    Raises:
      ConfigError: If options do not fit the stores.
      StoreError: If a store cannot be opened.
    """
    self._run = run
    self.options = run.data
    self._plan = composing.bucket_plan(run)
    self._reads = self._plan.reads()
    weights = {name: own.weight for name, own in run.sources.items()}
    self._mix = mix_lib.BucketMix(
      self._plan.lanes,
      run.mix.all_stages(weights),
      {name: sum(d.counts.values()) for name, d in self._plan.datasets.items()},
      f"{composing.PATH}.mix",
    )
    for line in summary.repeats(self._plan, run.bucket_stages()):
      logging.warning("%s.buckets.stages: %s.", composing.PATH, line)
    if self.mix is not None and self.num_steps is not None:
      for line in self.mix.unserved(self.num_steps):
        logging.warning("%s", line)

  @property
  def num_steps(self) -> int | None:
    """Steps of the run, or None where it goes on for ever."""
    return self._plan.num_steps

  @property
  def buckets(self) -> tuple[sections.Bucket, ...]:
    """The static shapes of batches."""
    return self._plan.buckets

  @property
  def source_names(self) -> list[str]:
    """Names of the datasets, by number."""
    return list(self._plan.datasets)

  @property
  def mix(self) -> mix_lib.BucketMix | None:
    """How datasets share the run, or None for one alone."""
    return self._mix if len(self._plan.datasets) > 1 else None

  @functools.cached_property
  def accounts(self) -> accounts_lib.Histogram:
    """The histogram by dataset and bucket, at any step."""
    return accounts_lib.Histogram(self._plan)

  @functools.cached_property
  def fingerprint(self) -> dict[str, Any]:
    """What decides every batch, as JSON values.

    Left out: paths, workers, processes, prefetch, and the order of keys.
    """
    run = self._run
    curriculum = run.bucket_stages()
    return {
      "schema": FINGERPRINT_SCHEMA,
      "seed": self.options.seed,
      "epochs": self.options.epochs,
      "remainder": self.options.remainder,
      **self._own_fingerprint(),
      "buckets": {
        "kind": run.kind,
        "batch_sizes": {own.name: own.batch_size for own in self.buckets},
        "stages": None if curriculum is None else _as_json(curriculum),
      },
      "mix": {
        "unit": run.unit,
        "exhaustion": run.mix.canonical_exhaustion,
        "stages": _as_json(self._mix.stages),
      },
      "sources": {
        name: {
          **own.fingerprint(),
          "shuffle_seed": run.sources[name].seed,
          "max_epochs": run.sources[name].max_epochs,
        }
        for name, own in self._plan.datasets.items()
      },
    }

  def bucket_of(self, step: int) -> tuple[str, str]:
    """Returns the dataset and the bucket of a step, by name.

    Raises:
      IndexError: If the step is not of the run.
    """
    dataset, bucket = self._plan.at(step)
    return self.source_names[dataset], self.buckets[bucket].name

  def stages(self) -> list[tuple[int, str]]:
    """Returns where each stage of a curriculum begins, and what it weighs."""
    return [
      (step, summary.stage_text(self._plan, step, weights))
      for step, weights in self._run.bucket_stages() or ()
    ]

  def passes(self, step: int) -> dict[str, dict[str, float]]:
    """Returns how often each bucket of each source was given before a step."""
    return summary.passes(self._plan, step)

  def samples(self, step: int) -> np.ndarray:
    """Returns int64[batch_size], samples of the step's group; -1 is filler."""
    self._plan.check_steps(step)
    return self._plan.lanes.samples(step)

  def batch(
    self, step: int, rows: np.ndarray | None = None
  ) -> dict[str, np.ndarray]:
    """Returns a step's batch on the host.

    Args:
      step: The step.
      rows: int64[R], ascending rows of the global batch, or None for all.

    Returns:
      Fields [R, ...].
    """
    batch = self._plan.read(step, rows, self._reads)
    return applying.applied(batch, self.operations())

  def reads(self) -> dict[str, reads_lib.SourceReads]:
    """Returns what `batch` has read so far, by source of text."""
    return self._reads.by_source()

  def operations(self) -> list[grain.transforms.Map]:
    """Returns the transforms over batches that the config asks for."""
    return []

  def batch_source(
    self,
    rows: Mapping[str, np.ndarray] | None = None,
    fingerprint: Mapping[str, Any] | None = None,
  ) -> batches.BucketBatches:
    """Returns the Grain source of process-local batches.

    Args:
      rows: For each bucket, by name, int64[R], ascending rows of its global
        batch that this process holds; None is all.
      fingerprint: Shown in its `repr`, or None for the pipeline's own.
    """
    # Its own caches: a thread or a worker reads through it.
    plan = pickle.loads(pickle.dumps(self._plan))
    digest = state.digest(fingerprint or self.fingerprint)[:16]
    return batches.BucketBatches(plan, rows, digest)

  def example(self, dataset: int, bucket: int) -> dict[str, np.ndarray] | None:
    """Returns the fields of one sample of a group, or None where it is empty.

    Args:
      dataset: Its number.
      bucket: Its number.
    """
    own = list(self._plan.datasets.values())[dataset]
    if not own.counts.get(self.buckets[bucket].name):
      return None
    batch = own.read(bucket, np.zeros(1, np.int64), dataset)
    return applying.applied(batch, self.operations())

  def describe(self) -> str:
    """Returns the run's summary for the log: the shapes that will come."""
    steps = "endless" if self.num_steps is None else f"{self.num_steps} steps"
    epochs = self.options.epochs or "for ever"
    lines = [
      f"input: {steps} in {len(self.buckets)} static shapes ({self._run.kind}),"
      f" by {self._run.unit}, seed {self.options.seed}, epochs {epochs},"
      f" remainder {self.options.remainder}"
    ]
    lines += summary.bucket_lines(self._plan)
    lines += summary.stage_lines(self._plan, self._run.bucket_stages())
    lines += [own.describe() for own in self._plan.datasets.values()]
    return "\n".join(lines)

  def _own_fingerprint(self) -> dict[str, Any]:
    return {}


class LengthPipeline(BucketPipeline):
  """Text in rows of a few lengths."""

  _plan: plan_lib.LengthPlan

  def __init__(self, run: options_lib.BucketRun):
    """Opens stores and puts documents in buckets; see `BucketPipeline`."""
    super().__init__(run)
    self._eos_ids = fillers.eos_ids(
      self.sources, self.options.train_on_eos, composing.PATH
    )

  @property
  def sources(self) -> dict[str, row_source.RowSource]:
    """By name, the rows of each source's longest bucket."""
    return {
      n: own.longest for n, own in composing.documents(self._plan.datasets)
    }

  @functools.cached_property
  def accounts(self) -> accounts_lib.LengthAccounts:
    """The histogram, and rows and tokens by source, at any step."""
    return accounts_lib.LengthAccounts(self._plan, self._run.unit == "tokens")

  @property
  def seq_len(self) -> int:
    """Positions of the longest rows."""
    return self.buckets[-1].shape[0]

  @property
  def global_batch_size(self) -> int:
    """Rows of a step of the longest bucket, over all processes."""
    return self.buckets[-1].batch_size

  @property
  def vocab_size(self) -> int:
    """Token ids of the sources are below this."""
    return max(source.store.vocab_size for source in self.sources.values())

  def plan(self, step: int, count: int = 1) -> spans_lib.Spans:
    """Returns the spans of `count` steps from `step` on; reads no token.

    Args:
      step: The first step.
      count: How many steps; their rows follow each other.

    Raises:
      IndexError: If a step is not of the run.
    """
    return self._plan.plan(step, count)

  def row_length(self, step: int) -> int:
    """Returns the positions of a step's rows."""
    return self.buckets[self._plan.at(step)[1]].shape[0]

  def canonical(self, step: int) -> dict[str, np.ndarray]:
    """Returns a step's canonical fields, whatever the batch format."""
    return self._plan.read(step, None, self._reads)

  def validation(self) -> dict[str, row_source.RowSource]:
    """Returns a fixed small (t, s) grid of each source's own documents."""
    return {name: source.validation() for name, source in self.sources.items()}

  def operations(self) -> list[grain.transforms.Map]:
    """Returns the transforms that the config asks for."""
    own: list[grain.transforms.Map] = []
    if not self.options.train_on_eos:
      own.append(masks.TrainOnEos(enabled=False, eos_ids=self._eos_ids))
    operation = formats.FORMATS[self.options.batch_format].transform
    return own if operation is None else [*own, operation()]

  def _own_fingerprint(self) -> dict[str, Any]:
    names = ("batch_format", "train_on_eos", "lookahead", "document_id")
    return {
      **{name: getattr(self.options, name) for name in names},
      "assign": self._run.buckets.assign,
    }


class ResolutionPipeline(BucketPipeline):
  """Precomputed arrays of a few sizes."""

  def _own_fingerprint(self) -> dict[str, Any]:
    buckets = self._run.buckets
    return {
      "fields": list(buckets.array_fields()),
      "metadata": list(buckets.metadata),
      "patch_size": buckets.patch_size,
    }


def build(run: options_lib.BucketRun) -> BucketPipeline:
  """Composes the pipeline of a checked config.

  Raises:
    ConfigError: If options do not fit the stores.
    StoreError: If a store cannot be opened.
  """
  kinds = {"length": LengthPipeline, "resolution": ResolutionPipeline}
  return kinds[run.kind](run)


def _as_json(stages: Any) -> dict[str, dict[str, str]]:
  return {
    str(step): {name: str(weight) for name, weight in sorted(weights.items())}
    for step, weights in stages
  }
