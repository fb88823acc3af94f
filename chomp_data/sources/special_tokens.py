# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Special token ids: from the store's tokenizer, or from the options.

Padding needs no separate token: it is neither trained on nor attended to. A
tokenizer without a padding token, as most of SentencePiece and tiktoken are, is
padded with its EOS, or with id 0 where it has none.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from absl import logging

from chomp_data import schema
from chomp_data import stores
from chomp_data.rows import row_layout as layout_lib
from chomp_data.sources import row_source
from chomp_data.sources import shared_options as options_lib


def row_layout(
  store: stores.Store,
  options: options_lib.FillerOptions,
  seq_len: int,
  path: str,
) -> layout_lib.RowLayout:
  """Returns the layout of rows.

  Args:
    store: Its tokenizer gives the ids that the options do not.
    options: Padding, and where a kind has them `add_bos`, `add_eos`,
      `reset_positions` and `eos_before_document`.
    seq_len: Positions of a row.
    path: Dotted path of the options, for messages.

  Raises:
    ConfigError: If an id that is needed is unknown or out of the vocabulary,
      or if the store has the tokens that would be added.
  """
  problems = _added_problems(store, options, path)
  if problems:
    raise schema.ConfigError(problems)
  added = {n for n in ("bos", "eos") if getattr(options, f"add_{n}", False)}
  eos_before = getattr(options, "eos_before_document", False)
  kinds = {options.filler, *added, *(("eos",) if eos_before else ())}
  ids = token_ids(store, options, kinds, path)
  resets = getattr(options, "reset_positions", False)
  return layout_lib.RowLayout(
    seq_len=seq_len,
    filler_id=ids[options.filler],
    trailing_filler_in_segment=options.trailing_filler_in_segment,
    token_before_document=ids["eos"] if eos_before else None,
    positions="segment" if resets else "column",
    bos_id=ids["bos"] if "bos" in added else None,
    eos_id=ids["eos"] if "eos" in added else None,
  )


def _added_problems(
  store: stores.Store, options: options_lib.FillerOptions, path: str
) -> list[str]:
  """Returns which added tokens the documents have already, or need."""
  info, chats = store.opened.tokenizer, store.opened.chats
  problems = [
    f"`{path}.add_{kind}` must be False, because the documents of {store.path}"
    f" have their {kind.upper()} already, got True. Unset it."
    for kind in ("bos", "eos")
    if getattr(options, f"add_{kind}", False) and getattr(info, f"adds_{kind}")
  ]
  add_eos = getattr(options, "add_eos", None)
  if add_eos is None and chats.get("needs_eos"):
    problems.append(
      f"`{path.removesuffix('.rows')}.rows.kind` must be one with add_eos,"
      f" because {_needs_eos(store)}, got one without. Choose 'bin' or"
      " 'sequential', or prepare with --allow_open_turns."
    )
  elif add_eos is False and chats.get("needs_eos"):
    problems.append(
      f"`{path}.add_eos` must be True, because {_needs_eos(store)}, got False."
      " Set it, or prepare with --allow_open_turns."
    )
  number = chats.get("has_eos", 0)
  if add_eos and number and eos_id(store, options) == info.eos_id:
    problems.append(
      f"`{path}.add_eos` must be False, because the chat template wrote an EOS"
      f" at the end of {number:,} documents of {store.path}, got True. Unset"
      " it."
    )
  return problems


def _needs_eos(store: stores.Store) -> str:
  """Returns why chats of a store need an added EOS, for messages."""
  count = store.opened.chats["needs_eos"]
  return (
    f"only an added EOS ends the last answer of {count:,} chats of {store.path}"
  )


def eos_id(store: stores.Store, options: Any) -> int | None:
  """Returns the id of a source's EOS: its options', else the tokenizer's."""
  token_id = getattr(options, "eos_token_id", None)
  return store.opened.tokenizer.eos_id if token_id is None else token_id


def eos_ids(
  sources: Mapping[str, row_source.RowSource], train_on_eos: bool, path: str
) -> tuple[int | None, ...]:
  """Returns the id of each source's EOS, in their order.

  Args:
    sources: The sources by name.
    train_on_eos: Whether EOS is a label; else every id must be known.
    path: Dotted path of `config.data`, for messages.

  Raises:
    ConfigError: If a needed id is unknown.
  """
  ids = {
    name: eos_id(source.store, source.options)
    for name, source in sources.items()
  }
  lacking = [name for name, token_id in ids.items() if token_id is None]
  if lacking and not train_on_eos:
    raise schema.ConfigError(
      [
        f"`{path}.train_on_eos` must be True where the EOS is not known, got"
        f" False; unknown for {', '.join(lacking)}. Set"
        f" sources.{lacking[0]}.rows.eos_token_id."
      ]
    )
  return tuple(ids.values())


def token_ids(
  store: stores.Store,
  options: options_lib.FillerOptions,
  kinds: Iterable[str],
  path: str,
) -> dict[str, int]:
  """Returns the ids of special tokens by kind.

  Args:
    store: Its tokenizer gives the ids that the options do not.
    options: Ids that override the tokenizer's.
    kinds: 'pad', 'bos' or 'eos'.
    path: Dotted path of the options, for messages.

  Raises:
    ConfigError: If an id is unknown or out of the vocabulary.
  """
  problems, ids = [], {}
  for kind in sorted(kinds):
    field, value = _token_id(store, options, kind)
    if value is None and kind == "pad":
      field, value = _token_id(store, options, "eos")
      text = "id 0," if value is None else f"its EOS, id {value},"
      value = value or 0
      logging.warning(
        "%s: the tokenizer of %s has no padding token. Rows are padded with %s"
        " which is not trained on there. Set %s.pad_token_id to pad with"
        " another id.",
        path,
        store.path,
        text,
        path,
      )
    if value is None:
      problems.append(
        f"`{path}.{kind}_token_id` must be set, because the tokenizer of"
        f" {store.path} has no {kind} token. Set it, or do without it"
        " (filler, add_bos, add_eos, eos_before_document)."
      )
    elif value >= store.opened.tokenizer.vocab_size:
      problems.append(
        schema.bad_value(
          f"{path}.{field}",
          f"below the vocabulary size {store.opened.tokenizer.vocab_size}",
          value,
          "Correct it.",
        )
      )
    else:
      ids[kind] = value
  if problems:
    raise schema.ConfigError(problems)
  return ids


def _token_id(
  store: stores.Store, options: options_lib.FillerOptions, kind: str
) -> tuple[str, int | None]:
  """Returns the option that names a special token, and its id or None.

  The id is the option's, else the tokenizer's. 0 is an id.
  """
  field = f"{kind}_token_id"
  value = getattr(options, field)
  if value is None:
    value = getattr(store.opened.tokenizer, f"{kind}_id")
  return field, value
