# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
r"""Prepares a store: reads text, tokenizes it, and writes it once.

    %s --input='corpus/**/*.txt' --output=data/corpus
    %s --input=corpus.jsonl.zst --output=data/corpus \
        --tokenizer=tokenizer.json --text_key=content --workers=8
    %s --input=crawl --output=data/crawl \
        --text_key=doc.body --id_key=doc.url --on_error=skip

Text files are one document each; of a directory all files below it are read.
JSON lines (.jsonl, .ndjson, .json; also .gz and .zst of these) are one document
a line; Parquet, Arrow, directories of `save_to_disk` and ArrayRecord one a row.
What is none of these, by its name or its content, is an error, or is skipped
and counted. The same inputs, options and tokenizer give the same store for any
number of workers. An interrupted run goes on where it was when it is started
again, and a run that has nothing left to do says so. The summary goes to
stdout.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
import sys
import time
from typing import Any

from absl import app
from absl import flags
import numpy as np
import rich.console
import tqdm

from chomp_data import errors
from chomp_data import stores
from chomp_data.commands import previews
from chomp_data.prepare import chats
from chomp_data.prepare import duplicates
from chomp_data.prepare import engines
from chomp_data.prepare import id_checks
from chomp_data.prepare import own_tokenizer
from chomp_data.prepare import records
from chomp_data.prepare import run
from chomp_data.prepare import skips
from chomp_data.prepare import tokenizers
from chomp_data.prepare.tokenizers import tiktoken_ranks
from chomp_data.prepare.tokenizers import training
from chomp_data.stores import places
from chomp_data.stores import publish
from chomp_data.stores.zarr import array_layout

_INPUT = flags.DEFINE_multi_string(
  "input",
  None,
  "A file, a directory, or a glob in quotes, as 'corpus/**/*.txt', where **"
  " recurses",  # absl goes on: "; repeat this option ..."
  required=True,
)
_EXCLUDE = flags.DEFINE_multi_string(
  "exclude",
  [],
  "A pattern, as '*/tests/*', of files to leave out; their path below the input"
  " or their whole path matches it",
)
_OUTPUT = flags.DEFINE_string(
  "output",
  None,
  "The directory to create, or s3:// or gs://; required without --preview.",
)
_PREVIEW = flags.DEFINE_integer(
  "preview",
  None,
  "Write nothing, and print the tokens of this many documents, those that are"
  " trained on marked with +.",
  lower_bound=1,
)
_TOKENIZER = flags.DEFINE_string(
  "tokenizer",
  tokenizers.BYTE,
  "'byte' (the bytes of UTF-8, 259 ids), or the path of a Hugging Face"
  " tokenizer.json, a SentencePiece .model or a tiktoken file.",
)
_TRAIN_TOKENIZER = flags.DEFINE_enum(
  "train_tokenizer",
  None,
  training.ALGORITHMS,
  "Train a tokenizer on the inputs instead: byte-level BPE; the store keeps its"
  " tokenizer.json.",
)
_VOCAB_SIZE = flags.DEFINE_integer(
  "vocab_size", None, "Tokens of the tokenizer that is trained, as 32768."
)
_PATTERN = flags.DEFINE_string(
  "tiktoken_pattern",
  None,
  "How a tiktoken file's texts are split: a regular expression, or one of"
  f" {', '.join(tiktoken_ranks.PATTERNS)}; found for the files of these.",
)
_SPECIAL_TOKEN = flags.DEFINE_multi_string(
  "special_token",
  [],
  "A special token of a tiktoken file, as '<|endoftext|>=50256'; without an id"
  " it takes the next",
)
_TEXT_KEY = flags.DEFINE_string(
  "text_key",
  "text",
  "The key of the text in a JSON line, or its column; 'meta.text' is the text"
  " in an object 'meta'.",
)
_ID_KEY = flags.DEFINE_string(
  "id_key",
  "id",
  "The key of a document's id, a string or an integer, in a JSON line; a"
  " document without one is called by its file and line, and a key that is"
  " given and that no document has is an error.",
)
_META_KEY = flags.DEFINE_string(
  "meta_key",
  None,
  "The key of a string or a number in a JSON line that the store keeps of each"
  " document, for groups of documents (rows.group_by_meta).",
)
_META_KEYS = flags.DEFINE_list(
  "meta_keys",
  None,
  "The keys of several such values, with commas between them, in place of"
  " --meta_key; by them documents are selected (rows.doc_meta) and grouped"
  " (rows.group_by_meta).",
)
_META_DEFAULT = flags.DEFINE_string(
  "meta_default",
  None,
  "What the store keeps of documents without a key of --meta_key or"
  " --meta_keys, which are errors otherwise; may be empty.",
)
_MAX_DOCUMENT_BYTES = flags.DEFINE_integer(
  "max_document_bytes",
  records.MAX_DOCUMENT_BYTES,
  "The most bytes of a line, of a text file, and of a text in a table, since"
  " reading one takes up to ten times as much memory; a longer one is no"
  " document.",
)
_FILTER = flags.DEFINE_string(
  "filter",
  None,
  "A function of yours that says which documents are kept, as"
  " 'package.module:function', found in PYTHONPATH; the others are counted by"
  " what it returns.",
)
_DUPLICATES = flags.DEFINE_enum(
  "duplicates",
  "keep",
  duplicates.DUPLICATES,
  "What becomes of documents whose text is that of one before them: 'drop'"
  " leaves them out and counts them, at the cost of reading all inputs twice.",
)
_MESSAGES_KEY = flags.DEFINE_string(
  "messages_key",
  None,
  "The key of a chat in the place of a text, a list of {'role', 'content'};"
  " what the assistant says is trained on, and nothing else.",
)
_CHAT_TEMPLATE = flags.DEFINE_string(
  "chat_template",
  None,
  "A file of Jinja that makes text of a chat, as chat models bring one; by"
  " default messages stand below the names of their roles.",
)
_MESSAGE_KEYS = flags.DEFINE_string(
  "message_keys",
  None,
  "Keys of messages that have other names, as role=from,content=value for"
  " ShareGPT, with --messages_key=conversations.",
)
_MESSAGE_ROLES = flags.DEFINE_string(
  "message_roles",
  None,
  "Roles to rename, as human=user,gpt=assistant, which is the default with"
  " --message_keys.",
)
_TOOLS_KEY = flags.DEFINE_string(
  "tools_key",
  "tools",
  "The key of a record's tools, which the template gets; empty reads none.",
)
_TEMPLATE_KWARGS = flags.DEFINE_string(
  "template_kwargs",
  "{}",
  "Variables of the template, a JSON object.",
)
_TEMPLATE_KWARGS_KEY = flags.DEFINE_string(
  "template_kwargs_key",
  None,
  "The key of a record's own variables of the template, an object.",
)
_PARSE_ARGUMENTS = flags.DEFINE_bool(
  "parse_arguments",
  False,
  "Parse arguments of tool calls that are JSON strings, for templates that"
  " expect objects.",
)
_TURNS = flags.DEFINE_enum(
  "turns",
  "all",
  chats.TURNS,
  "What is made of a chat: one document, one that trains on its last answer"
  " only, or a document of each answer after its prompt.",
)
_ALLOW_OPEN_TURNS = flags.DEFINE_bool(
  "allow_open_turns",
  False,
  "Accept answers that nothing ends which is trained on.",
)
_PROMPT_KEY = flags.DEFINE_string(
  "prompt_key",
  None,
  "The key of what comes before the text of --completion_key and is not trained"
  " on, both in the place of a text.",
)
_COMPLETION_KEY = flags.DEFINE_string(
  "completion_key", None, "The key of what is trained on after --prompt_key."
)
_WEIGHT_KEY = flags.DEFINE_string(
  "weight_key",
  None,
  "The key of a document's weight in training, a number of 0 or more.",
)
_ENGINE = flags.DEFINE_enum(
  "engine",
  "pool",
  list(engines.ENGINES),
  "What calls workers: 'pool' is processes of this machine, 'beam' is Apache"
  " Beam, with flags of Beam's own after all others and --.",
)
_WORKERS = flags.DEFINE_integer(
  "workers", 0, "Processes that tokenize; 0 and 1 use this one."
)
_FORMAT = flags.DEFINE_enum(
  "format",
  "zarr",
  run.FORMATS,
  "'zarr', or 'array_record': one record of token ids a document, which stock"
  " Grain and others read, too.",
)
_COMPRESSION = flags.DEFINE_enum(
  "compression",
  "none",
  array_layout.COMPRESSIONS,
  "'none' is read through memory maps; 'zstd' is about half the bytes.",
)
_ENCODING_ERRORS = flags.DEFINE_enum(
  "encoding_errors",
  "strict",
  records.ENCODING_ERRORS,
  "What text that is not UTF-8 is: an error, or read with U+FFFD for its bad"
  " bytes (by the byte tokenizer, text files as they are).",
)
_ON_ERROR = flags.DEFINE_enum(
  "on_error",
  "fail",
  run.ON_ERROR,
  "What a file that is no text and a line that is no document do: end the run,"
  " or be skipped and counted in the summary and in the store's manifest.",
)
_SPECIAL_TOKENS = {
  name: flags.DEFINE_string(
    name, None, f"The {what} token; by default one of the usual names."
  )
  for name, what in (
    ("pad_token", "padding"),
    ("eos_token", "end-of-document"),
    ("bos_token", "begin-of-document"),
  )
}
_OVERWRITE = flags.DEFINE_bool(
  "overwrite", False, "Replace a store of other inputs or options at --output."
)

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_MAX_SAMPLE = 1 << 20
_LOG_SECONDS = 30.0


def summary(store: stores.Store) -> str:
  """Returns what is in a store, for people; reads lengths only."""
  manifest = store.manifest if isinstance(store, stores.ZarrStore) else None
  lengths = _sampled_lengths(store)
  quantiles = np.quantile(lengths, _QUANTILES, method="lower").astype(int)
  low, high = _extremes(store)
  rows = [
    ("documents", f"{store.num_documents:,}"),
    ("tokens", f"{store.num_tokens:,} ({store.token_dtype.name})"),
    *(
      [("empty documents skipped", f"{manifest.num_empty_skipped:,}")]
      if manifest
      else []
    ),
    *([("trained on", _trained(store))] if store.has_labels else []),
    *(_of_chats(manifest.prepared.get("chats", {})) if manifest else []),
    ("shortest, longest", f"{low:,}, {high:,} tokens"),
    ("mean length", f"{store.num_tokens / store.num_documents:,.1f} tokens"),
    *(
      (f"{q:.0%} of documents", f"<= {length:,} tokens")
      for q, length in zip(_QUANTILES, quantiles, strict=True)
    ),
    *_of_ids(manifest),
    *_bytes(store),
    ("hash", store.hash),
  ]
  skipped = manifest.prepared.get("skipped") if manifest else None
  if skipped:
    rows += [
      ("skipped files", f"{skipped['files']:,}"),
      ("skipped lines", f"{skipped['lines']:,}"),
      *(
        (f"left out: {reason}", f"{count:,}")
        for reason, count in sorted(skipped.get("reasons", {}).items())
      ),
      *(("skipped", problem) for problem in skipped["first"]),
    ]
    if skipped["files"] + skipped["lines"] > len(skipped["first"]):
      rows.append(("skipped", "..."))
  width = max(24, *(len(name) for name, _ in rows))
  return "\n".join(f"{name:{width}} {value}" for name, value in rows)


def _of_chats(told: Mapping[str, Any]) -> list[tuple[str, str]]:
  """Returns what ends the turns of chats, and what else to look at."""
  rows = [
    (f"turns ended by {end}", f"{count:,}")
    for end, count in told.get("turns", {}).items()
  ]
  for name, note in (
    ("empty_answers", ""),
    ("unread_tools", " records: the template reads no tools"),
    ("has_eos", " documents: leave rows.add_eos unset"),
    ("needs_eos", " documents: set rows.add_eos"),
  ):
    if count := told.get(name):
      rows.append((name.replace("_", " "), f"{count:,}{note}"))
  if names := ", ".join(told.get("undefined_variables", ())):
    note = f"{names}: read by the template, defined by nothing"
    rows.append(("undefined variables", note))
  return rows


def _of_ids(manifest: stores.Manifest | None) -> list[tuple[str, str]]:
  prepared = manifest.prepared if manifest else {}
  rows = []
  if count := prepared.get("without_id"):
    rows.append(("without an id", f"{count:,}, called by their places"))
  if count := prepared.get("repeated_ids"):
    first = f" of the first {id_checks.MOST:,} documents"
    is_all = manifest is None or manifest.num_documents <= id_checks.MOST
    rows.append(("repeated ids", f"{count:,}{'' if is_all else first}"))
  return rows


def _trained(store: stores.Store) -> str:
  (count,) = store.trained_before(np.asarray([store.num_tokens])).tolist()
  return f"{count:,} tokens ({count / store.num_tokens:.1%})"


def _sampled_lengths(store: stores.Store) -> np.ndarray:
  """Returns int64[N], of every document or of every nth."""
  step = -(-store.num_documents // _MAX_SAMPLE)
  return np.concatenate(
    [lengths[-first % step :: step] for first, lengths in store.iter_lengths()]
  )


def _extremes(store: stores.Store) -> tuple[int, int]:
  parts = [(int(n.min()), int(n.max())) for _, n in store.iter_lengths()]
  return min(low for low, _ in parts), max(high for _, high in parts)


class _Bar:
  """Shows progress on stderr: a bar, or a line now and then."""

  def __init__(self):
    self._bar: tqdm.tqdm | None = None
    self._stage = ""
    self._last = time.monotonic()

  def __call__(self, progress: run.Progress) -> None:
    if self._bar is None or self._stage != progress.stage:
      self.close()
      self._stage = progress.stage
      # disable=None: no bar where stderr is not a terminal.
      self._bar = tqdm.tqdm(
        desc=progress.stage, total=progress.total_bytes, unit="B",
        unit_scale=True, disable=None,
      )  # fmt: skip
    self._bar.set_postfix(documents=progress.documents, refresh=False)
    self._bar.update(progress.done_bytes - self._bar.n)
    if self._bar.disable and time.monotonic() > self._last + _LOG_SECONDS:
      self._last = time.monotonic()
      print(
        f"{progress.stage}: {progress.done_bytes:,} of"
        f" {progress.total_bytes:,} bytes, {progress.documents:,} documents",
        file=sys.stderr,
      )

  def close(self) -> None:
    if self._bar is not None:
      self._bar.close()


def _bytes(store: stores.Store) -> list[tuple[str, str]]:
  """Returns what a store takes: on a disk less than its files' sizes.

  Padding of the last chunk is not written: file systems keep no blocks of it.
  """
  if not isinstance(store, stores.ZarrStore):
    return []
  if places.is_url(store.path):
    return [("bytes in the bucket", f"{store.manifest.num_bytes:,}")]
  return [("bytes on disk", f"{publish.bytes_on_disk(store.path):,}")]


def _chat_template() -> str | None:
  """Returns what the file says; the run must not depend on its path."""
  path = _CHAT_TEMPLATE.value
  if path is None:
    return None
  try:
    return pathlib.Path(path).read_text("utf-8")
  except (OSError, UnicodeDecodeError) as error:
    raise errors.PrepareError(
      f"`--chat_template` must be the path of a readable file, got {path!r}:"
      f" {error}. Correct it."
    ) from None


def _pairs(flag: flags.FlagHolder[str | None]) -> tuple[tuple[str, str], ...]:
  """Returns what a flag of NAME=NAME,... says."""
  pairs = [tuple(pair.split("=")) for pair in (flag.value or "").split(",")]
  if flag.value and not all(len(pair) == 2 and all(pair) for pair in pairs):
    raise errors.PrepareError(
      f"`--{flag.name}` must be NAME=NAME, or several with commas, got"
      f" {flag.value!r}. Correct it."
    )
  pairs = pairs if flag.value else []
  return tuple((left, right) for left, right in pairs)


def _chat_options() -> chats.ChatOptions:
  keys, roles = _pairs(_MESSAGE_KEYS), _pairs(_MESSAGE_ROLES)
  if keys and _MESSAGE_ROLES.value is None:
    roles = chats.SHAREGPT_ROLES
  return chats.ChatOptions(
    template=_chat_template(),
    tools_key=_TOOLS_KEY.value,
    template_kwargs=_TEMPLATE_KWARGS.value,
    template_kwargs_key=_TEMPLATE_KWARGS_KEY.value,
    message_keys=keys,
    message_roles=roles,
    turns=_TURNS.value,
    parse_arguments=_PARSE_ARGUMENTS.value,
    allow_open_turns=_ALLOW_OPEN_TURNS.value,
  )


def _print_preview(options: run.Options, count: int) -> None:
  tokenizer = tokenizers.make_tokenizer(options.tokenizer)
  console = rich.console.Console(highlight=False, soft_wrap=True)
  counts = skips.Skips()
  for document, encoded in run.preview(options, count):
    console.print(previews.text(document.name, encoded, tokenizer))
    counts.count_chat(document.counts)
  for name, number in counts.chats.items():
    if name.startswith(chats.TURN_ENDS):
      console.print(f"turns ended by {name}: {number:,}", markup=False)


def _train() -> own_tokenizer.TrainOptions | None:
  if _TRAIN_TOKENIZER.value is None:
    if _VOCAB_SIZE.value is not None:
      raise errors.PrepareError(
        "`--vocab_size` must be given with --train_tokenizer only, got"
        f" {_VOCAB_SIZE.value}. Say --train_tokenizer=bpe, or leave it out."
      )
    return None
  size = training.checked(_TRAIN_TOKENIZER.value, _VOCAB_SIZE.value)
  return own_tokenizer.TrainOptions(_TRAIN_TOKENIZER.value, size)


def main(argv: Sequence[str]) -> None:
  """Prepares the store and prints its summary."""
  if len(argv) > 1 and _ENGINE.value == "pool":
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  begin = time.monotonic()
  if _OUTPUT.value is None and _PREVIEW.value is None:
    raise errors.PrepareError(
      "`--output` must be given, got none. Name the directory to create, or"
      " look at documents first with --preview=5."
    )
  special = {name: flag.value for name, flag in _SPECIAL_TOKENS.items()}
  bar = _Bar()
  try:
    options = run.Options(
      inputs=tuple(_INPUT.value),
      output=_OUTPUT.value or "",
      exclude=tuple(_EXCLUDE.value),
      tokenizer=tokenizers.TokenizerSpec(
        _TOKENIZER.value,
        **special,
        pattern=_PATTERN.value,
        special_tokens=tuple(_SPECIAL_TOKEN.value),
      ),
      train=_train(),
      text_key=_TEXT_KEY.value,
      id_key=_ID_KEY.value,
      id_required=bool(_ID_KEY.present),
      meta_key=_META_KEY.value,
      meta_keys=tuple(_META_KEYS.value or ()),
      meta_default=_META_DEFAULT.value,
      max_document_bytes=_MAX_DOCUMENT_BYTES.value,
      filter=_FILTER.value,
      duplicates=_DUPLICATES.value,
      messages_key=_MESSAGES_KEY.value,
      chat=_chat_options(),
      prompt_key=_PROMPT_KEY.value,
      completion_key=_COMPLETION_KEY.value,
      weight_key=_WEIGHT_KEY.value,
      engine=_ENGINE.value,
      engine_flags=tuple(argv[1:]),
      workers=_WORKERS.value,
      format=_FORMAT.value,
      compression=_COMPRESSION.value,
      encoding_errors=_ENCODING_ERRORS.value,
      on_error=_ON_ERROR.value,
      overwrite=_OVERWRITE.value,
    )
    if _PREVIEW.value is not None:
      _print_preview(options, _PREVIEW.value)
      return
    store, written = run.prepare(options, bar)
  finally:
    bar.close()
  if not written:
    print(
      f"nothing to do: {pathlib.Path(options.output)} is the store of these"
      f" inputs and options, hash {store.hash}"
    )
    return
  print(summary(store))
  print(f"{'seconds':24} {time.monotonic() - begin:.1f}")
