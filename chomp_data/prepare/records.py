# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""From a record, as any kind of inputs has them, to a document."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import math
from types import MappingProxyType
from typing import Any
from typing import NamedTuple

import numpy as np

from chomp_data import errors
from chomp_data import schema
from chomp_data.prepare import chats
from chomp_data.prepare import filters
from chomp_data.prepare import option_fields
from chomp_data.prepare import tokenized
from chomp_data.stores import columns as columns_lib
from chomp_data.stores import document_fields

ENCODING_ERRORS = ("strict", "replace")
MAX_DOCUMENT_BYTES = 2**28

_MISSING: Any = object()
_MOST_KEYS = 20
_NOT_UTF8 = "not UTF-8"


def _key(default: str | None, identity: str = option_fields.CHANGED) -> Any:
  """Declares an option that names a key of records."""
  return option_fields.option(
    default, schema.text(), fix="Give one.", identity=identity
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentOptions:
  """How documents are found in records.

  In keys dots lead into objects, unless a record has the key as it is.

  Attributes:
    text_key: The key of the text in a JSON line, or its column; 'meta.text' is
      the text in an object 'meta'.
    id_key: The key of a document's id, a string or an integer. A document
      without one is named after its file and line. It is an error if the key is
      set and no document has it.
    meta_key: The key of a string or a number to store with each document, for
      groups of documents (rows.group_by_meta).
    meta_keys: Several such keys, separated by commas, instead of --meta_key;
      documents can be selected (rows.doc_meta) and grouped (rows.group_by_meta)
      by them.
    meta_default: The value for documents without a key of --meta_key or
      --meta_keys, which are errors otherwise; may be empty.
    max_document_bytes: Most bytes of a line, a text file, or a text in a table;
      reading one takes up to ten times as much memory. A longer one is
      rejected.
    encoding_errors: How text that is not UTF-8 is handled: 'strict' rejects it,
      'replace' reads it with U+FFFD for invalid bytes (text files with the byte
      tokenizer: as they are).
    filter: A function that decides which documents are kept, as
      'package.module:function', importable from PYTHONPATH; the others are
      counted by the reason that it returns.
    messages_key: The key of a chat, a list of {'role', 'content'}, instead of a
      text; only the assistant's messages are trained on.
    chat: How chats become documents.
    prompt_key: The key of the prompt, which is before the text of
      --completion_key, or before both answers of a preference pair, and is not
      trained on.
    completion_key: The key of the completion, which is after --prompt_key and
      is trained on.
    chosen_key: The key of the preferred answer, a text or a list of messages,
      with --rejected_key instead of a text. Documents 2k and 2k + 1 of the
      store are the halves of pair k; they are trained on after --prompt_key, or
      after the messages that both begin with.
    rejected_key: The key of the rejected answer.
    weight_key: The key of a document's weight in the loss, a number of at least
      0.
    ids_key: The key of a list of token ids instead of a text; --tokenizer, or
      --vocab_size and the special ids, describe their tokenizer.
    column: A column per token of --ids_key and its key, as
      'teacher:float16[8]@target' for 8 numbers per token that belong to the
      prediction of the next one; docs/targets.md#columns.
    document_column: A column per document and its key, as 'margin:float32'.
  """

  text_key: str = _key("text", option_fields.ALWAYS)
  id_key: str = _key("id", option_fields.ALWAYS)
  meta_key: str | None = _key(None)
  meta_keys: tuple[str, ...] = option_fields.option(
    (), identity=option_fields.CHANGED, commas=True
  )
  meta_default: str | None = option_fields.option(
    None, identity=lambda options: options.has_meta
  )
  max_document_bytes: int = option_fields.option(
    MAX_DOCUMENT_BYTES,
    schema.integer(1),
    fix="Give the most bytes of a document.",
    identity=option_fields.CHANGED,
  )
  encoding_errors: str = option_fields.option(
    "strict",
    schema.choice(ENCODING_ERRORS),
    fix="Choose one.",
    identity=option_fields.ALWAYS,
  )
  filter: str | None = option_fields.option(
    None, identity=option_fields.CHANGED
  )
  messages_key: str | None = _key(None)
  chat: chats.ChatOptions = option_fields.option(  # noqa: RUF009
    chats.ChatOptions(),
    flag=None,
    identity=lambda options: options.has_chats,
  )
  prompt_key: str | None = _key(None)
  completion_key: str | None = _key(None)
  chosen_key: str | None = _key(None)
  rejected_key: str | None = _key(None)
  weight_key: str | None = _key(None)
  ids_key: str | None = _key(None)
  column: tuple[str, ...] = option_fields.option(
    (), identity=option_fields.CHANGED
  )
  document_column: tuple[str, ...] = option_fields.option(
    (), identity=option_fields.CHANGED
  )

  @property
  def columns(self) -> Mapping[str, columns_lib.Column]:
    """What stores hold beside tokens and documents, by name."""
    return tokenized.columns_of(self.column, self.document_column)

  @property
  def array_keys(self) -> frozenset[str]:
    """The keys of lists of numbers."""
    keys = (self.ids_key, *(text.partition(":")[0] for text in self.column))
    return frozenset(key for key in keys if key is not None)

  @property
  def has_labels(self) -> bool:
    """Whether documents say which of their tokens are trained on."""
    return (
      self.messages_key is not None
      or self.prompt_key is not None
      or self.has_pairs
    )

  @property
  def has_pairs(self) -> bool:
    """Whether each record makes the two documents of a preference pair."""
    return self.chosen_key is not None and self.rejected_key is not None

  @property
  def has_chats(self) -> bool:
    """Whether records may have messages."""
    return self.messages_key is not None or self.has_pairs

  @property
  def text_flags(self) -> tuple[str, ...]:
    """The options that name the keys that a document's text is made of."""
    if self.messages_key is not None:
      return ("messages_key",)
    if self.has_pairs:
      answers = "chosen_key", "rejected_key"
      return answers if self.prompt_key is None else ("prompt_key", *answers)
    if self.ids_key is not None:
      return ("ids_key",)
    if self.prompt_key is not None and self.completion_key is not None:
      return "prompt_key", "completion_key"
    return ("text_key",)

  @property
  def text_keys(self) -> tuple[str, ...]:
    """The keys that a document's text is made of."""
    return tuple(getattr(self, name) for name in self.text_flags)

  @property
  def keys(self) -> tuple[str, ...]:
    """Every key that is looked for: nothing else of a record is needed."""
    keys = (*self.text_keys, self.id_key, *self._all_meta, self.weight_key)
    keys += tuple(self.columns)
    if self.has_chats:
      keys += self.chat.keys
    if self.filter is not None:
      keys += filters.keys(self.filter)
    return tuple(key for key in keys if key is not None)

  @property
  def required_keys(self) -> dict[str, str]:
    """The option that names each key that every record must have."""
    flags = dict(zip(self.text_keys, self.text_flags, strict=True))
    if self.meta_default is None:
      flags = dict.fromkeys(self._all_meta, self._meta_flag) | flags
    if self.weight_key is not None:
      flags.setdefault(self.weight_key, "weight_key")
    for name, column in self.columns.items():
      of_tokens = column.per == columns_lib.TOKEN
      flags.setdefault(name, "column" if of_tokens else "document_column")
    return flags

  @property
  def has_meta(self) -> bool:
    """Whether stores keep something of documents in addition to their ids."""
    return bool(self._all_meta)

  @property
  def _meta_flag(self) -> str:
    return "meta_keys" if self.meta_key is None else "meta_key"

  @property
  def _all_meta(self) -> tuple[str, ...]:
    return self.meta_keys if self.meta_key is None else (self.meta_key,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions(DocumentOptions):
  """Options of documents, and what a run determines in addition.

  Attributes:
    raw: Whether text that is bytes stays bytes, without decoding; it must be
      UTF-8 even so, unless encoding errors are replaced.
    filter_sha256: Of the file that the filter is in.
    duplicates: The directory of the duplicates to leave out, or None; see
      `duplicates`.
    vocab_size: What token ids of records are below, or None without `ids_key`.
  """

  raw: bool
  filter_sha256: str = ""
  duplicates: str | None = None
  vocab_size: int | None = None


class Document(NamedTuple):
  """One document.

  Attributes:
    name: Its id.
    text: Its text, bytes where it is not decoded.
    meta: What else is kept of it, '' without `meta_key` and `meta_keys`.
    pieces: Where not all is trained on alike: (text, the weight of its
      tokens), which joined are the text.
    weight: What multiplies the weights of its tokens.
    has_id: Whether its record has an id.
    counts: Of a chat, how its turns end; see `chats`.
    columns: The values of its tokens, or its own [1], by column.
  """

  name: str
  text: str | bytes
  meta: str
  pieces: chats.Pieces = ()
  weight: float = 1.0
  has_id: bool = True
  counts: Mapping[str, int] = MappingProxyType({})
  columns: Mapping[str, np.ndarray] = MappingProxyType({})


def documents(
  record: Mapping[str, Any], name: str, where: str, options: ReadOptions
) -> Iterator[Document]:
  """Yields the documents of a record: one, one per answer, or both of a pair.

  Args:
    record: Values by key: texts, bytes of UTF-8, numbers, lists and mappings.
    name: The id of a document whose record has none.
    where: The record in errors: the file's path and a number.
    options: How documents are read.

  Raises:
    BadInput: If it is no document.
  """
  if options.has_pairs:
    yield from _pair(record, name, where, options)
    return
  if options.messages_key is None:
    pieces = _completed(record, where, options) if options.has_labels else ()
    yield _document(record, name, where, options, pieces)
    return
  messages = _required_value(
    record, options.messages_key, "messages_key", where
  )
  for chat in _chats(messages, record, where, options):
    whole = _document(record, name, where, options, chat.pieces)
    if chat.answer is not None:
      whole = whole._replace(name=f"{whole.name}#{chat.answer}")
    yield whole._replace(counts=chat.counts)


def _chats(
  messages: Any,
  record: Mapping[str, Any],
  where: str,
  options: ReadOptions,
  prompt_messages: int = 0,
) -> list[chats.Chat]:
  """Returns the documents of the messages of a record."""
  keys = (options.chat.tools_key, options.chat.template_kwargs_key)
  values = [_value(record, key) if key else None for key in keys]
  return chats.documents(
    messages,
    options.chat,
    where,
    lambda value: _text(value, options, where),
    *(None if value is _MISSING else value for value in values),
    prompt_messages=prompt_messages,
  )


def _pair(
  record: Mapping[str, Any], name: str, where: str, options: ReadOptions
) -> Iterator[Document]:
  """Yields the chosen and the rejected answer of a record after their prompt.

  Without a key of prompts, that of messages is what both lists begin with.
  """
  values = [
    _required_value(record, key, flag, where)
    for key, flag in zip(options.text_keys, options.text_flags, strict=True)
  ]
  are_texts = {isinstance(value, str | bytes) for value in values}
  are_lists = {isinstance(value, Sequence) for value in values}
  if len(are_texts) > 1 or are_lists != {True}:
    raise errors.BadInput(
      where,
      f"must have texts, or lists of messages, under {options.text_keys}, got"
      f" {[type(value).__name__ for value in values]}.",
      "Correct it, or --chosen_key, --rejected_key and --prompt_key.",
      "no pair",
    )
  *prompt, chosen, rejected = values
  if chosen == rejected:
    raise errors.BadInput(
      where,
      f"must have two different answers under {options.chosen_key!r} and"
      f" {options.rejected_key!r}, got {str(chosen)[:40]!r} twice.",
      "Leave such pairs out, or skip them with --on_error=skip.",
      "equal answers",
    )
  for i, (half, answer) in enumerate(
    (("chosen", chosen), ("rejected", rejected))
  ):
    counts: Mapping[str, int] = {}
    if True in are_texts:
      start = _text(prompt[0], options, where) if prompt else ""
      key = getattr(options, f"{half}_key")
      pieces = _after(start, _text(answer, options, where), key, where)
    else:
      start = prompt[0] if prompt else _common(chosen, rejected)
      messages = [*start, *(answer if prompt else answer[len(start) :])]
      (chat,) = _chats(messages, record, where, options, len(start))
      pieces, counts = chat.pieces, chat.counts
    whole = _document(record, name, where, options, pieces)
    columns = {n: values[i : i + 1] for n, values in whole.columns.items()}
    yield whole._replace(
      name=f"{whole.name}#{half}", counts=counts, columns=columns
    )


def _common(one: Sequence[Any], other: Sequence[Any]) -> Sequence[Any]:
  """Returns the messages that both lists begin with."""
  pairs = zip(one, other, strict=False)
  equal = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
  return [message for message, _ in equal]


def _document(
  record: Mapping[str, Any],
  name: str,
  where: str,
  options: ReadOptions,
  pieces: chats.Pieces,
) -> Document:
  if options.has_labels:
    text: str | bytes = "".join(piece for piece, _ in pieces)
    check_size(text, where, options)
  elif options.ids_key is not None:
    ids = _required_value(record, options.ids_key, "ids_key", where)
    text = tokenized.text_of_ids(
      ids, options.ids_key, options.vocab_size, where
    )
    check_size(text, where, options)
  else:
    value = record.get(options.text_key)
    if not isinstance(value, (str, bytes)):
      value = _string(record, options.text_key, "text_key", where)
    check_size(value, where, options)
    if isinstance(value, bytes) and options.raw:
      text = value
      if not value.isascii():
        decoded(value, options, where)
    else:
      text = _text(value, options, where)
  identity = _document_id(record, where, options)
  return Document(
    name if identity is None else identity,
    text,
    _meta(record, where, options),
    pieces,
    _weight(record, where, options),
    identity is not None,
    columns=tokenized.values_of(
      options.columns,
      lambda key, flag: _required_value(record, key, flag, where),
      len(text) // 4,
      2 if options.has_pairs else None,
      where,
    ),
  )


def _completed(
  record: Mapping[str, Any], where: str, options: ReadOptions
) -> chats.Pieces:
  """Returns a prompt and its completion."""
  prompt, completion = (
    _text(_string(record, key, flag, where), options, where)
    for key, flag in zip(options.text_keys, options.text_flags, strict=True)
  )
  return _after(prompt, completion, options.completion_key, where)


def _after(
  prompt: str, completion: str, key: str | None, where: str
) -> chats.Pieces:
  """Returns a text that is trained on after a prompt."""
  if not completion:
    raise errors.BadInput(
      where,
      f"must have a text to train on under {key!r}, got ''.",
      "Correct it, or skip it with --on_error=skip.",
      "no completion",
    )
  return ((prompt, 0.0), (completion, 1.0))


def _weight(
  record: Mapping[str, Any], where: str, options: ReadOptions
) -> float:
  key = options.weight_key
  if key is None:
    return 1.0
  value = _required_value(record, key, "weight_key", where)
  return chats.checked_weight(value, f"under {key!r}", where)


def _required_value(
  record: Mapping[str, Any], key: str, flag: str, where: str
) -> Any:
  """Returns the value of a key; raises BadInput if there is none."""
  value = _value(record, key)
  if value is _MISSING:
    what = flag.removesuffix("_key")
    advice = f"Name the key of the {what} with --{flag}"
    for chat_key in ("messages", "conversations"):
      if what in ("text", "messages") and chat_key in record:
        advice += f", or that of chats with --messages_key={chat_key}"
    raise errors.BadInput(
      where,
      f"must have the key {key!r}, got {_keys(record)}.",
      f"{advice}, or skip such records with --on_error=skip.",
      f"no {what}",
    )
  return value


def _string(
  record: Mapping[str, Any], key: str, flag: str, where: str
) -> str | bytes:
  value = _required_value(record, key, flag, where)
  if not isinstance(value, str | bytes):
    raise errors.BadInput(
      where,
      f"must have a string under {key!r}, got a {type(value).__name__}.",
      f"Correct it, or --{flag}.",
      f"no {flag.removesuffix('_key')}",
    )
  return value


def _value(record: Mapping[str, Any], key: str) -> Any:
  """Returns the value of a key, or `_MISSING`.

  {"a.b": 1, "a": {"b": 2, "c": 3}}
  a.b -> 1      a key of the record itself comes first
  a.c -> 3      else dots lead into objects
  """
  if key in record:
    return record[key]
  value: Any = record
  for part in key.split("."):
    if not isinstance(value, Mapping) or part not in value:
      return _MISSING
    value = value[part]
  return value


def _keys(record: Mapping[str, Any]) -> str:
  """Names the keys of a record and of its objects, for messages."""
  names = []
  for key, value in sorted(record.items()):
    names.append(key)
    if isinstance(value, Mapping):
      names += [f"{key}.{inner}" for inner in sorted(value)]
  return first_names(names)


def first_names(names: list[str]) -> str:
  """Returns the first keys or columns, and how many more there are."""
  more = len(names) - _MOST_KEYS
  return f"{names[:_MOST_KEYS]}{f' and {more} more' if more > 0 else ''}"


def _meta(record: Mapping[str, Any], where: str, options: ReadOptions) -> str:
  """Returns what is kept of a document in addition to its id."""
  if options.meta_key is not None:
    return _meta_value(record, options.meta_key, "meta_key", where, options)
  if not options.meta_keys:
    return ""
  return document_fields.encoded(
    {
      key: _meta_value(record, key, "meta_keys", where, options)
      for key in options.meta_keys
    }
  )


def _meta_value(
  record: Mapping[str, Any],
  key: str,
  flag: str,
  where: str,
  options: ReadOptions,
) -> str:
  """Returns the value of a key that --`flag` names."""
  value = _value(record, key)
  if value is _MISSING or value is None:
    if options.meta_default is None:
      raise errors.BadInput(
        where,
        f"must have a value under {key!r}, got {_keys(record)}.",
        f"Correct --{flag}, or say with --meta_default what stands for a"
        " missing one.",
        "no meta",
      )
    return options.meta_default
  number = isinstance(value, int | float) and not isinstance(value, bool)
  if number and math.isfinite(value):
    return str(value)
  if not isinstance(value, str | bytes):
    raise errors.BadInput(
      where,
      f"must have a string or a finite number under {key!r}, got"
      f" {value if number else f'a {type(value).__name__}'}.",
      f"Correct it, or --{flag}.",
      "no meta",
    )
  return _text(value, options, where)


def _document_id(
  record: Mapping[str, Any], where: str, options: ReadOptions
) -> str | None:
  value = record.get(options.id_key)
  if isinstance(value, str) and value.isascii():
    return value
  value = _value(record, options.id_key)
  if value is _MISSING or value is None:
    return None
  if isinstance(value, bool) or not isinstance(value, str | bytes | int):
    raise errors.BadInput(
      where,
      f"must have a string or integer under {options.id_key!r}, got a"
      f" {type(value).__name__}.",
      "Correct it, or --id_key.",
      "no id",
    )
  return _text(str(value) if isinstance(value, int) else value, options, where)


def _text(value: str | bytes, options: ReadOptions, where: str) -> str:
  """Returns text without lone surrogates, which JSON can spell."""
  if isinstance(value, bytes):
    return decoded(value, options, where)
  if value.isascii():
    return value  # Known of a string without a look at it.
  try:
    value.encode()
  except UnicodeEncodeError as error:
    if options.encoding_errors == "strict":
      raise errors.BadInput(
        where,
        f"must be valid Unicode, got {value[error.start]!r} at character"
        f" {error.start}.",
        "Correct it, or replace with --encoding_errors=replace.",
        _NOT_UTF8,
      ) from None
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
  return value


def check_size(value: str | bytes, where: str, options: ReadOptions) -> None:
  """Raises BadInput if a text is longer than documents may be."""
  most = options.max_document_bytes
  if 4 * len(value) <= most:
    return
  if len(value) > most or (
    isinstance(value, str) and len(value.encode(errors="replace")) > most
  ):
    raise too_long(where, options)


def too_long(where: str, options: ReadOptions) -> errors.BadInput:
  """Returns the error of what is longer than documents may be."""
  return errors.BadInput(
    where,
    f"must be at most {options.max_document_bytes:,} bytes, got more.",
    "Split it, or allow more with --max_document_bytes.",
    "too long",
  )


def decoded(data: bytes, options: ReadOptions, where: str) -> str:
  """Returns the text of bytes.

  Raises:
    BadInput: If they are no UTF-8, and that is not replaced.
  """
  try:
    return data.decode("utf-8", options.encoding_errors)
  except UnicodeDecodeError as error:
    raise not_utf8(where, data[error.start], error.start) from None


def not_utf8(where: str, byte: int, offset: int) -> errors.BadInput:
  """Returns the error of a byte that is no UTF-8."""
  return errors.BadInput(
    where,
    f"must be UTF-8, got byte {byte:#04x} at offset {offset}.",
    "Convert it, or replace with --encoding_errors=replace.",
    _NOT_UTF8,
  )
