# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The layout of packed rows: padding, added tokens and positions."""

from chomp_data import schema
from chomp_data import stores
from chomp_data.pack import packing_options
from chomp_data.rows import row_layout as layout_lib
from chomp_data.sources import special_tokens


def packed_layout(
  store: stores.Store,
  options: packing_options.PackingOptions,
  seq_len: int,
  path: str,
) -> layout_lib.RowLayout:
  """Returns the layout of rows of several documents each.

  Args:
    store: Its tokenizer gives the ids that the options do not.
    options: Filler, added tokens and positions.
    seq_len: Positions of a row.
    path: Dotted path of the options, for messages.

  Raises:
    ConfigError: If an id that is needed is unknown or out of the vocabulary,
      or if the store has the tokens that would be added.
  """
  info = store.tokenizer_info
  problems = [
    f"`{path}.add_{kind}` must be False, because the documents of {store.path}"
    f" have their {kind.upper()} already, got True. Unset it."
    for kind in ("bos", "eos")
    if getattr(options, f"add_{kind}") and getattr(info, f"adds_{kind}")
  ]
  if not options.add_eos and store.chats.get("needs_eos"):
    problems.append(
      f"`{path}.add_eos` must be True, because"
      f" {special_tokens.needs_eos(store)}, got False. Set it, or prepare with"
      " --allow_open_turns."
    )
  number = store.chats.get("has_eos", 0)
  if (
    options.add_eos
    and number
    and special_tokens.eos_id(store, options) == info.eos_id
  ):
    problems.append(
      f"`{path}.add_eos` must be False, because the chat template wrote an EOS"
      f" at the end of {number:,} documents of {store.path}, got True. Unset"
      " it."
    )
  if problems:
    raise schema.ConfigError(problems)
  kinds = {options.filler}
  kinds |= {kind for kind in ("bos", "eos") if getattr(options, f"add_{kind}")}
  ids = special_tokens.token_ids(store, options, kinds, path)
  return layout_lib.RowLayout(
    seq_len=seq_len,
    filler_id=ids[options.filler],
    trailing_filler_in_segment=options.trailing_filler_in_segment,
    positions="segment" if options.reset_positions else "column",
    bos_id=ids["bos"] if options.add_bos else None,
    eos_id=ids["eos"] if options.add_eos else None,
  )
