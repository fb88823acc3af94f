# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How often does a short run repeat its sources, beside the run it stands for?

    python examples/experiments/simulated_epochs.py --output=table.md \\
      --plot=plot.png

Three sources of which a run of T tokens repeats the smallest eight times. A run
of T / 20 tokens over all documents repeats nothing; with simulated epochs it
repeats each source as often as the long run, at every point. Stores are of
random tokens, lengths lognormal; no model is trained. Seconds.
"""

from collections.abc import Sequence
import pathlib
import tempfile

from absl import app
from absl import flags
import numpy as np
import shared

import chomp_data
from chomp_data import stores

_OUTPUT = flags.DEFINE_string("output", None, "Markdown file to append to.")
_PLOT = flags.DEFINE_string(
  "plot", None, "PNG to write; needs matplotlib (the extra `plots`)."
)

_TOKENS = {"web": 4_000_000, "code": 1_000_000, "math": 125_000}
_WEIGHTS = {"web": 0.5, "code": 0.25, "math": 0.25}
_TARGET = 4_000_000  # tokens: T
_SHARE = 20
_SEQ_LEN, _BATCH = 512, 8
_POINTS = 25  # of a run


def make_stores(directory: pathlib.Path) -> None:
  """Writes the three stores."""
  info = stores.TokenizerInfo(
    kind="custom", sha256="0" * 64, vocab_size=256, pad_id=0, eos_id=1
  )
  rng = np.random.default_rng(0)
  for name, num_tokens in _TOKENS.items():
    lengths = np.maximum(rng.lognormal(5.5, 1, num_tokens // 100), 1)
    count = int(np.searchsorted(np.cumsum(lengths), num_tokens))
    stores.write_store(
      directory / name,
      [rng.integers(2, 256, int(n)) for n in lengths[:count]],
      ids=[f"{name}/{i}" for i in range(count)],
      tokenizer_info=info,
    )


def passes(
  directory: pathlib.Path, run_tokens: int, simulated: bool
) -> dict[str, list[float]]:
  """Returns the passes over each source at the points of a run."""
  data = {
    "seq_len": _SEQ_LEN,
    "global_batch_size": _BATCH,
    "epochs": None,
    "sources": {
      name: {"store": str(directory / name), "rows": {"kind": "bin"}}
      for name in _TOKENS
    },
    "mix": {"weights": _WEIGHTS},
  }
  if simulated:
    data["simulated_epochs"] = {
      "target_tokens": _TARGET,
      "run_tokens": run_tokens,
    }
  pipe = chomp_data.build(data)
  steps = run_tokens // (_SEQ_LEN * _BATCH)
  accounts = [
    pipe.accounts.at(round(steps * point / _POINTS))
    for point in range(_POINTS + 1)
  ]
  return {name: [a[name].epochs for a in accounts] for name in _TOKENS}


def plot(path: str, runs: dict[str, dict[str, list[float]]]) -> None:
  """Draws passes over the run, a panel for each run."""
  import matplotlib as mpl

  mpl.use("Agg")
  from matplotlib import pyplot

  figure, axes = pyplot.subplots(
    1, len(runs), figsize=(9, 3), layout="constrained", sharey=True
  )
  for axis, (title, by_source) in zip(axes, runs.items(), strict=True):
    for name, values in by_source.items():
      axis.plot(np.linspace(0, 100, len(values)), values, label=name)
    axis.set_title(title, fontsize="medium")
    axis.set_xlabel("% of the run")
  axes[0].set_ylabel("passes over a source")
  axes[0].legend(fontsize="small")
  figure.savefig(path, dpi=120)


def main(argv: Sequence[str]) -> None:
  """Makes the table and the picture."""
  shared.refuse_arguments(argv)
  short = _TARGET // _SHARE
  with tempfile.TemporaryDirectory() as directory:
    root = pathlib.Path(directory)
    make_stores(root)
    runs = {
      "T tokens": passes(root, _TARGET, False),
      f"T / {_SHARE} tokens": passes(root, short, False),
      f"T / {_SHARE}, simulated epochs": passes(root, short, True),
    }
  rows = [
    [title, *(f"{values[-1]:.2f}" for values in by_source.values())]
    for title, by_source in runs.items()
  ]
  shared.show("passes", [["run", *_TOKENS], *rows], _OUTPUT.value)
  if _PLOT.value:
    plot(_PLOT.value, runs)


if __name__ == "__main__":
  app.run(main)
