# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Small runs of every kind, drawn for laws: `config.data` over tiny stores."""

import pathlib

from hypothesis import strategies as st
import numpy as np

from chomp_data.testing import stores as testing_stores

NAMES = ("web", "books", "code")
SEQ_LEN = 16

ROWS = {
  "sequential": {"kind": "sequential"},
  "reshuffled": {
    "kind": "sequential",
    "shuffle_documents": "block",
    "document_block": 4,
    "tail": "pad",
  },
  "ffd": {"kind": "bin", "packing_buffer_docs": 8, "add_eos": True},
  "exact": {
    "kind": "bin",
    "packing_buffer_docs": 8,
    "packing_algorithm": "exact",
    "shuffle_documents": "block",
  },
  "multi_splice": {
    "kind": "multi_splice", "num_docs": 3, "content_length": 12,
    "content_stride": 7,
  },
  "windows": {"kind": "windows", "stride": 8},
}  # fmt: skip
SHUFFLES = {
  "none": {"kind": "none"},
  "block": {"kind": "block", "window_blocks": 2},
  "full": {"kind": "full"},
  "era": {"kind": "era", "era_length": 5},
}


def make_stores(directory: pathlib.Path) -> dict[str, str]:
  """Writes a store of each name; the last has labels. Returns paths."""
  paths = {}
  rng = np.random.default_rng(0)
  for i, name in enumerate(NAMES):
    lengths = rng.integers(0, 40, 30 + 10 * i)
    documents = [rng.integers(3, 250, size=n) for n in lengths]
    labels = {}
    if i == 2:
      levels = [rng.integers(0, 2, size=n) for n in lengths]
      labels = {"levels": (0, 1), "label_levels": levels}
    testing_stores.make_store(directory / name, documents, **labels)
    paths[name] = str(directory / name)
  return paths


def _weights(draw, names):
  return {name: draw(st.integers(1, 4)) for name in names}


def _skipped(draw, data):
  if draw(st.booleans()):
    first = draw(st.integers(0, 9))
    data["skip"] = ((first, first + draw(st.integers(0, 5))),)


@st.composite
def of_rows(draw, paths):
  """A run of rows: of one source, or a mix with stages."""
  names = draw(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)
  )
  data = {
    "seq_len": SEQ_LEN,
    "global_batch_size": draw(st.sampled_from((1, 4, 6))),
    "seed": draw(st.integers(0, 3)),
    "epochs": draw(st.sampled_from((None, 1, 3))),
    "remainder": draw(st.sampled_from(("drop", "pad"))),
    "sources": {},
  }
  for name in names:
    rows = draw(st.sampled_from(sorted(ROWS)))
    shuffle = dict(SHUFFLES[draw(st.sampled_from(sorted(SHUFFLES)))])
    if shuffle["kind"] == "block" and rows not in ("ffd", "exact"):
      shuffle["io_block_size"] = 4
    data["sources"][name] = {
      "store": paths[name], "rows": ROWS[rows], "shuffle": shuffle
    }  # fmt: skip
  if draw(st.booleans()):
    size = data.pop("global_batch_size")
    at = draw(st.integers(1, 9))
    data["batch_size_schedule"] = ((0, size), (at, size + 2))
  _skipped(draw, data)
  if len(names) > 1:
    first = _weights(draw, names[: draw(st.integers(1, len(names)))])
    stages = [(0, first)]
    if draw(st.booleans()):
      stages.append((draw(st.integers(1, 12)), _weights(draw, names)))
    elif len(first) < len(names):
      stages = [(0, _weights(draw, names))]
    data["mix"] = {
      "unit": draw(st.sampled_from(("tokens", "rows", "loss_tokens"))),
      "stages": stages,
      "exhaustion": draw(
        st.sampled_from(
          ("drop", "first_exhausted")
          if data["epochs"] is None or len(stages) > 1
          else ("drop", "first_exhausted", "all_exhausted")
        )
      ),
    }
  return data


@st.composite
def of_buckets(draw, paths):
  """A run in buckets of lengths, with or without a curriculum."""
  names = draw(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True)
  )
  data = {
    "seed": draw(st.integers(0, 3)),
    "epochs": draw(st.sampled_from((None, 3))),
    "remainder": draw(st.sampled_from(("drop", "pad"))),
    "buckets": {
      "kind": "length",
      "lengths": (8, 16, 32),
      "tokens_per_batch": 64,
    },
    "sources": {
      name: {
        "store": paths[name], "rows": {"add_eos": draw(st.booleans())}
      } for name in names
    },
    "mix": {
      "weights": _weights(draw, names),
      "unit": draw(st.sampled_from(("tokens", "samples"))),
    },
  }  # fmt: skip
  _skipped(draw, data)
  if data["epochs"] is None and draw(st.booleans()):
    data["buckets"]["stages"] = [
      (0, {"8": 1, "16": draw(st.integers(1, 3))}),
      (draw(st.integers(1, 9)), {"8": 1, "16": 1, "32": 2}),
    ]
  return data


def of_any(paths):
  """A run of any kind of text."""
  return st.one_of(of_rows(paths), of_buckets(paths))
