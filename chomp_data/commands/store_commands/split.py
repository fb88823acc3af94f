# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Splits a store into a held-out set, by hashes of document ids, and the rest.

A document goes where its id says, whatever else is in the store: when
documents are added, those that were held out still are, and no other of the
old ones is. Documents of one id stay together, and so do the halves of a
preference pair, which goes where the id of its chosen answer says.
"""

import argparse
import fractions
import hashlib
import pathlib
from typing import Any

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data import stores
from chomp_data.commands.store_commands import shared
from chomp_data.stores import copying


def add(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments."""
  parser.add_argument("path", metavar="PATH", help="path of the store")
  parser.add_argument(
    "--output", required=True, help="the store with the remaining documents"
  )
  parser.add_argument(
    "--held_out", required=True, help="the store with the held-out documents"
  )
  parser.add_argument(
    "--fraction",
    default="0.01",
    help="approximate share of held-out documents; default %(default)s",
  )
  parser.add_argument(
    "--seed",
    type=int,
    default=0,
    help="seed of the choice; default %(default)s",
  )
  shared.add_writing(parser)
  shared.add_kinds(parser)


def run(args: argparse.Namespace) -> int:
  """Writes both stores; returns the exit status."""
  limit = _limit(args.fraction)
  (store,) = shared.opened([args.path], args)
  if pathlib.Path(args.output) == pathlib.Path(args.held_out):
    raise schema.ConfigError(
      [
        "`--held_out` must be another path than `--output`, got"
        f" {args.held_out!r}. Name two stores."
      ]
    )
  origin = {
    "split_of": store.hash,
    "fraction": args.fraction,
    "seed": args.seed,
    **shared.chats_of(store),
  }
  options = shared.layout_of(store, args.compression)
  with (
    copying.staged(args.output, args.overwrite) as rest,
    copying.staged(args.held_out, args.overwrite) as held,
    copying.writer_of(rest, store, **options) as rest_writer,
    copying.writer_of(held, store, **options) as held_writer,
  ):
    counts = _write(store, rest_writer, held_writer, limit, args.seed)
    if not all(counts):
      side = "held out" if counts[0] else "left"
      raise errors.StoreError(
        f"`--fraction` must leave a document on both sides, got {args.fraction}"
        f" of {sum(counts)}: none is {side}. Choose another one."
      )
    rest_writer.finish(prepared={**origin, "side": "rest"})
    held_writer.finish(prepared={**origin, "side": "held_out"})
  for path in (args.output, args.held_out):
    print(shared.line(stores.open_store(path)))
  return 0


def is_held_out(ids: list[str], limit: int, seed: int) -> np.ndarray:
  """Returns which documents are held out, bool[N].

  Args:
    ids: Of the documents.
    limit: Of 2**64 hashes, those below it are held out.
    seed: Part of what is hashed.
  """
  prefix = hashlib.blake2b(f"{seed}\0".encode(), digest_size=8)
  out = np.empty(len(ids), np.bool_)
  for i, name in enumerate(ids):
    hashed = prefix.copy()
    hashed.update(name.encode())
    out[i] = int.from_bytes(hashed.digest(), "little") < limit
  return out


def _limit(text: str) -> int:
  try:
    fraction = fractions.Fraction(text)
  except (ValueError, ZeroDivisionError):
    fraction = fractions.Fraction(0)
  if not 0 < fraction < 1:
    raise schema.ConfigError(
      [f"`--fraction` must be between 0 and 1, got {text!r}. Correct it."]
    )
  return int(fraction * 2**64)


def _write(
  store: stores.Store, rest: Any, held: Any, limit: int, seed: int
) -> tuple[int, int]:
  """Returns how many documents went to each side."""
  counts = [0, 0]
  with shared.bar(store.num_tokens, "tokens") as progress:
    for batch in copying.document_batches(store):
      halves = 2 if store.opened.pairs else 1
      mask = is_held_out(batch.ids[::halves], limit, seed).repeat(halves)
      for side, (writer, selected) in enumerate(((rest, ~mask), (held, mask))):
        copying.append(writer, batch.select(selected))
        counts[side] += int(selected.sum())
      progress.update(len(batch.tokens))
  return counts[0], counts[1]
