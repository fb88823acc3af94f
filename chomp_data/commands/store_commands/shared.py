# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What the subcommands share: opening stores, arguments, a bar of progress."""

import argparse
import ast
from collections.abc import Sequence
import contextlib
from typing import Any

import tqdm

from chomp_data import errors
from chomp_data import schema
from chomp_data import stores
from chomp_data.stores import copying
from chomp_data.stores import kinds
from chomp_data.stores.zarr import array_layout
from chomp_data.stores.zarr import zarr_store


def add_kinds(parser: argparse.ArgumentParser) -> None:
  """Adds an argument for each kind of data that does not tell all of itself."""
  group = parser.add_argument_group(
    "data of other tools", "what it does not say of itself, as in a config"
  )
  for name, options in kinds.sections().items():
    fields = schema.options_of(options)
    group.add_argument(
      f"--{name}",
      metavar="{...}",
      help=f"a Python mapping with fields {', '.join(fields)}",
    )


def add_writing(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments of subcommands that write stores."""
  parser.add_argument(
    "--compression",
    choices=array_layout.COMPRESSIONS,
    help="compression of chunks; by default that of the (first) store",
  )
  parser.add_argument(
    "--overwrite",
    action="store_true",
    help="replace an existing store",
  )


def opened(paths: Sequence[str], args: argparse.Namespace) -> list[Any]:
  """Returns stores, opened with what the arguments say of them."""
  return stores.open_stores(list(paths), **kind_options(args))


def kind_options(args: argparse.Namespace) -> dict[str, Any]:
  """Returns what the arguments say of data of other tools, by kind.

  Raises:
    ConfigError: If one of them is wrong.
  """
  options = {}
  for name, cls in kinds.sections().items():
    text = getattr(args, name)
    if text is None:
      continue
    try:
      values = ast.literal_eval(text)
    except (SyntaxError, ValueError) as error:
      raise schema.ConfigError(
        [
          f"`--{name}` must be a mapping as Python writes it, got {text!r}."
          " Write for instance {'vocab_size': 50_257}."
        ]
      ) from error
    options[name], problems = schema.read(cls, values, f"--{name}")
    if problems:
      raise schema.ConfigError(problems)
  return options


def layout_of(store: stores.Store, compression: str | None) -> dict[str, Any]:
  """Returns the options of a writer of a store like another.

  Args:
    store: The other; of its chunks, so that blocks of a shuffle stay.
    compression: What is asked for, or None.
  """
  if not isinstance(store, zarr_store.ZarrStore):
    return {"compression": compression or "none"}
  layout = store.manifest.arrays["tokens"].layout
  return {
    "compression": compression or layout.compression,
    "chunk": layout.chunk,
    "chunks_per_shard": layout.chunks_per_shard,
  }


def prepared_of(store: stores.Store) -> dict[str, Any]:
  """Returns how a store was made, as its manifest says."""
  if isinstance(store, zarr_store.ZarrStore):
    return dict(store.manifest.prepared)
  return {"from": type(store).__name__}


def chats_of(store: stores.Store) -> dict[str, Any]:
  """Returns what a store made of another has to say of its chats."""
  return (
    {"chats": dict(store.opened.chats)}
    if any(store.opened.chats.values())
    else {}
  )


def copied(
  store: stores.Store, output: str, args: argparse.Namespace, **options: Any
) -> None:
  """Writes a store to another one; see `copying.copy`."""
  with bar(store.num_tokens, "tokens") as progress:
    copying.copy(
      store,
      output,
      overwrite=args.overwrite,
      progress=progress.update,
      **options,
    )


def bar(total: int, unit: str) -> Any:
  """Returns a bar on stderr, where that is a terminal."""
  return tqdm.tqdm(
    total=total, unit=unit, unit_scale=True, disable=None, leave=False
  )


def line(store: stores.Store) -> str:
  """Returns what was written, for a person."""
  return (
    f"{store.path}: {store.num_documents:,} documents,"
    f" {store.num_tokens:,} tokens, hash {store.hash[:16]}"
  )


@contextlib.contextmanager
def path_in_errors(path: str):
  """Says which path an error of the system is of."""
  try:
    yield
  except OSError as error:
    raise errors.StoreError(f"{path}: {error}") from error
