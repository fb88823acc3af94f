# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which documents does a model learn first, and how does it go with many?

    python examples/experiments/learning.py --output=tables.md --plot=plot.png

Seed 000's P(z), the probability that a model goes on word for word from a
prefix, for windows of 48 bytes of which 24 are given, by document and over
exposures (spans of the document). Documents are functions of the standard
library, 90 to 400 bytes long, as splices of 64 bytes in rows of 128.

- learned: eight documents of several lengths, shares by `balance_tau` of 0.7:
  after how many exposures each is known (mean P(z) of at least 0.5)
- scaling: 1, 5, 10 and 50 documents for as many steps each

About five minutes on two CPU cores.
"""

from collections.abc import Sequence
import pathlib
import statistics
import tempfile

from absl import app
from absl import flags
import memorization
import numpy as np
import shared

import chomp_data
from chomp_data import stores
from chomp_data.prepare import tokenizers
from chomp_data.reference import training

_PARTS = flags.DEFINE_list("parts", ["learned", "scaling"], "Tables to make.")
_STEPS = flags.DEFINE_integer("steps", 600, "Steps of each run.", 10)
_SCALES = flags.DEFINE_list(
  "scales", ["1", "5", "10", "50"], "Numbers of documents."
)
_OUTPUT = flags.DEFINE_string("output", None, "Markdown file to append to.")
_PLOT = flags.DEFINE_string(
  "plot", None, "PNG to write; needs matplotlib (the extra `plots`)."
)

_SEQ_LEN = 128  # tokens, which are bytes
_COPIED = 64  # tokens of a splice
_BATCH = 16  # rows
_LEARNED = 8  # documents of the first part
_KNOWN = 0.5
_LOOKS = 25  # evaluations of a run
_ASKED = memorization.Options(window=48, prefix=24, documents=64, windows=16)


def make_store(
  directory: pathlib.Path, documents: Sequence[dict[str, str]], count: int
) -> stores.Store:
  """Writes so many of the functions, from the shortest to the longest."""
  some = [
    documents[i * (len(documents) - 1) // max(count - 1, 1)]
    for i in range(count)
  ]
  return stores.write_store(
    directory / str(count),
    [np.frombuffer(document["text"].encode(), np.uint8) for document in some],
    ids=[document["id"] for document in some],
    tokenizer_info=tokenizers.make_tokenizer(tokenizers.TokenizerSpec()).info,
    overwrite=True,
  )


def run(store: stores.Store) -> list[list[dict]]:
  """Trains on a store's documents; returns records of P(z) by look."""
  pipe = chomp_data.build(
    {
      "seq_len": _SEQ_LEN,
      "global_batch_size": _BATCH,
      "sources": {
        "functions": {
          "store": store.path,
          "rows": {
            "kind": "multi_splice",
            "num_docs": store.num_documents,
            # Shorter than all of them: each is begun at many places.
            "content_length": _COPIED,
            "balance_tau": 0.7,
          },
          "shuffle": {"kind": "full"},
        }
      },
    }
  )
  trainer = shared.make_trainer(
    pipe,
    _SEQ_LEN,
    _STEPS.value,
    training.OptimizerOptions(learning_rate=3e-3, warmup_steps=50),
  )
  asked = memorization.Memorization(pipe, "functions", _ASKED)
  every = max(1, _STEPS.value // _LOOKS)
  looks = []
  state = trainer.init(0)
  with chomp_data.make_iterator(pipe, trainer.batch_sharding) as batches:
    for step in range(1, _STEPS.value + 1):
      state, _ = trainer.step(state, next(batches))
      if step % every == 0:
        looks.append(asked.measure(trainer.model(state), step, None))
  return looks


def known_at(looks: list[list[dict]], i: int) -> int | None:
  """Returns the exposures at which the i-th document was known first."""
  for records in looks:
    if records[i]["p_z"] >= _KNOWN:
      return records[i]["exposures"]
  return None


def learned(
  directory: pathlib.Path, documents: Sequence[dict[str, str]]
) -> None:
  """Trains on eight documents and says when each was known."""
  store = make_store(directory, documents, _LEARNED)
  looks = run(store)
  if _PLOT.value:
    plot(_PLOT.value, store, looks)
  lines = []
  last = looks[-1]
  order = sorted(
    range(len(last)),
    key=lambda i: (known_at(looks, i) or float("inf"), -last[i]["p_z"]),
  )
  for i in order:
    look, at = last[i], known_at(looks, i)
    length = int(store.bounds(np.asarray([look["document"]]))[1][0])
    lines.append(
      [
        look["id"], f"{length}", f"{look['exposures']:,}",
        "not yet" if at is None else f"{at:,}",
        f"{look['p_z']:.2f}", f"{look['p_z_max']:.2f}",
      ]
    )  # fmt: skip
  head = [
    "document", "bytes", "exposures", "known after", "P(z)", "greatest P(z)"
  ]  # fmt: skip
  title = f"eight documents, {_STEPS.value} steps"
  shared.show(title, [head, *lines], _OUTPUT.value)


def scaling(
  directory: pathlib.Path, documents: Sequence[dict[str, str]]
) -> None:
  """Trains on more and more documents for as many steps."""
  lines = []
  for count in map(int, _SCALES.value):
    looks = run(make_store(directory, documents, count))
    last = looks[-1]
    at = [known_at(looks, i) for i in range(len(last))]
    known = [step for step in at if step is not None]
    lines.append(
      [
        f"{count}",
        f"{statistics.median(look['exposures'] for look in last):,.0f}",
        f"{len(known)}",
        f"{statistics.median(known):,.0f}" if known else "-",
        f"{statistics.mean(look['p_z'] for look in last):.3f}",
        f"{statistics.mean(look['log_p_z'] for look in last):.2f}",
      ]
    )
  head = [
    "documents", "exposures, median", "known", "known after, median",
    "P(z), mean", "log P(z), mean",
  ]  # fmt: skip
  title = f"more documents, {_STEPS.value} steps each"
  shared.show(title, [head, *lines], _OUTPUT.value)


def plot(path: str, store: stores.Store, looks: list[list[dict]]) -> None:
  """Draws P(z) over exposures, a line a document."""
  import matplotlib as mpl

  mpl.use("Agg")
  from matplotlib import pyplot

  figure, axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
  for i, look in enumerate(looks[-1]):
    length = int(store.bounds(np.asarray([look["document"]]))[1][0])
    axis.plot(
      [records[i]["exposures"] for records in looks],
      [records[i]["p_z"] for records in looks],
      label=f"{length} bytes: {look['id']}",
    )
  axis.set_xlabel("exposures: spans of the document")
  axis.set_ylabel("P(z), mean over its windows")
  axis.legend(fontsize="x-small")
  figure.savefig(path, dpi=120)


def main(argv: Sequence[str]) -> None:
  """Makes the tables."""
  shared.refuse_arguments(argv)
  known = {"learned": learned, "scaling": scaling}
  if unknown := set(_PARTS.value) - set(known):
    raise app.UsageError(
      f"--parts must be some of {', '.join(known)}, got"
      f" {', '.join(sorted(unknown))}."
    )
  parts = [known[name] for name in _PARTS.value]
  documents = sorted(
    shared.functions(90, 400),
    key=lambda document: len(document["text"].encode()),
  )
  with tempfile.TemporaryDirectory() as temporary:
    for part in parts:
      part(pathlib.Path(temporary), documents)


if __name__ == "__main__":
  app.run(main)
