# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What does cheap reading cost a model? The ablation that seed 002 leaves open.

    python examples/experiments/shuffle_ablation.py --results=ablation.jsonl \\
      --output=table.md --plot=plot.png

The same model is trained on the same three sources in equal shares of tokens,
for one whole epoch, in orders that differ in nothing but what they cost to
read. The sources are this machine's own text (the standard library, installed
packages, their notes and licences), a twelfth of each kept for measuring. Their
documents lie in the order of their paths, so that neighbours are alike and the
order matters. Everything is scaled down alike: a chunk is a block of 2 rows of
256 bytes (128 rows of 2,048 tokens at the usual size), so that a window of 512
blocks is nearly a source.

- none: rows as they lie
- full, era: of all rows; of eras as long as a window of 8 blocks
- block 8, 32, 512: block shuffle with so many blocks in a window
- packed full: documents in any order, packed into rows, rows in any order
- packed 32: windows of documents packed and shuffled within the bytes of 32
  blocks; compare it with `packed full`, since its rows attend to less

Quality: bits a byte of held-out text by source, mean of the seeds and their
spread. Cost: ranges read an example, and chunks fetched over those of the
stores, with a cache of two of the order's own windows (of 8 blocks for
`full`). The throughput arm reads `--read_steps` steps alone, without a model.
`--results` keeps each run as it ends; a killed one goes on from there.

About 20 minutes on two CPU cores.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import hashlib
import json
import math
import pathlib
import site
import statistics
import sysconfig
import tempfile
import time

from absl import app
from absl import flags
import jax
import numpy as np
import shared

import chomp_data
from chomp_data import pipeline
from chomp_data import stores
from chomp_data.prepare import tokenizers
from chomp_data.reference import evaluation
from chomp_data.reference import training

_SEEDS = flags.DEFINE_integer("seeds", 3, "Runs of each order.", 1)
_BYTES = flags.DEFINE_integer(
  "source_bytes", 300_000, "Bytes of each source that are trained on.", 1
)
_READ_STEPS = flags.DEFINE_integer(
  "read_steps", 600, "Steps of the throughput arm.", 1
)
_ARMS = flags.DEFINE_list("arms", None, "Which orders; by default all.")
_RESULTS = flags.DEFINE_string(
  "results", None, "JSON lines that runs are kept in, and continued from."
)
_OUTPUT = flags.DEFINE_string("output", None, "Markdown file to append to.")
_PLOT = flags.DEFINE_string(
  "plot", None, "PNG to write; needs matplotlib (the extra `plots`)."
)

_SEQ_LEN = 256  # tokens, which are bytes
_BATCH = 16  # rows
_BLOCK = 2  # rows
_CHUNK = _BLOCK * _SEQ_LEN  # tokens
_DOCUMENT = 4_096  # bytes of a document, at most
_HELD_OUT = 12  # one document of so many
_GROUP = 16  # steps that are planned and fetched together
_NAMES = ("stdlib", "packages", "notes")


def _block(blocks: int) -> dict:
  return {
    "kind": "block",
    "io_block_size": _BLOCK,
    "window_blocks": blocks,
    "cache_windows": 2,
  }


_SHUFFLES = {
  "none": {"kind": "none"},
  "full": {"kind": "full"},
  "era": {"kind": "era", "era_length": 8 * _BLOCK},
  "block 8": _block(8),
  "block 32": _block(32),
  "block 512": _block(512),
  "packed full": {"kind": "full"},
  "packed 32": {"kind": "block", "window_blocks": 2, "cache_windows": 2},
}
# Chunks in the cache of orders that have no windows.
_CACHED = 16
_CACHE_BYTES = _CACHED * _CHUNK * 2


def files_of(name: str) -> Iterator[pathlib.Path]:
  """Yields the files of a source in the order of their paths."""
  packages = pathlib.Path(site.getsitepackages()[0])
  if name == "stdlib":
    root = pathlib.Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.glob("**/*.py")):
      if not {"site-packages", "test", "tests"} & set(path.parts):
        yield path
  elif name == "packages":
    for package in ("flax", "jax", "numpy", "optax"):
      yield from sorted((packages / package).glob("**/*.py"))
  else:
    for pattern in ("LICENSE*", "METADATA", "*.md", "*.rst", "*.txt"):
      yield from sorted(packages.glob(f"**/{pattern}"))


