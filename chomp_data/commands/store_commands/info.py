# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Describes stores: documents, tokens, lengths, tokenizer, hash."""

import argparse
import json
import pathlib
from typing import Any

import numpy as np
import rich.console
import rich.markup

from chomp_data import cli
from chomp_data import stores
from chomp_data.commands.store_commands import shared
from chomp_data.stores import checksum_sidecar
from chomp_data.stores.zarr import zarr_store

_BAR = 40


def add(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments."""
  parser.add_argument(
    "paths", nargs="+", metavar="PATH", help="path of a store"
  )
  parser.add_argument(
    "--format",
    choices=("text", "json"),
    default="text",
    help="a table, or one JSON object per line",
  )
  shared.add_kinds(parser)


def run(args: argparse.Namespace) -> int:
  """Prints; returns the exit status."""
  console = rich.console.Console(highlight=False)
  for store in shared.opened(args.paths, args):
    fields = record(store)
    if args.format == "json":
      print(json.dumps(fields))
    else:
      _print(console, fields)
  return 0


def record(store: stores.Store) -> dict[str, Any]:
  """Returns what there is to tell, as JSON values."""
  info = store.opened.tokenizer
  fields: dict[str, Any] = {
    "path": store.path,
    "kind": type(store).__name__.removesuffix("Store"),
    "hash": store.hash,
    "documents": store.num_documents,
    "tokens": store.num_tokens,
    "token_dtype": store.opened.token_dtype.name,
    "tokenizer": {
      "kind": info.kind,
      "known_by": list(store.opened.tokenizer_identity or ()),
      "vocab_size": info.vocab_size,
      "pad_id": info.pad_id,
      "bos_id": info.bos_id,
      "eos_id": info.eos_id,
      "adds_bos": info.adds_bos,
      "adds_eos": info.adds_eos,
    },
    "lengths": _histogram(store),
  }
  if isinstance(store, zarr_store.ZarrStore):
    layout = store.manifest.arrays["tokens"].layout
    fields["compression"] = layout.compression
    fields["chunk_tokens"] = layout.chunk
    fields["has_meta"] = store.opened.meta is not None
  elif isinstance(store.path, str):
    home = pathlib.Path(store.path)
    fields["adopted"] = checksum_sidecar.directory_of(home).is_dir()
  if store.opened.pairs:
    fields["pairs"] = store.num_documents // 2
  if store.labels.has_runs:
    end = np.asarray([store.num_tokens], np.int64)
    fields["trained_tokens"] = int(store.labels.trained_before(end)[0])
  if store.labels.has_runs or store.labels.has_weights:
    # As short as float32 needs: 0.3, not 0.30000001192092896.
    fields["levels"] = [float(str(level)) for level in store.labels.levels]
  if store.opened.columns:
    fields["columns"] = {
      name: str(stored.column) for name, stored in store.opened.columns.items()
    }
  return fields


def _histogram(store: stores.Store) -> list[dict[str, int]]:
  """Returns documents by length, in powers of two; 0 is apart."""
  counts = np.zeros(65, np.int64)
  tokens = np.zeros(65, np.int64)
  for _, lengths in store.iter_lengths():
    # frexp is exact up to 2**53: m * 2**e with m below 1.
    number = np.frexp(lengths.astype(np.float64))[1]
    counts += np.bincount(number, minlength=65)
    by_bits = np.bincount(number, lengths, 65)
    tokens += by_bits.astype(np.int64)
  used = np.flatnonzero(counts)
  last = int(used[-1]) + 1 if len(used) else 0
  first = int(used[0]) if len(used) else 0
  return [
    {
      "from": 0 if i == 0 else 1 << (i - 1),
      "to": 0 if i == 0 else (1 << i) - 1,
      "documents": int(counts[i]),
      "tokens": int(tokens[i]),
    }
    for i in range(first, last)
  ]


def _print(console: rich.console.Console, fields: dict[str, Any]) -> None:
  lengths = fields.pop("lengths")
  tokenizer = fields.pop("tokenizer")
  console.print(rich.markup.escape(fields.pop("path")), style="bold")
  known = tokenizer.pop("known_by")
  named = f", {known[0]} {known[1]}" if known else ", which one is not known"
  special = " ".join(
    f"{name}={value}"
    for name, value in tokenizer.items()
    if name not in ("kind", "vocab_size")
    and value is not None
    and value is not False
  )
  lines = {
    **{name: _shown(value) for name, value in fields.items()},
    "tokenizer": f"{tokenizer['kind']}{named}",
    "": f"{tokenizer['vocab_size']:,} ids {special}".rstrip(),
  }
  for name, value in lines.items():
    console.print(
      f"  {name.replace('_', ' '):<15}{rich.markup.escape(value)}",
      soft_wrap=True,
    )
  most = max((bar["documents"] for bar in lengths), default=1) or 1
  rows: list[list[Any]] = []
  for bar in lengths:
    blocks = "█" * -(-bar["documents"] * _BAR // most)
    low, high = bar["from"], bar["to"]
    shown = f"{low:,}" if low == high else f"{low:,} .. {high:,}"
    rows.append([f"  {shown}", bar["documents"], bar["tokens"], blocks])
  columns = {"  length": True, "documents": True, "tokens": True, "": False}
  console.print(cli.table(columns, rows, box=None, pad_edge=False))


def _shown(value: Any) -> str:
  if isinstance(value, bool):
    return "yes" if value else "no"
  return f"{value:,}" if isinstance(value, int) else str(value)
