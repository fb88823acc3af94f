# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
r"""Tokenizes text and writes it as a store.

    %s --input='corpus/**/*.txt' --output=data/corpus
    %s --input=corpus.jsonl.zst --output=data/corpus \
        --tokenizer=tokenizer.json --text_key=content --workers=8
    %s --input=crawl --output=data/crawl \
        --text_key=doc.body --id_key=doc.url --on_error=skip

Each text file is one document; a directory stands for all files below it. JSON
lines (.jsonl, .ndjson, .json, also compressed as .gz or .zst) have one document
per line; Parquet, Arrow, `save_to_disk` directories and ArrayRecord have one
per row. A file of another kind, by name or content, is an error, or is skipped
and counted. The same inputs, options and tokenizer give the same store for any
number of workers. Run the same command again to continue an interrupted run;
if nothing is left to do, it reports so. The summary is printed to stdout.
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

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import chats
from chomp_data.prepare import id_checks
from chomp_data.prepare import option_fields
from chomp_data.prepare import options as options_lib
from chomp_data.prepare import rejections
from chomp_data.prepare import run
from chomp_data.prepare import run_tokenizer
from chomp_data.prepare import tokenizers
from chomp_data.storage import opening
from chomp_data.storage import publish


def _define(flag: option_fields.Flag) -> flags.FlagHolder[Any]:
  """Defines a flag of the command as its option is declared."""
  name, text = flag.name, flag.option.sentence
  default = None if flag.option.is_required else flag.option.default
  if flag.kind is tuple and flag.declared.commas:
    return flags.DEFINE_list(name, default or None, text)
  if flag.kind is tuple:
    # absl continues the sentence: "; repeat this option ...".
    text = text.removesuffix(".")
    is_required = flag.option.is_required
    return flags.DEFINE_multi_string(name, default, text, required=is_required)
  if flag.kind is bool:
    return flags.DEFINE_bool(name, default, text)
  if flag.kind is int:
    return flags.DEFINE_integer(name, default, text)
  if names := flag.option.rule.names:
    return flags.DEFINE_enum(name, default, names, text)
  return flags.DEFINE_string(name, default or None, text)


_HOLDERS = {
  flag.name: _define(flag)
  for options in options_lib.SECTIONS
  for flag in option_fields.flags_of(options)
}

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_MAX_SAMPLE = 1 << 20
_LOG_SECONDS = 30.0


def summary(store: stores.Store) -> str:
  """Returns what is in a store, for people; reads lengths only."""
  manifest = store.manifest if isinstance(store, stores.ZarrStore) else None
  low, high, lengths = _lengths(store)
  quantiles = np.quantile(lengths, _QUANTILES, method="lower").astype(int)
  pairs = f" ({store.num_documents // 2:,} preference pairs)"
  rows = [
    ("documents", f"{store.num_documents:,}{pairs * store.opened.pairs}"),
    ("tokens", f"{store.num_tokens:,} ({store.opened.token_dtype.name})"),
    *(
      [("empty documents skipped", f"{manifest.num_empty_skipped:,}")]
      if manifest
      else []
    ),
    *([("trained on", _trained(store))] if store.labels.has_runs else []),
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


def _of_chats(chat_summary: Mapping[str, Any]) -> list[tuple[str, str]]:
  """Returns what ends the turns of chats, and what else to look at."""
  rows = [
    (f"turns ended by {end}", f"{count:,}")
    for end, count in chat_summary.get("turns", {}).items()
  ]
  for name, note in (
    ("empty_answers", ""),
    ("unread_tools", " records: the template reads no tools"),
    ("has_eos", " documents: leave rows.add_eos unset"),
    ("needs_eos", " documents: set rows.add_eos"),
  ):
    if count := chat_summary.get(name):
      rows.append((name.replace("_", " "), f"{count:,}{note}"))
  if names := ", ".join(chat_summary.get("undefined_variables", ())):
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
  (count,) = store.labels.trained_before(
    np.asarray([store.num_tokens])
  ).tolist()
  return f"{count:,} tokens ({count / store.num_tokens:.1%})"


def _lengths(store: stores.Store) -> tuple[int, int, np.ndarray]:
  """Returns the extremes of lengths, and those of every nth document."""
  step = -(-store.num_documents // _MAX_SAMPLE)
  lows, highs, sampled = [], [], []
  for first, lengths in store.iter_lengths():
    lows.append(int(lengths.min()))
    highs.append(int(lengths.max()))
    sampled.append(lengths[-first % step :: step])
  return min(lows), max(highs), np.concatenate(sampled)


class _Bar:
  """Shows progress on stderr: a bar on a terminal, else a line now and then."""

  def __init__(self):
    self._bar: Any = None
    self._stage = ""
    self._last = time.monotonic()
    self._is_terminal = sys.stderr.isatty()

  def __call__(self, progress: run.Progress) -> None:
    if self._is_terminal:
      self._show(progress)
    elif time.monotonic() > self._last + _LOG_SECONDS:
      self._last = time.monotonic()
      print(
        f"{progress.stage}: {progress.done_bytes:,} of"
        f" {progress.total_bytes:,} bytes, {progress.documents:,} documents",
        file=sys.stderr,
      )

  def _show(self, progress: run.Progress) -> None:
    # Not at import: only a terminal needs it.
    import tqdm

    if self._bar is None or self._stage != progress.stage:
      self.close()
      self._stage = progress.stage
      self._bar = tqdm.tqdm(
        desc=progress.stage, total=progress.total_bytes, unit="B",
        unit_scale=True,
      )  # fmt: skip
    self._bar.set_postfix(documents=progress.documents, refresh=False)
    self._bar.update(progress.done_bytes - self._bar.n)

  def close(self) -> None:
    if self._bar is not None:
      self._bar.close()


def _bytes(store: stores.Store) -> list[tuple[str, str]]:
  """Returns what a store takes: on a disk less than its files' sizes.

  Padding of the last chunk is not written: file systems keep no blocks of it.
  """
  if not isinstance(store, stores.ZarrStore):
    return []
  if opening.open_storage(store.path).directory is None:
    return [("bytes in the bucket", f"{store.manifest.num_bytes:,}")]
  return [("bytes on disk", f"{publish.bytes_on_disk(store.path):,}")]


def _values(options: type) -> dict[str, Any]:
  """Returns the fields of options that flags set."""
  values: dict[str, Any] = {}
  for flag in option_fields.flags_of(options):
    value = _HOLDERS[flag.name].value
    if parse := flag.declared.parse:
      value = flag.option.default if value is None else parse(value)
    values[flag.option.name] = (
      tuple(value or ()) if flag.kind is tuple else value
    )
  return values


def _chat_options() -> chats.ChatOptions:
  values = _values(chats.ChatOptions)
  if values["message_keys"] and _HOLDERS["message_roles"].value is None:
    values["message_roles"] = chats.SHAREGPT_ROLES
  return chats.ChatOptions(**values)


def _print_preview(options: run.Options, count: int) -> None:
  # Not at import: it takes as long as 10 MB of text.
  import rich.console

  from chomp_data.commands import previews

  tokenizer = tokenizers.make_tokenizer(options.tokenizer_spec)
  console = rich.console.Console(highlight=False, soft_wrap=True)
  counts = rejections.Rejections()
  for document, encoded in run.preview(options, count):
    console.print(previews.text(document.name, encoded, tokenizer))
    counts.count_chat(document.counts)
  for name, number in counts.chats.items():
    if name.startswith(chats.TURN_ENDS):
      console.print(f"turns ended by {name}: {number:,}", markup=False)


def _tokenizer() -> tokenizers.TokenizerSpec:
  """Returns the tokenizer that flags name; token ids must say theirs."""
  size = None
  if _HOLDERS["ids_key"].value is not None:
    size = _HOLDERS["vocab_size"].value
    if bool(_HOLDERS["tokenizer"].present) == (size is not None):
      got = "neither" if size is None else f"both, {size} ids"
      raise errors.PrepareError(options_lib.no_tokenizer_of_ids(got))
  return tokenizers.TokenizerSpec(
    **_values(tokenizers.TokenizerSpec), vocab_size=size
  )


def _train() -> run_tokenizer.TrainOptions | None:
  values = _values(run_tokenizer.TrainOptions)
  size = values["vocab_size"]
  if values["algorithm"] is None:
    if size is not None and _HOLDERS["ids_key"].value is None:
      raise errors.PrepareError(
        "`--vocab_size` must be given with --train_tokenizer only, got"
        f" {size}. Say --train_tokenizer=bpe, or leave it out."
      )
    return None
  return run_tokenizer.TrainOptions(**values)


def main(argv: Sequence[str]) -> None:
  """Prepares the store and prints its summary."""
  if len(argv) > 1 and _HOLDERS["engine"].value == "pool":
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  begin = time.monotonic()
  values = _values(run.Options)
  command = options_lib.CommandOptions(**_values(options_lib.CommandOptions))
  errors.PrepareError.raise_if(option_fields.problems(command))
  bar = _Bar()
  try:
    options = run.Options(
      **{**values, "output": values["output"] or ""},
      tokenizer=_tokenizer(),
      train=_train(),
      id_required=bool(_HOLDERS["id_key"].present),
      chat=_chat_options(),
      engine_flags=tuple(argv[1:]),
    )
    if command.preview is not None:
      _print_preview(options, command.preview)
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