def documents_of(name: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
  """Returns the documents of a source, trained on and held out."""
  trained: list[np.ndarray] = []
  held: list[np.ndarray] = []
  seen, left = set(), _BYTES.value
  for path in files_of(name):
    if left <= 0:
      break
    text = path.read_bytes()[:_DOCUMENT] if path.is_file() else b""
    digest = hashlib.sha256(text).digest()
    if len(text) < _SEQ_LEN or digest in seen:
      continue
    seen.add(digest)
    if digest[0] % _HELD_OUT:
      text = text[:left]
      left -= len(text)
      trained.append(np.frombuffer(text, np.uint8))
    else:
      held.append(np.frombuffer(text, np.uint8))
  if left > 0:
    raise ValueError(
      f"--source_bytes must be at most {_BYTES.value - left}, got"
      f" {_BYTES.value}: {name} has no more."
    )
  return trained, held


def make_stores(directory: pathlib.Path) -> None:
  """Writes two stores of each source, `NAME` and `NAME-held-out`."""
  info = tokenizers.make_tokenizer(tokenizers.TokenizerSpec()).info
  for name in _NAMES:
    for suffix, documents in zip(
      ("", "-held-out"), documents_of(name), strict=True
    ):
      stores.write_store(
        directory / f"{name}{suffix}",
        documents,
        tokenizer_info=info,
        compression="zstd",
        chunk=_CHUNK,
      )


def config(directory: pathlib.Path, arm: str, seed: int) -> dict:
  """Returns `config.data` of one run."""
  rows: dict = {"kind": "sequential"}
  if arm.startswith("packed"):
    rows = {
      "kind": "bin",
      "packing_algorithm": "exact",
      # Documents of half the bytes of 32 blocks.
      "packing_buffer_docs": 16 * _CHUNK // (_DOCUMENT * 3 // 4),
      "shuffle_documents": _SHUFFLES[arm]["kind"],
    }
  return {
    "seq_len": _SEQ_LEN,
    "global_batch_size": _BATCH,
    "seed": seed,
    "epochs": 1,
    "sources": {
      name: {
        "store": str(directory / name),
        "rows": rows,
        "shuffle": _SHUFFLES[arm],
      }
      for name in _NAMES
    },
    "mix": {"kind": "token_balanced", "exhaustion": "drop"},
  }


def opened(directory: pathlib.Path, arm: str, seed: int) -> pipeline.Pipeline:
  """Returns a run whose caches hold two windows."""
  pipe = chomp_data.build(config(directory, arm, seed))
  if _SHUFFLES[arm]["kind"] != "block":
    for source in pipe.sources.values():
      source.store.set_cache(_CACHE_BYTES)
  return pipe


def train(directory: pathlib.Path, arm: str, seed: int) -> dict:
  """Trains one model for an epoch; returns what came out."""
  pipe = opened(directory, arm, seed)
  steps = pipe.num_steps
  assert steps is not None
  trainer = shared.make_trainer(
    pipe, _SEQ_LEN, steps, training.OptimizerOptions()
  )
  state = trainer.init(seed)
  losses = []
  with chomp_data.make_iterator(pipe, trainer.batch_sharding) as batches:
    for _ in range(steps):
      state, metrics = trainer.step(state, next(batches))
      losses.append(metrics["loss"])
  losses = np.asarray(jax.device_get(losses), np.float64)
  model = trainer.model(state)
  bits_per_byte = {}
  for name in _NAMES:
    source = chomp_data.build(
      {
        "seq_len": _SEQ_LEN,
        "global_batch_size": _BATCH,
        "epochs": 1,
        "sources": {
          name: {
            "store": str(directory / f"{name}-held-out"),
            "rows": {"kind": "sequential"},
          }
        },
      }
    ).sources[name]
    score = evaluation.score(model, evaluation.batches_of(source, 64))
    bits_per_byte[name] = score.loss / math.log(2)
  return {
    "arm": arm,
    "seed": seed,
    "steps": steps,
    "parameters": trainer.num_parameters,
    "bits_per_byte": bits_per_byte,
    # How uneven the loss is from step to step, in the second half.
    "jitter": float(np.std(np.diff(losses[steps // 2 :]))),
    "losses": [float(v) for v in losses[:: max(1, steps // 100)]],
  }


def read(directory: pathlib.Path, arm: str) -> dict:
  """Reads some steps without a model; returns what they cost."""
  pipe = opened(directory, arm, 0)
  assert pipe.num_steps is not None
  steps = min(_READ_STEPS.value, pipe.num_steps)
  loader = pipe.data_loader(worker_count=0)
  batches = iter(loader)
  cpu = time.process_time()
  for _ in range(steps):
    next(batches)
  cpu = time.process_time() - cpu
  return {
    "tokens_per_cpu_s": steps * _BATCH * _SEQ_LEN / cpu,
    **_cost(directory, arm, steps),
  }


def _cost(directory: pathlib.Path, arm: str, steps: int) -> dict:
  """Returns ranges an example and chunks over those of whole stores."""
  pipe = opened(directory, arm, 0)
  source = pipeline.batch_source(pipe, group_steps=_GROUP)
  for step in range(steps):
    source[step]
  reads = list(source.reads.by_source().values())
  whole = sum(
    -(-source.store.num_tokens // _CHUNK) for source in pipe.sources.values()
  )
  assert pipe.num_steps is not None
  return {
    "reads_per_example": sum(read.coalesced_ranges for read in reads)
    / sum(read.planned_examples for read in reads),
    "chunks": sum(read.chunks_fetched for read in reads)
    / (whole * steps / pipe.num_steps),
  }


def stored_runs() -> list[dict]:
  """Returns the runs that `--results` has."""
  if not _RESULTS.value or not pathlib.Path(_RESULTS.value).exists():
    return []
  lines = pathlib.Path(_RESULTS.value).read_text().splitlines()
  return [json.loads(line) for line in lines]


def quality(directory: pathlib.Path, arms: Sequence[str]) -> list[dict]:
  """Trains every order with every seed, seeds outermost."""
  runs = stored_runs()
  done = {(run["arm"], run["seed"]) for run in runs}
  for seed in range(_SEEDS.value):
    for arm in arms:
      if (arm, seed) in done:
        continue
      runs.append(train(directory, arm, seed))
      print(json.dumps({k: v for k, v in runs[-1].items() if k != "losses"}))
      if _RESULTS.value:
        with open(_RESULTS.value, "a") as file:
          file.write(json.dumps(runs[-1]) + "\n")
  return [run for run in runs if run["arm"] in arms]


def table_of(
  arms: Sequence[str], runs: list[dict], costs: dict[str, dict]
) -> tuple[str, list[list[str]]]:
  """Returns one line an order."""
  head = [
    "order",
    *(f"{name}, bits/byte" for name in _NAMES),
    "mean",
    "over a full shuffle",
    "jitter of the loss",
    "reads/example",
    "chunks",
    "read, M tokens/CPU s",
  ]
  lines = []

  def of(arm: str, name: str | None) -> list[float]:
    scores = [run["bits_per_byte"] for run in runs if run["arm"] == arm]
    if name is not None:
      return [one[name] for one in scores]
    return [statistics.mean(one.values()) for one in scores]

  for arm in arms:
    cells = [
      f"{statistics.mean(of(arm, name)):.3f} ± {_spread(of(arm, name)):.3f}"
      for name in (*_NAMES, None)
    ]
    # Packed rows attend to less, so they have a full shuffle of their own.
    best = "packed full" if arm.startswith("packed") else "full"
    over = ""
    if best in arms:
      # By seed: the same model and the same start.
      pairs = [
        value - full
        for value, full in zip(of(arm, None), of(best, None), strict=True)
      ]
      over = f"{statistics.mean(pairs):+.3f} ± {_spread(pairs):.3f}"
    arm_runs = [run for run in runs if run["arm"] == arm]
    cost = costs[arm]
    lines.append(
      [
        arm, *cells, over,
        f"{statistics.mean(run['jitter'] for run in arm_runs):.3f}",
        f"{cost['reads_per_example']:.3f}", f"{cost['chunks']:.2f}",
        f"{cost['tokens_per_cpu_s'] / 1e6:.1f}",
      ]
    )  # fmt: skip
  first = runs[0]
  title = (
    f"{first['parameters']:,} parameters, {first['steps']} steps of"
    f" [{_BATCH}, {_SEQ_LEN}], {_SEEDS.value} seeds"
  )
  return title, [head, *lines]


def _spread(values: list[float]) -> float:
  return statistics.stdev(values) if len(values) > 1 else 0.0


def plot(
  path: str, arms: Sequence[str], runs: list[dict], costs: dict[str, dict]
) -> None:
  """Draws quality against cost, one point a run."""
  import matplotlib as mpl

  mpl.use("Agg")
  from matplotlib import pyplot

  figure, axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
  for arm in arms:
    values = [
      statistics.mean(run["bits_per_byte"].values())
      for run in runs
      if run["arm"] == arm
    ]
    at = costs[arm]["chunks"]
    axis.scatter([at] * len(values), values, s=24, label=arm)
  axis.set_xscale("log")
  axis.set_xlabel("chunks fetched, over those of the stores")
  axis.set_ylabel("held-out bits a byte")
  axis.legend(fontsize="small")
  figure.savefig(path, dpi=120)


def main(argv: Sequence[str]) -> None:
  """Measures all orders and shows the table."""
  shared.refuse_arguments(argv)
  arms = _ARMS.value or list(_SHUFFLES)
  if unknown := set(arms) - set(_SHUFFLES):
    raise app.UsageError(
      f"--arms must be some of {', '.join(_SHUFFLES)}, got"
      f" {', '.join(sorted(unknown))}."
    )
  with tempfile.TemporaryDirectory() as temporary:
    directory = pathlib.Path(temporary)
    make_stores(directory)
    costs = {arm: read(directory, arm) for arm in arms}
    runs = quality(directory, arms)
    shared.show(*table_of(arms, runs, costs), _OUTPUT.value)
    if _PLOT.value:
      plot(_PLOT.value, arms, runs, costs)


if __name__ == "__main__":
  app.run(main)
