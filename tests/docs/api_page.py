# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/api.md from docstrings: `python -m tests.docs.api_page`."""

import inspect
import pathlib

import chomp_data

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "api.md"

# Title, what to know, names.
SECTIONS = (
  (
    "A run",
    "`config.data` in, batches out. `print` shows what each is.",
    (
      "load_config", "with_placeholders", "build", "make_iterator", "Pipeline",
      "InputIterator",
    ),
  ),
  (
    "Checkpoints",
    "Arguments for Orbax, beside those of the model.",
    ("InputSave", "InputRestore"),
  ),
  (
    "Stores",
    "The command `chomp-prepare` makes them of text.",
    (
      "open_store", "Store", "ArrayRecordOptions", "open_array_records",
      "open_samples", "SampleStore", "write_store", "verify_store",
    ),
  ),
  (
    "Row sources",
    "Rows by number, also in a plain `grain.MapDataset.source`"
    " ([stock_grain.md](stock_grain.md)). One of your"
    " own is a `RowSource` with the methods below.",
    (
      "RowSource", "Epochs", "Spans", "BinSource", "SequentialSource",
      "SpliceSource",
      "ShuffledSource", "GridSource", "MixtureSource",
    ),
  ),
  (
    "Options",
    "The fields of a config's sections `rows`, `shuffle` and `mix`.",
    (
      "BinOptions", "SequentialOptions", "SpliceOptions",
      "MultiSpliceOptions", "WindowOptions", "ShuffleOptions", "MixOptions",
    ),
  ),
  (
    "Samplers",
    "The orders for a stock `grain.DataLoader`:"
    " [stock_grain.md](stock_grain.md).",
    (
      "NoShuffleSampler", "FullShuffleSampler", "EraShuffleSampler",
      "BlockShuffleSampler",
    ),
  ),
  (
    "Errors",
    "All of them say what is wrong and what to do. They stand in"
    " `chomp_data.errors`.",
    (
      "ConfigError", "StoreError", "StateError", "InputError",
      "PrepareError",
    ),
  ),
)  # fmt: skip


def page() -> str:
  """Returns the page."""
  parts = [
    "# Public API\n",
    "All of it is in `chomp_data`, as `chomp_data.build`. What is not named"
    " here may change.\n",
  ]
  for title, text, names in SECTIONS:
    parts.append(f"## {title}\n\n{text}\n")
    parts.append(_table((n, getattr(chomp_data, n)) for n in names))
  parts.append("## What they have\n")
  for owner in ("Pipeline", "InputIterator"):
    members = vars(getattr(chomp_data, owner)).items()
    parts.append(f"`{owner}`:\n")
    parts.append(_table((n, m) for n, m in members if not n.startswith("_")))
  source = chomp_data.RowSource
  abstract = [name for name in vars(source) if _is_abstract(source, name)]
  parts.append("A `RowSource` of your own must have:\n")
  parts.append(_table((name, getattr(source, name)) for name in abstract))
  return "\n".join(parts)


def _is_abstract(owner: type, name: str) -> bool:
  return getattr(vars(owner)[name], "__isabstractmethod__", False)


def _table(rows) -> str:
  lines = [f"| `{name}` | {_sentence(value)} |" for name, value in rows]
  return "\n".join(["| | |", "|---|---|", *lines, ""])


def _sentence(value: object) -> str:
  """Returns the first paragraph of a docstring as one line."""
  text = (inspect.getdoc(value) or "").split("\n\n")[0]
  return " ".join(text.split())


if __name__ == "__main__":
  PAGE.write_text(page())
