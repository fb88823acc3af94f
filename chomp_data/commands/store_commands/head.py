# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Shows the first documents of a store: ids, lengths and text."""

import argparse
import contextlib
import json

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data import stores
from chomp_data.commands.store_commands import shared
from chomp_data.prepare import tokenizers


def add(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments."""
  parser.add_argument("path", metavar="PATH", help="path of the store")
  parser.add_argument(
    "--count", type=_count, default=5, help="number of documents"
  )
  parser.add_argument(
    "--first", type=_count, default=0, help="number of the first document"
  )
  parser.add_argument(
    "--tokens",
    type=_count,
    default=64,
    help="most tokens shown of each document",
  )
  parser.add_argument(
    "--ids", action="store_true", help="token ids instead of text"
  )
  parser.add_argument(
    "--format",
    choices=("text", "json"),
    default="text",
    help="a table, or one JSON object per line",
  )
  shared.add_kinds(parser)


def _count(text: str) -> int:
  if not text.isascii() or not text.isdecimal():
    raise argparse.ArgumentTypeError(
      f"must be a whole number of at least 0, got {text!r}"
    )
  return int(text)


def run(args: argparse.Namespace) -> int:
  """Prints; returns the exit status."""
  (store,) = shared.opened([args.path], args)
  decoder = None
  if not args.ids:
    # Where there is no tokenizer in it, ids it is.
    with contextlib.suppress(errors.StoreError):
      decoder = tokenizers.load_tokenizer(store)
  last = min(args.first + args.count, store.num_documents)
  for document in range(args.first, last):
    _print(store, document, args, decoder)
  return 0


def _print(
  store: stores.Store, document: int, args: argparse.Namespace, decoder
) -> None:
  start, length = store.bounds(np.asarray([document]))
  shown = np.minimum(length, min(args.tokens, schema.MAX_COUNT))
  tokens = store.read_tokens(start, shown)
  text = None if decoder is None else decoder.decode(tokens)
  fields = {
    "document": document,
    "id": store.document_ids([document])[0],
    "length": int(length[0]),
  }
  if store.opened.meta is not None:
    fields["meta"] = stores.document_meta(store, [document])[0]
  if args.format == "json":
    body = {"tokens": tokens.tolist()} if text is None else {"text": text}
    print(json.dumps({**fields, **body}))
    return
  meta = f" ({fields['meta']})" if fields.get("meta") else ""
  print(f"{document}  {fields['id']}  {fields['length']:,} tokens{meta}")
  body = " ".join(map(str, tokens.tolist())) if text is None else text
  more = " ..." if int(length[0]) > len(tokens) else ""
  for row in (body + more).splitlines() or [""]:
    print(f"    {row}")
