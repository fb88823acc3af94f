# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Does training on splices make a model invariant to where text begins?

    python examples/experiments/splice_invariance.py

The question of seed 000, answered by measurement: the same model, documents
and number of steps, once on splices and once left-aligned from each
document's start, with RoPE and with learned positions. Documents are functions
of the standard library of 90 to 120 bytes: they fit in a row, so both arms see
every token of them. Splices are trained at even columns only; odd columns are
never trained. Prints perplexity in five places, and appends the table as
Markdown where `--output` says.

About ten minutes on two CPU cores.
"""

from collections.abc import Sequence
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from absl import app
from absl import flags
import numpy as np
import shared
import tqdm

import chomp_data
from chomp_data import stores
from chomp_data.reference import evaluation
from chomp_data.reference import training

_STEPS = flags.DEFINE_integer("steps", 600, "Steps of each arm.", 10)
_SEEDS = flags.DEFINE_integer("seeds", 2, "Runs of each arm.", 1)
_OUTPUT = flags.DEFINE_string("output", None, "Markdown file to append to.")

_ROOT = pathlib.Path(__file__).parents[2]
_SEQ_LEN = 128  # tokens
_BATCH = 16  # rows
_NUM_DOCS = 8
_MIN_LENGTH, _MAX_LENGTH = 90, 120  # tokens, which are bytes

_ARMS = {
  # Even columns and every start; the row may cut the document.
  "splices": {
    "content_start_mode": "slide_within",
    "offset_stride": 2,
    "offset_domain": "frame",
    "min_copy_len": 16,
    "balance_mode": "by_document",
  },
  # One pair a document: its start at column 0.
  "left-aligned": {
    "content_start_mode": "anchor_start",
    "offset_stride": _SEQ_LEN,
    "offset_domain": "frame",
    "balance_mode": "by_document",
  },
}


def make_store(directory: pathlib.Path) -> str:
  """Prepares the corpus; returns its path."""
  lines = directory / "functions.jsonl"
  lines.write_text(
    "".join(
      json.dumps(document) + "\n"
      for document in shared.functions(_MIN_LENGTH, _MAX_LENGTH)
    )
  )
  store = directory / "store"
  subprocess.run(
      [
          sys.executable, str(_ROOT / "tools" / "prepare.py"),
          f"--input={lines}", f"--output={store}", "--tokenizer=byte",
      ],
      check=True, capture_output=True,
  )  # fmt: skip
  return str(store)


def config(store: str, arm: str, seed: int) -> dict:
  """Returns `config.data` of one arm."""
  return {
    "seq_len": _SEQ_LEN,
    "global_batch_size": _BATCH,
    "seed": seed,
    "sources": {
      "text": {
        "store": store,
        "rows": {
          "kind": "multi_splice",
          "num_docs": _NUM_DOCS,
          "doc_select_mode": "random",
          "min_doc_length": _MIN_LENGTH,
          "max_doc_length": _MAX_LENGTH,
          **_ARMS[arm],
        },
        "shuffle": {"kind": "full"},
      }
    },
  }


def places(
  store: stores.Store, trained: np.ndarray
) -> dict[str, chomp_data.GridSource]:
  """Returns the rows in which every model is measured.

  Args:
    store: Where the documents are.
    trained: int64[D], the documents both arms are trained on.
  """
  first, lengths = next(iter(store.iter_lengths()))
  others = first + np.flatnonzero(
    (lengths >= _MIN_LENGTH) & (lengths <= _MAX_LENGTH)
  )
  others = others[~np.isin(others, trained)][: 2 * _NUM_DOCS]

  def grid(documents, starts, offsets):
    return chomp_data.GridSource(
      store,
      documents,
      np.asarray(starts),
      np.asarray(offsets),
      seq_len=_SEQ_LEN,
      content_length=48,
      min_copy_len=48,
    )

  later = [9, 21, 33, 41]
  return {
    "document start at column 0": grid(trained, [0], [0]),
    "later starts at column 0": grid(trained, later, [0]),
    "document start at odd columns": grid(trained, [0], [17, 39, 61, 79]),
    "later starts at odd columns": grid(trained, later, [17, 39, 61, 79]),
    "untrained documents at column 0": grid(others, [0], [0]),
  }


def measure(
  store: str, arm: str, positions: str, seed: int
) -> dict[str, float]:
  """Trains one model; returns its perplexity in each place."""
  pipe = chomp_data.build(config(store, arm, seed))
  source = pipe.sources["text"]
  trainer = shared.make_trainer(
    pipe,
    _SEQ_LEN,
    _STEPS.value,
    training.OptimizerOptions(learning_rate=3e-3, warmup_steps=50),
    position_embedding=positions,
  )
  state = trainer.init(seed)
  with chomp_data.make_iterator(pipe, trainer.batch_sharding) as batches:
    for _ in tqdm.trange(_STEPS.value, desc=f"{positions}, {arm}, seed {seed}"):
      state, _ = trainer.step(state, next(batches))
  model = trainer.model(state)
  if not isinstance(source, chomp_data.SpliceSource):
    raise TypeError(f"{source!r} must be a splice source.")
  return {
    name: evaluation.score(model, evaluation.batches_of(rows, 32)).perplexity
    for name, rows in places(source.store, source.documents).items()
  }


def main(argv: Sequence[str]) -> None:
  """Trains four models a seed and prints the table."""
  shared.refuse_arguments(argv)
  with tempfile.TemporaryDirectory() as temporary:
    store = make_store(pathlib.Path(temporary))
    results = {
      (positions, arm): [
        measure(store, arm, positions, seed) for seed in range(_SEEDS.value)
      ]
      for positions in ("rope", "learned")
      for arm in _ARMS
    }
  names = list(next(iter(results.values()))[0])
  head = ["perplexity", *(f"{p}, {a}" for p, a in results)]
  lines = []
  for name in names:
    cells = []
    for runs in results.values():
      values = [run[name] for run in runs]
      cells.append(
        f"{statistics.mean(values):.2f}"
        f" ({min(values):.2f} .. {max(values):.2f})"
      )
    lines.append([name, *cells])
  shared.show("position invariance", [head, *lines], _OUTPUT.value)


if __name__ == "__main__":
  app.run(main)
